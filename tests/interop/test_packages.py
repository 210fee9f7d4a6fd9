"""The Node packages of these tests: pinned, whole, and from no registry in particular."""

from __future__ import annotations

import json

from tests.support.node import FOLDER


def test_every_package_is_pinned_with_a_checksum_and_names_no_registry():
    lock = json.loads((FOLDER / "package-lock.json").read_text())
    packages = {name: about for name, about in lock["packages"].items() if name}

    assert [name for name, about in packages.items() if "resolved" in about] == []
    assert [name for name, about in packages.items() if not about.get("integrity", "").startswith("sha512-")] == []


def test_what_we_ask_for_is_exact():
    asked = json.loads((FOLDER / "package.json").read_text())["dependencies"]

    assert [name for name, version in asked.items() if not version.replace(".", "").isdigit()] == []
    assert asked["bullmq"].startswith("6.")
