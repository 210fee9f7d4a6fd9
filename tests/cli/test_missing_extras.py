"""Where a library is missing, the program says which, and names the extra that brings it."""

from __future__ import annotations

import sys
from importlib.metadata import Distribution

import pytest

SMTP = {"EMAIL_TRANSPORT": "smtp", "SMTP_HOST": "127.0.0.1"}
SES = {"EMAIL_TRANSPORT": "ses", "SES_REGION": "sa-east-1"}
S3_CONTENT = {"EMAIL_CONTENT": "s3", "EMAIL_CONTENT_BUCKET": "bucket"}
S3 = {"DOCUMENT_STORAGE": "s3", "DOCUMENT_BUCKET": "bucket"}
GEMINI = {"DOCUMENT_ENGINE": "gemini", "GEMINI_API_KEY": "a-key-of-nobody"}

ASKED = [
    (SMTP, ["aiosmtplib"], "emails", "EMAIL_TRANSPORT=smtp", "email"),
    (SMTP, ["cryptography"], "emails", "EMAIL_TRANSPORT=smtp", "email"),
    (SES, ["aiobotocore"], "emails", "EMAIL_TRANSPORT=ses", "aws"),
    (SES, ["aiobotocore", "email_validator"], "emails", "EMAIL_TRANSPORT=ses", "aws,email"),
    (S3_CONTENT, ["aiobotocore"], "emails", "EMAIL_CONTENT=s3", "aws"),
    (S3, ["aiobotocore"], "documents", "DOCUMENT_STORAGE=s3", "aws"),
    (S3, ["aiobotocore", "rapidocr"], "documents", "DOCUMENT_STORAGE=s3", "aws,documents"),
    (GEMINI, ["google.genai"], "documents", "DOCUMENT_ENGINE=gemini", "documents"),
    ({"DOCUMENT_ROOTS": "papers"}, ["av"], "documents", "DOCUMENT_ROOTS", "documents"),
]


@pytest.fixture(autouse=True)
def free_port(home, monkeypatch):
    monkeypatch.setenv("API_PORT", "0")


@pytest.fixture
def without(monkeypatch):
    def hide(*libraries):
        for library in libraries:
            monkeypatch.setitem(sys.modules, library, None)

    return hide


@pytest.fixture
def found(program):
    def doctor():
        said = program("doctor", "--json")
        return said.code, {each["check"]: each for each in said.json["checks"]}

    return doctor


@pytest.mark.parametrize(("settings", "libraries", "check", "asker", "extras"), ASKED)
@pytest.mark.parametrize("command", [("up",), ("up", "--processes", "2"), ("worker",)])
def test_a_setting_that_asks_for_what_is_missing_keeps_it_from_starting(
    program, without, monkeypatch, home, command, settings, libraries, check, asker, extras
):
    without(*libraries)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    said = program(*command)
    assert said.code == 2
    assert said.err.startswith(f"Error: {asker} needs what is not installed here: ")
    assert all(library in said.err for library in libraries)
    assert said.err.endswith(f"pip install 'holdfast-gateway[{extras}]'\n")
    assert "Traceback" not in said.err
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(("settings", "libraries", "check", "asker", "extras"), ASKED)
def test_doctor_fails_on_it(found, without, monkeypatch, settings, libraries, check, asker, extras):
    without(*libraries)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    code, checks = found()
    assert code == 1
    assert checks[check]["verdict"] == "FAIL"
    assert checks[check]["message"].startswith(asker)
    assert checks[check]["advice"] == f"Install it: pip install 'holdfast-gateway[{extras}]'"
    assert checks["ledger"]["verdict"] == "WARN"
    assert "durable commit" not in checks


@pytest.mark.parametrize("library", ["cryptography", "email_validator"])
def test_emails_that_nobody_asks_for_are_left_out_and_doctor_says_so(found, without, library):
    without(library)
    code, checks = found()
    assert code == 0
    assert checks["emails"]["verdict"] == "OK"
    assert checks["emails"]["message"] == f"Not set up here: {library} not installed."
    assert checks["emails"]["advice"] == "Wanted? pip install 'holdfast-gateway[email]'"
    assert checks["ledger"]["verdict"] == "OK"


def test_a_command_for_emails_says_what_to_install(program, without, empty_ledger):
    without("cryptography")
    said = program("emails", "list")
    assert said.code == 2
    assert "cryptography not installed. Install it: pip install 'holdfast-gateway[email]'" in said.err


# --- the other project of this name -----------------------------------------------------------------------------------


class Installed(Distribution):
    def __init__(self, name, program="somebody:main"):
        self._files = {
            "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 7.0\n",
            "entry_points.txt": f"[console_scripts]\nholdfast = {program}\n",
        }

    def read_text(self, filename):
        return self._files.get(filename)

    def locate_file(self, path):
        return path


@pytest.mark.parametrize(
    ("names", "level"),
    [
        (["holdfast-gateway", "rich"], "OK"),
        (["Holdfast_Gateway"], "OK"),
        (["rich"], "WARN"),
        (["holdfast-gateway", "holdfast"], "FAIL"),
        (["holdfast_gateway", "Holdfast"], "FAIL"),
    ],
)
def test_doctor_finds_the_other_project_of_this_name(found, monkeypatch, names, level):
    distributions = [Installed(name) for name in names]
    monkeypatch.setattr("holdfast.cli.doctor.environment.distributions", lambda: distributions)
    code, checks = found()
    assert code == (1 if level == "FAIL" else 0)
    told = checks["installation"]
    assert told["verdict"] == level
    if level == "FAIL":
        assert "holdfast 7.0" in told["message"]
        assert "pip uninstall holdfast holdfast-gateway; pip install holdfast-gateway" in told["advice"]


def test_our_own_old_name_is_told_from_the_other_project(found, monkeypatch):
    distributions = [Installed("holdfast", "holdfast.cli:main"), Installed("holdfast-gateway", "holdfast.cli:main")]
    monkeypatch.setattr("holdfast.cli.doctor.environment.distributions", lambda: distributions)
    code, checks = found()
    assert code == 0
    assert checks["installation"]["verdict"] == "WARN"
    assert "an older Holdfast" in checks["installation"]["message"]
