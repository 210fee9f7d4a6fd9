"""``holdfast demo``: a narrated tour that starts the real program and shows what becomes of events.

``command`` has the options and the exit code; ``tour`` plays the ``chapters`` and compares the ``fates``. They play on
the ``stage``: the ``server`` (the real program), the ``clients`` that talk to it, and a ``downstream`` that misbehaves.
The ``email_chapters`` come next, with a ``mail_server`` that misbehaves too; ``mailing`` knows whether they can come.
The ``document_chapters`` come last, with a page that is made by ``scan``; ``reading`` knows whether they can come. In
both, the ``tenant`` shows its key.
``folder`` guards the data folder, ``leftovers`` knows what an earlier demo left there, and ``narration`` is all that
reaches the terminal.

``deployment`` is where the embedded tour and the tour of a ``cluster`` differ. The cluster tells the same chapters, and
its own (``cluster_chapters``), in one of which a ``external producer`` adds a job.
"""

from .command import demo_command

__all__ = ["demo_command"]
