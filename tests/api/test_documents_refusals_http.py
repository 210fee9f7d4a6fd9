"""``POST /v1/documents``: refused requests, which store nothing. The tests share a api that stays empty."""

from __future__ import annotations

import httpx
import pytest
import pytest_asyncio

from holdfast.api import ApiOptions
from holdfast.api.app import create_app
from holdfast.api.frame import FeatureApi
from holdfast.features.documents.feature import DocumentsFeature
from tests.api.courier_api import OPERATOR
from tests.api.document_api import (
    BOUNDARY,
    DOCUMENTS,
    ELSEWHERE,
    MAX_BYTES,
    OCR,
    PDF,
    Sender,
    document_api,
    fields,
    form,
    part,
    problems,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(tmp_path_factory):
    async with document_api(tmp_path_factory.mktemp("documents")) as made:
        yield made


FILE = part("file", PDF, filename="a.pdf")
KIND = fields(**OCR)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (form(*KIND), "file"),
        (form(*KIND, FILE, FILE), "file"),
        (form(FILE, *KIND, FILE), "file"),
        (form(FILE, *KIND, *fields(colour="blue")), "colour"),
        (form(FILE, *KIND, *fields(url="https://example.com/a.pdf")), "url"),
        (form(FILE, *KIND, *fields(local_path="a.pdf")), "local_path"),
        (form(FILE, *KIND, *fields(job_type="OCR")), "job_type"),
        (form(FILE, *fields(input_type="PDF")), "job_type"),
        (form(FILE, *KIND, *fields(engine="magic")), "engine"),
        (form(FILE, *KIND, *fields(cache="maybe")), "cache"),
        (form(FILE, *KIND, *fields(strict="1")), "strict"),
        (form(FILE, *KIND, *fields(metadata="{")), "metadata"),
        (form(FILE, *KIND, *fields(metadata='{"a": 1, "a": 2}')), "metadata"),
        (form(FILE, *KIND, *fields(metadata="[]")), "metadata"),
        (form(FILE, *KIND, part("language", b"\xff")), "language"),
        (form(FILE, *KIND, part("metadata", b'{"a": "' + b"x" * 65_536 + b'"}')), "metadata"),
        (form(FILE, *KIND, *(part(f"part{number}", "x") for number in range(100))), "part0"),
        (form(FILE, *KIND, part("", "x")), "(no name)"),
    ],
)
async def test_a_form_that_breaks_a_rule_is_refused_by_field_and_nothing_is_stored(api, body, field):
    answer = await api.post(body)
    assert (answer.status_code, answer.json()["errorCode"]) == (400, "INVALID_PAYLOAD"), answer.text
    assert set(problems(answer)) == {field}
    assert await api.empty()


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"", {}),
        (b"\r\n\r\n", {}),
        (b"no form at all", {}),
        (f"--{BOUNDARY}--\r\n".encode(), {}),
        (form(*KIND, FILE, end=b""), {}),
        (form(*KIND, FILE)[:-60], {}),
        (form(*KIND, FILE), {"content_type": "multipart/form-data; boundary=another"}),
        (form(*KIND, FILE), {"content_type": "multipart/form-data"}),
        (form(*KIND, FILE), {"content_type": f"multipart/form-data; boundary={'x' * 300}"}),
        (form(*KIND, part("file", PDF, content_transfer_encoding="base64")), {}),
        (form(*KIND, part("file", PDF, x_long="x" * 5_000)), {}),
        (form(*KIND, part("file", PDF, **{f"x_{number}": "x" for number in range(10)})), {}),
    ],
)
async def test_a_malformed_form_is_refused_and_nothing_is_stored(api, body, headers, caplog):
    answer = await api.post(body, **headers)
    assert (answer.status_code, answer.json()["errorCode"]) == (400, "INVALID_PAYLOAD"), answer.text
    assert await api.empty()
    assert caplog.records == []


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"[]", {}, 400),
        (b"{", {}, 400),
        (b'{"job_type": "OCR", "job_type": "OCR"}', {}, 400),
        (b" " * 300_000, {}, 413),
        (b"{}", {"content-type": "text/plain"}, 415),
        (b"{}", {"content-type": "multipart/mixed; boundary=x"}, 415),
        (b"{}", {"content-encoding": "gzip"}, 415),
        (
            form(*KIND, FILE),
            {"content-type": f"multipart/form-data; boundary={BOUNDARY}", "content-encoding": "br"},
            415,
        ),
    ],
)
async def test_a_body_that_is_not_valid_json_is_refused(api, content, headers, status):
    headers = api.bearer() | {"content-type": "application/json"} | headers
    answer = await api.client.post(DOCUMENTS, content=content, headers=headers)
    assert answer.status_code == status
    assert answer.json()["acknowledged"] is False
    assert await api.empty()


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (OCR, 400, "document"),
        (ELSEWHERE | {"input_type": "AUDIO"}, 400, "input_type"),
        (ELSEWHERE | {"url": "ftp://example.com/a.pdf"}, 400, "url"),
        (OCR | {"local_path": "a.pdf"}, 422, "local_path"),
        (ELSEWHERE | {"engine": "gemini"}, 422, "engine"),
    ],
)
async def test_a_refusal_of_the_admission_names_the_field(api, body, status, field):
    answer = await api.send(body)
    assert answer.status_code == status
    assert answer.json()["errorCode"] == ("INVALID_PAYLOAD" if status == 400 else "NOT_ACCEPTABLE")
    assert set(problems(answer)) == {field}
    assert await api.entries() == []


async def test_a_body_that_is_declared_too_large_is_refused_before_it_is_read(api):
    sender = Sender(api, FILE, content_length=str(MAX_BYTES * 1_000))
    assert await sender.run() == 413
    assert sender.asked == 0


async def test_a_file_that_grows_too_large_is_refused_without_waiting_for_its_end(api):
    start = FILE.removesuffix(b"\r\n")
    sender = Sender(api, start, *[b"x" * 10_000] * 1_000)
    assert await sender.run() == 413
    assert sender.asked < 20
    assert await api.empty()


async def test_a_form_whose_other_parts_never_end_is_refused(api):
    sender = Sender(api, b"\r\n", *[b"\n" * 100_000] * 1_000)
    assert await sender.run() == 413
    assert sender.asked < 100


@pytest.mark.parametrize(
    "pieces", [[], [FILE[:50]], [FILE.removesuffix(b"\r\n"), b"more of it"], [FILE, KIND[0]], [*KIND]]
)
async def test_a_sender_that_disconnects_leaves_nothing_behind(api, pieces):
    await Sender(api, *pieces).run()
    assert await api.empty()


# --- keys, and where there are no documents ---------------------------------------------------------------------------

PATHS = [
    ("POST", DOCUMENTS),
    ("GET", DOCUMENTS),
    *(("GET", f"{DOCUMENTS}/one{rest}") for rest in ("", "/result", "/text", "/markdown", "/srt", "/vtt", "/events")),
    ("POST", f"{DOCUMENTS}/one/cancel"),
]


@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_every_route_needs_a_key_with_its_scope(api, method, path):
    scope = "documents:write" if method == "POST" else "documents:read"
    answer = await api.client.request(method, path, content=b"not even a form")
    assert (answer.status_code, answer.json()["errorCode"]) == (401, "INVALID_API_KEY")
    answer = await api.client.request(method, path, headers=api.bearer("emails only"))
    assert (answer.status_code, answer.json()["errorCode"]) == (403, "MISSING_SCOPE")
    assert scope in answer.json()["message"]


async def test_the_operators_route_for_jobs_accepts_no_files(api):
    answer = await api.client.post("/v1/jobs/documents", json={}, headers=OPERATOR)
    assert answer.status_code == 404
    assert DOCUMENTS in answer.json()["message"]


async def test_without_documents_every_path_answers_404_with_the_reason(api):
    absent = FeatureApi(paths=DocumentsFeature.paths, refusal="Documents are not set up here: no libraries.")
    app = create_app(api.services, ApiOptions(), [absent])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://holdfast.test") as client:
        for method, path in PATHS:
            answer = await client.request(method, path)
            assert answer.status_code == 404
            assert "not set up" in answer.json()["message"]
        assert not any(path.startswith(DOCUMENTS) for path in (await client.get("/openapi.json")).json()["paths"])
