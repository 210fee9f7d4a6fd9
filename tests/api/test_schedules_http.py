from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from holdfast import App
from tests.support.gateway import opened
from tests.support.schedules import Ticking
from tests.support.settings import Settings

TOKEN = "the-token-of-an-operator-7Qx"
PATH = "/v1/schedules"
WHY = {"actor": "ana", "reason": "The bank is closed."}
REMIND = Ticking("remind", cron="0 7 * * 1-5", timezone="America/Sao_Paulo", jitter=timedelta(minutes=2))


@pytest.fixture
async def api(tmp_path):
    app = App([REMIND, Ticking("poll", every=timedelta(seconds=90), catch_up="all")])
    settings = Settings(holdfast_data=tmp_path, operator_token=TOKEN)
    async with opened(settings, app, workload="remind") as gateway:
        gateway.client.headers["authorization"] = f"Bearer {TOKEN}"
        yield gateway


async def test_the_list_shows_rules_and_next_times(api):
    answer = (await api.client.get(PATH)).json()
    assert answer["next"] is None
    poll, remind = answer["items"]
    assert (poll["name"], poll["cron"], poll["everyMs"], poll["catchUp"]) == ("poll", None, 90_000, "all")
    assert (remind["cron"], remind["timezone"], remind["everyMs"]) == ("0 7 * * 1-5", "America/Sao_Paulo", None)
    assert (remind["jitterMs"], remind["catchUp"], remind["workload"]) == (120_000, "last", "remind")
    assert (remind["lastTick"], remind["lastStatus"], remind["paused"]) == (None, None, False)
    instants = [datetime.fromisoformat(each) for each in remind["next"]]
    assert len(instants) == 5
    assert [datetime.fromisoformat(each) for each in remind["nextLocal"]] == instants
    assert {each[11:] for each in remind["nextLocal"]} == {"07:00:00-03:00"}
    assert (await api.client.get(f"{PATH}/remind")).json() == remind


async def test_pause_run_and_resume(api):
    paused = await api.client.post(f"{PATH}/remind/pause", json=WHY)
    assert paused.status_code == 200
    shown = paused.json()
    assert (shown["paused"], shown["pausedBy"], shown["reason"]) == (True, "ana", "The bank is closed.")
    assert shown["pausedAt"].endswith("Z")

    ran = await api.client.post(f"{PATH}/remind/run")
    assert ran.status_code == 202
    receipt = ran.json()
    assert (receipt["acknowledged"], receipt["workload"], receipt["duplicate"]) == (True, "remind", False)
    assert receipt["key"].startswith("schedule:remind:2")
    assert receipt["key"].endswith(":manual")
    job = (await api.client.get(f"/v1/jobs/remind/{receipt['key']}")).json()
    assert (job["status"], job["jobId"]) == ("received", receipt["jobId"])
    assert (await api.client.get(f"{PATH}/remind")).json()["lastRun"] in receipt["key"]

    resumed = (await api.client.post(f"{PATH}/remind/resume", json=WHY)).json()
    assert (resumed["paused"], resumed["pausedBy"], resumed["reason"], resumed["pausedAt"]) == (False, None, None, None)


@pytest.mark.parametrize("step", ["run", "pause", "resume"])
async def test_an_unknown_schedule_is_404(api, step):
    answer = await api.client.post(f"{PATH}/weekly/{step}", json=WHY)
    assert (answer.status_code, answer.json()["errorCode"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize("body", [{}, {"actor": "ana"}, WHY | {"actor": " "}, WHY | {"more": 1}])
async def test_a_pause_needs_a_name_and_a_reason(api, body):
    answer = await api.client.post(f"{PATH}/remind/pause", json=body)
    assert (answer.status_code, answer.json()["errorCode"]) == (400, "INVALID_PAYLOAD")
    assert not (await api.client.get(f"{PATH}/remind")).json()["paused"]


async def test_only_operators_may_see_and_decide(api):
    api.client.headers.pop("authorization")
    for method, path in (("GET", ""), ("GET", "/remind"), ("POST", "/remind/run"), ("POST", "/remind/pause")):
        assert (await api.client.request(method, PATH + path)).status_code == 401


async def test_the_routes_are_documented(api):
    paths = (await api.client.get("/openapi.json")).json()["paths"]
    found = {(path, method) for path in paths for method in paths[path] if path.startswith(PATH)}
    steps = {(f"{PATH}/{{name}}/{step}", "post") for step in ("run", "pause", "resume")}
    assert found == {(PATH, "get"), (f"{PATH}/{{name}}", "get")} | steps
