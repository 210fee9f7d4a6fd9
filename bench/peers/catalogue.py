"""The systems that are measured, how each is started, and what its documentation promises.

Concurrency is what a system's documentation calls the default, or 50 jobs at a time where a system has such a number
and its default is smaller. Durability is each system's default, and that of its server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .plan import AT_ONCE

_SYSTEMS: Final = "bench.peers.systems"

SNAPSHOTS: Final = "redis with snapshots"
"""As Redis and Valkey come: a snapshot after a minute, five minutes or an hour, by how much has changed."""
APPEND_ONLY: Final = "redis with an append-only file"
"""As BullMQ's documentation and ours ask for: synced every second."""
POSTGRES: Final = "postgres"
MONGO: Final = "mongo"

_SINCE_SNAPSHOT: Final = "loses what came after the last snapshot (a minute to an hour)"


@dataclass(frozen=True, slots=True)
class System:
    """One system. ``library`` is the requirement of the extra ``bench`` that brings it; empty: comes from elsewhere."""

    name: str
    title: str
    module: str
    library: str
    servers: tuple[str, ...]
    worker: tuple[str, ...]
    """What comes after ``python -m``."""
    how: str
    """How the worker runs."""
    power_loss: str
    """What a machine that loses its power does to jobs whose submission was answered."""
    worker_loss: str
    """What happens to a job whose worker is killed."""
    left: tuple[str, ...] = ()
    """Redis keys whose sizes are the jobs that are left, or one SQL query."""
    prepared: bool = False
    """Whether tables must be made first."""


EMBEDDED: Final = System(
    name="holdfast-embedded",
    title="Holdfast, embedded",
    module=f"{_SYSTEMS}.holdfast_jobs",
    library="",
    servers=(),
    worker=("holdfast", "worker", "--json"),
    how="1 process",
    power_loss="nothing is lost (SQLite, synchronous=FULL)",
    worker_loss="runs again, counted; a dead letter after the last attempt",
)
CLUSTER: Final = System(
    name="holdfast-cluster",
    title="Holdfast, cluster",
    module=f"{_SYSTEMS}.holdfast_jobs",
    library="",
    servers=(APPEND_ONLY, MONGO),
    worker=("holdfast", "worker", "--json"),
    how="1 process",
    power_loss="nothing is lost (MongoDB, majority and journal); the queue is rebuilt from the ledger",
    worker_loss="runs again, counted; a dead letter after the last attempt",
)
NODE: Final = System(
    name="bullmq-node",
    title="BullMQ (Node)",
    module="bullmq_node.mjs",
    library="",
    servers=(APPEND_ONLY,),
    worker=(),
    how=f"1 process, {AT_ONCE} at a time",
    power_loss="loses up to a second (append-only file, synced every second)",
    worker_loss="runs again after it stalled, once by default",
    left=("bull:bench:wait", "bull:bench:active"),
)

SYSTEMS: Final = (
    EMBEDDED,
    CLUSTER,
    System(
        name="celery",
        title="Celery (Redis)",
        module=f"{_SYSTEMS}.celery_redis",
        library="celery",
        servers=(SNAPSHOTS,),
        worker=("celery", "--app", f"{_SYSTEMS}.celery_redis:app", "worker", "--loglevel", "ERROR"),
        how="1 process for each core",
        power_loss=_SINCE_SNAPSHOT,
        worker_loss="is lost (acknowledged before it runs)",
        left=("celery", "unacked"),
    ),
    System(
        name="dramatiq",
        title="Dramatiq (Redis)",
        module=f"{_SYSTEMS}.dramatiq_redis",
        library="dramatiq",
        servers=(SNAPSHOTS,),
        worker=("dramatiq", f"{_SYSTEMS}.dramatiq_redis"),
        how="1 process for each core, 8 threads",
        power_loss=_SINCE_SNAPSHOT,
        worker_loss="runs again",
        left=("dramatiq:default", "dramatiq:default.msgs"),
    ),
    System(
        name="arq",
        title="arq (Redis)",
        module=f"{_SYSTEMS}.arq_redis",
        library="arq",
        servers=(SNAPSHOTS,),
        worker=("arq", f"{_SYSTEMS}.arq_redis.WorkerSettings"),
        how=f"1 process, {AT_ONCE} at a time, looks every 10 ms",
        power_loss=_SINCE_SNAPSHOT,
        worker_loss="runs again after its time limit",
        left=("arq:queue",),
    ),
    System(
        name="saq",
        title="SAQ (Redis)",
        module=f"{_SYSTEMS}.saq_redis",
        library="saq",
        servers=(SNAPSHOTS,),
        worker=("saq", f"{_SYSTEMS}.saq_redis.settings"),
        how=f"1 process, {AT_ONCE} at a time",
        power_loss=_SINCE_SNAPSHOT,
        worker_loss="ends as aborted; runs again where retries are asked for",
        left=("saq:default:incomplete", "saq:default:active"),
    ),
    System(
        name="huey-redis",
        title="Huey (Redis)",
        module=f"{_SYSTEMS}.huey_redis",
        library="huey",
        servers=(SNAPSHOTS,),
        worker=("huey.bin.huey_consumer", f"{_SYSTEMS}.huey_redis.huey", "--quiet"),
        how="1 process, 1 thread",
        power_loss=_SINCE_SNAPSHOT,
        worker_loss="is lost (removed before it runs)",
        left=("huey.redis.bench",),
    ),
    System(
        name="huey-sqlite",
        title="Huey (SQLite)",
        module=f"{_SYSTEMS}.huey_sqlite",
        library="huey",
        servers=(),
        worker=("huey.bin.huey_consumer", f"{_SYSTEMS}.huey_sqlite.huey", "--quiet"),
        how="1 process, 1 thread",
        power_loss="nothing that waits is lost (WAL, SQLite's default synchronous=FULL)",
        worker_loss="is lost (removed before it runs)",
        left=("huey.db", "SELECT count(*) FROM task"),
    ),
    System(
        name="honker",
        title="honker (SQLite)",
        module=f"{_SYSTEMS}.honker_sqlite",
        library="honker",
        servers=(),
        worker=(f"{_SYSTEMS}.honker_sqlite",),
        how="1 process",
        power_loss="not looked at",
        worker_loss="runs again after its claim ends",
    ),
    System(
        name="procrastinate",
        title="Procrastinate (PostgreSQL)",
        module=f"{_SYSTEMS}.procrastinate_postgres",
        library="procrastinate",
        servers=(POSTGRES,),
        worker=(
            "procrastinate",
            "--app",
            f"{_SYSTEMS}.procrastinate_postgres.app",
            "worker",
            "--concurrency",
            str(AT_ONCE),
        ),
        how=f"1 process, {AT_ONCE} at a time",
        power_loss="nothing is lost (PostgreSQL, synchronous_commit=on)",
        worker_loss="stays in work until a task of your own retries stalled jobs",
        left=("SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",),
        prepared=True,
    ),
    System(
        name="pgqueuer",
        title="PGQueuer (PostgreSQL)",
        module=f"{_SYSTEMS}.pgqueuer_postgres",
        library="pgqueuer",
        servers=(POSTGRES,),
        worker=(f"{_SYSTEMS}.pgqueuer_postgres",),
        how=f"1 process, {AT_ONCE} at a time",
        power_loss="nothing is lost (PostgreSQL, synchronous_commit=on)",
        worker_loss="runs again after a heartbeat was missed",
        left=("SELECT count(*) FROM pgqueuer",),
        prepared=True,
    ),
    NODE,
    System(
        name="bullmq-python",
        title="BullMQ (Python)",
        module=f"{_SYSTEMS}.bullmq_python",
        library="",
        servers=(APPEND_ONLY,),
        worker=(f"{_SYSTEMS}.bullmq_python",),
        how=f"1 process, {AT_ONCE} at a time",
        power_loss="loses up to a second (append-only file, synced every second)",
        worker_loss="runs again after it stalled, once by default",
        left=("bull:bench:wait", "bull:bench:active"),
    ),
)
