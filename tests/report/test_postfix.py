"""What a progress bar tells of a pipeline."""

from __future__ import annotations

import gc
import io
import itertools
from typing import Any

import pytest

import cprofiling as cp
from cprofiling.notebook import postfix
from cprofiling.report.notebook import progress_postfix


class Pipeline(cp.PipelineProfiling):
    def tell(self, *times: tuple[str, float], stage: str = "train") -> None:
        for name, time_ms in times:
            self.profiler.record(stage, name, time_ms)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, as the helper sees it."""
    now = [100.0]
    monkeypatch.setattr("cprofiling.report.notebook.progress_postfix.time.monotonic", lambda: now[0])
    return now


@pytest.fixture
def pipeline() -> Pipeline:
    pipeline = Pipeline()
    pipeline.set_profiling(True)
    return pipeline


def test_it_tells_the_slowest_nodes_and_frames_of_the_last_while(clock: list[float], pipeline: Pipeline) -> None:
    pipeline.tell(("a", 5.0), ("b", 1.0), ("c", 3.0))
    assert postfix(pipeline) == {"a": "5.00ms", "c": "3.00ms"}
    pipeline.tell(*[("a", 1.0), ("b", 2.0), ("c", 0.5)] * 20)
    clock[0] += 0.4
    assert postfix(pipeline) == {"a": "5.00ms", "c": "3.00ms"}
    clock[0] += 0.1
    assert postfix(pipeline) == {"fps": "40.0", "b": "2.00ms", "a": "1.00ms"}
    clock[0] += 0.5
    assert postfix(pipeline) == {}


def test_frames_are_known_where_nodes_run_as_often_or_are_told(clock: list[float], pipeline: Pipeline) -> None:
    postfix(pipeline, frames=0)
    pipeline.tell(*[("a", 1.0)] * 10, *[("b", 1.0)] * 9)
    clock[0] += 1
    assert postfix(pipeline)["fps"] == "10.0"
    pipeline.tell(*[("a", 1.0)] * 10, *[("b", 1.0)] * 8)
    clock[0] += 1
    assert "fps" not in postfix(pipeline, frames=100)
    pipeline.tell(*[("a", 1.0)] * 10, *[("b", 1.0)] * 8)
    clock[0] += 2
    assert postfix(pipeline, frames=150)["fps"] == "25.0"
    pipeline.tell(("a", 1.0))
    pipeline.tell(("a", 1.0), ("b", 1.0), stage="val")
    clock[0] += 1
    assert postfix(pipeline)["fps"] == "2.0"


def test_one_name_in_two_stages_is_told_twice(pipeline: Pipeline) -> None:
    pipeline.tell(("a", 2.0))
    pipeline.tell(("a", 1.0), stage="val")
    assert postfix(pipeline) == {"a (train)": "2.00ms", "a (val)": "1.00ms"}


def test_a_reset_is_no_negative_time(clock: list[float], pipeline: Pipeline) -> None:
    pipeline.tell(*[("a", 9.0)] * 5)
    postfix(pipeline)
    pipeline.reset_profiling()
    pipeline.tell(("a", 1.0))
    clock[0] += 1
    assert postfix(pipeline) == {"fps": "1.0", "a": "1.00ms"}


def test_own_time_ranks_nested_nodes() -> None:
    profiler = cp.Profiler()
    profiler.set_profiling(True)
    with profiler.profile_node("outer"), profiler.profile_node("inner"):
        sum(range(100_000))
    assert list(postfix(profiler, top=1)) == ["inner"]
    assert postfix(profiler, top=0, interval_s=0) == {}


def test_without_profiling_there_is_nothing() -> None:
    assert postfix(Pipeline()) == {}
    assert postfix(cp.Profiler()) == {}
    assert isinstance(postfix(), dict)


def test_figures_are_read_so_often_and_no_more(
    clock: list[float], pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = itertools.count()
    original = cp.Profiler.get_profiling_summary

    def counted(self: cp.Profiler, stage: Any = None) -> cp.ProfilingSummary:
        next(reads)
        return original(self, stage)

    monkeypatch.setattr(cp.Profiler, "get_profiling_summary", counted)
    for _ in range(1000):
        postfix(pipeline)
        clock[0] += 0.01
    assert next(reads) == 20
    postfix(pipeline)["a"] = "changed"
    assert "a" not in postfix(pipeline)


def test_nothing_is_kept_alive() -> None:
    profiler = cp.Profiler()
    postfix(profiler)
    count = len(progress_postfix._known)
    del profiler
    gc.collect()
    assert len(progress_postfix._known) < count


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"profiler": 3}, r"profiler must be a Profiler, or a pipeline that has one, got 3 \(int\)"),
        ({"top": -1}, "top must be >= 0, got -1"),
        ({"top": "2"}, "top must be an integer"),
        ({"frames": -1}, "frames must be >= 0, got -1"),
        ({"frames": 1.5}, "frames must be an integer or None"),
        ({"interval_s": -0.1}, "interval_s must be from 0"),
        ({"interval_s": "1"}, "interval_s must be a number"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], message: str) -> None:
    profiler = cp.Profiler()
    for _ in range(2):
        with pytest.raises((TypeError, ValueError), match=message):
            postfix(**{"profiler": profiler, **arguments})
        postfix(profiler)  # after which the figures are known for a while


def test_tqdm_shows_it(pipeline: Pipeline) -> None:
    tqdm = pytest.importorskip("tqdm").tqdm
    shown = io.StringIO()
    with tqdm(range(50), file=shown, mininterval=0, miniters=1) as bar:
        for _ in bar:
            pipeline.tell(("<a>\n{b}", 2.0), ("b%s", 1.0))
            bar.set_postfix(postfix(pipeline, interval_s=0), refresh=False)
    last = shown.getvalue().split("\r")[-1]
    assert "50/50" in last
    assert "<a>\\n{b}=2.00ms, b%s=1.00ms]" in last
    assert "fps=" in last
