"""Fetching, against a real server: what arrives, what is refused, and what is left behind (nothing)."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import traceback
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from holdfast.contracts.files import HEAD
from holdfast.features.documents.failures import Code, DocumentFailure
from holdfast.features.documents.fetching import Fetcher, FetchOptions
from holdfast.webhooks.addresses import AddressBlocked, AddressPolicy
from holdfast.webhooks.client import VettedBackend, resolved
from tests.support import file_server as replies
from tests.support.file_server import FileServer

CAP = 3_000_000
HERE = AddressPolicy(allowed=["127.0.0.1"])
PATIENT = timedelta(seconds=60)
SHORT = timedelta(milliseconds=300)


@pytest.fixture
def server():
    with FileServer() as server:
        yield server


@pytest.fixture
def to(tmp_path):
    return tmp_path / "file"


@asynccontextmanager
async def fetching(**changes):
    options = {"policy": HERE, "max_bytes": CAP, "timeout": PATIENT} | changes
    fetcher = Fetcher(FetchOptions(**options))
    await fetcher.open()
    try:
        yield fetcher
    finally:
        await fetcher.close()


async def fetch(url, to, what="the file", **changes):
    async with fetching(**changes) as fetcher:
        return await fetcher.fetch(url, to, what)


async def failure_of(url, to, what="the file", **changes):
    with pytest.raises(DocumentFailure) as failed:
        await fetch(url, to, what, **changes)
    assert list(to.parent.iterdir()) == []
    return failed.value


def names(**known):
    """A resolver of these names. Each has a list of answers, of which the last is repeated; it notes who asks."""
    asked = []

    async def resolve(host, port):
        asked.append(host)
        answers = known[host.partition(".")[0]]
        return answers[0] if len(answers) == 1 else answers.pop(0)

    resolve.asked = asked
    return resolve


# --- what arrives -----------------------------------------------------------------------------------------------


async def test_a_file_arrives_whole_and_is_described(server, to):
    body = bytes(range(256)) * 10_000  # more than two blocks
    server.answers("/a.pdf", replies.content(body, "Application/PDF; charset=x"))

    fetched = await fetch(server.url("/a.pdf?token=t#part"), to)

    assert to.read_bytes() == body
    assert (fetched.size, fetched.sha256) == (len(body), sha256(body).hexdigest())
    assert (fetched.head, fetched.content_type) == (body[:HEAD], "application/pdf")
    (request,) = server.requests
    assert (request.method, request.target) == ("GET", "/a.pdf?token=t")
    assert request.headers["accept-encoding"] == "identity"
    assert request.headers["host"] == f"127.0.0.1:{server.port}"
    assert request.headers["connection"] == "close"  # the next one is vetted again


@pytest.mark.parametrize("body", [b"", b"x", bytes(CAP)])
async def test_a_body_without_a_length_arrives_up_to_the_cap(server, to, body):
    fetched = await fetch(server.answers("/a", replies.undeclared(body)), to)

    assert (fetched.size, fetched.head, fetched.content_type) == (
        len(body),
        body[:HEAD],
        "application/octet-stream",
    )
    assert to.read_bytes() == body


async def test_redirects_are_followed(server, to):
    server.answers("/one", replies.redirect("two?b=c", 301))
    server.answers("/two", replies.redirect(server.url("/three"), 308))
    server.file("/three", b"found")

    assert (await fetch(server.url("/one"), to)).size == 5
    assert [request.target for request in server.requests] == ["/one", "/two?b=c", "/three"]


async def test_an_ipv6_address_is_written_in_brackets(server, to):
    server.file("/a", b"six")
    try:
        socket.create_connection(("::ffff:127.0.0.1", server.port)).close()
    except OSError:
        pytest.skip("this machine has no IPv6")

    assert (await fetch(server.url("/a", "[::ffff:127.0.0.1]"), to)).size == 3
    assert server.requests[-1].headers["host"] == f"[::ffff:127.0.0.1]:{server.port}"


async def test_the_environment_names_no_proxy(server, to, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    assert (await fetch(server.file("/a", b"direct"), to)).size == 6


# --- what goes wrong --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "code", "detail"),
    [
        (replies.status(403), Code.HTTP_STATUS, "HTTP 403"),
        (replies.status(500, b"secret"), Code.HTTP_STATUS, "HTTP 500"),
        (replies.status(204), Code.HTTP_STATUS, "HTTP 204"),
        (replies.status(206, b"part"), Code.HTTP_STATUS, "HTTP 206"),
        (replies.status(302), Code.HTTP_STATUS, "HTTP 302"),  # to nowhere
        (replies.redirect("/it"), Code.DOWNLOAD_FAILED, "more than 5 redirects"),
        (replies.redirect("http://[::1"), Code.DOWNLOAD_FAILED, "redirected to a URL that cannot be read"),
        (replies.reset, Code.DOWNLOAD_FAILED, "the connection was broken off"),
        (replies.reset_after(bytes(9), 10), Code.DOWNLOAD_FAILED, "the connection was broken off"),
        (replies.declared(10, bytes(9)), Code.DOWNLOAD_FAILED, "the connection was broken off"),
        (
            lambda client: client.socket.sendall(b"secret\r\n\r\n"),
            Code.DOWNLOAD_FAILED,
            "the connection was broken off",
        ),
        (replies.gzip_bomb(100 * CAP), Code.DOWNLOAD_FAILED, "the server sent it compressed, unasked"),
    ],
)
async def test_a_server_that_does_not_give_the_file_fails_the_download(server, to, reply, code, detail):
    failure = await failure_of(server.answers("/it", reply), to, "audio")

    assert (failure.code, failure.message, failure.detail) == (code, "Unable to download audio", detail)
    assert len(server.requests) <= 6  # the first, and five redirects


@pytest.mark.parametrize(
    "reply",
    [
        replies.declared(CAP + 1),
        replies.undeclared(bytes(CAP + 1)),
        replies.endless(),
    ],
)
async def test_a_file_beyond_the_cap_is_not_taken(server, to, reply):
    failure = await failure_of(server.answers("/a", reply), to)

    assert (failure.code, failure.message) == (Code.TOO_LARGE, "The file is too large")
    assert failure.detail == "more than 3000000 bytes"


async def test_what_comes_after_the_declared_length_is_not_read(server, to):
    await fetch(server.answers("/a", replies.declared(4, b"1234567")), to)

    assert to.read_bytes() == b"1234"


@pytest.mark.parametrize("reply", [replies.hang, replies.dripping()])
async def test_a_server_that_takes_for_ever_runs_out_of_time(server, to, reply):
    failure = await failure_of(server.answers("/a", reply), to, "audio", timeout=SHORT)

    assert (failure.code, failure.message) == (Code.DOWNLOAD_TIMEOUT, "Unable to download audio")
    assert failure.detail == "not finished within 0.3 s"


@pytest.mark.parametrize(
    ("status", "header", "wait"),
    [
        (429, "17", timedelta(seconds=17)),
        (503, "999999", timedelta(hours=1)),
        (503, "soon", None),
        (500, "17", None),
    ],
)
async def test_a_server_may_ask_for_a_pause(server, to, status, header, wait):
    failure = await failure_of(server.answers("/a", replies.status(status, retry_after=header)), to)

    assert (failure.detail, failure.retry_after) == (f"HTTP {status}", wait)


async def test_nobody_at_the_port_fails_the_download(server, to):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    failure = await failure_of(f"http://127.0.0.1:{port}/", to)

    assert (failure.code, failure.detail) == (Code.DOWNLOAD_FAILED, "the connection was refused")


async def test_a_file_that_cannot_be_written_is_not_the_servers_fault(server, tmp_path, to):
    url = server.file("/a", b"x")
    with pytest.raises(DocumentFailure) as nowhere:
        await fetch(url, tmp_path / "missing" / "file")
    to.symlink_to("/dev/full")
    full = await failure_of(url, to)

    for failure, name in ((nowhere.value, "ENOENT"), (full, "ENOSPC")):
        assert (failure.code, failure.message) == (Code.STORAGE_UNAVAILABLE, "The storage of files does not answer")
        assert failure.detail == f"the downloaded file cannot be written ({name})"


@pytest.mark.parametrize("reply", [replies.hang, replies.dripping()])
async def test_a_cancelled_fetch_leaves_nothing(server, to, reply):
    async with fetching() as fetcher:
        task = asyncio.create_task(fetcher.fetch(server.answers("/a", reply), to))
        await asyncio.to_thread(server.wait_for, "/a")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert list(to.parent.iterdir()) == []


async def test_a_path_and_a_query_are_told_to_nobody_but_the_server(server, to, caplog):
    server.answers("/hunter2", replies.status(403))
    server.answers("/moved", replies.redirect("http://127.0.0.2/hunter2?hunter2"))
    urls = ["/hunter2?hunter2", "/moved?hunter2"]
    with caplog.at_level(logging.INFO):
        failures = [await failure_of(server.url(url), to) for url in urls]
        failures.append(await failure_of("http://hunter2:hunter2@127.0.0.1/hunter2", to))

    for failure in failures:
        told = f"{failure.message}{failure.detail}{failure!r}" + "".join(traceback.format_exception(failure))
        assert "hunter2" not in told
    assert "hunter2" not in caplog.text


# --- where it may come from -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/a",
        "http://2130706433:{port}/a",
        "http://0x7f.1:{port}/a",
        "http://[::ffff:127.0.0.1]:{port}/a",
        "http://[::ffff:7f00:1]:{port}/a",
        "http://localhost:{port}/a",
        "http://169.254.169.254/latest/meta-data/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "file:///etc/passwd",
        "http://u:p@127.0.0.1:{port}/a",
    ],
)
async def test_what_is_inside_is_not_fetched(server, to, url):
    server.file("/a", b"inside")

    failure = await failure_of(url.format(port=server.port), to, policy=AddressPolicy())

    assert (failure.code, failure.message) == (
        Code.ADDRESS_BLOCKED,
        "The URL leads to an address that must not be fetched",
    )
    assert server.requests == []


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.2:{port}/a",
        "//127.0.0.2:{port}/a",
        "http://inside.example:{port}/a",
        "http://169.254.169.254/latest/meta-data/",
        "http://0x7f.1:{port}/a",
        "http://u:p@127.0.0.1:{port}/a",
        "http://127.0.0.1:22/a",
        "file:///etc/passwd",
    ],
)
async def test_a_redirect_leads_to_no_place_that_a_url_may_not(server, to, location):
    server.file("/a", b"inside")
    server.answers("/moved", replies.redirect(location.format(port=server.port)))

    failure = await failure_of(server.url("/moved"), to, resolve=names(inside=[["127.0.0.2"]]))

    assert failure.code is Code.ADDRESS_BLOCKED
    assert [request.path for request in server.requests] == ["/moved"]


@pytest.mark.parametrize(
    "addresses",
    [["10.0.0.1"], ["127.0.0.1", "10.0.0.1"], ["10.0.0.1", "127.0.0.1"], ["127.0.0.1", "fe80::1%1"], ["::1"]],
)
async def test_a_name_with_one_address_that_is_blocked_is_not_connected_to(server, to, addresses):
    failure = await failure_of(server.url("/a", "files.example"), to, resolve=names(files=[addresses]))

    assert failure.code is Code.ADDRESS_BLOCKED
    assert failure.detail == "The host files.example has an address that must not be reached."
    assert server.requests == []


async def test_the_address_that_was_vetted_is_the_one_that_is_connected_to(server, to):
    resolve = names(files=[["127.0.0.1"], ["127.0.0.2"]])  # DNS rebinding
    server.file("/a", b"here")
    url = server.url("/a", "files.example")

    async with fetching(resolve=resolve) as fetcher:
        assert (await fetcher.fetch(url, to)).size == 4
        assert resolve.asked == ["files.example"]
        with pytest.raises(DocumentFailure) as second:
            await fetcher.fetch(url, to)

    assert second.value.code is Code.ADDRESS_BLOCKED
    assert [request.headers["host"] for request in server.requests] == [f"files.example:{server.port}"]


async def test_the_next_address_is_tried_when_one_does_not_answer(server, to):
    policy = AddressPolicy(allowed=["127.0.0.1", "127.0.0.3"])
    server.file("/a", b"here")

    url = server.url("/a", "files.example")
    assert (await fetch(url, to, policy=policy, resolve=names(files=[["127.0.0.3", "127.0.0.1"]]))).size == 4


async def test_a_name_that_nobody_knows_fails_the_download(to):
    async def unknown(host, port):
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    failure = await failure_of("http://files.example/", to, resolve=unknown)
    nothing = await failure_of("http://files.example/", to, resolve=names(files=[[]]))

    assert (failure.code, failure.detail) == (Code.DOWNLOAD_FAILED, "the host is not known")
    assert nothing.code is Code.DOWNLOAD_FAILED


async def test_a_name_server_that_does_not_answer_runs_out_of_time(to):
    async def silent(host, port):
        await asyncio.Event().wait()

    failure = await failure_of("http://files.example/", to, resolve=silent, connect_timeout=SHORT)

    assert (failure.code, failure.detail) == (Code.DOWNLOAD_TIMEOUT, "no connection in time")


async def test_the_system_is_asked_for_names():
    assert set(await resolved("localhost", 80)) <= {"127.0.0.1", "::1"}
    with pytest.raises(socket.gaierror):
        await resolved("x" * 64 + ".example", 80)


async def test_sockets_of_this_machine_are_refused(tmp_path):
    with pytest.raises(AddressBlocked):
        await VettedBackend(HERE).connect_unix_socket(str(tmp_path / "socket"))


# --- TLS ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    """The context of a server that is certified as files.example, and that of a client which trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "files.example")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName("files.example"), x509.IPAddress(ip_address("127.0.0.9"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    file.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    of_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    of_server.load_cert_chain(file)
    return of_server, ssl.create_default_context(cafile=file)


async def test_tls_is_checked_against_the_name_and_not_the_address(certified, to):
    of_server, trusting = certified
    resolve = names(files=[["127.0.0.1"]], other=[["127.0.0.1"]])
    with FileServer(of_server) as server:
        server.file("/a", b"sealed")
        fetched = await fetch(server.url("/a", "files.example"), to, resolve=resolve, tls=trusting)
        to.unlink()
        other = await failure_of(server.url("/a", "other.example"), to, resolve=resolve, tls=trusting)
        bare = await failure_of(server.url("/a"), to, tls=trusting)
        distrusted = await failure_of(server.url("/a", "files.example"), to, resolve=resolve)

        assert fetched.size == 6
        assert len(server.requests) == 1
    for failure in (other, bare, distrusted):
        assert (failure.code, failure.detail) == (Code.DOWNLOAD_FAILED, "no trusted TLS connection could be made")
