"""``examples/fastapi-app``, served by uvicorn."""

from __future__ import annotations

from tests.support.waiting import eventually

INVOICE = {"number": "2026-001", "customer": "ACME", "cents": 1299}


async def test_an_invoice_is_accepted_worked_and_shown(serve):
    with serve("fastapi-app", "invoices_api:api") as client:
        accepted = client.post("/invoices", json=INVOICE)
        again = client.post("/invoices", json=INVOICE)
        other = client.post("/invoices", json=INVOICE | {"cents": 1})
        await eventually(lambda: client.get("/invoices/2026-001").json()["status"] == "processed")
        shown = client.get("/invoices/2026-001").json()

        assert (accepted.status_code, accepted.json()) == (202, {"number": "2026-001", "duplicate": False})
        assert (again.status_code, again.json()["duplicate"]) == (202, True)
        assert (other.status_code, client.get("/invoices/none").status_code) == (409, 404)
        assert shown == {"status": "processed", "pdf": {"file": "2026-001.pdf"}}


async def test_the_invoices_are_still_there_after_a_restart(serve):
    with serve("fastapi-app", "invoices_api:api") as client:
        assert client.post("/invoices", json=INVOICE).status_code == 202
    with serve("fastapi-app", "invoices_api:api") as client:
        assert client.post("/invoices", json=INVOICE).json()["duplicate"] is True
        await eventually(lambda: client.get("/invoices/2026-001").json()["status"] == "processed")
