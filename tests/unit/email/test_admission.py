"""The admission of emails: the job of a request, and the records that are written with it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.blobs.folder import FolderBlobs
from holdfast.contracts.admission import InvalidContent
from holdfast.contracts.effects import Delete
from holdfast.contracts.errors import StoreUnavailable
from holdfast.contracts.files import FilesUnavailable
from holdfast.features.email.admission import EmailAdmission, UnknownReference
from holdfast.features.email.content import Content
from holdfast.features.email.records import CONTENT, OUTBOX, RECIPIENTS, SuppressionReason
from holdfast.features.email.request import RequestLimits
from holdfast.features.email.suppression import RecipientSuppressed, Suppressions, address_hash
from holdfast.features.email.transports.folder import FolderTransport
from holdfast.features.email.vault import Vault
from holdfast.features.email.workload import Email
from holdfast.sqlite import Database
from holdfast.stores.sqlite import SqliteStore
from tests.api.email_api import CPF, CPF_DIGITS, OPTIONS, VAULT, an_email
from tests.support.email_content import folder_content, html_in

NOW = datetime(2026, 11, 16, 12, 0, 0, 123456, tzinfo=UTC)
COMPANY = "789e4567-e89b-12d3-a456-426614174999"
OTHER = "000e4567-e89b-12d3-a456-426614174999"


@pytest.fixture
def email(tmp_path):
    return Email(OPTIONS, VAULT, FolderTransport(tmp_path / "mail"))


@pytest.fixture
async def store(tmp_path, email):
    database = Database(tmp_path / "holdfast.db")
    store = SqliteStore(database, [email])
    await store.open()
    yield store
    await database.close()


@pytest.fixture
def admission(email, store):
    return EmailAdmission(email, store, VAULT)


async def admit(admission, body, *, company_id=COMPANY, key=None, request_id="req-1", at=NOW):
    return await admission.admit(
        body, company_id=company_id, idempotency_key=key, request_id=request_id, received_at=at
    )


def effect(admitted, collection):
    (found,) = [each for each in admitted.effects if each.collection == collection]
    return found


async def test_a_request_becomes_a_job_with_every_field_of_the_specification(admission):
    admitted = await admit(
        admission,
        {
            "to": "Cliente@EXAMPLE.com",
            "cc": ["um@example.com"],
            "bcc": ["dois@example.com"],
            "subject": "Olá",
            "html": "<p>Olá</p>",
            "replyTo": "resposta@example.com",
            "headers": {"X-Campaign": "novembro"},
            "tags": ["boleto"],
            "recipient": {"externalId": "C-1", "cpfCnpj": CPF, "nome": "João", "razaoSocial": "João ME"},
            "priority": 2,
        },
    )
    job = admitted.data.model_dump(mode="json")
    UUID(job["outboxId"])
    UUID(job["htmlRef"])
    UUID(job["recipient"]["recipientId"])
    assert job == {
        "outboxId": job["outboxId"],
        "companyId": COMPANY,
        "requestId": "req-1",
        "to": "Cliente@example.com",
        "cc": ["um@example.com"],
        "bcc": ["dois@example.com"],
        "subject": "Olá",
        "htmlRef": job["htmlRef"],
        "replyTo": "resposta@example.com",
        "headers": {"X-Campaign": "novembro"},
        "tags": ["boleto"],
        "recipient": {
            "recipientId": job["recipient"]["recipientId"],
            "externalId": "C-1",
            "cpfCnpjHash": VAULT.fingerprint(CPF_DIGITS, "cpfCnpj"),
            "razaoSocial": "João ME",
            "nome": "João",
            "email": "Cliente@example.com",
        },
        "attempt": 1,
        "enqueuedAt": "2026-11-16T12:00:00.123Z",
    }
    assert (admitted.priority, admitted.delay, admitted.due) == (2, timedelta(0), None)


async def test_what_is_left_out_is_not_in_the_job(admission):
    admitted = await admit(admission, an_email())
    written = admitted.data.model_dump_json()
    for absent in ("cc", "bcc", "replyTo", "headers", "tags", "nome", "cpfCnpjHash"):
        assert f'"{absent}"' not in written


async def test_the_same_request_makes_the_same_id_at_any_time_and_priority(admission):
    body = an_email()
    first = await admit(admission, body)
    later = await admit(admission, body | {"priority": 1, "delay": 5}, at=NOW + timedelta(hours=5), request_id="req-2")
    assert first.data.outboxId == later.data.outboxId
    assert first.data.outboxId[14] == "5"


@pytest.mark.parametrize(
    "change",
    [
        {"to": "outro@example.com"},
        {"cc": ["copia@example.com"]},
        {"bcc": ["copia@example.com"]},
        {"subject": "Outro"},
        {"html": "<p>Outro</p>"},
        {"replyTo": "outro@example.com"},
        {"headers": {"X-A": "1"}},
        {"tags": ["a"]},
        {"recipient": {"externalId": "another"}},
        {"recipient": {"externalId": "CUST", "nome": "Outro"}},
        {"recipient": {"externalId": "CUST", "cpfCnpj": CPF}},
    ],
)
async def test_all_content_of_an_email_is_part_of_its_identity(admission, change):
    body = an_email(recipient={"externalId": "CUST"})
    first, other = await admit(admission, body), await admit(admission, body | change)
    assert first.data.outboxId != other.data.outboxId


@pytest.mark.parametrize("recipient", [{"cpfCnpj": CPF}, {"externalId": "CUST"}])
async def test_with_another_pepper_a_request_is_a_new_email_and_one_with_a_key_is_never_sent_twice(
    email, store, admission, recipient
):
    """A new pepper changes all hashes. With a key the id stays, and another hash is a conflict in the ledger."""
    renewed = EmailAdmission(email, store, Vault(bytes(range(1, 33)), {"first": bytes(range(100, 132))}, "first"))
    body = an_email(recipient=recipient)

    plain = [(await admit(each, body)).data for each in (admission, renewed)]
    keyed = [(await admit(each, body, key="order-1")).data for each in (admission, renewed)]

    assert plain[0].outboxId != plain[1].outboxId
    assert keyed[0].outboxId == keyed[1].outboxId
    same = email.fingerprint(keyed[0]) == email.fingerprint(keyed[1])
    assert same is ("externalId" in recipient)


async def test_an_email_to_an_external_id_has_the_id_that_it_has_always_had(admission):
    """Emails that an earlier version accepted must keep their ids after an update."""
    body = {"to": "a@example.com", "subject": "S", "html": "<p>H</p>", "recipient": {"externalId": "CUST-1"}}
    assert (await admit(admission, body)).data.outboxId == "bde7f527-e227-52a7-9948-23ee778f5711"


async def test_with_a_key_only_the_key_counts(admission):
    first = await admit(admission, an_email(), key="order-1")
    other = await admit(admission, an_email(), key="order-1")
    foreign = await admit(admission, an_email(), key="order-1", company_id=OTHER)
    assert first.data.outboxId == other.data.outboxId != foreign.data.outboxId


async def test_no_key_and_no_id_can_be_made_to_collide(admission):
    """Each part is joined with its length, so that two lists of parts never give the same text."""
    body = an_email()
    by_content = (await admit(admission, body)).data.outboxId
    content = body["recipient"]["externalId"]
    for key in (content, f"{content}\0"[:-1], "outbox/content", "7:order-1"):
        assert (await admit(admission, body, key=key)).data.outboxId != by_content


async def test_fields_that_the_job_does_not_have_go_to_the_outbox(admission):
    send_at = NOW + timedelta(hours=2)
    admitted = await admit(admission, an_email(to="a@example.com", priority=9, sendAt=send_at.isoformat()))
    outbox = effect(admitted, OUTBOX)
    assert outbox.key == admitted.data.outboxId
    assert outbox.set["priority"] == 9
    assert outbox.set["scheduledFor"] == "2026-11-16T14:00:00.123Z"
    assert outbox.set["toHash"] == address_hash(VAULT, "A@example.com")
    assert timedelta(hours=2) - timedelta(milliseconds=1) <= admitted.delay <= timedelta(hours=2)


async def test_nothing_that_is_written_holds_personal_data_in_clear(admission):
    body = an_email(
        to="joana.prado@example.com",
        recipient={"cpfCnpj": CPF, "nome": "Joana Prado", "razaoSocial": "Prado Ltda"},
        html="<p>nothing personal</p>",
    )
    written = repr((await admit(admission, body)).effects)
    for clear in ("joana", "Joana", "Prado", CPF, CPF_DIGITS):
        assert clear not in written


async def test_html_is_written_once_and_expires_later_with_each_use(admission, store):
    body = an_email()
    first = await admit(admission, body)
    await store.apply([effect(first, CONTENT)])
    again = await admit(admission, an_email(html=body["html"]), at=NOW + timedelta(days=3))
    await store.apply([effect(again, CONTENT)])
    assert first.data.htmlRef == again.data.htmlRef
    assert set(effect(again, CONTENT).set) == {"expiresAt"}
    kept = await store.get(CONTENT, effect(first, CONTENT).key)
    assert kept["sealed"] == effect(first, CONTENT).set_on_insert["sealed"]
    assert await html_in(VAULT, COMPANY, first.data.htmlRef, kept) == body["html"]
    assert body["html"] not in str(kept)
    assert kept["expiresAt"].startswith("2026-11-28")  # day 19, a ttl of a day, letters for seven, and one more


async def test_html_in_a_folder_is_stored_before_the_job(email, store, tmp_path):
    content = folder_content(tmp_path / "content")
    await content.open()
    admission = EmailAdmission(email, store, VAULT, content)
    admitted = await admit(admission, an_email(html="<p>Olá</p>"))
    assert await content.get(COMPANY, admitted.data.htmlRef, store) == "<p>Olá</p>"
    assert CONTENT not in {each.collection for each in admitted.effects}
    again = await admit(admission, an_email(html=None, htmlRef=admitted.data.htmlRef))
    assert again.data.htmlRef == admitted.data.htmlRef
    with pytest.raises(UnknownReference):
        await admit(admission, an_email(html=None, htmlRef=admitted.data.htmlRef), company_id=OTHER)


async def test_an_unavailable_html_store_is_an_unavailable_store(email, store):
    class Away(FolderBlobs):
        async def put(self, name, content, *, until=None):
            raise FilesUnavailable

    with pytest.raises(StoreUnavailable):
        await admit(EmailAdmission(email, store, VAULT, Content(Away(Path("/nowhere")))), an_email())


async def test_a_record_of_expired_html_counts_as_missing(admission, store):
    """The expiry of the reference was moved at the moment when the content expired."""
    admitted = await admit(admission, an_email())
    upsert = effect(admitted, CONTENT)
    await store.apply([type(upsert)(upsert.collection, upsert.key, upsert.set)])
    with pytest.raises(UnknownReference):
        await admit(admission, an_email(html=None, htmlRef=admitted.data.htmlRef))


async def test_suppressed_addresses_are_reported_all_at_once(admission, store):
    listed = Suppressions(store, VAULT)
    await listed.add(
        ["um@example.com", "dois@example.com"], SuppressionReason.MANUAL, detail=None, source="tests", now=NOW
    )
    with pytest.raises(RecipientSuppressed) as caught:
        await admit(admission, an_email(to="um@example.com", bcc=["tres@example.com", "dois@example.com"]))
    assert [each.field for each in caught.value.problems] == ["to", "bcc.1"]
    assert not re.search("um@|dois", str(caught.value.problems))


async def test_the_ttl_limits_the_delay(email, store):
    admission = EmailAdmission(email, store, VAULT, limits=RequestLimits(ttl=timedelta(days=9)))
    day, moment = timedelta(days=1), timedelta(milliseconds=1)
    assert (await admit(admission, an_email(delay=86_399_999))).delay < day
    for wanted, field in (({"delay": 86_400_000}, "delay"), ({"sendAt": (NOW + day + moment).isoformat()}, "sendAt")):
        with pytest.raises(InvalidContent) as caught:
            await admit(admission, an_email(**wanted))
        assert [each.field for each in caught.value.problems] == [field]


async def test_a_recipient_is_identified_by_the_strongest_identifier(admission):
    async def recipient(**facts):
        return effect(await admit(admission, an_email(recipient=facts)), RECIPIENTS)

    by_number = await recipient(cpfCnpj=CPF)
    assert (await recipient(cpfCnpj=CPF_DIGITS, externalId="C-1")).key == by_number.key
    assert (await recipient(externalId="C-1")).key != by_number.key
    assert (await recipient(cpfCnpjHash=VAULT.fingerprint(CPF_DIGITS, "cpfCnpj"))).key == by_number.key
    # A field that a later request does not have keeps the value of the earlier request.
    assert "externalId" not in by_number.set
    assert "nomeSealed" not in by_number.set


async def test_html_that_is_erased_after_a_reference_was_checked_is_written_again(admission, store):
    body = an_email()
    first = await admit(admission, body)
    await store.apply([effect(first, CONTENT)])
    referring = await admit(admission, an_email(html=None, htmlRef=first.data.htmlRef))
    await store.apply([Delete(CONTENT, effect(first, CONTENT).key)])
    await store.apply([effect(referring, CONTENT)])
    kept = await store.get(CONTENT, effect(first, CONTENT).key)
    assert await html_in(VAULT, COMPANY, first.data.htmlRef, kept) == body["html"]
