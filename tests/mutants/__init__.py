"""Mutants: the engine, broken on purpose in one place. The simulation must notice every one (``make mutants``)."""
