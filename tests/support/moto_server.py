"""A real HTTP server that answers as Amazon SES and S3 do (moto), one for each pytest process.

Ask for ``moto``; it is empty at the start of each test. Credentials are in the environment while the test runs. A
``conftest.py`` imports the fixtures by name.
"""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass
from typing import Any

import pytest

REGION = "us-east-1"


@dataclass(frozen=True)
class Moto:
    """Where the server is, and what mail it took."""

    url: str
    region: str = REGION

    def mail(self) -> list[Any]:
        """The messages, with ``source``, ``destinations`` and ``raw_data``."""
        from moto.core import DEFAULT_ACCOUNT_ID
        from moto.ses.models import ses_backends

        return ses_backends[DEFAULT_ACCOUNT_ID][self.region].sent_messages

    def reset(self) -> None:
        request = urllib.request.Request(f"{self.url}/moto-api/reset", method="POST")  # noqa: S310 - ours, on this machine
        urllib.request.urlopen(request, timeout=30).close()  # noqa: S310


@pytest.fixture(scope="session")
def _moto_process():
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield Moto(f"http://{host}:{port}")
    server.stop()
    server._server.server_close()


@pytest.fixture
def aws_credentials(monkeypatch):
    """Credentials that are none, where AWS programs look for them first."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")


@pytest.fixture
def moto(_moto_process, aws_credentials) -> Moto:
    """The server, empty."""
    _moto_process.reset()
    return _moto_process
