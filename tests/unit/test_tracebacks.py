"""The traceback that an attempt keeps."""

from __future__ import annotations

from datetime import date

import pytest

from holdfast.engine.tracebacks import place_of, traceback_text

MESSAGE = "token=hunter2hunter2"


def a_function_with_a_long_name_that_calls_itself(depth: int) -> None:
    if depth == 0:
        raise ValueError(MESSAGE)  # the message is not shown; password=hunter3hunter3 is masked
    a_function_with_a_long_name_that_calls_itself(depth - 1)


def raised(depth: int) -> ValueError:
    try:
        a_function_with_a_long_name_that_calls_itself(depth)
    except ValueError as error:
        return error
    raise AssertionError


def test_a_long_traceback_is_whole():
    """It has more characters than a message may have: the text of each frame is bounded, not the whole."""
    text = traceback_text(raised(9))
    assert text.count("in a_function_with_a_long_name_that_calls_itself") == 10
    assert text.splitlines()[1].startswith("  tests/unit/test_tracebacks.py:16 in a_function")
    assert len(text) > 1000


def test_of_a_deep_recursion_only_the_innermost_frames_are_kept():
    text = traceback_text(raised(500))
    assert len(text.splitlines()) == 1 + 12
    assert len(text) < 6_000


def test_secrets_in_lines_of_the_source_are_masked():
    text = traceback_text(raised(0))
    assert "hunter2" not in text
    assert "hunter3" not in text


def test_an_error_that_was_not_raised_has_no_traceback_and_no_place():
    assert traceback_text(ValueError()) is None
    assert place_of(ValueError()) is None


def test_the_place_is_the_innermost_line_of_the_users_code():
    assert place_of(raised(3)).endswith("tests/unit/test_tracebacks.py:16")
    with pytest.raises(SyntaxError) as broken:
        compile("a = (", "shop/app.py", "exec")
    assert place_of(broken.value) == "shop/app.py:1"
    with pytest.raises(ValueError, match="month") as refused:
        date.fromisoformat("2026-13-01")
    assert place_of(refused.value).startswith("tests/unit/test_tracebacks.py:")
