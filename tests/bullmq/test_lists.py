"""The plain lists beside the queues, on a real server: taken jobs are kept, and a letter is sent once."""

from __future__ import annotations

import contextlib
import uuid
from datetime import timedelta

import pytest
from redis import Redis

from holdfast.brokers.bullmq import RedisLists
from holdfast.contracts.errors import StoreUnavailable
from holdfast.features.documents.adopting import ListReader

NOW, SOON, DAY = timedelta(milliseconds=1), timedelta(seconds=10), timedelta(days=1)


class Place:
    """Two lists that no other test uses."""

    def __init__(self, url: str, redis: Redis) -> None:
        self.url, self.redis = url, redis
        self.jobs, self.letters = f"jobs-{uuid.uuid4().hex}", f"letters-{uuid.uuid4().hex}"
        self.opened: list[RedisLists] = []

    def open(self, prefix: str = "bull") -> RedisLists:
        self.opened.append(RedisLists(self.url, prefix, jobs=self.jobs, letters=self.letters))
        return self.opened[-1]

    def sent(self) -> list[bytes]:
        return self.redis.lrange(self.letters, 0, -1)[::-1]


@pytest.fixture
async def place(redis_server):
    with contextlib.closing(Redis.from_url(redis_server.url)) as redis:
        place = Place(redis_server.url, redis)
        yield place
        for each in place.opened:
            await each.close()
        for name in (place.jobs, place.letters):
            for key in (name, *redis.scan_iter(f"{{{name}}}:*")):
                redis.delete(key)


async def test_jobs_are_taken_oldest_first_and_kept_until_they_are_removed(place):
    lists = place.open()
    place.redis.lpush(place.jobs, *(f"job {number}" for number in range(5)))

    assert await lists.take(3, SOON) == [b"job 0", b"job 1", b"job 2"]
    assert await lists.take(9, SOON) == [b"job 3", b"job 4"]
    assert await lists.take(9, NOW) == []
    assert await lists.taken(2) == [b"job 0", b"job 1"]
    await lists.remove([b"job 1", b"job 4", b"unknown"])
    assert await place.open().taken(9) == [b"job 0", b"job 2", b"job 3"]


async def test_bytes_that_are_no_text_are_taken_and_removed_as_they_are(place):
    lists = place.open()
    place.redis.lpush(place.jobs, b"\xff\x00\r\n")
    assert await lists.take(1, SOON) == [b"\xff\x00\r\n"]
    await lists.remove([b"\xff\x00\r\n"])
    assert await lists.taken(9) == []


async def test_of_equal_jobs_one_is_removed_at_a_time(place):
    lists = place.open()
    place.redis.lpush(place.jobs, "same", "same")
    assert await lists.take(9, SOON) == [b"same", b"same"]
    await lists.remove([b"same"])
    assert await lists.taken(9) == [b"same"]


async def test_another_installation_does_not_see_what_this_one_has_taken(place):
    place.redis.lpush(place.jobs, "job")
    await place.open("ours").take(1, SOON)
    assert await place.open("theirs").taken(9) == []


async def test_a_letter_is_sent_once_whoever_sends_it(place):
    letters = {f"dl_{number}": f"letter {number}" for number in range(120)}
    assert await place.open().send(letters, DAY)
    assert place.sent() == [text.encode() for text in letters.values()]
    assert place.redis.brpop([place.letters])[1] == b"letter 0"

    assert await place.open().send(letters | {"dl_new": "new"}, DAY)
    assert place.sent() == [*(text.encode() for text in letters.values()), b"new"][1:]


async def test_the_ids_of_sent_letters_are_forgotten_after_a_while(place):
    lists = place.open()
    await lists.send({"dl_1": "letter"}, DAY)
    (marks,) = place.redis.scan_iter(f"{{{place.letters}}}:*")
    assert 0 < place.redis.pttl(marks) <= DAY.total_seconds() * 1000
    place.redis.zadd(marks, {"dl_1": 0})
    await lists.send({"dl_2": "letter"}, DAY)
    assert place.redis.zrange(marks, 0, -1) == [b"dl_2"]


async def test_what_somebody_else_keeps_in_the_place_of_the_list_is_left_alone(place):
    place.redis.set(place.letters, "theirs")
    assert not await place.open().send({"dl_1": "letter"}, DAY)
    assert place.redis.get(place.letters) == b"theirs"
    place.redis.delete(place.letters)
    assert await place.open().send({"dl_1": "letter"}, DAY)
    assert place.sent() == [b"letter"]


async def test_a_job_that_could_not_be_recorded_stays_taken_and_comes_first_again(place):
    given, away = [], True

    async def adopt(texts):
        given.append(list(texts))
        if away:
            raise StoreUnavailable

    lists = place.open()
    reader = ListReader(lists, adopt, DAY)
    place.redis.lpush(place.jobs, "one")
    with pytest.raises(StoreUnavailable):
        await reader.step()
    place.redis.lpush(place.jobs, "two")
    assert await lists.taken(9) == [b"one"]

    away = False
    await reader.step()
    await reader.step()
    assert given == [["one"], ["one"], ["two"]]
    assert await lists.taken(9) == []


async def test_what_is_taken_for_a_while_is_recorded_by_another_reader(place):
    given = []

    async def adopt(texts):
        given.extend(texts)

    place.redis.lpush(place.jobs, "left")
    await place.open().take(1, SOON)  # by a process that dies
    lists = place.open()
    reader = ListReader(lists, adopt, timedelta(0))
    place.redis.lpush(place.jobs, "new")
    await reader.step()  # the first look: another reader may still be recording the job
    assert given == ["new"]
    await reader.step()
    assert given == ["new", "left"]
    assert await lists.taken(9) == []
