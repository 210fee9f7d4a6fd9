"""Brokers: the queues. Each adapter passes ``tests/conformance/broker_suite.py``."""
