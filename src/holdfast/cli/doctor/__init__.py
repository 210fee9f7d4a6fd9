"""``doctor``: check everything that can be wrong, and give advice. Each check gives a finding."""

from __future__ import annotations

import asyncio
import os

import typer

from holdfast import App
from holdfast.cli import options
from holdfast.cli.failures import REFUSED
from holdfast.cli.opening import OWN_WORKLOADS, app_of
from holdfast.cli.output import print_json, say, show_table
from holdfast.config import Settings, app_setting
from holdfast.contracts.errors import HoldfastError, message_of
from holdfast.contracts.redaction import scrub
from holdfast.feature import FAIL, OK, WARN, Finding, Services
from holdfast.installed import cluster_lack, feature_lack, features_of, lacks
from holdfast.wiring import system_ambient

from .cluster import check_cluster
from .environment import clock, configuration, installation, lacking, port, versions
from .ledger import check_data_folder, check_embedded_ledger


def doctor(app: options.App = None, data: options.Data = None, json: options.Json = False) -> None:
    """Check this installation; show how to repair it.

    Exit code 0: nothing is broken (there may be warnings); 1: something is broken.
    """
    own, own_finding = _own(app)
    settings, configured = configuration(own or App(), data)
    findings = [installation(), *versions(embedded=settings is None or not settings.cluster), *configured, clock()]
    findings.append(own_finding)
    if settings is not None:
        findings.append(port(settings))
        findings += asyncio.run(_features(settings, own))
        findings += _ledger(settings, own, broken=own_finding.level == FAIL)
    _report(findings, json=json)


def _own(reference: str | None) -> tuple[App | None, Finding]:
    """The user's app, if it can be imported, and the finding about it."""
    setting = app_setting(os.environ)
    if reference is None and setting is None:
        return None, Finding("app", OK, f"None: only the workloads of features run here. {OWN_WORKLOADS}")
    try:
        own = app_of(reference)
    except HoldfastError as error:
        advice = "Correct this, or the module: until then no command that needs your workloads works."
        return None, Finding("app", FAIL, error.message, advice)
    written = f"--app {reference}" if setting is None or reference is not None else setting.written
    names = ", ".join(workload.name for workload in own.workloads) if own else ""
    if not names and not (own and own.features):
        return own, Finding("app", WARN, f"{written} brings no workload.", "Write one: docs/extending.md shows how.")
    return own, Finding("app", OK, f"{written} brings {names or 'features alone'}.")


async def _features(settings: Settings, own: App | None) -> list[Finding]:
    """The checks of the features: the installed ones and the app's."""
    services = Services(settings, system_ambient())
    found: list[Finding] = []
    for feature in features_of(own):
        lack = feature_lack(feature, settings)
        if lack is not None:
            found.append(lacking(lack, "Not set up here"))
            continue
        try:
            found += await feature.check(settings.of(feature.settings), services)
        except Exception as error:  # noqa: BLE001 - other people's code: its failure is a finding
            why = f"{type(error).__name__}: {scrub(message_of(error))}"
            found.append(Finding(feature.name, FAIL, f"Its check failed: {why}"))
    return found


def _ledger(settings: Settings, own: App | None, *, broken: bool) -> list[Finding]:
    """The checks that open the ledger. ``broken``: the user's app cannot be imported."""
    lack = cluster_lack(settings)
    if lack is not None:
        return [lacking(lack, "None here")]
    if any(each.asked_by is not None for each in lacks(settings, features_of(own))):
        advice = "Install what is missing (see above): until then Holdfast does not start."
        return [Finding("ledger", WARN, "Not checked.", advice)]
    found = [] if settings.cluster else asyncio.run(check_data_folder(settings))
    if broken:
        return [*found, Finding("ledger", WARN, "Not checked, because your app cannot be imported (see above).")]
    return found + asyncio.run((check_cluster if settings.cluster else check_embedded_ledger)(settings, own))


def _report(findings: list[Finding], *, json: bool) -> None:
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
