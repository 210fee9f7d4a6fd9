"""``documents submit``: hand a file in at a running API, and wait for its text if that is wanted."""

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

from holdfast.api.documents import DOCUMENTS_PATH
from holdfast.contracts.redaction import scrub

from . import options
from .document_kinds import FileKind, InputTypeOption, JobTypeOption, kind_of_file, kind_of_url, opened
from .document_options import Engine, Language, Strict, failed, print_content, require_language, say_warnings
from .document_progress import Course, course, pages, sending
from .failures import INTERRUPTED, REFUSED, Stop
from .output import print_json, say
from .posting import Answer, base_url, connected, post, report
from .settings import settings_with

_UPLOAD_PATIENCE: Final = httpx.Timeout(30.0, connect=5.0, read=300.0)
"""What arrived has to be durable before there is an answer, and a large file takes its time."""
_LISTENING_PATIENCE: Final = httpx.Timeout(30.0, connect=5.0, read=60.0)
"""A stream that has nothing to tell says so more often than that."""
_AGAIN_AFTER: Final = 2.0
_TIMES: Final = 15
"""So often in a row a stream may fail before it is given up: half a minute, in which a gateway restarts."""
_LAST: Final = {"COMPLETED", "FAILED", "CANCELLED"}


def submit(
    source: Annotated[
        str, typer.Argument(metavar="FILE|URL", help="A file here, or where one can be fetched.", show_default=False)
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
        str | None, typer.Option(help="Your name for the job; made if left out.", show_default=False)
    ] = None,
    job_type: JobTypeOption = None,
    input_type: InputTypeOption = None,
    language: Language = None,
    engine: Engine = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Yours, given back with the job; repeatable.", show_default=False),
    ] = None,
    callback_url: Annotated[
        str | None, typer.Option(help="Called when the job has ended, signed.", show_default=False)
    ] = None,
    strict: Strict = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end, and print the text.")] = False,
    json: options.Json = False,
) -> None:
    """Hand a file in at a running API.

    With --wait, its text goes to standard output; with --json too, the whole result. Exit code 0: accepted (or read,
    with --wait); 1: refused, or it could not be read; 2: could not be sent.

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
    sending_it = _post_url(where, headers, source, request) if remote else _post_file(where, headers, source, request)
    answer = asyncio.run(_told_apart(sending_it, str(fields["job_id"])))
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
    """A receipt in lines has no room for the result of an earlier job."""
    if not isinstance(answer.document, dict):
        return answer
    return Answer(answer.status, {name: value for name, value in answer.document.items() if name != "result"})


# --- sending ----------------------------------------------------------------------------------------------------------


async def _told_apart(exchange: Any, job_id: str) -> Answer:  # noqa: ANN401 - a coroutine
    """What the API answers. Where it does not, how to repeat this very job."""
    try:
        answer: Answer = await exchange
    except Stop as stop:
        if isinstance(stop.__cause__, httpx.TransportError) and not isinstance(
            stop.__cause__, httpx.ConnectError | httpx.ConnectTimeout
        ):
            raise Stop(*stop.sentences, f"It is the very same with --job-id {job_id}.") from stop
        raise
    return answer


async def _post_url(where: str, headers: dict[str, str], source: str, request: dict[str, Any]) -> Answer:
    async with connected(where) as client:
        body = json_module.dumps({**request, "url": source}).encode(errors="surrogateescape")
        return await post(client, DOCUMENTS_PATH, body, headers)


async def _post_file(where: str, headers: dict[str, str], source: str, request: dict[str, Any]) -> Answer:
    """The file goes as it is read, and is never in memory as a whole."""
    path = Path(source)
    name = path.name.encode(errors="replace").decode()
    form = {name: value if isinstance(value, str) else json_module.dumps(value) for name, value in request.items()}
    with opened(path) as (file, size), sending(f"Sending {name}", size) as sent:
        async with connected(where) as client:
            part = (name, _Counted(file.fileno(), sent), "application/octet-stream")
            response = await client.post(
                DOCUMENTS_PATH, data=form, files={"file": part}, headers=headers, timeout=_UPLOAD_PATIENCE
            )
    return Answer(response.status_code, _document(response))


class _Counted(io.FileIO):
    """An open file that tells how much of it was read."""

    def __init__(self, descriptor: int, told: Callable[[int], None]) -> None:
        super().__init__(descriptor, closefd=False)
        self._told = told

    def read(self, size: int | None = -1, /) -> bytes:
        """The next bytes."""
        found = super().read(size)
        self._told(self.tell())
        return found


# --- waiting ----------------------------------------------------------------------------------------------------------


def _wait(where: str, headers: dict[str, str], receipt: Any, *, json: bool) -> None:  # noqa: ANN401 - JSON
    if not isinstance(receipt, dict) or not isinstance(receipt.get("job_id"), str):
        raise _not_holdfast(where)
    job_id = receipt["job_id"]
    try:
        asyncio.run(_ended(where, headers, job_id, receipt.get("status"), json=json))
    except KeyboardInterrupt:
        say(f"The job goes on: holdfast documents show {job_id}")
        raise typer.Exit(INTERRUPTED) from None


async def _ended(where: str, headers: dict[str, str], job_id: str, status: object, *, json: bool) -> None:
    path = f"{DOCUMENTS_PATH}/{quote(job_id, safe='')}"
    async with connected(where) as client:
        if status not in _LAST:
            with course() as bar:
                await _follow(client, f"{path}/events", headers, bar, where)
        whole = await client.get(f"{path}/result", headers=headers, timeout=_UPLOAD_PATIENCE)
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
            text = await client.get(f"{path}/text", headers=headers, timeout=_UPLOAD_PATIENCE)
            if not text.is_success:
                report(Answer(text.status_code, _document(text)), where, json=False)
            print_content(text.content)


async def _follow(client: httpx.AsyncClient, path: str, headers: dict[str, str], bar: Course, where: str) -> None:
    """Show what the stream tells, to its end. One that breaks off is opened again."""
    failures = 0
    while failures < _TIMES:
        try:
            async with client.stream("GET", path, headers=headers, timeout=_LISTENING_PATIENCE) as response:
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
    message = "The API does not answer any more; the job goes on without it. `holdfast documents show` tells its end."
    raise Stop(message)


async def _events(response: httpx.Response) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Server-sent events of one line of JSON each."""
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


def _show(bar: Course, view: dict[str, Any]) -> None:
    """The stage, and how far it is: in pages, or in percent of a recording."""
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
