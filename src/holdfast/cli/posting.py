"""Talking to a running API: where it is, what it answered, and what to say when it did not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from holdfast import __version__
from holdfast.config import Settings
from holdfast.contracts.redaction import scrub

from .failures import REFUSED, Stop
from .output import print_json, say
from .tables import show_facts

_PATIENCE: Final = httpx.Timeout(30.0, connect=5.0)
_ANY_ADDRESS: Final[Mapping[str, str]] = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with, not bound


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API said."""

    status: int
    document: Any

    @property
    def accepted(self) -> bool:
        """Whether it took the document."""
        return httpx.codes.is_success(self.status)

    @property
    def code(self) -> str:
        """The refusal's code, or the bare status of an answer that has none."""
        told = self.document.get("errorCode") if isinstance(self.document, dict) else None
        return told if isinstance(told, str) else f"HTTP_{self.status}"


def base_url(given: str | None, settings: Settings | None) -> str:
    """The API's address, without a slash at its end: as given, or where this configuration would start it."""
    if given is not None:
        parts = _split(given)
        if (
            parts is None
            or parts.scheme not in {"http", "https"}
            or not parts.hostname
            or parts.query
            or parts.fragment
        ):
            message = "--url takes the address of the API, such as http://127.0.0.1:8080."
            raise Stop(message)
        return given.rstrip("/")
    if settings is None or settings.api_port == 0:
        message = "API_PORT is 0, so the API's port is known only to who started it: give its address with --url."
        raise Stop(message)
    host = _ANY_ADDRESS.get(settings.api_host, settings.api_host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.api_port}"


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the API at this address. What goes wrong on the way is told in words."""
    # A proxy is for going out; an API on this machine is not out.
    local = (urlsplit(url).hostname or "") in {"localhost", "127.0.0.1", "::1"}
    headers = {"user-agent": f"holdfast-cli/{__version__}"}
    try:
        async with httpx.AsyncClient(base_url=url, timeout=_PATIENCE, trust_env=not local, headers=headers) as client:
            yield client
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        message = f"Cannot reach {scrub(url)}: {scrub(str(error)) or 'no answer'}. Is `holdfast up` running there?"
        raise Stop(message) from error
    except httpx.TransportError as error:
        # The request may have arrived. Repeating it is safe: that is what idempotency keys are for.
        message = (
            f"No answer from {scrub(url)} ({type(error).__name__}), so nobody knows whether it was accepted. "
            "Sending the very same body again is safe."
        )
        raise Stop(message) from error
    except (httpx.InvalidURL, UnicodeError) as error:
        message = "--url takes the address of the API, such as http://127.0.0.1:8080."
        raise Stop(message) from error


async def post(client: httpx.AsyncClient, path: str, body: bytes, headers: Mapping[str, str], **query: int) -> Answer:
    """Post a JSON body."""
    sent = {"content-type": "application/json", **headers}
    response = await client.post(path, content=body, headers=sent, params=query or None)
    try:
        document = response.json()
    except ValueError:
        document = None
    return Answer(response.status_code, document)


def report(answer: Answer, url: str, *, json: bool) -> None:
    """Show an answer: a receipt on standard output, or why there is none on standard error and exit code 1."""
    if json and answer.document is not None:
        print_json(answer.document)
    elif answer.accepted and isinstance(answer.document, dict):
        show_facts({name: _shown(value) for name, value in answer.document.items() if name != "acknowledged"})
    if not answer.accepted:
        raise Stop(*_refusal(answer, url), code=REFUSED)
    if answer.document is None:
        say(f"{scrub(url)} answered {answer.status} without a receipt. Is it a Holdfast API?")


def _refusal(answer: Answer, url: str) -> list[str]:
    document = answer.document
    if not isinstance(document, dict) or "errorCode" not in document:
        return [f"{scrub(url)} answered {answer.status}, and not as Holdfast does. Is --url right?"]
    sentences = [f"Refused with {answer.status} {answer.code}: {document.get('message', '')}"]
    details = document.get("details")
    listed = details if isinstance(details, list) else ()
    sentences += [f"{each.get('field')}: {each.get('problem')}" for each in listed if isinstance(each, dict)]
    if "traceId" in document:
        sentences[0] += f" (trace id {document['traceId']})"
    return sentences


def _shown(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def _split(url: str) -> Any:  # noqa: ANN401 - a SplitResult, or None
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts
