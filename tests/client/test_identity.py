"""Events, emails and files keep their identity in every try: what is sent again is a duplicate, never a second one."""

from __future__ import annotations

import re
import tracemalloc

import pytest

from holdfast.client import Client, Email, Unreachable, verify_webhook
from tests.client.callers import KEY, START
from tests.client.scripted_server import Resets, Says
from tests.client.test_retrying import ERROR

SECRET = "the secret of courier-x"
FACTS = {"shipmentId": "shp_456", "orderId": "ord_789", "status": "out_for_delivery"}
WHEN = "2026-11-18T12:00:00.000Z"
EVENT = {"eventId": "e", "idempotencyKey": "k", "traceId": "t", "queued": True, "duplicate": False, "receivedAt": WHEN}
EMAIL = {"outboxId": "o", "status": "ENQUEUED", "queued": True, "duplicate": False, "receivedAt": WHEN}
DOCUMENT = {
    "job_id": "j",
    "status": "PENDING",
    "duplicate": False,
    "cached": False,
    "queued": True,
    "accepted_at": WHEN,
}
BUSY = Says(503, ERROR, {"retry-after": "20"})
TROUBLE = [Resets(), BUSY]


def test_an_event_keeps_its_id_and_is_signed_anew(server, caller):
    server.script = [*TROUBLE, Says(202, EVENT)]
    caller.call(lambda client: client.courier.send(FACTS, source="courier-x", secret=SECRET))
    assert len(server.asked) == 3
    assert len({each.body for each in server.asked}) == 1
    event = server.asked[0].json
    assert {each.headers["webhook-id"] for each in server.asked} == {event["eventId"]}
    assert re.fullmatch(r"evt_[0-9a-f]{16}", event["eventId"])
    # A retry may be later than the tolerance of the first signature.
    stamps = [int(each.headers["webhook-timestamp"]) for each in server.asked]
    assert stamps == [START, START, START + 20]
    for asked, stamp in zip(server.asked, stamps, strict=True):
        verify_webhook(asked.body, asked.headers, SECRET, now=stamp)
        assert "authorization" not in asked.headers
        assert not any(SECRET in value for value in asked.headers.values())


def test_two_events_are_two(server, caller):
    server.script = [Says(202, EVENT)]
    for _ in range(2):
        caller.call(lambda client: client.courier.send(FACTS, source="courier-x", secret=SECRET))
    assert server.asked[0].json["eventId"] != server.asked[1].json["eventId"]


@pytest.mark.parametrize("key", ["boleto-2026-11-0001", None])
def test_an_email_keeps_its_key(server, caller, key):
    server.script = [*TROUBLE, Says(202, EMAIL)]
    email = Email(to="a@example.com", subject="s", html="h", recipient={"externalId": "1"}, idempotency_key=key)
    caller.call(lambda client: client.email.send(email))
    # Without a key the content is the identity: a key that is new each time would make a second email possible.
    assert [each.headers.get("idempotency-key") for each in server.asked] == [key] * 3
    assert len({each.body for each in server.asked}) == 1
    assert "idempotencyKey" not in server.asked[0].json


def test_many_emails_keep_their_keys(server, caller):
    answer = {"accepted": 1, "refused": 0, "answers": [{"index": 0, "statusCode": 202, "answer": EMAIL}]}
    server.script = [*TROUBLE, Says(207, answer)]
    email = Email(to="a@example.com", subject="s", html="h", recipient={"externalId": "1"}, idempotency_key="k-1")
    caller.call(lambda client: client.email.send_many([email]))
    assert len({each.body for each in server.asked}) == 1
    assert server.asked[0].json["emails"][0]["idempotencyKey"] == "k-1"


def test_a_file_keeps_its_job_id(server, caller, tmp_path):
    path = tmp_path / "letter.pdf"
    path.write_bytes(b"%PDF-1.7 " + bytes(600_000))
    sent = []
    server.script = [*TROUBLE, Says(202, DOCUMENT)]
    caller.call(lambda client: client.documents.submit(path, language="pt", progress=lambda *each: sent.append(each)))
    assert len(server.asked) == 3
    assert len({each.body for each in server.asked}) == 1
    body = server.asked[0].body
    assert path.read_bytes() in body
    assert re.search(rb'name="job_id"\r\n\r\ndoc-[0-9a-f-]{36}\r\n', body)
    assert re.search(rb'name="input_type"\r\n\r\nPDF\r\n', body)
    assert {each.headers["content-length"] for each in server.asked} == {str(len(body))}
    assert {each.headers["authorization"] for each in server.asked} == {f"Bearer {KEY}"}
    size = path.stat().st_size
    assert sent == [(262_144, size), (524_288, size), (size, size)] * 3


def test_a_document_by_its_address(server, caller):
    server.script = [*TROUBLE, Says(202, DOCUMENT)]
    caller.call(lambda client: client.documents.submit("https://example.com/talk.mp3", strict=True))
    assert len({each.body for each in server.asked}) == 1
    asked = server.asked[0].json
    assert (asked["url"], asked["job_type"], asked["input_type"], asked["strict"]) == (
        "https://example.com/talk.mp3",
        "TRANSCRIPTION",
        "AUDIO",
        True,
    )


def test_a_large_file_is_never_in_memory(server, tmp_path):
    path = tmp_path / "large.pdf"
    with path.open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    # This server does not read: it breaks off when the request begins.
    server.script = [Resets()]
    server.reads = False
    with Client(server.url, KEY, retries=0) as client:
        tracemalloc.start()
        try:
            with pytest.raises(Unreachable):
                client.documents.submit(path)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 8 * 1024 * 1024


def test_a_file_that_becomes_shorter(server, caller, tmp_path):
    path = tmp_path / "letter.pdf"
    path.write_bytes(bytes(600_000))
    server.script = [Says(202, DOCUMENT)]

    def cut(sent, size):
        path.write_bytes(b"")

    with pytest.raises(OSError, match="shorter"):
        caller.call(lambda client: client.documents.submit(path, progress=cut))
