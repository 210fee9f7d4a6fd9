"""The feature ``courier``: signed events of couriers, applied to shipments and forwarded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Final

from holdfast import ExponentialBackoff
from holdfast.feature import WARN, Command, Feature, Finding, Parts, Schema, Services, fresh_secret

from .settings import CourierSettings

if TYPE_CHECKING:
    from holdfast.http import FeatureRoutes, Frame

    from .workload import Courier

COURIER_PATH: Final = "/v1/events/courier"

_BESIDES_THE_DOWNSTREAM: Final = timedelta(seconds=25)
"""The time of an attempt for everything but the downstream's answer. Shorter, the engine would stop the wait for it."""

_STARTER: Final = """\
# The secrets that couriers sign with, newest first. To rotate: put the new secret first, give it to the courier, and
# remove the old secret when it is no longer used. A secret may also have limits in time:
#   {{ secret = "...", notBefore = 2026-01-01T00:00:00Z, notAfter = 2026-12-31T23:59:59Z }}
[courier_secrets]
courier-x = ["{secret}"]
"""


class CourierFeature(Feature[CourierSettings]):
    """Signed events of couriers."""

    name = "courier"
    title = "courier events"
    settings = CourierSettings
    commands = (
        Command(
            "send",
            "holdfast.features.courier.commands.sending:send",
            "Sign a courier event and post it to a running API.",
            panel="Send",
        ),
    )
    intakes: ClassVar[Mapping[str, str]] = {"courier": f"Send courier events, signed, to POST {COURIER_PATH}."}

    def build(self, settings: CourierSettings, services: Services) -> Parts:
        """The workload and its routes."""
        courier = CourierService(workload_of(settings, services.settings.worker_concurrency), settings, services)
        return Parts(workloads=[courier.workload], routes=courier.routes, service=courier)

    async def check(self, settings: CourierSettings, services: Services) -> Sequence[Finding]:
        """Whether couriers have secrets, and valid ones."""
        del services
        if not settings.courier_secrets:
            advice = "Give couriers secrets in COURIER_SECRETS, unless you have no couriers."
            return [Finding("couriers", WARN, "No courier has a secret, so every courier event is refused.", advice)]
        advice = "Check notBefore and notAfter in COURIER_SECRETS."
        return [
            Finding("couriers", WARN, f"No secret of {source} is valid at this time.", advice)
            for source in settings.sources_without_secret()
        ]

    def schemas(self) -> Sequence[Schema]:
        """The job, its dead letter, the shipment, and what the API answers."""
        from .contract import ActiveShipment, CourierDeadLetter, CourierEvent, CourierIntake  # noqa: PLC0415 - only here
        from .views import EventReceipt, EventView, ShipmentView  # noqa: PLC0415 - likewise
        from .workload import Courier  # noqa: PLC0415 - likewise

        return [
            Schema("courier.job", CourierEvent, f"a job of {Courier.queue}"),
            Schema("courier.intake", CourierIntake, f"what a courier posts to {COURIER_PATH}"),
            Schema("courier.dead-letter", CourierDeadLetter, f"a job of {Courier.dead_letter_queue}", "serialization"),
            Schema("courier.active-shipment", ActiveShipment, "a record of active_shipments", "serialization"),
            Schema("http.event-receipt", EventReceipt, "the answer to an accepted event", "serialization"),
            Schema("http.event", EventView, "an event's state and attempts", "serialization"),
            Schema("http.shipment", ShipmentView, "a shipment and its timeline", "serialization"),
        ]

    def starter(self) -> str:
        """A secret for a first courier."""
        return _STARTER.format(secret=fresh_secret())


@dataclass(frozen=True, slots=True)
class CourierService:
    """The courier workload of a process, with its routes."""

    workload: Courier
    settings: CourierSettings
    services: Services

    def routes(self, frame: Frame) -> FeatureRoutes:
        """The intake of signed events, and what operators read."""
        from .intake import courier_routes  # noqa: PLC0415 - workers do without a web framework

        return courier_routes(self, frame)


def workload_of(settings: CourierSettings, concurrency: int = 100) -> Courier:
    """The courier workload as configured."""
    from .workload import Courier, CourierOptions  # noqa: PLC0415 - the program's help does without

    secret = settings.courier_downstream_secret
    downstream_timeout = timedelta(milliseconds=settings.courier_downstream_timeout_ms)
    return Courier(
        CourierOptions(
            retry=ExponentialBackoff(
                max_attempts=settings.retry_max_attempts,
                base=timedelta(milliseconds=settings.retry_backoff_base_ms),
                multiplier=settings.retry_backoff_multiplier,
                jitter_percent=settings.retry_jitter_percent,
            ),
            timeout=downstream_timeout + _BESIDES_THE_DOWNSTREAM,
            retention=timedelta(days=settings.processed_events_ttl_days),
            letter_retention=timedelta(days=settings.dlq_ttl_days),
            downstream_url=settings.courier_downstream_url,
            downstream_secret=None if secret is None else secret.get_secret_value(),
            downstream_timeout=downstream_timeout,
            concurrency=concurrency,
            owned=settings.courier_shipment_owner == "source",
        ),
    )
