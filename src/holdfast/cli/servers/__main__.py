"""``python -m holdfast.cli.servers FOLDER``: a Valkey and a mongod for trying a cluster, until Ctrl-C or SIGTERM.

In a folder of an earlier run, also of ``holdfast demo --cluster``, they continue with the old data.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from pathlib import Path

from holdfast.cli.failures import INTERRUPTED, MISUSED
from holdfast.cli.output import print_line, say
from holdfast.cli.unwinding import signals_unwind

from . import ServerMissing, ServerPair


def main() -> int:
    """Start both, print their addresses, wait for a signal, stop both. Exit code 2 if they cannot run here."""
    parser = argparse.ArgumentParser("python -m holdfast.cli.servers", description="A Valkey and a mongod in a folder.")
    parser.add_argument("folder", type=Path, help="where their data is, or will be")
    folder: Path = parser.parse_args().folder
    try:
        with signals_unwind():
            _run(folder)
    except KeyboardInterrupt:
        return INTERRUPTED
    except ServerMissing as error:
        for line in f"Error: {error}".splitlines():
            say(line)
        return MISUSED
    return 0


def _run(folder: Path) -> None:
    pair = ServerPair(folder)
    try:
        pair.start()
        with contextlib.suppress(BrokenPipeError):  # the program that reads these lines may end first
            print_line(f"REDIS_URL='{pair.redis_url}'")
            print_line(f"MONGO_URI='{pair.mongo_uri}'")
        say("Both are up. Ctrl-C stops them; their data stays.")
        while True:
            signal.pause()
    finally:
        pair.stop()


if __name__ == "__main__":
    sys.exit(main())
