"""Command ``serve``, to run a program with a server beside it."""

from __future__ import annotations

import argparse
import atexit
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from cprofiling._internal import environment
from cprofiling._internal.messages import say
from cprofiling._internal.text import shown_value
from cprofiling.commands import program
from cprofiling.commands.control import TOKEN_VARIABLE, add_token, import_grpc, token
from cprofiling.commands.parsing import CommandError, not_empty, split_program
from cprofiling.commands.run import add_nodes
from cprofiling.nodes import profiler
from cprofiling.nodes.from_patterns import source
from cprofiling.nodes.from_patterns.patterns import Patterns
from cprofiling.nodes.stats import MEDIANS

if TYPE_CHECKING:
    from cprofiling.monitoring.server import Server

DEFAULT = "default"
NAMED = "nodes"  # that the command line names
_WITH_VALUE = ("--address", "--median", "--session", "-s", "--node", "-n", "--token-file", "--tls-cert", "--tls-key")
split = partial(split_program, with_value=_WITH_VALUE, modules=True)


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Describe the command and add its options."""
    parser.usage = "%(prog)s [-h] [OPTION]... [--] (-m MODULE | SCRIPT) [ARGUMENT]..."
    parser.description = (
        "Run a program as Python does, with a gRPC server beside it, by which others switch profiling on and off and "
        "read the statistics. The session 'default' is the default Profiler, 'nodes' what -n names. The address goes "
        "to stderr."
    )
    parser.epilog = "example: cprofiling serve -s main=__main__:pipeline -n 'mypkg:*.forward' app.py"
    parser.allow_abbrev = False
    add = parser.add_argument
    add(
        "--address",
        default="127.0.0.1:0",
        metavar="HOST:PORT",
        help="or unix:PATH, for this user only. What other machines reach needs TLS or a token (default: %(default)s)",
    )
    add_sessions(
        parser, "a further session: a pipeline or Profiler of the program, __main__, or of a module; may be repeated"
    )
    add_nodes(parser, "functions to be nodes, as for run; may be repeated")
    add("--on", action="store_true", help="have 'default' and 'nodes' on from the beginning")
    add("--median", choices=MEDIANS, default=MEDIANS[0], help="with --on: how medians are found (default: %(default)s)")
    add_access(parser)


def add_sessions(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the option for further sessions of a server."""
    parser.add_argument(
        "-s",
        "--session",
        action="append",
        type=_session_place,
        default=[],
        metavar="NAME=MODULE:ATTRIBUTE",
        help=text,
    )


def add_access(parser: argparse.ArgumentParser) -> None:
    """Add options for who may call a server."""
    add_token(parser, "that clients need")
    add = parser.add_argument
    without_help = "want none: all users of this machine may call"
    add("--no-token", action="store_true", help=without_help)
    add("--tls-cert", type=not_empty, metavar="FILE", help="the server's certificate with its chain, PEM")
    add("--tls-key", type=not_empty, metavar="FILE", help="its private key, PEM")


def _session_place(text: str) -> tuple[str, str, str]:
    name, equals, place = text.partition("=")
    module, colon, attribute = place.partition(":")
    if not (name and equals and module and colon and attribute and "\0" not in text):
        raise argparse.ArgumentTypeError(f"expected NAME=MODULE:ATTRIBUTE, got {text!a}")
    return name, module, attribute


def run(options: argparse.Namespace) -> NoReturn:
    """Serve and run a program, which begins once this command has unwound."""
    if not options.program:
        options.refuse("a program is required: SCRIPT or -m MODULE")
    if options.median != MEDIANS[0] and not options.on:
        options.refuse("--median needs --on")
    wanted = checked_access(options)
    import_grpc()
    try:
        served = program.Program(options.program, _NotRecorded(Patterns(options.node)))
        _, lines = serve(options, wanted)
    except program.CannotRunError as error:
        raise CommandError(str(error), error.status) from None
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from None
    if options.on:
        profiler.set_profiling(True, median=options.median)
        source.PROFILER.set_profiling(bool(options.node), median=options.median)
    for line in lines:
        say(line)
    sys.excepthook = served.launcher
    raise program.Launch


def checked_access(options: argparse.Namespace) -> str | None:
    """Return the token that clients need, None where it was not given.

    Raises SystemExit for options of ``add_access`` that do not fit, CommandError for a token that cannot be had.
    """
    if (options.tls_cert is None) != (options.tls_key is None):
        options.refuse("--tls-cert and --tls-key belong together")
    if options.no_token and options.token_file is not None:
        options.refuse("--no-token and --token-file exclude each other")
    if not options.no_token and options.token_file is None and environment.is_set_in_vain(TOKEN_VARIABLE):
        raise CommandError(
            f"{TOKEN_VARIABLE} is set but not followed, as Python runs with -E or -I or with others' rights: use "
            "--token-file FILE, or --no-token to want none"
        )
    return token(options)


def serve(options: argparse.Namespace, wanted: str | None) -> tuple[Server, list[str]]:
    """Start the server, and return it with lines on its address and its clients.

    wanted: the token, None for one of the server's own, unless ``--no-token`` is given.

    Raises what ``cprofiling.server.serve`` raises.
    """
    from cprofiling.monitoring import server
    from cprofiling.monitoring.server.addresses import checked_address, is_local, socket_path
    from cprofiling.monitoring.server.guard import AUTO

    targets: dict[str, Any] = {DEFAULT: profiler.default_profiler}
    if options.node:
        targets[NAMED] = source.PROFILER
    for name, module, attribute in options.session:
        if name in targets:
            raise ValueError(f"there is a session {shown_value(name)} already")
        targets[name] = PlacedPipeline(module, attribute)
    tls = None if options.tls_cert is None else (options.tls_cert, options.tls_key)
    if options.no_token and not is_local(checked_address(options.address)):
        raise ValueError(f"--no-token needs unix:PATH or an address such as 127.0.0.1:0, not {options.address}")
    asked = None if options.no_token else AUTO if wanted is None else wanted
    started = server.serve(targets, address=options.address, tls=tls, token=asked)
    address, told = started.address, []
    if started.token_file is not None:
        told = [f"its token is in {started.token_file!a}, where this user's 'cprofiling control' and 'top' find it"]
    elif options.no_token or wanted is None:
        who = "all users and programs of this machine" if socket_path(address) is None else "this user's programs"
        told = [f"without a token: {who} can control it, clients of cuvis-ai-core among them"]
    return started, [f"serving on {address}", *told]


class PlacedPipeline:
    """Pipeline of the program, looked up at each call as it may change."""

    def __init__(self, module: str, attribute: str) -> None:
        """Note the module's name, and the dotted path in it."""
        self._module = module
        self._attribute = attribute

    @property
    def profiling_enabled(self) -> bool:
        """As of the pipeline."""
        return bool(self._found().profiling_enabled)

    def set_profiling(self, enabled: bool, **options: Any) -> None:
        """As of the pipeline."""
        self._found().set_profiling(enabled, **options)

    def get_profiling_summary(self, stage: str | None) -> Any:
        """As of the pipeline."""
        return self._found().get_profiling_summary(stage)

    def snapshot(self) -> Any:
        """As of the pipeline, None where it has none."""
        take = getattr(self._found(), "snapshot", None)
        return take() if callable(take) else None

    def reset_profiling(self) -> None:
        """As of the pipeline."""
        self._found().reset_profiling()

    def _found(self) -> Any:
        found: Any = sys.modules.get(self._module)
        for name in self._attribute.split("."):
            found = getattr(found, name, None)
        if found is None:
            import grpc

            from cprofiling.monitoring.server.messages import Refusal

            place = shown_value(f"{self._module}:{self._attribute}")
            raise Refusal(grpc.StatusCode.NOT_FOUND, f"the program has no {place} yet")
        return found


class _NotRecorded(program.Recorder):
    """Stand-in for a recording, with nodes and unmatched patterns only."""

    def __init__(self, patterns: Patterns) -> None:
        self.patterns = patterns

    def begin(self) -> None:
        """Report at the end of this process, but not of its children."""
        atexit.register(self._conclude, os.getpid())

    def _conclude(self, speaker: int) -> None:
        if os.getpid() == speaker:
            program.say_unmatched(self.patterns)
