"""Erasing a person, and sealing with a new key: over the real engine and a real SQLite file."""

from __future__ import annotations

import json
import sqlite3
from datetime import timedelta

import pytest

from holdfast.contracts.dead_letters import letter_id
from holdfast.contracts.effects import Upsert
from holdfast.contracts.ledger import Lease, Status
from holdfast.contracts.queries import LetterQuery, Page
from holdfast.contracts.transitions import Complete, MoveToDeadLetters, Settlement
from holdfast.features.email.admission import seal_context
from holdfast.features.email.privacy import Privacy, Selector
from holdfast.features.email.records import CONTENT, OUTBOX, RECIPIENTS, SuppressionReason, content_key
from holdfast.features.email.vault import Vault
from tests.api.email_world import CPF, CPF_DIGITS, VAULT, an_email, an_email_world
from tests.support.email_content import exists, folder_content, html_in

TO = "joana.prado@example.com"
CANARIES = ("joana", "Joana", "Prado", "C-joana", CPF, CPF_DIGITS, "segredo")
JOANA = {"externalId": "C-joana", "cpfCnpj": CPF, "nome": "Joana Prado"}
LONG = timedelta(days=30)


@pytest.fixture
async def world(tmp_path):
    async with an_email_world(tmp_path) as made:
        yield made


@pytest.fixture
def privacy(world):
    return privacy_with(world, VAULT)


def privacy_with(world, vault, content=None):
    return Privacy(world.store, world.services.broker, vault, world.email.workload, content)


async def sent(world, **changes) -> str:
    answer = await world.send(an_email(**({"to": TO, "recipient": JOANA} | changes)))
    assert answer.status_code == 202, answer.text
    return answer.json()["outboxId"]


async def settle(world, outbox_id, transition, status) -> None:
    (claim,) = await world.store.claim(
        "email", [outbox_id], worker="tests", lease=timedelta(seconds=30), max_attempts=5
    )
    settlement = Settlement("email", Lease(outbox_id, claim.fence), transition)
    (settled,) = await world.store.settle([settlement])
    assert settled.status is not None
    await world.store.apply([Upsert(OUTBOX, outbox_id, {"status": status})])


async def end(world, outbox_id) -> None:
    await settle(world, outbox_id, Complete(LONG), "SENT")


async def dead_letter(world, outbox_id) -> str:
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
    await settle(world, outbox_id, transition, "FAILED")
    return letter


async def erase(world, privacy, selector):
    cancellation, workload = world.email.services.cancellation, world.email.workload

    async def cancel(outbox_id):
        return await cancellation.cancel(workload, outbox_id)

    return await privacy.erase(selector, world.clock.now(), cancel)


def everything_in(folder) -> str:
    """All rows of all tables."""
    connection = sqlite3.connect(folder / "holdfast.db")
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    rows = [str(connection.execute(f'SELECT * FROM "{each}"').fetchall()) for each in tables]  # noqa: S608
    connection.close()
    return "\n".join(rows)


SELECTORS = ["recipientId", "externalId", "address"]


async def selector_of(world, how, outbox_id) -> Selector:
    if how == "recipientId":
        return Selector(recipient_id=(await world.store.get(OUTBOX, outbox_id))["recipientId"])
    if how == "externalId":
        return Selector(company_id=world.ids["acme"], external_id="C-joana")
    return Selector(address=TO.upper())


@pytest.mark.parametrize("how", SELECTORS)
async def test_the_database_has_no_data_about_an_erased_person(world, privacy, how, tmp_path):
    done = await sent(world, subject="Para Joana", html="<p>segredo</p>")
    await end(world, done)
    failed = await sent(world, subject="Outra para Joana", html="<p>segredo 2</p>")
    await dead_letter(world, failed)
    waits = await sent(world, subject="Mais uma", html="<p>segredo 3</p>")
    assert all(each in everything_in(tmp_path) for each in ("C-joana", "joana.prado"))

    forgotten = await erase(world, privacy, await selector_of(world, how, done))

    assert (forgotten.recipients, forgotten.emails, forgotten.cancelled) == (1, 3, 1)
    assert (forgotten.jobs, forgotten.contents, forgotten.in_work) == (3, 3, [])
    left = everything_in(tmp_path)
    assert [each for each in CANARIES if each in left] == []
    assert {(await world.store.get(OUTBOX, each))["status"] for each in (done, failed, waits)} == {
        "SENT",
        "FAILED",
        "CANCELLED",
    }


@pytest.mark.parametrize("how", SELECTORS)
async def test_erasing_twice_does_nothing_and_reports_it(world, privacy, how):
    outbox_id = await sent(world)
    await end(world, outbox_id)
    selector = await selector_of(world, how, outbox_id)
    assert not (await erase(world, privacy, selector)).nothing
    assert (await erase(world, privacy, selector)).nothing


async def test_erasing_an_unknown_person_does_nothing(world, privacy):
    await end(world, await sent(world))
    assert (await erase(world, privacy, Selector(address="nobody@example.com"))).nothing


async def test_the_ledger_keeps_its_integrity(world, privacy):
    email = an_email(to=TO, recipient=JOANA)
    first = (await world.send(email, idempotency_key="k-1")).json()
    await end(world, first["outboxId"])
    before = await world.store.entry("email", first["outboxId"])
    await erase(world, privacy, Selector(address=TO))
    after = await world.store.entry("email", first["outboxId"])
    assert json.loads(after.body) == {
        "erased": True,
        "outboxId": first["outboxId"],
        "companyId": world.ids["acme"],
    }
    assert after.status is Status.PROCESSED
    assert after.attempts == before.attempts
    again = await world.send(email, idempotency_key="k-1")
    assert again.json()["duplicate"] is True


async def test_dead_letters_are_emptied_and_kept(world, privacy):
    letter = await dead_letter(world, await sent(world))
    await erase(world, privacy, Selector(address=TO))
    found = (await world.store.letters(LetterQuery(workload="email"), Page(10))).items
    assert [each.id for each in found] == [letter]
    assert json.loads(found[0].body)["erased"] is True


async def test_the_data_of_other_people_stays(world, privacy):
    joanas = await sent(world, html="<p>the same for all</p>")
    others = await sent(
        world, to="pedro@example.com", recipient={"externalId": "C-pedro"}, html="<p>the same for all</p>"
    )
    foreign = (
        await world.send(an_email(to="p2@example.com", recipient={"externalId": "C-joana"}), who="other")
    ).json()["outboxId"]
    for each in (joanas, others, foreign):
        await end(world, each)
    kept = {each: await world.store.get(OUTBOX, each) for each in (others, foreign)}
    bodies = {each: (await world.store.entry("email", each)).body for each in (others, foreign)}

    forgotten = await erase(world, privacy, Selector(company_id=world.ids["acme"], external_id="C-joana"))

    assert (forgotten.emails, forgotten.jobs, forgotten.contents) == (1, 1, 0)
    for each in (others, foreign):
        assert await world.store.get(OUTBOX, each) == kept[each]
        assert (await world.store.entry("email", each)).body == bodies[each]
    key = content_key(world.ids["acme"], kept[others]["htmlRef"])
    record = await world.store.get(CONTENT, key)
    assert await html_in(VAULT, world.ids["acme"], kept[others]["htmlRef"], record) == "<p>the same for all</p>"


async def test_a_copy_to_the_person_is_erased_in_jobs_for_other_people(world, privacy):
    await end(world, await sent(world))
    copied = await sent(world, to="pedro@example.com", cc=[TO], recipient={"externalId": "C-pedro"})
    await end(world, copied)
    forgotten = await erase(world, privacy, Selector(address=TO))
    assert forgotten.jobs == 2
    assert "joana" not in (await world.store.entry("email", copied)).body
    assert (await world.store.get(OUTBOX, copied))["to"] == "p***@e***.com"


async def test_a_running_email_is_kept_and_erased_the_next_time(world, privacy):
    outbox_id = await sent(world)
    await world.store.claim("email", [outbox_id], worker="tests", lease=timedelta(0), max_attempts=5)
    selector = Selector(company_id=world.ids["acme"], external_id="C-joana")
    forgotten = await erase(world, privacy, selector)
    assert forgotten.in_work == [outbox_id]
    assert (forgotten.recipients, forgotten.emails, forgotten.jobs, forgotten.contents) == (0, 0, 0, 0)
    await end(world, outbox_id)
    forgotten = await erase(world, privacy, selector)
    assert (forgotten.recipients, forgotten.emails, forgotten.jobs, forgotten.in_work) == (1, 1, 1, [])


async def test_a_suppression_outlives_the_person_s_data(world, privacy):
    await end(world, await sent(world))
    await world.suppressions.add([TO], SuppressionReason.COMPLAINT, detail=None, source="tests", now=world.clock.now())
    await erase(world, privacy, Selector(address=TO))
    assert (await world.send(an_email(to=TO))).status_code == 422


async def test_an_erased_person_who_gets_a_new_email_is_recorded_again(world, privacy):
    await end(world, await sent(world))
    await erase(world, privacy, Selector(address=TO))
    outbox_id = await sent(world, subject="De volta")
    record = await world.store.get(RECIPIENTS, (await world.store.get(OUTBOX, outbox_id))["recipientId"])
    assert record["erasedAt"] is None
    assert record["externalId"] == "C-joana"


async def test_html_in_a_folder_is_erased_too(tmp_path):
    content = folder_content(tmp_path / "content")
    await content.open()
    async with an_email_world(tmp_path, content=content) as world:
        outbox_id = await sent(world)
        ref = (await world.store.get(OUTBOX, outbox_id))["htmlRef"]
        await end(world, outbox_id)
        await erase(world, privacy_with(world, VAULT, content), Selector(address=TO))
        assert not await exists(content, world.ids["acme"], ref)


async def test_an_invalid_address_is_refused_without_repeating_it(privacy):
    with pytest.raises(ValueError, match="must be an email address") as caught:
        await privacy.find(Selector(address="canary@"))
    assert "canary" not in str(caught.value)


# --- keys -------------------------------------------------------------------------------------------------------------

NEW_KEY = bytes(range(150, 182))


async def test_values_of_an_older_key_are_sealed_under_the_current_one(world):
    outbox_id = await sent(world)
    recipient_id = (await world.store.get(OUTBOX, outbox_id))["recipientId"]
    both = Vault(bytes(range(32)), {"first": bytes(range(100, 132)), "second": NEW_KEY}, "second")
    done = await privacy_with(world, both).reseal()
    assert (done.values, done.recipients, done.contents, done.broken) == (3, 1, 1, [])
    only_new = Vault(bytes(range(32)), {"second": NEW_KEY}, "second")
    record = await world.store.get(RECIPIENTS, recipient_id)
    context = seal_context(world.ids["acme"], recipient_id, "cpfCnpjSealed")
    assert only_new.open(record["cpfCnpjSealed"], context=context) == CPF_DIGITS
    ref = (await world.store.get(OUTBOX, outbox_id))["htmlRef"]
    content = await world.store.get(CONTENT, content_key(world.ids["acme"], ref))
    assert (await html_in(only_new, world.ids["acme"], ref, content)).startswith("<p>Boleto")
    again = await privacy_with(world, both).reseal()
    assert (again.values, again.contents) == (0, 0)


async def test_values_that_no_key_opens_are_reported_and_the_rest_is_resealed(world):
    outbox_id = await sent(world)
    recipient_id = (await world.store.get(OUTBOX, outbox_id))["recipientId"]
    await world.store.apply([Upsert(RECIPIENTS, recipient_id, {"nomeSealed": "v1.lost.AAAA"})])
    both = Vault(bytes(range(32)), {"first": bytes(range(100, 132)), "second": NEW_KEY}, "second")
    done = await privacy_with(world, both).reseal()
    assert (done.values, done.broken) == (2, [f"{recipient_id}/nomeSealed"])
