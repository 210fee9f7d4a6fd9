from __future__ import annotations

import subprocess
import sys

import pytest

import holdfast


def test_the_package_alone_loads_nothing_heavy():
    code = (
        "import sys, holdfast\n"
        "print([name for name in ('asyncio', 'pydantic', 'holdfast.contracts') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_found():
    assert [name for name in holdfast.__all__ if not hasattr(holdfast, name)] == []


def test_other_names_are_not_found():
    with pytest.raises(AttributeError, match="'holdfast' has no attribute 'Any'"):
        _ = holdfast.Any
