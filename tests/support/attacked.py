"""APIs of both deployments with tenants, and without a worker: what is sent stays unfinished."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.contracts.tenants import TenantLimits
from holdfast.wiring import System, open_system
from tests.cli.commands import ENVIRONMENT
from tests.support.email_traffic import mail_settings
from tests.support.program import Server, started, stop
from tests.support.settings import load

SECRETS = {"courier-x": "canary-BXq7vLw2Tn9sRk4e", "courier-y": "canary-Qm4tWc8zPv2yHs6k"}
DOCUMENTS = {
    "DOCUMENT_ENGINE": "gemini",
    "GEMINI_API_KEY": "a-key-that-nobody-asks-for",
    "GEMINI_BASE_URL": "http://127.0.0.1:9",
}


@dataclass
class Attacked:
    """Running API processes, and the store behind them."""

    environment: Mapping[str, str]
    folder: Path
    servers: list[Server] = field(default_factory=list)

    @property
    def ports(self) -> list[int]:
        return [int(server.address.rpartition(":")[2]) for server in self.servers]

    @property
    def port(self) -> int:
        return self.ports[0]

    @property
    def logs(self) -> str:
        return "".join(server.log.read_text() for server in self.servers)

    @contextlib.asynccontextmanager
    async def system(self):
        """The same store, opened by another process than the API's: this one."""
        async with open_system(load(self.environment, self.folder)) as system:
            yield system

    async def tenants(self, *limits: TenantLimits) -> list[Sending]:
        """New tenants, one with each of these limits."""
        async with self.system() as system:
            return [await _new_tenant(system, each) for each in limits]


@dataclass(frozen=True)
class Sending:
    """A tenant, its key, and the text of the key."""

    company_id: str
    key_id: str
    key: str


async def _new_tenant(system: System, limits: TenantLimits) -> Sending:
    made = await system.tenants.add(uuid.uuid4().hex)
    await system.tenants.set_limits(made.company_id, limits)
    key, text = await system.tenants.create_key(made.company_id)
    return Sending(made.company_id, key.key_id, text)


@contextlib.contextmanager
def attacked(folder: Path, settings: Mapping[str, str], *, processes: int = 1) -> Iterator[Attacked]:
    """API processes with these settings. At the end their logs have neither a traceback nor a secret."""
    data = folder / "holdfast-data"
    environment = {
        **ENVIRONMENT,
        **mail_settings(9),
        **DOCUMENTS,
        "COURIER_SECRETS": json.dumps({source: [secret] for source, secret in SECRETS.items()}),
        "HOLDFAST_DATA": str(data),
        **settings,
    }
    gateway = Attacked(environment, folder)
    asyncio.run(_prepare(gateway))
    with contextlib.ExitStack() as running:
        for number in range(processes):
            place = folder / f"api-{number}"
            place.mkdir()
            program = started(place, environment, "api", "--port", "0", "--json")
            gateway.servers.append(running.enter_context(program))
        yield gateway
        for server in gateway.servers:
            stop(server)
    assert "Traceback" not in gateway.logs
    assert '"api.unexpected"' not in gateway.logs


async def _prepare(gateway: Attacked) -> None:
    async with gateway.system():
        pass
