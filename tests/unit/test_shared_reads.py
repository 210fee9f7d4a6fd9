"""Handlers share their reads: one round trip to the store for the records of many jobs."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.contracts.errors import InvalidQuery, StoreUnavailable
from holdfast.engine.reading import Reading


class ReadRecords:
    """Records that name themselves. ``calls`` has the names of each read."""

    def __init__(self, *, error: Exception | None = None) -> None:
        self.calls: list[list[tuple[str, str]]] = []
        self.open = asyncio.Event()
        self.open.set()
        self._error = error

    async def get_many(self, wanted):
        self.calls.append(list(wanted))
        await self.open.wait()
        if self._error is not None:
            raise self._error
        if ("nowhere", "x") in wanted:
            raise InvalidQuery
        return [None if key == "missing" else {"is": f"{collection}/{key}"} for collection, key in wanted]


async def test_calls_of_one_moment_share_one_read_and_each_gets_its_own_records():
    records = ReadRecords()
    reading = Reading(records)

    first, second = await asyncio.gather(
        reading.get_many([("box", "a"), ("box", "missing"), ("box", "a")]),
        reading.get_many([("bag", "b"), ("box", "a")]),
    )

    assert first == [{"is": "box/a"}, None, {"is": "box/a"}]
    assert second == [{"is": "bag/b"}, {"is": "box/a"}]
    assert records.calls == [[("box", "a"), ("box", "missing"), ("bag", "b")]]


async def test_a_record_is_not_older_than_the_call():
    records = ReadRecords()
    reading = Reading(records)
    records.open.clear()
    early = asyncio.create_task(reading.get_many([("box", "a")]))
    await asyncio.sleep(0.01)

    late = asyncio.create_task(reading.get_many([("box", "a")]))
    await asyncio.sleep(0.01)
    records.open.set()
    await asyncio.gather(early, late)

    assert len(records.calls) == 2


async def test_a_call_that_cannot_be_answered_does_not_fail_the_others():
    reading = Reading(ReadRecords())

    bad, good = await asyncio.gather(
        reading.get_many([("nowhere", "x")]), reading.get_many([("box", "a")]), return_exceptions=True
    )

    assert isinstance(bad, InvalidQuery)
    assert good == [{"is": "box/a"}]


async def test_when_the_store_is_away_every_call_is_told_at_once():
    records = ReadRecords(error=StoreUnavailable())
    reading = Reading(records)

    answers = await asyncio.gather(*(reading.get_many([("box", "a")]) for _ in range(3)), return_exceptions=True)

    assert [type(each) for each in answers] == [StoreUnavailable] * 3
    assert len(records.calls) == 1


async def test_a_caller_that_was_cancelled_does_not_disturb_the_others():
    records = ReadRecords()
    reading = Reading(records)
    records.open.clear()
    gone = asyncio.create_task(reading.get_many([("box", "a")]))
    stays = asyncio.create_task(reading.get_many([("box", "b")]))
    await asyncio.sleep(0.01)

    gone.cancel()
    records.open.set()

    assert await stays == [{"is": "box/b"}]
    with pytest.raises(asyncio.CancelledError):
        await gone
