"""A user's own app with schedules, for ``--app tests.cli.reminders:app``."""

from __future__ import annotations

from holdfast import App, Context, Tick

app = App()


@app.schedule("0 7 * * 1-5", timezone="America/Sao_Paulo", jitter="90s")
async def remind(tick: Tick, ctx: Context) -> str:
    return f"reminded at {tick.at:%H:%M}"


@app.schedule(every="1s", catch_up="all", name="poll_the_bank")
def poll(tick: Tick) -> None:
    del tick
