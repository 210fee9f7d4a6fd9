"""``/openapi.json`` and ``/docs``: made once, kept, and sent compressed to those who accept that.

Neither needs a token, so neither may cost much. Making them takes a tenth of a second: it is done for the first reader,
in a thread. A reader who has the current text already is told so (``ETag``).

``/docs`` is the OpenAPI document as one plain page. The page is rendered here and loads nothing: no script, no font, no
CDN. Many installations cannot reach the internet, and a page that loads nothing can have the strictest
Content-Security-Policy.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from html import escape
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.responses import Response

from .routes import JSON_TYPE

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2733; --soft: #5b6876; --line: #d9dfe6; --paper: #fff; --tint: #f4f6f8;
  --get: #0b6e4f; --post: #1450a3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e8ee; --soft: #9aa7b4; --line: #334150; --paper: #121920;
  --tint: #1b242e; --get: #4cc79a; --post: #7db2f7; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 2rem 1.25rem 6rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; }
h1 small { color: var(--soft); font-size: 1rem; font-weight: 400; }
h2 { margin-top: 3rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); text-transform: capitalize; }
nav a { display: inline-block; margin: 0 1rem .3rem 0; text-transform: capitalize; }
nav a.file { text-transform: none; }
a { color: var(--post); }
article { margin: 1rem 0; padding: .25rem 1.1rem .75rem; border: 1px solid var(--line); border-radius: .5rem; }
article h3 { margin: .7rem 0 .3rem; font-size: 1rem; overflow-wrap: anywhere; }
h4 { margin: 1rem 0 .25rem; font-size: .85rem; color: var(--soft); text-transform: uppercase; letter-spacing: .04em; }
.method { display: inline-block; min-width: 3.4rem; font-weight: 700; }
.get { color: var(--get); } .post { color: var(--post); }
.note { color: var(--soft); font-weight: 400; }
code, pre { font: .875rem/1.5 ui-monospace, monospace; background: var(--tint); border-radius: .25rem; }
code { padding: .1rem .3rem; } h3 code { background: none; padding: 0; font-size: 1rem; }
pre { margin: .4rem 0; padding: .75rem; overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-size: .92rem; }
th, td { padding: .35rem .75rem .35rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
td:first-child { white-space: nowrap; }
summary { cursor: pointer; color: var(--soft); }
"""

CONTENT_SECURITY_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_CODE: Final = re.compile(r"`([^`]+)`")
_BOLD: Final = re.compile(r"\*\*([^*]+)\*\*")


def render(document: Mapping[str, Any]) -> str:
    """Render the page of this OpenAPI document."""
    return "".join(_page(document))


def _page(document: Mapping[str, Any]) -> Iterator[str]:
    info = document["info"]
    title = escape(info["title"])
    yield (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title} API</title><style>{_STYLE}</style></head><body>"
        f"<h1>{title} <small>HTTP API, version {escape(info['version'])}</small></h1>{_prose(info['description'])}"
    )
    groups = {tag["name"]: tag.get("description", "") for tag in document.get("tags", ())}
    operations = [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    used = [name for name in groups if any(name in operation["tags"] for _, _, operation in operations)]
    yield "<nav>" + "".join(f'<a href="#{_anchor(name)}">{escape(name)}</a>' for name in used)
    yield '<a href="#signing-in">Signing in</a><a href="#schemas">Schemas</a>'
    yield '<a class="file" href="openapi.json">openapi.json</a></nav>'
    schemas = document.get("components", {}).get("schemas", {})
    for name in used:
        yield f'<section id="{_anchor(name)}"><h2>{escape(name)}</h2>{_prose(groups[name])}'
        for method, path, operation in operations:
            if name in operation["tags"]:
                yield from _operation(method, path, operation, schemas)
        yield "</section>"
    yield from _components(document.get("components", {}))
    yield "</body></html>"


def _operation(method: str, path: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    verb = escape(method)
    yield f'<article><h3><span class="method {verb}">{verb.upper()}</span> <code>{escape(path)}</code> '
    yield f'<span class="note">{escape(operation.get("summary", ""))}</span></h3>'
    yield _prose(operation.get("description", ""))
    if "security" in operation:
        names = " or ".join(_link(scheme) for each in operation["security"] for scheme in each)
        yield f"<p>Needs {names}.</p>"
    if operation.get("parameters"):
        yield "<h4>Parameters</h4><table>"
        for each in operation["parameters"]:
            must = "required" if each.get("required") else "optional"
            yield (
                f"<tr><td><code>{escape(each['name'])}</code></td><td>{escape(each['in'])}, {must}</td>"
                f"<td>{_inline(each.get('description', ''))} {_type(each['schema'])}</td></tr>"
            )
        yield "</table>"
    if "requestBody" in operation:
        yield "<h4>Body</h4>"
        yield from _content(operation["requestBody"], schemas)
    yield "<h4>Answers</h4><table>"
    for status, response in operation["responses"].items():
        yield f"<tr><td><code>{escape(status)}</code></td><td>{_inline(response.get('description', ''))}"
        yield from _content(response, schemas)
        yield "</td></tr>"
    yield "</table></article>"


def _content(holder: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    kinds = holder.get("content", {})
    for kind, content in kinds.items():
        if len(kinds) > 1:
            yield f"<p><code>{escape(kind)}</code></p>"
        schema = content.get("schema", {})
        if "$ref" in schema:
            yield f"<p>{_type(schema)}</p>"
        elif schema:
            yield _folded("Schema", schema)
        examples = [each["value"] for each in content.get("examples", {}).values()]
        if "example" in content:
            examples.append(content["example"])
        elif not examples:
            examples += schemas.get(_name(schema), schema).get("examples", ())
        for example in examples:
            yield _folded("Example", example)


def _components(components: Mapping[str, Any]) -> Iterator[str]:
    yield '<section id="signing-in"><h2>Signing in</h2>'
    for name, scheme in components.get("securitySchemes", {}).items():
        header = scheme.get("name", "Authorization: Bearer")
        yield f'<article id="{_anchor(name)}"><h3><code>{escape(name)}</code> '
        yield f'<span class="note">{escape(header)}</span></h3>{_prose(scheme.get("description", ""))}</article>'
    yield '</section><section id="schemas"><h2>Schemas</h2>'
    for name, schema in sorted(components.get("schemas", {}).items()):
        yield f'<article id="{_anchor(name)}"><h3><code>{escape(name)}</code></h3>'
        yield f"{_prose(schema.get('description', ''))}{_folded('Schema', schema)}</article>"
    yield "</section>"


def _folded(label: str, value: object) -> str:
    text = escape(value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False))
    return f"<details><summary>{label}</summary><pre>{text}</pre></details>"


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return _link(_name(schema))
    facts = [
        f"{name} {schema[name]}" for name in ("minimum", "maximum", "pattern", "enum", "default") if name in schema
    ]
    return f'<span class="note">{escape("; ".join(facts))}</span>' if facts else ""


def _name(schema: Mapping[str, Any]) -> str:
    """The name of the schema that this schema refers to; empty if it is a schema itself."""
    reference: str = schema.get("$ref", "")
    return reference.rpartition("/")[2]


def _link(name: str) -> str:
    return f'<a href="#{_anchor(name)}"><code>{escape(name)}</code></a>'


def _anchor(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "-", name)


def _prose(text: str) -> str:
    return "".join(f"<p>{_inline(paragraph)}</p>" for paragraph in text.strip().split("\n\n") if paragraph)


def _inline(text: str) -> str:
    return _BOLD.sub(r"<strong>\1</strong>", _CODE.sub(r"<code>\1</code>", escape(text)))


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
