"""Bounces and complaints that SES reports, in the older and the newer shape.

The older shape (``notificationType``) comes from the notifications of an identity, the newer shape (``eventType``) from
the event publishing of a configuration set. Of the fields that we read, only this one differs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parseaddr
from typing import Any, Final, Literal

from .sns import SnsMalformed, SnsMessage, SnsType

# SES sends this sentence to a new topic. It is not JSON.
_TOPIC_TEST: Final = "Successfully validated SNS topic"
_WORD: Final = re.compile(r"[A-Za-z0-9. _-]{1,64}")
_OUTBOX_ID: Final = re.compile(r"<([0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12})@[^<>@\s]+>")


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
