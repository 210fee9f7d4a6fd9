"""The routes of operators: events, shipments, health; and the rules of all routes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from pydantic import BaseModel

from holdfast import Upsert, __version__
from holdfast.api import dead_letters, operators, views
from holdfast.contracts.times import isoformat
from holdfast.contracts.transitions import Complete, RetryLater
from holdfast.features.courier import views as courier_views
from holdfast.features.documents import admission as document_admission
from holdfast.features.documents import views as document_views
from holdfast.features.email import routes as email_routes
from holdfast.features.email import views as email_views
from tests.api.courier_api import OPERATOR, TOKEN, AwayBroker, AwayStore, event

OPERATOR_ROUTES = [
    ("GET", "/v1/events/courier-x:evt_1"),
    ("GET", "/v1/shipments/shp_1"),
    ("GET", "/v1/jobs/invoices/invoice/1"),
    ("POST", "/v1/jobs/invoices"),
    ("GET", "/v1/dead-letters"),
    ("GET", "/v1/dead-letters/dl_1"),
    ("POST", "/v1/dead-letters/dl_1/review"),
    ("POST", "/v1/dead-letters/dl_1/replay"),
    ("POST", "/v1/dead-letters/dl_1/close"),
    ("POST", "/v1/dead-letters/replay"),
]


def applied(sent, *, shipment=None) -> Complete:
    facts = sent["payload"]
    effect = Upsert(
        "active_shipments",
        shipment or facts["shipmentId"],
        set={
            "orderId": facts["orderId"],
            "currentState": facts["status"],
            "lastEventId": sent["eventId"],
            "lastEventType": sent["eventType"],
            "lastEventAt": sent["occurredAt"],
            "metadata": {},
        },
        only_if_newer="lastEventAt",
    )
    return Complete(retention=timedelta(days=30), effects=[effect])


# --- the operator token -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path"), OPERATOR_ROUTES)
@pytest.mark.parametrize(
    "authorization",
    [
        [],
        ["Bearer wrong"],
        ["Bearer "],
        [TOKEN],
        [f"Basic {TOKEN}"],
        [f"Bearer {TOKEN}x"],
        [f"Bearer {TOKEN}", f"Bearer {TOKEN}"],
        ["Bearer \xff"],
    ],
    ids=repr,
)
async def test_operator_routes_need_the_token(api, method, path, authorization):
    headers = [(b"authorization", value.encode("latin-1")) for value in authorization]
    response = await api.client.request(method, path, headers=headers)
    assert response.status_code == 401
    assert response.json()["errorCode"] == "UNAUTHORIZED"
    assert response.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(("method", "path"), OPERATOR_ROUTES)
async def test_the_token_is_accepted(api, method, path):
    response = await api.client.request(method, path, headers=OPERATOR)
    assert response.status_code in {200, 404, 415}


async def test_the_scheme_may_be_written_in_any_case(api):
    response = await api.client.get("/v1/dead-letters", headers={"authorization": f"bearer {TOKEN}"})
    assert response.status_code == 200


# --- events -------------------------------------------------------------------------------------------------------


async def test_an_event_shows_its_state_and_history(api):
    sent = event(eventId="evt/with/slashes")
    await api.push(sent, x_request_id="trace-1")
    path = "/v1/events/courier-x:evt%2Fwith%2Fslashes"

    fresh = (await api.client.get(path, headers=OPERATOR)).json()
    assert fresh | {"firstSeenAt": 0, "updatedAt": 0, "expiresAt": 0} == {
        "idempotencyKey": "courier-x:evt/with/slashes",
        "eventId": "evt/with/slashes",
        "eventType": "shipment.status.updated",
        "traceId": "trace-1",
        "status": "received",
        "generation": 1,
        "attemptCount": 0,
        "attemptHistory": [],
        "lastErrorCode": None,
        "lastErrorMessage": None,
        "firstSeenAt": 0,
        "updatedAt": 0,
        "expiresAt": 0,
        "nextAttemptAt": None,
        "note": None,
        "warnings": [],
    }

    retry = RetryLater(after=timedelta(minutes=1), code="TIMEOUT", message="No answer.")
    await api.settle("courier", fresh["idempotencyKey"], retry)
    failed = (await api.client.get(path.replace("%2F", "/"), headers=OPERATOR)).json()
    assert (failed["status"], failed["attemptCount"], failed["lastErrorCode"]) == ("failed", 1, "TIMEOUT")
    assert failed["lastErrorMessage"] == "No answer."
    (attempt,) = failed["attemptHistory"]
    assert (attempt["attempt"], attempt["outcome"], attempt["worker"]) == (1, "failed", "tests")
    assert (attempt["errorCode"], attempt["errorMessage"]) == ("TIMEOUT", "No answer.")
    wait = datetime.fromisoformat(failed["nextAttemptAt"]) - datetime.fromisoformat(attempt["finishedAt"])
    assert wait == timedelta(minutes=1)


async def test_an_unknown_event_is_not_found(api):
    for path in ("/v1/events/courier-x:nope", "/v1/events/", "/v1/shipments/nope", "/v1/jobs/invoices/nope"):
        response = await api.client.get(path, headers=OPERATOR)
        assert (response.status_code, response.json()["errorCode"]) == (404, "NOT_FOUND")


# --- shipments ----------------------------------------------------------------------------------------------------


async def test_a_shipment_shows_its_state_and_its_timeline(api):
    now = datetime.now(UTC).replace(microsecond=0)
    shipment = "shp/one"

    def event_at(status: str, minutes: int):
        return event(
            payload={"shipmentId": shipment, "status": status}, occurredAt=isoformat(now + timedelta(minutes=minutes))
        )

    delivered, picked_up, waiting = event_at("delivered", -1), event_at("picked_up", -20), event_at("returned", 0)
    for sent in (delivered, picked_up, waiting):
        assert (await api.push(sent)).status_code == 202

    before = (await api.client.get("/v1/shipments/shp%2Fone", headers=OPERATOR)).json()
    assert before["currentState"] is None
    assert len(before["timeline"]) == 3

    await api.settle("courier", f"courier-x:{delivered['eventId']}", applied(delivered))
    await api.settle("courier", f"courier-x:{picked_up['eventId']}", applied(picked_up))

    shown = (await api.client.get("/v1/shipments/shp/one", headers=OPERATOR)).json()
    timeline = shown.pop("timeline")
    assert shown.pop("createdAt")
    assert shown.pop("updatedAt")
    assert shown == {
        "shipmentId": shipment,
        "orderId": "ord_789",
        "currentState": "delivered",
        "lastEventId": delivered["eventId"],
        "lastEventType": "shipment.status.updated",
        "lastEventAt": delivered["occurredAt"],
        "metadata": {},
        "timelineComplete": True,
    }
    assert [(each["status"], each["state"], each["note"]) for each in timeline] == [
        ("picked_up", "processed", "ignored_stale"),
        ("delivered", "processed", None),
        ("returned", "received", None),
    ]
    assert timeline[0]["occurredAt"] == picked_up["occurredAt"]
    assert timeline[0]["idempotencyKey"] == f"courier-x:{picked_up['eventId']}"
    assert timeline[0]["receivedAt"]


async def test_a_long_timeline_is_read_page_by_page_to_its_end(api):
    for _ in range(205):
        await api.push(event(payload={"shipmentId": "busy"}))
    shown = (await api.client.get("/v1/shipments/busy", headers=OPERATOR)).json()
    assert len({each["eventId"] for each in shown["timeline"]}) == 205
    assert shown["timelineComplete"] is True


# --- health -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_load_balancers_may_use_head(api, path):
    assert (await api.client.head(path)).status_code == 200


async def test_health_shows_the_version_without_a_token(api):
    response = await api.client.get("/health")
    assert response.json() == {"status": "ok", "version": __version__}


async def test_ready_means_that_the_ledger_can_commit(api):
    assert (await api.client.get("/ready")).json() == {"ready": True, "store": "ok", "queue": "ok"}

    async with api.with_services(broker=AwayBroker(api.services.broker._database)) as client:
        response = await client.get("/ready")
    assert response.status_code == 200
    assert response.json() == {"ready": True, "store": "ok", "queue": "unavailable"}

    store = AwayStore(api.services.store._database, list(api.services.workloads.values()))
    async with api.with_services(store=store) as client:
        response = await client.get("/ready")
        assert response.status_code == 503
        assert response.json() == {"ready": False, "store": "unavailable", "queue": "ok"}
        assert (await client.get("/health")).status_code == 200


# --- what every route has in common -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/nope", "/v1/events", "/v1/dead-letters/dl_1/nope", "/health/", "/docs/x"])
async def test_unknown_paths_are_refused_in_the_same_shape(api, path):
    response = await api.client.get(path, headers=OPERATOR | {"x-request-id": "mine"})
    body = response.json()
    assert response.status_code == 404
    assert (body["acknowledged"], body["errorCode"], body["traceId"]) == (False, "NOT_FOUND", "mine")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/health", "GET"),
        ("DELETE", "/v1/dead-letters/dl_1", "GET"),
        ("GET", "/v1/dead-letters/dl_1/review", "POST"),
        ("GET", "/v1/dead-letters/replay", "POST"),
        ("PUT", "/v1/dead-letters/replay", "POST"),
        ("PUT", "/v1/jobs/invoices", "GET"),
        ("DELETE", "/v1/records/invoice_records", "GET"),
        ("POST", "/openapi.json", "GET"),
        ("POST", "/v1/shipments/shp_1", "GET"),
    ],
)
async def test_other_methods_are_refused_with_what_is_allowed(api, method, path, allowed):
    response = await api.client.request(method, path, headers=OPERATOR)
    assert response.status_code == 405
    assert response.headers["allow"] == allowed
    assert response.json()["errorCode"] == "METHOD_NOT_ALLOWED"


async def test_every_answer_has_one_request_id(api):
    for path in ("/health", "/ready", "/docs", "/openapi.json", "/nope", "/v1/dead-letters"):
        mine = await api.client.get(path, headers={"x-request-id": "mine"})
        assert mine.headers.get_list("x-request-id") == ["mine"]
        made = await api.client.get(path, headers={"x-request-id": "not mine"})
        assert made.headers["x-request-id"].startswith("req_")
        assert made.headers["x-content-type-options"] == "nosniff"


async def test_an_unavailable_store_is_reported_without_internals(api):
    store = AwayStore(api.services.store._database, list(api.services.workloads.values()))
    async with api.with_services(store=store) as client:
        response = await client.get("/v1/events/courier-x:evt_1", headers=OPERATOR)
    assert response.status_code == 503
    assert response.json()["errorCode"] == "SERVICE_UNAVAILABLE"
    assert int(response.headers["retry-after"]) > 0
    assert "secret" not in response.text


async def test_an_unexpected_error_is_a_500_in_the_same_shape(api):
    async def show(letter_id):
        message = "inside /secret/path"
        raise RuntimeError(message)

    async with api.with_services(review=SimpleNamespace(show=show)) as client:
        response = await client.get("/v1/dead-letters/dl_1", headers=OPERATOR | {"x-request-id": "mine"})
    body = response.json()
    assert (response.status_code, body["errorCode"], body["traceId"]) == (500, "INTERNAL_ERROR", "mine")
    assert response.headers.get_list("x-request-id") == ["mine"]
    assert "secret" not in response.text


# --- documentation ------------------------------------------------------------------------------------------------


async def test_the_openapi_document_is_complete(api):
    document = (await api.client.get("/openapi.json")).json()
    assert set(document["paths"]) == {
        "/v1/events/courier",
        "/v1/events/{idempotencyKey}",
        "/v1/shipments/{shipmentId}",
        "/v1/jobs/{workload}",
        "/v1/jobs/{workload}/{key}",
        "/v1/jobs/{workload}/{key}/cancel",
        "/v1/jobs/{workload}/{key}/events",
        "/v1/workloads",
        "/v1/records/{collection}",
        "/v1/records/{collection}/{key}",
        "/v1/schedules",
        "/v1/schedules/{name}",
        "/v1/schedules/{name}/run",
        "/v1/schedules/{name}/pause",
        "/v1/schedules/{name}/resume",
        "/v1/dead-letters",
        "/v1/dead-letters/replay",
        "/v1/dead-letters/{letterId}",
        "/v1/dead-letters/{letterId}/review",
        "/v1/dead-letters/{letterId}/replay",
        "/v1/dead-letters/{letterId}/close",
        "/health",
        "/ready",
    }
    schemes = {"operatorToken", "tenantKey", "tenantKeyHeader", "xSignature", "webhookSignature"}
    assert set(document["components"]["securitySchemes"]) == schemes
    courier = document["paths"]["/v1/events/courier"]["post"]
    assert set(courier["responses"]) == {"202", "400", "401", "409", "413", "415", "429", "500", "503"}
    assert courier["requestBody"]["content"]["application/json"]["schema"]["examples"]
    submit = document["paths"]["/v1/jobs/{workload}"]["post"]
    one = {"anyOf": [{"$ref": "#/components/schemas/Invoice"}, {"$ref": "#/components/schemas/Errand"}]}
    many = {"type": "array", "items": one, "minItems": 1, "maxItems": 500}
    assert submit["requestBody"]["content"]["application/json"]["schema"] == {"anyOf": [*one["anyOf"], many]}
    assert submit["parameters"][0]["schema"]["enum"] == ["invoices", "errands"]
    with_422 = set()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            with_422 |= {(method, path)} if "422" in operation["responses"] else set()
            assert operation["summary"]
            guarded = any("operatorToken" in each for each in operation.get("security", ()))
            operators = ("/v1/events/{", "/v1/ship", "/v1/jobs", "/v1/work", "/v1/records", "/v1/sched", "/v1/dead")
            assert guarded == path.startswith(operators), path
    jobs, records = "/v1/jobs/{workload}", "/v1/records/{collection}"
    assert with_422 == {("post", jobs), ("get", jobs), ("get", records)}


async def test_every_reference_in_the_document_exists(api):
    text = (await api.client.get("/openapi.json")).text
    schemas = json.loads(text)["components"]["schemas"]
    references = {part.split('"')[0] for part in text.split('"$ref":"')[1:]}
    assert references
    assert references <= {f"#/components/schemas/{name}" for name in schemas}


MODULES = (views, dead_letters, operators, courier_views, email_views, email_routes, document_views, document_admission)
EXAMPLES = {
    model: schema["examples"][0]
    for module in MODULES
    for model in vars(module).values()
    if isinstance(model, type) and issubclass(model, BaseModel) and model.__module__ == module.__name__
    if "examples" in (schema := model.model_json_schema(mode="serialization"))
}


def test_there_are_examples_to_check():
    assert len(EXAMPLES) >= 30


@pytest.mark.parametrize("model", EXAMPLES, ids=lambda model: model.__name__)
def test_every_example_matches_its_schema(model):
    made = model.model_validate_json(json.dumps(EXAMPLES[model]))
    dumped = json.loads(made.model_dump_json(by_alias=True, exclude_unset=True))
    assert dumped == EXAMPLES[model]
    assert "..." not in EXAMPLES[model].values()


async def test_the_document_shows_the_examples_as_they_are(api):
    """FastAPI drops every null."""
    schemas = (await api.client.get("/openapi.json")).json()["components"]["schemas"]
    shown = {model: schemas[model.__name__]["examples"] for model in EXAMPLES if model.__name__ in schemas}
    assert len(shown) >= 15
    assert shown == {model: [EXAMPLES[model]] for model in shown}


async def test_the_docs_page_loads_nothing(api):
    response = await api.client.get("/docs")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    page = response.text
    for absent in ("<script", "http://", "https://", "//cdn", " style=", "@import", "url("):
        assert absent not in page
    assert "Retries exhausted after transient timeouts" in page.split('id="schemas"')[0]
    for present in ("/v1/events/courier", "x-signature", "webhook-signature", "INVALID_SIGNATURE", "operatorToken"):
        assert present in page
