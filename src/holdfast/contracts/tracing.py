"""What a request says about itself, and what each of its jobs keeps: its id, and its place in a trace.

The API sets :data:`request_labels` for each request. The intake adds these labels to each job that it accepts
meanwhile:

* ``requestId``: the ``x-request-id`` of the request; the answer has it too
* ``traceId``: the trace id of the ``traceparent`` (32 hexadecimal digits); without one, a new trace id
* ``traceparent``: the header as it was sent, for the spans of the job

A workload's own label of the same name wins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final
from uuid import uuid4

from .redaction import find_personal_data

TRACE_ID: Final = "traceId"
REQUEST_ID: Final = "requestId"
TRACEPARENT: Final = "traceparent"

request_labels: Final[ContextVar[Mapping[str, str]]] = ContextVar("request_labels", default=MappingProxyType({}))
"""The labels for the jobs of the request that is being answered. Empty outside of a request."""

_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-[!-~]*)?")
_LONGEST: Final = 200


def trace_id_of(traceparent: str) -> str | None:
    """The trace id of a W3C ``traceparent``; None if the header is not valid.

    A later version than 00 may have more parts, as the standard says. Version ff and ids of zeros are not valid.
    """
    found = _TRACEPARENT.fullmatch(traceparent) if len(traceparent) <= _LONGEST else None
    if found is None:
        return None
    version, trace_id, parent_id, more = found.groups()
    if version == "ff" or (version == "00" and more is not None):
        return None
    return trace_id if trace_id.strip("0") and parent_id.strip("0") else None


def passed_on(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that a job passes on to the jobs that follow from it: they belong to the same request."""
    return {name: labels[name] for name in (TRACE_ID, REQUEST_ID, TRACEPARENT) if name in labels}


def new_trace_id() -> str:
    """A trace id that nobody has used before: 32 hexadecimal digits."""
    return uuid4().hex


def labels_of(request_id: str | None, traceparent: str | None = None) -> dict[str, str]:
    """The labels for the jobs of a request.

    A ``traceparent`` that is not valid counts as none. A request id with a tax number or a card number in it is left
    out: labels are logged and shown (I14).
    """
    trace_id = None if traceparent is None else trace_id_of(traceparent)
    labels = {TRACE_ID: trace_id or new_trace_id()}
    if request_id is not None and find_personal_data(request_id) is None:
        labels[REQUEST_ID] = request_id
    if trace_id is not None and traceparent is not None:
        labels[TRACEPARENT] = traceparent
    return labels
