"""docs/operations/ and deploy/ name commands, options, settings and log events. Here they are held to the code."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from holdfast.brokers.bullmq.scripts import load_scripts
from holdfast.features.documents.failures import TABLE
from holdfast.features.documents.settings import DocumentSettings
from holdfast.features.email.keys import KEYS_FILE, email_secrets
from holdfast.features.email.settings import EmailSettings
from holdfast.telemetry import events, logs
from tests.support.markdown import code, commands_in, complaint
from tests.support.settings import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
OPERATIONS = sorted((ROOT / "docs" / "operations").glob("*.md"))
PAGES = [*OPERATIONS, DEPLOY / "README.md"]
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))

SETTINGS = frozenset(name.upper() for name in Settings.model_fields)
EVENTS = frozenset(value for name, value in vars(events).items() if name.isupper() and name[0] != "_")
KINDS = "|".join(sorted({event.partition(".")[0] for event in EVENTS}))
NOT_SETTINGS = frozenset({"HOLDFAST_CONFIG"})

SETTING = re.compile(r"\b[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+\b")
EVENT = re.compile(rf"^(?:{KINDS})\.[a-z_]+$")
MAKE = re.compile(r"\bmake ([a-z][a-z-]*)")

LINES_OF_A_PAGE = 250
MOST_WELL_KNOWN_PORT = 1023


@cache
def operations() -> str:
    """All pages for operators, one after another."""
    return "\n".join(page.read_text(encoding="utf-8") for page in OPERATIONS)


def name_of(page: Path) -> str:
    return f"{page.parent.name}/{page.name}"


# --- what the pages say -----------------------------------------------------------------------------------------------


def settings_in(text: str) -> set[str]:
    return {name for each in code(text) for name in SETTING.findall(each)}


def events_in(text: str) -> set[str]:
    return {each for each in code(text) if EVENT.match(each) and not each.endswith((".toml", ".py"))}


@cache
def codes() -> frozenset[str]:
    """Reason and error codes are written like settings, and are strings of the source."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    return frozenset(re.findall(r'"([A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+)"', source))


# --- the pages --------------------------------------------------------------------------------------------------------


def test_the_pages_are_short_and_the_index_lists_each_of_them():
    (index,) = [page for page in OPERATIONS if page.name == "README.md"]
    lines = {page.name: len(page.read_text(encoding="utf-8").splitlines()) for page in OPERATIONS}
    listed = set(re.findall(r"\]\(([a-z-]+\.md)\)", index.read_text(encoding="utf-8")))

    assert [name for name, count in lines.items() if count > LINES_OF_A_PAGE] == []
    assert listed == set(lines) - {"README.md"}


def test_the_pages_name_settings_commands_and_events():
    assert settings_in(operations())
    assert list(commands_in(operations()))
    assert events_in(operations())


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_setting_that_a_page_names_exists(page):
    named = settings_in(page.read_text(encoding="utf-8"))

    assert named - SETTINGS - NOT_SETTINGS - codes() == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_and_option_that_a_page_names_exists(page):
    commands = list(commands_in(page.read_text(encoding="utf-8")))

    assert [problem for words in commands if (problem := complaint(words))] == []


def test_every_log_event_that_the_pages_name_exists():
    assert events_in(operations()) - EVENTS == set()


def test_every_warning_that_the_log_may_show_is_explained():
    assert logs._WARNINGS - events_in(operations()) == set()


def section_of(heading: str) -> str:
    return operations().split(f"\n## {heading}\n")[1].partition("\n#")[0]


def settings_in_tables(headings: Sequence[str]) -> dict[str, str]:
    """The tables: each setting and its default, as the page says it."""
    rows = [
        row
        for each in headings
        for row in re.findall(r"^\| `([A-Z0-9_]+)` \| (.*?) \|", section_of(each), re.MULTILINE)
    ]
    assert len(rows) == len(dict(rows)), "a setting is listed twice"
    return dict(rows)


def as_written(name: str, default: object) -> str:
    if default is None or default in ((), {}):
        return "none"
    match default:
        case bool():
            return str(default).lower()
        case int() if name.endswith("_port") and default > MOST_WELL_KNOWN_PORT:
            return str(default)
        case int():
            return f"{default:,}"
        case tuple():
            return ",".join(map(str, default))
        case _:
            return str(default)


EMAIL, DOCUMENTS = set(EmailSettings.model_fields), set(DocumentSettings.model_fields)


@pytest.mark.parametrize(
    ("headings", "names"),
    [
        (["Settings of emails"], EMAIL),
        (["Settings of documents"], DOCUMENTS),
        (
            [
                "Settings of the process and the API",
                "Settings of couriers",
                "Settings of workers, retries and maintenance",
                "Settings of the cluster",
            ],
            set(Settings.model_fields) - EMAIL - DOCUMENTS,
        ),
    ],
    ids=["emails", "documents", "all others"],
)
def test_the_tables_of_settings_have_every_one_with_its_default(headings, names):
    assert settings_in_tables(headings) == {
        name.upper(): as_written(name, Settings.model_fields[name].get_default(call_default_factory=True))
        for name in names
    }


def test_the_table_of_failures_says_of_each_what_becomes_of_it():
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (yes|no) \|", section_of("Why a document was not read"), re.MULTILINE)

    assert rows == [(code, kind.error_type, "yes" if kind.retried else "no") for code, kind in TABLE.items()]


def test_the_keys_of_a_data_folder_may_be_moved_into_the_settings_as_they_are(tmp_path):
    made = email_secrets(Settings(holdfast_data=tmp_path))
    file = json.loads((tmp_path / KEYS_FILE).read_text(encoding="ascii"))
    moved = Settings(holdfast_data=tmp_path / "other", email_pepper=file["pepper"], email_keys=json.dumps(file["keys"]))

    assert email_secrets(moved) == made


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_make_target_that_a_page_names_exists(page):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)

    assert {name for each in code(page.read_text(encoding="utf-8")) for name in MAKE.findall(each)} <= set(targets)


def test_the_rights_for_redis_are_those_that_the_scripts_need():
    """One that is missing stops the broker at the first job that needs it; one too many is a right given away."""
    rule = operations().split("ACL SETUSER holdfast ")[1].partition("```")[0]
    scripts = load_scripts()
    sources = [getattr(scripts, field.name).source for field in dataclasses.fields(scripts)]
    called = {
        name.lower() for text in sources for name in re.findall(r"(?:rcall|redis\.p?call)\(\s*[\"'](\w+)[\"']", text)
    }
    chosen = {"lpush", "rpush"}  # by a variable
    by_the_broker = {"bzpopmin", "client|setname", "eval", "evalsha", "info", "ping"}

    assert {each for each in shlex.split(rule) if each.startswith("+")} == {
        f"+{name}" for name in called | chosen | by_the_broker
    }


# --- deploy/ ----------------------------------------------------------------------------------------------------------


def unit_of(path: Path) -> dict[str, dict[str, list[str]]]:
    """The sections of a unit; a name may come several times."""
    sections: dict[str, dict[str, list[str]]] = {}
    current: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            current = sections.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            name, mark, value = line.partition("=")
            assert mark, f"{path.name}: not a setting: {line}"
            current.setdefault(name, []).append(value)
    return sections


def test_there_are_units():
    assert {path.name for path in UNITS} == {"holdfast.service", "holdfast-api.service", "holdfast-worker.service"}


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_runs_a_command_that_exists_with_settings_that_exist(path):
    service = unit_of(path)["Service"]
    (start,) = service["ExecStart"]
    program, *words = shlex.split(start)
    names = {each.partition("=")[0] for each in service["Environment"]}

    assert program == "/opt/holdfast/bin/holdfast"
    assert complaint(words) is None
    assert names - SETTINGS - NOT_SETTINGS == set()


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_gives_the_processes_time_to_drain(path):
    (seconds,) = unit_of(path)["Service"]["TimeoutStopSec"]
    default = Settings.model_fields["worker_drain_timeout_ms"].default / 1000

    assert int(seconds) > 3 * default + 30


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_only_a_parent_of_processes_is_sent_a_hangup(path):
    service = unit_of(path)["Service"]

    assert ("ExecReload" in service) == ("--processes" in service["ExecStart"][0])
    assert ("--processes" in service["ExecStart"][0]) == (service.get("KillMode") == ["mixed"])


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_is_hardened_and_comes_back(path):
    service = unit_of(path)["Service"]

    assert service["User"] == ["holdfast"]
    assert service["NoNewPrivileges"] == ["yes"]
    assert service["ProtectSystem"] == ["strict"]
    assert service["Restart"] == ["always"]


@pytest.fixture
def compose():
    yaml = pytest.importorskip("yaml", reason="There is no YAML parser here. Install it with: pip install pyyaml")
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


def test_the_compose_file_runs_commands_that_exist_with_settings_that_exist(compose):
    ours = [service for service in compose["services"].values() if service["image"] == "holdfast"]

    assert len(ours) == 4
    assert [problem for service in ours if (problem := complaint(service["command"]))] == []
    assert {name for service in ours for name in service["environment"]} <= SETTINGS


def test_the_example_of_secrets_names_settings_that_exist():
    text = (DEPLOY / "compose.env.example").read_text(encoding="utf-8")
    named = set(re.findall(r"^#?([A-Z_]+)=", text, re.MULTILINE))

    assert {"OPERATOR_TOKEN", "EMAIL_KEYS"} <= named <= SETTINGS


@pytest.mark.parametrize(
    "path",
    [DEPLOY / "compose.yaml", DEPLOY / "README.md", ROOT / "docs" / "operations" / "install.md"],
    ids=name_of,
)
def test_nobody_is_told_that_the_compose_file_is_tested(path):
    text = " ".join(path.read_text(encoding="utf-8").replace("#", "").split()).lower()

    assert "not exercise" in text


# --- the checks themselves --------------------------------------------------------------------------------------------


def test_what_does_not_exist_is_noticed():
    assert complaint(["worker", "--processes", "4"]) is None
    assert complaint(["dlq", "list", "--status", "pending"]) is None
    assert complaint(["worker", "--proceses", "4"]) is not None
    assert complaint(["work"]) is not None
    assert complaint(["dlq", "burn"]) is not None
    assert list(commands_in("say `holdfast dlq list --status pending` or ```\n$ holdfast migrate\n```")) == [
        ["dlq", "list", "--status", "pending"],
        ["migrate"],
    ]
    assert settings_in("`REDIS_ULR` and `WORKER_LOST`") - SETTINGS - codes() == {"REDIS_ULR"}
    assert events_in("`queue.lots`") - EVENTS == {"queue.lots"}
