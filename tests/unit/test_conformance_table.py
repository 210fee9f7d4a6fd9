"""docs/conformance.md names code and tests for each rule of docs/specification. Here both are compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.support.references import (
    REFERENCE,
    ROOT,
    SOURCE,
    a_test_exists,
    code_exists,
    missing_code,
    missing_tests,
    texts,
)
from tests.support.specification import PAGES, citations, rules

NOTE = re.compile(r"\[(\d+)\]")
RULES = rules()
SECTIONS = {"Courier": "C", "Documents": "D", "Email": "E"}
BEYOND = "What no rule asks for"

EVENT_FIELDS = "eventId eventType occurredAt source idempotencyKey traceId signatureMeta payload receivedAt attempt"
LETTER_FIELDS = "terminalReasonCode terminalReasonMessage attemptCount attemptHistory payloadSnapshot deadLetteredAt"
WORDS = {
    "Courier": f"""{EVENT_FIELDS} {LETTER_FIELDS} algorithm timestamp signature shipmentId orderId status outcome
        errorCode courier-events-main courier-events-dlq
        RETRY_MAX_ATTEMPTS RETRY_BACKOFF_BASE_MS RETRY_BACKOFF_MULTIPLIER RETRY_JITTER_PERCENT DLQ_TTL_DAYS
        ECONNREFUSED ETIMEDOUT dead_letter_events processed_events active_shipments
        lastErrorCode lastErrorMessage firstSeenAt updatedAt expiresAt
        received processing processed failed dead_lettered currentState lastEventId lastEventType
        lastEventAt metadata createdAt reviewStatus pending reviewed replayed closed""",
    "Documents": """job_id job_type input_type payload status error error_type attempts max_attempts failed_at worker_id
        schema_version OCR TRANSCRIPTION PDF VIDEO AUDIO FAILED VALIDATION IO MODEL SYSTEM v1 doc_jobs_dead""",
    "Email": """email:send data opts outboxId companyId requestId to cc bcc subject htmlRef replyTo headers tags
        recipient recipientId externalId cpfCnpjHash razaoSocial nome recipient.email attempt enqueuedAt jobId ttl
        priority delay removeOnComplete removeOnFail EMAIL_JOB_CONFIG QUEUE_NAME DEFAULT_TTL DEFAULT_PRIORITY
        MAX_ATTEMPTS BACKOFF_DELAYS DLQ_TTL EXPIRED SENT ALREADY_SENT sesMessageId status processedAt durationMs
        concurrency limiter INVALID_EMAIL fetchHtmlByRef upsertRecipient email_outbox email_log cpfCnpj
        u***@e***.com""",
}
PHRASES = {
    "Courier": [
        "received -> processing -> processed",
        "received -> processing -> failed -> processing",
        "pending -> reviewed -> replayed -> closed",
        "received -> processing",
        "processing -> processed",
        "processing -> failed",
        "failed -> processing",
        "failed -> dead_lettered",
        "(status, updatedAt)",
        "(currentState, updatedAt)",
        "(reviewStatus, createdAt)",
        "(createdAt)",
    ],
}
MENTIONED = [(section, term) for section in WORDS for term in [*WORDS[section].split(), *PHRASES.get(section, [])]]


class Row(NamedTuple):
    section: str
    number: str
    """Empty in the table of what no rule asks for."""
    rule: str
    code: str
    test: str


def page() -> str:
    return (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")


def rows() -> Iterator[Row]:
    section = ""
    for line in page().splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif line.startswith("| ") and not line.startswith(("| Rule |", "| In short |")):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            if section == BEYOND:
                cells.insert(0, "")
            assert len(cells) == 4, f"not as many cells as the table has: {line}"
            yield Row(section, *cells)


ROWS = list(rows())
REFERRING = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.number or row.rule)


# --- the specification ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("letter", PAGES)
def test_the_rules_of_a_page_are_numbered_from_one(letter):
    numbers = [int(number[1:]) for number, _ in RULES if number.startswith(letter)]

    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize(("section", "term"), MENTIONED)
def test_everything_that_the_specification_names_is_in_a_rule(section, term):
    letter = SECTIONS[section]

    assert any(number.startswith(letter) and term in text for number, text in RULES)


def test_the_first_page_tells_how_many_rules_there_are():
    first = (ROOT / "docs" / "specification" / "README.md").read_text(encoding="utf-8")

    for letter, name in PAGES.items():
        count = sum(number.startswith(letter) for number, _ in RULES)
        assert re.search(rf"\[{re.escape(name)}\].* {letter}1 to {letter}{count} \|", first)


# --- conformance ------------------------------------------------------------------------------------------------------


def test_every_rule_has_one_row_in_its_table():
    assert [(row.section, row.number) for row in ROWS if row.number] == [
        (section, number) for section, letter in SECTIONS.items() for number, _ in RULES if number.startswith(letter)
    ]


@REFERRING
def test_the_named_code_exists(row):
    assert REFERENCE.findall(row.code), "the row names no code"
    assert missing_code(row.code) == []


@REFERRING
def test_the_named_tests_exist(row):
    references = REFERENCE.findall(row.test)

    assert references, "the row names no test"
    assert all(path.startswith("tests/") and name.startswith("test_") for path, name in references)
    assert missing_tests(row.test) == []


@pytest.mark.parametrize(("section", "term"), MENTIONED)
def test_everything_that_the_specification_names_has_a_row(section, term):
    assert any(row.section == section and f"`{term}`" in row.rule for row in ROWS)


@pytest.mark.parametrize("section", [*SECTIONS, BEYOND])
def test_every_table_has_a_section(section):
    assert f"\n## {section}\n" in page()


def test_every_note_is_explained_and_every_explanation_is_used():
    tables, _, explanations = page().partition("## Deviations and decisions")

    assert set(NOTE.findall(tables)) == set(re.findall(r"^(\d+)\. ", explanations, re.MULTILINE))


# --- citations --------------------------------------------------------------------------------------------------------


def test_every_cited_rule_exists():
    known = {number for number, _ in RULES}
    unknown = [(path, number) for path, text in texts() for number in citations(text) if number not in known]

    # Those of the next test but one are meant to be wrong.
    assert [each for each in unknown if each[0] != "tests/unit/test_conformance_table.py"] == []


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("as rule C7 has it", ["C7"]),
        ("Rules C7, C8 and E12.", ["C7", "C8", "E12"]),
        ("the payload alone (C58)", ["C58"]),
        ("both (D20, D21)", ["D20", "D21"]),
        ("rule C999", ["C999"]),
        ("# noqa: D102, E501", []),
        ("a C1 control character", []),
        ("call(E7)", ["E7"]),
    ],
)
def test_a_citation_is_recognised(text, numbers):
    assert list(citations(text)) == numbers


# --- these tests can fail ---------------------------------------------------------------------------------------------


def test_a_name_that_does_not_exist_is_noticed():
    assert code_exists(SOURCE / "features/courier/contract.py", "CourierEvent.eventId")
    assert not code_exists(SOURCE / "features/courier/contract.py", "CourierEvent.eventID")
    assert not code_exists(SOURCE / "workloads/courier/contracts.py", "CourierEvent")
    assert not a_test_exists(ROOT / "tests/unit/test_conformance_table.py", "test_of_nothing")


def test_no_rule_is_there_twice():
    assert [number for number, count in Counter(number for number, _ in RULES).items() if count > 1] == []
