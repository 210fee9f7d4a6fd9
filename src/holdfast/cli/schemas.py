"""``schema``: every contract as a JSON Schema, for other programs."""

from __future__ import annotations

import json as json_module
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from pydantic import BaseModel

from holdfast.api.dead_letters import ReplayBody
from holdfast.api.operators import DecisionBody
from holdfast.api.views import (
    ErrorView,
    JobReceipt,
    JobView,
    LetterList,
    LetterView,
    ReplayView,
)
from holdfast.features.courier import ActiveShipment, Courier, CourierDeadLetter, CourierIntake
from holdfast.features.courier.views import EventReceipt, EventView, ShipmentView
from holdfast.features.documents.admission import DocumentRequest
from holdfast.features.documents.callbacks import CallbackJob, DocumentCallbacks
from holdfast.features.documents.contract import DocumentJob
from holdfast.features.documents.dead_letter import DocumentDeadLetter
from holdfast.features.documents.views import (
    DocumentCancel,
    DocumentContent,
    DocumentList,
    DocumentReceipt,
    DocumentView,
)
from holdfast.features.documents.workload import Documents

from . import options
from .opening import app_of
from .output import print_json, say
from .tables import show_table

schema = typer.Typer(help="List and export the contracts as JSON Schemas.", no_args_is_help=True, add_completion=False)

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, slots=True)
class Contract:
    """A model of data that we exchange with other programs. ``side``: whether we read it or write it."""

    name: str
    model: type[BaseModel]
    what: str
    side: Literal["validation", "serialization"] = "validation"

    @property
    def file(self) -> str:
        """The name of its file."""
        return re.sub(r"[^A-Za-z0-9._-]", "_", self.name) + ".schema.json"

    def document(self) -> dict[str, Any]:
        """Its JSON Schema."""
        made = self.model.model_json_schema(mode=self.side, by_alias=True)
        return {"$schema": _DIALECT, "$id": f"urn:holdfast:{self.name}", **made}


_COURIER: Final = (
    Contract("courier.intake", CourierIntake, "what a courier posts to /v1/events/courier"),
    Contract("courier.dead-letter", CourierDeadLetter, f"a job of {Courier.dead_letter_queue}", "serialization"),
    Contract("courier.active-shipment", ActiveShipment, "a record of active_shipments", "serialization"),
)
_DOCUMENTS: Final = (
    Contract("documents.job", DocumentJob, f"a job of {Documents.queue}"),
    Contract("documents.request", DocumentRequest, "what a tenant posts to /v1/documents, as JSON"),
    Contract("documents.dead-letter", DocumentDeadLetter, f"a job of {Documents.dead_letter_queue}", "serialization"),
    Contract("document_callbacks.job", CallbackJob, f"a job of {DocumentCallbacks.queue}; its body is the callback's"),
)
_HTTP: Final = (
    Contract("http.event-receipt", EventReceipt, "the answer to an accepted event", "serialization"),
    Contract("http.job-receipt", JobReceipt, "the answer to an accepted job", "serialization"),
    Contract("http.error", ErrorView, "the answer to anything refused", "serialization"),
    Contract("http.event", EventView, "an event's state and attempts", "serialization"),
    Contract("http.job", JobView, "a job's state and attempts", "serialization"),
    Contract("http.shipment", ShipmentView, "a shipment and its timeline", "serialization"),
    Contract("http.dead-letter", LetterView, "a dead letter, whole", "serialization"),
    Contract("http.dead-letters", LetterList, "a page of dead letters", "serialization"),
    Contract("http.decision", DecisionBody, "who reviews, replays or closes, and why"),
    Contract("http.replay", ReplayBody, "a replay of many"),
    Contract("http.replay-report", ReplayView, "what a replay of many did", "serialization"),
    Contract("http.document-receipt", DocumentReceipt, "the answer to an accepted document", "serialization"),
    Contract("http.document", DocumentView, "the status of a document", "serialization"),
    Contract("http.documents", DocumentList, "a page of documents", "serialization"),
    Contract("http.document-result", DocumentContent, "the result of a document, and its text", "serialization"),
    Contract("http.document-cancel", DocumentCancel, "the status of a cancelled document", "serialization"),
)


def contracts(app: str | None) -> list[Contract]:
    """Every contract of the shipped workloads, of the user's, and of the HTTP interface."""
    own = app_of(app)
    jobs = [
        Contract(f"{workload.name}.job", workload.contract, f"a job of {workload.queue}")
        for workload in (Courier(), *(own.workloads if own else ()))
    ]
    return [*jobs, *_COURIER, *_DOCUMENTS, *_HTTP]


@schema.command("list")
def list_(app: options.App = None, json: options.Json = False) -> None:
    """List all contracts."""
    found = contracts(app)
    if json:
        print_json([{"name": each.name, "file": each.file, "what": each.what} for each in found])
        return
    show_table(("name", "file", "what it is"), ((each.name, each.file, each.what) for each in found), whole=("name",))


@schema.command("export")
def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder; created if missing.", show_default=False)],
    app: options.App = None,
) -> None:
    """Write each contract to its own file. The same contracts always give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    found = contracts(app)
    for each in found:
        text = json_module.dumps(each.document(), indent=2, ensure_ascii=False)
        (folder / each.file).write_text(text + "\n", encoding="utf-8")
    say(f"Wrote {len(found)} JSON Schemas to {folder}.")
