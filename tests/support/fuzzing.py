"""Requests that nobody would send, made from the OpenAPI document, and a client that sends them as fast as it can.

Most requests are almost right, so that they get past the first check: a valid body with one value of another type, a
form that ends too early, a query with a number of 5,000 digits. Each is *framed* rightly, so that the next request of
the connection can be told from it. The last request of a connection may have any of its bytes changed.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from holdfast.features.courier.signatures import sign

SPOILED_PATIENCE: Final = 1.0
"""Seconds to wait for the answer to a spoiled request: the server may wait for its end."""
PATIENCE: Final = 60.0
"""Seconds after which a connection without an answer is a failure by itself."""
CONNECTIONS: Final = 24
_MOST_PIPELINED: Final = 6
_FINDINGS: Final = 20
"""Enough to see what is wrong. The run goes on, so that the figures are those of all cases."""

_HUGE: Final = "@huge@"
_DEEP: Final = "@deep@"
_RAW: Final = {_HUGE: b"9" * 5_000, _DEEP: b"[" * 3_000 + b"]" * 3_000}
"""What `json.dumps` would not write. Its quotes are taken away when the body is made."""

TEXTS: Final = (
    "", " ", "\x00", "a\x00b", "\ud800", "💥", "ﷺ" * 40, "e\u0301", "\u202eabc", "a" * 300, "b" * 20_000,
    "../../etc/passwd", "..\\..\\windows", "123.456.789-09", "' OR 1=1 --", "{{7*7}}", "${jndi:x}", "<script>", "%s%n",
    "\r\nX-Injected: 1", "9999-12-31T23:59:59.999999Z", "0000-00-00T00:00:00Z", "2026-02-30T25:61:61+99:99", "NaN",
    "true", "null", "-1", "1e999", "0x10", "\uff11\uff12", "application/json", "http://127.0.0.1/", "file:///etc/passwd",
    "data:,x", "00000000-0000-0000-0000-000000000000",
)  # fmt: skip
VALUES: Final = (
    None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**400, 0.1, -0.0, 1e308, 5e-324, _HUGE,
    _DEEP, [], {}, [[]], [None] * 300, {"": ""}, {"$gt": ""}, {"__proto__": {"a": 1}},
    {"a": {"a": {"a": {"a": {"a": 1}}}}},
)  # fmt: skip
SPOILED_JSON: Final = (
    b"", b" ", b"null", b"true", b"0", b'""', b"[]", b"{}", b"{", b'{"', b'{"a"', b'{"a":', b'{"a":1,}', b"{'a':1}",
    b'{"a":NaN}', b'{"a":Infinity}', b'{"a":-Infinity}', b'{"a":1e999}', b'{"a":01}', b'{"a":+1}', b'{"a":1}{"a":1}',
    b'{"a":1,"a":2}', b'\xef\xbb\xbf{"a":1}', b"\xff\xfe{\x00}\x00", b'{"a":"\xff"}', b'{"a":"\xed\xa0\x80"}',
    b'{"a":"\\ud800"}', b'{"a":"\\x"}', b'{"a":"\n"}', b"\x00", b"[" * 20_000, b'{"a":' * 5_000,
    b"[" * 3_000 + b"]" * 3_000, b"[" + b"1," * 20_000 + b"1]", b"9" * 5_000, b'{"a":' + b"9" * 5_000 + b"}",
    b'{"a":1e' + b"9" * 5_000 + b"}", b'{"' + b"k" * 30_000 + b'":1}', b"a=1&b=2", b"<a/>",
    b"{" + b",".join(b'"%d":%d' % (n, n) for n in range(2_000)) + b"}",
)  # fmt: skip
HEADERS: Final = (
    ("accept", "text/html"), ("accept", "*/*;q=a"), ("accept-encoding", "gzip, br;q=9"),
    ("accept-language", "x" * 2_000), ("if-none-match", "*"), ("if-none-match", '"a", W/"b"'),
    ("if-modified-since", "yesterday"), ("range", "bytes=0-0"), ("range", "bytes=9-1,-5,x"),
    ("content-encoding", "gzip"), ("content-encoding", "x" * 300), ("cookie", "a=" + "b" * 3_000),
    ("x-request-id", "a" * 500), ("x-request-id", "\xff\xfe"), ("x-request-id", "{}"),
    ("traceparent", "00-" + "0" * 32 + "-0-00"), ("x-correlation-id", "123.456.789-09"), ("x-trace-id", "\xe9" * 100),
    ("idempotency-key", "\x80" * 10), ("last-event-id", "9" * 400), ("x-forwarded-for", "127.0.0.1, ::1, x"),
    ("forwarded", "for=_x"), ("x-http-method-override", "DELETE"), ("te", "trailers"), ("origin", "null"),
    ("expect", "100-continue"), ("x-empty", ""), ("x-tab", "a\tb"), ("prefer", "respond-async"),
)  # fmt: skip
TYPES: Final = (
    "application/json", "application/json; charset=utf-8", "application/json; charset=utf-16", "APPLICATION/JSON",
    "text/json", "application/x-www-form-urlencoded", "multipart/form-data", "multipart/form-data; boundary=",
    "multipart/mixed; boundary=x", 'multipart/form-data; boundary="' + "b" * 300 + '"',
    "multipart/form-data; boundary=\xff", "text/plain", "", ";", "a/b/c", "x" * 2_000,
)  # fmt: skip
METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "get", "X" * 30)
ELSEWHERE: Final = (
    "/", "//", "/docs", "/openapi.json", "/metrics", "/v1", "/v1/", "/v1/documents/", "/v1//documents",
    "/v1/documents/../email", "/%2e%2e/", "/v1/jobs/%2F", "/v1/jobs/parcels/%00", "/v1/jobs/parcels/a%2Fb",
    "/v1/events/%ff", "/favicon.ico", "/.env", "/" + "a/" * 500, "/?" + "a&" * 90, "/health?" + "a=1&" * 400,
    "/v1/dead-letters?cursor=%00", "/v1/dead-letters?limit=" + "9" * 4_000, "*", "/health#x",
)  # fmt: skip
BOUNDARY: Final = "a-boundary"


@dataclass(frozen=True, slots=True)
class Secrets:
    """What a sender who may do something has."""

    operator: str
    source: str
    courier: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sent:
    """One request in bytes."""

    data: bytes
    spoiled: bool
    """Whether nobody can tell where it ends."""

    @property
    def asks_for_the_head(self) -> bool:
        return self.data.startswith(b"HEAD ")


Answer = tuple[int, dict[str, str], bytes | None]
"""Status, headers and body; no body where it does not end."""


class Author:
    """Thinks up requests. The same seed and the same document make the same requests, except for times."""

    def __init__(self, document: dict[str, Any], secrets: Secrets, seed: int) -> None:
        self._document = document
        self._secrets = secrets
        self.chance = random.Random(seed)
        self._numbers = itertools.count(1)
        self._operations = [
            (path, method.upper(), operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            for _ in range(5 if "requestBody" in operation else 1)
        ]
        self.known: list[str] = ["parcel/1"]
        """Ids of what exists: answers name them."""

    def request(self, *, may_be_spoiled: bool) -> Sent:
        """The next one."""
        path, method, operation = self.chance.choice(self._operations)
        target = self._path(path, operation) + self._query(operation)
        if self._one_in(25):
            target = self.chance.choice(ELSEWHERE)
        if self._one_in(15):
            method = self.chance.choice(METHODS)
        kind, body = self._body(path, operation)
        headers = [("host", "holdfast")]
        headers += [("content-type", kind)] if kind is not None else []
        headers += self._credentials(path, operation, body)
        headers += [self.chance.choice(HEADERS) for _ in range(self.chance.choice((0, 0, 0, 1, 1, 3, 60)))]
        self.chance.shuffle(headers)
        data = self._framed(method, target, headers, body)
        if may_be_spoiled and self._one_in(3):
            return Sent(self._spoil(data), spoiled=True)
        return Sent(data, spoiled=False)

    def _one_in(self, number: int) -> bool:
        return self.chance.randrange(number) == 0

    def _framed(self, method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> bytes:
        chunked = body and self._one_in(8)
        if chunked:
            size = self.chance.choice((1, 7, 1_000, 100_000)) if len(body) < 2_000 else 100_000
            pieces = [body[start : start + size] for start in range(0, len(body), size)]
            body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
            headers = [*headers, ("transfer-encoding", "chunked")]
        elif body or method in {"POST", "PUT", "PATCH"}:
            headers = [*headers, ("content-length", str(len(body)))]
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "", ""]
        return "\r\n".join(lines).encode("latin-1") + body

    def _spoil(self, data: bytes) -> bytes:
        """Change, add, remove or repeat a few bytes, mostly in the head."""
        spoiled = bytearray(data)
        for _ in range(self.chance.choice((1, 1, 2, 5))):
            place = self.chance.randrange(min(len(spoiled), self.chance.choice((30, 400, 10**6))))
            length = self.chance.choice((1, 1, 2, 8))
            new = self.chance.choice(
                (
                    b"",
                    self.chance.randbytes(length),
                    b"\r\n",
                    b"\n",
                    b"\r",
                    b"\x00",
                    b" ",
                    b":",
                    b"\t",
                    spoiled[:place][-40:],
                )
            )
            spoiled[place : place + self.chance.choice((0, length))] = new
            if not spoiled:
                return b"\r\n\r\n"
        if self._one_in(4):
            del spoiled[self.chance.randrange(len(spoiled)) :]
        return bytes(spoiled)

    # --- where ------------------------------------------------------------------------------------------------------

    def _path(self, path: str, operation: dict[str, Any]) -> str:
        for each in operation.get("parameters", ()):
            if each["in"] == "path":
                path = path.replace(f"{{{each['name']}}}", self._segment(each["name"]))
        return path

    def _segment(self, name: str) -> str:
        if name == "workload":
            return self.chance.choice(
                ("parcels", "parcels", "parcels", "courier", "documents", "email", "%00", "x" * 300)
            )
        if self._one_in(3):
            return quote(self.chance.choice(TEXTS).encode("utf-8", "surrogatepass"), safe="") or "%"
        if self._one_in(6):
            return self.chance.choice(("%", "%zz", "%ff%fe", "%2e%2e%2f", "a;b=c", "~", "%00", "a" * 3_000))
        return quote(self.chance.choice(self.known), safe="/" if self._one_in(2) else "")

    def _query(self, operation: dict[str, Any]) -> str:
        given = [each for each in operation.get("parameters", ()) if each["in"] == "query" and self._one_in(3)]
        pairs = [(each["name"], self._sample(each["schema"])) for each in given]
        if pairs and self._one_in(2):
            place = self.chance.randrange(len(pairs))
            pairs[place] = (pairs[place][0], self.chance.choice((*TEXTS, *VALUES)))
        if self._one_in(12):
            pairs += [(self.chance.choice(TEXTS)[:200], self.chance.choice(TEXTS)[:200])] * self.chance.choice(
                (1, 2, 120)
            )
        if not pairs:
            return ""
        texts = [
            "=".join(quote(each.encode("utf-8", "surrogatepass")) for each in (name, self._text(value)[:3_000]))
            for name, value in pairs
        ]
        return "?" + self.chance.choice(("&", "&", "&", "&&", ";")).join(texts)

    def _text(self, value: Any) -> str:
        if isinstance(value, str):
            return "9" * 2_000 if value == _HUGE else value
        return json.dumps(value)

    # --- who --------------------------------------------------------------------------------------------------------

    def _credentials(self, path: str, operation: dict[str, Any], body: bytes) -> list[tuple[str, str]]:
        if self._one_in(40):
            return self.chance.choice(
                (
                    [],
                    [("authorization", "Bearer " + "x" * 40)],
                    [("authorization", "Bearer")],
                    [("authorization", "Basic " + "\xff" * 20)],
                    [("authorization", "Bearer hf_" + "a" * 3_000)],
                    [("x-api-key", "hf_\xe9")],
                    [("x-api-key", self._secrets.keys[0]), ("authorization", f"Bearer {self._secrets.operator}")],
                    [("x-signature", "0" * 64), ("x-signature-timestamp", "9" * 30)],
                    [("webhook-id", "a"), ("webhook-timestamp", "-1"), ("webhook-signature", "v1,= " * 100)],
                )
            )
        if path == "/v1/events/courier":
            now = int(time.time()) + self.chance.choice((0,) * 20 + (-10_000, 10_000))
            signature = sign(self._secrets.courier, now, body)
            return [("x-signature", signature), ("x-signature-timestamp", str(now))]
        if path.startswith(("/v1/documents", "/v1/email")) or (path.startswith("/v1/jobs") and self._one_in(2)):
            key = self.chance.choice(self._secrets.keys)
            return [("x-api-key", key)] if self._one_in(4) else [("authorization", f"Bearer {key}")]
        return [("authorization", f"Bearer {self._secrets.operator}")] if operation.get("security", True) else []

    # --- what -------------------------------------------------------------------------------------------------------

    def _body(self, path: str, operation: dict[str, Any]) -> tuple[str | None, bytes]:
        content = operation.get("requestBody", {}).get("content", {})
        if not content:
            return (None, b"") if not self._one_in(30) else ("application/json", self.chance.choice(SPOILED_JSON))
        kind = self.chance.choice(list(content))
        if kind == "multipart/form-data":
            kind, body = f"multipart/form-data; boundary={BOUNDARY}", self._form()
        else:
            valid = self._valid(path) if self._one_in(2) else None
            value = valid if valid is not None else self._sample(content[kind].get("schema", {}))
            for _ in range(self.chance.choice((0, 0, 1, 1, 1, 2, 4))):
                value = self._changed(value)
            body = json.dumps(value, ensure_ascii=self._one_in(2)).encode("utf-8", "surrogatepass")
            for mark, raw in _RAW.items():
                body = body.replace(b'"%b"' % mark.encode(), raw)
            if self._one_in(15):
                body = self.chance.choice(SPOILED_JSON)
        if body and self._one_in(10):
            place = self.chance.randrange(len(body))
            body = body[:place] + self.chance.randbytes(self.chance.choice((0, 1, 3))) + body[place + 1 :]
        return (self.chance.choice(TYPES) if self._one_in(12) else kind), body

    def _valid(self, path: str) -> Any:
        """A body that is accepted, for the routes whose schema alone does not lead to one."""
        number = next(self._numbers)
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        why = {"actor": "ana", "reason": "Because."}
        email = {
            "to": f"c{number}@example.com",
            "subject": "Boleto",
            "html": "<p>Boleto</p>",
            "recipient": {"externalId": f"C-{number}"},
        }
        facts = {"shipmentId": f"s{number % 99}", "orderId": f"o{number}", "status": "sent"}
        return {
            "/v1/events/courier": {
                "eventId": f"e{number}",
                "eventType": "shipment.status.updated",
                "occurredAt": now,
                "source": self._secrets.source,
                "payload": facts,
            },
            "/v1/jobs/{workload}": {"number": str(number), "depot": "south"},
            "/v1/email/send": email,
            "/v1/email/batch": {"emails": [email] * self.chance.choice((1, 2, 20))},
            "/v1/documents": {"job_type": "OCR", "input_type": "PDF", "url": f"https://example.com/{number}.pdf"},
            "/v1/dead-letters/replay": why | {"filter": {"workload": "courier"}, "limit": 1},
        }.get(path, why if path.startswith("/v1/dead-letters/") else None)

    def _changed(self, value: Any) -> Any:
        """The value with one value inside it changed for another, removed, repeated or renamed."""
        value = copy.deepcopy(value)
        holder, place = None, None
        inner = value
        while isinstance(inner, dict | list) and inner and not self._one_in(3):
            holder, place = inner, self.chance.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))
            inner = holder[place]
        new = self.chance.choice((TEXTS, VALUES, VALUES, None))
        if new is None:
            repeated = 60 if len(repr(inner)) < 200 else 2
            new = ([inner], {"value": inner}, [inner] * repeated)
        new = self.chance.choice(new)
        if holder is None:
            return {**value, self.chance.choice(TEXTS): new} if isinstance(value, dict) and not self._one_in(8) else new
        if isinstance(holder, dict) and self._one_in(4):
            holder[self.chance.choice(TEXTS)] = holder.pop(place)
        elif self._one_in(4):
            del holder[place]
        else:
            holder[place] = new
        return value

    def _form(self) -> bytes:
        file = self.chance.choice(
            (b"%PDF-1.7\n", b"RIFF\x24\x08\x00\x00WAVEfmt ", b"", b"\x89PNG", b"MZ")
        ) + self.chance.randbytes(self.chance.choice((0, 10, 200, 3_000)))
        fields = [(b"job_type", b"OCR", b""), (b"input_type", b"PDF", b""), (b"file", file, b'; filename="a.pdf"')]
        if self._one_in(2):
            name = self.chance.choice(
                (b"job_id", b"metadata", b"priority", b"engine", b"language", b"callback_url", b"local_path", b"", b"x")
            )
            text = self.chance.choice((*TEXTS, '{"a": 1}', "[" * 900)).encode("utf-8", "surrogatepass")
            fields.insert(self.chance.randrange(4), (name, text, b""))
        if self._one_in(5):
            fields *= self.chance.choice((2, 40))
        if self._one_in(5):
            self.chance.shuffle(fields)
        if self._one_in(6):
            del fields[self.chance.randrange(len(fields))]
        line = b"\n" if self._one_in(20) else b"\r\n"
        more = self.chance.choice(
            (b"",) * 8
            + (b"content-type: \xff" + line, b"x: " + b"y" * 9_000 + line, b"content-transfer-encoding: base64" + line)
        )
        parts = [
            b'--%b%bcontent-disposition: form-data; name="%b"%b%b%b%b%b%b'
            % (BOUNDARY.encode(), line, name, named, line, more, line, content, line)
            for name, content, named in fields
        ]
        end = self.chance.choice(
            (b"--%b--%b" % (BOUNDARY.encode(), line),) * 8 + (b"", b"--%b" % BOUNDARY.encode(), b"--other--\r\n")
        )
        return b"".join(parts) + end

    def _sample(self, schema: dict[str, Any], depth: int = 0) -> Any:
        """A value that the schema allows, or nearly."""
        while "$ref" in schema:
            found: Any = self._document
            for name in schema["$ref"].removeprefix("#/").split("/"):
                found = found[name]
            schema = found
        for several in ("anyOf", "oneOf"):
            if several in schema:
                return self._sample(self.chance.choice(schema[several]), depth)
        if "const" in schema or "enum" in schema:
            return schema["const"] if "const" in schema else self.chance.choice(schema["enum"])
        if (examples := schema.get("examples")) and self._one_in(2):
            return copy.deepcopy(self.chance.choice(examples))
        return self._sample_of_type(schema, depth)

    def _sample_of_type(self, schema: dict[str, Any], depth: int) -> Any:
        kind = schema.get("type", "object")
        kind = self.chance.choice(kind) if isinstance(kind, list) else kind
        if depth > 6:
            return None
        if kind == "object":
            wanted = schema.get("required", ())
            properties = schema.get("properties", {}).items()
            return {
                name: self._sample(each, depth + 1) for name, each in properties if name in wanted or self._one_in(2)
            }
        if kind == "array":
            return [self._sample(schema.get("items", {}), depth + 1) for _ in range(self.chance.choice((0, 1, 2)))]
        plain: dict[str, Callable[[], Any]] = {
            "boolean": lambda: self._one_in(2),
            "integer": lambda: self.chance.choice((schema.get("minimum", 0), schema.get("maximum", 100), 1)),
            "number": lambda: self.chance.choice((schema.get("minimum", 0), 0.5)),
            "null": lambda: None,
        }
        return plain[kind]() if kind in plain else self._sampled_text(schema)

    def _sampled_text(self, schema: dict[str, Any]) -> str:
        match schema.get("format"):
            case "date-time":
                return datetime.now(UTC).isoformat()
            case "email":
                return "ana@example.com"
            case "uri":
                return "https://example.com/a"
        return self.chance.choice(("abc", *self.known[-20:]))[: schema.get("maxLength", 100)]


@dataclass
class Run:
    """What came back."""

    cases: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    unanswered: int = 0
    """Spoiled requests after which the server closed, or waited for their end."""
    slowest: float = 0.0
    findings: list[str] = field(default_factory=list)

    def find(self, what: str, sent: bytes, answer: bytes = b"") -> None:
        if len(self.findings) < _FINDINGS:
            self.findings.append(f"{what}\n  sent: {sent[:1500]!r}\n  answer: {answer[:600]!r}")


class Fuzzer:
    """Sends what an author thinks up, over several connections at once. An answer may take ``slow`` seconds."""

    def __init__(self, port: int, author: Author, slow: float) -> None:
        self._port = port
        self._author = author
        self._slow = slow
        self.run = Run()

    async def send(self, cases: int) -> None:
        """Send so many more."""
        left = self.run.cases + cases

        async def work() -> None:
            while self.run.cases < left:
                await self._connection(list(self._batch()))

        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(work())

    def _batch(self) -> Iterator[Sent]:
        last = self._author.chance.choice((1, 1, 1, 2, 4, _MOST_PIPELINED))
        for number in range(1, last + 1):
            yield self._author.request(may_be_spoiled=number == last)

    async def _connection(self, batch: list[Sent]) -> None:
        self.run.cases += len(batch)
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            await self._exchange(reader, writer, batch)
        finally:
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, batch: list[Sent]) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        writer.write(b"".join(each.data for each in batch))
        for place, sent in enumerate(batch, 1):
            answer = await self._read(reader, sent)
            if answer is None:
                return
            status, headers, body = answer
            took = (clock() - began) / place  # each waited for those before it
            self.run.statuses[status] += 1
            self.run.slowest = max(self.run.slowest, took)
            self._look_at(sent, status, headers, body)
            if took > self._slow:
                await self._ask_again(sent)
            if headers.get("connection") == "close" and place < len(batch) and status < 400:
                self.run.find(f"closed after request {place} of {len(batch)}", sent.data)
            if headers.get("connection") == "close" or body is None:
                return

    async def _read(self, reader: asyncio.StreamReader, sent: Sent) -> Answer | None:
        """The answer. None if there is none, which only a spoiled request may lead to."""
        try:
            async with asyncio.timeout(SPOILED_PATIENCE if sent.spoiled else PATIENCE):
                return await _answer(reader, sent)
        except ValueError as error:
            self.run.find(f"an answer that is no HTTP: {error}", sent.data)
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError) as error:
            if sent.spoiled:
                self.run.unanswered += 1
            else:
                self.run.find(f"no answer: {error!r}", sent.data, getattr(error, "partial", b""))
        return None

    def _look_at(self, sent: Sent, status: int, headers: dict[str, str], body: bytes | None) -> None:
        if status >= 500 and not (status == 503 and "retry-after" in headers):
            self.run.find(f"status {status}", sent.data, body or b"")
        elif status >= 400 and not sent.asks_for_the_head and not _is_usual(headers, body or b""):
            self.run.find(f"an unusual error body, status {status}", sent.data, body or b"")
        elif status == 202 and body and len(self._author.known) < 500:
            told = json.loads(body)
            self._author.known += [value for value in told.values() if isinstance(value, str) and 0 < len(value) < 100]

    async def _ask_again(self, sent: Sent) -> None:
        """A slow answer is the request's fault if the request is slow each time, and the machine's fault otherwise."""
        clock = asyncio.get_running_loop().time
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            began = clock()
            try:
                writer.write(sent.data)
                await _answer(reader, sent)
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writer.transport.abort()
            if clock() - began <= self._slow:
                return
        self.run.find(f"more than {self._slow} s, each of four times", sent.data)


async def _answer(reader: asyncio.StreamReader, sent: Sent) -> Answer:
    """The next answer."""
    status = 100
    while status < 200:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        version, _, rest = head[0].partition(" ")
        if version != "HTTP/1.1":
            raise ValueError(head[0][:200])
        status = int(rest[:3])
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    if sent.asks_for_the_head or status in {204, 304}:
        return status, headers, b""
    if headers.get("content-type", "").startswith("text/event-stream"):
        return status, headers, None
    if "content-length" in headers:
        return status, headers, await reader.readexactly(int(headers["content-length"]))
    if headers.get("transfer-encoding") != "chunked":
        return status, headers, await reader.read()
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return status, headers, body


def _is_usual(headers: dict[str, str], body: bytes) -> bool:
    """Whether an error has the body that all errors have."""
    try:
        told = json.loads(body)
    except ValueError:
        return False
    return (
        isinstance(told, dict)
        and told.get("acknowledged") is False
        and bool(told.get("errorCode"))
        and bool(told.get("message"))
        and told.get("traceId") == headers.get("x-request-id")
    )
