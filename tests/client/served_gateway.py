"""A whole gateway on a real socket, in a thread: the API, a worker and maintenance, for clients that block."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from holdfast import App
from tests.api.serving import ApiThread
from tests.support.gateway import opened
from tests.support.settings import load

TOKEN = "an-operator-token-of-the-tests-0123456789"
SOURCE = "courier-x"
SECRET = "whsec_" + base64.b64encode(b"the secret of courier-x, for tests").decode()
CALLBACK_SECRET = "whsec_" + base64.b64encode(b"the secret of callbacks, for tests").decode()


class ServedGateway(ApiThread):
    """``key`` is the API key of a tenant, ``token`` the operator's."""

    token = TOKEN

    def __init__(self, folder: Path, app: App | None = None, **environment: str) -> None:
        super().__init__(folder)
        self._app = app
        self._environment: Mapping[str, str] = environment
        self.key = ""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Any]:
        facts = {
            "HOLDFAST_DATA": str(self.folder),
            "OPERATOR_TOKEN": TOKEN,
            "COURIER_SECRETS": json.dumps({SOURCE: SECRET}),
            "DOCUMENT_CALLBACK_SECRET": CALLBACK_SECRET,
            "UPKEEP_INTERVAL_MS": "50",
        }
        settings = load({**facts, **self._environment}, self.folder)
        async with opened(settings, self._app) as gateway:
            tenant = await gateway.tenants.add("acme")
            _, self.key = await gateway.tenants.create_key(tenant.company_id)
            async with gateway.running():
                yield gateway.system.api()
                await asyncio.sleep(0)
