"""The settings of the documents workload: what reads files, where files come from, their size and their retention."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, SecretStr, field_validator

from holdfast import Workload
from holdfast.feature import (
    FeatureSettings,
    Int,
    MaybeInt,
    Settings,
    WebAddress,
    listed,
    lower,
    path,
    refuse,
    weakness,
)

from .engines import ENGINES, Engine

_DAYS: Final = 3_650
_HOUR: Final = 3_600
_GIGABYTE: Final = 1024**3
_LANGUAGE: Final = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})?")
_ATTEMPTS: Final = {"OCR": 3, "TRANSCRIPTION": 2}
"""As in the examples of the specification (D20, D21)."""
_LISTS: Final = ("doc_jobs", "doc_jobs_dead")
_WORD: Final = re.compile(r"[!-~]+")
_TENANT: Final = re.compile(r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Root:
    """A folder that a ``local_path`` may lie in. ``company_id``: only jobs of this tenant may read it."""

    path: Path
    company_id: str | None = None

    def __str__(self) -> str:
        return str(self.path) if self.company_id is None else f"{self.company_id}={self.path}"


def _root(value: object) -> Root:
    """A root as people write it: a folder, or the id of a tenant, ``=`` and a folder."""
    if isinstance(value, Root):
        return value
    owner, mark, folder = str(value).partition("=")
    owned = bool(mark) and _TENANT.fullmatch(owner) is not None  # a folder's name may have a = too
    folder = folder if owned else str(value)
    if not folder or "\0" in folder:
        refuse("must be paths, each alone or after the id of a tenant and =")
    return Root(Path(folder).expanduser().absolute(), owner.lower() if owned else None)


class DocumentSettings(FeatureSettings):
    """What the operator decided about documents."""

    # --- what reads them ----------------------------------------------------------------------------------

    document_engine: Annotated[Engine, BeforeValidator(lower)] = Field(
        "local", description="What reads files, unless the job names it: local (on this machine) or gemini."
    )
    document_language: str | None = Field(
        None, description="The language of files, if the job names none, such as pt; otherwise it is detected."
    )
    document_concurrency: Int = Field(1, ge=1, le=64, description="Files that one worker reads at a time.")
    document_threads: Int = Field(2, ge=1, le=64, description="Processor threads for each of them.")
    document_memory_mb: Int = Field(
        2_048, ge=320, le=1_048_576, description="The most memory that reading one file may take."
    )
    document_timeout_seconds: Int = Field(
        7_200, ge=1, le=24 * _HOUR, description="How long one attempt at a file may take."
    )
    whisper_model_dir: Path | None = Field(
        None, description="A folder with a faster-whisper model; otherwise the packages with Whisper base."
    )
    gemini_api_key: SecretStr | None = Field(None, description="The key for Gemini; without it, gemini is refused.")
    gemini_base_url: WebAddress = Field(None, repr=False, description="Gemini at another address than Google's own.")
    gemini_model: str = Field("gemini-2.5-flash", description="The model of Gemini that reads.")

    # --- where files come from, and how large they may be -------------------------------------------------

    document_max_bytes: Int = Field(
        512 * 1024**2, ge=1_024, le=64 * _GIGABYTE, description="The largest file, uploaded, fetched or local."
    )
    document_max_pages: Int = Field(2_000, ge=1, le=100_000, description="The most pages of one PDF.")
    document_max_media_seconds: Int = Field(
        6 * _HOUR, ge=1, le=7 * 24 * _HOUR, description="The longest recording, in seconds."
    )
    document_max_page_output_bytes: Int = Field(
        2 * 1024**2,
        ge=65_536,
        le=8 * 1024**2,
        description="The most bytes that one page, or one stretch of sound, may give.",
    )
    document_max_output_bytes: Int = Field(
        64 * 1024**2, ge=65_536, le=_GIGABYTE, description="The most bytes of all output files of one job together."
    )
    document_tenant_bytes: Int = Field(
        10 * _GIGABYTE,
        ge=0,
        le=900 * _GIGABYTE,
        description="The most bytes of files that one tenant may have here, unless it has a limit of its own; 0: any.",
    )
    document_roots: tuple[Root, ...] = Field(
        (), description="Folders that a job's local_path may lie in, for all tenants, or for one: <tenant id>=<folder>."
    )
    document_local_path_over_http: bool = Field(
        default=False, description="Whether requests may name a local_path; otherwise only jobs from the queue."
    )
    document_lists: bool = Field(
        default=False,
        description="Whether jobs come from the plain list doc_jobs in Redis too, and letters go to doc_jobs_dead.",
    )
    document_allowed_addresses: Annotated[tuple[str, ...], BeforeValidator(listed)] = Field(
        (), description="Private addresses or networks that urls and callbacks may lead to, such as 10.1.0.0/16."
    )

    # --- where they and their results are kept ------------------------------------------------------------

    document_storage: Annotated[Literal["folder", "s3"], BeforeValidator(lower)] = Field(
        "folder", description="Where uploads and results are kept: folder or s3."
    )
    document_folder: Path | None = Field(
        None, description="The folder for DOCUMENT_STORAGE=folder; otherwise documents/ in the data folder."
    )
    document_bucket: str | None = Field(None, description="The bucket; needed with DOCUMENT_STORAGE=s3.")
    document_prefix: str = Field("documents/", description="What the names of the bucket's objects begin with.")
    document_s3_region: str | None = Field(None, description="The region of the bucket.")
    document_s3_endpoint_url: WebAddress = Field(
        None, repr=False, description="S3 at another address than Amazon's own."
    )
    document_ttl_days: Int = Field(
        Workload.retention.days, ge=1, le=_DAYS, description="How long jobs and their results are kept."
    )
    document_dlq_ttl_days: Int = Field(
        Workload.letter_retention.days, ge=1, le=_DAYS, description="How long dead letters of documents are kept."
    )

    # --- retries and callbacks ----------------------------------------------------------------------------

    document_max_attempts: MaybeInt = Field(
        None, ge=1, le=100, description="Attempts at a file before its dead letter; otherwise 3, for transcription 2."
    )
    document_retry_base_ms: Int = Field(
        5_000, ge=0, le=_HOUR * 1_000, description="The wait after the first failed attempt; it doubles."
    )
    document_callback_secret: SecretStr | None = Field(
        None, description="Signs callbacks (Standard Webhooks, whsec_... or any text); without it there are none."
    )

    # --- rules that a type cannot state -------------------------------------------------------------------

    @field_validator("document_folder", "whisper_model_dir", mode="before")
    @classmethod
    def _document_path(cls, value: object) -> object:
        return path(value)

    @field_validator("document_roots", mode="before")
    @classmethod
    def _roots(cls, value: object) -> object:
        value = listed(value)
        return tuple(_root(each) for each in value) if isinstance(value, list | tuple) else value

    @field_validator("document_language")
    @classmethod
    def _language(cls, value: str | None) -> str | None:
        if value is not None and _LANGUAGE.fullmatch(value) is None:
            refuse("must be a language such as pt, en or pt-BR")
        return value

    @field_validator("document_allowed_addresses")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        try:
            for each in value:
                ipaddress.ip_network(each, strict=False)
        except ValueError:
            refuse("must be addresses or networks, such as 10.1.0.0/16 or 127.0.0.1")
        return value

    @field_validator("document_bucket", "document_prefix", "document_s3_region", "gemini_model")
    @classmethod
    def _plain_word(cls, value: str | None) -> str | None:
        if value and _WORD.fullmatch(value) is None:
            refuse("must be one word of visible ASCII characters")
        return value

    @field_validator("document_callback_secret", "gemini_api_key")
    @classmethod
    def _usable_secret(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and _WORD.fullmatch(value.get_secret_value()) is None:
            refuse("must consist of visible ASCII characters, without spaces")
        return value

    # --- what follows from them ---------------------------------------------------------------------------

    @property
    def roots_by_tenant(self) -> tuple[list[Path], dict[str, list[Path]]]:
        """The roots of all tenants, and the roots of single tenants."""
        own: dict[str, list[Path]] = {}
        for each in self.document_roots:
            if each.company_id is not None:
                own.setdefault(each.company_id, []).append(each.path)
        return [each.path for each in self.document_roots if each.company_id is None], own

    def weak_secrets(self, process: Settings) -> list[str]:
        """A secret of callbacks that can be guessed."""
        del process
        secret = self.document_callback_secret
        return [] if secret is None else weakness("DOCUMENT_CALLBACK_SECRET", secret)

    @property
    def document_attempts(self) -> dict[str, int]:
        """Attempts before the dead letter, by job type."""
        return {name: self.document_max_attempts or usual for name, usual in _ATTEMPTS.items()}

    def problems(self, process: Settings) -> list[str]:
        """One sentence for each setting that is missing or contradicts another."""
        problems = []
        if self.document_storage == "s3" and self.document_bucket is None:
            problems.append("DOCUMENT_STORAGE=s3 needs DOCUMENT_BUCKET.")
        key = ENGINES[self.document_engine].key
        if key is not None and getattr(self, key.lower()) is None:
            problems.append(f"DOCUMENT_ENGINE={self.document_engine} needs {key}.")
        if self.document_local_path_over_http and not self.document_roots:
            problems.append("DOCUMENT_LOCAL_PATH_OVER_HTTP needs DOCUMENT_ROOTS.")
        problems += self._root_problems()
        return problems + (self._list_problems(process) if self.document_lists else [])

    def _root_problems(self) -> list[str]:
        """One sentence if somebody could read the root of a tenant through a root of their own."""
        roots = [(each.company_id, each.path.resolve()) for each in self.document_roots]
        if any(
            owner is not None and owner != other and (path.is_relative_to(outer) or outer.is_relative_to(path))
            for owner, path in roots
            for other, outer in roots
        ):
            return [
                "In DOCUMENT_ROOTS, the folder of one tenant contains a folder that others may read, or lies in one."
            ]
        return []

    def _list_problems(self, process: Settings) -> list[str]:
        """One sentence for each reason why plain lists cannot be used."""
        problems = []
        if not process.cluster:
            problems.append(
                "DOCUMENT_LISTS=true needs a cluster: the lists are in Redis. Set REDIS_URL and MONGO_URI, or unset it."
            )
        if re.split("[{}:]", process.queue_prefix.removeprefix("{"))[0] in _LISTS:
            names = " or ".join(_LISTS)
            problems.append(f"QUEUE_PREFIX must not begin with {names} with DOCUMENT_LISTS=true: those are the lists.")
        return problems
