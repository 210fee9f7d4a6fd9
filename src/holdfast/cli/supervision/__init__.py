"""Several processes of the program under one parent: started, watched, restarted, replaced and stopped.

The parent does no work of its own. It opens the API's listening socket, which its children inherit: a connection that
comes while a child is replaced waits in the socket's backlog, and none is refused. Each child holds one end of a socket
pair: over it the child tells that it is ready, and by its end the child learns that the parent is gone.
"""

from .lifeline import inherited_listener, keep_private, tell_ready
from .member import Duty, Member
from .restarts import Restarts
from .supervisor import Supervisor

__all__ = ["Duty", "Member", "Restarts", "Supervisor", "inherited_listener", "keep_private", "tell_ready"]
