"""BullMQ's Lua, in batches.

BullMQ's scripts are read from the installed ``bullmq`` package and not edited. Each becomes the body of a local
function with the parameters ``KEYS`` and ``ARGV``. A small script of ours (``lua/``) then calls the function once for
each job of a batch. So a batch is one EVALSHA, atomic, and does to each job exactly what BullMQ does.

``now_text()`` is Redis's clock in milliseconds: delays and finish times do not depend on the clocks of workers (I15).
Permits and places use microseconds, so that a limit of thousands in a second is exact too.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

_CLOCK: Final = """
local function now_ms()
  local time = redis.call("TIME")
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function now_text() return string.format("%.0f", now_ms()) end
"""

_FINE_CLOCK: Final = """
local function now_us()
  local time = redis.call("TIME")
  return time[1] * 1000000 + time[2]
end
local function digits(number) return string.format("%.0f", number) end
local function expire_with_last_member(key, now)
  local last = redis.call("ZRANGE", key, -1, -1, "WITHSCORES")
  if last[2] then redis.call("PEXPIRE", key, digits(math.ceil((last[2] - now) / 1000) + 1)) end
end
"""


@dataclass(frozen=True, slots=True)
class Script:
    """Lua text, and its SHA-1 for EVALSHA."""

    name: str
    source: str
    sha: str


def _script(name: str, *shipped: str, clock: str = _CLOCK) -> Script:
    # The name shows in Redis's slow log.
    parts = [f"-- holdfast: {name}", clock, *(_as_function(each) for each in shipped)]
    parts.append((files(__package__) / "lua" / f"{name}.lua").read_text("utf-8"))
    source = "\n".join(parts)
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def shipped_text(name: str) -> str:
    """The text of one of BullMQ's scripts. The number of keys in its file name is ignored."""
    folder = files("bullmq") / "commands"
    for each in folder.iterdir():
        if each.name.rpartition("-")[0] == name:
            return each.read_text("utf-8")
    message = f"The installed bullmq package has no script {name}."
    raise LookupError(message)


def _as_function(name: str) -> str:
    return f"local function {name}(KEYS, ARGV)\n{shipped_text(name)}\nend"


@dataclass(frozen=True, slots=True)
class Scripts:
    """The scripts of the broker."""

    publish: Script
    take: Script
    readopt: Script
    settle: Script
    renew: Script
    recover: Script
    remove: Script
    pause: Script
    look_up: Script
    history: Script
    depth: Script
    acquire: Script
    release: Script
    reserve: Script
    epoch: Script


@cache
def load_scripts() -> Scripts:
    """Read the scripts once in each process."""
    return Scripts(
        publish=_script("publish", "addStandardJob", "addDelayedJob", "addPrioritizedJob", "removeJob"),
        take=_script("take", "moveToActive"),
        readopt=_script("readopt"),
        settle=_script("settle", "moveToFinished", "moveToDelayed", "retryJob", "moveJobFromActiveToWait"),
        renew=_script("renew", "extendLocks"),
        recover=_script("recover", "moveStalledJobsToWait"),
        remove=_script("remove", "removeJob"),
        pause=_script("pause", "pause"),
        look_up=_script("look_up"),
        history=_script("history"),
        depth=_script("depth"),
        acquire=_script("acquire", clock=_FINE_CLOCK),
        release=_script("release", clock=_FINE_CLOCK),
        reserve=_script("reserve", clock=_FINE_CLOCK),
        epoch=_script("epoch"),
    )


@dataclass(frozen=True, slots=True)
class ListScripts:
    """The scripts for plain lists."""

    take: Script
    remove: Script
    send: Script


@cache
def load_list_scripts() -> ListScripts:
    """Read the scripts once in each process."""
    return ListScripts(take=_script("list_take"), remove=_script("list_remove"), send=_script("list_send"))
