"""docs/schemas: the contracts of documents as the program publishes them, for those who read them without it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import pytest

from holdfast.cli import schemas
from holdfast.features.documents.dead_letter import DocumentDeadLetter
from tests.support.specification_letters import BARE, EXAMPLES

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"
PUBLISHED = [each for each in schemas.schemas(None) if each.name.startswith("document")]

# Rules D8 to D19.
REQUIRED = {"job_id", "job_type", "input_type", "payload", "status", "error", "attempts", "failed_at"}
OPTIONAL = {"error_type", "max_attempts", "worker_id", "schema_version"}


def published(name: str) -> dict:
    return json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("contract", PUBLISHED, ids=lambda contract: contract.name)
def test_the_published_schemas_are_those_of_the_program(contract):
    """``holdfast schema export`` writes them."""
    assert published(contract.name) == schemas._document(contract)


def test_no_other_schema_is_published():
    assert {path.name for path in SCHEMAS.iterdir()} == {schemas._file(each) for each in PUBLISHED}


def test_every_field_of_the_specification_is_in_the_schema_and_required_as_specified():
    letter = published("documents.dead-letter")

    assert letter["properties"].keys() >= REQUIRED | OPTIONAL
    assert set(letter["required"]) == REQUIRED
    assert letter["properties"]["status"]["const"] == "FAILED"
    assert letter["properties"]["schema_version"]["const"] == "v1"
    assert letter["$defs"]["ErrorType"]["enum"] == ["VALIDATION", "IO", "MODEL", "SYSTEM"]
    assert letter["additionalProperties"] is True


@pytest.mark.parametrize("letter", [*EXAMPLES, *BARE], ids=["4.1", "4.2", "4.1 bare", "4.2 bare"])
def test_the_specifications_own_letters_are_valid(letter):
    jsonschema_rs.validator_for(published("documents.dead-letter"), validate_formats=True).validate(letter)

    read = DocumentDeadLetter.model_validate(letter)
    assert (read.job_id, read.attempts, read.schema_version) == (letter["job_id"], letter["attempts"], "v1")


def test_only_a_letter_that_says_validation_may_have_another_type():
    schema = jsonschema_rs.validator_for(published("documents.dead-letter"))
    strange = BARE[0] | {"job_type": "POEM"}

    assert schema.is_valid(strange | {"error_type": "VALIDATION"})
    assert not schema.is_valid(strange | {"error_type": "IO"})
    assert not schema.is_valid(strange)
