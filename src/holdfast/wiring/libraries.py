"""Which libraries the settings need, which of them are missing, and which setting needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from holdfast.config import Settings
from holdfast.contracts.errors import ConfigurationError
from holdfast.contracts.extras import install_command, missing_libraries
from holdfast.features.documents.engines import ENGINES

Part = Literal["cluster", "documents", "emails"]

CLUSTER: Final = ("bullmq", "msgpack", "pymongo", "redis")
EMAILS: Final = ("cryptography", "email_validator")
"""What every transport needs. SMTP and SES need a library more."""
DOCUMENTS: Final = ("av", "faster_whisper", "pypdfium2", "python_multipart", "rapidocr")
"""What the local engine needs. Gemini and S3 need a library more."""


@dataclass(frozen=True, slots=True)
class Lack:
    """Libraries that a part of Holdfast needs and that are not installed here.

    ``asked_by`` is the setting that needs the part. None: no setting needs it, and Holdfast runs without the part.
    """

    part: Part
    missing: tuple[str, ...]
    asked_by: str | None = None

    @property
    def message(self) -> str:
        """What is missing, in one sentence."""
        who = f"{self.asked_by} needs" if self.asked_by else f"{self.part.capitalize()} need"
        return f"{who} what is not installed here: {', '.join(self.missing)}."

    @property
    def remedy(self) -> str:
        """The command that installs it."""
        return install_command(self.missing)


def lacks(settings: Settings) -> list[Lack]:
    """Every part of Holdfast for which a library is missing."""
    found = (cluster_lack(settings), email_lack(settings), document_lack(settings))
    return [each for each in found if each is not None]


def require_libraries(settings: Settings) -> None:
    """Raise :class:`ConfigurationError` if a setting needs a part whose libraries are not installed.

    The error has everything that is missing, and one command that installs all of it.
    """
    _refuse([each for each in lacks(settings) if each.asked_by is not None])


def is_left_out(lack: Lack | None) -> bool:
    """Whether Holdfast runs without this part. Raises :class:`ConfigurationError` if a setting needs the part."""
    if lack is not None and lack.asked_by is not None:
        _refuse([lack])
    return lack is not None


def cluster_lack(settings: Settings) -> Lack | None:
    """What Redis and MongoDB need, if the settings name them."""
    return _lack("cluster", CLUSTER, ["REDIS_URL with MONGO_URI"]) if settings.cluster else None


def email_lack(settings: Settings) -> Lack | None:
    """What sending emails needs, in the way that the settings choose."""
    amazon = settings.email_transport == "ses" or settings.email_content == "s3"
    smtp = settings.email_transport == "smtp"
    needed = (*EMAILS, *(("aiobotocore",) if amazon else ()), *(("aiosmtplib",) if smtp else ()))
    needed_by = {
        f"EMAIL_TRANSPORT={settings.email_transport}": settings.email_transport != "folder",
        f"EMAIL_CONTENT={settings.email_content}": settings.email_content != "database",
        "EMAIL_PEPPER": settings.email_pepper is not None,
    }
    return _lack("emails", needed, [name for name, needs in needed_by.items() if needs])


def document_lack(settings: Settings) -> Lack | None:
    """What reading documents needs, with the engine and the storage that the settings choose."""
    amazon, library = settings.document_storage == "s3", ENGINES[settings.document_engine].library
    needed = (*DOCUMENTS, *(("aiobotocore",) if amazon else ()), *((library,) if library else ()))
    needed_by = {
        "DOCUMENT_STORAGE=s3": amazon,
        f"DOCUMENT_ENGINE={settings.document_engine}": settings.document_engine != "local",
        "DOCUMENT_LISTS=true": settings.document_lists,
        "DOCUMENT_ROOTS": bool(settings.document_roots),
        "DOCUMENT_CALLBACK_SECRET": settings.document_callback_secret is not None,
    }
    return _lack("documents", needed, [name for name, needs in needed_by.items() if needs])


def _refuse(refused: Sequence[Lack]) -> None:
    if refused:
        command = install_command(library for each in refused for library in each.missing)
        raise ConfigurationError(" ".join([*(each.message for each in refused), f"Install it: {command}"]))


def _lack(part: Part, needed: Sequence[str], needed_by: Sequence[str]) -> Lack | None:
    missing = tuple(missing_libraries(needed))
    return Lack(part, missing, needed_by[0] if needed_by else None) if missing else None
