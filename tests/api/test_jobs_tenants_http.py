"""``/v1/jobs`` with the keys of tenants: scopes, and whose jobs are whose."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.api import ApiOptions
from holdfast.api.wrong_keys import WrongKeys
from holdfast.contracts.admission import InvalidContent
from holdfast.contracts.queries import EntryQuery, Page
from holdfast.contracts.transitions import RetryLater
from tests.api.courier_api import OPERATOR, _client

ERRANDS = "/v1/jobs/errands"
JOB = {"errand": "milk"}


async def company_of(api, name):
    return (await api.services.tenants.named(name)).company_id


async def post(api, headers, body=JOB, path=ERRANDS, **query):
    return await api.client.post(path, json=body, headers=headers, params=query)


# --- scopes -------------------------------------------------------------------------------------------------------

ROUTES = [
    ("POST", ERRANDS, "jobs:write"),
    ("GET", ERRANDS, "jobs:read"),
    ("GET", f"{ERRANDS}/milk", "jobs:read"),
    ("GET", f"{ERRANDS}/milk/events", "jobs:read"),
    ("POST", f"{ERRANDS}/milk/cancel", "jobs:cancel"),
]


@pytest.mark.parametrize(("method", "path", "scope"), ROUTES)
async def test_every_route_needs_the_operator_token_or_a_key_with_its_scope(api, method, path, scope):
    async def asked(headers):
        answer = await api.client.request(method, path, headers=headers)
        return answer.status_code, answer.json().get("errorCode")

    others = [each for _, _, each in ROUTES if each != scope]
    for wrong in ({}, {"authorization": "Bearer nonsense"}, {"x-api-key": "hf_0123456789abcdef_" + "a" * 43}):
        assert await asked(wrong) == (401, "UNAUTHORIZED")
    for lacking in (others, [f"{scope}:invoices"], ["email:read"]):
        assert await asked(await api.key_of("acme", *lacking)) == (403, "MISSING_SCOPE")
    key = await api.key_of("acme", scope)
    for right in (OPERATOR, key, await api.key_of("acme", f"{scope}:errands")):
        assert (await asked(right))[0] not in {401, 403}
    both = OPERATOR | {"x-api-key": key["authorization"].removeprefix("Bearer ")}
    assert await asked(both) == (401, "UNAUTHORIZED"), "it would not be clear who asks"


async def test_wrong_keys_are_throttled(api):
    options = ApiOptions(operator_token=api.options.operator_token, wrong_keys=WrongKeys(per_minute=2))
    key = await api.key_of("acme")
    async with _client(api.services, options) as client:
        wrong = {"authorization": "Bearer hf_0123456789abcdef_" + "a" * 43}
        answers = [(await client.get(ERRANDS, headers=wrong)).status_code for _ in range(4)]
        assert answers == [401, 401, 429, 429]
        assert (await client.get(f"{ERRANDS}/milk", headers=key)).status_code == 404, "a right key is still accepted"


@pytest.mark.parametrize(
    ("scopes", "problem"),
    [
        (["jobs:write:nothing"], "invoices, errands"),
        (["jobs:write:courier"], "invoices, errands"),
        (["jobs:everything"], "jobs:write"),
        (["email:read:errands"], "email:read"),
    ],
)
async def test_a_key_for_an_unknown_workload_or_scope_is_refused_with_those_that_are_known(api, scopes, problem):
    tenant = await api.services.tenants.add("acme")
    with pytest.raises(InvalidContent) as refused:
        await api.services.tenants.create_key(tenant.company_id, scopes=scopes)
    assert problem in refused.value.problems[0].problem


async def test_a_tenant_sees_the_workloads_that_its_key_is_for(api):
    async def seen(headers):
        answer = await api.client.get("/v1/workloads", headers=headers)
        return {each["name"]: each["ownRoute"] for each in answer.json()["items"]}

    everything = await seen(OPERATOR)
    assert set(everything) == {"courier", "invoices", "errands"}
    assert "POST /v1/events/courier" in everything["courier"]
    assert await seen(await api.key_of("acme")) == {"invoices": None, "errands": None}
    assert await seen(await api.key_of("acme", "jobs:cancel:errands")) == {"errands": None}
    assert await seen(await api.key_of("acme", "email:read")) == {}
    shown = (await api.client.get("/v1/workloads", headers=OPERATOR)).json()["items"][1]
    assert shown["contract"]["properties"]["number"]
    assert (shown["queue"], shown["indexedLabels"]) == ("invoices-main", ["customer", "companyId"])


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_workloads_with_a_route_of_their_own_are_closed_to_tenants(api, method):
    answer = await api.client.request(method, "/v1/jobs/courier", headers=await api.key_of("acme"), json={})
    assert answer.status_code == 404
    assert "POST /v1/events/courier" in answer.json()["message"]


# --- whose jobs ---------------------------------------------------------------------------------------------------


async def test_tenants_and_operators_never_meet_under_one_key(api):
    acme, other = await api.key_of("acme"), await api.key_of("other")
    answers = [await post(api, who, JOB | {"shop": shop}) for who, shop in ((acme, "a"), (other, "b"), (OPERATOR, "c"))]
    assert [each.status_code for each in answers] == [202] * 3
    assert [each.json()["duplicate"] for each in answers] == [False] * 3
    assert [each.json()["key"] for each in answers] == ["milk"] * 3
    assert len({each.json()["jobId"] for each in answers}) == 3
    for who, shop in ((acme, "a"), (other, "b"), (OPERATOR, "c")):
        shown = (await api.client.get(f"{ERRANDS}/milk", headers=who)).json()
        assert (shown["key"], shown["payload"]["shop"]) == ("milk", shop)
    again = await post(api, acme, JOB | {"shop": "a"})
    assert (again.json()["duplicate"], again.json()["jobId"]) == (True, answers[0].json()["jobId"])
    assert (await post(api, acme, JOB | {"shop": "z"})).status_code == 409, "a conflict with its own job"


async def test_the_ledger_names_the_tenant_of_a_job(api):
    acme = await api.key_of("acme")
    await post(api, acme, JOB | {"shop": "somebody-else"}, priority=7)
    company_id = await company_of(api, "acme")
    entry = await api.services.store.entry("errands", f"{company_id}:milk")
    assert entry.labels["companyId"] == company_id, "not what the sender wrote"
    assert await api.services.store.count_unsettled(f"{company_id}/", 10) == 1
    assert await api.services.store.count_unsettled("somebody-else/", 10) == 0
    await post(api, acme, {"number": "1", "issued_at": "2026-02-26T12:00:00Z"}, "/v1/jobs/invoices")
    assert await api.services.store.count_unsettled(f"{company_id}/", 10) == 2, "also without a fairness key"


async def test_jobs_of_others_count_as_not_found(api):
    acme, other = await api.key_of("acme"), await api.key_of("other")
    await post(api, acme)
    await post(api, OPERATOR, JOB | {"errand": "bread"})
    whole = f"{await company_of(api, 'acme')}:milk"
    for method, part in (("GET", ""), ("GET", "/events"), ("POST", "/cancel")):
        for key in ("milk", "bread", whole):
            answer = await api.client.request(method, f"{ERRANDS}/{key}{part}", headers=other)
            assert (answer.status_code, answer.json()["errorCode"]) == (404, "NOT_FOUND")
    assert (await api.client.get(f"{ERRANDS}/{whole}", headers=OPERATOR)).json()["key"] == whole
    assert (await api.client.get(f"{ERRANDS}/milk", headers=acme)).status_code == 200


async def test_a_list_has_the_tenants_own_jobs(api):
    acme, other = await api.key_of("acme"), await api.key_of("other")
    company_id = await company_of(api, "acme")
    for who in (acme, other, OPERATOR):
        for errand in ("milk", "bread"):
            await post(api, who, {"errand": errand, "shop": company_id})

    async def listed(who, **query):
        answer = await api.client.get(ERRANDS, headers=who, params=query)
        return [each["key"] for each in answer.json()["items"]]

    assert await listed(acme) == ["bread", "milk"]
    assert await listed(other) == ["bread", "milk"]
    assert await listed(other, label=f"companyId={company_id}") == ["bread", "milk"], "its own, whatever it asks for"
    assert len(await listed(OPERATOR)) == 6
    assert await listed(acme, key="milk") == ["milk"]
    assert await listed(other, key=f"{company_id}:milk") == []
    found = await api.services.store.find(EntryQuery(workload="errands", labels={"companyId": company_id}), Page())
    assert len(found.items) == 4, "two of them are the operator's, with the same label"


async def test_tracebacks_are_for_operators(api):
    acme = await api.key_of("acme")
    await post(api, acme)
    key = f"{await company_of(api, 'acme')}:milk"
    failed = RetryLater(timedelta(minutes=1), "TIMEOUT", "No answer.", traceback="in handle: boom")
    await api.settle("errands", key, failed)

    async def attempts(who, name):
        return (await api.client.get(f"{ERRANDS}/{name}", headers=who)).json()["attemptHistory"]

    assert [each["traceback"] for each in await attempts(OPERATOR, key)] == ["in handle: boom"]
    (seen,) = await attempts(acme, "milk")
    assert (seen["errorCode"], seen["traceback"]) == ("TIMEOUT", None)
