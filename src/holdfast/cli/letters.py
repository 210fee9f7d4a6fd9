"""``dlq``: read dead letters. The steps of the review are in :mod:`.letter_steps`.

The commands work on the store itself. They need no server, and running servers do not disturb them.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from holdfast.api.views import LetterSummary, LetterView
from holdfast.contracts.dead_letters import DeadLetter, ListedLetter, ReviewStatus
from holdfast.contracts.queries import Page
from holdfast.contracts.workload import readable_body
from holdfast.wiring import System

from . import letter_steps, options
from .letter_filters import HELP, query_of
from .opening import existing_system
from .output import moment, show_document, show_facts, show_item, show_list, show_table

dlq = typer.Typer(help="Read, review, replay and close dead letters.", no_args_is_help=True, add_completion=False)


@dlq.command("list")
async def list_(
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
    async with existing_system(data, app) as system:
        found, total = await system.review.list(query, Page(limit, cursor)), await system.review.count(query)
    empty = "There are no dead letters. Good." if query.empty else "No dead letter matches these conditions."
    show_list(found, _row, _summary, json=json, whole=("id", "status", "failed"), empty=empty, total=total)


@dlq.command("show")
async def show(
    letter_id: Annotated[str, typer.Argument(metavar="ID", help="The dead letter.", show_default=False)],
    app: options.App = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Show one dead letter: attempts, decisions, and the payload of the job."""
    async with existing_system(data, app) as system:
        letter = await system.review.show(letter_id)
        payload = _payload(system, letter)
    show_item(
        {**LetterView.whole(letter, payload).as_json(), "labels": dict(letter.labels)},
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
        },
        json=json,
        attempts=letter.attempts,
        sections={"Decisions": partial(_show_decisions, letter), "Payload": partial(show_document, payload)},
    )


dlq.command("review")(letter_steps.review)
dlq.command("close")(letter_steps.close)
dlq.command("replay")(letter_steps.replay)


def _row(letter: ListedLetter) -> dict[str, object]:
    return {
        "id": letter.id,
        "status": letter.review_status,
        "workload": letter.workload,
        "key": letter.key,
        "reason": letter.reason_code,
        "attempts": letter.attempt_count,
        "failed": moment(letter.created_at),
    }


def _summary(letter: ListedLetter) -> dict[str, object]:
    return LetterSummary.of(letter).as_json()


def _show_decisions(letter: DeadLetter) -> None:
    if letter.decisions:
        rows = ((each.step, each.actor, each.reason, moment(each.at)) for each in letter.decisions)
        show_table(("step", "who", "why", "when"), rows, whole=("when",))
    else:
        show_facts({"none": f"Nobody has reviewed it: holdfast dlq review {letter.id} --reason ..."})


def _payload(system: System, letter: DeadLetter) -> object:
    """The payload, as the letter's workload shows it."""
    workload = system.workloads.get(letter.workload)
    if workload is None:
        return readable_body(letter.body)
    return workload.dead_letter_payload(letter).get("payloadSnapshot", workload.readable(letter.body))
