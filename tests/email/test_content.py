"""HTML by reference, in a real folder and a real (moto) bucket."""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiobotocore.session import get_session
from hypothesis import given
from hypothesis import strategies as st

from holdfast.features.email.content import (
    Content,
    ContentMissing,
    ContentUnavailable,
    ContentUnusable,
    content_ref,
)
from tests.support.email_content import bucket_content, exists, folder_content

# The tests of the bucket share an event loop with its clients.
pytestmark = pytest.mark.asyncio(loop_scope="module")

COMPANY = "789e4567-e89b-12d3-a456-426614174999"
OTHER = "00000000-e89b-12d3-a456-426614174000"
HTML = "<p>Olá, São João — ✓</p>"
REF = content_ref(COMPANY, HTML)
LIMIT = 200_000
BUCKET = "content"


class Place:
    """A content store, and a way to write raw bytes into it directly."""

    def __init__(self, content, plant) -> None:
        self.content = content
        self.plant = plant


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bucket(_moto_process) -> AsyncIterator[tuple[Place, Any]]:
    """botocore needs a second to make a client, so the tests share the clients."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", "testing")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        moto = _moto_process
        content = bucket_content(BUCKET, "mail/", endpoint_url=moto.url, region=moto.region, limit=LIMIT)
        await content.open()
        async with get_session().create_client("s3", region_name=moto.region, endpoint_url=moto.url) as client:

            async def plant(company: str, ref: str, raw: bytes) -> None:
                await client.put_object(Bucket=BUCKET, Key=f"mail/{company}/{ref}.html", Body=raw)

            yield Place(content, plant), client
        await content.close()


@pytest_asyncio.fixture(params=["folder", "s3"], loop_scope="module")
async def place(request, moto, bucket, tmp_path):
    if request.param == "s3":
        place, client = bucket
        await client.create_bucket(Bucket=BUCKET)
        return place

    async def plant(company: str, ref: str, raw: bytes) -> None:
        (tmp_path / "content" / company).mkdir(parents=True, exist_ok=True)
        (tmp_path / "content" / company / f"{ref}.html").write_bytes(raw)

    content = folder_content(tmp_path / "content", limit=LIMIT)
    await content.open()
    return Place(content, plant)


# --- every place ----------------------------------------------------------------------------------------------------


async def test_stored_content_can_be_read_many_times(place):
    content = place.content
    assert not await exists(content, COMPANY, REF)
    for _ in range(2):
        await content.put(COMPANY, REF, HTML)
        assert await content.get(COMPANY, REF, None) == HTML
        assert await exists(content, COMPANY, REF)


async def test_line_ends_and_blanks_are_kept_as_they_are(place):
    html = "\n a\r\nb\rc\n\n"
    await place.content.put(COMPANY, REF, html)
    assert await place.content.get(COMPANY, REF, None) == html


async def test_content_of_one_tenant_does_not_exist_for_another(place):
    await place.content.put(COMPANY, REF, HTML)
    assert not await exists(place.content, OTHER, REF)
    with pytest.raises(ContentMissing):
        await place.content.get(OTHER, REF, None)


async def test_deleted_content_is_missing(place):
    await place.content.put(COMPANY, REF, HTML)
    for _ in range(2):
        await place.content.delete(COMPANY, REF)
    with pytest.raises(ContentMissing) as caught:
        await place.content.get(COMPANY, REF, None)
    assert caught.value.code == "CONTENT_MISSING"


async def test_content_as_large_as_allowed_is_read_and_one_byte_more_is_not(place):
    await place.plant(COMPANY, "fits", b"x" * LIMIT)
    await place.plant(COMPANY, "large", b"x" * (LIMIT + 1))
    await place.plant(COMPANY, "huge", b"x" * (LIMIT * 20))
    assert len(await place.content.get(COMPANY, "fits", None)) == LIMIT
    for ref in ("large", "huge"):
        with pytest.raises(ContentUnusable, match="longer"):
            await place.content.get(COMPANY, ref, None)


async def test_content_that_is_not_utf_8_is_unusable(place):
    await place.plant(COMPANY, "latin", "<p>São</p>".encode("latin-1"))
    with pytest.raises(ContentUnusable, match="UTF-8") as caught:
        await place.content.get(COMPANY, "latin", None)
    assert "<p>" not in str(caught.value)


async def test_html_with_half_a_character_is_not_stored(place):
    with pytest.raises(ContentUnusable):
        await place.content.put(COMPANY, REF, "<p>\ud800</p>")
    assert not await exists(place.content, COMPANY, REF)


async def test_a_ref_that_is_a_path_finds_nothing(place):
    for bad in ("", ".", "..", "../x", "a/b", "/etc/passwd", "a\\b", ".hidden", "a\0", "a\n", "x" * 201, "ç"):
        for company, ref in ((COMPANY, bad), (bad, REF)):
            assert not await exists(place.content, company, ref)
            await place.content.delete(company, ref)
            with pytest.raises(ContentMissing):
                await place.content.get(company, ref, None)
            with pytest.raises(ContentMissing):
                await place.content.put(company, ref, HTML)


# --- the folder -----------------------------------------------------------------------------------------------------


@pytest_asyncio.fixture(loop_scope="module")
async def folder(tmp_path) -> Content:
    content = folder_content(tmp_path / "content")
    await content.open()
    return content


async def test_links_are_not_followed(tmp_path, folder):
    secret = tmp_path / "secret.html"
    secret.write_text("secret")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "linked.html").write_text("secret")
    (tmp_path / "content" / COMPANY).mkdir(parents=True)
    (tmp_path / "content" / COMPANY / "linked.html").symlink_to(secret)
    (tmp_path / "content" / OTHER).symlink_to(tmp_path / "elsewhere")
    for company in (COMPANY, OTHER):
        assert not await exists(folder, company, "linked")
        with pytest.raises(ContentMissing):
            await folder.get(company, "linked", None)
    with pytest.raises(ContentMissing):
        await folder.put(OTHER, "new", HTML)
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["linked.html"]
    await folder.put(COMPANY, "linked", HTML)
    assert secret.read_text() == "secret"
    assert await folder.get(COMPANY, "linked", None) == HTML


async def test_a_pipe_or_a_folder_in_the_place_of_content_does_not_hang(tmp_path, folder):
    (tmp_path / "content" / COMPANY / "folder.html").mkdir(parents=True)
    os.mkfifo(tmp_path / "content" / COMPANY / "pipe.html")
    for ref in ("pipe", "folder"):
        assert not await exists(folder, COMPANY, ref)
        with pytest.raises(ContentMissing):
            await folder.get(COMPANY, ref, None)


async def test_a_file_is_complete_before_it_gets_its_name(tmp_path, folder, monkeypatch):
    await folder.put(COMPANY, REF, "old")

    def failing(_):
        raise OSError(28, "No space left on device", "/secret")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", failing)
        with pytest.raises(ContentUnavailable) as caught:
            await folder.put(COMPANY, REF, HTML)
    assert "ENOSPC" in str(caught.value)
    assert "/secret" not in str(caught.value)
    assert await folder.get(COMPANY, REF, None) == "old"
    assert [path.name for path in (tmp_path / "content" / COMPANY).iterdir()] == [f"{REF}.html"]


async def test_equal_content_is_written_once(tmp_path, folder):
    await folder.put(COMPANY, REF, HTML)
    file = tmp_path / "content" / COMPANY / f"{REF}.html"
    before = file.stat().st_ino
    await folder.put(COMPANY, REF, HTML)
    assert file.stat().st_ino == before


async def test_many_at_once_leave_one_file(tmp_path, folder):
    await asyncio.gather(*(folder.put(COMPANY, REF, HTML) for _ in range(30)))
    assert [path.name for path in (tmp_path / "content" / COMPANY).iterdir()] == [f"{REF}.html"]


async def test_only_we_may_read_content(tmp_path, folder):
    await folder.put(COMPANY, REF, HTML)
    for path in (Path("content"), Path("content") / COMPANY, Path("content") / COMPANY / f"{REF}.html"):
        assert (tmp_path / path).stat().st_mode & 0o077 == 0


async def test_a_missing_root_is_unavailable_not_empty(tmp_path, folder):
    await folder.put(COMPANY, REF, HTML)
    (tmp_path / "content").rename(tmp_path / "away")
    for call in (folder.get(COMPANY, REF, None), exists(folder, COMPANY, REF), folder.put(COMPANY, REF, HTML)):
        with pytest.raises(ContentUnavailable):
            await call
    (tmp_path / "away").rename(tmp_path / "content")
    assert await folder.get(COMPANY, REF, None) == HTML


async def test_a_root_that_cannot_be_created_is_reported_at_the_start(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ContentUnavailable):
        await folder_content(tmp_path / "file").open()


# --- the bucket -----------------------------------------------------------------------------------------------------


async def test_a_bucket_that_does_not_exist_is_unavailable_not_empty(moto):
    content = bucket_content("no-such-bucket", endpoint_url=moto.url, region=moto.region)
    await content.open()
    for call in (content.get(COMPANY, REF, None), content.put(COMPANY, REF, HTML)):
        with pytest.raises(ContentUnavailable, match="NoSuchBucket"):
            await call
    await content.close()


async def test_a_server_that_cannot_be_reached_is_unavailable(aws_credentials):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        content = bucket_content(BUCKET, endpoint_url=url, region="us-east-1", timeout=timedelta(seconds=1))
        await content.open()
        calls = (content.get(COMPANY, REF, None), exists(content, COMPANY, REF), content.delete(COMPANY, REF))
        failures = await asyncio.gather(*calls, return_exceptions=True)
        await content.close()
    assert [type(failure) for failure in failures] == [ContentUnavailable] * 3


# --- refs -----------------------------------------------------------------------------------------------------------


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")), st.uuids(), st.uuids())
async def test_a_ref_is_a_uuid_that_depends_on_the_tenant_and_the_content_alone(one, two, company, other):
    ref = content_ref(str(company), one)
    assert uuid.UUID(ref).version == 5
    assert uuid.UUID(ref).variant == uuid.RFC_4122
    assert ref == content_ref(str(company).upper(), one)
    assert (ref == content_ref(str(company), two)) == (one == two)
    assert (ref == content_ref(str(other), one)) == (company == other)


async def test_a_ref_of_half_a_character_is_refused_without_the_text():
    with pytest.raises(ContentUnusable) as caught:
        content_ref(COMPANY, "secret \ud800")
    assert "secret" not in str(caught.value)


async def test_a_ref_stays_the_same_from_release_to_release():
    assert content_ref(COMPANY, "<p>x</p>") == "14bb4de0-1b82-5e2e-9163-781e0aac3e9a"
