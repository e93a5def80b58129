"""Commands ``serve`` and ``control``, with tokens and certificates."""

from __future__ import annotations

import argparse
import os
import stat
from typing import TYPE_CHECKING

from cprofiling._internal import environment, files
from cprofiling.commands.parsing import CommandError, node_glob, not_empty, whole_number

ADDRESS = "127.0.0.1:0"
TOKEN_VARIABLE = "CPROFILING_TOKEN"  # noqa: S105 its name
ACTIONS = ("on", "off", "reset", "stages")
_FIELDS = {"on": ("reset", "synchronize_cuda", "skip_first_n"), "off": ("reset",)}  # that options may set
SERVE_OPTIONS = ("--address", "--session", "-s", "--node", "-n", "--token-file", "--tls-cert", "--tls-key")
_OTHERS = 0o027  # what others may not do to a file with a secret: its group may read it
_LONGEST_FILE = 16 * 1024 * 1024  # of tokens and certificates

if TYPE_CHECKING:
    from typing import Any

    from cprofiling.monitoring.top.from_server import Endpoint


def add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``serve``, with the program's arguments unparsed."""
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
        help="or unix:PATH, for this user only. What others reach needs TLS or a token (default: %(default)s)",
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
    made.add_argument(
        "--no-token",
        action="store_true",
        help="want none, as clients of cuvis-ai-core have none",
    )
    made.add_argument("--tls-cert", type=not_empty, metavar="FILE", help="the server's certificate with its chain, PEM")
    made.add_argument("--tls-key", type=not_empty, metavar="FILE", help="its private key, PEM")
    made.set_defaults(run=serve, refuse=made.error)


def add_control(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``control``."""
    made = commands.add_parser(
        "control",
        help="switch a served program's profiling",
        description="Switch profiling in a program that serves, discard its statistics, or list the stages that it "
        "has statistics of.",
        epilog="example: cprofiling control 127.0.0.1:50051 on --skip-first-n 10",
        allow_abbrev=False,
    )
    made.add_argument("address", metavar="ADDRESS", type=not_empty, help="the server's HOST:PORT, or unix:PATH")
    made.add_argument("action", choices=ACTIONS, metavar="ACTION", help=", ".join(ACTIONS))
    made.add_argument("--reset", action="store_true", help="with on or off: discard the statistics first")
    made.add_argument("--synchronize-cuda", action="store_true", help="with on: wait for the device around each call")
    made.add_argument(
        "--skip-first-n",
        type=whole_number(0, 2**31 - 1),
        default=0,
        metavar="N",
        help="with on: first calls of each node to leave out (default: %(default)s)",
    )
    add_client(made)
    made.set_defaults(run=control, refuse=made.error)


def control(options: argparse.Namespace) -> str:
    """Control a session, and return a message."""
    fields = {name: getattr(options, name) for name in ("reset", "synchronize_cuda", "skip_first_n")}
    foreign = [name for name, value in fields.items() if value and name not in _FIELDS.get(options.action, ())]
    if foreign:
        options.refuse(f"--{foreign[0].replace('_', '-')} does not go with {options.action}")
    server = endpoint(options, options.address)
    from cprofiling.monitoring.top import from_server as client

    try:
        return client.control(server, options.session, options.action, **fields)
    except (client.TopError, ValueError) as error:
        raise CommandError(str(error)) from None


def add_client(made: argparse.ArgumentParser) -> None:
    """Add options for a server's session."""
    made.add_argument(
        "--session", type=not_empty, metavar="NAME", help="of a server (default: the only one, or 'default')"
    )
    add_token(made, "that the server wants")
    made.add_argument("--tls-ca", type=not_empty, metavar="FILE", help="use TLS; who may vouch for the server, PEM")


def endpoint(options: argparse.Namespace, address: str) -> Endpoint:
    """Return the server of ``add_client``'s options.

    Raises CommandError if a file cannot be read.
    """
    needed()
    from cprofiling.monitoring.top.from_server import Endpoint

    return Endpoint(address, token(options), None if options.tls_ca is None else first_bytes(options.tls_ca))


def add_token(made: argparse.ArgumentParser, which: str) -> None:
    """Add the option for a token file, as arguments are visible to others."""
    made.add_argument(
        "--token-file",
        type=not_empty,
        metavar="FILE",
        help=f"has the token {which} in its first line (default: the environment's {TOKEN_VARIABLE})",
    )


def session_place(text: str) -> tuple[str, str, str]:
    """Parse name, module and attribute of a session for argparse."""
    name, equals, place = text.partition("=")
    module, colon, attribute = place.partition(":")
    if not (name and equals and module and colon and attribute and "\0" not in text):
        raise argparse.ArgumentTypeError(f"expected NAME=MODULE:ATTRIBUTE, got {text!a}")
    return name, module, attribute


def serve(options: argparse.Namespace) -> str:
    """Serve and run a program, which begins once this command has unwound."""
    if not options.program:
        options.refuse("a program is required: SCRIPT or -m MODULE")
    if (options.tls_cert is None) != (options.tls_key is None):
        options.refuse("--tls-cert and --tls-key belong together")
    if options.no_token and options.token_file is not None:
        options.refuse("--no-token and --token-file exclude each other")
    if not options.no_token and options.token_file is None and environment.is_set_in_vain(TOKEN_VARIABLE):
        raise CommandError(
            f"{TOKEN_VARIABLE} is set but not followed, as Python runs with -E or -I or with others' rights: use "
            "--token-file FILE, or --no-token to want none"
        )
    needed()
    from cprofiling.commands import serving_program
    from cprofiling.commands.program import CannotRunError

    tls = None if options.tls_cert is None else (options.tls_cert, options.tls_key)
    try:
        launch = serving_program.prepare(
            options.program,
            options.node,
            sessions=options.session,
            is_on=options.on,
            serving={"address": options.address, "tls": tls, "token": token(options)},
            is_open=options.no_token,
        )
    except CannotRunError as error:
        raise CommandError(str(error), error.status) from None
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from None
    raise launch


def needed() -> None:
    """Import gRPC.

    Raises CommandError if it is not installed.
    """
    try:
        import cprofiling.monitoring.server  # noqa: F401 for what it says
    except ModuleNotFoundError as error:
        raise CommandError(str(error)) from None


def token(options: Any) -> str | None:
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
