"""The addresses of a cluster's servers: which are accepted, and how an address is shown without its secrets.

No error repeats an address: it may hold a password. Only the form is checked, so that a configuration can be loaded and
shown if neither driver is installed.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from .field_types import MASK, refuse

_HOST: Final = r"(?:[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])"
_PORT: Final = r"(?::(?P<port>[0-9]{1,5}))?"
_REDIS_HOST: Final = re.compile(_HOST + _PORT)
# For MongoDB a host may be a socket file: its path, percent-encoded.
_MONGO_HOST: Final = re.compile(rf"(?:{_HOST}|%2[Ff][A-Za-z0-9._~%-]+){_PORT}")
_SRV_HOST: Final = re.compile(r"[A-Za-z0-9._-]+")
_PARTS: Final = re.compile(r"(?P<scheme>[a-z+]+://)(?P<user>[^@/?]*@)?(?P<rest>[^@?]*)(?P<query>\?.*)?")
_HIGHEST_PORT: Final = 65_535

_REDIS_OPTIONS: Final = frozenset({"db", "password", "username"})
_TLS_OPTIONS: Final = frozenset(
    {
        *("ssl_ca_certs", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_keyfile"),
        "ssl_password",
    }
)

_RESERVED_DATABASES: Final = frozenset({"admin", "config", "local"})
_LONGEST_DATABASE_NAME: Final = 63


def redis_address(url: str) -> str:
    """The address, if it names one Redis: over TCP, over TLS, or by a socket file."""
    _printable(url)
    if "sentinel" in url.partition("://")[0]:
        refuse("must be the address of one Redis; Sentinel is not supported, so name its primary, or a proxy before it")
    if not url.startswith(("redis://", "rediss://", "unix://")):
        refuse("must be an address that starts with redis://, rediss:// (TLS) or unix://")
    authority, path, query = _parts_of(url)
    _check_redis_options(query, tls=url.startswith("rediss://"))
    if url.startswith("unix://"):
        if authority or len(path) < len("/x"):
            refuse("must name a socket file by its whole path, such as unix:///run/redis.sock")
        return url
    if not _is_host(_REDIS_HOST, authority):
        refuse("must name one host and, if need be, its port, such as redis://redis.example:6379/0")
    if re.fullmatch(r"/?|/[0-9]{1,4}", path) is None:
        refuse("must end with the number of a database, such as redis://redis.example:6379/0, or with none")
    return url


def _check_redis_options(query: str, *, tls: bool) -> None:
    # A driver takes all its parameters from the address, timeouts too. With a wrong timeout no worker gets a job.
    options = parse_qsl(query, keep_blank_values=True)
    if query and len(options) != len(query.split("&")):
        refuse("must have its options as name=value, with & between them")
    for name, value in options:
        if name not in _REDIS_OPTIONS | _TLS_OPTIONS:
            refuse(f"may have no other options than {', '.join(sorted(_REDIS_OPTIONS))} and, for TLS, those with ssl_")
        if name in _TLS_OPTIONS and not tls:
            refuse("has options for TLS, and so must start with rediss://")
        if name == "db" and re.fullmatch("[0-9]{1,4}", value) is None:
            refuse("must have the number of a database in its option db")
        if name == "ssl_cert_reqs" and value not in {"none", "optional", "required"}:
            refuse("must have none, optional or required in its option ssl_cert_reqs")


def mongo_address(uri: str) -> str:
    """The address, if it has the form of a MongoDB connection string."""
    _printable(uri)
    if not uri.startswith(("mongodb://", "mongodb+srv://")):
        refuse("must be a connection string that starts with mongodb:// or mongodb+srv://")
    authority, path, _ = _parts_of(uri)
    if uri.startswith("mongodb+srv://"):
        if _SRV_HOST.fullmatch(authority) is None:
            refuse("must name one host, without a port, after mongodb+srv://")
    elif not all(_is_host(_MONGO_HOST, each) for each in authority.split(",")):
        refuse("must name hosts and, if need be, their ports, such as mongodb://a.example:27017,b.example:27017/")
    if path.count("/") > 1:
        refuse("must have no more than one name after its hosts, the database to log in to")
    return uri


def database_name(name: str) -> str:
    """The name, if MongoDB allows a database of this name and does not use it itself."""
    if re.fullmatch(r'[^/\\. "$*<>:|?\0-\x20\x7f-\U0010ffff]+', name) is None or len(name) > _LONGEST_DATABASE_NAME:
        refuse(rf'must be up to {_LONGEST_DATABASE_NAME} visible ASCII characters, and none of / \ . " $ * < > : | ?')
    if name in _RESERVED_DATABASES:
        refuse("must not be admin, config or local: those are MongoDB's own")
    return name


def queue_prefix(prefix: str) -> str:
    """The prefix, if it can begin the names of keys."""
    if re.fullmatch(r"[!-~]+", prefix) is None:
        refuse("must be one word of visible characters")
    if re.fullmatch(r"[^{}]*(\{[^{}]+\}[^{}]*)?", prefix) is None:
        refuse("must have its braces, if any, around one word, such as {bull}: they keep a queue on one node")
    return prefix


def half_a_cluster(*, redis: bool, mongo: bool) -> str | None:
    """The problem if one of the two addresses is set and the other is not."""
    if redis == mongo:
        return None
    given, missing = ("REDIS_URL", "MONGO_URI") if redis else ("MONGO_URI", "REDIS_URL")
    return (
        f"{given} is set and {missing} is not: a cluster needs both, MongoDB for the ledger and Redis for the queue. "
        f"Set {missing} too, or unset {given} to use the embedded default."
    )


def shown_address(address: str) -> str:
    """The address without its user, its password and its options."""
    parts = _PARTS.fullmatch(address)
    if parts is None:
        return MASK
    user = f"{MASK}@" if parts["user"] else ""
    query = f"?{MASK}" if parts["query"] else ""
    return f"{parts['scheme']}{user}{parts['rest']}{query}"


def _printable(address: str) -> None:
    if re.fullmatch(r"[!-~]+", address) is None:
        refuse("must be an address of visible ASCII characters")


def _parts_of(address: str) -> tuple[str, str, str]:
    """Hosts, path and options. An unescaped character in a password would make a part of the password a host."""
    try:
        parts = urlsplit(address)
    except ValueError:  # an unclosed bracket
        refuse("is not an address")
    user, _, hosts = parts.netloc.rpartition("@")
    if "#" in address or address.count("@") > ("@" in parts.netloc) or "@" in user:
        refuse("must have its user name and password percent-encoded: @ as %40, / as %2F, ? as %3F, # as %23")
    return hosts, parts.path, parts.query


def _is_host(form: re.Pattern[str], text: str) -> bool:
    found = form.fullmatch(text)
    return found is not None and (found["port"] is None or 0 < int(found["port"]) <= _HIGHEST_PORT)
