"""The bars of counting and of gates, each in as many runs as it says.

``python python/benchmarks/gates.py`` runs all parts, or those that are named, prints a line for each, and the exit
status tells whether all are within their bars:

- counts: native calls of TorchFX at depths 2, 5, 10 and 20, fused and unfused, as the command ``count`` tells them and
  as a profile function of the interpreter's counts them. Needs torchfx.
- planted: one dispatch more, and one filter that is not fused: the gate fails and names it, in each of 20 runs; without
  them it passes. Needs torch, and torchfx for the filter.
- pairs: a node of at least 5 ms that is made 10 % slower, by ``compare_pairs``: ``slower`` in 18 of 20 runs, never
  ``faster``; unchanged never ``slower``.
- files: the same from one run of pytest to another, by ``--cprofiling-compare``, and of a call that waits 5 ms: slower
  never ``faster``, unchanged never ``slower``.
- loaded: the same with 40 times a side and 1.5 times as long, while other processes keep all processors busy: the gate
  fails in each of 20 runs where it is slower, and in none where it is unchanged. The baseline is made without and with
  that load in turns.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import cprofiling as cp
from cprofiling.gates import compare_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RUNS, NEEDED = 20, 0.9
STEPS, SLOWER, MUCH_SLOWER = 160_000, 1.1, 1.5
RULE = "mean:5%"
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FACTORY, NATIVE = "torchfx_counts:make_pipeline", "torchfx._ops:*"
PACKAGE = str(Path(cp.__file__).parents[1])

PLANTED = """
import os
import pytest
PLANTED = bool(os.environ["PLANTED"])
torch = pytest.importorskip("torch")

@pytest.mark.cprofiling_limit(operators={"aten::mm": 1, "aten::add": 0})
def test_dispatch():
    result = torch.ones(3, 3).mm(torch.ones(3, 3))
    if PLANTED:
        result.add(1)

@pytest.mark.cprofiling_limit(native_calls=1, native="torchfx._ops:*")
def test_filter():
    torchfx = pytest.importorskip("torchfx")
    from torchfx.filter import LoButterworth
    filters = [LoButterworth(1000 + place, order=2, fs=8000) for place in range(4)]
    samples = torch.randn(1, 8000)
    if PLANTED:
        samples = filters.pop()(samples)
    wave = torchfx.Wave(samples, 8000)
    for each in filters:
        wave |= each
    wave.ys
"""
TELLING = ("operators of aten::add: 1, the limit is 0", "native_calls: 2, the limit is 1: torchfx._ops:")

TIMED = """
import os
import time
import cprofiling as cp

@cp.profile_node("node")
def node():
    total = 0
    for step in range(int(os.environ["STEPS"])):
        total = (total * 31 + step) & 0xFFFF
    return total

def test_timed(node_profiler):
    repeat = int(os.environ["REPEAT"])
    node_profiler.pairs(node, repeat=repeat, name="work")
    node_profiler.pairs(lambda: time.sleep(int(os.environ["STEPS"]) / 3e7), repeat=repeat, name="waiting")
"""
VERDICT = re.compile(r"times of (work|waiting)(?:, node node)?: ([\w ]+): ")
HOG = "while True: pass"


def main() -> int:
    """Run the parts and return the exit status."""
    parts: dict[str, Callable[[int], bool]] = {
        "counts": counts, "planted": planted, "pairs": pairs, "files": files, "loaded": loaded,
    }  # fmt: skip
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*parts, []], metavar="PART", help=f"{', '.join(parts)} (all)")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of a part (default: %(default)s)")
    options = parser.parse_args()
    results = []
    for name in options.parts or parts:
        start = time.perf_counter()
        results.append(parts[name](options.runs))
        took = f"{time.perf_counter() - start:.0f} s, load {os.getloadavg()[0]:.1f}"
        print(f"{name}: {'as it must be' if results[-1] else 'WRONG'} ({took})", flush=True)
    return 0 if all(results) else 1


def counts(_runs: int) -> bool:
    """Whether the command counts what the interpreter does."""
    if importlib.util.find_spec("torchfx") is None:
        print("counts: torchfx is not installed")
        return False
    command = ["-m", "cprofiling", "count", "--json", "--factory", FACTORY, "--native", NATIVE]
    rows = json.loads(python(command, EXAMPLES).stdout)
    sys.path.insert(0, str(EXAMPLES))
    make_pipeline = importlib.import_module("torchfx_counts").make_pipeline
    is_right = len(rows) == 8
    for row in rows:
        calls = called(make_pipeline(row["depth"], row["fused"]))
        is_right = is_right and calls == row["native_calls"] == (1 if row["fused"] else row["depth"])
        print(f"{row}, by the interpreter {calls}")
    return is_right


def called(pipeline: Callable[[], object]) -> int:
    """Count the calls of TorchFX's native functions by the interpreter's own events."""
    native = importlib.import_module("torchfx._ops")._ext.__name__
    found = 0

    def event(_frame: object, kind: str, argument: object) -> None:
        nonlocal found
        found += kind == "c_call" and getattr(argument, "__module__", None) == native

    sys.setprofile(event)
    try:
        pipeline()
    finally:
        sys.setprofile(None)
    return found


def planted(runs: int) -> bool:
    """Whether tests fail with what is planted, and name it, and pass without it."""
    named: Counter[str] = Counter()
    passed = 0
    with TemporaryDirectory() as folder:
        Path(folder, "test_planted.py").write_text(PLANTED)
        for _ in range(runs):
            done = pytest_in(Path(folder), PLANTED="1")
            named.update(line for line in TELLING if done.returncode == 1 and line in done.stdout)
            done = pytest_in(Path(folder), PLANTED="")
            passed += done.returncode == 0 and "2 passed" in done.stdout
    print(f"planted: {dict(named)}; without: {passed} passed, of {runs} each")
    return passed == runs and [named[line] for line in TELLING] == [runs, runs]


def pairs(runs: int) -> bool:
    """Whether pairs tell what is slower from what is not."""
    slower: Counter[str] = Counter()
    unchanged: Counter[str] = Counter()
    start = time.thread_time()
    node(STEPS)
    print(f"pairs: the node takes {1000 * (time.thread_time() - start):.1f} ms of CPU")
    for _ in range(runs):
        for verdicts, factor in ((slower, SLOWER), (unchanged, 1.0)):
            found = compare_pairs(lambda: node(STEPS), lambda steps=int(STEPS * factor): node(steps), fail=RULE)  # type: ignore[misc]
            verdicts.update(f"work {row.verdict}" for row in (found.call, *found.nodes))
    return judged("pairs", slower, unchanged, least=NEEDED * 2 * runs)


@cp.profile_node("node")
def node(steps: int) -> int:
    """Compute."""
    total = 0
    for step in range(steps):
        total = (total * 31 + step) & 0xFFFF
    return total


def files(runs: int) -> bool:
    """Whether a run that is compared with the file of another tells what is slower from what is not."""
    slower: Counter[str] = Counter()
    unchanged: Counter[str] = Counter()
    compare = ["--cprofiling-compare=base.json", f"--cprofiling-fail={RULE}"]
    with TemporaryDirectory() as folder:
        Path(folder, "test_timed.py").write_text(TIMED)
        for _ in range(runs):
            pytest_in(Path(folder), "--cprofiling-update", *compare, STEPS=str(STEPS), REPEAT="100")
            for verdicts, factor in ((slower, SLOWER), (unchanged, 1.0)):
                done = pytest_in(Path(folder), *compare, STEPS=str(int(STEPS * factor)), REPEAT="100")
                verdicts.update(map(" ".join, VERDICT.findall(done.stdout)))
    return judged("files", slower, unchanged, least=0)


def loaded(runs: int) -> bool:
    """Whether the gate fails for what is much slower, and for nothing else, on a busy machine."""
    found: dict[float, Counter[str]] = {MUCH_SLOWER: Counter(), 1.0: Counter()}
    failed: Counter[float] = Counter()
    compare = ["--cprofiling-compare=base.json", f"--cprofiling-fail={RULE}"]
    with TemporaryDirectory() as folder:
        Path(folder, "test_timed.py").write_text(TIMED)
        for run in range(runs):
            with hogs(run % 2):
                pytest_in(Path(folder), "--cprofiling-update", *compare, STEPS=str(STEPS), REPEAT="40")
            for factor, verdicts in found.items():
                with hogs(1):
                    done = pytest_in(Path(folder), *compare, STEPS=str(int(STEPS * factor)), REPEAT="40")
                failed[factor] += done.returncode == 1
                verdicts.update(map(" ".join, VERDICT.findall(done.stdout)))
    for factor, verdicts in found.items():
        print(f"loaded: {factor:g} times as long: {failed[factor]} of {runs} failed, {dict(verdicts)}")
    return failed[MUCH_SLOWER] == runs and failed[1.0] == 0


@contextmanager
def hogs(each: int) -> Iterator[None]:
    """Keep each processor busy with so many processes."""
    started = [subprocess.Popen([sys.executable, "-c", HOG]) for _ in range(each * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for hog in started:
            hog.kill()
            hog.wait()


def judged(part: str, slower: Counter[str], unchanged: Counter[str], least: float) -> bool:
    """Print verdicts, and return whether they are as they must be."""
    print(f"{part}, verdicts of calls and nodes: 10 % slower: {dict(slower)}, unchanged: {dict(unchanged)}")
    are_there = bool(slower and unchanged)
    is_wrong = any("faster" in each for each in slower) or any("slower" in each for each in unchanged)
    return are_there and slower["work slower"] >= least and not is_wrong


def python(arguments: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder."""
    variables: dict[str, Any] = {**os.environ, "PYTHONPATH": PACKAGE, **environment}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


def pytest_in(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder, with the plugin and no other."""
    plugins = ["-p", "cprofiling_pytest", "-p", "no:cacheprovider"]
    command = ["-m", "pytest", "-q", *plugins, *arguments]
    return python(command, folder, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", **environment)


if __name__ == "__main__":
    sys.exit(main())
