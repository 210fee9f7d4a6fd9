"""The jobs of each system: a job that does nothing, and how it is submitted.

Each module runs with the libraries of its own system and imports nothing but them, the standard library,
:mod:`bench.peers.counter` and :mod:`bench.peers.plan`. It has ``submit(number)``, or ``connect()`` whose value is an
async ``submit``; and ``prepare()`` where tables have to be made.
"""
