"""Children and workers of a cluster that die in mid-document: it is read to its end once, no committed page twice."""

from __future__ import annotations

from tests.chaos.test_document_kills import (
    MANY_ATTEMPTS,
    killed_at_any_moment,
    killed_in_mid_page,
    lost_with_its_workers,
    only_long,
    slept_in_mid_page,
)
from tests.support.document_traffic import document_settings, with_documents
from tests.support.page_server import PageServer
from tests.support.running_cluster import running_cluster


@only_long  # one file has it in each run
async def test_a_document_goes_on_where_a_kill_stopped_it(tmp_path, rounds, seed, tell, mongo):
    with PageServer() as server:
        async with running_cluster(tmp_path, seed, mongo, **document_settings(server)) as gateway:
            await killed_in_mid_page(await with_documents(gateway, server), max(1, rounds // 5), tell)


@only_long
async def test_kills_at_any_moment_cost_no_committed_page(tmp_path, rounds, seed, tell, mongo):
    with PageServer() as server:
        settings = document_settings(server, DOCUMENT_MAX_ATTEMPTS=MANY_ATTEMPTS)
        async with running_cluster(tmp_path, seed, mongo, **settings) as gateway:
            await killed_at_any_moment(await with_documents(gateway, server), max(1, rounds // 2), tell)


async def test_a_worker_that_slept_past_its_lease_adds_no_page_and_no_result(tmp_path, seed, tell, mongo):
    with PageServer() as server:
        async with running_cluster(tmp_path, seed, mongo, **document_settings(server)) as gateway:
            await slept_in_mid_page(await with_documents(gateway, server), tell)


@only_long
async def test_a_document_that_takes_three_workers_with_it_is_dead_lettered(tmp_path, seed, mongo):
    with PageServer() as server:
        async with running_cluster(tmp_path, seed, mongo, **document_settings(server)) as gateway:
            await lost_with_its_workers(await with_documents(gateway, server))
