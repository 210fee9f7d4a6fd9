"""The workload: what identifies a message, and how it is sent."""

from __future__ import annotations

from typing import Any

from holdfast import Context, ExponentialBackoff, Job, Outcome, Workload, readable_body

from .contract import Sms, masked
from .provider import Provider


class SmsWorkload(Workload[Sms]):
    """Text messages. One id of one tenant: one message."""

    name = "sms"
    contract = Sms
    queue = "sms"
    dead_letter_queue = "sms-dlq"
    retry = ExponentialBackoff(max_attempts=3)
    indexed_labels = ("tenant",)

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    def key(self, data: Sms) -> str:
        """Tenants choose ids, so an id is unique within its tenant only."""
        return key_of(data.tenant, data.id)

    def labels(self, data: Sms) -> dict[str, str]:
        """What people see of a message. Labels are not secret, so the number is masked."""
        return {"id": data.id, "tenant": data.tenant, "to": masked(data.to)}

    def fairness_key(self, data: Sms) -> str:
        """A tenant with many messages does not delay the others."""
        return data.tenant

    async def handle(self, job: Job[Sms], context: Context) -> Outcome:
        """Send the message."""
        del context
        return await self._provider.send(job.key, job.data)

    def readable(self, body: str) -> Any:  # noqa: ANN401 - JSON of any kind
        """The job as people see it."""
        shown = readable_body(body)
        return {**shown, "to": masked(str(shown["to"]))} if isinstance(shown, dict) and "to" in shown else shown


def key_of(tenant: str, message_id: str) -> str:
    """The key of a tenant's message."""
    return f"{tenant}:{message_id}"
