"""Command ``run``, to record a program."""

from __future__ import annotations

import argparse
from functools import partial
from typing import NoReturn

from cprofiling.commands import program
from cprofiling.commands.parsing import CommandError, checked, split_program
from cprofiling.nodes.from_patterns.patterns import Pattern

split = partial(split_program, with_value=("-o", "--output", "-n", "--node"), modules=True)


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Describe the command and add its options."""
    parser.usage = "%(prog)s [-h] [-o FILE] [-n GLOB]... [--]\n                      (-m MODULE | SCRIPT) [ARGUMENT]..."
    parser.description = (
        "Run a script, a folder or archive with a __main__.py, or a module as Python does, and record it. PyTorch's "
        "operators are not recorded: that needs cprofiling.profile() in the program."
    )
    parser.epilog = "example: cprofiling run -n 'mypkg.stages:*.forward' train.py --epochs 3"
    parser.allow_abbrev = False
    output_help = "where the trace goes: .json or .json.gz (default: trace.json)"
    parser.add_argument("-o", "--output", metavar="FILE", help=output_help)
    add_nodes(
        parser,
        "functions to record as nodes, beside those that the program itself declares: MODULE:FUNCTION, both with "
        "wildcards, the function's name being the qualified one; or MODULE for all of its functions. __main__ is "
        "the program itself. A module that is loaded before the program begins, as Python's start and cprofiling need "
        "some, is meant by its exact name only. May be given several times (default: '__main__:*', if the program "
        "does not mention cprofiling)",
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
        launch = program.prepare(options.output, options.node, options.program)
    except program.CannotRunError as error:
        raise CommandError(str(error), error.status) from None
    raise launch
