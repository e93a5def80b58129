"""Command ``count``, calls of a pipeline by depth, fused and unfused."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from cprofiling._internal.text import shown_value
from cprofiling.commands.parsing import CommandError, add_number, attempt, checked, not_empty, whole_number
from cprofiling.testing.counting.functions import checked_patterns

DEPTHS = "2,5,10,20"
_MOST_DEPTH, _MOST_DEPTHS = 1_000_000, 1_000
_COLUMNS: tuple[str, ...] = ("depth", "fused", "native_calls", "operators", "cuda_launches")


@dataclass(frozen=True)
class Row:
    """Counts of one pipeline call.

    None means unknown or not requested.
    """

    depth: int
    fused: bool
    native_calls: int | None
    operators: int
    cuda_launches: int | None


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Describe the command and add its options."""
    parser.description = (
        "Print, for depth after depth, fused and unfused, how many native functions, operators of PyTorch and launches "
        "of CUDA one call of a pipeline takes."
    )
    parser.epilog = "example: cprofiling count --factory app:make_pipeline --native 'torchfx._ops:*'"
    parser.add_argument(
        "--factory",
        required=True,
        type=not_empty,
        metavar="MODULE:FUNCTION",
        help="a function that is called with a depth and with True for fused, False for unfused, and returns what is "
        "called without arguments; modules are found in the current directory, too",
    )
    parser.add_argument(
        "--depths",
        type=depths,
        default=DEPTHS,
        metavar="N,...",
        help="the depths, in this order (default: %(default)s)",
    )
    parser.add_argument(
        "--native",
        action="append",
        type=checked(lambda text: checked_patterns((text,))[0]),
        default=[],
        metavar="GLOB",
        help="what counts as native: MODULE:FUNCTION, both with wildcards if need be. May be given several times",
    )
    add_number(parser, "--warmup", 0, _MOST_DEPTH, "calls before the one that is counted", 0)
    parser.add_argument("--json", action="store_true", help="print a list of rows as JSON")


def depths(text: str) -> list[int]:
    """Parse depths separated by commas, up to 1,000, for argparse."""
    parts = text.split(",")
    if len(parts) > _MOST_DEPTHS:
        raise argparse.ArgumentTypeError(f"expected at most {_MOST_DEPTHS} depths, got {len(parts)}")
    return list(map(whole_number(0, _MOST_DEPTH), parts))


def run(options: argparse.Namespace) -> str:
    """Return the table, or the rows as JSON.

    Raises CommandError for errors in the user's code.
    """
    from cprofiling.layers.harness.stage_bench import factory_of

    with contextlib.suppress(FileNotFoundError):  # it was removed
        sys.path.insert(0, os.getcwd())
    with contextlib.redirect_stdout(sys.stderr):  # what the pipeline prints is no result
        make = attempt("--factory", factory_of, options.factory)
        rows: list[Row] = []
        reasons: dict[str | None, None] = {}
        for depth in options.depths:
            for fused in (True, False):
                row, reason = attempt("the pipeline", _counted, make, depth, fused, options)
                rows.append(row)
                reasons[reason] = None
    if options.json:
        import json

        return json.dumps([asdict(row) for row in rows], indent=2)
    cells = [_COLUMNS]
    for row in rows:
        counts = (row.native_calls, row.operators, row.cuda_launches)
        told = ("-" if count is None else str(count) for count in counts)
        cells.append((str(row.depth), "yes" if row.fused else "no", *told))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    table = ["  ".join(map(str.rjust, line, widths)) for line in cells]
    return "\n".join([*table, *(f"cuda_launches: {reason}" for reason in reasons if reason is not None)])


def _counted(make: Callable[..., Any], depth: int, fused: bool, options: argparse.Namespace) -> tuple[Row, str | None]:
    """Return a pipeline call's counts, and why launches are unknown, or None."""
    from cprofiling.testing.counting.calls import count_calls
    from cprofiling.testing.counting.dispatches import count_dispatches

    pipeline = make(depth, fused)
    if not callable(pipeline):
        raise CommandError(f"--factory must return what can be called, got {shown_value(pipeline)}")
    for _ in range(options.warmup):
        pipeline()
    dispatches = count_dispatches()
    calls = count_calls(*options.native) if options.native else None
    with contextlib.ExitStack() as stack:
        if calls is not None:
            attempt("--native", calls.__enter__)
            stack.push(calls)
        stack.enter_context(dispatches)
        pipeline()
    native = None if calls is None else calls.native_calls
    row = Row(depth, fused, native, dispatches.operator_calls, dispatches.cuda_launches)
    return row, dispatches.cuda_launches_reason
