from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest

from holdfast.engine.intake import Intake
from tests.api.courier_api import OPERATOR, AwayBroker, AwayStore

PATH = "/v1/jobs/invoices"


def invoice(**changes):
    return {"number": "7/2026", "issued_at": "2026-02-26T12:00:00Z", "lines": [{"text": "Tea", "cents": 250}]} | changes


async def submit(api, body, **query):
    return await api.client.post(PATH, json=body, params=query, headers=OPERATOR)


async def test_a_job_is_recorded_queued_and_acknowledged(api):
    response = await submit(api, invoice())
    assert response.status_code == 202
    body = response.json()
    assert body.pop("receivedAt").endswith("Z")
    assert body.pop("jobId")
    assert re.fullmatch("[0-9a-f]{32}", body.pop("traceId"))
    assert body == {
        "acknowledged": True,
        "workload": "invoices",
        "key": "invoice/7/2026",
        "queued": True,
        "duplicate": False,
        "dueAt": None,
    }
    shown = (await api.client.get(f"{PATH}/invoice/7/2026", headers=OPERATOR)).json()
    assert (shown["workload"], shown["key"], shown["status"]) == ("invoices", "invoice/7/2026", "received")
    assert shown["attemptHistory"] == []
    assert (await api.services.broker.depth("invoices-main")).ready == 1


async def test_a_duplicate_gets_the_first_receipt_and_other_content_a_conflict(api):
    first = (await submit(api, invoice())).json()
    again = await submit(api, invoice())
    assert again.json() == first | {"duplicate": True}
    conflict = await submit(api, invoice(customer="Ada"))
    assert (conflict.status_code, conflict.json()["errorCode"]) == (409, "IDEMPOTENCY_CONFLICT")


async def test_priority_and_delay_reach_the_queue(api):
    await submit(api, invoice(number="late"), delayMs=60_000)
    await submit(api, invoice(number="second"), priority=5)
    await submit(api, invoice(number="first"), priority=1)
    depth = await api.services.broker.depth("invoices-main")
    assert (depth.ready, depth.delayed) == (2, 1)
    taken = await api.services.broker.take("invoices-main", 5, wait=timedelta(0), lease=timedelta(seconds=9))
    assert [json.loads(each.data)["number"] for each in taken] == ["first", "second"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"delayMs": -1}, "delayMs"),
        ({"delayMs": "soon"}, "delayMs"),
        ({"delayMs": 10**15}, "delayMs"),
        ({"priority": -1}, "priority"),
        ({"priority": 2**21 + 1}, "priority"),
        ({"priority": 1.5}, "priority"),
    ],
)
async def test_a_refused_query_names_the_parameter(api, query, field):
    response = await submit(api, invoice(), **query)
    assert (response.status_code, response.json()["errorCode"]) == (400, "INVALID_QUERY")
    assert [each["field"] for each in response.json()["details"]] == [field]


async def test_a_broken_contract_is_reported_by_field_and_without_values(api):
    hidden = "12345678909"
    broken = {"number": "", "lines": [{"text": "Tea", "cents": hidden + "x"}], hidden: 1}
    response = await submit(api, broken)
    assert (response.status_code, response.json()["errorCode"]) == (400, "INVALID_PAYLOAD")
    fields = {each["field"] for each in response.json()["details"]}
    assert {"number", "issued_at", "lines.0.cents"} < fields
    assert hidden not in response.text


async def test_the_message_of_a_workloads_own_rule_is_shown_unless_it_repeats_a_value(api):
    response = await submit(api, invoice(customer="forbidden-Jane Roe"))
    assert response.status_code == 400
    assert "Jane" not in response.text
    assert response.json()["details"] == [{"field": "(body)", "problem": "This value breaks a rule of the contract"}]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"number":"1","number":"2","issued_at":"2026-02-26T12:00:00Z"}',
        b'{"number":"1","issued_at":1e999}',
        b"\xff",
    ],
)
async def test_ambiguous_or_wrong_json_is_refused(api, body):
    headers = OPERATOR | {"content-type": "application/json"}
    response = await api.client.post(PATH, content=body, headers=headers)
    assert (response.status_code, response.json()["errorCode"]) == (400, "INVALID_PAYLOAD")


async def test_the_body_has_the_same_limits_as_at_the_signed_route(api):
    large = json.dumps(invoice()).encode().ljust(256 * 1024 + 1)
    too_large = await api.client.post(PATH, content=large, headers=OPERATOR | {"content-type": "application/json"})
    assert (too_large.status_code, too_large.json()["errorCode"]) == (413, "PAYLOAD_TOO_LARGE")
    form = await api.client.post(PATH, data={"a": "b"}, headers=OPERATOR)
    assert (form.status_code, form.json()["errorCode"]) == (415, "UNSUPPORTED_MEDIA_TYPE")


async def test_courier_events_are_sent_to_their_own_route(api):
    response = await api.client.post("/v1/jobs/courier", json={}, headers=OPERATOR)
    assert response.status_code == 404
    assert "POST /v1/events/courier" in response.json()["message"]


async def test_the_answer_for_an_unknown_workload_lists_the_known_ones(api):
    response = await api.client.post("/v1/jobs/nope", json={}, headers=OPERATOR)
    assert response.status_code == 404
    assert "invoices" in response.json()["message"]


async def test_engine_errors_are_answered_as_at_the_signed_route(api):
    store = AwayStore(api.services.store._database, list(api.services.workloads.values()))
    broker = AwayBroker(api.services.broker._database)
    for services, status, code in (
        ({"store": store, "intake": Intake(store, api.services.broker)}, 503, "INTAKE_UNAVAILABLE"),
        ({"intake": Intake(api.services.store, broker, max_pending=0)}, 429, "TOO_MANY_REQUESTS"),
    ):
        async with api.with_services(**services) as client:
            response = await client.post(PATH, json=invoice(), headers=OPERATOR)
        assert (response.status_code, response.json()["errorCode"]) == (status, code)
        assert int(response.headers["retry-after"]) > 0
    async with api.with_services(intake=Intake(api.services.store, broker)) as client:
        response = await client.post(PATH, json=invoice(), headers=OPERATOR)
    assert (response.status_code, response.json()["queued"]) == (202, False)
