"""Routes as a feature declares them: what is checked first, what is refused, and what the document says."""

from __future__ import annotations

import json
from typing import Annotated

import httpx
import pytest
from fastapi import Body, Depends, FastAPI, Form, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict

from holdfast.api.errors import Code, Refusal
from holdfast.api.openapi import describe, refusals
from holdfast.api.routes import AsgiRoute, Routes, json_body, not_set_up, unread_body


class Sms(BaseModel):
    """A text message."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"to": "+55", "text": None}]})

    to: str
    text: str | None = None


class SmsReceipt(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"to": "+55", "sent_at": None}]})

    to: str
    sent_at: str | None


class Problem(BaseModel):
    """Has the name of a model of ours."""

    severity: int


async def guard(request: Request) -> None:
    if request.headers.get("x-key") != "mine":
        raise Refusal(Code.INVALID_API_KEY)


def sms_routes() -> Routes:
    routes = Routes("sms", "Text messages of tenants.")
    guarded = [Depends(guard)]

    @routes.post("/sms", status_code=202, dependencies=guarded, responses=refusals(Code.IDEMPOTENCY_CONFLICT))
    async def send(body: Sms, dry: Annotated[int, Query()] = 0) -> SmsReceipt:
        return SmsReceipt(to=body.to, sent_at=None)

    @routes.post("/short")
    def send_short(request: Request, sms: Sms = json_body(limit=20)) -> SmsReceipt:
        return SmsReceipt(to=sms.to, sent_at=request.headers.get("x-at"))

    @routes.post("/raw")
    async def send_raw(body: object = json_body(like=Sms)) -> dict[str, str]:
        return {"got": json.dumps(body)}

    @routes.post("/own")
    async def read_itself(
        request: Request = unread_body({"text/plain": Sms, "application/json": (Sms, Problem)}),
    ) -> str:
        return (await request.body()).decode()

    routes.only_post("/sms")
    return routes


def a_client(routes: Routes) -> httpx.AsyncClient:
    app = FastAPI()

    @app.exception_handler(Refusal)
    async def answer(_: Request, refusal: Refusal) -> Response:
        return Response(refusal.body("t"), refusal.status)

    app.include_router(routes)
    app.include_router(not_set_up("/fax", "There is no fax."))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://holdfast.test")


@pytest.fixture
async def client():
    async with a_client(sms_routes()) as made:
        yield made


@pytest.fixture
def document():
    app = FastAPI()
    routes = sms_routes()
    app.include_router(routes)
    operation = {"tags": ["fast"], "responses": {202: {"description": "Done.", "model": SmsReceipt}}}
    fast = AsgiRoute(
        path="/fast",
        method="POST",
        app=app,
        describe=lambda: operation | {"responses": {key: dict(each) for key, each in operation["responses"].items()}},
        chapter={"name": "fast", "description": "Without FastAPI."},
        security_schemes={"seal": {"type": "apiKey", "in": "header", "name": "x-seal"}},
    )
    return describe(app, [routes], [fast])


KEY = {"x-key": "mine"}


async def test_the_body_is_validated_and_passed(client):
    response = await client.post("/sms", json={"to": "1"}, headers=KEY)
    assert (response.status_code, response.json()) == (202, {"to": "1", "sent_at": None})


@pytest.mark.parametrize(
    ("path", "content", "headers", "status", "code"),
    [
        ("/sms?dry=x", b"not json", {}, 401, "INVALID_API_KEY"),
        ("/sms", b"{}", KEY, 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("/sms", b'{"to":"1","to":"2"}', KEY | {"content-type": "application/json"}, 400, "INVALID_PAYLOAD"),
        ("/sms", b'{"too":"1"}', KEY | {"content-type": "application/json"}, 400, "INVALID_PAYLOAD"),
        ("/short", b'{"to":"12345678901234567890"}', {"content-type": "application/json"}, 413, "PAYLOAD_TOO_LARGE"),
        ("/raw", b"[1,]", {"content-type": "application/json"}, 400, "INVALID_PAYLOAD"),
    ],
)
async def test_a_body_is_refused(client, path, content, headers, status, code):
    response = await client.post(path, content=content, headers=headers)
    assert (response.status_code, response.json()["errorCode"]) == (status, code)


async def test_wrong_fields_are_named(client):
    response = await client.post("/sms", json={"text": "no number"}, headers=KEY)
    assert response.json()["details"] == [{"field": "to", "problem": "is required"}]


async def test_the_query_is_checked_before_the_body(client):
    response = await client.post("/sms?dry=x", content=b"not json", headers=KEY)
    assert response.status_code == 422  # FastAPI's own answer: the app of the gateway gives another


async def test_the_body_is_not_even_read_before_the_key(client):
    asked = []

    scope = {"type": "http", "method": "POST", "path": "/sms", "query_string": b"", "headers": []}
    sent = []

    async def receive():
        asked.append(1)
        return {"type": "http.request", "body": b"{}"}

    async def send(message):
        sent.append(message)

    await client._transport.app(scope, receive, send)
    assert (sent[0]["status"], asked) == (401, [])


async def test_a_plain_function_may_be_a_route(client):
    response = await client.post("/short", json={"to": "1"}, headers={"x-at": "now"})
    assert response.json() == {"to": "1", "sent_at": "now"}


async def test_a_route_may_validate_its_body_itself(client):
    assert (await client.post("/raw", json=[1])).json() == {"got": "[1]"}


async def test_a_route_may_read_its_body_itself(client):
    assert (await client.post("/own", content=b"anything")).json() == "anything"


async def test_a_path_that_is_only_for_post_has_no_get(client):
    response = await client.get("/sms")
    assert (response.status_code, response.json()["errorCode"]) == (405, "METHOD_NOT_ALLOWED")


@pytest.mark.parametrize("path", ["/fax", "/fax/some/more"])
async def test_what_is_not_set_up_says_why(client, path):
    for method in ("GET", "POST", "DELETE"):
        response = await client.request(method, path)
        assert (response.status_code, response.json()["message"]) == (404, "There is no fax.")


async def one(body: Annotated[dict, Body()]) -> None: ...
async def two(first: Sms, second: Sms) -> None: ...
async def form(name: Annotated[str, Form()]) -> None: ...


@pytest.mark.parametrize("endpoint", [one, two, form])
def test_a_body_that_fastapi_would_read_is_a_mistake(endpoint):
    with pytest.raises(TypeError, match=endpoint.__name__):
        Routes("sms", "").post("/wrong")(endpoint)


# --- the document -------------------------------------------------------------------------------------------------


def test_the_document_shows_bodies_and_errors(document):
    send = document["paths"]["/sms"]["post"]
    assert send["requestBody"] == {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Sms"}}},
    }
    assert set(send["responses"]) == {"202", "400", "409", "413", "415", "500"}
    assert send["operationId"].startswith("send")
    bad = send["responses"]["400"]
    assert set(bad["content"]["application/json"]["examples"]) == {"INVALID_PAYLOAD", "INVALID_QUERY"}
    assert bad["description"].startswith("`INVALID_PAYLOAD`: The body")
    assert [each["name"] for each in send["parameters"]] == ["dry"]
    assert "HTTPValidationError" not in json.dumps(document)
    assert document["tags"] == [
        {"name": "fast", "description": "Without FastAPI."},
        {"name": "sms", "description": "Text messages of tenants."},
    ]


def test_examples_keep_their_nulls(document):
    schemas = document["components"]["schemas"]
    assert schemas["Sms"]["examples"] == [{"to": "+55", "text": None}]
    assert schemas["SmsReceipt"]["examples"] == [{"to": "+55", "sent_at": None}]


def test_a_body_may_have_several_models_and_media_types(document):
    content = document["paths"]["/own"]["post"]["requestBody"]["content"]
    assert content["text/plain"] == {"schema": {"$ref": "#/components/schemas/Sms"}}
    assert len(content["application/json"]["schema"]["anyOf"]) == 2


def test_two_models_may_have_the_same_name(document):
    text = json.dumps(document)
    schemas = document["components"]["schemas"]
    of_feature = document["paths"]["/own"]["post"]["requestBody"]["content"]["application/json"]["schema"]["anyOf"][1]
    assert set(schemas[of_feature["$ref"].rpartition("/")[2]]["properties"]) == {"severity"}
    details = json.dumps(schemas["ErrorView"]["properties"]["details"])
    ours = next(name for name in schemas if f'schemas/{name}"' in details)
    assert set(schemas[ours]["properties"]) == {"field", "problem"}
    assert {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]} <= set(schemas)


def test_an_asgi_route_is_described_as_the_others(document):
    fast = document["paths"]["/fast"]["post"]
    assert fast["responses"]["202"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/SmsReceipt"
    }
    assert "INTERNAL_ERROR" in fast["responses"]["500"]["content"]["application/json"]["examples"]
    assert document["components"]["securitySchemes"]["seal"]["name"] == "x-seal"


def test_errors_of_one_status_are_one_answer():
    answers = refusals(Code.INTAKE_UNAVAILABLE, Code.SERVICE_UNAVAILABLE, Code.NOT_FOUND)
    assert set(answers) == {503, 404}
    assert set(answers[503]["content"]["application/json"]["examples"]) == {"INTAKE_UNAVAILABLE", "SERVICE_UNAVAILABLE"}
    assert "Retry-After" in answers[503]["headers"]
    assert "headers" not in answers[404]
