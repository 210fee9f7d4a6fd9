"""That every mutant still applies to the source; ``make mutants`` tries them all."""

from __future__ import annotations

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.trial import attempt, edited


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_applies(mutant):
    for file, text in edited(mutant).items():
        compile(text, file, "exec")


def test_names_are_unique():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["settling does not look at the fence", "nobody sweeps", "a poison job is tried for ever"]
)
def test_the_simulation_notices(name):
    (mutant,) = (each for each in MUTANTS if each.name == name)
    assert attempt(mutant, 250).seed is not None
