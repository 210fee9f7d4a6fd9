"""The simulated simulation: processes over one in-memory database, people around them, and a bad day.

The engine, the store and the broker are the real ones. A seed decides everything: who is there, what each job does,
the weather of each process, the order of callbacks. The day has three parts: trouble, healing, and the quiet after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

from holdfast.brokers.sqlite import SqliteBroker
from holdfast.contracts import crash_points
from holdfast.contracts.entries import job_id_for
from holdfast.contracts.errors import BrokerUnavailable, StoreUnavailable
from holdfast.contracts.ports import Ambient
from holdfast.contracts.schedules import SCHEDULE_COLLECTIONS
from holdfast.contracts.times import from_ms, isoformat
from holdfast.engine.cancellation import Cancellation
from holdfast.engine.execution import ExecutionOptions
from holdfast.engine.intake import Intake
from holdfast.engine.maintenance import Maintenance
from holdfast.engine.review import Review
from holdfast.engine.schedules import Schedules
from holdfast.sqlite import Database
from holdfast.stores.sqlite import SqliteStore
from holdfast.telemetry import attach, detach, events
from holdfast.worker import Worker

from .facts import EPOCH
from .loop import ProcessKilled, SimulatedLoop, current_process
from .people import History, Person, Sender, draw_order
from .watch import install_watch
from .weather import Member, Port, Sky, Weather, forecast
from .workloads import Bells, Notices, Parcels, Rockets, Rolls, Run, Scans, Simulated

_MOST_PROCESSES: Final = 60
_HEALING: Final = 400.0
"""Virtual seconds after which a job that is not settled is called lost."""


class SkewedClock:
    """A process's own clock: some minutes off, as clocks are (I15)."""

    def __init__(self, loop: SimulatedLoop, skew: float) -> None:
        self._loop = loop
        self._skew = skew

    def now(self) -> datetime:
        return datetime.fromtimestamp(EPOCH / 1000 + self._loop.time() + self._skew, tz=UTC)

    def monotonic(self) -> float:
        return self._loop.time() + 100_000 + self._skew


class CountedIds:
    """Identifiers that the seed decides."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._count = 0

    def new(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}_{self._owner}_{self._count}"


class Server(Member):
    """One simulated process: an API, or a worker. Both look after the ledger and the queues."""

    def __init__(self, simulation: Simulation, name: str, weather: Weather, *, works: bool) -> None:
        super().__init__(name, weather)
        random = simulation.random
        self.works = works
        self.stop = asyncio.Event()
        queue = SqliteBroker(simulation.database, poll=timedelta(seconds=1))
        ledger = SqliteStore(
            simulation.database,
            simulation.workloads,
            grace=simulation.grace,
            outbox=queue if simulation.one_commit else None,
            collections=SCHEDULE_COLLECTIONS,
        )
        store = Port(ledger, self, simulation.sky, StoreUnavailable)
        broker = Port(queue, self, simulation.sky, BrokerUnavailable)
        ambient = Ambient(SkewedClock(simulation.loop, random.uniform(-600, 600)), CountedIds(name), random)
        self.intake = Intake(store, broker)
        self.cancellation = Cancellation(store, broker)
        self.review = Review(store, broker, {each.name: each for each in simulation.workloads})
        maintenance = Maintenance(
            store,
            broker,
            simulation.workloads,
            ambient,
            schedules=Schedules(store, self.intake, ambient.clock, simulation.workloads),
            interval=timedelta(seconds=random.choice((1, 2, 3))),
            again_after=timedelta(seconds=3),
        )
        if works:
            options = ExecutionOptions(name, concurrency=random.choice((1, 2, 4, 8)), lease=simulation.lease)
            drain = timedelta(seconds=random.choice((0, 0.2, 2)))
            self._main: Any = Worker(
                simulation.workloads, store, broker, ambient, maintenance, options, drain=drain
            ).run
        else:
            self._main = maintenance.run
        self.task: asyncio.Task[Any] = simulation.loop.spawn(self, self._main(self.stop))


_ROCKETS = 0.3
"""In how many simulations there are jobs that do what cannot be undone. The others run as they always did."""
_SCANS = 0.3
"""In how many there are jobs that stop when they are cancelled; likewise."""
_BELLS = 0.3
"""In how many there is a schedule; likewise."""
_CANCELLED = 0.4
"""How many jobs of a workload that can be stopped are cancelled."""


class Simulation:
    """Everything that one seed decides. :meth:`live` runs it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(f"world {seed}")
        self.loop = SimulatedLoop(seed)
        self.trace: list[tuple[Any, ...]] = []
        self.sky = Sky(self.loop, self.random, self.trace)
        self.history = History()
        self.runs: list[Run] = []
        self.database = Database(None, now=self.now_ms)
        self.connection = self.database._writer._connection  # type: ignore[attr-defined]
        self.broker = SqliteBroker(self.database)
        self.servers: list[Server] = []
        self.findings: list[str] = []
        kinds = self.random.sample((Parcels, Notices, Rolls), self.random.choice((1, 2)))
        if Random(f"rockets {seed}").random() < _ROCKETS:
            kinds.append(Rockets)
        if Random(f"scans {seed}").random() < _SCANS:
            kinds.append(Scans)
        self.sent = [kind(self.sky, self.runs) for kind in kinds]
        """The workloads whose jobs senders send."""
        bells = [Bells(self.sky, self.runs)] if Random(f"bells {seed}").random() < _BELLS else []
        self.workloads: list[Simulated] = [*self.sent, *bells]
        self.lease = timedelta(seconds=self.random.choice((2, 3)))
        self.grace = timedelta(seconds=self.random.choice((0.5, 2)))
        self.one_commit = self.random.random() < 0.5
        """Whether the ledger publishes new jobs itself, or leaves that to the engine, as a store elsewhere does."""
        self.sky.longest_freeze = 2.5 * self.lease.total_seconds()
        self.sky.lose_queue = self._lose_queue
        self._names = 0

    def now_ms(self) -> int:
        """The store's clock."""
        return EPOCH + int(self.loop.time() * 1000)

    # --- a run --------------------------------------------------------------------------------------------

    def live(self) -> None:
        """Run the whole day; what went wrong on the way is in ``findings``, the rest is for the checker."""
        attach(self._heard)
        crash_points.arm(self._passed)
        try:
            self.loop.run_until_complete(self._day())
        finally:
            crash_points.arm(None)
            detach(self._heard)
        self.findings += self.loop.surprises

    def end(self) -> None:
        """Let go of everything."""
        self.loop.close()
        self.connection.close()

    async def _day(self) -> None:
        self.store = SqliteStore(self.database, self.workloads, collections=SCHEDULE_COLLECTIONS)
        await self.store.open()
        await self.broker.open()
        install_watch(self.connection, self.workloads)
        for works in (False, True, True):
            self._start(works=works)
        senders = [asyncio.create_task(each) for each in self._draw_jobs()]
        person = Person(self)
        reviewing = asyncio.create_task(person.work())
        keeper = asyncio.create_task(self._replace_the_dead())
        await self._trouble()
        self._heal()
        for sender in senders:
            await sender
        await self._silence()
        await self._settle_down()
        person.leaving = True
        await reviewing
        await self._settle_down()
        keeper.cancel()
        await self._stop_all()

    def _draw_jobs(self) -> list[Any]:
        """The work of the day: jobs with their duplicates, their conflicting twins, and foreign ones."""
        random, sender, work = self.random, Sender(self), []
        cancels = Random(f"cancels {self.seed}")
        for number in range(random.randint(8, 16)):
            workload = random.choice(self.sent)
            instant = isoformat(from_ms(EPOCH + random.randint(0, 10**6) * 1000 + number))
            order = draw_order(random, f"k{number}", instant)
            start = random.uniform(0, 8)
            twin = order.model_copy(update={"content": 1, "plan": ("done",)})
            chance = random.random()
            if chance < 0.8:
                work.append(sender.send(workload, order, start))
            if chance < 0.12:
                work.append(sender.send(workload, twin, random.uniform(0, 10)))
            if chance > 0.72:
                work.append(self._draw_foreign(sender, workload, order, twin, number))
            if workload.stoppable and cancels.random() < _CANCELLED:
                work.append(sender.cancel(workload, order.key, start + cancels.uniform(0.1, 5)))
        return work

    def _draw_foreign(self, sender: Sender, workload: Simulated, order: Any, twin: Any, number: int) -> Any:
        random = self.random
        data, job_id = order.model_dump_json(), job_id_for(order.key)
        if random.random() < 0.7:
            data = random.choice(
                (data, twin.model_dump_json(), "{", '{"key": 1}', "[]", '"text"', data[:-1] + ',"x":1}')
            )
            job_id = random.choice((str(number + 1), f"ext-{number}"))
        return sender.put(workload, job_id, data, random.uniform(0, 8))

    async def _trouble(self) -> None:  # noqa: C901 - a table
        random, sky = self.random, self.sky
        end = self.loop.time() + random.uniform(8, 14)
        while self.loop.time() < end:
            await asyncio.sleep(random.expovariate(0.8))
            match random.choice(("kill", "freeze", "stop", "stop", "wipe", "lose one", "store away", "queue away")):
                case "kill":
                    if server := self._some(lambda _: True):
                        sky.kill(server, "by the operator")
                case "freeze":
                    if server := self._some(lambda each: not each.frozen):
                        sky.freeze(server)
                case "stop":
                    if server := self._some(lambda each: each.works and not each.stop.is_set()):
                        sky.note(server.name, "told to stop")
                        server.stop.set()
                        self._start(works=True)
                case "wipe" if random.random() < 0.6:
                    self._lose_queue()
                case "lose one":
                    self.history.queue_losses.append(self.loop.time())
                    queue = random.choice(self.workloads).queue
                    statement = "DELETE FROM queue_jobs WHERE seq = (SELECT min(seq) FROM queue_jobs WHERE queue = ?)"
                    self.connection.execute(statement, (queue,))
                case "store away":
                    sky.away_until[StoreUnavailable] = self.loop.time() + random.uniform(0, 3)
                case "queue away":
                    sky.away_until[BrokerUnavailable] = self.loop.time() + random.uniform(0, 3)

    def _lose_queue(self) -> None:
        if self.sky.fair:
            return
        self.sky.note("queue", "wiped")
        self.history.queue_losses.append(self.loop.time())
        self.connection.execute("DELETE FROM queue_jobs")
        self.connection.execute("DELETE FROM queue_settings")

    def _heal(self) -> None:
        self.sky.note("world", "heals")
        self.sky.fair = True
        for works in (False, True):
            self._start(works=works)
        for server in self.servers[:-2]:
            if server.frozen:
                self.loop.thaw(server)
            if server.works and self.random.random() < 0.7:
                self.sky.note(server.name, "told to stop")
                server.stop.set()

    async def _silence(self) -> None:
        """Wait until all that the bells missed is made up for; then a person pauses them. Or the day would not end."""
        schedules = Schedules(self.store, Intake(self.store, self.broker), SkewedClock(self.loop, 0), self.workloads)
        now, end = from_ms(self.now_ms()), self.loop.time() + _HEALING
        for state in await schedules.states():
            name, last = state.schedule.name, None
            while last is None or last < now:
                if self.loop.time() > end:
                    self.findings.append(f"I22: {name} is silent")
                    break
                await asyncio.sleep(1)
                last = (await schedules.state(name)).last_tick
            await schedules.pause(name, actor="ana", reason="It is late.")

    async def _settle_down(self) -> None:
        """Wait until nothing is left to do. What is not settled by then never will be (I1)."""
        end = self.loop.time() + _HEALING
        while open_ends := self._open_ends():
            if self.loop.time() > end:
                self.findings.append(f"I1: never settled: {open_ends}")
                return
            await asyncio.sleep(1)

    def _open_ends(self) -> list[Any]:
        ours = [each.queue for each in self.workloads]
        marks = ",".join("?" * len(ours))
        return [
            *self.connection.execute(
                "SELECT key, status FROM ledger_entries WHERE status IN ('received', 'processing', 'failed')",
            ).fetchall(),
            *self.connection.execute(
                f"SELECT queue, job_id, state FROM queue_jobs WHERE queue IN ({marks})",  # noqa: S608 - question marks
                ours,
            ).fetchall(),
            *self.connection.execute(
                "SELECT id, 'unpublished' FROM dead_letters WHERE published = 0 AND review_status = 'pending'",
            ).fetchall(),
        ]

    async def _stop_all(self) -> None:
        running = [server for server in self.servers if server.alive and not server.task.done()]
        for server in running:
            server.stop.set()
        if running:
            await asyncio.wait({server.task for server in running}, timeout=30)
        self.findings += [f"I17: {each.name} does not stop" for each in running if each.alive and not each.task.done()]

    # --- the processes ------------------------------------------------------------------------------------

    def _start(self, *, works: bool) -> None:
        self._names += 1
        if self._names > _MOST_PROCESSES:
            return
        name = f"{'worker' if works else 'api'}{self._names}"
        rockets = any(isinstance(each, Rockets) for each in self.workloads)
        bells = len(self.workloads) > len(self.sent)
        weather = forecast(self.random, works=works, rockets=rockets, bells=bells)
        self.servers.append(Server(self, name, weather, works=works))

    async def _replace_the_dead(self) -> None:
        """What a supervisor does: at least one API and two workers; on quiet days one."""
        while True:
            await asyncio.sleep(0.5)
            for works, wanted in ((False, 1), (True, 1 if self.sky.fair else 2)):
                up = [each for each in self.servers if each.works is works and each.alive and not each.stop.is_set()]
                for _ in range(wanted - len(up)):
                    self._start(works=works)
            for server in self.servers:
                self._look_at(server)

    def _look_at(self, server: Server) -> None:
        task = server.task
        if server.alive and task.done() and not task.cancelled() and (error := task.exception()) is not None:
            self.findings.append(f"{server.name} ended by itself: {error!r}")
            server.alive = False

    def _some(self, wanted: Callable[[Server], bool]) -> Server | None:
        candidates = [each for each in self.servers if each.alive and not each.task.done() and wanted(each)]
        return self.random.choice(candidates) if candidates else None

    def some_api(self) -> Server | None:
        """An API process that is up, for all one can tell from outside."""
        return self._some(lambda each: not each.works)

    def queue_has(self, queue: str, job_id: str) -> bool:
        """Whether the queue holds this id."""
        statement = "SELECT 1 FROM queue_jobs WHERE queue = ? AND job_id = ?"
        return self.connection.execute(statement, (queue, job_id)).fetchone() is not None

    # --- listening ----------------------------------------------------------------------------------------

    def _passed(self, name: str) -> None:
        """A named crash point: sometimes the process ends right there, inside whatever it was doing."""
        process = current_process()
        if not isinstance(process, Member):
            return
        if not process.alive:
            raise ProcessKilled
        if not self.sky.fair and self.random.random() < process.weather.crash_at(name):
            self.sky.kill(process, f"at {name}")
            if self.connection.in_transaction:  # the power went before the commit
                self.connection.execute("ROLLBACK")
            raise ProcessKilled

    def _heard(self, event: str, fields: dict[str, Any]) -> None:
        process = current_process()
        shown = {name: value for name, value in fields.items() if name != "duration_ms"}
        self.sky.note(process.name if process else "world", event, *shown.items())
        if event == events.MAINTENANCE_FAILED:
            self.findings.append(f"maintenance failed: {fields['reason']}")
