"""What is made before the first request, so that no request waits for it (I18)."""

from __future__ import annotations

import fastapi.routing
import httpx
import pytest

from holdfast.api import ApiOptions
from tests.api.courier_api import TOKEN, app_of


@pytest.mark.parametrize(
    "path", ["/health", "/v1/dead-letters", "/v1/jobs/courier/none", "/v1/shipments/none", "/none"]
)
async def test_the_first_request_makes_no_routes(api, monkeypatch, path):
    app = app_of(api.services, ApiOptions(operator_token=TOKEN))
    await app.prepare()
    made = []
    monkeypatch.setattr(fastapi.routing, "get_dependant", lambda **of_a_route: made.append(of_a_route))

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://holdfast.test") as client:
        answer = await client.get(path, headers={"authorization": f"Bearer {TOKEN}"})

    assert answer.status_code in {200, 404}
    assert made == []
