"""Requests to a running API: its address, its answers, the errors when it does not answer; and ``submit``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import quote, urlsplit

import httpx
import typer

from holdfast import __version__
from holdfast.config import Settings
from holdfast.contracts.redaction import scrub
from holdfast.contracts.times import duration_ms

from . import options
from .failures import REFUSED, Stop
from .opening import OWN_WORKLOADS, app_of, settings_with
from .options import content, span
from .output import print_json, say, show_facts, show_table

_TIMEOUT: Final = httpx.Timeout(30.0, connect=5.0)
_MOST_DELAY_MS: Final = 31_536_000_000
_MOST_REFUSALS: Final = 10
_ANY_ADDRESS: Final[Mapping[str, str]] = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with, not bound


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the API."""

    status: int
    document: Any

    @property
    def accepted(self) -> bool:
        """Whether the API accepted the request."""
        return httpx.codes.is_success(self.status)

    @property
    def code(self) -> str:
        """The code of a refusal; the HTTP status if the answer has no code."""
        code = self.document.get("errorCode") if isinstance(self.document, dict) else None
        return code if isinstance(code, str) else f"HTTP_{self.status}"


def base_url(given: str | None, settings: Settings | None) -> str:
    """The API's address, without a slash at its end: as given, or from the settings."""
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
        message = "API_PORT is 0, so the settings do not have the API's port: give its address with --url."
        raise Stop(message)
    host = _ANY_ADDRESS.get(settings.api_host, settings.api_host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.api_port}"


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the API at this address. Network errors become :class:`Stop` with a message."""
    # No proxy for an API on this machine.
    local = (urlsplit(url).hostname or "") in {"localhost", "127.0.0.1", "::1"}
    headers = {"user-agent": f"holdfast-cli/{__version__}"}
    try:
        async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT, trust_env=not local, headers=headers) as client:
            yield client
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        message = f"Cannot reach {scrub(url)}: {scrub(str(error)) or 'no answer'}. Is `holdfast up` running there?"
        raise Stop(message) from error
    except httpx.TransportError as error:
        # The request may have arrived. Repeating it is safe: that is what idempotency keys are for.
        message = (
            f"No answer from {scrub(url)} ({type(error).__name__}), so it is not known whether it was accepted. "
            "You can send the same body again safely."
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
    """Show an answer: the receipt on standard output; or the refusal on standard error, with exit code 1."""
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


def submit(
    workload: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD", help="The workload's name. Leave it out if your app has only one.", show_default=False
        ),
    ],
    document: Annotated[
        str | None,
        typer.Argument(metavar="JSON|@FILE", help="The job, as the workload's contract has it.", show_default=False),
    ] = None,
    url: options.Url = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="OPERATOR_TOKEN",
            help="The operator token; otherwise the configured one. Others on this machine can see an option: prefer "
            "the variable or the file.",
            show_default=False,
        ),
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="How long the job waits before it starts, such as 10m.", show_default=False
        ),
    ] = None,
    delay_ms: Annotated[int | None, typer.Option(min=0, max=_MOST_DELAY_MS, hidden=True)] = None,
    priority: Annotated[
        int, typer.Option(min=0, max=2_097_152, help="A smaller number runs first; 0 is first of all.")
    ] = 0,
    app: options.App = None,
    json: options.Json = False,
) -> None:
    """Submit a job to one of your own workloads.

    The API checks it against the workload's contract. A JSON array of up to 500 jobs is sent as a batch, and each job
    has its own answer. Exit code 0: accepted; 1: refused, or at least one of the batch; 2: could not be sent.

    holdfast submit invoices '{"number": "2026-001", "customer": "ACME", "cents": 1299}'
    holdfast submit invoices @invoices.json --delay 10m
    """
    query = {"delayMs": _delay(delay, delay_ms), "priority": priority}
    if document is None:
        workload, document = _only_workload(workload, app), workload
    body = content("The body", document)
    settings = None if url is not None and token is not None else settings_with(app_of(app))
    where = base_url(url, settings)
    if token is None and settings is not None and settings.operator_token is not None:
        token = settings.operator_token.get_secret_value()
    if token is None or not token.isascii() or not token.isprintable() or " " in token:
        message = "This needs the operator token: set OPERATOR_TOKEN, or operator_token in holdfast.toml."
        raise Stop(message)
    bearer = f"Bearer {token}"

    async def posted() -> Answer:
        async with connected(where) as client:
            path = f"/v1/jobs/{quote(workload, safe='')}"
            given = {name: value for name, value in query.items() if value}
            return await post(client, path, body, {"authorization": bearer}, **given)

    answer = asyncio.run(posted())
    (_report_batch if answer.status == httpx.codes.MULTI_STATUS else report)(answer, where, json=json)


def _delay(delay: str | None, delay_ms: int | None) -> int:
    """The delay in milliseconds. ``--delay-ms`` is the older option."""
    if delay is not None and delay_ms is not None:
        message = "Give --delay or --delay-ms, not both."
        raise Stop(message)
    chosen = delay_ms or 0 if delay is None else duration_ms(span("--delay", delay))
    if chosen > _MOST_DELAY_MS:
        message = "--delay can be 365d at most."
        raise Stop(message)
    return chosen


def _report_batch(answer: Answer, url: str, *, json: bool) -> None:
    """Show the answer for each job of a batch. Exit code 1 if one of them was refused."""
    if not isinstance(answer.document, dict) or not isinstance(answer.document.get("answers"), list):
        report(Answer(answer.status, None), url, json=json)
        return
    answers = [(each["index"], each["answer"]) for each in answer.document["answers"]]
    if json:
        print_json(answer.document)
    else:
        rows = [
            (index, each.get("key"), each.get("errorCode") or ("duplicate" if each.get("duplicate") else "accepted"))
            for index, each in answers
        ]
        show_table(("#", "key", "answer"), rows)
    refused = [f"Job {index}: {each['errorCode']}: {each['message']}" for index, each in answers if "errorCode" in each]
    if refused:
        summary = f"{len(refused)} of {len(answers)} jobs were refused."
        raise Stop(summary, *refused[:_MOST_REFUSALS], code=REFUSED)


def _only_workload(document: str, app: str | None) -> str:
    """The name of the only workload of the user's app, for a job without the name of its workload."""
    own = app_of(app)
    names = [each.name for each in (own.workloads if own else ()) if each.schedule is None]
    if not document.lstrip().startswith(("{", "[", "@")):
        message = f'What is the job? holdfast submit {document} \'{{"name": "value"}}\', or @FILE.'
        raise Stop(message)
    if len(names) != 1:
        there = f"Your app has {', '.join(names)}." if names else f"No app is known here. {OWN_WORKLOADS}"
        message = f"Which workload? holdfast submit WORKLOAD JSON. {there}"
        raise Stop(message)
    return names[0]
