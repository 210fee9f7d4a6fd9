from __future__ import annotations

import asyncio
from datetime import timedelta

import httpx
import pytest
from holdfast_sms.contract import Sms, SmsBody
from holdfast_sms.provider import Provider
from holdfast_sms.settings import SmsSettings
from holdfast_sms.workload import SmsWorkload
from pydantic import ValidationError

from holdfast import Done, Reject, Retry
from holdfast.feature import Settings

NUMBER = "+5511987654321"
SMS = Sms(id="order-77", to=NUMBER, text="Your parcel has arrived.", tenant="acme")


def outcome_of(answer):
    """The outcome of a message that the provider answers so, and what the provider got."""
    got = []

    def take(request):
        got.append(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def send():
        provider = Provider("https://sms.test/v1", "key", timedelta(seconds=1), httpx.MockTransport(take))
        outcome = await provider.send("acme:order-77", SMS)
        await provider.close()
        return outcome

    return asyncio.run(send()), got[0]


def test_a_message_is_sent_with_its_key():
    outcome, request = outcome_of(httpx.Response(201))
    assert outcome == Done(result={"status": 201})
    assert str(request.url) == "https://sms.test/v1/messages"
    assert request.headers["authorization"] == "Bearer key"
    assert request.headers["idempotency-key"] == "acme:order-77"


@pytest.mark.parametrize(
    ("answer", "expected", "code"),
    [
        (httpx.Response(429, headers={"retry-after": "7"}), Retry, "THROTTLED"),
        (httpx.Response(503), Retry, "HTTP_503"),
        (httpx.Response(400, text=f"{NUMBER} is not a number"), Reject, "HTTP_400"),
        (httpx.Response(301), Reject, "HTTP_301"),
        (httpx.ReadTimeout("slow"), Retry, "TIMEOUT"),
        (httpx.ConnectError("away"), Retry, "NETWORK"),
    ],
)
def test_answers_decide_what_becomes_of_the_job(answer, expected, code):
    outcome, _ = outcome_of(answer)
    assert (type(outcome), outcome.code) == (expected, code)
    assert NUMBER not in outcome.message


def test_the_provider_may_ask_for_time():
    assert outcome_of(httpx.Response(429, headers={"retry-after": "7"}))[0].after == timedelta(seconds=7)


def test_only_the_job_has_the_number_in_clear():
    workload = SmsWorkload(provider=None)
    assert workload.labels(SMS) == {"id": "order-77", "tenant": "acme", "to": "+55***21"}
    assert workload.readable(SMS.model_dump_json())["to"] == "+55***21"
    assert NUMBER not in repr(SMS)
    assert workload.key(SMS) == "acme:order-77"


@pytest.mark.parametrize("changed", [{"to": "987654321"}, {"to": "+0011987654321"}, {"text": ""}, {"id": "a b"}])
def test_what_is_no_message_is_refused(changed):
    with pytest.raises(ValidationError):
        SmsBody.model_validate({"id": "1", "to": NUMBER, "text": "Hello."} | changed)


def test_a_provider_needs_its_key():
    assert SmsSettings().problems(Settings()) == []
    (problem,) = SmsSettings(sms_provider_url="https://sms.test").problems(Settings())
    assert "SMS_PROVIDER_KEY" in problem
