"""An answer that comes at once must not be lost."""

from __future__ import annotations

from datetime import timedelta

from aiosmtplib.protocol import SMTPProtocol

from holdfast.features.email.transports.port import OutgoingMessage
from holdfast.features.email.transports.smtp import SmtpOptions, SmtpTransport
from tests.support.smtp_server import HANG, SmtpServer


async def test_an_answer_that_comes_right_after_the_dot_counts(monkeypatch):
    write = SMTPProtocol.write

    def answered_at_once(protocol, data):
        write(protocol, data)
        if data == b".\r\n":  # on uvloop, a local server's answer can be there before any other task runs
            protocol.data_received(b"250 2.0.0 OK: queued as QUICK01\r\n")

    monkeypatch.setattr(SMTPProtocol, "write", answered_at_once)
    soon = timedelta(seconds=1)
    with SmtpServer() as server:
        server.rule("end", HANG)
        transport = SmtpTransport(SmtpOptions(server.host, server.port, security="none", final_timeout=soon))
        await transport.open()
        try:
            accepted = await transport.send(
                OutgoingMessage(
                    outbox_id="1",
                    raw=b"Message-ID: <1@sender.example>\r\n\r\nhello\r\n",
                    message_id="<1@sender.example>",
                    sender="mail@sender.example",
                    recipients=("maria@example.com",),
                )
            )
        finally:
            await transport.close()
    assert accepted.message_id == "QUICK01"
