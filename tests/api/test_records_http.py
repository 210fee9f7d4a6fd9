"""``/v1/records``: operators read what the handlers of their own workloads wrote."""

from __future__ import annotations

import pytest

from holdfast.contracts.effects import Upsert
from tests.api.courier_api import OPERATOR

RECORDS = "/v1/records/invoice_records"


@pytest.fixture
async def filled(api):
    facts = (("1", "ACME", 5), ("2/b", "Other", 7), ("3", "ACME", 7))
    await api.services.store.apply(
        [Upsert("invoice_records", number, {"customer": who, "cents": cents}) for number, who, cents in facts]
    )
    return api


async def numbers(api, **query):
    answer = await api.client.get(RECORDS, params=query, headers=OPERATOR)
    assert answer.status_code == 200, answer.text
    return [each["number"] for each in answer.json()["items"]]


async def test_records_are_listed_in_pages_and_by_indexed_fields(filled):
    assert await numbers(filled) == ["1", "2/b", "3"]
    assert await numbers(filled, where="customer=ACME") == ["1", "3"]
    assert await numbers(filled, where="cents=7") == ["2/b", "3"]
    assert await numbers(filled, where=["cents=7", 'customer="ACME"']) == ["3"]
    assert await numbers(filled, where="number=1") == ["1"]
    first = (await filled.client.get(RECORDS, params={"limit": 2}, headers=OPERATOR)).json()
    assert await numbers(filled, limit=2, cursor=first["next"]) == ["3"]


async def test_one_record_is_shown(filled):
    found = (await filled.client.get(f"{RECORDS}/2/b", headers=OPERATOR)).json()
    assert (found["number"], found["customer"], found["cents"]) == ("2/b", "Other", 7)
    assert (await filled.client.get(f"{RECORDS}/nothing", headers=OPERATOR)).status_code == 404


async def test_a_field_without_an_index_is_refused_with_those_that_have_one(filled):
    answer = await filled.client.get(RECORDS, params={"where": "colour=red"}, headers=OPERATOR)
    assert (answer.status_code, answer.json()["errorCode"]) == (422, "NOT_INDEXED")
    assert "cents, customer, number" in answer.json()["details"][0]["problem"]


@pytest.mark.parametrize(
    "query", [{"where": "cents"}, {"where": ["cents=1", "cents=2"]}, {"limit": 500}, {"cursor": "?"}]
)
async def test_a_wrong_query_is_refused(filled, query):
    answer = await filled.client.get(RECORDS, params=query, headers=OPERATOR)
    assert (answer.status_code, answer.json()["errorCode"]) == (400, "INVALID_QUERY")


@pytest.mark.parametrize("collection", ["active_shipments", "tenants", "api_keys", "nothing"])
async def test_records_of_features_and_of_the_program_are_not_shown(filled, collection):
    for path in (f"/v1/records/{collection}", f"/v1/records/{collection}/1"):
        answer = await filled.client.get(path, headers=OPERATOR)
        assert answer.status_code == 404
        assert "Known: invoice_records." in answer.json()["message"]


async def test_only_operators_read_records(filled):
    key = await filled.key_of("acme")
    for headers in ({}, key):
        assert (await filled.client.get(RECORDS, headers=headers)).status_code == 401
        assert (await filled.client.get(f"{RECORDS}/1", headers=headers)).status_code == 401
