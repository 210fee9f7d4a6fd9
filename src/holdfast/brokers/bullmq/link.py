"""The connections to Redis: one client for commands, and one for each queue or list that is waited on.

The client itself repeats no command: a second ``take`` would take a second batch. A command that is safe to repeat is
repeated here, once. The reason: after a restart of Redis, an idle connection fails only when it is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, ReadOnlyError, RedisClusterException, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from holdfast.contracts.errors import BrokerUnavailable, ConfigurationError

from .keys import has_hash_tag
from .scripts import Script

Argument = str | bytes | int | float
Client = Redis | RedisCluster

_ANSWER_SECONDS: Final = 5.0
_SLACK_SECONDS: Final = 5.0
_POOL: Final = 32
_KEEPALIVE: Final[dict[str, Any]] = {
    "socket_keepalive": True,
    # Routers and firewalls on the way must not drop a connection that is idle for an hour.
    "socket_keepalive_options": {
        getattr(socket, name): value
        for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
        if hasattr(socket, name)
    },
}


class Link:
    """The connections to one Redis, or to one Redis Cluster. They are made when a command needs them."""

    def __init__(self, url: str, prefix: str) -> None:
        self._url = url
        self._prefix = prefix
        self._client: Client | None = None
        self._waiting: dict[str, Client] = {}
        self._connecting = asyncio.Lock()

    async def open(self) -> None:
        """Find out whether Redis is a cluster. An unreachable Redis is no error: the next command tries again."""
        with contextlib.suppress(BrokerUnavailable):
            await self.client()

    async def close(self) -> None:
        """Close every connection."""
        clients = [*self._waiting.values(), *([self._client] if self._client else [])]
        self._waiting, self._client = {}, None
        for client in clients:
            await client.aclose()

    async def client(self) -> Client:
        """The client for commands."""
        if self._client is None:
            async with self._connecting:
                if self._client is None:
                    self._client = await self._connect()
        return self._client

    async def _connect(self) -> Client:
        single = self._single(socket_timeout=_ANSWER_SECONDS)
        try:
            async with _translated():
                clustered = (await single.info("cluster")).get("cluster_enabled") == 1
        except BaseException:
            await single.aclose()
            raise
        if not clustered:
            return single
        await single.aclose()
        if not has_hash_tag(self._prefix):
            message = (
                "Redis is a Redis Cluster, and QUEUE_PREFIX has no hash tag: the keys of a queue would be on several "
                "nodes. Put the prefix in braces: QUEUE_PREFIX={bull}"
            )
            raise ConfigurationError(message)
        return self._cluster(socket_timeout=_ANSWER_SECONDS)

    def _single(self, **options: Any) -> Redis:  # noqa: ANN401 - redis-py's own
        return Redis.from_url(
            self._url,
            socket_connect_timeout=_ANSWER_SECONDS,
            retry=Retry(NoBackoff(), 0),
            max_connections=_POOL,
            **_KEEPALIVE,
            **options,
        )

    def _cluster(self, **options: Any) -> RedisCluster:  # noqa: ANN401 - redis-py's own
        # The cluster's client repeats commands after MOVED and ASK. That is safe.
        return RedisCluster.from_url(
            self._url,
            socket_connect_timeout=_ANSWER_SECONDS,
            **_KEEPALIVE,
            **options,
        )

    # --- commands -----------------------------------------------------------------------------------------

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:  # noqa: ANN401
        """Run a script that may be repeated."""
        try:
            return await self.run_once(script, keys, arguments)
        except LinkLost:
            return await self.run_once(script, keys, arguments)

    async def run_once(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:  # noqa: ANN401
        """Run a script. When no reply comes, the script may or may not have run."""
        client = await self.client()
        async with _translated():
            try:
                return await client.execute_command("EVALSHA", script.sha, len(keys), *keys, *arguments)
            except NoScriptError:  # a new server, or SCRIPT FLUSH: the script has not run
                return await client.execute_command("EVAL", script.source, len(keys), *keys, *arguments)
            except ReadOnlyError:  # the server became a replica: the next command must look up the address again
                await self._disconnect(client)
                raise

    async def call(self, *command: Argument) -> Any:  # noqa: ANN401 - Redis's answer
        """Run one command that may be repeated."""
        for last in (False, True):
            client = await self.client()
            try:
                async with _translated():
                    return await client.execute_command(*command)
            except LinkLost:
                if last:
                    raise
        raise AssertionError

    async def info(self) -> dict[str, Any]:
        """The server's INFO."""
        client = await self.client()
        async with _translated():
            if isinstance(client, RedisCluster):
                return dict(await client.info(target_nodes=RedisCluster.DEFAULT_NODE))
            return dict(await client.info())

    # --- waiting ------------------------------------------------------------------------------------------

    async def wait_for(self, command: Sequence[Argument], seconds: float, client_name: str) -> Any:  # noqa: ANN401
        """Run a blocking command. Its last argument, the longest wait in seconds, is added here."""
        client = self._waiting.get(client_name)
        if client is None:
            clustered = isinstance(await self.client(), RedisCluster)
            make = self._cluster if clustered else self._single
            # A wait is longer than the limit for replies, so a wait has its own limit, below.
            client = self._waiting[client_name] = make(socket_timeout=None, client_name=client_name)
        async with _translated():
            try:
                async with asyncio.timeout(seconds + _SLACK_SECONDS):
                    return await client.execute_command(*command, max(seconds, 0.001))
            except TimeoutError as error:  # the connection is dead: the next wait makes a new connection
                await self._disconnect(client)
                message = "Redis does not answer."
                raise BrokerUnavailable(message) from error

    @staticmethod
    async def _disconnect(client: Client) -> None:
        with contextlib.suppress(RedisError, OSError):
            if isinstance(client, RedisCluster):
                await client.aclose()
            else:
                await client.connection_pool.disconnect(inuse_connections=True)


class LinkLost(BrokerUnavailable):
    """The connection to Redis was lost, or there was none. The same command may succeed at once."""


@contextlib.asynccontextmanager
async def _translated() -> AsyncIterator[None]:
    """Turn Redis's errors into ours. The messages do not contain the address, because it may have a password."""
    try:
        yield
    except (RedisTimeoutError, TimeoutError) as error:
        message = "Redis does not answer."
        raise BrokerUnavailable(message) from error
    except (RedisConnectionError, RedisClusterException, OSError) as error:
        message = f"Redis cannot be reached: {type(error).__name__}"
        raise LinkLost(message) from error
    except RedisError as error:
        message = f"Redis refused: {type(error).__name__}: {error}"
        raise BrokerUnavailable(message) from error
