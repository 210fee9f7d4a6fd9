"""The suppression list, and the notifications of Amazon that add addresses to it."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from holdfast.contracts.admission import InvalidContent
from holdfast.contracts.effects import Upsert
from holdfast.contracts.errors import StoreUnavailable
from holdfast.contracts.queries import Page
from holdfast.features.email.notifications import NotificationRefused, SesNotifications
from holdfast.features.email.records import EMAIL_COLLECTIONS, LOG, OUTBOX, SUPPRESSIONS, SuppressionReason
from holdfast.features.email.sns import CertificateUnavailable, SnsVerifier
from holdfast.features.email.suppression import RecipientSuppressed, Suppressions, address_hash
from holdfast.sqlite import Database
from holdfast.stores.sqlite import SqliteStore
from tests.api.email_api import VAULT
from tests.email.test_sns import NOW, PEM, ROOT, SUBSCRIBE, TOPIC, notification, sign


class Certificates:
    def __init__(self, pem=PEM) -> None:
        self.pem = pem

    async def fetch(self, url: str) -> bytes:
        if self.pem is None:
            raise CertificateUnavailable
        return self.pem


@pytest.fixture
async def store(tmp_path):
    database = Database(tmp_path / "holdfast.db")
    store = SqliteStore(database, [], collections=EMAIL_COLLECTIONS)
    await store.open()
    yield store
    await database.close()


@pytest.fixture
def listed(store):
    return Suppressions(store, VAULT)


@pytest.fixture
def confirmed():
    return []


@pytest.fixture
def notifications(listed, confirmed):
    async def confirm(url):
        confirmed.append(url)

    verifier = SnsVerifier(Certificates(), frozenset({TOPIC}), now=lambda: NOW, roots=[ROOT])
    return SesNotifications(verifier, listed, confirm)


def bounce(*addresses, kind="Permanent") -> dict:
    return {
        "notificationType": "Bounce",
        "bounce": {
            "bounceType": kind,
            "bounceSubType": "General",
            "bouncedRecipients": [{"emailAddress": each, "status": "5.1.1"} for each in addresses],
        },
        "mail": {"messageId": "0100018f"},
    }


def complaint(*addresses, **facts) -> dict:
    recipients = [{"emailAddress": each} for each in addresses]
    return {"eventType": "Complaint", "complaint": {"complainedRecipients": recipients, **facts}, "mail": {}}


async def add(listed, *addresses, reason=SuppressionReason.MANUAL, at=NOW, detail=None):
    return await listed.add(addresses, reason, detail=detail, source="tests", now=at)


# --- the list ---------------------------------------------------------------------------------------------------------


async def test_an_address_is_found_in_every_spelling(listed):
    await add(listed, "User@Example.COM")
    for spelling in ("user@example.com", "USER@EXAMPLE.COM", "User@example.com"):
        assert (await listed.find(spelling, "acme")).reason is SuppressionReason.MANUAL
    assert await listed.find("user2@example.com", "acme") is None


async def test_the_list_holds_no_address(listed, store):
    await add(listed, "joana@example.com", detail="550 <joana@example.com> does not exist")
    record = await store.get(SUPPRESSIONS, address_hash(VAULT, "joana@example.com"))
    assert record["address"] == "j***@e***.com"
    assert "joana" not in str(record)


async def test_a_repeated_suppression_keeps_its_first_time_and_gets_the_latest_reason(listed):
    await add(listed, "a@example.com", reason=SuppressionReason.BOUNCE)
    await add(listed, "a@example.com", reason=SuppressionReason.COMPLAINT, at=NOW + timedelta(days=1))
    found = await listed.find("a@example.com", "acme")
    assert (found.since, found.reason) == (NOW, SuppressionReason.COMPLAINT)


async def test_an_invalid_address_is_ignored(listed):
    assert await add(listed, "nobody", "a@example.com") == 1


async def test_an_address_is_removed_once(listed):
    await add(listed, "a@example.com")
    assert await listed.remove("A@example.com") is True
    assert await listed.remove("a@example.com") is False
    assert await listed.find("a@example.com", "acme") is None


async def test_the_list_is_newest_first_in_pages_and_by_reason(listed):
    for day in range(5):
        reason = SuppressionReason.BOUNCE if day % 2 else SuppressionReason.MANUAL
        await add(listed, f"{day}@example.com", reason=reason, at=NOW + timedelta(days=day))
    first = await listed.list(Page(3))
    rest = await listed.list(Page(3, first.next))
    assert [each.since.day - NOW.day for each in (*first.items, *rest.items)] == [4, 3, 2, 1, 0]
    assert rest.next is None
    bounced = await listed.list(Page(10), SuppressionReason.BOUNCE)
    assert [each.since.day - NOW.day for each in bounced.items] == [3, 1]


# --- notifications ----------------------------------------------------------------------------------------------------


async def test_permanent_bounces_and_complaints_suppress(notifications, listed):
    assert await notifications.receive(sign(notification(bounce("a@example.com", "b@example.com"))), NOW) == 2
    assert await notifications.receive(sign(notification(complaint("c@example.com"))), NOW) == 1
    found = await listed.find("a@example.com", "acme")
    assert (found.reason, found.source, found.detail) == (SuppressionReason.BOUNCE, "ses", "Permanent General 5.1.1")
    assert (await listed.find("c@example.com", "acme")).reason is SuppressionReason.COMPLAINT


async def test_the_same_notification_may_come_any_number_of_times(notifications, listed):
    message = sign(notification(bounce("a@example.com")))
    for _ in range(2):
        assert await notifications.receive(message, NOW) == 1
    assert len((await listed.list(Page(10))).items) == 1


@pytest.mark.parametrize(
    "event",
    [
        bounce("a@example.com", kind="Transient"),
        complaint("a@example.com", complaintFeedbackType="not-spam"),
        {"eventType": "Delivery"},
    ],
)
async def test_temporary_bounces_and_other_events_suppress_no_address(notifications, listed, event):
    assert await notifications.receive(sign(notification(event)), NOW) == 0
    assert await listed.find("a@example.com", "acme") is None


async def test_a_subscription_to_one_of_our_topics_is_confirmed(notifications, confirmed):
    asked = {"Type": "SubscriptionConfirmation", "SubscribeURL": SUBSCRIBE, "Token": "2336412f", "Subject": None}
    assert await notifications.receive(sign(notification("Please confirm.", **asked)), NOW) == 0
    assert confirmed == [SUBSCRIBE]


async def test_a_subscription_that_leads_elsewhere_is_refused_and_nothing_is_fetched(notifications, confirmed):
    asked = {"Type": "SubscriptionConfirmation", "Token": "2336412f", "Subject": None}
    url = SUBSCRIBE.replace("sns.sa-east-1.amazonaws.com", "sns.example.com")
    with pytest.raises(NotificationRefused):
        await notifications.receive(sign(notification("Please confirm.", SubscribeURL=url, **asked)), NOW)
    assert confirmed == []


async def test_a_forged_or_foreign_notification_changes_nothing(notifications, listed):
    signed = sign(notification(bounce("a@example.com")))
    forged = signed | {"Message": signed["Message"].replace("a@example.com", "b@example.com")}
    foreign = sign(notification(bounce("a@example.com"), TopicArn=TOPIC.replace("ses-events", "others")))
    for message in (forged, foreign):
        with pytest.raises(NotificationRefused):
            await notifications.receive(message, NOW)
    assert (await listed.list(Page(10))).items == []


async def test_a_body_that_is_not_a_notification_is_refused_without_its_content(notifications):
    for message in ({"Type": "canary"}, "canary", sign(notification("canary@example.com"))):
        with pytest.raises(InvalidContent) as caught:
            await notifications.receive(message, NOW)
        assert "canary" not in str(caught.value.problems)


async def test_amazon_gets_an_error_to_retry_while_its_certificate_cannot_be_fetched(listed):
    verifier = SnsVerifier(Certificates(None), frozenset({TOPIC}), now=lambda: NOW, roots=[ROOT])
    with pytest.raises(StoreUnavailable):
        await SesNotifications(verifier, listed).receive(sign(notification(bounce("a@example.com"))), NOW)


# --- whose recipients they are --------------------------------------------------------------------------------------

OUTBOX_ID = "5d3f7a52-9c1e-5b77-8f0a-3b1f6f0c2e11"


def about(outbox_id=None, message_id=None) -> dict:
    """What SES says about the email that bounced."""
    mail = {} if message_id is None else {"messageId": message_id}
    return mail if outbox_id is None else mail | {"commonHeaders": {"messageId": f"<{outbox_id}@mail.example.com>"}}


@pytest.mark.parametrize(
    ("known", "mail"),
    [
        (Upsert(OUTBOX, OUTBOX_ID, {"companyId": "acme"}), about(outbox_id=OUTBOX_ID)),
        (Upsert(LOG, OUTBOX_ID, {"companyId": "acme", "sesMessageId": "ses-1"}), about(message_id="ses-1")),
        (Upsert(OUTBOX, OUTBOX_ID, {"companyId": "acme", "toHash": address_hash(VAULT, "A@example.com")}), about()),
    ],
    ids=["our id", "the id of SES", "the address"],
)
async def test_a_bounce_counts_for_the_tenant_that_sent_the_email(store, listed, notifications, known, mail):
    await store.apply([known])
    event = bounce("a@example.com") | {"mail": mail}
    assert await notifications.receive(sign(notification(Message=json.dumps(event))), NOW) == 1
    assert (await listed.find("a@example.com", "acme")).reason is SuppressionReason.BOUNCE
    assert await listed.find("a@example.com", "other") is None
    await listed.refuse([("to", "a@example.com")], "other")
    with pytest.raises(RecipientSuppressed):
        await listed.refuse([("to", "a@example.com")], "acme")
    assert await listed.remove("a@example.com")
    assert await listed.find("a@example.com", "acme") is None


async def test_an_operator_may_suppress_an_address_for_one_tenant_or_for_all(listed):
    facts = {"detail": None, "source": "operator ana", "now": NOW}
    await listed.add(["one@example.com"], SuppressionReason.MANUAL, **facts, tenants=["acme"])
    await listed.add(["all@example.com"], SuppressionReason.MANUAL, **facts)
    found = {
        (who, address): await listed.find(f"{address}@example.com", who) is not None
        for who in ("acme", "other")
        for address in ("one", "all")
    }
    assert found == {
        ("acme", "one"): True,
        ("acme", "all"): True,
        ("other", "one"): False,
        ("other", "all"): True,
    }
