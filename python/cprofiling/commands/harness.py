"""Command ``harness``, to list or run the stages of a signature file."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from cprofiling._internal import log
from cprofiling._internal.text import shown_text
from cprofiling.commands.parsing import CommandError, add_number, attempt, not_empty
from cprofiling.layers.harness.run_stage import step_of
from cprofiling.layers.harness.signature_file import load_signatures
from cprofiling.layers.harness.stage_bench import HarnessConfig, StageBenchHarness, call_factory, folder_for
from cprofiling.layers.signatures import is_tensor

if TYPE_CHECKING:
    from cprofiling.layers.signatures import StageIOSignature

_ROWS = 10


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Describe the command and add its options."""
    parser.description = (
        "Run one stage under the profiler, with inputs made up from its recorded signature; write a trace, a breakdown "
        "by kernels and a program that does it again."
    )
    parser.epilog = "example: cprofiling harness --signature io.json --stage vae --factory app:stage"
    add = parser.add_argument
    add("--signature", required=True, type=not_empty, metavar="FILE", help="the signatures of the stages")
    add("--list", action="store_true", help="print the stages and their inputs, and run none")
    add("--stage", metavar="NAME", help="the stage, by its exact name")
    add(
        "--factory",
        type=not_empty,
        metavar="MODULE:FUNCTION",
        help="a function without arguments that returns the stage; modules are found in the current directory, too",
    )
    add_number(parser, "--warmup", 0, 1_000_000, "runs before the recorded ones", 1)
    add_number(parser, "--profile-steps", 1, 1_000_000, "recorded runs", 1)
    output_help = "where the files go (default: work_dirs/profiler_output/PIPELINE/TIME)"
    add("--output-dir", type=not_empty, metavar="DIR", help=output_help)
    entry_help = "the method to run (default: profile_step, a denoising step of a dit with a scheduler, or process)"
    add("--entry", type=not_empty, metavar="NAME", help=entry_help)


def stages_in(path: str) -> str:
    """Return the stages of a file with their inputs.

    Raises CommandError.
    """
    lines = []
    for name, signature in _loaded(path).items():
        lines.append(_shown(name))
        for parameter, value in signature.input_signatures.items():
            told = ascii(value)
            if is_tensor(value):
                told = f"{value['dtype']} {value['shape']} on {value['device']}"
            elif len(told) > 80:
                told = f"{told[:77]}..."
            lines.append(f"  {_shown(parameter)}: {_shown(told)}")
    return "\n".join(lines) if lines else f"no stages in {_shown(path)}"


def run(options: argparse.Namespace) -> str:
    """Run a stage and return its time and files, or list a file's stages.

    Raises CommandError for the file, the factory or the stage.
    """
    if options.list:
        return stages_in(options.signature)
    if options.stage is None or options.factory is None:
        options.refuse("the following arguments are required: --stage and --factory, or --list")
    signatures = _loaded(options.signature)
    if options.stage not in signatures:
        known = ", ".join(map(ascii, signatures)) or "none"
        raise CommandError(f"--stage must be a stage in {_shown(options.signature)} ({known}), got {options.stage!a}")
    if not log.logger.hasHandlers():  # the program has not set up logging
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        log.logger.addHandler(handler)
        log.logger.setLevel(logging.INFO)
    with suppress(FileNotFoundError):  # it was removed
        sys.path.insert(0, os.getcwd())
    stage = attempt("--factory", call_factory, options.factory)
    attempt("the stage", step_of, stage, options.entry)
    attempt("--output-dir", folder_for, options.output_dir)
    config = HarnessConfig(options.warmup, options.profile_steps, options.output_dir)
    harness = StageBenchHarness(options.stage, signatures[options.stage], stage, config, entry=options.entry)
    attempt("the inputs", harness.setup)
    result = attempt("the stage", harness.profile)
    breakdown = result["kernel_breakdown"]
    times = ", ".join(f"{each:.3f}" for each in result["timing_ms"][:_ROWS])
    more = "" if len(result["timing_ms"]) <= _ROWS else ", ..."
    lines = [f"{_shown(result['stage_name'])}: {times}{more} ms per step, recording included"]
    if "note" in breakdown:
        lines.append(breakdown["note"])
    lines += [f"{each['ms']:>12.3f} ms  {_shown(each['name'])}" for each in breakdown["top_kernels"][:_ROWS]]
    lines += [f"{key}: {_shown(result[f'{key}_path'])}" for key in ("trace", "breakdown", "script")]
    return "\n".join(lines)


def _loaded(path: str) -> dict[str, StageIOSignature]:
    try:
        return load_signatures(path)
    except OSError as error:
        raise CommandError(f"cannot read {_shown(path)}: {error.strerror}") from None
    except ValueError as error:
        raise CommandError(_shown(str(error))) from None


def _shown(text: str) -> str:
    return shown_text("text", text)
