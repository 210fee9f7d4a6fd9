"""The engine: it works with the ports of ``holdfast.contracts``, and depends on no driver and on no workload."""
