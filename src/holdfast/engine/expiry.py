"""What a workload writes about a job that outlived its deadline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.contracts.effects import Effect
from holdfast.contracts.workload import Workload


def expired_effects(workload: Workload[Any], body: str) -> Sequence[Effect]:
    """The workload's effects; none for a body that it cannot read. The job expires all the same."""
    try:
        return workload.expired(workload.contract.model_validate_json(body))
    except Exception:  # noqa: BLE001 - a workload's own code
        return ()
