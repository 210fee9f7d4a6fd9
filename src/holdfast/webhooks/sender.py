"""Sending a signed message, and what the answer means for its job.

Delivery is at least once: if a worker crashes between the receiver's answer and our commit, the message is sent again.
``webhook-id`` is the same in every attempt and replay, so the receiver can recognise a duplicate. No redirect is
followed, and no proxy of the environment is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Final

import httpcore
import httpx

from holdfast.contracts.network_failures import (
    THROTTLED,
    TIMEOUT,
    answer_code,
    answer_may_pass,
    retry_after,
    wait_asked_by,
)
from holdfast.contracts.outcomes import Done, Reject, Retry

from . import signed_headers
from .addresses import AddressBlocked, web_address
from .client import Client, code_of, header

BLOCKED: Final = "ADDRESS_BLOCKED"

_MAX_DRAINED: Final = 64 * 1024
_DRAIN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Words:
    """The words of the outcomes: "The receiver refused it.", "The message was not sent."."""

    receiver: str = "The receiver"
    message: str = "The message"
    it: str = "it"


class WebhookSender:
    """Sends signed messages. Errors of the other side are returned as outcomes, not raised.

    The client decides which addresses may be reached: give it a policy if senders name the receivers. ``key`` signs,
    see :func:`~holdfast.webhooks.signing_key`. ``timeout`` is for one whole exchange.
    """

    def __init__(
        self,
        client: Client,
        key: bytes,
        timeout: timedelta,
        words: Words,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._key = key
        self._timeout = timeout.total_seconds()
        self._words = words
        self._now = now

    async def open(self) -> None:
        """Make the connection pool. Connections are opened by the messages that need them."""
        await self._client.open()

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def send(
        self,
        url: str,
        message_id: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        keys: Sequence[bytes] = (),
    ) -> Done | Retry | Reject:
        """Send JSON. The status of the answer alone decides the outcome; it is the result of ``Done``.

        ``keys`` sign this message instead of the sender's own key, one signature each.
        """
        words = self._words
        try:
            return await self._exchange(url, message_id, body, headers or {}, keys or (self._key,))
        except AddressBlocked as error:
            return Reject(BLOCKED, f"{words.message} was not sent. {error}")
        except (TimeoutError, httpcore.TimeoutException):
            return Retry(TIMEOUT, f"{words.receiver} did not answer within {self._timeout:g} s.")
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            code = code_of(error)
            return Retry(code, f"{words.receiver} could not be reached ({code}).")

    async def _exchange(
        self, url: str, message_id: str, body: bytes, headers: Mapping[str, str], keys: Sequence[bytes]
    ) -> Done | Retry | Reject:
        address = web_address(url) if self._client.vets else httpx.URL(url)
        signed = signed_headers(keys[0], message_id, int(self._now().timestamp()), body, *keys[1:])
        sent = {"content-type": "application/json", **signed, **headers}
        # httpcore limits each read. This limits all reads together: a very slow answer must not hold its slot for ever.
        deadline = asyncio.get_running_loop().time() + self._timeout
        async with (
            asyncio.timeout_at(deadline) as limit,
            self._client.exchange("POST", address, sent, body) as response,
        ):
            if not limit.expired():
                limit.reschedule(None)  # the status is known: nothing after it is a timeout
            if not self._client.vets:
                await _drain(response, deadline)
            after = retry_after(header(response, "retry-after"), self._now())
            return outcome_of_answer(response.status, after, self._words)


async def _drain(response: httpcore.Response, deadline: float) -> None:
    """Read a short body to its end, so that the connection can be used again.

    The status is known already, and nothing here changes it. After a long or slow body, the connection is closed.
    """
    read = 0
    with suppress(TimeoutError, httpcore.NetworkError, httpcore.ProtocolError):
        async with asyncio.timeout_at(min(deadline, asyncio.get_running_loop().time() + _DRAIN_SECONDS)):
            async for chunk in response.aiter_stream():
                read += len(chunk)
                if read > _MAX_DRAINED:
                    break


def outcome_of_answer(status: int, after: timedelta | None, words: Words) -> Done | Retry | Reject:
    """What an answer means for the job. ``after`` is the wait that it asked for."""
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return Done(result={"status": status})
    after = after if wait_asked_by(status) else None
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return Retry(THROTTLED, f"{words.receiver} asked us to slow down (429).", after)
    if answer_may_pass(status):
        return Retry(answer_code(status), f"{words.receiver} answered {status}.", after)
    return Reject(answer_code(status), f"{words.receiver} refused {words.it} ({status}).")
