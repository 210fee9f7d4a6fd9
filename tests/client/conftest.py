from __future__ import annotations

import pytest

from tests.client.callers import CALLERS
from tests.client.scripted_server import scripted_server


@pytest.fixture
def server():
    with scripted_server() as started:
        yield started


@pytest.fixture(params=sorted(CALLERS))
def caller(request, server):
    """A client of the scripted server, blocking or not."""
    return CALLERS[request.param](server.url)


@pytest.fixture(params=sorted(CALLERS))
def make_caller(request, server):
    """The same, with options."""
    return lambda **options: CALLERS[request.param](server.url, **options)
