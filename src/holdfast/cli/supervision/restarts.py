"""How soon a process that died is started again."""

from __future__ import annotations

from typing import Final

_STEADY_SECONDS: Final = 60.0
_SHORTEST_SECONDS: Final = 0.5
_LONGEST_SECONDS: Final = 30.0


class Restarts:
    """At once the first time; then after a pause that doubles, up to half a minute, until one lives for a minute."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def pause_after(self, lived: float) -> float:
        """Seconds to wait, after a process that was ready for ``lived`` seconds."""
        self._in_a_row = 1 if lived >= _STEADY_SECONDS else self._in_a_row + 1
        if self._in_a_row == 1:
            return 0.0
        return min(_LONGEST_SECONDS, _SHORTEST_SECONDS * 2.0 ** min(self._in_a_row - 2, 16))
