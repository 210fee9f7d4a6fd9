"""Tenants and couriers that try to learn about each other, and to take what belongs to each other (I18).

Each answer to an attacker about something of a neighbour must be the answer about something that does not exist.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.contracts.queries import LetterQuery, Page
from holdfast.features.email.records import SuppressionReason
from holdfast.wiring import open_system
from tests.api.courier_api import event, signed
from tests.api.document_api import a_pdf
from tests.api.email_api import an_email
from tests.support.counted_work import app
from tests.support.email_traffic import mail_settings
from tests.support.load import SECRET, SOURCE
from tests.support.pulse import pulse
from tests.support.running_cluster import running_cluster
from tests.support.running_gateway import running_gateway
from tests.support.settings import load
from tests.support.waiting import eventually

OCR = {"job_type": "OCR", "input_type": "PDF"}
RIVAL, RIVAL_SECRET = "courier-y", "v9Tm3Kx7Rq2Wb6Zp5Hd1"
ADDRESS = "complained@example.com"
JOBS = 4
JOBS_PATH = "/v1/jobs/counted"
SHIPMENTS = 8
_NAMES_AND_TIMES = ("_at", "At", "Id")


@dataclass
class Neighbours:
    """A running API with two tenants."""

    client: httpx.AsyncClient
    keys: Mapping[str, str]
    folders: Mapping[str, Path]
    company_ids: Mapping[str, str]

    @property
    def port(self) -> int:
        return self.client.base_url.port or 0

    async def ask(self, who: str, method: str, path: str, **request: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.keys[who]}", **request.pop("headers", {})}
        return await self.client.request(method, path, headers=headers, **request)

    async def upload(self, who: str, content: bytes, job_id: str) -> httpx.Response:
        form = OCR | {"job_id": job_id}
        return await self.ask(who, "POST", "/v1/documents", data=form, files={"file": ("a.pdf", content)})

    async def job(self, who: str, key: str, text: str = "") -> httpx.Response:
        return await self.ask(who, "POST", JOBS_PATH, json={"key": key, "text": text})

    async def email(self, who: str, key: str, **changes: Any) -> httpx.Response:
        return await self.ask(who, "POST", "/v1/email/send", json=an_email(**changes), headers={"idempotency-key": key})


@contextlib.asynccontextmanager
async def running(deployment: str, request: pytest.FixtureRequest, folder: Path, **settings: str) -> AsyncIterator[Any]:
    if deployment == "embedded":
        async with running_gateway(folder, 0, **settings) as gateway:
            yield gateway
    else:
        async with running_cluster(folder, 0, request.getfixturevalue("mongo"), **settings) as gateway:
            yield gateway


@contextlib.asynccontextmanager
async def neighbours(deployment: str, request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Neighbours]:
    async with running(deployment, request, folder, **mail_settings(9)) as gateway:
        keys, roots = {}, {}
        async with open_system(load(gateway.fleet.environment, folder), app) as system:
            for who in ("victim", "attacker"):
                company_id = (await system.tenants.add(who)).company_id
                _, keys[who] = await system.tenants.create_key(company_id)
                roots[company_id] = folder / f"root-{who}"
                roots[company_id].mkdir()
                (roots[company_id] / "there.pdf").write_bytes(a_pdf())
                if who == "victim":
                    await system.service("email").suppressions.add(
                        [ADDRESS],
                        SuppressionReason.COMPLAINT,
                        detail=None,
                        source="ses",
                        now=system.ambient.clock.now(),
                        tenants=[company_id],
                    )
        started = await gateway.fleet.start(
            "api",
            DOCUMENT_ROOTS=",".join(f"{company_id}={root}" for company_id, root in roots.items()),
            DOCUMENT_LOCAL_PATH_OVER_HTTP="true",
        )
        async with httpx.AsyncClient(base_url=started.address, timeout=60) as client:
            names = ("victim", "attacker")
            company_ids = dict(zip(names, roots, strict=True))
            yield Neighbours(client, keys, dict(zip(names, roots.values(), strict=True)), company_ids)


def shape(answer: httpx.Response, *names: str) -> tuple[int, str]:
    """What an answer tells: its status and its body, without its names of things and without times."""
    body = answer.text
    for each in names:
        body = body.replace(each, "<name>")
    facts = {name: value for name, value in json.loads(body).items() if not name.endswith(_NAMES_AND_TIMES)}
    return answer.status_code, json.dumps(facts, sort_keys=True)


async def job_ids_of(tenant: str, ask) -> set[str]:
    """The ids of all documents of the tenant, page by page."""
    found, cursor = set(), {}
    while True:
        page = (await ask(tenant, "GET", "/v1/documents", params={"limit": 100} | cursor)).json()
        found |= {each["job_id"] for each in page["items"]}
        if page["next"] is None:
            return found
        cursor = {"cursor": page["next"]}


@pytest.mark.parametrize("deployment", ["embedded", "cluster"])
async def test_a_tenant_learns_nothing_about_another_and_takes_nothing_from_it(
    deployment, request, tmp_path, rounds, tell
):
    tried, through = 0, []
    async with neighbours(deployment, request, tmp_path) as gateway, pulse(gateway.port) as taken:
        ask, upload = gateway.ask, gateway.upload
        for number in range(JOBS * rounds):
            theirs, nobodys, squatted = f"case-{number}", f"free-{number}", f"next-{number}"
            content = a_pdf()
            assert (await upload("victim", content, theirs)).status_code == 202
            sent = (await gateway.email("victim", theirs)).json()["outboxId"]

            # Look at what is the neighbour's, and at what is nobody's.
            document = [("GET", ""), ("GET", "/result"), ("GET", "/text"), ("GET", "/events"), ("POST", "/cancel")]
            looks = [(method, f"/v1/documents/{{}}{part}", theirs, nobodys) for method, part in document]
            looks += [
                (method, f"/v1/email/{{}}{part}", sent, str(uuid.uuid4()))
                for method, part in (("GET", ""), ("POST", "/cancel"))
            ]
            for method, path, there, absent in looks:
                tried += 1
                seen = shape(await ask("attacker", method, path.format(there)), there)
                if seen != shape(await ask("attacker", method, path.format(absent)), absent) or seen[0] != 404:
                    through.append((method, path, seen))

            # Send under the neighbour's ids, the same content and another, and under a free id.
            for body in (content, a_pdf()):
                tried += 1
                theirs_again = shape(await upload("attacker", body, theirs), theirs)
                free = shape(await upload("attacker", body, nobodys), nobodys)
                if theirs_again != free:
                    through.append(("upload", theirs_again, free))
            tried += 1
            if shape(await gateway.email("attacker", theirs)) != shape(await gateway.email("attacker", nobodys)):
                through.append(("email", theirs))

            # Take an id before the neighbour does.
            tried += 1
            await upload("attacker", a_pdf(), squatted)
            first = await upload("victim", a_pdf(), squatted)
            if (first.status_code, first.json()["duplicate"]) != (202, False):
                through.append(("squat", first.text))
            assert (await ask("victim", "GET", f"/v1/documents/{theirs}")).json()["status"] == "PENDING"

            # The neighbour's folder: what is there, and what is not.
            tried += 1
            paths = [str(gateway.folders["victim"] / name) for name in ("there.pdf", "missing.pdf")]
            asked = [await ask("attacker", "POST", "/v1/documents", json=OCR | {"local_path": each}) for each in paths]
            found = [shape(answer, path) for answer, path in zip(asked, paths, strict=True)]
            if found[0] != found[1] or found[0][0] != 422:
                through.append(("local_path", found))
        own = {"local_path": str(gateway.folders["attacker"] / "there.pdf")}
        assert (await ask("attacker", "POST", "/v1/documents", json=OCR | own)).status_code == 202

        # The neighbour's recipients.
        tried += 1
        assert (await gateway.email("victim", "to-complained", to=ADDRESS)).status_code == 422
        listed = await gateway.email("attacker", "to-complained", to=ADDRESS)
        other = await gateway.email("attacker", "to-somebody", to="somebody@example.com")
        if shape(listed, ADDRESS) != shape(other, "somebody@example.com"):
            through.append(("suppressed", listed.text))

        victims = await job_ids_of("victim", ask)
        assert victims == {f"{name}-{number}" for name in ("case", "next") for number in range(JOBS * rounds)}
    tell({"tried": tried, "got through": len(through), "longest wait": f"{taken.longest * 1000:.0f} ms"})
    assert through == []


@pytest.mark.parametrize("deployment", ["embedded", "cluster"])
async def test_tenants_meet_under_no_key_of_a_workload_of_ones_own(deployment, request, tmp_path, rounds, tell):
    tried, through = 0, []
    async with neighbours(deployment, request, tmp_path) as gateway, pulse(gateway.port) as taken:
        ask, job, victim = gateway.ask, gateway.job, gateway.company_ids["victim"]
        for number in range(JOBS * rounds):
            theirs, nobodys, squatted = f"case-{number}", f"free-{number}", f"next-{number}"
            assert (await job("victim", theirs)).status_code == 202

            # Look at what is the neighbour's, under both of its names, and at what is nobody's.
            looks = [("GET", ""), ("GET", "?wait=1"), ("GET", "/events"), ("POST", "/cancel")]
            for (method, part), there in product(looks, (theirs, f"{victim}:{theirs}")):
                tried += 1
                seen = shape(await ask("attacker", method, f"{JOBS_PATH}/{there}{part}"), there)
                absent = shape(await ask("attacker", method, f"{JOBS_PATH}/{nobodys}{part}"), nobodys)
                through += [(method, part, seen)] if seen != absent or seen[0] != 404 else []

            # Send under the neighbour's key and under a free one; and take a key before the neighbour does.
            for text in ("", "another content"):
                tried += 1
                again = shape(await job("attacker", theirs, text), theirs)
                through += [("job", again)] if again != shape(await job("attacker", nobodys, text), nobodys) else []
            await job("attacker", squatted)
            first = await job("victim", squatted, "the victim's own")
            through += [("squat", first.text)] if (first.status_code, first.json()["duplicate"]) != (202, False) else []
            assert (await ask("victim", "GET", f"{JOBS_PATH}/{theirs}")).json()["status"] == "received"

        wanted = {"limit": 200, "label": f"companyId={victim}"}
        listed = (await ask("attacker", "GET", JOBS_PATH, params=wanted)).json()["items"]
        through += [each for each in listed if each["labels"]["companyId"] == victim]
        assert len(listed) == 3 * JOBS * rounds
        own = (await ask("victim", "GET", JOBS_PATH, params={"limit": 200})).json()["items"]
        assert len(own) == 2 * JOBS * rounds
    tell({"tried": tried, "got through": len(through), "longest wait": f"{taken.longest * 1000:.0f} ms"})
    assert through == []


@pytest.mark.parametrize("deployment", ["embedded", "cluster"])
async def test_a_courier_moves_no_shipment_of_another(deployment, request, tmp_path, rounds, tell):
    """Both send their first events at the same time, with two workers: each shipment has one owner."""
    secrets = {SOURCE: SECRET, RIVAL: RIVAL_SECRET}
    settings = {
        "COURIER_SECRETS": json.dumps({source: [secret] for source, secret in secrets.items()}),
        "COURIER_SHIPMENT_OWNER": "source",
    }
    async with running(deployment, request, tmp_path, **settings) as gateway:
        first, _ = await asyncio.gather(*(gateway.fleet.start("api", "worker") for _ in range(2)))
        client = httpx.AsyncClient(base_url=first.address, timeout=60)
        async with client, pulse(client.base_url.port) as taken:

            async def send(source: str, shipment: str) -> None:
                fact = event(source=source, payload={"shipmentId": shipment, "status": f"moved_by_{source[-1]}"})
                body = json.dumps(fact).encode()
                headers = signed(body, secret=secrets[source])
                answer = await client.post("/v1/events/courier", content=body, headers=headers)
                assert answer.status_code == 202, answer.text

            shipments = [f"race-{number}" for number in range(SHIPMENTS * rounds)]
            await asyncio.gather(*(send(source, each) for each in shipments for source in secrets))
            await gateway.drained()
            for each in shipments:  # and once more, now that the owner is known
                await asyncio.gather(*(send(source, each) for source in secrets))
            await gateway.drained()
        async with open_system(load(gateway.fleet.environment, tmp_path), app) as system:
            records = [await system.store.get("active_shipments", each) for each in shipments]

            async def letters() -> list[Any]:
                found = await system.store.letters(LetterQuery(workload="courier"), Page(1_000))
                return list(found.items)

            found = await eventually(letters)
        assert {each.reason_code for each in found} == {"SHIPMENT_OF_ANOTHER_SOURCE"}
        moved = [each for each in records if each["currentState"][-1] != each["source"][-1]]
        owners = {each["shipmentId"]: each["source"] for each in records}
        wrong = [each for each in found if owners[each.labels["shipmentId"]] == each.labels["source"]]
    tell({"tried": 2 * len(shipments), "got through": len(moved), "longest wait": f"{taken.longest * 1000:.0f} ms"})
    assert (moved, wrong) == ([], [])
    assert len(found) == 2 * len(shipments), "each shipment has one owner, and refused the other courier twice"
