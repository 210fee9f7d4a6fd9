"""The child's side of the pipes to its worker."""

from __future__ import annotations

import faulthandler
import os
import queue
import signal
import threading

from .limits import end_with_parent
from .protocol import Answer, Message, Question, Spec, decoded, encoded, spec_of

_AT_ONCE = 65_536


class Connection:
    """The pipes from and to the worker. Only we use them: what a library prints goes to standard error."""

    def __init__(self) -> None:
        end_with_parent()
        # Ctrl-C is for the worker, which ends its children.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # A crash in a native library prints the names of functions, without their values.
        faulthandler.enable()
        self._orders, self._answers = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        self._rest = bytearray()
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def spec(self) -> Spec:
        """The first line. This waits without a thread: threads are started when the process is confined."""
        while not (lines := self._read_lines()):
            pass
        first, *others = lines
        for line in others:
            self._lines.put(line)
        return spec_of(first)

    def listen(self) -> None:
        """Begin to take lines, and end this process when the worker closes its side or is gone."""
        threading.Thread(target=self._end_with_worker, daemon=True).start()

    def next_line(self) -> bytes:
        """The next line of the worker."""
        return self._lines.get()

    def ask(self, question: Question) -> str:
        """The text of the model's answer. If there is none, the worker ends this process."""
        self.send(question)
        answer = decoded(self.next_line())
        if not isinstance(answer, Answer):
            message = "not an answer"
            raise TypeError(message)
        return answer.text

    def send(self, message: Message) -> None:
        """Write a message."""
        left = memoryview(encoded(message))
        try:
            while left:
                left = left[os.write(self._answers, left) :]
        except BrokenPipeError:
            # The worker is gone.
            os._exit(1)

    def _end_with_worker(self) -> None:
        while True:
            for line in self._read_lines():
                self._lines.put(line)

    def _read_lines(self) -> list[bytes]:
        data = os.read(self._orders, _AT_ONCE)
        if not data:
            # Also in the middle of the work.
            os._exit(1)
        self._rest += data
        if b"\n" not in data:
            return []
        *lines, self._rest = self._rest.split(b"\n")
        return [bytes(line) for line in lines]
