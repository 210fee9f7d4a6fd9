"""``/v1/sms``: tenants send text messages and read their state. For a tenant, the others' messages do not exist."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request

from holdfast import NotFound
from holdfast.http import INTAKE_CODES, FeatureRoutes, Frame, Routes, refusals, tenant_of

from .contract import Sms, SmsBody, SmsReceipt, SmsView
from .feature import READ, SEND, SMS_PATH, SmsService
from .workload import key_of


def sms_routes(sms: SmsService, frame: Frame) -> FeatureRoutes:
    """Send one message; show one message."""
    routes = Routes("sms", "Text messages of tenants. Needs an API key.")

    @routes.post(
        SMS_PATH,
        status_code=202,
        dependencies=[frame.tenants_only(SEND)],
        summary="Send a text message",
        responses=refusals(*INTAKE_CODES),
    )
    async def send_sms(request: Request, body: SmsBody) -> SmsReceipt:
        job = Sms(**body.model_dump(), tenant=tenant_of(request).company_id)
        receipt = await frame.accept(sms.workload, job, sender=tenant_of(request).sender)
        return SmsReceipt(id=body.id, duplicate=receipt.duplicate, received_at=receipt.received_at)

    @routes.get(f"{SMS_PATH}/{{id}}", dependencies=[frame.tenants_only(READ)], summary="Show one of your text messages")
    async def show_sms(request: Request, message_id: Annotated[str, Path(alias="id")]) -> SmsView:
        key = key_of(tenant_of(request).company_id, message_id)
        entry = await sms.services.store.entry(sms.workload.name, key)
        if entry is None:
            raise NotFound
        return SmsView.of(entry)

    return FeatureRoutes([routes])
