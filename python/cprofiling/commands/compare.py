"""Command ``compare``, for changes between runs."""

from __future__ import annotations

import argparse
import os
from typing import Any

from cprofiling._internal.text import shown_text
from cprofiling.commands.parsing import CommandError, compared, number
from cprofiling.commands.report import load_file
from cprofiling.report.against import comparison_of
from cprofiling.testing.gates.verdicts import compare_files


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Describe the command and add its options."""
    parser.description = (
        "Print which nodes or stages are slower or faster in one run than in another, by statistics, timing reports or "
        "traces, or what tests do more from one file of pytest's --cprofiling-json to another. Exit status: 0 if "
        "nothing is found slower, 3 if a row or the total is, or a row is missing, 1 if nothing can be compared or "
        "judged."
    )
    parser.epilog = "example: cprofiling compare --format md main/timing.json branch/timing.json"
    parser.add_argument("baseline", metavar="BASELINE", help="the run to compare with")
    parser.add_argument("new", metavar="NEW", help="the run to judge")
    for side in ("baseline", "new"):
        parser.add_argument(
            f"--{side}",
            action="append",
            default=[],
            dest=f"more_{side}",
            metavar="FILE",
            help=f"a further run of {side.upper()}, to tell noise; may be repeated",
        )
    parser.add_argument(
        "--min-change",
        type=number("a number", 0, 1e6),
        default=2.0,
        metavar="PCT",
        help="the smallest change that counts, in percent of the baseline (default: %(default)g)",
    )
    parser.add_argument(
        "--format",
        choices=("text", "md", "json"),
        default="text",
        metavar="FORMAT",
        help="text, md or json (default: %(default)s)",
    )


def run(options: argparse.Namespace) -> str | None:
    """Return the changes between runs, or between test results."""
    sides = [options.baseline, *options.more_baseline], [options.new, *options.more_new]
    try:
        found: Any = compare_files(*sides, options.min_change)
        if found is None:
            old, new = ([load_file(path) for path in side] for side in sides)
            found = comparison_of(old, new, min_change_pct=options.min_change)
    except OSError as error:
        named = shown_text("path", os.fsdecode(error.filename or ""))
        raise CommandError(f"cannot read {named}: {error.strerror}") from None
    except (CommandError, ValueError) as error:
        raise CommandError(shown_text("error", str(error))) from None
    options.status = found.exit_status
    told: str = {"text": found.to_text, "md": found.__str__, "json": found.to_json}[options.format]()
    return compared(told, options.status)
