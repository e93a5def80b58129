"""Command ``demo``, a pipeline that profiles itself."""

from __future__ import annotations

import argparse

from cprofiling.commands.parsing import INT64_MAX, CommandError, add_number

PACKAGES = ("numpy", "scipy", "sklearn")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Describe the command and add its options."""
    parser.description = "Train, validate and use a classifier of handwritten digits, and print where the time went."
    parser.epilog = "example: cprofiling demo --frames 2000 --skip-first-n 10"
    frames_help = "batches to send through the pipeline in all stages together, at least 25"
    add_number(parser, "--frames", 25, 1_000_000, frames_help, 600)
    add_number(parser, "--batch-size", 1, 10_000, "digits in a batch", 32)
    skip_help = "first calls of each node to leave out of the statistics"
    add_number(parser, "--skip-first-n", 0, INT64_MAX, skip_help, 3)
    add_number(parser, "--seed", 0, 2**32 - 1, "of everything random: equal seeds give equal accuracies", 0)


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
