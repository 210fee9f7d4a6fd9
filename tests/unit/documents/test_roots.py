"""The folders that documents may be read from, and whose they are; and the secret that signs callbacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.config import SettingsError
from holdfast.features.documents.failures import DocumentFailure
from holdfast.features.documents.local_paths import LocalPaths
from tests.support.settings import load

ACME = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"


@pytest.fixture
def folders(tmp_path):
    made = {name: tmp_path / name for name in ("acme", "other", "shared")}
    for name, folder in made.items():
        folder.mkdir()
        (folder / f"{name}.pdf").write_bytes(b"%PDF-")
    return made


def roots(folders, tmp_path, *extra):
    given = f"{ACME}={folders['acme']},{OTHER.upper()}={folders['other']},{folders['shared']}"
    return load({"DOCUMENT_ROOTS": ",".join((given, *extra))}, tmp_path)


def test_a_root_may_belong_to_one_tenant(folders, tmp_path):
    settings = roots(folders, tmp_path)
    assert settings.roots_by_tenant == (
        [folders["shared"]],
        {ACME: [folders["acme"]], OTHER: [folders["other"]]},
    )
    assert settings.shown("document_roots").startswith(f"{ACME}={folders['acme']}, {OTHER}=")


def test_a_folder_may_have_an_equals_sign_in_its_name(tmp_path):
    assert load({"DOCUMENT_ROOTS": "/srv/a=b"}, tmp_path).roots_by_tenant == ([Path("/srv/a=b")], {})


@pytest.mark.parametrize("wrong", [f"{ACME}=", f"{ACME}=/srv/\0"])
def test_a_tenant_without_a_folder_is_a_mistake(wrong, tmp_path):
    with pytest.raises(SettingsError, match="DOCUMENT_ROOTS"):
        load({"DOCUMENT_ROOTS": wrong}, tmp_path)


def test_no_tenant_reads_the_root_of_another(folders, tmp_path):
    paths = LocalPaths(*roots(folders, tmp_path).roots_by_tenant)
    readable = {
        who: {name for name, folder in folders.items() if reads(paths.of(who), folder, name)}
        for who in (ACME, OTHER, "33333333-3333-4333-8333-333333333333", None)
    }
    assert list(readable.values()) == [{"acme", "shared"}, {"other", "shared"}, {"shared"}, {"shared"}]


def reads(paths, folder, name) -> bool:
    """Whether the file can be opened by its whole path. By its name it can be opened in the same cases only."""
    found = []
    for local_path in (str(folder / f"{name}.pdf"), f"{name}.pdf"):
        try:
            found.append(paths.resolve(local_path) == folder / f"{name}.pdf")
        except DocumentFailure:
            found.append(False)
    assert len(set(found)) == 1
    return found[0]


@pytest.mark.parametrize("inner", ["acme/deeper", "acme", "link"])
def test_a_root_that_leads_into_the_root_of_a_tenant_is_a_mistake(folders, tmp_path, inner):
    (tmp_path / "link").symlink_to(folders["acme"])
    for reader in ("", f"{OTHER}="):
        with pytest.raises(SettingsError, match="DOCUMENT_ROOTS"):
            roots(folders, tmp_path, f"{reader}{tmp_path / inner}")
    roots(folders, tmp_path, f"{ACME}={tmp_path / inner}")


@pytest.mark.parametrize(
    ("secret", "weak"),
    [("short", True), ("changeme-please-0123456789", True), ("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX", False)],
)
def test_a_weak_secret_of_callbacks_is_reported(secret, weak, tmp_path):
    settings = load({"DOCUMENT_CALLBACK_SECRET": secret}, tmp_path)
    assert any(each.startswith("DOCUMENT_CALLBACK_SECRET") for each in settings.secret_problems()) is weak
