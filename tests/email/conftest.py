"""Fixtures of the email tests."""

from __future__ import annotations

from tests.support.moto_server import _moto_process, aws_credentials, moto

__all__ = ["_moto_process", "aws_credentials", "moto"]
