"""What a courier and a client of ``/v1/jobs`` do to a gateway: post, post again, contradict themselves, remember."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from holdfast.contracts.times import isoformat
from holdfast.features.courier.signatures import sign

from .raw_http import Answer, Line, NoAnswer, NotSent, request

SOURCE: Final = "courier-x"
SECRET: Final = "k8Wq2vTz5LmR9xBc4NdF"
TOKEN: Final = "p7Yh3Gs6JdQ1uVnE0aZi"
OPERATOR: Final = {"authorization": f"Bearer {TOKEN}"}

MODES: Final = ("plain",) * 7 + ("flaky", "doomed", "mended")
_SHIPMENTS: Final = 40
_MEMORY: Final = 200


@dataclass(frozen=True, slots=True)
class Message:
    """One piece of work as a client means it. Two messages with one key and another ``text`` contradict each other."""

    workload: str
    key: str
    text: str
    document: dict[str, Any] = field(compare=False)


class Outcome(StrEnum):
    OK = "ok"
    """Acknowledged: from here on the gateway must never let go."""
    FAILED = "failed"
    """Answered with an error, or never connected."""
    UNKNOWN = "unknown"
    """Sent, and no answer: the gateway may have it or not."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One request and what the client knows about it."""

    message: Message
    outcome: Outcome
    answer: Answer | None = None

    @property
    def reached(self) -> bool:
        """Whether the gateway may have seen it."""
        return self.outcome is not Outcome.FAILED or self.answer is not None

    @property
    def fresh(self) -> bool:
        """Whether it was acknowledged as something new."""
        return self.outcome is Outcome.OK and self.answer is not None and not self.answer.document["duplicate"]

    @property
    def doubtful(self) -> bool:
        """Whether it may stand although nobody was told so: no answer, or a 503, which only says to send it again."""
        return self.outcome is Outcome.UNKNOWN or (self.answer is not None and self.answer.status == 503)


async def post(address: str, message: Message, line: Line | None = None) -> Sent:
    """Post a message; a ``line`` that is open already is used for it."""
    body = json.dumps(message.document).encode()
    if message.workload == "courier":
        timestamp = int(time.time())
        path, headers = "/v1/events/courier", {"x-signature-timestamp": str(timestamp)}
        headers["x-signature"] = sign(SECRET, timestamp, body)
    else:
        path, headers = f"/v1/jobs/{message.workload}", OPERATOR
    try:
        if line is not None:
            answer = await line.exchange("POST", path, headers, body)
        else:
            answer = await request(address, "POST", path, headers, body)
    except NotSent:
        return Sent(message, Outcome.FAILED)
    except NoAnswer:
        return Sent(message, Outcome.UNKNOWN)
    return Sent(message, Outcome.OK if answer.status == 202 else Outcome.FAILED, answer)


class Author:
    """Thinks up messages. Every courier event has a time of its own, and they come out of order."""

    def __init__(self, chance: random.Random, modes: tuple[str, ...] = MODES) -> None:
        self._chance = chance
        self._modes = modes
        self._serial = 0
        self._epoch = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)

    def task(self, mode: str | None = None, **more: Any) -> Message:
        self._serial += 1
        key = f"{mode or self._chance.choice(self._modes)}-{self._serial:06d}"
        return Message("counted", key, "first", {"key": key, "text": "first", **more})

    def event(self, mode: str | None = None) -> Message:
        self._serial += 1
        name = f"{mode or self._chance.choice(self._modes)}-{self._serial:06d}"
        shipment = self._chance.randrange(_SHIPMENTS)
        document = {
            "eventId": name,
            "eventType": "shipment.status.updated",
            # Neighbours change places, so that late events are the rule; still no two have the same time.
            "occurredAt": isoformat(self._epoch + timedelta(milliseconds=self._serial ^ 0b1111)),
            "source": SOURCE,
            "payload": {
                "shipmentId": f"shp-{shipment:03d}",
                "orderId": f"ord-{shipment:03d}",
                "status": f"state-{self._serial}",
                "text": "first",
            },
        }
        return Message("courier", f"{SOURCE}:{name}", "first", document)

    def any(self) -> Message:
        """An event, or a task that keeps its worker busy for a moment: killing an idle worker would show little."""
        return self.event() if self._chance.random() < 0.6 else self.task(work_ms=self._chance.randrange(150))

    def contradiction(self, message: Message) -> Message:
        """The same key with other content."""
        document = json.loads(json.dumps(message.document))
        (document if message.workload == "counted" else document["payload"])["text"] = "second"
        return Message(message.workload, message.key, "second", document)


class Load:
    """Clients that post without end: about a third of the requests repeat an earlier one, a few contradict one.

    ``addresses`` is asked before every request, so that clients follow processes that come and go; they notice a dead
    one as real clients do, by a failing request.
    """

    def __init__(
        self,
        author: Author,
        chance: random.Random,
        addresses: Callable[[], list[str]],
        *,
        clients: int = 8,
        pause: float = 0.03,
    ) -> None:
        self.history: list[Sent] = []
        self.entries = 0
        """How often a gateway said that it has something new."""
        self._author = author
        self._chance = chance
        self._addresses = addresses
        self._clients = clients
        self._pause = pause
        self._recent: deque[Message] = deque(maxlen=_MEMORY)
        self._stop = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self._clients):
                group.create_task(self._client())

    def stop(self) -> None:
        """End after the requests that are under way."""
        self._stop.set()

    async def send(self, *messages: Message) -> list[Sent]:
        """Post messages at once, each to some API, and remember what came of it."""
        results = await asyncio.gather(*(post(self._chance.choice(self._addresses()), each) for each in messages))
        self.history += results
        self.entries += sum(sent.fresh for sent in results)
        return results

    async def _client(self) -> None:
        while not self._stop.is_set():
            if self._addresses():
                await self.send(*self._next())
            await asyncio.sleep(self._chance.uniform(0, 2 * self._pause))

    def _next(self) -> list[Message]:
        dice = self._chance.random()
        if self._recent and dice < 0.20:
            return [self._chance.choice(self._recent)]
        if self._recent and dice < 0.25:
            return [self._author.contradiction(self._chance.choice(self._recent))]
        message = self._author.any()
        self._recent.append(message)
        if dice > 0.90:  # the sender lost patience: the same message on several connections at once
            return [message] * 3
        if dice > 0.87:
            return [message, self._author.contradiction(message)]
        return [message]
