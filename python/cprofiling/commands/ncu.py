"""Command ``ncu``, NVIDIA Nsight Compute for one node."""

from __future__ import annotations

import argparse
import sys
from functools import partial

from cprofiling._internal.text import shown_text
from cprofiling.commands.parsing import INT64_MAX, CommandError, add_number, checked, fail, not_empty, split_program
from cprofiling.devices.nsight import tools
from cprofiling.devices.nsight.report import analyze_ncu_report

_WITH_VALUE = ("--node", "--skip", "--count", "--set", "--output", "--analyze")
split = partial(split_program, with_value=_WITH_VALUE)
_SET = "basic"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Describe the command and add its options."""
    parser.usage = (
        "%(prog)s [-h] --node NAME [--skip N] [--count N] [--set SET]\n"
        "                      [--output FILE] [--run] [--] PROGRAM [ARGUMENT]...\n"
        "       %(prog)s [-h] --analyze FILE"
    )
    parser.description = (
        "Print the command line by which ncu measures the kernels in chosen calls of a node, or run it; or print what "
        "limits the kernels that it measured."
    )
    add_window(parser)
    add = parser.add_argument
    add("--set", type=not_empty, help=f"ncu's set of metrics: basic, detailed, full (default: {_SET})")
    csv_help = "ncu's CSV file; it is replaced (default: the node's name, .csv)"
    add("--output", type=not_empty, metavar="FILE", help=csv_help)
    report_help = "print the kernels of a report, CSV or .ncu-rep, with verdicts"
    add("--analyze", type=not_empty, metavar="FILE", help=report_help)


def add_window(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose calls."""
    parser.epilog = f"example: {parser.prog} --node encoder --skip 10 -- python app.py --epochs 1"
    parser.allow_abbrev = False
    parser.add_argument(
        "--node", type=checked(tools.checked_node), metavar="NAME", help="the node, by its exact name; required"
    )
    skip_help = "first calls of the node to pass by, such as those that warm up (default: 0)"
    add_number(parser, "--skip", 0, INT64_MAX, skip_help)
    add_number(parser, "--count", 1, INT64_MAX, "calls to measure after them (default: 1)")
    parser.add_argument("--run", action="store_true", dest="execute", help="run it; the exit status is the tool's")


def run(options: argparse.Namespace) -> str:
    """Print or run ncu's command line, or return a report's contents."""
    if options.analyze is None:
        check_window(options)
        command = tools.ncu_command(options.node, options.program, options.set or _SET, options.output)
        return deep_dived(options, command, LC_ALL="C")  # else its CSV has the numbers of a locale
    others = (options.node, options.skip, options.count, options.set, options.output)
    if any(other is not None for other in others) or options.program or options.execute:
        options.refuse("argument --analyze: it goes without a program and other options")
    try:
        return str(analyze_ncu_report(options.analyze))
    except (OSError, ValueError) as error:
        raise CommandError(shown_text("error", str(error))) from None


def check_window(options: argparse.Namespace) -> None:
    """Refuse a command without node or program, and set default calls."""
    if options.node is None:
        options.refuse("argument --node: the name of a node is required")
    if not options.program:
        options.refuse("a program is required, such as: -- python app.py")
    options.skip = 0 if options.skip is None else options.skip
    options.count = 1 if options.count is None else options.count


def deep_dived(options: argparse.Namespace, command: list[str], **environment: str) -> str:
    """Return a tool's command line, or replace this process by the tool."""
    name = command[0]
    window = f"{options.node}:{options.skip}:{options.count}"  # read from the right, as names may have colons
    environment = {tools.VARIABLE: window, **environment}
    if options.execute:
        try:
            tools.execute(name, environment, command)
        except tools.ToolError as error:
            raise CommandError(str(error)) from None
    tool = tools.find_tool(name)
    if tool is None:
        fail(tools.missing(name))
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return tools.shell_line(environment, [tool or name, *command[1:]], encoding)
