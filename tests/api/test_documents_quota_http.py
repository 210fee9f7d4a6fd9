"""What a refused upload leaves behind (nothing), and the quota of a tenant's files: in a folder and in a bucket."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from aiobotocore.session import get_session

from holdfast.contracts.effects import Upsert
from holdfast.contracts.errors import IntakeSaturated, StoreUnavailable
from holdfast.contracts.queries import Page, RecordQuery
from holdfast.contracts.tenants import TENANTS
from holdfast.features.documents.records import ARRIVING
from holdfast.telemetry.events import refusals
from tests.api.document_api import (
    ELSEWHERE,
    PDF,
    DocumentApi,
    a_pdf,
    document_api,
    fields,
    form,
    part,
    problems,
)
from tests.support.moto_server import _moto_process, aws_credentials, moto  # noqa: F401 - fixtures

QUOTA = 10_000
BUCKET = "files"


@dataclass(frozen=True)
class Place:
    """The API over one kind of storage."""

    api: DocumentApi
    client: object = None

    async def kept(self) -> list[int]:
        """The sizes of the stored uploads."""
        if self.client is None:
            return [len(each) for each in self.api.kept()]
        found = await self.client.list_objects_v2(Bucket=BUCKET)
        return [each["Size"] for each in found.get("Contents", ()) if "/uploads/" in each["Key"]]

    async def arriving(self) -> list[object]:
        """The reservations, and the files that are arriving."""
        folder = self.api.folder / "documents" / ("incoming" if self.client is None else "work")
        found = await self.api.system.store.find_records(RecordQuery(collection=ARRIVING), Page(100))
        return [*found.items, *folder.glob("*")]

    async def used(self, who: str = "acme") -> int:
        return (await self.api.system.usage(self.api.ids[who]))["stored_bytes"]


@pytest.fixture(params=["folder", "s3"])
async def place(request, tmp_path, moto):  # noqa: F811
    quota = {"DOCUMENT_TENANT_BYTES": str(QUOTA)}
    if request.param == "folder":
        async with document_api(tmp_path, quota) as api:
            yield Place(api)
        return
    facts = {
        "DOCUMENT_STORAGE": "s3",
        "DOCUMENT_BUCKET": BUCKET,
        "DOCUMENT_S3_REGION": moto.region,
        "DOCUMENT_S3_ENDPOINT_URL": moto.url,
    }
    async with get_session().create_client("s3", region_name=moto.region, endpoint_url=moto.url) as client:
        await client.create_bucket(Bucket=BUCKET)
        async with document_api(tmp_path, quota | facts) as api:
            yield Place(api, client)


@pytest.fixture
async def folder(tmp_path):
    async with document_api(tmp_path, {"DOCUMENT_TENANT_BYTES": str(QUOTA)}) as api:
        yield Place(api)


async def test_a_refused_upload_is_deleted_at_once_and_does_not_count(place, monkeypatch):
    api, first = place.api, a_pdf()
    assert (await api.upload(first, job_id="one")).status_code == 202
    kept = [len(first)]
    assert await place.kept() == kept
    assert await place.used() == len(first)

    answers = [
        await api.upload(b"MZ\x90\x00 a program"),
        await api.upload(a_pdf(), job_id="one"),
        await api.upload(first, job_id="one"),
        await api.upload(a_pdf(), callback_url="https://example.com/called"),
        await api.upload(a_pdf(), unknown="field"),
    ]
    assert [answer.status_code for answer in answers] == [422, 409, 202, 422, 400]
    assert answers[2].json()["duplicate"] is True

    async def saturated(*_, **__):
        raise IntakeSaturated

    monkeypatch.setattr(api.system.intake, "accept", saturated)
    assert (await api.upload(a_pdf())).status_code == 429
    assert await place.kept() == kept
    assert await place.arriving() == []
    assert await place.used() == len(first)


async def test_an_upload_stays_when_nobody_knows_whether_its_job_was_recorded(place, monkeypatch):
    accept = place.api.system.intake.accept

    async def reply_lost(*given, **options):
        await accept(*given, **options)
        raise StoreUnavailable

    monkeypatch.setattr(place.api.system.intake, "accept", reply_lost)
    content = a_pdf()
    assert (await place.api.upload(content, job_id="one")).status_code == 503
    assert await place.kept() == [len(content)]
    monkeypatch.undo()
    assert (await place.api.upload(content, job_id="one")).json()["duplicate"] is True
    assert await place.kept() == [len(content)]


async def test_two_tenants_with_one_content_have_a_file_each(folder):
    content = a_pdf()
    for who in ("acme", "other"):
        assert (await folder.api.upload(content, who=who)).status_code == 202
    assert await folder.kept() == [len(content)] * 2
    assert await folder.used("acme") == await folder.used("other") == len(content)


async def test_a_file_that_does_not_fit_is_refused_before_it_is_read_and_says_how_much_is_in_use(folder):
    first = PDF.ljust(6_000, b"\n")
    assert (await folder.api.upload(first)).status_code == 202
    before = refusals().get("tenant_stored_bytes", 0)
    answer = await folder.api.upload(PDF.ljust(5_000, b"\n"))
    assert (answer.status_code, answer.json()["errorCode"]) == (413, "QUOTA_EXCEEDED")
    assert problems(answer) == {"file": "has no room: 6000 of 10000 bytes are in use"}
    assert refusals()["tenant_stored_bytes"] == before + 1
    assert (await folder.api.upload(PDF, who="other")).status_code == 202
    assert (await folder.api.upload(PDF.ljust(2_000, b"\n"))).status_code == 202
    assert await folder.used() == 8_000
    assert await folder.arriving() == []


async def test_a_file_of_unknown_length_is_refused_when_it_has_grown_too_long(folder):
    async def chunks(size):
        yield b"".join(fields(job_type="OCR", input_type="PDF"))
        body = part("file", PDF.ljust(size, b"\n"), filename="a.pdf")
        for start in range(0, len(body), 500):
            yield body[start : start + 500]
        yield form()

    answer = await folder.api.post(chunks(QUOTA + 1))
    assert (answer.status_code, answer.json()["errorCode"]) == (413, "QUOTA_EXCEEDED")
    assert await folder.kept() == await folder.arriving() == []
    assert (await folder.api.post(chunks(QUOTA))).status_code == 202
    assert await folder.used() == QUOTA
    answer = await folder.api.send(ELSEWHERE)
    assert (answer.status_code, answer.json()["errorCode"]) == (413, "QUOTA_EXCEEDED")


async def test_ten_uploads_at_a_time_never_get_more_than_the_quota(place):
    content = PDF.ljust(2_000, b"\n")
    answers = await asyncio.gather(*(place.api.upload(content) for _ in range(10)))
    accepted = [answer.status_code for answer in answers].count(202)
    assert {answer.status_code for answer in answers} == {202, 413}
    # The whole request must fit while it arrives, so the fifth does not.
    assert accepted in {3, 4}
    assert await place.used() == sum(await place.kept()) == accepted * len(content)
    assert await place.arriving() == []


async def test_a_tenant_may_have_a_limit_of_its_own(folder):
    own = [Upsert(TENANTS, folder.api.ids["acme"], {"limits": {"storedBytes": 1_500}})]
    await folder.api.system.store.apply(own)
    content = PDF.ljust(2_000, b"\n")
    assert (await folder.api.upload(content)).status_code == 413
    assert (await folder.api.upload(content, who="other")).status_code == 202


async def test_zero_is_no_quota(tmp_path):
    async with document_api(tmp_path, {"DOCUMENT_TENANT_BYTES": "0"}) as api:
        assert (await api.upload(PDF.ljust(50_000, b"\n"))).status_code == 202
        assert await Place(api).used() == 50_000
