# PYTHON_ARGCOMPLETE_OK: argcomplete may ask this module how an argument goes on; see completion.py
"""Command ``cprofiling``, its list of subcommands, exit status and output.

Results go to stdout, everything else to stderr. The exit status is 0, 1 after a failure, with one line on stderr, or 2
for invalid arguments; that of ``run`` and ``serve`` is the program's, and ``compare`` has 3 for a slowdown.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from cprofiling import __version__
from cprofiling._startup import PROGRAMS
from cprofiling.commands.parsing import EXIT_FAILURE, EXIT_INTERRUPTED, CommandError, Parser, fail, write

# A subcommand is the module of its name beside this one, which is imported only for it. The module has
# ``prepare_parser(parser)`` and ``run(options)``, which returns the text to print, or None, and may set
# ``options.status``. A module with ``split(arguments)`` takes a program's arguments off the command's own before these
# are parsed, as ``options.program``.
COMMANDS = {
    "demo": "profile a real pipeline",
    "run": "record a program",
    "report": "show what a file holds, in any format",
    "compare": "compare two runs, or what tests did",
    "count": "count what a pipeline does",
    "ncu": "measure the kernels of a node with NVIDIA Nsight Compute",
    "nsys": "record the calls of a node with NVIDIA Nsight Systems",
    "doctor": "tell what works here",
    "harness": "profile one stage of a pipeline alone",
    "merge": "merge what many ranks or workers wrote",
    "serve": "run a program that can be controlled from outside",
    "control": "switch a served program's profiling",
    "top": "show the statistics of another process live",
    "attach": "measure a program that runs already",
}


class VersionAction(argparse.Action):
    """Prints the version of the package."""

    def __call__(self, parser: argparse.ArgumentParser, *_ignored: object) -> None:
        """Print it and exit. CommandError when it cannot be written."""
        write(f"cprofiling {__version__}")
        parser.exit()


class CommandParser(Parser):
    """Parser of a subcommand that imports its module when needed."""

    def __init__(self, *, command: str, **options: Any) -> None:
        """Accept the command's name, and argparse's keywords."""
        super().__init__(**options, add_help=False)  # all options are added once the command is named
        self._command = command
        self._module: Any = None

    def prepare(self) -> None:
        """Import the module, and add its options."""
        if self._module is None:
            self.add_argument(
                "-h", "--help", action="help", default=argparse.SUPPRESS, help="show this help message and exit"
            )
            self._module = import_module(f"cprofiling.commands.{self._command}")
            self._module.prepare_parser(self)
            self.set_defaults(run=self._module.run, refuse=self.error)

    @property
    def takes_program(self) -> bool:
        """Whether a program and its arguments follow the command's own."""
        return hasattr(self._module, "split")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse the command's arguments, without those of a program."""
        self.prepare()
        own, program = args, []
        if self.takes_program:
            own, program = self._module.split(own)
        options, unknown = super().parse_known_args(own, namespace)
        options.program = program
        return options, unknown


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    arguments: by default those of the process.

    Raises SystemExit with status 2 for wrong arguments, and with status 0 after ``--help`` and ``--version``. The
    commands ``run`` and ``serve`` do not return (see ``program.prepare``).
    """
    own = list(sys.argv[1:] if arguments is None else arguments)
    if "_ARGCOMPLETE" in os.environ and arguments is None:
        from cprofiling.commands import completion

        leave_no_trace()
        completion.answer(parser())
        return EXIT_FAILURE  # without argcomplete there is nothing to propose
    try:
        if not set(own[:1]) & set(PROGRAMS):
            leave_no_trace()
        options = parser().parse_args(own, argparse.Namespace(status=0))
        text = options.run(options)
        if text is not None:
            write(text)
    except CommandError as error:
        return fail(str(error), error.status)
    except KeyboardInterrupt:
        return fail("interrupted", EXIT_INTERRUPTED)
    status: int = options.status
    return status


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made: argparse.ArgumentParser = Parser(
        prog="cprofiling",
        description="The per-node profiler for Python pipelines.",
        epilog="example: cprofiling run train.py && cprofiling report trace.json",
        add_help=False,
    )
    made.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)  # the list of commands fills a screen
    made.add_argument("--version", action=VersionAction, nargs=0, help="print the version and exit")
    commands = made.add_subparsers(
        title="commands", metavar="COMMAND", dest="command", required=True, parser_class=CommandParser, prog=made.prog
    )
    for name, line in COMMANDS.items():
        commands.add_parser(name, help=line, command=name)
    return made


def leave_no_trace() -> None:
    """Disable automatic traces and capture windows for this command.

    The trace may be the very file to be read.
    """
    # These two are not there unless the environment asks.
    capture = sys.modules.get("cprofiling.devices.capture_window")
    if capture is not None:
        capture.say_nothing()
    autostart = sys.modules.get("cprofiling.recording.whole_process")
    if autostart is not None and autostart.Automatic.current is not None:
        if autostart.Automatic.current.output.is_owner:
            os.environ.pop(autostart.OWNER, None)  # a program that this process becomes, or starts, may have it
        autostart.Automatic.current.cancel()
