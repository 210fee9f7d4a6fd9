"""The job in the queue: what it may say, and that it travels as it was given."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from holdfast.features.documents.contract import FITTING, DocumentJob, InputType, JobType

DIGEST = "0123456789abcdef" * 4


def a_job(**changes):
    job = {
        "job_id": "ocr-009",
        "job_type": "OCR",
        "input_type": "PDF",
        "payload": {"local_path": "samples/missing.pdf"},
    }
    return {name: value for name, value in (job | changes).items() if value is not ...}


def with_payload(**payload):
    return a_job(payload=payload)


@pytest.mark.parametrize(
    "job",
    [
        a_job(),
        with_payload(url="https://example.com/private"),
        with_payload(upload={"sha256": DIGEST, "size": 0}),
        with_payload(upload={"sha256": DIGEST, "size": 7, "filename": "São João.pdf"}, language="pt-BR", cache=False),
        with_payload(url="u", strict=True),
        with_payload(url="u", engine="gemini", metadata={"a": [None, 1.5, {"b": "ç"}]}, callback_url="https://a.b/c"),
        a_job(job_type="TRANSCRIPTION", input_type="VIDEO", company_id="c-1", replay_of="ocr-001"),
        a_job(job_id="A.b_c-9"),
        a_job(attempt=1, nothing=None),
        with_payload(url="u", colour="blue", nothing=None),
    ],
)
def test_a_job_travels_as_it_was_given_and_nothing_is_added(job):
    assert json.loads(DocumentJob.model_validate(job).model_dump_json()) == job


@pytest.mark.parametrize(
    "job",
    [
        a_job(job_id=...),
        a_job(payload=...),
        a_job(job_type=...),
        a_job(input_type=...),
        a_job(job_type="ocr"),
        a_job(input_type="IMAGE"),
        with_payload(),
        with_payload(language="pt"),
        with_payload(url="u", local_path="p"),
        with_payload(local_path="p", upload={"sha256": DIGEST, "size": 1}),
        with_payload(local_path=""),
        with_payload(local_path="a\nb.pdf"),
        with_payload(local_path="a\x00.pdf"),
        with_payload(local_path="a" * 1_001),
        with_payload(url="u" * 4_001),
        with_payload(url="u", language="Portuguese"),
        with_payload(url="u", language="pt\n"),
        with_payload(url="u", engine="abacus"),
        with_payload(url="u", metadata=["a"]),
        with_payload(upload={"sha256": DIGEST.upper(), "size": 1}),
        with_payload(upload={"sha256": DIGEST[:-1], "size": 1}),
        with_payload(upload={"sha256": DIGEST, "size": -1}),
        with_payload(upload={"sha256": DIGEST, "size": 1, "path": "/etc/passwd"}),
    ],
)
def test_a_job_that_breaks_the_contract_is_refused(job):
    with pytest.raises(ValidationError):
        DocumentJob.model_validate(job)


@pytest.mark.parametrize("job_id", ["", "-a", ".a", "a b", "a/b", "a:b", "ação", "a" * 129, "a\n", "../a"])
def test_an_id_that_could_be_mistaken_for_a_path_or_a_key_is_refused(job_id):
    with pytest.raises(ValidationError):
        DocumentJob.model_validate(a_job(job_id=job_id))


@pytest.mark.parametrize("job_type", JobType)
@pytest.mark.parametrize("input_type", InputType)
def test_only_pdfs_are_read_and_only_recordings_are_transcribed(job_type, input_type):
    job = a_job(job_type=job_type.value, input_type=input_type.value)
    assert FITTING.keys() == set(JobType)
    if (job_type is JobType.OCR) == (input_type is InputType.PDF):
        assert DocumentJob.model_validate(job).input_type is input_type
    else:
        with pytest.raises(ValidationError, match=f"{job_type.value} needs input_type"):
            DocumentJob.model_validate(job)
