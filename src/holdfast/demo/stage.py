"""What chapters use: they do something, wait for it and show it.

The clients of the server are a courier with a secret, an operator with a token and a tenant with a key. All of them use
only HTTP.
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
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar

import httpx
from rich.console import Console
from rich.text import Text

from holdfast.contracts.times import isoformat
from holdfast.features.courier.commands import signing
from holdfast.features.courier.feature import COURIER_PATH
from holdfast.wiring import DATABASE_FILE

from .narration import Narrator, shown
from .servers import PROGRAM, SILENT, WORKING, Downstream, MailServer, Program

SOURCE: Final = "demo-courier"
TENANT: Final = "Demo Shop"
ACTOR: Final = "ana"
TIMEOUT_SECONDS: Final = 90.0  # the longest single wait of the demo: to read a page, also on a busy machine
_POLL_SECONDS: Final = 0.1
_REQUEST_SECONDS: Final = 10.0

T = TypeVar("T")
Body = Mapping[str, Any]  # a JSON document of the server
Lines = Callable[[Body], Iterable[str]]  # what to show about it
Who = Mapping[str, str]  # headers that say who asks


class Unexpected(Exception):
    """Something did not go as expected. The message goes into the table of fates."""


class Reply(NamedTuple):
    """An answer of the server."""

    status: HTTPStatus
    body: Body

    def __str__(self) -> str:
        return f"{self.status:d} {self.body.get('errorCode', '')}".strip()

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

    @property
    def path(self) -> str:
        """Where the API has the event's entry in the ledger."""
        return f"/v1/events/{self.key}"

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


class Stage(Narrator):
    """A running demo, with the embedded deployment: one process, and one SQLite file."""

    parts: Sequence[Part]
    introduction = "This tour starts the real server."
    up: Sequence[str] = (*PROGRAM, "up", "--json")
    server: Program
    downstream: Downstream
    mail: MailServer

    def __init__(self, console: Console, data: Path, *, fast: bool) -> None:
        super().__init__(console, fast=fast)
        self.data = data
        self.folder = data.expanduser().absolute()
        self.secrets = {name: secrets.token_urlsafe(24) for name in ("courier", "operator", "downstream")}
        self.operator: Who = {"authorization": f"Bearer {self.secrets['operator']}"}
        self.http = httpx.Client(trust_env=False, timeout=_REQUEST_SECONDS)
        self.began = datetime.now(UTC)  # times in events are relative to this: the same event has the same bytes
        self.receipts: dict[Event, Body] = {}  # the first receipt of every accepted event

    # --- the deployment ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def surroundings(self) -> Iterator[dict[str, str]]:
        """Start what the program needs, and stop it after the body; yields settings."""
        yield {}

    def start(self) -> None:
        """Start the server, and use its new address."""
        self.server.start()
        self.http.base_url = httpx.URL(self.server.ready["address"])

    def kill(self, worker: str) -> None:
        """``kill -9`` for the process of this worker. Another process must do its work."""
        del worker  # there is one process
        self.server.kill()
        self.line("!!", f"kill -9 {self.server.pid}")
        self.start()
        self.line("**", f"The server is started again: process {self.server.pid}.")
        self.say("The new process finds the event in the ledger, and takes over when the old lease expires.")

    def cli(self, arguments: str) -> str:
        """A command line for the data folder."""
        return f"{program()} {arguments} --data {shlex.quote(str(self.data))}"

    def queued(self, name: str) -> Sequence[Body]:
        """The waiting jobs of a queue."""
        database, query = self.folder / DATABASE_FILE, "SELECT data FROM queue_jobs WHERE queue = ? ORDER BY seq"
        with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            return [json.loads(job) for (job,) in connection.execute(query, (name,))]

    def show_ways_to_look(self, commands: Sequence[str]) -> None:
        """After the tour: show command lines with which the reader can look at the data."""
        self.plain("To look at what is there:")
        for command in commands:
            self.plain(f"  {command}", "cyan")
        tables = "processed_events, active_shipments and dead_letter_events"
        self.plain(f"The ledger and the rest are in {self.ledger}: {tables}.")

    @property
    def ledger(self) -> str:
        """Where the ledger is, for the reader."""
        return f"the SQLite file {shlex.quote(str(self.data / DATABASE_FILE))}"

    # --- requests and commands --------------------------------------------------------------------------------------

    @cached_property
    def tenant(self) -> Who:
        """The tenant, with the key. The first chapter that needs the tenant creates both."""
        self.say("Emails and documents come from tenants, with an API key. The operator creates both.")
        self.run("tenants", "add", TENANT)
        key = self.run("keys", "create", TENANT).strip()
        self.say("A key is shown once, when it is created. Only its hash is stored.")
        return {"x-api-key": key}

    def ask(self, who: Who, path: str, method: str = "GET", **request: Any) -> Reply:  # noqa: ANN401 - as httpx takes it
        """Send a request."""
        response = self.http.request(method, path, headers=who, **request)
        return Reply(HTTPStatus(response.status_code), response.json())

    def read(self, who: Who, path: str) -> Body:
        """What is there. Raises :class:`Unexpected` if it is not."""
        return self.ask(who, path).must(HTTPStatus.OK, f"cannot read {path}").body

    def post(self, who: Who, path: str, what: str, *fields: str, **request: Any) -> Reply:  # noqa: ANN401 - as httpx takes it
        """Show and post a request, and show these fields of the answer."""
        self.line("->", f"POST {path}  {what}")
        reply = self.ask(who, path, "POST", **request)
        error = "errorCode" in reply.body
        answer = Text(f"{reply.status:d} {reply.status.phrase}", "bold yellow" if error else "bold green")
        for name in ("errorCode",) if error else fields:
            answer.append(f"  {name}: ", "dim").append_text(shown(reply.body.get(name)))
        self.line("<-", answer)
        return reply

    def submitted(self, path: str, what: str, name: str, **request: Any) -> str:  # noqa: ANN401 - as httpx takes it
        """Submit a job, as the tenant; returns the field with its id. Raises if the job is not accepted."""
        reply = self.post(self.tenant, path, what, name, **request)
        return str(reply.must(HTTPStatus.ACCEPTED, "not accepted").body[name])

    def run(self, *arguments: str) -> str:
        """Show and run a command of the program; returns its output. Raises :class:`Unexpected` if it fails."""
        self.command("$", self.cli(shlex.join(arguments)))
        done = self.server.run(arguments, TIMEOUT_SECONDS)
        if done.returncode != 0:
            message = f"`{' '.join(arguments[:2])}` ended with exit code {done.returncode}"
            raise Unexpected(message)
        return done.stdout

    # --- waits ------------------------------------------------------------------------------------------------------

    def poll(self, read: Callable[[], T], otherwise: str, done: Callable[[T], object] = bool) -> T:
        """Read until it is done. After a timeout, raises :class:`Unexpected` with ``otherwise`` about the value."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not done(value := read()):
            if time.monotonic() > deadline:
                message = f"{otherwise.format(value)} after {TIMEOUT_SECONDS:.0f} s"
                raise Unexpected(message)
            time.sleep(_POLL_SECONDS)
        return value

    def watch(self, read: Callable[[], Body], lines_of: Lines, until: Collection[str]) -> Body:
        """Read something until its status is one of these. Meanwhile, show each new line about it, and when it came."""
        began, known = time.monotonic(), set[str]()

        def look() -> Body:
            view = read()
            for line in lines_of(view):
                if line not in known:
                    self.show(f"{time.monotonic() - began:+6.1f} s  {line}")
                known.add(line)
            return view

        return self.poll(look, "still {0[status]}", lambda view: view["status"] in until)

    # --- events -----------------------------------------------------------------------------------------------------

    def push(self, event: Event, *fields: str, secret: str = "") -> Reply:
        """Sign and post an event, as the courier."""
        body = json.dumps(event.document(self.began)).encode()
        signed = signing.headers(secret or self.secrets["courier"], body) | {"content-type": "application/json"}
        what = f"{event.event_id}: {event.shipment_id} is {event.status}"
        reply = self.post(signed, COURIER_PATH, what, "duplicate", *fields, content=body)
        if reply.status == HTTPStatus.ACCEPTED:
            self.receipts.setdefault(event, reply.body)
        return reply

    def accepted(self, event: Event, *fields: str, answers: Sequence[HTTPStatus | None] = ()) -> Reply:
        """Push an event, for which the downstream has these answers. Raises if the event is not accepted."""
        if answers:
            self.downstream.answers[event.key] = list(answers)
        return self.push(event, *fields).must(HTTPStatus.ACCEPTED, "not accepted")

    def in_work(self, event: Event) -> None:
        """Push an event that the downstream does not answer, and wait until the downstream has it."""
        self.accepted(event, answers=(SILENT, WORKING))
        self.poll(lambda: self.downstream.seen[event.key], "not forwarded")

    def entry(self, event: Event) -> Body:
        """The ledger's entry of an accepted event."""
        return self.read(self.operator, event.path)

    def settled(self, event: Event) -> Body:
        """Watch an event until it has a final status, and show its attempts meanwhile."""
        return self.watch(lambda: self.entry(event), _attempts, ("processed", "dead_lettered", "expired"))

    def shipment(self, event: Event) -> Body:
        """Read the shipment of an event, and show its state."""
        found = self.read(self.operator, f"/v1/shipments/{event.shipment_id}")
        self.facts({f"shipment {event.shipment_id}": f"{found['currentState']}  (by {found['lastEventId']})"})
        return found

    # --- dead letters -----------------------------------------------------------------------------------------------

    def letter_of(self, workload: str, *, show: bool = False) -> Body:
        """The one dead letter of a workload."""
        letters = self.read(self.operator, f"/v1/dead-letters?workload={workload}")["items"]
        if len(letters) != 1:
            message = f"{len(letters)} dead letters instead of one"
            raise Unexpected(message)
        letter = dict(letters[0])
        if show:
            reason = f"{letter['terminalReasonCode']}: {letter['terminalReasonMessage']}"
            facts = {"dead letter": letter["id"], "reason": reason, "attempts": letter["attemptCount"]}
            self.facts(facts | {"review": letter["reviewStatus"]})
            self.command("or", self.cli(f"dlq show {letter['id']}"))
        return letter

    def decide(self, letter_id: str, step: str, reason: str, status: HTTPStatus = HTTPStatus.OK) -> Body:
        """Take a step with a dead letter, as the operator; returns the dead letter. Raises for another status."""
        path, decision = f"/v1/dead-letters/{letter_id}", {"actor": ACTOR, "reason": reason}
        reply = self.post(self.operator, f"{path}/{step}", f"{ACTOR}: {reason}", "reviewStatus", json=decision)
        reply.must(status, f"{step} was answered with")
        if status == HTTPStatus.OK:
            self.command("or", self.cli(f"dlq {step} {letter_id} --reason '{reason}'"))
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
    """The ended attempts of an event, and the status after the last attempt."""
    for each in entry["attemptHistory"]:
        if each["outcome"] != "running":
            yield f"attempt {each['attempt']}  {each['outcome']:9}  {each['errorCode'] or ''}"
    if entry["status"] not in {"received", "processing", "failed"}:
        yield entry["status"]


class Chapter(NamedTuple):
    """One chapter: its name, the expected fate, and the function that plays it and returns the fate.

    The docstring of the function is the first paragraph of the chapter.
    """

    name: str
    expected: str
    play: Callable[[Any], str]  # it takes the stage of its deployment


def chapter(name: str, expected: str) -> Callable[[Callable[[Any], str]], Chapter]:
    """A decorator: makes a function a chapter."""
    return lambda play: Chapter(name, expected, play)


class Part(NamedTuple):
    """The chapters on one subject, and what belongs to them."""

    subject: str
    chapters: Sequence[Chapter]
    shortened: Mapping[str, int | tuple[int, ...]]  # settings that make the chapters quick; the tour shows them
    settings: Mapping[str, str] = {}
    look: Sequence[str] = ()  # for the reader, after the tour: commands of the program
    libraries: Sequence[str] = ()  # without these, the chapters are skipped
