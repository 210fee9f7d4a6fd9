"""Mail as files."""

from __future__ import annotations

import asyncio
import email
import errno
import os
import stat
from pathlib import Path

import pytest

from holdfast.features.email.transports import folder as folder_module
from holdfast.features.email.transports.folder import FolderTransport
from holdfast.features.email.transports.port import Refused, TryLater

from .messages import FIRST, a_message


async def test_a_message_becomes_a_file_that_a_mail_program_opens(tmp_path):
    message = a_message(text="Olá, São João")
    accepted = await FolderTransport(tmp_path / "out" / "mail").send(message)
    file = tmp_path / "out" / "mail" / f"{message.outbox_id}.eml"
    assert accepted.message_id == file.name
    assert file.read_bytes() == message.raw
    assert email.message_from_bytes(file.read_bytes())["To"] == FIRST


async def test_only_we_may_read_the_mail(tmp_path):
    message = a_message()
    await FolderTransport(tmp_path / "mail").send(message)
    assert stat.S_IMODE((tmp_path / "mail").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "mail" / f"{message.outbox_id}.eml").stat().st_mode) == 0o600


async def test_an_existing_message_is_not_written_again(tmp_path):
    transport, message = FolderTransport(tmp_path), a_message()
    first = await transport.send(message)
    file = tmp_path / first.message_id
    before = file.stat()
    again = await transport.send(a_message(outbox_id=message.outbox_id, text="other"))
    assert again == first
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert file.read_bytes() == message.raw


async def test_many_at_once_leave_one_file_each_and_nothing_else(tmp_path):
    transport = FolderTransport(tmp_path)
    messages = [a_message() for _ in range(40)]
    await asyncio.gather(*(transport.send(message) for message in messages), transport.check())
    assert {path.name for path in tmp_path.iterdir()} == {f"{message.outbox_id}.eml" for message in messages}


async def test_the_file_and_then_its_name_are_synced_before_it_counts_as_sent(tmp_path, monkeypatch):
    steps = []
    fsync, replace = os.fsync, Path.replace

    def watched_fsync(descriptor):
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        steps.append(f"{kind} synced, {len(list(tmp_path.glob('*.eml')))} visible")
        fsync(descriptor)

    def watched_replace(path, target):
        steps.append("named")
        return replace(path, target)

    monkeypatch.setattr(folder_module.os, "fsync", watched_fsync)
    monkeypatch.setattr(Path, "replace", watched_replace)
    await FolderTransport(tmp_path).send(a_message())
    assert steps == ["file synced, 0 visible", "named", "folder synced, 1 visible"]


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "FOLDER_FULL"),
        (errno.EDQUOT, "FOLDER_FULL"),
        (errno.EACCES, "FOLDER_NO_RIGHTS"),
        (errno.EROFS, "FOLDER_NO_RIGHTS"),
        (errno.EIO, "FOLDER_NOT_WRITABLE"),
    ],
)
async def test_a_disk_error_is_retried_later_and_leaves_nothing_behind(tmp_path, monkeypatch, number, code):
    def failing(descriptor):
        raise OSError(number, os.strerror(number), "/secret/place")

    transport, message = FolderTransport(tmp_path), a_message()
    with monkeypatch.context() as broken:
        broken.setattr(folder_module.os, "fsync", failing)
        for attempt in (transport.send(message), transport.check()):
            with pytest.raises(TryLater) as caught:
                await attempt
            assert caught.value.code == code
            assert "/secret" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    await transport.send(message)


async def test_a_file_in_the_place_of_the_folder_is_tried_later(tmp_path):
    place = tmp_path / "mail"
    place.write_text("in the way")
    transport = FolderTransport(place)
    with pytest.raises(TryLater):
        await transport.send(a_message())
    place.unlink()
    await transport.send(a_message())


@pytest.mark.parametrize("outbox_id", ["", "../up", "a/b", ".hidden", "a\0b", "x" * 300])
async def test_an_outbox_id_that_is_not_a_file_name_is_refused(tmp_path, outbox_id):
    with pytest.raises(Refused):
        await FolderTransport(tmp_path / "mail").send(a_message(outbox_id=outbox_id))
    assert list(tmp_path.iterdir()) == []
