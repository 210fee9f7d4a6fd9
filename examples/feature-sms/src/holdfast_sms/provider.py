"""The provider's HTTP API: ``POST /messages`` sends a message, ``GET /status`` says whether the provider works."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx

from holdfast import Done, Reject, Retry
from holdfast.network import TIMEOUT, answer_code, answer_may_pass, network_code, retry_after

from .contract import Sms


class Provider:
    """The client of the provider: a resource, opened and closed with the process."""

    def __init__(
        self, url: str, key: str, timeout: timedelta, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._client = httpx.AsyncClient(
            base_url=url,
            headers={"authorization": f"Bearer {key}"},
            timeout=timeout.total_seconds(),
            transport=transport,
            trust_env=False,
        )

    async def open(self) -> None:
        """Nothing to do: the first message makes the first connection."""

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def send(self, key: str, sms: Sms) -> Done | Retry | Reject:
        """Send a message. The provider knows the key, so a message that is sent again is not delivered again.

        No outcome repeats what the provider says: it may repeat the number.
        """
        try:
            body = {"to": sms.to, "text": sms.text}
            answer = await self._client.post("/messages", json=body, headers={"idempotency-key": key})
        except httpx.TransportError as error:
            return Retry(failure := _failure(error), f"The SMS provider could not be reached ({failure}).")
        status = answer.status_code
        if answer.is_success:
            return Done(result={"status": status})
        if answer_may_pass(status):
            wait = retry_after(answer.headers.get("retry-after"), datetime.now(UTC))
            return Retry(answer_code(status), f"The SMS provider answered {status}.", wait)
        return Reject(answer_code(status), f"The SMS provider refused the message ({status}).")

    async def trouble(self) -> str | None:
        """Why the provider cannot send now; None: it can."""
        try:
            answer = await self._client.get("/status")
        except httpx.TransportError as error:
            return f"could not be reached ({_failure(error)})"
        return None if answer.is_success else f"answered {answer.status_code}"


def _failure(error: httpx.TransportError) -> str:
    return TIMEOUT if isinstance(error, httpx.TimeoutException) else network_code(error)
