"""Commands ``compare``, ``harness`` and ``merge``."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from cprofiling._internal.text import shown_text
from cprofiling.commands.parsing import INT64_MAX, CommandError, compared, fail, not_empty, whole_number, write
from cprofiling.commands.report import load_file

if TYPE_CHECKING:
    from typing import Any

MIN_CHANGE = 2.0


def add_compare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``compare``."""
    made = commands.add_parser(
        "compare",
        help="compare two runs, or what tests did",
        description="Print which nodes or stages are slower or faster in one run than in another, by statistics, "
        "timing reports or traces, or what tests do more from one file of pytest's --cprofiling-json to another. Exit "
        "status: 0 if nothing is found slower, 3 if a row or the total is, or a row is missing, 1 if nothing can be "
        "compared or judged.",
        epilog="example: cprofiling compare --format md main/timing.json branch/timing.json",
    )
    made.add_argument("baseline", metavar="BASELINE", help="the run to compare with")
    made.add_argument("new", metavar="NEW", help="the run to judge")
    for side in ("baseline", "new"):
        made.add_argument(
            f"--{side}",
            action="append",
            default=[],
            dest=f"more_{side}",
            metavar="FILE",
            help=f"a further run of {side.upper()}, to tell noise; may be repeated",
        )
    made.add_argument(
        "--min-change",
        type=percentage,
        default=MIN_CHANGE,
        metavar="PCT",
        help="the smallest change that counts, in percent of the baseline (default: %(default)g)",
    )
    made.add_argument(
        "--format",
        choices=("text", "md", "json"),
        default="text",
        metavar="FORMAT",
        help="text, md or json (default: %(default)s)",
    )
    made.set_defaults(run=compare)


def percentage(text: str) -> float:
    """Parse a number from 0 to 1e6 for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1e6:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1000000, got {text!r}")
    return value


def add_harness(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``harness``."""
    made = commands.add_parser(
        "harness",
        help="profile one stage of a pipeline alone",
        description="Run one stage under the profiler, with inputs made up from its recorded signature; write a trace, "
        "a breakdown by kernels and a program that does it again.",
        epilog="example: cprofiling harness --signature io.json --stage vae --factory app:stage",
    )
    made.add_argument("--signature", required=True, type=not_empty, metavar="FILE", help="the signatures of the stages")
    made.add_argument("--list", action="store_true", help="print the stages and their inputs, and run none")
    made.add_argument("--stage", metavar="NAME", help="the stage, by its exact name")
    made.add_argument(
        "--factory",
        type=not_empty,
        metavar="MODULE:FUNCTION",
        help="a function without arguments that returns the stage; modules are found in the current directory, too",
    )
    made.add_argument(
        "--warmup",
        type=whole_number(0, 1_000_000),
        default=1,
        metavar="N",
        help="runs before the recorded ones (default: %(default)s)",
    )
    made.add_argument(
        "--profile-steps",
        type=whole_number(1, 1_000_000),
        default=1,
        metavar="N",
        help="recorded runs (default: %(default)s)",
    )
    made.add_argument(
        "--output-dir",
        type=not_empty,
        metavar="DIR",
        help="where the files go (default: work_dirs/profiler_output/PIPELINE/TIME)",
    )
    made.add_argument(
        "--entry",
        type=not_empty,
        metavar="NAME",
        help="the method to run (default: profile_step, a denoising step of a dit with a scheduler, or process)",
    )
    made.set_defaults(run=harness, refuse=made.error)


def add_merge(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``merge``."""
    text = (
        "Merge what many ranks or workers wrote: statistics, live files among them, timing reports or traces. "
        "The order of the files means nothing. "
        "What cannot be merged, and ranks that are missing, are named on stderr; then the exit status is 1."
    )
    made = commands.add_parser(
        "merge",
        help="merge what many ranks or workers wrote",
        description=text,
        epilog="example: cprofiling merge -o all.cprof stats/*",
    )
    made.add_argument("files", metavar="FILE", nargs="+", type=not_empty, help="a file of one rank or worker")
    made.add_argument("-o", "--output", type=not_empty, metavar="OUT", help="where to write the merged file")
    made.add_argument(
        "--expect",
        type=whole_number(1, INT64_MAX),
        metavar="N",
        help="how many ranks there should be (default: as the files say)",
    )
    made.set_defaults(run=merge)


def compare(options: argparse.Namespace) -> str | None:
    """Return the changes between runs, or between test results."""
    from cprofiling.report.against import comparison_of
    from cprofiling.report.view import View
    from cprofiling.testing.gates.verdicts import compare_files

    sides = [options.baseline, *options.more_baseline], [options.new, *options.more_new]
    try:
        found: Any = compare_files(*sides, options.min_change)
        if found is None:
            loaded = [[(path, load_file(path)) for path in side] for side in sides]
            old, new = ([View(each.of, source=path, facts=each.facts) for path, each in side] for side in loaded)
            found = comparison_of(old, new, min_change_pct=options.min_change)
    except OSError as error:
        named = shown_text("path", os.fsdecode(error.filename or ""))
        raise CommandError(f"cannot read {named}: {error.strerror}") from None
    except (CommandError, ValueError) as error:
        raise CommandError(shown_text("error", str(error))) from None
    options.status = found.exit_status
    told: str = {"text": found.to_text, "md": found.__str__, "json": found.to_json}[options.format]()
    return compared(told, options.status)


def harness(options: argparse.Namespace) -> str:
    """Run a stage alone and return its time, or list a file's stages."""
    from cprofiling.commands import harness as harness_command

    if not options.list and (options.stage is None or options.factory is None):
        options.refuse("the following arguments are required: --stage and --factory, or --list")
    return harness_command.stages_in(options.signature) if options.list else harness_command.run(options)


def merge(options: argparse.Namespace) -> str:
    """Merge files and return a summary.

    Raises CommandError, after printing, if some are missing.
    """
    from cprofiling.layers.ranks.merge import MergeError, merge_files

    try:
        outcome = merge_files(options.files, options.output, options.expect)
    except MergeError as error:
        for complaint in error.complaints:
            fail(complaint)
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"cannot write {error.filename}: {error.strerror}") from None
    if not outcome.complaints:
        return outcome.text
    write(outcome.text)
    *complaints, last = outcome.complaints
    for complaint in complaints:
        fail(complaint)
    raise CommandError(last)
