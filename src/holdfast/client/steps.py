"""The steps of a request, without I/O: what :class:`Client` and :class:`AsyncClient` share.

A verb, such as "submit a job", is a generator of steps. Each step is one piece of I/O: send a request, wait, read a
line. The generator yields a step, the driver of the client performs the step and puts the reply into it, and the
generator goes on. So the requests, the answers and the decisions to try again are written once, and each driver
(``drivers``) only knows how to perform a step.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Query = Iterable[tuple[str, str]]
Sent = Callable[[int, int], None]
"""Called during an upload with the bytes that were sent, and with all bytes."""


@dataclass(frozen=True, slots=True)
class Upload:
    """The file of a form, between the other bytes of the form. It is read in pieces, and again for each try."""

    before: bytes
    path: Path
    size: int
    after: bytes
    sent: Sent | None = None

    def __len__(self) -> int:
        """The length of the whole body."""
        return len(self.before) + self.size + len(self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request of a verb. Every try sends the same method, path, body and identity.

    ``sign`` makes headers anew for each try, from the time of the try. ``repeatable``: the request may be sent again
    although it may have been done. ``patience`` is how much longer than usual the answer may take, in seconds.
    """

    method: str
    path: str
    query: Query = ()
    body: bytes | Upload | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    operator: bool = False
    repeatable: bool = True
    patience: float = 0.0
    sign: Callable[[int], Mapping[str, str]] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API answered."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The request has no whole answer. ``arrived``: the API may have got it."""

    cause: str
    arrived: bool


@dataclass(slots=True)
class Send:
    """Send a request and read the whole answer."""

    method: str
    url: str
    query: Query
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | Upload | None
    timeout: float
    reply: Answer | NoAnswer = field(init=False)


@dataclass(slots=True)
class Open(Send):
    """Send a request; if it is accepted, leave the answer open for :class:`ReadLine`."""


@dataclass(slots=True)
class ReadLine:
    """Read the next line of the answer that :class:`Open` left open. None: the answer is at its end."""

    reply: str | NoAnswer | None = field(init=False)


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Emit(Generic[Item]):
    """Give an item to the caller of an iterator."""

    item: Item


Step = Send | Open | ReadLine | Wait
Steps = Generator[Step, None, Result]
"""A verb that ends with a result."""
Items = Generator[Step | Emit[Item], None, None]
"""A verb that gives items until there are no more."""
Document = dict[str, Any]
"""A JSON object."""
