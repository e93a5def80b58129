"""cuvis-ai-core with ``install()``: what its profiling API says and does, side by side with its own profiler.

Each test is one thing that a caller can observe. It is looked at with its own profiler and with ours in its place,
and both must be what the test says.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import inspect
import itertools
import os
import pickle
import random
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest import mock

import pytest

import cprofiling as cp
from cprofiling.integrations import cuvis

# PyTorch and what it uses warn of deprecations of their own.
pytestmark = pytest.mark.filterwarnings("default")

grpc = pytest.importorskip("grpc")
torch: Any = pytest.importorskip("torch")
pipeline_module: Any = pytest.importorskip("cuvis_ai_core.pipeline.pipeline")
schemas: Any = pytest.importorskip("cuvis_ai_schemas.pipeline")
enums: Any = pytest.importorskip("cuvis_ai_schemas.enums")
node_module: Any = pytest.importorskip("cuvis_ai_core.node.node")
profiling: Any = pytest.importorskip("cuvis_ai_core.pipeline.profiling")
CuvisPipeline = pipeline_module.CuvisPipeline
NO_DATA = "No profiling data collected."
KINDS = ("its own", "ours")
Stage = enums.ExecutionStage
FEATURES = 4
BATCH = 2
TEN = ("Layer", *(f"Layer-{number}" for number in range(1, 7)), "Loss", "Accuracy", "Log")
STAGES_OF = {"Loss": {Stage.TRAIN, Stage.VAL}, "Accuracy": {Stage.VAL, Stage.TEST}}
EVERY = frozenset({Stage.TRAIN, Stage.VAL, Stage.TEST, Stage.INFERENCE})


def port(*shape: int, **options: Any) -> Any:
    return schemas.PortSpec(dtype=torch.float32, shape=shape, **options)


class _Annotated(node_module.Node):  # type: ignore[misc]
    """What cuvis-ai-core wants to know of nodes."""

    _category = enums.NodeCategory.TRANSFORM
    _tags = frozenset({enums.NodeTag.TABULAR})


class Layer(_Annotated):
    INPUT_SPECS: ClassVar[Any] = {"x": port(-1, FEATURES)}
    OUTPUT_SPECS: ClassVar[Any] = {"x": port(-1, FEATURES)}

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.linear = torch.nn.Linear(FEATURES, FEATURES)

    def forward(self, x: Any, **_: Any) -> dict[str, Any]:
        return {"x": self.linear(x)}


class Loss(_Annotated):
    INPUT_SPECS: ClassVar[Any] = {"x": port(-1, FEATURES), "truth": port(-1, FEATURES)}
    OUTPUT_SPECS: ClassVar[Any] = {"loss": port()}
    EXECUTION_STAGES = STAGES_OF["Loss"]

    def forward(self, x: Any, truth: Any, **_: Any) -> dict[str, Any]:
        return {"loss": ((x - truth) ** 2).mean()}


class Accuracy(_Annotated):
    INPUT_SPECS: ClassVar[Any] = {"x": port(-1, FEATURES), "truth": port(-1, FEATURES)}
    OUTPUT_SPECS: ClassVar[Any] = {"share": port()}
    EXECUTION_STAGES = STAGES_OF["Accuracy"]

    def forward(self, x: Any, truth: Any, **_: Any) -> dict[str, Any]:
        return {"share": (x.argmax(1) == truth.argmax(1)).float().mean()}


class Log(_Annotated):
    """A node that can be told what to do."""

    INPUT_SPECS: ClassVar[Any] = {"x": port(-1, FEATURES)}
    OUTPUT_SPECS: ClassVar[Any] = {"seen": port()}

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.acts: list[Any] = []  # called one by one; what they return that is not None the node returns

    def forward(self, x: Any, **_: Any) -> Any:
        outputs = self.acts.pop(0)() if self.acts else None
        return {"seen": x.sum()} if outputs is None else outputs


class Chain:
    """A CuvisPipeline of the ten nodes: seven layers, and three that read what the last of them gives."""

    def __init__(self, kind: type | None = None) -> None:
        torch.manual_seed(0)
        self.pipeline: Any = (kind or pipeline_module.CuvisPipeline)("chain")
        layers = [Layer() for _ in range(7)]
        self.loss, self.accuracy, self.log = Loss(), Accuracy(), Log()
        for left, right in itertools.pairwise(layers):
            self.pipeline.connect(left.outputs.x, right.inputs.x)
        for end in (self.loss, self.accuracy, self.log):
            self.pipeline.connect(layers[-1].outputs.x, end.inputs.x)

    def run(self, stage: Any = Stage.INFERENCE, times: int = 1) -> None:
        """Send batches through."""
        for _ in range(times):
            self.pipeline.forward(batch=batch(), stage=stage)


def batch() -> dict[str, Any]:
    return {"x": torch.ones(BATCH, FEATURES), "truth": torch.zeros(BATCH, FEATURES)}


def nodes_of(stage: Any) -> list[str]:
    """The names of the nodes that run in a stage, in the pipeline's order."""
    return [name for name in TEN if stage in STAGES_OF.get(name, EVERY)]


def counts(stats: list[Any]) -> dict[tuple[str, str], int]:
    return {(row.stage, row.node_name): row.count for row in stats}


def names() -> list[dict[str, Any]]:
    """What the class and the two modules have, but what copyreg keeps in a class whose objects are copied."""
    found = [dict(vars(owner)) for owner in (CuvisPipeline, pipeline_module, profiling)]
    found[0].pop("__slotnames__", None)
    return found


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """All is as it was, after each test."""
    before = names()
    yield
    cuvis.uninstall()
    assert names() == before


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Whose profiler pipelines get in this test."""
    if request.param == "ours":
        cuvis.install()
    return str(request.param)


@pytest.fixture
def chain(kind: str) -> Chain:
    return Chain()


def clock(step_ns: Callable[[], int]) -> Any:
    """A time.perf_counter_ns that goes on by a step each time it is read."""
    now = [10**15]

    def read() -> int:
        now[0] += step_ns()
        return now[0]

    return mock.patch("time.perf_counter_ns", read)


def both(observe: Callable[[], Any]) -> tuple[Any, Any]:
    """What is seen with its own profiler, and with ours."""
    own = observe()
    cuvis.install()
    try:
        return own, observe()
    finally:
        cuvis.uninstall()


# --- installing ---


def test_it_is_ours_after_install() -> None:
    cuvis.install()
    chain = Chain()
    chain.pipeline.set_profiling(True)
    chain.run()
    profiler = chain.pipeline._profiler
    assert isinstance(profiler, profiling.PipelineProfiler)
    assert type(profiler).__name__ == "PipelineProfiler"
    with mock.patch.object(profiling._ScalarAccumulator, "record", side_effect=AssertionError):
        chain.run()
    assert {stats.count for stats in chain.pipeline.get_profiling_summary()} == {2}


def test_uninstall_puts_everything_back() -> None:
    before = names()
    cuvis.uninstall()
    for _ in "ab":
        cuvis.install()
    changed = [
        {name for name in then if now[name] is not then[name]} for then, now in zip(before, names(), strict=True)
    ]
    assert changed == [{"_start_profiling_timer", "_stop_profiling_timer"}, {"PipelineProfiler"}, set()]
    ours = pipeline_module.PipelineProfiler
    cuvis.uninstall()
    assert names() == before
    cuvis.install()
    assert pipeline_module.PipelineProfiler is ours


def test_what_others_put_in_its_place_stays() -> None:
    cuvis.install()
    theirs = lambda *arguments: None  # noqa: E731
    ours = CuvisPipeline._stop_profiling_timer
    original = ours.__wrapped__
    CuvisPipeline._stop_profiling_timer = theirs
    cuvis.uninstall()
    assert CuvisPipeline._stop_profiling_timer is theirs
    CuvisPipeline._stop_profiling_timer = original


def test_pipelines_keep_their_profiler_until_statistics_begin_anew() -> None:
    chain = Chain()
    p = chain.pipeline
    p.set_profiling(True)
    chain.run()
    for switch, kept, later in (
        (cuvis.install, False, True),
        (cuvis.uninstall, True, False),
    ):
        switch()
        chain.run()
        assert (cuvis.profiler_of(p) is not None) is kept
        assert {stats.count for stats in p.get_profiling_summary()} == {2}
        p.set_profiling(True, reset=True)
        assert (cuvis.profiler_of(p) is not None) is later
        chain.run()
    assert type(p._profiler) is profiling.PipelineProfiler


@pytest.mark.parametrize(
    ("owner", "name", "there"),
    [
        (pipeline_module, "PipelineProfiler", type("PipelineProfiler", (profiling.PipelineProfiler,), {})),
        (profiling.PipelineProfiler, "merge", lambda self, other: None),
    ],
)
def test_what_others_have_changed_before_is_not_passed_over(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, there: Any
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, there, raising=False)
        before = names()
        with pytest.raises(TypeError, match=r"^PipelineProfiler must be as cuvis-ai-core 0\.18\.6 has it, got "):
            cuvis.install()
        assert names() == before


def test_without_cuvis_ai_core_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuvis_ai_core.pipeline", None)
    with pytest.raises(ModuleNotFoundError, match="cuvis_ai_core"):
        cuvis.install()


# --- what more there is ---


def test_the_profiler_of_a_pipeline_knows_more() -> None:
    cuvis.install()
    chain = Chain()
    assert cuvis.profiler_of(chain.pipeline) is None
    chain.pipeline.set_profiling(True, skip_first_n=1)
    chain.run(times=6)
    profiler = cuvis.profiler_of(chain.pipeline)
    assert isinstance(profiler, cp.Profiler)
    summary = profiler.get_profiling_summary()
    theirs = chain.pipeline.get_profiling_summary()
    assert summary.skip_first_n == 1
    for ours, its in zip(summary, theirs, strict=True):
        assert {field: getattr(ours, field) for field in vars(its)} == vars(its)
        assert ours.p99_ms is not None
        assert ours.min_ms <= ours.p99_ms <= ours.max_ms
        assert ours.skipped_count == 1
    assert len(cp.Snapshot.merge([profiler.snapshot()]).stats()) == len(theirs)
    chain.pipeline.reset_profiling()
    assert profiler.get_profiling_summary() == []
    with pytest.raises(TypeError, match=r"pipeline must be a CuvisPipeline, got 1 \(int\)"):
        cuvis.profiler_of(1)


# --- set_profiling ---


@pytest.mark.parametrize(
    ("skip", "skipped"), [(2.5, 3), (True, 1), (2**63, 5), (2**80, 5), (float("nan"), 0), (0.0, 0)]
)
def test_any_number_is_a_skip(chain: Chain, skip: Any, skipped: int) -> None:
    p = chain.pipeline
    p.set_profiling(True, skip_first_n=skip)
    assert p._profiler.skip_first_n is skip
    chain.run(times=5)
    assert {stats.count for stats in p.get_profiling_summary()} == {5 - skipped}


def test_what_keeps_the_statistics_and_what_does_not(chain: Chain) -> None:
    p = chain.pipeline
    p.set_profiling(True, skip_first_n=1)
    first = p._profiler
    chain.run(times=3)
    p.set_profiling(False, skip_first_n=9)
    assert p._profiler is first
    assert p.format_profiling_summary().startswith("Profiling Summary (skip_first_n=1)\n")
    p.set_profiling(True, skip_first_n=1)
    assert p._profiler is first
    chain.run()
    assert {stats.count for stats in p.get_profiling_summary()} == {3}
    p.set_profiling(True, skip_first_n=0)
    assert p._profiler is not first
    assert p.get_profiling_summary() == []
    second = p._profiler
    p.set_profiling(False, reset=True)
    assert p._profiler is not second
    assert len(first.snapshot()) == len(nodes_of(Stage.INFERENCE))


def test_reset_profiling_begins_anew_with_the_skips(chain: Chain) -> None:
    p = chain.pipeline
    p.set_profiling(True, skip_first_n=2)
    profiler = p._profiler
    chain.run(times=3)
    assert p.reset_profiling() is None
    assert (p._profiler, p.profiling_enabled) == (profiler, True)
    assert p.get_profiling_summary() == []
    chain.run(times=5)
    assert {stats.count for stats in p.get_profiling_summary()} == {3}


# --- what is counted ---


def test_nodes_are_counted_by_stage_and_name_in_the_order_of_their_first_calls(chain: Chain) -> None:
    p = chain.pipeline
    p.set_profiling(True)
    order = [Stage.VAL, Stage.TRAIN, Stage.VAL, Stage.INFERENCE, Stage.TEST, Stage.TRAIN, Stage.TRAIN]
    for stage in order:
        chain.run(stage)
    expected = {(str(stage), name): order.count(stage) for stage in dict.fromkeys(order) for name in nodes_of(stage)}
    summary = p.get_profiling_summary()
    assert list(counts(summary).items()) == list(expected.items())
    for stage in (*Stage, None):
        rows = p.get_profiling_summary(stage)
        assert [row for row in rows if stage is not None and row.stage != stage.value] == []
        assert rows == p.get_profiling_summary(stage=stage) == [row for row in summary if row in rows]
    assert p.get_profiling_summary(Stage.ALWAYS) == []
    chain.run("inference")  # a stage may be a str
    rows = p.get_profiling_summary(Stage.INFERENCE)
    assert {(type(row.stage), row.count) for row in rows} == {(str, 2)}


def test_skipped_calls_leave_rows_of_zeros(chain: Chain) -> None:
    p = chain.pipeline
    p.set_profiling(True, skip_first_n=2)
    chain.run()
    (row, *_) = p.get_profiling_summary()
    assert row == profiling.NodeProfilingStats("Layer", "inference", 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    table = p.format_profiling_summary()
    assert table.splitlines()[3].split() == ["Layer", "inference", "0", *["0.00"] * 5, "0.000"]
    assert "FPS" not in table


def test_an_exception_of_a_node_passes_and_its_key_is_left_out(chain: Chain) -> None:
    p = chain.pipeline
    p.set_profiling(True, skip_first_n=1)
    error = RuntimeError("of the node")

    def fail() -> None:
        raise error

    chain.log.acts = [fail]
    with pytest.raises(RuntimeError) as caught:
        chain.run()
    assert caught.value is error
    assert (error.__cause__, error.__context__) == (None, None)
    assert ("inference", "Log") not in counts(p.get_profiling_summary())
    assert "Log" not in p.format_profiling_summary()
    chain.run(times=2)
    assert counts(p.get_profiling_summary())["inference", "Log"] == 1  # nor was a skip used up


def test_switching_inside_a_node(chain: Chain) -> None:
    p = chain.pipeline
    p.set_profiling(True)
    chain.log.acts = [lambda: p.set_profiling(False)]
    chain.run()
    assert counts(p.get_profiling_summary())["inference", "Log"] == 1  # it was on when the node began
    chain.log.acts = [lambda: p.set_profiling(True)]
    chain.run()
    assert counts(p.get_profiling_summary())["inference", "Log"] == 1  # it was off
    chain.log.acts = [lambda: p.set_profiling(True, reset=True)]
    chain.run()
    assert counts(p.get_profiling_summary()) == {("inference", "Log"): 1}
    chain.log.acts = [p.reset_profiling]
    chain.run()
    assert counts(p.get_profiling_summary()) == {("inference", "Log"): 1}


# --- the summary ---


def test_a_summary_is_a_plain_list_of_its_own_frozen_statistics(chain: Chain) -> None:
    chain.pipeline.set_profiling(True)
    chain.run(times=2)
    summary = chain.pipeline.get_profiling_summary()
    assert type(summary) is list
    assert summary is not chain.pipeline.get_profiling_summary()
    (row, *_) = summary
    assert type(row) is profiling.NodeProfilingStats
    assert [type(value) for value in vars(row).values()] == [str, str, int, *[float] * 7]
    with pytest.raises(AttributeError):
        row.count = 3
    assert pickle.loads(pickle.dumps(summary)) == summary


def steps(seed: int) -> Callable[[], int]:
    rng = random.Random(seed)
    scale = rng.choice((1_000, 5_000, 1_000_000, 123_456_789))
    return lambda: rng.randrange(1, 200) * scale


def like(expected: Any) -> Any:
    """What equals rows, and lists and dicts of rows, whose sums are rounded otherwise than these."""
    if isinstance(expected, (list, tuple)):
        return type(expected)(like(one) for one in expected)
    if not isinstance(expected, profiling.NodeProfilingStats):
        return expected
    near = {field: pytest.approx(getattr(expected, field), rel=1e-12) for field in ("mean_ms", "total_ms")}
    return SimpleNamespace(
        **vars(expected) | near | {"std_ms": pytest.approx(expected.std_ms, rel=1e-9, abs=1e-9 * expected.mean_ms)}
    )


def seen_as(rows: Any) -> Any:
    """The same with rows that can be compared with what ``like`` gives."""
    if isinstance(rows, (list, tuple)):
        return type(rows)(seen_as(one) for one in rows)
    return SimpleNamespace(**vars(rows)) if isinstance(rows, profiling.NodeProfilingStats) else rows


def assert_same_table(ours: str, own: str) -> None:
    """All is equal but numbers of which rounding turns the last digit."""
    number = re.compile(r"\d+\.\d+")
    assert number.sub("#", ours) == number.sub("#", own)
    for our, its in zip(number.findall(ours), number.findall(own), strict=True):
        assert our == its or float(our) == pytest.approx(float(its), abs=1.01 * 10.0 ** -len(its.partition(".")[2]))


@pytest.mark.parametrize("seed", range(12))
def test_figures_and_tables_are_equal(seed: int) -> None:
    def observe() -> Any:
        chain = Chain()
        rng = random.Random(seed)
        chain.pipeline.set_profiling(True, skip_first_n=seed % 3)
        with clock(steps(seed)):
            for _ in range(rng.choice((1, 5, 30))):
                chain.run(rng.choice(list(Stage)[1:]))
        tables = [
            chain.pipeline.format_profiling_summary(stage, total_frames=f)
            for stage in (None, Stage.VAL)
            for f in (None, 0, 30)
        ]
        return [chain.pipeline.get_profiling_summary(stage) for stage in (None, Stage.VAL)], tables

    own, ours = both(observe)
    assert seen_as(ours[0]) == like(own[0])
    assert len(own[0][0]) > 7
    for our, its in zip(ours[1], own[1], strict=True):
        assert_same_table(our, its)


@pytest.mark.parametrize("seed", range(12))
def test_samples_of_few_decimals_make_equal_figures(seed: int) -> None:
    rng = random.Random(seed)
    scale = rng.choice((0.005, 0.01, 0.125, 1.0, 1e-7, 1e5))
    own, ours = (made(skip_first_n=seed % 4) for made in profilers())
    for _ in range(rng.randrange(1, 400)):
        sample = rng.choice(("train", "val")), rng.choice("abc"), round(rng.randrange(0, 400) * scale, 9)
        ours.record(*sample)
        own.record(*sample)
    for stage in (None, "val", "test"):
        assert seen_as(ours.snapshot(stage)) == like(own.snapshot(stage))


# --- data loading, around the nodes ---


def test_the_loop_around_the_nodes_is_told_as_before() -> None:
    def observe() -> Any:
        chain = Chain()
        p = chain.pipeline
        with clock(steps(7)):
            for sync in (False, True):
                p.set_profiling(True, skip_first_n=1, synchronize_cuda=sync)
                for one in p.iter_profiled_batches([batch() for _ in range(6)], stage=Stage.VAL, move=dict):
                    p.forward(batch=one, stage=Stage.VAL)
        seen = [p.get_data_profiling_summary(stage) for stage in (None, Stage.VAL, Stage.TRAIN)]
        tables = [p.format_profiling_summary(stage, total_frames=6) for stage in (None, Stage.VAL, Stage.TRAIN)]
        p.reset_profiling()
        return seen, tables, p.get_data_profiling_summary(), p._first_batch_ms

    own, ours = both(observe)
    assert seen_as(ours[0]) == like(own[0])
    for our, its in zip(ours[1], own[1], strict=True):
        assert_same_table(our, its)
    assert {row.node_name: row.count for row in own[0][0]} == {"data_load": 9, "to_device": 9, "batch_loop": 9}
    assert "CUDA-synchronized" in own[1][0]
    assert own[2:] == ours[2:] == ([], {})


# --- what is beneath: private names that programs use ---


def test_a_profiler_can_be_assigned(chain: Chain) -> None:
    p = chain.pipeline
    p.set_profiling(True)
    chain.run()
    for made in (profiling.PipelineProfiler(skip_first_n=1), pipeline_module.PipelineProfiler(skip_first_n=1)):
        p._profiler = made
        assert p._profiler.skip_first_n == 1
        chain.run(times=3)
        assert {stats.count for stats in p.get_profiling_summary()} == {2}
        assert p.format_profiling_summary().startswith("Profiling Summary (skip_first_n=1)\n")
        p.set_profiling(True, skip_first_n=1)
        assert p._profiler is made


def test_any_object_with_a_record_will_do(chain: Chain) -> None:
    p = chain.pipeline
    p.set_profiling(True)
    p._profiler = mock.Mock(skip_first_n=0)
    chain.run()
    calls = p._profiler.record.call_args_list
    assert [call.args[:2] for call in calls] == [("inference", name) for name in nodes_of(Stage.INFERENCE)]
    assert all(call.args[2] > 0 and not call.kwargs for call in calls)


@pytest.mark.parametrize("where", ["instance", "class"])
def test_a_record_put_in_the_place_of_the_profilers_is_called(chain: Chain, where: str) -> None:
    p = chain.pipeline
    p.set_profiling(True)
    chain.run()
    with mock.patch.object(p._profiler if where == "instance" else type(p._profiler), "record") as record:
        chain.run()
        assert record.call_count == len(nodes_of(Stage.INFERENCE))
    chain.run()
    assert {stats.count for stats in p.get_profiling_summary()} == {2}


def test_timers_of_a_subclass_are_used_and_may_call_those_they_override(kind: str) -> None:
    class Doubled(pipeline_module.CuvisPipeline):  # type: ignore[misc]
        def _start_profiling_timer(self, node: Any, node_inputs: Any) -> int:
            return super()._start_profiling_timer(node, node_inputs) - 10**9  # type: ignore[no-any-return]

    chain = Chain(Doubled)
    chain.pipeline.set_profiling(True)
    chain.run()
    assert all(1000 < row.min_ms < 2000 for row in chain.pipeline.get_profiling_summary())


def test_the_stop_records_what_has_passed_since(chain: Chain) -> None:
    p = chain.pipeline
    p.set_profiling(True)
    begun = time.perf_counter_ns()
    for ago in (0, 5_000_000):
        assert p._stop_profiling_timer(begun - ago, chain.log, {}, "my stage") is None
    p._stop_profiling_timer(t0_ns=begun, node=SimpleNamespace(name="other"), node_inputs={}, stage_value="my stage")
    passed_ms = (time.perf_counter_ns() - begun) / 1e6
    row, other = p.get_profiling_summary()
    assert (row.node_name, row.stage, row.count, other.node_name) == ("Log", "my stage", 2, "other")
    assert 5 <= row.max_ms <= 5 + passed_ms


def test_timers_describe_themselves_and_refuse_arguments_as_before() -> None:
    def observe() -> list[Any]:
        seen: list[Any] = []
        for name in ("_start_profiling_timer", "_stop_profiling_timer"):
            for timer in (getattr(CuvisPipeline, name), getattr(CuvisPipeline("empty"), name)):
                seen += [timer.__name__, timer.__qualname__, timer.__doc__, timer.__module__, inspect.signature(timer)]
            for arguments in ((), (1,), (1, 2, 3, 4, 5)):
                with pytest.raises(TypeError) as caught:
                    timer(*arguments)
                seen.append(str(caught.value))
        return seen

    own, ours = both(observe)
    assert own == ours


def test_timers_fail_as_their_arguments_do(chain: Chain) -> None:
    p = chain.pipeline
    p.set_profiling(True)
    with pytest.raises(AttributeError, match="'object' object has no attribute 'name'"):
        p._stop_profiling_timer(1, object(), {}, "inference")
    with pytest.raises(TypeError, match="unsupported operand"):
        p._stop_profiling_timer("1", chain.log, {}, "inference")
    with pytest.raises(TypeError, match="unhashable type: 'list'"):
        p._stop_profiling_timer(1, chain.log, {}, [])
    for timer in (CuvisPipeline._start_profiling_timer, CuvisPipeline._stop_profiling_timer):
        with pytest.raises(AttributeError, match="no attribute '_synchronize_cuda'"):
            timer(object(), *(1, 2, 3, 4)[: len(inspect.signature(timer).parameters) - 1])
    del p._profiler
    with pytest.raises(AttributeError, match="no attribute '_profiler'"):
        p._stop_profiling_timer(1, chain.log, {}, "inference")


def test_the_clock_is_the_modules(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    p = chain.pipeline
    p.set_profiling(True)
    with clock(lambda: 3_000_000):
        chain.run()
    assert {row.last_ms for row in p.get_profiling_summary()} == {3.0}
    monkeypatch.setattr(
        pipeline_module, "time", SimpleNamespace(perf_counter_ns=iter(range(0, 10**9, 7_000_000)).__next__)
    )
    chain.run()
    assert {row.last_ms for row in p.get_profiling_summary()} == {7.0}
    monkeypatch.undo()
    chain.run()
    assert {row.count for row in p.get_profiling_summary()} == {3}


# --- waiting for a device ---


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The devices that were waited for."""
    seen: list[Any] = []
    monkeypatch.setattr(torch.cuda, "synchronize", seen.append)
    return seen


def test_a_device_is_waited_for_once_before_and_once_after(chain: Chain, waits: list[Any]) -> None:
    p = chain.pipeline
    p.set_profiling(True, synchronize_cuda=True)
    device = torch.device("cuda:1")
    p._infer_cuda_device = mock.Mock(return_value=device)
    chain.log.acts = [lambda: waits.append("in the node")]
    chain.run()
    nodes = len(nodes_of(Stage.INFERENCE))
    assert waits == [device] * (2 * nodes - 1) + ["in the node", device]
    asked = [(node.name, sorted(inputs)) for (node, inputs), _ in p._infer_cuda_device.call_args_list]
    assert asked == [(name, ["x"]) for name in nodes_of(Stage.INFERENCE) for _ in "ab"]
    assert {row.count for row in p.get_profiling_summary()} == {1}
    p._synchronize_cuda = False
    chain.run()
    assert len(waits) == 2 * nodes + 1
    p._synchronize_cuda = 1
    chain.run()
    assert len(waits) == 4 * nodes + 1


def test_the_wait_after_a_node_is_part_of_its_time_the_one_before_is_not(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = chain.pipeline
    p.set_profiling(True, synchronize_cuda=True)
    p._infer_cuda_device = lambda node, inputs: "cuda" if node is chain.log else None
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: time.sleep(0.02))
    chain.run()
    assert 20 <= {row.node_name: row.total_ms for row in p.get_profiling_summary()}["Log"] < 40


# --- recordings ---


def test_nodes_are_spans_of_a_recording(chain: Chain, kind: str) -> None:
    p = chain.pipeline
    chain.run()
    p.set_profiling(True, skip_first_n=1)
    chain.log.acts = [cp.record("inside")(lambda: None)]
    with cp.profile(operators=False) as prof:
        with cp.record("batch"):
            chain.run(Stage.VAL)
        p.set_profiling(False)
        chain.run(Stage.VAL)
    events = {event.name: event for event in prof.events()}
    if kind == "its own":
        assert set(events) == {"batch", "inside"}
        return
    assert [name for name in events if name in TEN] == nodes_of(Stage.VAL)
    assert all(events[name].stage == "val" for name in nodes_of(Stage.VAL))
    assert {events[name].parent_span_id for name in nodes_of(Stage.VAL)} == {events["batch"].span_id}
    assert events["inside"].parent_span_id == events["Log"].span_id
    assert {row.count for row in p.get_profiling_summary()} == {0}  # skips are the statistics' matter


def test_nodes_that_fail_or_have_no_legal_stage_disturb_no_recording(chain: Chain) -> None:
    cuvis.install()
    p = chain.pipeline
    p.set_profiling(True)
    with cp.profile(operators=False) as prof:
        for _ in range(20):
            chain.log.acts = [lambda: 1 / 0]
            with pytest.raises(ZeroDivisionError):
                chain.run()
        for stage in ("a\0", 1):
            p._stop_profiling_timer(p._start_profiling_timer(chain.log, {}), chain.log, {}, stage)
        p._stop_profiling_timer(1.5, chain.log, {}, "no start")
        begun = p._start_profiling_timer(chain.log, {})
        prof.pause()
        chain.run()
        p._stop_profiling_timer(begun, chain.log, {}, "cut")
    before = len(nodes_of(Stage.INFERENCE)) - 1
    names = [event.name for event in prof.events()]
    assert names.count("Layer") == 20
    assert len(names) == 20 * before + 1
    assert [(event.stage, event.cut) for event in prof.events() if event.name == "Log"] == [("cut", True)]
    assert {event.parent_span_id for event in prof.events()} == {None}


# --- the end of a pipeline, and copies ---


def test_cleanup_leaves_nothing(chain: Chain) -> None:
    p = chain.pipeline
    p.set_profiling(True, synchronize_cuda=True)
    profiler = p._profiler
    p.cleanup()
    assert (p._profiler, p._data_profiler, p.profiling_enabled, p._synchronize_cuda) == (None, None, False, False)
    assert (p.get_profiling_summary(), p.format_profiling_summary()) == ([], NO_DATA)
    assert profiler.snapshot() == []
    p.set_profiling(True)
    assert p._profiler is not profiler


def test_a_shallow_copy_counts_in_the_same_statistics(chain: Chain) -> None:
    p = chain.pipeline
    p.set_profiling(True)
    twin = copy.copy(p)
    twin._profiler = copy.copy(p._profiler)
    twin.forward(batch=batch())
    chain.run()
    assert twin.get_profiling_summary() == p.get_profiling_summary()
    assert {row.count for row in p.get_profiling_summary()} == {2}
    assert p._profiler.skip_first_n == twin._profiler.skip_first_n == 0


@pytest.mark.parametrize("way", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_copies_of_profiled_pipelines_are_as_well_and_empty(way: Callable[[Any], Any]) -> None:
    """Its own profiler holds a lock, and so cannot be copied; there is no behaviour to keep."""
    p = CuvisPipeline("empty")
    p.set_profiling(True, skip_first_n=2)
    with pytest.raises(TypeError, match="cannot pickle"):
        way(p)
    cuvis.install()
    p.set_profiling(True, skip_first_n=2, reset=True)
    p._profiler.record("inference", "node", 1.0)
    twin = way(p)
    assert twin._profiler is not p._profiler
    assert type(twin._profiler) is type(p._profiler)
    assert (twin.profiling_enabled, twin._profiler.skip_first_n, twin.get_profiling_summary()) == (True, 2, [])
    assert len(p.get_profiling_summary()) == 1


def test_a_pipeline_and_its_profiler_are_freed_with_their_last_reference(chain: Chain) -> None:
    p = chain.pipeline
    p.set_profiling(True)
    chain.run()
    p._profiler.me = p._profiler
    p._profiler.record(p._profiler, "node", 1.0)
    dead = weakref.ref(p._profiler), weakref.ref(p)
    del p, chain.pipeline
    gc.collect()
    assert [reference() for reference in dead] == [None, None]


# --- its profiler by itself ---


def profilers() -> tuple[Any, Any]:
    """Its own class, and ours by the name under which programs find it."""
    cuvis.install()
    return profiling.PipelineProfiler, pipeline_module.PipelineProfiler


def test_its_profiling_module_is_left_alone() -> None:
    before = dict(vars(profiling))
    cuvis.install()
    assert dict(vars(profiling)) == before
    estimator = profiling._P2MedianEstimator()
    accumulator = profiling._ScalarAccumulator(skip_target=1)
    for value in (9.0, 1.0, 2.0, 3.0):
        estimator.add(value)
        accumulator.record(value)
    assert (estimator.median, accumulator.count, accumulator.snapshot()["median_ms"]) == (2.5, 3, 2.0)
    assert type(profiling.PipelineProfiler()) is profiling.PipelineProfiler


REFUSED: list[tuple[Any, ...]] = [(), ("a",), ("a", "b"), ("a", "b", 1, 2), ("a", "b", "1"), ("a", [], 1), ([], "b", 1)]


def test_the_profiler_takes_its_arguments_by_place_and_by_name() -> None:
    for kind in profilers():
        made = kind(skip_first_n=1)
        assert (made.skip_first_n, kind(2).skip_first_n, kind().skip_first_n) == (1, 2, 0)
        assert made.record(stage_value="a", node_name="b", elapsed_ms=1) is None
        made.record("a", "b", elapsed_ms=2)
        assert [row.last_ms for row in made.snapshot(stage="a")] == [2]
        assert made.snapshot("b") == []
        assert made.reset() is None
        assert made.snapshot() == []
        with pytest.raises(AttributeError):
            made.skip_first_n = 3
        with pytest.raises(ValueError, match=r"^skip_first_n must be >= 0, got -3$"):
            kind(-3)
        for arguments in REFUSED:
            with pytest.raises(TypeError):
                kind().record(*arguments)
        assert list(inspect.signature(kind).parameters) == ["skip_first_n"]


SAMPLES: list[tuple[Any, Any, Any]] = [
    ("", "", 1), ("a", "\ud800", Fraction(5, 2)), ("a", "b", -0.0), ("train", "n", True), (Stage.TRAIN, "n", 10**12),
    ("train", "n", -1.5), ("train", "m", 1e13), ("train", "m", float("inf")), ("a", "b\0", 1.0),
    ("x" * 5000, "b", 1.0), ("a", None, 1.0), (1, 2, 1.0), (None, ("t",), 1.0),
]  # fmt: skip


def test_samples_that_no_profiler_takes_are_counted_apart() -> None:
    own, ours = (kind() for kind in profilers())
    for profiler in (own, ours):
        for sample in SAMPLES * 2:
            profiler.record(*sample)
        profiler.record("train", "m", float("nan"))
        with pytest.raises(OverflowError):
            profiler.record("a", "b", 10**400)
    taken, refused = ours.profiler.get_profiling_summary(), ours.snapshot()[4:]
    assert [(row.node_name, row.count) for row in taken] == [("", 2), ("\ud800", 2), ("b", 2), ("n", 2)]
    assert [(row.node_name, row.count) for row in refused[:2]] == [("n", 4), ("m", 5)]
    for key in {sample[:2] for sample in SAMPLES}:
        counted, expected = (
            sum(row.count for row in profiler.snapshot(key[0]) if row.node_name == key[1]) for profiler in (ours, own)
        )
        assert counted == expected > 0
    ours.reset()
    assert ours.snapshot() == []


def test_no_sample_of_any_thread_is_lost(kind: str) -> None:
    made = pipeline_module.PipelineProfiler(skip_first_n=7)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [
            threading.Thread(target=lambda: [made.record("a", n, 1.0) for _ in range(300) for n in "xyz"])
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        made.snapshot()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert [(row.count, row.total_ms) for row in made.snapshot()] == [(8 * 300 - 7, 8 * 300.0 - 7)] * 3


def test_a_pipeline_is_switched_reset_and_read_while_it_runs(chain: Chain) -> None:
    p = chain.pipeline
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(chain.run, times=40) for _ in "ab"]
        for turn in range(200):
            p.set_profiling(bool(turn % 3), reset=turn % 5 == 0, skip_first_n=turn % 2)
            if turn % 7 == 0:
                p.reset_profiling()
            assert {row.stage for row in p.get_profiling_summary()} <= {"inference"}
            assert p.format_profiling_summary()
        for one in running:
            one.result()
    p.set_profiling(True, reset=True)
    chain.run()
    assert {row.count for row in p.get_profiling_summary()} == {1}


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_keeps_the_statistics_and_goes_on(chain: Chain) -> None:
    p = chain.pipeline
    p.set_profiling(True)
    chain.run()
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            p._stop_profiling_timer(p._start_profiling_timer(chain.log, {}), chain.log, {}, "inference")
            found = counts(p.get_profiling_summary())
            status = 0 if (found["inference", "Log"], found["inference", "Layer"]) == (2, 1) else 2
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert {row.count for row in p.get_profiling_summary()} == {1}


# --- under what cuvis-ai-core runs pipelines with ---


class Rows(torch.utils.data.Dataset):  # type: ignore[misc]
    """So many rows of data."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: values[0] for name, values in batch().items()}


def data_module() -> Any:
    """Lightning's: 12 rows to train, 6 to validate and to test, 10 to predict, in batches of two."""
    lightning = pytest.importorskip("pytorch_lightning")

    def loader(number: int) -> Callable[[Any], Any]:
        return lambda self: torch.utils.data.DataLoader(Rows(number), batch_size=BATCH)

    loaders = {"train": 12, "val": 6, "test": 6, "predict": 10}
    members = {f"{name}_dataloader": loader(number) for name, number in loaders.items()}
    return type("Data", (lightning.LightningDataModule,), members)()


def expected(runs: dict[Any, int], skipped: int) -> dict[tuple[str, str], int]:
    return {(stage.value, name): max(0, times - skipped) for stage, times in runs.items() for name in nodes_of(stage)}


@pytest.mark.parametrize("skipped", [0, 2])
def test_its_predictor(chain: Chain, skipped: int) -> None:
    predictors = pytest.importorskip("cuvis_ai_core.training.predictor")
    p = chain.pipeline
    p.set_profiling(True, skip_first_n=skipped)
    predictor = predictors.Predictor(p, data_module())
    predictor.predict()
    predictor.predict(max_batches=3, stage=Stage.TEST, collect_outputs=True, collect_ports={"seen"})
    assert counts(p.get_profiling_summary()) == expected({Stage.INFERENCE: 5, Stage.TEST: 3}, skipped)
    loop = counts(p.get_data_profiling_summary())
    assert (loop["inference", "batch_loop"], loop["test", "data_load"]) == (4 - skipped, max(0, 2 - skipped))
    table = p.format_profiling_summary(Stage.INFERENCE, total_frames=5)
    assert table.count("\nLayer") == 7
    assert "\nFirst batch data load (inference" in table


@pytest.mark.parametrize("skipped", [0, 2])
def test_its_gradient_trainer(chain: Chain, skipped: int, tmp_path: Path) -> None:
    trainers = pytest.importorskip("cuvis_ai_core.training.trainers")
    config = pytest.importorskip("cuvis_ai_core.training.config")
    settings = config.TrainingConfig(
        max_epochs=2,
        accelerator="cpu",
        enable_progress_bar=False,
        num_sanity_val_steps=1,
        default_root_dir=str(tmp_path),
    )
    p = chain.pipeline
    p.set_profiling(True, skip_first_n=skipped)
    trainer = trainers.GradientTrainer(p, data_module(), [chain.loss], training_config=settings)
    trainer.fit()
    trainer.test(ckpt_path=None)
    runs = {Stage.VAL: 1 + 2 * 3, Stage.TRAIN: 2 * 6, Stage.TEST: 3}
    assert counts(p.get_profiling_summary()) == expected(runs, skipped)


# --- its gRPC service ---


@contextlib.contextmanager
def its_server(sessions: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Its server, to which what runs pipelines for it is joined in this process: a client's stub, and its messages."""
    runtime = pytest.importorskip("cuvis_ai_core.run_runtime.service")
    bridge = pytest.importorskip("cuvis_ai_core.grpc.orchestrator_bridge")
    service = pytest.importorskip("cuvis_ai_core.grpc.service").CuvisAIService()
    stubs = pytest.importorskip("cuvis_ai_core.grpc.v1.cuvis_ai_core_pb2_grpc")
    child = runtime.RunRuntimeServicer()
    for name, pipeline in sessions.items():
        for manager in (service.session_manager, child._session_manager):
            manager.create_session_with_id(name)
        service.session_manager.get_session(name).child_handle = bridge._InMemoryChildHandle(child)
        child._session_manager.get_session(name).pipeline = pipeline
    server = grpc.server(ThreadPoolExecutor(1))
    stubs.add_CuvisAIServiceServicer_to_server(service, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        with grpc.insecure_channel(address) as channel:
            yield stubs.CuvisAIServiceStub(channel), runtime.cuvis_ai_pb2
    finally:
        server.stop(None).wait()


def answered(stub: Any, method: str, request: Any) -> tuple[Any, ...]:
    answer, call = getattr(stub, method).with_call(request, timeout=30)
    rows = [
        profiling.NodeProfilingStats(**{each.name: getattr(row, each.name) for each in row.DESCRIPTOR.fields})
        for row in getattr(answer, "node_stats", ())
    ]
    return type(answer).__name__, rows, call.code().name


SWITCHES: list[dict[str, Any]] = [
    {"skip_first_n": 1}, {"synchronize_cuda": True}, {"skip_first_n": 3, "reset": True}, {},
]  # fmt: skip


def test_its_grpc_service_answers_the_same() -> None:
    def observe() -> Any:
        chain = Chain()
        seen: list[Any] = []
        with its_server({"one": chain.pipeline}) as (stub, messages):
            stages = (None, messages.EXECUTION_STAGE_VAL, messages.EXECUTION_STAGE_UNSPECIFIED, 99)
            for number, fields in enumerate(SWITCHES):
                switch = messages.SetProfilingRequest(session_id="one", enabled=number < 3, **fields)
                seen.append(answered(stub, "SetProfiling", switch))
                with clock(steps(3)):
                    chain.run(Stage.VAL, times=2)
                    chain.run()
                asked = [messages.GetProfilingSummaryRequest(session_id="one", stage=stage) for stage in stages]
                seen += [answered(stub, "GetProfilingSummary", request) for request in asked]
        return seen, chain.pipeline.get_profiling_summary()

    own, ours = both(observe)
    assert seen_as(ours) == like(own)
    assert {row.count for row in own[1]} == {0}  # the last ones were all skipped
    assert {code for _, _, code in own[0]} == {"OK"}
