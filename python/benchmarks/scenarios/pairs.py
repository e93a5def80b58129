"""Overhead of a profiler in per cent of a pipeline's wall time, by pairs of passes."""

from __future__ import annotations

import contextlib
import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple

SEED = 1985
BARE = "no profiler"
Z95 = 1.96


class Variant(NamedTuple):
    """One way to run a scenario: a pass, and the context that is open around it and not timed."""

    work: Callable[[], object]
    session: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext

    def seconds(self) -> float:
        """Run one pass and return its wall time."""
        with self.session():
            start = time.perf_counter()
            self.work()
            return time.perf_counter() - start


class Overhead(NamedTuple):
    """What a profiler adds, in per cent of the wall time without one."""

    median: float
    low: float  # 95 % interval of the median, from order statistics
    high: float
    pairs: int
    bare_ms: float


def measure(variants: Mapping[str, Variant], seconds: float) -> dict[str, Overhead]:
    """Run pairs of passes, one without a profiler and one with, in shuffled order, for about ``seconds`` per variant.

    The two passes of a pair lie next to each other, so that both meet the same machine.
    """
    for variant in variants.values():
        variant.seconds()  # warm
    shuffle = random.Random(SEED)
    bare = variants[BARE]
    others = [name for name in variants if name != BARE]
    ratios: dict[str, list[float]] = {name: [] for name in others}
    times: list[float] = []
    end = time.monotonic() + seconds * len(others)
    while time.monotonic() < end or len(times) < 10 * len(others):
        gc.collect()
        for name in shuffle.sample(others, len(others)):
            pair = {}
            for which in shuffle.sample([bare, variants[name]], 2):
                pair[which is bare] = which.seconds()
            ratios[name].append(pair[False] / pair[True])
            times.append(pair[True])
    return {name: overhead(values, statistics.median(times) * 1e3) for name, values in ratios.items()}


def overhead(ratios: list[float], bare_ms: float) -> Overhead:
    """Return the median of ratios as per cent above 1, with its interval."""
    ordered = sorted((ratio - 1) * 100 for ratio in ratios)
    count = len(ordered)
    reach = Z95 * math.sqrt(count) / 2
    low = max(0, math.floor(count / 2 - reach))
    high = min(count - 1, math.ceil(count / 2 + reach))
    return Overhead(statistics.median(ordered), ordered[low], ordered[high], count, bare_ms)
