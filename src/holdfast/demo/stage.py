"""What chapters use: the server, its clients, the systems behind it, and waits with a timeout.

The clients are a courier with a secret, an operator with a token and a tenant with a key. All of them use only HTTP.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shlex
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from http.client import responses
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar

import httpx
from rich.text import Text

from holdfast.contracts.times import isoformat
from holdfast.features.courier.commands import signing
from holdfast.features.courier.feature import COURIER_PATH
from holdfast.wiring import DATABASE_FILE

from .folder import COMPANY_ID, SOURCE
from .narration import Narrator, shown
from .servers import PROGRAM, Behaviour, Downstream, MailServer, Program

ACTOR: Final = "ana"
TIMEOUT_SECONDS: Final = 30.0  # the longest single wait of the demo
_POLL_SECONDS: Final = 0.1
_REQUEST_SECONDS: Final = 10.0

T = TypeVar("T")
Body = Mapping[str, Any]  # a JSON document of the server
Who = Mapping[str, str]  # headers that say who asks


class Unexpected(Exception):
    """Something did not go as expected. The message goes into the table of fates."""


class Reply(NamedTuple):
    """An answer of the server."""

    status: int
    body: Body

    def __str__(self) -> str:
        return f"{self.status} {self.body.get('errorCode', '')}".strip()

    def must(self, status: HTTPStatus, otherwise: str) -> Self:
        """The answer itself. Raises :class:`Unexpected` if it has another status."""
        if self.status != status:
            message = f"{otherwise}: {self}"
            raise Unexpected(message)
        return self


class Event(NamedTuple):
    """One event of the demo's courier. It has the default idempotency key."""

    event_id: str
    shipment_id: str
    status: str
    minutes_ago: int = 1

    @property
    def key(self) -> str:
        """The idempotency key that the server makes from source and event id."""
        return f"{SOURCE}:{self.event_id}"

    def document(self, now: datetime) -> dict[str, Any]:
        """The body of the request."""
        order_id = self.shipment_id.replace("shp", "ord")
        return {
            "eventId": self.event_id,
            "eventType": "shipment.status.updated",
            "occurredAt": isoformat(now - timedelta(minutes=self.minutes_ago)),
            "source": SOURCE,
            "payload": {"shipmentId": self.shipment_id, "orderId": order_id, "status": self.status},
        }


class Stage:
    """A running demo, with the embedded deployment: one process, and one SQLite file."""

    parts: Sequence[Part]
    behaviour = Behaviour.WORKING  # of the downstream, for events without another
    introduction = "This tour starts the real server."
    command: Sequence[str] = (*PROGRAM, "up", "--json")
    server: Program
    downstream: Downstream
    mail: MailServer

    def __init__(self, narrator: Narrator, data: Path) -> None:
        self.narrator = narrator
        self.data = data
        self.folder = data.expanduser().absolute()
        self.secrets = {name: secrets.token_urlsafe(24) for name in ("courier", "operator", "downstream")}
        self.operator: Who = {"authorization": f"Bearer {self.secrets['operator']}"}
        self.http = httpx.Client(trust_env=False, timeout=_REQUEST_SECONDS)
        self.began = datetime.now(UTC)  # times in events are relative to this: the same event has the same bytes
        self.receipts: dict[str, Body] = {}  # the first receipt of every accepted event, by idempotency key
        self._tenant: dict[str, str] = {}

    @contextlib.contextmanager
    def surroundings(self) -> Iterator[dict[str, str]]:
        """Start what the program needs, and stop it after the body; yields settings."""
        yield {}

    def start(self) -> None:
        """Start the server, and use its new address."""
        self.server.start()
        self.http.base_url = httpx.URL(self.server.ready["address"])

    def cli(self, arguments: str) -> str:
        """A command line for the data folder."""
        return f"{program()} {arguments} --data {shlex.quote(str(self.data))}"

    def queued(self, name: str) -> Sequence[Body]:
        """The waiting jobs of a queue."""
        database, query = self.folder / DATABASE_FILE, "SELECT data FROM queue_jobs WHERE queue = ? ORDER BY seq"
        with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            return [json.loads(job) for (job,) in connection.execute(query, (name,))]

    def ways_to_look(self, commands: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
        """What to look at after the tour, and command lines for that: ``commands`` of the program, and others."""
        query = "SELECT idempotencyKey, status, generation, attemptCount, note FROM processed_events"
        # The sqlite3 shell may be missing; Python is there.
        code = f'import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute("{query}"), sep="\\n")'
        tables = "In SQLite, the ledger and the rest: processed_events, active_shipments, dead_letter_events."
        return {**commands, tables: [f"python3 -c '{code}' {shlex.quote(str(self.data / DATABASE_FILE))}"]}

    # --- requests and commands ------------------------------------------------------------------------------------

    @property
    def tenant(self) -> Who:
        """The tenant, with the key. The first chapter that needs the tenant creates both."""
        if not self._tenant:
            self.narrator.say("Emails and documents come from tenants, with an API key. The operator creates both.")
            self.run("tenants", "add", "Demo Shop", "--id", COMPANY_ID, "--json")
            self._tenant["x-api-key"] = json.loads(self.run("keys", "create", COMPANY_ID, "--json"))["key"]
            self.narrator.say("A key is shown once, when it is created. Only its hash is stored.")
        return self._tenant

    def ask(self, who: Who, path: str, method: str = "GET", **request: Any) -> Reply:  # noqa: ANN401 - as httpx takes it
        """Send a request."""
        response = self.http.request(method, path, headers=who, **request)
        try:
            body = response.json()
        except ValueError:
            body = {}
        return Reply(response.status_code, body if isinstance(body, dict) else {})

    def read(self, who: Who, path: str) -> Body:
        """What is there. Raises :class:`Unexpected` if it is not."""
        return self.ask(who, path).must(HTTPStatus.OK, f"cannot read {path}").body

    def post(self, who: Who, path: str, what: str, *fields: str, **request: Any) -> Reply:  # noqa: ANN401 - as httpx takes it
        """Show and post a request, and show these fields of the answer."""
        self.narrator.line("->", f"POST {path}  {what}")
        reply = self.ask(who, path, "POST", **request)
        error = "errorCode" in reply.body
        answer = Text(f"{reply.status} {responses.get(reply.status)}", "bold yellow" if error else "bold green")
        for name in ("errorCode",) if error else fields:
            answer.append(f"  {name}: ", "dim").append_text(shown(reply.body.get(name)))
        self.narrator.line("<-", answer)
        return reply

    def submitted(self, path: str, what: str, name: str, **request: Any) -> str:  # noqa: ANN401 - as httpx takes it
        """Submit a job, as the tenant; returns the field with its id. Raises if the job is not accepted."""
        reply = self.post(self.tenant, path, what, name, **request)
        return str(reply.must(HTTPStatus.ACCEPTED, "not accepted").body[name])

    def run(self, *arguments: str) -> str:
        """Show and run a command of the program; returns its output. Raises :class:`Unexpected` if it fails."""
        self.narrator.command("$", self.cli(shlex.join(arguments)))
        done = self.server.run(arguments, TIMEOUT_SECONDS)
        if done.returncode != 0:
            message = f"`{' '.join(arguments[:2])}` ended with exit code {done.returncode}"
            raise Unexpected(message)
        return done.stdout

    # --- waits ----------------------------------------------------------------------------------------------------

    def poll(self, read: Callable[[], T], done: Callable[[T], object], otherwise: str) -> T:
        """Read until it is done. After a timeout, raises :class:`Unexpected` with ``otherwise`` about the value."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not done(value := read()):
            if time.monotonic() > deadline:
                message = f"{otherwise.format(value)} after {TIMEOUT_SECONDS:.0f} s"
                raise Unexpected(message)
            time.sleep(_POLL_SECONDS)
        return value

    def watch(self, who: Who, path: str, told: Callable[[Body], Iterable[str]], until: Collection[str]) -> Body:
        """Read something until its status is one of these. Meanwhile, show each new line that is told about it."""
        lines: list[str] = []

        def look() -> Body:
            seen = self.read(who, path)
            for line in told(seen):
                if line not in lines:
                    lines.append(line)
                    self.narrator.show(shown(line), 6)
            return seen

        return self.poll(look, lambda seen: seen["status"] in until, "still {0[status]}")

    # --- events ---------------------------------------------------------------------------------------------------

    def push(self, event: Event, *fields: str, secret: str = "") -> Reply:
        """Sign and post an event, as the courier."""
        body = json.dumps(event.document(self.began)).encode()
        signed = signing.headers(secret or self.secrets["courier"], body) | {"content-type": "application/json"}
        what = f"{event.event_id}: {event.shipment_id} is {event.status}"
        reply = self.post(signed, COURIER_PATH, what, "duplicate", *fields, content=body)
        if reply.status == HTTPStatus.ACCEPTED:
            self.receipts.setdefault(event.key, reply.body)
        return reply

    def accepted(self, event: Event, *fields: str, behaviours: Sequence[Behaviour] = ()) -> Reply:
        """Push an event. The downstream has these behaviours for the event. Raises if it is not accepted."""
        self.downstream.behaviours[event.key] = list(behaviours) or [self.behaviour]
        return self.push(event, *fields).must(HTTPStatus.ACCEPTED, "not accepted")

    def in_work(self, event: Event) -> None:
        """Push an event that the downstream does not answer, and wait until the downstream has it."""
        self.accepted(event, behaviours=(Behaviour.SILENT, Behaviour.WORKING))
        self.poll(lambda: self.downstream.seen[event.key], bool, "not forwarded")

    def entry(self, key: str) -> Body:
        """The ledger's entry of an accepted event."""
        return self.read(self.operator, f"/v1/events/{key}")

    def settled(self, event: Event) -> Body:
        """Watch an event until it has a final status, and show its attempts meanwhile."""
        ends = ("processed", "dead_lettered", "expired")
        return self.watch(self.operator, f"/v1/events/{event.key}", _attempts, ends)

    def shipment(self, event: Event) -> Body:
        """Read the shipment of an event, and show its state."""
        found = self.read(self.operator, f"/v1/shipments/{event.shipment_id}")
        shown_as = f"{found['currentState']}  (by {found['lastEventId']})"
        self.narrator.facts({f"shipment {event.shipment_id}": shown_as})
        return found

    def forwarded(self, event: Event) -> str:
        """How often the event was sent to the downstream."""
        return f"forwarded {times(self.downstream.seen[event.key])}"

    # --- dead letters ---------------------------------------------------------------------------------------------

    def letter_of(self, key: str, *, show: bool = False, by: str = "key") -> Body:
        """The one dead letter of a job; or, by ``workload``, of a workload."""
        letters = self.ask(self.operator, "/v1/dead-letters", params={by: key}).body.get("items", [])
        if len(letters) != 1:
            message = f"{len(letters)} dead letters instead of one"
            raise Unexpected(message)
        letter = dict(letters[0])
        if show:
            reason = f"{letter['terminalReasonCode']}: {letter['terminalReasonMessage']}"
            facts = {"dead letter": letter["id"], "reason": reason, "attempts": letter["attemptCount"]}
            self.narrator.facts(facts | {"review": letter["reviewStatus"]})
        return letter

    def decide(self, letter_id: str, step: str, reason: str, status: HTTPStatus = HTTPStatus.OK) -> Body:
        """Take a step with a dead letter, as the operator; returns the dead letter. Raises for another status."""
        path, decision = f"/v1/dead-letters/{letter_id}", {"actor": ACTOR, "reason": reason}
        reply = self.post(self.operator, f"{path}/{step}", f"{ACTOR}: {reason}", "reviewStatus", json=decision)
        reply.must(status, f"{step} was answered with")
        if status == HTTPStatus.OK:
            self.narrator.command("or", self.cli(f"dlq {step} {letter_id} --reason '{reason}'"))
        return self.read(self.operator, path)


def program() -> str:
    """The name with which the user can call the program."""
    if shutil.which("holdfast"):
        return "holdfast"
    return shlex.quote(sys.argv[0]) if Path(sys.argv[0]).name == "holdfast" else shlex.join(PROGRAM)


def times(number: int) -> str:
    """``once``, or the number."""
    return "once" if number == 1 else f"{number} times"


def _attempts(entry: Body) -> Iterable[str]:
    """The ended attempts of an event, when each began, and the status after the last attempt."""
    history = [each for each in entry["attemptHistory"] if each["outcome"] != "running"]
    began = [datetime.fromisoformat(each["startedAt"]) for each in history]
    for each, at in zip(history, began, strict=True):
        since, error = f"+{(at - began[0]).total_seconds():.1f} s", each["errorCode"] or ""
        yield f"attempt {each['attempt']}  {since:>8}  {each['outcome']:9}  {error}"
    if entry["status"] not in {"received", "processing", "failed"}:
        yield entry["status"]


class Chapter(NamedTuple):
    """One chapter: its name, the expected fate, and the function that plays it and returns the fate.

    The docstring of the function is the first paragraph of the chapter.
    """

    name: str
    expected: str
    play: Callable[[Stage], str]


def chapter(name: str, expected: str) -> Callable[[Callable[[Stage], str]], Chapter]:
    """A decorator: makes a function a chapter."""
    return lambda play: Chapter(name, expected, play)


class Part(NamedTuple):
    """The chapters on one subject, and what belongs to them."""

    subject: str
    chapters: Sequence[Chapter]
    shortened: Mapping[str, int | tuple[int, ...]]  # settings that make the chapters quick; the tour shows them
    settings: Mapping[str, str] = {}
    look: Mapping[str, Sequence[str]] = {}  # for the reader, after the tour: what to look at, and commands for that
    libraries: Sequence[str] = ()  # without these, the chapters are skipped
