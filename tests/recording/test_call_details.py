"""What a recording knows beyond times: activities and categories, shapes, memory, stacks."""

from __future__ import annotations

import asyncio
import enum
import json
import sys
import warnings
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import cprofiling as cp
from calls import mapped, run_python
from cprofiling.recording.activities import activities_of, missing_reason
from cprofiling.recording.call_details import described_arguments
from fakes.fake_torch import FakeTorch

pytestmark = pytest.mark.native

MIB = 1 << 20


class Array:
    """What has a shape and a dtype."""

    def __init__(self, *shape: int, dtype: str = "float32") -> None:
        self.shape = shape
        self.dtype = dtype


# ---- Activities and resources


def test_activities_by_all_their_names() -> None:
    class ProfilerActivity(enum.Enum):
        """As torch's."""

        CPU = 0
        PrivateUse1 = 5

    wanted = activities_of(["cpu", "Cuda", cp.ProfilerActivity.XPU, ProfilerActivity.PrivateUse1, "NPU"])
    assert wanted == frozenset(cp.ProfilerActivity)
    assert activities_of(None) is None
    assert list(cp.ProfilerActivity).count(cp.ProfilerActivity["NPU"]) == 1
    assert cp.ProfilerActivity["NPU"].name == "PrivateUse1"


@pytest.mark.parametrize(
    ("option", "value", "error", "message"),
    [
        ("activities", "cpu", TypeError, "activities must be a collection of ProfilerActivity, got 'cpu'"),
        ("activities", cp.ProfilerActivity.CPU, TypeError, "must be a collection"),
        ("activities", 3, TypeError, "must be a collection"),
        ("activities", [], ValueError, "at least one activity"),
        ("activities", ["tpu"], ValueError, "activities must be of CPU, CUDA, XPU, PrivateUse1, NPU, got 'tpu'"),
        ("activities", [3], TypeError, "members of ProfilerActivity or their names, got 3"),
        ("activities", [SimpleNamespace(name="CPU")], TypeError, "members of ProfilerActivity"),
        ("operators", None, TypeError, 'operators must be True, False or "auto", got None'),
        ("operators", 1, TypeError, 'operators must be True, False or "auto", got 1'),
        ("operators", "all", ValueError, "operators must be True, False or \"auto\", got 'all'"),
    ],
)
def test_wrong_selections(option: str, value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        cp.profile(**{option: value})


@cp.profile_node("node")
def node(*arguments: Any, **keywords: Any) -> None:
    pass


def test_an_activity_that_is_missing_is_warned_of_by_name() -> None:
    if missing_reason(cp.ProfilerActivity.XPU) is None:
        pytest.skip("this machine has an XPU")
    prof = cp.profile(["cpu", "xpu"])
    with pytest.warns(RuntimeWarning, match="activity XPU is not recorded: .*PyTorch") as caught, prof:
        node()
    assert len(prof.events()) == 1
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with cp.profile(["cpu"]), cp.profile_node("x"):
            pass
        with cp.profile():
            pass


@pytest.mark.parametrize(
    "torch",
    [
        SimpleNamespace(__version__="9", xpu=SimpleNamespace(is_available=lambda: False)),
        SimpleNamespace(__version__="9"),
        SimpleNamespace(__version__="9", xpu=SimpleNamespace(is_available=lambda: 1 / 0)),
        SimpleNamespace(
            __version__="9",
            xpu=SimpleNamespace(is_available=lambda: True),
            profiler=SimpleNamespace(supported_activities=lambda: {cp.ProfilerActivity.CPU}),
        ),
    ],
)
def test_why_an_activity_is_missing(monkeypatch: pytest.MonkeyPatch, torch: Any) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert isinstance(missing_reason(cp.ProfilerActivity.XPU), str)
    assert missing_reason(cp.ProfilerActivity.CPU) is None


def test_an_activity_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = SimpleNamespace(is_available=lambda: True)
    torch = SimpleNamespace(
        __version__="9",
        npu=backend,
        _C=SimpleNamespace(_get_privateuse1_backend_name=lambda: "npu"),
        profiler=SimpleNamespace(supported_activities=lambda: {cp.ProfilerActivity.PrivateUse1}),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert missing_reason(cp.ProfilerActivity.NPU) is None
    monkeypatch.setitem(sys.modules, "torch", None)
    assert missing_reason(cp.ProfilerActivity.NPU) is not None


def test_what_is_not_selected_is_not_recorded() -> None:
    asked = []

    class Asked(Array):
        @property
        def shape(self) -> Any:
            asked.append(1)
            return (1,)

        @shape.setter
        def shape(self, value: Any) -> None:
            pass

    schedule = cp.schedule(wait=0, warmup=0, active=1)
    for selected in ({"resource": cp.Resource.NPU}, {"activities": ["cuda"]}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with cp.profile(record_shapes=True, schedule=schedule, operators=False, **selected) as prof:
                with cp.record("label"):
                    node(Asked())
                prof.step()
                assert [event.name for event in prof.events()] == ["ProfilerStep#0"]
                prof.step()
    assert asked == []


# ---- Shapes


def shapes_of(*arguments: Any) -> tuple[Any, Any]:
    shapes, types = described_arguments(arguments)
    return (None if shapes is None else json.loads(shapes), None if types is None else json.loads(types))


def test_shapes_are_described_as_torch_does() -> None:
    assert shapes_of(Array(2, 3), 5, "text", None) == ([[2, 3], [], [], []], ["float32", "Scalar", "", ""])
    assert shapes_of([Array(1), Array(2, dtype="torch.int64")], Array()) == (
        [[[1], [2]], []],
        ["TensorList", "float32"],
    )
    assert shapes_of(1, "text") == (None, None)
    assert shapes_of([1, 2], []) == (None, None)
    assert shapes_of([Array(1)] * 65) == (None, None)


def test_shapes_that_cannot_be_told_are_none() -> None:
    class Fails:
        dtype = "x"

        @property
        def shape(self) -> Any:
            raise RuntimeError("no shape")

    assert shapes_of(Fails(), SimpleNamespace(shape="ab", dtype=1), SimpleNamespace(shape=(2,))) == (None, None)


def test_shapes_of_calls_of_all_kinds() -> None:
    class Model:
        @cp.profile_node("method")
        def method(self, array: Array) -> None:
            pass

    @cp.profile_node("coroutine")
    async def coroutine(array: Array) -> None:
        await asyncio.sleep(0)

    @cp.profile_node("generator")
    def generator(first: int, array: Array) -> Iterator[int]:
        yield 1

    @cp.profile_node("async generator")
    async def async_generator(array: Array) -> AsyncIterator[int]:
        yield 1

    async def run() -> None:
        await coroutine(Array(3))
        async for _ in async_generator(Array(4)):
            pass

    with cp.profile(record_shapes=True, operators=False) as prof:
        node(Array(1), keyword=Array(2, 2, dtype="float64"))
        Model().method(Array(5))
        asyncio.run(run())
        list(generator(1, Array(6)))
        node()
        with cp.profile_node("block"), cp.record("label"):
            pass
    found = {event.name: event.shapes for event in prof.events() if event.shapes is not None}
    assert found == {
        "node": "[[1], [2, 2]]",
        "method": "[[], [5]]",
        "coroutine": "[[3]]",
        "async generator": "[[4]]",
        "generator": "[[], [6]]",
    }
    assert prof.events()[0].types == '["float32", "float64"]'


def test_a_node_inside_what_is_asked_is_no_child() -> None:
    """What a shape runs is not inside the node that it belongs to: parents contain children."""

    class Busy:
        dtype = "float32"

        @property
        def shape(self) -> tuple[int]:
            with cp.record("in shape"):
                return (1,)

    with cp.profile(record_shapes=True, operators=False) as prof:
        node(Busy())
    (first, second) = prof.events()
    assert (first.name, second.name, second.parent) == ("in shape", "node", None)
    assert first.end <= second.start


# ---- Memory


def memory_of_a_run() -> tuple[cp.profile, dict[str, cp.Event]]:
    """Record a node that takes 64 MiB, with a label in it, and one that gives them back; with the events by name."""
    kept = []

    @cp.profile_node("allocate")
    def allocate() -> None:
        kept.append(mapped(64 * MIB))
        with cp.record("inside"):
            pass

    @cp.profile_node("release")
    def release() -> None:
        kept.clear()

    with cp.profile(profile_memory=True, operators=False) as prof:
        allocate()
        release()
    return prof, {event.name: event for event in prof.events()}


@pytest.mark.unsanitized
def test_memory_is_told_where_it_changes() -> None:
    for _ in range(5):  # the system may take pages of libraries back meanwhile, as DAMON does
        prof, events = memory_of_a_run()
        if all(abs(events[name].memory_change or 0) > 60 * MIB for name in ("allocate", "release")):
            break
    allocated = events["allocate"].memory_change
    assert allocated is not None
    assert 60 * MIB < allocated < 80 * MIB
    released = events["release"].memory_change
    assert released is not None
    assert -80 * MIB < released < -60 * MIB
    assert events["release"].memory_peak is None
    assert events["inside"].memory_change is not None
    assert events["allocate"].device_memory_change is None
    curve = counters(prof, "resident memory")
    assert len(curve) == 3
    assert curve[-2] - curve[-1] > 60 * MIB


def counters(prof: cp.profile, name: str) -> list[int]:
    recording = prof.recording
    kinds, names = recording.column("kind"), recording.column("name")
    assert kinds is not None
    assert names is not None
    rows = [row for row in range(len(recording)) if kinds[row] == 6 and recording.strings[names[row]] == name]
    return [json.loads(recording.args(row) or "")["bytes"] for row in rows]


def test_the_memory_of_a_device_is_asked_of_its_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = iter([(100, 200), (150, 260), (150, 260), (90, 260)])

    def statistics(_: int) -> dict[str, Any]:
        current, peak = next(figures)
        return {"allocated_bytes": {"all": {"current": current, "peak": peak}}}

    torch = FakeTorch("cuda")
    torch._C._cuda_memoryStats = statistics
    monkeypatch.setitem(sys.modules, "torch", torch)
    with cp.profile(profile_memory=True, operators=False) as prof:
        node()
        node()
    found = [(event.device_memory_change, event.device_memory_peak) for event in prof.events()]
    assert found == [(50, 260), (-60, None)]
    assert counters(prof, "device memory") == [150, 90]


def test_a_device_that_is_not_in_use_has_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", FakeTorch("cuda", begun=False))
    with cp.profile(profile_memory=True, operators=False) as prof:
        node()
    assert prof.events()[0].device_memory_change is None


# ---- Stacks


def test_the_stack_at_a_nodes_start() -> None:
    def caller() -> None:
        node()

    with cp.profile(with_stack=True, operators=False) as prof:
        caller()
        with cp.record("label"):
            pass
    stack, label = (event.stack for event in prof.events())
    assert stack is not None
    assert label is not None
    lines = stack.splitlines()
    line = caller.__code__.co_firstlineno + 1
    assert lines[0].startswith(f"{__file__}({line}): ")
    assert lines[0].endswith("caller")
    assert "test_the_stack_at_a_nodes_start" in lines[1]
    assert len(lines) <= 64
    assert not any("/cprofiling/recording/call_details.py" in line for line in lines)
    assert "test_the_stack_at_a_nodes_start" in label.splitlines()[0]


FAULTS = """
import cprofiling as cp
from cprofiling.recording import call_details as details

def fails(arguments):
    raise ZeroDivisionError

@cp.profile_node("node")
def node(value):
    return value

for describe in (fails, lambda arguments: 3, lambda arguments: (1, None, None)):
    details.describer = lambda **wanted: describe
    with cp.profile(record_shapes=True, operators=False) as prof:
        assert node(5) == 5
    assert [event.shapes for event in prof.events()] == [None]
print(cp.get_profiling_summary().internal_errors)
"""


def test_a_fault_in_what_is_asked_is_counted_and_changes_nothing() -> None:
    """In a process of its own: all Profilers of a process show its faults."""
    done = run_python(FAULTS)
    assert (done.stdout, done.stderr) == ("3\n", "")
