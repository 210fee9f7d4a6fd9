"""Keeping secrets and personal data out of errors, logs and dead letters (I14).

Tax numbers, card numbers and tokens must not travel in clear. A number counts only when its check digits are right and
it stands on its own: no letter or digit directly before or after it. So hashes and message ids are not taken for tax
numbers, and a UUID is never searched. Text in other scripts is searched in its plain form: full-width digits and
typographic dashes hide nothing.
"""

from __future__ import annotations

import re
import unicodedata
from enum import StrEnum
from typing import Final

MAX_MESSAGE: Final = 500
_MOST_READ: Final = 4_000
"""Of longer text, only so much is searched. Senders choose some of the text, and searching takes processor time."""
_UNSURE: Final = 500
"""So much is left out at the end of a text that was cut: the cut may have gone through the middle of a secret."""

# Each expression takes time that grows with the text, not with its square: a run is tried from its start only, and
# never given back (`*+`). tests/unit/test_expressions.py feeds them their worst cases.
_RULES: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"(://)[^\s/@]++@"), r"\1***@"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"), r"\1 ***"),
    (
        re.compile(
            r"(?i)((?:password|passwd|secret|token|api[_-]?key|authorization|signature)\"?\s*[=:]\s*\"?)[^\s\"',;&]+"
        ),
        r"\1***",
    ),
    (
        re.compile(
            r"(?<![A-Za-z0-9._%+-])([._%+-]*+[A-Za-z0-9])[A-Za-z0-9._%+-]*+"
            r"@([A-Za-z0-9])[A-Za-z0-9-]*+(?:\.[A-Za-z0-9-]+)*\.([A-Za-z]{2,})\b"
        ),
        r"\1***@\2***.\3",
    ),
    (re.compile(r"\b\d{3}\.?\d{3}\.?\d{3}-?\d{2}\b"), "***CPF***"),
    (re.compile(r"\b[0-9A-Z]{2}\.[0-9A-Z]{3}\.[0-9A-Z]{3}/[0-9A-Z]{4}-?\d{2}\b"), "***CNPJ***"),
    (re.compile(r"\b\d{14}\b"), "***CNPJ***"),
    (re.compile(r"\b(?:\d[ -]?){15}\d\b"), "***CARD***"),
)

# An alphanumeric CNPJ without punctuation looks like any identifier. Only the check digits show the difference.
_BARE_CNPJ: Final = re.compile(r"(?<![^\W_])(?:[0-9A-Z]{8}/?[0-9A-Z]{4}|[0-9a-z]{8}/?[0-9a-z]{4})-?\d{2}(?![^\W_])")


def scrub(text: str) -> str:
    """Mask what looks like a credential, an address or a tax number, and cap the length.

    The result is text that every store can keep: NUL and half characters (file names have them) become ``?``.
    """
    cut = len(text) > _MOST_READ
    text = text[:_MOST_READ].encode("utf-8", "replace").decode().replace("\0", "?")
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    text = _BARE_CNPJ.sub(_masked_if_cnpj, text)
    if cut and not text.endswith("***"):
        text = text[: max(0, len(text) - _UNSURE)]
    return text if len(text) <= MAX_MESSAGE and not cut else text[: MAX_MESSAGE - 1] + "…"


def _masked_if_cnpj(found: re.Match[str]) -> str:
    bare = re.sub(r"[/-]", "", found[0]).upper()
    return "***CNPJ***" if cnpj_check_digits(bare[:12]) == bare[12:] else found[0]


def cnpj_check_digits(base: str) -> str:
    """The two check digits of a CNPJ: modulo 11, a letter counting as its code less that of ``0``."""
    for _ in range(2):
        total = sum((ord(each) - ord("0")) * (2 + place % 8) for place, each in enumerate(reversed(base)))
        rest = total % 11
        base += str(11 - rest if rest > 1 else 0)
    return base[12:]


class Kind(StrEnum):
    """What was found. The value is the word for people."""

    CPF = "CPF"
    CNPJ = "CNPJ"
    CARD = "card number"
    TOKEN = "token"  # noqa: S105 - the name of a kind


_START: Final = r"(?<![^\W_])"
_END: Final = r"(?![^\W_])"
_SEPARATOR: Final = r"[ ./-]"

_CPF: Final = rf"[0-9]{{11}}|[0-9]{{9}}[-./][0-9]{{2}}|(?:[0-9]{{3}}{_SEPARATOR}){{3}}[0-9]{{2}}"
_CNPJ_DIGITS: Final = (
    rf"[0-9]{{14}}|[0-9]{{12}}[-./][0-9]{{2}}|[0-9]{{8}}/[0-9]{{6}}"
    rf"|[0-9]{{8}}{_SEPARATOR}[0-9]{{4}}{_SEPARATOR}[0-9]{{2}}"
    rf"|[0-9]{{2}}(?:{_SEPARATOR}[0-9]{{3}}){{2}}{_SEPARATOR}[0-9]{{4}}{_SEPARATOR}[0-9]{{2}}"
)
# Letters in a CNPJ (since July 2026). Without punctuation its letters must be of one case: "Pedido20261234" is a word.
_CNPJ_LETTERS: Final = (
    r"[0-9A-Z]{12}-?[0-9]{2}|[0-9a-z]{12}-?[0-9]{2}|[0-9A-Za-z]{8}/[0-9A-Za-z]{4}-?[0-9]{2}"
    r"|[0-9A-Za-z]{2}\.[0-9A-Za-z]{3}\.[0-9A-Za-z]{3}/[0-9A-Za-z]{4}-?[0-9]{2}"
)

# The candidates stand inside a lookahead, so that one may begin within another.
_CPF_IN_TEXT: Final = re.compile(rf"{_START}(?=({_CPF}){_END})")
_CNPJ_IN_TEXT: Final = re.compile(rf"{_START}(?=({_CNPJ_DIGITS}|{_CNPJ_LETTERS}){_END})")
_CNPJ_WHOLE: Final = re.compile(rf"{_CNPJ_DIGITS}|(?i:{_CNPJ_LETTERS})")
_CPF_WHOLE: Final = re.compile(_CPF)

# Up to seven groups of digits: more than any way of writing 19 digits in groups of at least three.
_CARD_IN_TEXT: Final = re.compile(rf"{_START}(?=([2-6][0-9]{{2,18}}(?:[ -][0-9]{{1,19}}){{0,6}}))")
_GROUP: Final = re.compile(r"[0-9]+")
_SHORTEST_GROUP: Final = 3
_SHORTEST_CARD: Final = 13
_LONGEST_CARD: Final = 19

# Who issues what, and how long it is. A number of another length is no card of theirs.
_CARDS: Final = re.compile(
    r"4(?:[0-9]{12}|[0-9]{15}|[0-9]{18})"  # Visa
    r"|5[1-5][0-9]{14}|(?:222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]{12}"  # Mastercard
    r"|3[47][0-9]{13}"  # American Express
    r"|3(?:0[0-59]|[689][0-9])[0-9]{11,16}"  # Diners Club
    r"|35(?:2[89]|[3-8][0-9])[0-9]{12,15}"  # JCB
    r"|(?:6011|64[4-9][0-9]|65[0-9]{2}|62[0-9]{2})[0-9]{12,15}"  # Discover, UnionPay
    r"|(?:50[0-9]{2}|5[6-8][0-9]{2}|6304|6759|676[1-3]|6390)[0-9]{9,15}"  # Maestro, Aura, Elo
    r"|(?:606282|637095|637568|637599|637609|637612|384100|384140|384160)[0-9]{7,13}"  # Hipercard
    r"|(?:627780|636297|636368)[0-9]{10}"  # Elo
)

# Words are no tokens: where the beginning alone could begin a word, a digit must follow. The counts bound the search.
_TOKEN: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY"
    r"|(?<![0-9A-Za-z])(?:"
    r"hf_(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9]{1,60}_[A-Za-z0-9_-]{16,}"  # a key of our own
    r"|(?i:bearer|basic) {1,9}(?=[A-Za-z._~+/-]{0,60}[0-9=])[A-Za-z0-9._~+/=-]{16,}"
    r"|eyJ[A-Za-z0-9_-]{8,1000}\.[A-Za-z0-9_-]{8,}\."  # JSON Web Token
    r"|A(?:KIA|SIA|BIA|CCA)[0-9A-Z]{16}(?![0-9A-Za-z])"  # AWS
    r"|gh[oprsu]_[0-9A-Za-z]{20,}|github_pat_[0-9A-Za-z_]{20,}|glpat-[0-9A-Za-z_-]{20,}"
    r"|xox[a-z]-[0-9A-Za-z-]{10,}|xapp-[0-9]-[0-9A-Za-z-]{10,}"  # Slack
    r"|[rs]k_(?:live|test)_[0-9A-Za-z]{10,}|whsec_[0-9A-Za-z+/=_-]{20,}"  # Stripe, Standard Webhooks
    r"|AIza[0-9A-Za-z_-]{30,}|ya29\.[0-9A-Za-z_-]{20,}|GOCSPX-[0-9A-Za-z_-]{20,}"  # Google
    r"|sk-(?=[A-Za-z_-]{0,60}[0-9])[0-9A-Za-z_-]{20,}|npm_[0-9A-Za-z]{30,}|SG\.[0-9A-Za-z_-]{16,}\.[0-9A-Za-z_-]{16,}"
    r")"
)

# Numbers that are written digit by digit: at least as many single digits as the shortest number has.
_SPELLED: Final = re.compile(rf"{_START}[0-9](?:[ \t._/-]{{1,3}}[0-9]{_END}){{10,}}")
_CPF_LENGTH: Final = 11
_CNPJ_LENGTH: Final = 14

_UUID: Final = re.compile(r"(?i)(?<![0-9a-z])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-z])")
_TWO_DIGITS: Final = re.compile(r"[0-9]{2}")


def find_personal_data(text: str) -> Kind | None:  # noqa: PLR0911 - one for each kind
    """The first kind of personal data or secret that the text holds; None when it holds none. Linear in the text."""
    if not text.isascii():
        text = _plain(text)
    if _TOKEN.search(text) is not None:
        return Kind.TOKEN
    if (kind := _spelled(text)) is not None:
        return kind
    # Every other number that is searched for holds two digits in a row; most texts do not.
    if _TWO_DIGITS.search(text) is None:
        return None
    text = _UUID.sub("*", text)
    if any(_is_cpf(_bare(found[1])) for found in _CPF_IN_TEXT.finditer(text)):
        return Kind.CPF
    if any(_is_cnpj(_bare(found[1])) for found in _CNPJ_IN_TEXT.finditer(text)):
        return Kind.CNPJ
    if any(_begins_with_card(text, found) for found in _CARD_IN_TEXT.finditer(text)):
        return Kind.CARD
    return None


def normalise_document(text: str) -> tuple[Kind, str]:
    """A CPF or CNPJ without its punctuation, letters in upper case. Raises ValueError, without the value."""
    text = text.strip()
    if _CPF_WHOLE.fullmatch(text) and _is_cpf(bare := _bare(text)):
        return Kind.CPF, bare
    if _CNPJ_WHOLE.fullmatch(text) and _is_cnpj(bare := _bare(text)):
        return Kind.CNPJ, bare
    message = "must be a CPF or CNPJ with valid check digits"
    raise ValueError(message)


def _spelled(text: str) -> Kind | None:
    """The first number that is written digit by digit, such as ``5 2 9 9 8 2 2 4 7 2 5``."""
    found = (_in_single_digits(re.sub(r"[^0-9]", "", each[0])) for each in _SPELLED.finditer(text))
    return next((kind for kind in found if kind is not None), None)


def _in_single_digits(digits: str) -> Kind | None:
    """The number in digits that were written one by one. It may begin anywhere: a digit before it hides nothing."""
    for start in range(len(digits) - _CPF_LENGTH + 1):
        if _is_cpf(digits[start : start + _CPF_LENGTH]):
            return Kind.CPF
        cnpj = digits[start : start + _CNPJ_LENGTH]
        if len(cnpj) == _CNPJ_LENGTH and _is_cnpj(cnpj):
            return Kind.CNPJ
    return Kind.CARD if _SHORTEST_CARD <= len(digits) <= _LONGEST_CARD and _is_card(digits) else None


def _bare(number: str) -> str:
    return re.sub(r"[ ./-]", "", number).upper()


def _is_cpf(digits: str) -> bool:
    numbers = [int(digit) for digit in digits]
    return (
        len(set(numbers)) > 1
        and _check_digit(numbers[:9], range(10, 1, -1)) == numbers[9]
        and _check_digit(numbers[:10], range(11, 1, -1)) == numbers[10]
    )


def _is_cnpj(characters: str) -> bool:
    return len(set(characters)) > 1 and cnpj_check_digits(characters[:12]) == characters[12:]


def _check_digit(numbers: list[int], weights: range) -> int:
    rest = sum(number * weight for number, weight in zip(numbers, weights, strict=True)) % 11
    return 0 if rest < 2 else 11 - rest  # noqa: PLR2004 - modulo 11: ten and eleven have no digit


def _begins_with_card(text: str, found: re.Match[str]) -> bool:
    """Whether a card number starts here and ends with one of the groups: an expiry date behind it hides nothing."""
    digits, start = "", found.start(1)
    for group in _GROUP.finditer(found[1]):
        digits += group[0]
        end = start + group.end()
        stands_alone = not text[end : end + 1].isalnum()
        if stands_alone and _SHORTEST_CARD <= len(digits) <= _LONGEST_CARD and _is_card(digits):
            return True
        if len(group[0]) < _SHORTEST_GROUP or len(digits) >= _LONGEST_CARD:
            return False
    return False


def _is_card(digits: str) -> bool:
    if len(set(digits)) == 1 or _CARDS.fullmatch(digits) is None:
        return False
    total = 0
    for position, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + position % 2)
        total += value - 9 if value > 9 else value  # noqa: PLR2004 - Luhn: the digit sum of 10 to 18
    return total % 10 == 0


def _plain(text: str) -> str:
    """The text with digits, dashes and spaces of any script in ASCII, and without characters that nobody sees."""
    return "".join(_plain_character(each) for each in unicodedata.normalize("NFKC", text))


def _plain_character(character: str) -> str:
    if character.isascii():
        return character
    match unicodedata.category(character):
        case "Nd":
            return str(unicodedata.decimal(character))
        case "Pd":
            return "-"
        case "Zs":
            return " "
        case "Cf":
            return ""
        case _:
            return "-" if character == "\N{MINUS SIGN}" else character
