"""A seeded simulation of the real engine over the real SQLite store and broker.

``python -m tests.simulation SEED --trace`` runs one seed and prints its trace.
"""
