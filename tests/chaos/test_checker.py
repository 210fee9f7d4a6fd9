"""The checker of the kill tests notices what they exist to notice: each lie about a good run is called by its name."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.checker import Witnessed, check
from tests.support.load import Outcome, Sent
from tests.support.raw_http import Answer
from tests.support.running_gateway import running_gateway
from tests.support.sqlite_truth import read_file

Run = tuple[Path, Witnessed]
_REPLAYED = "SELECT count(*) FROM ledger_entries WHERE generation = 2 AND status = 'processed'"
Lie = Callable[[Witnessed], Witnessed]


@pytest.fixture(scope="module")
def good_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A short run without faults, in which everything occurs that the rules speak of."""
    return asyncio.run(_good_run(tmp_path_factory.mktemp("good")))


async def _good_run(folder: Path) -> Run:
    async with running_gateway(folder, seed=1) as gateway:
        process = await gateway.fleet.start("api", "worker")
        plain, event = gateway.author.task("plain"), gateway.author.event("plain")
        await gateway.load.send(plain, event, gateway.author.task("mended"), gateway.author.event("doomed"))
        await gateway.load.send(plain, gateway.author.contradiction(plain), gateway.author.event("flaky"))
        reviewing = asyncio.create_task(gateway.reviewer.run())
        await gateway.until(_REPLAYED, equals=1)
        gateway.reviewer.stop()
        await reviewing
        await gateway.drained()
        await process.terminate()
        witnessed = Witnessed(
            history=tuple(gateway.load.history),
            asked_replays=frozenset(gateway.reviewer.asked),
            acknowledged_replays=frozenset(gateway.reviewer.replayed),
            runs=tuple(gateway.runs()),
            taken_downstream=dict(gateway.downstream.taken),
        )
        return gateway.database, witnessed


def rules_broken(good_run: Run, folder: Path, statement: str, lie: Lie) -> set[str]:
    database = folder / "doctored.db"
    shutil.copy(good_run[0], database)
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(statement)
    return {violation.partition(":")[0] for violation in check(read_file(database), lie(good_run[1])).violations}


def test_a_good_run_breaks_no_rule(good_run, tmp_path):
    assert rules_broken(good_run, tmp_path, "", lambda told: told) == set()


@pytest.mark.parametrize(
    ("rule", "statement"),
    [
        ("acknowledged_means_settled", "DELETE FROM ledger_entries WHERE key LIKE 'plain%'"),
        ("acknowledged_means_settled", "UPDATE ledger_entries SET status = 'failed' WHERE key LIKE 'plain%'"),
        ("nothing_is_invented", "UPDATE ledger_entries SET key = 'plain-777' WHERE key LIKE 'plain%'"),
        ("nothing_is_invented", """INSERT INTO counted_effects VALUES ('x#1', '{"key": "x"}')"""),
        (
            "answers_agree",
            "UPDATE ledger_entries SET body = json_set(body, '$.text', 'second') WHERE key LIKE 'plain%'",
        ),
        ("moves_are_legal", "DELETE FROM ledger_entries WHERE key LIKE 'plain%'"),
        ("moves_are_legal", "UPDATE ledger_entries SET status = 'received' WHERE status = 'processed'"),
        ("moves_are_legal", "UPDATE ledger_entries SET fence = fence + 1"),
        ("moves_are_legal", "UPDATE ledger_entries SET generation = generation + 1"),
        ("moves_are_legal", """UPDATE witness_moves SET "end" = 'processing' WHERE start IS NULL"""),
        ("moves_are_legal", "UPDATE witness_moves SET fence = fence + 1 WHERE start = 'received'"),
        ("attempts_add_up", "UPDATE ledger_entries SET attempt_count = attempt_count + 1"),
        ("attempts_add_up", "UPDATE ledger_entries SET attempts = '[]', attempt_count = 0"),
        ("attempts_add_up", "UPDATE dead_letters SET attempt_count = attempt_count + 1"),
        ("attempts_add_up", "UPDATE ledger_entries SET attempts = json_set(attempts, '$[0].outcome', 'running')"),
        ("fates_are_as_meant", "UPDATE ledger_entries SET key = replace(key, 'plain', 'doomed')"),
        ("effects_happen_once", "UPDATE counted_effects SET body = body"),
        ("effects_happen_once", "DELETE FROM witness_effects; DELETE FROM counted_effects"),
        ("effects_happen_once", "UPDATE counted_effects SET body = json_set(body, '$.worker', 'another')"),
        ("letters_match_failures", "DELETE FROM dead_letters"),
        ("letters_match_failures", "UPDATE dead_letters SET generation = generation + 5"),
        ("letters_match_failures", "UPDATE dead_letters SET attempts = json_set(attempts, '$[0].worker', 'another')"),
        ("replays_were_asked_for", "UPDATE dead_letters SET review_status = 'closed' WHERE review_status = 'pending'"),
        ("replays_were_asked_for", "UPDATE dead_letters SET decisions = '[]', review_status = 'pending'"),
        ("replays_were_asked_for", "UPDATE ledger_entries SET generation = 2"),
        ("queues_mirror_the_store", "DELETE FROM queue_jobs"),
        ("queues_mirror_the_store", "UPDATE queue_jobs SET queue = 'courier-events-main'"),
        ("queues_mirror_the_store", "UPDATE dead_letters SET review_status = 'closed'"),
        ("shipments_show_the_newest", "DELETE FROM active_shipments"),
        ("shipments_show_the_newest", "UPDATE active_shipments SET body = json_set(body, '$.lastEventId', 'evt')"),
        ("shipments_show_the_newest", "UPDATE active_shipments SET body = json_set(body, '$.currentState', 'evt')"),
        ("shipments_show_the_newest", "UPDATE active_shipments SET body = json_set(body, '$.lastEventAt', '1999')"),
    ],
)
def test_a_doctored_store_is_noticed(good_run, tmp_path, rule, statement):
    assert rule in rules_broken(good_run, tmp_path, statement, lambda told: told)


def _first(told: Witnessed, outcome: Outcome) -> Sent:
    return next(sent for sent in told.history if sent.outcome is outcome)


def _sent(told: Witnessed, sent: Sent) -> Witnessed:
    return replace(told, history=(*told.history, sent))


def _told_twice_that_it_is_new(told: Witnessed) -> Witnessed:
    return _sent(told, next(sent for sent in told.history if sent.answer and not sent.answer.document["duplicate"]))


def _another_receipt(told: Witnessed) -> Witnessed:
    first = _first(told, Outcome.OK)
    document = {**first.answer.document, "duplicate": True, "receivedAt": "another"}
    return _sent(told, replace(first, answer=Answer(202, document)))


def _an_unjust_conflict(told: Witnessed) -> Witnessed:
    message = _first(told, Outcome.OK).message
    return _sent(told, replace(_first(told, Outcome.FAILED), message=message))


def _a_server_error(told: Witnessed) -> Witnessed:
    return _sent(told, replace(_first(told, Outcome.FAILED), answer=Answer(500, {})))


@pytest.mark.parametrize(
    ("rule", "lie"),
    [
        ("nothing_is_invented", lambda told: replace(told, history=())),
        ("answers_agree", _told_twice_that_it_is_new),
        ("answers_agree", _another_receipt),
        ("answers_agree", _an_unjust_conflict),
        ("answers_agree", _a_server_error),
        ("effects_happen_once", lambda told: replace(told, runs=())),
        ("replays_were_asked_for", lambda told: replace(told, asked_replays=frozenset())),
        ("downstream_saw_what_was_applied", lambda told: replace(told, taken_downstream={})),
        ("downstream_saw_what_was_applied", lambda told: replace(told, taken_downstream={"courier-x:ghost": 1})),
    ],
)
def test_a_history_that_does_not_fit_is_noticed(good_run, tmp_path, rule, lie):
    assert rule in rules_broken(good_run, tmp_path, "", lie)
