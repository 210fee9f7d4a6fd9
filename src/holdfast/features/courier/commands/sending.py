"""``send``: send courier events, as a courier does."""

from __future__ import annotations

import asyncio
import json as json_module
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import httpx
import typer

from holdfast import isoformat
from holdfast.features.courier.feature import COURIER_PATH
from holdfast.features.courier.settings import CourierSettings
from holdfast.terminal import (
    REFUSED,
    Answer,
    Stop,
    base_url,
    connected,
    content,
    json_object,
    options,
    post,
    print_json,
    progress,
    report,
    settings_with,
    show_facts,
)

from . import signing

_AT_A_TIME: Final = 16
_DEFAULT_SOURCE: Final = "courier-x"


@dataclass(frozen=True, slots=True)
class _Signer:
    """The secret, and the scheme of the signature."""

    secret: str
    standard_webhooks: bool

    def headers(self, message_id: str, body: bytes) -> dict[str, str]:
        if self.standard_webhooks:
            return signing.standard_headers(self.secret, message_id, body)
        return signing.headers(self.secret, body)


def send(
    url: options.Url = None,
    source: Annotated[
        str | None, typer.Option(help="The sender; otherwise the only source in COURIER_SECRETS.", show_default=False)
    ] = None,
    secret: Annotated[
        str | None,
        typer.Option(
            envvar="COURIER_SECRET",
            help="The signing secret; otherwise the source's secret in COURIER_SECRETS. Others on this machine can see "
            "an option: prefer the variable.",
            show_default=False,
        ),
    ] = None,
    event_id: Annotated[
        str | None,
        typer.Option(help="Otherwise a new id. To repeat an event, give --occurred-at too.", show_default=False),
    ] = None,
    event_type: Annotated[str, typer.Option("--type", help="eventType.")] = "shipment.status.updated",
    shipment: Annotated[str | None, typer.Option(help="payload.shipmentId.", show_default="shp_demo")] = None,
    order: Annotated[str | None, typer.Option(help="payload.orderId.", show_default="ord_demo")] = None,
    status: Annotated[str | None, typer.Option(help="payload.status.", show_default="in_transit")] = None,
    occurred_at: Annotated[str | None, typer.Option(help="ISO-8601; otherwise now.", show_default=False)] = None,
    key: Annotated[
        str | None, typer.Option(help="idempotencyKey; otherwise <source>:<eventId>.", show_default=False)
    ] = None,
    payload: Annotated[
        str | None,
        typer.Option(metavar="JSON|@FILE", help="The payload, or more fields for it.", show_default=False),
    ] = None,
    body: Annotated[
        str | None,
        typer.Option(metavar="JSON|@FILE", help="The whole body, sent unchanged.", show_default=False),
    ] = None,
    standard_webhooks: Annotated[
        bool, typer.Option("--standard-webhooks", help="Sign with the Standard Webhooks headers.")
    ] = False,
    count: Annotated[int, typer.Option(min=1, max=1_000_000, help="Send this many different events.")] = 1,
    json: options.Json = False,
) -> None:
    """Sign a courier event and post it to a running API.

    Missing fields get example values. Exit code 0: accepted; 1: refused; 2: could not be sent.
    """
    raw = None if body is None else content("--body", body)
    facts = {"shipmentId": shipment, "orderId": order, "status": status}
    given = {name for name, value in {"event-id": event_id, "occurred-at": occurred_at, "key": key}.items() if value}
    if raw is not None and (given or payload is not None or any(facts.values()) or count > 1):
        message = "--body is the whole event: use it only with --source, --secret and --url."
        raise Stop(message)
    if key is not None and count > 1:
        message = "--key is the key of one event, but --count sends several."
        raise Stop(message)

    source, url, secret = _addresses(url, source if raw is None else source or _source_in(raw), secret)
    signer = _Signer(secret, standard_webhooks)
    if raw is not None:
        _send_one(url, signer, _new_id(), raw, json=json)
        return
    event = {
        "eventType": event_type,
        "occurredAt": occurred_at or isoformat(datetime.now(UTC)),
        "source": source,
        **({} if key is None else {"idempotencyKey": key}),
        "payload": _payload(payload, facts),
    }
    if count == 1:
        event_id = event_id or _new_id()
        _send_one(url, signer, event_id, _body(event_id, event), json=json)
        return
    stem = event_id or _new_id()
    events = ((each, _body(each, event)) for each in (f"{stem}-{number}" for number in range(1, count + 1)))
    _send_many(url, signer, events, count, json=json)


def _addresses(url: str | None, source: str | None, secret: str | None) -> tuple[str, str, str]:
    """The source, the API's address and the secret. The settings are loaded only if one of them is missing."""
    settings = None if url is not None and secret is not None else settings_with()
    where = base_url(url, settings)
    if secret is None:
        source, secret = signing.secret_of(settings or settings_with(), source)
        return source, where, secret
    known = () if settings is None else tuple(settings.of(CourierSettings).courier_secrets)
    if source is None and len(known) == 1:
        (source,) = known
    return source or _DEFAULT_SOURCE, where, signing.usable(secret)


def _payload(given: str | None, facts: dict[str, str | None]) -> dict[str, Any]:
    """The given payload, overwritten by the options. Without a payload, example values are used."""
    options_given = {name: value for name, value in facts.items() if value is not None}
    if given is not None:
        return {**json_object("--payload", given), **options_given}
    return {"shipmentId": "shp_demo", "orderId": "ord_demo", "status": "in_transit", **options_given}


def _body(event_id: str, event: dict[str, Any]) -> bytes:
    return json_module.dumps({"eventId": event_id, **event}, ensure_ascii=False).encode(errors="surrogateescape")


def _source_in(raw: bytes) -> str | None:
    """The source in a raw body. The API checks whether the body is valid."""
    try:
        source = json_module.loads(raw).get("source")
    except (ValueError, RecursionError, AttributeError):
        return None
    return source if isinstance(source, str) else None


def _new_id() -> str:
    return f"evt_{secrets.token_hex(8)}"


def _path(url: str) -> str:
    return "" if url.endswith(COURIER_PATH) else COURIER_PATH


def _send_one(url: str, signer: _Signer, message_id: str, body: bytes, *, json: bool) -> None:
    async def posted() -> Answer:
        async with connected(url) as client:
            return await post(client, _path(url), body, signer.headers(message_id, body))

    report(asyncio.run(posted()), url, json=json)


# --- many ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Tally:
    """The results of many events."""

    accepted: int = 0
    duplicates: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def add(self, answer: Answer) -> None:
        if not answer.accepted:
            self.refused[answer.code] += 1
            return
        self.accepted += 1
        if isinstance(answer.document, dict) and answer.document.get("duplicate") is True:
            self.duplicates += 1

    @property
    def answered(self) -> int:
        return self.accepted + self.refused.total()


def _send_many(
    url: str,
    signer: _Signer,
    events: Iterator[tuple[str, bytes]],
    count: int,
    *,
    json: bool,
) -> None:
    tally = _Tally()
    began = time.monotonic()
    with progress("Sending", count) as done:
        asyncio.run(_stream(url, signer, events, tally, lambda answered: done(answered, count)))
    tally.seconds = round(time.monotonic() - began, 3)
    if json:
        facts = {"accepted": tally.accepted, "duplicates": tally.duplicates, "refused": dict(tally.refused)}
        print_json({**facts, "seconds": tally.seconds})
    else:
        refused = ", ".join(f"{number} x {code}" for code, number in tally.refused.most_common())
        per_second = f"{tally.seconds:.1f} s, {tally.answered / max(tally.seconds, 0.001):.0f} a second"
        facts = {"accepted": tally.accepted, "duplicates": tally.duplicates, "refused": refused or 0}
        show_facts({**facts, "time": per_second})
    if tally.refused:
        message = f"{tally.refused.total()} of {count} events were refused."
        raise Stop(message, code=REFUSED)


async def _stream(
    url: str,
    signer: _Signer,
    events: Iterator[tuple[str, bytes]],
    tally: _Tally,
    done: Callable[[int], None],
) -> None:
    """Several senders share one list of events, until it is empty or one sender fails."""

    async def sender(client: httpx.AsyncClient) -> None:
        for message_id, body in events:
            tally.add(await post(client, _path(url), body, signer.headers(message_id, body)))
            done(tally.answered)

    async with connected(url) as client:
        senders = [asyncio.create_task(sender(client)) for _ in range(_AT_A_TIME)]
        try:
            await asyncio.gather(*senders)
        finally:
            for each in senders:
                each.cancel()
