"""The intake of courier events, over the real engine and a real SQLite file."""

from __future__ import annotations

import asyncio
import gzip
import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import httpx
import pytest
from standardwebhooks import Webhook

from holdfast.api import ApiOptions
from holdfast.api.app import create_app
from holdfast.contracts.ledger import Status
from holdfast.contracts.times import isoformat
from holdfast.engine.intake import Intake
from holdfast.telemetry import attach, detach
from tests.api.courier_api import (
    COURIER,
    OLDER_SECRET,
    OTHER_SECRET,
    SECRET,
    AwayBroker,
    AwayStore,
    app_of,
    courier_api,
    event,
    signed,
)


@pytest.fixture(params=[False, True], ids=["asgi", "shortcut"])
async def api(tmp_path, request):
    async with courier_api(tmp_path, shortcuts=request.param) as made:
        yield made


REFUSED_SIGNATURE = "The request is not signed by its source."


def assert_refused(response: httpx.Response, status: int, code: str) -> dict:
    body = response.json()
    assert (response.status_code, body["errorCode"]) == (status, code), response.text
    assert body["acknowledged"] is False
    assert body["message"]
    assert body["traceId"] == response.headers["x-request-id"]
    assert set(body) <= {"acknowledged", "errorCode", "message", "traceId", "details"}
    return body


async def entry_of(api, body):
    return await api.services.store.entry("courier", f"{body['source']}:{body['eventId']}")


# --- accepted -----------------------------------------------------------------------------------------------------


async def test_an_event_is_recorded_queued_and_acknowledged(api):
    sent = event()
    response = await api.push(sent, x_request_id="req_from_the_sender")

    assert response.status_code == 202
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"] == "req_from_the_sender"
    body = response.json()
    received_at = body.pop("receivedAt")
    assert body == {
        "acknowledged": True,
        "eventId": sent["eventId"],
        "idempotencyKey": f"courier-x:{sent['eventId']}",
        "traceId": "req_from_the_sender",
        "queued": True,
        "duplicate": False,
    }
    entry = await entry_of(api, sent)
    job = json.loads(entry.body)
    assert entry.status is Status.RECEIVED
    assert job["traceId"] == "req_from_the_sender"
    assert datetime.fromisoformat(job["receivedAt"]) == datetime.fromisoformat(received_at)
    assert job["signatureMeta"]["algorithm"] == "hmac-sha256"
    deliveries = await api.services.broker.take(
        "courier-events-main", 10, wait=timedelta(0), lease=timedelta(seconds=30)
    )
    assert [json.loads(each.data)["eventId"] for each in deliveries] == [sent["eventId"]]


async def test_the_whole_event_of_the_specification_is_accepted_and_our_values_win(api):
    sent = event()
    whole = sent | {
        "idempotencyKey": f"courier-x:{sent['eventId']}",
        "traceId": "req_of_the_sender",
        "signatureMeta": {"algorithm": "hmac-sha256", "timestamp": 1772107200, "signature": "hex-or-base64"},
        "receivedAt": "2026-02-26T12:00:01Z",
        "attempt": 3,
    }
    first = await api.push(whole)
    again = await api.push(sent)

    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json() == first.json() | {"duplicate": True}
    job = json.loads((await entry_of(api, sent)).body)
    assert job["traceId"] == first.json()["traceId"] == first.headers["x-request-id"] != "req_of_the_sender"
    assert (job["receivedAt"], job["attempt"]) == (first.json()["receivedAt"], 1)
    assert job["signatureMeta"]["timestamp"] != 1772107200
    assert_refused(await api.push(whole | {"carrier": "x"}), 400, "INVALID_PAYLOAD")


async def test_a_duplicate_gets_the_first_receipt_again(api):
    sent = event()
    api.clock.ahead = timedelta(seconds=30)  # unlike the store's clock
    first = await api.push(sent, x_request_id="first")
    api.clock.ahead = timedelta(seconds=90)
    again = await api.push(dict(reversed(sent.items())), x_request_id="second")

    assert again.status_code == 202
    assert again.json() == first.json() | {"duplicate": True}
    assert again.json()["receivedAt"] == isoformat(
        datetime.fromisoformat(json.loads((await entry_of(api, sent)).body)["receivedAt"])
    )
    assert again.headers["x-request-id"] == "second"


async def test_one_key_with_other_content_is_a_conflict_and_changes_nothing(api):
    sent = event()
    await api.push(sent)
    before = await entry_of(api, sent)
    body = assert_refused(await api.push(sent | {"eventType": "shipment.lost"}), 409, "IDEMPOTENCY_CONFLICT")
    assert "details" not in body
    assert (await entry_of(api, sent)).body == before.body


async def test_many_concurrent_posts_of_one_event_make_one_entry(api):
    sent = event()
    responses = await asyncio.gather(*(api.push(sent, x_request_id=f"r{number}") for number in range(60)))
    assert {response.status_code for response in responses} == {202}
    assert [response.json()["duplicate"] for response in responses].count(False) == 1
    assert len({response.json()["traceId"] for response in responses}) == 1


async def test_standard_webhooks_are_accepted(api):
    sent = event()
    body = json.dumps(sent)
    now = datetime.now(UTC)
    headers = {
        "content-type": "application/json; charset=UTF-8",
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(SECRET.encode()).sign("msg_1", now, body),
    }
    response = await api.client.post(COURIER, content=body, headers=headers)
    assert response.status_code == 202, response.text
    meta = json.loads((await entry_of(api, sent)).body)["signatureMeta"]
    assert meta["signature"] == headers["webhook-signature"].removeprefix("v1,")


async def test_a_rotated_secret_still_counts(api):
    assert (await api.push(event(), secret=OLDER_SECRET)).status_code == 202
    assert (await api.push(event(source="courier-y"), secret=OTHER_SECRET)).status_code == 202


async def test_without_the_queue_the_ledger_accepts(api):
    store = api.services.store
    broker = AwayBroker(api.services.broker._database)
    body = json.dumps(sent := event()).encode()
    async with api.with_services(broker=broker, intake=Intake(store, broker)) as client:
        response = await client.post(COURIER, content=body, headers=signed(body))
    assert response.status_code == 202
    assert response.json()["queued"] is False
    assert (await entry_of(api, sent)).status is Status.RECEIVED


@pytest.mark.parametrize("strange", ["", "two words", "x" * 201, "naïve", "a\tb"])
async def test_a_request_id_that_cannot_be_a_trace_id_is_replaced(api, strange):
    body = json.dumps(event()).encode()
    headers = [*signed(body).items(), ("x-request-id", strange.encode())]
    response = await api.client.post(COURIER, content=body, headers=headers)
    assert response.status_code == 202
    assert response.json()["traceId"] == response.headers["x-request-id"]
    assert response.json()["traceId"].startswith("req_")


async def test_two_request_ids_count_as_none(api):
    body = json.dumps(event()).encode()
    headers = [*signed(body).items(), ("x-request-id", "one"), ("x-request-id", "two")]
    response = await api.client.post(COURIER, content=body, headers=headers)
    assert response.json()["traceId"] not in {"one", "two"}


async def test_a_trace_id_with_quotes_and_backslashes_is_still_json(api):
    hostile = 'a"b\\c","duplicate":true,"'
    response = await api.push(event(), x_request_id=hostile)
    assert response.json()["traceId"] == hostile
    assert response.json()["duplicate"] is False


# --- refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"])
async def test_only_post_is_allowed(api, method):
    response = await api.client.request(method, COURIER)
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"
    assert response.headers["x-request-id"]


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "text/plain",
        "application/jsonx",
        "application/json; charset=latin-1",
        "application/json; boundary=x",
        "application/x-www-form-urlencoded",
        "text/json",
    ],
)
async def test_other_content_types_are_refused(api, content_type):
    body = json.dumps(event()).encode()
    headers = signed(body)
    del headers["content-type"]
    if content_type is not None:
        headers["content-type"] = content_type
    assert_refused(await api.client.post(COURIER, content=body, headers=headers), 415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.parametrize(
    "content_type", ['application/json; charset="utf-8"', "Application/JSON", "application/json ;charset=utf-8"]
)
async def test_spellings_of_json_are_accepted(api, content_type):
    body = json.dumps(event()).encode()
    response = await api.client.post(COURIER, content=body, headers=signed(body) | {"content-type": content_type})
    assert response.status_code == 202


async def test_compressed_bodies_are_refused(api):
    body = gzip.compress(json.dumps(event()).encode())
    for encoding in ("gzip", "br", "identity, gzip"):
        response = await api.client.post(COURIER, content=body, headers=signed(body, content_encoding=encoding))
        assert_refused(response, 415, "UNSUPPORTED_MEDIA_TYPE")
    plain = json.dumps(event()).encode()
    response = await api.client.post(COURIER, content=plain, headers=signed(plain, content_encoding="Identity"))
    assert response.status_code == 202


async def test_a_body_over_the_limit_is_refused_declared_or_streamed(api):
    async def in_pieces(body):
        for start in range(0, len(body), 50_000):
            yield body[start : start + 50_000]

    limit = 256 * 1024
    for size, expected in ((limit, 202), (limit + 1, 413)):
        body, other = (json.dumps(event()).encode().ljust(size) for _ in range(2))
        whole = await api.client.post(COURIER, content=body, headers=signed(body))
        streamed = await api.client.post(COURIER, content=in_pieces(other), headers=signed(other))
        assert "content-length" not in streamed.request.headers
        assert (whole.status_code, streamed.status_code) == (expected, expected)
    assert_refused(whole, 413, "PAYLOAD_TOO_LARGE")
    assert_refused(streamed, 413, "PAYLOAD_TOO_LARGE")


async def test_the_declared_length_alone_is_enough_to_refuse(api):
    """No byte of the body is read."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": COURIER,
        "headers": [(b"content-type", b"application/json"), (b"content-length", b"300000")],
    }
    sent = []

    async def receive():
        pytest.fail("The body was read.")

    async def send(message):
        sent.append(message)

    await app_of(api.services, api.options)(scope, receive, send)
    assert sent[0]["status"] == 413


async def test_every_bad_signature_gets_the_very_same_answer(api):
    sent = event()
    body = json.dumps(sent).encode()
    good = signed(body, x_request_id="same")
    stale = datetime.now(UTC) - timedelta(seconds=302)
    early = datetime.now(UTC) + timedelta(seconds=302)
    attempts = [
        {key: value for key, value in good.items() if not key.startswith("x-signature")},
        good | {"x-signature": "0" * 64},
        good | {"x-signature": "\xff\xfe"},
        good | {"x-signature-timestamp": "yesterday"},
        good | {"x-signature-algorithm": "none"},
        signed(body, now=stale, x_request_id="same"),
        signed(body, now=early, x_request_id="same"),
        signed(body, secret="nobody's", x_request_id="same"),
        signed(body, secret=OTHER_SECRET, x_request_id="same"),  # another source's secret
        signed(body + b" ", x_request_id="same"),
        [*good.items(), ("x-signature", good["x-signature"])],
        [*good.items(), ("x-signature-timestamp", good["x-signature-timestamp"])],
        [*good.items(), ("webhook-id", "a"), ("webhook-id", "b")],
    ]
    answers = set()
    for headers in attempts:
        pairs = headers.items() if isinstance(headers, dict) else headers
        raw = [(name.encode(), value.encode("latin-1")) for name, value in pairs]
        response = await api.client.post(COURIER, content=body, headers=raw)
        assert_refused(response, 401, "INVALID_SIGNATURE")
        answers.add(response.content)
    assert len(answers) == 1
    assert json.loads(answers.pop())["message"] == REFUSED_SIGNATURE
    assert await entry_of(api, sent) is None


async def test_the_signature_is_verified_before_the_body_is_parsed(api):
    for garbage in (b"", b"{", b"[" * 100_000, b"\xff"):
        headers = signed(garbage) | {"x-signature": "0" * 64}
        assert_refused(await api.client.post(COURIER, content=garbage, headers=headers), 401, "INVALID_SIGNATURE")


async def test_a_secret_outside_its_window_does_not_count(api):
    moment = datetime.now(UTC)
    secrets = {"courier-x": [{"secret": "old", "notAfter": moment}, {"secret": "next", "notBefore": moment}]}
    app = app_of(api.services, ApiOptions(), secrets)
    body = json.dumps(event()).encode()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
        old = await client.post(COURIER, content=body, headers=signed(body, secret="old"))
        new = await client.post(COURIER, content=body, headers=signed(body, secret="next"))
    assert (old.status_code, new.status_code) == (401, 202)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"{",
        b'{"source":"courier-x","source":"courier-x"}',
        b'{"source":"courier-x","payload":NaN}',
        b'{"source":"courier-x","payload":1e999}',
        b'{"source":"courier-x","payload":"\\ud800"}',
        b'{"source":"courier-x","payload":' + b"[" * 40 + b"]" * 40 + b"}",
        b'{"source":"courier-x"} x',
        b"\xef\xbb\xbf{}",
        b'{"source":"\xff"}',
        b'{"source":"courier-x","payload":123456789012345678901234567890}',
    ],
    ids=repr,
)
async def test_ambiguous_json_is_refused(api, body):
    assert_refused(await api.push(body), 400, "INVALID_PAYLOAD")


async def test_a_broken_contract_is_reported_by_field_and_without_values(api):
    sent = event(eventType=7, surprise="12345678909", payload={"shipmentId": None})
    body = assert_refused(await api.push(sent), 400, "INVALID_PAYLOAD")
    fields = {each["field"] for each in body["details"]}
    assert {"eventType", "payload.shipmentId"} <= fields
    assert all(set(each) == {"field", "problem"} and each["problem"] for each in body["details"])
    assert "12345678909" not in json.dumps(body)
    assert await entry_of(api, sent) is None


@pytest.mark.parametrize("source", [None, 7, ["courier-x"], {}, True])
async def test_a_source_that_is_not_text_is_a_broken_contract(api, source):
    sent = event(source=source)
    if source is None:
        del sent["source"]
    body = assert_refused(await api.push(sent), 400, "INVALID_PAYLOAD")
    assert "source" in {each["field"] for each in body["details"]}


async def test_a_source_that_does_not_own_the_secret_is_refused(api):
    for source in ("courier-y", "nobody", "", "courier-x ", "COURIER-X"):
        body = assert_refused(await api.push(event(source=source)), 401, "INVALID_SIGNATURE")
        assert body["message"] == REFUSED_SIGNATURE


async def test_an_unavailable_store_is_reported_without_internals(api):
    store = AwayStore(api.services.store._database, list(api.services.workloads.values()))
    body = json.dumps(event()).encode()
    async with api.with_services(store=store, intake=Intake(store, api.services.broker)) as client:
        response = await client.post(COURIER, content=body, headers=signed(body))
    assert_refused(response, 503, "INTAKE_UNAVAILABLE")
    assert int(response.headers["retry-after"]) > 0
    assert "secret" not in response.text


async def test_a_full_intake_answers_429_with_retry_after(api):
    intake = Intake(api.services.store, api.services.broker, max_pending=0)
    body = json.dumps(event()).encode()
    async with api.with_services(intake=intake) as client:
        response = await client.post(COURIER, content=body, headers=signed(body))
    assert_refused(response, 429, "TOO_MANY_REQUESTS")
    assert int(response.headers["retry-after"]) > 0


async def test_an_unexpected_error_is_answered_without_internals_and_logged(api):
    def begin(*_, **__):
        message = "token=hunter2secret at /secret/path"
        raise RuntimeError(message)

    emitted = []
    attach(exporter := lambda name, fields: emitted.append((name, fields)))
    body = json.dumps(event()).encode()
    try:
        async with api.with_services(intake=SimpleNamespace(begin=begin)) as client:
            response = await client.post(COURIER, content=body, headers=signed(body, x_request_id="find-me"))
    finally:
        detach(exporter)
    assert_refused(response, 500, "INTERNAL_ERROR")
    assert "secret" not in response.text
    (name, fields) = emitted[-1]
    assert name == "api.unexpected"
    assert fields["trace_id"] == "find-me"
    assert fields["error"] == "RuntimeError"
    assert any(" in begin" in line for line in fields["traceback"])
    assert "hunter2secret" not in json.dumps(fields)


async def test_a_sender_that_disconnects_early_leaves_nothing(api):
    sent = event()
    body = json.dumps(sent).encode()
    headers = [(name.encode(), value.encode()) for name, value in signed(body).items()]
    scope = {"type": "http", "method": "POST", "path": COURIER, "headers": headers}
    messages = iter([{"type": "http.request", "body": body, "more_body": True}, {"type": "http.disconnect"}])
    answers = []

    async def receive():
        return next(messages)

    async def send(message):
        answers.append(message)

    await app_of(api.services, api.options)(scope, receive, send)
    assert answers == []
    assert await entry_of(api, sent) is None


async def test_without_a_courier_the_path_does_not_exist(api):
    transport = httpx.ASGITransport(app=create_app(api.services, api.options))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        body = json.dumps(event()).encode()
        assert_refused(await client.post(COURIER, content=body, headers=signed(body)), 404, "NOT_FOUND")
        assert COURIER not in (await client.get("/openapi.json")).json()["paths"]


async def test_an_event_that_is_too_old_is_refused(api):
    old = isoformat(datetime.now(UTC) - timedelta(days=31))
    body = assert_refused(await api.push(event(occurredAt=old)), 400, "INVALID_PAYLOAD")
    assert [each["field"] for each in body["details"]] == ["occurredAt"]
