"""Mail by Amazon SES (SESv2, raw messages).

Every request is made once: the library's own retries could send a message twice. A failure before the request was
written is safe to try again. After that, only an answer that names a refusal is proof that nothing was sent; a server
error, a lost connection or silence is not.
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

from .port import Accepted, AccountBlocked, OutcomeUnknown, OutgoingMessage, Refused, TransportError, TryLater, quoted

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

LONGEST_RETRY_AFTER: Final = timedelta(hours=1)

# The answers that SES has a name for: the message's fault, or the account's.
_ANSWERS: Final[dict[str, tuple[type[Refused | AccountBlocked], str]]] = {
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
_NOT_NOW: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.SERVICE_UNAVAILABLE})
# An idle connection that the other side closes just as we write would leave an outcome unknown. Ours are closed first.
_KEEP_ALIVE_SECONDS: Final = 4
_TAG_VALUE: Final = re.compile(r"[^A-Za-z0-9_.@-]")
_LONGEST_TAG: Final = 256


@dataclass(frozen=True, slots=True)
class SesOptions:
    """Where SES is. Credentials come from where AWS programs look for them.

    ``read_timeout`` is long: giving up leaves a message that may have been sent.
    """

    region: str
    endpoint_url: str | None = None
    configuration_set: str | None = None
    connect_timeout: timedelta = timedelta(seconds=10)
    read_timeout: timedelta = timedelta(minutes=1)
    connections: int = 10


class SesTransport:
    """Sends raw messages through one client for the whole process."""

    name = "ses"

    def __init__(self, options: SesOptions) -> None:
        self._options = options
        self._resources = AsyncExitStack()
        self._client: Any = None

    async def open(self) -> None:
        """Make the client. Connections are opened by the messages that need them."""
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
        """Hand the message to SES. Its answer is for all recipients."""
        try:
            answer = await self._opened().send_email(**self._request(outgoing))
        except ClientError as error:
            raise _error_of(error, outgoing) from None
        except (BotoCoreError, ResponseParserError) as error:
            raise _failure(error) from None
        if not answer.get("MessageId"):
            # SES names every message that it takes. Whoever said yes without a name may not have been SES.
            message = "The answer does not name the message, as SES does."
            raise OutcomeUnknown(BAD_ANSWER, message)
        return Accepted(str(answer["MessageId"]))

    async def check(self) -> None:
        """SES answers, knows us, and lets this account send."""
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
            # The message's own headers say who sees whom. Here SES only learns where it goes.
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
    """The tag in the letters that SES allows, with ``_`` for every other."""
    return _TAG_VALUE.sub("_", tag)[:_LONGEST_TAG]


def _error_of(error: Any, outgoing: OutgoingMessage | None) -> TransportError:  # noqa: ANN401 - botocore has no types
    """What an error answer means."""
    name = str(error.response.get("Error", {}).get("Code", ""))
    metadata = error.response.get("ResponseMetadata", {})
    status = int(metadata.get("HTTPStatusCode", 0))
    said = f"SES answered {name or status}: {quoted(str(error.response.get('Error', {}).get('Message', '')), outgoing)}"
    throttled = name.startswith(("TooManyRequests", "Throttl")) or status == HTTPStatus.TOO_MANY_REQUESTS
    # These are said instead of taking the request. Other server errors may come after the message was taken.
    if throttled or status in _NOT_NOW:
        after = _retry_after(metadata.get("HTTPHeaders", {}).get("retry-after"))
        return TryLater(THROTTLED if throttled else UNAVAILABLE, said, after)
    if name in _ANSWERS:
        kind, code = _ANSWERS[name]
        return kind(code, said)
    if status in _ACCOUNT_STATUSES:
        return AccountBlocked(ACCESS_DENIED, said)
    if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return Refused(BAD_REQUEST, said)
    return OutcomeUnknown(f"SES_{status}" if status else NO_ANSWER, said)


def _failure(error: Exception) -> TransportError:
    """What it means that there was no answer. The library's words may hold the request, so they are not repeated."""
    match error:
        case HTTPClientError() | IncompleteReadError() | ResponseParserError():
            return OutcomeUnknown(NO_ANSWER, "SES did not say whether it took the message.")
        case EndpointConnectionError() if _broke_off(error):
            return OutcomeUnknown(NO_ANSWER, "The connection to SES broke while the message was under way.")
        case ParamValidationError():
            return Refused(BAD_REQUEST, "The message does not fit into a request to SES.")
        case NoCredentialsError() | PartialCredentialsError() | CredentialRetrievalError():
            return AccountBlocked(NO_CREDENTIALS, "There are no usable AWS credentials.")
        case NotConnected():
            return TryLater(CONNECT, f"SES cannot be reached ({type(error).__name__}).")
        case _:
            return TryLater(CLIENT_FAILED, f"The request to SES could not be made ({type(error).__name__}).")


def _broke_off(error: Any) -> bool:  # noqa: ANN401 - botocore has no types
    """Whether there was a connection. aiobotocore has one name for "not connected" and for "reset in the middle"."""
    return not isinstance(error.kwargs.get("error"), aiohttp.ClientConnectorError | socket.gaierror)


def _retry_after(header: object) -> timedelta | None:
    """The wait that SES asks for, at most an hour; None when it says nothing readable."""
    text = str(header or "").strip()
    if not re.fullmatch(r"[0-9]{1,9}", text):
        return None
    return min(timedelta(seconds=int(text)), LONGEST_RETRY_AFTER)
