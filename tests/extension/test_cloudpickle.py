"""What cloudpickle takes by value arrives as it was: wrapped, under its name and stage, with one Profiler for each."""

from __future__ import annotations

import copy
import importlib
import pickle
import sys
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

import cprofiling as cp
from calls import by_name, counts, run_python, stages

pytestmark = pytest.mark.native

cloudpickle = pytest.importorskip("cloudpickle")

# A program's own names, in a module that no other process can import, as __main__ is none.
PROGRAM = """
import functools
import cprofiling as cp

p = cp.Profiler()

@cp.profile_node("counted", stage="train")
def count_down(n):
    return n and count_down(n - 1)

@p.profile_node
def bound(x):
    return x + 1

@cp.profile_node("outer")
@cp.profile_node("inner")
def twice():
    return 2

@cp.profile_node
def numbers():
    yield 1
    yield 2

@cp.profile_node
async def later():
    return 3

@cp.record("labelled")
def labelled():
    return 4

class Adder:
    def __init__(self):
        self.added = 0
    def __setstate__(self, state):
        self.added = state["added"] + 100
    def __call__(self):
        return self.added

adder = cp.profile_node("adder")(Adder())
partial = cp.profile_node("partial")(functools.partial(bound, 1))
length = cp.profile_node(len)

class Pipeline(cp.PipelineProfiling):
    name = "named"

    @cp.profile_node(name=lambda self: self.name)
    def method(self):
        return 1

    @staticmethod
    @cp.profile_node
    def static():
        return 2

    def forward(self):
        return self.method() + self.static()

def task(times):
    p.set_profiling(True)
    for number in range(times):
        bound(number)
    return p.snapshot()
"""


@pytest.fixture
def program() -> Any:
    module = ModuleType("program_that_nobody_can_import")
    exec(PROGRAM, module.__dict__)
    return module


def arrived(value: Any) -> Any:
    return pickle.loads(cloudpickle.dumps(value))


def test_a_function_arrives_wrapped_under_its_name_and_stage(program: Any) -> None:
    function = arrived(program.count_down)
    assert type(function) is type(program.count_down)
    assert function is not program.count_down
    assert function.__globals__["count_down"] is function  # recursion counts, too
    cp.set_profiling(True)
    function(3)
    assert stages(cp.default_profiler) == {("counted", "train"): 4}


def test_attributes_arrive(program: Any) -> None:
    program.bound.note = [program.bound]
    function = arrived(program.bound)
    assert function.note == [function]
    assert (function.__name__, function.__qualname__) == ("bound", "bound")
    assert type(function.__wrapped__) is type(run_python)


@pytest.mark.parametrize("kind", ["numbers", "later", "twice", "adder", "partial", "length"])
def test_all_kinds_of_callables_arrive(program: Any, kind: str) -> None:
    function = arrived(getattr(program, kind))
    cp.set_profiling(True)
    if kind == "numbers":
        assert list(function()) == [1, 2]
    elif kind == "later":
        with pytest.raises(StopIteration, match="3"):
            function().send(None)
    else:
        result = {"twice": 2, "adder": 100, "partial": 2, "length": 0}[kind]
        assert function(*[""] if kind == "length" else []) == result
    name = {"twice": "outer", "length": "len"}.get(kind, kind)
    assert counts(cp.default_profiler) == {name: 1}


def test_a_record_arrives(program: Any) -> None:
    function = arrived(program.labelled)
    with cp.profile() as recording:
        assert function() == 4
    assert [event.name for event in recording.events()] == ["labelled"]


def test_a_class_arrives_with_its_nodes_and_pipelines_of_it_count_for_themselves(program: Any) -> None:
    pipeline = arrived(program.Pipeline())
    pipeline.set_profiling(True)
    assert pipeline.forward() == 3
    assert counts(pipeline.profiler) == {"named": 1, "Pipeline.static": 1}


def test_a_profiler_is_made_once_in_a_process_and_is_off(program: Any) -> None:
    program.p.set_profiling(True)
    first, second = arrived(program.bound), arrived(program.bound)
    assert first.profiler is second.profiler is not program.p
    assert not first.profiler.profiling_enabled
    assert pickle.loads(pickle.dumps(program.p)) is not pickle.loads(pickle.dumps(program.p))
    first.profiler.set_profiling(True)
    first(1), second(2)
    assert counts(first.profiler) == {"bound": 2}
    assert counts(program.p) == {}


def test_a_profiler_that_comes_by_itself_is_the_one_that_its_nodes_count_for(program: Any) -> None:
    assert arrived(program.bound).profiler is arrived(program.p)
    for times in (2, 3):
        snapshot = arrived(program.task)(times)
    assert [row.count for row in snapshot.stats()] == [5]


def test_what_can_be_imported_goes_by_its_name() -> None:
    assert arrived(importable) is importable
    assert arrived(Importable().method).__func__ is Importable.method
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        assert arrived(importable) is not importable
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@cp.profile_node
def importable() -> None:
    pass


class Importable:
    @cp.profile_node
    def method(self) -> None:
        pass


def test_a_wrapped_object_without_a_name_is_copied_with_its_wrapper() -> None:
    node = cp.profile_node("doubled")(Doubler())
    node.note = "mine"  # type: ignore[attr-defined]
    other = copy.copy(node)
    assert other is not node
    assert (other(2), other.note) == (4, "mine")  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(node))(3) == 6


class Doubler:
    def __call__(self, number: int) -> int:
        return 2 * number


def test_the_profiler_of_a_node_is_in_nobodys_way(p: cp.Profiler) -> None:
    @p.profile_node
    def own() -> None:
        pass

    assert own.profiler is p  # type: ignore[attr-defined]
    own.profiler = "mine"  # type: ignore[attr-defined]
    assert own.profiler == "mine"  # type: ignore[attr-defined]
    assert not hasattr(importable, "profiler")


def test_another_process_counts(program: Any, tmp_path: Path) -> None:
    path = tmp_path / "task"
    path.write_bytes(cloudpickle.dumps((program.task, program.count_down)))
    script = f"""
import pickle, sys
for _ in range(2):
    task, count_down = pickle.load(open({str(path)!r}, "rb"))
    print([row.count for row in task(2).stats()])
import cprofiling as cp
cp.set_profiling(True)
count_down(1)
print([(row.node_name, str(row.stage.value), row.count) for row in cp.get_profiling_summary()])
"""
    assert output_of(script) == ["[2]", "[4]", "[('counted', 'train', 2)]"]


def test_an_instrumented_object_arrives_without_its_wrapper(program: Any, p: cp.Profiler, tmp_path: Path) -> None:
    pipeline = program.Pipeline()
    path = tmp_path / "pipeline"
    with p.instrument(pipeline, "method", name="method"):
        path.write_bytes(cloudpickle.dumps(pipeline))
        assert pipeline.method() == 1
    script = f"""
import pickle
pipeline = pickle.load(open({str(path)!r}, "rb"))
pipeline.set_profiling(True)
print(pipeline.method(), pipeline.get_profiling_summary()[0].count, type(vars(type(pipeline))["method"]).__name__)
"""
    assert output_of(script) == ["1 1 Function"]
    assert counts(p) == {"method": 1}


def output_of(script: str) -> list[str]:
    done = run_python(script)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_others_who_reduce_functions_in_their_own_way_are_told_what_they_were() -> None:
    def reducer_override(function: object) -> bool:
        return isinstance(function, FunctionType)

    assert reducer_override(importable)


@pytest.mark.parametrize("package", [name for name in ("ray", "numba", "pyspark") if find_spec(name)])
def test_copies_of_cloudpickle_in_other_packages_do_alike(package: str, program: Any) -> None:
    bundled = importlib.import_module(f"{package}.cloudpickle")
    function = pickle.loads(bundled.dumps(program.count_down))
    assert type(function) is type(program.count_down)
    cp.set_profiling(True)
    function(1)
    assert by_name(cp.default_profiler)["counted"].count == 2
