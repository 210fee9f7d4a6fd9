"""Retired words stay out of the code, the tests and the documentation.

docs/glossary.md has the words of Holdfast. ``RETIRED`` has the words that they replaced, and what to say instead.
``KEPT`` has the places where a retired word stays, each with its reason: names in a database, on the wire or in the
environment cannot change without a migration, and some words also have an ordinary meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("src", "tests", "bench", "docs", "deploy", "examples")
PAGES: Final = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile")
SUFFIXES: Final = frozenset({".py", ".md", ".lua", ".mjs", ".json", ".toml", ".sql", ".service", ".yml", ".yaml", ""})
NOT_SEARCHED: Final = ("tests/assets/", "tests/unit/test_words.py")
"""Assets are data. This file has to name the words."""

# A word in a name counts too: ``hand_back``, ``HandBack`` and ``BURIED`` are found, ``explanation`` is no ``lane``.
_BEFORE, _AFTER = r"(?<![A-Za-z])", r"(?![a-z])"


def word(*forms: str) -> str:
    """These forms of a word, alone or between underscores, in any case."""
    return f"{_BEFORE}(?i:{'|'.join(forms)}){_AFTER}"


RETIRED: Final = {
    word("bury", "buried", "buries", "burying", "burials?"): "dead-letter; `dead_lettered`, `MoveToDeadLetters`",
    r"\b[Dd]ie[sd] of\b|\bjobs? (?:that |which |has |have )?die[sd]?\b": "a job fails for good, or is dead-lettered",
    word("verdicts?"): "transition; for an answer of intake `recorded_as`",
    word("judges?", "judged", "judging"): "decide; `Decider`; for a check: check",
    rf"{_BEFORE}(?i:hand(?:s|ed|ing)?[ _-]?back)": "release; `Release`",
    word("withdraws?", "withdrew", "withdrawn", "withdrawing", "withdrawals?"): (
        "the sender cancels; a letter in the queue is unpublished; an attempt is released"
    ),
    rf"{word('lanes?')}|[a-z]Lanes?{_AFTER}": "`writer`, `reader` (threads), pipeline (of batches) or fairness key",
    word("turns?"): "a permit of a limit; `Limiter`, `context.limit`",
    rf"{word('turnstiles?')}|\b_Gate\b": "`Limiter`",
    word("life", "mortal"): "ttl, `ttl_includes_replays`; the states of a job",
    rf"{word('incarnations?')}|meet_queue": "epoch; `detect_queue_reset`",
    rf"{word('doors?')}|[a-z]Doors?{_AFTER}": "admission, intake or the HTTP API",
    rf"{word('upkeep')}|[a-z]Upkeep": "maintenance",
    word("strangers?"): "an external producer; its jobs are adopted",
    word("gatherings?"): "`GroupCommit`",
    r"\bInFlight\b|\bStanding\b": "`RunningJob` in the engine; for a hook `JobState`",
    word("shelf", "shelves"): "collection",
    r"\bParcel\b": "`OutgoingMessage`",
    rf"{word('desks?')}|[a-z]Desk{_AFTER}": "the review",
    r"(?<!\w)(?:_told|_says|way_of_reading|_?at_hand|_hindrance)\b": "a verb that says what the function does",
    r"(?i:seed)": "the specification, by the number of a rule (docs/specification/README.md)",
}
"""A pattern, and what to say instead."""


@dataclass(frozen=True)
class Kept:
    """A text in which a retired word stays."""

    text: str
    """A pattern. A word inside of what it finds is not reported."""
    where: tuple[str, ...]
    """Files, or folders with a ``/`` at the end. An empty text stands for every file."""
    reason: str


EVERYWHERE: Final = ("",)
STORES: Final = ("src/holdfast/stores/",)
SQL_TESTS: Final = ("tests/mongo/", "tests/mutants/catalogue.py", "tests/unit/test_migrations.py")

KEPT: Final = (
    # --- names in a database ---
    Kept(r'"(?:lane|openLane)"|\bopenLane\b|\$openLane', STORES, "a field in MongoDB"),
    Kept(r"``(?:lane|openLane|life|mortal|withdrawn)``", STORES, "the pages of the schema explain the stored names"),
    Kept(
        r"\bledger_lanes\b|\blane TEXT\b|, lane\b|\blane (?:>?=|<|IS NOT NULL)",
        STORES,
        "a column and an index of SQLite",
    ),
    Kept(
        r"``(?:queue_settings|queue_turns|ledger_entries\.\w+|ledger_lanes|incarnation|turns?)``",
        ("src/holdfast/stores/sqlite/schema.py", "src/holdfast/brokers/"),
        "the pages of the schema explain the stored names",
    ),
    Kept(r"\bledger_lanes\b|\blane(?:=| IS|%)", ("tests/unit/test_schema_names.py",), "the stored names"),
    Kept(r'"lane"|\bopenLane\b', ("tests/mongo/",), "a field in MongoDB"),
    Kept(r'"life"|\blife INTEGER\b|\blife, deadline\b|\.life,', (*STORES, *SQL_TESTS), "a column and a field"),
    Kept(r":life\b", ("tests/unit/test_migrations.py",), "a parameter beside the column"),
    Kept(r"\bmortal\b", (*STORES, "tests/mongo/test_records.py", "tests/mutants/catalogue.py"), "a column and a field"),
    Kept(
        r"\bwithdrawn\b",
        (*STORES, "src/holdfast/contracts/transitions.py", "src/holdfast/client/views.py", "docs/", "tests/"),
        "a column, a field, and the note of a cancelled job",
    ),
    Kept(r'"withdrawn"', ("src/holdfast/features/email/commands/privacy.py",), "a key of `privacy erase --json`"),
    Kept(r'"job\.withdrawn"', ("src/holdfast/telemetry/events.py",), "the name of a log event; people search for it"),
    Kept(r"\bqueue_turns(?:_free)?\b", ("src/", "tests/", "docs/architecture.md"), "a table of SQLite"),
    Kept(r"\bturn TEXT\b|\(name, turn\)|\bturn IN\b", ("src/holdfast/brokers/",), "its column"),
    Kept(r"\bname, turn FROM\b", ("tests/conformance/broker/",), "its column"),
    Kept(r'"TURN"', ("tests/cli/test_demo_mail_server.py",), "a command of SMTP"),
    Kept(r"holdfast-turns", ("src/holdfast/brokers/bullmq/", "tests/bullmq/"), "a key in Redis"),
    Kept(
        r"holdfast-incarnation|'incarnation'", ("src/holdfast/brokers/", "docs/operations/", "tests/"), "a stored name"
    ),
    # --- names on the wire and in the environment ---
    Kept(r"(?i)\bupkeep_interval_ms\b", EVERYWHERE, "a setting"),
    Kept(r'"verdict"', ("src/holdfast/cli/doctor/__init__.py", "tests/"), "a key of `doctor --json`"),
    Kept(
        r"`(?:life|mortal|lane|turn|buried|handed_back|withdrawn|upkeep\.done|upkeep\.failed)`",
        ("CHANGELOG.md",),
        "the old names, for users of the last version",
    ),
    # --- the other meaning of a word ---
    Kept(r"(?i)\btak(?:es?|ing) turns\b|\bin turn\b|\bout of turn\b|\bwaits for its turn\b", EVERYWHERE, "English"),
    Kept(r"(?i)\bturns? (?:[^.;]{1,90} )?(?:into|off|away|over)\b", EVERYWHERE, "to turn something into something"),
    Kept(r"\bup to ten turns for one turn\b", ("docs/adr/0014-fairness.md",), "tenants take turns"),
    Kept(r"(?i)\bturns?\b", ("tests/support/pages.py", "bench/documents/"), "pages of a PDF that lie turned"),
    Kept(r"(?i)\bturns\b|\bturns good lines\b", ("src/holdfast/features/documents/child/",), "the same"),
    Kept(r"\bMill Lane\b", ("bench/documents/texts.py",), "an address in a text to read"),
    Kept(r"(?i)\bsigns? of life\b|\b_SIGN_OF_LIFE\b", EVERYWHERE, "English"),
    Kept(r"next scan at the door\.", ("bench/",), "the note of a courier"),
    Kept(r"\bParcel\b", ("tests/",), "the parcels of the test workloads; there is no Parcel in src"),
    Kept(
        r"(?i)\w*seed\w*",
        (
            *(
                "tests/simulation/",
                "tests/chaos/",
                "tests/mutants/",
                "tests/support/running_gateway.py",
                "tests/support/running_cluster.py",
            ),
            *(
                "tests/support/pages.py",
                "tests/unit/test_retry.py",
                "tests/conformance/broker/test_limits_over_time.py",
            ),
        ),
        "the seed of random numbers",
    ),
    Kept(
        r"(?i)\b(HOLDFAST_FUZZ_)?SEED\b",
        ("Makefile", "docs/security.md", "tests/attack/test_fuzz.py", "tests/support/fuzzing.py"),
        "the seed of random numbers",
    ),
    Kept(r"\bHOLDFAST_(FUZZ|CHAOS)_SEED\b|\bseeds\b", ("tests/packaging/test_ci.py",), "the same"),
    Kept(r"(?i)\bHOLDFAST_SIM_SEEDS\b|\bseeds?\b|\bA seeded simulation\b", ("CONTRIBUTING.md",), "of the simulation"),
    Kept(r"\bHOLDFAST_SIM_SEEDS\b|\b500 seeds\b|\bA seeded simulation\b", ("docs/architecture.md",), "the same"),
)


@dataclass(frozen=True)
class Leftover:
    """A retired word in a file. ``line`` is 0 for the name of the file."""

    path: str
    line: int
    found: str
    instead: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else f"{self.path} (the name of the file)"
        return f"{place}: {self.found!r} is retired; say: {self.instead}"


_PATTERNS: Final = [(re.compile(pattern), instead) for pattern, instead in RETIRED.items()]
_QUICK: Final = re.compile(
    "bury|burie|burial|burying|die[sd]|verdict|judg|hand.{0,4}back|withdr|lane|(?<!e)turn|_gate|life|mortal|incarnation"
    "|meet_|door|upkeep|stranger|gathering|shel[fv]|parcel|desk|_told|_says|way_of|at_hand|hindrance|seed"
)
"""Finds every line with a retired word, and some more. It reads small letters, and is much quicker than the table."""


class Search:
    """Looks for retired words, and remembers which exceptions it needed."""

    def __init__(self) -> None:
        self.needed: set[Kept] = set()

    def leftovers(self, path: str, text: str) -> Iterator[Leftover]:
        """The retired words in the name and in the text of a file, without those that may stay."""
        kept = [each for each in KEPT if path.startswith(each.where)]
        yield from self._found(path, 0, path, kept)
        for number, line in enumerate(text.splitlines(), start=1):
            if _QUICK.search(line.lower()):
                yield from self._found(path, number, line, kept)

    def _found(self, path: str, number: int, line: str, kept: list[Kept]) -> Iterator[Leftover]:
        for pattern, instead in _PATTERNS:
            for match in pattern.finditer(line):
                if not self._stays(match, kept):
                    yield Leftover(path, number, match.group(), instead)

    def _stays(self, word: re.Match[str], kept: list[Kept]) -> bool:
        for each in kept:
            for text in re.finditer(each.text, word.string):
                if text.start() <= word.start() and word.end() <= text.end():
                    self.needed.add(each)
                    return True
        return False


def leftovers(path: str, text: str) -> list[Leftover]:
    """The retired words of one file."""
    return list(Search().leftovers(path, text))


@cache
def repository() -> tuple[list[Leftover], set[Kept]]:
    """The retired words of the whole repository, and the exceptions that were needed."""
    search = Search()
    return [each for path, text in files().items() for each in search.leftovers(path, text)], search.needed


def files() -> dict[str, str]:
    """Every file that is searched: its path in the repository, and its text."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    names = {path.relative_to(ROOT).as_posix(): path for path in (*paths, *(ROOT / name for name in PAGES))}
    return {
        name: path.read_text(encoding="utf-8")
        for name, path in sorted(names.items())
        if path.is_file() and not name.startswith(NOT_SEARCHED) and "/node_modules/" not in name
    }


def test_no_retired_word_is_used():
    found, _ = repository()

    assert not found, f"{len(found)} retired words:\n" + "\n".join(map(str, found))


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: f"{kept.reason}: {kept.text}")
def test_every_exception_is_needed(kept):
    _, needed = repository()

    assert kept in needed, f"nothing needs the exception {kept.text!r} in {kept.where} any more: remove it"


@pytest.mark.parametrize(
    ("planted", "instead"),
    [
        ("await store.bury(job)", "dead_lettered"),
        ("class Buried:", "dead_lettered"),
        ("What the job died of.", "fails for good"),
        ("verdict = judge(outcome)", "transition"),
        ("a judge of outcomes", "Decider"),
        ("def hand_back(self):", "Release"),
        ("The worker hands back the job.", "Release"),
        ("self.withdraw(job)", "cancels"),
        ("WRITE_LANES = 2", "fairness key"),
        ("readLane = 1", "fairness key"),
        ("Wait for a turn.", "context.limit"),
        ("Turnstile()", "Limiter"),
        ("life: timedelta", "ttl"),
        ("a mortal job", "ttl"),
        ("store.meet_queue()", "epoch"),
        ("class EmailDoor:", "admission"),
        ("the upkeep of the queue", "maintenance"),
        ("jobs of strangers", "adopted"),
        ("class Gathering:", "GroupCommit"),
        ("self._shelves[name]", "collection"),
        ("message: Parcel", "OutgoingMessage"),
        ("At the desk, people", "review"),
        ("def _told(self):", "a verb"),
        ("as seed 001 has it", "rule"),
        ("SEED_EDGES = {}", "rule"),
    ],
)
def test_a_planted_word_is_found_with_its_line_and_advice(planted, instead):
    first, *_ = leftovers("src/holdfast/planted.py", f"x = 1\n{planted}\n")

    assert str(first).startswith("src/holdfast/planted.py:2: ")
    assert instead in str(first)


def test_a_retired_word_in_the_name_of_a_file_is_found():
    (found,) = leftovers("src/holdfast/engine/upkeep.py", "")

    assert str(found).startswith("src/holdfast/engine/upkeep.py (the name of the file): 'upkeep' is retired")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/holdfast/stores/sqlite/schema.py", '"ALTER TABLE ledger_entries ADD COLUMN lane TEXT",'),
        ("src/holdfast/config/settings.py", "upkeep_interval_ms: Int"),
        ("docs/lifecycle.md", "the job ends `expired`, with the note `withdrawn`"),
        ("tests/simulation/world.py", "A seed decides everything"),
        ("README.md", "Tenants take turns. It returns an explanation of the planes, and burns nothing."),
    ],
)
def test_what_may_stay_is_not_reported(path, text):
    assert leftovers(path, text) == []


def test_what_may_stay_in_one_place_is_found_in_another():
    text = "the column lane TEXT, the note withdrawn, a seed"

    assert len(leftovers("src/holdfast/engine/fairness.py", text)) == 3
