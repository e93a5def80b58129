"""Leaks of Profilers, pipelines, instrumentation, summaries and snapshots, and of everything that they refuse."""

from __future__ import annotations

import copy
import inspect
import pickle
import weakref
from decimal import Decimal
from typing import Any

import cprofiling as cp
from isolated import leaks_harness
from isolated.leaks_harness import by_name, refused

profiler = cp.Profiler()
profiler.set_profiling(True)
for index in range(30):
    profiler.record("train" if index % 2 else "val", f"node {index}", 1.5 + index)
snapshot = profiler.snapshot()
another = cp.Profiler()
another.set_profiling(True)
another.record("train", "node 1", 2.5)
of_another = another.snapshot()
untyped: Any = profiler
anything: Any = cp


class Fails:
    """What raises wherever it is used."""

    def __float__(self) -> float:
        raise ZeroDivisionError

    def __index__(self) -> int:
        raise ZeroDivisionError

    def __bool__(self) -> bool:
        raise ZeroDivisionError


def create_and_drop() -> None:
    made = cp.Profiler()
    made.set_profiling(True, skip_first_n=1)
    for i in range(20):
        made.record("train", f"node {i}", 1.0 + i)
        made.record("train", f"node {i}", 2.0 + i)
    made.get_profiling_summary()
    made.reset_profiling()
    made.set_profiling(True, synchronize_cuda=True, reset=True)
    assert made.profiling_enabled
    assert repr(made)
    copy.copy(made)
    copy.deepcopy(made)
    pickle.loads(pickle.dumps(made))


def cyclic() -> None:
    made: Any = cp.Profiler()
    made.set_profiling(True)

    class Holder:
        @made.profile_node  # type: ignore[untyped-decorator]
        def method(self) -> object:
            return self

    holder: Any = Holder()
    holder.method().itself = holder
    holder.node = made.profile_node(lambda: holder, name="node")
    holder.node()
    holder.node.itself = holder.node


class Pipeline(cp.PipelineProfiling):
    """A pipeline with a node."""

    @cp.profile_node(name="step")
    def step(self) -> int:
        return 1

    @cp.profile_node(name=lambda self: type(self).__name__)
    def named(self) -> int:
        return 1

    def forward(self) -> int:
        return self.step() + self.named()


class Slotted(cp.PipelineProfiling):
    """A pipeline that takes no weak reference and has no dictionary."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 1

    def forward(self) -> int:
        return self.number


class Failing(cp.PipelineProfiling):
    """A pipeline whose forward raises."""

    def forward(self) -> None:
        raise ZeroDivisionError


def pipelines() -> None:
    for kind in (Pipeline, Slotted):
        made: Any = kind()
        made.forward()
        made.set_profiling(True, skip_first_n=1)
        made.forward()
        made.get_profiling_summary("inference")
        made.format_profiling_summary(total_frames=2)
        made.reset_profiling()
        assert made.profiling_enabled
        copied = copy.deepcopy(made)
        copied.set_profiling(True)
        pickle.loads(pickle.dumps(made))
    cycle: Any = Pipeline()
    cycle.set_profiling(True)
    cycle.itself = cycle


def subclasses() -> None:
    made: Any = type("Made", (cp.PipelineProfiling,), {"forward": lambda self: 1})()
    made.set_profiling(True)
    made.forward()


class Filter:
    """Somebody else's class."""

    def apply(self) -> int:
        return 1

    async def wait(self) -> int:
        return 1

    @property
    def computed(self) -> int:
        return 1


def instruments() -> None:
    target = Filter()
    handle = profiler.instrument(target, "apply", name="instrumented")
    target.apply()
    again = profiler.instrument(target, "apply", name=lambda each: type(each).__name__, stage="train")
    target.apply()
    copied = copy.deepcopy(target)
    copied.apply()
    pickle.loads(pickle.dumps(target)).apply()
    assert repr(handle)
    handle.remove()
    again.remove()
    again.remove()
    with profiler.instrument(target, "wait"):
        target.wait().close()
    profiler.instrument(Filter(), "apply")  # never removed


def wrappers() -> None:
    made: Any = profiler.profile_node(name="made")(Filter.apply)
    made(Filter())
    weakref.ref(made)
    inspect.signature(made)
    inspect.unwrap(made)
    copy.copy(made)
    made.attribute = made
    assert repr(made)
    assert made.__doc__ is None
    bound = made.__get__(Filter())
    bound()
    pickle.dumps(exported)


@profiler.profile_node
def exported() -> None:
    """Be pickled by reference."""


def summaries() -> None:
    summary = profiler.get_profiling_summary()
    profiler.get_profiling_summary("train")
    profiler.get_profiling_summary(cp.ExecutionStage.VAL)
    summary.copy()
    summary._repr_html_()
    profiler._repr_html_()
    pickle.loads(pickle.dumps(summary))
    hash(summary[0])
    assert summary[0] != summary[1]
    profiler.format_profiling_summary(total_frames=3)
    cp.format_profiling_table(summary, total_frames=1, skip_first_n=2)
    cp.format_profiling_table([])


def defaults() -> None:
    cp.set_profiling(True, reset=True)
    cp.profile_node(len, name="len")(())
    assert cp.profiling_enabled()
    cp.get_profiling_summary()
    cp.format_profiling_summary()
    cp.reset_profiling()


def snapshots() -> None:
    taken = profiler.snapshot()
    stored = taken.to_bytes()
    loaded = cp.Snapshot.from_bytes(stored)
    merged = cp.Snapshot.merge([loaded, of_another])
    merged.stats("train")
    pickle.loads(pickle.dumps(merged))
    assert hash(taken) == hash(loaded)
    assert taken == loaded
    assert repr(taken)
    taken._repr_html_()
    assert taken._groups((5, 1000))


STORED = snapshot.to_bytes()
LONG = "x" * 5000
RECORDS: dict[str, tuple[tuple[object, object, object], type[Exception]]] = {
    "a stage of the wrong type": ((3, "node", 1.0), TypeError),
    "a name of the wrong type": (("train", b"node", 1.0), TypeError),
    "a stage that is too long": ((LONG, "node", 1.0), ValueError),
    "a name that is too long": (("train", LONG, 1.0), ValueError),
    "a name with NUL": (("train", "\0", 1.0), ValueError),
    "a time of the wrong type": (("train", "node", "1.0"), TypeError),
    "a bool": (("train", "node", True), TypeError),
    "no finite time": (("train", "node", Decimal("nan")), ValueError),
    "a negative time": (("train", "node", -1), ValueError),
    "a time too long": (("train", "node", 1e13), ValueError),
    "a time beyond float": (("train", "node", 10**400), ValueError),
    "a time that raises": (("train", "node", Fails()), ZeroDivisionError),
}


def records() -> None:
    profiler.record("train", "node 1", 1.0)
    profiler.record(cp.ExecutionStage.VAL, "\udc80", Decimal(3))
    profiler.record(stage="val", node_name="node 2", elapsed_ms=3)


def switches() -> None:
    profiler.set_profiling(True)
    profiler.set_profiling(False)
    profiler.set_profiling(True, synchronize_cuda=True)
    profiler.set_profiling(True)


SCENARIOS: dict[str, leaks_harness.Scenario] = {
    **by_name(
        create_and_drop, cyclic, pipelines, subclasses, instruments, wrappers, records, switches, summaries, defaults,
        snapshots,
    ),
    "pipeline that raises": refused(lambda: Failing().forward(), ZeroDivisionError),
    **{
        f"record refuses {what}": refused(lambda arguments=arguments: untyped.record(*arguments), error)  # type: ignore[misc]
        for what, (arguments, error) in RECORDS.items()
    },
    "record without arguments": refused(lambda: untyped.record(), TypeError),
    "set_profiling refuses a str": refused(lambda: untyped.set_profiling("yes"), TypeError),
    "set_profiling refuses a skip": refused(lambda: profiler.set_profiling(True, skip_first_n=-1), ValueError),
    "set_profiling refuses a huge skip": refused(lambda: profiler.set_profiling(True, skip_first_n=2**63), ValueError),
    "set_profiling with a skip that raises": refused(
        lambda: profiler.set_profiling(True, skip_first_n=Fails()), ZeroDivisionError
    ),
    "set_profiling with a switch that raises": refused(
        lambda: untyped.set_profiling(True, reset=Fails()), ZeroDivisionError
    ),
    "set_profiling refuses a keyword": refused(lambda: untyped.set_profiling(True, skip=1), TypeError),
    "summary of a wrong stage": refused(lambda: untyped.get_profiling_summary(3), TypeError),
    "summary of a long stage": refused(lambda: profiler.get_profiling_summary(LONG), ValueError),
    "table of what is none": refused(lambda: anything.format_profiling_table([1]), TypeError),
    "table with wrong frames": refused(lambda: profiler.format_profiling_summary(total_frames=-1), ValueError),
    "Profiler with arguments": refused(lambda: anything.Profiler(1), TypeError),
    "profile_node of a class": refused(lambda: cp.profile_node(Filter), TypeError),
    "profile_node of a number": refused(lambda: anything.profile_node(3), TypeError),
    "profile_node with a wrong name": refused(lambda: anything.profile_node(len, name=3), TypeError),
    "profile_node with a long name": refused(lambda: cp.profile_node(LONG), ValueError),
    "profile_node with a wrong stage": refused(lambda: anything.profile_node(len, stage=3), TypeError),
    "profile_node with a wrong profiler": refused(lambda: anything.profile_node(len, profiler=3), TypeError),
    "instrument without such a method": refused(lambda: cp.instrument(Filter(), "none"), AttributeError),
    "instrument of a number": refused(lambda: cp.instrument(3, "real"), TypeError),
    "instrument of a property": refused(lambda: cp.instrument(Filter(), "computed"), TypeError),
    "instrument of a special method": refused(lambda: cp.instrument(Filter(), "__call__"), TypeError),
    "instrument with a name that raises": refused(
        lambda: cp.instrument(Filter(), "apply", name=lambda each: str(1 // 0)), ZeroDivisionError
    ),
    "snapshot of cut bytes": refused(lambda: cp.Snapshot.from_bytes(STORED[:-1]), cp.FormatError),
    "snapshot of changed bytes": refused(lambda: cp.Snapshot.from_bytes(b"x" + STORED[1:]), cp.FormatError),
    "snapshot of no bytes": refused(lambda: anything.Snapshot.from_bytes("text"), TypeError),
    "groups of a list": refused(lambda: anything.Snapshot._groups(snapshot, [1]), TypeError),
    "groups between texts": refused(lambda: anything.Snapshot._groups(snapshot, ("1",)), TypeError),
    "groups that do not rise": refused(lambda: snapshot._groups((2, 1)), ValueError),
    "merge of the same twice": refused(lambda: cp.Snapshot.merge([snapshot, snapshot]), ValueError),
    "merge of what is none": refused(lambda: anything.Snapshot.merge([1]), TypeError),
    "measure": lambda: cp.measure(len, (), warmup=0, repeat=2),
    "measure of what raises": refused(lambda: cp.measure(Failing().forward, warmup=0, repeat=2), ZeroDivisionError),
}  # fmt: skip

if __name__ == "__main__":
    leaks_harness.main(SCENARIOS)
