"""``examples/webhook-receiver``, served by uvicorn. The sender signs with the library of Standard Webhooks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from standardwebhooks import Webhook

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = '{"job_id": "doc_1", "status": "COMPLETED"}'


def signed(body=BODY, *, at=None, secret=SECRET):
    at = at or datetime.now(UTC)
    signature = Webhook(secret).sign(msg_id="msg_1", timestamp=at, data=body)
    return {"webhook-id": "msg_1", "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": signature}


def test_a_signed_webhook_is_worked_once_and_all_others_are_refused(serve):
    with serve("webhook-receiver", "receiver:api", WEBHOOK_SECRET=SECRET) as client:

        def send(headers, body=BODY):
            answer = client.post("/webhooks", content=body, headers=headers)
            return answer.status_code, answer.json().get("duplicate")

        assert send(signed()) == (202, False)
        assert send(signed()) == (202, True)
        assert send({}) == (401, None)
        assert send(signed(), body=BODY.replace("doc_1", "doc_2")) == (401, None)
        assert send(signed(secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSx")) == (401, None)
        assert send(signed(at=datetime.now(UTC) - timedelta(hours=1))) == (401, None)
        assert send(signed("[]"), body="[]") == (400, None)
