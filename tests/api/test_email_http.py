"""``POST /v1/email/send``, and its API keys."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.contracts.errors import StoreUnavailable
from holdfast.contracts.queries import EntryQuery, Page
from holdfast.features.email.admission import seal_context
from holdfast.features.email.feature import EmailFeature, Scope
from holdfast.features.email.records import CONTENT, OUTBOX, RECIPIENTS, SuppressionReason, content_key
from tests.api.courier_api import OPERATOR
from tests.api.email_api import CPF, CPF_DIGITS, EVENTS, LIST, SEND, VAULT, an_email, email_api, in_an_hour
from tests.support.email_content import html_in

UUID = "123e4567-e89b-52d3-a456-426614174000"


@pytest.fixture
async def api(tmp_path):
    async with email_api(tmp_path) as made:
        yield made


def problems(response) -> dict[str, str]:
    return {each["field"]: each["problem"] for each in response.json()["details"]}


async def entries(api):
    return (await api.store.find(EntryQuery(workload="email"), Page(100))).items


# --- accepted ---------------------------------------------------------------------------------------------------------


async def test_an_email_is_recorded_queued_and_acknowledged(api):
    answer = await api.send(an_email(), x_request_id="req-17")
    assert answer.status_code == 202
    receipt = answer.json()
    outbox_id = receipt["outboxId"]
    assert receipt | {"receivedAt": None} == {
        "acknowledged": True,
        "outboxId": outbox_id,
        "jobId": outbox_id,
        "requestId": "req-17",
        "status": "ENQUEUED",
        "duplicate": False,
        "queued": True,
        "receivedAt": None,
        "scheduledFor": None,
    }
    (entry,) = await entries(api)
    assert entry.job_id == entry.key == outbox_id
    assert (await api.services.broker.depth("email:send")).ready == 1


async def test_the_job_holds_no_html_and_no_clear_tax_number(api):
    html = "<p>Only in the content</p>"
    await api.send(an_email(html=html, recipient={"cpfCnpj": CPF, "nome": "Maria"}))
    (entry,) = await entries(api)
    assert html not in entry.body
    assert CPF not in entry.body
    assert CPF_DIGITS not in entry.body
    assert VAULT.fingerprint(CPF_DIGITS, "cpfCnpj") in entry.body


async def test_the_html_is_stored_until_no_dead_letter_can_need_it(api):
    before = api.clock.now()
    answer = await api.send(an_email(html="<p>Olá</p>"))
    outbox = await api.store.get(OUTBOX, answer.json()["outboxId"])
    kept = await api.store.get(CONTENT, content_key(api.ids["acme"], outbox["htmlRef"]))
    assert await html_in(VAULT, api.ids["acme"], outbox["htmlRef"], kept) == "<p>Olá</p>"
    assert kept["bytes"] == 11
    workload = api.email.workload
    assert kept["expiresAt"] > (before + workload.ttl + workload.letter_retention).isoformat()


async def test_personal_data_is_sealed_in_the_recipients_record(api):
    answer = await api.send(an_email(recipient={"cpfCnpj": CPF, "nome": "Maria Silva", "razaoSocial": "Silva ME"}))
    outbox = await api.store.get(OUTBOX, answer.json()["outboxId"])
    record = await api.store.get(RECIPIENTS, outbox["recipientId"])
    for clear in (CPF, CPF_DIGITS, "Maria", "Silva", "cliente"):
        assert clear not in str(record)
    opened = {
        name: VAULT.open(record[name], context=seal_context(api.ids["acme"], outbox["recipientId"], name))
        for name in ("cpfCnpjSealed", "emailSealed", "nomeSealed", "razaoSocialSealed")
    }
    assert opened["cpfCnpjSealed"] == CPF_DIGITS
    assert (opened["nomeSealed"], opened["razaoSocialSealed"]) == ("Maria Silva", "Silva ME")


async def test_one_person_has_one_record_for_one_tenant(api):
    first = await api.send(an_email(recipient={"externalId": "C-1", "cpfCnpj": CPF, "nome": "Maria"}))
    second = await api.send(an_email(recipient={"cpfCnpj": CPF_DIGITS}))
    foreign = await api.send(an_email(recipient={"cpfCnpj": CPF}), who="other")
    ids = [(await api.store.get(OUTBOX, each.json()["outboxId"]))["recipientId"] for each in (first, second, foreign)]
    assert ids[0] == ids[1] != ids[2]
    record = await api.store.get(RECIPIENTS, ids[0])
    assert record["externalId"] == "C-1"
    assert "nomeSealed" in record


@pytest.mark.parametrize("how", ["delay", "sendAt"])
async def test_an_email_for_later_shows_its_time(api, how):
    later = in_an_hour(api)
    wanted = {"sendAt": later} if how == "sendAt" else {"delay": 3_600_000}
    answer = await api.send(an_email(**wanted))
    scheduled = answer.json()["scheduledFor"]
    shown = (await api.get(f"{LIST}/{answer.json()['outboxId']}")).json()
    assert shown["scheduledFor"] == scheduled
    if how == "sendAt":
        assert scheduled == later
    assert (await api.services.broker.depth("email:send")).delayed == 1


async def test_the_priority_of_an_email_reaches_its_outbox(api):
    answer = await api.send(an_email(priority=1))
    assert (await api.get(f"{LIST}/{answer.json()['outboxId']}")).json()["priority"] == 1


async def test_a_request_id_with_personal_data_does_not_reach_the_job(api):
    answer = await api.send(an_email(), x_request_id=CPF_DIGITS)
    assert answer.status_code == 202
    (entry,) = await entries(api)
    assert CPF_DIGITS not in entry.body
    assert CPF_DIGITS not in str(entry.labels)
    assert CPF_DIGITS not in answer.text


# --- duplicates and conflicts -----------------------------------------------------------------------------------------


async def test_the_same_request_again_is_the_same_email(api):
    email = an_email()
    first = (await api.send(email, x_request_id="one")).json()
    second = (await api.send(email | {"priority": 1}, x_request_id="two")).json()
    assert second == first | {"duplicate": True}
    assert len(await entries(api)) == 1


async def test_other_content_for_the_same_customer_is_another_email(api):
    email = an_email()
    first = (await api.send(email)).json()
    second = (await api.send(email | {"subject": "Outro"})).json()
    assert not second["duplicate"]
    assert second["outboxId"] != first["outboxId"]


async def test_an_idempotency_key_makes_the_same_email_of_the_same_request(api):
    email = an_email()
    first = await api.send(email, idempotency_key="order-1")
    again = await api.send(email, idempotency_key="order-1")
    other = await api.send(email, idempotency_key="order-2")
    assert again.json() == first.json() | {"duplicate": True}
    assert other.json()["outboxId"] != first.json()["outboxId"]


@pytest.mark.parametrize("change", [{"subject": "Outro"}, {"html": "<p>Outro</p>"}, {"to": "outro@example.com"}])
async def test_other_content_under_the_same_key_is_a_conflict(api, change):
    email = an_email()
    await api.send(email, idempotency_key="order-1")
    answer = await api.send(email | change, idempotency_key="order-1")
    assert (answer.status_code, answer.json()["errorCode"]) == (409, "IDEMPOTENCY_CONFLICT")
    assert len(await entries(api)) == 1


async def test_two_tenants_may_use_the_same_key(api):
    email = an_email()
    first = await api.send(email, idempotency_key="order-1")
    second = await api.send(email, who="other", idempotency_key="order-1")
    assert second.status_code == 202
    assert not second.json()["duplicate"]
    assert first.json()["outboxId"] != second.json()["outboxId"]


async def test_a_duplicate_shows_the_present_status_of_the_email(api):
    email = an_email(sendAt=in_an_hour(api))
    first = (await api.send(email)).json()
    await api.cancel(first["outboxId"])
    assert (await api.send(email)).json()["status"] == "CANCELLED"


@pytest.mark.parametrize("key", ["", "two words", "x" * 256, CPF])
async def test_an_invalid_idempotency_key_is_refused(api, key):
    answer = await api.send(an_email(), idempotency_key=key)
    assert answer.status_code == 400
    assert set(problems(answer)) == {"Idempotency-Key"}
    assert await entries(api) == []


async def test_two_idempotency_keys_are_refused(api):
    headers = [("idempotency-key", "a"), ("idempotency-key", "b"), *api.bearer().items()]
    answer = await api.client.post(SEND, json=an_email(), headers=headers)
    assert answer.status_code == 400


# --- refused ----------------------------------------------------------------------------------------------------------


async def test_every_problem_of_a_body_is_reported_at_once_and_no_value(api):
    answer = await api.send(
        {
            "to": "canary.nobody",
            "cc": ["canary@@example"],
            "subject": f"canary\n{CPF}",
            "recipient": {"nome": CPF},
            "priority": 11,
            "canary": 1,
        },
        idempotency_key="not usable",
    )
    assert answer.status_code == 400
    assert answer.json()["errorCode"] == "INVALID_PAYLOAD"
    found = problems(answer)
    assert {"Idempotency-Key", "to", "cc.0", "subject", "html", "recipient", "recipient.nome", "priority"} <= set(found)
    assert CPF not in answer.text
    assert "nobody" not in answer.text
    assert await entries(api) == []


@pytest.mark.parametrize("field", ["subject", "replyTo", "tags", "headers"])
async def test_a_clear_tax_number_is_refused_in_every_field_of_the_job(api, field):
    value = {"tags": [CPF], "headers": {"X-Customer": CPF}, "replyTo": f"{CPF_DIGITS}@example.com"}.get(field, CPF)
    answer = await api.send(an_email(**{field: value}))
    assert answer.status_code == 400
    assert all(each.startswith(field) for each in problems(answer))
    assert CPF_DIGITS not in answer.text


@pytest.mark.parametrize("wanted", [{"delay": 86_400_000}, {"delay": 86_400_001}])
async def test_an_email_that_would_expire_before_its_time_is_refused(api, wanted):
    answer = await api.send(an_email(**wanted))
    assert answer.status_code == 400
    assert set(problems(answer)) == {"delay"}


@pytest.mark.parametrize(
    ("field", "value"),
    [("to", "gone@example.com"), ("cc", ["fine@example.com", "Gone@example.com"]), ("bcc", ["gone@EXAMPLE.com"])],
)
async def test_a_suppressed_address_is_refused_by_field_and_masked(api, field, value):
    await api.suppressions.add(
        ["gone@example.com"], SuppressionReason.BOUNCE, detail=None, source="tests", now=api.clock.now()
    )
    answer = await api.send(an_email(**{field: value}))
    assert (answer.status_code, answer.json()["errorCode"]) == (422, "RECIPIENT_SUPPRESSED")
    (problem,) = answer.json()["details"]
    assert problem["field"] == (field if field == "to" else f"{field}.{len(value) - 1}")
    assert "g***@e***.com" in problem["problem"].lower()
    assert "gone" not in answer.text.lower()
    assert await entries(api) == []


async def test_html_of_an_earlier_email_may_be_used_again(api):
    first = await api.send(an_email())
    ref = (await api.get(f"{LIST}/{first.json()['outboxId']}")).json()["htmlRef"]
    answer = await api.send(an_email(html=None, htmlRef=ref))
    assert answer.status_code == 202


@pytest.mark.parametrize("ref", [UUID, "../other/secret", "a/b", "folder"])
async def test_a_reference_to_no_html_is_refused(api, ref):
    answer = await api.send(an_email(html=None, htmlRef=ref))
    assert (answer.status_code, answer.json()["errorCode"]) == (422, "UNKNOWN_HTML_REF")
    assert [each["field"] for each in answer.json()["details"]] == ["htmlRef"]


async def test_html_of_another_tenant_does_not_exist(api):
    first = await api.send(an_email(), who="other")
    ref = (await api.get(f"{LIST}/{first.json()['outboxId']}", who="other")).json()["htmlRef"]
    answer = await api.send(an_email(html=None, htmlRef=ref))
    assert answer.status_code == 422


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"[]", {}, 400),
        (b'{"to": 1, "to": 2}', {}, 400),
        (b"{", {}, 400),
        (b"x" * 60_000, {}, 413),
        (b"{}", {"content-type": "text/plain"}, 415),
        (b"{}", {"content-encoding": "gzip"}, 415),
    ],
)
async def test_a_body_that_is_not_valid_json_is_refused(api, content, headers, status):
    headers = api.bearer() | {"content-type": "application/json"} | headers
    answer = await api.client.post(SEND, content=content, headers=headers)
    assert answer.status_code == status
    assert answer.json()["acknowledged"] is False


async def test_html_that_is_too_long_is_refused(api):
    answer = await api.send(an_email(html="x" * 10_001))
    assert set(problems(answer)) == {"html"}


async def test_a_ledger_that_cannot_record_answers_503(api):
    api.store.break_down(StoreUnavailable("disk /secret/path is full"), "record")
    answer = await api.send(an_email())
    assert (answer.status_code, answer.json()["errorCode"]) == (503, "INTAKE_UNAVAILABLE")
    assert answer.headers["retry-after"]
    assert "secret" not in answer.text


async def test_a_suppression_list_that_cannot_be_read_lets_nothing_pass(api):
    async def away(collection, _):
        if collection == "email_suppressions":
            raise StoreUnavailable

    api.store.before("get", away)
    assert (await api.send(an_email())).status_code == 503
    assert await entries(api) == []


# --- keys -------------------------------------------------------------------------------------------------------------


async def test_a_key_may_come_in_either_header(api):
    answer = await api.client.post(SEND, json=an_email(), headers={"x-api-key": api.keys["acme"]})
    assert answer.status_code == 202


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("authorization", "Bearer hf_0000000000000000_" + "A" * 43)],
        [("authorization", "Bearer {acme}x")],
        [("authorization", "Basic {acme}")],
        [("authorization", "{acme}")],
        [("authorization", "Bearer {acme}"), ("x-api-key", "{acme}")],
        [("authorization", "Bearer {acme}"), ("authorization", "Bearer {other}")],
        [("x-api-key", "{acme}"), ("x-api-key", "{other}")],
        [("x-api-key", "Bearer {acme}")],
        [("authorization", OPERATOR["authorization"])],
    ],
)
async def test_every_other_key_gets_one_and_the_same_answer(api, headers):
    sent = [(name, value.format(acme=api.keys["acme"], other=api.keys["other"])) for name, value in headers]
    for method, path in (("POST", SEND), ("GET", LIST), ("GET", f"{LIST}/{UUID}"), ("POST", f"{LIST}/{UUID}/cancel")):
        answer = await api.client.request(method, path, headers=sent, content=b"not even JSON")
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == 'Bearer realm="holdfast"'
        assert answer.json() | {"traceId": ""} == {
            "acknowledged": False,
            "errorCode": "INVALID_API_KEY",
            "message": "This needs a valid API key: Authorization: Bearer hf_..., or x-api-key.",
            "traceId": "",
        }


async def test_a_revoked_or_expired_key_is_let_in_no_more(api):
    key, text = await api.tenants.create_key(
        api.ids["acme"], not_after=api.clock.now() + timedelta(hours=1), scopes=[Scope.EMAIL_SEND]
    )
    headers = {"x-api-key": text}
    assert (await api.client.post(SEND, json=an_email(), headers=headers)).status_code == 202
    api.clock.ahead = timedelta(hours=1)
    assert (await api.client.post(SEND, json=an_email(), headers=headers)).status_code == 401
    api.clock.ahead = timedelta(0)
    await api.tenants.revoke(key.key_id)
    assert (await api.client.post(SEND, json=an_email(), headers=headers)).status_code == 401


async def test_a_key_without_the_scope_is_told_which_one_it_lacks(api):
    sent = await api.send(an_email(), who="reads only")
    assert (sent.status_code, sent.json()["errorCode"]) == (403, "MISSING_SCOPE")
    assert "email:send" in sent.json()["message"]
    assert "email:cancel" in (await api.cancel(UUID, who="reads only")).json()["message"]
    assert (await api.get(LIST, who="reads only")).status_code == 200


async def test_the_operators_route_for_jobs_takes_no_emails(api):
    answer = await api.client.post("/v1/jobs/email", json={}, headers=OPERATOR)
    assert answer.status_code == 404
    assert SEND in answer.json()["message"]


async def test_without_emails_every_path_answers_404_with_the_reason(api):
    import httpx

    from holdfast.api import ApiOptions
    from holdfast.api.app import create_app
    from holdfast.api.frame import FeatureApi

    absent = FeatureApi(paths=EmailFeature.paths, refusal="Emails are not set up here: no keys.")
    app = create_app(api.services, ApiOptions(), [absent])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://holdfast.test") as client:
        for method, path in (("POST", SEND), ("GET", LIST), ("GET", f"{LIST}/{UUID}"), ("POST", EVENTS)):
            answer = await client.request(method, path)
            assert answer.status_code == 404
            assert "not set up" in answer.json()["message"]
        assert not any(path.startswith(LIST) for path in (await client.get("/openapi.json")).json()["paths"])
