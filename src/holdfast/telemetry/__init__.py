"""What happened, said once: code emits events, exporters attach.

An event is a name from ``events``, or what a handler has to say, and a few fields. Nothing personal and nothing secret
goes into one (I14).
"""

from .events import attach, detach, emit
from .failures import emit_failure

__all__ = ["attach", "detach", "emit", "emit_failure"]
