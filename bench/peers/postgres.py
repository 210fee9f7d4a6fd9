"""A PostgreSQL for the time of a run: the programs that the machine has, with the settings that they come with."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from holdfast.cli.servers import ServerMissing, ServerProcess, free_port

_USERS: Final = ("postgres", "nobody")
_DEBIAN: Final = Path("/usr/lib/postgresql")


def programs() -> Path:
    """The folder of initdb, postgres and psql."""
    found = [path.parent for path in sorted(_DEBIAN.glob("*/bin/initdb"))]
    if (program := shutil.which("initdb")) is not None:
        found.append(Path(program).resolve().parent)
    if not found:
        message = "There is no PostgreSQL here. On Debian: apt-get install postgresql"
        raise ServerMissing(message)
    return found[-1]


class PostgresServer(ServerProcess):
    """One server on the loopback. PostgreSQL refuses to run as root, who therefore starts it as another user."""

    def __init__(self, folder: Path) -> None:
        self._programs = programs()
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            names = {each.pw_name for each in pwd.getpwall()}
            user = next((name for name in _USERS if name in names), None)
            if user is None:
                message = "PostgreSQL does not run as root, and there is no user for it."
                raise ServerMissing(message)
            self._as = {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
        self._data = folder / "data"
        port = free_port()
        command = [
            *(str(self._programs / "postgres"), "-D", str(self._data), "-p", str(port), "-h", "127.0.0.1"),
            *("-k", ""),
        ]
        super().__init__("postgres", command, folder, port, **self._as)

    def start(self) -> None:
        """Make a database cluster and start it."""
        self.folder.mkdir(parents=True)
        if self._as:
            shutil.chown(self.folder, self._as["user"])
        made = subprocess.run(
            [self._programs / "initdb", "-D", self._data, "-U", "bench", "--auth", "trust", "--encoding", "UTF8"],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            **self._as,
        )
        if made.returncode:
            message = f"initdb failed: {made.stderr[-500:]}"
            raise ServerMissing(message)
        super().start()

    def answers(self) -> bool:
        """Whether it takes queries."""
        return self._psql("postgres", "SELECT 1").returncode == 0

    def url(self, database: str) -> str:
        """The address of a database."""
        return f"postgresql://bench@127.0.0.1:{self.port}/{database}"

    def ask(self, database: str, query: str) -> str:
        """The answer to one query."""
        answer = self._psql(database, query)
        if answer.returncode:
            raise RuntimeError(answer.stderr)
        return answer.stdout.strip()

    def _psql(self, database: str, query: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._programs / "psql", "--no-psqlrc", "-Atc", query, self.url(database)],
            capture_output=True,
            text=True,
            check=False,
        )
