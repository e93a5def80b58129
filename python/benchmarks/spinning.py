"""Nodes that spin on several threads: what the benchmarks of exporters and remote control look at."""

from __future__ import annotations

import math
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager

import cprofiling as cp

THREADS, NODES = 4, 10
SPIN = 400  # turns of the loop in a node, some 10 µs
PAUSE_S = 0.0002  # between a thread's frames


def node_names() -> list[str]:
    """The names of all nodes."""
    return [f"node {number}" for number in range(NODES)]


def spin() -> int:
    """Work for a while."""
    total = 0
    for number in range(SPIN):
        total += number
    return total


class Pipeline:
    """Nodes that threads run until they are told to end, and their times, in ns, turn by turn and thread by thread."""

    def __init__(self) -> None:
        """Make the nodes."""
        self.profiler = cp.Profiler()
        self.profiler.set_profiling(True)
        self.nodes = [self.profiler.profile_node(name)(spin) for name in node_names()]
        self.times: list[list[array[int]]] = []
        self.frames = [0] * THREADS
        self.is_over = threading.Event()
        self.begin_turn()

    def begin_turn(self) -> list[array[int]]:
        """Return where each thread keeps its times from its next frame on."""
        self.times.append([array("q") for _ in range(THREADS)])
        return self.times[-1]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run all threads."""
        threads = [threading.Thread(target=self._run, args=(thread,)) for thread in range(THREADS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.is_over.set()
            for thread in threads:
                thread.join()

    def _run(self, thread: int) -> None:
        clock = time.perf_counter_ns
        while not self.is_over.is_set():
            times = self.times[-1][thread]
            for node in self.nodes:
                begin = clock()
                node()
                times.append(clock() - begin)
            self.frames[thread] += 1
            time.sleep(PAUSE_S)


def percentile_us(times: array[int], share: float) -> float:
    """A percentile of sorted times in ns; NaN without any."""
    return times[int(share * (len(times) - 1))] / 1000 if times else math.nan


def sorted_times(turn: list[array[int]]) -> array[int]:
    """The times of all threads in a turn."""
    return array("q", sorted(each for one in turn for each in one))
