"""Pages of the documentation as programs: their code, what it prints, and their commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.cli import COMMANDS
from holdfast.cli.lazy import load
from holdfast.installed import installed_features

_BLOCK: Final = re.compile(r"^```(?P<language>[a-z]*)[^\n]*\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE: Final = re.compile(r"# ([a-z_]+\.py)(?:, continued)?\n")
_CODE: Final = re.compile(r"```.*?```|`[^`]+`", re.DOTALL)
_COMMAND: Final = re.compile(r"(?:^(?:\$ )?|/opt/holdfast/bin/)holdfast +([a-z][^#&)\n]*)", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of code: its language, its text, and the number of its first line in the page."""

    language: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """The file that the first line names: ``# shop.py``."""
        named = _FILE.match(self.text)
        return named and named[1]


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(found["language"], found["text"], text.count("\n", 0, found.start("text")) + 1)
        for found in _BLOCK.finditer(text)
    ]


def texts(page: Path, language: str) -> list[str]:
    """The texts of the blocks in one language."""
    return [block.text for block in blocks(page) if block.language == language]


def programs(page: Path) -> dict[str, str]:
    """The Python files of a page. Blocks that name no file are one program with the name of the page.

    Every line has the number that it has in the page, so that a traceback leads to the page.
    """
    found: dict[str, str] = {}
    for block in blocks(page):
        if block.language == "python":
            name = block.file or f"{page.stem.replace('-', '_')}.py"
            before = found.get(name, "")
            found[name] = before + "\n" * (block.line - 1 - before.count("\n")) + block.text
    return found


def code(text: str) -> list[str]:
    """Whatever is set as code: spans and blocks."""
    return [each.strip("`") for each in _CODE.findall(text)]


def commands_in(text: str) -> Iterator[list[str]]:
    """The words of each command of ``holdfast`` that is set as code, without the name of the program."""
    for each in code(text):
        for command in _COMMAND.findall(each):
            yield command.split()


def complaint(words: list[str]) -> str | None:
    """What is wrong with a command line of ours; None when the program has it all."""
    brought = [each for feature in installed_features() for each in feature.commands]
    where = {entry.name: entry.where for entry in (*COMMANDS, *brought)}
    command, rest = None, list(words)
    while command is None or hasattr(command, "commands"):
        known = where if command is None else command.commands
        if not rest or rest[0] not in known:
            return f"there is no command {' '.join(words)!r}"
        command = load(rest[0], where) if command is None else command.commands[rest[0]]
        rest = rest[1:]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    unknown = [word for word in rest if word.startswith("--") and word.partition("=")[0] not in known]
    return f"{' '.join(words)!r} has no {unknown}" if unknown else None
