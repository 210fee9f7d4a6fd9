"""The pause before a process that ended is started again."""

from __future__ import annotations

from typing import Final

_STEADY_SECONDS: Final = 60.0
_SHORTEST_SECONDS: Final = 0.5
_LONGEST_SECONDS: Final = 30.0


class Restarts:
    """No pause the first time. Then the pause doubles, up to half a minute, until a process runs for a minute."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def pause_after(self, ready_for: float) -> float:
        """Seconds to wait, after a process that was ready for ``ready_for`` seconds."""
        self._in_a_row = 1 if ready_for >= _STEADY_SECONDS else self._in_a_row + 1
        if self._in_a_row == 1:
            return 0.0
        return min(_LONGEST_SECONDS, _SHORTEST_SECONDS * 2.0 ** min(self._in_a_row - 2, 16))
