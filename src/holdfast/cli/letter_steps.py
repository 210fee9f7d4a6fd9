"""``dlq review``, ``dlq replay``, ``dlq close``: the steps that only people take (I9).

All three choose letters in the same way: by ids, or by conditions and a limit. The letters that match conditions are
shown first, and the step is taken for exactly these letters.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from holdfast.api.operators import DecisionBody
from holdfast.contracts.dead_letters import DeadLetter, ReviewStatus
from holdfast.contracts.errors import NotFound, ReviewRefused
from holdfast.engine.review import STEPS_FROM, Chosen, StepReport

from . import options
from .deciding import decision
from .failures import REFUSED, Stop
from .letter_filters import HELP, query_of
from .opening import existing_system
from .output import print_json, print_line, progress, say

_DEFAULT_LIMIT: Final = 100
_NO_REASON: Final = "Replayed from the command line; no reason was given."

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="The dead letters.", show_default=False)]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept with the dead letter.", show_default=False)]
Limit = Annotated[
    int | None,
    typer.Option(min=1, max=1_000_000, help="At most this many, the oldest first.", show_default="with --where: 100"),
]
Where = Annotated[list[str] | None, typer.Option(metavar="FIELD=VALUE", help=HELP, show_default=False)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the dead letters that would be changed.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def review(
    reason: Reason,
    letter_ids: Ids = None,
    limit: Limit = None,
    where: Where = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    actor: options.Actor = None,
    app: options.App = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Mark dead letters as reviewed: pending -> reviewed. Only then can they be replayed or closed.

    Give the ids of letters, or choose letters: --limit N alone takes the N oldest pending letters, --where narrows the
    choice. The reason is required: write what you found.
    """
    choice = _Choice(letter_ids or (), tuple(where or ()), limit, dry_run, yes)
    _Step(ReviewStatus.REVIEWED, decision(actor, reason), app, data, json).take(choice)


def replay(
    letter_ids: Ids = None,
    limit: Limit = None,
    where: Where = None,
    dry_run: DryRun = False,
    reason: Annotated[
        str, typer.Option(help="What was repaired; kept with the dead letter.", show_default="that none was given")
    ] = _NO_REASON,
    actor: options.Actor = None,
    yes: Yes = False,
    app: options.App = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Run the jobs of reviewed dead letters again: reviewed -> replayed.

    Give the ids of letters, or choose letters: --limit N alone replays the N oldest reviewed letters, --where narrows
    the choice. A letter without a review is never replayed, and no letter is replayed twice. The reason is optional.
    """
    choice = _Choice(letter_ids or (), tuple(where or ()), limit, dry_run, yes)
    _Step(ReviewStatus.REPLAYED, decision(actor, reason), app, data, json).take(choice)


def close(
    reason: Reason,
    letter_ids: Ids = None,
    limit: Limit = None,
    where: Where = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    actor: options.Actor = None,
    app: options.App = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Close dead letters: reviewed or replayed -> closed. Nothing more will be done about them.

    Give the ids of letters, or choose letters: --limit N alone takes the N oldest reviewed or replayed letters, --where
    narrows the choice (status=replayed). The reason is required.
    """
    choice = _Choice(letter_ids or (), tuple(where or ()), limit, dry_run, yes)
    _Step(ReviewStatus.CLOSED, decision(actor, reason), app, data, json).take(choice)


@dataclass(frozen=True, slots=True)
class _Choice:
    """The chosen letters, and whether to ask or only to show."""

    ids: Sequence[str]
    where: Sequence[str]
    limit: int | None
    dry_run: bool
    yes: bool


@dataclass(frozen=True, slots=True)
class _Step:
    """One step: the new state, the actor and the reason, and the ledger."""

    step: ReviewStatus
    why: DecisionBody
    app: str | None
    data: Path | None
    json: bool

    @property
    def states(self) -> str:
        """The states that the step is taken from, in words."""
        return " or ".join(state.value for state in STEPS_FROM[self.step])

    def take(self, choice: _Choice) -> None:
        """Take the step, or show what would be changed."""
        by_condition = bool(choice.where) or choice.limit is not None
        if choice.ids and by_condition:
            message = "Give ids of dead letters, or choose letters with --where and --limit, not both."
            raise Stop(message)
        if not choice.ids and not by_condition:
            message = f"Which letters? Give ids, --where field=value, or --limit N for the N oldest {self.states} ones."
            raise Stop(message)
        if choice.ids:
            self._report_each(asyncio.run(self._named(choice.ids, dry_run=choice.dry_run)), dry_run=choice.dry_run)
            return
        if not (choice.yes or choice.dry_run or sys.stdin.isatty()):
            message = "--where and --limit need a confirmation, and this is no terminal: add --yes, or --dry-run."
            raise Stop(message)
        chosen = asyncio.run(self._choose(choice))
        if choice.dry_run:
            self._report(asyncio.run(self._preview(chosen)), dry_run=True)
            if chosen.letters and not (choice.yes or sys.stdin.isatty()):
                say("Without --dry-run this needs a confirmation: add --yes.")
        elif not chosen.letters:
            self._report(StepReport(chosen.matched), dry_run=False)
        else:
            if not choice.yes:
                self._confirm(chosen)
            self._report(asyncio.run(self._move(chosen)), dry_run=False)
        if chosen.unreviewed:
            self._report_unreviewed(chosen, choice)

    # --- the letters that were named ------------------------------------------------------------------------

    async def _named(self, letter_ids: Sequence[str], *, dry_run: bool) -> StepReport:
        """Take the step for each letter. A refused letter does not stop the others."""
        async with existing_system(self.data, self.app) as system:
            reviews, by = system.review, {"actor": self.why.actor, "reason": self.why.reason}

            async def decide(letter_id: str) -> DeadLetter:
                match self.step:
                    case ReviewStatus.REVIEWED:
                        return await reviews.review(letter_id, **by)
                    case ReviewStatus.REPLAYED:
                        return await reviews.replay(letter_id, **by)
                    case _:
                        return await reviews.close(letter_id, **by)

            found = StepReport(len(letter_ids))
            for letter_id in dict.fromkeys(letter_ids):
                try:
                    await (reviews.check(self.step, letter_id) if dry_run else decide(letter_id))
                except (NotFound, ReviewRefused) as error:
                    found.refused[letter_id] = error.message
                else:
                    found.moved.append(letter_id)
            return found

    def _report_each(self, found: StepReport, *, dry_run: bool) -> None:
        if self.json:
            print_json({"moved": found.moved, "refused": _refusals(found)})
        else:
            done = f"would be {self.step.value}" if dry_run else f"is {self.step.value}"
            for letter_id in found.moved:
                say(f"{letter_id} {done}.")
        _stop_if_refused(found)

    # --- the letters that conditions choose -----------------------------------------------------------------

    async def _choose(self, choice: _Choice) -> Chosen:
        query = query_of(choice.where)
        async with existing_system(self.data, self.app) as system:
            return await system.review.choose(self.step, query, limit=choice.limit or _DEFAULT_LIMIT)

    async def _preview(self, chosen: Chosen) -> StepReport:
        async with existing_system(self.data, self.app) as system:
            return await system.review.preview(chosen)

    async def _move(self, chosen: Chosen) -> StepReport:
        async with existing_system(self.data, self.app) as system:
            with progress(f"{self.step.value.capitalize()}", len(chosen.letters)) as bar:
                return await system.review.move(chosen, actor=self.why.actor, reason=self.why.reason, progress=bar)

    def _confirm(self, chosen: Chosen) -> None:
        for (workload, code), number in Counter((each.workload, each.reason_code) for each in chosen.letters).items():
            say(f"{number:>7}  {workload}  {code}")
        number = len(chosen.letters)
        question = f"{number} of {chosen.matched} {self.states} dead letters will be {self.step.value}. Continue?"
        typer.confirm(question, abort=True, err=True)

    def _report(self, found: StepReport, *, dry_run: bool) -> None:
        if self.json:
            moved = {self.step.value: found.moved, "skipped": found.skipped, "refused": _refusals(found)}
            print_json({"dryRun": dry_run, "matched": found.matched, **moved})
        else:
            for letter_id in found.moved:
                print_line(letter_id)
            if not found.matched:
                say(f"No {self.states} dead letter matches these conditions.")
            else:
                done = f"would be {self.step.value}" if dry_run else self.step.value
                say(f"{len(found.moved)} of {found.matched} {self.states} dead letters {done}.")
            if found.skipped:
                say(f"{len(found.skipped)} were skipped: somebody else changed them in the meantime.")
        _stop_if_refused(found)

    def _report_unreviewed(self, chosen: Chosen, choice: _Choice) -> None:
        """Report matching letters without a review. It is an error if no other letter matched."""
        conditions = "".join(f" --where {shlex.quote(each)}" for each in choice.where)
        waiting = "1 dead letter waits" if chosen.unreviewed == 1 else f"{chosen.unreviewed} dead letters wait"
        how = f"holdfast dlq review{conditions} --limit {chosen.unreviewed} --reason ..."
        if not chosen.letters:
            message = f"{waiting} for review; only reviewed ones can be {self.step.value}. Review first: {how}"
            raise Stop(message, code=REFUSED)
        say(f"{waiting} for review: {how}")


def _refusals(found: StepReport) -> list[dict[str, str]]:
    return [{"id": letter_id, "message": why} for letter_id, why in found.refused.items()]


def _stop_if_refused(found: StepReport) -> None:
    if found.refused:
        raise Stop(*(f"{letter_id}: {why}" for letter_id, why in found.refused.items()), code=REFUSED)
