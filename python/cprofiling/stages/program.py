"""The program ``profile_{stage}.py``: a fixed text in which only constants differ from stage to stage.

Whatever a stage is called and was given, the program's syntax tree is that of the template with other constants: the
names and values are in strings, of which only the program's own code makes anything.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

_WIDTH = 100  # of a piece of a long line
_NUMBERS = re.compile(r"\[\n *(?:-?\d+,\n *)*-?\d+\n *\]")  # a list of them, which gets one line
_PLACES = ("@STAGE@", "@SIGNATURE@", "@OPTIONS@")

TEMPLATE = '''\
"""Profile one stage of a pipeline alone, with inputs made up from its recorded signature.

    python THIS_FILE --factory MODULE:FUNCTION [--warmup N] [--profile-steps N] [--output-dir DIR] [--entry NAME]

FUNCTION is called without arguments and returns the stage; modules are found in the current directory, too. The
trace, the breakdown by kernels and this program are written to DIR, but never over the program that runs.
"""

import argparse
import json
import logging
import os
import sys

from cprofiling.harness import HarnessConfig, StageBenchHarness, call_factory

STAGE = @STAGE@
SIGNATURE = json.loads(@SIGNATURE@)
OPTIONS = json.loads(@OPTIONS@)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--factory", required=True, metavar="MODULE:FUNCTION")
    parser.add_argument("--warmup", type=int, default=OPTIONS["warmup"], metavar="N")
    parser.add_argument("--profile-steps", type=int, default=OPTIONS["profile_steps"], metavar="N")
    parser.add_argument("--output-dir", default=".", metavar="DIR")
    parser.add_argument("--entry", default=OPTIONS["entry"], metavar="NAME")
    asked = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    sys.path.insert(0, os.getcwd())
    stage = call_factory(asked.factory)
    config = HarnessConfig(asked.warmup, asked.profile_steps, asked.output_dir)
    options = {key: OPTIONS[key] for key in ("value_ranges", "device", "seed")}
    harness = StageBenchHarness(STAGE, SIGNATURE, stage, config, entry=asked.entry, **options)
    harness.setup()
    result = harness.profile()
    print("ms per step:", *(round(each, 3) for each in result["timing_ms"]))
    for kernel in result["kernel_breakdown"]["top_kernels"][:10]:
        print(round(kernel["ms"], 3), "ms", ascii(kernel["name"]))
    print(result["kernel_breakdown"].get("note", ""))


if __name__ == "__main__":
    main()
'''


def program_for(stage_name: str, signature: dict[str, Any], options: dict[str, Any]) -> str:
    """Return the program for a stage, in ASCII.

    signature: the stage's signature, as files have it. options: ``warmup``, ``profile_steps``, ``entry``,
    ``value_ranges``, ``device`` and ``seed``, which the program uses unless its arguments say otherwise.
    """
    text = TEMPLATE
    pieces = (ascii(stage_name), _laid_out(signature), _laid_out(options))
    made = []
    for place, piece in zip(_PLACES, pieces, strict=True):
        before, _, text = text.partition(place)  # what was put in is not looked at again
        made += [before, piece]
    return "".join([*made, text])


def _laid_out(value: Any) -> str:
    """A value as the literals of its JSON, a line of which has a line in the program, or several."""
    text = _NUMBERS.sub(lambda found: f"[{', '.join(re.findall('-?[0-9]+', found[0]))}]", json.dumps(value, indent=1))
    lines = text.splitlines(keepends=True)
    pieces = [line[start : start + _WIDTH] for line in lines for start in range(0, len(line), _WIDTH)]
    if len(pieces) == 1:
        return repr(pieces[0])
    return "\n" + "\n".join(f"    {piece!r}" for piece in pieces) + "\n"
