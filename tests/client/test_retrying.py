"""Exact requests and waits of both clients over failures."""

from __future__ import annotations

import json
import pickle
import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from email.utils import format_datetime

import httpx
import pytest

from holdfast.client import (
    AsyncClient,
    Client,
    Conflict,
    Forbidden,
    HoldfastClientError,
    InvalidContent,
    InvalidSignature,
    JobFailed,
    NotFound,
    Problem,
    Refused,
    Retries,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
)
from holdfast.client.exchange import retry_after
from tests.client.callers import KEY, START, TOKEN
from tests.client.scripted_server import Hangs, Resets, Says

RECEIPT = {
    "acknowledged": True,
    "workload": "invoices",
    "key": "1",
    "jobId": "1",
    "queued": True,
    "duplicate": False,
    "receivedAt": "2026-11-18T12:00:00.000Z",
    "dueAt": None,
    "traceId": "0af7651916cd43dd8448eb211c80319c",
    "somethingNew": 7,
}
ERROR = {"acknowledged": False, "errorCode": "SOME_CODE", "message": "A sentence.", "traceId": "req_1"}
ACCEPTED = Says(202, RECEIPT)


def busy(status, after=None):
    return Says(status, ERROR, {} if after is None else {"retry-after": after})


def submit(client):
    return client.submit("invoices", {"number": "1"})


def test_an_accepted_request_is_sent_once(server, caller):
    server.script = [ACCEPTED]
    job = caller.call(submit)
    assert (job.workload, job.key, job.duplicate, job.due_at) == ("invoices", "1", False, None)
    assert job.received_at == datetime(2026, 11, 18, 12, tzinfo=UTC)
    assert job.raw["somethingNew"] == 7
    (asked,) = server.asked
    assert (asked.method, asked.path, asked.query, asked.json) == ("POST", "/v1/jobs/invoices", [], {"number": "1"})
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.headers["content-type"] == "application/json"
    assert caller.waits == []


@pytest.mark.parametrize(
    "failure", [Resets(), Resets(b"HTTP/1.1 202 Accepted\r\ncontent-length: 999\r\n\r\n{"), busy(429), busy(503)]
)
def test_a_failure_is_tried_again_with_the_same_request(server, caller, failure):
    server.script = [failure, failure, ACCEPTED]
    assert caller.call(submit).key == "1"
    assert len(server.asked) == 3
    assert len({(each.method, each.path, each.body, each.headers["authorization"]) for each in server.asked}) == 1
    assert caller.waits == [0.25, 0.5]


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_the_tries_have_an_end(server, caller, status):
    server.script = [busy(status)]
    with pytest.raises(TooManyRequests if status == 429 else Unavailable) as raised:
        caller.call(submit)
    assert (raised.value.status, raised.value.code, raised.value.trace_id) == (status, "SOME_CODE", "req_1")
    assert len(server.asked) == 4
    assert caller.waits == [0.25, 0.5, 1.0]


def test_no_answer_in_time_is_tried_again(server, make_caller):
    caller = make_caller(timeout="200ms", retries=1)
    server.script = [Hangs(), ACCEPTED]
    assert caller.call(submit).key == "1"
    assert len(server.asked) == 2
    server.script = [Hangs()]
    with pytest.raises(Unreachable) as raised:
        caller.call(submit)
    assert raised.value.arrived
    assert len(server.asked) == 4


def test_a_broken_connection_has_the_same_number_of_tries(server, caller):
    server.script = [Resets()]
    with pytest.raises(Unreachable) as raised:
        caller.call(submit)
    assert raised.value.arrived
    assert "it is not known" in str(raised.value)
    assert len(server.asked) == 4


def test_nobody_listens(make_caller):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    caller = make_caller()
    caller.address = address
    with pytest.raises(Unreachable) as raised:
        caller.call(submit)
    assert not raised.value.arrived
    assert "nothing was sent" in str(raised.value)
    assert len(caller.waits) == 3


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidContent),
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (408, Refused),
        (409, Conflict),
        (413, InvalidContent),
        (415, InvalidContent),
        (422, InvalidContent),
        (500, Refused),
    ],
)
def test_other_refusals_are_not_tried_again(server, caller, status, kind):
    server.script = [Says(status, ERROR | {"details": [{"field": "cents", "problem": "is required"}]})]
    with pytest.raises(kind) as raised:
        caller.call(submit)
    assert len(server.asked) == 1
    assert type(raised.value) is kind
    assert [(each.field, each.problem) for each in raised.value.details] == [("cents", "is required")]
    assert str(raised.value) == f"{status} SOME_CODE: A sentence. cents: is required. (trace id req_1)"


class TestRetryAfter:
    def test_seconds(self, server, caller):
        server.script = [busy(429, "7"), busy(503, "2"), ACCEPTED]
        caller.call(submit)
        assert caller.waits == [7.0, 2.0]

    def test_a_date(self, server, caller):
        date = format_datetime(datetime.fromtimestamp(START + 11, UTC), usegmt=True)
        server.script = [busy(503, date), ACCEPTED]
        caller.call(submit)
        assert caller.waits == [11.0]

    def test_many_clients_do_not_come_back_at_the_same_instant(self, server, make_caller):
        caller = make_caller(chance=0.5)
        server.script = [busy(429, "7"), ACCEPTED]
        caller.call(submit)
        assert caller.waits == [7.25]

    def test_later_than_the_deadline_is_not_waited_for(self, server, caller):
        server.script = [busy(429, "61"), ACCEPTED]
        with pytest.raises(TooManyRequests) as raised:
            caller.call(submit)
        assert raised.value.retry_after == 61
        assert len(server.asked) == 1

    @pytest.mark.parametrize(
        ("value", "seconds"),
        [
            (None, None),
            ("0", 0.0),
            (" 12 ", 12.0),
            ("soon", None),
            ("-1", None),
            ("1.5", None),
            ("²", None),
            ("", None),
            ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
            ("Wed, 99 Oct 2015 07:28:00 GMT", None),
        ],
    )
    def test_every_form(self, value, seconds):
        assert retry_after(value, START) == seconds


class TestWaits:
    def test_they_grow_to_a_limit(self):
        retries = Retries(first_wait="1s", longest_wait="5s")
        assert [retries.wait_before(each, None, 1.0) for each in range(1, 6)] == [1, 2, 4, 5, 5]
        assert [retries.wait_before(each, None, 0.0) for each in range(1, 6)] == [0.5, 1, 2, 2.5, 2.5]
        assert retries.wait_before(10_000, None, 1.0) == 5

    def test_the_overall_deadline_counts(self, server, make_caller):
        caller = make_caller(retries=Retries(most=100, first_wait="1s", longest_wait="10s", within="30s"), chance=1.0)
        server.script = [busy(503)]
        with pytest.raises(Unavailable):
            caller.call(submit)
        assert caller.waits == [1, 2, 4, 8, 10]
        assert len(server.asked) == 6

    def test_no_retries(self, server, make_caller):
        server.script = [busy(503)]
        with pytest.raises(Unavailable):
            make_caller(retries=0).call(submit)
        assert len(server.asked) == 1

    @pytest.mark.parametrize("options", [{"most": -1}, {"within": "soon"}, {"first_wait": -1}])
    def test_impossible_retries(self, options):
        with pytest.raises(ValueError, match=r"duration|less than 0"):
            Retries(**options)


class TestNotRepeatable:
    """A decision of a person is not sent twice: the first may have been taken."""

    def review(self, client):
        return client.dead_letters.review("dl_1", actor="ana", reason="fixed")

    @pytest.mark.parametrize("failure", [Resets(), busy(502), busy(504)])
    def test_it_may_have_been_done(self, server, caller, failure):
        server.script = [failure]
        with pytest.raises((Unreachable, Unavailable)):
            caller.call(self.review)
        assert len(server.asked) == 1

    @pytest.mark.parametrize("failure", [busy(429), busy(503)])
    def test_it_was_not_done(self, server, caller, failure):
        server.script = [failure]
        with pytest.raises((TooManyRequests, Unavailable)):
            caller.call(self.review)
        assert len(server.asked) == 4


class TestStrangeAnswers:
    def test_an_error_of_a_proxy(self, server, caller):
        server.script = [Says(404, raw=b"<html>nothing here</html>")]
        with pytest.raises(NotFound) as raised:
            caller.call(submit)
        assert raised.value.code == "HTTP_404"

    @pytest.mark.parametrize(
        "raw", [b"<html>welcome</html>", b"", b"[]", b"{}", b'{"workload": 1}', b"[" * 100_000, b'"text"', b"\xff"]
    )
    def test_success_without_a_receipt(self, server, caller, raw):
        server.script = [Says(200, raw=raw)]
        with pytest.raises(UnexpectedAnswer):
            caller.call(submit)
        assert len(server.asked) == 1

    def test_a_redirect_is_not_followed(self, server, caller):
        server.script = [Says(302, {}, {"location": "http://example.com/"})]
        with pytest.raises(Refused) as raised:
            caller.call(submit)
        assert raised.value.status == 302
        assert len(server.asked) == 1


class TestSecrets:
    def test_no_secret_is_shown(self, server, caller, caplog):
        caplog.set_level("DEBUG")
        server.script = [Says(401, ERROR)]
        with pytest.raises(Unauthorized) as raised:
            caller.call(submit)
        shown = [repr(raised.value), str(raised.value), caplog.text]
        with Client(server.url, KEY, token=TOKEN) as client:
            shown += [repr(client), repr(client.email), repr(vars(client)), repr(client._verbs._exchange._credentials)]
        assert not any(secret in text for secret in (KEY, TOKEN) for text in shown)

    @pytest.mark.parametrize("key", ["", " hf_x", "hf_\n", "hf_é", "hf_x\r\nx-evil: 1"])
    def test_a_key_that_cannot_be_a_header(self, key):
        with pytest.raises(ValueError, match="visible ASCII") as raised:
            Client("http://127.0.0.1:1", key)
        assert not key or key not in str(raised.value)

    @pytest.mark.parametrize(
        "address",
        [
            "",
            "127.0.0.1:8080",
            "ftp://example.com",
            "http://",
            "http://user:password@example.com",
            "http://example.com/?x=1",
            "http://example.com/#x",
            "http://[",
            "http://example.com:99999",
            "http://exa\nmple.com",
        ],
    )
    def test_an_address_that_is_none(self, address):
        with pytest.raises(ValueError, match="base_url") as raised:
            Client(address, KEY)
        assert "password@" not in str(raised.value)

    def test_operators_use_their_token_and_tenants_their_key(self, server, caller):
        server.script = [Says(200, {"items": [], "next": None})]
        caller.call(lambda client: client.dead_letters.list())
        caller.call(lambda client: client.jobs("invoices"))
        assert [each.headers["authorization"] for each in server.asked] == [f"Bearer {TOKEN}", f"Bearer {KEY}"]

    def test_one_credential_is_for_everything(self, server, make_caller):
        server.script = [Says(200, {"items": [], "next": None})]
        make_caller(key=None).call(lambda client: client.jobs("invoices"))
        make_caller(token=None).call(lambda client: client.dead_letters.list())
        make_caller(token=None, key=None).call(lambda client: client.dead_letters.list())
        assert [each.headers.get("authorization") for each in server.asked] == [
            f"Bearer {TOKEN}",
            f"Bearer {KEY}",
            None,
        ]


@pytest.mark.parametrize(
    "error",
    [
        Conflict(409, "SOME_CODE", "A sentence.", (Problem("cents", "is required"),), "req_1", 2.0),
        Unreachable("http://127.0.0.1:1", "ReadTimeout", arrived=True),
        UnexpectedAnswer("A sentence."),
        JobFailed("invoices", "1", "TIMEOUT", "No answer.", "dl_1"),
        InvalidSignature(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_travel_between_processes(error):
    copied = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert isinstance(copied, HoldfastClientError)
    assert (type(copied), str(copied), vars(copied)) == (type(error), str(error), vars(error))


def test_an_httpx_client_of_ones_own_stays_open(server):
    server.script = [ACCEPTED]
    with httpx.Client(headers={"x-request-id": "mine"}) as http:
        with Client(server.url + "/", KEY, http=http) as client:
            submit(client)
        assert not http.is_closed
    assert server.asked[0].headers["x-request-id"] == "mine"


def test_a_gateway_below_a_path(server):
    server.script = [ACCEPTED]
    with Client(server.url + "/holdfast/", KEY) as client:
        submit(client)
    assert server.asked[0].path == "/holdfast/v1/jobs/invoices"


async def test_a_transport_of_ones_own():
    """The app of an API in the same process, for example."""
    asked = []

    async def app(scope, receive, send):
        asked.append(scope["path"])
        await send({"type": "http.response.start", "status": 202, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(RECEIPT).encode()})

    async with AsyncClient("http://holdfast.test", KEY, http=httpx.ASGITransport(app)) as client:
        assert (await submit(client)).key == "1"
    assert asked == ["/v1/jobs/invoices"]


def test_many_threads_share_a_client(server):
    server.script = [ACCEPTED]
    with Client(server.url, KEY) as client, ThreadPoolExecutor(16) as threads:
        jobs = list(threads.map(lambda _: submit(client), range(64)))
    assert len(jobs) == len(server.asked) == 64
