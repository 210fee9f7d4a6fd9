"""``dlq``: read dead letters. The steps of the review are in :mod:`.letter_steps`.

The commands work on the store itself. They need no server, and running servers do not disturb them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.api.views import LetterSummary, LetterView
from holdfast.contracts.dead_letters import DeadLetter, ReviewStatus
from holdfast.contracts.queries import LetterQuery, Page, Slice
from holdfast.contracts.workload import readable_body

from . import letter_steps, options
from .events import show_attempts
from .letter_filters import HELP, query_of
from .opening import existing_system
from .output import print_json, say
from .tables import heading, moment, show_document, show_facts, show_table

dlq = typer.Typer(help="Read, review, replay and close dead letters.", no_args_is_help=True, add_completion=False)


@dlq.command("list")
def list_(
    status: Annotated[
        ReviewStatus | None, typer.Option(help="Only with this review status.", show_default=False)
    ] = None,
    reason: Annotated[
        str | None, typer.Option(metavar="CODE", help="Only with this reason code.", show_default=False)
    ] = None,
    workload: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only of this workload.", show_default=False)
    ] = None,
    where: Annotated[list[str] | None, typer.Option(metavar="FIELD=VALUE", help=HELP, show_default=False)] = None,
    limit: options.Limit = 20,
    cursor: options.Cursor = None,
    app: options.App = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """List dead letters, oldest first."""
    query = query_of(where or (), status=status, reason=reason, workload=workload)
    found, total = asyncio.run(_find(query, Page(limit, cursor), app, data))
    if json:
        print_json({"items": [_summary(each) for each in found.items], "total": total, "next": found.next})
        return
    if not found.items:
        say("There are no dead letters. Good." if query.empty else "No dead letter matches these conditions.")
        return
    rows = (
        (
            each.id,
            each.review_status,
            each.workload,
            each.key,
            each.reason_code,
            each.attempt_count,
            moment(each.created_at),
        )
        for each in found.items
    )
    columns = ("id", "status", "workload", "key", "reason", "attempts", "failed")
    show_table(columns, rows, whole=("id", "status", "failed"))
    if found.next:
        say(f"{len(found.items)} of {total}; the next ones: --cursor {found.next}")


@dlq.command("show")
def show(
    letter_id: Annotated[str, typer.Argument(metavar="ID", help="The dead letter.", show_default=False)],
    app: options.App = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Show one dead letter: attempts, decisions, and the payload of the job."""
    letter, payload = asyncio.run(_show(letter_id, app, data))
    if json:
        view: dict[str, Any] = LetterView.whole(letter, payload).model_dump(mode="json", by_alias=True)
        print_json({**view, "labels": dict(letter.labels)})
        return
    show_facts(
        {
            "id": letter.id,
            "status": letter.review_status,
            "reason": letter.reason_code,
            "what happened": letter.reason_message,
            "workload": letter.workload,
            "key": letter.key,
            "job id": letter.job_id,
            "generation": letter.generation,
            "failed": moment(letter.created_at),
            "kept until": moment(letter.expires_at),
            "replayed as": letter.replayed_as,
            **{f"label {name}": value for name, value in letter.labels.items()},
        }
    )
    show_attempts(letter.attempts)
    heading("Decisions")
    if letter.decisions:
        rows = ((each.step, each.actor, each.reason, moment(each.at)) for each in letter.decisions)
        show_table(("step", "who", "why", "when"), rows, whole=("when",))
    else:
        show_facts({"none": f"Nobody has reviewed it: holdfast dlq review {letter.id} --reason ..."})
    heading("Payload")
    show_document(payload)


dlq.command("review")(letter_steps.review)
dlq.command("close")(letter_steps.close)
dlq.command("replay")(letter_steps.replay)


def _summary(letter: DeadLetter) -> dict[str, Any]:
    summary: dict[str, Any] = LetterSummary.of(letter).model_dump(mode="json", by_alias=True)
    return summary


async def _find(query: LetterQuery, page: Page, app: str | None, data: Path | None) -> tuple[Slice[DeadLetter], int]:
    async with existing_system(data, app) as system:
        return await system.review.list(query, page), await system.review.count(query)


async def _show(letter_id: str, app: str | None, data: Path | None) -> tuple[DeadLetter, object]:
    """The letter, and the payload as its workload shows it."""
    async with existing_system(data, app) as system:
        letter = await system.review.show(letter_id)
        workload = system.workloads.get(letter.workload)
        if workload is None:
            return letter, readable_body(letter.body)
        return letter, workload.dead_letter_payload(letter).get("payloadSnapshot", workload.readable(letter.body))
