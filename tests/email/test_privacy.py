"""Stored HTML is sealed, its keys can be rotated, and a mail server's answer is stored without names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from validate_docbr import CNPJ

from holdfast.contracts.effects import Upsert
from holdfast.contracts.redaction import scrub
from holdfast.features.email.content import ContentMissing, ContentUnavailable, content_in_database
from holdfast.features.email.masking import without_names
from holdfast.features.email.privacy import Privacy
from holdfast.features.email.records import CONTENT, content_key
from holdfast.features.email.vault import Vault
from tests.support.email_client import VAULT, email_client
from tests.support.email_content import OneRecord, exists, html_fields, html_in

HTML = "<p>segredo de Maria</p>"
BOTH = Vault(bytes(range(32)), {"first": bytes(range(100, 132)), "second": bytes(range(150, 182))}, "second")
ONLY_NEW = Vault(bytes(range(32)), {"second": bytes(range(150, 182))}, "second")


@pytest.fixture
async def client():
    async with email_client() as made:
        yield made


def privacy(client, vault):
    return Privacy(client.gateway.store, client.gateway.broker, vault, client.workload)


async def content_of(client, outbox_id):
    ref = (await client.outbox(outbox_id))["htmlRef"]
    return ref, await client.gateway.store.get(CONTENT, content_key(client.company, ref))


# --- sealed HTML ------------------------------------------------------------------------------------------------------


async def test_the_database_stores_html_sealed_and_the_mail_server_gets_it_in_clear(client):
    outbox_id = await client.post(html=HTML)
    ref, kept = await content_of(client, outbox_id)
    assert "segredo" not in repr(kept)
    assert await html_in(VAULT, client.company, ref, kept) == HTML
    async with client.working():
        await client.until(outbox_id, "SENT")
    assert b"segredo de Maria" in client.delivered(outbox_id)[0].raw


async def test_sealed_html_opens_in_its_own_record_only():
    facts = html_fields(VAULT, "acme", "ref", HTML)
    assert await html_in(VAULT, "acme", "ref", facts) == HTML
    for company, ref in (("other", "ref"), ("acme", "another")):
        with pytest.raises(ContentUnavailable) as caught:
            await html_in(VAULT, company, ref, facts)
        assert "segredo" not in str(caught.value)


async def test_html_of_an_external_producer_in_clear_is_read():
    assert await exists(content_in_database(VAULT), "acme", "ref", OneRecord({"html": HTML}))
    assert await html_in(VAULT, "acme", "ref", {"html": HTML}) == HTML


@pytest.mark.parametrize("record", [None, {}, {"expiresAt": "2026-11-28T00:00:00.000Z"}, {"sealed": None}])
async def test_a_record_without_html_has_none(record):
    assert not await exists(content_in_database(VAULT), "acme", "ref", OneRecord(record))
    with pytest.raises(ContentMissing):
        await html_in(VAULT, "acme", "ref", record)


async def test_an_email_whose_html_no_key_opens_is_tried_again(client):
    """Somebody may add the key again, so the email does not fail for good at once."""
    outbox_id = await client.post(html=HTML)
    ref, _ = await content_of(client, outbox_id)
    foreign = html_fields(ONLY_NEW, client.company, ref, HTML)["sealed"]
    await client.gateway.store.apply([Upsert(CONTENT, content_key(client.company, ref), {"sealed": foreign})])
    async with client.working():
        outbox = await client.until(outbox_id, "RETRYING", lastErrorCode="CONTENT_UNAVAILABLE")
    assert outbox["attempt"] == 1
    assert client.delivered(outbox_id) == []


# --- another key ------------------------------------------------------------------------------------------------------


async def test_html_of_an_older_key_is_sealed_under_the_current_one(client):
    outbox_ids = [await client.post(html=f"{HTML}{number}") for number in range(12)]
    before = [await content_of(client, each) for each in outbox_ids]

    done = await privacy(client, BOTH).reseal()

    assert (done.contents, done.broken) == (12, [])
    for number, (outbox_id, (_, old)) in enumerate(zip(outbox_ids, before, strict=True)):
        ref, kept = await content_of(client, outbox_id)
        assert await html_in(ONLY_NEW, client.company, ref, kept) == f"{HTML}{number}"
        assert {name: kept[name] for name in ("expiresAt", "bytes", "sha256")} == {
            name: old[name] for name in ("expiresAt", "bytes", "sha256")
        }
    assert (await privacy(client, BOTH).reseal()).contents == 0


async def test_html_that_no_key_opens_is_named_and_the_rest_is_done(client):
    first, second = await client.post(html=HTML), await client.post(html=f"{HTML}2")
    ref, _ = await content_of(client, first)
    key = content_key(client.company, ref)
    await client.gateway.store.apply([Upsert(CONTENT, key, {"sealed": "v1.lost.AAAA"})])

    done = await privacy(client, BOTH).reseal()

    assert (done.contents, done.broken) == (1, [f"{CONTENT}/{key}"])
    ref, kept = await content_of(client, second)
    assert await html_in(ONLY_NEW, client.company, ref, kept) == f"{HTML}2"


async def test_html_in_clear_is_left_as_it_is_when_keys_change(client):
    await client.keep_html(HTML)
    assert (await privacy(client, BOTH).reseal()).contents == 0


# --- a mail server's words --------------------------------------------------------------------------------------------


async def test_names_in_a_mail_servers_answer_are_masked(client):
    client.server.rule("rcpt", "550 5.1.1 MARIA SOUZA <maria@example.com> 12ABC34501DE35 unknown")
    outbox_id = await client.post(recipient={"externalId": "C-1", "nome": "Maria Souza"})
    async with client.working():
        outbox = await client.until(outbox_id, "FAILED")
    (letter,) = await client.letters()
    everything = repr((outbox, letter, await client.entry(outbox_id), await client.published_letters()))
    words = repr((outbox["lastErrorMessage"], letter.reason_message, letter.attempts))
    assert "M***" in words
    assert [each for each in ("MARIA", "Souza", "12ABC34501DE35", "maria@") if each in words] == []
    assert "12ABC34501DE35" not in everything


@pytest.mark.parametrize("name", ["", "   ", None])
def test_without_a_name_the_text_is_unchanged(name):
    assert without_names("550 No such user", name) == "550 No such user"


@given(st.text(min_size=1).filter(str.strip), st.text(), st.text())
def test_every_name_is_removed(name, before, after):
    assert without_names(f"{before}{name}{after}", name).count("***") >= 1


ALPHANUMERIC = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@given(st.text(ALPHANUMERIC, min_size=12, max_size=12))
def test_every_cnpj_is_scrubbed_with_letters_and_without(base):
    valid = [text for text in (f"{base}{digits:02d}" for digits in range(100)) if CNPJ().validate(text)]
    for text in valid:
        assert text not in scrub(f"unknown: {text}.")
        assert text.lower() not in scrub(f"unknown: {text.lower()}.")


def test_a_bare_alphanumeric_cnpj_is_scrubbed_and_an_order_number_is_not():
    for written in ("12ABC34501DE35", "12abc34501de35", "12ABC345/01DE-35", "12.ABC.345/01DE-35"):
        assert written not in scrub(f"550 {written} unknown")
    assert scrub("order 12ABC34501DE36 of 0123456789abcdef0123456789abcdef") == (
        "order 12ABC34501DE36 of 0123456789abcdef0123456789abcdef"
    )
