"""``dlq replay``: run again what died, once a person has reviewed it and the cause is mended (I9)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from holdfast.api.operators import DecisionBody
from holdfast.contracts.dead_letters import DeadLetter, ReviewStatus
from holdfast.contracts.errors import ReviewRefused
from holdfast.contracts.queries import LetterQuery
from holdfast.engine.review import ReplayReport

from . import options
from .deciding import Decided, decide_each, decision, report
from .failures import Stop
from .letter_filters import HELP, query_of
from .opening import existing_system
from .output import print_json, print_line, say
from .tables import progress

_NO_REASON: Final = "Replayed from the command line; no reason was given."
_DEFAULT_LIMIT: Final = 100

_Place = tuple[str | None, Path | None]
"""The app, and the data folder."""


def replay(
    letter_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="The dead letters.", show_default=False)
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, max=1_000_000, help="At most this many, the oldest first.", show_default="with --where: 100"
        ),
    ] = None,
    where: Annotated[list[str] | None, typer.Option(metavar="FIELD=VALUE", help=HELP, show_default=False)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be replayed.")] = False,
    reason: Annotated[
        str, typer.Option(help="What was mended; kept with the dead letter.", show_default="that none was given")
    ] = _NO_REASON,
    actor: options.Actor = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    app: options.App = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Run the jobs of reviewed dead letters again: reviewed -> replayed.

    Name the letters, or choose them: --limit N alone replays the N oldest reviewed ones, --where narrows the choice. A
    letter that nobody has reviewed is never replayed, and none is replayed twice.
    """
    if letter_ids and (where or limit is not None):
        message = "Name dead letters or choose them with --where and --limit, not both."
        raise Stop(message)
    if not letter_ids and not where and limit is None:
        message = "Say which: their ids, --where field=value, or --limit N for the N oldest reviewed ones."
        raise Stop(message)
    why = decision(actor, reason)
    place = (app, data)
    if letter_ids:
        _replay_named(letter_ids, why, place, dry_run=dry_run, json=json)
        return
    if not (yes or dry_run or sys.stdin.isatty()):
        message = "A replay of many asks first, and there is nobody to ask here: add --yes, or --dry-run to look."
        raise Stop(message)
    query = query_of(where or ())
    if query.empty:
        query = LetterQuery(review_status=ReviewStatus.REVIEWED)
    limit = limit or _DEFAULT_LIMIT
    if dry_run or not yes:
        preview = asyncio.run(_replay_chosen(query, limit, why, place, dry_run=True))
        if dry_run:
            _report(preview, dry_run=True, json=json)
            return
        if not preview.replayed:
            _report(preview, dry_run=False, json=json)
            return
        number = len(preview.replayed)
        typer.confirm(
            f"{number} of {preview.matched} reviewed dead letters will run again. Go on?", abort=True, err=True
        )
    _report(asyncio.run(_replay_chosen(query, limit, why, place, dry_run=False)), dry_run=False, json=json)


def _replay_named(letter_ids: Sequence[str], why: DecisionBody, place: _Place, *, dry_run: bool, json: bool) -> None:
    async def decide() -> Decided:
        async with existing_system(place[1], place[0]) as system:
            desk = system.review

            async def look(letter_id: str) -> DeadLetter:
                letter = await desk.show(letter_id)
                if letter.review_status is not ReviewStatus.REVIEWED:
                    message = f"The dead letter is {letter.review_status.value}; it cannot become replayed."
                    raise ReviewRefused(message)
                return letter

            async def run_again(letter_id: str) -> DeadLetter:
                return await desk.replay(letter_id, actor=why.actor, reason=why.reason)

            return await decide_each(letter_ids, look if dry_run else run_again)

    report(asyncio.run(decide()), "would be replayed" if dry_run else "is replayed", json=json)


async def _replay_chosen(
    query: LetterQuery, limit: int, why: DecisionBody, place: _Place, *, dry_run: bool
) -> ReplayReport:
    async with existing_system(place[1], place[0]) as system:
        with progress("Replaying", limit) as told:
            return await system.review.replay_where(
                query, limit=limit, actor=why.actor, reason=why.reason, dry_run=dry_run, progress=told
            )


def _report(found: ReplayReport, *, dry_run: bool, json: bool) -> None:
    if json:
        facts = {"dryRun": dry_run, "matched": found.matched, "replayed": found.replayed, "skipped": found.skipped}
        print_json(facts)
        return
    for letter_id in found.replayed:
        print_line(letter_id)
    if not found.matched:
        say("No reviewed dead letter meets these conditions; `holdfast dlq list --status pending` shows what waits.")
        return
    done = "would be replayed" if dry_run else "replayed"
    say(f"{len(found.replayed)} of {found.matched} reviewed dead letters {done}.")
    if found.skipped:
        say(f"{len(found.skipped)} were left alone: somebody else moved them in the meantime.")
