"""``/docs`` and ``/openapi.json``: made once, compressed, with an ETag, and only where the operator wants them."""

from __future__ import annotations

import json

import httpx
import pytest

from holdfast.api import ApiOptions
from holdfast.api import app as app_module
from holdfast.api.app import create_app

PATHS = ["/docs", "/openapi.json"]


@pytest.fixture
def described(monkeypatch):
    """How often the document was made."""
    times = []
    describe = app_module.describe

    def counted(*given):
        times.append(1)
        return describe(*given)

    monkeypatch.setattr(app_module, "describe", counted)
    return times


def client_of(api, **options):
    app = create_app(api.services, ApiOptions(**options))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://holdfast")


async def test_many_readers_cost_one_rendering(api, described):
    async with client_of(api) as client:
        for path in PATHS * 3:
            assert (await client.get(path)).status_code == 200

    assert len(described) == 1


@pytest.mark.parametrize("path", PATHS)
async def test_a_reader_who_has_the_text_gets_no_second_one(api, path):
    async with client_of(api) as client:
        first = await client.get(path)
        again = await client.get(path, headers={"if-none-match": first.headers["etag"]})
        other = await client.get(path, headers={"if-none-match": '"another"'})

    assert (again.status_code, again.content) == (304, b"")
    assert other.content == first.content
    assert first.headers["cache-control"] == "no-cache"
    assert first.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", PATHS)
async def test_the_text_is_compressed_for_those_who_accept_it(api, path):
    async with client_of(api) as client:
        zipped = await client.get(path, headers={"accept-encoding": "br, gzip;q=0.5"})
        plain = await client.get(path, headers={"accept-encoding": "gzip;q=0"})

    assert zipped.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert zipped.content == plain.content  # as the client unpacks it
    assert int(zipped.headers["content-length"]) < int(plain.headers["content-length"]) / 3
    assert zipped.headers["etag"] != plain.headers["etag"]
    assert zipped.headers["vary"] == plain.headers["vary"] == "accept-encoding"


async def test_the_documents_can_be_switched_off(api):
    async with client_of(api, docs=False) as client:
        for path in PATHS:
            answer = await client.get(path)
            assert answer.status_code == 404
            assert json.loads(answer.content)["message"] == "This path does not exist."
