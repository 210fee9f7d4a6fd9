"""Callbacks, against a real receiver: what it gets, and what its answers mean."""

from __future__ import annotations

import base64
import json
import socket
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from holdfast.contracts.errors import ConfigurationError, NotFound
from holdfast.contracts.jobs import Job
from holdfast.contracts.outcomes import Done, Reject, Retry
from holdfast.features.documents.callbacks import CallbackJob, CallbackOptions, DocumentCallbacks, callback_id
from holdfast.webhooks import signed_headers, signing_key
from holdfast.webhooks.addresses import AddressPolicy
from tests.support import file_server as replies
from tests.support.file_server import FileServer

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
RESULT = {"job_id": "ocr-1", "status": "COMPLETED", "duration_sec": 1.5, "output_path": "/São João", "pages": 3}


@pytest.fixture
def receiver():
    with FileServer() as server:
        yield server


def callback(url, **changes):
    facts = {"callback_id": callback_id("ocr-1"), "url": url, "job_id": "ocr-1", "company_id": "acme", "body": RESULT}
    return CallbackJob(**(facts | changes))


@asynccontextmanager
async def started(**changes):
    options = {"secret": SECRET, "policy": AddressPolicy(allowed=["127.0.0.1"])} | changes
    callbacks = DocumentCallbacks(CallbackOptions(**options))
    await callbacks.start()
    try:
        yield callbacks
    finally:
        await callbacks.stop()


class Tenants(dict):
    """Records of tenants, as a context reads them, and as a store changes them."""

    async def get(self, collection, key):
        assert collection == "tenants"
        return dict.get(self, key)

    async def apply(self, effects):
        for each in effects:
            self[each.key] |= each.set


async def handled(callbacks, data, attempt=1, tenants=None):
    context = tenants if tenants is not None else Tenants()
    return await callbacks.handle(Job(data.callback_id, "j", data, attempt, 1, datetime.now(UTC)), context)


async def outcome_of(url, **changes):
    async with started(**changes) as callbacks:
        return await handled(callbacks, callback(url))


async def test_a_result_arrives_whole_and_signed_and_under_one_id_in_every_attempt(receiver):
    url = receiver.answers("/hook", replies.status(503), replies.status(204))
    async with started() as callbacks:
        first = await handled(callbacks, callback(f"{url}?token=t"))
        second = await handled(callbacks, callback(f"{url}?token=t"), attempt=2)

    assert first == Retry("HTTP_503", "The callback's receiver answered 503.")
    assert second == Done(result={"status": 204})
    for request in receiver.requests:
        assert (request.method, request.target) == ("POST", "/hook?token=t")
        assert request.headers["content-type"] == "application/json"
        assert request.headers["webhook-id"] == "ocr-1.done"
        assert Webhook(SECRET).verify(request.body, request.headers) == RESULT
    assert len(receiver.requests) == 2


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (replies.status(200, b"ok"), Done(result={"status": 200})),
        (replies.status(200, retry_after="7"), Done(result={"status": 200})),
        (
            replies.status(429, retry_after="7"),
            Retry("THROTTLED", "The callback's receiver asked us to slow down (429).", timedelta(seconds=7)),
        ),
        (
            replies.status(503, retry_after="86400"),
            Retry("HTTP_503", "The callback's receiver answered 503.", timedelta(hours=1)),
        ),
        (replies.status(500, retry_after="7"), Retry("HTTP_500", "The callback's receiver answered 500.")),
        (replies.status(408), Retry("HTTP_408", "The callback's receiver answered 408.")),
        (replies.status(425), Retry("HTTP_425", "The callback's receiver answered 425.")),
        (replies.status(400), Reject("HTTP_400", "The callback's receiver refused it (400).")),
        (replies.status(410), Reject("HTTP_410", "The callback's receiver refused it (410).")),
        (replies.redirect("/elsewhere"), Reject("HTTP_302", "The callback's receiver refused it (302).")),
        (replies.reset, Retry("ECONNRESET", "The callback's receiver could not be reached (ECONNRESET).")),
        (replies.endless(), Done(result={"status": 200})),
    ],
)
async def test_an_answer_decides_what_becomes_of_a_callback(receiver, reply, outcome):
    url = receiver.answers("/hook", reply)

    assert await outcome_of(url, timeout=timedelta(minutes=1)) == outcome
    assert [request.path for request in receiver.requests] == ["/hook"]


async def test_a_receiver_that_does_not_answer_is_tried_again(receiver):
    outcome = await outcome_of(receiver.answers("/hook", replies.hang), timeout=timedelta(seconds=0.3))

    assert outcome == Retry("TIMEOUT", "The callback's receiver did not answer within 0.3 s.")


async def test_a_receiver_that_is_not_there_is_tried_again():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    outcome = await outcome_of(f"http://127.0.0.1:{port}/hook")

    assert outcome == Retry("ECONNREFUSED", "The callback's receiver could not be reached (ECONNREFUSED).")


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/hook?hunter2",
        "http://localhost:{port}/hook?hunter2",
        "http://169.254.169.254/hunter2",
        "http://hunter2:hunter2@8.8.8.8/",
        "ftp://example.com/hunter2",
        "hunter2",
    ],
)
async def test_a_callback_into_the_inside_is_never_sent(receiver, url):
    outcome = await outcome_of(url.format(port=receiver.port), policy=AddressPolicy())

    assert isinstance(outcome, Reject)
    assert outcome.code == "ADDRESS_BLOCKED"
    assert "hunter2" not in outcome.message
    assert receiver.requests == []


def test_people_see_where_a_callback_goes_and_not_its_secrets():
    callbacks = DocumentCallbacks(CallbackOptions(SECRET))
    data = callback("https://hooks.example:8443/hunter2?key=hunter2")
    body = data.model_dump_json()

    assert callbacks.readable(body) == json.loads(body) | {"url": "https://hooks.example:8443/***"}
    assert json.loads(callbacks.letter_body(body)) == callbacks.readable(body)
    assert callbacks.readable('{"url": ["hunter2"]}') == {"url": "***"}
    assert callbacks.readable("not JSON") == "not JSON"
    assert "hunter2" not in repr(data)
    assert SECRET not in repr(CallbackOptions(SECRET))


def test_a_callback_is_known_by_its_id_and_found_by_its_job():
    callbacks = DocumentCallbacks(CallbackOptions(SECRET))
    data = callback("https://hooks.example/")

    assert (callbacks.key(data), callbacks.fairness_key(data)) == ("ocr-1.done", "acme")
    assert callbacks.labels(data) == {"job_id": "ocr-1", "company_id": "acme"}
    assert callbacks.labels(callback("https://hooks.example/", company_id=None)) == {"job_id": "ocr-1"}
    assert (callbacks.retry.max_attempts, callbacks.retry.base) == (8, timedelta(seconds=5))
    assert callbacks.timeout > CallbackOptions(SECRET).timeout
    assert callbacks.retention == timedelta(days=7)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_abcd!", "whsec_é"])
def test_a_secret_that_signs_nothing_is_a_mistake_of_the_configuration(secret):
    with pytest.raises(ConfigurationError, match="signs callbacks"):
        DocumentCallbacks(CallbackOptions(secret))


@given(st.binary(min_size=1, max_size=64), st.text("abc.-_09", min_size=1), st.text(max_size=50))
def test_what_we_sign_is_what_the_library_of_standard_webhooks_signs(key, message_id, text):
    secret = f"whsec_{base64.b64encode(key).decode()}"
    now = datetime.now(UTC).replace(microsecond=0)

    headers = signed_headers(signing_key(secret), message_id, int(now.timestamp()), text.encode())

    assert headers == {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign(message_id, now, text),
    }
    assert signing_key(secret.rstrip("=")) == key
    assert signing_key("plain é") == "plain é".encode()


# --- the secret of a tenant -----------------------------------------------------------------------------------------


def accepts(secret, request) -> bool:
    try:
        return Webhook(secret).verify(request.body, request.headers) == RESULT
    except WebhookVerificationError:
        return False


async def test_a_rotated_secret_is_the_tenants_own_and_the_former_signs_too_for_a_while(receiver):
    url = receiver.answers("/hook", replies.status(204))
    tenants = Tenants(acme={"companyId": "acme"}, other={"companyId": "other"})
    now, week = datetime.now(UTC), timedelta(days=7)
    async with started() as callbacks:

        async def sent(company):
            await handled(callbacks, callback(url, company_id=company), tenants=tenants)
            return receiver.requests[-1]

        first = await callbacks.secrets.rotate(tenants, "acme", now, week)
        request = await sent("acme")
        assert [accepts(each, request) for each in (first, SECRET)] == [True, True]
        assert len(request.headers["webhook-signature"].split()) == 2

        second = await callbacks.secrets.rotate(tenants, "acme", now, week)
        request = await sent("acme")
        assert [accepts(each, request) for each in (second, first, SECRET)] == [True, True, False]

        third = await callbacks.secrets.rotate(tenants, "acme", now, timedelta(0))
        request = await sent("acme")
        assert [accepts(each, request) for each in (third, second)] == [True, False]

        request = await sent("other")
        assert [accepts(each, request) for each in (SECRET, third)] == [True, False]
        theirs = await callbacks.secrets.rotate(tenants, "other", now, week)
    assert len({first, second, third, theirs, SECRET}) == 5


async def test_neither_the_record_nor_the_operators_secret_alone_gives_the_secret_of_a_tenant():
    tenants = Tenants(acme={"companyId": "acme"})
    other = DocumentCallbacks(CallbackOptions(secret="whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"))
    mine = DocumentCallbacks(CallbackOptions(secret=SECRET))
    now = datetime.now(UTC)
    secret = await mine.secrets.rotate(tenants, "acme", now, timedelta(0))
    assert mine.secrets.keys(tenants["acme"], now) == [signing_key(secret)]
    assert other.secrets.keys(tenants["acme"], now) != [signing_key(secret)], "the record is not enough"
    record = tenants["acme"] | {"callbackSalt": "00" * 32}
    assert mine.secrets.keys(record, now) != [signing_key(secret)], "the operator's secret is not enough"
    assert secret not in str(tenants)


async def test_a_tenant_that_does_not_exist_has_no_secret():
    callbacks = DocumentCallbacks(CallbackOptions(secret=SECRET))
    with pytest.raises(NotFound):
        await callbacks.secrets.rotate(Tenants(), "nobody", datetime.now(UTC), timedelta(0))
