"""What the program prints. Results go to standard output, words about them to standard error.

This module loads nothing heavy: every start of the program imports it.
"""

from __future__ import annotations

import json
import sys


def printable(text: str) -> str:
    """The text with everything that is not visible written out.

    Keys and payloads come from outside; an escape sequence in one must reach the reader's eyes, not their terminal.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def print_json(document: object, *, one_line: bool = False) -> None:
    """A JSON document on standard output, in ASCII: every terminal, locale and parser can take it."""
    sys.stdout.write(json.dumps(document, indent=None if one_line else 2) + "\n")
    sys.stdout.flush()


def print_line(line: str) -> None:
    """One line on standard output, at once, also into a pipe."""
    sys.stdout.write(printable(line) + "\n")
    sys.stdout.flush()


def say(message: str) -> None:
    """A word to the person, on standard error, where it is in no script's way."""
    sys.stderr.write(printable(message) + "\n")
