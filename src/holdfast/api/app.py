"""The app: FastAPI for the routes, and the plain ASGI routes of features before it.

A frame around FastAPI gives every answer its ``x-request-id`` and turns an unexpected exception into a 500 with the
usual error body. A plain ASGI route does the same for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException

from holdfast.contracts import tracing
from holdfast.contracts.errors import HoldfastError
from holdfast.contracts.ports import Ids
from holdfast.contracts.tracing import labels_of, request_labels
from holdfast.telemetry import emit_failure, events, refused

from . import ApiOptions, ApiServices
from .asgi import (
    REQUEST_ID,
    TRACE,
    TRACEPARENT,
    Disconnected,
    Message,
    Receive,
    Scope,
    Send,
    Shortcut,
    pick,
    route_path,
    send_refusal,
    valid_trace_id,
)
from .dead_letters import dead_letter_routes
from .documentation import add_documentation
from .errors import Code, Refusal, field_problems, refusal_of
from .frame import FeatureApi, FeatureRoutes
from .health import health_routes
from .jobs import job_routes
from .openapi import describe
from .operators import OperatorGuard
from .records import record_routes
from .routes import not_set_up
from .schedules import schedule_routes

_SAFE_HEADERS: Final = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
"""What an answer has, unless its route says otherwise."""
_TRACED: Final = frozenset({REQUEST_ID, TRACEPARENT})
_MOST_PARAMETERS: Final = 100
_TOO_MANY_PARAMETERS: Final = f"The query has more than {_MOST_PARAMETERS} parameters."

_REQUEST_FOR_NOTHING: Final = {
    "type": "http",
    "http_version": "1.1",
    "method": "GET",
    "scheme": "http",
    "path": "/-",
    "raw_path": b"/-",
    "root_path": "",
    "query_string": b"",
    "headers": [],
}
"""No route has this path, so each of them is compared with it."""


class Gateway:
    """The whole API as one ASGI app."""

    def __init__(self, rest: FastAPI, ids: Ids, routes: Sequence[FeatureRoutes]) -> None:
        self._rest = rest
        self._ids = ids
        self._direct = {each.path: each.app for one in routes for each in one.direct}
        self.shortcuts: Mapping[bytes, Shortcut] = {
            each.path.encode("ascii"): each.shortcut for one in routes for each in one.direct if each.shortcut
        }
        """What a server may call instead of this app, by path."""
        self._leaving = [each.leave for each in routes if each.leave is not None]

    def leave(self) -> None:
        """The process is about to stop: end long-running answers. Other answers are finished as usual."""
        for leave in self._leaving:
            leave()

    async def prepare(self) -> None:
        """Make everything that FastAPI would make during the first request: that takes up to half a second (I18)."""

        async def drop(message: Message) -> None:
            del message

        await self._rest({**_REQUEST_FOR_NOTHING, TRACE: "prepare"}, _no_body, drop)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._rest(scope, receive, send)
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Its jobs get its labels: see :mod:`holdfast.contracts.tracing`."""
        headers, repeated = pick(scope["headers"], _TRACED)
        sent = {name: value for name, value in headers.items() if name not in repeated}
        request_id = valid_trace_id(sent.get(REQUEST_ID))
        labels = labels_of(request_id, sent.get(TRACEPARENT, b"").decode("latin-1"))
        direct = self._direct.get(route_path(scope))
        if direct is None:
            if request_id is None:
                request_id = labels[tracing.REQUEST_ID] = self._ids.new("req")
            scope[TRACE] = request_id
        token = request_labels.set(labels)
        try:
            await (self._framed if direct is None else direct)(scope, receive, send)
        finally:
            request_labels.reset(token)

    async def _framed(self, scope: Scope, receive: Receive, send: Send) -> None:
        trace_id = scope[TRACE]
        started = False
        if scope["query_string"].count(b"&") >= _MOST_PARAMETERS:
            refused("query_parameters")
            await send_refusal(send, Refusal(Code.INVALID_QUERY, _TOO_MANY_PARAMETERS), trace_id)
            return

        async def send_traced(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                own = message.get("headers", ())
                named = {name for name, _ in own}
                safe = [each for each in _SAFE_HEADERS if each[0] not in named]
                message["headers"] = [*own, *safe, (REQUEST_ID, trace_id.encode("ascii"))]
            await send(message)

        try:
            await self._rest(scope, receive, send_traced)
        except Disconnected:
            return
        except Exception as error:  # noqa: BLE001 - the outermost frame: log the error and answer
            emit_failure(events.API_UNEXPECTED, error, trace_id=trace_id)
            if not started:
                await send_refusal(send, Refusal(Code.INTERNAL_ERROR), trace_id)


async def _no_body() -> Message:
    return {"type": "http.request", "body": b""}


def create_app(services: ApiServices, options: ApiOptions, features: Sequence[FeatureApi] = ()) -> Gateway:
    """Make the API over these services, with the routes of the features."""
    rest = FastAPI(
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    rest.add_exception_handler(Refusal, _answer_refusal)
    rest.add_exception_handler(HoldfastError, _answer_failure)
    rest.add_exception_handler(RequestValidationError, _answer_bad_query)
    rest.add_exception_handler(HTTPException, _answer_routing)
    rest.add_exception_handler(Exception, _answer_unexpected)

    routes = [each.routes for each in features if each.routes is not None]
    intakes = {
        name: sentence for each in features for name, sentence in each.intakes.items() if name in services.workloads
    }
    guard = [Depends(OperatorGuard(options))]
    brought = [group for each in routes for group in each.groups]  # with guards of their own
    jobs = job_routes(services, options, intakes)
    guarded = [
        record_routes(services),
        dead_letter_routes(services, options),
        schedule_routes(services, options),
    ]
    health = health_routes(services)
    for group in guarded:
        rest.include_router(group, dependencies=guard)
    for group in (*jobs.groups, *brought, health):
        rest.include_router(group)
    for each in features:
        if each.routes is None:
            for path in each.paths:
                rest.include_router(not_set_up(path, each.refusal))
    direct = [each for one in routes for each in one.direct]
    rest.state.docs = options.docs
    if options.docs:
        add_documentation(rest, lambda: describe(rest, [*brought, *jobs.groups, *guarded, health], direct))
    return Gateway(rest, services.ids, [jobs, *routes])


# --- errors of the routes behind FastAPI --------------------------------------------------------------------------


def _answer(request: Request, refusal: Refusal) -> Response:
    body = refusal.body(request.scope[TRACE])
    return Response(body, refusal.status, headers=refusal.headers, media_type="application/json")


async def _answer_refusal(request: Request, error: Exception) -> Response:
    return _answer(request, cast("Refusal", error))


async def _answer_failure(request: Request, error: Exception) -> Response:
    refusal = refusal_of(cast("HoldfastError", error))
    if refusal.code is Code.INTERNAL_ERROR:
        emit_failure(events.API_UNEXPECTED, error, trace_id=request.scope[TRACE])
    return _answer(request, refusal)


async def _answer_bad_query(request: Request, error: Exception) -> Response:
    errors = cast("Sequence[ErrorDetails]", cast("RequestValidationError", error).errors())
    # FastAPI puts "query" or "path" before the name. The caller wrote only the name.
    named = [cast("ErrorDetails", {**each, "loc": each["loc"][1:]}) for each in errors]
    return _answer(request, Refusal(Code.INVALID_QUERY, details=field_problems(named)))


async def _answer_routing(request: Request, error: Exception) -> Response:
    """Answer what the router refuses: an unknown path, or a method that the path does not have."""
    routing = cast("HTTPException", error)
    if routing.status_code == 405:  # noqa: PLR2004 - Method Not Allowed
        return _answer(request, Refusal(Code.METHOD_NOT_ALLOWED, headers=routing.headers))
    hint = "; /docs lists all paths." if request.app.state.docs else "."
    return _answer(request, Refusal(Code.NOT_FOUND, f"This path does not exist{hint}"))


async def _answer_unexpected(request: Request, _: Exception) -> Response:
    """Starlette raises the exception again after this answer; the frame logs it."""
    return _answer(request, Refusal(Code.INTERNAL_ERROR))
