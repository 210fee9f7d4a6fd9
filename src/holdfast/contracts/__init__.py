"""The vocabulary of Holdfast.

The types that the other packages share are defined here: jobs, ledger entries, outcomes, effects, dead letters,
workloads, and the ports that stores and brokers implement. This package does no I/O and imports nothing else of
Holdfast, so it can be read on its own.
"""
