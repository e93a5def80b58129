"""Text of the program ``profile_{stage}.py``.

For all names and inputs of stages, the program's syntax tree is that of the template with other constants: names and
values are in strings that only the program's own code reads. The program contains the code of this package that makes
inputs and runs stages.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from functools import lru_cache
from typing import Any

from cprofiling.layers import signatures
from cprofiling.layers.harness import mock_inputs, run_stage

_WIDTH = 100  # of a piece of a long line
_NUMBERS = re.compile(r"\[\n *(?:-?\d+,\n *)*-?\d+\n *\]")  # a list of them, which gets one line
PLACES = ("@STAGE@", "@SIGNATURE@", "@OPTIONS@")

_HEAD = '''\
"""Profile one stage of a pipeline alone, with inputs made up from its recorded signature.

    python THIS_FILE --factory MODULE:FUNCTION [--warmup N] [--profile-steps N] [--output-dir DIR] [--entry NAME]

FUNCTION is called without arguments and returns the stage; modules are found in the current directory, too. Or import
`profile_stage` from here and give it a stage. Only the stage's own packages are needed, and PyTorch for a trace.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

try:
    import torch
except ImportError:
    torch = None

StageIOSignature, Range = SimpleNamespace, tuple
STAGE = @STAGE@
SIGNATURE = json.loads(@SIGNATURE@)
OPTIONS = json.loads(@OPTIONS@)


def create_inputs():
    """Make the stage's inputs by parameter: equal ones each time; None where only the type is known."""
    signature = SimpleNamespace(**{"types": {}, **SIGNATURE})
    return make_inputs(
        signature, value_ranges=OPTIONS["value_ranges"], device=OPTIONS["device"], seed=OPTIONS["seed"]
    )


def run_single_step(stage, inputs, entry=OPTIONS["entry"]):
    """Run the stage once: the method named, its profile_step, a single denoising step, its process, or a call."""
    step = step_of(stage, entry)
    with step.restored():
        return step(inputs)


def profile_stage(
    stage, warmup=OPTIONS["warmup"], profile_steps=OPTIONS["profile_steps"], output_dir=".", entry=OPTIONS["entry"]
):
    """Run the stage under PyTorch's profiler; return times in ms and the path of the trace."""
    inputs, times, path = create_inputs(), [], None
    for _ in range(warmup):
        run_single_step(stage, inputs.for_a_run(), entry)
    with contextlib.ExitStack() as stack:
        prof = None
        if torch is not None:
            prof = torch.profiler.profile(record_shapes=True, profile_memory=True, with_stack=True)
            stack.enter_context(prof)
        for number in range(profile_steps):
            given = inputs.for_a_run()
            synchronize()
            start = time.perf_counter()
            with torch.profiler.record_function(f"step {number}") if prof else contextlib.nullcontext():
                run_single_step(stage, given, entry)
                synchronize()
            times.append((time.perf_counter() - start) * 1000)
    if prof is not None:
        os.makedirs(output_dir, exist_ok=True)
        path = os.path.join(output_dir, OPTIONS["file"] + "_trace.json.gz")
        prof.export_chrome_trace(path)
    return {"stage_name": STAGE, "timing_ms": times, "trace_path": path}


def synchronize():
    """Wait for the work of an accelerator in use."""
    accelerator = getattr(torch, "accelerator", None) or getattr(torch, "cuda", None)  # older ones have the latter
    if accelerator is not None and accelerator.is_available():
        accelerator.synchronize()


def main():
    """Profile the stage that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--factory", required=True, metavar="MODULE:FUNCTION")
    parser.add_argument("--warmup", type=int, default=OPTIONS["warmup"], metavar="N")
    parser.add_argument("--profile-steps", type=int, default=OPTIONS["profile_steps"], metavar="N")
    parser.add_argument("--output-dir", default=".", metavar="DIR")
    parser.add_argument("--entry", default=OPTIONS["entry"], metavar="NAME")
    asked = parser.parse_args()
    sys.path.insert(0, os.getcwd())
    module, _, name = asked.factory.partition(":")
    stage = importlib.import_module(module)
    for part in name.split("."):
        stage = getattr(stage, part)
    result = profile_stage(stage(), asked.warmup, asked.profile_steps, asked.output_dir, asked.entry)
    print("ms per step:", *(round(each, 3) for each in result["timing_ms"]))
    print("trace:", result["trace_path"] or "none, as PyTorch is not installed")


class log:
    """Prints to stderr."""

    @staticmethod
    def say(line):
        """Print a line."""
        print(line, file=sys.stderr)

    complain = say


def shown_text(parameter, text):
    """Return a text on one line."""
    return ascii(text)[1:-1]


def shown_value(value):
    """Return a value as messages have it."""
    return f"{ascii(value)} ({type(value).__name__})"


# ---- What follows is part of cprofiling


'''
_END = """

if __name__ == "__main__":
    main()
"""


@lru_cache(maxsize=1)
def template() -> str:
    """Return the program's text, with ``PLACES`` for the stage's constants."""
    shared = (signatures.is_tensor, signatures.element_size, signatures.escaped, signatures.unescaped)
    constants = f"NUMPY, TENSOR_KEYS = {signatures.NUMPY!r}, {signatures.TENSOR_KEYS!r}"
    parts = [constants, *(inspect.getsource(each).rstrip() for each in shared)]
    for module in (mock_inputs, run_stage):  # without docstring and our own imports
        source = inspect.getsource(module)
        lines = source.splitlines()
        for node in reversed(ast.parse(source).body):  # lines go from the end
            module_name = node.module if isinstance(node, ast.ImportFrom) else None
            is_known = str(module_name).startswith(("__future__", "typing", "cprofiling"))
            if is_known or isinstance(node, ast.If) or node.lineno == 1:
                del lines[node.lineno - 1 : node.end_lineno]
        parts.append(re.sub(r"\n{3,}", "\n\n\n", "\n".join(lines).strip()))
    joined = "\n\n\n".join(parts)
    return f"{_HEAD}{joined}\n{_END}"


def program_for(stage_name: str, signature: dict[str, Any], options: dict[str, Any]) -> str:
    """Return the program for a stage, in ASCII.

    signature: the stage's signature, as files have it. options: ``warmup``, ``profile_steps``, ``entry``,
    ``value_ranges``, ``device``, ``seed``, and ``file``, with which the trace's name begins. The program uses them
    unless its arguments say otherwise.
    """
    text = template()
    pieces = (ascii(stage_name), _laid_out(signature), _laid_out(options))
    made = []
    for place, piece in zip(PLACES, pieces, strict=True):
        before, _, text = text.partition(place)  # inserted text is not searched again
        made += [before, piece]
    return "".join([*made, text])


def _laid_out(value: Any) -> str:
    """Return a value as string literals of its JSON, cut into lines."""
    text = _NUMBERS.sub(lambda found: f"[{', '.join(re.findall('-?[0-9]+', found[0]))}]", json.dumps(value, indent=1))
    lines = text.splitlines(keepends=True)
    pieces = [line[start : start + _WIDTH] for line in lines for start in range(0, len(line), _WIDTH)]
    if len(pieces) == 1:
        return repr(pieces[0])
    return "\n" + "\n".join(f"    {piece!r}" for piece in pieces) + "\n"
