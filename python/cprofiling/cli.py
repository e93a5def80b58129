"""The command ``cprofiling``: its arguments, its exit status, and where its output goes.

Results go to stdout, everything else to stderr. The exit status is 0, or 1 after a failure, which one line on stderr
explains, or 2 for arguments that make no sense.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

EXIT_FAILURE = 1
DEMO_FRAMES, DEMO_BATCH_SIZE, DEMO_SKIPS = 600, 32, 3
DEMO_PACKAGES = ("numpy", "scipy", "sklearn")
INT64_MAX = 2**63 - 1


class CommandError(Exception):
    """A failure that the user should read about in one line."""


class VersionAction(argparse.Action):
    """Prints the version of the installed package, which is looked up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_ignored: object) -> None:
        """Print it and exit. CommandError where the package was never installed."""
        from importlib import metadata

        try:
            version = metadata.version("cprofiling")
        except metadata.PackageNotFoundError:
            raise CommandError("the version is not known, as the package was never installed") from None
        write(f"cprofiling {version}")
        parser.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with ``arguments`` (default: those of the process) and return its exit status, 0 or 1.

    Raises SystemExit with status 2 for wrong arguments, and with status 0 after ``--help`` and ``--version``.
    """
    try:
        options = parser().parse_args(arguments)
        write(options.run(options))
    except CommandError as error:
        return fail(str(error))
    except KeyboardInterrupt:
        return fail("interrupted")
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line. Each command sets ``run``, which returns the text to print."""
    made = argparse.ArgumentParser(prog="cprofiling", description="The per-node profiler for Python pipelines.")
    made.add_argument("--version", action=VersionAction, nargs=0, help="print the version and exit")
    add_demo(made.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True))
    return made


def add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``demo``."""
    text = "Train, validate and use a classifier of handwritten digits, and print where the time went."
    made = commands.add_parser("demo", help="profile a real pipeline", description=text)
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


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """Return a converter of arguments for argparse, which refuses all but the integers from ``low`` to ``high``."""

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"expected a whole number from {low} to {high}, got {text!r}")
        return value

    return convert


def demo(options: argparse.Namespace) -> str:
    """Run the demo and return its report."""
    try:
        from cprofiling.demo import run_demo
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


def write(text: str) -> None:
    """Print a result on stdout. CommandError when it cannot be written."""
    try:
        print(text, flush=True)
    except OSError as error:
        raise CommandError(f"cannot write to stdout: {error.strerror}") from None


def fail(message: str) -> int:
    """Say on stderr, in one line, what went wrong, and return the exit status for it."""
    print(f"cprofiling: {message}", file=sys.stderr)
    return EXIT_FAILURE
