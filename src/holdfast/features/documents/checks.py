"""Checks of the documents workload: can files be read, and results be stored."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from holdfast import ConfigurationError, HoldfastError
from holdfast.feature import FAIL, OK, WARN, Finding, Services, install_command, missing_libraries

from .child.confinement import Confinement
from .child.whisper_files import model_problem
from .engines import ENGINES, engine_keys
from .feature import DocumentService, document_options
from .files import RESULTS
from .running import confinement_here
from .settings import DocumentSettings


async def checked(settings: DocumentSettings, services: Services) -> list[Finding]:
    """All checks of documents. They leave nothing behind."""
    found = [_engine(settings), *_model(settings), *_roots(settings), _callbacks(settings, services)]
    return [*found, confinement_finding(await confinement_here()), await _storage(settings, services)]


def _engine(settings: DocumentSettings) -> Finding:
    check = "documents"
    with_key = {name: kind for name, kind in ENGINES.items() if kind.key in engine_keys(settings)}
    for kind in with_key.values():
        if kind.library is not None and missing_libraries([kind.library]):
            message = f"There is a {kind.key}, and {kind.library} is not installed."
            return Finding(check, WARN, message, install_command([kind.library]))
    others = "".join(f" Jobs may ask for {name}." for name in with_key if name != settings.document_engine)
    return Finding(check, OK, f"They are read by {settings.document_engine}.{others}")


def _model(settings: DocumentSettings) -> Iterator[Finding]:
    """The model that transcribes speech. Without it PDFs are still read."""
    check = "speech model"
    folder = settings.whisper_model_dir
    problem = model_problem(None if folder is None else str(folder))
    if problem is None:
        yield Finding(check, OK, "Whisper base, as published." if folder is None else f"{folder} can be used.")
    elif settings.document_engine != "local":
        yield Finding(check, OK, f"None here; {settings.document_engine} transcribes speech.")
    else:
        message, _, advice = problem.partition(". ")
        remedy = advice or "Correct WHISPER_MODEL_DIR"
        yield Finding(check, WARN, f"{message.rstrip('.')}.", f"{remedy.rstrip('.')}; until then recordings fail.")


def _roots(settings: DocumentSettings) -> Iterator[Finding]:
    check = "document roots"
    folders = [each.path for each in settings.document_roots]
    bad = [each for each in folders if not each.is_dir() or not os.access(each, os.R_OK | os.X_OK)]
    for each in bad:
        advice = "Make it, or correct DOCUMENT_ROOTS: jobs that name a file there fail."
        yield Finding(check, WARN, f"{each} is not a folder that can be read.", advice)
    if folders and not bad:
        who = "requests and queues" if settings.document_local_path_over_http else "queues"
        yield Finding(check, OK, f"A local_path may be in {', '.join(map(str, settings.document_roots))} ({who}).")
    if settings.document_local_path_over_http and (shared := settings.roots_by_tenant[0]):
        advice = "With several tenants, give each its own: DOCUMENT_ROOTS=<tenant id>=<folder>."
        yield Finding(check, OK, f"Every tenant may read {', '.join(map(str, shared))}.", advice)
    if not folders:
        yield Finding(check, OK, "None: no local_path is read.")


def _callbacks(settings: DocumentSettings, services: Services) -> Finding:
    check = "document callbacks"
    try:
        documents = DocumentService(settings, services)
    except ConfigurationError as error:
        return Finding(check, FAIL, error.message, "Correct this setting.")
    if documents.callbacks is None:
        advice = "Set it if senders want callbacks."
        return Finding(check, OK, "None: there is no DOCUMENT_CALLBACK_SECRET.", advice)
    return Finding(check, OK, "Callbacks are signed and sent.")


def confinement_finding(has: Confinement) -> Finding:
    """What a file could do that takes over the process that reads it. Without confinement files are still read."""
    check = "document confinement"
    could, missing = [], []
    if not has.landlock:
        could.append("read and change all files of this user")
        missing.append("Landlock")
    if not has.seccomp:
        could.append("start programs and use " + ("local sockets" if has.network_namespace else "the network"))
        missing.append("seccomp")
    if could:
        message = f"A file that takes over the process that reads it could {', and '.join(could)}."
        advice = (
            f"Run workers where processes may use {' and '.join(missing)}: Linux from 5.13 on, on x86_64 or aarch64."
        )
        return Finding(check, WARN, message, advice)
    by = ", ".join([f"Landlock {has.landlock}", "seccomp", *(["network namespace"] if has.network_namespace else [])])
    return Finding(check, OK, f"A file is read without the network, other files and other processes ({by}).")


async def _storage(settings: DocumentSettings, services: Services) -> Finding:
    check = "document storage"
    if settings.document_storage == "s3":
        return await _bucket(settings, services)
    folder = document_options(settings, services.settings).scratch.parent.absolute()
    place = next(each for each in (folder, *folder.parents) if each.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        advice = "Let this user write there, or set DOCUMENT_FOLDER to another folder."
        return Finding(check, FAIL, f"{place} cannot be written to.", advice)
    there = f"{folder} can be written to." if place == folder else f"{folder} will be made at the first start."
    return Finding(check, OK, there)


async def _bucket(settings: DocumentSettings, services: Services) -> Finding:
    """Request a result that does not exist. This shows whether the bucket can be reached and read."""
    check = "document storage"
    with tempfile.TemporaryDirectory(prefix="holdfast-doctor-") as scratch:
        try:
            files = DocumentService(settings.model_copy(update={"document_folder": Path(scratch)}), services).files
            await files.open()
            try:
                place = "/".join(filter(None, (settings.document_prefix.strip("/"), RESULTS, "doctor", "0")))
                await files.touch(output_path=f"s3://{settings.document_bucket}/{place}")
            finally:
                await files.close()
        except HoldfastError as error:
            advice = "Correct the DOCUMENT_* settings or the credentials; until then uploads are refused."
            return Finding(check, FAIL, error.message, advice)
    return Finding(check, OK, f"The bucket {settings.document_bucket} answers.")
