"""Both clients against a whole gateway: courier events, emails, documents, dead letters."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from holdfast.client import (
    Conflict,
    Email,
    InvalidContent,
    InvalidSignature,
    JobFailed,
    NotFound,
    Refused,
    Unauthorized,
    verify_webhook,
)
from tests.client.served_gateway import CALLBACK_SECRET, SECRET, SOURCE, in_real_time
from tests.support.pages import encrypted_pdf, text_pdf

NOW = datetime.now(UTC)


class TestCourier:
    FACTS = {"shipmentId": "shp_456", "orderId": "ord_789", "status": "out_for_delivery"}  # noqa: RUF012

    def test_a_signed_event(self, who, name):
        def send(client):
            return client.courier.send(self.FACTS, source=SOURCE, secret=SECRET, event_id=name, occurred_at=NOW)

        first, second = who.call(send), who.call(send)
        assert (first.event_id, first.idempotency_key) == (name, f"{SOURCE}:{name}")
        assert (first.duplicate, second.duplicate) == (False, True)
        assert first.received_at == second.received_at
        event = who.call(lambda client: client.courier.event(f"{SOURCE}:{name}"))
        assert event["eventId"] == name
        assert who.call(lambda client: client.courier.shipment("shp_456"))["shipmentId"] == "shp_456"

    def test_another_content_under_one_id(self, who, name):
        for status, expected in (("out_for_delivery", None), ("delivered", Conflict)):

            def send(client, status=status):
                facts = self.FACTS | {"status": status}
                return client.courier.send(facts, source=SOURCE, secret=SECRET, event_id=name, occurred_at=NOW)

            if expected is None:
                who.call(send)
            else:
                with pytest.raises(expected):
                    who.call(send)

    def test_another_secret(self, who):
        with pytest.raises(Unauthorized) as raised:
            who.call(lambda client: client.courier.send(self.FACTS, source=SOURCE, secret="another secret"))
        assert raised.value.code == "INVALID_SIGNATURE"
        assert "another secret" not in str(raised.value)

    def test_a_secret_that_cannot_sign(self, who):
        with pytest.raises(ValueError, match="base64"):
            who.call(lambda client: client.courier.send(self.FACTS, source=SOURCE, secret="whsec_%"))

    @pytest.mark.parametrize("event_id", ["a\r\nx-evil: 1", "é", "a b"])
    def test_an_id_that_cannot_be_a_header(self, who, event_id):
        with pytest.raises(ValueError, match="event id"):
            who.call(lambda client: client.courier.send(self.FACTS, source=SOURCE, secret=SECRET, event_id=event_id))

    def test_an_event_that_is_none(self, who):
        with pytest.raises(InvalidContent) as raised:
            who.call(lambda client: client.courier.send({"shipmentId": 1}, source=SOURCE, secret=SECRET))
        assert {each.field for each in raised.value.details} >= {"payload.orderId", "payload.status"}


def an_email(name, **changes):
    facts = {
        "to": "maria@example.com",
        "subject": "Bem-vinda",
        "html": f"<p>{name}</p>",
        "recipient": {"externalId": "1"},
    }
    return Email(**{**facts, **changes})


class TestEmail:
    def test_an_email_is_sent_once(self, who, name):
        first = who.call(lambda client: client.email.send(an_email(name)))
        second = who.call(lambda client: client.email.send(an_email(name)))
        assert (first.duplicate, second.duplicate, second.outbox_id) == (False, True, first.outbox_id)
        assert who.call(lambda client: client.email.show(first)).to == "m***@e***.com"
        listed = who.call(lambda client: client.email.list(page=1))
        assert first.outbox_id in {each.outbox_id for each in listed}

    def test_an_idempotency_key_is_the_identity(self, who, name):
        first = who.call(lambda client: client.email.send(an_email(name, idempotency_key=name)))
        assert who.call(lambda client: client.email.send(an_email(name, idempotency_key=name))).duplicate
        with pytest.raises(Conflict):
            who.call(lambda client: client.email.send(an_email("other", idempotency_key=name)))
        other = who.call(lambda client: client.email.send(an_email(name, idempotency_key=f"{name}-2")))
        assert other.outbox_id != first.outbox_id

    def test_many(self, who, name):
        emails = [
            an_email(name, idempotency_key=f"{name}-1"),
            {"to": "nobody"},
            an_email(name, idempotency_key=f"{name}-1"),
            an_email(name, delay="1h", idempotency_key=f"{name}-2"),
        ]
        first, refused, again, later = who.call(lambda client: client.email.send_many(emails))
        assert isinstance(refused, InvalidContent)
        assert isinstance(refused, Refused)
        assert (first.duplicate, again.duplicate, later.status) == (False, True, "ENQUEUED")
        assert timedelta(minutes=59) < later.scheduled_for - later.received_at < timedelta(minutes=61)
        who.call(lambda client: client.email.cancel(later))
        assert who.call(lambda client: client.email.show(later)).status == "CANCELLED"

    def test_a_key_that_cannot_be_a_header(self, who, name):
        with pytest.raises(ValueError, match="The idempotency key"):
            who.call(lambda client: client.email.send(an_email(name, idempotency_key="a\r\nb")))

    def test_nothing_of_a_person_is_shown(self):
        assert "maria" not in repr(an_email("x"))

    def test_a_wrong_key_and_an_operator(self, gateway, who):
        for options in ({"key": "hf_wrong"}, {"key": None}, {"key": None, "token": None}):
            nobody = in_real_time(type(who), gateway, retries=0, **options)
            with pytest.raises(Unauthorized):
                nobody.call(lambda client: client.email.list())


class TestDocuments:
    def test_a_file_becomes_text(self, who, name, tmp_path):
        path = tmp_path / 'a "strange" name.pdf'
        path.write_bytes(text_pdf([f"A letter of {name}."]))
        sent, states = [], []
        receipt = who.call(
            lambda client: client.documents.submit(
                path, job_id=name, metadata={"case": 17}, progress=lambda *each: sent.append(each)
            )
        )
        assert (receipt.job_id, receipt.duplicate) == (name, False)
        assert sent[-1] == (path.stat().st_size, path.stat().st_size)
        result = who.call(lambda client: client.documents.wait(receipt, timeout="2m", progress=states.append))
        assert (result.status, result.pages) == ("COMPLETED", 1)
        assert states[-1].status == "COMPLETED"
        assert f"A letter of {name}." in who.call(lambda client: client.documents.text(receipt))
        assert "## Page 1" in who.call(lambda client: client.documents.text(receipt, "markdown"))
        shown = who.call(lambda client: client.documents.show(name))
        assert (shown.metadata, shown.filename) == ({"case": 17}, "a _strange_ name.pdf")
        # The same file again: the result is there, and nothing is read.
        cached = who.call(lambda client: client.documents.submit(path))
        assert cached.cached
        assert who.call(lambda client: client.documents.wait(cached)).content is not None

    def test_the_same_job_again_gets_the_first_receipt(self, who, name, tmp_path):
        path = tmp_path / "letter.pdf"
        path.write_bytes(text_pdf([name]))
        first = who.call(lambda client: client.documents.submit(path, job_id=name, cache=False))
        second = who.call(lambda client: client.documents.submit(path, job_id=name, cache=False))
        assert (first.duplicate, second.duplicate, second.accepted_at) == (False, True, first.accepted_at)

    def test_a_file_that_cannot_be_read(self, who, name, tmp_path):
        path = tmp_path / "secret.pdf"
        path.write_bytes(encrypted_pdf())
        receipt = who.call(lambda client: client.documents.submit(path, job_id=name))
        with pytest.raises(JobFailed) as raised:
            who.call(lambda client: client.documents.wait(receipt, timeout="2m"))
        assert raised.value.code == "PDF_ENCRYPTED"

    def test_what_is_no_document(self, who, tmp_path):
        (tmp_path / "notes.txt").write_text("text")
        (tmp_path / "notes.pdf").write_text("text")
        with pytest.raises(ValueError, match="input_type"):
            who.call(lambda client: client.documents.submit(tmp_path / "notes.txt"))
        with pytest.raises(InvalidContent):
            who.call(lambda client: client.documents.submit(tmp_path / "notes.pdf"))
        (tmp_path / "folder.pdf").mkdir()
        with pytest.raises(ValueError, match="not a file"):
            who.call(lambda client: client.documents.submit(tmp_path / "folder.pdf"))
        with pytest.raises(FileNotFoundError):
            who.call(lambda client: client.documents.submit(tmp_path / "missing.pdf"))
        with pytest.raises(NotFound):
            who.call(lambda client: client.documents.wait("no-such-job", timeout=5))

    def test_a_callback_is_verified(self, who, name, tmp_path):
        got = []

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                got.append((body, dict(self.headers)))
                self.send_response(204)
                self.end_headers()
                arrived.set()

            def log_message(self, *_):
                pass

        arrived = threading.Event()
        path = tmp_path / "letter.pdf"
        path.write_bytes(text_pdf([name]))
        with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as receiver:
            threading.Thread(target=receiver.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{receiver.server_address[1]}/done"
            who.call(lambda client: client.documents.submit(path, job_id=name, callback_url=url))
            assert arrived.wait(120)
            receiver.shutdown()
        body, headers = got[0]
        assert verify_webhook(body, headers, CALLBACK_SECRET).id
        assert name in body.decode()
        with pytest.raises(InvalidSignature):
            verify_webhook(body + b" ", headers, CALLBACK_SECRET)
