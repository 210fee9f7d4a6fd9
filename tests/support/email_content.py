"""HTML of emails in a folder and in a bucket, as the wiring builds it, and HTML in records."""

from __future__ import annotations

from holdfast.blobs.folder import FolderBlobs
from holdfast.blobs.s3 import S3Blobs
from holdfast.features.email.content import (
    MAX_CONTENT_BYTES,
    Content,
    ContentMissing,
    SealedHtml,
    content_in_database,
)
from holdfast.features.email.records import content_key


def folder_content(root, limit=MAX_CONTENT_BYTES):
    return Content(FolderBlobs(root, suffix=".html", place="content folder"), limit=limit)


def bucket_content(bucket, prefix="", limit=MAX_CONTENT_BYTES, **options):
    return Content(S3Blobs(bucket, prefix, suffix=".html", place="content bucket", **options), limit=limit)


class OneRecord:
    """A store in which every key has this record."""

    def __init__(self, record):
        self._record = record

    async def get(self, collection, key):
        return self._record


async def exists(content, company, ref, records=None):
    try:
        await content.hold(company, ref, records)
    except ContentMissing:
        return False
    return True


async def html_in(vault, company, ref, record):
    return await content_in_database(vault).get(company, ref, OneRecord(record))


def html_fields(vault, company, ref, html):
    return SealedHtml(vault).pack(content_key(company, ref), html.encode())
