"""The cluster's broker: BullMQ's own queues on Redis or Valkey, in BullMQ's own wire format.

Node's BullMQ can produce to and consume from the same queues. Queues are changed only by BullMQ's Lua, unedited, from
the installed ``bullmq`` package (see :mod:`.scripts`). The package's Python ``Worker`` is not used.
"""

from .broker import BullmqBroker
from .lists import RedisLists

__all__ = ["BullmqBroker", "RedisLists"]
