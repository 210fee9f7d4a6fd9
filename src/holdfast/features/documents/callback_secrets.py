"""The secret that signs the callbacks of one tenant.

A tenant's secret is an HMAC of random bytes, which the tenant's record keeps, with ``DOCUMENT_CALLBACK_SECRET`` as the
key. So the database alone does not reveal a secret. A tenant that knows ``DOCUMENT_CALLBACK_SECRET``, because it had no
secret of its own before, cannot make the secret of another tenant either.

``tenants`` gets these fields: callbackSalt, formerCallbackSalt (null: ``DOCUMENT_CALLBACK_SECRET`` itself was used),
formerCallbackUntil.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from holdfast import ConfigurationError, NotFound, Upsert, isoformat
from holdfast.feature import TENANTS, Records
from holdfast.network import SECRET_PREFIX, signing_key

_PURPOSE: Final = b"holdfast/document-callbacks/v1"
_SALT_BYTES: Final = 32


class CallbackSecrets:
    """Makes the secrets of tenants from the operator's secret."""

    def __init__(self, secret: str) -> None:
        self._key = signing_key(secret)
        if not self._key:
            message = "The secret that signs callbacks is empty, or what follows whsec_ is not base64."
            raise ConfigurationError(message)

    def keys(self, tenant: Mapping[str, Any] | None, now: datetime) -> list[bytes]:
        """The keys that sign the callbacks of a tenant now, the newest first. ``tenant`` is its record, if any.

        After a rotation there are two keys for a while, so that the receiver has time to change its own.
        """
        tenant = tenant or {}
        salt, until = tenant.get("callbackSalt"), tenant.get("formerCallbackUntil")
        keys = [self._of(tenant.get("companyId"), salt)]
        if until is not None and isoformat(now) < until:
            keys.append(self._of(tenant.get("companyId"), tenant.get("formerCallbackSalt")))
        return keys

    async def rotate(self, store: Records, company_id: str, now: datetime, overlap: timedelta) -> str:
        """A new secret for a tenant. The former secret signs too, until ``overlap`` has passed.

        This is the only time that the secret is shown. Raises :class:`NotFound` for an unknown tenant.
        """
        tenant = await store.get(TENANTS, company_id)
        if tenant is None:
            raise NotFound
        salt = secrets.token_hex(_SALT_BYTES)
        changed = {
            "callbackSalt": salt,
            "formerCallbackSalt": tenant.get("callbackSalt"),
            "formerCallbackUntil": isoformat(now + overlap),
        }
        await store.apply([Upsert(TENANTS, company_id, changed)])
        return SECRET_PREFIX + base64.b64encode(self._of(company_id, salt)).decode()

    def _of(self, company_id: str | None, salt: str | None) -> bytes:
        """The key of a tenant; without a salt, the key of the operator's own secret."""
        if company_id is None or salt is None:
            return self._key
        said = b"\0".join((_PURPOSE, company_id.encode(), bytes.fromhex(salt)))
        return hmac.digest(self._key, said, hashlib.sha256)
