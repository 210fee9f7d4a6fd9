"""A workload of one's own over HTTP, with its worker, on one SQLite file and on MongoDB with Valkey."""

from __future__ import annotations

import asyncio
import json
import uuid
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from pydantic import BaseModel

from holdfast import App, Collection, Done, Reject, Upsert, Workload
from tests.api.document_api import events_in
from tests.support.gateway import opened
from tests.support.hearing import hearing
from tests.support.settings import load
from tests.support.valkey_server import RedisPlace, forget
from tests.support.waiting import eventually

TOKEN = "operators-only-3b1f6f0c2e11"
OPERATOR = {"authorization": f"Bearer {TOKEN}"}
TASKS = "/v1/jobs/tasks"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


class Task(BaseModel):
    name: str
    bad: bool = False


class Tasks(Workload[Task]):
    """Tasks wait until the test lets them go on."""

    name = "tasks"
    contract = Task
    queue = "tasks-main"
    dead_letter_queue = "tasks-dead"
    timeout = timedelta(minutes=5)
    collections = (Collection("task_records", key="name", indexes=(("owner",),)),)

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    def key(self, data: Task) -> str:
        return data.name

    async def handle(self, job, context):
        await self.go_on.wait()
        if job.data.bad:
            return Reject("BAD_TASK", "Nobody does such a task.")
        owner = job.labels.get("companyId", "nobody")
        return Done([Upsert("task_records", job.data.name, {"owner": owner})], result={"did": job.data.name})


@pytest.fixture(params=["embedded", "cluster"])
def place(request, tmp_path):
    """The settings of a deployment of the test's own."""
    common = {"HOLDFAST_DATA": str(tmp_path), "OPERATOR_TOKEN": TOKEN, "TENANT_STREAMS": "2"}
    if request.param == "embedded":
        yield common
        return
    mongo, database = request.getfixturevalue("mongo"), request.getfixturevalue("emptied_mongo_database")
    redis = RedisPlace(request.getfixturevalue("valkey").url, f"hf{uuid.uuid4().hex[:12]}")
    yield common | {
        "REDIS_URL": redis.url,
        "QUEUE_PREFIX": redis.prefix,
        "MONGO_URI": mongo.uri,
        "MONGO_DB_NAME": database,
    }
    forget(redis)


class Client:
    def __init__(self, gateway, tasks: Tasks) -> None:
        self.gateway = gateway
        self.tasks = tasks
        self.http = gateway.client

    async def post(self, body, headers=OPERATOR, **query):
        return await self.http.post(TASKS, json=body, headers=headers, params=query, timeout=60)

    async def show(self, key, headers=OPERATOR, **query):
        answer = await self.http.get(f"{TASKS}/{key}", headers=headers, params=query, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def key_of(self, name, *scopes):
        tenant = await self.gateway.tenants.add(name)
        _, text = await self.gateway.tenants.create_key(tenant.company_id, scopes=scopes or None)
        return tenant.company_id, {"x-api-key": text}


@asynccontextmanager
async def running(place, folder):
    tasks = Tasks()
    async with opened(load(place, folder), App([tasks]), workload="tasks") as gateway, gateway.running():
        yield Client(gateway, tasks)
        tasks.go_on.set()


async def test_a_wait_is_answered_when_the_job_has_ended_or_the_time_is_over(place, tmp_path):
    async with running(place, tmp_path) as client:
        await client.post([{"name": "good"}, {"name": "bad", "bad": True}])
        assert (await client.show("good", wait=0.05))["status"] in {"received", "processing"}
        waits = [asyncio.create_task(client.show(key, wait=60)) for key in ("good", "bad", "good")]
        await eventually(lambda: len(client.gateway.waiting._waits.get("tasks", ())) == 2)
        client.tasks.go_on.set()
        good, bad, again = await asyncio.gather(*waits)
        assert (good["status"], good["result"]) == ("processed", {"did": "good"})
        assert again == good
        assert (bad["status"], bad["lastErrorCode"], len(bad["deadLetters"])) == ("dead_lettered", "BAD_TASK", 1)
        assert (await client.show("good", wait=60)) == good, "at once: it has ended"


async def test_waits_and_streams_are_limited_for_a_tenant_and_end_when_the_process_stops(place, tmp_path):
    async with running(place, tmp_path) as client:
        _, acme = await client.key_of("acme")
        await client.post({"name": "slow"}, acme)
        waits = [asyncio.create_task(client.show("slow", acme, wait=60)) for _ in range(50)]  # as many as two streams
        await eventually(lambda: client.gateway.limits._senders and open_streams(client) == 50)
        for path in (f"{TASKS}/slow?wait=1", f"{TASKS}/slow/events"):
            refused = await client.http.get(path, headers=acme)
            assert (refused.status_code, refused.json()["errorCode"]) == (429, "TOO_MANY_STREAMS")

        async def in_work() -> bool:
            return (await client.show("slow", acme))["status"] == "processing"  # without a wait

        await eventually(in_work)
        client.http._transport.app.leave()
        assert [each["status"] for each in await asyncio.gather(*waits)] == ["processing"] * 50
        assert open_streams(client) == 0


def open_streams(client) -> int:
    return sum(each.streams for each in client.gateway.limits._senders.values())


async def test_a_stream_has_each_state_and_the_end(place, tmp_path):
    async with running(place, tmp_path) as client:
        await client.post({"name": "good"})
        stream = asyncio.create_task(client.http.get(f"{TASKS}/good/events", headers=OPERATOR, timeout=60))
        client.tasks.go_on.set()
        answer = await stream
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = events_in(answer.text)
        named = [(name, data["status"]) for name, data in events if data]
        assert named[-2:] == [("progress", "processed"), ("end", "processed")]
        assert events[-1][1]["result"] == {"did": "good"}
        missing = await client.http.get(f"{TASKS}/nothing/events", headers=OPERATOR)
        assert missing.status_code == 404


async def test_tenants_have_their_own_jobs_records_limits_and_lists(place, tmp_path):
    async with running(place, tmp_path) as client:
        client.tasks.go_on.set()
        (one, acme), (two, other) = await client.key_of("acme"), await client.key_of("other", "jobs:write:tasks")
        for who in (acme, other, OPERATOR):
            answer = await client.post({"name": "same"}, who)
            assert (answer.status_code, answer.json()["duplicate"]) == (202, False)
        assert (await client.show("same", acme, wait=60))["status"] == "processed"
        for key in ("same", f"{one}:same", f"{two}:same"):
            assert (await client.show(key, wait=60))["status"] == "processed"
        assert (await client.http.get(f"{TASKS}/same", headers=other)).status_code == 403, "it may only write"
        listed = (await client.http.get(TASKS, headers=acme)).json()["items"]
        assert [(each["key"], each["labels"]["companyId"]) for each in listed] == [("same", one)]
        assert len((await client.http.get(TASKS, headers=OPERATOR)).json()["items"]) == 3
        record = (await client.http.get("/v1/records/task_records/same", headers=OPERATOR)).json()
        assert record["owner"] in {one, two, "nobody"}
        found = await client.http.get(f"/v1/records/task_records?where=owner={record['owner']}", headers=OPERATOR)
        assert [each["name"] for each in found.json()["items"]] == ["same"]


async def test_a_tenants_waiting_jobs_count_against_its_limits(place, tmp_path):
    async with running(place | {"TENANT_WAITING_JOBS": "3"}, tmp_path) as client:
        _, acme = await client.key_of("acme")
        _, other = await client.key_of("other")
        answer = await client.post([{"name": f"t{number}"} for number in range(5)], acme)
        codes = [each["statusCode"] for each in answer.json()["answers"]]
        assert codes == [202, 202, 202, 429, 429]
        assert (await client.post({"name": "theirs"}, other)).status_code == 202
        client.tasks.go_on.set()
        await client.show("t2", acme, wait=60)

        async def accepted() -> bool:
            return (await client.post({"name": "later"}, acme)).status_code == 202

        await eventually(accepted)


async def test_the_id_and_the_trace_of_a_request_reach_the_entry_and_the_log(place, tmp_path):
    async with running(place, tmp_path) as client:
        client.tasks.go_on.set()
        with hearing() as said:
            sent = OPERATOR | {"x-request-id": "shop-17", "traceparent": PARENT}
            receipt = (await client.post({"name": "traced"}, sent)).json()
            shown = await client.show("traced", wait=60)
        assert receipt["traceId"] == shown["traceId"] == TRACE
        assert (shown["requestId"], shown["labels"]["traceparent"]) == ("shop-17", PARENT)
        settled = [fields for event, fields in said if event == "attempt.settled" and fields["key"] == "traced"]
        assert [each["trace_id"] for each in settled] == [TRACE]
        assert json.dumps(shown)
