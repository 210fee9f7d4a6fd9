"""Notifications of Amazon: bounces and complaints put addresses on the suppression list.

SES reports them in two shapes. The older shape (``notificationType``) comes from the notifications of an identity, the
newer shape (``eventType``) from the event publishing of a configuration set. Of the fields that we read, only this one
differs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parseaddr
from typing import Any, Final, Literal

import httpx

from holdfast import ErrorCode, FieldProblem, InvalidContent, NotAcceptable, StoreUnavailable

from .records import SuppressionReason
from .sns import (
    CertificateUnavailable,
    SnsMalformed,
    SnsMessage,
    SnsRefused,
    SnsType,
    SnsVerifier,
    parse_sns,
)
from .suppression import Suppressions

_SOURCE: Final = "ses"
_TIMEOUT_SECONDS: Final = 10.0
_REASONS: Final = {"bounce": SuppressionReason.BOUNCE, "complaint": SuppressionReason.COMPLAINT}
# SES sends this sentence to a new topic. It is not JSON.
_TOPIC_TEST: Final = "Successfully validated SNS topic"
_OUTBOX_ID: Final = re.compile(r"<([0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12})@[^<>@\s]+>")
_WORD: Final = re.compile(r"[A-Za-z0-9. _-]{1,64}")


async def fetch_confirmation(url: str) -> None:
    """Confirm a subscription by fetching its URL. The caller has checked the URL. No redirect is followed."""
    try:
        async with httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=_TIMEOUT_SECONDS) as client:
            answer = await client.get(url)
    except httpx.HTTPError as error:
        message = "Amazon SNS cannot be reached to confirm the subscription."
        raise StoreUnavailable(message) from error
    if not answer.is_success:
        message = "Amazon SNS did not confirm the subscription."
        raise StoreUnavailable(message)


class NotificationRefused(NotAcceptable):
    """The notification is not from a topic that is trusted here."""

    code = ErrorCode("UNTRUSTED_NOTIFICATION", 403, "The notification is not from a topic that is trusted here.")


class SesNotifications:
    """Receives messages of SNS topics. Without configured topics, it refuses every message."""

    def __init__(
        self,
        verifier: SnsVerifier,
        suppressions: Suppressions,
        confirm: Callable[[str], Awaitable[None]] = fetch_confirmation,
    ) -> None:
        self._verifier = verifier
        self._suppressions = suppressions
        self._confirm = confirm

    async def receive(self, body: object, now: datetime) -> int:
        """Process a message. Returns how many addresses it suppresses. A repeated message is harmless.

        Raises :class:`NotificationRefused` for a message that is not trusted, :class:`InvalidContent` for a body that
        is not an SNS message, and :class:`StoreUnavailable` when Amazon should send the message again.
        """
        try:
            message = parse_sns(body)
            await self._verifier.verify(message)
            await self._confirm_if_asked(message)
            found = [each for each in ses_feedback(message) if each.permanent]
        except SnsMalformed as error:
            raise InvalidContent([FieldProblem("(body)", str(error))]) from None
        except SnsRefused:
            raise NotificationRefused from None
        except CertificateUnavailable as error:
            raise StoreUnavailable(error.message) from error
        return sum([await self._suppress(each, now) for each in found])

    async def _confirm_if_asked(self, message: SnsMessage) -> None:
        if message.type is SnsType.SUBSCRIPTION_CONFIRMATION:
            await self._confirm(message.confirm_url)

    async def _suppress(self, feedback: Feedback, now: datetime) -> int:
        listed, reason = self._suppressions, _REASONS[feedback.kind]
        tenants = await listed.tenants_of(feedback.address, feedback.outbox_id, feedback.message_id)
        return await listed.add(
            [feedback.address], reason, detail=feedback.detail, source=_SOURCE, now=now, tenants=tenants
        )


# --- bounces and complaints -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Feedback:
    """The bounce or complaint of one recipient. ``permanent``: no more mail may be sent to this address.

    ``detail`` is a short text of SES, never an address. ``message_id`` is the id of SES. ``outbox_id`` is our id,
    if the notification contains the headers of the message.
    """

    address: str = field(repr=False)
    kind: Literal["bounce", "complaint"]
    permanent: bool
    detail: str
    message_id: str | None
    outbox_id: str | None


def ses_feedback(sns: SnsMessage) -> list[Feedback]:
    """The bounces and complaints of a notification; an empty list for other kinds of notification.

    Raises :class:`SnsMalformed` for content that SES does not send.
    """
    if sns.type is not SnsType.NOTIFICATION or sns.message.startswith(_TOPIC_TEST):
        return []
    try:
        event = json.loads(sns.message)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, Mapping):
        message = "Message is not a JSON object."
        raise SnsMalformed(message)
    match event.get("notificationType", event.get("eventType")):
        case "Bounce":
            return _bounces(event)
        case "Complaint":
            return _complaints(event)
        case str():
            return []
        case _:
            message = "Message has neither notificationType nor eventType."
            raise SnsMalformed(message)


def _bounces(event: Mapping[str, Any]) -> list[Feedback]:
    bounce = _object(event, "bounce")
    kind, subtype = _word(bounce.get("bounceType")), _word(bounce.get("bounceSubType"))
    if not kind:
        message = "bounce.bounceType is missing."
        raise SnsMalformed(message)
    message_id, outbox_id = _ids(event)
    return [
        Feedback(
            address=_address(recipient),
            kind="bounce",
            permanent=kind == "Permanent",
            detail=" ".join(filter(None, (kind, subtype, _word(recipient.get("status"))))),
            message_id=message_id,
            outbox_id=outbox_id,
        )
        for recipient in _recipients(bounce, "bouncedRecipients")
    ]


def _complaints(event: Mapping[str, Any]) -> list[Feedback]:
    complaint = _object(event, "complaint")
    reason = _word(complaint.get("complaintFeedbackType"))
    message_id, outbox_id = _ids(event)
    return [
        Feedback(
            address=_address(recipient),
            kind="complaint",
            # SES also reports a person who moves a message out of the spam folder. This person wants our mail.
            permanent=reason != "not-spam",
            detail=" ".join(filter(None, ("Complaint", reason, _word(complaint.get("complaintSubType"))))),
            message_id=message_id,
            outbox_id=outbox_id,
        )
        for recipient in _recipients(complaint, "complainedRecipients")
    ]


def _recipients(part: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    recipients = part.get(name)
    if not isinstance(recipients, list) or not all(isinstance(recipient, Mapping) for recipient in recipients):
        message = f"{name} is not a list of objects."
        raise SnsMalformed(message)
    return recipients


def _address(recipient: Mapping[str, Any]) -> str:
    text = recipient.get("emailAddress")
    address = parseaddr(text)[1] if isinstance(text, str) else ""
    if "@" not in address or not address.isprintable():
        message = "emailAddress is not an address."
        raise SnsMalformed(message)
    return address


def _ids(event: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The message id of SES, and our outbox id."""
    mail = event.get("mail")
    if not isinstance(mail, Mapping):
        return None, None
    common = mail.get("commonHeaders")
    headers = mail.get("headers")
    candidates = [
        common.get("messageId") if isinstance(common, Mapping) else None,
        *(
            header.get("value")
            for header in (headers if isinstance(headers, list) else ())
            if isinstance(header, Mapping) and str(header.get("name")).lower() == "message-id"
        ),
    ]
    found = (_OUTBOX_ID.fullmatch(text.strip()) for text in candidates if isinstance(text, str))
    outbox_id = next((match[1].lower() for match in found if match), None)
    return _word(mail.get("messageId")) or None, outbox_id


def _object(event: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = event.get(name)
    if not isinstance(part, Mapping):
        message = f"{name} is not an object."
        raise SnsMalformed(message)
    return part


def _word(value: object) -> str:
    """A short text of plain letters, or an empty text: any other text could contain an address."""
    return value if isinstance(value, str) and _WORD.fullmatch(value) else ""
