"""The storage of files: one suite for a real folder and a real (moto) bucket, and what is special about each."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import resource
import shutil
import stat
import threading
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import pytest_asyncio
from aiobotocore.session import get_session

from holdfast.blobs.arriving import PIECE, SMALL_PIECE
from holdfast.blobs.s3 import PART, S3Blobs
from holdfast.contracts.files import FileMissing, FilesUnavailable, Stored, UploadTooLarge
from holdfast.features.documents.files import Files
from tests.support.document_files import folder_files
from tests.support.moto_server import _moto_process, aws_credentials, moto  # noqa: F401 - fixtures

# The tests of the bucket share an event loop with its clients.
pytestmark = pytest.mark.asyncio(loop_scope="module")

BUCKET = "files"
LIMIT = 50_000_000
LONG_AGO = timedelta(days=30)
MONTH = timedelta(days=29)
CONTENT = os.urandom(3 * PIECE + 17)


async def pieces(content, size=64 * 1024):
    for first in range(0, len(content), size):
        yield content[first : first + size]


def bucket_files(bucket, prefix="", **options):
    return Files(S3Blobs(bucket, prefix, **options))


def digest(content):
    return hashlib.sha256(content).hexdigest()


def files_below(folder):
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != ".lock"
    )


def long_ago():
    then = (datetime.now(UTC) - LONG_AGO).timestamp()
    return then, then


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bucket(_moto_process, tmp_path_factory):  # noqa: F811
    """Making clients takes botocore a second, so the tests share them."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", "testing")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        server = _moto_process
        scratch = tmp_path_factory.mktemp("s3") / "scratch"
        files = bucket_files(BUCKET, "docs/", region=server.region, endpoint_url=server.url, scratch=scratch)
        await files.open()
        async with get_session().create_client("s3", region_name=server.region, endpoint_url=server.url) as client:

            async def names():
                found = await client.list_objects_v2(Bucket=BUCKET)
                return sorted(one["Key"].removeprefix("docs/") for one in found.get("Contents", ()))

            yield SimpleNamespace(files=files, names=names, arriving=scratch, client=client, url=server.url)
        await files.close()


@pytest_asyncio.fixture(loop_scope="module")
async def s3(bucket, moto):  # noqa: F811
    await bucket.client.create_bucket(Bucket=BUCKET)
    return bucket


@pytest_asyncio.fixture(loop_scope="module")
async def folder(tmp_path):
    root = tmp_path / "data" / "files"
    files = folder_files(root)
    await files.open()

    async def names():
        return files_below(root)

    yield SimpleNamespace(files=files, names=names, arriving=root / "incoming", root=root)
    await files.close()


@pytest_asyncio.fixture(params=["folder", "s3"], loop_scope="module")
async def place(request, moto, bucket, folder):  # noqa: F811
    """A storage, the names in it, and the folder where things arrive."""
    if request.param == "folder":
        return folder
    await bucket.client.create_bucket(Bucket=BUCKET)
    return bucket


# --- every storage --------------------------------------------------------------------------------------------------


async def test_an_upload_is_kept_by_its_content_and_can_be_had_again(place):
    for content, size in ((CONTENT, 64 * 1024), (CONTENT, len(CONTENT)), (b"%PDF-1.7 small", 3), (b"", 1)):
        stored = await place.files.keep(pieces(content, size), LIMIT)
        assert stored == Stored(digest(content), len(content), content[:4096])
        async with place.files.local_copy(stored.sha256) as path:
            assert path.read_bytes() == content
        assert f"uploads/{stored.sha256[:2]}/{stored.sha256}" in await place.names()
    assert len(await place.names()) == 3
    assert files_below(place.arriving) == []


async def test_the_same_upload_at_the_same_time_is_kept_once(place):
    kept = await asyncio.gather(*(place.files.keep(pieces(CONTENT), LIMIT) for _ in range(4)))
    assert {stored.sha256 for stored in kept} == {digest(CONTENT)}
    assert len(await place.names()) == 1
    assert files_below(place.arriving) == []


async def test_an_upload_over_the_limit_is_refused_as_soon_as_that_is_known_and_leaves_nothing(place):
    given = 0

    async def endless():
        nonlocal given
        while True:
            given += 100_000
            yield bytes(100_000)

    with pytest.raises(UploadTooLarge):
        await place.files.keep(endless(), 2_500_000)
    assert given == 2_600_000
    assert await place.names() == []
    assert files_below(place.arriving) == []
    exact = await place.files.keep(pieces(bytes(2_500_000)), 2_500_000)
    assert exact.size == 2_500_000


async def test_an_upload_that_breaks_off_leaves_nothing_and_its_error_is_not_ours(place):
    async def breaks_off():
        yield CONTENT
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await place.files.keep(breaks_off(), LIMIT)
    assert await place.names() == []
    assert files_below(place.arriving) == []


async def test_an_upload_that_is_cancelled_leaves_nothing(place):
    waits = asyncio.Event()

    async def hangs():
        yield CONTENT
        waits.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(place.files.keep(hangs(), LIMIT))
    await waits.wait()
    # What has arrived is on the disk, and not in memory.
    assert [path.stat().st_size for path in place.arriving.iterdir()] == [len(CONTENT)]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await place.names() == []
    assert files_below(place.arriving) == []


@pytest.mark.parametrize("sha256", ["0" * 64, "../../etc/passwd", "", "0" * 63 + "/", "A" * 64])
async def test_what_was_never_kept_is_missing(place, sha256):
    await place.files.keep(pieces(CONTENT), LIMIT)
    with pytest.raises(FileMissing):
        async with place.files.local_copy(sha256):
            pass
    assert await place.files.touch(sha256) is False


async def test_outputs_can_be_read_by_their_path_and_writing_again_replaces_them(place):
    path = await place.files.write("ocr-009/1", {"text.txt": b"one", "document.md": b"# one", "empty.bin": b""})
    assert path.endswith("/results/ocr-009/1")
    assert await place.files.read(path, "text.txt") == b"one"
    assert await place.files.read(path, "empty.bin") == b""
    other = await place.files.write("ocr-009/2", {"text.txt": b"two"})
    assert await place.files.write("ocr-009/1", {"text.txt": b"again", "result.json": b"{}"}) == path
    assert await place.files.read(path, "text.txt") == b"again"
    with pytest.raises(FileMissing):
        await place.files.read(path, "document.md")
    assert await place.files.read(other, "text.txt") == b"two"
    assert await place.names() == [f"results/ocr-009/{name}" for name in ("1/result.json", "1/text.txt", "2/text.txt")]
    assert files_below(place.arriving) == []


async def test_a_local_file_becomes_an_output_and_is_read_in_pieces(place, tmp_path):
    content = os.urandom(PART + 17)
    (tmp_path / "made").write_bytes(content)
    path = await place.files.write("job-1/1", {"text.txt": tmp_path / "made", "empty.bin": b""})
    async with place.files.opened(path, "text.txt") as pieces:
        found = [piece async for piece in pieces]
    assert b"".join(found) == content
    assert max(map(len, found)) <= SMALL_PIECE
    async with place.files.opened(path, "empty.bin") as pieces:
        assert [piece async for piece in pieces] == []
    for output_path, name in ((path, "document.md"), (path, "../1/text.txt"), ("/etc", "passwd")):
        with pytest.raises(FileMissing):
            async with place.files.opened(output_path, name):
                pass


async def test_nothing_is_read_but_outputs_of_this_storage(place):
    path = await place.files.write("job/1", {"text.txt": b"one"})
    stored = await place.files.keep(pieces(b"upload"), LIMIT)
    home = path.removesuffix("/results/job/1")
    for output_path, name in [
        (path, "../1/text.txt"),
        (path, ".."),
        (path, ""),
        (path, "."),
        (path, "missing.txt"),
        (path, "text.txt/"),
        (path, "text.txt/x"),
        (f"{home}/results/job", "1"),
        (f"{home}/results/job/../job/1", "text.txt"),
        (f"{home}/results/job/..", "text.txt"),
        (f"{home}/results/job/1/", "text.txt"),
        (f"{home}/results//job/1", "text.txt"),
        (f"{home}/results/job/2", "text.txt"),
        (f"{home}/uploads/{stored.sha256[:2]}", stored.sha256),
        (f"{home}/results/../uploads/{stored.sha256[:2]}", stored.sha256),
        ("/etc", "passwd"),
        ("s3://other/docs/results/job/1", "text.txt"),
        ("", "text.txt"),
    ]:
        with pytest.raises(FileMissing):
            await place.files.read(output_path, name)
        if name == "text.txt":
            assert await place.files.touch(output_path=output_path) is False


@pytest.mark.parametrize("where", ["job", "../1", "job/1/2", "/job/1", "job/..", ".hidden/1", "job/1\n"])
async def test_a_place_that_could_not_be_found_again_is_not_written(place, where):
    with pytest.raises(ValueError, match="place"):
        await place.files.write(where, {"text.txt": b""})
    with pytest.raises(ValueError, match="place"):
        await place.files.write("job/1", {"../text.txt": b""})
    assert await place.names() == []


async def test_touching_tells_whether_all_that_was_asked_for_is_there(place):
    stored = await place.files.keep(pieces(b"upload"), LIMIT)
    path = await place.files.write("job/1", {"text.txt": b"one"})
    assert await place.files.touch(stored.sha256) is True
    assert await place.files.touch(output_path=path) is True
    assert await place.files.touch(stored.sha256, path) is True
    assert await place.files.touch("0" * 64, path) is False
    assert await place.files.touch(stored.sha256, path.replace("job/1", "job/2")) is False


async def test_what_a_crash_left_is_swept_and_what_is_still_arriving_is_not(place):
    waits, goes_on = asyncio.Event(), asyncio.Event()

    async def slow():
        yield CONTENT
        waits.set()
        await goes_on.wait()

    task = asyncio.create_task(place.files.keep(slow(), LIMIT))
    await waits.wait()
    (place.arriving / "left").write_bytes(b"left by a crash")
    (place.arriving / "young").write_bytes(b"left a moment ago")
    for path in place.arriving.iterdir():
        if path.name != "young":
            os.utime(path, long_ago())
    assert await place.files.sweep(MONTH) == 1
    assert len(files_below(place.arriving)) == 2
    goes_on.set()
    assert (await task).sha256 == digest(CONTENT)
    assert files_below(place.arriving) == ["young"]
    (place.arriving / "young").unlink()


@asynccontextmanager
async def little_room():
    """No file can become larger than this."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_makes_the_storage_unavailable_and_leaves_nothing(place):
    async with little_room():
        with pytest.raises(FilesUnavailable, match=r"^There is no room for files \(EFBIG\)\.$"):
            await place.files.keep(pieces(CONTENT), LIMIT)
    assert await place.names() == []
    assert files_below(place.arriving) == []


# --- the folder -----------------------------------------------------------------------------------------------------


def path_of(descriptor):
    return Path(f"/proc/self/fd/{descriptor}").readlink()


async def test_only_we_may_read_what_is_in_the_folder(folder):
    before = os.umask(0)
    try:
        await folder.files.keep(pieces(CONTENT), LIMIT)
        await folder.files.write("job/1", {"text.txt": b"one"})
    finally:
        os.umask(before)
    everything = [folder.root, *folder.root.rglob("*")]
    assert {path.name for path in everything} >= {"incoming", "text.txt", digest(CONTENT)}
    for path in everything:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


async def test_an_upload_is_on_the_disk_before_it_has_its_name_and_its_name_before_we_say_so(folder, monkeypatch):
    done = []
    for name in ("fsync", "rename"):
        real = getattr(os, name)

        def spy(first, *rest, _real=real, _name=name, **more):
            done.append((_name, path_of(first) if _name == "fsync" else Path(first)))
            return _real(first, *rest, **more)

        monkeypatch.setattr(os, name, spy)
    stored = await folder.files.keep(pieces(CONTENT), LIMIT)
    shard = folder.root / "uploads" / stored.sha256[:2]
    steps = [(name, "incoming" if path.parent == folder.arriving else path) for name, path in done]
    assert steps == [
        ("fsync", folder.root),  # its folders are made for the first file
        ("fsync", "incoming"),
        ("fsync", folder.root / "uploads"),
        ("rename", "incoming"),
        ("fsync", shard),
    ]


async def test_what_was_not_of_use_for_long_is_swept_and_the_rest_is_not(folder):
    files = folder.files
    old, touched, kept_again, local_copy, new = [
        (await files.keep(pieces(name), LIMIT)).sha256 for name in (b"old", b"touched", b"again", b"hand", b"new")
    ]
    old_path, touched_path, new_path = [
        await files.write(where, {"a.txt": b"a", "b.txt": b"b"}) for where in ("job/1", "job/2", "new/1")
    ]
    gone_path = await files.write("gone/1", {"a.txt": b"a"})
    for path in [
        *folder.root.glob("uploads/*/*"),
        *folder.root.glob("results/*/*"),
        *folder.root.glob("results/*/*/*"),
    ]:
        if path.name != new and not str(path).startswith(new_path):
            os.utime(path, long_ago())
    assert await files.touch(touched, touched_path)
    await files.keep(pieces(b"again"), LIMIT)
    async with files.local_copy(local_copy):
        pass
    assert await files.sweep(MONTH) == 4
    assert await folder.names() == sorted(
        [f"uploads/{sha256[:2]}/{sha256}" for sha256 in (touched, kept_again, local_copy, new)]
        + [f"results/{where}/{name}.txt" for where in ("job/2", "new/1") for name in "ab"]
    )
    for path in (old_path, gone_path):
        with pytest.raises(FileMissing):
            await files.read(path, "a.txt")
    assert not (folder.root / "results" / "gone").exists()
    assert not (folder.root / "uploads" / old[:2] / old).exists()
    assert await files.sweep(MONTH) == 0
    # And a place that was swept can be written again.
    assert await files.read(await files.write("gone/1", {"a.txt": b"b"}), "a.txt") == b"b"


async def test_what_is_touched_while_the_sweep_is_at_it_stays(folder, monkeypatch):
    """The sweep has seen that it is old, and waits for the lock, while somebody uses it."""
    stored = await folder.files.keep(pieces(b"old"), LIMIT)
    path = folder.root / "uploads" / stored.sha256[:2] / stored.sha256
    os.utime(path, long_ago())
    real, asked, used = fcntl.flock, threading.Event(), threading.Event()

    def waiting(descriptor, how):
        if how == fcntl.LOCK_EX and path_of(descriptor).name == ".lock":
            asked.set()
            used.wait()
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", waiting)
    sweep = asyncio.create_task(folder.files.sweep(MONTH))
    await asyncio.to_thread(asked.wait)
    assert await folder.files.touch(stored.sha256)
    used.set()
    assert await sweep == 0
    assert path.exists()


async def test_an_upload_that_is_cancelled_while_it_is_written_is_not_written_on(folder, monkeypatch):
    """The thread that writes is waited for, so that nothing comes after the end."""
    real, writing, may_write = os.write, threading.Event(), threading.Event()

    def slow(descriptor, content):
        if len(content) >= PIECE:
            writing.set()
            may_write.wait()
        return real(descriptor, content)

    monkeypatch.setattr(os, "write", slow)
    task = asyncio.create_task(folder.files.keep(pieces(CONTENT), LIMIT))
    await asyncio.to_thread(writing.wait)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    may_write.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await folder.names() == []


async def test_readers_find_the_old_outputs_or_the_new_ones_and_never_half(folder):
    contents = [{"a.txt": letter * 1000, "b.txt": letter * 1000} for letter in (b"x", b"y")]
    path = await folder.files.write("job/1", contents[0])
    written = asyncio.Event()

    async def write():
        for number in range(40):
            await folder.files.write("job/1", contents[number % 2])
        written.set()

    async def read():
        while not written.is_set():
            assert await folder.files.read(path, "a.txt") in (b"x" * 1000, b"y" * 1000)

    await asyncio.gather(write(), read(), read())
    assert len(await folder.names()) == 2


async def test_a_folder_that_went_away_is_unavailable_and_not_missing(folder):
    stored = await folder.files.keep(pieces(b"upload"), LIMIT)
    path = await folder.files.write("job/1", {"text.txt": b"one"})
    aside = folder.root.with_name("aside")
    folder.root.rename(aside)
    folder.root.mkdir()
    with pytest.raises(FilesUnavailable) as caught:
        async with folder.files.local_copy(stored.sha256):
            pass
    assert str(folder.root) not in str(caught.value)
    for call in (
        folder.files.read(path, "text.txt"),
        folder.files.touch(stored.sha256),
        folder.files.keep(pieces(b"x"), LIMIT),
        folder.files.write("job/2", {"text.txt": b"one"}),
        folder.files.sweep(MONTH),
    ):
        with pytest.raises(FilesUnavailable):
            await call
    folder.root.rmdir()
    aside.rename(folder.root)
    assert await folder.files.read(path, "text.txt") == b"one"


async def test_a_process_that_keeps_no_files_makes_no_folder(tmp_path):
    files = folder_files(tmp_path / "files")
    await files.open()
    assert await files.sweep(timedelta(0)) == 0
    with pytest.raises(FilesUnavailable):
        await files.touch("0" * 64)
    await files.close()
    assert not (tmp_path / "files").exists()


async def test_a_folder_that_must_not_be_written_is_unavailable(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FilesUnavailable, match="ENOTDIR"):
        await folder_files(tmp_path / "file" / "files").keep(pieces(b"x"), LIMIT)
    files = folder_files(tmp_path / "files")
    await files.keep(pieces(b"first"), LIMIT)
    shutil.rmtree(tmp_path / "files" / "incoming")
    (tmp_path / "files").chmod(0o500)
    with pytest.raises(FilesUnavailable):
        await files.keep(pieces(b"x"), LIMIT)
    (tmp_path / "files").chmod(0o700)


async def test_what_is_kept_is_there_for_the_next_process(folder):
    stored = await folder.files.keep(pieces(b"upload"), LIMIT)
    path = await folder.files.write("job/1", {"text.txt": b"one"})
    another = folder_files(folder.root)
    await another.open()
    async with another.local_copy(stored.sha256) as found:
        assert found.read_bytes() == b"upload"
    assert await another.read(path, "text.txt") == b"one"


# --- the bucket -----------------------------------------------------------------------------------------------------


async def test_a_large_upload_goes_in_parts(s3):
    content = os.urandom(PART) * 2 + b"the rest"
    stored = await s3.files.keep(pieces(content, PIECE), LIMIT)
    async with s3.files.local_copy(stored.sha256) as path:
        assert digest(path.read_bytes()) == stored.sha256 == digest(content)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()
    key = f"docs/uploads/{stored.sha256[:2]}/{stored.sha256}"
    assert (await s3.client.head_object(Bucket=BUCKET, Key=key))["ETag"].endswith('-3"')


async def test_an_upload_in_parts_that_fails_or_is_cancelled_leaves_no_parts(s3, monkeypatch):
    client, real = s3.files._blobs._client, s3.files._blobs._client.upload_part
    for fate in ("fails", "cancelled"):
        second = asyncio.Event()

        async def upload_part(_fate=fate, _second=second, **request):
            if request["PartNumber"] == 2:
                _second.set()
                if _fate == "fails":
                    request["UploadId"] = "no such upload"
                else:
                    await asyncio.Event().wait()
            return await real(**request)

        monkeypatch.setattr(client, "upload_part", upload_part)
        task = asyncio.create_task(s3.files.keep(pieces(bytes(PART + 1), PIECE), LIMIT))
        await second.wait()
        if fate == "cancelled":
            task.cancel()
        with pytest.raises(asyncio.CancelledError if fate == "cancelled" else FilesUnavailable):
            await task
        assert (await s3.client.list_multipart_uploads(Bucket=BUCKET)).get("Uploads", []) == []
        assert await s3.names() == []
        assert files_below(s3.arriving) == []


async def test_an_upload_that_was_changed_in_the_bucket_is_not_handed_out(s3):
    stored = await s3.files.keep(pieces(b"upload"), LIMIT)
    key = f"docs/uploads/{stored.sha256[:2]}/{stored.sha256}"
    await s3.client.put_object(Bucket=BUCKET, Key=key, Body=b"UPLOAD")
    with pytest.raises(FilesUnavailable, match="content"):
        async with s3.files.local_copy(stored.sha256):
            pytest.fail("handed out")
    assert files_below(s3.arriving) == []


async def test_what_is_used_again_after_a_day_gets_a_new_date_and_keeps_its_type(s3):
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends

    stored = await s3.files.keep(pieces(b"upload"), LIMIT)
    path = await s3.files.write("job/1", {"text.txt": b"one"})
    assert path == "s3://files/docs/results/job/1"
    keys = [f"docs/uploads/{stored.sha256[:2]}/{stored.sha256}", "docs/results/job/1/text.txt"]
    objects = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[BUCKET].keys
    for hours, renewed in ((23, False), (25, True)):
        then = datetime.now(UTC).replace(tzinfo=None, microsecond=0) - timedelta(hours=hours)
        for key in keys:
            objects[key].last_modified = then
        assert await s3.files.touch(stored.sha256, path)
        for key in keys:
            found = (await s3.client.head_object(Bucket=BUCKET, Key=key))["LastModified"].replace(tzinfo=None)
            assert (found != then) is renewed
    head = await s3.client.head_object(Bucket=BUCKET, Key=keys[1])
    assert head["ContentType"] == "text/plain; charset=utf-8"
    assert await s3.files.read(path, "text.txt") == b"one"
    # An upload that comes again is renewed, and not sent.
    objects[keys[0]].last_modified = then
    await s3.files.keep(pieces(b"upload"), LIMIT)
    assert (await s3.client.head_object(Bucket=BUCKET, Key=keys[0]))["LastModified"].replace(tzinfo=None) != then


async def test_a_bucket_that_is_not_there_or_does_not_answer_is_unavailable(s3, tmp_path, unused_port):
    gone = bucket_files("no-such-bucket", region="us-east-1", endpoint_url=s3.url, scratch=tmp_path)
    silent = bucket_files(BUCKET, endpoint_url=f"http://127.0.0.1:{unused_port}", region="us-east-1", scratch=tmp_path)
    for files in (gone, silent):
        await files.open()
        home = files._blobs.address("results")
        for call in (
            files.keep(pieces(b"x"), LIMIT),
            files.read(f"{home}/job/1", "text.txt"),
            files.write("job/1", {"text.txt": b"x"}),
            files.touch(output_path=f"{home}/job/1"),
        ):
            with pytest.raises(FilesUnavailable) as caught:
                await call
            assert "127.0.0.1" not in str(caught.value)
        await files.close()
    assert files_below(tmp_path) == []


@pytest.fixture
def unused_port():
    import socket

    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


async def test_a_bucket_without_a_prefix_is_used_from_its_top(s3, tmp_path):
    files = bucket_files(BUCKET, region="us-east-1", endpoint_url=s3.url, scratch=tmp_path / "scratch")
    await files.open()
    assert await files.write("job/1", {"text.txt": b"x"}) == "s3://files/results/job/1"
    assert await files.read("s3://files/results/job/1", "text.txt") == b"x"
    await files.close()
