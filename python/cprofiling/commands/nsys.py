"""Command ``nsys``, NVIDIA Nsight Systems for one node."""

from __future__ import annotations

import argparse

from cprofiling.commands.ncu import add_window, check_window, deep_dived, split  # noqa: F401 main takes it
from cprofiling.commands.parsing import not_empty
from cprofiling.devices.nsight import tools


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Describe the command and add its options."""
    parser.usage = (
        "%(prog)s [-h] --node NAME [--skip N] [--count N] [--output FILE]\n"
        "                       [--run] [--] PROGRAM [ARGUMENT]..."
    )
    parser.description = "Print the command line by which nsys records chosen calls of a node, or run it."
    add_window(parser)
    output_help = "nsys's report, without the suffix (default: the node's name)"
    parser.add_argument("--output", type=not_empty, metavar="FILE", help=output_help)


def run(options: argparse.Namespace) -> str:
    """Return the command line of nsys, or run it."""
    check_window(options)
    return deep_dived(options, tools.nsys_command(options.node, options.program, options.output, options.count))
