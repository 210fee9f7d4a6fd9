"""The figures for a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from .aims import MOST_CHARACTERS, MOST_WORDS

Figures = Mapping[str, Any]

_WIDTH: Final = 124
"""Of a page that is no terminal."""
_MEGABYTE: Final = 1024 * 1024
_UNKNOWN: Final = "unknown"


def show(figures: Figures, missed: Sequence[str]) -> None:
    """Print everything."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    _show_machine(console, figures)
    if "pages" in figures:
        _show_pages(console, figures["pages"], figures["versions"]["tesseract"])
    if "text_layer" in figures:
        _show_text_layer(console, figures["text_layer"])
    if "speech" in figures:
        _show_speech(console, figures["speech"])
    if "jobs" in figures:
        _show_jobs(console, figures["jobs"])
    for sentence in missed or ["All aims are reached."]:
        console.print(sentence, highlight=False, markup=False)


def show_differences(figures: Figures) -> None:
    """Print every place where something else was read than stands there."""
    console = Console(soft_wrap=True)
    pages = figures.get("pages", {"sets": ()})["sets"]
    layer = [{"name": "born-digital", **figures["text_layer"]}] if "text_layer" in figures else []
    for run in (*pages, *layer, *figures.get("speech", ())):
        for line in run["differences"]:
            console.print(f"{run['name']}: {line}", highlight=False, markup=False)


def _show_machine(console: Console, figures: Figures) -> None:
    machine, versions = figures["machine"], figures["versions"]
    beside = versions["tesseract"]
    for line in (
        f"Machine: {machine['processor']}, {machine['system']}; load average before the run: {machine['load_before']}.",
        f"Python {machine['python']}, rapidocr {versions['rapidocr']}, onnxruntime {versions['onnxruntime']}, "
        f"pypdfium2 {versions['pypdfium2']}, faster-whisper {versions['faster-whisper']}; "
        + (f"Tesseract {beside}." if beside else "Tesseract is not installed: nothing stands beside our pages."),
        "What else runs on this machine changes speeds and times, and never the error rates.",
    ):
        console.print(line, highlight=False, soft_wrap=True)


def _show_pages(console: Console, pages: Figures, tesseract: str | None) -> None:
    table = _table("Scanned pages", "wrong", "rate", "pages/min", "cpu s", "memory")
    if tesseract:
        for column in ("Tesseract", "pages/min", "cpu s", "memory"):
            table.add_column(column, justify="right")
    for run in (*pages["sets"], pages["all"]):
        beside = run["tesseract"]
        table.add_row(
            f"{run['name']} ({run['pages']})",
            f"{run['wrong']}",
            _percent(run["character_error_rate"]),
            *_page_speed(run),
            *((_percent(beside["character_error_rate"]), *_page_speed(beside)) if beside else ()),
            end_section=run is pages["sets"][-1],
        )
    everything = pages["all"]
    table.caption = (
        f"In parentheses: pages; {everything['characters']:,} characters in all. Aim: at most "
        f"{100 * MOST_CHARACTERS:g} % wrong in each line. 200 dpi, 11 points, Helvetica and Times. Wrong: characters "
        "by Levenshtein's distance, white space of any length as one blank. Starting the child and loading models, "
        f"{everything['start_seconds']:.1f} s for each file, is in its processor time for a page, not in pages/min. "
        "Memory: the most that it ever had. Ours has two threads; Tesseract, which is started for each page, has one."
    )
    console.print(table)


def _page_speed(run: Figures) -> tuple[str, str, str]:
    return f"{run['pages_per_minute']:.0f}", f"{run['cpu_seconds_per_page']:.1f}", _memory(run["peak_bytes"])


def _show_text_layer(console: Console, run: Figures) -> None:
    table = _table("Born-digital PDFs", "wrong characters", "pages/s", "whole", "processor", "peak memory")
    table.add_row(
        f"text layer ({run['pages']})",
        f"{run['wrong']} of {run['characters']:,}",
        f"{run['pages_per_second']:,.0f}",
        f"{run['seconds']:.2f} s",
        f"{run['cpu_seconds']:.2f} s",
        _memory(run["peak_bytes"]),
    )
    table.caption = "Whole: with starting and ending the child."
    console.print(table)


def _show_speech(console: Console, runs: Sequence[Figures]) -> None:
    table = _table(
        "Recorded speech", "length", "wrong words", "rate", "real-time factor", "whole", "processor", "peak memory"
    )
    for run in runs:
        table.add_row(
            run["name"],
            f"{run['seconds']:.0f} s in {run['chunks']}",
            f"{run['wrong']} of {run['words']}",
            _percent(run["word_error_rate"]),
            f"{run['real_time_factor']:.2f}",
            f"{run['real_time_factor_whole']:.2f}",
            f"{run['cpu_seconds']:.1f} s",
            _memory(run["peak_bytes"]),
        )
    table.caption = (
        f"Aim: at most {100 * MOST_WORDS:g} % in each line. Two people who speak English, over and over, in stretches "
        "of about a minute. Words: lower-cased, without punctuation. Whole: with starting the child, decoding, and "
        "loading the model."
    )
    console.print(table)


def _show_jobs(console: Console, runs: Sequence[Figures]) -> None:
    table = _table("Whole jobs", "median", "range", "pages/min", "child alone", "gateway adds")
    for run in runs:
        table.add_row(
            f"{run['name']} ({run['pages']})",
            f"{run['seconds']:.2f} s",
            f"{run['lowest']:.2f} to {run['highest']:.2f} s",
            f"{run['pages_per_minute']:,.0f}",
            f"{run['child_seconds']:.2f} s",
            f"{run['overhead_seconds']:+.2f} s",
        )
    table.caption = (
        f"Rounds: {runs[0]['rounds']}. From the first byte of the upload to COMPLETED, through `holdfast up` with "
        "default settings; the same file in the child alone, alternating."
    )
    console.print(table)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left")
    table.add_column("what", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _percent(rate: float) -> str:
    return f"{100 * rate:.2f} %"


def _memory(peak: int | None) -> str:
    return _UNKNOWN if peak is None else f"{peak / _MEGABYTE:,.0f} MB"
