"""The writer and the readers: work shares commits and fails alone; several processes share a file (I13)."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import textwrap
import threading

import pytest

from holdfast.contracts import crash_points
from holdfast.contracts.errors import StoreUnavailable
from holdfast.sqlite import Database
from holdfast.sqlite.database import connect
from holdfast.sqlite.executors import InlineExecutor, ThreadExecutor
from tests.support.waiting import eventually


class Spy:
    """A connection that remembers the transactions' borders, and fails them when told to."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.statements: list[str] = []
        self._failure: tuple[str, int] | None = None

    def fail_next(self, border: str, *, after_commits: int) -> None:
        """Let a transaction fail at this border, once so many more have been committed."""
        self._failure = (border, self.commits + after_commits)

    def execute(self, statement, *parameters):
        word = statement.split()[0]
        if self._failure == (word, self.commits):
            self._failure = None
            message = "disk I/O error"
            raise sqlite3.OperationalError(message)
        if word in {"BEGIN", "COMMIT", "ROLLBACK", "PRAGMA"}:
            self.statements.append(statement)
        return self._connection.execute(statement, *parameters)

    def __getattr__(self, name):
        return getattr(self._connection, name)

    @property
    def commits(self) -> int:
        return self.statements.count("COMMIT")


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "executors.db"
    connection = connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE box (name TEXT UNIQUE)")
    connection.close()
    return path


@pytest.fixture
async def executor(path):
    spies = []

    def open_spied():
        spies.append(Spy(connect(path)))
        return spies[0]

    executor = ThreadExecutor(open_spied, writes=True)
    await executor.run(lambda connection: None)
    executor.spy = spies[0]
    executor.spy.statements.clear()
    yield executor
    await executor.close()


def put(name):
    return lambda connection: connection.execute("INSERT INTO box VALUES (?)", (name,)).rowcount


def names(connection):
    return [row[0] for row in connection.execute("SELECT name FROM box ORDER BY name")]


def on_disk(path):
    connection = connect(path)
    try:
        return names(connection)
    finally:
        connection.close()


class Plug:
    """Work that holds the thread until it is pulled, so that other work has to queue up behind it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.pulled = threading.Event()

    def __call__(self, connection):
        self.reached.set()
        assert self.pulled.wait(20)


async def behind_a_plug(executor, *works, durable=True):
    """Submit work while a transaction is under way; returns the results."""
    plug = Plug()
    plugged = asyncio.create_task(executor.run(plug, durable=False))
    await eventually(plug.reached.is_set)
    tasks = [asyncio.create_task(executor.run(work, durable=durable)) for work in works]
    await asyncio.sleep(0)
    plug.pulled.set()
    await plugged
    executor.spy.statements[: executor.spy.statements.index("COMMIT") + 1] = []
    return await asyncio.gather(*tasks, return_exceptions=True)


# --- group commit -----------------------------------------------------------------------------------------------


async def test_work_returns_once_it_is_committed(executor, path):
    assert await executor.run(put("a")) == 1

    assert on_disk(path) == ["a"]
    assert executor.spy.commits == 1


async def test_work_that_arrives_during_a_commit_shares_the_next_one(executor, path):
    results = await behind_a_plug(executor, *(put(f"n{n}") for n in range(50)))

    assert results == [1] * 50
    assert executor.spy.commits == 1
    assert len(on_disk(path)) == 50


async def test_a_commit_has_a_largest_size(executor):
    await behind_a_plug(executor, *(put(f"n{n}") for n in range(150)))

    assert executor.spy.commits == 3


async def test_work_runs_in_the_order_of_its_submission(executor):
    order = []

    await behind_a_plug(executor, *(lambda connection, n=n: order.append(n) for n in range(100)))

    assert order == list(range(100))


async def test_work_that_fails_is_rolled_back_alone(executor, path):
    def half_done(connection):
        put("half")(connection)
        message = "on second thoughts"
        raise LookupError(message)

    results = await behind_a_plug(executor, put("a"), half_done, put("b"), put("a"), put("c"))

    assert results[0] == results[2] == results[4] == 1
    assert isinstance(results[1], LookupError)
    assert isinstance(results[3], sqlite3.IntegrityError)
    assert executor.spy.commits == 1
    assert on_disk(path) == ["a", "b", "c"]


@pytest.mark.parametrize("border", ["BEGIN", "COMMIT"])
async def test_a_transaction_that_fails_fails_all_its_work(executor, path, border):
    """The plug is pulled and the failure ordered in one go, so that it hits the transaction after the plug's own."""
    plug = Plug()
    plugged = asyncio.create_task(executor.run(plug))
    await eventually(plug.reached.is_set)
    tasks = [asyncio.create_task(executor.run(put(name))) for name in ("a", "b")]
    await asyncio.sleep(0)
    executor.spy.fail_next(border, after_commits=1)
    plug.pulled.set()

    results = await asyncio.gather(plugged, *tasks, return_exceptions=True)

    assert results[0] is None
    assert [type(result) for result in results[1:]] == [StoreUnavailable] * 2
    assert on_disk(path) == []
    assert await executor.run(put("c")) == 1
    assert on_disk(path) == ["c"]


async def test_a_disk_that_fills_up_during_the_work_is_an_outage(executor, path):
    def fills_up(connection):
        put("half")(connection)
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    results = await behind_a_plug(executor, put("a"), fills_up)

    assert (results[0], type(results[1])) == (1, StoreUnavailable)
    assert on_disk(path) == ["a"]


@pytest.mark.parametrize("statement", ["INSERT INTO box VALUES ('a')", "SELECT json('{')", "SELECT * FROM nowhere"])
async def test_what_the_work_itself_did_wrong_is_no_outage(executor, statement):
    """Whoever waits for an outage to end would wait for ever."""
    await executor.run(put("a"))

    with pytest.raises(sqlite3.Error):
        await executor.run(lambda connection: connection.execute(statement).fetchall())


# --- durability -------------------------------------------------------------------------------------------------


async def test_only_durable_work_waits_for_the_disk(executor):
    await executor.run(put("a"), durable=False)
    await executor.run(put("b"), durable=False)
    await executor.run(put("c"), durable=True)

    assert [each for each in executor.spy.statements if "synchronous" in each] == [
        "PRAGMA synchronous=NORMAL",
        "PRAGMA synchronous=FULL",
    ]


async def test_one_durable_piece_makes_the_whole_commit_durable(executor):
    plug = Plug()
    plugged = asyncio.create_task(executor.run(plug, durable=False))
    await eventually(plug.reached.is_set)
    executor.spy.statements.clear()
    tasks = [asyncio.create_task(executor.run(put(f"n{n}"), durable=n == 1)) for n in range(3)]
    await asyncio.sleep(0)
    plug.pulled.set()
    await asyncio.gather(plugged, *tasks)

    assert executor.spy.statements == ["COMMIT", "PRAGMA synchronous=FULL", "BEGIN IMMEDIATE", "COMMIT"]


async def test_a_reader_does_not_write(path):
    executor = ThreadExecutor(lambda: connect(path, read_only=True), writes=False)

    with pytest.raises(StoreUnavailable):
        await executor.run(put("a"))

    assert await executor.run(names) == []
    await executor.close()


async def test_the_named_crash_points_are_passed_by_durable_work_alone(executor):
    passed = []
    crash_points.arm(passed.append)
    try:
        await executor.run(put("a"), durable=False)
        assert passed == []
        await executor.run(put("b"))
    finally:
        crash_points.arm(None)

    assert passed == ["store.before_commit", "store.committed"]


# --- callers and closing ----------------------------------------------------------------------------------------


async def test_a_caller_that_goes_away_does_not_take_its_work_back(executor, path):
    plug = Plug()
    plugged = asyncio.create_task(executor.run(plug))
    await eventually(plug.reached.is_set)
    impatient = asyncio.create_task(executor.run(put("a")))
    patient = asyncio.create_task(executor.run(put("b")))
    await asyncio.sleep(0)

    impatient.cancel()
    plug.pulled.set()
    await asyncio.gather(plugged, patient)

    assert impatient.cancelled()
    assert on_disk(path) == ["a", "b"]


async def test_closing_finishes_what_was_submitted_and_takes_no_more(path):
    executor = ThreadExecutor(lambda: connect(path), writes=True)
    tasks = [asyncio.create_task(executor.run(put(f"n{n}"))) for n in range(100)]
    await asyncio.sleep(0)

    await executor.close()

    assert await asyncio.gather(*tasks) == [1] * 100
    with pytest.raises(StoreUnavailable):
        await executor.run(put("late"))


async def test_an_executor_without_a_connection_keeps_nobody_waiting():
    def cannot():
        message = "unable to open database file"
        raise sqlite3.OperationalError(message)

    executor = ThreadExecutor(cannot, writes=True)

    async with asyncio.timeout(20):
        with pytest.raises(StoreUnavailable):
            await executor.run(names)
    await executor.close()


async def test_the_loop_goes_on_while_sqlite_works(executor):
    plug = Plug()
    plugged = asyncio.create_task(executor.run(plug))
    await eventually(plug.reached.is_set)
    beats = 0
    for _ in range(100):
        await asyncio.sleep(0)
        beats += 1

    assert (beats, plugged.done()) == (100, False)
    plug.pulled.set()
    await plugged


async def test_work_without_a_thread_is_a_transaction_of_its_own():
    connection = sqlite3.connect(":memory:", isolation_level=None)
    executor = InlineExecutor(connection)
    await executor.run(lambda c: c.execute("CREATE TABLE box (name TEXT UNIQUE)"))

    def half_done(c):
        put("half")(c)
        raise LookupError

    with pytest.raises(LookupError):
        await executor.run(half_done)

    assert await executor.run(put("a")) == 1
    assert await executor.run(names) == ["a"]
    await executor.close()


# --- several processes ------------------------------------------------------------------------------------------

WRITER = textwrap.dedent(
    """
    import asyncio, sys
    from pathlib import Path
    from holdfast.sqlite import Database

    def bump(connection):
        value = connection.execute("SELECT value FROM counter").fetchone()[0]
        connection.execute("UPDATE counter SET value = ?", (value + 1,))

    async def main():
        database = Database(Path(sys.argv[1]))
        print("ready", flush=True)
        sys.stdin.readline()
        await asyncio.gather(*(database.write(bump) for _ in range(200)))
        await database.close()

    asyncio.run(main())
    """,
)


async def test_several_processes_on_one_file_lose_no_write(tmp_path):
    path = tmp_path / "shared.db"
    database = Database(path)
    await database.migrate("counter", [("CREATE TABLE counter (value INTEGER)", "INSERT INTO counter VALUES (0)")])
    writers = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            WRITER,
            str(path),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for _ in range(3)
    ]
    for writer in writers:
        assert await writer.stdout.readline() == b"ready\n"
    for writer in writers:
        writer.stdin.write(b"go\n")
    await asyncio.gather(*(writer.communicate() for writer in writers))

    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert await database.read(lambda c: c.execute("SELECT value FROM counter").fetchone()[0]) == 600
    await database.close()


async def test_a_read_sees_every_write_that_returned_before(tmp_path):
    database = Database(tmp_path / "holdfast.db")
    await database.migrate("box", [("CREATE TABLE box (name TEXT)",)])

    for number in range(50):
        await database.write(put(f"{number:02}"), durable=number % 2 == 0)
        assert len(await database.read(names)) == number + 1
    await database.close()
