"""``POST /v1/jobs/{workload}`` with a list: each job has its own answer."""

from __future__ import annotations

import json

import pytest

from holdfast.contracts.tenants import TenantLimits
from tests.api.courier_api import OPERATOR

ERRANDS = "/v1/jobs/errands"


async def post(api, body, headers=OPERATOR, **query):
    return await api.client.post(ERRANDS, json=body, headers=headers, params=query)


async def test_each_job_is_accepted_or_refused_on_its_own(api):
    await post(api, {"errand": "milk", "shop": "other"})
    body = [{"errand": "bread"}, {"errand": ""}, {"errand": "milk"}, {"errand": "bread"}, 7, {"errand": "tea"}]
    answer = await post(api, body)
    assert answer.status_code == 207
    found = answer.json()
    assert (found["accepted"], found["refused"]) == (3, 3)
    assert [each["index"] for each in found["answers"]] == list(range(6))
    assert [each["statusCode"] for each in found["answers"]] == [202, 400, 409, 202, 400, 202]
    answers = [each["answer"] for each in found["answers"]]
    assert [each.get("duplicate") for each in answers] == [False, None, None, True, None, False]
    assert answers[1]["details"][0]["field"] == "errand"
    assert answers[2]["errorCode"] == "IDEMPOTENCY_CONFLICT"
    assert len({each["traceId"] for each in answers if each["acknowledged"]}) == 1, "one request is one trace"
    assert (await api.client.get(f"{ERRANDS}/tea", headers=OPERATOR)).json()["status"] == "received"


@pytest.mark.parametrize("body", [b"[]", b"[{}", b"[1" + b",1" * 500 + b"]", b'[{"errand":"a","errand":"b"}]'])
async def test_a_list_that_cannot_be_read_is_refused_whole(api, body):
    headers = OPERATOR | {"content-type": "application/json"}
    answer = await api.client.post(ERRANDS, content=body, headers=headers)
    assert (answer.status_code, answer.json()["errorCode"]) == (400, "INVALID_PAYLOAD")


async def test_five_hundred_jobs_may_be_larger_than_one(api):
    jobs = [{"errand": f"e{number}", "note": "x" * 1_000} for number in range(500)]
    answer = await post(api, jobs)
    assert (answer.status_code, answer.json()["accepted"]) == (207, 500)
    large = [{"errand": "a", "note": "x" * 300_000}, {"errand": "b"}]
    answer = await post(api, large)
    assert [each["statusCode"] for each in answer.json()["answers"]] == [413, 202]
    alone = await post(api, large[0])
    assert alone.status_code == 413
    huge = json.dumps([{"errand": "a"}]).encode().ljust(16 * 256 * 1024 + 1)
    headers = OPERATOR | {"content-type": "application/json"}
    assert (await api.client.post(ERRANDS, content=huge, headers=headers)).status_code == 413


async def test_delay_and_priority_are_for_all_jobs_of_the_list(api):
    found = (await post(api, [{"errand": "a"}, {"errand": "b"}], delayMs=60_000)).json()["answers"]
    assert all(each["answer"]["dueAt"] > each["answer"]["receivedAt"] for each in found)
    refused = (await post(api, [{"errand": "c"}], delayMs=3_600_000)).json()["answers"][0]
    assert (refused["statusCode"], refused["answer"]["errorCode"]) == (422, "INVALID_DELAY")


async def test_the_jobs_of_a_list_count_like_requests_of_the_tenant(api):
    acme = await api.key_of("acme")
    company_id = (await api.services.tenants.named("acme")).company_id
    await api.services.tenants.set_limits(company_id, TenantLimits(requests_per_second=10))
    assert (await post(api, [{"errand": f"e{number}"} for number in range(20)], acme)).status_code == 207
    assert (await post(api, {"errand": "one more"}, acme)).json()["errorCode"] == "TOO_MANY_PER_SECOND"
