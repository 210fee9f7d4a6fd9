"""The contract of ``email:send``: every rule of the specification, with an example that breaks it."""

from __future__ import annotations

import copy
import json
from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from holdfast.features.email import contract
from holdfast.features.email.contract import (
    EmailDeadLetter,
    EmailSendJob,
    EmailSendResult,
)
from holdfast.features.email.records import EmailStatus

JOB = EmailSendJob.model_json_schema()["examples"][0]
HASH = "0123456789abcdef" * 4
FULL = JOB | {
    "cc": ["a@example.com", "b@example.com"],
    "bcc": ["c@example.com"],
    "replyTo": "reply@example.com",
    "headers": {"X-Campaign": "boletos", "List-Unsubscribe": "<https://example.com/u/1>"},
    "tags": ["boleto", "2026-11"],
    "recipient": {
        "recipientId": "223e4567-e89b-12d3-a456-426614174000",
        "externalId": "CUST-12345",
        "cpfCnpjHash": HASH,
        "razaoSocial": "Silva & Filhos Ltda.",
        "nome": "João da Silva",
        "email": JOB["to"],
    },
}
ABSENT = object()


def changed(path: str, value: object, base: dict = FULL) -> dict:
    """The job with one field, at a dotted path, set or removed."""
    body = copy.deepcopy(base)
    *parents, last = path.split(".")
    place = body
    for each in parents:
        place = place[each]
    if value is ABSENT:
        del place[last]
    else:
        place[last] = value
    return body


def refusals(body: object, model=EmailSendJob) -> list[tuple[str, str]]:
    """The fields that are refused, and the kind of each error."""
    with pytest.raises(ValidationError) as refusal:
        model.model_validate(body)
    return [(".".join(map(str, each["loc"])), each["type"]) for each in refusal.value.errors()]


def refused_at(body: object, model=EmailSendJob) -> set[str]:
    return {field for field, _ in refusals(body, model)}


# --- what is taken ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [JOB, FULL])
def test_a_job_is_written_as_a_typescript_producer_writes_it(body):
    from_python = EmailSendJob.model_validate(body)
    from_node = EmailSendJob.model_validate_json(json.dumps(body, separators=(",", ":")))

    assert from_python == from_node
    assert json.loads(from_python.model_dump_json()) == body


def test_absent_and_null_are_the_same_and_neither_is_written():
    sparse = EmailSendJob.model_validate(JOB | {"cc": None, "headers": None, "tags": None, "replyTo": None})

    assert json.loads(sparse.model_dump_json()) == JOB
    assert sparse.model_dump(mode="json") == JOB


def test_the_settings_are_those_of_the_specification():
    assert contract.QUEUE_NAME == "email:send"
    assert contract.DEFAULT_TTL == 86400000
    assert contract.DEFAULT_PRIORITY == 5
    assert contract.MAX_ATTEMPTS == 5
    assert contract.BACKOFF_DELAYS == (1, 5, 30, 120, 600)
    assert contract.DLQ_TTL == 604800000


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("subject", "x"),
        ("subject", "ç" * 150),
        ("subject", "🦑 ofertas"),
        ("htmlRef", "s3://bucket/a b/ç.html"),
        ("htmlRef", "x" * 512),
        ("subject", "🦑" * 75),
        ("recipient.externalId", "ç" * 64),
        ("recipient.razaoSocial", "ç" * 150),
        ("recipient.nome", "ç" * 120),
        ("requestId", "r" * 128),
        ("cc", []),
        ("cc", [f"{n}@example.com" for n in range(5)]),
        ("bcc", [f"{n}@example.com" for n in range(5)]),
        ("tags", ["t" * 50] * 5),
        ("headers", {}),
        ("headers", {f"X-{n}": "v" for n in range(20)}),
        ("headers", {"x-lower": "v", "IN-REPLY-TO": "<a@b>", "References": "<a@b> <c@d>", "List-ID": "x <x.y>"}),
        ("headers", {"X-" + "n" * 74: "v"}),
        ("headers", {"X-N": "v" * 993}),
        ("attempt", 5),
        ("enqueuedAt", "2026-02-26T12:00:00+03:00"),
        ("recipient.externalId", "cliente nº 7"),
        ("requestId", "123e4567-e89b-12d3-a456-426614174000"),
        ("outboxId", "52998224-7252-4111-8111-111111111111"),
        ("recipient.cpfCnpjHash", "5" * 64),
    ],
)
def test_these_jobs_are_accepted(path, value):
    EmailSendJob.model_validate(changed(path, value))


@pytest.mark.parametrize("identifier", ["recipientId", "externalId", "cpfCnpjHash"])
def test_one_identifier_is_enough(identifier):
    recipient = {identifier: FULL["recipient"][identifier], "email": JOB["to"]}

    EmailSendJob.model_validate(JOB | {"recipient": recipient})


def test_instants_become_utc_with_milliseconds():
    job = EmailSendJob.model_validate(changed("enqueuedAt", "2026-02-26T12:00:00.123456+03:00"))

    assert job.enqueuedAt.tzinfo is UTC
    assert json.loads(job.model_dump_json())["enqueuedAt"] == "2026-02-26T09:00:00.123Z"


def test_recipient_and_to_are_compared_in_their_normal_form():
    job = EmailSendJob.model_validate(changed("recipient.email", "a@xn--exmple-cua.de", FULL | {"to": "a@EXÄMPLE.de"}))

    assert job.to == job.recipient.email == "a@xn--exmple-cua.de"


# --- what is refused, rule by rule ------------------------------------------------------------------------------

UUIDS = ["", "not-a-uuid", "123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400g", 7, None]
ADDRESSES = [
    "",
    "nobody",
    "a@localhost",
    "x" * 65 + "@example.com",
    "a@" + "d" * 60 + ("." + "d" * 60) * 4 + ".com",
    "a@example.com\nBcc: b@example.com",
    "joão@example.com",
    7,
]
TEXTS = ["", "   ", "a\nb", "a\x00", "a\x1b", 7]
RULES: list[tuple[str, list[object]]] = [
    ("outboxId", [*UUIDS, ABSENT, " 123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000\n"]),
    ("companyId", [*UUIDS, ABSENT]),
    ("requestId", ["", "with space", "a\n", "ç", "x" * 129, 7, None, ABSENT]),
    ("to", [*ADDRESSES, None, ABSENT, ["a@example.com"]]),
    ("cc", ["a@example.com", [f"{n}@example.com" for n in range(6)], {}]),
    ("bcc", ["a@example.com", [f"{n}@example.com" for n in range(6)], {}]),
    ("replyTo", ADDRESSES),
    ("subject", ["", "a\nb", "a\rb", "a\r\nBcc: x@example.com", "a\tb", "a\x00", "a\u2028b", "a\x85", "a\x7f"]),
    ("subject", ["x" * 151, "🦑" * 75 + "x", "🦑" * 150, 7, None, ABSENT, "\ud800"]),
    ("htmlRef", ["", "  ", "a\nb", "a\x00b", "x" * 513, 7, None, ABSENT]),
    ("tags", ["boleto", ["t"] * 6]),
    ("headers", ["X-A: b", ["X-A"], {f"X-{n}": "v" for n in range(21)}]),
    ("recipient.recipientId", UUIDS[:-1]),
    ("recipient.externalId", [*TEXTS, "x" * 65]),
    ("recipient.cpfCnpjHash", ["", "a" * 63, "a" * 65, "A" * 64, "g" * 64, HASH + "\n", 7]),
    ("recipient.razaoSocial", [*TEXTS, "x" * 151]),
    ("recipient.nome", [*TEXTS, "x" * 121, "🦑" * 61]),
    ("recipient.email", [*ADDRESSES, None, ABSENT]),
    ("recipient.cpfCnpj", ["529.982.247-25", ""]),
    ("recipient", [None, ABSENT, "cliente@example.com", []]),
    ("attempt", [0, 6, -1, 1.5, "1", True, None, ABSENT]),
    ("enqueuedAt", ["", "2026-02-26", "2026-02-26T12:00:00", "2026-02-31T12:00:00Z", "yesterday", 1772107200, ABSENT]),
    ("html", ["<p>Olá</p>"]),
    ("priority", [5]),
]


@pytest.mark.parametrize(("path", "value"), [(path, value) for path, values in RULES for value in values])
def test_a_job_that_breaks_a_rule_is_refused_at_that_field(path, value):
    assert refused_at(changed(path, value)) == {path}


@pytest.mark.parametrize("address", ADDRESSES)
def test_each_copy_must_be_an_address(address):
    assert refused_at(changed("cc", ["a@example.com", address])) == {"cc.1"}
    assert refused_at(changed("bcc", [address])) == {"bcc.0"}


@pytest.mark.parametrize("tag", ["", " ", "a\nb", "t" * 51, 7, None])
def test_each_tag_must_be_a_short_text(tag):
    assert refused_at(changed("tags", ["ok", tag])) == {"tags.1"}


@pytest.mark.parametrize(("path", "value"), [(path, value) for path, values in RULES for value in values])
def test_no_refusal_shows_a_regular_expression(path, value):
    with pytest.raises(ValidationError) as refusal:
        EmailSendJob.model_validate(changed(path, value))

    for error in refusal.value.errors():
        assert "pattern" not in error["msg"], error["msg"]


def test_the_published_schema_has_the_lengths():
    schema = EmailSendJob.model_json_schema()
    recipient = schema["$defs"]["EmailRecipient"]["properties"]

    def longest(field):
        return next(each["maxLength"] for each in (field, *field.get("anyOf", [])) if "maxLength" in each)

    assert {name: longest(recipient[name]) for name in ("externalId", "razaoSocial", "nome")} == {
        "externalId": 64,
        "razaoSocial": 150,
        "nome": 120,
    }
    lengths = {name: longest(schema["properties"][name]) for name in ("requestId", "subject", "htmlRef")}
    assert lengths == {"requestId": 128, "subject": 150, "htmlRef": 512}
    assert schema["properties"]["subject"]["pattern"]


def test_the_recipient_must_be_the_one_the_email_goes_to():
    assert refusals(changed("recipient.email", "other@example.com")) == [("", "recipient_mismatch")]
    assert refusals(changed("recipient.email", "Cliente@example.com")) == [("", "recipient_mismatch")]


def test_a_recipient_needs_an_identifier():
    nobody = {"nome": "João", "razaoSocial": "Silva Ltda.", "email": JOB["to"]}

    assert refusals(JOB | {"recipient": nobody}) == [("recipient", "no_identifier")]


FORBIDDEN_HEADERS = [
    "From", "To", "Cc", "Bcc", "bcc", "Sender", "Reply-To", "Return-Path", "DKIM-Signature", "Received", "ARC-Seal",
    "Authentication-Results", "Message-ID", "Date", "Subject", "MIME-Version", "Content-Type",
    "content-transfer-encoding", "Resent-To", "Errors-To", "Foo", "X", "X-", "X-Amz-Date", "x-amzn-trace",
    "X-SES-CONFIGURATION-SET", "X-SES-MESSAGE-TAGS", "x-ses-source-arn", "", "X A", "X-A\r\nBcc", "X-A:", "X-Ç",
    "X-A\x00", "X-" + "n" * 75,
]  # fmt: skip


@pytest.mark.parametrize("name", FORBIDDEN_HEADERS)
def test_only_allowed_headers_may_be_set(name):
    assert refusals(changed("headers", {name: "value"})) == [("headers", "header")]


@pytest.mark.parametrize(
    "value",
    ["", " ", " a", "a ", "a\r\nBcc: x@example.com", "a\nb", "a\rb", "a\x00", "a\tb", "a\u2028b", "v" * 994, "\ud800"],
)
def test_a_header_is_one_line_of_text(value):
    assert refusals(changed("headers", {"X-N": value})) == [("headers", "header")]


def test_a_header_is_given_once():
    for twice in ({"X-N": "a", "x-n": "b"}, {"x-n": "a", "X-N": "b"}):
        assert refusals(changed("headers", twice)) == [("headers", "header")]


# --- personal data ----------------------------------------------------------------------------------------------

PERSONAL = {
    "529.982.247-25": "CPF",
    "52998224725": "CPF",
    "11.222.333/0001-81": "CNPJ",
    "11222333000181": "CNPJ",
    "12.ABC.345/01DE-35": "CNPJ",
    "12ABC34501DE35": "CNPJ",
    "4111-1111-1111-1111": "card number",
    "4111111111111111": "card number",
    "AKIAIOSFODNN7EXAMPLE": "token",
    "hf_a1b2c3d4_Zk3v9QmX7sLp2RtY8wNc4B": "token",
}
PLACES = {
    "requestId": lambda secret: changed("requestId", f"req:{secret}"),
    "subject": lambda secret: changed("subject", f"Boleto de {secret}, hoje"),
    "htmlRef": lambda secret: changed("htmlRef", f"html/{secret}"),
    "tags.1": lambda secret: changed("tags", ["ok", secret]),
    "recipient.externalId": lambda secret: changed("recipient.externalId", secret),
    "recipient.nome": lambda secret: changed("recipient.nome", f"João {secret}"),
    "recipient.razaoSocial": lambda secret: changed("recipient.razaoSocial", f"Silva ({secret})"),
    "headers": lambda secret: changed("headers", {"X-Customer": f"id={secret}"}),
}


@pytest.mark.parametrize("secret", PERSONAL)
@pytest.mark.parametrize("place", PLACES)
def test_no_field_may_hold_personal_data_and_the_error_does_not_repeat_it(place, secret):
    body = PLACES[place](secret)

    with pytest.raises(ValidationError) as refusal:
        EmailSendJob.model_validate(body)

    [error] = refusal.value.errors(include_input=False)
    assert ".".join(map(str, error["loc"])) == place
    assert f"holds a {PERSONAL[secret]}" in error["msg"]
    for text in (json.dumps(error), str(refusal.value), repr(refusal.value)):
        assert secret not in text


@pytest.mark.parametrize("place", ["to", "replyTo", "cc.0", "bcc.0", "recipient.email"])
def test_no_address_may_hold_a_tax_number(place):
    address = "52998224725@example.com"
    body = changed(place.removesuffix(".0"), [address] if place.endswith(".0") else address)

    assert refusals(body) == [(place, "personal_data")]


def test_a_header_name_that_holds_a_tax_number_is_not_repeated():
    with pytest.raises(ValidationError) as refusal:
        EmailSendJob.model_validate(changed("headers", {"X-52998224725": "v"}))

    assert "52998224725" not in json.dumps(refusal.value.errors(include_input=False)) + str(refusal.value)


@given(st.uuids(), st.uuids(), st.binary(min_size=32, max_size=32))
def test_random_ids_and_hashes_are_always_accepted(outbox, company, digest):
    body = FULL | {"outboxId": str(outbox), "companyId": str(company), "requestId": str(company)}
    body |= {"htmlRef": str(outbox), "headers": {"In-Reply-To": f"<{company}@mail.example.com>"}}

    EmailSendJob.model_validate(changed("recipient.cpfCnpjHash", digest.hex(), body))


@pytest.mark.parametrize("path", ["to", "subject", "recipient.nome", "recipient.cpfCnpjHash", "htmlRef", "enqueuedAt"])
def test_no_error_repeats_a_value(path):
    with pytest.raises(ValidationError) as refusal:
        EmailSendJob.model_validate(changed(path, "an unmistakable value\x00"))

    assert "unmistakable" not in json.dumps(refusal.value.errors(include_input=False)) + str(refusal.value)


# --- the other contracts ----------------------------------------------------------------------------------------


def test_a_result_has_the_fields_of_the_specification():
    result = {
        "sesMessageId": "0100-abc",
        "status": "SENT",
        "processedAt": "2026-02-26T12:00:00.000Z",
        "durationMs": 12,
        "attempt": 1,
    }

    assert json.loads(EmailSendResult.model_validate(result).model_dump_json()) == result
    assert EmailSendResult.model_validate(result | {"status": "ALREADY_SENT"})
    assert refused_at(result | {"status": "FAILED"}, EmailSendResult) == {"status"}
    assert refused_at(result | {"sesMessageId": ""}, EmailSendResult) == {"sesMessageId"}
    assert refused_at(result | {"durationMs": -1}, EmailSendResult) == {"durationMs"}


LETTER = {
    "jobId": JOB["outboxId"],
    "outboxId": JOB["outboxId"],
    "companyId": JOB["companyId"],
    "payload": {"to": "c***@e***.com"},
    "failedAttempts": 2,
    "lastFailureReason": "The server refused the message.",
    "lastFailureCode": "SMTP_550",
    "failedAt": "2026-02-26T12:05:00.000Z",
    "enqueuedAt": "2026-02-26T12:00:00.000Z",
    "attemptHistory": [
        {
            "attempt": 1,
            "outcome": "lost",
            "errorCode": "LOST",
            "startedAt": "2026-02-26T12:00:01.000Z",
        },
        {
            "attempt": 2,
            "outcome": "failed",
            "errorCode": "SMTP_550",
            "errorMessage": "no such mailbox",
            "startedAt": "2026-02-26T12:00:01.000Z",
            "finishedAt": "2026-02-26T12:00:02.000Z",
        },
    ],
}


def test_a_dead_letter_keeps_every_field():
    assert json.loads(EmailDeadLetter.model_validate(LETTER).model_dump_json()) == LETTER


@pytest.mark.parametrize("name", sorted(set(LETTER) - {"enqueuedAt"}))
def test_a_dead_letter_needs_all_its_fields(name):
    assert refused_at(changed(name, ABSENT, LETTER), EmailDeadLetter) == {name}


@pytest.mark.parametrize("name", ["lastFailureReason", "lastFailureCode", "jobId", "outboxId", "companyId"])
def test_a_dead_letter_has_its_identifiers_and_its_reason(name):
    assert refused_at(changed(name, "", LETTER), EmailDeadLetter) == {name}


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_dead_letter_counts_the_attempts_that_it_lists(count):
    assert refusals(LETTER | {"failedAttempts": count}, EmailDeadLetter) == [("", "attempt_count")]


def test_a_dead_letter_accepts_any_payload():
    for payload in (None, "text", [1], {"any": {"thing": 1}}):
        assert EmailDeadLetter.model_validate(LETTER | {"payload": payload}).payload == payload


def test_four_statuses_are_final():
    final = {each.value for each in EmailStatus if each.terminal}

    assert final == {"SENT", "FAILED", "EXPIRED", "CANCELLED"}
    assert {each.value for each in EmailStatus} - final == {"PENDING", "ENQUEUED", "SENDING", "RETRYING"}


@pytest.mark.parametrize("model", [EmailSendJob, EmailSendResult, EmailDeadLetter])
def test_the_schema_of_each_contract_is_published(model):
    for mode in ("validation", "serialization"):
        schema = model.model_json_schema(mode=mode)
        assert schema["additionalProperties"] is False
        assert set(schema["properties"]) == set(model.model_fields)


def test_the_published_schema_has_the_limits():
    properties = EmailSendJob.model_json_schema()["properties"]

    assert properties["subject"]["maxLength"] == 150
    assert properties["to"]["maxLength"] == 254
    assert properties["to"]["format"] == "email"
    assert properties["attempt"]["maximum"] == 5
    assert properties["cc"]["anyOf"][0]["maxItems"] == 5


def test_two_spellings_of_one_outbox_id_are_one_email():
    shouted = EmailSendJob.model_validate(JOB | {"outboxId": JOB["outboxId"].upper()})

    assert shouted == EmailSendJob.model_validate(JOB)
