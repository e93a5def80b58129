"""Files by which clients of the same user find a server's token.

Each is in a folder of mode 0700. Its first line is the token, its second one the address. The rest is the head of a
live file, which tells the process from a later one with its number.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from cprofiling import _core
from cprofiling._internal import environment, files
from cprofiling.monitoring.server.addresses import checked_address, is_local, socket_path, split_address
from cprofiling.nodes.live_file import HEAD_SIZE, head_from_bytes, own_head

_MOST_BYTES = 3 * HEAD_SIZE


def call_metadata(address: str, token: str | None = None) -> tuple[tuple[str, str], ...]:
    """Return the metadata that calls to a server need.

    Args:
        address: ``host:port`` or ``unix:PATH``.
        token: Of a server; None: the one in the token file of a server of this user on this machine, if any.

    Raises TypeError or ValueError for what is no address, TypeError for what is no token.
    """
    wanted = checked_address(address)
    if not isinstance(token, (str, type(None))):
        raise TypeError(f"token must be a str or None, got {type(token).__name__}")
    if token is None and socket_path(wanted) is None:
        host, asked = split_address(wanted)
        for _, alive, served, its in _read_all():
            own, port = split_address(served)
            # No other address will do: another user may listen at it, and would get the token.
            is_reached = own == host or (own == "::" and is_local(wanted))
            is_reached |= (own, host) == ("0.0.0.0", "127.0.0.1")  # noqa: S104 nothing is bound to it
            if alive and port == asked and is_reached:
                token = its
                break
    return () if token is None else (("authorization", f"Bearer {token}"),)


def write(address: str, token: str) -> str:
    """Write a token file and return its path, removing those of dead servers.

    Raises OSError where this user has no folder for it.
    """
    for path, alive, _, _ in _read_all():
        if alive is False:
            with suppress(OSError):
                os.unlink(path)
    folders = _folders()
    for folder in folders:
        with suppress(OSError):
            files.make_folders(folder)
            files.close(_opened_privately(folder))
            path = os.path.join(folder, f"{os.urandom(8).hex()}.token")
            with files.atomic_writer(path) as file:
                file.write(f"{token}\n{address}\n".encode("ascii") + own_head().to_bytes())
            return path
    tried = ", ".join(map(ascii, folders)) or "this user has no home"
    raise OSError(f"no folder for a token file that is this user's only ({tried}): give token or set XDG_CACHE_HOME")


def _folders() -> list[str]:
    """Return where token files may be, without following foreign variables."""
    runtime = environment.given("XDG_RUNTIME_DIR") or ""
    home = environment.given("HOME") or ""
    if not os.path.isdir(home):
        with suppress(KeyError):
            home = pwd.getpwuid(os.geteuid()).pw_dir
    cache = environment.given("XDG_CACHE_HOME") or (os.path.join(home, ".cache") if os.path.isdir(home) else "")
    found = [runtime] if os.path.isdir(runtime) else []  # whoever made the variable makes the folder
    return [os.path.join(each, "cprofiling") for each in (*found, cache) if os.path.isabs(each)]


def _opened_privately(name: str, _flags: int = 0, *, folder: int | None = None) -> int:
    """Open a folder, or a file in one, that only this user can change or read.

    Raises OSError for anything else, also a link.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_DIRECTORY if folder is None else 0)
    opened = os.open(name, flags, dir_fd=folder)
    try:
        status = os.fstat(opened)
        is_alone = folder is None or (stat.S_ISREG(status.st_mode) and status.st_nlink == 1)
        if not is_alone or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise PermissionError(f"{name!a} is not this user's only")
    except BaseException:
        files.close(opened)
        raise
    return opened


def _read_all() -> Iterator[tuple[str, bool | None, str, str]]:
    """Yield path, state, address and token of this user's servers.

    The state is None for those of another machine with the same home, or of another container.
    """
    for folder in _folders():
        with suppress(OSError):
            opened = _opened_privately(folder)
            try:
                names = [name for name in os.listdir(opened) if name.endswith(".token")]
                for name in names:
                    with suppress(OSError, ValueError, _core.FormatError):
                        with open(name, "rb", opener=partial(_opened_privately, folder=opened)) as file:
                            token, address, head = file.read(_MOST_BYTES).split(b"\n", 2)
                        alive = head_from_bytes(head).is_alive()
                        yield os.path.join(folder, name), alive, address.decode("ascii"), token.decode("ascii")
            finally:
                files.close(opened)
