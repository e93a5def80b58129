"""The commands of remote control: ``serve`` and ``top``."""

from __future__ import annotations

import argparse
import os
import sys

from cprofiling.command_line import CommandError, not_empty, whole_number, write

ADDRESS = "127.0.0.1:0"
TOKEN_VARIABLE = "CPROFILING_TOKEN"  # noqa: S105 its name
SERVE_OPTIONS = ("--address", "--session", "-s", "--node", "-n", "--token-file", "--tls-cert", "--tls-key")
INTERVAL_S = 1.0
LEAST_INTERVAL_S, MOST_INTERVAL_S = 0.1, 3600.0
INT32_MAX = 2**31 - 1
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
        usage="%(prog)s [-h] [--address HOST:PORT] [-s NAME=MODULE:ATTRIBUTE]... [-n GLOB]... [--on] "
        "[--token-file FILE] [--tls-cert FILE --tls-key FILE] [--] (-m MODULE | SCRIPT) [ARGUMENT]...",
        description="Run a program as Python does, with a gRPC server beside it, by which others switch profiling on "
        "and off and read the statistics. The session 'default' is the default Profiler, 'nodes' has the functions "
        "that -n names. The address is printed on stderr.",
        epilog="example: cprofiling serve -s main=__main__:pipeline -n 'mypkg.stages:*.forward' app.py",
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
        help="a further session: a pipeline or Profiler of the program, found when a client asks for it; __main__ is "
        "the program itself. May be given several times",
    )
    made.add_argument(
        "-n",
        "--node",
        action="append",
        type=node_glob,
        default=[],
        metavar="GLOB",
        help="functions that are to be nodes, in the session 'nodes'; as of the command run. May be given again",
    )
    made.add_argument("--on", action="store_true", help="have 'default' and 'nodes' on from the beginning")
    add_token(made, "that clients need")
    made.add_argument("--tls-cert", type=not_empty, metavar="FILE", help="the server's certificate with its chain, PEM")
    made.add_argument("--tls-key", type=not_empty, metavar="FILE", help="its private key, PEM")
    made.set_defaults(run=serve, refuse=made.error)


def add_top(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``top``."""
    made = commands.add_parser(
        "top",
        help="show the statistics of another process live",
        description="Show the table of a session of a server, and refresh it until it is interrupted.",
        epilog="example: cprofiling top 127.0.0.1:50051 --session main",
    )
    made.add_argument("address", metavar="ADDRESS", type=not_empty, help="the server's HOST:PORT")
    made.add_argument(
        "--session", type=not_empty, metavar="NAME", help="which session (default: the only one, or 'default')"
    )
    made.add_argument("--stage", metavar="NAME", help="only the nodes of this stage")
    made.add_argument(
        "--interval",
        type=interval,
        default=INTERVAL_S,
        metavar="SECONDS",
        help=f"between two tables, {LEAST_INTERVAL_S} to {MOST_INTERVAL_S:g} (default: %(default)g)",
    )
    made.add_argument("--updates", type=whole_number(1, INT32_MAX), metavar="N", help="end after so many tables")
    add_token(made, "that the server wants")
    made.add_argument(
        "--tls-ca",
        type=not_empty,
        metavar="FILE",
        help="use TLS; who may vouch for the server, PEM: often its certificate",
    )
    made.set_defaults(run=top)


def add_token(made: argparse.ArgumentParser, which: str) -> None:
    """Add the option for a token, which is no argument itself: others could see it there."""
    made.add_argument(
        "--token-file",
        type=not_empty,
        metavar="FILE",
        help=f"has the token {which} in its first line (default: the environment's {TOKEN_VARIABLE})",
    )


def interval(text: str) -> float:
    """Return a number of seconds; for argparse, which refuses what is none, or out of the limits."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not LEAST_INTERVAL_S <= value <= MOST_INTERVAL_S:
        limits = f"from {LEAST_INTERVAL_S} to {MOST_INTERVAL_S:g}"
        raise argparse.ArgumentTypeError(f"expected a number of seconds {limits}, got {text!r}")
    return value


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


def top(options: argparse.Namespace) -> None:
    """Show the tables, to the end; an interrupt is the usual one."""
    needed()
    from cprofiling.server import top as client

    roots = None if options.tls_ca is None else first_bytes(options.tls_ca)
    server = client.Endpoint(options.address, token(options), roots)
    texts = client.tables(
        server, options.session, options.stage, interval_ms=round(options.interval * 1000), updates=options.updates
    )
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    try:
        client.show(texts, write, is_terminal=is_terminal)
    except (client.TopError, ValueError) as error:
        raise CommandError(str(error)) from None
    except KeyboardInterrupt:
        pass
    finally:
        texts.close()


def needed() -> None:
    """Import what remote control needs. CommandError where it is not installed."""
    try:
        import cprofiling.server  # noqa: F401 for what it says
    except ModuleNotFoundError as error:
        raise CommandError(str(error)) from None


def token(options: Any) -> str | None:
    """Return the token that a file or the environment has; None: there is none."""
    if options.token_file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    line, _, _ = first_bytes(options.token_file).partition(b"\n")
    return line.decode("utf-8", "replace").strip()


def first_bytes(path: str) -> bytes:
    """Return what a small file has. CommandError where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(_LONGEST_FILE)
    except OSError as error:
        raise CommandError(f"cannot read {path!a}: {error.strerror}") from None
