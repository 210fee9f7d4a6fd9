from __future__ import annotations

import inspect
import json
import re
import secrets
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from holdfast import config, duration_ms
from holdfast.brokers.bullmq import BullmqBroker
from holdfast.config import FeatureSettings, SettingsError, app_setting, fresh_config_text
from holdfast.config.loading import CONSTANT_NOW
from holdfast.engine.intake import Intake
from holdfast.features.courier.feature import workload_of
from holdfast.features.courier.signatures import TOLERANCE, CourierSecret
from holdfast.features.documents.child.gemini_model import GeminiModel
from holdfast.features.documents.fetching import FetchOptions
from holdfast.features.documents.options import DocumentOptions
from holdfast.features.email.feature import EmailService
from holdfast.features.email.transports.port import ANSWER_TIMEOUT
from holdfast.installed import installed_features
from holdfast.webhooks.addresses import AddressPolicy
from tests.support.settings import Settings, load

CANARY = "canary-9f3kQ7zLw2Xv8TbR"


def problems_of(environ, folder):
    with pytest.raises(SettingsError) as caught:
        load(environ, folder)
    return caught.value.problems


def write(folder, text):
    (folder / "holdfast.toml").write_text(text, encoding="utf-8")


def plain(secrets_of_a_source):
    return [each.secret.get_secret_value() for each in secrets_of_a_source]


# --- where values come from -----------------------------------------------------------------------------------


def test_the_defaults_are_the_documented_ones(tmp_path):
    shown = {row.name: row.shown for row in load({}, tmp_path).describe()}
    assert shown == {
        "HOLDFAST_DATA": "holdfast-data",
        "HOLDFAST_APP": "(not set)",
        "HOLDFAST_DEMO": "false",
        "LOG_LEVEL": "info",
        "LOG_FORMAT": "auto",
        "API_HOST": "127.0.0.1",
        "API_PORT": "8080",
        "OPERATOR_TOKEN": "(not set)",
        "API_DOCS": "true",
        "MAX_BODY_BYTES": "262144",
        "API_HEADER_TIMEOUT_MS": "10000",
        "API_IDLE_TIMEOUT_MS": "5000",
        "API_STALL_TIMEOUT_MS": "10000",
        "API_LEAST_RATE": "8192",
        "API_MAX_CONNECTIONS": "(not set)",
        "API_MAX_CONNECTIONS_PER_ADDRESS": "(not set)",
        "TENANT_REQUESTS_PER_SECOND": "2000",
        "TENANT_WAITING_JOBS": "100000",
        "TENANT_STREAMS": "20",
        "AUTH_FAILURES_PER_MINUTE": "60",
        "COURIER_SECRETS": "(not set)",
        "COURIER_REQUESTS_PER_SECOND": "5000",
        "COURIER_DOWNSTREAM_URL": "(not set)",
        "COURIER_DOWNSTREAM_SECRET": "(not set)",
        "COURIER_DOWNSTREAM_TIMEOUT_MS": "5000",
        "COURIER_SHIPMENT_OWNER": "any",
        "WORKER_CONCURRENCY": "100",
        "WORKER_LEASE_SECONDS": "30",
        "WORKER_DRAIN_TIMEOUT_MS": "10000",
        "RETRY_MAX_ATTEMPTS": "5",
        "RETRY_BACKOFF_BASE_MS": "1000",
        "RETRY_BACKOFF_MULTIPLIER": "2.0",
        "RETRY_JITTER_PERCENT": "20.0",
        "DLQ_TTL_DAYS": "90",
        "PROCESSED_EVENTS_TTL_DAYS": "30",
        "UPKEEP_INTERVAL_MS": "1000",
        "PUBLISH_GRACE_MS": "5000",
        "REDIS_URL": "(not set)",
        "MONGO_URI": "(not set)",
        "MONGO_DB_NAME": "holdfast",
        "QUEUE_PREFIX": "bull",
        "EMAIL_TRANSPORT": "folder",
        "EMAIL_FOLDER": "(not set)",
        "EMAIL_FROM": "Holdfast <holdfast@localhost.localdomain>",
        "SMTP_HOST": "(not set)",
        "SMTP_PORT": "587",
        "SMTP_SECURITY": "starttls",
        "SMTP_USERNAME": "(not set)",
        "SMTP_PASSWORD": "(not set)",
        "SMTP_CA_FILE": "(not set)",
        "SES_REGION": "(not set)",
        "SES_ENDPOINT_URL": "(not set)",
        "SES_CONFIGURATION_SET": "(not set)",
        "EMAIL_CONTENT": "database",
        "EMAIL_CONTENT_FOLDER": "(not set)",
        "EMAIL_CONTENT_BUCKET": "(not set)",
        "EMAIL_CONTENT_PREFIX": "email/",
        "EMAIL_MAX_HTML_BYTES": "524288",
        "EMAIL_QUEUE": "email:send",
        "EMAIL_RATE_MAX": "100",
        "EMAIL_RATE_DURATION_MS": "1000",
        "EMAIL_CONCURRENCY": "10",
        "EMAIL_BACKOFF_SECONDS": "1, 5, 30, 120, 600",
        "EMAIL_TTL_MS": "86400000",
        "EMAIL_DLQ_TTL_MS": "604800000",
        "EMAIL_RETENTION_DAYS": "30",
        "EMAIL_UNKNOWN_OUTCOME": "dead_letter",
        "EMAIL_PEPPER": "(made once, kept in the data folder)",
        "EMAIL_KEYS": "(made once, kept in the data folder)",
        "EMAIL_SNS_TOPICS": "(not set)",
        "DOCUMENT_ENGINE": "local",
        "DOCUMENT_LANGUAGE": "(not set)",
        "DOCUMENT_CONCURRENCY": "1",
        "DOCUMENT_THREADS": "2",
        "DOCUMENT_MEMORY_MB": "2048",
        "DOCUMENT_TIMEOUT_SECONDS": "7200",
        "WHISPER_MODEL_DIR": "(not set)",
        "GEMINI_API_KEY": "(not set)",
        "GEMINI_BASE_URL": "(not set)",
        "GEMINI_MODEL": "gemini-2.5-flash",
        "DOCUMENT_MAX_BYTES": "536870912",
        "DOCUMENT_MAX_PAGES": "2000",
        "DOCUMENT_MAX_MEDIA_SECONDS": "21600",
        "DOCUMENT_MAX_PAGE_OUTPUT_BYTES": "2097152",
        "DOCUMENT_MAX_OUTPUT_BYTES": "67108864",
        "DOCUMENT_TENANT_BYTES": "10737418240",
        "DOCUMENT_ROOTS": "(not set)",
        "DOCUMENT_LOCAL_PATH_OVER_HTTP": "false",
        "DOCUMENT_LISTS": "false",
        "DOCUMENT_ALLOWED_ADDRESSES": "(not set)",
        "DOCUMENT_STORAGE": "folder",
        "DOCUMENT_FOLDER": "(not set)",
        "DOCUMENT_BUCKET": "(not set)",
        "DOCUMENT_PREFIX": "documents/",
        "DOCUMENT_S3_REGION": "(not set)",
        "DOCUMENT_S3_ENDPOINT_URL": "(not set)",
        "DOCUMENT_TTL_DAYS": "30",
        "DOCUMENT_DLQ_TTL_DAYS": "90",
        "DOCUMENT_MAX_ATTEMPTS": "(not set)",
        "DOCUMENT_RETRY_BASE_MS": "5000",
        "DOCUMENT_CALLBACK_SECRET": "(not set)",
    }


def test_the_environment_wins_over_the_file_and_the_file_over_the_default(tmp_path):
    write(tmp_path, "api_port = 9000\nworker_concurrency = 7\n")
    settings = load({"API_PORT": "9001"}, tmp_path)
    assert (settings.api_port, settings.origin("api_port")) == (9001, "environment")
    assert (settings.worker_concurrency, settings.origin("worker_concurrency")) == (7, "holdfast.toml")
    assert (settings.retry_max_attempts, settings.origin("retry_max_attempts")) == (5, "default")
    origins = {row.name: row.origin for row in settings.describe()}
    assert origins.pop("API_PORT") == "environment"
    assert origins.pop("WORKER_CONCURRENCY") == "holdfast.toml"
    assert set(origins.values()) == {"default"}


def test_a_value_equal_to_the_default_still_keeps_its_origin(tmp_path):
    assert load({"API_PORT": "8080"}, tmp_path).origin("api_port") == "environment"


def test_settings_made_in_code_say_so():
    settings = Settings(api_port=9000)
    assert settings.origin("api_port") == "code"
    assert settings.origin("api_host") == "default"


def test_a_variable_set_to_nothing_counts_as_not_set(tmp_path):
    write(tmp_path, "api_port = 9000\n")
    settings = load({"API_PORT": "", "OPERATOR_TOKEN": "", "HOLDFAST_CONFIG": ""}, tmp_path)
    assert settings.api_port == 9000
    assert settings.operator_token is None


def test_the_variable_names_the_file_and_the_usual_one_is_not_read(tmp_path):
    write(tmp_path, "api_port = 9000\nworker_concurrency = 3\n")
    (tmp_path / "other.toml").write_text("api_port = 9002\n")
    for name in ("other.toml", str(tmp_path / "other.toml")):
        settings = load({"HOLDFAST_CONFIG": name}, tmp_path)
        assert settings.api_port == 9002
        assert settings.worker_concurrency == 100


def test_without_a_folder_the_file_in_the_working_directory_is_read(tmp_path, monkeypatch):
    write(tmp_path, "api_port = 9000\n")
    monkeypatch.chdir(tmp_path)
    assert load({}).api_port == 9000


def test_settings_do_not_change():
    settings = Settings()
    with pytest.raises(ValidationError):
        settings.api_port = 1


def test_every_setting_has_a_help_sentence():
    assert [row.name for row in Settings().describe() if not row.help.endswith(".")] == []


# --- what is refused ------------------------------------------------------------------------------------------

BOUNDS = {
    "API_PORT": (0, 65_535),
    "MAX_BODY_BYTES": (1_024, 16_777_216),
    "API_HEADER_TIMEOUT_MS": (100, 3_600_000),
    "API_IDLE_TIMEOUT_MS": (100, 3_600_000),
    "API_STALL_TIMEOUT_MS": (100, 3_600_000),
    "API_LEAST_RATE": (1, 1_073_741_824),
    "API_MAX_CONNECTIONS": (1, 1_000_000),
    "API_MAX_CONNECTIONS_PER_ADDRESS": (1, 1_000_000),
    "TENANT_REQUESTS_PER_SECOND": (1, 1_000_000),
    "TENANT_WAITING_JOBS": (1, 1_000_000_000),
    "TENANT_STREAMS": (1, 10_000),
    "AUTH_FAILURES_PER_MINUTE": (1, 1_000_000),
    "COURIER_REQUESTS_PER_SECOND": (1, 1_000_000),
    "COURIER_DOWNSTREAM_TIMEOUT_MS": (10, 600_000),
    "WORKER_CONCURRENCY": (1, 10_000),
    "WORKER_LEASE_SECONDS": (1, 3_600),
    "WORKER_DRAIN_TIMEOUT_MS": (0, 600_000),
    "RETRY_MAX_ATTEMPTS": (1, 100),
    "RETRY_BACKOFF_BASE_MS": (0, 3_600_000),
    "RETRY_BACKOFF_MULTIPLIER": (1, 10),
    "RETRY_JITTER_PERCENT": (0, 100),
    "DLQ_TTL_DAYS": (1, 3_650),
    "PROCESSED_EVENTS_TTL_DAYS": (1, 3_650),
    "UPKEEP_INTERVAL_MS": (10, 3_600_000),
    "PUBLISH_GRACE_MS": (0, 3_600_000),
    "SMTP_PORT": (1, 65_535),
    "EMAIL_MAX_HTML_BYTES": (1_024, 2_097_152),
    "EMAIL_RATE_MAX": (0, 1_000_000),
    "EMAIL_RATE_DURATION_MS": (10, 3_600_000),
    "EMAIL_CONCURRENCY": (1, 1_000),
    "EMAIL_TTL_MS": (1_000, 2_592_000_000),
    "EMAIL_DLQ_TTL_MS": (1_000, 315_360_000_000),
    "EMAIL_RETENTION_DAYS": (1, 3_650),
    "DOCUMENT_CONCURRENCY": (1, 64),
    "DOCUMENT_THREADS": (1, 64),
    "DOCUMENT_MEMORY_MB": (320, 1_048_576),
    "DOCUMENT_TIMEOUT_SECONDS": (1, 86_400),
    "DOCUMENT_MAX_BYTES": (1024, 68_719_476_736),
    "DOCUMENT_MAX_PAGES": (1, 100_000),
    "DOCUMENT_MAX_MEDIA_SECONDS": (1, 604_800),
    "DOCUMENT_MAX_PAGE_OUTPUT_BYTES": (65_536, 8_388_608),
    "DOCUMENT_MAX_OUTPUT_BYTES": (65_536, 1_073_741_824),
    "DOCUMENT_TENANT_BYTES": (0, 966_367_641_600),
    "DOCUMENT_TTL_DAYS": (1, 3650),
    "DOCUMENT_DLQ_TTL_DAYS": (1, 3650),
    "DOCUMENT_MAX_ATTEMPTS": (1, 100),
    "DOCUMENT_RETRY_BASE_MS": (0, 3_600_000),
}
FRACTIONS = {"RETRY_BACKOFF_MULTIPLIER", "RETRY_JITTER_PERCENT"}


def test_the_table_of_bounds_names_every_number():
    kinds = (int, float, int | None)
    numbers = {name.upper() for name, field in Settings.model_fields.items() if field.annotation in kinds}
    assert numbers == set(BOUNDS)


CLUSTER = {"REDIS_URL": "redis://redis.example", "MONGO_URI": "mongodb://mongo.example"}


def test_plain_lists_need_a_cluster(tmp_path):
    (sentence,) = problems_of({"DOCUMENT_LISTS": "true"}, tmp_path)
    assert sentence == (
        "DOCUMENT_LISTS=true needs a cluster: the lists are in Redis. Set REDIS_URL and MONGO_URI, or unset it."
    )
    assert load({"DOCUMENT_LISTS": "true", **CLUSTER}, tmp_path).document_lists


@pytest.mark.parametrize("prefix", ["doc_jobs", "{doc_jobs}", "doc_jobs_dead", "{doc_jobs_dead}", "{doc_jobs}:a"])
def test_the_keys_of_the_queues_do_not_begin_with_the_names_of_the_lists(prefix, tmp_path):
    given = {**CLUSTER, "QUEUE_PREFIX": prefix}
    (sentence,) = problems_of({"DOCUMENT_LISTS": "true", **given}, tmp_path)
    assert sentence.startswith("QUEUE_PREFIX must not begin with doc_jobs or doc_jobs_dead with DOCUMENT_LISTS=true")
    assert load(given, tmp_path).queue_prefix == prefix


@pytest.mark.parametrize("prefix", ["bull", "{bull}", "doc_jobs_2", "my:doc_jobs"])
def test_other_prefixes_go_with_plain_lists(prefix, tmp_path):
    assert load({"DOCUMENT_LISTS": "true", **CLUSTER, "QUEUE_PREFIX": prefix}, tmp_path).queue_prefix == prefix


@pytest.mark.parametrize(
    ("given", "attempts"),
    [
        ({}, {"OCR": 3, "TRANSCRIPTION": 2}),
        ({"DOCUMENT_MAX_ATTEMPTS": "4"}, {"OCR": 4, "TRANSCRIPTION": 4}),
    ],
)
def test_each_type_of_document_has_its_number_of_attempts(given, attempts, tmp_path):
    assert load(given, tmp_path).document_attempts == attempts


@pytest.mark.parametrize("name", BOUNDS)
def test_a_number_is_accepted_at_its_bounds_and_refused_beyond_them(name, tmp_path):
    low, high = BOUNDS[name]
    for value in (low, high):
        assert getattr(load({name: str(value)}, tmp_path), name.lower()) == value
    kind = "number" if name in FRACTIONS else "whole number"
    for value in (low - 1, high + 1):
        sentence = f"{name} must be a {kind} from {low} to {high}, not {value} (in the environment)."
        assert problems_of({name: str(value)}, tmp_path) == (sentence,)


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("value", ["many", "nan", "inf", "0x10", "1e99"])
def test_what_is_not_a_number_is_refused_without_being_repeated(name, value, tmp_path):
    (sentence,) = problems_of({name: value}, tmp_path)
    assert sentence.startswith(f"{name} must be a ")
    assert value not in sentence


def test_a_fraction_is_no_whole_number(tmp_path):
    (sentence,) = problems_of({"WORKER_CONCURRENCY": "1.5"}, tmp_path)
    assert sentence.startswith("WORKER_CONCURRENCY must be a whole number")
    assert load({"RETRY_BACKOFF_MULTIPLIER": "1.5"}, tmp_path).retry_backoff_multiplier == 1.5


@pytest.mark.parametrize("name", ["api_port", "retry_jitter_percent"])
def test_true_is_not_the_number_one(name, tmp_path):
    write(tmp_path, f"{name} = true\n")
    (sentence,) = problems_of({}, tmp_path)
    assert sentence.startswith(f"{name.upper()} must be a ")
    assert sentence.endswith("(in holdfast.toml).")


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("LOG_LEVEL", "loud", "must be one of debug, info, warning, error"),
        ("LOG_FORMAT", "xml", "must be one of auto, console, json"),
        ("HOLDFAST_DEMO", "perhaps", "must be true or false"),
        ("API_HOST", "two words", "must be one word of visible characters"),
        ("OPERATOR_TOKEN", f"{CANARY} {CANARY}", "must consist of visible ASCII characters, without spaces"),
        ("OPERATOR_TOKEN", f"{CANARY}\n", "must consist of visible ASCII characters, without spaces"),
        ("COURIER_DOWNSTREAM_SECRET", f"{CANARY}\n", "must not be empty, and must not start or end with white space"),
        ("HOLDFAST_DATA", "~no-such-user/data", "names the home folder of a user that does not exist"),
    ],
)
def test_each_rule_is_told_in_words(name, value, rule, tmp_path):
    assert problems_of({name: value}, tmp_path) == (f"{name} {rule} (in the environment).",)


def test_words_are_read_in_any_case(tmp_path):
    settings = load({"LOG_LEVEL": "DEBUG", "LOG_FORMAT": "Json", "HOLDFAST_DEMO": "TRUE"}, tmp_path)
    assert (settings.log_level, settings.log_format, settings.holdfast_demo) == ("debug", "json", True)


@pytest.mark.parametrize("url", ["http://example.com/hook", "https://example.com:8443/a?b=c", "http://[::1]:9/x"])
def test_a_web_address_is_a_downstream(url, tmp_path):
    assert load({"COURIER_DOWNSTREAM_URL": url}, tmp_path).courier_downstream_url == url


@pytest.mark.parametrize(
    "url",
    [
        f"https://user:{CANARY}@example.com/",
        f"https://{CANARY}@example.com/",
        f"ftp://example.com/{CANARY}",
        f"file:///{CANARY}",
        f"//example.com/{CANARY}",
        f"https:///{CANARY}",
        f"https://example.com:99999/{CANARY}",
        f"https://[half/{CANARY}",
        f"https://example.com/{CANARY} x",
        f"https://exämple.com/{CANARY}",
        CANARY,
    ],
)
def test_any_other_address_is_refused_and_not_repeated(url, tmp_path):
    (sentence,) = problems_of({"COURIER_DOWNSTREAM_URL": url}, tmp_path)
    assert sentence.startswith("COURIER_DOWNSTREAM_URL must ")
    assert CANARY not in sentence


def test_all_problems_are_told_at_once(tmp_path):
    write(tmp_path, "api_prot = 1\nworker_concurrency = 0\nretry_max_attempts = 0\n")
    environ = {"API_PORT": "none", "RETRY_MAX_ATTEMPTS": "101", "COURIER_SECRETS": "{", "LOG_LEVEL": "loud"}
    problems = problems_of(environ, tmp_path)
    starts = ("holdfast.toml has", "WORKER_C", "API_PORT", "RETRY_MAX_ATTEMPTS", "COURIER_SECRETS", "LOG_LEVEL")
    for start in starts:
        assert sum(problem.startswith(start) for problem in problems) == 1, start
    assert len(problems) == len(starts)
    assert "not 101 (in the environment)" in " ".join(problems)


# --- the file -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "nearest"),
    [("api_prot", "api_port"), ("API_PORT", "api_port"), ("retry_max_attempt", "retry_max_attempts")],
)
def test_an_unknown_key_is_refused_with_the_nearest_name(key, nearest, tmp_path):
    write(tmp_path, f"{key} = 1\n")
    assert problems_of({}, tmp_path) == (f"holdfast.toml has an unknown key '{key}'; did you mean {nearest}?",)


def test_an_unknown_key_like_no_other_points_to_the_list(tmp_path):
    write(tmp_path, "zzz = 1\n")
    (sentence,) = problems_of({}, tmp_path)
    assert sentence == "holdfast.toml has an unknown key 'zzz'. `holdfast config show` lists the names."


def test_a_setting_that_is_a_constant_now_is_warned_of_and_does_not_stop_anybody(tmp_path):
    write(tmp_path, "smtp_connections = 3\n[email]\nmax_batch_bytes = 1\n[documents]\ndocument_cache = false\n")
    settings = load({"INTAKE_MAX_PENDING": "many", "API_PORT": "9000"}, tmp_path)
    assert settings.api_port == 9000
    does_nothing = "does nothing: it is a constant now, not a setting. Its value:"
    assert settings.warnings == (
        f"SMTP_CONNECTIONS (in holdfast.toml) {does_nothing} as many as EMAIL_CONCURRENCY.",
        f"EMAIL_MAX_BATCH_BYTES (in holdfast.toml) {does_nothing} 8388608.",
        f"DOCUMENT_CACHE (in holdfast.toml) {does_nothing} true; a request turns it off with cache: false.",
        f"INTAKE_MAX_PENDING (in the environment) {does_nothing} 5000.",
    )
    assert load({}, tmp_path / "empty").warnings == ()


def test_a_feature_may_have_a_setting_with_a_name_that_was_ours(tmp_path):
    class Own(FeatureSettings):
        smtp_connections: int = 1

    write(tmp_path, "smtp_connections = 3\n")
    settings = config.load({}, tmp_path, config.compose({"own": Own}))
    assert (settings.of(Own).smtp_connections, settings.warnings) == (3, ())


def test_the_values_that_are_told_are_those_in_the_code():
    options = DocumentOptions(scratch=Path())
    in_force = {
        "document_chunk_seconds": options.chunk_seconds,
        "document_fetch_timeout_seconds": FetchOptions(AddressPolicy(), 1).timeout.total_seconds(),
        "document_max_attempts_ocr": Settings().document_attempts["OCR"],
        "document_max_attempts_transcription": Settings().document_attempts["TRANSCRIPTION"],
        "document_unit_timeout_seconds": options.unit_timeout.total_seconds(),
        "email_max_batch_bytes": EmailService.max_batch_bytes,
        "email_timeout_ms": duration_ms(ANSWER_TIMEOUT),
        "gemini_timeout_seconds": default_of(GeminiModel.__init__, "timeout"),
        "handler_timeout_ms": duration_ms(workload_of(Settings()).timeout - timedelta(seconds=5)),
        "intake_max_pending": default_of(Intake.__init__, "max_pending"),
        "queue_keep_completed": default_of(BullmqBroker.__init__, "keep_completed"),
        "queue_keep_failed": default_of(BullmqBroker.__init__, "keep_failed"),
        "signature_tolerance_seconds": TOLERANCE.total_seconds(),
    }
    told = {name: re.match("[0-9]+", value) for name, value in CONSTANT_NOW.items()}
    assert {name: int(number[0]) for name, number in told.items() if number} == in_force


def default_of(function, name):
    return inspect.signature(function).parameters[name].default


def test_a_broken_file_is_located_but_not_quoted(tmp_path):
    write(tmp_path, f'api_port = 1\noperator_token = "{CANARY}\n')
    (sentence,) = problems_of({}, tmp_path)
    assert sentence.startswith("holdfast.toml is not valid TOML (at line 2, column ")
    assert CANARY not in sentence


def test_a_file_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "holdfast.toml").write_bytes(b"api_host = '\xff'\n")
    assert problems_of({}, tmp_path) == ("holdfast.toml is not valid TOML.",)


def test_a_file_nested_without_end_is_refused(tmp_path):
    write(tmp_path, "api_host = " + "[" * 100_000)
    (sentence,) = problems_of({}, tmp_path)
    assert sentence.startswith("holdfast.toml is not valid TOML")


def test_a_named_file_must_be_there(tmp_path):
    assert problems_of({"HOLDFAST_CONFIG": "gone.toml"}, tmp_path) == (
        "gone.toml (named by HOLDFAST_CONFIG) does not exist.",
    )


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "holdfast.toml").mkdir()
    (sentence,) = problems_of({}, tmp_path)
    assert sentence.startswith("holdfast.toml cannot be read: ")


def test_a_table_where_a_value_belongs_is_refused(tmp_path):
    write(tmp_path, "[api_host]\nx = 1\n[api_port]\nx = 1\n[operator_token]\nx = 1\n")
    assert problems_of({}, tmp_path) == (
        "API_HOST must be a string (in holdfast.toml).",
        "API_PORT must be a whole number from 0 to 65535 (in holdfast.toml).",
        "OPERATOR_TOKEN must be a string (in holdfast.toml).",
    )


# --- courier secrets ------------------------------------------------------------------------------------------


def test_each_shape_of_courier_secrets_in_the_environment(tmp_path):
    given = {
        "single": "one",
        "several": ["new", "old"],
        "limited": {"secret": "s", "notBefore": "2026-01-01T00:00:00Z"},
        "mixed": ["new", {"secret": "old", "notAfter": "2026-01-31T12:00:00+02:00"}],
        "standard": "whsec_bm90IGRlY29kZWQ=",
    }
    courier = load({"COURIER_SECRETS": json.dumps(given)}, tmp_path).courier_secrets
    assert {source: plain(found) for source, found in courier.items()} == {
        "single": ["one"],
        "several": ["new", "old"],
        "limited": ["s"],
        "mixed": ["new", "old"],
        "standard": ["whsec_bm90IGRlY29kZWQ="],
    }
    assert courier["limited"][0].not_before == datetime(2026, 1, 1, tzinfo=UTC)
    assert courier["limited"][0].not_after is None
    assert courier["mixed"][1].not_after == datetime(2026, 1, 31, 10, tzinfo=UTC)


def test_each_shape_of_courier_secrets_in_the_file(tmp_path):
    write(
        tmp_path,
        '[courier_secrets]\na = "one"\nb = ["new", { secret = "old", notAfter = 2026-01-31T12:00:00Z }]\nc = ["x"]\n',
    )
    courier = load({}, tmp_path).courier_secrets
    assert {source: plain(found) for source, found in courier.items()} == {
        "a": ["one"],
        "b": ["new", "old"],
        "c": ["x"],
    }
    assert courier["b"][1].not_after == datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_the_environment_replaces_the_table_as_a_whole(tmp_path):
    write(tmp_path, '[courier_secrets]\na = "one"\n')
    assert set(load({"COURIER_SECRETS": '{"b": "two"}'}, tmp_path).courier_secrets) == {"b"}


@pytest.mark.parametrize(
    ("given", "part"),
    [
        (CANARY, "must be JSON"),
        (f'{{"a": "{CANARY}"', "must be JSON"),
        (f'{{"a": {"[" * 100_000}', "must be JSON"),
        (f'["{CANARY}"]', "must be an object of sources"),
        (f'{{"a": "{CANARY}", "a": "{CANARY}"}}', "names a source or a member twice"),
        (f'{{"a": {{"secret": "{CANARY}", "secret": "{CANARY}"}}}}', "names a source or a member twice"),
        (f'{{"": "{CANARY}"}}', "has a source that is empty"),
        (f'{{" a": "{CANARY}"}}', "has a source that is empty, or has white space"),
        ('{"a": []}', "has no secret for a"),
        ('{"a": ""}', ", a, secret 1 must not be empty"),
        (f'{{"a": ["x", "{CANARY} "]}}', ", a, secret 2 must not be empty, and must not start or end with white space"),
        (f'{{"a": ["{CANARY}", 5]}}', "must give a, as secret 2, a string or an object"),
        (f'{{"a": {{"secrets": "{CANARY}"}}}}', "must give a, as secret 1, a string or an object"),
        (f'{{"a": {{"secret": "{CANARY}", "note": "{CANARY}"}}}}', "must give a, as secret 1, a string or an object"),
        ('{"a": {"secret": 5}}', ", a, secret 1, secret must be a string"),
        (
            f'{{"a": {{"secret": "{CANARY}", "notAfter": "2026-01-31T12:00:00"}}}}',
            ", a, secret 1, notAfter must be a time with its offset, such as 2026-01-31T12:00:00Z",
        ),
        (
            f'{{"a": {{"secret": "{CANARY}", "notBefore": "2026-02-01T00:00Z", "notAfter": "2026-01-01T00:00Z"}}}}',
            ", a, secret 1 must have a notAfter that is later than its notBefore",
        ),
    ],
)
def test_other_shapes_are_refused_without_repeating_a_secret(given, part, tmp_path):
    (sentence,) = problems_of({"COURIER_SECRETS": given}, tmp_path)
    assert sentence.startswith("COURIER_SECRETS")
    assert part in sentence
    assert CANARY not in sentence


def test_a_secret_holds_from_its_beginning_until_its_end():
    start, end, step = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC), timedelta(microseconds=1)
    limited = CourierSecret(secret="x", not_before=start, not_after=end)
    assert [limited.active_at(each) for each in (start - step, start, end, end + step)] == [False, True, False, False]
    assert CourierSecret(secret="x").active_at(start)
    assert CourierSecret(secret="x", not_before=start).active_at(end)
    assert not CourierSecret(secret="x", not_after=start).active_at(end)


# --- secrets stay secret --------------------------------------------------------------------------------------


def test_no_secret_in_any_text_of_the_settings(tmp_path):
    environ = {
        "OPERATOR_TOKEN": f"operator-{CANARY}",
        "COURIER_SECRETS": json.dumps(
            {"courier-x": [f"x-{CANARY}", {"secret": f"y-{CANARY}"}], "courier-y": f"z-{CANARY}"}
        ),
        "COURIER_DOWNSTREAM_URL": f"https://example.com/hook?token={CANARY}",
        "COURIER_DOWNSTREAM_SECRET": f"down-{CANARY}",
    }
    settings = load(environ, tmp_path)
    shown = {row.name: row.shown for row in settings.describe()}
    assert shown["OPERATOR_TOKEN"] == "********"
    assert shown["COURIER_SECRETS"] == "courier-x: 2 x ********, courier-y: 1 x ********"
    assert shown["COURIER_DOWNSTREAM_URL"] == "https://example.com/********"
    assert shown["COURIER_DOWNSTREAM_SECRET"] == "********"
    texts = [repr(settings), str(settings), str(settings.describe()), *settings.secret_problems()]
    assert [text for text in texts if CANARY in text] == []


def test_no_secret_in_an_error_nor_in_what_it_came_from(tmp_path):
    environ = {
        "OPERATOR_TOKEN": f"{CANARY} x",
        "COURIER_SECRETS": json.dumps({"a": f"{CANARY} "}),
        "COURIER_DOWNSTREAM_SECRET": f" {CANARY}",
        "REDIS_URL": CANARY,
        "MONGO_URI": CANARY,
        "API_PORT": CANARY,
        "LOG_LEVEL": CANARY,
    }
    with pytest.raises(SettingsError) as caught:
        load(environ, tmp_path)
    assert len(caught.value.problems) == len(environ)
    assert CANARY not in str(caught.value) + repr(caught.value)
    # A traceback, or a log that follows causes, would print these.
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


def test_no_secret_in_the_error_of_settings_made_in_code():
    with pytest.raises(ValidationError) as caught:
        Settings(operator_token=f"{CANARY} x", api_port=CANARY)
    assert CANARY not in str(caught.value)


# --- secrets that guard nothing -------------------------------------------------------------------------------

GOOD = "kT3vXq9_Zr4LmW8s-Pd1YbNc"


def test_good_secrets_pass():
    settings = Settings(
        operator_token=GOOD,
        courier_secrets={"courier-x": [GOOD[::-1], "whsec_" + GOOD[::-1]]},
        courier_downstream_secret=GOOD,
    )
    assert settings.secret_problems() == []


def test_a_missing_operator_token_is_a_problem_that_says_what_to_do():
    (sentence,) = Settings().secret_problems()
    assert sentence.startswith("OPERATOR_TOKEN is not set")
    assert "holdfast init" in sentence


UNSAFE = [
    "changeme",
    "CHANGEME-CHANGEME-CHANGEME",
    "Change_Me_Please_1234567",
    "secret",
    "secret-for-courier-x-2026",
    "password",
    "P-A-S-S-W-O-R-D-1234567890",
    "holdfast",
    "Holdfast-operator-token-1",
    "demo-secret-for-courier-x",
    "DEMO_operator_token_123456",
    "test",
    "test-secret-abcdefghijklm",
    "example-secret-0123456789",
    "my-secret-key-0123456789",
    "your_token_goes_here_1234",
    "courier-x-secret-0123456789",
    "0123456789abcdef",
    "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
    "aaaaaaaaaaaaaaaaaaaaaaaa",
    "abababababababababababab",
    "----------------",
    GOOD[:15],
    "whsec_" + GOOD[:15],
]


@pytest.mark.parametrize("secret", UNSAFE)
def test_an_unsafe_secret_is_refused_wherever_it_is(secret):
    settings = Settings(
        operator_token=secret, courier_secrets={"courier-x": [GOOD, secret]}, courier_downstream_secret=secret
    )
    starts = [sentence.split(" is ")[0].split(" repeats ")[0] for sentence in settings.secret_problems()]
    assert starts == [
        "OPERATOR_TOKEN",
        "COURIER_SECRETS, courier-x, secret 2",
        "COURIER_SECRETS, courier-x, secret 2",  # weak, and the same as the operator's
        "COURIER_DOWNSTREAM_SECRET",
    ]
    assert all("holdfast init" in sentence for sentence in settings.secret_problems())


def test_sixteen_characters_are_enough():
    assert Settings(operator_token=GOOD[:16]).secret_problems() == []


def test_a_courier_must_not_hold_the_operators_token():
    (sentence,) = Settings(operator_token=GOOD, courier_secrets={"courier-x": GOOD}).secret_problems()
    assert sentence.startswith("COURIER_SECRETS, courier-x, secret 1 is the same as OPERATOR_TOKEN")


def test_random_secrets_of_every_usual_kind_pass():
    for _ in range(200):
        for token in (secrets.token_urlsafe(32), secrets.token_hex(16), "whsec_" + secrets.token_urlsafe(24)):
            assert Settings(operator_token=token).secret_problems() == []


# --- the starter file -----------------------------------------------------------------------------------------


def starter(app: str | None = None) -> str:
    tables = [text for feature in installed_features() if (text := feature.starter())]
    return fresh_config_text(Settings, tables, app=app)


def test_the_starter_file_is_accepted_and_safe_and_never_the_same(tmp_path):
    texts = {starter() for _ in range(2)}
    assert len(texts) == 2
    seen = set()
    for text in texts:
        write(tmp_path, text)
        settings = load({}, tmp_path)
        assert settings.secret_problems() == []
        seen |= {settings.operator_token.get_secret_value(), *plain(settings.courier_secrets["courier-x"])}
    assert len(seen) == 4


def test_the_app_is_a_setting_with_a_short_name_in_the_file(tmp_path):
    assert app_setting({}, tmp_path) is None
    for key in ("app", "holdfast_app"):
        write(tmp_path, f'{key} = "shop.work:app"')
        settings = load({}, tmp_path)
        assert (settings.holdfast_app, settings.origin("holdfast_app")) == ("shop.work:app", "holdfast.toml")
        found = app_setting({}, tmp_path)
        assert (found.reference, found.folder, found.in_file) == ("shop.work:app", tmp_path, True)
        assert found.written == 'app = "shop.work:app" in holdfast.toml'
    found = app_setting({"HOLDFAST_APP": "other:app"}, tmp_path)
    assert (found.reference, found.written, found.in_file) == ("other:app", "HOLDFAST_APP=other:app", False)
    assert load({"HOLDFAST_APP": "other:app"}, tmp_path).holdfast_app == "other:app"


@pytest.mark.parametrize("content", ["app = 7", "app = ''", "app = [", "[app]\nname = 'x'"])
def test_a_file_that_names_no_app(tmp_path, content):
    write(tmp_path, content)
    assert app_setting({}, tmp_path) is None


def test_the_starter_file_can_name_an_app(tmp_path):
    write(tmp_path, starter(app="app:app"))
    assert load({}, tmp_path).holdfast_app == "app:app"


def test_the_commented_lines_of_the_starter_file_are_the_defaults(tmp_path):
    lines = starter().split("[courier_secrets]")[0].splitlines()
    offered = "\n".join(line[2:] for line in lines if line.startswith("# ") and " = " in line and "..." not in line)
    offered = offered.split("\n", 1)[1]  # the first line explains precedence with an example
    values = tomllib.loads(offered)
    write(tmp_path, offered)
    assert load({}, tmp_path).model_dump() == Settings().model_dump()
    left_out = {name for name in Settings.model_fields if name not in values}
    assert left_out == {
        "operator_token",
        "courier_secrets",
        "courier_downstream_url",
        "courier_downstream_secret",
        "holdfast_app",
        "holdfast_demo",
        "api_max_connections",
        "api_max_connections_per_address",
        "redis_url",
        "mongo_uri",
        "email_folder",
        "smtp_host",
        "smtp_username",
        "smtp_password",
        "smtp_ca_file",
        "ses_region",
        "ses_endpoint_url",
        "ses_configuration_set",
        "email_content_folder",
        "email_content_bucket",
        "email_pepper",
        "email_keys",
        "document_language",
        "whisper_model_dir",
        "gemini_api_key",
        "gemini_base_url",
        "document_folder",
        "document_bucket",
        "document_s3_region",
        "document_s3_endpoint_url",
        "document_max_attempts",
        "document_callback_secret",
    }
