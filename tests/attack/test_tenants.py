"""One tenant, or one courier, sends as much as it can: the others keep what is theirs (I18)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest

from holdfast.contracts.tenants import TenantLimits
from holdfast.features.courier.signatures import sign
from tests.api.courier_api import event
from tests.support.attacked import SECRETS, Attacked, attacked
from tests.support.callers import Caller, calling
from tests.support.pulse import pulse
from tests.support.waiting import eventually

RATE = 12
PENDING = 10
STREAMS = 4
SETTINGS = {
    "TENANT_REQUESTS_PER_SECOND": str(RATE),
    "COURIER_REQUESTS_PER_SECOND": str(RATE),
    "TENANT_STREAMS": str(STREAMS),
}
HONEST_EVERY = 0.1
HONEST_REQUESTS = 15
"""Below the rate of a tenant, and little enough for a machine that is busy with other things."""
FLOODERS = 8
MOMENTS = 3
"""How often a rate is measured at most: the load of the machine itself may change between two measurements."""
SLOW = 3
"""Requests per second of the tenant that floods: what it may do must be less than all that a busy machine can do."""
DEFAULT = TenantLimits()
LEAST_SHARE = 0.5
UNLIMITED = TenantLimits(requests_per_second=1_000_000, pending=PENDING)
PROMISED = 1.0
"""Seconds until a revoked key is refused everywhere, and until its streams end."""
SLACK = 5.0
"""Seconds that a noisy machine may take longer."""


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """One API on a SQLite file."""
    with attacked(tmp_path_factory.mktemp("embedded"), SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(valkey, mongo, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """Two APIs on one Redis and one MongoDB."""
    name = f"hf{uuid.uuid4().hex[:12]}"
    place = {"REDIS_URL": valkey.url, "QUEUE_PREFIX": name, "MONGO_URI": mongo.uri, "MONGO_DB_NAME": name}
    with attacked(tmp_path_factory.mktemp("cluster"), SETTINGS | place, processes=2) as running:
        yield running


@pytest.fixture(params=["embedded", "cluster"])
def gateway(request: pytest.FixtureRequest) -> Attacked:
    """Both deployments. What a process counts in its memory is the same in both: for that, one is enough."""
    return request.getfixturevalue(request.param)


# --- floods -----------------------------------------------------------------------------------------------------------


async def paced(caller: Caller, send) -> tuple[float, Counter[str]]:
    """An honest sender: its rate, and the codes of its answers."""
    clock = asyncio.get_running_loop().time
    began, codes = clock(), Counter()
    for number in range(HONEST_REQUESTS):
        await asyncio.sleep(max(0.0, began + number * HONEST_EVERY - clock()))
        codes[(await send(caller)).code] += 1
    return HONEST_REQUESTS / (clock() - began), codes


@contextlib.asynccontextmanager
async def flooded(port: int, key: str, send, connections: int = FLOODERS) -> AsyncIterator[Counter[str]]:
    """Connections that send as fast as they are answered, until the block ends."""
    codes: Counter[str] = Counter()
    over = asyncio.Event()

    async def flood() -> None:
        async with calling(port, key) as caller:
            while not over.is_set():
                answer = await send(caller)
                codes[answer.code] += 1
                if answer.status == 429:
                    assert answer.retry_after >= 1

    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(flood())
        try:
            yield codes
        finally:
            over.set()


async def share_kept(caller: Caller, send, flood) -> tuple[float, Counter[str], float]:
    """The share of its rate that an honest sender keeps, what the flood was told, and how long it took.

    No answer to the honest sender is an error.
    """
    best = 0.0
    for _ in range(MOMENTS):
        alone, usual = await paced(caller, send)
        began = time.monotonic()
        async with flood() as codes:
            rate, answers = await paced(caller, send)
        took = time.monotonic() - began
        assert answers == usual
        assert answers.keys() <= {"200", "202"}
        best = max(best, rate / alone)
        if best >= LEAST_SHARE:
            return best, codes, took
    message = f"the honest sender kept {best:.0%} of its rate"
    raise AssertionError(message)


async def test_a_flood_of_one_tenant_leaves_another_its_rate(gateway, rounds, tell):
    # A busy machine is slow with emails in a cluster.
    send = Caller.send_email if len(gateway.ports) == 1 else Caller.list_emails
    flooding, honest = await gateway.tenants(TenantLimits(requests_per_second=SLOW), DEFAULT)
    async with calling(gateway.port, honest.key) as caller, pulse(gateway.port) as pulses:
        for _ in range(rounds):
            kept, codes, took = await share_kept(caller, send, partial(flooded, gateway.port, flooding.key, send))
            passed = codes.total() - codes["TOO_MANY_PER_SECOND"]
            assert codes["TOO_MANY_PER_SECOND"]
            # The burst, and the rate for as long as it took.
            assert passed <= SLOW * (2 + took) + 1
    figures = {"tried": codes.total(), "got through": passed, "honest rate kept": f"{kept:.0%}"}
    tell(figures | {"longest wait": f"{pulses.longest * 1_000:.0f} ms"})


def event_of(source: str):
    async def send(caller: Caller):
        body = json.dumps(event(eventId=uuid.uuid4().hex, source=source)).encode()
        at = int(time.time())
        signed = {"x_signature_timestamp": str(at), "x_signature": sign(SECRETS[source], at, body)}
        return await caller.ask("POST", "/v1/events/courier", body, **signed)

    return send


async def test_a_flood_of_one_courier_leaves_another_its_rate(embedded, rounds, tell):
    async with calling(embedded.port) as caller, pulse(embedded.port) as pulses:
        for _ in range(rounds):
            flood = partial(flooded, embedded.port, "", event_of("courier-x"))
            kept, codes, _ = await share_kept(caller, event_of("courier-y"), flood)
            assert codes["TOO_MANY_PER_SECOND"]
    figures = {"tried": codes.total(), "got through": codes["202"], "honest rate kept": f"{kept:.0%}"}
    tell(figures | {"longest wait": f"{pulses.longest * 1_000:.0f} ms"})


async def test_one_tenants_batches_leave_places_for_others_to_wait_for_a_commit(embedded, tell):
    batches, honest = await embedded.tenants(UNLIMITED, DEFAULT)
    codes: Counter[str] = Counter()

    async def send_batches(caller: Caller):
        answer = await caller.send_emails(5 * PENDING)
        codes.update(each["answer"].get("errorCode", "202") for each in answer.document["answers"])
        return answer

    async with (
        calling(embedded.port, honest.key) as caller,
        pulse(embedded.port),
        flooded(embedded.port, batches.key, send_batches, connections=1),
    ):
        _, answers = await paced(caller, Caller.send_email)
    assert answers == {"202": HONEST_REQUESTS}
    # A batch never reaches the limit of the whole process.
    assert set(codes) == {"TOO_MANY_PENDING", "202"}
    tell({"tried": codes.total(), "got through": codes["202"]})


async def test_the_emails_of_a_batch_count_like_requests(embedded):
    (sender,) = await embedded.tenants(TenantLimits(requests_per_second=1))
    async with calling(embedded.port, sender.key) as caller:
        assert (await caller.send_emails(8)).status == 207
        refusal = await caller.list_emails()
    assert refusal.code == "TOO_MANY_PER_SECOND"
    # Two seconds' worth were free. A slow machine earns a few more while it works.
    assert 1 <= refusal.retry_after <= 7


# --- waiting jobs -----------------------------------------------------------------------------------------------------


async def test_a_tenant_has_so_many_unfinished_jobs_and_no_more(gateway, tell):
    most = 5
    hoarding, honest = await gateway.tenants(TenantLimits(waiting_jobs=most), DEFAULT)
    codes: Counter[str] = Counter()
    async with contextlib.AsyncExitStack() as stack, pulse(gateway.port):
        callers = [await stack.enter_async_context(calling(port, hoarding.key)) for port in gateway.ports]
        for caller in callers:
            for _ in range(2 * most):
                answer = await caller.send_email()
                codes[answer.code] += 1
            assert answer.code == "TOO_MANY_WAITING"
            assert answer.retry_after >= 1
        # A file is refused before it is stored.
        assert (await callers[0].upload(uuid.uuid4().hex)).code == "TOO_MANY_WAITING"
        neighbour = await stack.enter_async_context(calling(gateway.port, honest.key))
        assert (await neighbour.send_email()).status == 202

        # The second process counts before its first job, so even all of them together accept no more.
        assert codes["202"] == most
        async with gateway.system() as system:
            assert await system.services.limits.count_unsettled(hoarding.company_id) == most
            await system.tenants.set_limits(hoarding.company_id, TenantLimits(waiting_jobs=most + 1))
        more = await eventually(lambda: accepted(callers[0]))
        assert more.status == 202
    tell({"tried": codes.total(), "got through": codes["202"] - most})


async def accepted(caller: Caller):
    """The answer to an email, once it is accepted."""
    answer = await caller.send_email()
    return answer if answer.status == 202 else None


# --- streams ----------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def streams_of(gateway: Attacked, key: str, number: int) -> AsyncIterator[list[Caller]]:
    """So many open streams in each process, of one job."""
    job_id = uuid.uuid4().hex
    async with contextlib.AsyncExitStack() as stack:
        sender = await stack.enter_async_context(calling(gateway.port, key))
        assert (await sender.upload(job_id)).status == 202
        callers = [await stack.enter_async_context(calling(port, key)) for port in gateway.ports for _ in range(number)]
        for caller in callers:
            assert await caller.watch(job_id) is None
        refused = await stack.enter_async_context(calling(gateway.port, key))
        if number == STREAMS:
            answer = await refused.watch(job_id)
            assert answer is not None
            assert (answer.status, answer.code) == (429, "TOO_MANY_STREAMS")
            assert answer.retry_after >= 1
        yield callers


async def test_one_tenant_cannot_take_all_streams(gateway):
    greedy, honest = await gateway.tenants(DEFAULT, DEFAULT)
    async with pulse(gateway.port), streams_of(gateway, greedy.key, STREAMS), streams_of(gateway, honest.key, 1):
        pass
    # Those that were closed are free again.
    async with streams_of(gateway, greedy.key, STREAMS):
        pass


@pytest.mark.parametrize("step", ["revoke", "deactivate"])
async def test_the_streams_of_a_key_that_is_taken_away_end_within_a_second(gateway, step, tell):
    watching, honest = await gateway.tenants(DEFAULT, DEFAULT)
    clock = asyncio.get_running_loop().time
    async with streams_of(gateway, honest.key, 1) as others, streams_of(gateway, watching.key, 2) as callers:
        async with gateway.system() as system:
            if step == "revoke":
                await system.tenants.revoke(watching.key_id)
            else:
                await system.tenants.set_active(watching.company_id, active=False)
            began = clock()
            async with asyncio.timeout(PROMISED + SLACK):
                ends = await asyncio.gather(*(ended_at(caller) for caller in callers))
                for port in gateway.ports:
                    async with calling(port, watching.key) as again:
                        answer = await eventually(lambda again=again: refused(again))
                        assert answer.code == ("INVALID_API_KEY" if step == "revoke" else "TENANT_INACTIVE")
        # The streams of others go on.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await others[0].ended()
    tell({"longest until the end of a stream": f"{max(ends) - began:.2f} s"})


async def test_an_activated_tenant_works_as_before(gateway):
    (returning,) = await gateway.tenants(DEFAULT)
    async with calling(gateway.port, returning.key) as caller, gateway.system() as system:
        await system.tenants.set_active(returning.company_id, active=False)
        assert (await eventually(lambda: refused(caller))).status == 403
        await system.tenants.set_active(returning.company_id, active=True)
        assert (await eventually(lambda: accepted(caller))).status == 202


async def ended_at(caller: Caller) -> float:
    await caller.ended()
    return asyncio.get_running_loop().time()


async def refused(caller: Caller):
    """The answer to a request, once it is refused."""
    answer = await caller.ask("GET", "/v1/email")
    return answer if answer.status != 200 else None
