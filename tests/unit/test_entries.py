"""The entry of a new job: what its identity and its labels may be."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from holdfast import Done, InvalidContent, Workload, new_entry


class Note(BaseModel):
    text: str
    labels: dict[str, str] = {}


class Notes(Workload[Note]):
    name = "notes"
    contract = Note
    queue = "notes"
    dead_letter_queue = "notes-dlq"

    def key(self, data):
        return data.text

    def labels(self, data):
        return data.labels

    async def handle(self, job, context):
        return Done()


@pytest.mark.parametrize(
    ("labels", "allowed"),
    [
        ({"a": "x" * 400}, True),
        ({"a": "x" * 401}, False),
        ({"x" * 401: "a"}, False),
        ({f"label{number}": "a" for number in range(20)}, True),
        ({f"label{number}": "a" for number in range(21)}, False),
    ],
)
def test_labels_are_few_and_short(labels, allowed):
    note = Note(text="one", labels=labels)
    if allowed:
        assert new_entry(Notes(), note).labels == labels
        return
    with pytest.raises(InvalidContent) as refusal:
        new_entry(Notes(), note)
    assert [each.field for each in refusal.value.problems] == ["labels"]
