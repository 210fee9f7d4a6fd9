"""Group commit: what arrives during a commit shares the next commit."""

from __future__ import annotations

import asyncio

from holdfast.engine.group_commit import GroupCommit
from tests.support.waiting import eventually


class Commits:
    """Commits that end when the test says so."""

    def __init__(self, most=10, parallel=1, gather=None) -> None:
        self.begun: list[list[str]] = []
        self.gate = asyncio.Event()
        self.group = GroupCommit(most, self._commit, parallel, gather)

    async def _commit(self, batch) -> None:
        self.begun.append(list(batch))
        await self.gate.wait()

    def add(self, items) -> None:
        for item in items:
            self.group.add(item)


async def test_what_arrives_at_once_and_what_arrives_during_a_commit_share_a_commit_each():
    commits = Commits()
    commits.add("ab")
    await eventually(lambda: commits.begun == [["a", "b"]])
    commits.add("cde")
    await asyncio.sleep(0)
    assert commits.begun == [["a", "b"]]
    commits.gate.set()
    await commits.group.idle()
    assert commits.begun == [["a", "b"], ["c", "d", "e"]]


async def test_items_that_come_while_a_batch_gathers_belong_to_it():
    enough = asyncio.Event()
    commits = Commits(gather=enough.wait)
    commits.gate.set()
    commits.add("a")
    await asyncio.sleep(0.01)
    assert (commits.begun, commits.group.waiting) == ([], 1)

    commits.add("b")
    enough.set()
    await commits.group.idle()

    assert commits.begun == [["a", "b"]]


async def test_a_batch_has_a_limit():
    commits = Commits(most=2)
    commits.gate.set()
    commits.add("abcde")
    await commits.group.idle()
    assert commits.begun == [["a", "b"], ["c", "d"], ["e"]]


async def test_so_many_commits_run_at_a_time_and_no_more():
    commits = Commits(parallel=2)
    for item in "abcd":
        commits.add(item)
        await asyncio.sleep(0)
    assert commits.begun == [["a"], ["b"]]
    commits.gate.set()
    await commits.group.idle()
    assert commits.begun == [["a"], ["b"], ["c", "d"]]


async def test_nothing_is_committed_after_a_stop():
    commits = Commits()
    commits.add("a")
    await eventually(lambda: commits.begun == [["a"]])
    commits.add("b")
    await commits.group.stop()
    commits.gate.set()
    await commits.group.idle()
    assert commits.begun == [["a"]]


async def test_a_commit_that_was_stopped_before_it_began_does_not_block_the_next():
    commits = Commits()
    commits.gate.set()
    commits.add("a")
    await commits.group.stop()
    commits.add("b")
    await asyncio.wait_for(commits.group.idle(), 60)
    assert commits.begun == [["b"]]
