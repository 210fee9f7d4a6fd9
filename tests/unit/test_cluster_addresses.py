"""The settings of a cluster: both addresses or neither, each checked, none ever repeated."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from holdfast.config import SettingsError
from tests.support.settings import Settings, load

CANARY = "canary-9f3kQ7zLw2Xv8TbR"
REDIS = "redis://redis.example:6379/0"
MONGO = "mongodb://a.example:27017,b.example:27017/?replicaSet=rs0"


def problems_of(folder, **environ):
    with pytest.raises(SettingsError) as caught:
        load(environ, folder)
    assert CANARY not in str(caught.value)
    return caught.value.problems


def loaded(folder, **environ):
    return load({"REDIS_URL": REDIS, "MONGO_URI": MONGO} | environ, folder)


# --- both or neither --------------------------------------------------------------------------------------------------


def test_both_addresses_make_a_cluster_and_neither_is_the_embedded_default(tmp_path):
    assert loaded(tmp_path).cluster
    assert not load({}, tmp_path).cluster


@pytest.mark.parametrize(
    ("given", "missing"),
    [({"REDIS_URL": REDIS}, "MONGO_URI"), ({"MONGO_URI": MONGO}, "REDIS_URL")],
)
def test_one_alone_is_refused_and_the_other_named(tmp_path, given, missing):
    (sentence,) = problems_of(tmp_path, **given)
    (name,) = given
    assert sentence.startswith(f"{name} is set and {missing} is not: a cluster needs both")
    assert f"unset {name}" in sentence


def test_one_alone_is_told_together_with_every_other_problem(tmp_path):
    problems = problems_of(tmp_path, REDIS_URL=REDIS, API_PORT="many")
    assert [problem.split()[0] for problem in problems] == ["API_PORT", "REDIS_URL"]


def test_one_alone_is_refused_in_code_too():
    with pytest.raises(ValidationError, match="a cluster needs both"):
        Settings(redis_url=REDIS)


def test_one_may_be_in_the_file_and_the_other_in_the_environment(tmp_path):
    (tmp_path / "holdfast.toml").write_text(f'redis_url = "{REDIS}"\n')
    settings = load({"MONGO_URI": MONGO}, tmp_path)
    assert settings.cluster
    assert (settings.origin("redis_url"), settings.origin("mongo_uri")) == ("holdfast.toml", "environment")


# --- what an address may be -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost",
        "redis://localhost/",
        "redis://127.0.0.1:6379",
        "redis://[::1]:6379/15",
        "rediss://user:p%40ss@cache.example:6380/1?ssl_cert_reqs=required&ssl_ca_certs=/etc/ca.pem&ssl_check_hostname=true",
        "redis://redis.example?db=3&username=ana&password=p%26q",
        "redis://:password@redis_1:6379/0",
        "unix:///run/redis/redis.sock",
        "unix://user:password@/run/redis.sock?db=1",
    ],
)
def test_a_redis_that_can_be_named(url, tmp_path):
    assert loaded(tmp_path, REDIS_URL=url).redis_url.get_secret_value() == url


@pytest.mark.parametrize(
    ("url", "part"),
    [
        (CANARY, "starts with redis://"),
        (f"http://{CANARY}", "starts with redis://"),
        (f"REDIS://{CANARY}", "starts with redis://"),
        (f"redis-sentinel://:{CANARY}@a:26379/mymaster", "Sentinel is not supported"),
        (f"redis+sentinel://{CANARY}@a:26379", "Sentinel is not supported"),
        ("redis://", "one host"),
        (f"redis://u:{CANARY}@", "one host"),
        (f"redis://u:{CANARY}@:6379", "one host"),
        (f"redis://u:{CANARY}@a:6379,b:6379/0", "one host"),
        (f"redis://u:{CANARY}@a:0", "one host"),
        (f"redis://u:{CANARY}@a:65536", "one host"),
        (f"redis://u:{CANARY}@a:port", "one host"),
        (f"redis://u:{CANARY}@[half/0", "is not an address"),
        (f"redis://a/{CANARY}", "number of a database"),
        (f"redis://u:{CANARY}@a/0/1", "number of a database"),
        (f"redis://u:{CANARY}@x@a/0", "percent-encoded"),
        (f"redis://u:12?{CANARY}@a/0", "percent-encoded"),
        (f"redis://u:12/0?{CANARY}@a/0", "percent-encoded"),
        (f"redis://u:12#{CANARY}@a/0", "percent-encoded"),
        (f"redis://u:{CANARY} @a/0", "visible ASCII"),
        (f"redis://u:{CANARY}\u00e9@a/0", "visible ASCII"),
        (f"redis://u:{CANARY}@a/0?socket_timeout=1", "no other options than db, password, username"),
        (f"redis://a/0?{CANARY}=1", "no other options"),
        (f"redis://u:{CANARY}@a/0?db", "number of a database in its option db"),
        (f"redis://u:{CANARY}@a/0?db=1&&", "name=value"),
        (f"redis://a/0?db={CANARY}", "number of a database in its option db"),
        (f"redis://a/0?ssl_password={CANARY}", "must start with rediss://"),
        (f"rediss://a/0?ssl_cert_reqs={CANARY}", "none, optional or required"),
        (f"unix://{CANARY}", "socket file"),
        (f"unix://u:{CANARY}@/", "socket file"),
    ],
)
def test_any_other_redis_is_refused_and_not_repeated(url, part, tmp_path):
    (sentence,) = problems_of(tmp_path, REDIS_URL=url, MONGO_URI=MONGO)
    assert sentence.startswith("REDIS_URL ")
    assert part in sentence


@pytest.mark.parametrize(
    "uri",
    [
        "mongodb://localhost",
        "mongodb://localhost:27017/",
        "mongodb://user:p%2Fss@a.example:27017,b.example,[::1]:27019/admin?replicaSet=rs0&tls=true",
        "mongodb+srv://user:password@cluster0.example.net/?retryWrites=true",
        "mongodb://%2Ftmp%2Fmongodb-27017.sock/",
    ],
)
def test_a_mongo_that_can_be_named(uri, tmp_path):
    assert loaded(tmp_path, MONGO_URI=uri).mongo_uri.get_secret_value() == uri


@pytest.mark.parametrize(
    ("uri", "part"),
    [
        (CANARY, "starts with mongodb://"),
        (f"mongo://{CANARY}", "starts with mongodb://"),
        (f"mongodb://u:{CANARY}@", "must name hosts"),
        (f"mongodb://u:{CANARY}@a,,b", "must name hosts"),
        (f"mongodb://u:{CANARY}@a:99999/", "must name hosts"),
        (f"mongodb+srv://u:{CANARY}@a:27017/", "without a port"),
        (f"mongodb+srv://u:{CANARY}@a,b/", "without a port"),
        (f"mongodb://u:{CANARY}@a/b/c", "no more than one name"),
        (f"mongodb://u:{CANARY}@x@a/", "percent-encoded"),
        (f"mongodb://u:12/{CANARY}@a/", "percent-encoded"),
        (f"mongodb://u:12?{CANARY}@a/", "percent-encoded"),
        (f"mongodb://u:12#{CANARY}@a/", "percent-encoded"),
        (f"mongodb://u:{CANARY} @a/", "visible ASCII"),
    ],
)
def test_any_other_mongo_is_refused_and_not_repeated(uri, part, tmp_path):
    (sentence,) = problems_of(tmp_path, REDIS_URL=REDIS, MONGO_URI=uri)
    assert sentence.startswith("MONGO_URI ")
    assert part in sentence


@pytest.mark.parametrize("name", ["holdfast", "hold-fast_2", "x" * 63])
def test_a_name_that_a_database_can_have(name, tmp_path):
    assert loaded(tmp_path, MONGO_DB_NAME=name).mongo_db_name == name


@pytest.mark.parametrize("name", ["x" * 64, "a.b", "a b", "a/b", "a$b", 'a"b', "a\\b", "a*b", "a?b", "a:b", "\u00e9"])
def test_a_name_that_no_database_can_have(name, tmp_path):
    (sentence,) = problems_of(tmp_path, MONGO_DB_NAME=name)
    assert sentence.startswith("MONGO_DB_NAME must be up to 63 visible ASCII characters")


@pytest.mark.parametrize("name", ["admin", "config", "local"])
def test_the_databases_of_mongo_itself_are_not_ours(name, tmp_path):
    (sentence,) = problems_of(tmp_path, MONGO_DB_NAME=name)
    assert "MongoDB's own" in sentence


@pytest.mark.parametrize("prefix", ["bull", "{bull}", "shop:{bull}:eu"])
def test_a_prefix_that_keys_can_begin_with(prefix, tmp_path):
    assert loaded(tmp_path, QUEUE_PREFIX=prefix).queue_prefix == prefix


@pytest.mark.parametrize("prefix", ["two words", "{", "}", "{}", "{bull", "bull}", "{{bull}}", "{a}{b}"])
def test_a_prefix_that_would_not_do_what_it_seems_to(prefix, tmp_path):
    (sentence,) = problems_of(tmp_path, QUEUE_PREFIX=prefix)
    assert sentence.startswith("QUEUE_PREFIX must ")


# --- how it is shown --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://redis.example:6379/0", "redis://redis.example:6379/0"),
        (f"redis://:{CANARY}@redis.example:6379/0", "redis://********@redis.example:6379/0"),
        (f"rediss://{CANARY}:{CANARY}@r/1?ssl_password={CANARY}", "rediss://********@r/1?********"),
        (f"redis://r?password={CANARY}", "redis://r?********"),
        (f"unix://u:{CANARY}@/run/redis.sock?db=1", "unix://********@/run/redis.sock?********"),
    ],
)
def test_a_redis_is_shown_without_its_secrets(url, shown, tmp_path):
    settings = loaded(tmp_path, REDIS_URL=url)
    assert {row.name: row.shown for row in settings.describe()}["REDIS_URL"] == shown
    assert CANARY not in repr(settings) + str(settings) + str(settings.describe())


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("mongodb://a:1,b:2/", "mongodb://a:1,b:2/"),
        (f"mongodb://u:{CANARY}@a,b/admin?authSource={CANARY}", "mongodb://********@a,b/admin?********"),
        (f"mongodb+srv://u:{CANARY}@c.example/?x={CANARY}/{CANARY}", "mongodb+srv://********@c.example/?********"),
    ],
)
def test_a_mongo_is_shown_without_its_secrets(uri, shown, tmp_path):
    settings = loaded(tmp_path, MONGO_URI=uri)
    assert {row.name: row.shown for row in settings.describe()}["MONGO_URI"] == shown
    assert CANARY not in repr(settings) + str(settings) + str(settings.describe())
