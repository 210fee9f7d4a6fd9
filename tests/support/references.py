"""Whether what a page of docs names as ``file::name`` exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "holdfast"
REFERENCE: Final = re.compile(r"`([\w/]+\.py)::([\w.]+)`")


@cache
def _tree(path: Path) -> ast.Module | None:
    return ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else None


def _names_of(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What a module or a class defines by its own statements."""
    for statement in getattr(node, "body", []):
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield statement.name, statement
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name, statement
            case ast.Assign(targets=targets):
                yield from ((target.id, statement) for target in targets if isinstance(target, ast.Name))


def _inherited(module: ast.AST, node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What a class has from its bases in the same module, and by its own statements."""
    known = dict(_names_of(module))
    for base in getattr(node, "bases", []):
        if isinstance(base, ast.Name) and base.id in known:
            yield from _inherited(module, known[base.id])
    yield from _names_of(node)


def code_exists(path: Path, dotted: str) -> bool:
    """Whether the file defines the name; ``Class.name`` may also come from a base in the same file."""
    module = _tree(path)
    node: ast.AST | None = module
    for name in dotted.split("."):
        node = dict(_inherited(module, node)).get(name) if module is not None and node is not None else None
    return node is not None


def a_test_exists(path: Path, name: str) -> bool:
    """Whether the file has a test function of this name."""
    module = _tree(path)
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    return module is not None and any(isinstance(each, functions) and each.name == name for each in ast.walk(module))


def missing_code(text: str) -> list[tuple[str, str]]:
    """The references of a text to code below src/holdfast that does not exist."""
    return [each for each in REFERENCE.findall(text) if not code_exists(SOURCE / each[0], each[1])]


def missing_tests(text: str) -> list[tuple[str, str]]:
    """The references of a text to tests that do not exist."""
    return [each for each in REFERENCE.findall(text) if not a_test_exists(ROOT / each[0], each[1])]


def texts() -> Iterator[tuple[str, str]]:
    """Every page and every Python file of src, docs and tests: its path from the root, and its content."""
    for folder in ("src", "docs", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".md"} and "node_modules" not in path.parts:
                yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
