"""Commands ``ncu`` and ``nsys``, NVIDIA's tools for one node."""

from __future__ import annotations

import argparse
import sys

from cprofiling._internal.text import shown_text
from cprofiling.commands.parsing import INT64_MAX, CommandError, fail, not_empty, whole_number

NCU_SET = "basic"


def add_ncu(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``ncu``. The program is not parsed here."""
    made = commands.add_parser(
        "ncu",
        help="measure the kernels of a node with NVIDIA Nsight Compute",
        usage="%(prog)s [-h] --node NAME [--skip N] [--count N] [--set SET]\n"
        "                      [--output FILE] [--run] [--] PROGRAM [ARGUMENT]...\n"
        "       %(prog)s [-h] --analyze FILE",
        description="Print the command line by which ncu measures the kernels in chosen calls of a node, or run it; "
        "or print what limits the kernels that it measured.",
        epilog="example: cprofiling ncu --node encoder --skip 10 -- python app.py --epochs 1",
        allow_abbrev=False,
    )
    add_window(made)
    made.add_argument(
        "--set",
        type=not_empty,
        help=f"ncu's set of metrics: basic, detailed, full (default: {NCU_SET})",
    )
    made.add_argument(
        "--output",
        type=not_empty,
        metavar="FILE",
        help="ncu's CSV file; it is replaced (default: the node's name, .csv)",
    )
    made.add_argument(
        "--analyze",
        type=not_empty,
        metavar="FILE",
        help="print the kernels of a report, CSV or .ncu-rep, with verdicts",
    )
    made.set_defaults(run=ncu, refuse=made.error)


def add_nsys(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``nsys``. The program is not parsed here."""
    made = commands.add_parser(
        "nsys",
        help="record the calls of a node with NVIDIA Nsight Systems",
        usage="%(prog)s [-h] --node NAME [--skip N] [--count N] [--output FILE]\n"
        "                       [--run] [--] PROGRAM [ARGUMENT]...",
        description="Print the command line by which nsys records chosen calls of a node, or run it.",
        epilog="example: cprofiling nsys --node encoder --skip 10 -- python app.py --epochs 1",
        allow_abbrev=False,
    )
    add_window(made)
    made.add_argument(
        "--output",
        type=not_empty,
        metavar="FILE",
        help="nsys's report, without the suffix (default: the node's name)",
    )
    made.set_defaults(run=nsys, refuse=made.error)


def add_window(made: argparse.ArgumentParser) -> None:
    """Add the options that say which calls are meant."""
    made.add_argument("--node", type=node_name, metavar="NAME", help="the node, by its exact name; required")
    made.add_argument(
        "--skip",
        type=whole_number(0, INT64_MAX),
        metavar="N",
        help="first calls of the node to pass by, such as those that warm up (default: 0)",
    )
    made.add_argument(
        "--count",
        type=whole_number(1, INT64_MAX),
        metavar="N",
        help="calls to measure after them (default: 1)",
    )
    made.add_argument("--run", action="store_true", dest="execute", help="run it; the exit status is the tool's")


def node_name(text: str) -> str:
    """Check the name of a node for argparse."""
    from cprofiling.devices.nsight.tools import checked_node

    try:
        return checked_node(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def ncu(options: argparse.Namespace) -> str:
    """Print or run ncu's command line, or return a report's contents."""
    from cprofiling.devices.nsight import tools

    if options.analyze is None:
        check_window(options)
        metrics = options.set or NCU_SET
        return deep_dived(options, tools.ncu_command(options.node, options.program, metrics, options.output))
    others = (options.node, options.skip, options.count, options.set, options.output)
    if any(other is not None for other in others) or options.program or options.execute:
        options.refuse("argument --analyze: it goes without a program and other options")
    from cprofiling.devices.nsight.report import analyze_ncu_report

    try:
        return str(analyze_ncu_report(options.analyze))
    except (OSError, ValueError) as error:
        raise CommandError(shown_text("error", str(error))) from None


def nsys(options: argparse.Namespace) -> str:
    """Return the command line of nsys, or run it."""
    from cprofiling.devices.nsight import tools

    check_window(options)
    return deep_dived(options, tools.nsys_command(options.node, options.program, options.output, options.count))


def check_window(options: argparse.Namespace) -> None:
    """Refuse a command without node or program, and set default calls."""
    if options.node is None:
        options.refuse("argument --node: the name of a node is required")
    if not options.program:
        options.refuse("a program is required, such as: -- python app.py")
    options.skip = 0 if options.skip is None else options.skip
    options.count = 1 if options.count is None else options.count


def deep_dived(options: argparse.Namespace, command: list[str]) -> str:
    """Return a tool's command line, or replace this process by the tool."""
    from cprofiling.devices.nsight import tools

    name = command[0]
    environment = {tools.VARIABLE: tools.capture(options.node, options.skip, options.count)}
    if name == "ncu":
        environment["LC_ALL"] = "C"  # else its CSV has the numbers of a locale
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
