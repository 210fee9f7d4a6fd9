"""The id and the trace of a request reach the entry of every workload, whatever route the job came by."""

from __future__ import annotations

import json

import pytest

from holdfast import App
from holdfast.contracts.queries import EntryQuery, Page
from holdfast.contracts.tracing import request_labels
from tests.api.courier_api import Errands, event
from tests.api.document_api import a_pdf
from tests.api.email_api import an_email
from tests.support.email_traffic import mail_settings
from tests.support.gateway import opened
from tests.support.hearing import hearing
from tests.support.settings import load
from tests.support.waiting import eventually

SECRET = "v9Tm3Kx7Rq2Wb6Zp5Hd1"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
SENT = {"x-request-id": "shop-17", "traceparent": PARENT}


@pytest.fixture
async def gateway(tmp_path):
    settings = mail_settings(9) | {
        "HOLDFAST_DATA": str(tmp_path),
        "COURIER_SECRETS": json.dumps({"courier-x": [SECRET]}),
    }
    async with opened(load(settings, tmp_path), App([Errands()])) as made:
        yield made


async def post(gateway, route, headers):
    """Submit a new job by the route of this workload."""
    if route == "courier":
        return await gateway.post_event(event(), SECRET, **{name.replace("-", "_"): headers[name] for name in headers})
    tenants = gateway.tenants
    known = await tenants.everyone()
    tenant = known[0] if known else await tenants.add("acme")
    _, key = await tenants.create_key(tenant.company_id)
    headers = headers | {"x-api-key": key}
    if route == "email":
        return await gateway.client.post("/v1/email/send", json=an_email(), headers=headers)
    if route == "documents":
        form = {"job_type": "OCR", "input_type": "PDF"}
        files = {"file": ("a.pdf", a_pdf())}
        return await gateway.client.post("/v1/documents", data=form, files=files, headers=headers)
    return await gateway.client.post("/v1/jobs/errands", json={"errand": "milk"}, headers=headers)


async def labels(gateway, workload):
    (entry,) = (await gateway.store.find(EntryQuery(workload=workload), Page())).items
    return entry.labels


# Courier events and emails have the request's id as their trace id: the labels of a workload win.
@pytest.mark.parametrize(
    ("workload", "trace_id"), [("courier", "shop-17"), ("email", "shop-17"), ("documents", TRACE), ("errands", TRACE)]
)
async def test_the_entry_has_what_the_request_said(gateway, workload, trace_id):
    assert (await post(gateway, workload, SENT)).status_code == 202
    found = await labels(gateway, workload)
    assert (found["traceId"], found["requestId"], found["traceparent"]) == (trace_id, "shop-17", PARENT)
    assert request_labels.get() == {}, "the next request has labels of its own"


@pytest.mark.parametrize("workload", ["courier", "email", "documents", "errands"])
async def test_a_request_that_says_nothing_gets_a_trace_id(gateway, workload):
    answer = await post(gateway, workload, {})
    found = await labels(gateway, workload)
    assert found["traceId"]
    assert "traceparent" not in found
    if workload != "courier":  # the direct route names its request by the trace id
        assert found["requestId"] == answer.headers["x-request-id"]


async def test_a_traceparent_that_came_twice_or_is_not_valid_counts_as_none(gateway):
    for sent in ([("traceparent", PARENT), ("traceparent", PARENT)], [("traceparent", PARENT.upper())]):
        tenants = gateway.tenants
        tenant = await tenants.add(f"tenant-{len(await tenants.everyone())}")
        _, key = await tenants.create_key(tenant.company_id)
        answer = await gateway.client.post(
            "/v1/jobs/errands", json={"errand": "milk"}, headers=[*sent, ("x-api-key", key)]
        )
        assert answer.status_code == 202
        assert answer.json()["traceId"] != TRACE


@pytest.mark.parametrize("workload", ["courier", "errands"])
async def test_the_line_of_an_attempt_has_the_trace_id(gateway, workload):
    await post(gateway, workload, SENT)
    expected = (await labels(gateway, workload))["traceId"]
    with hearing() as said:
        async with gateway.running():
            lines = await eventually(lambda: [fields for name, fields in said if name == "attempt.settled"])
    assert [each["trace_id"] for each in lines] == [expected]


async def test_a_number_of_a_person_in_a_request_id_is_not_kept(gateway):
    cpf = "529.982.247-25"
    assert (await post(gateway, "errands", {"x-request-id": f"cpf-{cpf}"})).status_code == 202
    found = await labels(gateway, "errands")
    assert "requestId" not in found
    assert cpf not in json.dumps(dict(found))
