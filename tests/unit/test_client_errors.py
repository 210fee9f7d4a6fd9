"""Errors of client libraries, raised by the real libraries at real sockets (specification: error classification)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import aiohttp
import botocore.config
import botocore.session
import httpx
import pymongo
import pytest
import redis
import redis.asyncio
import requests
from botocore.exceptions import ClientError, ParamValidationError

from holdfast.contracts.workload import Failure
from holdfast.engine.failures import classify
from tests.support.workloads import Parcels

SECRET = "hunter2"
SHORT = 1.0

Get = Callable[[str], Any]


def failure_of(error: BaseException) -> Failure:
    return classify(error, Parcels())


def caught(do: Callable[[], Any]) -> Exception:
    """What a call raises, as a handler would let it pass."""
    try:
        do()
    except Exception as error:  # noqa: BLE001 - whatever it is
        return error
    pytest.fail("nothing was raised")


# --- the clients that handlers use ----------------------------------------------------------------------------------


def by_httpx(url: str) -> None:
    httpx.get(url, timeout=SHORT, trust_env=False).raise_for_status()


def by_async_httpx(url: str) -> None:
    async def get() -> None:
        async with httpx.AsyncClient(timeout=SHORT, trust_env=False) as client:
            (await client.get(url)).raise_for_status()

    asyncio.run(get())


def by_requests(url: str) -> None:
    with requests.Session() as session:
        session.trust_env = False
        session.get(url, timeout=SHORT).raise_for_status()


def by_aiohttp(url: str) -> None:
    async def get() -> None:
        limit = aiohttp.ClientTimeout(sock_read=SHORT)
        async with aiohttp.ClientSession(timeout=limit, raise_for_status=True) as session, session.get(url):
            pass

    asyncio.run(get())


def by_botocore(url: str) -> None:
    config = botocore.config.Config(
        retries={"total_max_attempts": 1}, read_timeout=SHORT, connect_timeout=SHORT, proxies={}
    )
    client = botocore.session.Session().create_client(
        "s3",
        region_name="us-east-1",
        endpoint_url=url.partition("?")[0],
        aws_access_key_id="a",
        aws_secret_access_key="b",
        config=config,
    )
    with contextlib.closing(client):
        client.list_buckets()


def by_urllib(url: str) -> None:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=SHORT):
        pass


ONCE = {"host": "127.0.0.1", "socket_timeout": SHORT, "retry": None}


def by_redis(url: str) -> None:
    with redis.Redis(port=httpx.URL(url).port, **ONCE) as client:
        client.ping()


def by_async_redis(url: str) -> None:
    async def ping() -> None:
        async with redis.asyncio.Redis(port=httpx.URL(url).port, **ONCE) as client:
            await client.ping()

    asyncio.run(ping())


def by_pymongo(url: str) -> None:
    with pymongo.MongoClient("127.0.0.1", httpx.URL(url).port, serverSelectionTimeoutMS=300) as client:
        client.admin.command("ping")


HTTP_CLIENTS = [by_httpx, by_async_httpx, by_requests, by_aiohttp, by_botocore, by_urllib]
CLIENTS = [*HTTP_CLIENTS, by_redis, by_async_redis, by_pymongo]


# --- the other side -------------------------------------------------------------------------------------------------


@pytest.fixture
def closed_port() -> Iterator[str]:
    """An address that nobody listens at, and that nobody else gets meanwhile."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{holder.getsockname()[1]}/?token={SECRET}"


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"


@pytest.fixture
def rude() -> Iterator[str]:
    """A server that hears the beginning of a request and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, contextlib.suppress(OSError):
                        connection.recv(4)

        listener = threading.Thread(target=hang_up)
        listener.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        server.shutdown(socket.SHUT_RDWR)
        listener.join()


class _Answers(BaseHTTPRequestHandler):
    """Answers with the status that the path names."""

    def do_GET(self) -> None:
        self.send_response(int(self.path.strip("/").partition("?")[0]))
        for name, value in self.server.told.items():  # type: ignore[attr-defined]
            self.send_header(name, value)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        server.told = {}  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def answering(server: ThreadingHTTPServer, status: int) -> str:
    return f"http://127.0.0.1:{server.server_port}/{status}?token={SECRET}"


def by_botocore_at(server: ThreadingHTTPServer, status: int) -> Callable[[], None]:
    """S3 asks for the bucket's path, which is the status here."""
    return lambda: by_botocore(f"http://127.0.0.1:{server.server_port}/{status}")


# --- the network ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("get", CLIENTS)
def test_a_refused_connection_is_transient_whoever_meets_it(get: Get, closed_port: str) -> None:
    failure = failure_of(caught(lambda: get(closed_port)))

    assert (failure.code, failure.retry) == ("ECONNREFUSED", True)
    assert SECRET not in failure.message


@pytest.mark.parametrize("get", CLIENTS)
def test_a_server_that_does_not_answer_is_a_timeout(get: Get, silent: str) -> None:
    failure = failure_of(caught(lambda: get(silent)))

    assert (failure.code, failure.retry) == ("TIMEOUT", True)


@pytest.mark.parametrize("get", CLIENTS)
def test_a_connection_that_breaks_is_transient(get: Get, rude: str) -> None:
    failure = failure_of(caught(lambda: get(rude)))

    assert (failure.code, failure.retry) == ("ECONNRESET", True)


@pytest.mark.parametrize("get", HTTP_CLIENTS)
def test_an_unknown_host_is_transient(get: Get) -> None:
    failure = failure_of(caught(lambda: get("http://no-such-host.invalid/")))

    assert (failure.code, failure.retry) == ("ENOTFOUND", True)


def test_an_error_that_was_raised_from_a_network_error_is_transient_whatever_it_says(closed_port: str) -> None:
    def handler() -> None:
        try:
            by_httpx(closed_port)
        except httpx.HTTPError as error:
            message = "validation failed: the address service said nothing"
            raise ValueError(message) from error

    assert failure_of(caught(handler)).code == "ECONNREFUSED"


def test_an_error_inside_the_handling_of_a_network_error_is_transient(closed_port: str) -> None:
    def handler() -> None:
        try:
            by_requests(closed_port)
        except requests.RequestException:
            message = "malformed"
            raise LookupError(message)  # noqa: B904 - as careless handlers do

    assert failure_of(caught(handler)).code == "ECONNREFUSED"


async def test_a_task_group_passes_on_what_its_one_task_met(closed_port: str) -> None:
    async def get() -> None:
        async with httpx.AsyncClient(trust_env=False) as client:
            await client.get(closed_port)

    with pytest.raises(ExceptionGroup) as group:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(get())

    assert failure_of(group.value).code == "ECONNREFUSED"


def test_causes_that_go_in_a_circle_have_an_end() -> None:
    first, second = ValueError("odd"), KeyError("even")
    first.__cause__, second.__cause__ = second, first

    assert failure_of(first).code == "UNCLASSIFIED"


def test_a_missing_file_that_was_caught_before_says_nothing_about_the_network() -> None:
    def handler() -> None:
        try:
            Path("/no/such/file").stat()
        except FileNotFoundError:
            message = "validation failed: no such customer"
            raise ValueError(message)  # noqa: B904 - as careless handlers do

    assert failure_of(caught(handler)).retry is False


# --- answers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("get", [by_httpx, by_async_httpx, by_requests, by_aiohttp, by_urllib])
@pytest.mark.parametrize("status", [408, 425, 500, 502, 503, 504, 599])
def test_an_answer_that_may_be_another_one_later_is_transient(get: Get, status: int, server) -> None:
    failure = failure_of(caught(lambda: get(answering(server, status))))

    assert (failure.code, failure.retry, failure.after) == (f"HTTP_{status}", True, None)
    assert SECRET not in failure.message


@pytest.mark.parametrize("get", [by_httpx, by_async_httpx, by_requests, by_aiohttp, by_urllib])
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 418, 422])
def test_another_4xx_is_permanent(get: Get, status: int, server) -> None:
    failure = failure_of(caught(lambda: get(answering(server, status))))

    assert (failure.code, failure.retry) == (f"HTTP_{status}", False)
    assert SECRET not in failure.message


@pytest.mark.parametrize("get", [by_httpx, by_async_httpx, by_requests, by_aiohttp, by_urllib])
@pytest.mark.parametrize(("status", "code"), [(429, "THROTTLED"), (503, "HTTP_503")])
def test_a_wait_that_was_asked_for_is_kept(get: Get, status: int, code: str, server) -> None:
    server.told = {"Retry-After": "7"}

    failure = failure_of(caught(lambda: get(answering(server, status))))

    assert (failure.code, failure.retry, failure.after) == (code, True, timedelta(seconds=7))


@pytest.mark.parametrize("get", [by_httpx, by_aiohttp])
def test_a_throttle_without_a_wait_is_transient(get: Get, server) -> None:
    failure = failure_of(caught(lambda: get(answering(server, 429))))

    assert (failure.code, failure.retry, failure.after) == ("THROTTLED", True, None)


@pytest.mark.parametrize(
    ("status", "code", "retry"),
    [(400, "HTTP_400", False), (403, "HTTP_403", False), (429, "THROTTLED", True), (503, "HTTP_503", True)],
)
def test_an_answer_of_aws_counts_by_its_status(status: int, code: str, retry: bool, server) -> None:
    server.told = {"Retry-After": "9"}

    failure = failure_of(caught(by_botocore_at(server, status)))

    assert (failure.code, failure.retry) == (code, retry)
    assert failure.after == (timedelta(seconds=9) if status in {429, 503} else None)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("ThrottlingException", "THROTTLED"),
        ("ProvisionedThroughputExceededException", "THROTTLED"),
        ("TooManyRequestsException", "THROTTLED"),
        ("RequestLimitExceeded", "THROTTLED"),
        ("RequestTimeout", "TIMEOUT"),
    ],
)
def test_aws_says_come_back_later_with_400_too(name: str, code: str) -> None:
    answer = {"Error": {"Code": name, "Message": ""}, "ResponseMetadata": {"HTTPStatusCode": 400, "HTTPHeaders": {}}}

    failure = failure_of(ClientError(answer, "PutItem"))

    assert (failure.code, failure.retry) == (code, True)


def test_parameters_that_botocore_refuses_are_permanent() -> None:
    client = botocore.session.Session().create_client(
        "s3", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    with contextlib.closing(client):
        error = caught(client.get_object)

    assert isinstance(error, ParamValidationError)
    assert failure_of(error).code == "VALIDATION_FAILED"
    assert not failure_of(error).retry


def test_a_refusal_that_the_handler_names_as_the_cause_is_permanent(server) -> None:
    def handler() -> None:
        try:
            by_httpx(answering(server, 422))
        except httpx.HTTPStatusError as error:
            message = "the invoice was not taken"
            raise RuntimeError(message) from error

    assert failure_of(caught(handler)) == Failure(
        "HTTP_422", "httpx.HTTPStatusError: the other side answered 422.", retry=False
    )


def test_a_refusal_that_the_handler_had_caught_says_nothing_about_a_later_error(server) -> None:
    """Look for a record, make it where there is none: the 404 was expected, and what fails is another thing."""

    def handler() -> None:
        try:
            by_httpx(answering(server, 404))
        except httpx.HTTPStatusError:
            message = "could not make it"
            raise RuntimeError(message)  # noqa: B904 - as careless handlers do

    assert failure_of(caught(handler)).code == "UNCLASSIFIED"
    assert failure_of(caught(handler)).retry


def test_a_redirect_that_was_not_followed_is_transient(server) -> None:
    failure = failure_of(caught(lambda: by_httpx(answering(server, 304))))

    assert (failure.code, failure.retry) == ("HTTP_304", True)


def test_an_answer_that_succeeded_and_could_not_be_read_is_unknown(server) -> None:
    async def get() -> None:
        async with aiohttp.ClientSession() as session, session.get(answering(server, 200)) as answer:
            await answer.json()  # no JSON: aiohttp raises an error with the status 200

    failure = failure_of(caught(lambda: asyncio.run(get())))

    assert (failure.code, failure.retry) == ("UNCLASSIFIED", True)


def test_an_error_whose_attributes_raise_is_unknown() -> None:
    class Odd(Exception):
        @property
        def response(self) -> object:
            raise RuntimeError

        def __str__(self) -> str:
            raise RuntimeError

    assert (failure_of(Odd()).code, failure_of(Odd()).retry) == ("UNCLASSIFIED", True)


# --- words ----------------------------------------------------------------------------------------------------------


class InvalidPayloadError(Exception):
    pass


class DomainValidationError(Exception):
    pass


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("validation failed: shipmentId is missing"),
        ValueError("Validation error: 2 fields"),
        RuntimeError("schema validation: unknown status"),
        RuntimeError("irrecoverable domain validation failure"),
        RuntimeError("VALIDATION_FAILED"),
        ValueError("Malformed business payload"),
        KeyError("malformed"),
        RuntimeError("Invalid payload"),
        RuntimeError("invalid event payload: no orderId"),
        RuntimeError("INVALID_PAYLOAD"),
        RuntimeError("the payload is invalid"),
        InvalidPayloadError(),
        DomainValidationError("order 5"),
        pymongo.errors.WriteError("Document failed validation", 121),
        ExceptionGroup("one", [ValueError("malformed order")]),
    ],
)
def test_an_error_that_speaks_of_broken_content_is_permanent(error: Exception) -> None:
    failure = failure_of(error)

    assert (failure.code, failure.retry) == ("VALIDATION_FAILED", False)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("connect ECONNREFUSED 127.0.0.1:5432", "ECONNREFUSED"),
        ("Connection refused", "ECONNREFUSED"),
        ("connect ETIMEDOUT 10.0.0.1:443", "TIMEOUT"),
        ("read ECONNRESET", "ECONNRESET"),
        ("getaddrinfo ENOTFOUND api.example.com", "ENOTFOUND"),
        ("Request timed out", "TIMEOUT"),
        ("timeout of 5000ms exceeded", "TIMEOUT"),
        ("validation failed: the registry timed out", "TIMEOUT"),
        ("malformed frame, connection reset by peer", "ECONNRESET"),
    ],
)
def test_an_error_that_speaks_of_the_network_has_its_name(text: str, code: str) -> None:
    failure = failure_of(RuntimeError(text))

    assert (failure.code, failure.retry) == (code, True)


@pytest.mark.parametrize(
    "text",
    [
        "invalid response from upstream",
        "malformed response from the rate service",
        "SSL: certificate validation failed",
        "the validation service is unavailable",
        "could not reach the validation server",
        "the validation service answered 503",
        "validation is overloaded, try again",
        "cache invalidation failed",
        "invalid token",
        "payload",
        "something else",
    ],
)
def test_words_that_may_speak_of_the_other_side_give_no_job_up(text: str) -> None:
    failure = failure_of(RuntimeError(text))

    assert (failure.code, failure.retry) == ("UNCLASSIFIED", True)


def test_a_class_that_is_called_a_timeout_is_one() -> None:
    class StatementTimeout(Exception):
        pass

    assert failure_of(StatementTimeout("57014")).code == "TIMEOUT"


def test_words_of_broken_content_tell_no_secret() -> None:
    assert "hunter2" not in failure_of(ValueError(f"malformed line: password={SECRET}")).message
