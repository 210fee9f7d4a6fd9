"""``POST /v1/email/batch``: many emails, each with an answer of its own."""

from __future__ import annotations

import pytest

from holdfast.contracts.queries import EntryQuery, Page
from holdfast.features.email.records import SuppressionReason
from holdfast.stores.sqlite import SqliteStore
from tests.api.email_api import BATCH, an_email, email_api


@pytest.fixture
async def api(tmp_path):
    async with email_api(tmp_path) as made:
        yield made


async def entries(api):
    return (await api.store.find(EntryQuery(workload="email"), Page(1000))).items


async def test_each_email_gets_its_own_answer_in_order(api):
    await api.suppressions.add(
        ["gone@example.com"], SuppressionReason.COMPLAINT, detail=None, source="tests", now=api.clock.now()
    )
    good, conflicting = an_email(), an_email()
    await api.send(conflicting, idempotency_key="taken")
    answer = await api.send_batch(
        [
            good,
            an_email(to="nobody"),
            an_email(to="gone@example.com"),
            "no email at all",
            conflicting | {"subject": "Outro", "idempotencyKey": "taken"},
            conflicting | {"idempotencyKey": "taken"},
            an_email(html=None, htmlRef="missing"),
            an_email(idempotencyKey=7),
        ]
    )
    assert answer.status_code == 207
    view = answer.json()
    assert [each["index"] for each in view["answers"]] == list(range(8))
    assert [each["statusCode"] for each in view["answers"]] == [202, 400, 422, 400, 409, 202, 422, 400]
    assert (view["accepted"], view["refused"]) == (2, 6)
    codes = [each["answer"].get("errorCode") for each in view["answers"]]
    assert codes == [
        None,
        "INVALID_PAYLOAD",
        "RECIPIENT_SUPPRESSED",
        "INVALID_PAYLOAD",
        "IDEMPOTENCY_CONFLICT",
        None,
        "UNKNOWN_HTML_REF",
        "INVALID_PAYLOAD",
    ]
    assert view["answers"][1]["answer"]["details"][0]["field"] == "to"
    assert view["answers"][7]["answer"]["details"][0]["field"] == "Idempotency-Key"
    assert view["answers"][5]["answer"]["duplicate"] is True
    assert len(await entries(api)) == 2


async def test_an_answer_equals_the_answer_to_the_email_alone(api):
    email = an_email()
    alone = (await api.send(email, idempotency_key="order-1")).json()
    (in_batch,) = (await api.send_batch([email | {"idempotencyKey": "order-1"}])).json()["answers"]
    assert in_batch["answer"] == alone | {"duplicate": True}


async def test_of_two_equal_emails_in_a_batch_the_second_is_the_duplicate(api):
    email, other = an_email(), an_email()
    answers = (await api.send_batch([email, other, email])).json()["answers"]
    assert [each["answer"]["duplicate"] for each in answers] == [False, False, True]
    assert answers[0]["answer"]["outboxId"] == answers[2]["answer"]["outboxId"]
    assert len(await entries(api)) == 2


async def test_five_hundred_emails_share_a_few_commits(api, monkeypatch):
    batches = []

    async def record(self, entries):
        batches.append(len(entries))
        return await real(self, entries)

    real = SqliteStore.record
    monkeypatch.setattr(SqliteStore, "record", record)
    answer = await api.send_batch([an_email() for _ in range(500)])
    assert answer.json()["accepted"] == 500
    assert sum(batches) == 500
    assert len(batches) <= 4


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"emails": []},
        {"emails": {}},
        {"emails": [{}], "more": 1},
        {"emails": [{}] * 501},
    ],
)
async def test_a_body_that_is_not_a_batch_is_refused(api, body):
    answer = await api.client.post(BATCH, json=body, headers=api.bearer())
    assert (answer.status_code, answer.json()["errorCode"]) == (400, "INVALID_PAYLOAD")


async def test_a_batch_that_is_too_large_is_refused_unread(api):
    emails = [an_email(html="x" * 60_000) for _ in range(150)]
    answer = await api.send_batch(emails)
    assert answer.status_code == 413
    assert await entries(api) == []


async def test_a_ledger_that_cannot_record_refuses_each_email_and_no_other_answer_is_lost(api, monkeypatch):
    async def away(self, entries):
        from holdfast.contracts.errors import StoreUnavailable

        raise StoreUnavailable

    monkeypatch.setattr(SqliteStore, "record", away)
    answers = (await api.send_batch([an_email(), an_email(to="nobody")])).json()["answers"]
    assert [each["statusCode"] for each in answers] == [503, 400]


async def test_an_unexpected_error_with_one_email_is_answered_and_the_others_are_accepted(api, monkeypatch):
    admission = api.email.admission

    async def admit(body, **given):
        if body.get("subject") == "surprise":
            message = "canary@example.com"
            raise RuntimeError(message)
        return await real(body, **given)

    real = admission.admit
    monkeypatch.setattr(admission, "admit", admit)
    answer = await api.send_batch([an_email(subject="surprise"), an_email()])
    assert [each["statusCode"] for each in answer.json()["answers"]] == [500, 202]
    assert "canary" not in answer.text


async def test_a_batch_needs_the_scope_for_sending(api):
    assert (await api.send_batch([an_email()], who="reads only")).status_code == 403
