"""Who talks to the server in the demo: a courier that signs, a tenant with a key, and an operator with a token.

All use nothing but HTTP, as the real ones would.
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

from holdfast.api.verify import ALGORITHM, sign
from holdfast.contracts.times import isoformat

from .folder import SOURCE

COURIER_PATH: Final = "/v1/events/courier"
EMAIL_PATH: Final = "/v1/email"
SEND_PATH: Final = f"{EMAIL_PATH}/send"
DOCUMENTS_PATH: Final = "/v1/documents"
_PATIENCE_SECONDS: Final = 10.0
_LISTENING_SECONDS: Final = 30.0
"""A stream that has nothing to tell says so more often than that."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server answered."""

    status: int
    body: Mapping[str, Any]

    def __str__(self) -> str:
        code = self.body.get("errorCode")
        return f"{self.status} {code}" if code else str(self.status)


@dataclass(frozen=True, slots=True)
class CourierNote:
    """One event, as the courier of the demo tells it. The idempotency key is left to its default."""

    event_id: str
    shipment_id: str
    status: str
    minutes_ago: int

    @property
    def key(self) -> str:
        """The idempotency key that the server makes of source and event id."""
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
        """The same event as a job of the queue, the way that a program without our API would write it."""
        return self.document(now) | {"idempotencyKey": self.key, "traceId": f"trace_{self.event_id}"}


@dataclass(frozen=True, slots=True)
class EmailNote:
    """One email that the tenant of the demo wants sent. Nobody in it exists, and the CPF is an invented one."""

    reference: str
    to: str
    nome: str
    subject: str
    text: str
    cpf: str | None = None

    @property
    def personal(self) -> tuple[str, ...]:
        """What must not stand in clear where others look."""
        return tuple(filter(None, (self.to, self.nome, self.cpf)))

    def document(self) -> dict[str, Any]:
        """The body of the request."""
        person = {"externalId": self.reference, "nome": self.nome} | ({"cpfCnpj": self.cpf} if self.cpf else {})
        html = f"<p>Dear {self.nome},</p><p>{self.text}</p><p>The Demo Shop</p>"
        return {"to": self.to, "subject": self.subject, "html": html, "recipient": person}


class Clients:
    """The side of the connection that is not Holdfast's. Times in events count from when it was made."""

    def __init__(self, operator_token: str) -> None:
        self.began = datetime.now(UTC)
        self._operator = {"authorization": f"Bearer {operator_token}"}
        self._http = httpx.Client(trust_env=False, timeout=_PATIENCE_SECONDS)

    def connect(self, address: str) -> None:
        """From now on, talk to the server at this address."""
        self._http.base_url = httpx.URL(address)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    # --- the courier --------------------------------------------------------------------------------------

    def push(self, note: CourierNote, secret: str) -> Reply:
        """Post the event, signed with this secret now. The same note gives the same bytes every time."""
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
        """Hand an email in."""
        return _reply(self._http.post(SEND_PATH, json=note.document(), headers={"x-api-key": api_key}))

    def email(self, outbox_id: str, api_key: str) -> Reply:
        """Where an email stands."""
        return _reply(self._http.get(f"{EMAIL_PATH}/{outbox_id}", headers={"x-api-key": api_key}))

    def upload(self, name: str, content: bytes, fields: Mapping[str, str], api_key: str) -> Reply:
        """Hand a file in, as a form."""
        file = {"file": (name, content, "application/pdf")}
        headers = {"x-api-key": api_key}
        return _reply(self._http.post(DOCUMENTS_PATH, data=dict(fields), files=file, headers=headers))

    def submit(self, job: Mapping[str, Any], api_key: str) -> Reply:
        """Say where a file is, as JSON."""
        return _reply(self._http.post(DOCUMENTS_PATH, json=dict(job), headers={"x-api-key": api_key}))

    def document(self, job_id: str, api_key: str, part: str = "") -> Reply:
        """Where a document stands; or, as a part, its ``/result``."""
        return _reply(self._http.get(f"{DOCUMENTS_PATH}/{job_id}{part}", headers={"x-api-key": api_key}))

    def text(self, job_id: str, api_key: str) -> str:
        """What was read in a document; nothing, where there is no such text."""
        reply = self._http.get(f"{DOCUMENTS_PATH}/{job_id}/text", headers={"x-api-key": api_key})
        return reply.text if reply.is_success else ""

    def progress(self, job_id: str, api_key: str) -> Iterator[Mapping[str, Any]]:
        """Listen to a document's progress stream to its end: where it stands, again whenever that changes.

        Nothing new is told as nothing, so that the listener can lose patience.
        """
        path, headers = f"{DOCUMENTS_PATH}/{job_id}/events", {"x-api-key": api_key}
        with self._http.stream("GET", path, headers=headers, timeout=_LISTENING_SECONDS) as response:
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
