"""Command ``merge``, one file of what many ranks or workers wrote."""

from __future__ import annotations

import argparse

from cprofiling.commands.parsing import INT64_MAX, CommandError, add_number, fail, not_empty, write
from cprofiling.layers.ranks.merge import MergeError, merge_files


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Describe the command and add its options."""
    parser.description = (
        "Merge what many ranks or workers wrote: statistics, live files among them, timing reports or traces. "
        "The order of the files means nothing. "
        "What cannot be merged, and ranks that are missing, are named on stderr; then the exit status is 1."
    )
    parser.epilog = "example: cprofiling merge -o all.cprof stats/*"
    add = parser.add_argument
    add("files", metavar="FILE", nargs="+", type=not_empty, help="a file of one rank or worker")
    add("-o", "--output", type=not_empty, metavar="OUT", help="where to write the merged file")
    add_number(parser, "--expect", 1, INT64_MAX, "how many ranks there should be (default: as the files say)")


def run(options: argparse.Namespace) -> str:
    """Merge files and return a summary.

    Raises CommandError, after printing, if some are missing.
    """
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
