"""What operators do: read and decide about dead letters, and steer schedules. Needs the operator token."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from .content import json_bytes, part, query_of
from .exchange import Exchange
from .lists import pages
from .steps import Items, Request, Steps
from .views import DeadLetter, Job, ReplayReport, ScheduleState

_LETTERS: Final = "/v1/dead-letters"
_SCHEDULES: Final = "/v1/schedules"


class DeadLetterVerbs:
    """The requests of ``/v1/dead-letters``.

    A decision is sent once. If its answer is lost, :class:`Unreachable` is raised with ``arrived`` true: look at the
    letter before you decide again.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def list(
        self,
        *,
        workload: str | None = None,
        review_status: str | None = None,
        reason_code: str | None = None,
        key: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        page: int | None = None,
    ) -> Items[DeadLetter]:
        """The dead letters, the oldest first. ``page`` is how many one request brings."""
        query = query_of(
            **_filter(workload, review_status, reason_code, key, created_after, created_before), limit=page
        )
        return pages(self._exchange, _LETTERS, query, DeadLetter.read, operator=True)

    def show(self, letter: DeadLetter | str) -> Steps[DeadLetter]:
        """A dead letter with its payload, attempts and decisions. Raises :class:`NotFound`."""
        document = yield from self._exchange.json(Request(method="GET", path=_letter(letter), operator=True))
        return DeadLetter.read(document)

    def review(self, letter: DeadLetter | str, *, actor: str, reason: str) -> Steps[DeadLetter]:
        """Mark a letter as reviewed. Raises :class:`Conflict` if it is not pending."""
        return self._decide(letter, "review", actor, reason)

    def replay(self, letter: DeadLetter | str, *, actor: str, reason: str) -> Steps[DeadLetter]:
        """Run the job of a reviewed letter again. Raises :class:`Conflict` if it is not reviewed."""
        return self._decide(letter, "replay", actor, reason)

    def close(self, letter: DeadLetter | str, *, actor: str, reason: str) -> Steps[DeadLetter]:
        """Close a reviewed or replayed letter. Raises :class:`Conflict` for other letters."""
        return self._decide(letter, "close", actor, reason)

    def replay_where(
        self,
        *,
        limit: int,
        actor: str,
        reason: str,
        workload: str | None = None,
        reason_code: str | None = None,
        key: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        dry_run: bool = False,
    ) -> Steps[ReplayReport]:
        """Replay the oldest reviewed letters that match. With ``dry_run``, only tell which."""
        conditions = dict(query_of(**_filter(workload, None, reason_code, key, created_after, created_before)))
        body = {"filter": conditions, "limit": limit, "dryRun": dry_run, "actor": actor, "reason": reason}
        document = yield from self._exchange.json(_decision(f"{_LETTERS}/replay", body))
        return ReplayReport.read(document)

    def _decide(self, letter: DeadLetter | str, step: str, actor: str, reason: str) -> Steps[DeadLetter]:
        path = f"{_letter(letter)}/{step}"
        document = yield from self._exchange.json(_decision(path, {"actor": actor, "reason": reason}))
        return DeadLetter.read(document)


class ScheduleVerbs:
    """The requests of ``/v1/schedules``."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def list(self) -> Items[ScheduleState]:
        """All schedules, with their next times."""
        return pages(self._exchange, _SCHEDULES, (), ScheduleState.read, operator=True)

    def show(self, name: str) -> Steps[ScheduleState]:
        """One schedule. Raises :class:`NotFound`."""
        document = yield from self._exchange.json(
            Request(method="GET", path=f"{_SCHEDULES}/{part(name)}", operator=True)
        )
        return ScheduleState.read(document)

    def run(self, name: str) -> Steps[Job]:
        """Submit one job of a schedule now. The request is sent once: a second request would be a second run."""
        path = f"{_SCHEDULES}/{part(name)}/run"
        document = yield from self._exchange.json(Request(method="POST", path=path, operator=True, repeatable=False))
        return Job.read(document)

    def pause(self, name: str, *, actor: str, reason: str) -> Steps[ScheduleState]:
        """No more ticks, until :meth:`resume`."""
        return self._steer(name, "pause", actor, reason)

    def resume(self, name: str, *, actor: str, reason: str) -> Steps[ScheduleState]:
        """Ticks again."""
        return self._steer(name, "resume", actor, reason)

    def _steer(self, name: str, step: str, actor: str, reason: str) -> Steps[ScheduleState]:
        path = f"{_SCHEDULES}/{part(name)}/{step}"
        document = yield from self._exchange.json(_decision(path, {"actor": actor, "reason": reason}))
        return ScheduleState.read(document)


def _decision(path: str, body: dict[str, Any]) -> Request:
    return Request(method="POST", path=path, body=json_bytes(body), operator=True, repeatable=False)


def _letter(letter: DeadLetter | str) -> str:
    return f"{_LETTERS}/{part(letter if isinstance(letter, str) else letter.id)}"


def _filter(*values: object) -> dict[str, object]:
    names = ("workload", "reviewStatus", "reasonCode", "key", "createdAfter", "createdBefore")
    return dict(zip(names, values, strict=True))
