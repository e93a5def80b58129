"""Command ``demo``, a pipeline that profiles itself."""

from __future__ import annotations

import argparse

from cprofiling.commands.parsing import INT64_MAX, CommandError, whole_number

PACKAGES = ("numpy", "scipy", "sklearn")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Describe the command and add its options."""
    parser.description = "Train, validate and use a classifier of handwritten digits, and print where the time went."
    parser.epilog = "example: cprofiling demo --frames 2000 --skip-first-n 10"
    parser.add_argument(
        "--frames",
        type=whole_number(25, 1_000_000),
        default=600,
        metavar="N",
        help="batches to send through the pipeline in all stages together, at least 25 (default: %(default)s)",
    )
    parser.add_argument(
        "--batch-size",
        type=whole_number(1, 10_000),
        default=32,
        metavar="N",
        help="digits in a batch (default: %(default)s)",
    )
    parser.add_argument(
        "--skip-first-n",
        type=whole_number(0, INT64_MAX),
        default=3,
        metavar="N",
        help="first calls of each node to leave out of the statistics (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=whole_number(0, 2**32 - 1),
        default=0,
        metavar="N",
        help="of everything random: equal seeds give equal accuracies (default: %(default)s)",
    )


def run(options: argparse.Namespace) -> str:
    """Run the demo and return its report. CommandError without scikit-learn."""
    try:
        from cprofiling.commands.demo_pipeline import run_demo
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in PACKAGES:
            raise
        raise CommandError('the demo needs scikit-learn: pip install "cprofiling[demo]"') from None
    return run_demo(
        frames=options.frames, batch_size=options.batch_size, skip_first_n=options.skip_first_n, seed=options.seed
    )
