"""Notifications of Amazon: bounces and complaints put addresses on the suppression list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

import httpx

from holdfast import ErrorCode, FieldProblem, InvalidContent, NotAcceptable, StoreUnavailable

from .feedback import Feedback, ses_feedback
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
