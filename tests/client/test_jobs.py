"""The verbs of jobs: what they ask, and what they make of the answers."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import uuid

import pytest
from pydantic import BaseModel, ConfigDict, Field

from holdfast.client import (
    Conflict,
    InvalidContent,
    Job,
    JobCancelled,
    JobExpired,
    JobFailed,
    NotFound,
    Refused,
    UnexpectedAnswer,
    Unreachable,
)
from tests.client.scripted_server import Hangs, Resets, Says
from tests.client.test_retrying import ERROR, RECEIPT

JOB = Job.read(RECEIPT)


def state(status, **more):
    return {"workload": "invoices", "key": "1", "jobId": "1", "status": status} | more


def says(status, **more):
    return Says(200, state(status, **more))


class Color(enum.Enum):
    RED = "red"


class Model(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    issued_at: dt.datetime = Field(alias="issuedAt")


@dataclasses.dataclass
class Invoice:
    number: str
    cents: decimal.Decimal
    at: dt.date
    inner: Model
    colors: tuple[Color, ...] = (Color.RED,)
    id: uuid.UUID | None = None


NOON = dt.datetime(2026, 11, 18, 12, tzinfo=dt.UTC)


class TestSubmitting:
    @pytest.mark.parametrize(
        ("data", "sent"),
        [
            ({"a": NOON, "b": {1}, "c": "é"}, {"a": "2026-11-18T12:00:00+00:00", "b": [1], "c": "é"}),
            (Model(issued_at=NOON), {"issuedAt": "2026-11-18T12:00:00Z"}),
            (
                Invoice("1", decimal.Decimal("1.10"), NOON.date(), Model(issued_at=NOON), id=uuid.UUID(int=1)),
                {
                    "number": "1",
                    "cents": "1.10",
                    "at": "2026-11-18",
                    "inner": {"issuedAt": "2026-11-18T12:00:00Z"},
                    "colors": ["red"],
                    "id": "00000000-0000-0000-0000-000000000001",
                },
            ),
        ],
    )
    def test_data_becomes_json(self, server, caller, data, sent):
        server.script = [Says(202, RECEIPT)]
        caller.call(lambda client: client.submit("invoices", data))
        assert server.asked[0].json == sent

    @pytest.mark.parametrize(
        "data", [None, 7, "text", [1], Invoice, {"a": float("nan")}, {"a": b"x"}, {"a": object()}, {"a": "\ud800"}]
    )
    def test_data_that_is_no_json_object_is_not_sent(self, server, caller, data):
        with pytest.raises(TypeError):
            caller.call(lambda client: client.submit("invoices", data))
        assert server.asked == []

    def test_delay_and_priority(self, server, caller):
        server.script = [Says(202, RECEIPT | {"dueAt": "2026-11-18T12:10:00.000Z"})]
        job = caller.call(lambda client: client.submit("order-sync", {}, delay="10m", priority=3))
        assert server.asked[0].path == "/v1/jobs/order-sync"
        assert server.asked[0].query == [("delayMs", "600000"), ("priority", "3")]
        assert job.due_at == NOON + dt.timedelta(minutes=10)

    @pytest.mark.parametrize("workload", ["", "\ud800"])
    def test_a_name_that_is_none(self, caller, workload):
        with pytest.raises(ValueError, match="name"):
            caller.call(lambda client: client.submit(workload, {}))

    @pytest.mark.parametrize("name", ["a/b", "..", "a?b#c", "a b", "é"])
    def test_a_name_stays_one_part_of_the_path(self, server, caller, name):
        server.script = [Says(404, ERROR)]
        with pytest.raises(NotFound):
            caller.call(lambda client: client.job("invoices", name))
        assert server.asked[0].path.count("/") == 4
        assert server.asked[0].path.startswith("/v1/jobs/invoices/")


class TestSubmittingMany:
    def answers(self, number):
        each = [{"index": index, "statusCode": 202, "answer": RECEIPT} for index in range(number)]
        return Says(207, {"accepted": number, "refused": 0, "answers": each})

    def test_five_hundred_in_one_request(self, server, caller):
        server.script = [self.answers(500), self.answers(500), self.answers(1)]
        jobs = caller.call(lambda client: client.submit_many("invoices", ({"n": n} for n in range(1001))))
        assert len(jobs) == 1001
        assert [len(each.json) for each in server.asked] == [500, 500, 1]
        assert [each["n"] for asked in server.asked for each in asked.json] == list(range(1001))

    def test_nothing_is_no_request(self, server, caller):
        assert caller.call(lambda client: client.submit_many("invoices", [])) == []
        assert server.asked == []

    def test_each_item_has_its_own_answer(self, server, caller):
        refused = {"index": 1, "statusCode": 409, "answer": ERROR}
        accepted = {"index": 0, "statusCode": 202, "answer": RECEIPT}
        server.script = [Says(207, {"accepted": 1, "refused": 1, "answers": [accepted, refused]})]
        first, second = caller.call(lambda client: client.submit_many("invoices", [{}, {}]))
        assert isinstance(first, Job)
        assert isinstance(second, Conflict)
        assert isinstance(second, Refused)
        assert second.code == "SOME_CODE"

    def test_a_batch_that_is_too_large_is_halved(self, server, caller):
        server.script = [Says(413, ERROR), self.answers(1), self.answers(2)]
        jobs = caller.call(lambda client: client.submit_many("invoices", [{"n": 0}, {"n": 1}, {"n": 2}]))
        assert len(jobs) == 3
        assert [[each["n"] for each in asked.json] for asked in server.asked] == [[0, 1, 2], [0], [1, 2]]

    def test_one_item_that_is_too_large_is_refused(self, server, caller):
        server.script = [Says(413, ERROR)]
        with pytest.raises(InvalidContent):
            caller.call(lambda client: client.submit_many("invoices", [{}, {}]))
        assert len(server.asked) == 2

    def test_a_batch_is_tried_again_whole(self, server, caller):
        server.script = [Resets(), Says(503, ERROR), self.answers(2)]
        assert len(caller.call(lambda client: client.submit_many("invoices", [{}, {}]))) == 2
        assert len({each.body for each in server.asked}) == 1
        assert len(server.asked) == 3

    @pytest.mark.parametrize("document", [{}, {"answers": []}, [], {"answers": 7}, {"answers": [7]}])
    def test_answers_that_are_missing(self, server, caller, document):
        server.script = [Says(207, document)]
        with pytest.raises(UnexpectedAnswer):
            caller.call(lambda client: client.submit_many("invoices", [{}]))


class TestResults:
    @pytest.mark.parametrize(
        ("stored", "result"),
        [
            (None, None),
            ({"pages": 2}, {"pages": 2}),
            ({"value": 7}, 7),
            ({"value": 7, "more": 1}, {"value": 7, "more": 1}),
        ],
    )
    def test_the_stored_result(self, server, caller, stored, result):
        server.script = [says("processed", result=stored)]
        assert caller.call(lambda client: client.result(JOB)) == result
        (asked,) = server.asked
        assert (asked.path, asked.query) == ("/v1/jobs/invoices/1", [("wait", "30")])

    def test_a_reference_is_a_job_a_state_or_two_names(self, server, caller):
        server.script = [says("processed", result={"value": 1})]
        found = caller.call(lambda client: client.job("invoices", "1"))
        for each in (JOB, found, ("invoices", "1")):
            assert caller.call(lambda client, each=each: client.result(each)) == 1

    def test_a_dead_letter(self, server, caller):
        server.script = [
            says("dead_lettered", lastErrorCode="HTTP_500", lastErrorMessage="No.", deadLetters=["dl_1", "dl_2"])
        ]
        with pytest.raises(JobFailed) as raised:
            caller.call(lambda client: client.result(JOB))
        assert (raised.value.code, raised.value.message, raised.value.letter_id) == ("HTTP_500", "No.", "dl_2")
        assert str(raised.value) == "invoices 1: HTTP_500: No. (dead letter dl_2)"

    def test_an_expired_job(self, server, caller):
        server.script = [says("expired")]
        with pytest.raises(JobExpired):
            caller.call(lambda client: client.result(JOB))

    @pytest.mark.parametrize("note", ["cancelled", "withdrawn"])
    def test_a_cancelled_job(self, server, caller, note):
        server.script = [says("expired", note=note)]
        with pytest.raises(JobCancelled):
            caller.call(lambda client: client.result(JOB))

    def test_long_polls_follow_each_other(self, server, caller):
        # This gateway answers at once: the client does not ask more often than once a second.
        server.script = [says("received"), says("processing"), says("failed"), says("processed", result={"value": 1})]
        assert caller.call(lambda client: client.result(JOB)) == 1
        assert [dict(each.query) for each in server.asked] == [{"wait": "30"}] * 4
        assert caller.waits == [1.0] * 3

    def test_the_last_poll_is_as_long_as_the_time_that_is_left(self, server, caller):
        server.script = [says("received")]
        with pytest.raises(TimeoutError, match="it goes on"):
            caller.call(lambda client: client.result(JOB, timeout="2500ms"))
        assert [dict(each.query)["wait"] for each in server.asked] == ["2.5", "1.5", "0.5", "0"]
        assert caller.waits == [1.0, 1.0, 0.5]

    def test_no_time_is_one_look(self, server, caller):
        server.script = [says("received")]
        with pytest.raises(TimeoutError):
            caller.call(lambda client: client.result(JOB, timeout=0))
        assert [each.query for each in server.asked] == [[("wait", "0")]]
        server.script = [says("processed", result={"value": 1})]
        assert caller.call(lambda client: client.result(JOB, timeout=0)) == 1

    def test_a_poll_that_fails_is_tried_again(self, server, caller):
        server.script = [Resets(), Says(503, ERROR, {"retry-after": "5"}), says("processed", result={"value": 1})]
        assert caller.call(lambda client: client.result(JOB, timeout=60)) == 1
        assert len(server.asked) == 3

    def test_a_gateway_that_stays_away(self, server, caller):
        server.script = [Resets()]
        with pytest.raises(Unreachable):
            caller.call(lambda client: client.result(JOB, timeout=3600))
        with pytest.raises(TimeoutError):
            caller.call(lambda client: client.result(JOB, timeout=0.1))

    def test_a_gateway_that_does_not_answer_ends_with_the_time(self, server, make_caller):
        # The clock of the test stands still; the answer may come one second after the time is over.
        server.script = [Hangs()]
        with pytest.raises(TimeoutError):
            make_caller(retries=0).call(lambda client: client.result(JOB, timeout=0.1))
        assert len(server.asked) == 1

    def test_too_many_wait_already(self, server, caller):
        full = Says(429, ERROR, {"retry-after": "5"})
        server.script = [full, full, full, full, says("processing"), full, says("processed", result={"value": 1})]
        assert caller.call(lambda client: client.result(JOB)) == 1
        assert [dict(each.query).get("wait") for each in server.asked] == ["30"] * 4 + [None, "30", "30"]
        assert caller.waits == [5.0] * 4

    def test_no_such_job(self, server, caller):
        server.script = [Says(404, ERROR)]
        with pytest.raises(NotFound):
            caller.call(lambda client: client.result(JOB))
        assert len(server.asked) == 1


class TestLooking:
    def test_one_job(self, server, caller):
        attempt = {"attempt": 1, "outcome": "failed", "worker": "w", "startedAt": "2026-11-18T12:00:00.000Z"}
        progress = {"done": 3, "total": 10, "note": "three", "at": "2026-11-18T12:00:00.000Z"}
        server.script = [says("failed", attemptHistory=[attempt | {"traceback": "Traceback"}], progress=progress)]
        found = caller.call(lambda client: client.job("invoices", "1"))
        assert not found.ended
        assert (found.attempts[0].traceback, found.attempts[0].started_at) == ("Traceback", NOON)
        assert (found.progress.done, found.progress.total, found.progress.note) == (3, 10, "three")

    def test_all_pages_and_no_more(self, server, caller):
        server.script = [
            Says(200, {"items": [state("processed", key="3"), state("processed", key="2")], "next": "c1"}),
            Says(200, {"items": [state("processed", key="1")], "next": None}),
        ]
        found = caller.call(
            lambda client: client.jobs(
                "invoices", status="processed", labels={"customer": "A&B"}, after=NOON, before=NOON, page=2
            )
        )
        assert [each.key for each in found] == ["3", "2", "1"]
        conditions = [
            ("status", "processed"),
            ("after", "2026-11-18T12:00:00.000Z"),
            ("before", "2026-11-18T12:00:00.000Z"),
            ("limit", "2"),
            ("label", "customer=A&B"),
        ]
        assert [list(each.query) for each in server.asked] == [conditions, [*conditions, ("cursor", "c1")]]

    def test_a_page_is_asked_for_when_it_is_needed(self, server):
        from holdfast.client import Client

        server.script = [Says(200, {"items": [state("processed")] * 2, "next": "c1"})]
        with Client(server.url) as client:
            items = client.jobs("invoices")
            assert server.asked == []
            next(items)
            next(items)
            assert len(server.asked) == 1
            next(items)
            assert len(server.asked) == 2

    def test_a_time_without_a_zone(self, caller):
        with pytest.raises(ValueError, match="time zone"):
            caller.call(lambda client: client.jobs("invoices", after=dt.datetime(2026, 1, 1)))  # noqa: DTZ001

    @pytest.mark.parametrize("document", [[], {}, {"items": 7}, {"items": [7]}])
    def test_a_page_that_is_none(self, server, caller, document):
        server.script = [Says(200, document)]
        with pytest.raises(UnexpectedAnswer):
            caller.call(lambda client: client.jobs("invoices"))

    def test_records(self, server, caller):
        server.script = [Says(200, {"items": [{"number": "1"}], "next": None}), Says(200, {"number": "1"})]
        assert caller.call(lambda client: client.records("invoices", where={"customer": "A"})) == [{"number": "1"}]
        assert caller.call(lambda client: client.record("invoices", "1/2")) == {"number": "1"}
        assert server.asked[0].query == [("where", "customer=A")]
        assert server.asked[1].path == "/v1/records/invoices/1%2F2"

    def test_cancelling(self, server, caller):
        server.script = [Says(202, {"workload": "invoices", "key": "1", "state": "stopping"})]
        assert caller.call(lambda client: client.cancel(JOB)).state == "stopping"
        assert (server.asked[0].method, server.asked[0].path) == ("POST", "/v1/jobs/invoices/1/cancel")
