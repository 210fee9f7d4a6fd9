"""Several processes of the program under one parent: started, watched, restarted, replaced and stopped.

The parent runs no jobs. It opens the API's listening socket, and its children inherit the socket. A connection that
arrives while a child is replaced waits in the socket's backlog, so no connection is refused. Each child holds one end
of a socket pair. The child writes to it when it is ready. When the other end closes, the parent is gone, and the child
stops. Where the kernel can, it also signals the child.
"""

from .member import Duty, Member, end_with_parent, inherited_listener, keep_private, tell_ready
from .supervisor import Restarts, Supervisor

__all__ = [
    "Duty",
    "Member",
    "Restarts",
    "Supervisor",
    "end_with_parent",
    "inherited_listener",
    "keep_private",
    "tell_ready",
]
