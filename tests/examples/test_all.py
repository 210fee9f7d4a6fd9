"""What holds for every example. ``tests/typing`` checks the types of all of them."""

from __future__ import annotations

import re

import pytest

from tests.support.markdown import commands_in, complaint
from tests.support.program import ROOT

EXAMPLES = ROOT / "examples"
FOLDERS = sorted(folder.name for folder in EXAMPLES.iterdir() if folder.is_dir())


def test_the_index_lists_each_example():
    listed = re.findall(r"^\| \[([a-z-]+)\]", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert sorted(listed) == FOLDERS


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_command_in_the_page_of_an_example_exists(folder):
    commands = commands_in((EXAMPLES / folder / "README.md").read_text(encoding="utf-8"))
    own = [words for words in commands if words[0] != "sms"]

    assert [problem for words in own if (problem := complaint(words))] == []
