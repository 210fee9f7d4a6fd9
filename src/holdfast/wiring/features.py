"""The features of a process, and the user's own workloads."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.config import Settings
from holdfast.contracts.app import App
from holdfast.contracts.entries import OWNER
from holdfast.contracts.errors import ConfigurationError, message_of
from holdfast.contracts.redaction import scrub
from holdfast.contracts.schedules import SCHEDULE_COLLECTIONS
from holdfast.contracts.tenants import TENANT_COLLECTIONS
from holdfast.contracts.workload import Workload
from holdfast.engine.tracebacks import place_of
from holdfast.feature import Feature, NotSetUp, Parts, Services
from holdfast.installed import feature_lack, require_libraries

FRAME_COLLECTIONS: Final = (*TENANT_COLLECTIONS, *SCHEDULE_COLLECTIONS)
"""The collections that belong to no workload."""


@dataclass(frozen=True, slots=True)
class Built:
    """A feature in this process: its parts; or, where it is not set up, the reason."""

    feature: Feature[Any]
    parts: Parts | None
    reason: str = ""

    @property
    def service(self) -> Any:  # noqa: ANN401 - each feature's own object
        """The feature's own object. Raises :class:`NotSetUp` with a whole sentence."""
        if self.parts is None:
            raise NotSetUp(self.refusal)
        return self.parts.service

    @property
    def refusal(self) -> str:
        """That the feature is not set up here, and why."""
        return f"{self.feature.title.capitalize()} are not set up here: {self.reason}"


def build(features: Sequence[Feature[Any]], settings: Settings, services: Services) -> dict[str, Built]:
    """Build every feature. Raises :class:`ConfigurationError` if a setting needs a library that is not installed."""
    require_libraries(settings, features)
    return {feature.name: _built(feature, settings, services) for feature in features}


def _built(feature: Feature[Any], settings: Settings, services: Services) -> Built:
    lack = feature_lack(feature, settings)
    if lack is not None:
        return Built(feature, None, f"{', '.join(lack.missing)} not installed. Install it: {lack.remedy}")
    try:
        return Built(feature, feature.build(settings.of(feature.settings), services))
    except NotSetUp as error:
        return Built(feature, None, error.message)


def workloads_of(built: Mapping[str, Built], app: App | None) -> tuple[Workload[Any], ...]:
    """The workloads of all features, and the user's own: their names and queues must differ.

    A collection that has the name of one of ours is refused.

    Tenants may submit jobs of the user's own workloads, and list their jobs: an index finds these by their tenant.
    """
    for each in app.workloads if app else ():
        if OWNER not in each.indexed_labels:
            each.indexed_labels = (*each.indexed_labels, OWNER)

    def all_of_them() -> Iterator[Workload[Any]]:
        for each in built.values():
            yield from each.parts.workloads if each.parts is not None else ()
        yield from app.workloads if app else ()

    everything = App([*all_of_them()]).workloads
    ours = {each.name for each in FRAME_COLLECTIONS}
    for workload in everything:
        for collection in workload.collections:
            if collection.name in ours:
                message = f"{workload.name}: {collection.name} is a collection of Holdfast itself; choose another name."
                raise ConfigurationError(message)
    return everything


def load_app(reference: str, folders: Sequence[Path] = (), *, written: str | None = None) -> App:
    """The :class:`App` that ``module:attribute`` names, looked for in these folders first; by default in the current.

    ``written`` is the option or the setting with the reference, as people wrote it: messages repeat it.
    """
    written = written or f"--app {reference}"
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        message = f"{written} is not module:attribute, such as mymodule:app."
        raise ConfigurationError(message)
    for folder in reversed([str(each.absolute()) for each in folders or (Path(),)]):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        message = f"{written}: there is no module {error.name!r} here or on the Python path{_place(error)}."
        raise ConfigurationError(message) from error
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {scrub(message_of(error))}"
        message = f"{written}: importing {module_name!r} failed: {why}{_place(error)}"
        raise ConfigurationError(message) from error
    found = getattr(module, attribute, None)
    if found is None:
        message = f"{written}: the module {module_name!r} has no {attribute!r}."
        raise ConfigurationError(message)
    if not isinstance(found, App):
        message = f"{written}: {attribute!r} is a {type(found).__name__}, not a holdfast.App."
        raise ConfigurationError(message)
    return found


def _place(error: BaseException) -> str:
    place = place_of(error)
    return "" if place is None else f" ({place})"
