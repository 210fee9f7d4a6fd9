"""Requests that are tried again: what is sent, which answers are errors, and when the next try begins."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlsplit

from holdfast import __version__
from holdfast.contracts.times import Duration, duration

from .errors import HoldfastClientError, Refused, TooManyRequests, Unavailable, UnexpectedAnswer, Unreachable, refusal
from .steps import Answer, NoAnswer, Open, Request, Send, Steps, Wait

_SERVICE_UNAVAILABLE: Final = 503
SUCCESS: Final = range(200, 300)
_USER_AGENT: Final = f"holdfast-client/{__version__}"
_JSON: Final = "application/json"
_ANSWER_IS_ON_ITS_WAY: Final = 1.0
"""How many seconds after a deadline an answer may still come."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a request is tried again, and when.

    A request is sent at most ``most`` times more, and not later than ``within`` after the first try. The waits grow
    from ``first_wait`` to ``longest_wait``, by two each time, with jitter. A ``Retry-After`` of the answer counts
    instead; if it is later than ``within``, the error is raised at once.
    """

    most: int = 4
    first_wait: Duration = "500ms"
    longest_wait: Duration = "20s"
    within: Duration = "60s"

    def __post_init__(self) -> None:
        if self.most < 0:
            message = "A request cannot be tried again less than 0 times."
            raise ValueError(message)
        for value in (self.first_wait, self.longest_wait, self.within):
            duration(value)

    def wait_before(self, retry: int, retry_after: float | None, chance: float) -> float:
        """Seconds before this retry; the first is 1. ``chance`` is between 0 and 1."""
        first = duration(self.first_wait).total_seconds()
        if retry_after is not None:
            # Many clients got the same Retry-After: they should not come back at the same instant.
            return retry_after + chance * first
        longest = duration(self.longest_wait).total_seconds()
        return min(first * 2.0 ** min(retry - 1, 30), longest) * (1 + chance) / 2


@dataclass(frozen=True, slots=True)
class Timing:
    """The clocks and the dice of a client. A test brings its own."""

    monotonic: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True)
class Credentials:
    """The API key of a tenant and the token of an operator. A representation of them shows neither."""

    key: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name, value in (("key", self.key), ("token", self.token)):
            if value is not None and not (value.strip() == value != "" and value.isascii() and value.isprintable()):
                message = f"The {name} must be visible ASCII characters, without white space around them."
                raise ValueError(message)

    def header(self, *, operator: bool) -> dict[str, str]:
        """The ``Authorization`` of a request. ``operator``: the token goes before the key."""
        secret = (self.token or self.key) if operator else (self.key or self.token)
        return {} if secret is None else {"authorization": f"Bearer {secret}"}


class Exchange:
    """Sends the requests of all verbs to one API."""

    def __init__(
        self, base_url: str, credentials: Credentials, timeout: Duration, retries: Retries, timing: Timing
    ) -> None:
        self.address = _checked(base_url)
        self.timing = timing
        self._credentials = credentials
        self._timeout = duration(timeout).total_seconds()
        self._retries = retries

    @property
    def now(self) -> float:
        """The monotonic clock, in seconds."""
        return self.timing.monotonic()

    def deadline(self, timeout: Duration | None) -> float:
        """The end of this time, on the monotonic clock. None: there is no end."""
        return float("inf") if timeout is None else self.now + duration(timeout).total_seconds()

    def call(self, request: Request, *, until: float = float("inf")) -> Steps[Answer]:
        """The answer of an accepted request. Raises :class:`Refused` or :class:`Unreachable` after the last try."""
        tries = self.tries(request, until)
        while True:
            send = Send(**self._prepared(request, until))
            yield send
            error = self.error_of(send.reply)
            if error is None and isinstance(send.reply, Answer):
                return send.reply
            yield from tries.after(error)

    def json(self, request: Request, *, until: float = float("inf")) -> Steps[Any]:
        """The JSON of the answer to an accepted request."""
        answer = yield from self.call(request, until=until)
        document = _document(answer.content)
        if document is None:
            message = f"{self.address} answered {answer.status} without JSON. Is it a Holdfast API?"
            raise UnexpectedAnswer(message)
        return document

    def opening(self, request: Request, until: float) -> Open:
        """The step that opens a stream."""
        return Open(**self._prepared(request, until))

    def tries(self, request: Request, until: float = float("inf")) -> Tries:
        """The tries of a request: none was made yet."""
        return Tries(self._retries, self.timing, request, until)

    def error_of(self, reply: Answer | NoAnswer) -> HoldfastClientError | None:
        """The error of a reply; None if the request was accepted."""
        if isinstance(reply, NoAnswer):
            return Unreachable(self.address, reply.cause, arrived=reply.arrived)
        if reply.status in SUCCESS:
            return None
        after = retry_after(reply.headers.get("retry-after"), self.timing.now())
        return refusal(reply.status, _document(reply.content), after)

    def _prepared(self, request: Request, until: float) -> dict[str, Any]:
        headers = {"accept": _JSON, "user-agent": _USER_AGENT}
        if isinstance(request.body, bytes):
            headers["content-type"] = _JSON
        headers |= request.headers
        headers |= (
            self._credentials.header(operator=request.operator)
            if request.sign is None
            else request.sign(int(self.timing.now()))
        )
        left = max(until - self.now, 0.0) + _ANSWER_IS_ON_ITS_WAY
        return {
            "method": request.method,
            "url": f"{self.address}{request.path}",
            "query": request.query,
            "headers": headers,
            "body": request.body,
            "timeout": min(self._timeout + request.patience, left),
        }


class Tries:
    """Counts the tries of one request, and decides whether there is one more."""

    def __init__(self, retries: Retries, timing: Timing, request: Request, until: float) -> None:
        self._retries = retries
        self._timing = timing
        self._repeatable = request.repeatable
        self._until = until
        self.restart()

    def restart(self) -> None:
        """Count from the beginning: the last try was a success."""
        self._failed = 0
        self._end = min(self._timing.monotonic() + duration(self._retries.within).total_seconds(), self._until)

    def after(self, error: HoldfastClientError | None) -> Steps[None]:
        """Wait for the next try. Raises the error if there is none."""
        self._failed += 1
        after = error.retry_after if isinstance(error, Refused) else None
        wait = self._retries.wait_before(self._failed, after, self._timing.chance())
        too_late = self._timing.monotonic() + wait > self._end
        if error is not None and (too_late or self._failed > self._retries.most or not self._may_repeat(error)):
            raise error
        yield Wait(wait)

    def _may_repeat(self, error: HoldfastClientError) -> bool:
        match error:
            case Unreachable():
                return self._repeatable or not error.arrived
            case TooManyRequests():
                return True
            case Unavailable():
                # 502 and 504 come from a proxy, which does not know whether the request was done.
                return self._repeatable or error.status == _SERVICE_UNAVAILABLE
            case _:
                return False


def retry_after(value: str | None, now: float) -> float | None:
    """The seconds of a ``Retry-After``: a number, or an HTTP date. None if there is none, or it cannot be read."""
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        instant = parsedate_to_datetime(value)
        if instant.tzinfo is None:
            instant = instant.replace(tzinfo=UTC)
        return max((instant - datetime.fromtimestamp(now, UTC)).total_seconds(), 0.0)
    except (ValueError, OverflowError):
        return None


def _checked(base_url: str) -> str:
    """The address without a slash at its end. Raises ``ValueError``; the message does not repeat the address."""
    try:
        parts = urlsplit(base_url)
        valid = parts.scheme in {"http", "https"} and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid or parts.query or parts.fragment or "@" in parts.netloc or not base_url.isprintable():
        message = "base_url is the address of the API, such as http://127.0.0.1:8080, without a password or a query."
        raise ValueError(message)
    return base_url.rstrip("/")


def _document(content: bytes) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
