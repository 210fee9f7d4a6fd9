"""The caller: ``python -m holdfast.features.documents.child.caller``. It sends questions to a model on the network.

It knows the key of the engine, and sees no file. The process that reads the file sees no key and no network.
"""

from __future__ import annotations

import os
from typing import NoReturn

from holdfast.features.documents.engines import ENGINES

from .confinement import confine
from .limits import limit_resources, lower_priority
from .port import model_class
from .protocol import Answer, Connection, Question, decoded


def main() -> NoReturn:
    """Answer questions until the worker has no more. The first failure is the last message."""
    worker = Connection()
    spec = worker.spec()
    key = os.environ.pop(ENGINES[spec.engine].key or "", "")
    limit_resources(spec.memory, spec.processor_seconds)
    lower_priority(spec.threads)
    model = model_class(spec)
    confine([], model.port_of(spec))
    worker.listen()
    from .work import failed  # noqa: PLC0415 - after the limits

    try:
        ask = model.of(spec, key).ask
        while True:
            question = decoded(worker.next_line())
            if not isinstance(question, Question):
                message = "not a question"
                raise TypeError(message)  # noqa: TRY301 - told like all others
            worker.send(Answer(text=ask(question)))
    except Exception as error:  # noqa: BLE001 - the worker must learn of every error
        worker.send(failed(error))
    os._exit(0)


if __name__ == "__main__":
    main()
