"""Commands are imported only when they are called, so that ``holdfast --help`` does not load a web server."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup


class Entry(NamedTuple):
    """A command: its name, where it is (``module:attribute``), its panel in the help, and its summary.

    ``hidden``: the help does not list it, because it is an older name of another command.
    """

    name: str
    where: str
    panel: str
    summary: str
    hidden: bool = False


_where: dict[str, str] = {}
_brought: list[Callable[[], Sequence[Entry]]] = []


class LazyGroup(TyperGroup):
    """A group whose commands are placeholders until one is called. The help needs only the placeholders.

    The commands of features are looked for when the help lists all commands, or when a command is not one of ours.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - types of whichever click typer has
        """Replace the placeholder by the real command, then continue as usual."""
        name = args[0]
        if name not in _where:
            self._add_brought()
        if name in _where:
            self.add_command(load(name, _where), name)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - types of whichever click typer has
        """The names of all commands, by panel."""
        self._add_brought()
        names = super().list_commands(ctx)
        panels = [getattr(self.commands[name], "rich_help_panel", None) for name in names]
        first = {panel: at for at, panel in reversed(list(enumerate(panels)))}
        return [name for _, name in sorted(zip(panels, names, strict=True), key=lambda each: first[each[0]])]

    def _add_brought(self) -> None:
        while _brought:
            entries = [entry for entry in _brought.pop()() if entry.name not in _where]
            placeholders = typer.Typer(add_completion=False)
            placeholders.callback()(_placeholder)
            register(placeholders, entries)
            for name, command in typer.main.get_group(placeholders).commands.items():
                self.add_command(command, name)


def register(app: typer.Typer, entries: Sequence[Entry], brought: Callable[[], Sequence[Entry]] | None = None) -> None:
    """Add placeholders for these commands. ``brought`` gives more of them when they are needed."""
    for entry in entries:
        _where[entry.name] = entry.where
        app.command(entry.name, help=entry.summary, rich_help_panel=entry.panel, hidden=entry.hidden)(_placeholder)
    if brought is not None:
        _brought.append(brought)


def load(name: str, where: Mapping[str, str]) -> Any:  # noqa: ANN401 - a command of whichever click typer has
    """The command itself: a function with typer's annotations (it may be ``async``), or a ``Typer`` of several."""
    module, _, attribute = where[name].partition(":")
    found = getattr(import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False)
        alone.command(name)(found)
        found = alone
    command = typer.main.get_command(found)
    command.name = name
    for each in (command, *getattr(command, "commands", {}).values()):
        each.help = _rewrapped(each.help or "")
        each.callback = each.callback and _run_to_its_end(each.callback)
    return command


def _run_to_its_end(callback: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a command, which may be a coroutine function."""

    @functools.wraps(callback)
    def run(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - of any command
        result = callback(*arguments, **options)
        if not inspect.iscoroutine(result):
            return result
        import asyncio  # noqa: PLC0415 - the help does without it

        return asyncio.run(result)

    return run


def _rewrapped(text: str) -> str:
    """A docstring without its line breaks: the terminal breaks the lines itself.

    A paragraph of commands keeps its lines, because people copy these examples.
    """
    paragraphs = text.split("\n\n")
    return "\n\n".join(f"\b\n{each}" if each.startswith("holdfast ") else " ".join(each.split()) for each in paragraphs)


def _placeholder() -> None:
    """Never called: resolving a command replaces it."""
