"""Command ``report``, to show statistics, timing reports and traces."""

from __future__ import annotations

import argparse

from cprofiling.commands.parsing import INT64_MAX, ROWS, CommandError, compared, not_empty, whole_number
from cprofiling.report.formats import FORMATS, find


def add_report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``report``."""
    made = commands.add_parser(
        "report",
        help="show what a file holds, in any format",
        description="Show where the time went in a file: statistics, of Snapshot.to_bytes() or of a program that runs, "
        "a timing report, or a recording, which is a Chrome trace of this package, of PyTorch or of Kineto.",
        epilog="example: cprofiling report trace.json.gz -o report.html",
    )
    made.add_argument("file", metavar="FILE", help="statistics, timing.json, or a trace (.json, .json.gz)")
    made.add_argument(
        "-r",
        "--format",
        type=_format,
        metavar="FORMAT",
        help=f"{', '.join(FORMATS)} (default: as the name of -o ends, else text)",
    )
    made.add_argument("-o", "--output", type=not_empty, metavar="FILE", help="where to write it (default: stdout)")
    made.add_argument(
        "--against",
        type=not_empty,
        metavar="FILE",
        help="another run, to compare with, for text, html, md and json. The exit status is that of compare",
    )
    made.add_argument("--sort-by", metavar="KEY", help="text of a trace: the figure by which averages are sorted")
    made.add_argument(
        "--limit",
        type=whole_number(1, INT64_MAX),
        metavar="N",
        help=f"text of a trace: the most rows of each table (default: {ROWS})",
    )
    made.add_argument("--group-by-node", action="store_true", help="text of a trace: tell apart what ran in which node")
    made.set_defaults(run=report)


def _format(name: str) -> str:
    try:
        find(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name


def report(options: argparse.Namespace) -> str | None:
    """Return the text to print, None if written to a file.

    Sets the exit status.
    """
    from cprofiling.commands.file_report import ReportError, Request, report_on

    request = Request(
        path=options.file,
        format=options.format,
        output=options.output,
        against=options.against,
        sort_by=options.sort_by,
        limit=options.limit,
        group_by_node=options.group_by_node,
    )
    try:
        text, options.status = report_on(request)
    except ReportError as error:
        raise CommandError(str(error)) from None
    return compared(text, options.status)
