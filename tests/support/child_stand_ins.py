"""Children that misbehave: a small program each, run in the place of the process that reads documents.

This file is the program: ``stand_in("crash", "SIGSEGV")`` is the command that runs the function of that name. It needs
nothing but the standard library, so that it starts quickly. Those that say where they are in a ``stage`` message say
it as JSON, and :func:`heard` reads it.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def stand_in(name: str, *arguments: object) -> list[str]:
    """The command that runs one of the children below."""
    return [sys.executable, "-S", __file__, name, *map(str, arguments)]


def heard(message) -> dict:
    """What a child said of itself."""
    return json.loads(message.stage)


def say(what: str, **fields) -> None:
    os.write(1, json.dumps({"is": what, **fields}).encode() + b"\n")


def say_of_itself(**facts) -> None:
    say("stage", stage=json.dumps({"pid": os.getpid(), **facts}))


def say_plan(units: int) -> None:
    say("plan", units=units, unit="page", engine="local", model="none")


def wait_for(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.005)


def sleep_for_ever() -> None:
    while True:
        time.sleep(60)


# --- the children -----------------------------------------------------------------------------------------------------


def well_behaved() -> None:
    spec = json.loads(sys.stdin.readline())
    say_of_itself(spec=spec, environment=dict(os.environ), leads=os.getsid(0) == os.getpid())
    say_plan(2)
    for index in range(2):
        say("unit", index=index, result={"text": f"page {index}"})
    say("finished")
    sleep_for_ever()


def asking(times: int) -> None:
    """Asks the model without ever delivering a page."""
    sys.stdin.readline()
    for _ in range(int(times)):
        say("question", kind="page", media_type="image/png", content="aGVsbG8=")
        say("stage", stage=sys.stdin.readline().strip())
    say("finished")


def asking_and_dying() -> None:
    sys.stdin.readline()
    say("question", kind="page", media_type="image/png", content="aGVsbG8=")
    say("stage", stage="asked")
    os._exit(7)


def failing(line: str) -> None:
    os.write(1, line.encode() + b"\n")
    sleep_for_ever()


def crash(how: str, words: str = "") -> None:
    say_plan(3)
    for index in range(2):
        say("unit", index=index, result={})
    os.write(2, words.encode())
    if how.isdigit():
        os._exit(int(how))
    os.kill(os.getpid(), getattr(signal, how))


def endless_line() -> None:
    while True:
        os.write(1, b"x" * 65536)


def closing() -> None:
    say_plan(3)
    os.close(1)
    sleep_for_ever()


def looping() -> None:
    say_of_itself()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        pass


def chattering() -> None:
    say_of_itself()
    while True:
        say("stage", stage="again")
        time.sleep(0.001)


def writing_much(progress: str, lines: int) -> None:
    with Path(progress).open("w", encoding="ascii") as told:
        for index in range(int(lines)):
            say("unit", index=index, result={"text": "x" * 100_000})
            told.write(".")
            told.flush()
    say("finished")


def leaving_in_a_hurry(go: str) -> None:
    say_of_itself()
    wait_for(go)
    for index in range(20):
        say("unit", index=index, result={"text": "x" * 1000})
    say("finished")


def taking_memory(size: int, *, shared: str = "") -> None:
    say_of_itself()
    taken = mmap.mmap(-1, int(size)) if shared else bytearray(int(size))
    for place in range(0, int(size), 4096):
        taken[place] = 1
    sleep_for_ever()


def crash_full_of_memory(size: int, go: str) -> None:
    taken = bytearray(int(size))
    for place in range(0, int(size), 4096):
        taken[place] = 1
    say_of_itself()
    wait_for(go)
    os.kill(os.getpid(), signal.SIGSEGV)


def with_a_family(how: str, *, apart: str = "") -> None:
    """Starts a process that ignores SIGTERM and holds all the pipes, in a session of its own when ``apart``."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    other = subprocess.Popen([sys.executable, "-S", __file__, "sleep_for_ever"], start_new_session=bool(apart))
    say_of_itself(other=other.pid)
    if how == "ends":
        os._exit(7)
    sleep_for_ever()


if __name__ == "__main__":
    _, name, *arguments = sys.argv
    positional = [each for each in arguments if not each.startswith("--")]
    globals()[name](*positional, **{each[2:]: "yes" for each in arguments if each.startswith("--")})
