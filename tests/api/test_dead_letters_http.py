from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.contracts.ledger import Status
from tests.api.courier_api import OPERATOR, event

PATH = "/v1/dead-letters"
WHY = {"actor": "ana", "reason": "The downstream is back."}


async def read(api, path="", **query):
    return await api.client.get(PATH + path, params=query, headers=OPERATOR)


async def decide(api, path, body=None):
    return await api.client.post(PATH + path, json=WHY if body is None else body, headers=OPERATOR)


async def test_a_letter_shows_payload_attempts_and_decisions(api):
    sent = event()
    letter = await api.dead_letter(sent)
    shown = (await read(api, f"/{letter}")).json()
    assert shown["id"] == letter
    assert shown["workload"] == "courier"
    assert shown["idempotencyKey"] == f"courier-x:{sent['eventId']}"
    assert (shown["eventId"], shown["eventType"]) == (sent["eventId"], sent["eventType"])
    assert shown["terminalReasonCode"] == "DOWNSTREAM_TIMEOUT_EXHAUSTED"
    assert shown["terminalReasonMessage"] == "Retries exhausted after transient timeouts"
    assert shown["attemptCount"] == len(shown["attemptHistory"]) == 1
    assert shown["attemptHistory"][0]["errorCode"] == "TIMEOUT"
    assert sent["payload"].items() <= shown["payloadSnapshot"].items()
    assert (shown["reviewStatus"], shown["decisions"], shown["generation"]) == ("pending", [], 1)
    assert datetime.fromisoformat(shown["expiresAt"]) - datetime.fromisoformat(shown["createdAt"]) == timedelta(days=90)


async def test_a_letter_goes_through_its_review(api):
    sent = event()
    letter = await api.dead_letter(sent)
    for step, status in (("review", "reviewed"), ("replay", "replayed"), ("close", "closed")):
        response = await decide(api, f"/{letter}/{step}", {"actor": f" {step}er ", "reason": f"because {step}"})
        assert response.status_code == 200, response.text
        assert response.json()["reviewStatus"] == status
        last = response.json()["decisions"][-1]
        assert (last["step"], last["actor"], last["reason"]) == (status, f"{step}er", f"because {step}")
    entry = await api.services.store.entry("courier", f"courier-x:{sent['eventId']}")
    assert (entry.status, entry.generation) == (Status.RECEIVED, 2)


async def test_steps_out_of_order_are_refused_and_change_nothing(api):
    letter = await api.dead_letter(event())
    for step in ("replay", "close"):
        response = await decide(api, f"/{letter}/{step}")
        assert (response.status_code, response.json()["errorCode"]) == (409, "REVIEW_STATE_CONFLICT")
    assert (await read(api, f"/{letter}")).json()["reviewStatus"] == "pending"


async def test_a_letter_is_replayed_once_by_many_concurrent_requests(api):
    letter = await api.dead_letter(event())
    await decide(api, f"/{letter}/review")
    responses = await asyncio.gather(*(decide(api, f"/{letter}/replay") for _ in range(20)))
    statuses = sorted(response.status_code for response in responses)
    assert statuses == [200] + [409] * 19


@pytest.mark.parametrize("step", ["review", "replay", "close"])
async def test_an_unknown_letter_is_not_found(api, step):
    assert (await decide(api, f"/dl_nope/{step}")).status_code == 404
    assert (await read(api, "/dl_nope")).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"actor": "ana"},
        {"reason": "why"},
        {"actor": "", "reason": "why"},
        {"actor": "ana", "reason": "   "},
        {"actor": None, "reason": "why"},
        {"actor": 7, "reason": "why"},
        {"actor": "a" * 201, "reason": "why"},
        {"actor": "ana", "reason": "w" * 1001},
        {"actor": "ana\nroot", "reason": "why"},
        {"actor": "ana", "reason": "why", "force": True},
        [],
        "text",
    ],
    ids=repr,
)
async def test_a_step_needs_an_actor_and_a_reason(api, body):
    letter = await api.dead_letter(event())
    response = await decide(api, f"/{letter}/review", body)
    assert (response.status_code, response.json()["errorCode"]) == (400, "INVALID_PAYLOAD")
    assert (await read(api, f"/{letter}")).json()["reviewStatus"] == "pending"


# --- lists --------------------------------------------------------------------------------------------------------


async def test_the_list_is_read_page_by_page(api):
    letters = [await api.dead_letter(event()) for _ in range(5)]
    seen, cursor, pages = [], None, 0
    while True:
        page = (await read(api, limit=2, **({"cursor": cursor} if cursor else {}))).json()
        assert page["total"] == 5
        seen += [each["id"] for each in page["items"]]
        cursor, pages = page["next"], pages + 1
        if cursor is None:
            break
    assert (seen, pages) == (letters, 3)
    assert "payloadSnapshot" not in page["items"][0]


async def test_filters_narrow_the_list(api):
    first, second = event(), event()
    one = await api.dead_letter(first, "VALIDATION_FAILED")
    two = await api.dead_letter(second)
    await decide(api, f"/{two}/review")
    hour = timedelta(hours=1)
    now = datetime.now(UTC)
    for query, expected in (
        ({}, [one, two]),
        ({"reasonCode": "VALIDATION_FAILED"}, [one]),
        ({"reviewStatus": "reviewed"}, [two]),
        ({"key": f"courier-x:{first['eventId']}"}, [one]),
        ({"workload": "courier"}, [one, two]),
        ({"workload": "invoices"}, []),
        ({"createdAfter": (now - hour).isoformat()}, [one, two]),
        ({"createdAfter": (now + hour).isoformat()}, []),
        ({"createdBefore": (now - hour).isoformat()}, []),
        ({"createdBefore": (now + hour).isoformat(), "reasonCode": "VALIDATION_FAILED"}, [one]),
    ):
        page = (await read(api, **query)).json()
        assert [each["id"] for each in page["items"]] == expected, query
        assert page["total"] == len(expected)


@pytest.mark.parametrize(
    "query",
    [
        {"limit": 0},
        {"limit": 201},
        {"limit": "all"},
        {"reviewStatus": "lost"},
        {"createdAfter": "yesterday"},
        {"createdAfter": "2026-02-26T12:00:00"},
        {"createdAfter": "2026-02-26"},
        {"createdBefore": "0"},
        {"createdBefore": "1772107200.5"},
        {"cursor": "!!!"},
        {"cursor": ""},
        {"cursor": "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5"},
        {"cursor": "-1"},
        {"key": ""},
        {"reasoncode": "X"},
    ],
    ids=repr,
)
async def test_an_invalid_query_is_refused(api, query):
    response = await read(api, **query)
    assert (response.status_code, response.json()["errorCode"]) == (400, "INVALID_QUERY"), response.text


# --- replay by filter ---------------------------------------------------------------------------------------------


def replay_of(filter_, **changes):
    return WHY | {"filter": filter_, "limit": 10} | changes


async def test_a_replay_by_filter_moves_reviewed_letters_the_oldest_first(api):
    letters = [await api.dead_letter(event()) for _ in range(4)]
    other = await api.dead_letter(event(), "VALIDATION_FAILED")
    for letter in (*letters[:3], other):
        await decide(api, f"/{letter}/review")
    mended = {"reasonCode": "DOWNSTREAM_TIMEOUT_EXHAUSTED"}

    planned = (await decide(api, "/replay", replay_of(mended, dryRun=True, limit=2))).json()
    assert planned == {"dryRun": True, "matched": 3, "replayed": letters[:2], "skipped": [], "refused": []}
    assert (await read(api, reviewStatus="replayed")).json()["total"] == 0

    done = (await decide(api, "/replay", replay_of(mended, limit=2))).json()
    assert done == planned | {"dryRun": False}
    rest = (await decide(api, "/replay", replay_of(mended))).json()
    assert (rest["matched"], rest["replayed"]) == (1, [letters[2]])
    assert (await read(api, f"/{letters[3]}")).json()["reviewStatus"] == "pending"
    assert (await read(api, f"/{other}")).json()["reviewStatus"] == "reviewed"
    assert (await read(api, f"/{letters[0]}")).json()["decisions"][-1]["actor"] == "ana"


@pytest.mark.parametrize(
    "body",
    [
        replay_of({}),
        replay_of({"reasonCode": None}),
        replay_of({"reasonCode": ""}),
        replay_of({"nonsense": "x"}),
        replay_of({"reviewStatus": "lost"}),
        replay_of({"createdAfter": 1772107200}),
        replay_of({"reviewStatus": "pending"}),
        replay_of({"workload": "courier"}, limit=0),
        replay_of({"workload": "courier"}, limit=1001),
        replay_of({"workload": "courier"}, limit="1"),
        replay_of({"workload": "courier"}, dryRun="true"),
        replay_of({"workload": "courier"}, actor=" "),
        WHY | {"limit": 5},
        {"filter": {"workload": "courier"}, "limit": 5},
    ],
    ids=repr,
)
async def test_a_replay_without_a_condition_or_a_reason_is_refused_and_moves_nothing(api, body):
    letter = await api.dead_letter(event())
    await decide(api, f"/{letter}/review")
    response = await decide(api, "/replay", body)
    assert response.status_code == 400
    assert (await read(api, f"/{letter}")).json()["reviewStatus"] == "reviewed"
