"""Every request gets an answer that the OpenAPI document describes, and never a 5xx.

The app runs in uvicorn on a loopback port, over a real SQLite file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    negative_data_rejection,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from schemathesis.core.parameters import ParameterLocation

from holdfast.contracts.effects import Upsert
from holdfast.contracts.transitions import Complete, RetryLater
from tests.api.courier_api import COURIER, OPERATOR, OTHER_SECRET, SECRET, courier_api, event, signed
from tests.api.serving import ApiThread

pytestmark = pytest.mark.slow

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    unsupported_method,
]


class Credentials(requests.auth.AuthBase):
    """Signs events with the secret of their source; other requests get the operator token."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if request.url and request.url.endswith(COURIER) and request.method == "POST":
            body = request.body or b""
            body = body.encode() if isinstance(body, str) else body
            headers = signed(body, secret=OTHER_SECRET if b"courier-y" in body else SECRET)
            if "content-type" in request.headers:
                del headers["content-type"]
            request.headers.update(headers)
        else:
            request.headers.update(OPERATOR)
        return request


class Server(ApiThread):
    """The API and a few records."""

    letter = key = shipment = ""

    @asynccontextmanager
    async def opened(self):
        async with courier_api(self.folder) as api:
            self.letter = await api.dead_letter(event())
            applied = event(payload={"shipmentId": "shp_applied"})
            failed = event(payload={"shipmentId": "shp_applied"})
            keys = [(await api.push(each)).json()["idempotencyKey"] for each in (applied, failed)]
            await api.settle("courier", keys[0], Complete(timedelta(days=1)))
            await api.settle("courier", keys[1], RetryLater(timedelta(hours=1), "TIMEOUT", "No answer."))
            await api.services.store.apply([Upsert("invoice_records", "9", {"customer": "ACME", "cents": 5})])
            self.key, self.shipment = keys[1], "shp_applied"
            yield api.client._transport.app


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    thread = Server(tmp_path_factory.mktemp("schemathesis"))
    thread.begin()
    yield thread
    thread.stop()


@pytest.fixture(scope="module")
def described(server):
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


OPERATIONS = [
    ("POST", COURIER),
    ("GET", "/v1/events/{idempotencyKey}"),
    ("GET", "/v1/shipments/{shipmentId}"),
    ("POST", "/v1/jobs/{workload}"),
    ("GET", "/v1/jobs/{workload}"),
    ("GET", "/v1/jobs/{workload}/{key}"),
    ("GET", "/v1/jobs/{workload}/{key}/events"),
    ("POST", "/v1/jobs/{workload}/{key}/cancel"),
    ("GET", "/v1/workloads"),
    ("GET", "/v1/records/{collection}"),
    ("GET", "/v1/records/{collection}/{key}"),
    ("GET", "/v1/schedules"),
    ("GET", "/v1/schedules/{name}"),
    ("POST", "/v1/schedules/{name}/run"),
    ("POST", "/v1/schedules/{name}/pause"),
    ("POST", "/v1/schedules/{name}/resume"),
    ("GET", "/v1/dead-letters"),
    ("POST", "/v1/dead-letters/replay"),
    ("GET", "/v1/dead-letters/{letterId}"),
    ("POST", "/v1/dead-letters/{letterId}/review"),
    ("POST", "/v1/dead-letters/{letterId}/replay"),
    ("POST", "/v1/dead-letters/{letterId}/close"),
    ("GET", "/health"),
    ("GET", "/ready"),
]


LISTS = {"/v1/dead-letters", "/v1/jobs/{workload}", "/v1/records/{collection}"}


def test_every_operation_is_tried(described):
    documented = {(each.ok().method.upper(), each.ok().path) for each in described.get_all_operations()}
    assert documented == set(OPERATIONS)


def generated(operation, mode: GenerationMode, examine: Callable[[Case], None]) -> None:
    """Let Schemathesis generate requests for an operation."""

    @settings(
        max_examples=60,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def run(case: Case) -> None:
        examine(case)

    run()


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_a_valid_request_gets_a_documented_answer(described, method, path):
    def examine(case: Case) -> None:
        case.call_and_validate(auth=Credentials(), checks=CHECKS)

    generated(described[path][method], GenerationMode.POSITIVE, examine)


@pytest.mark.parametrize(("method", "path"), [each for each in OPERATIONS if each[0] == "POST" or each[1] in LISTS])
def test_an_invalid_request_is_refused_in_a_documented_way(described, method, path):
    def examine(case: Case) -> None:
        # The credentials replace the generated headers, so only a wrong body or query must be refused.
        wrong = {place for place, component in case.meta.components.items() if component.mode.is_negative}
        must_refuse = wrong and wrong <= {ParameterLocation.BODY, ParameterLocation.QUERY}
        # Each job of a list has its own answer, so a list with wrong jobs is answered with 207.
        must_refuse = must_refuse and not isinstance(case.body, list)
        checks = [*CHECKS, negative_data_rejection] if must_refuse else CHECKS
        case.call_and_validate(auth=Credentials(), checks=checks)

    generated(described[path][method], GenerationMode.NEGATIVE, examine)


def test_valid_events_are_accepted(described):
    """With the id, the source and the time of a real event. A schema cannot exclude large integers: they get a 400."""
    answered = Counter()

    def examine(case: Case) -> None:
        case.body |= {key: value for key, value in event().items() if key in {"eventId", "source", "occurredAt"}}
        case.body.pop("idempotencyKey", None)
        answered[case.call_and_validate(auth=Credentials(), checks=CHECKS).status_code] += 1

    generated(described[COURIER]["POST"], GenerationMode.POSITIVE, examine)
    assert set(answered) <= {202, 400}, answered
    assert answered[202] > answered[400], answered


def test_existing_records_are_shown_as_documented(server, described):
    why = {"actor": "ana", "reason": "Mended."}
    for path, method, parameters, body in (
        (COURIER, "POST", {}, event()),
        ("/v1/events/{idempotencyKey}", "GET", {"idempotencyKey": server.key}, None),
        ("/v1/shipments/{shipmentId}", "GET", {"shipmentId": server.shipment}, None),
        ("/v1/jobs/{workload}", "POST", {"workload": "invoices"}, {"number": "9", "issued_at": "2026-01-01T00:00:00Z"}),
        ("/v1/jobs/{workload}", "POST", {"workload": "errands"}, [{"errand": "milk"}, {"errand": ""}]),
        ("/v1/jobs/{workload}", "GET", {"workload": "invoices"}, None),
        ("/v1/jobs/{workload}/{key}", "GET", {"workload": "invoices", "key": "invoice/9"}, None),
        ("/v1/jobs/{workload}/{key}/cancel", "POST", {"workload": "errands", "key": "milk"}, None),
        ("/v1/jobs/{workload}/{key}/events", "GET", {"workload": "errands", "key": "milk"}, None),
        ("/v1/workloads", "GET", {}, None),
        ("/v1/records/{collection}", "GET", {"collection": "invoice_records"}, None),
        ("/v1/records/{collection}/{key}", "GET", {"collection": "invoice_records", "key": "9"}, None),
        ("/v1/dead-letters", "GET", {}, None),
        ("/v1/dead-letters/{letterId}", "GET", {"letterId": server.letter}, None),
        ("/v1/dead-letters/{letterId}/review", "POST", {"letterId": server.letter}, why),
        ("/v1/dead-letters/replay", "POST", {}, why | {"filter": {"workload": "courier"}, "limit": 1}),
        ("/v1/dead-letters/{letterId}/close", "POST", {"letterId": server.letter}, why),
    ):
        sent = {} if body is None else {"body": body, "media_type": "application/json"}
        case = described[path][method].Case(path_parameters=parameters, **sent)
        response = case.call(auth=Credentials())
        assert response.status_code in {200, 202, 207}, response.text
        case.validate_response(response, checks=CHECKS[:5])
