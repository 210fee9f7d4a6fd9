"""What the chapters play on: the server, its clients, the downstream, a mail server, and waits that end."""

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
from .downstream import Downstream, Mood
from .folder import DemoFolder
from .mail_server import MailServer
from .narration import Narrator, attempts_of
from .server import DemoSecrets, Server

_LOOK_EVERY_SECONDS: Final = 0.1
PATIENCE_SECONDS: Final = 30.0
"""The longest that any one wait of the demo lasts."""

_TERMINAL: Final = frozenset({"processed", "dead_lettered", "expired"})


class Surprise(Exception):
    """Something went otherwise than the story has it. The message goes into the table of fates."""


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
    """What waits in a queue, by its name, as the programs see it that read the queue."""
    servers: ServerPair | None = None
    """The Valkey and the mongod of a cluster."""
    receipts: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The first receipt of every accepted event, by idempotency key."""
    api_key: str | None = field(default=None, repr=False)
    """What the tenant shows, once there is one."""

    def push(self, note: CourierNote, *fields: str, secret: str | None = None) -> Reply:
        """Be the courier: sign the event, post it, and show what came back."""
        self.narrator.request(f"POST {COURIER_PATH}  {note.event_id}: {note.shipment_id} is {note.status}")
        reply = self.clients.push(note, secret or self.secrets.courier)
        self.narrator.reply(reply, *fields)
        if reply.status == HTTPStatus.ACCEPTED:
            self.receipts.setdefault(note.key, reply.body)
        return reply

    def accepted(self, note: CourierNote, *fields: str) -> Reply:
        """Push an event that must be accepted for the story to go on."""
        reply = self.push(note, *fields)
        if reply.status != HTTPStatus.ACCEPTED:
            message = f"not accepted: {reply}"
            raise Surprise(message)
        return reply

    def in_work(self, note: CourierNote) -> None:
        """Push an event that the downstream takes and does not answer, and wait until it has it."""
        self.downstream.behave(note.key, [Mood.SILENT, Mood.WORKING])
        self.accepted(note, "duplicate")
        if not self.downstream.wait_until_seen(note.key, PATIENCE_SECONDS):
            message = f"not forwarded within {PATIENCE_SECONDS:.0f} s"
            raise Surprise(message)

    def run(self, *arguments: str) -> str:
        """Run a command of the program and show it; what it printed. Raises :class:`Surprise` when it fails."""
        self.narrator.typed(self.cli(shlex.join(arguments)))
        try:
            done = self.server.run(arguments, PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            message = f"`{' '.join(arguments[:2])}` took more than {PATIENCE_SECONDS:.0f} s"
            raise Surprise(message) from None
        if done.returncode != 0:
            message = f"`{' '.join(arguments[:2])}` ended with exit code {done.returncode}"
            raise Surprise(message)
        return done.stdout

    def recorded(self, key: str) -> None:
        """Wait until the ledger has an event that nobody got a receipt for."""
        self.wait_for(lambda: self.clients.event(key).status == HTTPStatus.OK, "not in the ledger")

    def wait_for(self, condition: Callable[[], bool], otherwise: str) -> None:
        """Wait until a look finds it so. Raises :class:`Surprise` when that takes too long."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                message = f"{otherwise} after {PATIENCE_SECONDS:.0f} s"
                raise Surprise(message)
            time.sleep(_LOOK_EVERY_SECONDS)

    def entry(self, key: str) -> Mapping[str, Any]:
        """The ledger's entry of an accepted event."""
        reply = self.clients.event(key)
        if reply.status != HTTPStatus.OK:
            message = f"cannot read the event: {reply}"
            raise Surprise(message)
        return reply.body

    def settled(self, key: str) -> Mapping[str, Any]:
        """Watch an event until it has reached its end, and show its attempts meanwhile."""
        return self.watch(lambda: self.entry(key), attempts_of, until=_TERMINAL)

    def watch(
        self,
        look: Callable[[], Mapping[str, Any]],
        drawn: Callable[[Mapping[str, Any]], RenderableType],
        *,
        until: Collection[str],
    ) -> Mapping[str, Any]:
        """Look until the status is one of these. Raises :class:`Surprise` when that takes too long."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        seen = look()
        with self.narrator.watching() as show:
            show(drawn(seen))
            while seen["status"] not in until:
                if time.monotonic() > deadline:
                    message = f"still {seen['status']} after {PATIENCE_SECONDS:.0f} s"
                    raise Surprise(message)
                time.sleep(_LOOK_EVERY_SECONDS)
                seen = look()
                show(drawn(seen))
        return seen

    def shipment(self, shipment_id: str) -> Mapping[str, Any]:
        """Look a shipment up, and show its state."""
        reply = self.clients.shipment(shipment_id)
        if reply.status != HTTPStatus.OK:
            message = f"no shipment {shipment_id}: {reply}"
            raise Surprise(message)
        state, event = reply.body["currentState"], reply.body["lastEventId"]
        self.narrator.facts({f"shipment {shipment_id}": f"{state}  (told by {event})"})
        return reply.body
