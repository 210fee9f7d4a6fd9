"""Rules for the texts and addresses of an email, with sentences for people. Pydantic's would show regular expressions.

Lengths are counted as in JavaScript, in UTF-16 code units, because producers in Node check them in this way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from email_validator import EmailNotValidError, validate_email
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from holdfast import HALF_A_CHARACTER

# U+2028 and U+2029 end a line in many programs, for example in Python's email package.
LINE_PATTERN: Final = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]+$"

_UUID: Final = r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
_HASH: Final = r"^[0-9a-f]{64}$"
_VISIBLE_ASCII: Final = r"^[!-~]+$"
_NOT_BLANK: Final = (
    r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*[^\s\x00-\x1f\x7f-\x9f\u2028\u2029][^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"
)

MAX_ADDRESS: Final = 254
"""RFC 5321: what fits between the angle brackets of a command."""

MAX_LOCAL_PART: Final = 64

_MAX_TOP_LEVEL: Final = 24
_CACHE_SIZE: Final = 4096


def length_of(text: str) -> int:
    """The length of the text in JavaScript."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def cut(text: str, most: int) -> str:
    """The beginning of the text, no longer than ``most`` and without half of a character at its end."""
    return text.encode("utf-16-le", "surrogatepass")[: 2 * most].decode("utf-16-le", "ignore")


def is_whole(text: str) -> bool:
    """Whether the text has no half character. Pydantic checks this only for strings with a constraint."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class TextRule:
    """A rule for a string, as metadata of its type. ``most`` is the longest length; then the text must not be empty."""

    pattern: str
    sentence: str
    most: int | None = None

    def check(self, text: str) -> str:
        """The text, if it follows the rule."""
        problem = self._problem(text)
        if problem is not None:
            kind = "text"
            raise PydanticCustomError(kind, "{problem}", {"problem": problem})
        return text

    def _problem(self, text: str) -> str | None:
        if self.most is not None and not text:
            return "must not be empty"
        if self.most is not None and length_of(text) > self.most:
            why = " (an emoji counts as two)" if len(text) <= self.most else ""
            return f"must not be longer than {self.most} characters{why}"
        if not is_whole(text):
            return HALF_A_CHARACTER
        return self.sentence if re.fullmatch(self.pattern, text) is None else None

    def __get_pydantic_core_schema__(self, source: type, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The validator for pydantic."""
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The rule in a published JSON Schema."""
        lengths = {} if self.most is None else {"maxLength": self.most, "minLength": 1}
        return {**handler(core), **lengths, "pattern": self.pattern}


UUID: Final = TextRule(_UUID, "must be a UUID, such as 123e4567-e89b-12d3-a456-426614174000")
DOCUMENT_HASH: Final = TextRule(_HASH, "must be 64 hexadecimal characters in lower case")


def identifier(most: int) -> TextRule:
    """Visible ASCII characters."""
    return TextRule(_VISIBLE_ASCII, "must consist of visible ASCII characters, without spaces", most)


def line(most: int) -> TextRule:
    """One line, which may be blank."""
    return TextRule(LINE_PATTERN, "must not contain line breaks or control characters", most)


def words(most: int) -> TextRule:
    """One line that is not blank."""
    return TextRule(_NOT_BLANK, "must not be blank and must not contain line breaks or control characters", most)


# --- addresses --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=_CACHE_SIZE)  # one email normalises the same few addresses several times
def normalised(address: str) -> str:
    """The address in the form that every server reads: an ASCII domain in lower case, the local part unchanged.

    Raises ValueError with a sentence that explains the rule and never repeats the address.
    """
    if len(address) > MAX_ADDRESS:
        message = f"must not be longer than {MAX_ADDRESS} characters"
        raise ValueError(message)
    try:
        found = validate_email(address, check_deliverability=False, allow_smtputf8=False)
    except EmailNotValidError:
        # The library's own message may quote characters of the address.
        message = "must be an email address, such as name@example.com"
        raise ValueError(message) from None
    # email-validator lets 65 characters pass before the @.
    if len(found.local_part) > MAX_LOCAL_PART:
        message = f"must not have more than {MAX_LOCAL_PART} characters before the @"
        raise ValueError(message)
    return f"{found.local_part}@{found.ascii_domain.lower()}"


def mask_address(address: str) -> str:
    """``user@example.com`` as ``u***@e***.com``. It accepts any text and never shows more of it than this."""
    local, at, domain = address.rpartition("@")
    if not at:
        return "***"
    name, dot, top = domain.rpartition(".")
    if not dot:
        name, top = domain, ""
    # A top-level domain is a word. Any other text after the last dot may be something that must be hidden.
    shown_top = f".{top}" if 1 < len(top) <= _MAX_TOP_LEVEL and top.isalpha() else ""
    return f"{_first(local)}***@{_first(name)}***{shown_top}"


def _first(text: str) -> str:
    return text[0] if text and text[0].isalnum() else ""
