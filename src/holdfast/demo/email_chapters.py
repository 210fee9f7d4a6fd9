"""The chapters on emails: one email is sent, one is delayed, one is refused, and one expires."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from email import message_from_bytes, policy
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from .chapters import ACTOR, Chapter, letter_of, must_decide
from .clients import SEND_PATH, EmailNote, Reply
from .mailing import QUEUE, TTL_SECONDS
from .narration import status_of_email
from .stage import Stage, Unexpected
from .tenant import api_key

INVOICE: Final = EmailNote(
    "CUST-1", "bia.lima@example.com", "Bia Lima", "Your invoice", "Your invoice is ready.", cpf="529.982.247-25"
)
PATIENT: Final = EmailNote("CUST-2", "caio.reis@example.com", "Caio Reis", "Your parcel", "Your parcel is on its way.")
MISTYPED: Final = EmailNote("CUST-3", "dora.nuens@example.com", "Dora Nunes", "Your refund", "You get your money back.")
LATE: Final = EmailNote("CUST-4", "enzo.melo@example.com", "Enzo Melo", "Today only", "Half price, until midnight.")

_SHOWN: Final = ("to", "subject", "externalId", "cpfCnpjHash", "attempt", "sesMessageId", "sentAt")
_HEADERS: Final = ("From", "To", "Subject", "Message-ID")
_ENDS: Final = frozenset({"SENT", "FAILED", "EXPIRED", "CANCELLED"})


# --- the chapters -------------------------------------------------------------------------------------------------


def _sent(stage: Stage) -> str:
    stage.narrator.say(
        "Holdfast sends emails, too. By default it only writes them to .eml files, so that you can try it safely. Here "
        "it uses a mail server of the demo, which fails on purpose."
    )
    outbox_id = _submitted(stage, INVOICE)
    stage.narrator.say(
        "202 is the same promise as before. The HTML is stored encrypted, and the job in the queue only refers to it."
    )
    email = _settled(stage, outbox_id)
    stage.narrator.say("The mail server got:")
    for file in stage.mail.taken(INVOICE.to):
        _show_file(stage, file)
    stage.narrator.say("Holdfast's answer about this email, and its log line. Personal data is masked in both:")
    stage.narrator.facts({name: email[name] for name in _SHOWN})
    log = stage.server.log()
    for line in [each for each in log.splitlines() if outbox_id in each][-1:]:
        stage.narrator.logged(line)
    stage.narrator.command(stage.cli(f"emails show {outbox_id}"))
    public = json.dumps(email, ensure_ascii=False) + log
    named = any(each in public for each in INVOICE.personal)
    return f"202, {email['status']}, {_received(stage, INVOICE)}, {'named in clear' if named else 'masked'}"


def _held_up(stage: Stage) -> str:
    api_key(stage)
    stage.narrator.say("The mail server goes down. It closes its connections, and answers new ones with 421: not now.")
    stage.mail.break_down()
    stage.narrator.event("The mail server is down.", alarming=True)
    try:
        outbox_id = _submitted(stage, PATIENT)
        waiting = _watched(stage, outbox_id, until=_ENDS | {"RETRYING"})
    finally:
        stage.mail.recover()
    stage.narrator.event("The mail server is up again.")
    stage.narrator.say(
        "No part of the email was sent, so a new attempt is safe. If the connection is lost while the mail server "
        "takes an email, Holdfast does not guess: a person decides, and nobody gets an email twice."
    )
    email = _settled(stage, outbox_id)
    stage.narrator.facts({"attempts": email["attempt"], "emails that the mail server got": _count(stage, PATIENT)})
    return f"202, {waiting['status']} after {waiting['lastErrorCode']}, {email['status']}, {_received(stage, PATIENT)}"


def _refused(stage: Stage) -> str:
    api_key(stage)
    stage.narrator.say(
        "Somebody mistyped an address. The mail server does not know the address, and answers 550. Another attempt "
        "could not help: the email becomes a dead letter at once."
    )
    stage.mail.refuse(MISTYPED.to)
    outbox_id = _submitted(stage, MISTYPED)
    email = _settled(stage, outbox_id)
    letter = letter_of(stage, outbox_id)
    stage.narrator.facts(
        {
            "dead letter": letter["id"],
            "reason": f"{letter['terminalReasonCode']}: {letter['terminalReasonMessage']}",
            "attempts": letter["attemptCount"],
        }
    )
    stage.narrator.say(f"{ACTOR.capitalize()} reviews the dead letter. A replay would not help, so she closes it.")
    must_decide(stage, letter["id"], "review", "the address is mistyped")
    must_decide(stage, letter["id"], "close", "the shop was told")
    closed = stage.clients.letter(letter["id"]).body["reviewStatus"]
    attempts = f"{stage.mail.asked(MISTYPED.to)} attempt"
    return f"202, {email['status']} after {attempts}, {letter['terminalReasonCode']}, dead letter {closed}"


def _expired(stage: Stage) -> str:
    api_key(stage)
    stage.narrator.say(
        f"An email that comes too late is worse than no email. Each email has a time to live: by default a day, here "
        f"{TTL_SECONDS} seconds. The operator pauses the queue for longer than that. Emails are still accepted."
    )
    stage.run("queue", "pause", QUEUE)
    try:
        outbox_id = _submitted(stage, LATE)
        email = _settled(stage, outbox_id)
    finally:
        stage.run("queue", "resume", QUEUE)
    stage.narrator.say("The queue runs again, but the email has expired. It is not sent, and the shop can see that.")
    offered = stage.mail.asked(LATE.to)
    return f"202, {email['status']}, {f'offered {offered} times' if offered else 'never sent'}"


EMAIL_CHAPTERS: Final[Sequence[Chapter]] = (
    Chapter("An email", "an email", "202, SENT, received once, masked", _sent),
    Chapter(
        "A mail server that is down",
        "a mail server that is down",
        "202, RETRYING after SMTP_421, SENT, received once",
        _held_up,
    ),
    Chapter(
        "An address that does not exist",
        "a refused email",
        "202, FAILED after 1 attempt, SMTP_550, dead letter closed",
        _refused,
    ),
    Chapter("An email that is too late", "an email too late", "202, EXPIRED, never sent", _expired),
)
"""The next chapters of every tour, if the libraries for emails are installed."""


# --- the tenant ---------------------------------------------------------------------------------------------------


def _submitted(stage: Stage, note: EmailNote) -> str:
    """Submit an email, as the tenant. Returns its outbox id. Raises if it is not accepted."""
    key = api_key(stage)
    stage.narrator.request(f"POST {SEND_PATH}  to {note.to}: {note.subject}")
    reply = stage.clients.send_email(note, key)
    stage.narrator.reply(reply, "errorCode" if "errorCode" in reply.body else "outboxId")
    if reply.status != HTTPStatus.ACCEPTED:
        message = f"not accepted: {reply}"
        raise Unexpected(message)
    return str(reply.body["outboxId"])


# --- results ------------------------------------------------------------------------------------------------------


def _settled(stage: Stage, outbox_id: str) -> Mapping[str, Any]:
    return _watched(stage, outbox_id, until=_ENDS)


def _watched(stage: Stage, outbox_id: str, *, until: Collection[str]) -> Mapping[str, Any]:
    return stage.watch(lambda: _email(stage, outbox_id), status_of_email, until=until)


def _email(stage: Stage, outbox_id: str) -> Mapping[str, Any]:
    reply: Reply = stage.clients.email(outbox_id, api_key(stage))
    if reply.status != HTTPStatus.OK:
        message = f"cannot read the email: {reply}"
        raise Unexpected(message)
    return reply.body


def _show_file(stage: Stage, file: Path) -> None:
    message = message_from_bytes(file.read_bytes(), policy=policy.default)
    text = message.get_body(("plain",))
    facts = {"file": file, **{name: message[name] for name in _HEADERS}}
    if text is not None:
        facts["text"] = text.get_content().strip()
    stage.narrator.facts(facts)


def _count(stage: Stage, note: EmailNote) -> int:
    return len(stage.mail.taken(note.to))


def _received(stage: Stage, note: EmailNote) -> str:
    times = _count(stage, note)
    return "received once" if times == 1 else f"received {times} times"
