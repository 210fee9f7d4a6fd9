"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="The data folder; otherwise HOLDFAST_DATA. Not used in a cluster.",
        show_default=False,
    ),
]
App = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:APP",
        help="Your own workloads, such as mymodule:app; otherwise HOLDFAST_APP.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output, for scripts.")]
Url = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help="The API's address; otherwise API_HOST and API_PORT.", show_default=False
    ),
]
Actor = Annotated[
    str | None,
    typer.Option("--actor", metavar="WHO", help="Who decides; otherwise your user name.", show_default=False),
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most this many.")]
Cursor = Annotated[
    str | None, typer.Option("--cursor", metavar="NEXT", help="Continue where the last list ended.", show_default=False)
]
Workload = Annotated[str, typer.Option("--workload", metavar="NAME", help="The workload.")]
