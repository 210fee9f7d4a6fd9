"""``make bench-documents``: how well and how fast pages and speech are read, and what the gateway adds to it."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import signal
import sys
from pathlib import Path
from typing import Any, Final

from bench.machine import machine

from . import aims, jobs, reading, report, tesseract

_PARTS: Final = ("pages", "text", "speech", "jobs")
_PACKAGES: Final = ("rapidocr", "onnxruntime", "pypdfium2", "faster-whisper")


def main() -> int:
    """Measure and print."""
    arguments = _arguments()
    # So that a time limit, too, ends the processes that we started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    beside = tesseract.installed()
    versions = {name: importlib.metadata.version(name) for name in _PACKAGES}
    figures: dict[str, Any] = {
        "machine": machine(),
        "versions": {**versions, "tesseract": beside.version if beside else None},
        "quick": arguments.quick,
        **_measured(arguments, beside),
    }
    missed = aims.missed(figures)
    report.show(figures, missed)
    if arguments.differences:
        report.show_differences(figures)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({**figures, "missed": missed}, indent=2, ensure_ascii=False) + "\n")
    return 1 if arguments.check and missed else 0


def _measured(arguments: argparse.Namespace, beside: tesseract.Tesseract | None) -> dict[str, Any]:
    quick = arguments.quick
    figures: dict[str, Any] = {}
    if "pages" in arguments.only:
        figures["pages"] = reading.measure_pages(beside, quick=quick, tell=_tell)
    if "text" in arguments.only:
        figures["text_layer"] = reading.measure_text_layer(quick=quick, tell=_tell)
    if "speech" in arguments.only:
        figures["speech"] = reading.measure_speech(quick=quick, tell=_tell)
    if "jobs" in arguments.only:
        figures["jobs"] = jobs.measure(quick=quick, tell=_tell)
    return figures


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-documents", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few pages and half a minute of speech")
    parser.add_argument("--only", choices=_PARTS, nargs="+", default=_PARTS, help="some of it")
    parser.add_argument("--check", action="store_true", help="exit with 1 when an aim is missed")
    parser.add_argument("--differences", action="store_true", help="show each place that was read wrongly")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures to a file, too")
    return parser.parse_args()


def _tell(line: str) -> None:
    """Progress, which is no result."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
