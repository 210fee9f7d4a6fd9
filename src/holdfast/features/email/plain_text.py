"""The text alternative of an email, made from its HTML.

The parser of the standard library takes quadratic time for unfinished tags and comments (6 s for 48 KB of them), and
tenants write the HTML. So this module finds the tags with regular expressions that read each character a bounded number
of times. It handles only the tags that matter for a text, and ignores all others.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from typing import Final

WIDTH: Final = 78

# All quantifiers are possessive: the cost of a match is its length. Failed matches are limited by _MAX_MISREAD.
_TAG: Final = re.compile(r"<(/?)([a-zA-Z][^\s/>]{0,40}+)((?:[^>\"']++|\"[^\"]*+\"|'[^']*+')*+)>")
_TAG_WITHOUT_QUOTES: Final = re.compile(r"<(/?)([a-zA-Z][^\s/>]{0,40}+)([^>]*+)>")
_TAG_START: Final = re.compile(r"</?[a-zA-Z]")
_ATTRIBUTE: Final = re.compile(r"""([^\s"'>/=]++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'>]++)))?""")
_INVISIBLE: Final = re.compile(r"(?i)display\s*:\s*none|visibility\s*:\s*hidden|mso-hide\s*:\s*all")
_LINK: Final = re.compile(r"(?i)(?:https?://|mailto:|tel:)\S+")
_ITEM: Final = re.compile(r"- |[0-9]{1,6}\. ")
# Invisible characters, which emails use to fill the preview line, and control characters.
_UNSEEN: Final = dict.fromkeys(
    [*map(ord, "\u00ad\u034f\u200b\u200c\u2060\ufeff"), *range(9), *range(14, 28), *range(127, 133), *range(134, 160)]
)

_RAW: Final = frozenset({"script", "style", "textarea", "title"})
"""The content of these elements is not HTML."""
_UNSHOWN: Final = frozenset({"datalist", "map", "select", "svg", "template"})
_VOID: Final = frozenset({"br", "hr", "img", "input", "link", "meta", "area", "base", "col", "embed", "source", "wbr"})
_PARAGRAPHS: Final = frozenset({"p", "h1", "h2", "h3", "h4", "h5", "h6", "table", "ul", "ol", "blockquote", "pre"})
_LISTS: Final = frozenset({"ul", "ol"})
_BLOCKS: Final = frozenset(
    {
        "div",
        "tr",
        "li",
        "section",
        "article",
        "header",
        "footer",
        "main",
        "center",
        "form",
        "dt",
        "dd",
        "address",
        "body",
    }
)
_MAX_MISREAD: Final = 50
_MAX_INDENT: Final = 8


def text_of(page_html: str) -> str:
    """The text of the HTML as a person reads it. Lines have at most 78 characters, if there is a space to break at.

    Links are written as ``text (address)``, list items with a dash or a number, the cells of a row side by side.
    Styles, scripts, comments and hidden parts are left out. It never raises, and its time is linear in the input.
    """
    page = _Page()
    for piece in _pieces(page_html):
        if isinstance(piece, str):
            page.text(piece)
        else:
            closing, name, attributes = piece
            page.closed(name) if closing else page.opened(name, attributes)
    return page.finished()


# --- finding the tags -----------------------------------------------------------------------------------------

Tag = tuple[bool, str, str]


def _pieces(page_html: str) -> Iterator[str | Tag]:
    """Texts and tags, in order. Comments, declarations, scripts and styles are left out."""
    at, last, misread = 0, page_html.rfind(">"), 0
    while at < len(page_html):
        opening = page_html.find("<", at)
        if opening < 0 or opening > last:  # there is no other ">", so no other tag
            yield page_html[at:]
            return
        if opening > at:
            yield page_html[at:opening]
        if page_html.startswith(("<!", "<?"), opening):
            at = _after_declaration(page_html, opening)
            continue
        if not _TAG_START.match(page_html, opening):
            yield "<"
            at = opening + 1
            continue
        # An unfinished quote turns the rest of the page into one attribute. After a few of them, quotes are ignored.
        tag = _TAG.match(page_html, opening) if misread < _MAX_MISREAD else None
        if tag is None:
            misread += 1
            tag = _TAG_WITHOUT_QUOTES.match(page_html, opening)
        if tag is None:  # impossible: there is a ">" further on
            return
        closing, name, at = bool(tag[1]), tag[2].lower(), tag.end()
        yield closing, name, tag[3]
        if name in _RAW and not closing:
            at = _end_of(page_html, name, at)


def _after_declaration(page_html: str, opening: int) -> int:
    """The end of a comment or declaration. Without an end, the rest of the page belongs to it, as in a browser."""
    end = "-->" if page_html.startswith("<!--", opening) else ">"
    found = page_html.find(end, opening + 2)
    return len(page_html) if found < 0 else found + len(end)


def _end_of(page_html: str, name: str, at: int) -> int:
    found = re.compile(rf"(?i)</{name}(?=[\s/>])").search(page_html, at)
    return len(page_html) if found is None else found.start()


# --- writing the text -----------------------------------------------------------------------------------------


class _Page:
    """The text so far: finished lines, and the line that is being written."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._line: list[str] = []
        self._line_has_text = False
        self._lists: list[int | None] = []
        """For each open list: the number of its last item, or None for a list without numbers."""
        self._link: tuple[str, list[str]] | None = None
        """The address of the open link, and its text so far."""
        self._hidden_by = ""
        self._hidden_depth = 0

    def text(self, raw: str) -> None:
        if not self._hidden_by:
            self._write(html.unescape(raw))

    def opened(self, name: str, raw_attributes: str) -> None:
        if self._hidden_by:
            self._hidden_depth += name == self._hidden_by
            return
        attributes = _attributes(raw_attributes) if raw_attributes else {}
        if name not in _VOID and _is_hidden(name, attributes):
            self._hidden_by, self._hidden_depth = name, 1
            return
        self._break_for(name, nested=bool(self._lists))
        match name:
            case "ul" | "ol":
                self._lists.append(0 if name == "ol" else None)
            case "li":
                self._write(self._bullet())
            case "br":
                self._end_line(blank=True)
            case "hr":
                self._end_line()
                self._lines.append("-" * 20)
            case "a":
                self._end_link()
                self._link = attributes.get("href", "").strip(), []
            case "img":
                self._write(attributes.get("alt", ""))
            case "td" | "th" if self._line_has_text:
                self._write(" | ")

    def closed(self, name: str) -> None:
        if self._hidden_by:
            self._hidden_depth -= name == self._hidden_by
            if self._hidden_depth == 0:
                self._hidden_by = ""
            return
        if name == "a":
            self._end_link()
        self._break_for(name, nested=len(self._lists) > 1)
        if name in _LISTS and self._lists:
            self._lists.pop()

    def finished(self) -> str:
        self._end_link()
        self._end_line()
        text = "\n".join(self._lines).strip("\n")
        return f"{text}\n" if text else ""

    def _write(self, text: str) -> None:
        self._line.append(text)
        self._line_has_text = self._line_has_text or bool(text.strip())
        if self._link is not None:
            self._link[1].append(text)

    def _bullet(self) -> str:
        number = self._lists[-1] if self._lists else None
        if number is None:
            return "- "
        self._lists[-1] = number + 1
        return f"{number + 1}. "

    def _end_link(self) -> None:
        if self._link is None:
            return
        target, words = self._link
        self._link = None
        label = _folded("".join(words))
        # If the text of a link contains the address, the address is not repeated.
        if _LINK.fullmatch(target) and target.partition(":")[2].strip("/") not in label:
            self._write(f" ({target})" if label else target)

    def _break_for(self, name: str, *, nested: bool) -> None:
        if name in _PARAGRAPHS and not (name in _LISTS and nested):
            self._end_line()
            if self._lines and self._lines[-1]:
                self._lines.append("")
        elif name in _BLOCKS or name in _LISTS:
            self._end_line()

    def _end_line(self, *, blank: bool = False) -> None:
        line = _folded("".join(self._line)).removesuffix(" |") if self._line_has_text else ""
        self._line, self._line_has_text = [], False
        if line:
            indent = "  " * min(max(len(self._lists) - 1, 0), _MAX_INDENT)
            self._lines += _wrapped(line, indent)
        elif blank and self._lines and self._lines[-1]:
            self._lines.append("")


def _attributes(raw: str) -> dict[str, str]:
    """The attributes by lower-case name. Of two equal names the first counts, as in a browser."""
    found: dict[str, str] = {}
    for each in _ATTRIBUTE.finditer(raw):
        found.setdefault(each[1].lower(), html.unescape(each[2] or each[3] or each[4] or ""))
    return found


def _is_hidden(name: str, attributes: Mapping[str, str]) -> bool:
    if not attributes:
        return name in _UNSHOWN
    return name in _UNSHOWN or "hidden" in attributes or _INVISIBLE.search(attributes.get("style", "")) is not None


def _folded(text: str) -> str:
    return " ".join(text.translate(_UNSEEN).split())


def _wrapped(line: str, indent: str) -> Iterator[str]:
    # The other lines of a list item are indented to the start of its text.
    item = _ITEM.match(line)
    hanging = indent + " " * (len(item[0]) if item else 0)
    start = indent
    while len(start) + len(line) > WIDTH:
        # The last space that leaves no more than the width before it, or else the end of the first word.
        space = line.rfind(" ", 0, WIDTH - len(start) + 1)
        if space < 0:
            space = line.find(" ")
        if space < 0:
            break
        yield start + line[:space]
        start, line = hanging, line[space + 1 :]
    yield start + line
