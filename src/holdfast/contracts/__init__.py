"""The vocabulary of Holdfast.

Everything the other packages say to each other is defined here: jobs, ledger entries, outcomes, effects,
dead letters, workloads, and the ports that stores and brokers implement. This package does no I/O and imports
nothing else of ours, so it can be read on its own.
"""
