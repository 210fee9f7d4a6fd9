"""HTML in an S3 bucket: ``<prefix><companyId>/<ref>.html``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from datetime import timedelta
from typing import Any, Final

import aiohttp
from aiobotocore.config import AioConfig  # type: ignore[import-untyped]
from aiobotocore.session import get_session  # type: ignore[import-untyped]
from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

from .content import (
    MAX_CONTENT_BYTES,
    ContentMissing,
    ContentUnavailable,
    decoded,
    encoded,
    require_names,
)

# A missing object. A missing bucket is a wrong setting: the content may exist in the right bucket.
_MISSING: Final = frozenset({"NoSuchKey", "404", "NotFound"})


class S3Content:
    """Content as objects. Every call is safe to repeat, so the library may retry it."""

    def __init__(  # noqa: PLR0913 - the address of a bucket has many parts
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint_url: str | None = None,
        region: str | None = None,
        limit: int = MAX_CONTENT_BYTES,
        timeout: timedelta = timedelta(seconds=20),
    ) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._endpoint_url = endpoint_url
        self._region = region
        self._limit = limit
        self._timeout = timeout.total_seconds()
        self._resources = AsyncExitStack()
        self._client: Any = None

    async def open(self) -> None:
        """Make the client."""
        config = AioConfig(
            connect_timeout=self._timeout,
            read_timeout=self._timeout,
            retries={"total_max_attempts": 3, "mode": "standard"},
        )
        self._client = await self._resources.enter_async_context(
            get_session().create_client("s3", region_name=self._region, endpoint_url=self._endpoint_url, config=config)
        )

    async def close(self) -> None:
        """Close all connections."""
        self._client = None
        await self._resources.aclose()

    async def put(self, company_id: str, ref: str, html: str) -> None:
        """Write the object."""
        place = self._place(company_id, ref)
        content = encoded(html)
        with _translated_errors():
            await self._opened().put_object(**place, Body=content, ContentType="text/html; charset=utf-8")

    async def get(self, company_id: str, ref: str) -> str:
        """Read the object, up to the limit."""
        place = self._place(company_id, ref)
        with _translated_errors():
            answer = await self._opened().get_object(**place)
            async with answer["Body"] as body:
                content = await self._read(body)
        return decoded(content, self._limit)

    async def exists(self, company_id: str, ref: str) -> bool:
        """Whether there is an object of this name."""
        try:
            place = self._place(company_id, ref)
            with _translated_errors():
                await self._opened().head_object(**place)
        except ContentMissing:
            return False
        return True

    async def delete(self, company_id: str, ref: str) -> None:
        """Remove the object. In a bucket with versioning, older versions stay."""
        try:
            place = self._place(company_id, ref)
        except ContentMissing:
            return
        with _translated_errors():
            await self._opened().delete_object(**place)

    async def _read(self, body: Any) -> bytes:  # noqa: ANN401 - botocore has no types
        content = bytearray()
        # One read returns what has arrived, which may be less than requested.
        while len(content) <= self._limit and (piece := await body.read(self._limit + 1 - len(content))):
            content += piece
        return bytes(content)

    def _opened(self) -> Any:  # noqa: ANN401 - botocore makes its clients at run time; they have no type
        if self._client is None:
            message = "S3Content.open() has not been called."
            raise RuntimeError(message)
        return self._client

    def _place(self, company_id: str, ref: str) -> dict[str, str]:
        require_names(company_id, ref)
        return {"Bucket": self._bucket, "Key": f"{self._prefix}{company_id}/{ref}.html"}


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Turn errors of the library into content errors, without the text that they quote."""
    try:
        yield
    except ClientError as error:
        name = str(error.response.get("Error", {}).get("Code", ""))
        if name in _MISSING:
            raise ContentMissing from None
        message = f"The content bucket cannot be used ({name or 'no reason given'})."
        raise ContentUnavailable(message) from None
    except (BotoCoreError, aiohttp.ClientError, OSError) as error:
        message = f"The content bucket cannot be reached ({type(error).__name__})."
        raise ContentUnavailable(message) from None
