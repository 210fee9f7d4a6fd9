"""What ``doctor``, ``schema`` and ``keys`` say about documents."""

from __future__ import annotations

import json
import sys

import pytest

from holdfast.features.documents.checks import confinement_finding
from holdfast.features.documents.child.confinement import Confinement
from holdfast.features.documents.contract import DocumentJob
from tests.cli.commands import SECRET
from tests.support.moto_server import _moto_process, aws_credentials, moto  # noqa: F401 - fixtures

CHECKS = {
    "documents",
    "speech model",
    "document roots",
    "document callbacks",
    "document confinement",
    "document storage",
}


@pytest.fixture
def doctor(program, monkeypatch):
    monkeypatch.setenv("API_PORT", "0")

    def run(**setting):
        for name, value in setting.items():
            monkeypatch.setenv(name, value)
        said = program("doctor", "--json")
        return said.code, {each["check"]: each for each in said.json["checks"]}

    return run


def test_all_is_well_with_documents(doctor, home):
    code, found = doctor()
    assert code == 0
    levels = {name: found[name]["verdict"] for name in CHECKS}
    # Whether processes can be confined is a matter of the machine that runs the tests.
    assert levels.pop("document confinement") in {"OK", "WARN"}
    assert set(levels.values()) == {"OK"}
    assert "Whisper base" in found["speech model"]["message"]
    assert list(home.iterdir()) == []


def test_a_missing_extra_is_information(doctor, monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    code, found = doctor()
    assert code == 0
    assert found["documents"]["verdict"] == "OK"
    assert "Not set up here: rapidocr not installed" in found["documents"]["message"]
    assert "pip install 'holdfast-gateway[documents]'" in found["documents"]["advice"]
    assert not found.keys() & (CHECKS - {"documents"})


def test_what_is_to_be_mended_is_told(doctor, home):
    (home / "papers").mkdir()
    (home / "blocked").write_text("")
    (home / "blocked").chmod(0o755)
    code, found = doctor(
        WHISPER_MODEL_DIR=str(home / "papers"),
        DOCUMENT_ROOTS=f"{home / 'papers'},{home / 'blocked'}",
        DOCUMENT_FOLDER=str(home / "blocked" / "inside"),
        DOCUMENT_CALLBACK_SECRET="whsec_!!",
    )
    assert code == 1
    levels = {name: found[name]["verdict"] for name in CHECKS - {"document confinement"}}
    assert levels == {
        "documents": "OK",
        "speech model": "WARN",
        "document roots": "WARN",
        "document callbacks": "FAIL",
        "document storage": "FAIL",
    }
    assert "model.bin" in found["speech model"]["message"]
    assert str(home / "blocked") in found["document roots"]["message"]
    assert "blocked" in found["document storage"]["message"]
    assert "whsec_!!" not in str(found)


@pytest.mark.parametrize(
    ("has", "level", "words"),
    [
        (Confinement(7, seccomp=True, network_namespace=True), "OK", ["Landlock 7", "seccomp", "network namespace"]),
        (Confinement(1, seccomp=True), "OK", ["Landlock 1", "seccomp"]),
        (Confinement(0, seccomp=True, network_namespace=True), "WARN", ["could read and change all files"]),
        (Confinement(7, network_namespace=True), "WARN", ["could start programs and use local sockets"]),
        (Confinement(), "WARN", ["files of this user, and start programs and use the network"]),
    ],
)
def test_what_a_machine_does_not_confine_is_a_warning(has, level, words):
    finding = confinement_finding(has)
    assert finding.level == level
    assert all(each in finding.message for each in words)


def test_gemini_and_callbacks_that_are_set_up(doctor, home):
    code, found = doctor(
        DOCUMENT_ENGINE="gemini", GEMINI_API_KEY=SECRET, DOCUMENT_CALLBACK_SECRET=SECRET, DOCUMENT_ROOTS=str(home)
    )
    assert code == 0
    assert "by gemini" in found["documents"]["message"]
    assert "signed" in found["document callbacks"]["message"]
    assert str(home) in found["document roots"]["message"]


def test_gemini_without_a_key_is_a_mistake_in_the_settings(doctor):
    code, found = doctor(DOCUMENT_ENGINE="gemini")
    assert code == 1
    assert "GEMINI_API_KEY" in found["config"]["message"]


def test_a_bucket_is_asked(doctor, home, moto):  # noqa: F811 - a fixture
    from botocore.session import get_session

    bucket = {"DOCUMENT_STORAGE": "s3", "DOCUMENT_BUCKET": "papers", "DOCUMENT_PREFIX": "kept/"}
    where = {"DOCUMENT_S3_REGION": moto.region, "DOCUMENT_S3_ENDPOINT_URL": moto.url}
    code, found = doctor(**bucket, **where)
    assert code == 1
    assert "NoSuchBucket" in found["document storage"]["message"]
    client = get_session().create_client("s3", region_name=moto.region, endpoint_url=moto.url)
    client.create_bucket(Bucket="papers")
    client.close()
    code, found = doctor(**bucket, **where)
    assert (code, found["document storage"]["verdict"]) == (0, "OK")
    assert list(home.iterdir()) == []


def test_the_contracts_of_documents_are_published(program, home):
    assert program("schema", "export", "out").code == 0
    schemas = {each.name.removesuffix(".schema.json"): json.loads(each.read_text()) for each in home.glob("out/*")}
    assert {"documents.request", "document_callbacks.job", "http.document", "http.document-receipt"} <= schemas.keys()
    assert schemas["documents.job"]["properties"].keys() == DocumentJob.model_fields.keys()
    letter = schemas["documents.dead-letter"]
    required = {"job_id", "job_type", "input_type", "payload", "status", "error", "attempts", "failed_at"}
    assert required <= set(letter["required"])
    assert letter["else"]["properties"]["job_type"]["enum"] == ["OCR", "TRANSCRIPTION"]


def test_the_scopes_of_documents_are_explained(program):
    told = " ".join(program("keys", "create", "--help").out.split())
    assert "documents:write" in told
    assert "documents:read" in told
