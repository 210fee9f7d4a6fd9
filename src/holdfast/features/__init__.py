"""The workloads that ship with Holdfast. Each uses only the public ``Workload`` API, and none knows another."""
