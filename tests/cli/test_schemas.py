from __future__ import annotations

import json

from holdfast.features.courier.contract import CourierEvent
from tests.cli.commands import APP


def test_export_writes_every_contract(program, home):
    listed = program("schema", "list", "--app", APP, "--json").json
    assert program("schema", "export", "out/schemas", "--app", APP).code == 0
    folder = home / "out" / "schemas"
    assert {each.name for each in folder.iterdir()} == {each["file"] for each in listed}
    names = {each["name"] for each in listed}
    assert {"courier.job", "courier.intake", "courier.dead-letter", "courier.active-shipment", "parcels.job"} <= names
    for each in folder.iterdir():
        document = json.loads(each.read_text())
        assert document["$schema"].startswith("https://json-schema.org/")
        assert document["$id"] == f"urn:holdfast:{each.name.removesuffix('.schema.json')}"
        assert document["type"] == "object"
        assert document["properties"]


def test_the_schema_is_the_contracts_own(program, home):
    program("schema", "export", "schemas", "--app", APP)
    event = json.loads((home / "schemas" / "courier.job.schema.json").read_text())
    assert event["properties"].keys() == CourierEvent.model_json_schema()["properties"].keys()
    parcel = json.loads((home / "schemas" / "parcels.job.schema.json").read_text())
    assert parcel["required"] == ["number"]
    error = json.loads((home / "schemas" / "http.error.schema.json").read_text())
    assert "errorCode" in error["properties"]


def test_export_again_gives_the_same_bytes(program, home):
    program("schema", "export", "first")
    program("schema", "export", "second")
    for each in (home / "first").iterdir():
        assert each.read_bytes() == (home / "second" / each.name).read_bytes()


def test_list_is_for_people_too(program):
    assert "courier.intake" in program("schema", "list").out


def test_export_to_where_nothing_can_be_written(program, home):
    (home / "file").write_text("")
    said = program("schema", "export", "file")
    assert said.code == 2
    assert "file" in said.err
