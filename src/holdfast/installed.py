"""The features that are installed here, their settings, and the libraries that they lack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, NamedTuple

from holdfast.config import Settings, compose
from holdfast.contracts.app import App
from holdfast.contracts.errors import ConfigurationError, message_of
from holdfast.contracts.extras import install_command, missing_libraries
from holdfast.contracts.redaction import scrub
from holdfast.feature import Feature

GROUP: Final = "holdfast.features"
_OURS: Final = {
    "courier": "holdfast.features.courier.feature:CourierFeature",
    "documents": "holdfast.features.documents.feature:DocumentsFeature",
    "email": "holdfast.features.email.feature:EmailFeature",
}
"""Our own entry points, for a copy of the files that no installer has registered."""
CLUSTER: Final = ("bullmq", "msgpack", "pymongo", "redis")


@dataclass(frozen=True, slots=True)
class Lack:
    """Libraries that a part of Holdfast needs and that are not installed here.

    ``asked_by`` is the setting that needs the part. None: no setting needs it, and Holdfast runs without the part.
    """

    part: str
    missing: tuple[str, ...]
    asked_by: str | None = None

    @property
    def message(self) -> str:
        """What is missing, in one sentence."""
        who = f"{self.asked_by} needs" if self.asked_by else f"{self.part.capitalize()} need"
        return f"{who} what is not installed here: {', '.join(self.missing)}."

    @property
    def remedy(self) -> str:
        """The command that installs it."""
        return install_command(self.missing)


class Found(NamedTuple):
    """The features of all installed distributions, by name; and a sentence for each that cannot be loaded."""

    features: tuple[Feature[Any], ...]
    problems: tuple[str, ...]


@cache
def find_features() -> Found:
    """Load the features of all installed distributions, ours and others.

    One that cannot be loaded does not hide the others: the program's help and ``holdfast doctor`` need them.
    """
    features: list[Feature[Any]] = []
    problems: list[str] = []
    points = list(entry_points(group=GROUP))
    registered = {point.value for point in points}
    points += [EntryPoint(name, value, GROUP) for name, value in _OURS.items() if value not in registered]
    for point in points:
        try:
            features.append(_loaded(point))
        except ConfigurationError as error:
            problems.append(error.message)
    return Found(tuple(sorted(features, key=lambda feature: feature.name)), tuple(sorted(problems)))


def installed_features() -> tuple[Feature[Any], ...]:
    """The features of all installed distributions. Raises :class:`ConfigurationError` if one cannot be loaded."""
    found = find_features()
    if found.problems:
        raise ConfigurationError(" ".join(found.problems))
    return found.features


def features_of(app: App | None) -> tuple[Feature[Any], ...]:
    """The installed features and the app's own."""
    features = (*installed_features(), *(app.features if app else ()))
    names = [feature.name for feature in features]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        message = f"Each feature may be there once; {', '.join(twice)} is there twice."
        raise ConfigurationError(message)
    return features


def settings_model(app: App | None = None) -> type[Settings]:
    """The class of all settings: those of the process and those of its features."""
    return composed(features_of(app))


@cache
def composed(features: tuple[Feature[Any], ...]) -> type[Settings]:
    """The class of the settings of the process and of these features."""
    try:
        return compose({feature.name: feature.settings for feature in features})
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def _loaded(point: EntryPoint) -> Feature[Any]:
    origin = f"The feature {point.name} ({point.dist.name if point.dist else point.value})"
    try:
        found = point.load()
    except Exception as error:
        message = f"{origin} cannot be imported: {type(error).__name__}: {scrub(message_of(error))}"
        raise ConfigurationError(message) from error
    if not (isinstance(found, type) and issubclass(found, Feature)):
        message = f"{origin}: {point.value} is not a subclass of holdfast.feature.Feature."
        raise ConfigurationError(message)
    return found()


# --- libraries --------------------------------------------------------------------------------------------------------


def cluster_lack(settings: Settings) -> Lack | None:
    """What Redis and MongoDB need, if the settings name them."""
    return _lack("cluster", CLUSTER, ["REDIS_URL with MONGO_URI"]) if settings.cluster else None


def feature_lack(feature: Feature[Any], settings: Settings) -> Lack | None:
    """The libraries that this feature needs and that are not installed."""
    needs = feature.needs(settings.of(feature.settings))
    return _lack(feature.title, needs.libraries, needs.asked_by)


def lacks(settings: Settings, features: Sequence[Feature[Any]] | None = None) -> list[Lack]:
    """Every part of Holdfast for which a library is missing."""
    features = installed_features() if features is None else features
    found = (cluster_lack(settings), *(feature_lack(each, settings) for each in features))
    return [each for each in found if each is not None]


def require_libraries(settings: Settings, features: Sequence[Feature[Any]] | None = None) -> None:
    """Raise :class:`ConfigurationError` if a setting needs a part whose libraries are not installed.

    The error has everything that is missing, and one command that installs all of it.
    """
    refused = [each for each in lacks(settings, features) if each.asked_by is not None]
    if refused:
        command = install_command(library for each in refused for library in each.missing)
        raise ConfigurationError(" ".join([*(each.message for each in refused), f"Install it: {command}"]))


def _lack(part: str, needed: Sequence[str], asked_by: Sequence[str]) -> Lack | None:
    missing = tuple(missing_libraries(needed))
    return Lack(part, missing, asked_by[0] if asked_by else None) if missing else None
