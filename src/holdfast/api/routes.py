"""What features make their routes of: a group of routes, and bodies that are read strictly.

FastAPI reads the body of a request before it asks for the API key, without a limit, and with a lenient parser. The
routes of a :class:`Routes` read it last: the key, the path, the query and the headers have been checked. The body has a
limit, and it must be JSON that every parser reads in the same way. Each route says what its body is; ``/openapi.json``
shows it.

    routes = Routes("sms", "Text messages of tenants.")

    @routes.post("/v1/sms", dependencies=[Depends(guard)], responses=refusals(Code.IDEMPOTENCY_CONFLICT))
    async def send(body: Sms) -> SmsReceipt: ...
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool

from . import strict_json
from .asgi import Receive, Scope, Send, Shortcut, read_json_bytes
from .errors import Code, Refusal, field_problems

MAX_BODY: Final = 256 * 1024

JSON_TYPE: Final = "application/json"

Model = TypeVar("Model", bound=BaseModel)
Contents = Mapping[str, type[BaseModel] | tuple[type[BaseModel], ...]]
"""The models of a body by media type. A tuple means: one of these models."""

_BODIES: Final = "holdfast_bodies"
_MOST_ITEMS: Final = "holdfast_most_items"
_REQUEST: Final = "http_request"
_LARGE: Final = 64 * 1024


# --- the body of a route ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _JsonBody:
    limit: int
    like: type[BaseModel] | None = None
    most_values: int = strict_json.MAX_VALUES

    async def parsed(self, raw: bytes) -> Any:  # noqa: ANN401 - any JSON value
        """The JSON value. A large one is read in a thread: the other requests go on."""
        if len(raw) <= _LARGE:
            return strict_json.parse(raw, self.most_values)
        return await run_in_threadpool(strict_json.parse, raw, self.most_values)


@dataclass(frozen=True, slots=True)
class _UnreadBody:
    contents: Contents
    most_items: int = 0


def json_body(
    *, limit: int = MAX_BODY, like: type[BaseModel] | None = None, most_values: int = strict_json.MAX_VALUES
) -> Any:  # noqa: ANN401 - a default value
    """The default of the parameter that gets the body.

    For example: ``async def send(body: Sms = json_body(limit=10_000))``. Without this default, a parameter that is
    a model is the body, too. With ``like``, the body is described as this model, but the route gets the JSON value as
    it is, and validates it by itself. ``most_values`` limits the members of objects and elements of lists in it.
    """
    return _JsonBody(limit, like, most_values)


def unread_body(contents: Contents, *, most_items: int = 0) -> Any:  # noqa: ANN401 - a default value
    """The default of ``request: Request`` in a route that reads its body by itself. It only describes the body.

    With ``most_items``, the body may be a list of so many of its models, too.
    """
    return _UnreadBody(contents, most_items)


async def read_model(request: Request, contract: type[Model], limit: int) -> Model:
    """The body as an instance of its contract. The refusal names the fields that are wrong."""
    raw = await read_json_bytes(request.scope["headers"], request.receive, limit)
    strict_json.parse(raw)
    try:
        return contract.model_validate_json(raw)
    except ValidationError as error:
        details = field_problems(error.errors(include_url=False))
        raise Refusal(Code.INVALID_PAYLOAD, details=details) from error


# --- routes -------------------------------------------------------------------------------------------------------


class StrictRoute(APIRoute):
    """A route that reads its body strictly, after all other checks."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:  # noqa: ANN401 - as FastAPI's
        super().__init__(path, _with_strict_body(endpoint), **options)
        if self.body_field is not None:
            message = f"{endpoint.__name__}: a body must be one parameter that is a pydantic model, or json_body()."
            raise TypeError(message)

    @property
    def bodies(self) -> Contents:
        """The models of the body, by media type; empty: the route has no body."""
        found: Contents = getattr(self.endpoint, _BODIES, {})
        return found

    @property
    def most_items(self) -> int:
        """The most items of a body that is a list; 0: the body is no list."""
        most: int = getattr(self.endpoint, _MOST_ITEMS, 0)
        return most


class Routes(APIRouter):
    """The routes of one group, behind ``guards``: a chapter of ``/docs`` with its name and its description."""

    def __init__(self, name: str, description: str, *guards: Any) -> None:  # noqa: ANN401 - dependencies of FastAPI
        super().__init__(tags=[name], route_class=StrictRoute, dependencies=guards)
        self.chapter = {"name": name, "description": description}

    def only_post(self, path: str) -> None:
        """Answer GET with 405. Otherwise a route with a parameter would read the end of this path as its value."""

        @self.get(path, include_in_schema=False)
        async def refuse_get() -> None:
            raise Refusal(Code.METHOD_NOT_ALLOWED, headers={"allow": "POST"})


def not_set_up(path: str, message: str) -> APIRouter:
    """Answer this path and all paths below with 404 and the reason."""
    routes = APIRouter(include_in_schema=False)
    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]

    @routes.api_route(path, methods=methods)
    @routes.api_route(f"{path}/{{rest:path}}", methods=methods)
    async def refuse() -> None:
        raise Refusal(Code.NOT_FOUND, message)

    return routes


@dataclass(frozen=True, slots=True, kw_only=True)
class AsgiRoute:
    """One path that answers without FastAPI, for speed.

    ``describe`` returns its OpenAPI operation. As in FastAPI, an answer may name its ``model``. The frame adds the
    error answers that all operations have.
    """

    path: str
    method: str
    app: Callable[[Scope, Receive, Send], Awaitable[None]]
    describe: Callable[[], dict[str, Any]]
    chapter: Mapping[str, str]
    security_schemes: Mapping[str, Any] = field(default_factory=dict)
    shortcut: Shortcut | None = None


def _with_strict_body(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """The endpoint as FastAPI shall see it: without its body, which is read when FastAPI has checked the rest."""
    signature = inspect.signature(endpoint, eval_str=True)
    found = [(each, body) for each in signature.parameters.values() if (body := _body_of(each)) is not None]
    if len(found) != 1:
        return endpoint
    ((parameter, body),) = found
    others = [each for each in signature.parameters.values() if each is not parameter]
    if isinstance(body, _UnreadBody):
        others.append(parameter.replace(default=parameter.empty))
        setattr(endpoint, _MOST_ITEMS, body.most_items)
        return _seen_as(endpoint, endpoint, signature, others, body.contents)
    own_request = next((each.name for each in others if each.annotation is Request), None)
    if own_request is None:
        others.append(inspect.Parameter(_REQUEST, parameter.KEYWORD_ONLY, annotation=Request))

    async def read_and_call(**values: Any) -> Any:  # noqa: ANN401 - any endpoint
        request: Request = values[own_request] if own_request else values.pop(_REQUEST)
        if body.like is None:
            values[parameter.name] = await read_model(request, parameter.annotation, body.limit)
        else:
            raw = await read_json_bytes(request.scope["headers"], request.receive, body.limit)
            values[parameter.name] = await body.parsed(raw)
        if inspect.iscoroutinefunction(endpoint):
            return await endpoint(**values)
        return await run_in_threadpool(endpoint, **values)  # as in FastAPI

    contents = {JSON_TYPE: body.like or parameter.annotation}
    return _seen_as(read_and_call, endpoint, signature, others, contents)


def _body_of(parameter: inspect.Parameter) -> _JsonBody | _UnreadBody | None:
    """How this parameter gets the body; None: it is another parameter."""
    if isinstance(parameter.default, _JsonBody | _UnreadBody):
        return parameter.default
    plain = parameter.default is parameter.empty and isinstance(parameter.annotation, type)
    return _JsonBody(MAX_BODY) if plain and issubclass(parameter.annotation, BaseModel) else None


def _seen_as(
    call: Callable[..., Any],
    endpoint: Callable[..., Any],
    signature: inspect.Signature,
    parameters: list[inspect.Parameter],
    contents: Contents,
) -> Callable[..., Any]:
    """Give ``call`` the name of the endpoint, these parameters, and its bodies."""
    call.__name__, call.__doc__, call.__module__ = endpoint.__name__, endpoint.__doc__, endpoint.__module__
    keywords = [each.replace(kind=each.KEYWORD_ONLY) for each in parameters]
    setattr(call, "__signature__", signature.replace(parameters=keywords))  # noqa: B010 - unknown to mypy
    setattr(call, _BODIES, contents)
    return call
