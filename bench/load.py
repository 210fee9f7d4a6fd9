"""A load generator in a process of its own: signed courier events over a fixed number of connections.

Requests are made beforehand, so that what is measured is the gateway and not this program. Each connection sends its
next request when the answer to the last one is in (a closed loop). Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import sys
import time
from datetime import UTC, datetime
from typing import Any

import uvloop

SHIPMENTS = 5000


def make_requests(plan: dict[str, Any]) -> list[bytes]:
    """Requests of about 500 bytes with distinct keys, signed now (so they are good for the next five minutes)."""
    host, port, source = plan["host"], plan["port"], plan["source"]
    now = time.time()
    occurred = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    key = plan["secret"].encode()
    requests = []
    for number in range(plan["first"], plan["first"] + plan["count"]):
        body = json.dumps(
            {
                "eventId": f"evt_{number:09d}",
                "eventType": "shipment.status.updated",
                "occurredAt": occurred,
                "source": source,
                "payload": {
                    "shipmentId": f"shp_{number % SHIPMENTS:06d}",
                    "orderId": f"ord_{number % SHIPMENTS:06d}",
                    "status": "out_for_delivery",
                    "location": {"city": "Porto Alegre", "depot": "POA-3", "lat": -30.0346, "lon": -51.2177},
                    "carrierNote": "Left the depot with the morning route; next scan at the door.",
                },
            },
            separators=(",", ":"),
        ).encode()
        stamp = str(int(now)).encode()
        signature = hmac.new(key, stamp + b"." + body, hashlib.sha256).hexdigest().encode()
        requests.append(
            b"POST /v1/events/courier HTTP/1.1\r\nhost: %s:%d\r\ncontent-type: application/json\r\n"
            b"x-signature: %s\r\nx-signature-timestamp: %s\r\nx-signature-algorithm: hmac-sha256\r\n"
            b"content-length: %d\r\n\r\n%s" % (host.encode(), port, signature, stamp, len(body), body),
        )
    return requests


class Sender(asyncio.Protocol):
    """One connection."""

    def __init__(self, requests: list[bytes], latencies: list[float], refused: list[bytes]) -> None:
        self._requests = requests
        self._latencies = latencies
        self._refused = refused
        self._buffer = b""
        self._sent_at = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        """Note the answer and go on."""
        answer = self._buffer + data
        if not answer.endswith(b"}"):  # every answer is one JSON object
            self._buffer = answer
            return
        self._buffer = b""
        self._latencies.append(time.perf_counter() - self._sent_at)
        if not answer.startswith(b"HTTP/1.1 202"):
            self._refused.append(answer.split(b"\r\n", 1)[0])
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the run of this connection."""
        if not self.done.done():
            self.done.set_exception(exc or ConnectionResetError("the gateway closed the connection"))

    def _next(self) -> None:
        if not self._requests:
            self.done.set_result(None)
            return
        self._sent_at = time.perf_counter()
        self._transport.write(self._requests.pop())  # type: ignore[attr-defined]


async def drive(host: str, port: int, connections: int, requests: list[bytes]) -> dict[str, float]:
    """Send everything; return the figures."""
    latencies: list[float] = []
    refused: list[bytes] = []
    loop = asyncio.get_running_loop()
    total = len(requests)
    started_at, started, used = time.time(), time.perf_counter(), time.process_time()
    senders = []
    for _ in range(connections):
        _, sender = await loop.create_connection(lambda: Sender(requests, latencies, refused), host, port)
        senders.append(sender)
    await asyncio.gather(*(sender.done for sender in senders))
    seconds = time.perf_counter() - started
    latencies.sort()
    return {
        "requests": total,
        "refused": len(refused),
        "seconds": seconds,
        "started_at": started_at,
        "per_second": total / seconds,
        "p50_ms": latencies[len(latencies) // 2] * 1000,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1000,
        "max_ms": latencies[-1] * 1000,
        "cpu_seconds": time.process_time() - used,
    }


def main() -> None:
    """Host, port, source, secret, connections, count and first number come as JSON on standard input."""
    plan = json.load(sys.stdin)
    requests = make_requests(plan)
    requests.reverse()  # they are taken from the end
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        json.dump(runner.run(drive(plan["host"], plan["port"], plan["connections"], requests)), sys.stdout)


if __name__ == "__main__":
    main()
