"""What a job's records say at each step, as effects."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest

from holdfast.contracts.effects import Delete, Enqueue, Upsert
from holdfast.contracts.jobs import JobState
from holdfast.contracts.outcomes import Reason
from holdfast.features.documents.callbacks import CallbackOptions, DocumentCallbacks
from holdfast.features.documents.contract import DocumentJob
from holdfast.features.documents.job_records import JobRecords, Reached, result_object
from holdfast.features.documents.records import (
    CACHE,
    COLLECTIONS,
    JOBS,
    RESULTS,
    UNITS,
    DocumentStatus,
    Stage,
    cache_id,
    unit_id,
)

KEEP = timedelta(days=30)
RESULT = {
    "job_id": "j",
    "status": "COMPLETED",
    "duration_sec": 1.5,
    "output_path": "/results/j/1",
    "pages": 2,
    "unit": "page",
    "units": 2,
    "units_reused": 0,
    "cached": False,
    "error": None,
}


def job(*, replay_of=None, input_type="PDF", **payload):
    job_type = "OCR" if input_type == "PDF" else "TRANSCRIPTION"
    facts = {"job_id": "j", "job_type": job_type, "input_type": input_type, "company_id": "c", "replay_of": replay_of}
    return DocumentJob(**facts, payload={"local_path": "a.pdf"} | payload)


def records(*, callbacks=False):
    made = DocumentCallbacks(CallbackOptions(secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")) if callbacks else None
    return JobRecords(max_attempts=lambda _: 3, retention=KEEP, callbacks=made)


def state(attempt, **payload):
    return JobState("j", "j", job(**payload), attempt, 1)


def told(effects, collection=JOBS):
    (found,) = [each for each in effects if getattr(each, "collection", None) == collection]
    return found.set


def test_a_job_that_arrives_twice_is_recorded_once():
    (effect,) = records().accepted(job(language="pt", metadata={"a": 1}), "gemini")
    assert (effect.collection, effect.key, effect.set) == (JOBS, "j", {})
    facts = dict(effect.set_on_insert)
    datetime.fromisoformat(facts.pop("accepted_at"))
    assert facts == {
        "company_id": "c",
        "job_type": "OCR",
        "input_type": "PDF",
        "max_attempts": 3,
        "engine": "gemini",
        "language": "pt",
        "metadata": {"a": 1},
        "filename": None,
        "replay_of": None,
        "status": "PENDING",
        "stage": "queued",
        "progress": 0,
        "unit": None,
        "units_done": 0,
        "units": None,
        "attempts": 0,
        "error": None,
        "cached": False,
    }


def test_the_job_that_is_replayed_says_so_also_where_its_record_is_forgotten():
    new, old = records().accepted(job(replay_of="old"), "local")
    assert new.set_on_insert["replay_of"] == "old"
    assert (old.collection, old.key, old.set) == (JOBS, "old", {"replayed_as": "j"})
    kept = old.set_on_insert
    assert (kept["status"], kept["stage"], kept["company_id"], kept["replay_of"]) == ("FAILED", "finished", "c", None)
    assert datetime.fromisoformat(kept["expires_at"]) - datetime.fromisoformat(kept["finished_at"]) == KEEP


@pytest.mark.parametrize(
    ("done", "units", "percent"), [(0, None, 0), (5, None, 0), (0, 3, 0), (1, 3, 33), (299, 300, 99), (3, 3, 100)]
)
def test_progress_is_rounded_down_and_full_only_at_the_end(done, units, percent):
    so_far = Reached(stage=Stage.READING, unit="page", done=done, units=units)
    assert records().reached(job(), so_far).set == {
        "stage": "reading",
        "progress": percent,
        "unit": "page",
        "units_done": done,
        "units": units,
    }


def test_a_failed_attempt_and_one_that_was_cancelled_wait_each_in_its_own_way():
    failed = told(records().retrying(state(2), Reason("HTTP_STATUS", "Unable\nHTTP 503")))
    error = {"error_type": "IO", "code": "HTTP_STATUS", "message": "Unable", "detail": "HTTP 503"}
    assert failed == {"status": "RETRYING", "stage": "queued", "attempts": 2, "error": error}
    assert told(records().released(state(1))) == {"status": "PENDING", "stage": "queued", "attempts": 0}
    assert told(records().released(state(3))) == {"status": "RETRYING", "stage": "queued", "attempts": 2}
    assert told(records().released(state(0)))["attempts"] == 0


def test_a_completed_job_has_a_result_a_place_in_the_cache_and_no_checkpoints_any_more():
    effects = records().completed(job(), RESULT, attempts=2, work="w")
    record, result, kept = told(effects), told(effects, RESULTS), told(effects, CACHE)
    assert {
        "status": "COMPLETED",
        "progress": 100,
        "units_done": 2,
        "attempts": 2,
        "error": None,
    }.items() <= record.items()
    assert result["status"] == "COMPLETED"
    assert (result["company_id"], result["output_path"]) == ("c", "/results/j/1")
    assert kept == {"job_id": "j", "expires_at": record["expires_at"]}
    assert [each.key for each in effects if each.collection == CACHE] == [cache_id(job(), "w")]
    assert record["expires_at"] == result["expires_at"]
    deleted = [each for each in effects if isinstance(each, Delete)]
    assert deleted == [Delete(UNITS, unit_id("w", 0)), Delete(UNITS, unit_id("w", 1))]


def test_a_result_from_the_cache_is_not_put_there_again():
    """Or it would outlive the files that it tells of."""
    effects = records().completed(job(), RESULT | {"cached": True}, attempts=1)
    assert {each.collection for each in effects} == {JOBS, RESULTS}
    arrived = records(callbacks=True).from_cache(job(callback_url="https://a.b/c"), "local", RESULT | {"cached": True})
    assert [type(each) for each in arrived] == [Upsert, Upsert]
    assert (told(arrived)["status"], told(arrived)["cached"]) == ("COMPLETED", True)


def test_what_was_not_read_has_a_result_that_says_so():
    failed = records().failed(state(3), Reason("TIMEOUT", "Too slow"), 1.23456)
    error = {"error_type": "SYSTEM", "code": "TIMEOUT", "message": "Too slow", "detail": None}
    assert (told(failed)["status"], told(failed)["attempts"], told(failed)["error"]) == ("FAILED", 3, error)
    result = told(failed, RESULTS)
    assert (result["status"], result["duration_sec"], result["pages"]) == ("FAILED", 1.235, 0)
    assert (result["output_path"], result["error"]) == (None, error)
    cancelled = records().cancelled(job(input_type="AUDIO"))
    assert told(cancelled)["status"] == "CANCELLED"
    assert (told(cancelled, RESULTS)["status"], told(cancelled, RESULTS)["pages"]) == ("CANCELLED", None)
    assert told(cancelled, RESULTS)["duration_sec"] is None


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
def test_whoever_asked_is_called_back_at_each_end_and_nobody_else(end):
    def effects(made, data):
        match end:
            case "completed":
                return made.completed(data, RESULT, attempts=1)
            case "failed":
                return made.failed(JobState("j", "j", data, 1, 1), Reason("TIMEOUT", "Too slow"), None)
            case _:
                return made.cancelled(data)

    asked = job(callback_url="https://a.b/c", metadata={"a": 1})
    assert not [each for each in effects(records(callbacks=True), job()) if isinstance(each, Enqueue)]
    assert not [each for each in effects(records(), asked) if isinstance(each, Enqueue)]
    (callback,) = [each for each in effects(records(callbacks=True), asked) if isinstance(each, Enqueue)]
    assert (callback.entry.workload, callback.entry.key) == ("document_callbacks", "j.done")
    body = json.loads(callback.entry.body)
    assert (body["url"], body["company_id"], body["body"]["type"]) == ("https://a.b/c", "c", f"document.{end}")
    assert (body["body"]["data"]["job_id"], body["body"]["data"]["metadata"]) == ("j", {"a": 1})
    assert not {"company_id", "expires_at", "unit"} & set(body["body"]["data"])


def test_a_sender_sees_of_a_result_what_is_not_ours_alone():
    ours = {"company_id": "c", "expires_at": "x", "createdAt": "x", "updatedAt": "x", "unit": "page"}
    assert result_object({"job_id": "j", "pages": 2} | ours) == {"job_id": "j", "pages": 2}


def test_every_instant_that_a_record_has_is_known_to_the_store():
    """A store with a type for instants can expire and query only those that it was told of."""
    made = records()
    effects = [
        *made.accepted(job(replay_of="old"), "local"),
        made.began(job(), 1),
        *made.completed(job(), RESULT, attempts=1, work="w"),
        *made.cancelled(job()),
    ]
    instants = {each.name: set(each.instants) for each in COLLECTIONS}
    for effect in (each for each in effects if isinstance(each, Upsert)):
        named = {*effect.set, *effect.set_on_insert}
        assert {name for name in named if name.endswith("_at")} <= instants[effect.collection]


def test_only_an_end_is_final():
    assert [each.value for each in DocumentStatus if each.final] == ["COMPLETED", "FAILED", "CANCELLED"]
