"""The message is, byte for byte, what the email package of the standard library writes."""

from __future__ import annotations

import re
from binascii import b2a_qp
from datetime import UTC, datetime
from email.header import Header
from email.message import EmailMessage
from email.policy import EmailPolicy
from email.utils import format_datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.features.email import mime
from holdfast.features.email.contract import EmailSendJob
from holdfast.features.email.mime import Sender, build_message
from holdfast.features.email.plain_text import text_of

JOB = EmailSendJob.model_json_schema()["examples"][0]
DATE = datetime(2026, 11, 16, 12, tzinfo=UTC)
SENDERS = [
    Sender("loja@example.com"),
    Sender("loja@example.com", "Loja do João, Ltda."),
    Sender("loja@example.com", 'Loja "Central" \\'),
]

lines = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]), max_size=120)
names = st.from_regex(r"(?i)x-[a-z0-9-]{1,60}", fullmatch=True)


class GenericPolicy(EmailPolicy):
    """Headers as they are given: the email package writes the rest."""

    def header_store_parse(self, name, value):
        if not re.fullmatch(r"[!-9;-~]+", name) or not re.fullmatch(mime.LINE_PATTERN, value):
            raise ValueError(name)
        return name, value

    def fold_binary(self, name, value):
        plain = value.isascii() and "=?" not in value
        if not plain and name.lower() not in mime._STRUCTURED:
            value = Header(value, "utf-8", maxlinelen=70).encode(linesep="")
        folded, line = [], ""
        for word in re.findall(r"^\S+|\s+\S+", f"{name}: {value}"):
            if line and len(line) + len(word) > 78:
                folded.append(line)
                line = ""
            line += word
        return "".join(f"{each}\r\n" for each in (*folded, line)).encode("ascii")


POLICY = GenericPolicy(linesep="\r\n", cte_type="7bit", max_line_length=78)


def generic(job: EmailSendJob, html: str, sender: Sender) -> bytes:
    """The message, by the email package."""
    html = html.replace("\r\n", "\n").replace("\r", "\n")
    text = text_of(html)
    message = EmailMessage(policy=POLICY)
    message["Message-ID"] = f"<{job.outboxId.lower()}@mail.example.com>"
    message["Date"] = format_datetime(DATE)
    message["From"] = mime._mailbox(sender)
    message["To"] = job.to
    if job.cc:
        message["Cc"] = ", ".join(job.cc)
    if job.replyTo is not None:
        message["Reply-To"] = job.replyTo
    message["Subject"] = job.subject
    for name, value in (job.headers or {}).items():
        message[name] = value
    message["MIME-Version"] = "1.0"
    message["Content-Type"] = f'multipart/alternative; boundary="{mime._boundary(job.outboxId, text, html)}"'
    for subtype, content in (("plain", text), ("html", html)):
        part = EmailMessage(policy=POLICY)
        part["Content-Type"] = f'text/{subtype}; charset="utf-8"'
        part["Content-Transfer-Encoding"] = "quoted-printable"
        part.set_payload(b2a_qp(content.encode(), istext=True).decode("ascii"))
        message.attach(part)
    return message.as_bytes()


def built(job: EmailSendJob, html: str, sender: Sender) -> bytes:
    return build_message(job, html, sender=sender, domain="mail.example.com", date=DATE).raw


@given(
    html=st.text(alphabet=st.characters(codec="utf-8"), max_size=400),
    subject=lines.filter(str.strip),
    headers=st.dictionaries(names, lines.filter(str.strip), max_size=4),
    cc=st.lists(st.from_regex(r"[a-z]{1,50}@example\.com", fullmatch=True), max_size=4),
    sender=st.sampled_from(SENDERS),
)
@example(html="", subject="x", headers={}, cc=[], sender=SENDERS[0])
@example(html="a\rb\r\nc\n.\n..\nFrom x \n\n", subject="ç " * 70, headers={}, cc=[], sender=SENDERS[1])
@example(html="ç" * 500, subject="a" * 150, headers={"X-A": "b " * 40}, cc=["a@example.com"] * 5, sender=SENDERS[2])
@example(html="<p>x</p>", subject=" a  b ", headers={"x-a": " c ", "X-A": "d"}, cc=[], sender=SENDERS[0])
@example(html="<p>x</p>", subject="=?utf-8?q?x?=", headers={}, cc=[], sender=SENDERS[0])
def test_the_bytes_are_those_of_the_email_package(html, subject, headers, cc, sender):
    job = EmailSendJob.model_construct(
        **EmailSendJob.model_validate(JOB).__dict__ | {"subject": subject, "headers": headers or None, "cc": cc or None}
    )

    assert built(job, html, sender) == generic(job, html, sender)


@pytest.mark.parametrize(
    "name",
    [
        *("To", "cc", "FROM", "Subject", "Date", "Reply-To", "Message-Id"),
        *("MIME-Version", "content-type", "Content-Transfer-Encoding", "Bcc", "Sender"),
    ],
)
def test_a_header_that_a_message_has_once_is_refused_as_the_email_package_refuses_it(name):
    fields = {"headers": {name: "a@example.com"}, "cc": ["b@example.com"], "replyTo": "c@example.com"}
    job = EmailSendJob.model_construct(**EmailSendJob.model_validate(JOB).__dict__ | fields)

    def refused(build) -> bool:
        try:
            build(job, "<p>x</p>", SENDERS[0])
        except ValueError:
            return True
        return False

    assert refused(built) == refused(generic)
