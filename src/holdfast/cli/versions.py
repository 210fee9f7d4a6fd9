"""``version``."""

from __future__ import annotations

import platform
import sqlite3

from holdfast import __version__

from . import options
from .output import print_json, print_line


def version(json: options.Json = False) -> None:
    """Show the versions of Holdfast, Python and SQLite."""
    facts = {"holdfast": __version__, "python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    if json:
        print_json(facts)
        return
    print_line(f"holdfast {__version__} (Python {facts['python']}, SQLite {facts['sqlite']})")
