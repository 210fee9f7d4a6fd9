"""A text message: as a tenant posts it, as a job, and as people see it. Only the job has the number in clear."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from holdfast import LedgerEntry, Status, described
from holdfast.views import Instant, View

_ID: Final = described(r"^[A-Za-z0-9._-]{1,64}$", "must have 1 to 64 letters, digits, dots, dashes or underscores")
_NUMBER: Final = described(r"^\+[1-9][0-9]{7,14}$", "must be a phone number such as +5511987654321")


class SmsBody(BaseModel):
    """What a tenant posts."""

    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, Field(pattern=_ID, description="Your name for the message. The same id is the same message.")]
    to: Annotated[str, Field(pattern=_NUMBER, repr=False)]
    text: Annotated[str, Field(min_length=1, max_length=640, repr=False)]


class Sms(SmsBody):
    """The job: a message and the tenant that sends it."""

    tenant: str


class SmsReceipt(View):
    """The message is recorded. It will be sent, or end with a reason. A duplicate gets the first receipt again."""

    acknowledged: Literal[True] = True
    id: str
    duplicate: bool
    received_at: Instant


class SmsView(View):
    """A message and its state."""

    id: str
    tenant: str
    to: str = Field(description="Masked.", examples=["+55***21"])
    status: Status
    attempts: int
    error: str | None
    received_at: Instant

    @classmethod
    def of(cls, entry: LedgerEntry) -> SmsView:
        """The view of a ledger entry. Its labels have all that is needed."""
        return cls(
            id=entry.labels["id"],
            tenant=entry.labels["tenant"],
            to=entry.labels["to"],
            status=entry.status,
            attempts=entry.attempt_count,
            error=entry.last_error_code,
            received_at=entry.first_seen_at,
        )


def masked(number: str) -> str:
    """A phone number for people: the country and the last two digits."""
    return f"{number[:3]}***{number[-2:]}"
