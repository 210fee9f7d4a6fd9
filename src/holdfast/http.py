"""For the routes of features: read a request, refuse it, know its sender. Public. It loads the web framework."""

from __future__ import annotations

from holdfast.api import strict_json
from holdfast.api.asgi import (
    BODY_HEADERS,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    REQUEST_ID,
    TRACE,
    TRACEPARENT,
    Disconnected,
    Headers,
    Message,
    Receive,
    Reply,
    Scope,
    Send,
    Shortcut,
    pick,
    read_body,
    refusal_of_any,
    reply_refusal,
    require_plain_json,
    send_json,
    send_refusal,
    valid_trace_id,
)
from holdfast.api.batches import batch_response
from holdfast.api.errors import Code, Refusal, field_problems, intake_refusal_of, refusal_of
from holdfast.api.frame import FeatureRoutes, Frame
from holdfast.api.openapi import INTAKE_CODES, header, refusals
from holdfast.api.routes import JSON_TYPE, AsgiRoute, Contents, Routes, json_body, unread_body
from holdfast.api.streams import Progress, ProgressStream, Streams, event_schema
from holdfast.api.tenant_guard import tenant_of

__all__ = [
    "BODY_HEADERS",
    "CONTENT_ENCODING",
    "CONTENT_LENGTH",
    "CONTENT_TYPE",
    "INTAKE_CODES",
    "JSON_TYPE",
    "REQUEST_ID",
    "TRACE",
    "TRACEPARENT",
    "AsgiRoute",
    "Code",
    "Contents",
    "Disconnected",
    "FeatureRoutes",
    "Frame",
    "Headers",
    "Message",
    "Progress",
    "ProgressStream",
    "Receive",
    "Refusal",
    "Reply",
    "Routes",
    "Scope",
    "Send",
    "Shortcut",
    "Streams",
    "batch_response",
    "event_schema",
    "field_problems",
    "header",
    "intake_refusal_of",
    "json_body",
    "pick",
    "read_body",
    "refusal_of",
    "refusal_of_any",
    "refusals",
    "reply_refusal",
    "require_plain_json",
    "send_json",
    "send_refusal",
    "strict_json",
    "tenant_of",
    "unread_body",
    "valid_trace_id",
]
