"""``/v1/dead-letters``: read them, and take the steps that only people take (I9)."""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request
from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from holdfast.contracts.dead_letters import DeadLetter, ReviewStatus
from holdfast.contracts.queries import LetterQuery, Page
from holdfast.contracts.workload import readable_body

from .errors import Code, Refusal
from .operators import DecisionBody, fulfil, read_raw_json
from .services import ApiOptions, ApiServices
from .views import LetterList, LetterSummary, LetterView, RefusedLetter, ReplayView

_PATH: Final = "/v1/dead-letters"
_MAX_PAGE: Final = 200
_MAX_REPLAY: Final = 1000
_DATE_AND_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T")

LetterId = Annotated[str, Path(alias="letterId", examples=["dl_0123456789abcdef0123"])]
Filter = Annotated[str, Field(min_length=1, max_length=500)]


def _written_out(value: object) -> object:
    """Pydantic would also read a bare number as a time, in seconds or milliseconds as it sees fit."""
    if not isinstance(value, str) or _DATE_AND_TIME.match(value) is None:
        message = "must be an instant in ISO 8601 with its offset, such as 2026-02-26T12:00:00Z"
        raise ValueError(message)
    return value


Instant = Annotated[AwareDatetime, BeforeValidator(_written_out)]


class LetterFilter(BaseModel):
    """Which dead letters. All the given conditions must hold."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)

    workload: Filter | None = Field(default=None, examples=["courier"])
    review_status: ReviewStatus | None = None
    reason_code: Filter | None = Field(default=None, examples=["DOWNSTREAM_TIMEOUT_EXHAUSTED"])
    key: Filter | None = Field(default=None, description="The idempotency key.")
    created_after: Instant | None = None
    created_before: Instant | None = None

    def query(self) -> LetterQuery:
        """The same for the engine."""
        return LetterQuery(
            workload=self.workload,
            review_status=self.review_status,
            reason_code=self.reason_code,
            key=self.key,
            created_after=self.created_after,
            created_before=self.created_before,
        )


class LetterListing(LetterFilter):
    """A page of the dead letters that match."""

    limit: int = Field(default=50, ge=1, le=_MAX_PAGE)
    cursor: Filter | None = Field(default=None, description="The `next` of the page before.")


class ReplayBody(DecisionBody):
    """A replay of many: the filter must say something, and only letters in `reviewed` are replayed."""

    filter: LetterFilter
    limit: int = Field(strict=True, ge=1, le=_MAX_REPLAY, description="At most this many, the oldest first.")
    dry_run: bool = Field(default=False, strict=True, description="Only tell what would be replayed.")


def dead_letter_routes(services: ApiServices, options: ApiOptions) -> APIRouter:
    """List, show, review, replay, close."""
    routes = APIRouter(tags=["dead letters"])
    # First, so that its path is not taken for the id of a letter.
    _add_replay_by_filter(routes, services, options)
    _add_reading(routes, services)
    _add_decisions(routes, services, options)
    return routes


def _add_reading(routes: APIRouter, services: ApiServices) -> None:
    @routes.get(_PATH, summary="List dead letters, oldest first")
    async def list_letters(asked: Annotated[LetterListing, Query()]) -> LetterList:
        query = asked.query()
        found = await services.review.list(query, Page(limit=asked.limit, cursor=asked.cursor))
        total = await services.review.count(query)
        return LetterList(items=[LetterSummary.of(each) for each in found.items], total=total, next=found.next)

    @routes.get(f"{_PATH}/{{letterId}}", summary="Show a dead letter, whole")
    async def show_letter(letter_id: LetterId) -> LetterView:
        return _whole(services, await services.review.show(letter_id))


def _add_replay_by_filter(routes: APIRouter, services: ApiServices, options: ApiOptions) -> None:
    @routes.post(
        f"{_PATH}/replay",
        summary="Replay many by filter",
        description="Moves letters from `reviewed` to `replayed`, the oldest first. An empty filter is refused.",
    )
    async def replay_where(request: Request) -> ReplayView:
        asked = fulfil(ReplayBody, await read_raw_json(request, options.max_body_bytes))
        report = await services.review.replay_where(
            asked.filter.query(),
            limit=asked.limit,
            actor=asked.actor,
            reason=asked.reason,
            dry_run=asked.dry_run,
        )
        return ReplayView(
            dry_run=asked.dry_run,
            matched=report.matched,
            replayed=report.moved,
            skipped=report.skipped,
            refused=[RefusedLetter(id=letter_id, message=why) for letter_id, why in report.refused.items()],
        )

    @routes.get(f"{_PATH}/replay", include_in_schema=False)
    async def replay_is_not_a_letter() -> None:
        raise Refusal(Code.METHOD_NOT_ALLOWED, headers={"allow": "POST"})


def _add_decisions(routes: APIRouter, services: ApiServices, options: ApiOptions) -> None:
    review = services.review

    async def decision(request: Request) -> DecisionBody:
        return fulfil(DecisionBody, await read_raw_json(request, options.max_body_bytes))

    @routes.post(f"{_PATH}/{{letterId}}/review", summary="Mark as reviewed: pending -> reviewed")
    async def review_letter(request: Request, letter_id: LetterId) -> LetterView:
        why = await decision(request)
        return _whole(services, await review.review(letter_id, actor=why.actor, reason=why.reason))

    @routes.post(f"{_PATH}/{{letterId}}/replay", summary="Run the job again: reviewed -> replayed")
    async def replay_letter(request: Request, letter_id: LetterId) -> LetterView:
        why = await decision(request)
        return _whole(services, await review.replay(letter_id, actor=why.actor, reason=why.reason))

    @routes.post(f"{_PATH}/{{letterId}}/close", summary="Close: reviewed or replayed -> closed")
    async def close_letter(request: Request, letter_id: LetterId) -> LetterView:
        why = await decision(request)
        return _whole(services, await review.close(letter_id, actor=why.actor, reason=why.reason))


def _whole(services: ApiServices, letter: DeadLetter) -> LetterView:
    """The letter with the payload as its workload shows it on the wire."""
    workload = services.workloads.get(letter.workload)
    if workload is None:
        return LetterView.whole(letter, readable_body(letter.body))
    told = workload.dead_letter_payload(letter)
    return LetterView.whole(letter, told.get("payloadSnapshot", workload.readable(letter.body)))
