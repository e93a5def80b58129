"""Command ``run``, to record a program."""

from __future__ import annotations

import argparse
from functools import partial
from typing import NoReturn

from cprofiling.commands import program
from cprofiling.commands.parsing import CommandError, checked, split_program
from cprofiling.nodes.from_patterns.patterns import MOST_FUNCTIONS, Pattern

split = partial(split_program, with_value=("-o", "--output", "-n", "--node"), modules=True)


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Describe the command and add its options."""
    parser.usage = (
        "%(prog)s [-h] [-o FILE] [--all] [-n GLOB]... [--operators]\n"
        "                      [--] (-m MODULE | SCRIPT) [ARGUMENT]..."
    )
    parser.description = (
        "Run a script, a folder or archive with a __main__.py, or a module as Python does, and record it."
    )
    parser.epilog = "example: cprofiling run -n 'mypkg.stages:*.forward' train.py --epochs 3"
    parser.allow_abbrev = False
    output_help = "where the trace goes: .json or .json.gz (default: trace.json)"
    parser.add_argument("-o", "--output", metavar="FILE", help=output_help)
    parser.add_argument(
        "--all",
        action="store_true",
        help=f"record all functions, at most {MOST_FUNCTIONS:,}, in files that are neither installed nor of Python's "
        "library, and say the cost",
    )
    add_nodes(
        parser,
        "functions to record as nodes, beside those that the program declares: MODULE:FUNCTION, both with wildcards, "
        "or MODULE for all of its functions. __main__ is the program itself. Modules that are loaded before the "
        "program begins are meant by exact names only. May be given several times (default: '__main__:*', if the "
        "program does not mention cprofiling)",
    )

    parser.add_argument(
        "--operators",
        action="store_true",
        help="record PyTorch's operators and device work, too, once torch is imported",
    )


def add_nodes(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the option that names functions to be nodes."""
    check = checked(lambda glob: Pattern(glob).text)
    parser.add_argument("-n", "--node", action="append", type=check, default=[], metavar="GLOB", help=text)


def run(options: argparse.Namespace) -> NoReturn:
    """Run and record a program, which begins once this command has unwound."""
    if not options.program:
        options.refuse("a program is required: SCRIPT or -m MODULE")
    try:
        launch = program.prepare(
            options.output, options.node, options.program, takes_users=options.all, operators=options.operators
        )
    except program.CannotRunError as error:
        raise CommandError(str(error), error.status) from None
    raise launch
