"""The engine: decisions over the ports of ``holdfast.contracts``. It knows no driver and no workload by name."""
