"""Wrong keys and tokens: counted for each address and in all, in a table that does not grow."""

from __future__ import annotations

import pytest

from holdfast.api import wrong_keys
from holdfast.api.errors import Refusal
from holdfast.api.wrong_keys import WrongKeys


class Tries:
    """Wrong keys from addresses, at a time that the test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.counter = WrongKeys(per_minute=6, clock=lambda: self.now)

    async def passed(self, address, times=20):
        """How many of so many wrong keys get their 401."""
        return [await self.once(address) for _ in range(times)].count(None)

    async def once(self, address):
        """The seconds to wait; None if the wrong key was only counted."""
        try:
            await self.counter.count({"client": None if address is None else (address, 4711)})
        except Refusal as refusal:
            return int(refusal.headers["retry-after"])
        return None


@pytest.fixture
def tries(monkeypatch):
    monkeypatch.setattr(wrong_keys, "HOLD_SECONDS", 0)
    return Tries()


async def test_an_address_gets_a_minutes_worth_at_once_and_then_the_rate(tries):
    assert await tries.passed("192.0.2.1") == 6
    assert await tries.once("192.0.2.1") == 10
    with pytest.raises(Refusal) as caught:
        await tries.counter.count({"client": ("192.0.2.1", 4711)})
    assert (caught.value.status, caught.value.code.value) == (429, "TOO_MANY_WRONG_KEYS")
    tries.now += 10
    assert await tries.passed("192.0.2.1") == 1
    assert await tries.passed("192.0.2.2") == 6


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        (None, None, True),
        ("a name", "another name", False),
    ],
)
async def test_an_ipv6_network_counts_as_one_address(tries, first, second, together):
    assert await tries.passed(first) == 6
    assert await tries.passed(second) == (0 if together else 6)


async def test_all_addresses_together_have_a_limit_too(tries):
    passed = 0
    for number in range(1_000):
        passed += await tries.passed(f"198.51.{number // 250}.{number % 250}", 1)
    assert passed == 6 * 50


async def test_the_table_of_addresses_does_not_grow(tries, monkeypatch):
    monkeypatch.setattr(wrong_keys, "_MOST_ADDRESSES", 3)
    for number in range(100):
        await tries.passed(f"198.51.100.{number}", 1)
    assert len(tries.counter._addresses) == 3
    # The address that tries most recently is remembered longest.
    assert list(tries.counter._addresses) == ["198.51.100.97", "198.51.100.98", "198.51.100.99"]
