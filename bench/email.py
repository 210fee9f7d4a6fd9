"""Emails: how many a second to a local mail server, how near to the limit, and how long a small tenant waits.

The same measurements for the embedded deployment and for a cluster: an API takes the emails in batches, worker
processes send them, and a mail server of ours (``email_sink``) notes when each one came. All figures are the server's.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import subprocess
import sys
import time
import urllib.request
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from .gateway import Gateway, running
from .processor_time import Meter

Figures = dict[str, Any]

LIMIT: Final = 100
"""Emails a second: the default of EMAIL_RATE_MAX."""

QUEUE: Final = "email:send"

_BATCH: Final = 500
_FEW: Final = 10
_PATIENCE_SECONDS: Final = 300.0
_LOOK_EVERY: Final = 0.05
_HTML: Final = "<p>Your invoice of this month is ready. Please look at it before its due date.</p>" * 12


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    emails: int = 3_000
    limited: int = 1_000
    backlog: int = 10_000
    workers: int = 3


class MailServer:
    """The sink, in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.port = int(self._line())

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def count(self) -> int:
        """How many messages it took so far."""
        self._pipe(self._process.stdin).write("\n")
        self._pipe(self._process.stdin).flush()
        return int(self._line())

    def until(self, count: int) -> None:
        """Wait for so many."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (found := self.count()) < count:
            if time.monotonic() > deadline:
                message = f"The mail server has {found} of {count} messages."
                raise RuntimeError(message)
            time.sleep(_LOOK_EVERY)

    def close(self) -> list[tuple[float, str]]:
        """When each message came, and for whom."""
        out, _ = self._process.communicate()
        return [(at, to) for at, to in json.loads(out)]

    def _line(self) -> str:
        return str(self._pipe(self._process.stdout).readline())

    @staticmethod
    def _pipe(pipe: Any) -> Any:  # noqa: ANN401 - the library's type says that it may be None
        return pipe


@contextlib.contextmanager
def a_mail_server() -> Iterator[MailServer]:
    """Started, and gone at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.email_sink"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield MailServer(process)
    finally:
        process.kill()
        process.communicate()


@dataclass(frozen=True, slots=True)
class Site:
    """An empty deployment, and what its processes are to know of it. ``servers`` are the processes that it rests on."""

    data: Path
    settings: Mapping[str, str] = field(repr=False, default_factory=dict)
    servers: Mapping[str, int | None] = field(default_factory=dict)

    def tenant(self, name: str) -> str:
        """Add a tenant; its API key."""
        self._holdfast("tenants", "add", name)
        return str(json.loads(self._holdfast("keys", "create", name, "--json"))["key"])

    def _holdfast(self, *arguments: str) -> str:
        environment = {**os.environ, "HOLDFAST_DATA": str(self.data), **self.settings}
        return subprocess.run(
            [sys.executable, "-m", "holdfast", *arguments],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def settings_for(self, mail: MailServer, **more: str) -> dict[str, str]:
        """Mail goes to this server."""
        smtp = {
            "EMAIL_TRANSPORT": "smtp",
            "SMTP_HOST": "127.0.0.1",
            "SMTP_PORT": str(mail.port),
            "SMTP_SECURITY": "none",
        }
        return {**self.settings, **smtp, **more}

    @contextlib.contextmanager
    def working(self, workers: int, settings: Mapping[str, str]) -> Iterator[dict[str, int]]:
        """Worker processes that begin when all of them are up; their process ids."""
        self._holdfast("queue", "pause", QUEUE)
        with contextlib.ExitStack() as stack:
            processes = [
                stack.enter_context(running("worker", self.data, settings=settings)).process for _ in range(workers)
            ]
            self._holdfast("queue", "resume", QUEUE)
            yield {f"worker {number}": process.pid for number, process in enumerate(processes, 1)}


Sites = Callable[[], contextlib.AbstractContextManager[Site]]


def keys_for_emails() -> dict[str, str]:
    """What a cluster must be given, and the embedded default makes by itself."""
    return {
        "EMAIL_PEPPER": secrets.token_urlsafe(48),
        "EMAIL_KEYS": json.dumps({"bench": base64.b64encode(secrets.token_bytes(32)).decode()}),
    }


def post(gateway: Gateway, key: str, tenant: str, count: int) -> None:
    """Hand in so many emails of a tenant, in batches."""
    for start in range(0, count, _BATCH):
        emails = [
            {
                "to": f"{tenant}{number}@example.com",
                "subject": f"Invoice {number}",
                "html": f"{_HTML}<p>{number}</p>",
                "recipient": {"externalId": f"{tenant}-{number}", "nome": "Maria Souza"},
            }
            for number in range(start, min(count, start + _BATCH))
        ]
        request = urllib.request.Request(
            f"http://{gateway.host}:{gateway.port}/v1/email/batch",
            json.dumps({"emails": emails}).encode(),
            {"content-type": "application/json", "authorization": f"Bearer {key}"},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
            refused = json.load(answer)["refused"]
        if refused:
            message = f"{refused} emails were refused."
            raise RuntimeError(message)


# --- what is measured ---------------------------------------------------------------------------------------------


def measure_unlimited(site: Site, count: int, workers: int) -> Figures:
    """A backlog and no limit: from the first message at the server to the last."""
    with a_mail_server() as mail:
        key, settings = site.tenant("acme"), site.settings_for(mail, EMAIL_RATE_MAX="0")
        began = time.perf_counter()
        with running("api", site.data, settings=settings) as gateway:
            post(gateway, key, "acme", count)
            taken_in = time.perf_counter() - began
            with site.working(workers, settings) as pids:
                meter = Meter(**pids, **site.servers, **{"mail server": mail.pid})
                mail.until(count)
                used = meter.microseconds_each(count)
        arrivals = [at for at, _ in mail.close()]
    seconds = arrivals[-1] - arrivals[0]
    return {
        "emails": count,
        "workers": workers,
        "intake_per_second": count / taken_in,
        "per_second": (count - 1) / seconds,
        "cpu_us_per_email": used,
    }


def measure_limit(site: Site, count: int, workers: int) -> Figures:
    """A backlog, the default limit, several processes: the fullest second of all, and how much of the limit is used."""
    with a_mail_server() as mail:
        key, settings = site.tenant("acme"), site.settings_for(mail)
        with running("api", site.data, settings=settings) as gateway:
            post(gateway, key, "acme", count)
            with site.working(workers, settings):
                mail.until(count)
        arrivals = [at for at, _ in mail.close()]
    # At first all permits are free. What counts is how soon each permit is free again.
    rate = (count - LIMIT) / (arrivals[-1] - arrivals[LIMIT - 1])
    return {
        "emails": count,
        "workers": workers,
        "most_in_a_second": most_in_a_second(arrivals),
        "per_second": rate,
        "share_of_limit": rate / LIMIT,
    }


def measure_fairness(site: Site, backlog: int, workers: int) -> Figures:
    """One tenant's backlog under the default limit, and another tenant's ten: how long those take."""
    with a_mail_server() as mail:
        big, small, settings = site.tenant("big"), site.tenant("small"), site.settings_for(mail)
        with running("api", site.data, settings=settings) as gateway:
            post(gateway, big, "big", backlog)
            with site.working(workers, settings):
                mail.until(3 * LIMIT)
                post(gateway, small, "small", _FEW)
                accepted, before = time.time(), mail.count()
                mail.until(before + 5 * LIMIT)
        arrived = mail.close()
    places = [place for place, (_, to) in enumerate(arrived) if to.startswith("small")]
    if len(places) < _FEW:
        message = f"Only {len(places)} of {_FEW} emails went before {5 * LIMIT} of the other tenant's."
        raise RuntimeError(message)
    return {
        "backlog": backlog,
        "seconds": arrived[places[-1]][0] - accepted,
        "others_before_the_last": sum(to.startswith("big") for _, to in arrived[before : places[-1]]),
    }


def most_in_a_second(arrivals: Sequence[float]) -> int:
    """The most messages in any second, whenever it begins."""
    return max(bisect_left(arrivals, first + 1.0) - place for place, first in enumerate(arrivals))


def measure(sites: Sites, plan: Plan, tell: Callable[[str], None]) -> Figures:
    """Everything, each on a deployment of its own."""
    figures: Figures = {}
    for workers in (1, plan.workers):
        with sites() as site:
            figures[f"unlimited_{workers}"] = measured = measure_unlimited(site, plan.emails, workers)
            tell(f"emails, {workers} workers, no limit: {measured['per_second']:,.0f}/s")
    with sites() as site:
        figures["limit"] = measured = measure_limit(site, plan.limited, plan.workers)
        tell(f"emails, limit {LIMIT}/s: {measured['per_second']:.1f}/s, at most {measured['most_in_a_second']}")
    with sites() as site:
        figures["fairness"] = measured = measure_fairness(site, plan.backlog, plan.workers)
        tell(f"emails, ten beside {plan.backlog:,}: {measured['seconds']:.1f} s")
    return figures
