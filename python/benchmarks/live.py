"""Live files: what they cost, running and at rest, and whether they outlive kill -9 at any moment.

``python python/benchmarks/live.py --kills 1000`` starts so many programs, each with 8 threads that record nodes with
``live=``, kills each at a random moment, and reads its file before and after that. It prints how many files could be
read, and how many had a count that was lower than one that was read before, or counts that cannot be of one moment. The
exit status is 0 where all could, and none had.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

if not __package__:  # run by itself
    sys.path.append(str(Path(__file__).resolve().parent.parent))  # behind the package, if that is installed
    __package__ = Path(__file__).resolve().parent.name

from .candidates import cprofiling, new_function
from .harness import collector_off

LIVE = "a call of an enabled decorator with live=, over 0.3 s (ns)"
NOT_LIVE = "a call of an enabled decorator, over 0.3 s (ns)"
BARE = "a call of the function itself, over 0.3 s (ns)"
IDLE_BYTES = "a live file of 1,000 keys at rest, written beyond a block of 512 bytes a second (bytes)"
IDLE_PERCENT = "a live file of 1,000 keys at rest (% of a processor)"
JOINING_MS = "joining a live file while it copies 30,000 keys, the GIL held (ms)"
LEAVING_MS = "leaving a live file with 30,000 keys, the GIL held (ms)"
GOING_MS = "a Profiler with 30,000 keys in a live file that goes, the GIL held (ms)"
ENCODING_MS = "a snapshot of 60,000 keys as bytes (ms)"
CALLS = 10_000  # between two looks at the clock
ROUND_S = 0.3
IDLE_KEYS, IDLE_S, IDLE_ROUNDS = 1_000, 3.0, 5
JOINING_KEYS, JOINING_ROUNDS = 30_000, 7
ENCODING_KEYS = 60_000

THREADS, NODES = 8, 5
KILLS = 1000
LONGEST_S = 0.4  # from the first commit to the kill
PROGRAM = """
import sys, threading
from cprofiling.monitoring import live_writer as writing
writing.INTERVAL_NS = int(sys.argv[2])
import cprofiling as cp
profiler = cp.Profiler()
nodes = [profiler.profile_node(f"node {number}")(lambda: None) for number in range(%d)]
profiler.set_profiling(True, live=sys.argv[1])

def run():
    while True:
        for node in nodes:
            node()

for _ in range(%d):
    threading.Thread(target=run, daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
""" % (NODES, THREADS)  # noqa: UP031 braces are the program's
OFTEN_NS, USUAL_NS = 1_000_000, 100_000_000  # between commits


def loop_ns(function: Any) -> float:
    """Return what a call takes, in ns of time that passes."""
    calls, start = 0, time.perf_counter_ns()
    until = start + ROUND_S * 1e9
    now = start
    while now < until:
        for _ in range(CALLS):
            function()
        calls += CALLS
        now = time.perf_counter_ns()
    return (now - start) / calls


def added_by_live(rounds: int) -> dict[str, float]:
    """Time an enabled decorator with and without a live file, in interleaved rounds of 0.3 s: each has some commits."""
    profiler = cprofiling().Profiler()
    node = profiler.profile_node("node")(new_function())
    calls = {LIVE: node, NOT_LIVE: node, BARE: new_function()}
    figures: dict[str, list[float]] = {name: [] for name in calls}
    with tempfile.TemporaryDirectory() as folder, collector_off():
        for number in range(rounds + 1):
            for name in sorted(calls, reverse=bool(number % 2)):
                path = Path(folder, "live") if name == LIVE else None
                profiler.set_profiling(True, live=path)
                figures[name].append(loop_ns(calls[name]))
        profiler.set_profiling(False)
    return {name: statistics.median(values[1:]) for name, values in figures.items()}


def filled(keys: int) -> Any:
    """Return a Profiler, switched on, with so many keys of a few samples each."""
    profiler = cprofiling().Profiler()
    profiler.set_profiling(True)
    for key in range(keys):
        for sample in range(4):
            profiler.record("inference", f"node {key}", 1 + sample + key % 64)
    return profiler


def at_rest(rounds: int) -> dict[str, float]:
    """Measure what is written, and how long the processor works, while nothing is counted."""

    def written() -> int:
        fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        return int(fields["wchar"])

    profiler = filled(IDLE_KEYS)
    shares = []
    beyond = 0.0
    with tempfile.TemporaryDirectory() as folder:
        profiler.set_profiling(True, live=Path(folder, "live"))
        time.sleep(1.0)
        for _ in range(min(rounds, IDLE_ROUNDS)):
            bytes_before, ran_s, began = written(), time.process_time(), time.monotonic()
            time.sleep(IDLE_S)
            elapsed_s = time.monotonic() - began
            shares.append(100 * (time.process_time() - ran_s) / elapsed_s)
            beyond = max(beyond, written() - bytes_before - 512 * (elapsed_s + 1))
        profiler.set_profiling(False)
    return {IDLE_BYTES: beyond, IDLE_PERCENT: statistics.median(shares)}


def held_ms(action: Callable[[], object]) -> float:
    """Return for how long another thread that wants to run Python could not, at most, during an action."""
    longest, is_over, is_ready = 0, False, threading.Event()

    def tick() -> None:
        nonlocal longest
        is_ready.set()
        last = time.perf_counter_ns()
        while not is_over:
            now = time.perf_counter_ns()
            longest = max(longest, now - last)
            last = now

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    ticker = threading.Thread(target=tick)
    ticker.start()
    is_ready.wait()
    time.sleep(0.01)
    longest = 0
    action()
    is_over = True
    ticker.join()
    sys.setswitchinterval(interval)
    return longest / 1e6


def joining_and_leaving(rounds: int) -> dict[str, float]:
    """Measure for how long the GIL is held, at the least of some rounds: other processes hold it up as well."""
    from cprofiling.monitoring import live_writer

    figures: dict[str, list[float]] = {JOINING_MS: [], LEAVING_MS: [], GOING_MS: []}
    joins = cprofiling().Profiler()
    with tempfile.TemporaryDirectory() as folder, collector_off():
        path = Path(folder, "live")
        keeper = cprofiling().Profiler()
        keeper.set_profiling(True, live=path)
        for _ in range(min(rounds, JOINING_ROUNDS)):
            many = filled(JOINING_KEYS)
            many.set_profiling(True, live=path)
            writer = threading.Thread(target=live_writer._files.open[str(path)]._core.commit)
            writer.start()
            time.sleep(0.005)
            figures[JOINING_MS].append(held_ms(partial(joins.set_profiling, True, live=path)))
            writer.join()
            joins.set_profiling(False)
            figures[LEAVING_MS].append(held_ms(partial(many.set_profiling, False)))
            many.set_profiling(True, live=path)
            held = [many]
            del many
            figures[GOING_MS].append(held_ms(held.clear))
        keeper.set_profiling(False)
    return {name: min(values) for name, values in figures.items()}


def encoding(rounds: int) -> dict[str, float]:
    """Time a snapshot's bytes."""
    snapshot = filled(ENCODING_KEYS).snapshot()
    samples = []
    for _ in range(rounds):
        began = time.perf_counter()
        snapshot.to_bytes()
        samples.append(1000 * (time.perf_counter() - began))
    return {ENCODING_MS: statistics.median(samples)}


MEASURES = {
    added_by_live: (LIVE, NOT_LIVE, BARE),
    at_rest: (IDLE_BYTES, IDLE_PERCENT),
    joining_and_leaving: (JOINING_MS, LEAVING_MS, GOING_MS),
    encoding: (ENCODING_MS,),
}


@dataclass
class Findings:
    """What the kills showed.

    Attributes:
        loaded: Files that could be read after the kill.
        reads: How often files were read before it.
        wrong: What was wrong, in words.
    """

    loaded: int = 0
    reads: int = 0
    wrong: list[str] = field(default_factory=list)


def counts_of(path: str) -> dict[str, int]:
    """Return what a live file says. Raises as ``live.read``; ValueError for figures that cannot be of one moment."""
    from cprofiling import live

    counts = {}
    for part in live.read(path).parts:
        for row in part.snapshot.stats():
            if row.count and not row.min_ms <= (row.p50_ms or 0.0) <= row.max_ms <= row.total_ms:
                raise ValueError(f"figures that do not go together: {row}")
            counts[row.node_name] = row.count
    return counts


@contextlib.contextmanager
def program(path: str, interval_ns: int) -> Iterator[subprocess.Popen[bytes]]:
    """Have a program that records, and is ready; it is killed at the end."""
    command = [sys.executable, "-c", PROGRAM, path, str(interval_ns)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        if running.stdout is not None:
            running.stdout.readline()
        yield running
    finally:
        running.kill()
        running.communicate()


def kill_once(path: str, interval_ns: int, delay_s: float, findings: Findings) -> None:
    """Kill one program after so many seconds, and look at its file before and after."""
    seen: dict[str, int] = {}
    with program(path, interval_ns) as running:
        until = time.monotonic() + delay_s
        while time.monotonic() < until:
            seen = at_least(seen, partial(counts_of, path), findings)
            findings.reads += 1
            time.sleep(min(0.02, max(0.0, until - time.monotonic())))
        os.kill(running.pid, signal.SIGKILL)
    before = len(findings.wrong)
    at_least(seen, partial(counts_of, path), findings)
    findings.loaded += len(findings.wrong) == before


def at_least(seen: dict[str, int], read: Any, findings: Findings) -> dict[str, int]:
    """Read counts, none of which may be lower than what was seen before; return the newest."""
    try:
        counts: dict[str, int] = read()
    except Exception as error:
        findings.wrong.append(f"{type(error).__name__}: {error}")
        return seen
    for name, low in seen.items():
        if counts.get(name, 0) < low:
            findings.wrong.append(f"{name}: {counts.get(name, 0)} < {low}")
    return counts


def kill_all(kills: int, seed: int = 0) -> Findings:
    """Kill so many programs; every second one commits a hundred times as often, so that more are hit in the middle."""
    findings, choose = Findings(), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(kills):
            path = Path(folder, f"live{number}")
            kill_once(str(path), OFTEN_NS if number % 2 else USUAL_NS, choose.uniform(0, LONGEST_S), findings)
            path.unlink()
    return findings


def main() -> int:
    """Run the kills that are asked for, and return the exit status."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--kills", type=int, default=KILLS, metavar="N", help="programs to kill (default: %(default)s)")
    options = made.parse_args()
    findings = kill_all(options.kills)
    print(f"{findings.loaded} of {options.kills} files could be read after kill -9; {findings.reads} reads before")
    for line in findings.wrong:
        print(f"wrong: {line}")
    return 0 if findings.loaded == options.kills and not findings.wrong else 1


if __name__ == "__main__":
    sys.exit(main())
