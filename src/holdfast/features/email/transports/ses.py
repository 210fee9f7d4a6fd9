"""Mail by Amazon SES (SESv2, raw messages).

Every request is made once: the library's own retries could send a message twice. If the request fails before it was
written, a retry is safe. After that, only an answer with a known refusal proves that nothing was sent. A server error,
a lost connection or a missing answer proves nothing.
"""

from __future__ import annotations

import re
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Any, Final

import aiohttp
from aiobotocore.config import AioConfig  # type: ignore[import-untyped]
from aiobotocore.session import get_session  # type: ignore[import-untyped]
from botocore.exceptions import (  # type: ignore[import-untyped]
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
)
from botocore.exceptions import ConnectionError as NotConnected
from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]

from .port import (
    ANSWER_TIMEOUT,
    Accepted,
    AccountBlocked,
    OutcomeUnknown,
    OutgoingMessage,
    Refused,
    TransportError,
    TryLater,
    quoted,
)

CONNECT: Final = "SES_CONNECT"
NO_ANSWER: Final = "SES_NO_ANSWER"
BAD_ANSWER: Final = "SES_BAD_ANSWER"
NO_CREDENTIALS: Final = "SES_NO_CREDENTIALS"
CLIENT_FAILED: Final = "SES_CLIENT_FAILED"
BAD_REQUEST: Final = "SES_BAD_REQUEST"
THROTTLED: Final = "SES_THROTTLED"
UNAVAILABLE: Final = "SES_UNAVAILABLE"
ACCESS_DENIED: Final = "SES_ACCESS_DENIED"
SENDING_PAUSED: Final = "SES_SENDING_PAUSED"

MAX_RETRY_AFTER: Final = timedelta(hours=1)

# The errors of SES that have a name. The message is at fault, or the account is.
_NAMED_ERRORS: Final[dict[str, tuple[type[Refused | AccountBlocked], str]]] = {
    "MessageRejected": (Refused, "SES_MESSAGE_REJECTED"),
    "BadRequestException": (Refused, BAD_REQUEST),
    "NotFoundException": (Refused, "SES_NOT_FOUND"),
    "MailFromDomainNotVerifiedException": (Refused, "SES_MAIL_FROM_DOMAIN_NOT_VERIFIED"),
    "AccountSuspendedException": (AccountBlocked, "SES_ACCOUNT_SUSPENDED"),
    "SendingPausedException": (AccountBlocked, SENDING_PAUSED),
    "LimitExceededException": (AccountBlocked, "SES_LIMIT_EXCEEDED"),
    "ExpiredTokenException": (AccountBlocked, ACCESS_DENIED),
    "UnrecognizedClientException": (AccountBlocked, ACCESS_DENIED),
    "InvalidClientTokenId": (AccountBlocked, ACCESS_DENIED),
}
_ACCOUNT_STATUSES: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_UNAVAILABLE_STATUSES: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.SERVICE_UNAVAILABLE})
# If SES closed an idle connection while we write, the outcome would be unknown. So we close idle connections first.
_KEEP_ALIVE_SECONDS: Final = 4
_TAG_VALUE: Final = re.compile(r"[^A-Za-z0-9_.@-]")
_MAX_TAG: Final = 256


@dataclass(frozen=True, slots=True)
class SesOptions:
    """The address of SES. Credentials come from the usual places of AWS programs.

    ``read_timeout`` is long: after a timeout, it is not known whether the message was sent.
    """

    region: str
    endpoint_url: str | None = None
    configuration_set: str | None = None
    connect_timeout: timedelta = ANSWER_TIMEOUT
    read_timeout: timedelta = ANSWER_TIMEOUT * 2
    connections: int = 10


class SesTransport:
    """Sends raw messages through one client for the whole process."""

    name = "ses"

    def __init__(self, options: SesOptions) -> None:
        self._options = options
        self._resources = AsyncExitStack()
        self._client: Any = None

    async def open(self) -> None:
        """Make the client. Connections are opened when a message needs one."""
        options = self._options
        config = AioConfig(
            retries={"total_max_attempts": 1},
            connect_timeout=options.connect_timeout.total_seconds(),
            read_timeout=options.read_timeout.total_seconds(),
            max_pool_connections=options.connections,
            connector_args={"keepalive_timeout": _KEEP_ALIVE_SECONDS},
        )
        self._client = await self._resources.enter_async_context(
            get_session().create_client(
                "sesv2", region_name=options.region, endpoint_url=options.endpoint_url, config=config
            )
        )

    async def close(self) -> None:
        """Close all connections."""
        self._client = None
        await self._resources.aclose()

    async def send(self, outgoing: OutgoingMessage) -> Accepted:
        """Send the message to SES. The answer is for all recipients."""
        try:
            answer = await self._opened().send_email(**self._request(outgoing))
        except ClientError as error:
            raise _error_of(error, outgoing) from None
        except (BotoCoreError, ResponseParserError) as error:
            raise _failure(error) from None
        if not answer.get("MessageId"):
            # SES gives an id to every message that it accepts. An answer without an id may come from another server.
            message = "The answer has no message id, so it may not be from SES."
            raise OutcomeUnknown(BAD_ANSWER, message)
        return Accepted(str(answer["MessageId"]))

    async def check(self) -> None:
        """Check that SES answers, accepts our credentials, and lets this account send."""
        try:
            account = await self._opened().get_account()
        except ClientError as error:
            raise _error_of(error, None) from None
        except (BotoCoreError, ResponseParserError) as error:
            raise _failure(error) from None
        if not account.get("SendingEnabled", True):
            message = "Sending is switched off for this SES account."
            raise AccountBlocked(SENDING_PAUSED, message)

    def _opened(self) -> Any:  # noqa: ANN401 - botocore makes its clients at run time; they have no type
        if self._client is None:
            message = "SesTransport.open() has not been called."
            raise RuntimeError(message)
        return self._client

    def _request(self, outgoing: OutgoingMessage) -> dict[str, Any]:
        request: dict[str, Any] = {
            "FromEmailAddress": outgoing.sender,
            # The headers of the message are already complete. These addresses are the envelope only.
            "Destination": {"ToAddresses": list(outgoing.recipients)},
            "Content": {"Raw": {"Data": outgoing.raw}},
        }
        if outgoing.tags:
            request["EmailTags"] = [
                {"Name": f"tag{number}", "Value": tag_value(tag)} for number, tag in enumerate(outgoing.tags, 1)
            ]
        if self._options.configuration_set:
            request["ConfigurationSetName"] = self._options.configuration_set
        return request


def tag_value(tag: str) -> str:
    """The tag with the characters that SES allows; every other character becomes ``_``."""
    return _TAG_VALUE.sub("_", tag)[:_MAX_TAG]


def _error_of(error: Any, outgoing: OutgoingMessage | None) -> TransportError:  # noqa: ANN401 - botocore has no types
    """The transport error for an error answer."""
    name = str(error.response.get("Error", {}).get("Code", ""))
    metadata = error.response.get("ResponseMetadata", {})
    status = int(metadata.get("HTTPStatusCode", 0))
    message = (
        f"SES answered {name or status}: {quoted(str(error.response.get('Error', {}).get('Message', '')), outgoing)}"
    )
    throttled = name.startswith(("TooManyRequests", "Throttl")) or status == HTTPStatus.TOO_MANY_REQUESTS
    # With these answers, SES has not accepted the request. Other server errors may come after SES accepted the message.
    if throttled or status in _UNAVAILABLE_STATUSES:
        after = _retry_after(metadata.get("HTTPHeaders", {}).get("retry-after"))
        return TryLater(THROTTLED if throttled else UNAVAILABLE, message, after)
    if name in _NAMED_ERRORS:
        kind, code = _NAMED_ERRORS[name]
        return kind(code, message)
    if status in _ACCOUNT_STATUSES:
        return AccountBlocked(ACCESS_DENIED, message)
    if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return Refused(BAD_REQUEST, message)
    return OutcomeUnknown(f"SES_{status}" if status else NO_ANSWER, message)


def _failure(error: Exception) -> TransportError:
    """The transport error for a missing answer. The library's text may contain the request, so it is not repeated."""
    match error:
        case HTTPClientError() | IncompleteReadError() | ResponseParserError():
            return OutcomeUnknown(NO_ANSWER, "SES did not say whether it took the message.")
        case EndpointConnectionError() if _was_connected(error):
            return OutcomeUnknown(NO_ANSWER, "The connection to SES broke while the message was under way.")
        case ParamValidationError():
            return Refused(BAD_REQUEST, "The message does not fit into a request to SES.")
        case NoCredentialsError() | PartialCredentialsError() | CredentialRetrievalError():
            return AccountBlocked(NO_CREDENTIALS, "There are no usable AWS credentials.")
        case NotConnected():
            return TryLater(CONNECT, f"SES cannot be reached ({type(error).__name__}).")
        case _:
            return TryLater(CLIENT_FAILED, f"The request to SES could not be made ({type(error).__name__}).")


def _was_connected(error: Any) -> bool:  # noqa: ANN401 - botocore has no types
    """Whether there was a connection. aiobotocore has one error for "not connected" and for "reset in the middle"."""
    return not isinstance(error.kwargs.get("error"), aiohttp.ClientConnectorError | socket.gaierror)


def _retry_after(header: object) -> timedelta | None:
    """The wait that SES requires, at most an hour; None if the header is missing or not readable."""
    text = str(header or "").strip()
    if not re.fullmatch(r"[0-9]{1,9}", text):
        return None
    return min(timedelta(seconds=int(text)), MAX_RETRY_AFTER)
