"""Reading and cancelling emails, and notifications of Amazon."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.contracts.admission import FieldProblem, InvalidContent
from holdfast.contracts.effects import Upsert
from holdfast.contracts.errors import StoreUnavailable
from holdfast.contracts.ledger import Status
from holdfast.features.email.notifications import NotificationRefused
from holdfast.features.email.records import OUTBOX
from tests.api.email_api import BATCH, CPF, EVENTS, LIST, SEND, an_email, email_api, in_an_hour

UNKNOWN = "123e4567-e89b-52d3-a456-426614174000"


@pytest.fixture
async def api(tmp_path):
    async with email_api(tmp_path) as made:
        yield made


async def sent(api, *, who="acme", **changes) -> str:
    answer = await api.send(an_email(**changes), who=who)
    assert answer.status_code == 202, answer.text
    return answer.json()["outboxId"]


# --- reading ----------------------------------------------------------------------------------------------------------


async def test_an_email_is_shown_masked(api):
    outbox_id = await sent(
        api,
        to="joana@example.com",
        cc=["copia@example.com"],
        tags=["boleto"],
        recipient={"externalId": "C-1", "cpfCnpj": CPF, "nome": "Joana"},
    )
    answer = await api.get(f"{LIST}/{outbox_id}")
    shown = answer.json()
    assert answer.status_code == 200
    assert (shown["outboxId"], shown["status"], shown["to"]) == (outbox_id, "ENQUEUED", "j***@e***.com")
    assert (shown["ccCount"], shown["bccCount"], shown["tags"]) == (1, 0, ["boleto"])
    assert shown["externalId"] == "C-1"
    assert len(shown["cpfCnpjHash"]) == 11
    assert shown["cpfCnpjHash"].endswith("...")
    for clear in ("joana", "Joana", "copia", CPF):
        assert clear not in answer.text


@pytest.mark.parametrize("path", [f"{LIST}/{UNKNOWN}", f"{LIST}/nonsense", f"{LIST}/%00"])
async def test_an_unknown_email_is_not_found(api, path):
    assert (await api.get(path)).status_code == 404


async def test_the_records_of_another_tenant_count_as_not_found(api):
    outbox_id = await sent(api, who="other")
    for answer in (await api.get(f"{LIST}/{outbox_id}"), await api.cancel(outbox_id)):
        assert answer.status_code == 404
        unknown = (await api.get(f"{LIST}/{UNKNOWN}")).json()
        assert answer.json() | {"traceId": ""} == unknown | {"traceId": ""}
    assert (await api.get(f"{LIST}/{outbox_id}", who="other")).json()["status"] == "ENQUEUED"
    assert (await api.get(LIST)).json()["items"] == []


async def test_emails_are_listed_newest_first_in_pages(api):
    ids = []
    for hours in range(5):
        api.clock.ahead = timedelta(hours=hours)
        ids.append(await sent(api))
    await sent(api, who="other")
    seen, cursor, pages = [], None, 0
    while cursor is not None or not pages:
        query = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = (await api.get(LIST, **query)).json()
        seen += [each["outboxId"] for each in page["items"]]
        cursor, pages = page["next"], pages + 1
    assert seen == ids[::-1]
    assert pages == 3


async def test_the_list_can_be_narrowed_to_a_status(api):
    waits, cancelled = await sent(api), await sent(api)
    await api.cancel(cancelled)
    for status, expected in (("ENQUEUED", [waits]), ("CANCELLED", [cancelled]), ("SENT", [])):
        items = (await api.get(LIST, status=status)).json()["items"]
        assert [each["outboxId"] for each in items] == expected


@pytest.mark.parametrize(
    "query", [{"status": "sent"}, {"limit": 0}, {"limit": 201}, {"cursor": "???"}, {"companyId": UNKNOWN}]
)
async def test_an_invalid_query_is_refused(api, query):
    answer = await api.get(LIST, **query)
    assert (answer.status_code, answer.json()["errorCode"]) == (400, "INVALID_QUERY")


@pytest.mark.parametrize("path", [SEND, BATCH])
async def test_the_paths_for_sending_are_not_read_as_outbox_ids(api, path):
    answer = await api.get(path)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


# --- cancelling -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("later", [False, True])
async def test_a_waiting_email_is_cancelled_and_stays_cancelled(api, later):
    outbox_id = await sent(api, sendAt=in_an_hour(api) if later else None)
    answer = await api.cancel(outbox_id)
    assert (answer.status_code, answer.json()) == (200, {"outboxId": outbox_id, "status": "CANCELLED"})
    assert (await api.get(f"{LIST}/{outbox_id}")).json()["status"] == "CANCELLED"
    entry = await api.store.entry("email", outbox_id)
    assert entry.status is Status.EXPIRED
    depth = await api.services.broker.depth("email:send")
    assert (depth.ready, depth.delayed) == (0, 0)
    assert (await api.cancel(outbox_id)).json() == answer.json()


async def test_an_email_that_is_being_sent_is_not_cancelled(api):
    outbox_id = await sent(api)
    await api.store.claim("email", [outbox_id], worker="tests", lease=timedelta(seconds=30), max_attempts=5)
    await api.store.apply([Upsert(OUTBOX, outbox_id, {"status": "SENDING"})])
    answer = await api.cancel(outbox_id)
    assert (answer.status_code, answer.json()["errorCode"]) == (409, "TOO_LATE_TO_CANCEL")
    assert answer.json()["details"] == [{"field": "status", "problem": "SENDING"}]
    assert (await api.store.entry("email", outbox_id)).status is Status.PROCESSING


async def test_an_unknown_email_cannot_be_cancelled(api):
    assert (await api.cancel(UNKNOWN)).status_code == 404


# --- notifications ----------------------------------------------------------------------------------------------------


async def test_a_notification_needs_no_key_and_comes_as_any_text(api):
    api.feedback.answer = 2
    answer = await api.client.post(EVENTS, content=b'{"Type": "Notification"}', headers={"content-type": "text/plain"})
    assert (answer.status_code, answer.json()) == (200, {"suppressed": 2})
    assert api.feedback.received == [{"Type": "Notification"}]


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NotificationRefused(), 403, "UNTRUSTED_NOTIFICATION"),
        (InvalidContent([FieldProblem("(body)", "Type is none that SNS has.")]), 400, "INVALID_PAYLOAD"),
        (StoreUnavailable(), 503, "SERVICE_UNAVAILABLE"),
    ],
)
async def test_a_refused_notification_gets_the_status_that_makes_amazon_retry_or_stop(api, error, status, code):
    api.feedback.answer = error
    answer = await api.client.post(EVENTS, json={})
    assert (answer.status_code, answer.json()["errorCode"]) == (status, code)


async def test_a_notification_that_is_not_json_or_too_large_is_refused(api):
    assert (await api.client.post(EVENTS, content=b"{")).status_code == 400
    assert (await api.client.post(EVENTS, content=b"x" * (1024 * 1024 + 1))).status_code == 413
    assert api.feedback.received == []
