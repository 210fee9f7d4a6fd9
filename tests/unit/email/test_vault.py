"""The vault: fingerprints that need the pepper, and sealed values that open in the right record only."""

from __future__ import annotations

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts.errors import ConfigurationError
from holdfast.features.email.vault import SealBroken, Vault

PEPPER = b"a pepper of more than thirty-two characters"
OLD, NEW = bytes(range(32)), bytes(range(100, 132))
CONTEXT = "recipients/c1/r1/cpfCnpj"
CPF = "52998224725"


def vault(current: str = "new", **keys: bytes) -> Vault:
    return Vault(PEPPER, keys or {"new": NEW, "old": OLD}, current)


# --- fingerprints -----------------------------------------------------------------------------------------------


def test_a_fingerprint_is_64_lower_case_hex_characters_and_always_the_same():
    made = vault().fingerprint(CPF, "cpfCnpj")

    assert len(made) == 64
    assert set(made) <= set("0123456789abcdef")
    assert made == Vault(PEPPER, {"other": OLD}, "other").fingerprint(CPF, "cpfCnpj")


def test_a_fingerprint_depends_on_the_text_the_purpose_and_the_pepper():
    made = {
        vault().fingerprint(CPF, "cpfCnpj"),
        vault().fingerprint("52998224726", "cpfCnpj"),
        vault().fingerprint(CPF, "address"),
        vault().fingerprint("pjx", "cpfCn"),
        vault().fingerprint("x", "cpfCnpj"),
        Vault(PEPPER + b"!", {"new": NEW}, "new").fingerprint(CPF, "cpfCnpj"),
    }

    assert len(made) == 6


# --- seals ------------------------------------------------------------------------------------------------------


@given(st.text(max_size=200), st.text(max_size=50))
def test_a_sealed_value_can_be_opened_with_its_context(text, context):
    assert vault().open(vault().seal(text, context=context), context=context) == text


def test_a_seal_names_its_version_and_key_and_is_different_every_time():
    one, other = vault().seal(CPF, context=CONTEXT), vault().seal(CPF, context=CONTEXT)

    assert one.startswith("v1.new.")
    assert one != other
    assert CPF not in one


def test_a_sealed_value_does_not_open_in_another_record():
    sealed = vault().seal(CPF, context=CONTEXT)

    with pytest.raises(SealBroken):
        vault().open(sealed, context="recipients/c1/r2/cpfCnpj")


def test_a_sealed_value_does_not_open_under_the_name_of_another_key():
    twice = Vault(PEPPER, {"one": NEW, "two": NEW}, "one")
    sealed = twice.seal(CPF, context=CONTEXT)

    with pytest.raises(SealBroken):
        twice.open(sealed.replace("v1.one.", "v1.two."), context=CONTEXT)


def test_every_changed_character_is_detected():
    sealed = vault().seal(CPF, context=CONTEXT)
    for at, character in enumerate(sealed):
        changed = sealed[:at] + ("A" if character != "A" else "B") + sealed[at + 1 :]
        with pytest.raises(SealBroken):
            vault().open(changed, context=CONTEXT)


def test_a_sealed_value_has_one_encoding():
    sealed = vault().seal("x" * 12, context=CONTEXT)  # base64 leaves bits of the last character unused
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for last in alphabet.replace(sealed[-1], ""):
        with pytest.raises(SealBroken):
            vault().open(sealed[:-1] + last, context=CONTEXT)


@pytest.mark.parametrize("sealed", ["", "v1", "v1.new", "v1.new.", "v1.new.AAAA", "v1.new.é", "v2.new.AAAA", "x" * 999])
def test_a_value_that_is_not_sealed_is_refused_without_details(sealed):
    with pytest.raises(SealBroken) as broken:
        vault().open(sealed, context=CONTEXT)

    assert broken.value.message == SealBroken().message
    assert broken.value.__cause__ is None


def test_every_cause_of_a_broken_seal_has_the_same_message():
    unknown = Vault(PEPPER, {"gone": OLD}, "gone").seal(CPF, context=CONTEXT)
    moved = vault().seal(CPF, context="elsewhere")
    messages = set()
    for sealed in (unknown, moved, "nonsense"):
        with pytest.raises(SealBroken) as broken:
            vault().open(sealed, context=CONTEXT)
        messages.add(broken.value.message)

    assert len(messages) == 1


def test_an_old_key_opens_and_the_current_one_seals_again():
    before = vault("old").seal(CPF, context=CONTEXT)
    after = vault("new").reseal(before, context=CONTEXT)

    assert vault("new").needs_rotation(before)
    assert not vault("new").needs_rotation(after)
    assert Vault(PEPPER, {"new": NEW}, "new").open(after, context=CONTEXT) == CPF


def test_a_malformed_value_cannot_be_rotated():
    with pytest.raises(SealBroken):
        vault().needs_rotation("nonsense")


# --- the settings -----------------------------------------------------------------------------------------------


GOOD = b64encode(NEW)


@pytest.mark.parametrize(
    ("pepper", "keys"),
    [
        (b"", {"k": NEW}),
        (b"short", {"k": NEW}),
        (b"a" * 40, {"k": NEW}),
        (GOOD, {"k": NEW}),
        (NEW, {"k": NEW}),
        (PEPPER, {}),
        (PEPPER, {"k": b"sixteen bytes..."}),
        (PEPPER, {"k": bytes(32)}),
        (PEPPER, {"k.1": NEW}),
        (PEPPER, {"": NEW}),
        (PEPPER, {GOOD.decode(): NEW}),
    ],
)
def test_weak_or_broken_keys_are_refused_without_being_repeated(pepper, keys):
    with pytest.raises(ConfigurationError) as refusal:
        Vault(pepper, keys, next(iter(keys), ""))

    assert GOOD.decode() not in refusal.value.message
    assert PEPPER.decode() not in refusal.value.message


def test_the_current_key_must_exist():
    with pytest.raises(ConfigurationError):
        Vault(PEPPER, {"new": NEW}, "old")


def test_the_repr_of_a_vault_shows_no_secrets():
    assert repr(vault()) == str(vault()) == "Vault(***)"
