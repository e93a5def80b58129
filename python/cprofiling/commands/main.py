# PYTHON_ARGCOMPLETE_OK: argcomplete may ask this module how an argument goes on; see completion.py
"""Command ``cprofiling``, its arguments, exit status and output.

Results go to stdout, everything else to stderr. The exit status is 0, 1 after a failure, with one line on stderr, or 2
for invalid arguments; that of ``run`` and ``serve`` is the program's, and ``compare`` has 3 for a slowdown.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from cprofiling import __version__
from cprofiling.commands.compare import add_compare, add_harness, add_merge
from cprofiling.commands.count import add_count
from cprofiling.commands.ncu import add_ncu, add_nsys
from cprofiling.commands.parsing import (
    EXIT_FAILURE,
    INT64_MAX,
    CommandError,
    Parser,
    fail,
    node_glob,
    whole_number,
    write,
)
from cprofiling.commands.report import add_report
from cprofiling.commands.serve import SERVE_OPTIONS, add_control, add_serve
from cprofiling.commands.top import add_top

DEMO_FRAMES, DEMO_BATCH_SIZE, DEMO_SKIPS = 600, 32, 3
DEMO_PACKAGES = ("numpy", "scipy", "sklearn")


class VersionAction(argparse.Action):
    """Prints the version of the package."""

    def __call__(self, parser: argparse.ArgumentParser, *_ignored: object) -> None:
        """Print it and exit. CommandError when it cannot be written."""
        write(f"cprofiling {__version__}")
        parser.exit()


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
        if own[:1] not in (["run"], ["serve"], ["demo"]):
            leave_no_trace()
        options = parsed(own)
        text = options.run(options)
        if text is not None:
            write(text)
        status: int = options.status
    except CommandError as error:
        return fail(str(error), error.status)
    except KeyboardInterrupt:
        return fail("interrupted")
    return status


def parsed(own: list[str]) -> argparse.Namespace:
    """Parse a command line.

    ``program`` has the arguments of a program to run.
    """
    program: list[str] = []
    if own[:1] == ["run"]:
        from cprofiling.commands.program import split

        own[1:], program = split(own[1:])
    elif own[:1] == ["serve"]:
        from cprofiling.commands.program import split

        own[1:], program = split(own[1:], SERVE_OPTIONS)
    elif own[:1] in (["ncu"], ["nsys"]):
        from cprofiling.devices.nsight import tools

        own[1:], program = tools.split(own[1:])
    return parser().parse_args(own, argparse.Namespace(program=program, status=0))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line.

    Each command sets ``run``, which returns the text to print, or None. It may set ``status``, the exit status after
    that.
    """
    made: argparse.ArgumentParser = Parser(
        prog="cprofiling",
        description="The per-node profiler for Python pipelines.",
        epilog="example: cprofiling run train.py && cprofiling report trace.json",
    )
    made.add_argument("--version", action=VersionAction, nargs=0, help="print the version and exit")
    commands = made.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    add_demo(commands)
    add_run(commands)
    add_report(commands)
    add_compare(commands)
    add_count(commands)
    add_ncu(commands)
    add_nsys(commands)
    add_doctor(commands)
    add_harness(commands)
    add_merge(commands)
    add_serve(commands)
    add_control(commands)
    add_top(commands)
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


def add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``demo``."""
    text = "Train, validate and use a classifier of handwritten digits, and print where the time went."
    example = "example: cprofiling demo --frames 2000 --skip-first-n 10"
    made = commands.add_parser("demo", help="profile a real pipeline", description=text, epilog=example)
    made.add_argument(
        "--frames",
        type=whole_number(25, 1_000_000),
        default=DEMO_FRAMES,
        metavar="N",
        help="batches to send through the pipeline in all stages together, at least 25 (default: %(default)s)",
    )
    made.add_argument(
        "--batch-size",
        type=whole_number(1, 10_000),
        default=DEMO_BATCH_SIZE,
        metavar="N",
        help="digits in a batch (default: %(default)s)",
    )
    made.add_argument(
        "--skip-first-n",
        type=whole_number(0, INT64_MAX),
        default=DEMO_SKIPS,
        metavar="N",
        help="first calls of each node to leave out of the statistics (default: %(default)s)",
    )
    made.add_argument(
        "--seed",
        type=whole_number(0, 2**32 - 1),
        default=0,
        metavar="N",
        help="of everything random: equal seeds give equal accuracies (default: %(default)s)",
    )
    made.set_defaults(run=demo)


def add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``run``, with the program's arguments unparsed."""
    made = commands.add_parser(
        "run",
        help="record a program",
        usage="%(prog)s [-h] [-o FILE] [-n GLOB]... [--]\n                      (-m MODULE | SCRIPT) [ARGUMENT]...",
        description="Run a script, a folder or archive with a __main__.py, or a module as Python does, and record it. "
        "PyTorch's operators are not recorded: that needs cprofiling.profile() in the program.",
        epilog="example: cprofiling run -n 'mypkg.stages:*.forward' train.py --epochs 3",
        allow_abbrev=False,
    )
    made.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where the trace goes: .json or .json.gz (default: trace.json)",
    )
    made.add_argument(
        "-n",
        "--node",
        action="append",
        type=node_glob,
        default=[],
        metavar="GLOB",
        help="functions to record as nodes, beside those that the program itself declares: MODULE:FUNCTION, both with "
        "wildcards, the function's name being the qualified one; or MODULE for all of its functions. __main__ is "
        "the program itself. A module that is loaded before the program begins, as Python's start and cprofiling need "
        "some, is meant by its exact name only. May be given several times (default: '__main__:*', if the program "
        "does not mention cprofiling)",
    )
    made.set_defaults(run=run_program, refuse=made.error)


def add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``doctor``."""
    text = "Print what of the profiler works on this machine, and for what does not, why, and what to do about it."
    example = "example: cprofiling doctor --json"
    made = commands.add_parser("doctor", help="tell what works here", description=text, epilog=example)
    made.add_argument("--json", action="store_true", help="print all of it as JSON")
    made.set_defaults(run=doctor)


def demo(options: argparse.Namespace) -> str:
    """Run the demo and return its report."""
    try:
        from cprofiling.commands.digits import run_demo
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in DEMO_PACKAGES:
            raise
        raise CommandError('the demo needs scikit-learn: pip install "cprofiling[demo]"') from None
    return run_demo(
        frames=options.frames,
        batch_size=options.batch_size,
        skip_first_n=options.skip_first_n,
        seed=options.seed,
    )


def run_program(options: argparse.Namespace) -> str:
    """Run and record a program, which begins once this command has unwound."""
    from cprofiling.commands import program

    if not options.program:
        options.refuse("a program is required: SCRIPT or -m MODULE")
    try:
        launch = program.prepare(options.output, options.node, options.program)
    except program.CannotRunError as error:
        raise CommandError(str(error), error.status) from None
    raise launch


def doctor(options: argparse.Namespace) -> str:
    """Return the report on this machine."""
    from cprofiling.commands.doctor import report

    return report(as_json=options.json)
