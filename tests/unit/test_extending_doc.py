"""docs/extending.md: its public names are the code's, its feature works, and the example imports nothing else."""

from __future__ import annotations

import ast
import asyncio
import importlib
import re
from pathlib import Path

import httpx
import pytest

from holdfast import Status
from holdfast.installed import settings_model
from holdfast.testing import Harness
from holdfast.wiring import load_app, open_system
from tests.support.markdown import texts
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
PUBLIC = ("holdfast", "holdfast.feature", "holdfast.http", "holdfast.views", "holdfast.network", "holdfast.terminal")
EXAMPLE = sorted((ROOT / "examples" / "feature-sms").rglob("*.py"))


def listed():
    """The names in the page, by module."""
    chapter = PAGE.partition("## What is public")[2].partition("\n## ")[0]
    _, *parts = re.split(r"^\*\*`(holdfast[.a-z]*)`\*\*", chapter, flags=re.MULTILINE)
    return {module: re.findall(r"`(\w+)`(?!:)", text) for module, text in zip(parts[::2], parts[1::2], strict=True)}


def test_the_page_has_the_public_modules():
    assert tuple(listed()) == PUBLIC


@pytest.mark.parametrize("module", PUBLIC)
def test_the_page_has_the_public_names_each_once(module):
    names = listed()[module]
    assert sorted(names) == sorted(importlib.import_module(module).__all__)


def test_a_name_means_one_thing():
    meanings = {}
    for module in PUBLIC:
        for name in listed()[module]:
            meanings.setdefault(name, []).append(getattr(importlib.import_module(module), name))
    different = {name for name, values in meanings.items() if any(each is not values[0] for each in values)}
    # A connection may be refused, and a command may refuse: a code of a failure, and an exit code.
    assert different == {"REFUSED"}


@pytest.mark.parametrize("file", EXAMPLE, ids=lambda file: file.name)
def test_the_example_imports_public_names_only(file):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "holdfast":
            assert {each.name for each in node.names} <= set(importlib.import_module(node.module).__all__)
            assert node.module in PUBLIC
        elif isinstance(node, ast.Import):
            assert not any(each.name.partition(".")[0] == "holdfast" for each in node.names)


def app_in_the_page(words, folder, monkeypatch):
    """The app of the block that has these words."""
    (block,) = [each for each in texts(ROOT / "docs" / "extending.md", "python") if words in each]
    module = f"page_{len(block)}"
    (folder / f"{module}.py").write_text(block, encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    return load_app(f"{module}:app")


async def test_the_workload_in_the_page_works(tmp_path, monkeypatch):
    async with Harness(app_in_the_page("class Invoices", tmp_path, monkeypatch)) as h:
        await h.submit("invoices", {"number": "2026-001", "customer": "ACME", "cents": 1299})
        await h.submit("invoices", {"number": "2026-002", "customer": "ACME", "cents": 0})
        await h.settle()

        assert (await h.record("invoices", "2026-001"))["cents"] == 1299
        assert [each.reason_code for each in await h.dead_letters()] == ["NOTHING_TO_PAY"]


async def test_the_feature_in_the_page_works(tmp_path, monkeypatch):
    app = app_in_the_page("class PagerFeature", tmp_path, monkeypatch)
    got = []

    async def take(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        got.append(await reader.readexactly(int(re.search(rb"content-length: (\d+)", head.lower())[1])))
        writer.write(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    pager = await asyncio.start_server(take, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{pager.sockets[0].getsockname()[1]}/"
    settings = settings_model(app)(holdfast_data=tmp_path / "data", pager_url=url, upkeep_interval_ms=50)
    stop = asyncio.Event()
    async with pager, open_system(settings, app) as system:
        tenant = await system.tenants.add("acme")
        _, key = await system.tenants.create_key(tenant.company_id, label="", scopes=["pager:write"], created_by="ana")
        worker = asyncio.create_task(system.worker().run(stop))
        api = httpx.ASGITransport(app=system.api())
        async with httpx.AsyncClient(transport=api, base_url="http://gateway") as client:
            page = {"id": "1", "text": "Wake up."}
            assert (await client.post("/v1/pages", json=page)).status_code == 401
            answer = await client.post("/v1/pages", json=page, headers={"x-api-key": key})
        assert (answer.status_code, answer.json()["duplicate"]) == (202, False)
        name = answer.json()["key"]

        async def done():
            entry = await system.store.entry("pages", name)
            return entry.status is Status.PROCESSED

        await eventually(done)
        stop.set()
        await worker
    assert got == [b'{"text":"Wake up."}']
