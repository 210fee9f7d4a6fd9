"""The parts that chapters use: the server, its clients, the downstream, a mail server, and waits with a timeout."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from rich.console import RenderableType

from holdfast.cli.servers import ServerPair

from .clients import COURIER_PATH, Clients, CourierNote, Reply
from .downstream import Behaviour, Downstream
from .folder import DemoFolder
from .mail_server import MailServer
from .narration import Narrator, attempts_of
from .server import DemoSecrets, Server

_POLL_SECONDS: Final = 0.1
TIMEOUT_SECONDS: Final = 30.0
"""The longest single wait of the demo."""

_TERMINAL: Final = frozenset({"processed", "dead_lettered", "expired"})


class Unexpected(Exception):
    """Something did not go as expected. The message goes into the table of fates."""


@dataclass(slots=True)
class Stage:
    """The parts of a running demo. ``cli`` makes a command line that works on its data folder."""

    narrator: Narrator
    server: Server
    clients: Clients
    downstream: Downstream
    mail: MailServer
    secrets: DemoSecrets
    folder: DemoFolder
    cli: Callable[[str], str]
    queued: Callable[[str], Sequence[Mapping[str, Any]]]
    """The waiting jobs of a queue, by its name."""
    servers: ServerPair | None = None
    """The Valkey and the mongod of a cluster."""
    receipts: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The first receipt of every accepted event, by idempotency key."""
    api_key: str | None = field(default=None, repr=False)
    """The key of the tenant, once there is one."""

    def push(self, note: CourierNote, *fields: str, secret: str | None = None) -> Reply:
        """Sign and post an event, as the courier, and show the answer."""
        self.narrator.request(f"POST {COURIER_PATH}  {note.event_id}: {note.shipment_id} is {note.status}")
        reply = self.clients.push(note, secret or self.secrets.courier)
        self.narrator.reply(reply, *fields)
        if reply.status == HTTPStatus.ACCEPTED:
            self.receipts.setdefault(note.key, reply.body)
        return reply

    def accepted(self, note: CourierNote, *fields: str) -> Reply:
        """Push an event. Raises if it is not accepted."""
        reply = self.push(note, *fields)
        if reply.status != HTTPStatus.ACCEPTED:
            message = f"not accepted: {reply}"
            raise Unexpected(message)
        return reply

    def in_work(self, note: CourierNote) -> None:
        """Push an event that the downstream does not answer, and wait until the downstream has it."""
        self.downstream.behave(note.key, [Behaviour.SILENT, Behaviour.WORKING])
        self.accepted(note, "duplicate")
        if not self.downstream.wait_until_seen(note.key, TIMEOUT_SECONDS):
            message = f"not forwarded within {TIMEOUT_SECONDS:.0f} s"
            raise Unexpected(message)

    def run(self, *arguments: str) -> str:
        """Show and run a command of the program; returns its output. Raises :class:`Unexpected` if it fails."""
        self.narrator.typed(self.cli(shlex.join(arguments)))
        try:
            done = self.server.run(arguments, TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            message = f"`{' '.join(arguments[:2])}` took more than {TIMEOUT_SECONDS:.0f} s"
            raise Unexpected(message) from None
        if done.returncode != 0:
            message = f"`{' '.join(arguments[:2])}` ended with exit code {done.returncode}"
            raise Unexpected(message)
        return done.stdout

    def recorded(self, key: str) -> None:
        """Wait until the ledger has an event without a receipt."""
        self.wait_for(lambda: self.clients.event(key).status == HTTPStatus.OK, "not in the ledger")

    def wait_for(self, condition: Callable[[], bool], otherwise: str) -> None:
        """Wait until the condition is true. Raises :class:`Unexpected` after a timeout."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                message = f"{otherwise} after {TIMEOUT_SECONDS:.0f} s"
                raise Unexpected(message)
            time.sleep(_POLL_SECONDS)

    def entry(self, key: str) -> Mapping[str, Any]:
        """The ledger's entry of an accepted event."""
        reply = self.clients.event(key)
        if reply.status != HTTPStatus.OK:
            message = f"cannot read the event: {reply}"
            raise Unexpected(message)
        return reply.body

    def settled(self, key: str) -> Mapping[str, Any]:
        """Watch an event until it has a final status, and show its attempts meanwhile."""
        return self.watch(lambda: self.entry(key), attempts_of, until=_TERMINAL)

    def watch(
        self,
        read: Callable[[], Mapping[str, Any]],
        drawn: Callable[[Mapping[str, Any]], RenderableType],
        *,
        until: Collection[str],
    ) -> Mapping[str, Any]:
        """Read until the status is one of these. Raises :class:`Unexpected` after a timeout."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        seen = read()
        with self.narrator.watching() as show:
            show(drawn(seen))
            while seen["status"] not in until:
                if time.monotonic() > deadline:
                    message = f"still {seen['status']} after {TIMEOUT_SECONDS:.0f} s"
                    raise Unexpected(message)
                time.sleep(_POLL_SECONDS)
                seen = read()
                show(drawn(seen))
        return seen

    def shipment(self, shipment_id: str) -> Mapping[str, Any]:
        """Read a shipment, and show its state."""
        reply = self.clients.shipment(shipment_id)
        if reply.status != HTTPStatus.OK:
            message = f"no shipment {shipment_id}: {reply}"
            raise Unexpected(message)
        state, event = reply.body["currentState"], reply.body["lastEventId"]
        self.narrator.facts({f"shipment {shipment_id}": f"{state}  (by {event})"})
        return reply.body
