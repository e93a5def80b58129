"""Memory stays bounded: by the number of keys, and by that alone (failure scenario F5)."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import textwrap
import warnings
from typing import Any

import pytest

import cprofiling as cp
from calls import profiler_on, resident_bytes, run_python
from cprofiling import NodeProfilingStats

pytestmark = [pytest.mark.native, pytest.mark.alone]

MOST_KEYS = 65_536
OVERFLOW = "__overflow__"
KEY_BYTES = 16 * 1024


@pytest.fixture
def profiler() -> cp.Profiler:
    return profiler_on()


@pytest.fixture
def full() -> cp.Profiler:
    """A Profiler of which every key but one is taken, in two stages."""
    profiler = profiler_on()
    for i in range(MOST_KEYS - 1):
        profiler.record("train" if i % 2 else "val", f"node {i}", 1.0)
    return profiler


def overflow(profiler: cp.Profiler) -> dict[str, NodeProfilingStats]:
    """Return the overflow keys by stage."""
    return {str(stats.stage): stats for stats in profiler.get_profiling_summary() if stats.node_name == OVERFLOW}


def call_node(profiler: cp.Profiler, name: str) -> None:
    assert profiler.profile_node(name=name)(lambda: 42)() == 42


def run_block(profiler: cp.Profiler, name: str) -> None:
    with profiler.profile_node(name):
        pass


def record(profiler: cp.Profiler, name: str) -> None:
    profiler.record("inference", name, 1.0)


WAYS = [call_node, run_block, record]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore:a Profiler keeps")
def test_the_last_key_has_its_own_name_and_all_further_ones_share_one(full: cp.Profiler, way: Any) -> None:
    way(full, "last")
    assert overflow(full) == {}
    for i in range(1000):
        way(full, f"late {i % 300}")
    for i in range(3):
        full.record("train", f"late {i}", 2.0)
        full.record("train", "node 1", 3.0)
        way(full, "last")
    summary = full.get_profiling_summary()
    assert len(summary) == MOST_KEYS + 2
    late = overflow(full)
    assert {stage: stats.count for stage, stats in late.items()} == {"inference": 1000, "train": 3}
    assert late["train"].total_ms == 6.0
    by_name = {stats.node_name: stats.count for stats in summary}
    assert (by_name["node 1"], by_name["last"], by_name["node 2"]) == (4, 4, 1)
    assert sum(stats.count for stats in summary) == MOST_KEYS - 1 + 1 + 1000 + 3 + 3 + 3


@pytest.mark.parametrize("way", WAYS)
def test_there_is_one_warning_for_each_profiler(full: cp.Profiler, way: Any) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        way(full, "last")
        assert caught == []
        for i in range(10):
            way(full, f"late {i}")
        full.reset_profiling()
        way(full, "later still")
    assert [warning.category for warning in caught] == [RuntimeWarning]
    message = str(caught[0].message)
    assert "65536" in message
    assert OVERFLOW in message


def test_under_w_error_nothing_reaches_the_users_call_and_the_process_goes_on() -> None:
    script = f"""
        import cprofiling as cp
        cp.set_profiling(True)
        for i in range({MOST_KEYS + 10}):
            assert cp.profile_node(name=str(i))(lambda: 42)() == 42
            if i > {MOST_KEYS - 5}:
                with cp.profile_node(f"block {{i}}"):
                    pass
        summary = cp.get_profiling_summary()
        print(len(summary), summary[-1].node_name, sum(stats.count for stats in summary))
    """
    done = run_python(textwrap.dedent(script), "-W", "error")
    assert (done.returncode, done.stdout) == (0, f"{MOST_KEYS + 1} {OVERFLOW} {MOST_KEYS + 10 + 14}\n")


@pytest.mark.filterwarnings("ignore:a Profiler keeps")
def test_overflow_keys_skip_and_fail_like_others(full: cp.Profiler) -> None:
    full.set_profiling(True, skip_first_n=3, reset=True)

    def fails() -> None:
        raise ZeroDivisionError

    call_node(full, "last")
    for i in range(5):
        call_node(full, f"late {i}")
        with pytest.raises(ZeroDivisionError):
            full.profile_node(name=f"late {i}")(fails)()
    stats = overflow(full)["inference"]
    assert (stats.count, stats.skipped_count, stats.error_count) == (2, 3, 5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:a Profiler keeps")
def test_stages_without_end_are_bounded_too(full: cp.Profiler) -> None:
    before = len(full.get_profiling_summary())
    for i in range(5000):
        full.record(f"stage {i}", "node", 1.0)
    summary = full.get_profiling_summary()
    assert len(summary) < before + 5000
    assert sum(stats.count for stats in summary) == before + 5000


def test_a_node_called_overflow_is_an_ordinary_key(profiler: cp.Profiler) -> None:
    call_node(profiler, OVERFLOW)
    (stats,) = profiler.get_profiling_summary()
    assert (stats.node_name, stats.count) == (OVERFLOW, 1)


@pytest.mark.unsanitized
@pytest.mark.slow
def test_a_full_profiler_grows_no_more() -> None:
    """In a process of its own, of which nothing else takes memory or gives it back."""
    program = f"""
        import warnings
        import cprofiling as cp
        from calls import resident_bytes
        from test_memory import overflow

        warnings.simplefilter("ignore")
        profiler = cp.Profiler()
        profiler.set_profiling(True)
        for i in range({MOST_KEYS} + 2000):
            profiler.record("train", str(i), 1.0)
        before = resident_bytes()
        for i in range(200_000):
            profiler.record("train", f"{{i}} of very many keys", 1.0)
        assert resident_bytes() - before < 200_000 * 32  # a name alone takes more
        assert overflow(profiler)["train"].count == 202_000
    """
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.unsanitized
def test_memory_per_key_is_bounded_however_its_times_are_spread(profiler: cp.Profiler) -> None:
    rng = random.Random(0)
    keys = 4000
    profiler.record("train", "first", 1.0)
    gc.collect()
    before = resident_bytes()
    for i in range(keys):
        for _ in range(60):
            profiler.record("train", str(i), min(1e12, 10 ** rng.uniform(-6, 12)))
    gc.collect()
    assert (resident_bytes() - before) / keys < KEY_BYTES


def test_memory_does_not_grow_with_samples(profiler: cp.Profiler) -> None:
    values = [0.001 * 1.01**i for i in range(2000)]

    def feed(times: int) -> int:
        for _ in range(times):
            for value in values:
                profiler.record("train", "node", value)
        gc.collect()
        return resident_bytes()

    before = feed(5)
    assert feed(100) - before < 256 * 1024


@pytest.mark.unsanitized
def test_a_dropped_profiler_gives_its_memory_back() -> None:
    def use_one() -> None:
        profiler = profiler_on()
        for i in range(2000):
            profiler.record("train", str(i), 1.0)
        assert len(profiler.get_profiling_summary()) == 2000

    def growth() -> int:
        gc.collect()
        before = resident_bytes()
        for _ in range(20):
            use_one()
        gc.collect()
        return resident_bytes() - before

    use_one()
    assert min(growth() for _ in range(3)) < 20 * 2000 * 64, "a leak comes each time, other tests' threads do not"


@pytest.mark.unsanitized
@pytest.mark.parametrize("resets", [1, 50])
def test_resets_do_not_use_memory_up(profiler: cp.Profiler, resets: int) -> None:
    def cycle(times: int) -> int:
        for _ in range(times):
            for i in range(500):
                profiler.record("train", str(i), 1.0 + i)
            profiler.reset_profiling()
        gc.collect()
        return resident_bytes()

    growths = [-cycle(3) + cycle(resets) for _ in range(3)]
    assert min(growths) < 256 * 1024, "a leak comes each time, other tests' threads do not"
    profiler.record("train", "0", 1.0)
    (stats,) = profiler.get_profiling_summary()
    assert (stats.count, stats.p50_ms) == (1, 1.0)
