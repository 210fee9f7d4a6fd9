"""The recipient of an email, and which emails are duplicates, over HTTP."""

from __future__ import annotations

import pytest

from holdfast.contracts.effects import Upsert
from holdfast.contracts.queries import EntryQuery, Page
from holdfast.features.email.contract import EmailSendJob
from holdfast.features.email.records import RECIPIENTS
from holdfast.features.email.suppression import address_hash
from tests.api.email_api import CPF, CPF_DIGITS, LIST, VAULT, an_email, email_api

UUID = "123e4567-e89b-52d3-a456-426614174000"
CPF_HASH = VAULT.fingerprint(CPF_DIGITS, "cpfCnpj")


@pytest.fixture
async def api(tmp_path):
    async with email_api(tmp_path) as made:
        yield made


def problems(response) -> dict[str, str]:
    return {each["field"]: each["problem"] for each in response.json()["details"]}


async def entries(api):
    return (await api.store.find(EntryQuery(workload="email"), Page(100))).items


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ({"externalId": "CUST-7"}, {"externalId": "CUST-7"}),
        ({"cpfCnpj": CPF}, {"cpfCnpj": CPF}),
        ({"cpfCnpj": CPF}, {"cpfCnpj": CPF_DIGITS}),
        ({"cpfCnpj": CPF}, {"cpfCnpjHash": CPF_HASH}),
        ({"cpfCnpjHash": CPF_HASH}, {"cpfCnpj": CPF}),
        ({"cpfCnpjHash": "0123456789abcdef" * 4}, {"cpfCnpjHash": "0123456789abcdef" * 4}),
    ],
)
async def test_without_a_key_any_identifier_and_the_content_make_a_duplicate(api, first, again):
    body = an_email()
    receipt = (await api.send(body | {"recipient": first})).json()
    answer = await api.send(body | {"recipient": again})
    assert answer.status_code == 202
    assert answer.json() == receipt | {"duplicate": True, "queued": answer.json()["queued"]}
    other = await api.send(body | {"recipient": again, "subject": "Outro"})
    assert not other.json()["duplicate"]
    assert len(await entries(api)) == 2


async def test_a_recipient_is_found_by_the_recipient_id_of_an_earlier_email(api):
    first = (await api.send(an_email(recipient={"externalId": "CUST-7", "nome": "João"}))).json()["outboxId"]
    recipient_id = (await api.get(f"{LIST}/{first}")).json()["recipientId"]
    body = an_email(recipient={"recipientId": recipient_id.upper()})

    receipts = [(await api.send(body)).json() for _ in range(2)]

    assert [each["duplicate"] for each in receipts] == [False, True]
    assert (await api.get(f"{LIST}/{receipts[0]['outboxId']}")).json()["recipientId"] == recipient_id
    kept = await api.store.get(RECIPIENTS, recipient_id)
    assert kept["externalId"] == "CUST-7"
    assert kept["emailHash"] == address_hash(VAULT, body["to"])


@pytest.mark.parametrize("whose", ["nobody", "another tenant", "somebody forgotten"])
async def test_an_unknown_recipient_id_is_refused(api, whose):
    who = "other" if whose == "another tenant" else "acme"
    outbox_id = (await api.send(an_email(), who=who)).json()["outboxId"]
    recipient_id = (await api.get(f"{LIST}/{outbox_id}", who=who)).json()["recipientId"]
    if whose == "nobody":
        recipient_id = UUID
    if whose == "somebody forgotten":
        await api.store.apply([Upsert(RECIPIENTS, recipient_id, {"erasedAt": "2026-01-01T00:00:00.000Z"})])
    answer = await api.send(an_email(recipient={"recipientId": recipient_id}))
    assert (answer.status_code, answer.json()["errorCode"]) == (422, "UNKNOWN_RECIPIENT")
    assert problems(answer) == {"recipient.recipientId": "names no recipient of this tenant"}
    assert len(await entries(api)) == 1


async def test_a_recipient_id_that_is_not_a_uuid_is_refused_with_a_sentence(api):
    answer = await api.send(an_email(recipient={"recipientId": "CUST-7"}))
    assert answer.status_code == 400
    sentence = "must be a UUID, such as 123e4567-e89b-12d3-a456-426614174000"
    assert problems(answer) == {"recipient.recipientId": sentence}


@pytest.mark.parametrize(("length", "kept"), [(128, True), (129, False), (200, False)])
async def test_a_request_id_that_is_too_long_for_the_job_does_not_stop_the_email(api, length, kept):
    answer = await api.send(an_email(), x_request_id="r" * length)
    receipt = answer.json()
    assert answer.headers["x-request-id"] == "r" * length
    assert receipt["requestId"] == ("r" * length if kept else f"req-{receipt['outboxId']}")
    (entry,) = await entries(api)
    EmailSendJob.model_validate_json(entry.body)


async def test_no_problem_of_an_email_mentions_documents_or_patterns(api):
    broken = {"to": 7, "subject": "a\nb", "htmlRef": " ", "recipient": {"nome": " ", "cpfCnpjHash": "x"}}
    answer = await api.send(broken)
    conflict = [await api.send(an_email(), idempotency_key="k") for _ in range(2)][1]
    assert (answer.status_code, conflict.status_code) == (400, 409)
    for text in (answer.text, conflict.text):
        assert [each for each in ("ocument", "pattern", "\\x", "[^") if each in text] == []
