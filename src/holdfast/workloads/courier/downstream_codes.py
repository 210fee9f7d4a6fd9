"""What can go wrong with a downstream, by the names that a ledger entry shows.

They stand apart from the client so that whoever only reads entries need not load one.
"""

from __future__ import annotations

from typing import Final

TIMEOUT: Final = "TIMEOUT"
THROTTLED: Final = "THROTTLED"
REFUSED: Final = "ECONNREFUSED"
RESET: Final = "ECONNRESET"
UNKNOWN_HOST: Final = "ENOTFOUND"
TLS_FAILED: Final = "TLS_FAILED"
NETWORK: Final = "NETWORK"
