"""Batches of a pipeline: timed, under cuvis-ai-core's names."""

from __future__ import annotations

import copy
import itertools
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import cprofiling as cp

pytestmark = pytest.mark.native


class Loader(cp.PipelineProfiling):
    """A pipeline that is fed with batches."""


def counts(pipeline: Loader, stage: str | None = None) -> dict[str, int]:
    return {row.node_name: row.count for row in pipeline.get_data_profiling_summary(stage)}


def passed(pipeline: Loader, number: int, **options: Any) -> list[Any]:
    return list(pipeline.iter_profiled_batches(({"x": each} for each in range(number)), stage="val", **options))


def test_batches_are_timed_but_for_the_first_of_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """As cuvis-ai-core has it, whose own test has these times."""
    ticks = itertools.count(0, 1_000_000)
    monkeypatch.setattr("cprofiling.nodes.profiler.time", SimpleNamespace(perf_counter_ns=lambda: next(ticks)))
    pipeline = Loader()
    assert passed(pipeline, 3) == [{"x": 0}, {"x": 1}, {"x": 2}]
    assert counts(pipeline) == {}
    pipeline.set_profiling(True)
    assert passed(pipeline, 3, move=lambda batch: {**batch, "moved": True})[1] == {"x": 1, "moved": True}
    rows = {row.node_name: (row.count, row.mean_ms) for row in pipeline.get_data_profiling_summary()}
    assert rows == {"data_load": (2, 1.0), "to_device": (2, 1.0), "batch_loop": (2, 3.0)}
    assert pipeline.get_profiling_summary() == []
    passed(pipeline, 2)
    assert counts(pipeline) == {"data_load": 3, "to_device": 2, "batch_loop": 3}
    assert counts(pipeline, "train") == {}


def test_statistics_of_batches_begin_anew_with_those_of_nodes() -> None:
    pipeline = Loader()
    pipeline.set_profiling(True, skip_first_n=1)
    passed(pipeline, 4)
    assert counts(pipeline) == {"data_load": 2, "batch_loop": 2}
    pipeline.set_profiling(False)
    passed(pipeline, 4)
    assert counts(pipeline) == {"data_load": 2, "batch_loop": 2}
    pipeline.set_profiling(True, skip_first_n=1)
    assert counts(pipeline)
    pipeline.set_profiling(True)
    assert counts(pipeline) == {}
    passed(pipeline, 2)
    pipeline.reset_profiling()
    assert counts(pipeline) == {}
    pipeline.profiler.set_profiling(True, skip_first_n=2)
    other = Loader()
    other.profiler.set_profiling(True, skip_first_n=2)
    passed(other, 5)
    assert counts(other) == {"data_load": 2, "batch_loop": 2}
    assert counts(copy.copy(pipeline)) == {}


def test_batches_have_the_medians_of_nodes() -> None:
    pipeline = Loader()
    pipeline.set_profiling(True)
    passed(pipeline, 3)
    pipeline.set_profiling(True, median="p2")
    assert counts(pipeline) == {}
    passed(pipeline, 3)
    assert pipeline.get_data_profiling_summary().median == "p2"
    pipeline.set_profiling(False)
    pipeline.set_profiling(True, median="p2")
    assert counts(pipeline) == {"data_load": 2, "batch_loop": 2}
    pipeline.set_profiling(True)  # the other direction discards nothing
    assert counts(pipeline) == {"data_load": 2, "batch_loop": 2}
    assert pipeline.get_data_profiling_summary().median == "histogram"
    pipeline.set_profiling(True, median="p2")
    assert counts(pipeline) == {}


def test_a_loop_that_is_left_makes_no_sample() -> None:
    pipeline = Loader()
    pipeline.set_profiling(True)
    batches = pipeline.iter_profiled_batches([{}] * 5, stage=cp.ExecutionStage.TRAIN)
    for _ in range(3):
        next(batches)
    batches.close()
    assert counts(pipeline, "train") == {"data_load": 2, "batch_loop": 1}


def test_devices_of_batches_are_waited_for_where_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tensor:
        is_cuda, device = True, "cuda:1"

    waited: list[str] = []
    torch = SimpleNamespace(Tensor=Tensor, cuda=SimpleNamespace(synchronize=waited.append))
    pipeline = Loader()
    pipeline.set_profiling(True, synchronize_cuda=True)
    monkeypatch.setitem(sys.modules, "torch", torch)
    list(pipeline.iter_profiled_batches([{"a": 1, "x": Tensor(), "y": Tensor()}, {}], stage="val", move=dict))
    assert waited == ["cuda:1"]
    list(pipeline.iter_profiled_batches([{"x": Tensor()}] * 2, stage="val"))
    assert waited == ["cuda:1"] * 2
    for batch in (Tensor(), [1, Tensor()], (Tensor(), Tensor())):
        list(pipeline.iter_profiled_batches([batch] * 2, stage="val"))
    assert len(waited) == 5
    pipeline.set_profiling(True)
    list(pipeline.iter_profiled_batches([{"x": Tensor()}] * 2, stage="val"))
    assert len(waited) == 5


def test_an_attribute_of_any_name_is_the_pipeline_s_own() -> None:
    pipeline = Loader()
    pipeline._batches = []  # type: ignore[attr-defined]
    pipeline.set_profiling(True)
    pipeline.reset_profiling()
    assert passed(pipeline, 3)
    assert counts(pipeline) == {"data_load": 2, "batch_loop": 2}


def test_what_batches_say_where_there_are_none() -> None:
    pipeline = Loader()
    assert "profiling is off" in str(pipeline.get_data_profiling_summary())
    pipeline.set_profiling(True)
    assert str(pipeline.get_data_profiling_summary()) == "No profiling data collected."
    with pytest.raises(TypeError, match="stage must be"):
        next(pipeline.iter_profiled_batches([], stage=3))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="batches must be an iterable, got 3"):
        next(pipeline.iter_profiled_batches(3, stage="val"))  # type: ignore[arg-type]
