"""``examples/fan-out``."""

from __future__ import annotations

import pytest

from holdfast import JobExpired
from holdfast.testing import Harness


@pytest.fixture
def program(load):
    return load("fan-out", "catalogue")


async def test_one_job_becomes_many_and_the_last_one_waits_for_all(program):
    async with Harness(program.app) as h:
        await h.submit(program.import_catalogue, program.Catalogue(name="spring", pages=20))
        await h.advance("10s")

        assert [page.number for page in await h.sent(program.import_page)] == list(range(1, 21))
        (published,) = await h.jobs(program.publish_catalogue)
        assert published.result == {"value": "spring: 20 pages"}
        assert await h.record("catalogues", "spring") | {"imported": 20, "published": True} == await h.record(
            "catalogues", "spring"
        )


async def test_a_page_counts_once_although_its_worker_crashed(program):
    async with Harness(program.app) as h:
        page = await h.submit(program.import_page, program.Page(catalogue="spring", number=1))
        h.crash()
        await h.advance("2m")

        assert (await h.job(page)).attempt_count == 2
        assert (await h.record("catalogues", "spring"))["imported"] == 1


async def test_the_last_job_does_not_wait_for_ever(program):
    async with Harness(program.app) as h:
        last = await h.submit(program.publish_catalogue, program.Catalogue(name="spring", pages=1))
        await h.advance("1m")
        assert (await h.job(last)).note == "0 of 1 pages"
        await h.advance("1d")

        with pytest.raises(JobExpired):
            await h.result(last)
