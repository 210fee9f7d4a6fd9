"""``schema``: every contract as a JSON Schema, for other programs."""

from __future__ import annotations

import json as json_module
import re
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from holdfast.api.dead_letters import ReplayBody
from holdfast.api.operators import DecisionBody
from holdfast.api.views import ErrorView, JobReceipt, JobView, LetterList, LetterView, ReplayView
from holdfast.feature import Schema
from holdfast.installed import features_of

from . import options
from .opening import app_of
from .output import say, show_list

schema = typer.Typer(help="List and export the contracts as JSON Schemas.", no_args_is_help=True, add_completion=False)

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


_HTTP: Final = (
    Schema("http.job-receipt", JobReceipt, "the answer to an accepted job", "serialization"),
    Schema("http.error", ErrorView, "the answer to anything refused", "serialization"),
    Schema("http.job", JobView, "a job's state and attempts", "serialization"),
    Schema("http.dead-letter", LetterView, "a dead letter, whole", "serialization"),
    Schema("http.dead-letters", LetterList, "a page of dead letters", "serialization"),
    Schema("http.decision", DecisionBody, "who reviews, replays or closes, and why"),
    Schema("http.replay", ReplayBody, "a replay of many"),
    Schema("http.replay-report", ReplayView, "what a replay of many did", "serialization"),
)


def schemas(app: str | None) -> list[Schema]:
    """Every contract of the features, of the user's workloads, and of the HTTP interface."""
    own = app_of(app)
    jobs = [
        Schema(f"{workload.name}.job", workload.contract, f"a job of {workload.queue}")
        for workload in (own.workloads if own else ())
    ]
    return [*(each for feature in features_of(own) for each in feature.schemas()), *jobs, *_HTTP]


def _file(schema: Schema) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", schema.name) + ".schema.json"


def _document(schema: Schema) -> dict[str, Any]:
    made = schema.model.model_json_schema(mode=schema.side, by_alias=True)
    return {"$schema": _DIALECT, "$id": f"urn:holdfast:{schema.name}", **made}


@schema.command("list")
def list_(app: options.App = None, json: options.Json = False) -> None:
    """List all contracts."""
    show_list(
        schemas(app),
        lambda each: {"name": each.name, "file": _file(each), "what it is": each.what},
        lambda each: {"name": each.name, "file": _file(each), "what": each.what},
        json=json,
        whole=("name",),
    )


@schema.command("export")
def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder; created if missing.", show_default=False)],
    app: options.App = None,
) -> None:
    """Write each contract to its own file. The same contracts always give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    found = schemas(app)
    for each in found:
        text = json_module.dumps(_document(each), indent=2, ensure_ascii=False)
        (folder / _file(each)).write_text(text + "\n", encoding="utf-8")
    say(f"Wrote {len(found)} JSON Schemas to {folder}.")
