"""``doctor``: look at everything that can be wrong before it is, and say what to do."""

from __future__ import annotations

import asyncio

import typer

from holdfast.contracts.errors import HoldfastError

from . import options
from .checkup import FAIL, WARN, Finding
from .checkup.cluster import cluster
from .checkup.documents import documents
from .checkup.environment import clock, configuration, port, versions
from .checkup.ledger import ledger
from .checkup.mail import mail
from .checkup.storage import storage
from .failures import REFUSED
from .opening import app_of
from .output import print_json, say
from .tables import show_table


def doctor(app: options.App = None, data: options.Data = None, json: options.Json = False) -> None:
    """Check this installation and say what to do.

    Exit code 0: nothing is broken (there may be warnings); 1: something is.
    """
    settings, told = configuration(data)
    findings = [*versions(embedded=settings is None or not settings.cluster), *told, clock()]
    if settings is not None:
        findings.append(port(settings))
        server = asyncio.run(mail(settings))
        findings += [] if server is None else [server]
        findings += asyncio.run(documents(settings))
        if not settings.cluster:
            findings += asyncio.run(storage(settings))
        try:
            workloads = app_of(app)
        except HoldfastError as error:
            findings.append(Finding("app", FAIL, error.message, "Correct --app, or the module it names."))
        else:
            findings += asyncio.run((cluster if settings.cluster else ledger)(settings, workloads))
    failed = sum(each.level == FAIL for each in findings)
    warned = sum(each.level == WARN for each in findings)
    if json:
        checks = [
            {"check": each.check, "verdict": each.level, "message": each.message, "advice": each.advice}
            for each in findings
        ]
        print_json({"ok": not failed, "failed": failed, "warned": warned, "checks": checks})
    else:
        rows = (
            (each.level, each.check, each.message if each.advice is None else f"{each.message} {each.advice}")
            for each in findings
        )
        show_table(("", "check", "finding"), rows, whole=("", "check"))
        say(f"{failed} broken, {warned} to look at." if failed or warned else "All is well.")
    if failed:
        raise typer.Exit(REFUSED)
