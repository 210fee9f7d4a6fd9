"""What every test gets."""

from __future__ import annotations

import pytest

# Shared checks and conformance suites are not test files themselves; pytest must still explain their failing asserts.
pytest.register_assert_rewrite("tests.support", "tests.conformance")

# Fixtures that many folders share: real servers, and Node.
pytest_plugins = ("tests.support.mongo_server", "tests.support.node", "tests.support.valkey_server")
