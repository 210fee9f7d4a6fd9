"""Finding a finished result: for the same file, the same way of reading, and the same tenant."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from holdfast.contracts.files import FilesUnavailable

from .contract import DocumentJob
from .files import Files
from .job_records import result_object
from .options import DocumentOptions
from .records import CACHE, RESULTS, DocumentStatus, cache_id, work_id

Get = Callable[[str, str], Awaitable[Mapping[str, Any] | None]]


async def cached_result(
    get: Get,
    files: Files,
    data: DocumentJob,
    content: str,
    options: DocumentOptions,
) -> dict[str, Any] | None:
    """The result, with the id of this job. None if there is none, or if its files are gone. ``get`` reads a record."""
    work = work_id(content, *options.reading_method(data))
    known = await get(CACHE, cache_id(data, work))
    result = None if known is None else await get(RESULTS, known["job_id"])
    if result is None or result.get("status") != DocumentStatus.COMPLETED:
        return None
    if data.payload.strict and result.get("warnings"):
        return None
    try:
        if not await files.touch(output_path=result["output_path"]):
            return None
    except FilesUnavailable:
        return None
    return result_object(result) | {"unit": result["unit"], "job_id": data.job_id, "cached": True}
