"""``/openapi.json`` and ``/docs``: made once, kept, and sent compressed to those who accept that.

Neither needs a token, so neither may cost much. Making them takes a tenth of a second: it is done for the first reader,
in a thread. A reader who has the current text already is told so (``ETag``).
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.responses import Response

from .docs_page import CONTENT_SECURITY_POLICY, render
from .routes import JSON_TYPE

_PAGE_HEADERS: Final = {"content-security-policy": CONTENT_SECURITY_POLICY, "referrer-policy": "no-referrer"}


@dataclass(frozen=True, slots=True)
class _Kept:
    plain: bytes
    zipped: bytes = field(init=False)
    tag: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "zipped", gzip.compress(self.plain, mtime=0))
        object.__setattr__(self, "tag", sha256(self.plain).hexdigest()[:32])


def add_documentation(rest: FastAPI, describe: Callable[[], dict[str, Any]]) -> None:
    """Add the two routes. ``describe`` makes the OpenAPI document."""
    made: dict[str, _Kept] = {}
    making = asyncio.Lock()

    def make() -> None:
        document = describe()
        made["openapi"] = _Kept(json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode())
        made["page"] = _Kept(render(document).encode())

    async def kept(name: str) -> _Kept:
        async with making:
            if not made:
                await asyncio.to_thread(make)
        return made[name]

    @rest.get("/openapi.json", include_in_schema=False)
    async def openapi(request: Request) -> Response:
        return _answer(request, await kept("openapi"), JSON_TYPE, {})

    @rest.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return _answer(request, await kept("page"), "text/html; charset=utf-8", _PAGE_HEADERS)


def _answer(request: Request, kept: _Kept, media_type: str, headers: dict[str, str]) -> Response:
    zipped = _accepts_gzip(request.headers.get("accept-encoding", ""))
    tag = f'"{kept.tag}-gzip"' if zipped else f'"{kept.tag}"'  # the bytes differ, so the tags do
    headers = {**headers, "etag": tag, "vary": "accept-encoding", "cache-control": "no-cache"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if zipped:
        headers["content-encoding"] = "gzip"
    return Response(kept.zipped if zipped else kept.plain, headers=headers, media_type=media_type)


def _accepts_gzip(accepted: str) -> bool:
    for each in accepted.split(","):
        name, _, weight = each.partition(";")
        if name.strip().lower() == "gzip":
            return weight.replace(" ", "").lower() not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False
