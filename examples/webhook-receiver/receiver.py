"""Receives signed webhooks, such as the callbacks of Holdfast's documents, and works each of them once."""

import json
import os
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

from holdfast import App, Context, Holdfast, verify_webhook
from holdfast.client import InvalidSignature

app = App()
hold = Holdfast(app)
api = FastAPI(lifespan=hold.lifespan)


class Event(BaseModel):
    id: str
    content: dict[str, Any]


@app.job(key="id")
async def handle_event(event: Event, ctx: Context) -> str:
    ctx.log("webhook handled", webhook=event.id)
    return f"{len(event.content)} fields"


@api.post("/webhooks", status_code=202)
async def receive(request: Request) -> dict[str, bool]:
    """Verify, put on disk, answer. The work comes later: a sender that has to wait sends again."""
    body = await request.body()  # the raw bytes: they are what was signed
    try:
        webhook = verify_webhook(body, request.headers, os.environ["WEBHOOK_SECRET"])
        event = Event(id=webhook.id, content=json.loads(body))
    except InvalidSignature as error:
        raise HTTPException(401, "The signature is missing, wrong or too old.") from error
    except ValueError as error:
        raise HTTPException(400, "The body must be a JSON object.") from error
    receipt = await hold.submit(handle_event, event)
    return {"duplicate": receipt.duplicate}
