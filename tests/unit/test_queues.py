"""Job ids: usable by every broker, and one for each key."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.contracts.entries import job_id_for, usable_job_id

KEYS = st.text(min_size=1, max_size=60) | st.text(alphabet=":.ab01", min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("key", "job_id"),
    [
        ("courier-x:evt_123", "courier-x.evt_123"),
        ("a:b:c", "a.b.c"),
        ("plain", "plain"),
    ],
)
def test_a_plain_key_is_still_readable_in_its_id(key, job_id):
    assert job_id_for(key) == job_id


@pytest.mark.parametrize("key", ["123", "wait", "meta", "id", "a.b", "a b", "é", "x" * 300, "", "0:1.2"])
def test_an_awkward_key_gets_a_hash(key):
    job_id = job_id_for(key)

    assert re.search(r"\.[0-9a-f]{16}$", job_id)
    assert usable_job_id(job_id)


@given(KEYS)
def test_every_key_has_a_usable_id(key):
    assert usable_job_id(job_id_for(key))
    assert job_id_for(key) == job_id_for(key)


@given(KEYS, KEYS)
@example("a:b", "a.b")
@example("a.b:c", "a:b.c")
@example("1:2", "1.2")
@example("a b", "a_b")
@example("x" * 300 + "a", "x" * 300 + "b")
def test_two_keys_never_share_an_id(one, other):
    assert (job_id_for(one) == job_id_for(other)) == (one == other)


@given(KEYS)
def test_no_key_can_be_made_to_look_like_the_id_of_another(key):
    job_id = job_id_for(key)

    assert job_id_for(job_id) != job_id or job_id == key
    assert job_id_for(job_id.replace(".", ":")) != job_id or job_id.replace(".", ":") == key


@pytest.mark.parametrize(
    "candidate",
    ["", "a:b", "7", "0123", "wait", "stalled-check", "a b", "é", "tab\t", "new\nline", "\x7f", "x" * 201],
)
def test_ids_that_a_broker_would_mix_up_are_not_usable(candidate):
    assert not usable_job_id(candidate)


@pytest.mark.parametrize("candidate", ["a", "7a", "waiting", "job_1.2-3", "x" * 200, "!~"])
def test_ordinary_ids_are_usable(candidate):
    assert usable_job_id(candidate)
