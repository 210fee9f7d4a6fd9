from __future__ import annotations

import pytest

from tests.client.callers import CALLERS
from tests.client.scripted_server import scripted_server
from tests.client.served_gateway import ServedGateway, in_real_time


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


@pytest.fixture(scope="session")
def gateway(tmp_path_factory):
    """A whole gateway, with a worker."""
    served = ServedGateway(tmp_path_factory.mktemp("gateway"), DOCUMENT_ALLOWED_ADDRESSES="127.0.0.1")
    served.begin()
    yield served
    served.stop()


@pytest.fixture(params=sorted(CALLERS))
def who(request, gateway):
    """A client of the gateway, with the tenant's key and the operator's token."""
    return in_real_time(CALLERS[request.param], gateway)


@pytest.fixture
def name(request, who):
    """New in each test."""
    return f"{request.node.originalname}-{type(who).__name__}".replace("_", "-")
