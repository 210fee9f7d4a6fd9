"""Who takes part in the race of the queues: each a process of its own, all told the same way (:mod:`.lines`)."""
