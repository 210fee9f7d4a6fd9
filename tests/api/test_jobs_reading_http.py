"""Listing, showing and cancelling jobs over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from holdfast.contracts.dead_letters import letter_id
from holdfast.contracts.ledger import Claimed, Lease, Status
from holdfast.contracts.transitions import Complete, MoveToDeadLetters, RetryLater
from tests.api.courier_api import OPERATOR
from tests.support.waiting import eventually

INVOICES = "/v1/jobs/invoices"
ERRANDS = "/v1/jobs/errands"
DEAD = {"retention": timedelta(days=30), "letter_retention": timedelta(days=90)}


def invoice(number, customer="ACME"):
    return {"number": number, "issued_at": "2026-02-26T12:00:00Z", "customer": customer}


async def submit(api, body, path=INVOICES, **query):
    answer = await api.client.post(path, json=body, params=query, headers=OPERATOR)
    assert answer.status_code == 202, answer.text
    return answer.json()


async def listed(api, path=INVOICES, **query):
    answer = await api.client.get(path, params=query, headers=OPERATOR)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def shown(api, key, path=INVOICES, headers=OPERATOR):
    return (await api.client.get(f"{path}/{key}", headers=headers)).json()


def keys(page):
    return [each["key"].removeprefix("invoice/") for each in page["items"]]


def _is_past(instant):
    return datetime.now(UTC) > instant


# --- lists --------------------------------------------------------------------------------------------------------


async def test_a_list_is_newest_first_and_has_pages(api):
    for number in "12345":
        await submit(api, invoice(number))
    first = await listed(api, limit=2)
    second = await listed(api, limit=2, cursor=first["next"])
    third = await listed(api, limit=2, cursor=second["next"])
    assert [keys(each) for each in (first, second, third)] == [["5", "4"], ["3", "2"], ["1"]]
    assert third["next"] is None


async def test_a_list_has_filters(api):
    for number, customer in (("1", "ACME"), ("2", "Other"), ("3", "ACME")):
        receipt = await submit(api, invoice(number, customer))
        next_one = datetime.fromisoformat(receipt["receivedAt"]) + timedelta(milliseconds=1)
        await eventually(partial(_is_past, next_one))
    await api.settle("invoices", "invoice/1", Complete(timedelta(days=1)))
    assert keys(await listed(api, label="customer=ACME")) == ["3", "1"]
    assert keys(await listed(api, label="customer=ACME", status="processed")) == ["1"]
    assert keys(await listed(api, status="received")) == ["3", "2"]
    assert keys(await listed(api, key="invoice/2")) == ["2"]
    assert keys(await listed(api, key="invoice/2", label="customer=ACME")) == []
    seen = {each["key"]: each["firstSeenAt"] for each in (await listed(api))["items"]}
    assert keys(await listed(api, after=seen["invoice/2"])) == ["3", "2"]
    assert keys(await listed(api, before=seen["invoice/2"])) == ["1"]
    assert keys(await listed(api, after=seen["invoice/2"], before=seen["invoice/3"])) == ["2"]


async def test_a_label_without_an_index_is_refused_with_those_that_have_one(api):
    answer = await api.client.get(INVOICES, params={"label": "colour=red"}, headers=OPERATOR)
    assert (answer.status_code, answer.json()["errorCode"]) == (422, "NOT_INDEXED")
    (problem,) = answer.json()["details"]
    assert problem["field"] == "label"
    assert "indexed_labels: customer" in problem["problem"]


@pytest.mark.parametrize(
    "query",
    [
        {"label": "customer"},
        {"label": "=ACME"},
        {"label": ["customer=ACME", "customer=Other"]},
        {"label": [f"l{number}=1" for number in range(6)]},
        {"status": "sleeping"},
        {"after": "1234567890"},
        {"before": "2026-02-26"},
        {"limit": 0},
        {"limit": 201},
        {"cursor": "nonsense"},
        {"colour": "red"},
    ],
)
async def test_a_wrong_query_is_refused(api, query):
    answer = await api.client.get(INVOICES, params=query, headers=OPERATOR)
    assert (answer.status_code, answer.json()["errorCode"]) == (400, "INVALID_QUERY")


# --- one job ------------------------------------------------------------------------------------------------------


async def test_a_job_is_shown_with_payload_attempts_and_dead_letters(api):
    await submit(api, invoice("1"))
    await api.settle("invoices", "invoice/1", RetryLater(timedelta(0), "TIMEOUT", "No answer.", traceback="at line 7"))
    letter = letter_id("invoices", "invoice/1", 1)
    dead = MoveToDeadLetters(letter, "TIMEOUT", "No answer.", "TIMEOUT_EXHAUSTED", "No answer.", **DEAD)
    await api.settle("invoices", "invoice/1", dead)
    found = await shown(api, "invoice/1")
    assert (found["status"], found["deadLetters"], found["attemptCount"]) == ("dead_lettered", [letter], 2)
    assert [each["traceback"] for each in found["attemptHistory"]] == ["at line 7", None]
    assert found["payload"]["customer"] == "ACME"
    assert (found["dueAt"], found["progress"]) == (None, None)
    assert found["traceId"] == found["labels"]["traceId"]
    assert found["requestId"] == found["labels"]["requestId"]


async def test_progress_is_shown(api):
    await submit(api, invoice("1"))
    entry = await api.services.store.entry("invoices", "invoice/1")
    (claim,) = await api.services.store.claim(
        "invoices", [entry.job_id], worker="w", lease=timedelta(seconds=30), max_attempts=3
    )
    progress = {"done": 4, "total": 10, "note": "page 4", "at": "2026-02-26T12:00:00.000Z"}
    await api.services.store.note_progress("invoices", [(Lease(claim.job_id, claim.fence), progress)])
    found = (await shown(api, "invoice/1"))["progress"]
    assert found["at"].endswith("Z")
    assert found == progress | {"at": found["at"]}
    assert (await listed(api))["items"][0]["progress"] == found


async def test_a_delay_is_shown_everywhere_and_by_a_duplicate(api):
    receipt = await submit(api, {"errand": "milk"}, ERRANDS, delayMs=60_000)
    due, received = (datetime.fromisoformat(receipt[name]) for name in ("dueAt", "receivedAt"))
    assert due - received == timedelta(minutes=1)
    assert (await shown(api, "milk", ERRANDS))["dueAt"] == receipt["dueAt"]
    assert (await listed(api, ERRANDS))["items"][0]["dueAt"] == receipt["dueAt"]
    assert await submit(api, {"errand": "milk"}, ERRANDS, delayMs=60_000) == receipt | {"duplicate": True}


async def test_a_body_may_name_its_version(api):
    async def answer(body):
        found = await api.client.post(ERRANDS, json=body, headers=OPERATOR)
        return found.status_code, [each["field"] for each in found.json().get("details", ())]

    assert await answer({"errand": "milk"}) == (202, [])
    assert await answer({"$version": 1, "task": "bread"}) == (202, [])
    assert (await shown(api, "bread", ERRANDS))["payload"] == {
        "$version": 2,
        "errand": "bread",
        "shop": "corner",
        "note": "",
    }
    assert await answer({"$version": 3, "errand": "tea"}) == (400, ["$version"])
    assert await answer({"$version": 1, "errand": "tea"}) == (400, ["$version"])
    assert (await answer({"$version": "x", "errand": "tea"}))[0] == 400


async def test_a_delay_beyond_the_ttl_is_refused(api):
    answer = await api.client.post(ERRANDS, json={"errand": "milk"}, params={"delayMs": 3_600_000}, headers=OPERATOR)
    assert (answer.status_code, answer.json()["errorCode"]) == (422, "INVALID_DELAY")
    assert answer.json()["details"][0]["field"] == "delayMs"
    assert await api.services.store.entry("errands", "milk") is None
    await submit(api, {"errand": "milk"}, ERRANDS, delayMs=3_599_999)


# --- cancelling ---------------------------------------------------------------------------------------------------


async def cancel(api, key, path=ERRANDS):
    answer = await api.client.post(f"{path}/{key}/cancel", headers=OPERATOR)
    return answer.status_code, answer.json()


async def claim(api, workload, key):
    entry = await api.services.store.entry(workload, key)
    (claimed,) = await api.services.store.claim(
        workload, [entry.job_id], worker="w", lease=timedelta(seconds=30), max_attempts=3
    )
    assert isinstance(claimed, Claimed)


async def test_a_job_that_waits_is_cancelled_and_again_with_the_same_answer(api):
    await submit(api, {"errand": "milk"}, ERRANDS)
    said = {"workload": "errands", "key": "milk", "state": "cancelled"}
    assert await cancel(api, "milk") == (202, said)
    assert await cancel(api, "milk") == (202, said)
    assert (await shown(api, "milk", ERRANDS))["status"] == "expired"


async def test_a_job_in_work_is_asked_to_stop_if_its_workload_allows_that(api):
    await submit(api, {"errand": "milk"}, ERRANDS)
    await claim(api, "errands", "milk")
    assert (await cancel(api, "milk"))[1]["state"] == "stopping"
    await submit(api, invoice("1"))
    await claim(api, "invoices", "invoice/1")
    status, answer = await cancel(api, "invoice/1", INVOICES)
    assert (status, answer["errorCode"]) == (409, "TOO_LATE")
    assert answer["details"] == [{"field": "status", "problem": "processing"}]


async def test_a_job_that_has_ended_cannot_be_cancelled(api):
    await submit(api, {"errand": "milk"}, ERRANDS)
    await api.settle("errands", "milk", Complete(timedelta(days=1)))
    status, answer = await cancel(api, "milk")
    assert (status, answer["errorCode"]) == (409, "TOO_LATE")
    assert (await api.services.store.entry("errands", "milk")).status is Status.PROCESSED
    assert (await cancel(api, "nothing"))[0] == 404
