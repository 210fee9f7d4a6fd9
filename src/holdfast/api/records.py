"""``/v1/records/{collection}``: the records that the installation's own workloads write."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field

from holdfast.contracts.admission import FieldProblem
from holdfast.contracts.errors import NotFound
from holdfast.contracts.queries import Page, RecordQuery

from . import ApiServices
from .errors import Code, Refusal
from .filters import MAX_PAGE, Filter, conditions
from .openapi import refusals
from .routes import Routes
from .views import RecordList

_ABOUT: Final = "Records that the handlers of your own workloads wrote. Needs the operator token."
_MOST_FIELDS: Final = 5
_LIST: Final = """\
In the order of their keys. All conditions must hold. The fields of `where` must be those of an index of the collection.
A value that is JSON is taken as such (`12`, `true`, `"12"`); every other value is text."""

CollectionName = Annotated[str, Path(description="The collection's name.", examples=["invoices"])]


class RecordListing(BaseModel):
    """A filter for records, and which page of them to show."""

    model_config = ConfigDict(extra="forbid")

    where: list[Annotated[str, Field(max_length=500)]] = Field(
        default=[], max_length=_MOST_FIELDS, description="`field=value`; may be repeated.", examples=[["customer=ACME"]]
    )
    limit: int = Field(default=50, ge=1, le=MAX_PAGE)
    cursor: Filter | None = Field(default=None, description="The `next` of the page before.")


def record_routes(services: ApiServices) -> Routes:
    """List records, and show one. The records of features are not shown: each feature has routes of its own."""
    routes = Routes("records", _ABOUT)
    collections = {
        collection.name: collection
        for name in services.own_workloads
        for collection in services.workloads[name].collections
    }

    def known(name: str) -> str:
        if name not in collections:
            names = ", ".join(collections) or "none"
            raise Refusal(Code.NOT_FOUND, f"There is no such collection here. Known: {names}.")
        return name

    @routes.get(
        "/v1/records/{collection}",
        summary="List records",
        description=_LIST,
        responses=refusals(Code.NOT_INDEXED),
    )
    async def list_records(collection: CollectionName, listing: Annotated[RecordListing, Query()]) -> RecordList:
        name, where = known(collection), conditions("where", listing.where)
        indexed = {collections[name].key, *(field for fields in collections[name].indexes for field in fields)}
        if not where.keys() <= indexed:
            problem = f"must be among the indexed fields of the collection: {', '.join(sorted(indexed)) or 'none'}"
            raise Refusal(Code.NOT_INDEXED, details=[FieldProblem("where", problem)])
        query = RecordQuery(collection=name, where={field: _value(text) for field, text in where.items()})
        found = await services.store.find_records(query, Page(listing.limit, listing.cursor))
        return RecordList(items=[dict(each) for each in found.items], next=found.next)

    @routes.get("/v1/records/{collection}/{key:path}", summary="Show a record")
    async def show_record(
        collection: CollectionName, key: Annotated[str, Path(examples=["2026-001"])]
    ) -> dict[str, Any]:
        found = await services.store.get(known(collection), key)
        if found is None:
            raise NotFound
        return dict(found)

    return routes


def _value(text: str) -> Any:  # noqa: ANN401 - a JSON value
    """A number, a truth value, null or a text in quotes, if the text is the JSON of one; otherwise the text itself."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(found, dict | list) else found
