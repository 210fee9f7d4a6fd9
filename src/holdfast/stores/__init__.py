"""Stores: the ledger, the dead letters and the records. Each adapter passes ``tests/conformance/store_suite.py``."""
