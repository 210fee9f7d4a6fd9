"""``holdfast demo``: a narrated tour that starts the real program and shows what becomes of events.

``command`` has the options and the exit code; ``tour`` plays the ``chapters`` and compares the ``fates``. They play on
the ``stage``: the ``server`` (the real program), the ``clients`` that talk to it, and a ``downstream`` that misbehaves.
``folder`` guards the data folder, and ``narration`` is all that reaches the terminal.
"""

from .command import demo_command

__all__ = ["demo_command"]
