"""Stores: where the truth is kept. Each adapter passes ``tests/conformance/store_suite.py``."""
