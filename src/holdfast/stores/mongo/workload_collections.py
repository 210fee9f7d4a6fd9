"""The collections of entries and dead letters of each workload."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.contracts.errors import ConfigurationError
from holdfast.contracts.workload import Workload

from .link import Collection, Link
from .schema import ledger_name, letters_name


@dataclass(frozen=True, slots=True)
class WorkloadCollections:
    """The collections of entries and dead letters of one workload."""

    workload: Workload[Any]
    entries: Collection
    letters: Collection

    @property
    def name(self) -> str:
        """The workload's name."""
        return self.workload.name


class AllCollections:
    """The collections of all workloads in this process."""

    def __init__(self, link: Link, workloads: Sequence[Workload[Any]]) -> None:
        self._collections = {
            workload.name: WorkloadCollections(
                workload, link.collection(ledger_name(workload)), link.collection(letters_name(workload))
            )
            for workload in workloads
        }

    def __iter__(self) -> Iterator[WorkloadCollections]:
        return iter(self._collections.values())

    def get(self, workload: str) -> WorkloadCollections | None:
        """The collections of a workload; None when this process does not know the workload."""
        return self._collections.get(workload)

    def of(self, workload: str) -> WorkloadCollections:
        """The collections of a workload that must be known."""
        found = self._collections.get(workload)
        if found is None:
            message = f"No workload in this process is called {workload!r}."
            raise ConfigurationError(message)
        return found

    def named(self, workload: str | None) -> list[WorkloadCollections]:
        """The collections of one workload, or of all."""
        if workload is None:
            return list(self)
        found = self._collections.get(workload)
        return [] if found is None else [found]
