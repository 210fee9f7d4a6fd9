"""``examples/feature-sms`` as its users get it: installed beside Holdfast, which finds it and needs no change."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import tomllib
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from tests.support.program import ROOT, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

EXAMPLE = ROOT / "examples" / "feature-sms"
PROJECT = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
NUMBER = "+5511987654321"
MASKED = "+55***21"
PROVIDER_KEY = "canary-provider-key-5Tq"
KEPT = {"HOME", "LANG", "PATH", "TMPDIR"}


@dataclass
class Provider:
    """An SMS provider: it answers every message with ``status``, and remembers what it got."""

    status: int = 201
    got: list[dict[str, str]] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def provider():
    state = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer(200 if self.path == "/v1/status" else 404)

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            state.got.append({**body, "key": self.headers["idempotency-key"], "auth": self.headers["authorization"]})
            self.answer(state.status if self.path == "/v1/messages" else 404)

        def answer(self, status):
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder into which pip has installed the example.

    The wheel is made here, from pyproject.toml: a build backend may not be at hand without a network.
    """
    place = tmp_path_factory.mktemp("sms")
    name = PROJECT["name"].replace("-", "_")
    about = f"{name}-{PROJECT['version']}.dist-info"
    points = {
        group: "\n".join(f"{key} = {value}" for key, value in entries.items())
        for group, entries in PROJECT["entry-points"].items()
    }
    wheel = place / f"{name}-{PROJECT['version']}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        for source in sorted((EXAMPLE / "src").rglob("*.py")):
            file.write(source, source.relative_to(EXAMPLE / "src").as_posix())
        file.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {PROJECT['version']}\n")
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{about}/entry_points.txt", "".join(f"[{each}]\n{text}\n" for each, text in points.items()))
        file.writestr(f"{about}/RECORD", "".join(f"{each},,\n" for each in (*file.namelist(), f"{about}/RECORD")))
    offline = ("--quiet", "--no-index", "--no-deps", "--disable-pip-version-check", "--target", str(place / "site"))
    subprocess.run([sys.executable, "-m", "pip", "install", *offline, wheel], check=True, timeout=120)
    return place / "site"


@dataclass(frozen=True)
class Home:
    """A working directory with a holdfast.toml, and the program with the example beside it."""

    folder: Path
    site: Path
    said: list[str] = field(default_factory=list)

    @property
    def environment(self):
        kept = {name: value for name, value in os.environ.items() if name in KEPT}
        return kept | {"PYTHONPATH": str(self.site), "API_PORT": "0", "LOG_FORMAT": "json", "UPKEEP_INTERVAL_MS": "50"}

    def run(self, *arguments, code=0, **settings):
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *arguments],
            cwd=self.folder,
            env=self.environment | settings,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        self.said.extend((done.stdout, done.stderr))
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def json(self, *arguments, **settings):
        return json.loads(self.run(*arguments, "--json", **settings).stdout)

    @contextmanager
    def up(self):
        log = self.folder / "up.log"
        with log.open("w") as errors:
            up = subprocess.Popen(
                [sys.executable, "-m", "holdfast", "up", "--json"],
                cwd=self.folder,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        try:
            line = up.stdout.readline()
            assert line, log.read_text()
            with httpx.Client(base_url=json.loads(line)["address"], trust_env=False) as client:
                yield client
            up.send_signal(signal.SIGTERM)
            assert up.wait(timeout=60) == 0, log.read_text()
        finally:
            if up.poll() is None:
                up.kill()
            up.communicate()
        self.said.append(log.read_text())


@pytest.fixture
def bare(site, tmp_path):
    """Holdfast with the example installed, which nobody has set up."""
    home = Home(tmp_path, site)
    home.run("init")
    return home


@pytest.fixture
def home(bare, provider):
    """The same, with the provider in the table of the feature: one name with its prefix, one without."""
    with (bare.folder / "holdfast.toml").open("a") as file:
        file.write(f'\n[sms]\nprovider_url = "{provider.url}"\nsms_provider_key = "{PROVIDER_KEY}"\n')
    return bare


def key(home, *scopes):
    home.run("tenants", "add", "acme")
    wanted = [part for scope in scopes for part in ("--scope", scope)]
    return {"authorization": f"Bearer {home.json('keys', 'create', 'acme', *wanted)['key']}"}


def ended(client, headers, message_id, status):
    def look():
        shown = client.get(f"/v1/sms/{message_id}", headers=headers).json()
        return shown if shown["status"] == status else None

    return wait_until(look)


def test_the_program_shows_all_that_the_package_brings(home):
    assert re.search(r"sms +See the state of text messages", home.run("--help").stdout)
    settings = {each["name"]: each for each in home.json("config", "show")}
    assert settings["SMS_PROVIDER_URL"]["origin"] == settings["SMS_PROVIDER_KEY"]["origin"] == "holdfast.toml"
    assert settings["SMS_PROVIDER_KEY"]["value"] == "********"
    assert settings["SMS_TIMEOUT_MS"]["value"] == "5000"
    assert {"sms.job", "sms.body", "http.sms"} <= {each["name"] for each in home.json("schema", "list")}
    assert "sms:send sends text messages" in " ".join(home.run("keys", "create", "--help").stdout.split())
    checks = {each["check"]: each for each in home.json("doctor")["checks"]}
    assert (checks["sms"]["verdict"], checks["sms"]["message"]) == ("OK", "The provider answers.")
    assert PROVIDER_KEY not in "".join(home.said)


def test_a_message_is_sent_once_and_a_failing_provider_ends_in_a_dead_letter(home, provider):
    message = {"id": "order-77", "to": NUMBER, "text": "Your parcel has arrived."}
    home.run("migrate")
    headers = key(home, "sms:send", "sms:read")
    with home.up() as client:
        assert client.post("/v1/sms", json=message).status_code == 401
        first = client.post("/v1/sms", json=message, headers=headers)
        again = client.post("/v1/sms", json=message, headers=headers)
        assert (first.status_code, again.status_code) == (202, 202)
        assert (first.json()["duplicate"], again.json()["duplicate"]) == (False, True)
        assert client.post("/v1/sms", json={**message, "text": "Other."}, headers=headers).status_code == 409
        wrong = client.post("/v1/sms", json={**message, "to": "11987654321"}, headers=headers)
        assert wrong.status_code == 400
        assert wrong.json()["details"] == [{"field": "to", "problem": "must be a phone number such as +5511987654321"}]
        shown = ended(client, headers, "order-77", "processed")
        assert (shown["to"], shown["attempts"], shown["error"]) == (MASKED, 1, None)
        assert len(provider.got) == 1
        assert (provider.got[0]["to"], provider.got[0]["auth"]) == (NUMBER, f"Bearer {PROVIDER_KEY}")

        provider.status = 503
        client.post("/v1/sms", json={**message, "id": "order-78"}, headers=headers)
        shown = ended(client, headers, "order-78", "dead_lettered")
        assert (shown["attempts"], shown["error"]) == (3, "HTTP_503")
        assert len({each["key"] for each in provider.got[1:]}) == 1
        assert len(provider.got) == 4

        provider.status = 422
        client.post("/v1/sms", json={**message, "id": "order-79"}, headers=headers)
        assert ended(client, headers, "order-79", "dead_lettered")["attempts"] == 1

        assert client.get("/v1/sms/order-80", headers=headers).status_code == 404
        paths = client.get("/openapi.json").json()["paths"]
        assert {"post"} <= set(paths["/v1/sms"])
        assert {"get"} <= set(paths["/v1/sms/{id}"])
    listed = home.json("sms", "list")["items"]
    assert [(each["id"], each["to"]) for each in listed] == [(f"order-{number}", MASKED) for number in (79, 78, 77)]
    assert "HTTP_503" in home.run("sms", "show", "acme", "order-78").stdout
    home.run("sms", "show", "acme", "order-80", code=1)
    letters = home.json("dlq", "list", "--workload", "sms")["items"]
    assert {each["terminalReasonCode"] for each in letters} == {"HTTP_503_EXHAUSTED", "HTTP_422"}
    assert home.json("dlq", "show", letters[0]["id"])["payloadSnapshot"]["to"] == MASKED
    assert NUMBER[1:] not in "".join(home.said).replace("such as +5511987654321", "")


def test_scopes_are_checked(home):
    home.run("migrate")
    headers = key(home, "sms:read")
    with home.up() as client:
        refused = client.post("/v1/sms", json={"id": "1", "to": NUMBER, "text": "Hello."}, headers=headers)
        assert (refused.status_code, refused.json()["errorCode"]) == (403, "MISSING_SCOPE")


def test_where_it_is_not_set_up_routes_commands_and_doctor_say_so(bare):
    reason = "Text messages are not set up here: SMS_PROVIDER_URL is not set."
    with bare.up() as client:
        answer = client.post("/v1/sms", json={})
        assert (answer.status_code, answer.json()["message"]) == (404, reason)
    assert reason in bare.run("sms", "list", code=2).stderr
    checks = {each["check"]: each for each in bare.json("doctor")["checks"]}
    assert checks["sms"]["message"] == "Not set up here."
    half = bare.run("config", "show", code=2, SMS_PROVIDER_URL="http://127.0.0.1:1")
    assert "SMS_PROVIDER_URL needs SMS_PROVIDER_KEY" in half.stderr


def test_its_own_tests_pass(site):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0", EXAMPLE / "tests"]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(site)}, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
