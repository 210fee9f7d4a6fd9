"""Emails: send them, look at them, cancel them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final

from holdfast.contracts.times import Duration, duration, duration_ms, isoformat

from .content import aware, header_value, json_bytes, part, query_of
from .errors import Refused
from .exchange import Exchange
from .lists import in_batches, pages
from .steps import Document, Items, Request, Steps
from .views import EmailReceipt, EmailState

_PATH: Final = "/v1/email"
_KEY: Final = "idempotencyKey"
_NAMES: Final = {
    "html_ref": "htmlRef",
    "reply_to": "replyTo",
    "send_at": "sendAt",
    "idempotency_key": _KEY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Email:
    """An email. A representation of it shows nothing: an email is full of personal data.

    ``recipient`` names the person, with at least one of ``externalId``, ``cpfCnpj``, ``cpfCnpjHash`` and
    ``recipientId``. Two emails with the same ``idempotency_key`` are duplicates; without a key, two emails with the
    same recipient and the same content are.
    """

    to: str
    subject: str
    recipient: Mapping[str, str]
    html: str | None = None
    html_ref: str | None = None
    cc: Sequence[str] | None = None
    bcc: Sequence[str] | None = None
    reply_to: str | None = None
    headers: Mapping[str, str] | None = None
    tags: Sequence[str] | None = None
    priority: int | None = None
    delay: Duration | None = None
    send_at: datetime | None = None
    idempotency_key: str | None = None

    def __repr__(self) -> str:
        return "Email(...)"

    def as_json(self) -> Document:
        """The email with the names of the wire."""
        values: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        if self.delay is not None:
            values["delay"] = duration_ms(duration(self.delay))
        if self.send_at is not None:
            values["send_at"] = isoformat(aware(self.send_at))
        return {_NAMES.get(name, name): value for name, value in values.items() if value is not None}


class EmailVerbs:
    """The requests of ``/v1/email``."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def send(self, email: Email | Mapping[str, Any]) -> Steps[EmailReceipt]:
        """Send an email: it is sent once, or ends with a reason. A mapping has the names of the wire."""
        document = _document_of(email)
        key = document.pop(_KEY, None)
        headers = {} if key is None else {"idempotency-key": header_value("The idempotency key", key)}
        answer = yield from self._exchange.json(
            Request(method="POST", path=f"{_PATH}/send", body=json_bytes(document), headers=headers)
        )
        return EmailReceipt.read(answer)

    def send_many(self, emails: Iterable[Email | Mapping[str, Any]]) -> Steps[list[EmailReceipt | Refused]]:
        """Send many emails, 500 in one request. One receipt, or the refusal, for each email, in their order.

        If an error is raised, some of the emails may have been accepted: it is safe to send all of them again.
        """
        return in_batches(
            self._exchange,
            [_document_of(each) for each in emails],
            lambda batch: Request(method="POST", path=f"{_PATH}/batch", body=json_bytes({"emails": batch})),
            EmailReceipt.read,
        )

    def list(self, *, status: str | None = None, page: int | None = None) -> Items[EmailState]:
        """Your emails, the newest first. ``page`` is how many one request brings."""
        return pages(self._exchange, _PATH, query_of(status=status, limit=page), EmailState.read)

    def show(self, email: EmailReceipt | EmailState | str) -> Steps[EmailState]:
        """One of your emails. Raises :class:`NotFound`."""
        answer = yield from self._exchange.json(Request(method="GET", path=_path(email)))
        return EmailState.read(answer)

    def cancel(self, email: EmailReceipt | EmailState | str) -> Steps[None]:
        """Cancel an email that still waits. Raises :class:`Conflict` if it is too late."""
        yield from self._exchange.call(Request(method="POST", path=f"{_path(email)}/cancel"))


def _document_of(email: Email | Mapping[str, Any]) -> Document:
    return email.as_json() if isinstance(email, Email) else dict(email)


def _path(email: EmailReceipt | EmailState | str) -> str:
    return f"{_PATH}/{part(email if isinstance(email, str) else email.outbox_id)}"
