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

    def passed(self, address, times=20):
        """How many of so many wrong keys get their 401."""
        return sum(self.once(address) is None for _ in range(times))

    def once(self, address):
        """The seconds to wait; None if the wrong key was only counted."""
        try:
            self.counter.count({"client": None if address is None else (address, 4711)})
        except Refusal as refusal:
            return int(refusal.headers["retry-after"])
        return None


@pytest.fixture
def tries():
    return Tries()


def test_an_address_gets_a_minutes_worth_at_once_and_then_the_rate(tries):
    assert tries.passed("192.0.2.1") == 6
    assert tries.once("192.0.2.1") == 10
    with pytest.raises(Refusal) as caught:
        tries.counter.count({"client": ("192.0.2.1", 4711)})
    assert (caught.value.status, caught.value.code.value) == (429, "TOO_MANY_WRONG_KEYS")
    tries.now += 10
    assert tries.passed("192.0.2.1") == 1
    assert tries.passed("192.0.2.2") == 6


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
def test_an_ipv6_network_counts_as_one_address(tries, first, second, together):
    assert tries.passed(first) == 6
    assert tries.passed(second) == (0 if together else 6)


def test_all_addresses_together_have_a_limit_too(tries):
    passed = sum(tries.passed(f"198.51.{number // 250}.{number % 250}", 1) for number in range(1_000))
    assert passed == 6 * 50


def test_the_table_of_addresses_does_not_grow(tries, monkeypatch):
    monkeypatch.setattr(wrong_keys, "_MOST_ADDRESSES", 3)
    for number in range(100):
        tries.passed(f"198.51.100.{number}", 1)
    assert len(tries.counter._addresses) == 3
    # The address that tries most recently is remembered longest.
    assert list(tries.counter._addresses) == ["198.51.100.97", "198.51.100.98", "198.51.100.99"]
