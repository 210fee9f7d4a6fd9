"""The optional downstream: every event is signed and forwarded before it is applied here.

Each request has the event's idempotency key in ``webhook-id`` and ``Idempotency-Key``, also in retries and replays.
Late events are forwarded too: the downstream may use another order than we do.
"""

from __future__ import annotations

from datetime import timedelta

import httpx

from holdfast import ConfigurationError, Done, Reject, Retry
from holdfast.webhooks import signing_key
from holdfast.webhooks.client import Client
from holdfast.webhooks.sender import WebhookSender, Words

from .contract import CourierEvent


class Downstream(WebhookSender):
    """A client of the downstream, which is the operator's own: its address is not checked.

    ``connections`` is the largest number of requests at the same time.
    """

    def __init__(self, url: str, secret: str, timeout: timedelta, connections: int) -> None:
        _check(url, secret)
        self._url = url
        client = Client(None, connections=connections)
        super().__init__(client, signing_key(secret), timeout, Words("The downstream", "The event", "the event"))

    async def forward(self, event: CourierEvent) -> Done | Retry | Reject:
        """Send one event. ``Done``: the downstream accepted it."""
        headers = {"idempotency-key": event.idempotencyKey, "x-request-id": event.traceId}
        return await self.send(self._url, event.idempotencyKey, event.model_dump_json().encode(), headers)


def _check(address: str, secret: str) -> None:
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in {"http", "https"} or not url.host:
        message = "COURIER_DOWNSTREAM_URL must be an http:// or https:// address."
    elif not secret:
        message = "COURIER_DOWNSTREAM_URL needs COURIER_DOWNSTREAM_SECRET, which signs what is forwarded."
    elif not signing_key(secret):
        message = "COURIER_DOWNSTREAM_SECRET starts with whsec_, but what follows is not base64."
    else:
        return
    raise ConfigurationError(message)
