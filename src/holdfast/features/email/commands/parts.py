"""The email feature, for its commands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.features.email.feature import EmailFeature, EmailService
from holdfast.terminal import open_feature


@asynccontextmanager
async def opened_email(data: Path | None) -> AsyncIterator[EmailService]:
    """Emails over a ledger that is there. Where they are not set up, the command ends with the reason."""
    async with open_feature(EmailFeature.name, data) as service:
        yield service
