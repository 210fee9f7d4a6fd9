"""Dead letters of documents by the schema of the specification, for every kind of failed job."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts.dead_letters import DeadLetter, ReviewStatus
from holdfast.contracts.ledger import Attempt, AttemptOutcome
from holdfast.features.documents.dead_letter import DocumentDeadLetter, dead_letter_payload
from holdfast.features.documents.failures import TABLE, Code

SCHEMA = jsonschema_rs.validator_for(DocumentDeadLetter.model_json_schema(), validate_formats=True)
NOW = datetime(2026, 1, 25, 11, 2, 14, tzinfo=UTC)
JOB = {"job_id": "ocr-009", "job_type": "OCR", "input_type": "PDF", "payload": {"local_path": "samples/missing.pdf"}}


def attempt(number, code="FILE_NOT_FOUND", message="File not found: a.pdf\nENOENT", **changes):
    facts = {"attempt": number, "outcome": AttemptOutcome.FAILED, "worker": f"worker-{number}", "started_at": NOW}
    facts |= {"finished_at": NOW + timedelta(seconds=1), "error_code": code, "error_message": message}
    return Attempt(**facts | changes)


def letter(**changes):
    facts = {
        "id": "dl_1",
        "workload": "documents",
        "key": "ocr-009",
        "job_id": "ocr-009",
        "generation": 1,
        "reason_code": "FILE_NOT_FOUND",
        "reason_message": "File not found: samples/missing.pdf",
        "attempts": (attempt(1), attempt(2), attempt(3)),
        "attempt_count": 3,
        "body": json.dumps(JOB),
        "labels": {},
        "review_status": ReviewStatus.PENDING,
        "decisions": (),
        "created_at": NOW,
        "updated_at": NOW,
        "expires_at": NOW,
    }
    return DeadLetter(**facts | changes)


def test_a_letter_tells_the_job_the_failure_and_every_attempt():
    told = dead_letter_payload(letter(reason_message="No\nand why"), JOB | {"replay_of": "ocr-001"}, 3)
    assert told == JOB | {
        "status": "FAILED",
        "error": "No",
        "error_type": "IO",
        "attempts": 3,
        "max_attempts": 3,
        "failed_at": "2026-01-25T11:02:14.000Z",
        "worker_id": "worker-3",
        "schema_version": "v1",
        "error_code": "FILE_NOT_FOUND",
        "error_detail": "and why",
        "replay_of": "ocr-001",
        "attempt_history": [
            {
                "attempt": number,
                "outcome": "failed",
                "error_code": "FILE_NOT_FOUND",
                "error": "File not found: a.pdf",
                "worker_id": f"worker-{number}",
                "started_at": "2026-01-25T11:02:14.000Z",
                "finished_at": "2026-01-25T11:02:15.000Z",
            }
            for number in (1, 2, 3)
        ],
    }


def test_what_is_not_known_is_left_out():
    lost = attempt(1, None, None, outcome=AttemptOutcome.LOST, finished_at=None)
    told = dead_letter_payload(letter(attempts=(lost,), attempt_count=1), JOB, 3)
    assert told["attempt_history"] == [
        {"attempt": 1, "outcome": "lost", "worker_id": "worker-1", "started_at": "2026-01-25T11:02:14.000Z"}
    ]
    assert not {"error_detail", "replay_of"} & set(told)
    none = dead_letter_payload(letter(attempts=(), attempt_count=0), JOB, 3)
    assert "worker_id" not in none
    SCHEMA.validate(none)


@pytest.mark.parametrize("code", [*Code, "EFFECT_REFUSED"])
def test_every_code_makes_a_letter_by_the_schema(code):
    told = dead_letter_payload(letter(reason_code=str(code), reason_message=""), JOB, 3)
    SCHEMA.validate(told)
    assert told["error"] == code
    assert told["error_type"] == (TABLE[code].error_type if code in TABLE else "SYSTEM")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*JOB, "replay_of", "x"]), inner),
    max_leaves=12,
)


@given(JSON)
def test_a_job_that_broke_its_contract_has_a_letter_by_the_schema_too(job):
    told = dead_letter_payload(letter(reason_code="VALIDATION_FAILED", job_id="unreadable-1"), job, 3)
    SCHEMA.validate(json.loads(json.dumps(told)))
    assert told["error_type"] == "VALIDATION"
    # Whole: nothing of what came is lost, wherever it was.
    if not isinstance(job, dict):
        assert told["payload"] == job
    elif "payload" in job:
        assert told["payload"] == job["payload"]
    else:  # flat: what the letter does not repeat word for word
        assert {name: told.get(name) for name in job if name not in told["payload"]} | told["payload"] == job


def test_other_types_than_the_contracts_are_for_jobs_that_broke_it():
    strange = dead_letter_payload(letter(), JOB | {"job_type": "POEM"}, 3)
    assert not SCHEMA.is_valid(strange)
    assert SCHEMA.is_valid(strange | {"error_type": "VALIDATION"})


def test_fields_may_be_added_and_none_may_be_missing_or_renamed():
    told = dead_letter_payload(letter(), JOB, 3)
    assert SCHEMA.is_valid(told | {"a_new_field": 1})
    needed = {"job_id", "job_type", "input_type", "payload", "status", "error", "attempts", "failed_at"}
    for name in needed:
        assert not SCHEMA.is_valid({each: value for each, value in told.items() if each != name})
    assert not SCHEMA.is_valid(told | {"status": "DONE"})
    assert not SCHEMA.is_valid(told | {"schema_version": "v2"})
