"""Stores of blobs, where they do more than emails and documents need: see their suites for the rest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.blobs import is_plain, parts_of
from holdfast.blobs.database import DatabaseBlobs
from holdfast.blobs.folder import FolderBlobs, StreamedFolderBlobs
from holdfast.contracts.effects import Delete, Upsert
from holdfast.contracts.files import FileMissing, FilesUnavailable, FileTooLong, FileUnusable

UNTIL = datetime(2026, 11, 28, tzinfo=UTC)
CONTENT = bytes(range(256))


class Records:
    """Applies the effects to a dict."""

    def __init__(self):
        self.rows = {}

    def apply(self, effects):
        for effect in effects:
            match effect:
                case Upsert():
                    row = self.rows.get(effect.key)
                    self.rows[effect.key] = dict(row if row is not None else effect.set_on_insert) | effect.set
                case Delete():
                    self.rows.pop(effect.key, None)

    async def get(self, collection, key):
        assert collection == "pictures"
        return self.rows.get(key)


@pytest.fixture(params=["database", "folder", "own folder"])
async def place(request, tmp_path):
    """A store, and the records that its effects are applied to."""
    records = Records()
    match request.param:
        case "database":
            blobs = DatabaseBlobs("pictures")
        case "folder":
            blobs = FolderBlobs(tmp_path / "blobs", suffix=".png")
        case "own folder":
            blobs = StreamedFolderBlobs(tmp_path / "blobs", ("acme",))
            await blobs.put_all("acme/made", {"ready": b""})
    await blobs.open()
    yield blobs, records
    await blobs.close()


async def test_a_blob_is_there_from_put_to_delete(place):
    blobs, records = place
    for missing in (blobs.get("acme/a/one", records, limit=None), blobs.hold("acme/a/one", records)):
        with pytest.raises(FileMissing):
            await missing
    for _ in range(2):
        records.apply(await blobs.put("acme/a/one", CONTENT, until=UNTIL))
        records.apply(await blobs.hold("acme/a/one", records, until=UNTIL + timedelta(days=1)))
        assert await blobs.get("acme/a/one", records, limit=None) == CONTENT
    for _ in range(2):
        records.apply(await blobs.delete("acme/a/one"))
        with pytest.raises(FileMissing):
            await blobs.get("acme/a/one", records, limit=None)


async def test_a_reader_gets_no_more_than_it_allows(place):
    blobs, records = place
    records.apply(await blobs.put("acme/one", CONTENT))
    assert await blobs.get("acme/one", records, limit=256) == CONTENT
    with pytest.raises(FileTooLong):
        await blobs.get("acme/one", records, limit=255)


async def test_a_record_has_its_expiry_and_gets_it_moved():
    blobs, records = DatabaseBlobs("pictures"), Records()
    records.apply(await blobs.put("acme/one", CONTENT, until=UNTIL))
    first = dict(records.rows["acme/one"])
    assert first["expiresAt"] == "2026-11-28T00:00:00.000Z"
    assert first["bytes"] == 256
    held = await blobs.hold("acme/one", records, until=UNTIL + timedelta(days=1))
    records.rows.clear()  # deleted before the effect is committed
    records.apply(held)
    assert records.rows["acme/one"] == first | {"expiresAt": "2026-11-29T00:00:00.000Z"}


async def test_what_is_no_file_is_unusable(tmp_path):
    blobs = FolderBlobs(tmp_path)
    (tmp_path / "acme" / "folder").mkdir(parents=True)
    with pytest.raises(FileUnusable):
        await blobs.get("acme/folder", limit=None)
    with pytest.raises(FileUnusable):
        await blobs.hold("acme/folder")


async def test_a_folder_of_our_own_that_nobody_has_used_is_unavailable_and_not_empty(tmp_path):
    blobs = StreamedFolderBlobs(tmp_path / "blobs", ("acme",))
    with pytest.raises(FilesUnavailable):
        await blobs.get("acme/one", limit=None)
    await blobs.put("acme/one", CONTENT)
    assert await blobs.get("acme/one", limit=None) == CONTENT
    assert sorted(path.name for path in (tmp_path / "blobs").iterdir()) == [".lock", "acme", "incoming"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/../b", "/a", "a/", "a//b", ".a", "a\n", "a\\b", "ç", "x" * 201])
def test_a_name_that_could_lead_elsewhere_is_no_name(name):
    with pytest.raises(FileMissing):
        parts_of(name)
    assert not is_plain(name)
