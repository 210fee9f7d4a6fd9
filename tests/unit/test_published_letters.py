"""A dead letter in the queue has the fields of its specification. Tracebacks stay in the store, for operators."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from holdfast.contracts.dead_letters import DeadLetter, ReviewStatus
from holdfast.contracts.ledger import Attempt, AttemptOutcome
from holdfast.features.courier.workload import Courier
from holdfast.features.documents.dead_letter import dead_letter_payload as document_letter
from holdfast.features.email.queues import dead_letter_payload as email_letter
from tests.conformance.vocabulary import Things

AT = datetime(2026, 2, 26, 12, tzinfo=UTC)
TRACEBACK = 'File "secret_place.py", line 7, in handle'

PAYLOADS = {
    "a workload's own": lambda letter: Things().dead_letter_payload(letter),
    "courier": lambda letter: Courier().dead_letter_payload(letter),
    "email": lambda letter: email_letter(letter, {}),
    "documents": lambda letter: document_letter(letter, {}, 3),
}


@pytest.mark.parametrize("payload_of", PAYLOADS.values(), ids=PAYLOADS)
def test_a_published_letter_has_no_traceback(payload_of):
    letter = DeadLetter(
        id="dl_1",
        workload="w",
        key="k",
        job_id="j",
        generation=1,
        reason_code="BROKEN",
        reason_message="It broke.",
        attempt_count=1,
        labels={},
        review_status=ReviewStatus.PENDING,
        created_at=AT,
        updated_at=AT,
        expires_at=AT,
        attempts=(Attempt(1, AttemptOutcome.FAILED, "w-1", AT, AT, "BROKEN", "It broke.", TRACEBACK),),
        body="{}",
        decisions=(),
    )

    published = json.dumps(payload_of(letter))

    assert "BROKEN" in published
    assert "traceback" not in published
    assert "secret_place" not in published
