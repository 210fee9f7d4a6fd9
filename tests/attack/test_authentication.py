"""Wrong keys and tokens, from one address and from many: right ones pass all the time (I18)."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest

from holdfast.contracts.tenants import TenantLimits
from tests.cli.commands import TOKEN
from tests.support.attacked import SECRETS, Attacked, attacked
from tests.support.callers import Caller, calling
from tests.support.pulse import pulse

PER_ADDRESS = 4
IN_ALL = 50 * PER_ADDRESS
WRONG = {
    "/v1/email": ("INVALID_API_KEY", "hf_0123456789abcdef_canaryWrongKey000000000000000000000000000000000"),
    "/v1/dead-letters": ("UNAUTHORIZED", "canary-wrong-token-3Kd8Wm1Qz6"),
}
RIGHT = 10


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    with attacked(tmp_path_factory.mktemp("authentication"), {"AUTH_FAILURES_PER_MINUTE": str(PER_ADDRESS)}) as running:
        yield running


@pytest.fixture
async def key(gateway) -> str:
    (tenant,) = await gateway.tenants(TenantLimits())
    return tenant.key


async def test_who_tries_a_known_key_with_a_wrong_secret_learns_nothing(gateway, key):
    unknown = f"hf_{uuid.uuid4().hex[:16]}_{key.split('_', 2)[2]}"
    wrong = key[:-1] + ("A" if key[-1] != "A" else "B")
    bodies = set()
    for number, each in enumerate((unknown, wrong)):
        async with calling(gateway.port, each, f"127.0.0.{20 + number}") as caller:
            answer = await caller.ask("GET", "/v1/email", x_request_id="same")
            bodies.add((answer.status, answer.body))
    assert len(bodies) == 1


async def tried(port: int, address: str, path: str, times: int) -> Counter[str]:
    """The codes of so many wrong keys from one address."""
    codes: Counter[str] = Counter()
    async with calling(port, WRONG[path][1], address) as caller:
        for _ in range(times):
            answer = await caller.ask("GET", path)
            codes[answer.code] += 1
            if answer.status == 429:
                assert answer.retry_after >= 1
            else:
                assert answer.headers["www-authenticate"]
    return codes


@contextlib.asynccontextmanager
async def trying(port: int, address: str, path: str) -> AsyncIterator[Counter[str]]:
    """Wrong keys from one address over several connections, until the block ends."""
    codes: Counter[str] = Counter()
    over = asyncio.Event()

    async def try_on() -> None:
        while not over.is_set():
            codes.update(await tried(port, address, path, 5))

    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(try_on())
        try:
            yield codes
        finally:
            over.set()


@pytest.mark.parametrize(("path", "address"), [("/v1/email", "127.0.0.3"), ("/v1/dead-letters", "127.0.0.4")])
async def test_wrong_keys_from_one_address_are_throttled_and_right_ones_from_it_are_not(
    gateway, key, path, address, rounds, tell
):
    right: Counter[int] = Counter()
    began = time.monotonic()
    async with (
        pulse(gateway.port) as pulses,
        calling(gateway.port, key, address) as tenant,
        calling(gateway.port, TOKEN, address) as operator,
        trying(gateway.port, address, path) as codes,
    ):
        for _ in range(RIGHT * rounds):
            right[(await tenant.ask("GET", "/v1/email")).status] += 1
            right[(await operator.ask("GET", "/v1/dead-letters")).status] += 1
    unthrottled, _ = WRONG[path]
    assert right == {200: 2 * RIGHT * rounds}
    assert set(codes) == {unthrottled, "TOO_MANY_WRONG_KEYS"}
    # The first few, and what is allowed again in the time that it took.
    assert codes[unthrottled] <= PER_ADDRESS * (1 + (time.monotonic() - began) / 60) + 1
    figures = {"tried": codes.total(), "got through": 0, "right keys refused": 0}
    tell(figures | {"longest wait": f"{pulses.longest * 1_000:.0f} ms"})


async def test_wrong_keys_from_many_addresses_are_throttled_in_all(gateway, key, tell):
    addresses = [f"127.0.{number // 200 + 1}.{number % 200 + 1}" for number in range(2 * IN_ALL // PER_ADDRESS)]
    began = time.monotonic()
    async with pulse(gateway.port), calling(gateway.port, key, "127.0.0.5") as tenant:
        found = await asyncio.gather(
            *(tried(gateway.port, address, "/v1/email", PER_ADDRESS) for address in addresses), right(tenant)
        )
    took = time.monotonic() - began
    codes: Counter[str] = sum(found[:-1], Counter())
    assert codes["TOO_MANY_WRONG_KEYS"]
    assert codes["INVALID_API_KEY"] <= IN_ALL * (1 + took / 60) + 1
    # No address alone has reached its limit.
    assert '"wrong_keys_in_all"' in gateway.logs
    tell({"tried": codes.total(), "got through": 0})


async def right(tenant: Caller) -> None:
    for _ in range(RIGHT):
        assert (await tenant.ask("GET", "/v1/email")).status == 200


async def test_no_key_token_or_secret_is_in_the_log(gateway, key):
    """The log has everything, down to ``debug``. What was sent in this module is looked for, right and wrong."""
    async with calling(gateway.port, key, "127.0.0.30") as caller:
        for path in ("/v1/email", "/v1/dead-letters", "/v1/nowhere"):
            await caller.ask("GET", path)
            await caller.ask("GET", path, x_api_key=key)
            await caller.ask("GET", path, authorization=f"Basic {key}")
        await caller.send_email()
        await caller.ask("POST", "/v1/events/courier", b"{}", x_signature="canary-signature-8Xw2Lp5")
    async with calling(gateway.port, TOKEN, "127.0.0.30") as operator:
        await operator.ask("GET", "/v1/dead-letters")
    async with gateway.system() as system:
        key_id = key.split("_")[1]
        await system.tenants.revoke(key_id)
    log = gateway.logs
    assert "job.accepted" in log
    assert "bound.reached" in log
    sent = [key, key.split("_", 2)[2], TOKEN, *SECRETS.values(), "canary"]
    assert [each for each in sent if each in log] == []
