"""The ``profile`` that records in this process, one at a time."""

from __future__ import annotations

import atexit
import os
import weakref
from _thread import RLock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cprofiling.recording.profile import profile

IN_USE = "a recording is running already: there can be one at a time in a process"


class Claim:
    """Claim to record, without keeping its owner alive.

    An owner that nobody can stop any more would block all others.
    """

    def __init__(self) -> None:
        self.lock = RLock()  # a signal's handler may end a recording while another is being started
        self._owner: weakref.ref[profile] | None = None
        os.register_at_fork(after_in_child=self._after_fork_in_child)
        atexit.register(self._at_exit)

    @property
    def owner(self) -> profile | None:
        """Return the active recording, or None."""
        return None if self._owner is None else self._owner()

    def take(self, owner: profile) -> None:
        """Make this the owner. RuntimeError while another is."""
        held = self.owner
        if held is not None and held is not owner:
            held._make_way()
        with self.lock:
            held = self.owner  # it may have been interrupted before it could give the claim back
            if held is not None and held is not owner and held._running:
                raise RuntimeError(IN_USE)
            self._owner = weakref.ref(owner)

    def give_back(self, owner: profile) -> bool:
        """Release the claim.

        Returns False if another owner has it, who keeps it.
        """
        with self.lock:
            held = self.owner  # None also while it goes: then it is not to be found any more
            if held is not None and held is not owner:
                return False
            self._owner = None
            return True

    def _after_fork_in_child(self) -> None:
        self.lock = RLock()
        owner, self._owner = self.owner, None
        if owner is not None:
            owner._forget()

    def _at_exit(self) -> None:
        owner = self.owner
        if owner is not None:
            owner._end_with_process()
