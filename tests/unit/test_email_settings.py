from __future__ import annotations

import base64
import json
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.config import SettingsError
from holdfast.contracts.errors import ConfigurationError
from holdfast.contracts.tenants import is_sender
from holdfast.feature import Services
from holdfast.features.email import keys as email_keys
from holdfast.features.email.keys import KEYS_FILE, KeysUnreadable, email_secrets
from holdfast.features.email.vault import Vault
from holdfast.installed import installed_features
from holdfast.wiring import system_ambient
from holdfast.wiring.features import build, workloads_of
from tests.support.settings import Settings, load

PEPPER = "kT3vXq9_Zr4LmW8s-Pd1YbNcUf6HgJ2w"
FIRST = base64.b64encode(bytes(range(32))).decode()
SECOND = base64.b64encode(bytes(range(100, 132))).decode()
KEYS = json.dumps({"2025": FIRST, "2026": SECOND})
TOPIC = "arn:aws:sns:sa-east-1:123456789012:bounces"
CLUSTER = {"REDIS_URL": "redis://localhost", "MONGO_URI": "mongodb://localhost/?replicaSet=rs"}


def problems_of(environ, folder):
    with pytest.raises(SettingsError) as caught:
        load(environ, folder)
    return caught.value.problems


# --- what is accepted -------------------------------------------------------------------------------------------------


def test_lists_are_written_with_commas_in_the_environment(tmp_path):
    settings = load({"EMAIL_BACKOFF_SECONDS": "1, 2,3", "EMAIL_SNS_TOPICS": f"{TOPIC},{TOPIC}2"}, tmp_path)
    assert settings.email_backoff_seconds == (1, 2, 3)
    assert settings.email_sns_topics == (TOPIC, f"{TOPIC}2")


def test_lists_and_keys_are_lists_and_a_table_in_the_file(tmp_path):
    (tmp_path / "holdfast.toml").write_text(
        f'email_backoff_seconds = [1, 2]\nemail_sns_topics = ["{TOPIC}"]\nemail_pepper = "{PEPPER}"\n'
        f'[email_keys]\n2025 = "{FIRST}"\n2026 = "{SECOND}"\n'
    )
    settings = load({}, tmp_path)
    assert (settings.email_backoff_seconds, settings.email_sns_topics) == ((1, 2), (TOPIC,))
    assert list(email_secrets(settings).keys) == ["2025", "2026"]


@pytest.mark.parametrize("name", ["email:send", "email-send", "emails", "a.b_c:D-1", "x" * 64])
def test_the_queue_may_have_another_name(name, tmp_path):
    assert load({"EMAIL_QUEUE": name}, tmp_path).email_queue == name


@pytest.mark.parametrize("name", [":", "email:", ":send", "email::send", "email send", "{email}", "ação", "x" * 65])
def test_a_name_that_no_queue_can_have_is_refused(name, tmp_path):
    (problem,) = problems_of({"EMAIL_QUEUE": name}, tmp_path)
    assert "EMAIL_QUEUE must be a name of 1 to 64 letters" in problem


def test_the_queue_of_another_workload_is_not_for_emails(tmp_path):
    settings = load({"EMAIL_QUEUE": "courier-events-main", "HOLDFAST_DATA": str(tmp_path)}, tmp_path)
    with pytest.raises(ConfigurationError, match="courier-events-main is used twice"):
        workloads_of(build(installed_features(), settings, Services(settings, system_ambient())), None)


@pytest.mark.parametrize(
    "sender",
    ["mail@example.com", "Acme <mail@example.com>", '"Acme, Inc" <mail@example.com>'.replace(",", ""), "Ação <a@b.co>"],
)
def test_a_sender_is_one_address_with_or_without_a_name(sender):
    assert is_sender(sender)


@pytest.mark.parametrize(
    "sender", ["", "Acme", "a@", "@b", "a@b@c", "a@b.com, c@d.com", "Acme <a@b.com> x", "a\n@b.com", "Acme <a b@c.com>"]
)
def test_anything_else_is_no_sender(sender):
    assert not is_sender(sender)


def test_the_domain_of_message_ids_is_that_of_the_sender_unless_told(tmp_path):
    assert load({"EMAIL_FROM": "Acme <mail@Acme.example>"}, tmp_path).message_domain == "acme.example"


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "start"),
    [
        ({"EMAIL_TRANSPORT": "pigeon"}, "EMAIL_TRANSPORT must be one of folder, smtp, ses"),
        ({"EMAIL_TRANSPORT": "smtp"}, "EMAIL_TRANSPORT=smtp needs SMTP_HOST"),
        ({"EMAIL_TRANSPORT": "ses"}, "EMAIL_TRANSPORT=ses needs SES_REGION"),
        ({"EMAIL_CONTENT": "s3"}, "EMAIL_CONTENT=s3 needs EMAIL_CONTENT_BUCKET"),
        ({"EMAIL_CONTENT": "tape"}, "EMAIL_CONTENT must be one of database, folder, s3"),
        ({"EMAIL_FROM": "nobody"}, "EMAIL_FROM must be one address"),
        ({"SMTP_HOST": "mail.example.com:587"}, "SMTP_HOST must be the name"),
        ({"SMTP_SECURITY": "ssl"}, "SMTP_SECURITY must be one of none, starttls, tls"),
        ({"SMTP_USERNAME": "u"}, "SMTP_USERNAME and SMTP_PASSWORD belong together"),
        ({"SMTP_PASSWORD": "p"}, "SMTP_USERNAME and SMTP_PASSWORD belong together"),
        (
            {"SMTP_USERNAME": "u", "SMTP_PASSWORD": "p", "SMTP_SECURITY": "none", "SMTP_HOST": "mail.example.com"},
            "SMTP_SECURITY=none would send SMTP_PASSWORD in clear",
        ),
        ({"SES_ENDPOINT_URL": "http://user:pw@localhost"}, "SES_ENDPOINT_URL must be an http"),
        ({"SES_REGION": "two words"}, "SES_REGION must be one word"),
        ({"EMAIL_BACKOFF_SECONDS": "1,x"}, "EMAIL_BACKOFF_SECONDS"),
        ({"EMAIL_BACKOFF_SECONDS": "1,2,3,4,5,6"}, "EMAIL_BACKOFF_SECONDS must be 1 to 5 whole numbers"),
        ({"EMAIL_BACKOFF_SECONDS": ","}, "EMAIL_BACKOFF_SECONDS must be 1 to 5 whole numbers"),
        ({"EMAIL_SNS_TOPICS": "bounces"}, "EMAIL_SNS_TOPICS must be ARNs"),
        ({"EMAIL_UNKNOWN_OUTCOME": "shrug"}, "EMAIL_UNKNOWN_OUTCOME must be one of dead_letter, resend"),
        ({"EMAIL_PEPPER": PEPPER}, "EMAIL_PEPPER and EMAIL_KEYS belong together"),
        ({"EMAIL_KEYS": KEYS}, "EMAIL_PEPPER and EMAIL_KEYS belong together"),
        ({"EMAIL_PEPPER": "short", "EMAIL_KEYS": KEYS}, "EMAIL_PEPPER must be at least 32 random characters"),
        ({"EMAIL_PEPPER": "ab" * 32, "EMAIL_KEYS": KEYS}, "EMAIL_PEPPER must be at least 32 random characters"),
    ],
)
def test_what_does_not_fit_is_told_by_name(environ, start, tmp_path):
    (sentence,) = problems_of(environ, tmp_path)
    assert sentence.startswith(start)


@pytest.mark.parametrize(
    "keys",
    [
        "canary",
        "[]",
        "{}",
        '{"a": "canary"}',
        json.dumps({"a": base64.b64encode(b"canary" * 5).decode()}),
        json.dumps({"a": base64.b64encode(b"x" * 32).decode()}),
        json.dumps({"a.b": FIRST}),
        f'{{"a": "{FIRST}", "a": "{SECOND}"}}',
        json.dumps({"a": 7}),
    ],
)
def test_keys_that_could_not_seal_are_refused_without_a_word_of_them(keys, tmp_path):
    (sentence,) = problems_of({"EMAIL_PEPPER": PEPPER, "EMAIL_KEYS": keys}, tmp_path)
    assert sentence.startswith("EMAIL_KEYS must be JSON such as")
    assert "canary" not in sentence
    assert FIRST not in sentence


def test_a_password_may_go_to_this_very_machine_without_tls(tmp_path):
    load({"SMTP_USERNAME": "u", "SMTP_PASSWORD": "p", "SMTP_SECURITY": "none", "SMTP_HOST": "127.0.0.1"}, tmp_path)


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_no_secret_is_shown(tmp_path):
    environ = {
        "EMAIL_PEPPER": PEPPER,
        "EMAIL_KEYS": KEYS,
        "SMTP_USERNAME": "canary-user",
        "SMTP_PASSWORD": "canary-password",
        "SES_ENDPOINT_URL": "http://localhost:5000/?token=canary-token",
    }
    settings = load(environ, tmp_path)
    shown = str(settings.describe()) + repr(settings) + str(settings)
    for secret in (PEPPER, FIRST, SECOND, "canary-password", "canary-token"):
        assert secret not in shown


def test_the_listing_says_where_the_keys_are_and_when_there_are_no_emails(tmp_path):
    def shown(environ):
        return {row.name: row.shown for row in load(environ, tmp_path).describe()}["EMAIL_KEYS"]

    assert shown({}) == "(made once, kept in the data folder)"
    assert shown(CLUSTER) == "(not set: no emails here)"
    assert shown({"EMAIL_PEPPER": PEPPER, "EMAIL_KEYS": KEYS}) == "********"


def test_a_pepper_that_everybody_knows_guards_nothing():
    weak = "changeme-please-0123456789-abcdefghij"
    settings = Settings(operator_token=PEPPER, email_pepper=weak, email_keys=KEYS)
    (sentence,) = settings.secret_problems()
    assert sentence.startswith("EMAIL_PEPPER is a well-known example value")


# --- the keys ---------------------------------------------------------------------------------------------------------


def test_keys_that_are_set_are_used_and_the_last_one_seals(tmp_path):
    secrets = email_secrets(load({"EMAIL_PEPPER": PEPPER, "EMAIL_KEYS": KEYS, **CLUSTER}, tmp_path))
    assert (secrets.pepper, secrets.current) == (PEPPER.encode(), "2026")
    vault = Vault(secrets.pepper, secrets.keys, secrets.current)
    assert vault.seal("x", context="c").startswith("v1.2026.")
    assert PEPPER not in repr(secrets)


def test_a_cluster_without_keys_has_none_and_makes_none(tmp_path):
    settings = load({**CLUSTER, "HOLDFAST_DATA": str(tmp_path / "data")}, tmp_path)
    assert email_secrets(settings) is None
    assert not (tmp_path / "data").exists()


def test_keys_are_made_once_for_the_owner_s_eyes_alone(tmp_path):
    settings = Settings(holdfast_data=tmp_path / "new" / "data")
    assert email_secrets(settings, create=False) is None
    first = email_secrets(settings)
    assert email_secrets(settings) == email_secrets(settings, create=False) == first
    path = settings.holdfast_data / KEYS_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in settings.holdfast_data.iterdir()] == [KEYS_FILE]
    Vault(first.pepper, first.keys, first.current)
    assert email_secrets(Settings(holdfast_data=tmp_path / "other")) != first


def test_all_who_start_at_once_agree_on_the_keys(tmp_path):
    code = (
        "import sys; from pathlib import Path; from tests.support.settings import Settings; "
        "from holdfast.features.email.keys import email_secrets; "
        "sys.stdin.readline(); print(email_secrets(Settings(holdfast_data=Path(sys.argv[1]))).pepper.hex())"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "data")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda process: process.communicate("go\n")[0], processes))
    assert len(set(found)) == 1
    assert found[0].strip()


def test_who_comes_second_takes_the_keys_of_the_first(tmp_path):
    """Both saw no file; the slower one must not put its own in the place of the other's."""
    first = email_secrets(Settings(holdfast_data=tmp_path))
    email_keys._make(tmp_path / KEYS_FILE)
    assert email_secrets(Settings(holdfast_data=tmp_path)) == first
    assert [each.name for each in tmp_path.iterdir()] == [KEYS_FILE]


def test_keys_that_move_from_the_file_into_the_settings_stay_the_same(tmp_path):
    made = email_secrets(Settings(holdfast_data=tmp_path))
    content = json.loads((tmp_path / KEYS_FILE).read_text())
    moved = Settings(email_pepper=content["pepper"], email_keys=content["keys"])
    assert email_secrets(moved) == made


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"pepper": "canary"}', json.dumps({"pepper": FIRST, "keys": {"a": "canary"}})]
)
def test_a_damaged_file_is_never_replaced(content, tmp_path):
    path = tmp_path / KEYS_FILE
    path.write_text(content)
    with pytest.raises(KeysUnreadable) as caught:
        email_secrets(Settings(holdfast_data=tmp_path))
    assert path.read_text() == content
    assert "canary" not in str(caught.value)
    assert caught.value.filename == str(path)
