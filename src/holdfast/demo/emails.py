"""The chapters on emails: one email is sent, one is delayed, one is refused, and one expires."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from email import message_from_bytes
from typing import Final, NamedTuple

from holdfast.features.email.feature import LIBRARIES

from .stage import TENANT, Body, Part, Stage, chapter, times

_PATH: Final = "/v1/email"
_QUEUE: Final = "email:send"
_ENDS: Final = frozenset({"SENT", "FAILED", "EXPIRED", "CANCELLED"})
_SHOWN: Final = ("to", "subject", "externalId", "cpfCnpjHash", "attempt", "sesMessageId", "sentAt")


class Email(NamedTuple):
    """One email of the demo's tenant. The persons do not exist, and the CPF is invented."""

    reference: str
    to: str
    nome: str
    subject: str
    text: str
    cpf: str = ""

    @property
    def personal(self) -> tuple[str, ...]:
        """The personal data, which must be masked in logs and answers."""
        return tuple(filter(None, (self.to, self.nome, self.cpf)))


INVOICE: Final = Email(
    "CUST-1", "bia.lima@example.com", "Bia Lima", "Your invoice", "Your invoice is ready.", "529.982.247-25"
)
PATIENT: Final = Email("CUST-2", "caio.reis@example.com", "Caio Reis", "Your parcel", "Your parcel is on its way.")
MISTYPED: Final = Email("CUST-3", "dora.nuens@example.com", "Dora Nunes", "Your refund", "You get your money back.")
LATE: Final = Email("CUST-4", "enzo.melo@example.com", "Enzo Melo", "Today only", "Half price, until midnight.")


@chapter("an email", "202, SENT, received once, masked")
def sent(stage: Stage) -> str:
    """Holdfast sends emails, too. By default they go to .eml files; here they go to a mail server of the demo."""
    outbox_id = _submitted(stage, INVOICE)
    stage.say("The HTML is stored encrypted, and the job in the queue only refers to it.")
    email = _watched(stage, outbox_id)
    stage.say("The mail server got:")
    for file in stage.mail.taken[INVOICE.to]:
        message = message_from_bytes(file.read_bytes())
        headers = {name: message[name] for name in ("From", "To", "Subject", "Message-ID")}
        stage.facts({"file": file, **headers})
    stage.say("Holdfast's answer about this email, and its log line. Personal data is masked in both:")
    stage.facts({name: email[name] for name in _SHOWN})
    log = stage.server.log_file.read_text(encoding="utf-8", errors="replace")
    stage.show(next((line for line in reversed(log.splitlines()) if outbox_id in line), ""))
    stage.command("or", stage.cli(f"emails show {outbox_id}"))
    public = json.dumps(email, ensure_ascii=False) + log
    masked = "named in clear" if any(each in public for each in INVOICE.personal) else "masked"
    return f"202, {email['status']}, {_received(stage, INVOICE)}, {masked}"


@chapter("a mail server that is down", "202, RETRYING after SMTP_421, SENT, received once")
def held_up(stage: Stage) -> str:
    """The mail server goes down. It closes its connections, and answers new ones with 421: not now."""
    stage.mail.break_down()
    stage.line("!!", "The mail server is down.")
    try:
        outbox_id = _submitted(stage, PATIENT)
        waiting = _watched(stage, outbox_id, _ENDS | {"RETRYING"})
    finally:
        stage.mail.down = False
    stage.line("**", "The mail server is up again.")
    stage.say("""No part of the email was sent, so a new attempt is safe. If the connection is lost while the
        mail server takes an email, Holdfast does not guess: a person decides, and nobody gets an email twice.""")
    email = _watched(stage, outbox_id)
    got = len(stage.mail.taken[PATIENT.to])
    stage.facts({"attempts": email["attempt"], "emails that the mail server got": got})
    return f"202, {waiting['status']} after {waiting['lastErrorCode']}, {email['status']}, {_received(stage, PATIENT)}"


@chapter("a refused email", "202, FAILED after 1 attempt, SMTP_550, dead letter closed")
def refused(stage: Stage) -> str:
    """Somebody mistyped an address. The mail server answers 550: the email becomes a dead letter at once."""
    stage.mail.refused.add(MISTYPED.to)
    email = _watched(stage, _submitted(stage, MISTYPED))
    letter = stage.letter_of("email", show=True)
    stage.say("Ana reviews the dead letter. A replay would not help, so she closes it.")
    stage.decide(letter["id"], "review", "the address is mistyped")
    closed = stage.decide(letter["id"], "close", "the shop was told")["reviewStatus"]
    attempts = f"{stage.mail.asked[MISTYPED.to]} attempt"
    return f"202, {email['status']} after {attempts}, {letter['terminalReasonCode']}, dead letter {closed}"


@chapter("an email too late", "202, EXPIRED, never sent")
def expired(stage: Stage) -> str:
    """An email that is too late is worse than none. Each has a time to live: by default a day, here 6 seconds."""
    stage.say("The operator pauses the queue for longer than that. Emails are still accepted.")
    stage.run("queue", "pause", _QUEUE)
    try:
        email = _watched(stage, _submitted(stage, LATE))
    finally:
        stage.run("queue", "resume", _QUEUE)
    stage.say("The queue runs again, but the email has expired. It is not sent, and the shop can see that.")
    offered = stage.mail.asked[LATE.to]
    return f"202, {email['status']}, {f'offered {offered} times' if offered else 'never sent'}"


EMAILS: Final = Part(
    "emails",
    (sent, held_up, refused, expired),
    # An email may wait long enough for two attempts, also on a busy machine.
    shortened={"EMAIL_BACKOFF_SECONDS": (1, 2, 3, 4, 5), "EMAIL_TTL_MS": 6_000},
    settings={
        "EMAIL_TRANSPORT": "smtp",
        "EMAIL_FROM": f"{TENANT} <shop@example.com>",
        "SMTP_HOST": "127.0.0.1",
        "SMTP_SECURITY": "none",
    },
    look=("emails list",),
    libraries=("aiosmtplib", *LIBRARIES),
)


def _submitted(stage: Stage, email: Email) -> str:
    person = {"externalId": email.reference, "nome": email.nome} | ({"cpfCnpj": email.cpf} if email.cpf else {})
    html = f"<p>Dear {email.nome},</p><p>{email.text}</p><p>The {TENANT}</p>"
    body = {"to": email.to, "subject": email.subject, "html": html, "recipient": person}
    return stage.submitted(f"{_PATH}/send", f"to {email.to}: {email.subject}", "outboxId", json=body)


def _watched(stage: Stage, outbox_id: str, until: Collection[str] = _ENDS) -> Body:
    return stage.watch(lambda: stage.read(stage.tenant, f"{_PATH}/{outbox_id}"), _lines, until)


def _lines(email: Body) -> Iterable[str]:
    error = f", attempt {email['attempt']}: {email['lastErrorCode']}: {email['lastErrorMessage']}"
    yield f"{email['status']}{error if email['status'] in {'RETRYING', 'FAILED'} else ''}"


def _received(stage: Stage, email: Email) -> str:
    return f"received {times(len(stage.mail.taken[email.to]))}"
