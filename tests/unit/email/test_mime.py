"""The message: a mail program reads exactly the content of the job."""

from __future__ import annotations

import email
import email.policy
from datetime import UTC, datetime
from email.header import decode_header, make_header

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.features.email import mime
from holdfast.features.email.contract import EmailSendJob
from holdfast.features.email.mime import Sender, build_message

JOB = EmailSendJob.model_json_schema()["examples"][0]
DATE = datetime(2026, 11, 16, 12, tzinfo=UTC)
SENDER = Sender("loja@example.com", "Loja do João, Ltda.")


def job(**changes: object) -> EmailSendJob:
    return EmailSendJob.model_validate(JOB | changes)


def built(
    *, html: str = "<p>Olá, <b>mundo</b></p>", sender: Sender = SENDER, of: EmailSendJob | None = None, **changes
):
    return build_message(of or job(**changes), html, sender=sender, domain="mail.example.com", date=DATE)


def parsed(raw: bytes):
    return email.message_from_bytes(raw, policy=email.policy.default)


def raw_headers(raw: bytes) -> list[tuple[str, str]]:
    """Each header as on the wire, unfolded."""
    block = raw.partition(b"\r\n\r\n")[0].decode("ascii").replace("\r\n ", " ")
    parts = [line.partition(":") for line in block.split("\r\n")]
    return [(name, value.removeprefix(" ")) for name, _, value in parts]


def decoded(raw: bytes, name: str) -> str:
    return str(make_header(decode_header(dict(raw_headers(raw))[name])))


def body(message, subtype: str) -> str:
    return message.get_body(preferencelist=(subtype,)).get_content().replace("\r\n", "\n")


# --- what a message says ----------------------------------------------------------------------------------------


def test_a_message_reads_as_the_job_was_written():
    message = parsed(
        built(
            cc=["a@example.com", "b@example.com"],
            bcc=["secret@example.com"],
            replyTo="reply@example.com",
            headers={"X-Campaign": "boletos", "List-Unsubscribe": "<https://example.com/u>"},
            tags=["boleto"],
        ).raw
    )

    assert message["From"] == '"Loja do João, Ltda." <loja@example.com>'
    assert message["To"] == "cliente@example.com"
    assert message["Cc"] == "a@example.com, b@example.com"
    assert message["Reply-To"] == "reply@example.com"
    assert message["Subject"] == "Seu boleto está disponível"
    assert message["Message-ID"] == f"<{JOB['outboxId']}@mail.example.com>"
    assert message["Date"].datetime == DATE
    assert message["X-Campaign"] == "boletos"
    assert message["List-Unsubscribe"] == "<https://example.com/u>"
    assert message.get_content_type() == "multipart/alternative"
    assert [part.get_content_type() for part in message.iter_parts()] == ["text/plain", "text/html"]
    assert body(message, "plain") == "Olá, mundo\n"
    assert body(message, "html").rstrip("\n") == "<p>Olá, <b>mundo</b></p>"
    assert not message.defects


def test_blind_copies_and_tags_and_names_of_people_are_not_in_the_message():
    message = built(bcc=["secret@example.com"], tags=["hidden-tag"])

    for hidden in (b"secret@example.com", b"hidden-tag", b"Bcc", b"Silva", b"Jo=C3=A3o_da"):
        assert hidden not in message.raw
    assert "secret@example.com" in message.recipients


def test_the_envelope_has_everybody_once_and_the_bounce_address():
    message = built(
        sender=Sender("loja@example.com", bounces="bounces@Example.com"),
        cc=["a@example.com", "cliente@example.com"],
        bcc=["b@example.com", "a@example.com"],
    )

    assert message.recipients == ("cliente@example.com", "a@example.com", "b@example.com")
    assert message.envelope_from == "bounces@example.com"
    assert built().envelope_from == "loja@example.com"
    assert message.message_id == f"<{JOB['outboxId']}@mail.example.com>"


def test_the_same_job_gives_the_same_bytes():
    assert built().raw == built().raw
    assert built(outboxId="223e4567-e89b-12d3-a456-426614174000").raw != built().raw


def test_the_repr_of_a_built_message_shows_no_content():
    assert "cliente" not in repr(built())


# --- on the wire ------------------------------------------------------------------------------------------------


def assert_fit_for_smtp(raw: bytes) -> None:
    assert raw.isascii()
    assert b"\0" not in raw
    assert b"\n" not in raw.replace(b"\r\n", b"")
    assert b"\r" not in raw.replace(b"\r\n", b"")
    assert all(len(line) <= 998 for line in raw.split(b"\r\n"))


# Only line breaks may differ in a message.
htmls = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r"), max_size=300)
subjects = st.text(
    alphabet=st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=150
)


@given(htmls)
@example("x" * 5000)
@example("linha\n" * 100)
@example("espaço \n no fim \n.\n..\nFrom x\n\n")
@example("=\t=20 =\n")
@example("ç" * 3000)
def test_any_html_arrives_unchanged(html):
    raw = built(html=html).raw
    assert_fit_for_smtp(raw)

    [plain, rich] = parsed(raw).iter_parts()
    assert plain.get_content_type() == "text/plain"
    assert rich.get_payload(decode=True).decode().replace("\r\n", "\n") == html


def test_line_ends_of_any_system_arrive_as_line_ends():
    raw = built(html="<p>a</p>\r\n<p>b</p>\r<p>c</p>\n").raw
    assert_fit_for_smtp(raw)

    assert body(parsed(raw), "html") == "<p>a</p>\n<p>b</p>\n<p>c</p>\n"
    assert b"=0D" not in raw


@given(subjects)
@example(" ")
@example("a" * 150)
@example("ç" * 150)
@example("🦑" * 150)
@example("=?utf-8?q?=0D=0ABcc:_x@example.com?=")
@example("=?utf-8?b?DQpCY2M6IHhAZXhhbXBsZS5jb20=?= ")
@example("  espaços   no   meio  ")
@example("a " * 75)
def test_any_subject_arrives_and_makes_no_other_header(subject):
    unchecked = job().model_copy(update={"subject": subject})
    raw = built(of=unchecked).raw
    assert_fit_for_smtp(raw)

    assert [name for name, _ in raw_headers(raw)] == [name for name, _ in raw_headers(built().raw)]
    assert decoded(raw, "Subject").strip() == subject.strip()


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=80))
@example('Silva, "João" <other@example.com>, ' * 4)
@example('Silva, "Ana" <other@example.com>, ' * 4)
@example("\\")
@example("=?utf-8?q?=2C_x@example.com?=")
def test_any_name_of_the_sender_leaves_one_sender(name):
    raw = built(sender=Sender("loja@example.com", name)).raw
    assert_fit_for_smtp(raw)

    found = parsed(raw)["From"].addresses
    assert [each.addr_spec for each in found] == ["loja@example.com"]


def test_encoded_words_are_as_short_as_the_standard_requires():
    raw = built(
        subject="ç" * 150, headers={"X-Long": "ação " * 150 + "."}, sender=Sender("a@example.com", "ã" * 90)
    ).raw

    words = [word for _, value in raw_headers(raw) for word in value.split(" ") if word.startswith("=?")]
    assert len(words) > 20
    assert all(len(word) <= 75 for word in words)
    assert decoded(raw, "X-Long") == "ação " * 150 + "."


def test_a_long_header_in_ascii_is_folded_and_not_encoded():
    url = f"<https://example.com/u?{'x' * 300}>"
    references = " ".join(f"<{number}.{'r' * 40}@mail.example.com>" for number in range(12))
    raw = built(headers={"List-Unsubscribe": url, "References": references}).raw
    assert_fit_for_smtp(raw)

    assert dict(raw_headers(raw))["List-Unsubscribe"] == url
    assert dict(raw_headers(raw))["References"] == references
    assert all(len(line) <= 78 for line in raw.partition(b"\r\n\r\n")[0].split(b"\r\n") if b"https" not in line)


def test_no_text_contains_the_boundary():
    first = mime._boundary(JOB["outboxId"])
    html = f"<p>--{first}--</p>\n--{first}\nContent-Type: text/html\n\nevil"
    message = parsed(built(html=html).raw)

    assert message.get_boundary() != first
    assert len(list(message.iter_parts())) == 2
    assert parsed(built().raw).get_boundary() == first


# --- no header can be smuggled in -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"subject": "a\r\nBcc: x@example.com"},
        {"subject": "a\nBcc: x@example.com"},
        {"subject": "a\u2028b"},
        {"subject": "a\x00"},
        {"to": "a@example.com\r\nBcc: x@example.com"},
        {"cc": ("a@example.com\nBcc: x@example.com",)},
        {"replyTo": "a@example.com\nBcc: x@example.com"},
        {"headers": {"X-A": "a\r\nBcc: x@example.com"}},
        {"headers": {"X-A\r\nBcc: x@example.com\r\nX-B": "a"}},
        {"headers": {"X-A: x\r\nBcc": "x@example.com"}},
        {"headers": {"X A": "a"}},
        {"headers": {"": "a"}},
        {"headers": {"X-\x00": "a"}},
    ],
)
def test_even_an_unchecked_job_cannot_inject_a_header(changes):
    unchecked = job().model_copy(update=changes)

    with pytest.raises(ValueError, match="one line") as refusal:
        built(of=unchecked)

    assert "x@example.com" not in str(refusal.value)


@pytest.mark.parametrize("name", ["a\nb", "a\r\nBcc: x@example.com", "a\x00"])
def test_a_sender_has_a_name_of_one_line(name):
    with pytest.raises(ValueError, match="name"):
        Sender("loja@example.com", name)


@pytest.mark.parametrize("address", ["", "nobody", "a@example.com\nBcc: b@example.com"])
def test_a_sender_has_an_address(address):
    with pytest.raises(ValueError, match="must be"):
        Sender(address)
    if address:
        with pytest.raises(ValueError, match="must be"):
            Sender("a@example.com", bounces=address)


@pytest.mark.parametrize(
    ("text", "address", "name"),
    [
        ("loja@example.com", "loja@example.com", ""),
        (" loja@example.com ", "loja@example.com", ""),
        ("Loja do João <loja@example.com>", "loja@example.com", "Loja do João"),
        ('"Loja, Ltda." <loja@example.com>', "loja@example.com", "Loja, Ltda."),
        ("<loja@example.com>", "loja@example.com", ""),
    ],
)
def test_a_sender_is_read_from_text(text, address, name):
    assert Sender.parse(text) == Sender(address, name)


@pytest.mark.parametrize(
    "text", ["", "nobody", "a <b", "a <b> c", "a@example.com, b@example.com", "x <a@b.com> <c@d.com>"]
)
def test_a_text_without_a_sender_is_refused(text):
    with pytest.raises(ValueError, match="must be"):
        Sender.parse(text)


@pytest.mark.parametrize("domain", ["", "UPPER.example", "a b", "a>\r\nBcc: x", ".example.com", "ç.com"])
def test_the_domain_of_the_message_id_is_a_host_name(domain):
    with pytest.raises(ValueError, match="host name"):
        build_message(job(), "<p>x</p>", sender=SENDER, domain=domain, date=DATE)
