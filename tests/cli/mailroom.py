"""Emails in a data folder, for commands to look at."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from holdfast.wiring import open_system
from tests.api.email_api import an_email
from tests.cli.commands import settings
from tests.support.waiting import eventually

TO = "joana.prado@example.com"


def hand_in(data: Path, tenant: str, *documents: dict[str, Any]) -> list[str]:
    """Submit emails through the admission, as the API does; returns their ids."""

    async def live() -> list[str]:
        async with open_system(settings(data)) as system:
            company_id = (await system.tenants.named(tenant)).company_id
            ids = []
            for document in documents:
                admitted = await system.service("email").admission.admit(
                    document,
                    company_id=company_id,
                    idempotency_key=None,
                    request_id="req-1",
                    received_at=system.ambient.clock.now(),
                )
                receipt = await system.intake.accept(
                    system.service("email").workload,
                    admitted.data,
                    priority=admitted.priority,
                    delay=admitted.delay,
                    effects=admitted.effects,
                )
                ids.append(receipt.job_id)
            return ids

    return asyncio.run(live())


def send_all(data: Path) -> None:
    """Run a worker until no email waits that could be sent now."""

    async def live() -> None:
        async with open_system(settings(data)) as system:
            stop = asyncio.Event()
            working = asyncio.create_task(system.worker().run(stop))

            async def idle() -> bool:
                depth = await system.broker.depth("email:send")
                return not depth.ready and not depth.active

            await eventually(idle)
            stop.set()
            await working

    asyncio.run(live())


def to_joana(**changes: Any) -> dict[str, Any]:
    return an_email(to=TO, recipient={"externalId": "C-joana", "nome": "Joana Prado"}, **changes)
