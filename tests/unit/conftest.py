"""What the unit tests share."""

import pytest

from tests.support.hearing import hearing


@pytest.fixture
def seen():
    """The events that were emitted during the test."""
    with hearing() as said:
        yield said
