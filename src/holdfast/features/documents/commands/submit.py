"""``documents submit``: send a file to a running API, and with ``--wait`` wait for its text."""

from __future__ import annotations

import asyncio
import io
import json as json_module
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote

import httpx
import typer

from holdfast import scrub
from holdfast.features.documents.feature import DOCUMENTS_PATH
from holdfast.terminal import (
    INTERRUPTED,
    REFUSED,
    Answer,
    Stop,
    base_url,
    connected,
    options,
    post,
    print_json,
    report,
    say,
    settings_with,
)

from .kinds import (
    FileKind,
    InputTypeOption,
    JobTypeOption,
    kind_of_file,
    kind_of_url,
    opened,
)
from .options import (
    Engine,
    Language,
    ReadingBar,
    Strict,
    failed,
    pages,
    print_content,
    reading_bar,
    require_language,
    say_warnings,
    sending,
)

_UPLOAD_TIMEOUT: Final = httpx.Timeout(30.0, connect=5.0, read=300.0)
"""Long, because the API answers only when a large file is durable."""
_STREAM_TIMEOUT: Final = httpx.Timeout(30.0, connect=5.0, read=60.0)
"""Longer than the time between two keep-alive lines of the stream."""
_AGAIN_AFTER: Final = 2.0
_TIMES: Final = 15
"""How often in a row a stream may fail: half a minute, enough for a restart of the gateway."""
_LAST: Final = {"COMPLETED", "FAILED", "CANCELLED"}


def submit(
    source: Annotated[
        str, typer.Argument(metavar="FILE|URL", help="A local file, or a URL to fetch it from.", show_default=False)
    ],
    key: Annotated[
        str | None,
        typer.Option(
            envvar="HOLDFAST_API_KEY",
            help="A tenant's API key. Others on this machine can see an option: prefer the variable.",
            show_default=False,
        ),
    ] = None,
    url: options.Url = None,
    job_id: Annotated[
        str | None, typer.Option(help="Your id for the job; otherwise a new one is made.", show_default=False)
    ] = None,
    job_type: JobTypeOption = None,
    input_type: InputTypeOption = None,
    language: Language = None,
    engine: Engine = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="Your own data, returned with the job; repeatable.", show_default=False
        ),
    ] = None,
    callback_url: Annotated[
        str | None, typer.Option(help="Gets a signed request when the job has ended.", show_default=False)
    ] = None,
    strict: Strict = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end, and print the text.")] = False,
    json: options.Json = False,
) -> None:
    """Submit a file to a running API.

    With --wait, the text goes to standard output; with --wait and --json, the whole result. Exit code 0: accepted (with
    --wait: read); 1: refused, or it could not be read; 2: could not be sent.

    holdfast documents submit letter.pdf --wait
    holdfast documents submit https://example.com/talk.mp3 --metadata case=42
    """
    require_language(language)
    where = base_url(url, settings_with() if url is None else None)
    remote = source.startswith(("http://", "https://"))
    kind = (kind_of_url if remote else _kind_of)(source, job_type, input_type)
    fields = {
        "job_id": job_id or f"doc-{uuid.uuid4()}",
        "job_type": kind.job_type.value,
        "input_type": kind.input_type.value,
        "language": language,
        "engine": None if engine is None else engine.value,
        "callback_url": callback_url,
        "metadata": _metadata(metadata or ()),
        "strict": True if strict else None,
    }
    request = {name: value for name, value in fields.items() if value is not None}
    headers = {"authorization": f"Bearer {_usable(key)}"}
    exchange = _post_url(where, headers, source, request) if remote else _post_file(where, headers, source, request)
    answer = asyncio.run(_with_advice(exchange, str(fields["job_id"])))
    if not wait or not answer.accepted:
        report(answer if json else _without_result(answer), where, json=json)
        return
    _wait(where, headers, answer.document, json=json)


def _kind_of(source: str, job_type: Any, input_type: Any) -> FileKind:  # noqa: ANN401 - as kind_of_file has them
    return kind_of_file(Path(source), job_type, input_type)


def _usable(key: str | None) -> str:
    if key is None or not key or not key.isascii() or not key.isprintable() or " " in key:
        message = "This needs a tenant's API key: set HOLDFAST_API_KEY. `holdfast keys create TENANT` makes one."
        raise Stop(message)
    return key


def _metadata(given: Iterable[str]) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals or name in found:
            message = "--metadata takes name=value, such as case=42, and each name once."
            raise Stop(message)
        found[name] = value
    return found or None


def _without_result(answer: Answer) -> Answer:
    """The receipt without the result of an earlier job, which is too long for a table."""
    if not isinstance(answer.document, dict):
        return answer
    return Answer(answer.status, {name: value for name, value in answer.document.items() if name != "result"})


# --- sending ----------------------------------------------------------------------------------------------------------


async def _with_advice(exchange: Any, job_id: str) -> Answer:  # noqa: ANN401 - a coroutine
    """The API's answer. If there is none, the error tells how to repeat this job."""
    try:
        answer: Answer = await exchange
    except Stop as stop:
        if isinstance(stop.__cause__, httpx.TransportError) and not isinstance(
            stop.__cause__, httpx.ConnectError | httpx.ConnectTimeout
        ):
            raise Stop(*stop.sentences, f"To repeat this job, add --job-id {job_id}.") from stop
        raise
    return answer


async def _post_url(where: str, headers: dict[str, str], source: str, request: dict[str, Any]) -> Answer:
    async with connected(where) as client:
        body = json_module.dumps({**request, "url": source}).encode(errors="surrogateescape")
        return await post(client, DOCUMENTS_PATH, body, headers)


async def _post_file(where: str, headers: dict[str, str], source: str, request: dict[str, Any]) -> Answer:
    """Post the file in pieces; it is never in memory as a whole."""
    path = Path(source)
    name = path.name.encode(errors="replace").decode()
    form = {name: value if isinstance(value, str) else json_module.dumps(value) for name, value in request.items()}
    with opened(path) as (file, size), sending(f"Sending {name}", size) as sent:
        async with connected(where) as client:
            part = (name, _Counted(file.fileno(), sent), "application/octet-stream")
            response = await client.post(
                DOCUMENTS_PATH, data=form, files={"file": part}, headers=headers, timeout=_UPLOAD_TIMEOUT
            )
    return Answer(response.status_code, _document(response))


class _Counted(io.FileIO):
    """An open file that reports how much of it was read."""

    def __init__(self, descriptor: int, on_read: Callable[[int], None]) -> None:
        super().__init__(descriptor, closefd=False)
        self._on_read = on_read

    def read(self, size: int | None = -1, /) -> bytes:
        """The next bytes."""
        found = super().read(size)
        self._on_read(self.tell())
        return found


# --- waiting ----------------------------------------------------------------------------------------------------------


def _wait(where: str, headers: dict[str, str], receipt: Any, *, json: bool) -> None:  # noqa: ANN401 - JSON
    if not isinstance(receipt, dict) or not isinstance(receipt.get("job_id"), str):
        raise _not_holdfast(where)
    job_id = receipt["job_id"]
    try:
        asyncio.run(_ended(where, headers, job_id, receipt.get("status"), json=json))
    except KeyboardInterrupt:
        say(f"The job continues: holdfast documents show {job_id}")
        raise typer.Exit(INTERRUPTED) from None


async def _ended(where: str, headers: dict[str, str], job_id: str, status: object, *, json: bool) -> None:
    path = f"{DOCUMENTS_PATH}/{quote(job_id, safe='')}"
    async with connected(where) as client:
        if status not in _LAST:
            with reading_bar() as bar:
                await _follow(client, f"{path}/events", headers, bar, where)
        whole = await client.get(f"{path}/result", headers=headers, timeout=_UPLOAD_TIMEOUT)
        result = Answer(whole.status_code, _document(whole))
        if not result.accepted:
            report(result, where, json=json)
        if not isinstance(result.document, dict):
            raise _not_holdfast(where)
        if json:
            print_json(result.document)
        match result.document:
            case {"status": "COMPLETED"}:
                say_warnings(result.document.get("warnings") or ())
            case {"error": {"message": str(message), "code": str(code), "error_type": str(error_type)}}:
                raise failed(message, code, error_type)
            case document:
                message = f"The job is {document.get('status')}."
                raise Stop(message, code=REFUSED)
        if not json:
            text = await client.get(f"{path}/text", headers=headers, timeout=_UPLOAD_TIMEOUT)
            if not text.is_success:
                report(Answer(text.status_code, _document(text)), where, json=False)
            print_content(text.content)


async def _follow(client: httpx.AsyncClient, path: str, headers: dict[str, str], bar: ReadingBar, where: str) -> None:
    """Show the events of the stream until the last one. A broken stream is opened again."""
    failures = 0
    while failures < _TIMES:
        try:
            async with client.stream("GET", path, headers=headers, timeout=_STREAM_TIMEOUT) as response:
                if response.status_code < httpx.codes.INTERNAL_SERVER_ERROR and not response.is_success:
                    await response.aread()
                    report(Answer(response.status_code, _document(response)), where, json=False)
                async for name, view in _events(response):
                    failures = 0
                    if name == "end":
                        return
                    _show(bar, view)
        except httpx.TransportError:
            bar.stage("waiting for the API")
        failures += 1
        await asyncio.sleep(_AGAIN_AFTER)
    message = "The API no longer answers; the job continues. `holdfast documents show` shows its result."
    raise Stop(message)


async def _events(response: httpx.Response) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """The server-sent events: a name and one JSON object each."""
    name = ""
    async for line in response.aiter_lines():
        field, _, value = line.partition(":")
        if field == "event":
            name = value.strip()
        elif field == "data":
            try:
                view = json_module.loads(value)
            except ValueError:
                continue
            if isinstance(view, dict):
                yield name, view


def _show(bar: ReadingBar, view: dict[str, Any]) -> None:
    """Show the stage and the progress: in pages, or in percent of a recording."""
    status = str(view.get("status"))
    bar.stage(str(view.get("stage") or status) if status == "PROCESSING" else status.lower())
    done, total = view.get("pages_done"), view.get("pages")
    if isinstance(done, int) and isinstance(total, int):
        bar.reached(done, total, pages(done, total))
    elif isinstance(view.get("progress"), int | float) and view.get("unit"):
        bar.reached(view["progress"], 100, f"{view['progress']:.0f} %")


def _document(response: httpx.Response) -> Any:  # noqa: ANN401 - JSON
    try:
        return response.json()
    except ValueError:
        return None


def _not_holdfast(where: str) -> Stop:
    return Stop(f"{scrub(where)} answered, and not as Holdfast does. Is --url right?", code=REFUSED)
