"""The feature: what this package brings to Holdfast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Final

from holdfast.feature import OK, WARN, Command, Feature, Finding, NotSetUp, Parts, Schema, Services

from .settings import SmsSettings

if TYPE_CHECKING:  # the program's help loads this module: it does without an HTTP client and a web framework
    from holdfast.http import FeatureRoutes, Frame

    from .provider import Provider
    from .workload import SmsWorkload

SMS_PATH: Final = "/v1/sms"
SEND: Final = "sms:send"
READ: Final = "sms:read"


@dataclass(frozen=True, slots=True)
class SmsService:
    """What the routes and commands of text messages use."""

    workload: SmsWorkload
    services: Services


class SmsFeature(Feature[SmsSettings]):
    """Text messages of tenants."""

    name = "sms"
    title = "text messages"
    settings = SmsSettings
    commands = (Command("sms", "holdfast_sms.commands:sms", "See the state of text messages."),)
    scopes: ClassVar[Mapping[str, str]] = {SEND: "sends text messages", READ: "shows the state of text messages"}
    paths = (SMS_PATH,)
    intakes: ClassVar[Mapping[str, str]] = {"sms": f"Send text messages, with an API key, to POST {SMS_PATH}."}

    def build(self, settings: SmsSettings, services: Services) -> Parts:
        """The workload, its routes, and the client of the provider."""
        from .workload import SmsWorkload  # noqa: PLC0415 - see above

        provider = _provider(settings)
        if provider is None:
            message = "SMS_PROVIDER_URL is not set."
            raise NotSetUp(message)
        sms = SmsService(SmsWorkload(provider), services)

        def routes(frame: Frame) -> FeatureRoutes:
            from .routes import sms_routes  # noqa: PLC0415 - a worker does without a web framework

            return sms_routes(sms, frame)

        return Parts(workloads=[sms.workload], routes=routes, resources=[provider], service=sms)

    async def check(self, settings: SmsSettings, services: Services) -> Sequence[Finding]:
        """Whether the provider answers."""
        del services
        provider = _provider(settings)
        if provider is None:
            return [Finding("sms", OK, "Not set up here.", "Wanted? Set SMS_PROVIDER_URL and SMS_PROVIDER_KEY.")]
        try:
            trouble = await provider.trouble()
        finally:
            await provider.close()
        if trouble:
            return [Finding("sms", WARN, f"The provider {trouble}.", "Messages wait, and are tried again for a while.")]
        return [Finding("sms", OK, "The provider answers.")]

    def schemas(self) -> Sequence[Schema]:
        """What tenants send, and what they get."""
        from .contract import Sms, SmsBody, SmsReceipt, SmsView  # noqa: PLC0415 - only here

        return [
            Schema("sms.job", Sms, "a job of the queue sms"),
            Schema("sms.body", SmsBody, f"what a tenant posts to {SMS_PATH}"),
            Schema("http.sms-receipt", SmsReceipt, "the answer to an accepted text message", "serialization"),
            Schema("http.sms", SmsView, "a text message and its state", "serialization"),
        ]


def _provider(settings: SmsSettings) -> Provider | None:
    """The provider that the settings name. Settings with an address and without a key are refused before."""
    from .provider import Provider  # noqa: PLC0415 - see above

    if settings.sms_provider_url is None or settings.sms_provider_key is None:
        return None
    timeout = timedelta(milliseconds=settings.sms_timeout_ms)
    return Provider(settings.sms_provider_url, settings.sms_provider_key.get_secret_value(), timeout)
