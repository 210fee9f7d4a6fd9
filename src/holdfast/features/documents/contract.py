"""The job in the ledger and in the queue ``doc_jobs``. Its fields are in snake_case, as in the specification."""

from __future__ import annotations

import re
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any, Final

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from holdfast import described

from .engines import Engine

JOB_ID: Final = described(
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$",
    "must be 1 to 128 letters, digits, dots, dashes and underscores, and begin with a letter or a digit",
)
LANGUAGE: Final = described(r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})?$", "must be the code of a language, such as en or pt-BR")
_DIGEST: Final = described(r"^[0-9a-f]{64}$", "must be 64 hexadecimal characters in lower case")
_UPLOAD_ID: Final = described(r"^[0-9a-f]{32}$", "must be 32 hexadecimal characters in lower case")
_TENANT_MARK: Final = 16
"""Hexadecimal digits of the hash of a tenant's id, at the end of a key."""
MOST_METADATA: Final = 16 * 1024
"""Bytes of ``metadata`` as JSON."""


FLAT_ONLY: Final = ("created_at",)
"""A field that only the flat job of an external producer has. It is kept with the payload, and not used."""


class JobType(StrEnum):
    """What is wanted."""

    OCR = "OCR"
    TRANSCRIPTION = "TRANSCRIPTION"


class InputType(StrEnum):
    """What the file is."""

    PDF = "PDF"
    VIDEO = "VIDEO"
    AUDIO = "AUDIO"


FITTING: Final = {
    JobType.OCR: frozenset({InputType.PDF}),
    JobType.TRANSCRIPTION: frozenset({InputType.VIDEO, InputType.AUDIO}),
}
"""The input that each job type can be done with."""


class AsGiven(BaseModel):
    """A part of the job that stays as it was given: a field that was not given is absent, not null (D11)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_serializer(mode="wrap")
    def _without_absent(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        unknown = self.model_extra or {}
        return {name: value for name, value in plain(self).items() if value is not None or name in unknown}


class Upload(AsGiven):
    """A file that came with the request. It is stored here, named by its content and by ``upload_id``.

    Each request has a file of its own, so that a file can be deleted when its request is refused. A file of an older
    version has no ``upload_id``.
    """

    sha256: str = Field(pattern=_DIGEST)
    size: int = Field(ge=0)
    upload_id: str | None = Field(default=None, pattern=_UPLOAD_ID)
    filename: str | None = Field(default=None, max_length=255)


class DocumentPayload(AsGiven):
    """The sender's fields: where the file is, and how to read it. Exactly one of url, local_path and upload.

    Unknown fields come from producers that put jobs straight into the queue. They are kept.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    url: Annotated[str, Field(min_length=1, max_length=4_000)] | None = None
    local_path: Annotated[str, Field(min_length=1, max_length=1_000)] | None = None
    upload: Upload | None = None
    language: Annotated[str, Field(pattern=LANGUAGE)] | None = None
    engine: Engine | None = None
    metadata: dict[str, JsonValue] | None = None
    callback_url: Annotated[str, Field(min_length=1, max_length=2_000)] | None = None
    cache: bool | None = None
    strict: bool | None = None

    @model_validator(mode="after")
    def _one_source(self) -> DocumentPayload:
        given = [name for name in ("url", "local_path", "upload") if getattr(self, name) is not None]
        if len(given) != 1:
            message = "must have exactly one of url, local_path and upload"
            raise ValueError(message)
        if self.local_path is not None and re.search(r"[\x00-\x1f\x7f]", self.local_path):
            message = "local_path must have no control characters"
            raise ValueError(message)
        return self


def key_of(job_id: str, company_id: str) -> str:
    """The key of a job whose id a tenant chose. Two tenants may choose the same id, and neither learns of the other.

    The end has always the same length, so two keys are equal only if both the id and the tenant are.
    """
    return f"{job_id}.{sha256(company_id.encode()).hexdigest()[:_TENANT_MARK]}"


class DocumentJob(AsGiven):
    """One file to be read. Its dead letter shows ``payload``. ``company_id`` names the tenant.

    ``scoped``: the tenant chose ``job_id``, so the id is unique for this tenant only. A job of an external producer and
    a job of an older version have no ``scoped``: their ``job_id`` is their key.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    job_id: str = Field(pattern=JOB_ID)
    job_type: JobType
    input_type: InputType
    payload: DocumentPayload
    company_id: str | None = Field(default=None, max_length=128)
    replay_of: str | None = Field(default=None, max_length=128)
    scoped: bool | None = None

    @property
    def key(self) -> str:
        """The key of the job in the ledger, in its records and in the names of its files."""
        return self._key_of(self.job_id)

    @property
    def replayed_key(self) -> str | None:
        """The key of the job that this job replays."""
        return None if self.replay_of is None else self._key_of(self.replay_of)

    def _key_of(self, job_id: str) -> str:
        return key_of(job_id, self.company_id) if self.scoped and self.company_id is not None else job_id

    @model_validator(mode="after")
    def _fits(self) -> DocumentJob:
        if self.input_type not in FITTING[self.job_type]:
            fitting = " or ".join(sorted(FITTING[self.job_type]))
            message = f"{self.job_type.value} needs input_type {fitting}"
            raise ValueError(message)
        return self
