"""``holdfast demo``: a guided tour that starts the real program and shows what it does with events.

- ``command``: the options and the exit code.
- ``tour``: runs the ``chapters`` and compares the ``fates`` with the expected ones.
- ``stage``: the parts that chapters use: the ``server`` (the real program), the ``clients``, and a ``downstream`` and a
  ``mail_server`` that fail on request.
- ``email_chapters`` and ``document_chapters``: run after the others, if their libraries are installed (``mailing`` and
  ``reading`` check that). The ``tenant`` has the API key for both; ``scan`` makes a scanned page.
- ``folder``: the demo's data folder. ``leftovers``: files of an earlier demo. ``narration``: all terminal output.
- ``deployment``: the differences between the embedded tour and the tour of a ``cluster``. The cluster has more chapters
  (``cluster_chapters``); in one of them an ``external_producer`` adds a job.
"""

from .command import demo_command

__all__ = ["demo_command"]
