"""Nothing that a request brings keeps the event loop for more than 20 ms of the processor (I18).

The whole API with its default limits, and for each route that reads something the largest and most awkward requests
that it takes. What takes longer than that belongs into a thread, or needs a bound.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
import uuid
from datetime import UTC, datetime

import pytest

from tests.support.gateway import opened, sign
from tests.support.loop_watch import watched_loop
from tests.support.settings import Settings

TOKEN = "operator-token-of-the-watchdog-test-0123456789"
SECRET = "secret-of-the-watchdog-courier-0123456789abcdef"
MOST_MS = 20.0
ROOM = 250_000
"""A little less than the largest body."""


class Sender:
    """Somebody with every key there is."""

    def __init__(self, gateway, key):
        self.client = gateway.client
        self.tenant = {"authorization": f"Bearer {key}"}
        self.operator = {"authorization": f"Bearer {TOKEN}"}

    async def event(self, body):
        moment = int(time.time())
        headers = {
            "x-signature": sign(SECRET, moment, body),
            "x-signature-timestamp": str(moment),
            "x-signature-algorithm": "hmac-sha256",
        }
        return await self.client.post("/v1/events/courier", content=body, headers=headers | JSON)

    async def email(self, body):
        return await self.client.post("/v1/email/send", content=body, headers=self.tenant | JSON)

    async def emails(self, body):
        return await self.client.post("/v1/email/batch", content=body, headers=self.tenant | JSON)

    async def document(self, body):
        return await self.client.post("/v1/documents", content=body, headers=self.tenant | JSON)

    async def form(self, body):
        headers = {"content-type": "multipart/form-data; boundary=limit"}
        return await self.client.post("/v1/documents", content=body, headers=self.tenant | headers)

    async def letters(self, query):
        return await self.client.get(f"/v1/dead-letters?{query}", headers=self.operator)


JSON = {"content-type": "application/json"}


@pytest.fixture
async def sender(tmp_path):
    settings = Settings(
        holdfast_data=tmp_path,
        operator_token=TOKEN,
        courier_secrets={"courier-x": [SECRET]},
    )
    async with opened(settings) as gateway:
        tenant = await gateway.tenants.add("acme")
        _, key = await gateway.tenants.create_key(tenant.company_id)
        yield Sender(gateway, key)


def event(**payload):
    body = {
        "eventId": f"evt_{uuid.uuid4().hex}",
        "eventType": "shipment.status_updated",
        "occurredAt": datetime.now(UTC).isoformat(timespec="seconds"),
        "source": "courier-x",
        "payload": {"shipmentId": "shp_1", "orderId": "ord_1", "status": "in_transit", **payload},
    }
    return json.dumps(body, separators=(",", ":")).encode()


def email(**changes):
    return {
        "to": "cliente@example.com",
        "subject": "Seu boleto",
        "html": "<p>Boleto</p>",
        "recipient": {"externalId": "CUST-1"},
    } | changes


def dense(value):
    return json.dumps(value, separators=(",", ":")).encode()


def many(piece, room=ROOM):
    return piece * (room // len(piece))


def names(room=ROOM):
    return {f"k{number}": 1 for number in range(room // 11)}


def part(name, content=b"x", more=b""):
    return b'--limit\r\ncontent-disposition: form-data; name="' + name + b'"\r\n' + more + b"\r\n" + content + b"\r\n"


DEEP = many(b'{"a":', 200_000) + b"1" + b"}" * 40_000

REQUESTS = {
    "event: many names": ("event", lambda: event(**names(10_900))),
    "event: too many names": ("event", lambda: event(**names())),
    "event: numbers": ("event", lambda: event(x=[1] * 4_900)),
    "event: too many numbers": ("event", lambda: event(x=[1] * (ROOM // 2))),
    "event: empty lists": ("event", lambda: event(x=[[]] * 2_400)),
    "event: too many empty lists": ("event", lambda: event(x=[[]] * (ROOM // 3))),
    "event: objects": ("event", lambda: event(x=[{"a": 1}] * 2_400)),
    "event: texts": ("event", lambda: event(x=["abc" * 15] * 4_900)),
    "event: one text": ("event", lambda: event(x=many("a."))),
    "event: addresses": ("event", lambda: event(x=many("a@a.co "))),
    "event: deep": ("event", lambda: DEEP),
    "event: brackets": ("event", lambda: b"[" * ROOM),
    "event: a long number": ("event", lambda: b'{"a":' + b"1" * ROOM + b"}"),
    "event: wrong names": ("event", lambda: dense(names(10_900))),
    "event: long wrong names": ("event", lambda: dense({many("a.", 8_000) + str(each): 1 for each in range(30)})),
    "email: many tags": ("email", lambda: dense(email(html=many("<table><tr><td>")))),
    "email: links": ("email", lambda: dense(email(html=many("<a href='https://x.example'>")))),
    "email: numbers": ("email", lambda: dense(email(html=many("52998224724 ")))),
    "email: cards": ("email", lambda: dense(email(html=many("4111 1111 1111 1112 ")))),
    "email: a token": ("email", lambda: dense(email(html="eyJ" + many("a")))),
    "email: wide digits": ("email", lambda: dense(email(html=many("\uff11 ", 40_000)))),
    "email: wrong names": ("email", lambda: dense(email(**names(10_900)))),
    "email: many recipients": ("email", lambda: dense(email(cc=["a@example.com"] * 4_900))),
    "email: deep": ("email", lambda: DEEP),
    "emails: five hundred": ("emails", lambda: dense({"emails": [email()] * 500})),
    "emails: large ones": ("emails", lambda: dense({"emails": [email(html=many("<p>x</p>", 15_000))] * 500})),
    "emails: too many": ("emails", lambda: dense({"emails": [{}] * 1_000_000})),
    "emails: wrong names": ("emails", lambda: dense({"emails": [names(1_000)] * 500})),
    "emails: deep": ("emails", lambda: many(b"[", 8_000_000)),
    "document: wrong names": ("document", lambda: dense(names(10_900))),
    "document: metadata": ("document", lambda: dense({"url": "https://x.example/a.pdf", "metadata": names(10_900)})),
    "form: many parts": ("form", lambda: b"".join(part(b"a%d" % each) for each in range(3_000)) + b"--limit--\r\n"),
    "form: many headers": ("form", lambda: part(b"a", more=b"".join(b"h%d: x\r\n" % each for each in range(20_000)))),
    "form: a long name": ("form", lambda: part(many(b"a", 200_000)) + b"--limit--\r\n"),
    "form: dashes": ("form", lambda: part(b"file", many(b"\r\n--limi", 1_000_000))),
    "query: a long name": ("letters", lambda: many("a.", 8_000) + "=1"),
    "query: many names": ("letters", lambda: "&".join(f"p{each}=1" for each in range(99))),
    "query: a long value": ("letters", lambda: "status=" + many("a.", 8_000)),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_no_request_keeps_the_loop(sender, name):
    verb, make = REQUESTS[name]
    given = make()
    ask = getattr(sender, verb)
    await ask(given[:200])  # what is made once is made now
    for _ in range(3):  # a pause of the collector is not the request's
        gc.collect()
        with watched_loop() as seen:
            answer = await asyncio.create_task(ask(given))
        worst = max(seen)
        if worst[0] < MOST_MS:
            break
    assert answer.status_code in {202, 207, 400, 413}, answer.text
    assert worst[0] < MOST_MS, f"{worst[0]:.0f} ms: {worst[1]}"
