"""The tests. What they share lives in ``tests.support``."""
