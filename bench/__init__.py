"""Measurements of the embedded default on this machine: ``make bench``. Figures, never pass or fail."""
