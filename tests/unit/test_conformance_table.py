"""docs/conformance.md says which code and which test answer for each rule of the seeds. Here it is held to that."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
REFERENCE = re.compile(r"`([\w/]+\.py)::([\w.]+)`")
NOTE = re.compile(r"\[(\d+)\]")

EVENT_FIELDS = "eventId eventType occurredAt source idempotencyKey traceId signatureMeta payload receivedAt attempt"
LETTER_FIELDS = "terminalReasonCode terminalReasonMessage attemptCount attemptHistory payloadSnapshot deadLetteredAt"
WORDS = {
    "Seed 000": f"""{EVENT_FIELDS} {LETTER_FIELDS} algorithm timestamp signature shipmentId orderId status outcome
        errorCode courier-events-main courier-events-dlq""",
    "Seed 001": """RETRY_MAX_ATTEMPTS RETRY_BACKOFF_BASE_MS RETRY_BACKOFF_MULTIPLIER RETRY_JITTER_PERCENT DLQ_TTL_DAYS
        ECONNREFUSED ETIMEDOUT dead_letter_events courier-events-dlq processed_events idempotencyKey""",
    "Seed 002": f"""{EVENT_FIELDS} {LETTER_FIELDS} status lastErrorCode lastErrorMessage firstSeenAt updatedAt expiresAt
        received processing processed failed dead_lettered shipmentId orderId currentState lastEventId lastEventType
        lastEventAt metadata createdAt reviewStatus pending reviewed replayed closed courier-events-main""",
    "Seed 003": """job_id job_type input_type payload status error error_type attempts max_attempts failed_at worker_id
        schema_version OCR TRANSCRIPTION PDF VIDEO AUDIO FAILED VALIDATION IO MODEL SYSTEM v1 doc_jobs_dead""",
    "Seed 004": """email:send data opts outboxId companyId requestId to cc bcc subject htmlRef replyTo headers tags
        recipient recipientId externalId cpfCnpjHash razaoSocial nome recipient.email attempt enqueuedAt jobId ttl
        priority delay removeOnComplete removeOnFail EMAIL_JOB_CONFIG QUEUE_NAME DEFAULT_TTL DEFAULT_PRIORITY
        MAX_ATTEMPTS BACKOFF_DELAYS DLQ_TTL EXPIRED SENT ALREADY_SENT sesMessageId status processedAt durationMs
        concurrency limiter INVALID_EMAIL fetchHtmlByRef upsertRecipient email_outbox email_log cpfCnpj
        u***@e***.com""",
}
PHRASES = {
    "Seed 001": [
        "received -> processing -> processed",
        "received -> processing -> failed -> processing",
        "failed -> dead_lettered",
        "pending -> reviewed -> replayed -> closed",
    ],
    "Seed 002": [
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
MENTIONED = [(seed, term) for seed, words in WORDS.items() for term in [*words.split(), *PHRASES.get(seed, [])]]


class Row(NamedTuple):
    seed: str
    rule: str
    code: str
    test: str


def document() -> str:
    return (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")


def rows() -> Iterator[Row]:
    seed = ""
    for line in document().splitlines():
        if line.startswith("## "):
            seed = line.removeprefix("## ").partition(":")[0]
        elif line.startswith("| ") and not line.startswith("| Rule |"):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            assert len(cells) == 3, f"not three cells: {line}"
            yield Row(seed, *(cell.strip() for cell in cells))


ROWS = list(rows())


@cache
def tree(path: Path) -> ast.Module | None:
    return ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else None


def names_of(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What a module or a class defines by its own statements."""
    for statement in getattr(node, "body", []):
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield statement.name, statement
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name, statement
            case ast.Assign(targets=targets):
                yield from ((target.id, statement) for target in targets if isinstance(target, ast.Name))


def inherited(module: ast.AST, node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What a class has from its bases in the same module, and by its own statements."""
    known = dict(names_of(module))
    for base in getattr(node, "bases", []):
        if isinstance(base, ast.Name) and base.id in known:
            yield from inherited(module, known[base.id])
    yield from names_of(node)


def defined(path: Path, dotted: str) -> bool:
    module = tree(path)
    node: ast.AST | None = module
    for name in dotted.split("."):
        node = dict(inherited(module, node)).get(name) if module is not None and node is not None else None
    return node is not None


def test_defined(path: Path, name: str) -> bool:
    module = tree(path)
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    return module is not None and any(isinstance(each, functions) and each.name == name for each in ast.walk(module))


test_defined.__test__ = False  # a question, not a test


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.rule)
def test_the_named_code_exists(row):
    references = REFERENCE.findall(row.code)

    assert references, "the row names no code"
    assert [each for each in references if not defined(ROOT / "src" / "holdfast" / each[0], each[1])] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.rule)
def test_the_named_tests_exist(row):
    references = REFERENCE.findall(row.test)

    assert references, "the row names no test"
    assert all(path.startswith("tests/") and name.startswith("test_") for path, name in references)
    assert [each for each in references if not test_defined(ROOT / each[0], each[1])] == []


@pytest.mark.parametrize(("seed", "term"), MENTIONED)
def test_everything_that_a_seed_names_has_a_row(seed, term):
    assert any(row.seed == seed and f"`{term}`" in row.rule for row in ROWS)


@pytest.mark.parametrize("seed", ["Seed 000", "Seed 001", "Seed 002", "Seed 003", "Seed 004"])
def test_every_seed_has_a_section(seed):
    assert re.search(rf"^## {seed}: ", document(), re.MULTILINE)


def test_every_note_is_explained_and_every_explanation_is_used():
    tables, _, explanations = document().partition("## Deviations and decisions")

    assert set(NOTE.findall(tables)) == set(re.findall(r"^(\d+)\. ", explanations, re.MULTILINE))


def test_a_name_that_does_not_exist_is_noticed():
    assert defined(ROOT / "src/holdfast/workloads/courier/contract.py", "CourierEvent.eventId")
    assert not defined(ROOT / "src/holdfast/workloads/courier/contract.py", "CourierEvent.eventID")
    assert not defined(ROOT / "src/holdfast/workloads/courier/contracts.py", "CourierEvent")
    assert not test_defined(ROOT / "tests/unit/test_conformance_table.py", "test_of_nothing")
