"""The documents routes: every request gets an answer that the OpenAPI document describes, and never a 5xx."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import asynccontextmanager

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import negative_data_rejection
from schemathesis.core.parameters import ParameterLocation

from tests.api.document_api import DOCUMENTS, ELSEWHERE, SPEECH, a_pdf, a_wav, document_api
from tests.api.serving import ApiThread
from tests.api.test_schemathesis import CHECKS

pytestmark = pytest.mark.slow

JOB = f"{DOCUMENTS}/{{job_id}}"
OPERATIONS = [
    ("POST", DOCUMENTS),
    ("GET", DOCUMENTS),
    ("GET", JOB),
    *(("GET", f"{JOB}/{name}") for name in ("result", "text", "markdown", "srt", "vtt", "events")),
    ("POST", f"{JOB}/cancel"),
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
    """The API, and a job in each state."""

    key = ""

    @asynccontextmanager
    async def opened(self):
        async with document_api(self.folder) as api:
            self.key = api.keys["acme"]
            for job_id, content, kind in (
                ("a-pdf", a_pdf(), {}),
                ("a-recording", a_wav(), SPEECH),
                ("a-failed", a_pdf(), {}),
                ("a-waiting", a_pdf(), {}),
                ("a-working", a_pdf(), {}),
            ):
                await api.submitted(content, job_id=job_id, **kind)
            await api.complete("a-pdf")
            await api.complete("a-recording")
            await api.fail("a-failed")
            await api.claim("a-working")
            yield api.app


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    thread = Server(tmp_path_factory.mktemp("documents-schemathesis"))
    thread.begin()
    yield thread
    thread.stop()


@pytest.fixture(scope="module")
def described(server):
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


def generated(operation, mode: GenerationMode, examine, most: int) -> None:
    @settings(
        max_examples=most,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def run(case: Case) -> None:
        examine(case)

    run()


def test_every_operation_for_documents_is_tried(described):
    documented = {(each.ok().method.upper(), each.ok().path) for each in described.get_all_operations()}
    assert {each for each in documented if each[1].startswith(DOCUMENTS)} == set(OPERATIONS)


# Without the stream: the stream of a waiting job does not end.
@pytest.mark.parametrize(("method", "path"), [each for each in OPERATIONS if not each[1].endswith("/events")])
def test_a_valid_request_gets_a_documented_answer(server, described, method, path):
    def examine(case: Case) -> None:
        case.call_and_validate(auth=Key(server), checks=CHECKS)

    most = 25 if path == DOCUMENTS else 3
    generated(described[path][method], GenerationMode.POSITIVE, examine, most)


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_an_invalid_request_is_refused_in_a_documented_way(server, described, method):
    def examine(case: Case) -> None:
        wrong = {place for place, component in case.meta.components.items() if component.mode.is_negative}
        # In a form, every value becomes text, and may be valid as text.
        must_refuse = wrong and wrong <= {ParameterLocation.BODY, ParameterLocation.QUERY}
        must_refuse = must_refuse and case.media_type != "multipart/form-data"
        checks = [*CHECKS, negative_data_rejection] if must_refuse else CHECKS
        case.call_and_validate(auth=Key(server), checks=checks)

    generated(described[DOCUMENTS][method], GenerationMode.NEGATIVE, examine, 25)


def test_jobs_are_shown_as_documented_in_every_state(server, described):
    answered = Counter()
    for method, path in OPERATIONS[2:]:
        for job_id in ("a-pdf", "a-recording", "a-failed", "a-waiting", "a-working"):
            if path.endswith("events") and job_id in {"a-waiting", "a-working"}:
                continue  # these go on
            case = described[path][method].Case(path_parameters={"job_id": job_id})
            answered[case.call_and_validate(auth=Key(server), checks=CHECKS[:5]).status_code] += 1
    assert set(answered) == {200, 202, 404, 409}


def test_a_file_and_an_address_are_accepted_as_documented(server, described):
    case = described[DOCUMENTS]["POST"].Case(body=ELSEWHERE, media_type="application/json")
    assert case.call_and_validate(auth=Key(server), checks=CHECKS[:5]).status_code == 202
    content = a_pdf()
    headers = {"authorization": f"Bearer {server.key}"}
    given = {"job_type": "OCR", "input_type": "PDF"}
    answer = requests.post(f"{server.url}{DOCUMENTS}", data=given, files={"file": content}, headers=headers, timeout=30)
    case.validate_response(answer, checks=CHECKS[:5])
    assert answer.status_code == 202
