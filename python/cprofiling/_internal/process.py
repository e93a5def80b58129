"""Which of several processes this is."""

from __future__ import annotations

import os
import re
import shlex
import sys
from _thread import RLock
from collections.abc import Callable
from types import FunctionType
from typing import Any
from weakref import ref

_IMPORTED_IN = os.getpid()
_SECRET = re.compile(  # a name of an option or a setting
    r"-{0,2}([\w.-]*(passw(or)?d|passphrase|secret|credential|(api|access|auth|private)[-_]?(key|token))[\w.-]*"
    r"|([\w.-]*[-_.])?(key|token))",
    re.IGNORECASE,
)
_USER = re.compile(r"://[^/@\s]+@")  # of a URL, maybe with a password
_MOST_COMMAND = 1000  # characters
_FORK_SERVER = "multiprocessing.forkserver import main"  # in the command that multiprocessing gives to Python
_DEAD = "ZX"  # states of ended processes that wait for their parent
_START = 19  # the field of the start in /proc/PID/stat, counted from behind the name


def known_rank() -> int | None:
    """Return the rank in torch.distributed where it is in use, else in the environment.

    None where neither tells it.
    """
    distributed = _distributed()
    return _number("RANK") if distributed is None else int(distributed.get_rank())


def rank() -> int:
    """Return the rank, 0 where it is not known."""
    return known_rank() or 0


def world_size() -> int:
    """Return how many ranks there are, at least 1, as for the rank."""
    distributed = _distributed()
    return (_number("WORLD_SIZE") or 1) if distributed is None else int(distributed.get_world_size())


def _number(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() and len(text) < 19 else None


def _distributed() -> Any:
    """Return torch.distributed if it is in use, without importing it."""
    module = sys.modules.get("torch.distributed")
    try:
        return module if module is not None and module.is_available() and module.is_initialized() else None
    except Exception:  # noqa: BLE001 the framework's, which may be half imported
        return None


def is_main() -> bool:
    """Whether this is no fork and no child of multiprocessing."""
    if not is_as_imported():
        return False
    return not is_of_multiprocessing()


def is_of_multiprocessing() -> bool:
    """Whether multiprocessing started this process, to work or to fork those that do."""
    module = sys.modules.get("multiprocessing.process")
    if module is None or module.parent_process() is not None:
        return module is not None
    return any(_FORK_SERVER in argument for argument in sys.orig_argv)  # it may load the program


def is_as_imported() -> bool:
    """Whether the package was imported in this process, not before a fork."""
    return os.getpid() == _IMPORTED_IN


def unkept(hook: Callable[[], object]) -> Callable[[], object]:
    """Return a function that calls a hook, or method of an object, while there is one.

    What the interpreter keeps to its end would hold the whole package, which may be removed and imported anew. So does
    a function written here, by its globals.
    """
    owner = getattr(hook, "__self__", hook)
    name = "__call__" if owner is hook else hook.__name__
    return FunctionType(_call_if_there.__code__, {}, "unkept", (ref(owner), name))


def _call_if_there(held: ref[Any], name: str) -> None:
    getattr(held(), name, bool)()


def call_at_fork(**hooks: Callable[[], object]) -> None:
    """Register hooks as ``os.register_at_fork`` does, which are ``unkept``."""
    os.register_at_fork(**{when: unkept(hook) for when, hook in hooks.items()})


def hold_at_fork(lock: RLock) -> None:
    """Hold a lock around each fork, so that no other thread has it in the child.

    There it is free at once, and, unlike a lock that is made anew, also for the hooks of others that run before ours.
    """
    call_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


def host() -> str:
    """Return this machine's name."""
    return os.uname().nodename


def is_first_with(owner: str) -> bool:
    """Return whether no parent process uses this variable."""
    own = f"{os.getpid()}:{started_ticks()}"
    return os.environ.setdefault(owner, own) == own


def started_ticks(pid: int | str = "self") -> int | None:
    """Return the start of a process in ticks since boot, stable across exec.

    0 if it cannot be read, None if the process has ended.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return None if fields[0] in _DEAD else int(fields[_START])
    except (FileNotFoundError, ProcessLookupError):
        return None
    except (OSError, IndexError, ValueError):
        return 0


def command() -> str:
    """Return the command line without secrets, cut where it is long.

    Left out are values whose names sound like secrets, and users of URLs.
    """
    words: list[str] = []
    is_secret = False
    for word in map(str, getattr(sys, "orig_argv", None) or ()):
        name, equals, _ = word.partition("=")
        is_named = _SECRET.fullmatch(name) is not None
        shown = f"{name}=HIDDEN" if is_named and equals else _USER.sub("://HIDDEN@", word)
        words.append("HIDDEN" if is_secret else shown)
        is_secret = is_named and not equals and word.startswith("-")
    line = shlex.join([os.path.basename(word) for word in words[:1]] + words[1:])
    return line if len(line) <= _MOST_COMMAND else f"{line[:_MOST_COMMAND]}..."
