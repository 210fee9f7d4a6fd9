"""The body of ``POST /v1/email/send``: all its problems are reported at once, by field."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts.admission import FieldProblem, InvalidContent
from holdfast.features.email.request import EmailSendBody, RequestLimits, admit_request
from holdfast.features.email.vault import Vault

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
VAULT = Vault(b"a pepper of more than thirty-two characters", {"k": bytes(range(32))}, "k")
HASH = "0123456789abcdef" * 4
ABSENT = object()

BODY = {
    "to": "cliente@example.com",
    "subject": "Seu boleto",
    "html": "<p>Olá</p>",
    "recipient": {"externalId": "CUST-12345"},
}


def body(**changes: object) -> dict:
    return {name: value for name, value in (BODY | changes).items() if value is not ABSENT}


def admit(raw: object, **limits: object):
    return admit_request(raw, limits=RequestLimits(**limits), now=NOW)


def problems(raw: object, **limits: object) -> list[FieldProblem]:
    with pytest.raises(InvalidContent) as refusal:
        admit(raw, **limits)
    return list(refusal.value.problems)


def fields(raw: object, **limits: object) -> list[str]:
    return [each.field for each in problems(raw, **limits)]


# --- what is taken ----------------------------------------------------------------------------------------------


def test_a_small_body_gets_the_defaults():
    request = admit(BODY)

    assert request.to == "cliente@example.com"
    assert request.priority == 5
    assert request.cc is request.bcc is request.tags is request.headers is None
    assert request.delay is request.sendAt is request.htmlRef is request.replyTo is None
    assert request.wait(NOW) == timedelta(0)


def test_a_full_body_keeps_every_field():
    request = admit(
        {
            "to": "Cliente@EXAMPLE.com",
            "cc": ["a@example.com"],
            "bcc": ["b@example.com"],
            "subject": "Olá",
            "htmlRef": "html/1",
            "replyTo": "r@example.com",
            "headers": {"X-A": "1"},
            "tags": ["boleto"],
            "recipient": {
                "externalId": "7",
                "cpfCnpj": "529.982.247-25",
                "razaoSocial": "Silva Ltda.",
                "nome": "João",
                "email": "Cliente@example.com",
            },
            "priority": 10,
            "delay": 60_000,
        }
    )

    assert request.to == "Cliente@example.com"
    assert request.html is None
    assert request.htmlRef == "html/1"
    assert request.recipient.document == "52998224725"
    assert (request.recipient.nome, request.recipient.razaoSocial) == ("João", "Silva Ltda.")
    assert request.wait(NOW) == timedelta(minutes=1)
    assert (request.priority, request.tags, dict(request.headers)) == (10, ("boleto",), {"X-A": "1"})
    assert (request.cc, request.bcc, request.replyTo) == (("a@example.com",), ("b@example.com",), "r@example.com")


@pytest.mark.parametrize(
    "changes",
    [
        {"recipient": {"cpfCnpj": "12.ABC.345/01DE-35"}},
        {"recipient": {"cpfCnpjHash": HASH}},
        {"html": "CPF 529.982.247-25, cartão 4111 1111 1111 1111"},
        {"delay": 0},
        {"delay": 86_400_000},
        {"sendAt": "2026-11-17T12:00:00Z"},
        {"sendAt": "2026-11-16T09:00:00.001-03:00"},
        {"html": None, "htmlRef": "ref"},
        {"priority": 1},
        {"cc": None, "delay": None, "headers": None},
        {"replyTo": "cliente@example.com"},
    ],
)
def test_these_bodies_are_accepted(changes):
    admit(body(**changes))


def test_the_hash_of_the_job_is_the_given_one_or_made_from_the_clear_number():
    clear = admit(body(recipient={"cpfCnpj": "529.982.247-25"}))
    hashed = admit(body(recipient={"cpfCnpjHash": HASH}))

    assert clear.recipient.document_hash(VAULT) == VAULT.fingerprint("52998224725", "cpfCnpj")
    assert hashed.recipient.document_hash(VAULT) == HASH
    assert admit(BODY).recipient.document_hash(VAULT) is None


def test_the_published_example_is_accepted():
    [example] = EmailSendBody.model_json_schema()["examples"]

    admit(example)


# --- what is refused, rule by rule ------------------------------------------------------------------------------

RULES: list[tuple[dict, list[str]]] = [
    ({"to": ABSENT}, ["to"]),
    ({"to": "nobody"}, ["to"]),
    ({"to": ["a@example.com"]}, ["to"]),
    ({"cc": "a@example.com"}, ["cc"]),
    ({"cc": [f"{n}@example.com" for n in range(6)]}, ["cc"]),
    ({"bcc": ["ok@example.com", "nobody"]}, ["bcc.1"]),
    ({"cc": ["CLIENTE@example.com", "cliente@EXAMPLE.com"]}, ["cc.1"]),
    ({"cc": ["a@example.com", "a@example.com"], "bcc": ["a@example.com"]}, ["cc.1", "bcc.0"]),
    ({"subject": ABSENT}, ["subject"]),
    ({"subject": ""}, ["subject"]),
    ({"subject": "a\nb"}, ["subject"]),
    ({"subject": "x" * 151}, ["subject"]),
    ({"html": ABSENT}, ["html"]),
    ({"html": " \n\t"}, ["html"]),
    ({"html": 7}, ["html"]),
    ({"html": "\ud800"}, ["html"]),
    ({"htmlRef": "ref"}, ["htmlRef"]),
    ({"html": ABSENT, "htmlRef": ""}, ["htmlRef"]),
    ({"replyTo": "nobody"}, ["replyTo"]),
    ({"headers": []}, ["headers"]),
    ({"headers": {"Bcc": "x@example.com", "X-Ok": "v", "X-Bad": "a\r\nb"}}, ["headers.Bcc", "headers.X-Bad"]),
    ({"headers": {"X-A": 7, "From": "v"}}, ["headers.X-A", "headers.From"]),
    ({"headers": {f"X-{n}": "v" for n in range(21)}}, ["headers"]),
    ({"tags": ["a", ""]}, ["tags.1"]),
    ({"tags": ["a"] * 6}, ["tags"]),
    ({"recipient": ABSENT}, ["recipient"]),
    ({"recipient": "João"}, ["recipient"]),
    ({"recipient": {}}, ["recipient"]),
    ({"recipient": {"nome": "João"}}, ["recipient"]),
    ({"recipient": {"externalId": None}}, ["recipient"]),
    ({"recipient": {"cpfCnpj": "111.111.111-11"}}, ["recipient.cpfCnpj"]),
    ({"recipient": {"cpfCnpj": "529.982.247-26"}}, ["recipient.cpfCnpj"]),
    ({"recipient": {"cpfCnpj": "529.982.247-25", "cpfCnpjHash": HASH}}, ["recipient.cpfCnpjHash"]),
    ({"recipient": {"cpfCnpjHash": HASH.upper()}}, ["recipient.cpfCnpjHash"]),
    ({"recipient": {"externalId": "7", "email": "other@example.com"}}, ["recipient.email"]),
    ({"recipient": {"externalId": "7", "recipientId": HASH}}, ["recipient.recipientId"]),
    ({"priority": 0}, ["priority"]),
    ({"priority": 11}, ["priority"]),
    ({"priority": "5"}, ["priority"]),
    ({"priority": None}, ["priority"]),
    ({"delay": -1}, ["delay"]),
    ({"delay": 86_400_001}, ["delay"]),
    ({"delay": 1.5}, ["delay"]),
    ({"delay": True}, ["delay"]),
    ({"delay": 1, "sendAt": "2026-11-16T13:00:00Z"}, ["sendAt"]),
    ({"sendAt": "2026-11-16T12:00:00Z"}, ["sendAt"]),
    ({"sendAt": "2026-11-15T12:00:00Z"}, ["sendAt"]),
    ({"sendAt": "2026-11-17T12:00:00.001Z"}, ["sendAt"]),
    ({"sendAt": "2026-11-16T13:00:00"}, ["sendAt"]),
    ({"sendAt": "soon"}, ["sendAt"]),
    ({"from": "a@example.com"}, ["from"]),
    ({"outboxId": "x"}, ["outboxId"]),
]


@pytest.mark.parametrize(("changes", "expected"), RULES)
def test_a_body_that_breaks_a_rule_is_refused_at_that_field(changes, expected):
    assert fields(body(**changes)) == expected


@pytest.mark.parametrize("raw", [None, [], "text", 7, [BODY]])
def test_a_body_must_be_an_object(raw):
    assert problems(raw) == [FieldProblem("body", "must be a JSON object")]


def test_html_is_measured_in_bytes():
    admit(body(html="ç" * 4), html_bytes=8)

    assert problems(body(html="ç" * 4 + "x"), html_bytes=8) == [
        FieldProblem("html", "must not be longer than 8 bytes"),
    ]


def test_html_may_have_512_kibibytes_by_default():
    admit(body(html="x" * 512 * 1024))

    assert fields(body(html="x" * 512 * 1024 + "x")) == ["html"]


def test_limits_are_those_that_were_given():
    admit(body(delay=1000), ttl=timedelta(seconds=1))
    admit(body(sendAt="2026-11-20T12:00:00Z"), ttl=timedelta(days=4))

    assert fields(body(delay=1001), ttl=timedelta(seconds=1)) == ["delay"]
    assert fields(body(sendAt="2026-11-20T12:00:01Z"), ttl=timedelta(days=4)) == ["sendAt"]


# --- all at once ------------------------------------------------------------------------------------------------


def test_every_problem_is_reported_at_once():
    found = fields(
        {
            "to": "cliente@example.com",
            "cc": ["cliente@example.com", "nobody"],
            "bcc": ["a@example.com"] * 6,
            "subject": "a\nb",
            "html": "<p>",
            "htmlRef": "",
            "replyTo": "nobody",
            "headers": {"From": "x", "X-A": "a\nb"},
            "tags": [""],
            "recipient": {"nome": "", "email": "other@example.com", "more": 1},
            "priority": 99,
            "delay": -1,
            "sendAt": "2020-01-01T00:00:00Z",
            "unknown": 1,
        }
    )

    assert set(found) == {
        "cc.0",
        "cc.1",
        "bcc",
        "bcc.1",
        "bcc.2",
        "bcc.3",
        "bcc.4",
        "subject",
        "htmlRef",
        "replyTo",
        "headers.From",
        "headers.X-A",
        "tags.0",
        "recipient",
        "recipient.nome",
        "recipient.email",
        "recipient.more",
        "priority",
        "delay",
        "sendAt",
        "unknown",
    }


def test_at_most_fifty_problems_are_reported():
    assert len(problems(body(**{f"unknown{n}": 1 for n in range(1000)}))) == 50


def test_sentences_are_for_people():
    found = {each.field: each.problem for each in problems(body(subject="", to=7, priority=0, html=ABSENT, more=1))}

    assert found == {
        "subject": "must not be empty",
        "to": "must be a string",
        "priority": "must be at least 1",
        "html": "is required, unless htmlRef is given",
        "more": "is not a field of an email",
    }


# --- personal data ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"subject": "CPF 529.982.247-25"}, "subject"),
        ({"html": ABSENT, "htmlRef": "html/52998224725"}, "htmlRef"),
        ({"to": "52998224725@example.com"}, "to"),
        ({"cc": ["52998224725@example.com"]}, "cc.0"),
        ({"replyTo": "52998224725@example.com"}, "replyTo"),
        ({"headers": {"X-Cpf": "52998224725"}}, "headers.X-Cpf"),
        ({"headers": {"X-52998224725": "v"}}, "headers.*"),
        ({"tags": ["52998224725"]}, "tags.0"),
        ({"recipient": {"externalId": "52998224725"}}, "recipient.externalId"),
        ({"recipient": {"externalId": "7", "nome": "João 529.982.247-25"}}, "recipient.nome"),
        ({"recipient": {"externalId": "7", "razaoSocial": "João 529.982.247-25"}}, "recipient.razaoSocial"),
    ],
)
def test_a_clear_tax_number_belongs_into_one_field(changes, field):
    found = problems(body(**changes))

    assert FieldProblem(field, "holds a CPF: put it into recipient.cpfCnpj") in found
    assert "52998224725" not in repr(found)
    assert "529.982" not in repr(found)


def test_a_card_number_belongs_nowhere():
    assert problems(body(subject="4111 1111 1111 1111")) == [FieldProblem("subject", "holds a card number")]


@pytest.mark.parametrize("name", ["52998224725", "_52998224725", "maria@example.com", "x" * 100, "a b", ""])
def test_a_field_name_that_may_be_a_value_is_not_repeated(name):
    assert fields(body(**{name: 1})) == ["*"]


CANARY = "unmistakable"
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.just(CANARY + "\n") | st.just(f"{CANARY}@x"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*BODY, "nome", "email"]), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["unknown", *EmailSendBody.model_fields]), values))
def test_no_body_raises_another_error_and_no_problem_repeats_a_value(raw):
    # Every body has an unknown field, so every body is refused.
    found = problems(raw | {"surplus": CANARY})

    assert 1 <= len(found) <= 50
    assert CANARY not in repr(found)


def test_the_repr_of_a_request_shows_no_values():
    request = admit(body(recipient={"cpfCnpj": "529.982.247-25", "nome": "João"}))

    for shown in (repr(request), str(request), repr(request.recipient)):
        assert "cliente" not in shown
        assert "52998224725" not in shown
        assert "João" not in shown


# --- what makes two requests the same ---------------------------------------------------------------------------


def content(**changes: object) -> str:
    return admit(body(**changes)).content_hash(VAULT)


@pytest.mark.parametrize(
    "changes",
    [
        {"priority": 9},
        {"delay": 5},
        {"sendAt": "2026-11-16T13:00:00Z"},
        {"to": "cliente@EXAMPLE.com"},
        {"recipient": {"externalId": "CUST-12345", "email": "cliente@example.com"}},
        {"cc": []},
    ],
)
def test_time_priority_and_spelling_are_not_content(changes):
    assert content(**changes) == content()


@pytest.mark.parametrize(
    "changes",
    [
        {"to": "other@example.com"},
        {"cc": ["a@example.com"]},
        {"bcc": ["a@example.com"]},
        {"subject": "Outro"},
        {"html": "<p>Oi</p>"},
        {"html": ABSENT, "htmlRef": "ref"},
        {"replyTo": "a@example.com"},
        {"headers": {"X-A": "1"}},
        {"tags": ["a"]},
        {"recipient": {"externalId": "CUST-1"}},
        {"recipient": {"externalId": "CUST-12345", "nome": "João"}},
        {"recipient": {"externalId": "CUST-12345", "razaoSocial": "João"}},
        {"recipient": {"externalId": "CUST-12345", "cpfCnpj": "529.982.247-25"}},
    ],
)
def test_everything_else_is_content(changes):
    assert content(**changes) != content()


def test_copies_and_blind_copies_are_different_content():
    assert content(cc=["a@example.com"]) != content(bcc=["a@example.com"])


def test_a_clear_number_and_its_hash_are_the_same_content():
    clear = content(recipient={"cpfCnpj": "529.982.247-25"})

    assert clear == content(recipient={"cpfCnpj": "52998224725"})
    assert clear == content(recipient={"cpfCnpjHash": VAULT.fingerprint("52998224725", "cpfCnpj")})


def test_the_hash_of_the_content_is_keyed():
    other = Vault(b"another pepper of thirty-two characters", {"k": bytes(range(32))}, "k")

    assert admit(BODY).content_hash(other) != admit(BODY).content_hash(VAULT)


# --- lengths ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "field", "most"),
    [
        ({"subject": "x" * 151}, "subject", 150),
        ({"html": ABSENT, "htmlRef": "x" * 513}, "htmlRef", 512),
        ({"tags": ["ok", "x" * 51]}, "tags.1", 50),
        ({"recipient": {"externalId": "x" * 65}}, "recipient.externalId", 64),
        ({"recipient": {"externalId": "7", "nome": "x" * 121}}, "recipient.nome", 120),
        ({"recipient": {"externalId": "7", "razaoSocial": "x" * 151}}, "recipient.razaoSocial", 150),
    ],
)
def test_a_text_that_is_too_long_is_refused_by_its_field(change, field, most):
    assert problems(body(**change)) == [FieldProblem(field, f"must not be longer than {most} characters")]


def test_a_subject_is_as_long_as_javascript_counts_it():
    admit(body(subject="🦑" * 75))

    (problem,) = problems(body(subject="🦑" * 76))
    assert problem == FieldProblem("subject", "must not be longer than 150 characters (an emoji counts as two)")
