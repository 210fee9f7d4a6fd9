"""Every relative link of the documentation leads to a file, and every anchor to a heading in that file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "deploy/README.md",
)
EXAMPLES = [*(ROOT / "examples").glob("*.md"), *(ROOT / "examples").glob("*/*.md")]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *EXAMPLES, *(ROOT / name for name in NAMED)])

CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(\s*<?([^)>\s]+)>?[^)]*\)|^\[[^\]]+\]:\s+(\S+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:")


def links_in(text: str) -> list[str]:
    """Where the text leads to on this disk; code is not text."""
    found = [inline or reference for inline, reference in LINK.findall(CODE.sub("``", text))]
    return [link for link in found if not ELSEWHERE.match(link)]


def anchors_in(text: str) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    plain = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    anchors: set[str] = set()
    for heading in HEADING.findall(plain):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        again = sum(each == name or re.fullmatch(rf"{re.escape(name)}-\d+", each) is not None for each in anchors)
        anchors.add(f"{name}-{again}" if again else name)
    return anchors


def problem(page: Path, link: str) -> str | None:
    """Why this link leads nowhere; None when it leads somewhere."""
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    if not target.is_relative_to(ROOT.resolve()):
        return f"{link}: outside the repository"
    if not target.exists():
        return f"{link}: no such file"
    if anchor and (target.suffix != ".md" or anchor not in anchors_in(target.read_text(encoding="utf-8"))):
        return f"{link}: no such heading"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page):
    assert [found for link in links_in(page.read_text(encoding="utf-8")) if (found := problem(page, link))] == []


def test_a_broken_link_is_noticed(tmp_path):
    page = ROOT / "README.md"

    assert problem(page, "docs/lifecycle.md") is None
    assert problem(page, "docs/lifecycle.md#a-dead-letter") is None
    assert problem(page, "docs/lifecycle.md#no-such-thing") == "docs/lifecycle.md#no-such-thing: no such heading"
    assert problem(page, "docs/nothing.md") == "docs/nothing.md: no such file"
    assert problem(page, str(tmp_path)) == f"{tmp_path}: outside the repository"
    assert links_in("[a](b.md) `[c](d.md)` [e](https://f.example)\n```\n[g](h.md)\n```\n[i]: j.md\n") == [
        "b.md",
        "j.md",
    ]
    assert anchors_in("# What, and *why*?\n\n## `code` here\n\n## `code` here\n") == {
        "what-and-why",
        "code-here",
        "code-here-1",
    }
