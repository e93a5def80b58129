"""Command ``control``, and the options of all clients of a server."""

from __future__ import annotations

import argparse
import os
import stat
from typing import TYPE_CHECKING

from cprofiling._internal import environment, files
from cprofiling.commands.parsing import CommandError, add_number, not_empty
from cprofiling.nodes.stats import MEDIANS

if TYPE_CHECKING:
    from cprofiling.monitoring.top.from_server import Endpoint

TOKEN_VARIABLE = "CPROFILING_TOKEN"  # noqa: S105 its name
_ACTIONS = {"on": ("reset", "synchronize_cuda", "skip_first_n", "median"), "off": ("reset",), "reset": (), "stages": ()}
_OTHERS = 0o027  # what others may not do to a file with a secret: its group may read it
_LONGEST_FILE = 16 * 1024 * 1024  # of tokens and certificates


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Describe the command and add its options."""
    parser.description = (
        "Switch profiling in a program that serves, discard its statistics, or list the stages that it has statistics "
        "of."
    )
    parser.epilog = "example: cprofiling control 127.0.0.1:50051 on --skip-first-n 10"
    parser.allow_abbrev = False
    add = parser.add_argument
    add("address", metavar="ADDRESS", type=not_empty, help="the server's HOST:PORT, or unix:PATH")
    add("action", choices=tuple(_ACTIONS), metavar="ACTION", help=", ".join(_ACTIONS))
    add("--reset", action="store_true", help="with on or off: discard the statistics first")
    add("--synchronize-cuda", action="store_true", help="with on: wait for the device around each call")
    add_number(parser, "--skip-first-n", 0, 2**31 - 1, "with on: first calls of each node to leave out", 0)
    add("--median", choices=MEDIANS, help="with on: how medians are found (default: histogram)")
    add_client(parser)


def run(options: argparse.Namespace) -> str:
    """Control a session, and return a message."""
    fields = {name: getattr(options, name) for name in _ACTIONS["on"]}
    foreign = [name for name, value in fields.items() if value and name not in _ACTIONS[options.action]]
    if foreign:
        options.refuse(f"--{foreign[0].replace('_', '-')} does not go with {options.action}")
    server = endpoint(options, options.address)
    from cprofiling.monitoring.top import from_server as client

    try:
        return client.control(server, options.session, options.action, **fields)
    except (client.TopError, ValueError) as error:
        raise CommandError(str(error)) from None


def add_client(parser: argparse.ArgumentParser) -> None:
    """Add options for a server's session."""
    session_help = "of a server (default: the only one, or 'default')"
    parser.add_argument("--session", type=not_empty, metavar="NAME", help=session_help)
    add_token(parser, "that the server wants")
    tls_help = "use TLS; who may vouch for the server, PEM"
    parser.add_argument("--tls-ca", type=not_empty, metavar="FILE", help=tls_help)


def add_token(parser: argparse.ArgumentParser, which: str) -> None:
    """Add the option for a token file, as arguments are visible to others."""
    parser.add_argument(
        "--token-file",
        type=not_empty,
        metavar="FILE",
        help=f"its first line is the token {which} (default: ${TOKEN_VARIABLE})",
    )


def endpoint(options: argparse.Namespace, address: str) -> Endpoint:
    """Return the server of ``add_client``'s options.

    Raises CommandError if a file cannot be read, or without gRPC.
    """
    import_grpc()
    from cprofiling.monitoring.top.from_server import Endpoint

    return Endpoint(address, token(options), None if options.tls_ca is None else first_bytes(options.tls_ca))


def import_grpc() -> None:
    """Import gRPC. CommandError if it is not installed."""
    try:
        import cprofiling.monitoring.server  # noqa: F401 for what it says
    except ModuleNotFoundError as error:
        raise CommandError(str(error)) from None


def token(options: argparse.Namespace) -> str | None:
    """Return the token from a file or the environment, or None.

    It is removed from the environment, where child processes would find it. Raises CommandError for a file that others
    may read or change.
    """
    found = environment.text(TOKEN_VARIABLE)
    os.environ.pop(TOKEN_VARIABLE, None)
    if options.token_file is None:
        return found
    line, _, _ = first_bytes(options.token_file, is_secret=True).partition(b"\n")
    return line.decode("utf-8", "replace").strip()


def first_bytes(path: str, *, is_secret: bool = False) -> bytes:
    """Return the contents of a small file.

    Raises CommandError if it cannot be read, or is not secret as required.
    """
    try:
        with files.open_to_read(path) as file:
            status = os.fstat(file.fileno())
            if is_secret and (status.st_mode & _OTHERS or status.st_uid not in (0, os.geteuid())):
                now = f"mode {stat.S_IMODE(status.st_mode):04o}, user {status.st_uid}"
                advice = f"chmod 600 {path!a}, and chown it to the user that runs this"
                raise CommandError(f"{path!a} is no secret, as other users may read or change it ({now}): {advice}")
            return file.read(_LONGEST_FILE)
    except OSError as error:
        raise CommandError(f"cannot read {path!a}: {error.strerror}") from None
