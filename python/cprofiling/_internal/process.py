"""Which of several processes this is."""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING

from cprofiling.recording import metadata

if TYPE_CHECKING:
    from typing import Any

_IMPORTED_IN = os.getpid()


def rank() -> int:
    """Return the rank: that of torch.distributed where it is initialised, else the environment's, else 0."""
    distributed = _distributed()
    return metadata.rank() or 0 if distributed is None else int(distributed.get_rank())


def world_size() -> int:
    """Return how many ranks there are, from where the rank is known; at least 1."""
    distributed = _distributed()
    return metadata.world_size() if distributed is None else int(distributed.get_world_size())


def _distributed() -> Any:
    """Return torch.distributed if it is in use, without importing it."""
    module = sys.modules.get("torch.distributed")
    try:
        return module if module is not None and module.is_available() and module.is_initialized() else None
    except Exception:  # noqa: BLE001 the framework's, which may be half imported
        return None


def is_main() -> bool:
    """Whether this is the process that was started by hand: no fork, and no child of multiprocessing's."""
    if not is_as_imported():
        return False
    multiprocessing = sys.modules.get("multiprocessing.process")
    return multiprocessing is None or multiprocessing.parent_process() is None


def is_as_imported() -> bool:
    """Whether this is the process in which the package was imported, and no fork of it."""
    return os.getpid() == _IMPORTED_IN


def host() -> str:
    """Return this machine's name."""
    return socket.gethostname()
