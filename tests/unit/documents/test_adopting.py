"""Jobs of other producers: flat or in our own form, lenient, and readable where they break the contract."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from holdfast.contracts.queues import Delivery
from holdfast.features.documents.adopting import adopt, identify, payload_of, read_job
from holdfast.features.documents.options import DocumentOptions
from holdfast.features.documents.workload import Documents
from tests.support.specification_letters import EXAMPLE_4_1, EXAMPLE_4_2

FLAT = {
    "job_id": "ocr-009",
    "job_type": "OCR",
    "input_type": "PDF",
    "local_path": "samples/missing.pdf",
    "created_at": "2026-01-25T11:00:00Z",
    "metadata": {"case": 7},
}
PAYLOAD = {name: FLAT[name] for name in ("local_path", "created_at", "metadata")}
NESTED = {name: FLAT[name] for name in ("job_id", "job_type", "input_type")} | {"payload": PAYLOAD}


@pytest.fixture
def workload(tmp_path):
    class Sources:
        files = None

    return Documents(DocumentOptions(scratch=tmp_path), Sources())


def text(job) -> str:
    return json.dumps(job)


def test_a_flat_job_is_the_same_job_as_the_nested_one(workload):
    flat, nested = adopt(text(FLAT)), adopt(text(NESTED))
    assert flat.data == nested.data
    assert workload.fingerprint(flat.data) == workload.fingerprint(nested.data)
    assert (flat.warnings, nested.warnings) == ((), ())
    assert (flat.data.payload.local_path, flat.data.payload.metadata) == ("samples/missing.pdf", {"case": 7})
    assert json.loads(flat.data.model_dump_json())["payload"] == PAYLOAD


@pytest.mark.parametrize("example", [EXAMPLE_4_1, EXAMPLE_4_2])
def test_the_payload_of_a_flat_job_is_what_the_specification_shows_in_its_letter(example):
    flat = {name: example[name] for name in ("job_id", "job_type", "input_type")} | example["payload"]
    assert json.loads(read_job(text(flat)).model_dump_json())["payload"] == example["payload"]
    assert payload_of(flat, example) == example["payload"]


def test_the_time_at_which_a_job_was_sent_does_not_make_it_another(workload):
    again = adopt(text(FLAT | {"created_at": "2026-01-26T08:00:00Z"})).data
    assert workload.fingerprint(again) == workload.fingerprint(adopt(text(FLAT)).data)
    other = adopt(text(FLAT | {"local_path": "samples/other.pdf"})).data
    assert workload.fingerprint(other) != workload.fingerprint(again)


def test_a_field_that_is_not_known_is_kept_with_a_warning_that_has_no_value():
    adopted = adopt(text(FLAT | {"langauge": "hush", "owner": None, "a\x00b": 1}))
    assert json.loads(adopted.data.model_dump_json())["payload"] == PAYLOAD | {
        "langauge": "hush",
        "owner": None,
        "a\x00b": 1,
    }
    assert adopted.warnings == (
        "payload.langauge is not known here: it was kept, and is not used.",
        "payload.owner is not known here: it was kept, and is not used.",
        "A field is not known here: it was kept, and is not used.",
    )
    assert adopt(text(NESTED | {"sent_by": "x"})).warnings == (
        "sent_by is not known here: it was kept, and is not used.",
    )


def test_a_flat_job_belongs_to_no_tenant():
    """The specification's flat job has no company: whoever may push to the list does not choose a tenant there."""
    assert adopt(text(FLAT | {"company_id": 42})).data.company_id is None


@pytest.mark.parametrize(
    "job",
    [
        {name: value for name, value in FLAT.items() if name != "local_path"},
        FLAT | {"url": "https://example.com/a.pdf"},
        FLAT | {"job_type": "POEM"},
        FLAT | {"job_id": "../a"},
        FLAT | {"metadata": "text"},
        {},
        [],
        "text",
    ],
)
def test_a_job_that_breaks_the_contract_is_refused(job):
    with pytest.raises(ValidationError):
        adopt(text(job))


@pytest.mark.parametrize(
    ("content", "key", "labels"),
    [
        (FLAT | {"job_type": "POEM"}, "ocr-009", {"job_type": "POEM", "input_type": "PDF"}),
        ({"job_id": "two words: 9"}, "two words: 9", {}),
        ({"job_id": 17, "company_id": "c-1"}, "17", {"company_id": "c-1"}),
        ({"job_id": True}, None, {}),
        ({"job_id": "a\nb"}, None, {}),
        ({"job_id": "a" * 201}, None, {}),
        ({"job_id": "ana@example.com", "job_type": ["OCR"]}, None, {}),
        ({}, None, {}),
    ],
)
def test_a_job_that_breaks_the_contract_is_named_by_its_own_words(content, key, labels):
    found = identify(content)
    assert (found.key, found.labels) == (key, labels)


def test_a_letter_keeps_what_it_does_not_repeat():
    shown = {"job_id": "17", "job_type": "UNKNOWN", "input_type": "PDF"}
    sent = {"job_id": 17, "job_type": ["OCR"], "input_type": "PDF", "url": "u"}
    assert payload_of(sent, shown) == {"job_id": 17, "job_type": ["OCR"], "url": "u"}
    assert payload_of({"payload": {"a": 1}, "x": 1}, shown) == {"a": 1}
    assert payload_of("text", shown) == "text"


@pytest.mark.parametrize("job_id", ["1234", "wait"])
def test_a_job_id_that_queues_keep_for_themselves_gets_another_name_there(workload, job_id):
    job = workload.adopt(Delivery("doc_jobs", "", text(FLAT | {"job_id": job_id}), "")).data
    assert workload.key(job) == job_id
    assert workload.job_id(job_id, job).startswith(f"{job_id}.")
    assert workload.job_id("ocr-009", job) == "ocr-009"
