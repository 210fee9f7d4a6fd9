"""For code that talks to other servers: names of failures, what an answer means, and signed webhooks. Public.

It loads no HTTP client: use the one that you like.
"""

from __future__ import annotations

from holdfast.contracts.network_failures import (
    LONGEST_RETRY_AFTER,
    NETWORK,
    REFUSED,
    RESET,
    THROTTLED,
    TIMEOUT,
    TLS_FAILED,
    UNKNOWN_HOST,
    answer_code,
    answer_may_pass,
    network_code,
    retry_after,
    wait_asked_by,
)
from holdfast.webhooks import SECRET_PREFIX, signed_headers, signing_key

__all__ = [
    "LONGEST_RETRY_AFTER",
    "NETWORK",
    "REFUSED",
    "RESET",
    "SECRET_PREFIX",
    "THROTTLED",
    "TIMEOUT",
    "TLS_FAILED",
    "UNKNOWN_HOST",
    "answer_code",
    "answer_may_pass",
    "network_code",
    "retry_after",
    "signed_headers",
    "signing_key",
    "wait_asked_by",
]
