"""I8, I9: dead letters, their queue, and what people did about them."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Final

from holdfast.contracts.dead_letters import ReviewStatus, letter_id
from holdfast.contracts.transitions import REVIEW_STEPS

from .facts import Facts, Findings, Identity, content_of

_DEALT_WITH: Final = ("replayed", "closed")
_ASKED_AS: Final = {"reviewed": "review", "replayed": "replay", "closed": "close"}


def letters(facts: Facts) -> Findings:
    """I8: one dead letter for each generation that ended dead, with the attempts that it had."""
    dead_lettered = {
        (*identity, step["new_generation"]): step["attempts"]
        for identity, steps in facts.moves.items()
        for step in steps
        if step["new"] == "dead_lettered"
    }
    written = Counter((each["workload"], each["key"], each["generation"]) for each in facts.letters)
    for identity in sorted({*dead_lettered, *written}):
        if (identity in dead_lettered) != written[identity]:
            times = int(identity in dead_lettered)
            yield f"I8: {identity} was dead-lettered {times} times and has {written[identity]} letters"
    for letter in facts.letters:
        identity = (letter["workload"], letter["key"], letter["generation"])
        attempts = dead_lettered.get(identity, letter["attempts"])
        if letter["id"] != letter_id(*identity) or letter["attempts"] != attempts:
            yield f"I8: the letter of {identity} does not tell what happened"
        if content_of(letter["body"]) != content_of(facts.entries[identity[:2]]["body"]):
            yield f"I8: the letter of {identity} has another body"


def dead_letter_queue(facts: Facts) -> Findings:
    """I8: after healing, the queue shows every pending letter, and none that people have dealt with.

    One exception: a process that read a letter as pending, put it into the queue after somebody had dealt with it, and
    died before it could say so. Nobody knows of that copy until the letter's retention is over.
    """
    letters = {letter["id"]: letter for letter in facts.letters}
    for workload in facts.workloads.values():
        statement = "SELECT job_id FROM queue_jobs WHERE queue = ?"
        shown = {row[0] for row in facts.connection.execute(statement, (workload.dead_letter_queue,))}
        pending = {
            letter["id"]
            for letter in facts.letters
            if letter["workload"] == workload.name and letter["review_status"] == "pending"
        }
        yield from (f"I8: {missing} is pending and not in the queue" for missing in sorted(pending - shown))
        for extra in sorted(shown - pending):
            status = letters[extra]["review_status"]
            too_late = facts.published_as[extra] in _DEALT_WITH and not letters[extra]["published"]
            if status in _DEALT_WITH and not too_late:
                yield f"I8: {extra} is {status} and still in the queue"


def reviews(facts: Facts) -> Findings:
    """I9: each letter took legal steps, and the log of them agrees with what it says."""
    for letter in facts.letters:
        path = [ReviewStatus.PENDING, *(ReviewStatus(each["step"]) for each in letter["decisions"])]
        if path[-1] != letter["review_status"] or any(end not in REVIEW_STEPS[start] for start, end in pairwise(path)):
            yield f"I9: letter {letter['id']} went {[each.value for each in path]}"
    for review in facts.reviews:
        if ReviewStatus(review["new"]) not in REVIEW_STEPS[ReviewStatus(review["old"])]:
            yield f"I9: letter {review['letter']} went {review['old']} -> {review['new']}"


def people_decide(facts: Facts) -> Findings:
    """I9: a person asked for every step, and whoever was told that it happened is the one who did it."""
    asked = {(step.kind, step.letter, step.actor): step for step in facts.history.steps}
    decided = {
        (_ASKED_AS[decision["step"]], letter["id"], decision["actor"])
        for letter in facts.letters
        for decision in letter["decisions"]
    }
    yield from (f"I9: nobody asked for {step}" for step in sorted(decided - asked.keys()))
    for step, request in asked.items():
        if request.answer is True and step not in decided:
            yield f"I9: {step} was confirmed and did not happen"
        if request.answer is False and step in decided:
            yield f"I9: {step} was refused and happened"


def replays(facts: Facts) -> Findings:
    """I9: one generation, or one new job, for each letter that was replayed, and none without."""
    generations: Counter[Identity] = Counter()
    origins: Counter[Identity] = Counter()
    for letter in facts.letters:
        replayed = any(decision["step"] == "replayed" for decision in letter["decisions"])
        if letter["replayed_as"] is None:
            generations[letter["workload"], letter["key"]] += replayed
            continue
        origins[letter["workload"], letter["replayed_as"]] += 1
        new = facts.entries.get((letter["workload"], letter["replayed_as"]))
        if new is None or new["replay_of"] != letter["key"] or not replayed:
            yield f"I9: letter {letter['id']} was replayed as {letter['replayed_as']}, and that is not so"
    for identity, entry in facts.entries.items():
        if entry["generation"] != 1 + generations[identity]:
            yield f"I9: {identity} is generation {entry['generation']} after {generations[identity]} replays"
        if origins[identity] != (entry["replay_of"] is not None):
            yield f"I9: {identity} is the replay of {origins[identity]} letters"
