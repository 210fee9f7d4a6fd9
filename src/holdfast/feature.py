"""Features: what a package brings to Holdfast. Courier events, emails and documents are features; so may yours be.

A feature is a class with a name, a model of its settings, and :meth:`Feature.build`, which makes its parts: workloads,
routes, and resources that are opened and closed with the process. Holdfast finds it by an entry point of the group
``holdfast.features``, or in ``App(features=[...])``. docs/extending.md shows a whole one.

This module is public, and so are :mod:`holdfast`, :mod:`holdfast.http` (for routes), :mod:`holdfast.views` (for their
answers), :mod:`holdfast.network` (for code that talks to other servers) and :mod:`holdfast.terminal` (for commands).
Importing it loads no web framework and no driver.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel

from holdfast.config import FeatureSettings, Settings
from holdfast.config.field_types import (
    Float,
    Int,
    MaybeInt,
    Shown,
    WebAddress,
    host_only,
    listed,
    lower,
    path,
    refuse,
)
from holdfast.config.secret_safety import WAY_OUT, fresh_secret, weakness
from holdfast.contracts.entries import job_id_for
from holdfast.contracts.errors import HoldfastError
from holdfast.contracts.extras import install_command, missing_libraries
from holdfast.contracts.files import (
    HEAD,
    FileMissing,
    FilesUnavailable,
    FileTooLong,
    FileUnusable,
    Stored,
    UploadTooLarge,
)
from holdfast.contracts.ledger import NewEntry, RecordedAs
from holdfast.contracts.ports import Ambient, Broker, Clock, Ids, Records, Store
from holdfast.contracts.tenants import TENANTS, Principal, Sender, TenantLimits, is_sender
from holdfast.contracts.tracing import sent_labels
from holdfast.contracts.workload import Workload
from holdfast.engine.cancellation import Cancellation
from holdfast.engine.intake import Intake, Receipt
from holdfast.engine.sender_limits import SenderLimits
from holdfast.engine.tenants import Tenants
from holdfast.telemetry import refused

if TYPE_CHECKING:
    from holdfast.api.frame import FeatureRoutes, Frame

__all__ = [
    "FAIL",
    "HEAD",
    "OK",
    "TENANTS",
    "WARN",
    "WAY_OUT",
    "Broker",
    "Cancellation",
    "Clock",
    "Command",
    "Feature",
    "FeatureSettings",
    "FileMissing",
    "FileTooLong",
    "FileUnusable",
    "FilesUnavailable",
    "Finding",
    "Float",
    "Ids",
    "Int",
    "Intake",
    "MaybeInt",
    "Needs",
    "NewEntry",
    "NotSetUp",
    "Parts",
    "Principal",
    "Receipt",
    "RecordedAs",
    "Records",
    "Resource",
    "Schema",
    "Sender",
    "SenderLimits",
    "Services",
    "Settings",
    "Shown",
    "Store",
    "Stored",
    "TenantLimits",
    "Tenants",
    "UploadTooLarge",
    "WebAddress",
    "fresh_secret",
    "host_only",
    "install_command",
    "is_sender",
    "job_id_for",
    "listed",
    "lower",
    "missing_libraries",
    "path",
    "refuse",
    "refused",
    "sent_labels",
    "weakness",
]

Level = Literal["OK", "WARN", "FAIL"]
OK: Final = "OK"
WARN: Final = "WARN"
FAIL: Final = "FAIL"


class NotSetUp(HoldfastError):
    """The feature cannot run here. The message is the reason, as the end of a sentence."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of ``holdfast doctor``. ``advice`` is the next step for the operator, if there is one."""

    check: str
    level: Level
    message: str
    advice: str | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the program ``holdfast``. It is imported when it is called.

    ``where`` is ``module:attribute``: a function with typer's annotations, or a ``Typer`` of several commands.
    ``panel`` is the heading under which the help shows the command.
    """

    name: str
    where: str
    summary: str
    panel: str = "Read and decide"


@dataclass(frozen=True, slots=True)
class Schema:
    """A model of data that other programs exchange with us, for ``holdfast schema``.

    ``side``: whether we read the data (``validation``) or write it (``serialization``).
    """

    name: str
    model: type[BaseModel]
    what: str
    side: Literal["validation", "serialization"] = "validation"


@dataclass(frozen=True, slots=True)
class Needs:
    """The libraries that a feature needs, by the names under which they are imported.

    ``asked_by`` are the settings that ask for the feature. With one of them, a missing library is an error; without,
    Holdfast runs without the feature.
    """

    libraries: Sequence[str] = ()
    asked_by: Sequence[str] = ()


class Resource(Protocol):
    """Something that is opened before the process works, and closed after it."""

    async def open(self) -> None:
        """Open it. The store is open by then."""
        ...

    async def close(self) -> None:
        """Close it. Called only after :meth:`open`."""
        ...


class Services:
    """What the process gives to its features.

    ``settings``, ``clock`` and ``ids`` are there from the beginning. What needs the store is there once the process has
    opened it, so in routes, commands and handlers, and when resources are opened; in :meth:`Feature.build` it is not.
    """

    def __init__(self, settings: Settings, ambient: Ambient, lists: Callable[[str, str], Any] | None = None) -> None:
        self.settings = settings
        """The settings of the process."""
        self.clock: Clock = ambient.clock
        self.ids: Ids = ambient.ids
        self.lists = lists or _no_lists
        """``lists(jobs, letters)``: two plain lists in the Redis of a cluster, by their names; None without one."""
        self._opened: Opened | None = None

    @property
    def store(self) -> Store:
        """Records, entries and dead letters: ``get``, ``find_records``, ``apply``, ``entry``, ``find``."""
        return self._after_opening.store

    @property
    def broker(self) -> Broker:
        """The queues."""
        return self._after_opening.broker

    @property
    def intake(self) -> Intake:
        """``accept`` records a job and publishes it."""
        return self._after_opening.intake

    @property
    def cancellation(self) -> Cancellation:
        """``cancel`` takes back a job."""
        return self._after_opening.cancellation

    @property
    def tenants(self) -> Tenants:
        """Those who may submit work, and their API keys."""
        return self._after_opening.tenants

    @property
    def limits(self) -> SenderLimits:
        """What each sender may use, and what it uses of this process."""
        return self._after_opening.limits

    @property
    def _after_opening(self) -> Opened:
        if self._opened is None:
            message = "The store is not open yet: a feature may use it once build() has returned."
            raise RuntimeError(message)
        return self._opened

    def opened(self, opened: Opened) -> None:
        """For the process alone: everything is open now."""
        self._opened = opened


@dataclass(frozen=True, slots=True)
class Opened:
    """The part of :class:`Services` that needs the store."""

    store: Store
    broker: Broker
    intake: Intake
    cancellation: Cancellation
    tenants: Tenants
    limits: SenderLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a feature brings to one process.

    ``routes`` is called in a process with an API, once everything is open. ``service`` is the feature's own object: its
    commands get it from :func:`holdfast.terminal.open_feature`. ``usage`` gets the id of a tenant, and answers what the
    tenant uses, under the names of limits of tenants: ``{"stored_bytes": 1_048_576}``. ``limits`` are those limits
    that the feature's settings have for a tenant without limits of its own.
    """

    workloads: Sequence[Workload[Any]] = ()
    routes: Callable[[Frame], FeatureRoutes] | None = None
    resources: Sequence[Resource] = ()
    service: Any = None
    usage: Callable[[str], Awaitable[Mapping[str, int]]] | None = None
    limits: TenantLimits = field(default_factory=TenantLimits)


def _no_lists(jobs: str, letters: str) -> None:
    del jobs, letters


OwnSettings = TypeVar("OwnSettings", bound=FeatureSettings)


class Feature(Generic[OwnSettings]):
    """What a package brings to Holdfast. A subclass needs only ``name``, ``title``, ``settings`` and ``build``."""

    name: ClassVar[str]
    """One word, such as ``sms``: the feature's table in ``holdfast.toml``, and the beginning of its settings' names."""
    title: ClassVar[str]
    """What the feature is about, in the plural, for messages: ``emails``."""
    settings: type[OwnSettings]
    commands: ClassVar[Sequence[Command]] = ()
    scopes: ClassVar[Mapping[str, str]] = {}
    """What API keys of tenants may be made for, such as ``sms:send``, each with its meaning."""
    paths: ClassVar[Sequence[str]] = ()
    """Where its routes begin, such as ``/v1/sms``. Where the feature is not set up, they answer with the reason."""
    intakes: ClassVar[Mapping[str, str]] = {}
    """Workloads whose jobs come by a route of the feature, not by ``/v1/jobs``, each with a sentence that says so."""

    def needs(self, settings: OwnSettings) -> Needs:
        """The optional libraries that these settings need. Without them :meth:`build` is not called."""
        del settings
        return Needs()

    def build(self, settings: OwnSettings, services: Services) -> Parts:
        """Make the parts. Called once in each process, before anything is opened.

        Import heavy libraries here or later, not at the top of the feature's module. Raises :class:`NotSetUp` if the
        feature cannot run here, and ``ConfigurationError`` if a setting is wrong.
        """
        raise NotImplementedError

    async def check(self, settings: OwnSettings, services: Services) -> Sequence[Finding]:
        """The feature's lines in ``holdfast doctor``. The store is not open; leave nothing behind."""
        del settings, services
        return ()

    def schemas(self) -> Sequence[Schema]:
        """The feature's lines in ``holdfast schema``."""
        return ()

    def starter(self) -> str:
        """The feature's part of the ``holdfast.toml`` that ``holdfast init`` writes: TOML with comments."""
        return ""
