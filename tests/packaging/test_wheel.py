"""The wheel as an external producer gets it: installed without extras into a fresh environment, and used from there."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from email.parser import Parser
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

import holdfast
from holdfast.cli import COMMANDS
from tests.support.program import ROOT, wait_until
from tests.support.valkey_server import absent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

PATIENCE = 600
KEPT = {"HOME", "LANG", "PATH", "TMPDIR"}
"""Of the environment, what the installed program sees. No setting of ours, and no PYTHONPATH, is among it."""
NO_NETWORK = re.compile(
    "No matching distribution|Temporary failure|Connection|ConnectTimeout|Max retries|Name or service not known"
)

SENDING = "cryptography, email_validator"
READING = "av, faster_whisper, pypdfium2, python_multipart, rapidocr"
CLUSTER = {"REDIS_URL": "redis://127.0.0.1:1/0", "MONGO_URI": "mongodb://127.0.0.1:1/?replicaSet=rs0"}

ASKED = [
    ({"EMAIL_TRANSPORT": "smtp", "SMTP_HOST": "127.0.0.1"}, "emails", f"{SENDING}, aiosmtplib", "email"),
    ({"EMAIL_TRANSPORT": "ses", "SES_REGION": "sa-east-1"}, "emails", f"{SENDING}, aiobotocore", "aws,email"),
    ({"DOCUMENT_STORAGE": "s3", "DOCUMENT_BUCKET": "b"}, "documents", f"{READING}, aiobotocore", "aws,documents"),
    ({"DOCUMENT_ROOTS": "papers"}, "documents", READING, "documents"),
    (CLUSTER, "cluster", "bullmq, msgpack, pymongo, redis", "cluster"),
]


@dataclass(frozen=True)
class Bare:
    """The wheel, and an environment that has nothing but the wheel and what it requires."""

    wheel: Path
    bin: Path

    def run(self, *command: str | Path, cwd: Path, **settings: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.bin / command[0], *command[1:]],
            cwd=cwd,
            env=environment(**settings),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )

    def holdfast(self, *arguments: str, cwd: Path, **settings: str) -> subprocess.CompletedProcess[str]:
        said = self.run("holdfast", *arguments, cwd=cwd, **settings)
        assert "Traceback" not in said.stderr + said.stdout
        return said

    def doctor(self, cwd: Path, **settings: str) -> tuple[int, dict[str, dict[str, str]]]:
        said = self.holdfast("doctor", "--json", cwd=cwd, API_PORT="0", **settings)
        return said.returncode, {each["check"]: each for each in json.loads(said.stdout)["checks"]}


def environment(**settings):
    return {name: value for name, value in os.environ.items() if name in KEPT} | settings


def pip(*arguments):
    """Pip, with whatever configuration this machine has. Without a registry there is no wheel to look at."""
    command = [sys.executable, "-m", "pip", *arguments]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command,
        env=kept | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_REQUIRE_VIRTUALENV": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    if done.returncode != 0:
        told = f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
        if NO_NETWORK.search(told):
            absent(f"The registry of packages could not be reached, so the wheel was not installed:\n{told}")
        pytest.fail(told)


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    place = tmp_path_factory.mktemp("bare")
    # Built with the hatchling that is here, where there is one, and installed by the pip that is here, without bytecode
    # that nobody runs: the result is the same, sooner.
    here = ["--no-build-isolation"] if find_spec("hatchling") else []
    pip("wheel", "--quiet", "--no-deps", *here, "--wheel-dir", place / "wheels", ROOT)
    (wheel,) = (place / "wheels").iterdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "venv"], check=True, timeout=PATIENCE)
    programs = place / "venv" / "bin"
    limits = ("--quiet", "--no-compile", "--constraint", ROOT / "constraints.txt")
    pip("--python", programs / "python", "install", *limits, wheel)
    return Bare(wheel, programs)


@pytest.fixture
def home(bare, tmp_path):
    """A folder with a fresh holdfast.toml."""
    assert bare.holdfast("init", cwd=tmp_path).returncode == 0
    return tmp_path


def test_the_wheel_holds_the_package_and_nothing_else(bare):
    source = ROOT / "src"
    ours = {
        file.relative_to(source).as_posix()
        for file in (source / "holdfast").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    about = f"holdfast_gateway-{holdfast.__version__}.dist-info"
    notes = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
    with zipfile.ZipFile(bare.wheel) as wheel:
        assert set(wheel.namelist()) == ours | {f"{about}/{name}" for name in notes}
        metadata = Parser().parsestr(wheel.read(f"{about}/METADATA").decode())
    assert (metadata["Name"], metadata["Version"]) == ("holdfast-gateway", holdfast.__version__)
    extras = {"all", "aws", "bench", "cluster", "dev", "documents", "email", "otel", "servers", "speech-model"}
    assert set(metadata.get_all("Provides-Extra")) == extras


def test_the_version_is_right(bare, tmp_path):
    assert bare.holdfast("--version", cwd=tmp_path).stdout == f"holdfast {holdfast.__version__}\n"
    code = "from importlib.metadata import version; print(version('holdfast-gateway'))"
    assert bare.run("python", "-c", code, cwd=tmp_path).stdout.strip() == holdfast.__version__


def test_it_holds_no_optional_library(bare, tmp_path):
    code = (
        "from holdfast.contracts.extras import EXTRA_OF, missing_libraries\n"
        "print(sorted(set(EXTRA_OF) - set(missing_libraries(EXTRA_OF))))"
    )
    assert bare.run("python", "-c", code, cwd=tmp_path).stdout.strip() == "[]"


def test_an_event_is_sent_and_processed_and_what_is_not_installed_is_refused_in_words(bare, home):
    log = home / "up.log"
    with log.open("w") as errors:
        up = subprocess.Popen(
            [bare.bin / "holdfast", "up", "--json"],
            cwd=home,
            env=environment(API_PORT="0"),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        line = up.stdout.readline()
        assert line, log.read_text()
        address = json.loads(line)["address"]
        sent = bare.holdfast("send", "--url", address, "--event-id", "evt-1", cwd=home)
        assert sent.returncode == 0, sent.stderr

        def status():
            shown = bare.holdfast("events", "show", "courier-x:evt-1", "--json", cwd=home)
            return shown.stdout and json.loads(shown.stdout)["status"] == "processed"

        wait_until(status)
        for path, libraries, extra in (
            ("/v1/email/send", SENDING, "email"),
            ("/v1/documents", READING, "documents"),
        ):
            answer = httpx.post(f"{address}{path}", json={}, trust_env=False)
            assert answer.status_code == 404
            assert libraries in answer.json()["message"]
            assert f"pip install 'holdfast-gateway[{extra}]'" in answer.json()["message"]
        up.send_signal(signal.SIGTERM)
        assert up.wait(timeout=60) == 0, log.read_text()
    finally:
        if up.poll() is None:
            up.kill()
        up.communicate()
    assert "Traceback" not in log.read_text()


def test_doctor_says_what_is_left_out(bare, home):
    code, found = bare.doctor(home)
    assert code == 0
    assert found["installation"]["message"] == f"holdfast-gateway {holdfast.__version__}"
    for check, told, libraries, extra in (
        ("emails", "Not set up here", SENDING, "email"),
        ("documents", "Not set up here", READING, "documents"),
    ):
        assert found[check]["message"] == f"{told}: {libraries} not installed."
        assert found[check]["advice"] == f"Wanted? pip install 'holdfast-gateway[{extra}]'"


@pytest.mark.parametrize(("settings", "check", "libraries", "extras"), ASKED)
def test_a_setting_that_asks_for_what_is_missing_is_told_by_up_and_by_doctor(
    bare, home, settings, check, libraries, extras
):
    up = bare.holdfast("up", cwd=home, API_PORT="0", **settings)
    assert up.returncode == 2
    assert up.stderr.count("Error:") == 1
    assert f"needs what is not installed here: {libraries}. " in up.stderr
    assert up.stderr.endswith(f"pip install 'holdfast-gateway[{extras}]'\n")
    code, found = bare.doctor(home, **settings)
    assert code == 1
    assert found[check]["verdict"] == "FAIL"
    assert libraries in found[check]["message"]
    assert found[check]["advice"] == f"Install it: pip install 'holdfast-gateway[{extras}]'"


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("emails", "list"), "email"),
        (("suppressions", "list"), "email"),
        (("documents", "list"), "documents"),
        (("documents", "run", "holdfast.toml"), "documents"),
        (("demo", "--cluster"), "cluster"),
    ],
)
def test_a_command_that_needs_an_extra_names_it(bare, home, arguments, extra):
    assert bare.holdfast("migrate", cwd=home).returncode == 0
    said = bare.holdfast(*arguments, cwd=home)
    assert said.returncode == 2
    assert f"pip install 'holdfast-gateway[{extra}]'" in said.stderr


def test_every_command_can_be_loaded(bare, tmp_path):
    names = [each.name for each in COMMANDS]
    code = f"from holdfast.cli import main; print([name for name in {names} if main([name, '--help']) != 0])"
    said = bare.run("python", "-c", code, cwd=tmp_path)
    assert said.stdout.splitlines()[-1:] == ["[]"], said.stderr


def test_the_other_project_of_this_name_is_found_and_the_advice_mends_it(bare, home, tmp_path):
    """Last: for a while, the environment has both."""
    other = tmp_path / "holdfast-7.0-py3-none-any.whl"
    about = "holdfast-7.0.dist-info"
    with zipfile.ZipFile(other, "w") as wheel:
        wheel.writestr("holdfast/py.typed", "not ours any more")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: holdfast\nVersion: 7.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "".join(f"{each},,\n" for each in (*wheel.namelist(), f"{about}/RECORD")))
    offline = ("--python", bare.bin / "python", "install", "--no-compile", "--quiet", "--no-deps", "--no-index")
    pip(*offline, other)
    code, found = bare.doctor(home)
    assert (code, found["installation"]["verdict"]) == (1, "FAIL")
    assert "holdfast 7.0" in found["installation"]["message"]
    (advice,) = re.findall(r"pip uninstall ([a-z -]+); pip install ([a-z-]+)", found["installation"]["advice"])
    assert advice == ("holdfast holdfast-gateway", "holdfast-gateway")
    pip("--python", bare.bin / "python", "uninstall", "--quiet", "--yes", *advice[0].split())
    assert not (bare.bin / "holdfast").exists()
    pip(*offline, bare.wheel)
    assert bare.doctor(home)[1]["installation"]["verdict"] == "OK"
