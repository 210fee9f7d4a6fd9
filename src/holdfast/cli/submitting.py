"""``submit``: submit a job through the API, for workloads without their own routes."""

from __future__ import annotations

import asyncio
from typing import Annotated
from urllib.parse import quote

import typer

from . import options
from .arguments import content
from .failures import Stop
from .posting import Answer, base_url, connected, post, report
from .settings import settings_with


def submit(
    workload: Annotated[str, typer.Argument(help="The workload's name.", show_default=False)],
    document: Annotated[
        str,
        typer.Argument(metavar="JSON|@FILE", help="The job, as the workload's contract has it.", show_default=False),
    ],
    url: options.Url = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="OPERATOR_TOKEN",
            help="The operator token; otherwise the configured one. Others on this machine can see an option: prefer "
            "the variable or the file.",
            show_default=False,
        ),
    ] = None,
    delay_ms: Annotated[
        int, typer.Option(min=0, max=31_536_000_000, help="Milliseconds to wait before the job starts.")
    ] = 0,
    priority: Annotated[
        int, typer.Option(min=0, max=2_097_152, help="A smaller number runs first; 0 is first of all.")
    ] = 0,
    json: options.Json = False,
) -> None:
    """Submit a job to one of your own workloads.

    The API checks it against the workload's contract. Exit code 0: accepted; 1: refused; 2: could not be sent.
    """
    body = content("The body", document)
    settings = None if url is not None and token is not None else settings_with()
    where = base_url(url, settings)
    if token is None and settings is not None and settings.operator_token is not None:
        token = settings.operator_token.get_secret_value()
    if token is None or not token.isascii() or not token.isprintable() or " " in token:
        message = "This needs the operator token: set OPERATOR_TOKEN, or operator_token in holdfast.toml."
        raise Stop(message)
    bearer = f"Bearer {token}"

    async def posted() -> Answer:
        async with connected(where) as client:
            path = f"/v1/jobs/{quote(workload, safe='')}"
            query = {name: value for name, value in {"delayMs": delay_ms, "priority": priority}.items() if value}
            return await post(client, path, body, {"authorization": bearer}, **query)

    report(asyncio.run(posted()), where, json=json)
