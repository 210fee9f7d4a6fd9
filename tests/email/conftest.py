"""What the tests of mail share."""

from __future__ import annotations

from tests.support.moto_server import _moto_process, aws_credentials, moto

__all__ = ["_moto_process", "aws_credentials", "moto"]
