"""``/v1/dead-letters``: read dead letters, and review, replay or close them. Only people do this (I9)."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from holdfast.contracts.dead_letters import DeadLetter, ReviewStatus
from holdfast.contracts.queries import LetterQuery, Page
from holdfast.contracts.workload import readable_body

from . import ApiOptions, ApiServices
from .errors import Code
from .filters import MAX_PAGE, Filter, Instant
from .openapi import refusals
from .operators import DecisionBody
from .routes import Routes, json_body
from .views import LetterList, LetterSummary, LetterView, RefusedLetter, ReplayView

_PATH: Final = "/v1/dead-letters"
_ABOUT: Final = "Jobs that failed for good. A person decides what happens to them. Needs the operator token."
_MAX_REPLAY: Final = 1000

LetterId = Annotated[str, Path(alias="letterId", examples=["dl_0123456789abcdef0123"])]


class LetterFilter(BaseModel):
    """A filter for dead letters. All the given conditions must hold."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)

    workload: Filter | None = Field(default=None, examples=["courier"])
    review_status: ReviewStatus | None = None
    reason_code: Filter | None = Field(default=None, examples=["DOWNSTREAM_TIMEOUT_EXHAUSTED"])
    key: Filter | None = Field(default=None, description="The idempotency key.")
    created_after: Instant | None = None
    created_before: Instant | None = None

    def query(self) -> LetterQuery:
        """The filter as a query of the engine."""
        return LetterQuery(
            workload=self.workload,
            review_status=self.review_status,
            reason_code=self.reason_code,
            key=self.key,
            created_after=self.created_after,
            created_before=self.created_before,
        )


class LetterListing(LetterFilter):
    """A filter for dead letters, and which page of them to show."""

    limit: int = Field(default=50, ge=1, le=MAX_PAGE)
    cursor: Filter | None = Field(default=None, description="The `next` of the page before.")


class ReplayBody(DecisionBody):
    """A replay of many dead letters. The filter must have a condition. Only letters in `reviewed` are replayed."""

    filter: LetterFilter
    limit: int = Field(
        strict=True, ge=1, le=_MAX_REPLAY, description="At most this many, the oldest first.", examples=[100]
    )
    dry_run: bool = Field(
        default=False, strict=True, description="Only show which letters would be replayed.", examples=[True]
    )


def dead_letter_routes(services: ApiServices, options: ApiOptions) -> Routes:
    """List, show, review, replay, close."""
    routes = Routes("dead letters", _ABOUT)
    # This route comes first, so that its path is not read as the id of a letter.
    _add_replay_by_filter(routes, services, options)
    _add_reading(routes, services)
    _add_decisions(routes, services, options)
    return routes


def _add_reading(routes: Routes, services: ApiServices) -> None:
    @routes.get(_PATH, summary="List dead letters, oldest first")
    async def list_letters(listing: Annotated[LetterListing, Query()]) -> LetterList:
        query = listing.query()
        found = await services.review.list(query, Page(limit=listing.limit, cursor=listing.cursor))
        total = await services.review.count(query)
        return LetterList(items=[LetterSummary.of(each) for each in found.items], total=total, next=found.next)

    @routes.get(f"{_PATH}/{{letterId}}", summary="Show a dead letter with its payload, attempts and decisions")
    async def show_letter(letter_id: LetterId) -> LetterView:
        return _full_view(services, await services.review.show(letter_id))


def _add_replay_by_filter(routes: Routes, services: ApiServices, options: ApiOptions) -> None:
    @routes.post(
        f"{_PATH}/replay",
        summary="Replay many dead letters by filter",
        description="Moves letters from `reviewed` to `replayed`, the oldest first. An empty filter is refused.",
    )
    async def replay_where(body: ReplayBody = json_body(limit=options.max_body_bytes)) -> ReplayView:
        report = await services.review.replay_where(
            body.filter.query(),
            limit=body.limit,
            actor=body.actor,
            reason=body.reason,
            dry_run=body.dry_run,
        )
        return ReplayView(
            dry_run=body.dry_run,
            matched=report.matched,
            replayed=report.moved,
            skipped=report.skipped,
            refused=[RefusedLetter(id=letter_id, message=why) for letter_id, why in report.refused.items()],
        )

    routes.only_post(f"{_PATH}/replay")


def _add_decisions(routes: Routes, services: ApiServices, options: ApiOptions) -> None:
    review = services.review
    body = json_body(limit=options.max_body_bytes)
    conflict = refusals(Code.REVIEW_STATE_CONFLICT)

    @routes.post(f"{_PATH}/{{letterId}}/review", summary="Mark as reviewed: pending -> reviewed", responses=conflict)
    async def review_letter(letter_id: LetterId, decision: DecisionBody = body) -> LetterView:
        return _full_view(services, await review.review(letter_id, actor=decision.actor, reason=decision.reason))

    @routes.post(f"{_PATH}/{{letterId}}/replay", summary="Run the job again: reviewed -> replayed", responses=conflict)
    async def replay_letter(letter_id: LetterId, decision: DecisionBody = body) -> LetterView:
        return _full_view(services, await review.replay(letter_id, actor=decision.actor, reason=decision.reason))

    @routes.post(f"{_PATH}/{{letterId}}/close", summary="Close: reviewed or replayed -> closed", responses=conflict)
    async def close_letter(letter_id: LetterId, decision: DecisionBody = body) -> LetterView:
        return _full_view(services, await review.close(letter_id, actor=decision.actor, reason=decision.reason))


def _full_view(services: ApiServices, letter: DeadLetter) -> LetterView:
    """The letter with its payload. The workload decides how the payload is shown."""
    workload = services.workloads.get(letter.workload)
    if workload is None:
        return LetterView.whole(letter, readable_body(letter.body))
    published = workload.dead_letter_payload(letter)
    return LetterView.whole(letter, published.get("payloadSnapshot", workload.readable(letter.body)))
