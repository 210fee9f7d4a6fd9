"""The child process: ``python -m holdfast.features.documents.child``. The worker starts it; see :mod:`.protocol`."""

from __future__ import annotations

import os
from typing import NoReturn

from .confinement import confine
from .limits import limit_resources, lower_priority
from .port import files_of
from .protocol import Connection


def main() -> NoReturn:
    """Make one attempt, send its messages, and end."""
    worker = Connection()
    spec = worker.spec()
    limit_resources(spec.memory, spec.processor_seconds)
    lower_priority(spec.threads)
    confine(files_of(spec))
    worker.listen()
    from .work import run  # noqa: PLC0415 - after the limits

    run(spec, worker.send, worker.ask)
    # At once: the destructors of native libraries do nothing useful, and may crash.
    os._exit(0)


if __name__ == "__main__":
    main()
