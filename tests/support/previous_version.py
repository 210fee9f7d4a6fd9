"""The data of the previous version, as fixtures: ``tests/assets/previous-version``. ``write_fixtures`` makes them.

Retention, leases and delays depend on the present time. So the data is loaded as if the previous version had stopped
two hours ago: every instant in the files moves by the same span.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from bson import json_util
from pymongo import IndexModel
from pymongo.database import Database

from tests.support.write_fixtures import FOLDER

FIXTURES: Final = Path(__file__).parents[1] / "assets" / "previous-version"
STOPPED: Final = timedelta(hours=2)
"""So long ago. The lease of the lost job has ended, and so have the short delay and the wait for the retry."""

_MILLISECONDS: Final = r"\b1[6-9]\d{11}\b"
_ISO: Final = r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z"
_INSTANT: Final = re.compile(f"{_MILLISECONDS}|{_ISO}")


def facts_of(deployment: str) -> dict[str, Any]:
    """Everything that the previous version said about its data."""
    return json.loads((FIXTURES / deployment / "facts.json").read_text(encoding="utf-8"))


def load_embedded(folder: Path) -> dict[str, str]:
    """Put the data folder into ``folder``; return the settings that open it."""
    data = folder / "holdfast-data"
    _copy_files("embedded", data)
    script = _moved("embedded", folder)((FIXTURES / "embedded" / "holdfast.sql").read_text(encoding="utf-8"))
    with contextlib.closing(sqlite3.connect(data / "holdfast.db")) as connection:
        connection.executescript(script)
    return {"HOLDFAST_DATA": str(data)}


def load_cluster(folder: Path, database: Database[dict[str, Any]]) -> dict[str, str]:
    """Fill the database, and put the files into ``folder``; return the settings that open them.

    Redis stays empty: a queue may be lost at any time.
    """
    _copy_files("cluster", folder / "files")
    moved = _moved("cluster", folder)
    for path in sorted((FIXTURES / "cluster" / "collections").glob("*.json")):
        content = json_util.loads(moved(path.read_text(encoding="utf-8")))
        collection = database.create_collection(path.stem)
        collection.create_indexes([_index(each) for each in content["indexes"]])
        if content["records"]:
            collection.insert_many(content["records"])
    return {"DOCUMENT_FOLDER": str(folder / "files" / "documents"), "EMAIL_FOLDER": str(folder / "files" / "mail")}


def _copy_files(deployment: str, target: Path) -> None:
    shutil.copytree(FIXTURES / deployment / "files", target)
    (target / "documents" / "incoming").mkdir()  # it was empty, and git keeps no empty folders


def _index(stored: dict[str, Any]) -> IndexModel:
    options = {name: value for name, value in stored.items() if name not in {"v", "key"}}
    return IndexModel(list(stored["key"].items()), **options)


def _moved(deployment: str, folder: Path) -> Any:
    """A function that moves the instants of a text, and names the folder."""
    made = datetime.fromisoformat(facts_of(deployment)["madeAt"])
    span = datetime.now(UTC) - STOPPED - made

    def move(found: re.Match[str]) -> str:
        text = found.group()
        if not text.endswith("Z"):
            return str(int(text) + int(span / timedelta(milliseconds=1)))
        instant = datetime.fromisoformat(text) + span
        return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    return lambda text: _INSTANT.sub(move, text).replace(FOLDER, str(folder))
