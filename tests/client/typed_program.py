"""A program with both clients. tests/client/test_types.py lets mypy read it; nobody runs it."""

from collections.abc import AsyncIterator, Iterator
from typing import Any, assert_type

from holdfast import AsyncClient, Client, sign, verify_webhook
from holdfast.client import (
    Cancelled,
    DeadLetter,
    DocumentResult,
    Email,
    EmailReceipt,
    EventReceipt,
    Job,
    JobState,
    Refused,
    Webhook,
)

with Client("http://127.0.0.1:8080", key="hf_x", timeout="10s") as client:
    job = client.submit("issue_invoice", {"number": "1"}, delay="10m")
    assert_type(job, Job)
    assert_type(client.submit_many("issue_invoice", [{"number": "1"}]), list[Job | Refused])
    assert_type(client.result(job, timeout=30), Any)
    assert_type(client.job("issue_invoice", "1"), JobState)
    assert_type(client.jobs("issue_invoice", status="processed"), Iterator[JobState])
    assert_type(client.cancel(job), Cancelled)
    assert_type(client.events(job), Iterator[JobState])
    assert_type(client.courier.send({}, source="x", secret="y"), EventReceipt)
    assert_type(client.email.send(Email(to="a", subject="s", recipient={})), EmailReceipt)
    assert_type(client.documents.wait("x"), DocumentResult)
    assert_type(client.dead_letters.list(), Iterator[DeadLetter])
    client.submit("issue_invoice", {}, dely="10m")  # a mistake
    client.result(7)  # a mistake
    client.submit()  # a mistake


async def main() -> None:
    async with AsyncClient("http://127.0.0.1:8080", token="x") as client:
        job = await client.submit("issue_invoice", {"number": "1"})
        assert_type(job, Job)
        assert_type(await client.submit_many("issue_invoice", []), list[Job | Refused])
        assert_type(client.jobs("issue_invoice"), AsyncIterator[JobState])
        async for state in client.events(job):
            assert_type(state, JobState)
        assert_type(await client.dead_letters.close("x", actor="a", reason="r"), DeadLetter)
        await client.submit("issue_invoice", {}, dely="10m")  # a mistake


assert_type(verify_webhook(b"", {}, "s"), Webhook)
assert_type(sign(b"", "s"), dict[str, str])
