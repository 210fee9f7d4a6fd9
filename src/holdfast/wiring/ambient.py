"""The ambient of a real process: the system clock and real randomness."""

from __future__ import annotations

import random
import secrets
import time
from datetime import UTC, datetime

from holdfast.contracts.ports import Ambient


class SystemClock:
    """This machine's clock."""

    def now(self) -> datetime:
        """The current instant in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        return time.monotonic()


class RandomIds:
    """Random identifiers."""

    def new(self, prefix: str) -> str:
        """``prefix_`` and 24 hexadecimal digits."""
        return f"{prefix}_{secrets.token_hex(12)}"


def system_ambient() -> Ambient:
    """The system clock, random identifiers and random numbers."""
    return Ambient(SystemClock(), RandomIds(), random.SystemRandom())
