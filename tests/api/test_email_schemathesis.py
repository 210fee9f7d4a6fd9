"""The email routes: every request gets an answer that the OpenAPI document describes, and never a 5xx."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import asynccontextmanager

import pytest
import requests
import schemathesis
from schemathesis import Case, GenerationMode
from schemathesis.checks import negative_data_rejection
from schemathesis.core.parameters import ParameterLocation

from tests.api.email_api import BATCH, EVENTS, LIST, SEND, an_email, email_api, in_an_hour
from tests.api.serving import ApiThread
from tests.api.test_schemathesis import CHECKS, generated

pytestmark = pytest.mark.slow

OPERATIONS = [
    ("POST", SEND),
    ("POST", BATCH),
    ("POST", EVENTS),
    ("GET", LIST),
    ("GET", f"{LIST}/{{outboxId}}"),
    ("POST", f"{LIST}/{{outboxId}}/cancel"),
]


class Key(requests.auth.AuthBase):
    """Sends the key of a tenant, and no other key."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers.pop("x-api-key", None)
        request.headers["authorization"] = f"Bearer {self.server.key}"
        return request


class Server(ApiThread):
    """The API and a few emails."""

    key = ""
    outbox_ids: tuple[str, ...] = ()

    @asynccontextmanager
    async def opened(self):
        async with email_api(self.folder) as api:
            self.key = api.keys["acme"]
            answers = [await api.send(an_email(sendAt=in_an_hour(api))) for _ in range(2)]
            self.outbox_ids = tuple(each.json()["outboxId"] for each in answers)
            yield api.client._transport.app


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    thread = Server(tmp_path_factory.mktemp("email-schemathesis"))
    thread.begin()
    yield thread
    thread.stop()


@pytest.fixture(scope="module")
def described(server):
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


def test_every_email_operation_is_tried(described):
    documented = {(each.ok().method.upper(), each.ok().path) for each in described.get_all_operations()}
    assert {each for each in documented if each[1].startswith(LIST)} == set(OPERATIONS)


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_a_valid_request_gets_a_documented_answer(server, described, method, path):
    def examine(case: Case) -> None:
        case.call_and_validate(auth=Key(server), checks=CHECKS)

    generated(described[path][method], GenerationMode.POSITIVE, examine)


@pytest.mark.parametrize(("method", "path"), [("POST", SEND), ("GET", LIST)])
def test_an_invalid_request_is_refused_in_a_documented_way(server, described, method, path):
    def examine(case: Case) -> None:
        wrong = {place for place, component in case.meta.components.items() if component.mode.is_negative}
        must_refuse = wrong and wrong <= {ParameterLocation.BODY, ParameterLocation.QUERY}
        checks = [*CHECKS, negative_data_rejection] if must_refuse else CHECKS
        case.call_and_validate(auth=Key(server), checks=checks)

    generated(described[path][method], GenerationMode.NEGATIVE, examine)


def test_recorded_emails_are_shown_as_documented(server, described):
    answered = Counter()

    def examine(case: Case) -> None:
        case.path_parameters = {"outboxId": server.outbox_ids[0]}
        answered[case.call_and_validate(auth=Key(server), checks=CHECKS).status_code] += 1

    generated(described[f"{LIST}/{{outboxId}}"]["GET"], GenerationMode.POSITIVE, examine)
    assert set(answered) == {200}


def test_a_waiting_email_is_cancelled_as_documented(server, described):
    operation = described[f"{LIST}/{{outboxId}}/cancel"]["POST"]
    case = operation.Case(path_parameters={"outboxId": server.outbox_ids[1]})
    assert case.call_and_validate(auth=Key(server), checks=CHECKS).status_code == 200
