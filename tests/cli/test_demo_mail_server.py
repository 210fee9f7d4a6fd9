"""The mail server of the demo, asked by Python's own SMTP client."""

from __future__ import annotations

import smtplib
import socket

import pytest

from holdfast.demo.servers import MailServer, serving

SENDER = "shop@example.com"
TEXT = "Subject: dots\r\n\r\n.\r\n..two\r\nend\r\n"


@pytest.fixture
def mail(tmp_path):
    mail = MailServer(tmp_path / "mailbox")
    with serving(mail):
        yield mail


@pytest.fixture
def port(mail):
    return mail.server_address[1]


@pytest.fixture
def client(port):
    with smtplib.SMTP("127.0.0.1", port, timeout=120) as client:
        yield client


def test_keeps_what_it_takes_byte_for_byte(mail, client):
    for address in ("a@example.com", "b@example.com"):
        client.sendmail(SENDER, [address], TEXT)
    (first,), (second,) = mail.taken["a@example.com"], mail.taken["b@example.com"]
    assert (first.name, second.name) == ("email-1.eml", "email-2.eml")
    assert first.read_bytes() == second.read_bytes() == TEXT.encode()
    assert mail.asked["a@example.com"] == 1


def test_refuses_whom_it_does_not_know_and_goes_on(mail, client):
    mail.refused.add("ghost@example.com")
    with pytest.raises(smtplib.SMTPRecipientsRefused) as refused:
        client.sendmail(SENDER, ["ghost@example.com"], TEXT)
    assert refused.value.recipients["ghost@example.com"][0] == 550
    client.sendmail(SENDER, ["a@example.com"], TEXT)
    assert mail.asked["ghost@example.com"] == 1
    assert (mail.taken["ghost@example.com"], len(mail.taken["a@example.com"])) == ([], 1)


def test_hangs_up_and_refuses_while_it_is_down(mail, client, port):
    mail.break_down()
    with pytest.raises(smtplib.SMTPServerDisconnected):
        client.noop()
    with pytest.raises(smtplib.SMTPConnectError) as turned_away:
        smtplib.SMTP("127.0.0.1", port, timeout=120)
    assert turned_away.value.smtp_code == 421
    mail.down = False
    with smtplib.SMTP("127.0.0.1", port, timeout=120) as again:
        assert again.noop()[0] == 250


def test_takes_no_email_that_does_not_end(mail, client):
    client.mail(SENDER)
    client.rcpt("a@example.com")
    client.putcmd("DATA")
    assert client.getreply()[0] == 354
    client.send(b"Subject: half an em")
    client.sock.shutdown(socket.SHUT_WR)
    assert client.sock.recv(1) == b""  # it hung up
    client.close()
    assert mail.taken["a@example.com"] == []


def test_wants_things_in_their_order(client):
    assert client.docmd("DATA")[0] == 503
    assert client.docmd("TURN")[0] == 503
