"""Records stacks of a program that imports, compiles, and runs threads and generators at random; prints what it found.

Run by test_operators.py: `python stacks_fuzz.py FOLDER SEED`. PyTorch keeps addresses of names that such code frees.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib
import json
import random
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import torch

import cprofiling as cp

STEPS = 40
X = torch.ones(3)
SOURCE = "import cprofiling as cp\nimport torch\nclass Inner:\n  value = {n}\ndef run(x):\n  return torch.neg(x)\n"


def step(chance: random.Random, folder: Path, number: int) -> None:
    """Do one thing; each runs `torch.neg` once."""
    kind = chance.randrange(6)
    source = SOURCE.format(n=number)
    if kind == 0:
        name = f"module_{number}"
        (folder / f"{name}.py").write_text(source, encoding="utf-8")
        importlib.invalidate_caches()
        importlib.import_module(name).run(X)
        if chance.random() < 0.7:
            del sys.modules[name]
    elif kind == 1:
        space: dict[str, Any] = {}
        odd = chance.choice(['a"b', "a\\b", "\u00e9", "tab\t", "line\n", f"{number}.py"])
        exec(compile(source, f"{odd}{number}", "exec"), space)
        space["run"](X)
    elif kind == 2:
        thread = threading.Thread(target=step, args=(random.Random(number), folder, number + 1000))
        thread.start()
        thread.join()
    elif kind == 3:
        list(values())
    elif kind == 4:
        dataclasses.make_dataclass(f"Pair{number}", ["a", "b"])(1, 2)
        torch.neg(X)
    else:
        eval(f"lambda x: torch.neg(x) + {number}", {"torch": torch})(X)
    if chance.random() < 0.3:
        gc.collect()
        kept.append([chance.randbytes(size) for size in range(20, 80)])


@cp.profile_node("values")
def values() -> Any:
    yield torch.neg(X)


kept: list[list[bytes]] = []

if __name__ == "__main__":
    folder, seed = Path(sys.argv[1]), int(sys.argv[2])
    sys.path.insert(0, str(folder))
    chance = random.Random(seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with cp.profile(with_stack=True, record_shapes=True) as prof:
            for number in range(STEPS):
                step(chance, folder, number)
    prof.export_chrome_trace(str(folder / "trace.json"))
    names = [event.name for event in cp.load_trace(folder / "trace.json").events()]
    lost = sum(event.stack is not None and "unknown" in event.stack for event in prof.events())
    print(json.dumps([names.count("aten::neg"), lost, [str(each.message) for each in caught]]))
