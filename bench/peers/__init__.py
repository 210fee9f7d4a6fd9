"""Holdfast beside other job queues, in one run on one machine: ``make bench-peers``. Figures, never pass or fail."""
