"""The masked job: the identifiers of the job, and no personal data."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.features.email.contract import EmailSendJob
from holdfast.features.email.masking import MAX_DEPTH, masked_job, masked_text

HASH = "0123456789abcdef" * 4
JOB = EmailSendJob.model_json_schema()["examples"][0] | {
    "cc": ["ana@empresa.com.br"],
    "replyTo": "loja@example.com",
    "headers": {"X-Owner": "sent for maria@example.com"},
    "tags": ["boleto"],
    "recipient": {
        "recipientId": "223e4567-e89b-12d3-a456-426614174000",
        "externalId": "12345678901",
        "cpfCnpjHash": HASH,
        "razaoSocial": "Silva & Filhos",
        "nome": "João da Silva",
        "email": "cliente@example.com",
    },
}


def test_a_job_keeps_what_identifies_it_and_hides_who_it_is_for():
    assert masked_job(JOB) == JOB | {
        "to": "c***@e***.com",
        "cc": ["a***@e***.br"],
        "replyTo": "l***@e***.com",
        "headers": {"X-Owner": "sent for m***@e***.com"},
        "recipient": {
            "recipientId": "223e4567-e89b-12d3-a456-426614174000",
            "externalId": "12345678901",
            "cpfCnpjHash": "01234567...",
            "razaoSocial": "S***",
            "nome": "J***",
            "email": "c***@e***.com",
        },
    }


def test_the_job_itself_stays_as_it_is():
    before = copy.deepcopy(JOB)
    masked_job(JOB)

    assert before == JOB


SECRETS = [
    "529.982.247-25",
    "52998224725",
    "11.222.333/0001-81",
    "12ABC34501DE35",
    "4111 1111 1111 1111",
    "maria.silva@example.com",
    "joão@exämple.de",
    '"maria silva"@example.com',
    "o'brien@example.com",
    "AKIAIOSFODNN7EXAMPLE",
    "Bearer 0a1b2c3d4e5f6a7b8c9d",
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("field", ["subject", "externalId", "requestId", "htmlRef", "outboxId", "anything", "nome"])
def test_no_field_shows_personal_data(field, secret):
    for value in (secret, f"a {secret} b", [secret], {"x": secret}, {secret: 1}, json.dumps({"nome": secret})):
        shown = json.dumps(masked_job({field: value}), ensure_ascii=False)
        assert secret not in shown
        assert "maria silva" not in shown
        assert "brien" not in shown


@pytest.mark.parametrize(
    "body",
    [
        {"cpfCnpj": "529.982.247-25"},
        {"cpfCnpj": 52998224725},
        {"cpf_cnpj": ["52998224725"]},
        {"CPF": {"number": "52998224725"}},
        {"value": 52998224725},
        {"value": 52998224725.0},
        {"html": "<p>52998224725 maria</p>"},
        {"payload": '{"nome": "maria", "cpfCnpj": "52998224725"'},
        {"payload": '{\\"nome\\": \\"maria\\"}'},
        "52998224725",
        52998224725,
        ["52998224725"],
        '{"nome": "maria", "to": "maria@example.com"',
    ],
)
def test_no_shape_of_job_shows_personal_data(body):
    shown = json.dumps(masked_job(body))

    assert "52998224725" not in shown
    assert "529.982" not in shown
    assert "maria" not in shown


@pytest.mark.parametrize(
    "text",
    [
        "mongodb://app:s3cr3t@db.example:27017/x",
        "redis://:s3cr3t@10.0.0.1",
        "https://s3cr3t@example.com/x",
    ],
)
def test_not_even_the_first_letter_of_a_password_in_a_url_is_shown(text):
    shown = masked_text(text)

    assert "s***" not in shown
    assert "s3cr3t" not in shown


@pytest.mark.parametrize(
    "value", [None, True, False, 1, 191, -7, 1.5, 1760875200, "", "texto", "2026-02-26T12:00:00.000Z"]
)
def test_values_that_are_not_personal_stay(value):
    assert masked_job({"x": value}) == {"x": value}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Enviado para maria@example.com.", "Enviado para m***@e***.com."),
        ("<maria@example.com>,ana@b.com.br", "<m***@e***.com>,a***@b***.br"),
        ("mailto:maria@example.com", "mailto:m***@e***.com"),
    ],
)
def test_addresses_are_masked_in_every_text(text, shown):
    assert masked_text(text) == shown


@pytest.mark.parametrize(("nome", "shown"), [("João", "J***"), ("", "***"), ("  ana", "a***"), ("7", "***"), (7, 7)])
def test_a_name_keeps_its_first_letter(nome, shown):
    assert masked_job({"nome": nome}) == {"nome": shown}


def test_a_hash_keeps_eight_characters_and_any_other_text_none():
    assert masked_job({"cpfCnpjHash": HASH}) == {"cpfCnpjHash": "01234567..."}
    assert masked_job({"cpfCnpjHash": "52998224725"}) == {"cpfCnpjHash": "***"}


def test_long_texts_are_cut_and_long_runs_hidden():
    assert len(masked_job({"subject": "palavra " * 100_000})["subject"]) <= 500
    assert masked_job({"subject": "x" * 1_000_000}) == {"subject": "***"}
    assert len(masked_job({"externalId": "x" * 1_000_000})["externalId"]) <= 500


def test_values_that_are_nested_too_deep_are_not_shown():
    deep: object = "maria@example.com"
    for _ in range(100_000):
        deep = [deep]
    shown = json.dumps(masked_job(deep))

    assert shown == "[" * MAX_DEPTH + '"***"' + "]" * MAX_DEPTH


def test_a_body_that_is_not_json_is_masked_too():
    for value in (float("nan"), float("inf"), 10**5000, {1: 2}, {None: "x"}, object(), b"raw", {"a"}, "\ud800@x.com"):
        masked_job({"x": value})


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_json_can_be_masked_and_stays_json(body):
    json.dumps(masked_job(body))


@given(st.emails())
def test_no_address_stays_in_any_text(address):
    local, _, domain = address.rpartition("@")
    assume(set(local) != {"*"})  # such a text looks like a mask
    shown = masked_text(f"from <{address}>, {address}; mailto:{address}")

    assert f"{local}@" not in shown
    assert f"@{domain}" not in shown
