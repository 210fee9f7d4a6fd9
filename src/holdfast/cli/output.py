"""Printing. Results go to standard output, messages about them to standard error.

Every start of the program imports this module, so it imports nothing heavy.
"""

from __future__ import annotations

import json
import sys


def printable(text: str) -> str:
    """The text with every invisible character written as an escape.

    Keys and payloads come from outside. The terminal must show an escape sequence in them, not obey it.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def print_json(document: object, *, one_line: bool = False) -> None:
    """Print JSON on standard output, in ASCII: every terminal, locale and parser can read it."""
    sys.stdout.write(json.dumps(document, indent=None if one_line else 2) + "\n")
    sys.stdout.flush()


def print_line(line: str) -> None:
    """Print one line on standard output, and flush it, also into a pipe."""
    sys.stdout.write(printable(line) + "\n")
    sys.stdout.flush()


def say(message: str) -> None:
    """Print a message for people on standard error, where no script reads it."""
    sys.stderr.write(printable(message) + "\n")
