"""The HTML of a refused email, where a folder has the HTML: nothing of it stays."""

from __future__ import annotations

import pytest

from holdfast.contracts.tenants import TenantLimits
from tests.api.email_api import an_email, email_api
from tests.support.email_content import folder_content


@pytest.fixture
async def api(tmp_path):
    content = folder_content(tmp_path / "html")
    await content.open()
    async with email_api(tmp_path, content=content) as made:
        made.services.intake._limits = made.email.services.limits  # as in a process
        yield made


@pytest.fixture
def stored(tmp_path):
    """The HTML that the folder has."""
    return lambda: {path.read_text() for path in (tmp_path / "html").rglob("*.html")}


def codes(batch) -> list[int]:
    return [each["statusCode"] for each in batch.json()["answers"]]


async def test_html_under_a_key_that_another_email_has_is_not_stored(api, stored):
    first = an_email(html="<p>first</p>")
    assert (await api.send(first, idempotency_key="k")).status_code == 202

    answer = await api.send(an_email(html="<p>second</p>"), idempotency_key="k")

    assert (answer.status_code, answer.json()["errorCode"]) == (409, "IDEMPOTENCY_CONFLICT")
    assert stored() == {"<p>first</p>"}
    again = await api.send(first, idempotency_key="k")
    assert (again.status_code, again.json()["duplicate"]) == (202, True)


async def test_a_refused_email_takes_no_html_from_an_accepted_one(api, stored):
    await api.send(an_email(html="<p>first</p>"), idempotency_key="k")
    await api.send(an_email(html="<p>shared</p>"))

    answer = await api.send(an_email(html="<p>shared</p>"), idempotency_key="k")

    assert answer.status_code == 409
    assert stored() == {"<p>first</p>", "<p>shared</p>"}


@pytest.mark.parametrize("limit", ["waiting_jobs", "pending"])
async def test_html_of_emails_beyond_a_limit_is_not_stored(api, stored, limit):
    await api.tenants.set_limits(api.ids["acme"], TenantLimits(**{limit: 2}))

    answer = await api.send_batch([an_email(html=f"<p>{number}</p>") for number in range(5)])

    assert codes(answer) == [202, 202, 429, 429, 429]
    assert stored() == {"<p>0</p>", "<p>1</p>"}


async def test_html_is_not_stored_for_a_tenant_with_too_many_waiting_jobs(api, stored):
    await api.tenants.set_limits(api.ids["acme"], TenantLimits(waiting_jobs=1))
    await api.send(an_email(html="<p>first</p>"))

    answer = await api.send(an_email(html="<p>second</p>"))

    assert (answer.status_code, answer.json()["errorCode"]) == (429, "TOO_MANY_WAITING")
    assert stored() == {"<p>first</p>"}
