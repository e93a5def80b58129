"""The command ``serve``, and what it shares with ``top``: tokens and certificates."""

from __future__ import annotations

import argparse
import os

from cprofiling import environment, files
from cprofiling.command_line import CommandError, not_empty

ADDRESS = "127.0.0.1:0"
TOKEN_VARIABLE = "CPROFILING_TOKEN"  # noqa: S105 its name
SERVE_OPTIONS = ("--address", "--session", "-s", "--node", "-n", "--token-file", "--tls-cert", "--tls-key")
_OTHERS = 0o027  # what others may not do to a file with a secret: its group may read it
_LONGEST_FILE = 16 * 1024 * 1024  # of tokens and certificates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``serve``. What comes after its own options is not parsed here."""
    from cprofiling.cli import node_glob  # which imports this module

    made = commands.add_parser(
        "serve",
        help="run a program that can be controlled from outside",
        usage="%(prog)s [-h] [OPTION]... [--] (-m MODULE | SCRIPT) [ARGUMENT]...",
        description="Run a program as Python does, with a gRPC server beside it, by which others switch profiling on "
        "and off and read the statistics. The session 'default' is the default Profiler, 'nodes' has the functions "
        "that -n names. The address is printed on stderr.",
        epilog="example: cprofiling serve -s main=__main__:pipeline -n 'mypkg:*.forward' app.py",
        allow_abbrev=False,
    )
    made.add_argument(
        "--address",
        default=ADDRESS,
        metavar="HOST:PORT",
        help="where to serve; port 0: a free one. What others reach needs TLS or a token (default: %(default)s)",
    )
    made.add_argument(
        "-s",
        "--session",
        action="append",
        type=session_place,
        default=[],
        metavar="NAME=MODULE:ATTRIBUTE",
        help="a further session: a pipeline or Profiler of the program, __main__, or of a module; may be repeated",
    )
    made.add_argument(
        "-n",
        "--node",
        action="append",
        type=node_glob,
        default=[],
        metavar="GLOB",
        help="functions that are to be nodes, in the session 'nodes', as for run; may be repeated",
    )
    made.add_argument("--on", action="store_true", help="have 'default' and 'nodes' on from the beginning")
    add_token(made, "that clients need")
    made.add_argument("--tls-cert", type=not_empty, metavar="FILE", help="the server's certificate with its chain, PEM")
    made.add_argument("--tls-key", type=not_empty, metavar="FILE", help="its private key, PEM")
    made.set_defaults(run=serve, refuse=made.error)


def add_token(made: argparse.ArgumentParser, which: str) -> None:
    """Add the option for a token, which is no argument itself: others could see it there."""
    made.add_argument(
        "--token-file",
        type=not_empty,
        metavar="FILE",
        help=f"has the token {which} in its first line (default: the environment's {TOKEN_VARIABLE})",
    )


def session_place(text: str) -> tuple[str, str, str]:
    """Return name, module and attribute of a session; for argparse, which refuses what has not all of them."""
    name, equals, place = text.partition("=")
    module, colon, attribute = place.partition(":")
    if not (name and equals and module and colon and attribute and "\0" not in text):
        raise argparse.ArgumentTypeError(f"expected NAME=MODULE:ATTRIBUTE, got {text!a}")
    return name, module, attribute


def serve(options: argparse.Namespace) -> str:
    """Serve, and run a program; it begins when what is raised here has ended this command."""
    if not options.program:
        options.refuse("a program is required: SCRIPT or -m MODULE")
    if (options.tls_cert is None) != (options.tls_key is None):
        options.refuse("--tls-cert and --tls-key belong together")
    needed()
    from cprofiling.runner import CannotRunError
    from cprofiling.server import serving_program

    tls = None if options.tls_cert is None else (options.tls_cert, options.tls_key)
    try:
        launch = serving_program.prepare(
            options.program,
            options.node,
            sessions=options.session,
            is_on=options.on,
            serving={"address": options.address, "tls": tls, "token": token(options)},
        )
    except CannotRunError as error:
        raise CommandError(str(error), error.status) from None
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from None
    raise launch


def needed() -> None:
    """Import what remote control needs. CommandError where it is not installed."""
    try:
        import cprofiling.server  # noqa: F401 for what it says
    except ModuleNotFoundError as error:
        raise CommandError(str(error)) from None


def token(options: Any) -> str | None:
    """Take the token from a file, or out of the environment, where the program's children would find it.

    Returns None where there is none. CommandError for a file that others may read or change.
    """
    found = environment.text(TOKEN_VARIABLE)
    os.environ.pop(TOKEN_VARIABLE, None)
    if options.token_file is None:
        return found
    line, _, _ = first_bytes(options.token_file, is_secret=True).partition(b"\n")
    return line.decode("utf-8", "replace").strip()


def first_bytes(path: str, *, is_secret: bool = False) -> bytes:
    """Return what a small file has. CommandError where it cannot be read, or is to be secret and is not."""
    try:
        with files.open_to_read(path) as file:
            status = os.fstat(file.fileno())
            if is_secret and (status.st_mode & _OTHERS or status.st_uid not in (0, os.geteuid())):
                advice = f"chmod 600 {path!a}, and chown it to the user that runs this"
                raise CommandError(f"{path!a} is no secret, as other users may read or change it: {advice}")
            return file.read(_LONGEST_FILE)
    except OSError as error:
        raise CommandError(f"cannot read {path!a}: {error.strerror}") from None
