"""Whole jobs through the embedded gateway, from the first byte of the upload to COMPLETED, beside the child alone."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import httpx

from bench.email import Site
from bench.gateway import running

from . import child, material

Figures = dict[str, Any]

_PATH: Final = "/v1/documents"
_LOOK_EVERY: Final = 0.1
_PATIENCE: Final = 600.0


def measure(*, quick: bool, tell: Callable[[str], None]) -> list[Figures]:
    """A scan that is read page by page, and a long PDF of which only the text is taken out."""
    rounds = 1 if quick else 3
    scanned, born = (2, 60) if quick else (10, 300)
    files = {
        "scan": (scanned, material.scan_of(scanned)),
        "born-digital": (born, material.born_digital(born)[0]),
    }
    figures = []
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        site = Site(Path(folder) / "data")
        key = site.tenant("bench")
        with running("up", site.data) as gateway:
            address, bearer = f"http://{gateway.host}:{gateway.port}", {"authorization": f"Bearer {key}"}
            with httpx.Client(base_url=address, headers=bearer, timeout=_PATIENCE) as client:
                for name, (pages, pdf) in files.items():
                    # One after the other, so that other load on the machine falls on both.
                    pairs = [(child.read(pdf, kind="PDF").seconds, _job(client, pdf, pages)) for _ in range(rounds)]
                    figures.append(run := _figures(name, pages, pairs))
                    tell(f"{name}, {pages} pages as a job: {run['seconds']:.2f} s, {run['overhead_seconds']:+.2f} s")
    return figures


def _job(client: httpx.Client, pdf: bytes, pages: int) -> float:
    """Hand a file in and wait for its result: seconds."""
    # The gateway's clock is ours: what it says of the end needs no finer look than we take.
    began = time.time()
    form = {"job_type": "OCR", "input_type": "PDF", "cache": "false"}
    answer = client.post(_PATH, data=form, files={"file": ("bench.pdf", pdf)}).raise_for_status()
    address = f"{_PATH}/{answer.json()['job_id']}"
    deadline = time.monotonic() + _PATIENCE
    while (job := client.get(address).raise_for_status().json())["status"] != "COMPLETED":
        if job["status"] in {"FAILED", "CANCELLED"} or time.monotonic() > deadline:
            message = f"A job of {pages} pages is {job['status']}: {job['error']}"
            raise RuntimeError(message)
        time.sleep(_LOOK_EVERY)
    if job["pages"] != pages or job["attempts"] != 1:
        message = f"A job of {pages} pages ended with {job['pages']} after {job['attempts']} attempts."
        raise RuntimeError(message)
    return datetime.fromisoformat(job["finished_at"]).timestamp() - began


def _figures(name: str, pages: int, pairs: list[tuple[float, float]]) -> Figures:
    alone = statistics.median(first for first, _ in pairs)
    whole = statistics.median(second for _, second in pairs)
    return {
        "name": name,
        "pages": pages,
        "rounds": len(pairs),
        "seconds": whole,
        "lowest": min(second for _, second in pairs),
        "highest": max(second for _, second in pairs),
        "child_seconds": alone,
        "overhead_seconds": statistics.median(second - first for first, second in pairs),
        "pages_per_minute": 60 * pages / whole,
    }
