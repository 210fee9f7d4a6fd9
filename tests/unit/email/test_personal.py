"""Personal data is found in every text, and no other data is taken for it."""

from __future__ import annotations

import random
import string
import uuid
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from validate_docbr import CNPJ, CPF

from holdfast.contracts.redaction import Kind, find_personal_data, normalise_document

FULL_WIDTH = {ord(character): ord(character) + 0xFEE0 for character in "0123456789.-"}
DIGITS = st.text(alphabet=string.digits, min_size=11, max_size=11)
CNPJ_DIGITS = st.text(alphabet=string.digits, min_size=14, max_size=14)


def check(generator: object, body: str) -> str:
    """The body with its two check digits, by the oracle's arithmetic."""
    characters = list(body)
    characters.append(generator._generate_first_digit(characters))
    characters.append(generator._generate_second_digit(characters))
    return "".join(characters)


def varied(body: str) -> bool:
    return len(set(body)) > 1


cpfs = st.text(alphabet=string.digits, min_size=9, max_size=9).filter(varied).map(lambda body: check(CPF(), body))
cnpjs = st.text(alphabet=string.digits, min_size=12, max_size=12).filter(varied).map(lambda body: check(CNPJ(), body))
lettered = (
    st.text(alphabet=string.digits + string.ascii_uppercase, min_size=12, max_size=12)
    .filter(lambda body: varied(body) and not body.isdigit())
    .map(lambda body: check(CNPJ(), body))
)
before = st.sampled_from(["", " ", "CPF: ", "(", ".", ",", "-", "_", "/", "ç ", "\n", '"', "CNPJ=", "nº ", "1.", "x/"])
after = st.sampled_from(["", " ", ")", ".", ",", "-", "_", "/", " ç", "\n", '"', "&x=1", "@example.com", " 1", ".5"])


# --- tax numbers ------------------------------------------------------------------------------------------------


@given(cpfs, before, after)
def test_a_cpf_is_found_in_any_text(cpf, before, after):
    for written in (cpf, CPF().mask(cpf), f"{cpf[:9]}-{cpf[9:]}", " ".join([cpf[:3], cpf[3:6], cpf[6:9], cpf[9:]])):
        assert find_personal_data(before + written + after) is Kind.CPF


@given(cnpjs, before, after)
def test_a_cnpj_is_found_in_any_text(cnpj, before, after):
    for written in (cnpj, CNPJ().mask(cnpj), f"{cnpj[:8]}/{cnpj[8:12]}-{cnpj[12:]}", f"{cnpj[:12]}-{cnpj[12:]}"):
        assert find_personal_data(before + written + after) in {Kind.CNPJ, Kind.CPF}


@given(lettered, before, after)
def test_a_cnpj_with_letters_is_found_in_any_text(cnpj, before, after):
    for written in (cnpj, cnpj.lower(), CNPJ().mask(cnpj), CNPJ().mask(cnpj).lower()):
        assert find_personal_data(before + written + after) in {Kind.CNPJ, Kind.CPF}


@given(DIGITS)
def test_eleven_digits_are_a_cpf_when_the_oracle_says_so(digits):
    assert (find_personal_data(digits) is Kind.CPF) == CPF().validate(digits)


@given(CNPJ_DIGITS)
def test_fourteen_digits_are_a_cnpj_when_the_oracle_says_so(digits):
    assert (find_personal_data(digits) is Kind.CNPJ) == CNPJ().validate(digits)


@given(lettered, st.integers(0, 99))
def test_fourteen_characters_are_a_cnpj_when_the_oracle_says_so(cnpj, check_digits):
    characters = f"{cnpj[:12]}{check_digits:02}"

    assert (find_personal_data(characters) is Kind.CNPJ) == CNPJ().validate(characters)


@given(cpfs, st.sampled_from("0aZçé9"))
def test_a_cpf_inside_a_longer_word_does_not_count(cpf, neighbour):
    assert find_personal_data(neighbour + cpf) is not Kind.CPF
    assert find_personal_data(cpf + neighbour) is not Kind.CPF


@pytest.mark.parametrize(
    "written",
    [
        "529.982.247-25".translate(FULL_WIDTH),
        "529.982.247\u201125",  # a non-breaking hyphen
        "529.982.247\u221225",  # a minus sign
        "529\u00a0982\u00a0247\u00a025",
        "529.\u200b982.247-25",  # a space of no width
        "٥٢٩٩٨٢٢٤٧٢٥",  # arabic digits
        "João 52998224725",
        "529/982/247/25",
        "x 111.529.982.247-25",
        "user 52998224725@example.com",
        "5 2 9 9 8 2 2 4 7 2 5",
        "CPF: 5.2.9.9.8.2.2.4.7-2-5.",
        "5 - 2 - 9 - 9 - 8 - 2 - 2 - 4 - 7 - 2 - 5",
        "5_2_9_9_8_2_2_4_7_2_5",
        "0 5 2 9 9 8 2 2 4 7 2 5 1",  # between other digits
        "5 2 9 9 8 2 2 4 7 2 5".translate(FULL_WIDTH),
    ],
)
def test_no_way_of_writing_hides_a_cpf(written):
    assert find_personal_data(written) is Kind.CPF


@pytest.mark.parametrize("text", ["111.111.111-11", "00000000000", "529.982.247-26", "52998224724", "00000000000000"])
def test_wrong_check_digits_and_repeated_digits_are_no_tax_number(text):
    assert find_personal_data(text) is None


# --- cards ------------------------------------------------------------------------------------------------------

CARDS = [
    "4111111111111111",
    "4222222222222",
    "5555555555554444",
    "2223003122003222",
    "378282246310005",
    "30569309025904",
    "3530111333300000",
    "6011111111111117",
    "6200000000000005",
    "6362970000457013",
    "6062826786276634",
]


@pytest.mark.parametrize("card", CARDS)
def test_card_numbers_of_every_issuer_are_found(card):
    grouped = [card[at : at + 4] for at in range(0, len(card), 4)]
    for written in (card, " ".join(grouped), "-".join(grouped), f"Visa {card}, thanks", f"{' '.join(grouped)} 12/30"):
        assert find_personal_data(written) is Kind.CARD


def test_a_card_in_the_grouping_of_american_express_is_found_before_its_expiry_date():
    assert find_personal_data("3782 822463 10005 1230") is Kind.CARD


@pytest.mark.parametrize("card", CARDS)
def test_a_card_number_with_a_wrong_digit_does_not_count(card):
    wrong = card[:-1] + str((int(card[-1]) + 1) % 10)

    assert find_personal_data(wrong) is not Kind.CARD


@pytest.mark.parametrize(
    "text",
    ["x4111111111111111", "41111111111111111111111", "4111111111111111b", "9111111111111111", "411 1 1111 1111 1111"],
)
def test_a_card_number_must_be_separate_and_have_an_issuer(text):
    assert find_personal_data(text) is None


# --- tokens -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "token",
    [
        "hf_a1b2c3d4_Zk3v9QmX7sLp2RtY8wNc4B",
        "Authorization: Bearer 0a1b2c3d4e5f6a7b8c9d",
        "bearer  abcdefghijklmnop1234",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r",
        "AKIAIOSFODNN7EXAMPLE",
        "ASIAIOSFODNN7EXAMPLE",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz",
        "xoxb-123456789012-abcdefABCDEF",
        "sk_live_4eC39HqLyjWDarjtT1zdp7dc",
        "AIzaSyA1234567890abcdefghijklmnopqrstuv",
        "-----BEGIN RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
    ],
)
def test_tokens_are_found_in_any_text(token):
    assert find_personal_data(token) is Kind.TOKEN
    assert find_personal_data(f"see {token} there") is Kind.TOKEN
    assert find_personal_data(f"https://example.com/?key={token}") is Kind.TOKEN


# --- what is none of them ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Seu boleto está disponível",
        "CUST-12345",
        "req-abc123",
        "2025-10-19T12:00:00.000Z",
        "1760875200000",
        "12345678-1234-1234-1234-123456789012",
        "41111111-1111-4111-8111-529982247250",
        "<41111111-1111-1111-8111-111111111111@mail.example.com>",
        "010f0185e3c4a1b2-41111111-1111-1111-8111-111111111111-000000",
        "+55 11 98765-4321",
        "R$ 1.234.567,89",
        "bearer responsibilities",
        "hf_customer_segment_newsletter",
        "sk-learn is a library that everybody knows",
        "risk-assessment-of-the-third-quarter-2026",
        "<https://example.com/unsubscribe?id=0123456789abcdef0123456789abcdef>",
        "Pedido20261234",
        "PED-20261116-123439",
        "5 2 9 9 8 2 2 4 7 2 6",
        "1 2 3 4 5 6 7 8 9 10 11 12 13 14",
        "[5, 2, 9, 9, 8, 2, 2, 4, 7, 2, 5]",  # a list of marks
        "v1.2.3.4.5.6.7.8.9",
        "0 0 0 0 0 0 0 0 0 0 0",
    ],
)
def test_ordinary_texts_have_no_personal_data(text):
    assert find_personal_data(text) is None


def test_ids_and_hashes_are_never_taken_for_personal_data():
    chance = random.Random(4)
    for number in range(5000):
        value = uuid.UUID(int=chance.getrandbits(128))
        digits_only = "".join(chance.choices(string.digits, k=32))
        assert find_personal_data(f"<{value}@mail.example.com>") is None
        assert find_personal_data(str(uuid.UUID(digits_only))) is None
        assert find_personal_data(value.hex) is None
        assert find_personal_data(sha256(str(number).encode()).hexdigest()) is None


@given(st.text(max_size=300))
def test_any_text_can_be_searched(text):
    find_personal_data(text)


# --- the one field that takes a clear number --------------------------------------------------------------------


@given(cpfs)
def test_a_cpf_is_accepted_with_and_without_punctuation(cpf):
    assert normalise_document(cpf) == normalise_document(f" {CPF().mask(cpf)} ") == (Kind.CPF, cpf)


@given(cnpjs | lettered)
def test_a_cnpj_is_accepted_with_and_without_punctuation_in_any_case(cnpj):
    assert normalise_document(cnpj) == normalise_document(CNPJ().mask(cnpj).lower()) == (Kind.CNPJ, cnpj)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "111.111.111-11",
        "529.982.247-26",
        "5299822472",
        "529982247255",
        "11.222.333/0001-82",
        "x52998224725",
        "52998224725".translate(FULL_WIDTH),
    ],
)
def test_other_numbers_are_refused_without_being_repeated(text):
    with pytest.raises(ValueError, match="must be a CPF or CNPJ") as refusal:
        normalise_document(text)

    assert not text or text not in str(refusal.value)


@given(DIGITS | CNPJ_DIGITS)
def test_a_number_is_accepted_exactly_when_the_oracle_accepts_it(digits):
    valid = CPF().validate(digits) if len(digits) == 11 else CNPJ().validate(digits)
    try:
        kind, kept = normalise_document(digits)
    except ValueError:
        assert not valid
    else:
        assert valid
        assert kept == digits
        assert kind is (Kind.CPF if len(digits) == 11 else Kind.CNPJ)
