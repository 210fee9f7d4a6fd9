"""docs/schemas: the contracts of documents as the program publishes them, for those who read them without it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.cli.schemas import contracts

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"
PUBLISHED = [each for each in contracts(None) if each.name.startswith("document")]

# Seed 003, section 3.
REQUIRED = {"job_id", "job_type", "input_type", "payload", "status", "error", "attempts", "failed_at"}
OPTIONAL = {"error_type", "max_attempts", "worker_id", "schema_version"}


def published(name: str) -> dict:
    return json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("contract", PUBLISHED, ids=lambda contract: contract.name)
def test_the_published_schemas_are_what_the_program_says(contract):
    """``holdfast schema export`` writes them."""
    assert published(contract.name) == contract.document()


def test_no_other_schema_is_published():
    assert {path.name for path in SCHEMAS.iterdir()} == {each.file for each in PUBLISHED}


def test_every_field_of_the_seed_is_in_the_schema_and_required_where_the_seed_requires_it():
    letter = published("documents.dead-letter")

    assert letter["properties"].keys() >= REQUIRED | OPTIONAL
    assert set(letter["required"]) >= REQUIRED
    assert letter["properties"]["status"]["const"] == "FAILED"
    assert letter["properties"]["schema_version"]["const"] == "v1"
    assert letter["$defs"]["ErrorType"]["enum"] == ["VALIDATION", "IO", "MODEL", "SYSTEM"]
    assert letter["additionalProperties"] is True
