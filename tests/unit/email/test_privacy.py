"""Erasing a person, and sealing with a new key: over the real engine and a real SQLite file."""

from __future__ import annotations

import json
import sqlite3
from datetime import timedelta

import pytest

from holdfast.contracts.dead_letters import letter_id
from holdfast.contracts.effects import Upsert
from holdfast.contracts.ledger import Lease, Status
from holdfast.contracts.queries import LetterQuery
from holdfast.contracts.transitions import Complete, MoveToDeadLetters, Settlement
from holdfast.features.email.admission import seal_context
from holdfast.features.email.privacy import Privacy, Selector
from holdfast.features.email.records import CONTENT, OUTBOX, RECIPIENTS, SuppressionReason, content_key
from holdfast.features.email.vault import Vault
from tests.api.email_api import CPF, CPF_DIGITS, VAULT, an_email, email_api
from tests.support.email_content import exists, folder_content, html_in
from tests.support.letters import whole_letters

TO = "joana.prado@example.com"
CANARIES = ("joana", "Joana", "Prado", "C-joana", CPF, CPF_DIGITS, "segredo")
JOANA = {"externalId": "C-joana", "cpfCnpj": CPF, "nome": "Joana Prado"}
LONG = timedelta(days=30)


@pytest.fixture
async def api(tmp_path):
    async with email_api(tmp_path) as made:
        yield made


@pytest.fixture
def privacy(api):
    return privacy_with(api, VAULT)


def privacy_with(api, vault, content=None):
    return Privacy(api.store, api.services.broker, vault, api.email.workload, content)


async def sent(api, **changes) -> str:
    answer = await api.send(an_email(**({"to": TO, "recipient": JOANA} | changes)))
    assert answer.status_code == 202, answer.text
    return answer.json()["outboxId"]


async def settle(api, outbox_id, transition, status) -> None:
    (claim,) = await api.store.claim("email", [outbox_id], worker="tests", lease=timedelta(seconds=30), max_attempts=5)
    settlement = Settlement("email", Lease(outbox_id, claim.fence), transition)
    (settled,) = await api.store.settle([settlement])
    assert settled.status is not None
    await api.store.apply([Upsert(OUTBOX, outbox_id, {"status": status})])


async def end(api, outbox_id) -> None:
    await settle(api, outbox_id, Complete(LONG), "SENT")


async def dead_letter(api, outbox_id) -> str:
    letter = letter_id("email", outbox_id, 1)
    transition = MoveToDeadLetters(
        letter_id=letter,
        code="SMTP_550",
        message="Refused.",
        reason_code="SMTP_550",
        reason_message="Refused.",
        retention=LONG,
        letter_retention=LONG,
    )
    await settle(api, outbox_id, transition, "FAILED")
    return letter


async def erase(api, privacy, selector):
    cancellation, workload = api.email.services.cancellation, api.email.workload

    async def cancel(outbox_id):
        return await cancellation.cancel(workload, outbox_id)

    return await privacy.erase(selector, api.clock.now(), cancel)


def everything_in(folder) -> str:
    """All rows of all tables."""
    connection = sqlite3.connect(folder / "holdfast.db")
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    rows = [str(connection.execute(f'SELECT * FROM "{each}"').fetchall()) for each in tables]  # noqa: S608
    connection.close()
    return "\n".join(rows)


SELECTORS = ["recipientId", "externalId", "address"]


async def selector_of(api, how, outbox_id) -> Selector:
    if how == "recipientId":
        return Selector(recipient_id=(await api.store.get(OUTBOX, outbox_id))["recipientId"])
    if how == "externalId":
        return Selector(company_id=api.ids["acme"], external_id="C-joana")
    return Selector(address=TO.upper())


@pytest.mark.parametrize("how", SELECTORS)
async def test_the_database_has_no_data_about_an_erased_person(api, privacy, how, tmp_path):
    done = await sent(api, subject="Para Joana", html="<p>segredo</p>")
    await end(api, done)
    failed = await sent(api, subject="Outra para Joana", html="<p>segredo 2</p>")
    await dead_letter(api, failed)
    waits = await sent(api, subject="Mais uma", html="<p>segredo 3</p>")
    assert all(each in everything_in(tmp_path) for each in ("C-joana", "joana.prado"))

    forgotten = await erase(api, privacy, await selector_of(api, how, done))

    assert (forgotten.recipients, forgotten.emails, forgotten.cancelled) == (1, 3, 1)
    assert (forgotten.jobs, forgotten.contents, forgotten.in_work) == (3, 3, [])
    left = everything_in(tmp_path)
    assert [each for each in CANARIES if each in left] == []
    assert {(await api.store.get(OUTBOX, each))["status"] for each in (done, failed, waits)} == {
        "SENT",
        "FAILED",
        "CANCELLED",
    }


@pytest.mark.parametrize("how", SELECTORS)
async def test_erasing_twice_does_nothing_and_reports_it(api, privacy, how):
    outbox_id = await sent(api)
    await end(api, outbox_id)
    selector = await selector_of(api, how, outbox_id)
    assert not (await erase(api, privacy, selector)).nothing
    assert (await erase(api, privacy, selector)).nothing


async def test_erasing_an_unknown_person_does_nothing(api, privacy):
    await end(api, await sent(api))
    assert (await erase(api, privacy, Selector(address="nobody@example.com"))).nothing


async def test_the_ledger_keeps_its_integrity(api, privacy):
    email = an_email(to=TO, recipient=JOANA)
    first = (await api.send(email, idempotency_key="k-1")).json()
    await end(api, first["outboxId"])
    before = await api.store.entry("email", first["outboxId"])
    await erase(api, privacy, Selector(address=TO))
    after = await api.store.entry("email", first["outboxId"])
    assert json.loads(after.body) == {
        "erased": True,
        "outboxId": first["outboxId"],
        "companyId": api.ids["acme"],
    }
    assert after.status is Status.PROCESSED
    assert after.attempts == before.attempts
    again = await api.send(email, idempotency_key="k-1")
    assert again.json()["duplicate"] is True


async def test_dead_letters_are_emptied_and_kept(api, privacy):
    letter = await dead_letter(api, await sent(api))
    await erase(api, privacy, Selector(address=TO))
    found = await whole_letters(api.store, LetterQuery(workload="email"))
    assert [each.id for each in found] == [letter]
    assert json.loads(found[0].body)["erased"] is True


async def test_the_data_of_other_people_stays(api, privacy):
    joanas = await sent(api, html="<p>the same for all</p>")
    others = await sent(
        api, to="pedro@example.com", recipient={"externalId": "C-pedro"}, html="<p>the same for all</p>"
    )
    foreign = (await api.send(an_email(to="p2@example.com", recipient={"externalId": "C-joana"}), who="other")).json()[
        "outboxId"
    ]
    for each in (joanas, others, foreign):
        await end(api, each)
    kept = {each: await api.store.get(OUTBOX, each) for each in (others, foreign)}
    bodies = {each: (await api.store.entry("email", each)).body for each in (others, foreign)}

    forgotten = await erase(api, privacy, Selector(company_id=api.ids["acme"], external_id="C-joana"))

    assert (forgotten.emails, forgotten.jobs, forgotten.contents) == (1, 1, 0)
    for each in (others, foreign):
        assert await api.store.get(OUTBOX, each) == kept[each]
        assert (await api.store.entry("email", each)).body == bodies[each]
    key = content_key(api.ids["acme"], kept[others]["htmlRef"])
    record = await api.store.get(CONTENT, key)
    assert await html_in(VAULT, api.ids["acme"], kept[others]["htmlRef"], record) == "<p>the same for all</p>"


async def test_a_copy_to_the_person_is_erased_in_jobs_for_other_people(api, privacy):
    await end(api, await sent(api))
    copied = await sent(api, to="pedro@example.com", cc=[TO], recipient={"externalId": "C-pedro"})
    await end(api, copied)
    forgotten = await erase(api, privacy, Selector(address=TO))
    assert forgotten.jobs == 2
    assert "joana" not in (await api.store.entry("email", copied)).body
    assert (await api.store.get(OUTBOX, copied))["to"] == "p***@e***.com"


async def test_a_running_email_is_kept_and_erased_the_next_time(api, privacy):
    outbox_id = await sent(api)
    await api.store.claim("email", [outbox_id], worker="tests", lease=timedelta(0), max_attempts=5)
    selector = Selector(company_id=api.ids["acme"], external_id="C-joana")
    forgotten = await erase(api, privacy, selector)
    assert forgotten.in_work == [outbox_id]
    assert (forgotten.recipients, forgotten.emails, forgotten.jobs, forgotten.contents) == (0, 0, 0, 0)
    await end(api, outbox_id)
    forgotten = await erase(api, privacy, selector)
    assert (forgotten.recipients, forgotten.emails, forgotten.jobs, forgotten.in_work) == (1, 1, 1, [])


async def test_a_suppression_outlives_the_person_s_data(api, privacy):
    await end(api, await sent(api))
    await api.suppressions.add([TO], SuppressionReason.COMPLAINT, detail=None, source="tests", now=api.clock.now())
    await erase(api, privacy, Selector(address=TO))
    assert (await api.send(an_email(to=TO))).status_code == 422


async def test_an_erased_person_who_gets_a_new_email_is_recorded_again(api, privacy):
    await end(api, await sent(api))
    await erase(api, privacy, Selector(address=TO))
    outbox_id = await sent(api, subject="De volta")
    record = await api.store.get(RECIPIENTS, (await api.store.get(OUTBOX, outbox_id))["recipientId"])
    assert record["erasedAt"] is None
    assert record["externalId"] == "C-joana"


async def test_html_in_a_folder_is_erased_too(tmp_path):
    content = folder_content(tmp_path / "content")
    await content.open()
    async with email_api(tmp_path, content=content) as api:
        outbox_id = await sent(api)
        ref = (await api.store.get(OUTBOX, outbox_id))["htmlRef"]
        await end(api, outbox_id)
        await erase(api, privacy_with(api, VAULT, content), Selector(address=TO))
        assert not await exists(content, api.ids["acme"], ref)


async def test_an_invalid_address_is_refused_without_repeating_it(privacy):
    with pytest.raises(ValueError, match="must be an email address") as caught:
        await privacy.find(Selector(address="canary@"))
    assert "canary" not in str(caught.value)


# --- keys -------------------------------------------------------------------------------------------------------------

NEW_KEY = bytes(range(150, 182))


async def test_values_of_an_older_key_are_sealed_under_the_current_one(api):
    outbox_id = await sent(api)
    recipient_id = (await api.store.get(OUTBOX, outbox_id))["recipientId"]
    both = Vault(bytes(range(32)), {"first": bytes(range(100, 132)), "second": NEW_KEY}, "second")
    done = await privacy_with(api, both).reseal()
    assert (done.values, done.recipients, done.contents, done.broken) == (3, 1, 1, [])
    only_new = Vault(bytes(range(32)), {"second": NEW_KEY}, "second")
    record = await api.store.get(RECIPIENTS, recipient_id)
    context = seal_context(api.ids["acme"], recipient_id, "cpfCnpjSealed")
    assert only_new.open(record["cpfCnpjSealed"], context=context) == CPF_DIGITS
    ref = (await api.store.get(OUTBOX, outbox_id))["htmlRef"]
    content = await api.store.get(CONTENT, content_key(api.ids["acme"], ref))
    assert (await html_in(only_new, api.ids["acme"], ref, content)).startswith("<p>Boleto")
    again = await privacy_with(api, both).reseal()
    assert (again.values, again.contents) == (0, 0)


async def test_values_that_no_key_opens_are_reported_and_the_rest_is_resealed(api):
    outbox_id = await sent(api)
    recipient_id = (await api.store.get(OUTBOX, outbox_id))["recipientId"]
    await api.store.apply([Upsert(RECIPIENTS, recipient_id, {"nomeSealed": "v1.lost.AAAA"})])
    both = Vault(bytes(range(32)), {"first": bytes(range(100, 132)), "second": NEW_KEY}, "second")
    done = await privacy_with(api, both).reseal()
    assert (done.values, done.broken) == (2, [f"{recipient_id}/nomeSealed"])
