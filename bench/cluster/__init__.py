"""Measurements of cluster mode on this machine: ``make bench-cluster``. Figures, never pass or fail."""
