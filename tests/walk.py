"""``python -m tests.walk``: which of our functions one courier event passes, from the socket until it is settled.

A gateway runs in this process: the API on a real socket, the worker, maintenance. First nothing happens, and the walk
notes which functions run nevertheless. Then one event arrives. What runs only now is what the event passes.

Comprehensions and lambdas count as part of the function that they stand in.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import holdfast
from holdfast import wiring
from holdfast.cli.servers import ServerMissing, ServerPair
from holdfast.contracts.times import isoformat
from holdfast.features.courier.signatures import sign
from tests.support.settings import Settings

_OURS: Final = Path(holdfast.__file__).parent
_PREFIX: Final = f"{_OURS}{os.sep}"
_SOURCE, _SECRET, _TOKEN = "courier-walk", "the secret of the event that walks", "the-token-of-whoever-watches"
_QUIET_SECONDS: Final = 2
"""Longer than every interval of an idle gateway with the settings below: then all that runs by itself has run."""
_PATIENCE_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class Function:
    """One function of ours. ``thin``: its body is one call, so it only passes on."""

    file: str
    line: int
    name: str
    thin: bool


class Recorder:
    """Notes which functions are entered or resumed, in every thread that starts after :meth:`listening` began."""

    def __init__(self) -> None:
        self._noted: dict[CodeType, None] = {}

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_PREFIX):
            self._noted[frame.f_code] = None

    def forget(self) -> None:
        self._noted = {}

    async def until_nothing_is_new(self) -> list[Function]:
        """The functions since the last :meth:`forget`, in the order of their first run."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        count = -1
        while count != len(self._noted) and time.monotonic() < deadline:
            count = len(self._noted)
            await asyncio.sleep(_QUIET_SECONDS)
        return list(dict.fromkeys(function_of(code) for code in list(self._noted)))


def function_of(code: CodeType) -> Function:
    """The function that this code belongs to."""
    name = ".".join(part for part in code.co_qualname.split(".") if not part.startswith("<")) or code.co_qualname
    node = _functions_in(code.co_filename).get(name)
    file = str(Path(code.co_filename).relative_to(_OURS))
    return Function(file, node.lineno if node else code.co_firstlineno, name, thin=node is not None and _is_thin(node))


@cache
def _functions_in(file: str) -> dict[str, ast.AsyncFunctionDef | ast.FunctionDef]:
    found: dict[str, ast.AsyncFunctionDef | ast.FunctionDef] = {}

    def visit(node: ast.AST, path: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.AsyncFunctionDef | ast.FunctionDef | ast.ClassDef):
                inside = (*path, child.name)
                if not isinstance(child, ast.ClassDef):
                    found[".".join(inside)] = child
                visit(child, inside)
            else:
                visit(child, path)

    visit(ast.parse(Path(file).read_text()), ())
    return found


def _is_thin(node: ast.AsyncFunctionDef | ast.FunctionDef) -> bool:
    """Whether the body is one call, apart from the docstring."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    match body:
        case [ast.Return(value=ast.Call() | ast.Await(value=ast.Call()))]:
            pass
        case [ast.Expr(value=ast.Call() | ast.Await(value=ast.Call()))]:
            pass
        case _:
            return False
    return sum(isinstance(each, ast.Call) for each in ast.walk(body[0])) == 1


# --- the gateway ------------------------------------------------------------------------------------------------------


def settings_of(folder: Path, servers: ServerPair | None) -> Settings:
    """As shipped, except that what happens by itself happens often."""
    cluster = {"redis_url": servers.redis_url, "mongo_uri": servers.mongo_uri} if servers else {}
    return Settings(
        holdfast_data=folder,
        api_port=0,
        courier_secrets={_SOURCE: [_SECRET]},
        operator_token=_TOKEN,
        worker_lease_seconds=5,
        upkeep_interval_ms=200,
        log_format="json",
        **cluster,
    )


@contextlib.asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[str]:
    """``holdfast up`` in this process; gives its address."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    lifeline, ours = os.pipe()
    gateway = asyncio.create_task(
        wiring.run(settings, api=True, worker=True, ready=ready.set_result, lifeline=lifeline),
    )
    try:
        await asyncio.wait({gateway, ready}, return_when=asyncio.FIRST_COMPLETED)
        if gateway.done():
            await gateway
        yield ready.result()
    finally:
        os.close(ours)
        await gateway
        os.close(lifeline)


def signed_event() -> tuple[bytes, dict[str, str]]:
    """An event and its headers."""
    now = datetime.now(UTC)
    body = json.dumps(
        {
            "eventId": "evt_walk",
            "eventType": "shipment.status.updated",
            "occurredAt": isoformat(now),
            "source": _SOURCE,
            "payload": {"shipmentId": "shp_walk", "orderId": "ord_walk", "status": "delivered"},
        }
    ).encode()
    timestamp = int(now.timestamp())
    return body, {
        "content-type": "application/json",
        "x-signature": sign(_SECRET, timestamp, body),
        "x-signature-timestamp": str(timestamp),
        "x-signature-algorithm": "hmac-sha256",
    }


async def call(address: str, body: bytes | None, headers: dict[str, str]) -> dict[str, Any]:
    """Send one request, and read its answer."""

    def send() -> dict[str, Any]:
        request = urllib.request.Request(address, body, headers)  # noqa: S310 - our own address
        with urllib.request.urlopen(request) as answer:  # noqa: S310 - likewise
            return json.load(answer)

    return await asyncio.to_thread(send)


async def walk(folder: Path, servers: ServerPair | None = None) -> list[Function]:
    """The functions that one event passes and an idle gateway does not, in the order in which it passes them."""
    recorder = Recorder()
    with recorder.listening():
        async with running(settings_of(folder, servers)) as address:
            recorder.forget()  # opening the gateway is neither idle nor the event
            idle = frozenset(await recorder.until_nothing_is_new())
            body, headers = signed_event()
            recorder.forget()
            await call(f"{address}/v1/events/courier", body, headers)
            passed = await recorder.until_nothing_is_new()
            operator = {"authorization": f"Bearer {_TOKEN}"}
            event = await call(f"{address}/v1/events/{_SOURCE}:evt_walk", None, operator)
    if event["status"] != "processed":
        message = f"The event is {event['status']}, not processed."
        raise RuntimeError(message)
    return [each for each in passed if each not in idle]


# --- the report -------------------------------------------------------------------------------------------------------


def as_text(functions: Sequence[Function]) -> str:
    """A table: each file where the event comes first, with the functions that it passes there."""
    files = list(dict.fromkeys(each.file for each in functions))
    width = max(map(len, files))
    lines = []
    for file, group in groupby(sorted(functions, key=lambda each: files.index(each.file)), lambda each: each.file):
        names = [f"{each.name}{'*' if each.thin else ''}" for each in group]
        lines += [f"{file if first == 0 else '':{width}}  {name}" for first, name in enumerate(names)]
    thin = sum(each.thin for each in functions)
    return "\n".join(
        [
            *lines,
            "",
            f"{len(functions)} functions in {len(files)} files",
            f"{thin} of them (*) consist of one call",
        ]
    )


def as_json(functions: Sequence[Function]) -> str:
    """The same for a program."""
    return json.dumps(
        {
            "functions": len(functions),
            "files": len({each.file for each in functions}),
            "passed": [
                {"file": each.file, "line": each.line, "name": each.name, "thin": each.thin} for each in functions
            ],
        },
        indent=2,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.walk", description=__doc__.partition("\n")[0])
    parser.add_argument("--cluster", action="store_true", help="on a Valkey and a mongod instead of SQLite")
    parser.add_argument("--json", action="store_true", help="print JSON, with the line of each function")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        servers = ServerPair(folder / "servers") if chosen.cluster else None
        try:
            if servers:
                servers.start()
            functions = asyncio.run(walk(folder / "data", servers))
        except ServerMissing as error:
            print(error, file=sys.stderr)
            return 2
        finally:
            if servers:
                servers.stop()
    print((as_json if chosen.json else as_text)(functions))
    return 0


if __name__ == "__main__":
    sys.exit(main())
