"""What a workload writes about a job that outlived its deadline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from holdfast.contracts.effects import Effect
from holdfast.contracts.workload import Workload


def expired_effects(workload: Workload[Any], body: str) -> Sequence[Effect]:
    """The workload's effects; none for a body that its contract cannot read."""
    try:
        data = workload.contract.model_validate_json(body)
    except ValidationError:
        return ()
    return workload.expired(data)
