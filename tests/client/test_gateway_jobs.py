"""Both clients against a whole gateway: jobs of one's own workloads, records, dead letters, schedules."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from holdfast.client import (
    AsyncClient,
    Conflict,
    Forbidden,
    InvalidContent,
    Job,
    JobCancelled,
    JobFailed,
    NotFound,
    Unauthorized,
)
from tests.client.served_gateway import INVOICES, Invoice, in_real_time

NOW = datetime.now(UTC)


class TestJobs:
    def test_a_result(self, who, name):
        job = who.call(lambda client: client.submit("issue_invoice", {"number": name, "cents": 1299}))
        assert (job.key, job.duplicate) == (name, False)
        assert who.call(lambda client: client.submit("issue_invoice", Invoice(number=name, cents=1299))).duplicate
        assert who.call(lambda client: client.result(job, timeout=60)) == {"cents": 1299}
        state = who.call(lambda client: client.job("issue_invoice", job.key))
        assert (state.status, state.attempts[0].outcome) == ("processed", "succeeded")
        with pytest.raises(Conflict):
            who.call(lambda client: client.submit("issue_invoice", {"number": name, "cents": 1}))

    def test_a_result_that_is_no_object(self, who, name):
        job = who.call(lambda client: client.submit("count_cents", {"number": name, "cents": 7}))
        assert who.call(lambda client: client.result(job, timeout=60)) == 7

    def test_a_key_of_many_characters(self, who, name):
        job = who.call(lambda client: client.submit("count_cents", {"number": f"{name}/é ?#%2F", "cents": 7}))
        assert who.call(lambda client: client.result(job, timeout=60)) == 7

    def test_a_job_that_waits_and_is_cancelled(self, who, name):
        job = who.call(lambda client: client.submit("count_cents", {"number": name, "cents": 7}, delay="1h"))
        assert timedelta(minutes=59) < job.due_at - job.received_at < timedelta(minutes=61)
        with pytest.raises(TimeoutError):
            who.call(lambda client: client.result(job, timeout="50ms"))
        assert who.call(lambda client: client.cancel(job)).state == "cancelled"
        with pytest.raises(JobCancelled):
            who.call(lambda client: client.result(job, timeout=60))

    def test_too_late_to_cancel(self, who, name):
        job = who.call(lambda client: client.submit("count_cents", {"number": name, "cents": 7}))
        who.call(lambda client: client.result(job, timeout=60))
        answer = who.call(lambda client: client.cancel(job))
        assert (bool(answer), answer.state) == (False, "too_late")

    def test_a_running_job_is_watched_and_stopped(self, who, name):
        job = who.call(lambda client: client.submit("wait_for_the_end", {"number": name, "cents": 7}))
        seen = []

        class Stop(Exception):
            pass

        def stop_at_progress(client):
            for state in client.events(job, timeout=60):
                seen.append(state)
                if state.progress is not None:
                    raise Stop

        async def stop_at_progress_with_await(client):
            async for state in client.events(job, timeout=60):
                seen.append(state)
                if state.progress is not None:
                    raise Stop

        with pytest.raises(Stop):
            who.call(stop_at_progress_with_await if "Async" in type(who).__name__ else stop_at_progress)
        assert (seen[-1].progress.done, seen[-1].progress.total, seen[-1].progress.note) == (1, 2, "waiting")
        assert who.call(lambda client: client.cancel(job)).state == "stopping"
        states = who.call(lambda client: client.events(job, timeout=60))
        assert states[-1].ended

    def test_many(self, who, name):
        items = [{"number": f"{name}-{number}", "cents": number} for number in range(600)]
        items[3] = {"number": f"{name}-3"}
        items[599] = {"number": f"{name}-4", "cents": 9}
        answers = who.call(lambda client: client.submit_many("count_cents", items))
        assert [index for index, each in enumerate(answers) if not isinstance(each, Job)] == [3, 599]
        assert isinstance(answers[3], InvalidContent)
        assert isinstance(answers[599], Conflict)
        assert who.call(lambda client: client.result(answers[598], timeout=60)) == 598

    def test_lists(self, who, name):
        items = [{"number": f"{name}-{number}", "cents": 5, "customer": name} for number in range(5)]
        for job in who.call(lambda client: client.submit_many("issue_invoice", items)):
            who.call(lambda client, job=job: client.result(job, timeout=60))
        found = who.call(
            lambda client: client.jobs("issue_invoice", status="processed", labels={"customer": name}, page=2)
        )
        assert {each.key for each in found} == {each["number"] for each in items}
        one = who.call(lambda client: client.jobs("issue_invoice", key=f"{name}-0", after=NOW - timedelta(hours=1)))
        assert [each.key for each in one] == [f"{name}-0"]
        assert who.call(lambda client: client.jobs("issue_invoice", before=NOW - timedelta(days=1))) == []
        with pytest.raises(InvalidContent):
            who.call(lambda client: client.jobs("issue_invoice", labels={"color": "red"}))

    def test_records(self, who, name):
        invoice = {"number": name, "cents": 5, "customer": name}
        job = who.call(lambda client: client.submit("issue_invoice", invoice))
        who.call(lambda client: client.result(job, timeout=60))
        record = who.call(lambda client: client.record(INVOICES.name, name))
        assert (record["customer"], record["cents"]) == (name, 5)
        assert who.call(lambda client: client.records(INVOICES.name, where={"customer": name})) == [record]

    def test_what_is_not_there(self, who):
        for missing in (
            lambda client: client.submit("no_such_workload", {}),
            lambda client: client.job("count_cents", "no such key"),
            lambda client: client.result(("count_cents", "no such key")),
            lambda client: client.cancel(("count_cents", "no such key")),
            lambda client: client.events(("count_cents", "no such key")),
            lambda client: client.record(INVOICES.name, "no such key"),
        ):
            with pytest.raises(NotFound):
                who.call(missing)

    def test_a_delay_that_is_too_long(self, who, name):
        with pytest.raises(InvalidContent):
            who.call(lambda client: client.submit("count_cents", {"number": name, "cents": 7}, delay="999d"))


async def test_many_results_at_once_are_one_request_each(gateway):
    """More than the 100 connections of httpx's own pool, and more than one tenant may have."""
    asked = Counter()

    async def count(request):
        asked[request.method] += 1

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(event_hooks={"request": [count]}, limits=limits) as http:
        client = AsyncClient(gateway.url, token=gateway.token, http=http)
        items = [{"number": f"at-once-{number}", "cents": number} for number in range(300)]
        jobs = await client.submit_many("count_cents", items, delay="3s")
        results = await asyncio.gather(*(client.result(job, timeout=60) for job in jobs))
    assert results == list(range(300))
    assert asked == {"POST": 1, "GET": 300}


class TestSchedules:
    def test_they_are_run_paused_and_resumed(self, who):
        (schedule,) = [each for each in who.call(lambda client: client.schedules.list()) if each.name == "remind"]
        assert (schedule.cron, schedule.timezone, schedule.paused) == ("0 7 * * 1-5", "America/Sao_Paulo", False)
        assert schedule.next[0] > NOW
        decision = {"actor": "ana", "reason": "holidays"}
        assert who.call(lambda client: client.schedules.pause("remind", **decision)).paused_by == "ana"
        job = who.call(lambda client: client.schedules.run("remind"))
        assert job.workload == "remind"
        assert not who.call(lambda client: client.schedules.resume("remind", **decision)).paused
        assert not who.call(lambda client: client.schedules.show("remind")).paused
        with pytest.raises(NotFound):
            who.call(lambda client: client.schedules.run("no-such-schedule"))


class TestDeadLetters:
    @pytest.fixture
    def operator(self, gateway, who):
        return in_real_time(type(who), gateway, key=None)

    def test_a_dead_letter_and_the_way_back(self, operator, name):
        job = operator.call(lambda client: client.submit("issue_invoice", {"number": name, "cents": 0}))
        with pytest.raises(JobFailed) as raised:
            operator.call(lambda client: client.result(job, timeout=60))
        assert raised.value.code == "NOTHING_TO_PAY"
        (letter,) = operator.call(lambda client: client.dead_letters.list(workload="issue_invoice", key=job.key))
        assert (letter.key, letter.review_status, letter.payload) == (job.key, "pending", None)
        whole = operator.call(lambda client: client.dead_letters.show(letter))
        assert whole.payload == {"number": name, "cents": 0, "customer": "ACME"}
        decision = {"actor": "ana", "reason": "the cents were wrong"}
        with pytest.raises(Conflict):
            operator.call(lambda client: client.dead_letters.replay(letter, **decision))
        reviewed = operator.call(lambda client: client.dead_letters.review(letter, **decision))
        assert (reviewed.review_status, reviewed.decisions[0].actor) == ("reviewed", "ana")
        report = operator.call(
            lambda client: client.dead_letters.replay_where(limit=10, key=job.key, dry_run=True, **decision)
        )
        assert report.replayed == (letter.id,)
        assert operator.call(lambda client: client.dead_letters.close(letter.id, **decision)).review_status == "closed"

    def test_all_letters_by_pages(self, operator, name):
        for number in range(3):
            job = operator.call(
                lambda client, number=number: client.submit("issue_invoice", {"number": f"{name}-{number}", "cents": 0})
            )
            with pytest.raises(JobFailed):
                operator.call(lambda client, job=job: client.result(job, timeout=60))
        one = operator.call(lambda client: client.dead_letters.list(workload="issue_invoice", page=1))
        many = operator.call(lambda client: client.dead_letters.list(workload="issue_invoice"))
        assert len(many) >= 3
        assert [each.id for each in one] == [each.id for each in many]
        before = operator.call(lambda client: client.dead_letters.list(created_before=NOW - timedelta(days=1)))
        assert before == []

    def test_a_tenant_is_no_operator(self, gateway, who):
        tenant = in_real_time(type(who), gateway, token=None)
        with pytest.raises((Unauthorized, Forbidden)):
            tenant.call(lambda client: client.dead_letters.list())
