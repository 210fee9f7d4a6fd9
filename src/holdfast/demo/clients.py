"""The clients of the server in the demo: a courier with a secret, a tenant with a key, an operator with a token.

All of them use only HTTP, like real clients.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

import httpx

from holdfast.contracts.times import isoformat
from holdfast.features.courier.signatures import ALGORITHM, sign

from .folder import SOURCE

COURIER_PATH: Final = "/v1/events/courier"
EMAIL_PATH: Final = "/v1/email"
SEND_PATH: Final = f"{EMAIL_PATH}/send"
DOCUMENTS_PATH: Final = "/v1/documents"
_TIMEOUT_SECONDS: Final = 10.0
_STREAM_TIMEOUT_SECONDS: Final = 30.0
"""Longer than the time between two keep-alive lines of the stream."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of the server."""

    status: int
    body: Mapping[str, Any]

    def __str__(self) -> str:
        code = self.body.get("errorCode")
        return f"{self.status} {code}" if code else str(self.status)


@dataclass(frozen=True, slots=True)
class CourierNote:
    """One event of the demo's courier. It has the default idempotency key."""

    event_id: str
    shipment_id: str
    status: str
    minutes_ago: int

    @property
    def key(self) -> str:
        """The idempotency key that the server makes from source and event id."""
        return f"{SOURCE}:{self.event_id}"

    def document(self, now: datetime) -> dict[str, Any]:
        """The body of the request."""
        return {
            "eventId": self.event_id,
            "eventType": "shipment.status.updated",
            "occurredAt": isoformat(now - timedelta(minutes=self.minutes_ago)),
            "source": SOURCE,
            "payload": {
                "shipmentId": self.shipment_id,
                "orderId": self.shipment_id.replace("shp", "ord"),
                "status": self.status,
            },
        }

    def job(self, now: datetime) -> dict[str, Any]:
        """The same event as a job of the queue, as a program without our API would write it."""
        return self.document(now) | {"idempotencyKey": self.key, "traceId": f"trace_{self.event_id}"}


@dataclass(frozen=True, slots=True)
class EmailNote:
    """One email of the demo's tenant. The persons do not exist, and the CPF is invented."""

    reference: str
    to: str
    nome: str
    subject: str
    text: str
    cpf: str | None = None

    @property
    def personal(self) -> tuple[str, ...]:
        """The personal data, which must be masked in logs and answers."""
        return tuple(filter(None, (self.to, self.nome, self.cpf)))

    def document(self) -> dict[str, Any]:
        """The body of the request."""
        person = {"externalId": self.reference, "nome": self.nome} | ({"cpfCnpj": self.cpf} if self.cpf else {})
        html = f"<p>Dear {self.nome},</p><p>{self.text}</p><p>The Demo Shop</p>"
        return {"to": self.to, "subject": self.subject, "html": html, "recipient": person}


class Clients:
    """All clients together. Times in events are relative to the creation of this object."""

    def __init__(self, operator_token: str) -> None:
        self.began = datetime.now(UTC)
        self._operator = {"authorization": f"Bearer {operator_token}"}
        self._http = httpx.Client(trust_env=False, timeout=_TIMEOUT_SECONDS)

    def connect(self, address: str) -> None:
        """Use the server at this address from now on."""
        self._http.base_url = httpx.URL(address)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    # --- the courier --------------------------------------------------------------------------------------

    def push(self, note: CourierNote, secret: str) -> Reply:
        """Post the event, signed now with this secret. The same note always gives the same bytes."""
        body = json.dumps(note.document(self.began)).encode()
        timestamp = int(time.time())
        headers = {
            "content-type": "application/json",
            "x-signature": sign(secret, timestamp, body),
            "x-signature-timestamp": str(timestamp),
            "x-signature-algorithm": ALGORITHM,
        }
        return _reply(self._http.post(COURIER_PATH, content=body, headers=headers))

    # --- the tenant ---------------------------------------------------------------------------------------

    def send_email(self, note: EmailNote, api_key: str) -> Reply:
        """Submit an email."""
        return _reply(self._http.post(SEND_PATH, json=note.document(), headers={"x-api-key": api_key}))

    def email(self, outbox_id: str, api_key: str) -> Reply:
        """The status of an email."""
        return _reply(self._http.get(f"{EMAIL_PATH}/{outbox_id}", headers={"x-api-key": api_key}))

    def upload(self, name: str, content: bytes, fields: Mapping[str, str], api_key: str) -> Reply:
        """Submit a file, as a form."""
        file = {"file": (name, content, "application/pdf")}
        headers = {"x-api-key": api_key}
        return _reply(self._http.post(DOCUMENTS_PATH, data=dict(fields), files=file, headers=headers))

    def submit(self, job: Mapping[str, Any], api_key: str) -> Reply:
        """Submit the path of a file, as JSON."""
        return _reply(self._http.post(DOCUMENTS_PATH, json=dict(job), headers={"x-api-key": api_key}))

    def document(self, job_id: str, api_key: str, part: str = "") -> Reply:
        """The status of a document; or a part of it, such as ``/result``."""
        return _reply(self._http.get(f"{DOCUMENTS_PATH}/{job_id}{part}", headers={"x-api-key": api_key}))

    def text(self, job_id: str, api_key: str) -> str:
        """The text of a document; empty if there is none."""
        reply = self._http.get(f"{DOCUMENTS_PATH}/{job_id}/text", headers={"x-api-key": api_key})
        return reply.text if reply.is_success else ""

    def progress(self, job_id: str, api_key: str) -> Iterator[Mapping[str, Any]]:
        """The events of a document's progress stream: its status after every change.

        Keep-alive lines are returned as empty events, so that the caller can stop after a timeout.
        """
        path, headers = f"{DOCUMENTS_PATH}/{job_id}/events", {"x-api-key": api_key}
        with self._http.stream("GET", path, headers=headers, timeout=_STREAM_TIMEOUT_SECONDS) as response:
            for line in response.iter_lines():
                field, _, value = line.partition(":")
                yield json.loads(value) if field == "data" else {}

    # --- the operator -------------------------------------------------------------------------------------

    def event(self, key: str) -> Reply:
        """The state and the attempt history of an event."""
        return self._get(f"/v1/events/{quote(key, safe='')}")

    def shipment(self, shipment_id: str) -> Reply:
        """A shipment as the applied events left it."""
        return self._get(f"/v1/shipments/{quote(shipment_id, safe='')}")

    def letters_of(self, key: str) -> list[dict[str, Any]]:
        """The dead letters of an event, oldest first."""
        items = self._get("/v1/dead-letters", key=key).body.get("items", [])
        return [item for item in items if isinstance(item, dict)]

    def letter(self, letter_id: str) -> Reply:
        """A dead letter, whole."""
        return self._get(f"/v1/dead-letters/{letter_id}")

    def decide(self, letter_id: str, step: str, *, actor: str, reason: str) -> Reply:
        """Take a step with a dead letter: ``review``, ``replay`` or ``close``."""
        path = f"/v1/dead-letters/{letter_id}/{step}"
        return _reply(self._http.post(path, json={"actor": actor, "reason": reason}, headers=self._operator))

    def _get(self, path: str, **query: str) -> Reply:
        return _reply(self._http.get(path, params=query, headers=self._operator))


def _reply(response: httpx.Response) -> Reply:
    try:
        body = response.json()
    except ValueError:
        body = {}
    return Reply(response.status_code, body if isinstance(body, dict) else {})
