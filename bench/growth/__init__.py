"""What a job, a list and the disk cost as the ledger grows: ``make bench-growth``. Figures, never pass or fail."""
