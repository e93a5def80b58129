"""Counting calls of functions by patching and restoring."""

from __future__ import annotations

import functools
import inspect
import json
import json.encoder
import math
import pickle
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
from calls import run_python, run_threads
from cprofiling.counting import count_calls
from cprofiling.testing.counting.calls import Tally

pytestmark = pytest.mark.native

TESTS = Path(__file__).parents[1]
THREADS, CALLS = 8, 500


def python_function(value: float) -> float:
    return value


def caller(value: float) -> float:
    return alias(value)


alias = python_function
sine = math.sin
ORIGINALS = (math.sin, math.cos)  # what is kept in a tuple nobody replaces


class Taken:
    sine = math.sin


class Filter:
    def forward(self, value: int) -> int:
        return value

    @staticmethod
    def still(value: int) -> int:
        return value

    @classmethod
    def of(cls, value: int) -> tuple[type, int]:
        return cls, value

    native = math.isqrt  # does not bind, and no other thread calls it
    again = forward

    def _hidden(self) -> None: ...


class Special(Filter):
    pass


class Other:
    also = Filter.forward


class Keys(dict[str, int]):
    of = vars(dict)["fromkeys"]  # binds to the class, in a way of its own


class Kernel:
    """Is called, and more than that."""

    def __call__(self, value: int) -> int:
        return value

    def __getitem__(self, grid: int) -> tuple[Kernel, int]:
        return self, grid


kernel = Kernel()


@functools.lru_cache
def cached(value: int) -> int:
    return value


class Proxy(functools.partial[int]):
    """Is called, and raises at every question."""

    def __getattribute__(self, name: str) -> Any:
        raise LookupError(name)


proxy: Any = Proxy(len)


def vars_of(value: Any) -> Any:
    """Return a value whose attributes nobody checks."""
    return value


HERE = __name__


# ---- calls ---------------------------------------------------------------------------------------


def test_calls_are_counted_wherever_modules_have_the_function() -> None:
    before = math.sin
    with count_calls("math:sin", f"{HERE}:python_function") as calls:
        assert math.sin is not before
        assert sine(0.0) == math.sin(0.0) == 0.0
        assert caller(2.0) == 2.0
    assert (calls["math:sin"], calls[f"{HERE}:python_function"], calls.native_calls) == (2, 1, 3)
    assert math.sin is sine is before
    assert alias is python_function
    assert not hasattr(python_function, "_cprofiling_original")
    math.sin(1.0)
    assert calls.native_calls == 3
    assert repr(calls) == "<3 calls of 2 functions>"


def test_counts_are_a_mapping_of_the_functions_that_are_taken() -> None:
    with count_calls("math:sin*", "math:sin") as calls:
        math.sin(1.0)
    assert dict(calls) == {"math:sin": 1, "math:sinh": 0}
    assert len(calls) == 2
    with pytest.raises(KeyError):
        calls["math:cos"]


def test_wildcards_take_functions_of_the_module_and_native_ones_that_it_has() -> None:
    with count_calls("json.encoder:*") as calls:
        json.dumps({"a": "ü"}, indent=1)
    assert "json.encoder:encode_basestring_ascii" in calls  # of _json
    assert "json.encoder:py_encode_basestring" in calls
    assert not any(name.rpartition(":")[2] in ("JSONEncoder", "ESCAPE", "re", "_make_iterencode") for name in calls)
    with count_calls("json.encoder:_*") as calls:
        pass
    assert "json.encoder:_make_iterencode" in calls


def test_modules_may_be_meant_by_wildcards() -> None:
    with count_calls("json.*:py_scan*", "mat[h]:tan") as calls:
        math.tan(1.0)
    assert dict(calls) == {"json.decoder:py_scanstring": 0, "math:tan": 1}


def test_one_function_under_two_names_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("twice")
    module.first = module.second = math.sin
    module.elsewhere = functools.partial(math.cos, 1.0)
    monkeypatch.setitem(sys.modules, "twice", module)
    with count_calls("twice:*") as calls:
        module.first(1.0)
        module.second(1.0)
    assert (calls["twice:first"], calls["twice:second"], calls.native_calls, list(calls)) == (2, 2, 2, ["twice:first"])


def test_methods_bind_as_they_did() -> None:
    before = dict(vars(Filter))
    with count_calls(f"{HERE}:Filter.*", f"{HERE}:Special.forward") as calls:
        assert Special().forward(1) == Filter().forward(1) == 1
        assert Filter.still(2) == Filter().still(2) == 2
        assert Special.of(3) == (Special, 3)
        assert vars_of(Filter()).native(4) == 2
    assert {name.rpartition(".")[2]: count for name, count in calls.items()} == {
        "forward": 2, "still": 2, "of": 1, "native": 1,
    }  # fmt: skip
    assert dict(vars(Filter)) == before


def test_one_method_counts_under_each_of_its_names_in_all_classes_that_are_named() -> None:
    before = dict(vars(Filter))
    with count_calls(f"{HERE}:Filter.forward", f"{HERE}:Other.*") as calls:
        assert (Filter().forward(1), Filter().again(2), vars_of(Other()).also(3)) == (1, 2, 3)
    assert dict(calls) == {f"{HERE}:Filter.forward": 3}
    assert dict(vars(Filter)) == before
    assert vars(Other)["also"] is before["forward"]


def test_class_methods_in_c_bind_to_the_class() -> None:
    before = vars(Keys)["of"]
    with count_calls(f"{HERE}:Keys.of") as calls:
        made = vars_of(Keys).of("ab", 1)
    assert (type(made), made, calls.native_calls) == (Keys, {"a": 1, "b": 1}, 1)
    assert vars(Keys)["of"] is before


def test_objects_that_are_more_than_functions_stay_usable() -> None:
    with count_calls(f"{HERE}:*") as calls:
        assert kernel[3] == (kernel, 3)
        assert cached(2) == cached(2) == 2
        cached.cache_clear()
        assert pickle.loads(pickle.dumps(cached)) is cached
        assert inspect.signature(cached) == inspect.signature(python_function).replace(
            parameters=[inspect.Parameter("value", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="int")],
            return_annotation="int",
        )
        vars_of(cached).note = "kept"
    assert (f"{HERE}:kernel" in calls, f"{HERE}:proxy" in calls, calls[f"{HERE}:cached"]) == (False, False, 2)
    assert cached.cache_info().currsize == 0
    assert vars(cached).pop("note") == "kept"
    with count_calls(f"{HERE}:kernel") as calls:
        assert (kernel(1), kernel[3][1]) == (1, 3)
    assert calls.native_calls == 1
    assert type(kernel) is Kernel


def test_attributes_of_a_function_are_there_meanwhile_and_stay() -> None:
    function: Any = python_function
    function.calls = 1
    with count_calls(f"{HERE}:python_function"):
        assert python_function is not function
        vars_of(python_function).calls += 1
    assert vars(function) == {"calls": 2}
    del function.calls


@pytest.mark.parametrize("name", ["locals", "__import__", "eval"])
def test_what_looks_at_its_caller_s_variables_is_left_alone(name: str) -> None:
    with pytest.raises(TypeError, match=rf"builtins:{name} does"), count_calls(f"builtins:{name}"):
        pass


def test_what_counting_itself_needs_can_be_counted() -> None:
    def count() -> tuple[object, ...]:
        with count_calls("builtins:*", "builtins:__build_class__") as calls:
            here = "here"
            assert ("here" in locals(), next(iter([1])), sum([1, 2])) == (True, 1, 3)
            before = calls["builtins:sum"], calls["builtins:next"]
            assert calls.native_calls >= sum(before)
            seen = calls["builtins:sum"], calls["builtins:next"]
        assert "builtins:locals" not in calls
        return here, before, seen

    assert ("here", (1, 1), (2, 1)) in [count() for _ in range(5)]  # threads of other tests may call them, too


def test_a_class_that_cannot_be_changed_is_refused_and_nothing_stays_changed() -> None:
    with pytest.raises(TypeError, match=r"immutable|built-in"), count_calls("math:sin", "builtins:str.upper"):
        pass
    assert math.sin is sine


@pytest.mark.parametrize(
    ("patterns", "error", "message"),
    [
        ((), ValueError, "at least one"),
        (("math",), ValueError, "MODULE:FUNCTION"),
        ((":sin",), ValueError, "MODULE:FUNCTION"),
        (("math:",), ValueError, "MODULE:FUNCTION"),
        (("math:a..b",), ValueError, "MODULE:FUNCTION"),
        ((1,), TypeError, r"patterns must be a str, got 1 \(int\)"),
    ],
)
def test_patterns_are_checked(patterns: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        count_calls(*patterns)


@pytest.mark.parametrize(
    ("pattern", "error"),
    [
        ("math:nothing", ValueError),
        ("math:Nothing.at", ValueError),
        ("nothing.*:sin", ValueError),
        ("math:pi", TypeError),
        ("fractions:Fraction", TypeError),
        ("cprofiling_has_none:sin", ImportError),
    ],
)
def test_what_is_not_there_is_told_when_counting_begins(pattern: str, error: type[Exception]) -> None:
    calls = count_calls(pattern)
    with pytest.raises(error), calls:
        pass
    assert len(calls) == 0


def test_blocks_nest_overlap_and_come_again() -> None:
    outer, inner = count_calls("math:sin"), count_calls("math:sin", "math:cos")
    with outer:
        math.sin(1.0)
        inner.__enter__()
        math.sin(1.0)
    math.sin(1.0)
    inner.__exit__()
    inner.__exit__()
    assert (math.sin, math.cos) == ORIGINALS
    with outer, pytest.raises(RuntimeError, match="already"):
        outer.__enter__()
    with outer:
        math.sin(1.0)
    assert (outer["math:sin"], dict(inner)) == (3, {"math:sin": 2, "math:cos": 0})


def test_one_function_that_another_block_counts_in_one_of_its_places_counts_once() -> None:
    with count_calls("math:sin"), count_calls("math:sin", f"{HERE}:Taken.sine") as calls:
        math.sin(1.0)
        vars_of(Taken).sine(1.0)
    assert dict(calls) == {"math:sin": 2}
    assert calls[f"{HERE}:Taken.sine"] == 2
    assert (math.sin, vars(Taken)["sine"]) == (ORIGINALS[0], ORIGINALS[0])


def test_what_took_the_counting_one_meanwhile_is_put_right_and_what_was_replaced_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module: Any = types.ModuleType("late")
    with count_calls("math:sin", f"{HERE}:Filter.forward"):
        module.taken = math.sin
        monkeypatch.setitem(sys.modules, "late", module)
        other = Filter.forward
        monkeypatch.setattr(Filter, "forward", python_function)
    assert module.taken is sine
    assert vars_of(Filter).forward is python_function
    monkeypatch.undo()
    Filter.forward = other.__wrapped__  # type: ignore[attr-defined, method-assign]


def test_calls_that_raise_count_and_raise_the_same() -> None:
    with count_calls("math:sqrt") as calls, pytest.raises(ValueError, match=r"math domain|nonnegative"):
        math.sqrt(-1.0)
    assert calls["math:sqrt"] == 1
    with pytest.raises(ZeroDivisionError), count_calls("math:sqrt"):
        raise ZeroDivisionError
    assert "counted" not in repr(math.sqrt)


def test_no_call_of_any_thread_is_lost() -> None:
    def work() -> None:
        for _ in range(CALLS):
            math.sin(1.0)

    with count_calls("math:sin") as calls:
        threads = [threading.Thread(target=work) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        seen = [calls.native_calls for _ in range(50)]  # which counts nothing itself
        for thread in threads:
            thread.join()
    assert calls["math:sin"] == THREADS * CALLS
    assert seen == sorted(seen)


def test_calls_are_told_by_node(p: cp.Profiler) -> None:
    @p.profile_node("inner")
    def inner() -> None:
        math.sin(1.0)

    @p.profile_node("outer")
    def outer() -> None:
        math.cos(1.0)
        inner()
        with cp.record("a block that is no node"):
            math.sin(1.0)

    with count_calls("math:sin", "math:cos") as calls:
        outer()
        with cp.stage("train"):
            inner()
        math.sin(1.0)
        run_threads(lambda: math.sin(1.0))
    assert calls.by_node == {"outer": {"math:cos": 1, "math:sin": 1}, "inner": {"math:sin": 2}}
    assert calls["math:sin"] == 5


def test_a_count_may_come_while_the_same_thread_counts() -> None:
    tally = Tally()
    came: list[bool] = []

    class Reentrant(str):
        __slots__ = ()

        def __hash__(self) -> int:
            if not came:
                came.append(True)
                tally.add("inner")
            return str.__hash__(self)

    tally.add(Reentrant("outer"))
    assert tally.by_name() == {"inner": 1, "outer": 1}


NATIVE = """
import math, zlib

for number in range(3):
    zlib.crc32(b"data")
    math.sin(number)
"""


def test_native_functions_that_are_named_are_spans(tmp_path: Path) -> None:
    with cp.instrument(math, "sin", name="sine"), cp.profile(operators=False) as prof, cp.record("block"):
        for _ in range(3):
            math.sin(1.0)
    events = prof.events()
    assert [event.name for event in events] == ["block", "sine", "sine", "sine"]
    assert {event.parent_span_id for event in events[1:]} == {events[0].span_id}
    assert math.sin is sine
    program, trace = tmp_path / "native.py", tmp_path / "trace.json"
    program.write_text(NATIVE)
    command = ["run", "-o", str(trace), "-n", "math:sin", "-n", "zlib:crc32", str(program)]
    done = run_python(f"import sys; from cprofiling.commands.main import main; sys.exit(main({command!r}))")
    assert done.returncode == 0, done.stderr
    assert sorted(event.name for event in cp.load_trace(trace).events()) == 3 * ["crc32"] + 3 * ["sin"]


def test_two_threads_cannot_begin_the_same_count() -> None:
    calls = count_calls("math:sin")
    refused: list[str] = []

    def begin() -> None:
        try:
            calls.__enter__()
        except RuntimeError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    math.sin(1.0)
    calls.__exit__()
    assert (len(refused), calls.native_calls, calls.is_on) == (3, 1, False)


def test_a_forked_child_counts_though_another_thread_of_the_parent_was_about_to() -> None:
    script = """
from cprofiling.counting import count_calls; from cprofiling.testing.counting import dispatches, functions as patches

entered, leave = threading.Event(), threading.Event()

def hold():
    with patches._lock, dispatches._counting._lock:
        entered.set()
        leave.wait()

with count_calls("math:sin") as calls:
    math.sin(1.0)
    threading.Thread(target=hold).start()
    entered.wait()
    child = os.fork()
    if not child:
        with count_calls("math:sin") as inner:
            math.sin(1.0)
        with dispatches._counting._lock:
            os._exit((calls.native_calls, inner.native_calls) != (2, 1))
    leave.set()
    assert os.waitpid(child, 0)[1] == 0
assert calls.native_calls == 1
"""
    done = run_python("import math, os, threading\n" + script, "-W", "ignore::DeprecationWarning")
    assert (done.returncode, done.stderr) == (0, "")
