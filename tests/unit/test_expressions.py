"""Every regular expression of ours takes time that grows with the text, not with its square (I18).

Each one gets the worst texts that can be made from it: runs of what it repeats, and of two of those in turn, ending
with something that does not fit. An expression whose time grows with the square takes seconds for such a text.
"""

from __future__ import annotations

import ast
import functools
import importlib
import itertools
import re
import time
from collections.abc import Iterator
from pathlib import Path
from re import _constants as kinds
from re import _parser as parser
from typing import Any, NamedTuple

import pytest

import holdfast

ROOT = Path(holdfast.__file__).parent
LENGTH = 32_000
GROWS_WITH_THE_SQUARE = (r"--+>", r"\b([a-z][a-z0-9+.-]*://)")

METHODS = frozenset({"match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"})
ANCHORED = frozenset({"match", "fullmatch"})
REPEATS = frozenset({kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT})
MANY = 64

BOUNDED = {
    "config/loading.py": r"\(at [^)]*\)",  # the message of the TOML parser about the operator's own file
    # a name of 200 characters at most
    "features/courier/adopting.py": r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$",
}
"""Expressions that see only short text."""

PUT_TOGETHER = {
    "LANGUAGE",  # a constant in which nothing is repeated without a bound
    "f'(?<!\\\\w){re.escape(local_part)}(?!\\\\w)'",  # fixed text
    "pattern",  # names of files in a folder of our own
    "re.escape(name.strip())",  # fixed text
    "self.pattern",  # after the length; constants, which the tests of the texts have
}
"""Expressions that are made when they are used, and so are not among those that are tested here."""


class Use(NamedTuple):
    where: str
    pattern: Any
    anchored: bool


@functools.cache
def modules() -> dict[str, ast.Module]:
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))}


def uses() -> list[Use]:
    """The compiled expressions of all modules, and those that are written where they are used."""
    methods = {where: methods_called(tree) for where, tree in modules().items()}
    found = []
    for where, tree in modules().items():
        found += [Use(where, re.compile(node.args[0].value), node.func.attr in ANCHORED) for node in written_in(tree)]
        if "__main__" in where or "re" not in {
            name.name for each in tree.body if isinstance(each, ast.Import) for name in each.names
        }:
            continue
        name = where.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        try:
            module = importlib.import_module(f"holdfast.{name}")
        except ImportError:
            continue  # an extra that is not installed here
        for constant, value in vars(module).items():
            how = methods[where].get(constant) or set().union(*(each.get(constant, set()) for each in methods.values()))
            found += [Use(where, each, anchored=bool(how) and how <= ANCHORED) for each in compiled_in(value)]
    return list({(each.pattern.pattern, each.pattern.flags, each.anchored): each for each in found}.values())


def calls_in(tree: ast.Module) -> Iterator[Any]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            yield node


def methods_called(tree: ast.Module) -> dict[str, set[str]]:
    called: dict[str, set[str]] = {}
    for node in calls_in(tree):
        called.setdefault(getattr(node.func.value, "id", ""), set()).add(node.func.attr)
    return called


def written_in(tree: ast.Module, *, constant: bool = True) -> Iterator[Any]:
    """The calls of the module ``re`` with an expression: a constant one, or one that is put together."""
    for node in calls_in(tree):
        if getattr(node.func.value, "id", "") == "re" and isinstance(node.args[0], ast.Constant) is constant:
            yield node


def compiled_in(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        yield from compiled_in(list(value.items()))
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from compiled_in(each)


# --- the worst texts ----------------------------------------------------------------------------------------------


CANDIDATES = "a0-. _@:/<\"'=\t\n\\{,;+(\xe9A"
"""Of each sort of character that expressions tell apart, the most usual first."""
CATEGORIES = {
    kinds.CATEGORY_DIGIT: r"\d",
    kinds.CATEGORY_NOT_DIGIT: r"\D",
    kinds.CATEGORY_SPACE: r"\s",
    kinds.CATEGORY_NOT_SPACE: r"\S",
    kinds.CATEGORY_WORD: r"\w",
    kinds.CATEGORY_NOT_WORD: r"\W",
}


def characters_of(members: Any) -> list[str]:
    """Characters that the class has."""
    first = [
        chr(value if kind is kinds.LITERAL else value[0])
        for kind, value in members
        if kind in {kinds.LITERAL, kinds.RANGE}
    ]
    return [each for each in dict.fromkeys([*CANDIDATES, *first, "\x01"]) if has(members, each)] or ["a"]


def has(members: Any, character: str) -> bool:
    negated = found = False
    for kind, value in members:
        match kind:
            case kinds.NEGATE:
                negated = True
            case kinds.LITERAL:
                found |= value == ord(character)
            case kinds.RANGE:
                found |= value[0] <= ord(character) <= value[1]
            case kinds.CATEGORY:
                found |= re.match(CATEGORIES[value], character) is not None
    return found != negated


def sample(tree: Any) -> str:
    """A short text that the expression takes, more or less."""
    return "".join(sample_of(kind, value) for kind, value in tree)


def sample_of(kind: Any, value: Any) -> str:  # noqa: PLR0911 - a line for each kind
    match kind:
        case kinds.LITERAL:
            return chr(value)
        case kinds.NOT_LITERAL | kinds.ANY:
            return "a" if value != ord("a") else "b"
        case kinds.IN:
            return characters_of(value)[0]
        case kinds.BRANCH:
            return sample(value[1][0])
        case kinds.SUBPATTERN:
            return sample(value[3])
        case kinds.ATOMIC_GROUP:
            return sample(value)
        case _ if kind in REPEATS:
            return sample(value[2]) * max(1, min(value[0], MANY))
        case _:
            return ""


def repeated(tree: Any, before: str = "") -> Iterator[tuple[str, list[str]]]:
    """For everything that is repeated without a bound: what stands before it, and texts that it repeats."""
    for kind, value in tree:
        inner: list[Any] = []
        if kind in REPEATS:
            inner = [value[2]]
            if value[1] > MANY:
                one = value[2][0]
                yield before, [sample(value[2]), *(characters_of(one[1]) if one[0] is kinds.IN else ())]
        elif kind is kinds.BRANCH:
            inner = value[1]
        elif kind is kinds.SUBPATTERN:
            inner = [value[3]]
        elif kind is kinds.ATOMIC_GROUP:
            inner = [value]
        elif kind in {kinds.ASSERT, kinds.ASSERT_NOT}:
            inner = [value[1]]
        for each in inner:
            yield from repeated(each, before)
        before += sample_of(kind, value)


def worst_texts(pattern: re.Pattern[Any]) -> list[str]:
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    texts = []
    for before, bodies in repeated(parser.parse(source, pattern.flags & re.VERBOSE)):
        few = [each for each in dict.fromkeys(bodies) if each][:5]
        for each in (*few, *map("".join, itertools.permutations(few, 2)), *(before + one for one in few[:2])):
            run = each * (LENGTH // len(each))
            texts += [run + "\x01", before + run + "\x01"]
    return list(dict.fromkeys(texts))


def seconds(use: Use, text: str) -> float:
    given: Any = text if isinstance(use.pattern.pattern, str) else text.encode("latin-1")
    began = time.process_time()
    if use.anchored:
        use.pattern.fullmatch(given)
    else:
        use.pattern.sub(given[:0], given)
    return time.process_time() - began


@functools.cache
def patience() -> float:
    """Seconds of the processor: a quarter of what an expression takes here whose time grows with the square.

    What is linear takes a few hundredths of that, on a slow machine and on a fast one.
    """
    square = Use("here", re.compile(GROWS_WITH_THE_SQUARE[0]), anchored=False)
    return min(seconds(square, "-" * LENGTH) for _ in range(3)) / 4


def takes_long(use: Use, text: str) -> bool:
    """Three times: once may be a collection of garbage."""
    return all(seconds(use, text) > patience() for _ in range(3))


@pytest.mark.parametrize("use", uses(), ids=lambda use: f"{use.where} {use.pattern.pattern!r:.40}")
def test_the_worst_text_takes_little_time(use):
    if BOUNDED.get(use.where) == use.pattern.pattern:
        return
    for text in worst_texts(use.pattern):
        assert not takes_long(use, text), f"{use.pattern.pattern!r} on {text[:40]!r}..."


@pytest.mark.parametrize("expression", GROWS_WITH_THE_SQUARE)
def test_what_grows_with_the_square_is_noticed(expression):
    use = Use("here", re.compile(expression), anchored=False)

    assert any(takes_long(use, text) for text in worst_texts(use.pattern))


def test_what_is_put_together_when_it_is_used_is_known():
    found = {ast.unparse(node.args[0]) for tree in modules().values() for node in written_in(tree, constant=False)}

    assert found == PUT_TOGETHER
