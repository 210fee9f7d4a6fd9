"""Settling jobs without a handler of ours: jobs that expired, or ended elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.contracts.errors import EffectRefused
from holdfast.contracts.ports import Store
from holdfast.contracts.transitions import Complete, Expire, MoveToDeadLetters, Settled, Settlement


async def end(store: Store, settlements: Sequence[Settlement]) -> list[Settled]:
    """Settle. Effects that cannot be applied are left out, so that they do not keep a job open."""
    if not settlements:
        return []
    try:
        return await store.settle(settlements)
    except EffectRefused as error:
        bare = [
            replace(each, transition=replace(each.transition, effects=()))
            if each.lease.job_id == error.job_id and isinstance(each.transition, Complete | MoveToDeadLetters | Expire)
            else each
            for each in settlements
        ]
        if bare == list(settlements):
            raise
        return await end(store, bare)
