"""Children and workers that die in mid-document: it is read to its end once, and no committed page is read twice."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter

import pytest

from tests.support.document_traffic import (
    DocumentTraffic,
    DocumentTruth,
    Memory,
    Posted,
    children_of,
    document_settings,
    gone,
    kill,
    readings_in,
    violations,
    with_documents,
)
from tests.support.long_run import LONG_RUN
from tests.support.page_server import PageServer, Reading
from tests.support.pages import SAMPLES, text_pdf
from tests.support.processes import GatewayProcess
from tests.support.running_gateway import running_gateway

CHILD, WORKER = "child", "worker"
ENDINGS = {CHILD: ("failed", "CHILD_CRASHED"), WORKER: ("lost", "LOST")}
MAX_ATTEMPTS = 3
MANY_ATTEMPTS = "100"
SUCCEEDED = ("succeeded", None)

only_long = pytest.mark.skipif(not LONG_RUN, reason="children take seconds to start: make chaos has the time")


# --- a child, or a worker, dies in the midst of a page --------------------------------------------------------------


async def test_a_document_goes_on_where_a_kill_stopped_it(tmp_path, rounds, seed, tell):
    with PageServer() as server:
        async with running_gateway(tmp_path, seed, **document_settings(server)) as gateway:
            await killed_in_mid_page(await with_documents(gateway, server), max(1, rounds // 2), tell)


async def killed_in_mid_page(traffic: DocumentTraffic, rounds: int, tell) -> None:
    """One child and one worker die for each document, in an order and at pages that chance chooses."""
    began, chance, memory, kills = time.monotonic(), traffic.gateway.chance, Memory(traffic.server), Counter()
    await traffic.start("api")
    worker = await traffic.start("worker")
    for _ in range(rounds):
        pages = chance.randint(4, 8)
        places, who = sorted(chance.sample(range(pages), 2)), chance.sample([CHILD, WORKER], 2)
        victim = await traffic.post(pages)
        holds = [traffic.server.hold(victim.number, page) for page in places]
        for kind, page, hold in zip(who, places, holds, strict=True):
            await traffic.until_in_page(victim, hold, page)
            child = await traffic.reader(worker, victim)
            if kind == CHILD:
                await kill_beside_a_neighbour(traffic, worker, child)
            else:
                await traffic.kill_worker(worker)
                assert gone(child)
            memory.look(traffic.truth())
            if kind == WORKER:
                worker = await traffic.start("worker")
            kills[kind] += 1
        await traffic.until_status(victim, "processed")
        truth = traffic.truth()
        assert truth.outcomes(victim.job_id) == [*(ENDINGS[kind] for kind in who), SUCCEEDED]
        assert truth.results[victim.job_id]["units_reused"] == places[-1]
        # Once each, and once more for each kill in the midst of it.
        assert traffic.server.times(victim.number) == Counter([*range(pages), *places])
    truth = await traffic.ended()
    tell(figures(traffic, truth, memory, kills, began))
    assert traffic.violations(truth) == []
    assert truth.units == []  # those that have served are gone
    assert memory.read_again == []


async def kill_beside_a_neighbour(traffic: DocumentTraffic, worker: GatewayProcess, child: int) -> None:
    """Kill a child while another is in the midst of a page: the worker and the other go on as if nothing had been."""
    neighbour = await traffic.post(2)
    hold = traffic.server.hold(neighbour.number, 1)
    await traffic.until_in_page(neighbour, hold, 1)
    bystander = await traffic.reader(worker, neighbour)
    kill(child)
    await traffic.until(lambda: gone(child), "it is dead")
    hold.release()
    await traffic.until_status(neighbour, "processed")
    await traffic.until(lambda: gone(bystander), "its work is done")
    assert worker.alive
    assert traffic.truth().outcomes(neighbour.job_id) == [SUCCEEDED]
    assert traffic.server.times(neighbour.number) == Counter([0, 1])


def figures(traffic: DocumentTraffic, truth: DocumentTruth, memory: Memory, kills: Counter[str], began: float) -> dict:
    readings = Counter(each.place for each in traffic.server.readings)
    return {
        "seconds": round(time.monotonic() - began),
        "documents": len(traffic.posted),
        "completed": sum(each == "processed" for each in truth.entries.values()),
        "pages": sum(each.pages for each in traffic.posted),
        "kills": dict(kills),
        "pages read": readings.total(),
        "read twice, uncommitted": sum(times - 1 for times in readings.values()) - len(memory.read_again),
        "read twice, committed": len(memory.read_again),
    }


# --- at any moment --------------------------------------------------------------------------------------------------


@only_long
async def test_kills_at_any_moment_cost_no_committed_page(tmp_path, rounds, seed, tell):
    with PageServer() as server:
        settings = document_settings(server, DOCUMENT_MAX_ATTEMPTS=MANY_ATTEMPTS)
        async with running_gateway(tmp_path, seed, **settings) as gateway:
            await killed_at_any_moment(await with_documents(gateway, server), rounds, tell)


async def killed_at_any_moment(traffic: DocumentTraffic, rounds: int, tell) -> None:
    """Two workers with several documents each; now a child dies, now a worker, whatever they are at."""
    began, chance, memory, kills = time.monotonic(), traffic.gateway.chance, Memory(traffic.server), Counter()
    await traffic.start("api")
    workers = [await traffic.start("worker") for _ in range(2)]
    for _ in range(rounds):
        for _ in range(2):
            await traffic.post(chance.randint(20, 80))
        for kind in chance.choices([CHILD, WORKER], weights=[2, 1], k=3):
            before = len(traffic.server.readings)
            progress = chance.randint(1, 25)
            await traffic.until(
                lambda: len(traffic.server.readings) >= before + progress or traffic.truth().settled,  # noqa: B023 - now
                "pages are read",
            )
            place = chance.randrange(len(workers))
            if kind == WORKER:
                await traffic.kill_worker(workers[place])
                memory.look(traffic.truth())
                workers[place] = await traffic.start("worker")
            elif children := children_of(workers[place]):
                kill(chance.choice(children))
                memory.look(traffic.truth())
            else:
                continue
            kills[kind] += 1
        assert all(worker.alive for worker in workers)
    truth = await traffic.ended()
    tell(figures(traffic, truth, memory, kills, began))
    assert traffic.violations(truth) == []
    assert set(truth.entries.values()) == {"processed"}
    assert truth.units == []
    assert memory.read_again == []
    assert len(memory) > 0


# --- a worker sleeps ------------------------------------------------------------------------------------------------


@only_long  # the cluster has it in each run
async def test_a_worker_that_slept_past_its_lease_adds_no_page_and_no_result(tmp_path, seed, tell):
    with PageServer() as server:
        async with running_gateway(tmp_path, seed, **document_settings(server)) as gateway:
            await slept_in_mid_page(await with_documents(gateway, server), tell)


async def slept_in_mid_page(traffic: DocumentTraffic, tell) -> None:
    """When the sleeper wakes, its document is in its successor's hands; in a long run another is done by then, too.

    Its children did not sleep: the model answers them about the page that they are in, and that waits for the sleeper.
    """
    server = traffic.server
    await traffic.start("api")
    sleeper = await traffic.start("worker")
    documents = [await traffic.post(3) for _ in range(2 if LONG_RUN else 1)]
    under_way, *others = documents
    stale = [server.hold(each.number, 1) for each in documents]
    for each, hold in zip(documents, stale, strict=True):
        await traffic.until_in_page(each, hold, 1)
    children = await asyncio.to_thread(children_of, sleeper)
    sleeper.signal(signal.SIGSTOP)
    late = server.hold(under_way.number, 2)
    successor = await traffic.start("worker")
    for each in others:
        await traffic.until_status(each, "processed")
    await traffic.until_in_page(under_way, late, 2)
    for hold in stale:
        hold.release()
    sleeper.signal(signal.SIGCONT)
    await traffic.until(lambda: all(map(gone, children)), "the sleeper let go of them")
    assert sleeper.alive
    # Nothing that they read has come in: the second page is its successor's, and there is no third yet.
    committed = sorted(map(Reading.of, traffic.truth().units), key=lambda each: each.page)
    assert [each.page for each in committed] == [0, 1]
    assert committed[1].number > stale[0].reading.number
    late.release()
    await traffic.until_status(under_way, "processed")
    truth = traffic.truth()
    for each, hold in zip(documents, stale, strict=True):
        assert truth.outcomes(each.job_id) == [ENDINGS[WORKER], SUCCEEDED]
        first, second, last = readings_in(traffic.text_of(truth.results[each.job_id]))
        # The first page is the sleeper's, from when it was awake. No other is: its second was the one it was held in,
        # and its last, if it came so far, came after its successor's.
        assert first.number < hold.reading.number < second.number
        assert last == next(reading for reading in server.readings if reading.place == last.place)
    # Awake again, it works as before.
    await successor.terminate()
    afterwards = await traffic.post(1, text_pdf([SAMPLES["en"]]))
    await traffic.until_status(afterwards, "processed")
    truth = await traffic.ended()
    assert f".{sleeper.pid}_" in truth.attempts[afterwards.job_id][0]["worker"]
    assert traffic.violations(truth) == []
    tell({"documents": len(documents), "pages": 3 * len(documents), "pages read": len(server.readings)})


# --- poison ---------------------------------------------------------------------------------------------------------


async def test_a_document_that_needs_too_much_memory_costs_its_attempts_and_nothing_else(tmp_path, seed):
    with PageServer() as server:
        # Room for a text layer, and by far not for the engine that reads scans.
        settings = document_settings(server, DOCUMENT_MEMORY_MB="320", DOCUMENT_ENGINE="local")
        async with running_gateway(tmp_path, seed, **settings) as gateway:
            await starved(await with_documents(gateway, server))


async def starved(traffic: DocumentTraffic) -> None:
    await traffic.start("api")
    worker = await traffic.start("worker")
    poison = await traffic.post(1)
    await traffic.reader(worker, poison)
    neighbour = await traffic.post(2, text_pdf([SAMPLES["en"], SAMPLES["pt"]]))
    await traffic.until_status(poison, "dead_lettered")
    await traffic.until_status(neighbour, "processed")
    assert worker.alive
    truth = await traffic.ended()
    assert traffic.violations(truth) == []
    assert truth.outcomes(poison.job_id) == [("failed", "OUT_OF_MEMORY")] * MAX_ATTEMPTS
    assert truth.outcomes(neighbour.job_id) == [SUCCEEDED]
    assert_dead_lettered(truth, poison, "OUT_OF_MEMORY", worker)


async def test_a_document_that_takes_three_workers_with_it_is_dead_lettered(tmp_path, seed):
    with PageServer() as server:
        async with running_gateway(tmp_path, seed, **document_settings(server)) as gateway:
            await lost_with_its_workers(await with_documents(gateway, server))


async def lost_with_its_workers(traffic: DocumentTraffic) -> None:
    await traffic.start("api")
    fatal = await traffic.post(2)
    for attempt in range(MAX_ATTEMPTS):
        hold = traffic.server.hold(fatal.number, 1)  # if a child comes so far before its worker is dead, it waits
        worker = await traffic.start("worker")
        if attempt == 0:
            await traffic.until_in_page(fatal, hold, 1)
        await traffic.reader(worker, fatal)
        await traffic.kill_worker(worker)
    await traffic.start("worker")
    await traffic.until_status(fatal, "dead_lettered")
    truth = await traffic.ended()
    assert traffic.violations(truth) == []
    assert truth.outcomes(fatal.job_id) == [ENDINGS[WORKER]] * MAX_ATTEMPTS
    assert traffic.server.times(fatal.number)[0] == 1
    assert_dead_lettered(truth, fatal, "WORKER_LOST", worker)


def assert_dead_lettered(truth: DocumentTruth, posted: Posted, code: str, worker: GatewayProcess) -> None:
    """Its one letter tells why, and which worker had it last."""
    ((job_id, reason),) = truth.letters
    (told,) = truth.told
    assert (job_id, reason) == (posted.job_id, code)
    wanted = {"job_id": posted.job_id, "status": "FAILED", "schema_version": "v1", "error_code": code}
    wanted |= {"error_type": "SYSTEM", "attempts": MAX_ATTEMPTS, "max_attempts": MAX_ATTEMPTS}
    assert told | wanted == told
    assert f".{worker.pid}_" in told["worker_id"]
    assert truth.results[posted.job_id]["error"]["code"] == code


# --- the checker ----------------------------------------------------------------------------------------------------

POSTED = [Posted("a", 0, 2, "sha"), Posted("b", 1, 1, "sha")]
READINGS = [Reading(0, 0, 0), Reading(1, 0, 1), Reading(2, 0, 1), Reading(3, 1, 0)]
SOUND = {
    "entries": {"a": "processed", "b": "dead_lettered"},
    "attempts": {"a": [{"outcome": "lost"}, {"outcome": "succeeded"}], "b": [{"outcome": "failed"}]},
    "jobs": {"a": {"status": "COMPLETED"}, "b": {"status": "FAILED"}},
    "results": {"a": {"status": "COMPLETED", "pages": 2}, "b": {"status": "FAILED"}},
    "units": [],
    "letters": [("b", "OUT_OF_MEMORY")],
    "told": [{"job_id": "b"}],
    "waiting": 0,
}


def found(words: list[Reading], **changes) -> list[str]:
    text = "\n".join(each.words for each in words)
    return list(violations(POSTED, DocumentTruth(**(SOUND | changes)), READINGS, lambda _: text))


def test_the_checker_finds_nothing_where_nothing_is_wrong():
    assert found(READINGS[:2]) == []
    assert found([READINGS[0], READINGS[2]]) == []


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (READINGS[:1], {}),
        (READINGS[1::-1], {}),
        (READINGS[:3], {}),
        ([READINGS[0], Reading(9, 0, 1)], {}),
        ([READINGS[0], READINGS[3]], {}),
        (READINGS[:2], {"entries": {"a": "processed"}}),
        (READINGS[:2], {"entries": SOUND["entries"] | {"c": "processed"}}),
        (READINGS[:2], {"jobs": SOUND["jobs"] | {"a": {"status": "PROCESSING"}}}),
        (READINGS[:2], {"results": SOUND["results"] | {"a": {"status": "COMPLETED", "pages": 1}}}),
        (READINGS[:2], {"results": SOUND["results"] | {"b": {"status": "COMPLETED", "pages": 1}}}),
        (READINGS[:2], {"attempts": SOUND["attempts"] | {"a": [{"outcome": "succeeded"}] * 2}}),
        (READINGS[:2], {"attempts": SOUND["attempts"] | {"b": [{"outcome": "running"}]}}),
        (READINGS[:2], {"letters": []}),
        (READINGS[:2], {"told": []}),
        (READINGS[:2], {"letters": [*SOUND["letters"], ("b", "TIMEOUT")]}),
        (READINGS[:2], {"letters": [*SOUND["letters"], ("a", "TIMEOUT")]}),
    ],
)
def test_the_checker_finds_what_is_wrong(words, changes):
    assert found(words, **changes)


def test_the_memory_finds_a_committed_page_that_is_read_again():
    server = PageServer()
    server.readings = READINGS[:2]
    memory = Memory(server)
    memory.look(DocumentTruth(**(SOUND | {"units": [READINGS[0].words]})))
    server.readings = READINGS  # the second page again: it was not committed
    assert memory.read_again == []
    server.readings = [*READINGS, again := Reading(4, 0, 0)]
    assert memory.read_again == [again]
