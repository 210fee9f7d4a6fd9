"""Admission of documents: accepted requests, and faults that are refused at once. The records are a dictionary."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256

import pytest

from holdfast.contracts.admission import InvalidContent, NotAcceptable
from holdfast.contracts.files import FileMissing, UploadTooLarge
from holdfast.features.documents.admission import AdmissionOptions, DocumentAdmission
from holdfast.features.documents.contract import key_of
from holdfast.features.documents.fetching import Fetcher, FetchOptions
from holdfast.features.documents.files import Sources
from holdfast.features.documents.local_paths import LocalPaths
from holdfast.features.documents.options import DocumentOptions
from holdfast.features.documents.records import CACHE, JOBS, RESULTS, cache_id, work_id
from holdfast.features.documents.workload import Documents
from holdfast.webhooks.addresses import AddressPolicy
from tests.support.document_files import folder_files

PDF = b"%PDF-1.7\nall that is needed to be taken for one\n"
OCR = {"job_type": "OCR", "input_type": "PDF"}
URL = OCR | {"url": "https://example.com/a.pdf"}
MOST = 10_000


class Records(dict):
    async def get(self, collection, key):
        return self.get_now((collection, key))

    get_now = dict.get

    async def entry(self, workload, key):
        return self.get_now((workload, key))


class Admissions:
    def __init__(self, folder, *, gemini=False, **changes) -> None:
        self.roots = folder / "roots"
        self.roots.mkdir(exist_ok=True)
        self.files = folder_files(folder / "documents")
        self.records = Records()
        options = DocumentOptions(scratch=folder / "work", environment={"GEMINI_API_KEY": "k"} if gemini else {})
        paths = LocalPaths([self.roots])
        fetcher = Fetcher(FetchOptions(policy=AddressPolicy(), max_bytes=MOST, timeout=options.timeout))
        self.workload = Documents(options, Sources(self.files, paths, fetcher, options.scratch, MOST))
        facts = {"max_upload_bytes": MOST, "local_paths": True, "callbacks": True} | changes
        self.admission = DocumentAdmission(self.workload, self.records, self.files, paths, AdmissionOptions(**facts))

    async def keep(self, content=PDF):
        async def arriving():
            yield content

        return await self.admission.keep(arriving())

    async def admit(self, fields, *, company="c", **given):
        return await self.admission.admit(fields, company_id=company, received_at=datetime.now(UTC), **given)

    async def problems(self, fields, **given) -> dict[str, str]:
        """The problems that admission reports, by field."""
        with pytest.raises((InvalidContent, NotAcceptable)) as refused:
            await self.admit(fields, **given)
        return {each.field: each.problem for each in refused.value.problems}


@pytest.fixture
async def admissions(tmp_path):
    made = Admissions(tmp_path)
    await made.files.open()
    return made


async def test_a_request_becomes_a_job_that_says_no_more_than_the_request(admissions):
    data = (await admissions.admit(OCR | {"job_id": "ocr-009", "local_path": "samples/missing.pdf"})).data
    assert data.model_dump(mode="json") == OCR | {
        "job_id": "ocr-009",
        "payload": {"local_path": "samples/missing.pdf"},
        "company_id": "c",
        "scoped": True,
    }
    first, second = (await admissions.admit(URL)).data, (await admissions.admit(URL)).data
    assert first.job_id.startswith("doc-")
    assert first.job_id != second.job_id


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("deed.pdf", "deed.pdf"),
        ("/etc/deed.pdf", "deed.pdf"),
        ("C:\\papers\\deed.pdf", "deed.pdf"),
        ("São\u0000 João\n.pdf", "São João.pdf"),
        ("a" * 300, "a" * 255),
        ("529.982.247-25.pdf", None),
        ("folder/", None),
        (None, None),
    ],
)
async def test_an_upload_is_named_by_its_content_and_by_a_plain_name(admissions, given, kept):
    upload = (await admissions.admit(OCR, upload=await admissions.keep(), filename=given)).data.payload.upload
    assert (upload.sha256, upload.size, upload.filename) == (sha256(PDF).hexdigest(), len(PDF), kept)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        (OCR, "document"),
        (URL | {"local_path": "a.pdf"}, "document"),
        ({**URL, "job_type": "POEM"}, "job_type"),
        ({"url": "https://example.com/a", "job_type": "OCR"}, "input_type"),
        (URL | {"input_type": "VIDEO"}, "input_type"),
        ({**URL, "job_type": "TRANSCRIPTION"}, "input_type"),
        (URL | {"job_id": "a/b"}, "job_id"),
        (URL | {"job_id": "cpf-529.982.247-25"}, "job_id"),
        (URL | {"job_id": "wait"}, "job_id"),
        (URL | {"job_id": "12345"}, "job_id"),
        (URL | {"language": "Klingon"}, "language"),
        (URL | {"upload": {"sha256": "0" * 64, "size": 1}}, "upload"),
        (URL | {"replay_of": "a"}, "replay_of"),
        (URL | {"company_id": "another"}, "company_id"),
        (URL | {"metadata": {"a": "x" * 16 * 1024}}, "metadata"),
        (URL | {"metadata": {"customer": "529.982.247-25"}}, "metadata"),
        (OCR | {"url": "ftp://example.com/a.pdf"}, "url"),
        (OCR | {"url": "https://user:pw@example.com/a.pdf"}, "url"),
        (OCR | {"url": "https:///a.pdf"}, "url"),
        (OCR | {"url": "https://example.com/a b.pdf"}, "url"),
        (OCR | {"url": "https://[broken/a.pdf"}, "url"),
        (URL | {"callback_url": "javascript:alert(1)"}, "callback_url"),
        (OCR | {"local_path": "a\nb"}, "local_path"),
        (OCR | {"local_path": "../secrets.pdf"}, "local_path"),
        (OCR | {"local_path": "/etc/passwd"}, "local_path"),
        (URL | {"engine": "gemini"}, "engine"),
    ],
)
async def test_what_is_wrong_is_told_by_field_and_never_with_the_value(admissions, fields, field):
    problems = await admissions.problems(fields)
    assert set(problems) == {field}
    for value in ("529.982.247-25", "user:pw", "secrets", "Klingon"):
        assert value not in str(problems)


async def test_everything_that_is_wrong_is_told_together(admissions):
    assert set(await admissions.problems(OCR | {"input_type": "AUDIO", "job_id": "x-529.982.247-25"})) == {
        "document",
        "input_type",
        "job_id",
    }


async def test_a_file_comes_with_the_request_or_is_elsewhere(admissions):
    assert set(await admissions.problems(URL, upload=await admissions.keep())) == {"document"}


async def test_a_file_that_is_something_else_is_refused_where_its_bytes_are_at_hand(admissions):
    tool = await admissions.keep(b"MZ\x90\x00" + bytes(500))
    assert set(await admissions.problems(OCR, upload=tool, filename="deed.pdf")) == {"file"}
    (admissions.roots / "tool.pdf").write_bytes(b"MZ\x90\x00" + bytes(500))
    assert set(await admissions.problems(OCR | {"local_path": "tool.pdf"})) == {"local_path"}
    (admissions.roots / "deed.pdf").write_bytes(PDF)
    assert (await admissions.admit(OCR | {"local_path": "deed.pdf"})).data.payload.local_path == "deed.pdf"


async def test_what_an_installation_does_not_do_is_refused_and_a_path_is_not_even_looked_at(tmp_path):
    closed = Admissions(tmp_path, local_paths=False, callbacks=False)
    problems = await closed.problems(OCR | {"local_path": "../x", "callback_url": "https://a.b/c", "engine": "gemini"})
    assert set(problems) == {"local_path", "callback_url", "engine"}
    assert "DOCUMENT_LOCAL_PATH_OVER_HTTP" in problems["local_path"]
    opened = Admissions(tmp_path, gemini=True)
    assert (
        await opened.admit(URL | {"engine": "gemini", "callback_url": "https://a.b/c"})
    ).data.payload.engine == "gemini"


async def test_a_file_that_is_too_large_is_not_kept(admissions):
    assert admissions.admission.max_upload_bytes == MOST
    with pytest.raises(UploadTooLarge):
        await admissions.keep(PDF + bytes(MOST))


# --- the result that is there already -------------------------------------------------------------------------------


async def read_before(admissions, **changes):
    """The same upload, read for company ``c`` by an earlier job."""
    stored = await admissions.keep()
    earlier = (await admissions.admit(OCR, upload=stored)).data
    path = await admissions.files.write("earlier/1", {"text.txt": b"what it says"})
    result = {"job_id": "earlier", "company_id": "c", "status": "COMPLETED", "output_path": path, "pages": 1}
    result |= {"unit": "page", "units": 1, "cached": False, "createdAt": "x"} | changes
    work = work_id(stored.sha256, *admissions.workload.options.reading_method(earlier))
    admissions.records[CACHE, cache_id(earlier, work)] = {"job_id": "earlier"}
    admissions.records[RESULTS, "earlier"] = result
    return stored


async def test_the_same_upload_has_its_result_at_once_as_its_own(admissions):
    stored = await read_before(admissions)
    admitted = await admissions.admit(OCR | {"job_id": "later"}, upload=stored, filename="deed.pdf")
    assert {"job_id": "later", "status": "COMPLETED", "cached": True}.items() <= admitted.cached.items()
    assert {each.collection: each.key for each in admitted.effects} == dict.fromkeys(
        (JOBS, RESULTS), key_of("later", "c")
    )
    assert await admissions.admission.output(admitted.cached, "text.txt") == b"what it says"


async def test_there_is_no_result_for_others_nor_one_that_is_not_whole(admissions):
    stored = await read_before(admissions)
    for fields, company in (
        (OCR, "another"),
        (OCR | {"cache": False}, "c"),
        (OCR | {"language": "pt"}, "c"),
    ):
        admitted = await admissions.admit(fields, company=company, upload=stored)
        assert (admitted.cached, admitted.effects) == (None, ())
    for changes in ({"status": "FAILED"}, {"output_path": "/somewhere/else"}):
        await read_before(admissions, **changes)
        assert (await admissions.admit(OCR, upload=stored)).cached is None
    del admissions.records[RESULTS, "earlier"]
    assert (await admissions.admit(OCR, upload=stored)).cached is None


async def test_a_result_without_files_has_no_outputs(admissions):
    for result in ({}, {"output_path": None}, {"output_path": "/etc"}):
        with pytest.raises(FileMissing):
            await admissions.admission.output(result, "passwd")
