"""Files of this machine: what may be read, what may not, and what is said of each."""

from __future__ import annotations

import hashlib
import os
import resource
import socket
import stat
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.features.documents.failures import Code, DocumentFailure
from holdfast.features.documents.local_paths import LocalPaths

NOBODY = 65534


@pytest.fixture
def outside(tmp_path):
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.pdf").write_bytes(b"secret")
    return folder


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    (folder / "samples").mkdir(parents=True)
    (folder / "samples" / "a.pdf").write_bytes(b"%PDF-1.7 a")
    return folder


@pytest.fixture
def paths(root):
    return LocalPaths([root])


@contextmanager
def refused(code):
    with pytest.raises(DocumentFailure) as caught:
        yield caught
    assert caught.value.code is code


def refused_everywhere(paths, local_path, code, tmp_path):
    """Each way to the file refuses it, and for the same reason."""
    messages = set()
    with refused(code) as caught:
        paths.resolve(local_path)
    messages.add(caught.value.message)
    with refused(code) as caught, paths.opened(local_path):
        pass
    messages.add(caught.value.message)
    with refused(code) as caught:
        paths.copy_to(local_path, tmp_path / "copy", 1000)
    messages.add(caught.value.message)
    assert not (tmp_path / "copy").exists()
    (message,) = messages
    return message


def test_a_file_is_found_by_its_relative_and_its_absolute_path(paths, root, tmp_path):
    for local_path in ("samples/a.pdf", "./samples//a.pdf", str(root / "samples" / "a.pdf")):
        assert paths.resolve(local_path) == root / "samples" / "a.pdf"
        with paths.opened(local_path) as file:
            assert file.read() == b"%PDF-1.7 a"


def test_a_missing_file_has_the_message_of_the_specification(paths, root, tmp_path):
    message = refused_everywhere(paths, "samples/missing.pdf", Code.FILE_NOT_FOUND, tmp_path)
    assert message == "File not found: samples/missing.pdf"
    absolute = f"{root}//gone/missing.pdf"
    assert refused_everywhere(paths, absolute, Code.FILE_NOT_FOUND, tmp_path) == f"File not found: {absolute}"
    refused_everywhere(paths, "samples/a.pdf/b.pdf", Code.FILE_NOT_FOUND, tmp_path)
    refused_everywhere(paths, "x" * 999, Code.FILE_NOT_FOUND, tmp_path)
    refused_everywhere(LocalPaths([tmp_path / "no-root"]), "a.pdf", Code.FILE_NOT_FOUND, tmp_path)


def test_the_first_root_that_has_it_decides(root, tmp_path):
    second = tmp_path / "second"
    (second / "samples").mkdir(parents=True)
    (second / "samples" / "a.pdf").write_bytes(b"another a")
    (second / "samples" / "b.pdf").write_bytes(b"b")
    paths = LocalPaths([root, second])
    assert paths.resolve("samples/a.pdf") == root / "samples" / "a.pdf"
    assert paths.resolve("samples/b.pdf") == second / "samples" / "b.pdf"
    assert paths.resolve(str(second / "samples" / "a.pdf")) == second / "samples" / "a.pdf"


@pytest.mark.parametrize(
    "local_path",
    [
        "../outside/secret.pdf",
        "samples/../samples/a.pdf",
        "{tmp}/outside/secret.pdf",
        "{tmp}/root/../outside/secret.pdf",
        "{tmp}/root2/secret.pdf",
        "/etc/passwd",
        "/",
        "a\x00.pdf",
        "a\ud800.pdf",
    ],
)
def test_a_path_that_leads_out_is_not_allowed(paths, outside, tmp_path, local_path):
    (tmp_path / "root2").mkdir()
    (tmp_path / "root2" / "secret.pdf").write_bytes(b"secret")
    refused_everywhere(paths, local_path.replace("{tmp}", str(tmp_path)), Code.PATH_NOT_ALLOWED, tmp_path)


def test_what_is_outside_gives_no_sign_whether_it_is_there(paths, outside, tmp_path):
    there = refused_everywhere(paths, str(outside / "secret.pdf"), Code.PATH_NOT_ALLOWED, tmp_path)
    assert there == refused_everywhere(paths, str(outside / "no.pdf"), Code.PATH_NOT_ALLOWED, tmp_path)


def test_without_roots_nothing_is_allowed(root, tmp_path):
    refused_everywhere(LocalPaths([]), str(root / "samples" / "a.pdf"), Code.PATH_NOT_ALLOWED, tmp_path)


def test_a_symbolic_link_is_not_followed_wherever_it_is(paths, root, outside, tmp_path):
    (root / "link.pdf").symlink_to(outside / "secret.pdf")
    (root / "folder").symlink_to(outside)
    (root / "dangling.pdf").symlink_to(outside / "no.pdf")
    (root / "inward.pdf").symlink_to(root / "samples" / "a.pdf")
    for local_path in (
        "link.pdf",
        "folder/secret.pdf",
        "dangling.pdf",
        "inward.pdf",
        str(root / "folder" / "secret.pdf"),
    ):
        refused_everywhere(paths, local_path, Code.PATH_NOT_ALLOWED, tmp_path)


def test_a_root_may_be_a_link_itself(root, tmp_path):
    (tmp_path / "as-configured").symlink_to(root)
    paths = LocalPaths([tmp_path / "as-configured"])
    for local_path in (
        "samples/a.pdf",
        str(tmp_path / "as-configured" / "samples" / "a.pdf"),
        str(root / "samples" / "a.pdf"),
    ):
        with paths.opened(local_path) as file:
            assert file.read() == b"%PDF-1.7 a"


def test_what_is_no_regular_file_is_refused_without_waiting(paths, root, tmp_path, monkeypatch):
    os.mkfifo(root / "pipe.pdf")
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.pdf")
        for local_path in ("pipe.pdf", "socket.pdf", "samples", "samples/", ".", str(root)):
            message = refused_everywhere(paths, local_path, Code.FILE_UNREADABLE, tmp_path)
            assert message.startswith(f"File cannot be read: {local_path} (it is ")
    refused_everywhere(LocalPaths([Path("/dev")]), "null", Code.FILE_UNREADABLE, tmp_path)


def test_a_file_without_permission_is_unreadable(paths, root, tmp_path):
    (root / "samples" / "a.pdf").chmod(0)
    (root / "samples").chmod(0o755)
    if os.geteuid() == 0:
        # Root may read anything. Nobody may not: not even pytest's folders.
        os.seteuid(NOBODY)
    try:
        with refused(Code.FILE_UNREADABLE) as caught:
            paths.resolve("samples/a.pdf")
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
    assert caught.value.message == "File cannot be read: samples/a.pdf (EACCES)"


@pytest.fixture
def between(monkeypatch):
    """Have something done right after a name was looked at, and before it is opened."""

    def arrange(name, act):
        look = os.stat

        def looked(path, **how):
            found = look(path, **how)
            if path == name:
                monkeypatch.setattr(os, "stat", look)
                act()
            return found

        monkeypatch.setattr(os, "stat", looked)

    return arrange


def test_a_link_that_takes_the_place_of_a_folder_meanwhile_wins_nothing(paths, root, outside, between):
    (root / "folder").mkdir()
    (root / "folder" / "secret.pdf").write_bytes(b"harmless")

    def swap():
        (root / "folder").rename(root / "aside")
        (root / "folder").symlink_to(outside)

    between("folder", swap)
    with pytest.raises(DocumentFailure) as caught:
        paths.resolve("folder/secret.pdf")
    assert caught.value.code in {Code.FILE_NOT_FOUND, Code.PATH_NOT_ALLOWED}
    assert (root / "folder").is_symlink()


def test_a_link_that_takes_the_place_of_a_file_meanwhile_wins_nothing(paths, root, outside, between):
    def swap():
        (root / "samples" / "a.pdf").unlink()
        (root / "samples" / "a.pdf").symlink_to(outside / "secret.pdf")

    between("a.pdf", swap)
    with refused(Code.PATH_NOT_ALLOWED):
        paths.resolve("samples/a.pdf")


def test_a_pipe_that_takes_the_place_of_a_file_meanwhile_does_not_hold_us(paths, root, between):
    def swap():
        (root / "samples" / "a.pdf").unlink()
        os.mkfifo(root / "samples" / "a.pdf")

    between("a.pdf", swap)
    with refused(Code.FILE_UNREADABLE):
        paths.resolve("samples/a.pdf")


def test_a_copy_is_exact_private_and_described(paths, root, tmp_path):
    content = os.urandom(2_500_000)
    (root / "large.bin").write_bytes(content)
    copied = paths.copy_to("large.bin", tmp_path / "copy", len(content))
    assert (tmp_path / "copy").read_bytes() == content
    assert copied == (hashlib.sha256(content).hexdigest(), len(content), content[:4096])
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o600


def test_a_file_over_the_limit_is_too_large_and_not_copied(paths, tmp_path):
    with refused(Code.TOO_LARGE):
        paths.copy_to("samples/a.pdf", tmp_path / "copy", 9)
    assert not (tmp_path / "copy").exists()
    assert paths.copy_to("samples/a.pdf", tmp_path / "copy", 10).size == 10


def test_a_file_that_grows_over_the_limit_while_it_is_copied_is_too_large(paths, root, tmp_path, monkeypatch):
    """Its size was fine when we looked."""
    (root / "grows.bin").write_bytes(bytes(10))
    looked = os.fstat

    def grow(descriptor):
        found = looked(descriptor)
        with (root / "grows.bin").open("ab") as file:
            file.write(bytes(100))
        return found

    monkeypatch.setattr(os, "fstat", grow)
    with refused(Code.TOO_LARGE):
        paths.copy_to("grows.bin", tmp_path / "copy", 150)
    assert not (tmp_path / "copy").exists()


def test_no_room_for_the_copy_is_not_the_files_fault(paths, root, tmp_path):
    (root / "large.bin").write_bytes(bytes(300_000))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with refused(Code.STORAGE_UNAVAILABLE):
            paths.copy_to("large.bin", tmp_path / "copy", 1_000_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not (tmp_path / "copy").exists()
    with refused(Code.STORAGE_UNAVAILABLE):
        paths.copy_to("large.bin", tmp_path / "no-folder" / "copy", 1_000_000)
