"""``/v1/sms``: tenants send text messages and read their state. For a tenant, the others' messages do not exist."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request

from holdfast import NotFound
from holdfast.http import Frame, Routes, tenant_of

from .contract import Sms, SmsBody, SmsReceipt, SmsView
from .feature import READ, SEND, SMS_PATH, SmsService
from .workload import key_of


def sms_routes(sms: SmsService, frame: Frame) -> Routes:
    """Send one message; show one message."""
    routes = APIRouter(tags=["sms"])

    @routes.post(SMS_PATH, status_code=202, dependencies=[frame.tenants_only(SEND)], summary="Send a text message")
    async def send_sms(request: Request) -> SmsReceipt:
        body = await frame.read(request, SmsBody)
        job = Sms(**body.model_dump(), tenant=tenant_of(request).company_id)
        receipt = await frame.accept(sms.workload, job)
        return SmsReceipt(id=body.id, duplicate=receipt.duplicate, received_at=receipt.received_at)

    @routes.get(f"{SMS_PATH}/{{id}}", dependencies=[frame.tenants_only(READ)], summary="Show one of your text messages")
    async def show_sms(request: Request, message_id: Annotated[str, Path(alias="id")]) -> SmsView:
        key = key_of(tenant_of(request).company_id, message_id)
        entry = await sms.services.store.entry(sms.workload.name, key)
        if entry is None:
            raise NotFound
        return SmsView.of(entry)

    return Routes([routes])
