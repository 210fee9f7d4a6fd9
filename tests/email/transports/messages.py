"""Messages for the tests of transports."""

from __future__ import annotations

import uuid

from holdfast.features.email.transports.port import OutgoingMessage

FIRST = "maria.souza@example.com"
SECOND = "copy@example.org"
THIRD = "hidden@example.net"
SENDER = "billing@sender.example"


def a_message(*recipients: str, text: str = "Olá", **changes) -> OutgoingMessage:
    outbox_id = str(uuid.uuid4())
    message_id = f"<{outbox_id}@sender.example>"
    raw = f"Message-ID: {message_id}\r\nFrom: {SENDER}\r\nTo: {FIRST}\r\nSubject: Hi\r\n\r\n{text}\r\n".encode()
    values = {
        "outbox_id": outbox_id,
        "raw": raw,
        "message_id": message_id,
        "sender": SENDER,
        "recipients": recipients or (FIRST,),
    }
    return OutgoingMessage(**(values | changes))
