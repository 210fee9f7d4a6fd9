"""Telemetry: code emits events, and exporters receive them.

An event is a name from ``events``, or the message of a handler, with a few fields. An event has nothing personal and
nothing secret in it (I14).
"""

from .events import attach, detach, emit, emit_failure, refusals, refused

__all__ = ["attach", "detach", "emit", "emit_failure", "refusals", "refused"]
