"""Latency by input signature: what one is made of, where calls count, what is shown (scenarios C1, D1, F4, F5)."""

from __future__ import annotations

import asyncio
import collections
import copy
import dataclasses
import functools
import gc
import pickle
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest

import cprofiling as cp
from calls import HAS_NO_GIL, beside, profiler_on, run_threads
from cprofiling.nodes.input_shapes import OVERFLOW, ShapeSummary, shapes_from
from cprofiling.views import View
from forks import fork
from hostile_names import NAMES

pytestmark = [pytest.mark.native, pytest.mark.forks]


class Tensor:
    """What has both attributes in its class."""

    def __init__(self, *shape: Any, dtype: Any = "float32") -> None:
        self._shape, self._dtype = shape, dtype

    @property
    def shape(self) -> Any:
        return self._shape

    @property
    def dtype(self) -> Any:
        return self._dtype


class Dtype:
    """One that shows as torch's do."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


def nothing(_value: Any) -> None:
    pass


def same(value: Any) -> Any:
    return value


def fail(_value: Any) -> None:
    raise ZeroDivisionError


def work(value: Any) -> None:
    if value.shape[0] == 7:
        time.sleep(0.005)


@pytest.fixture
def profiler() -> cp.Profiler:
    return profiler_on(by_shape=True)


def shapes_of(profiler: cp.Profiler, node: str | None = None) -> dict[str, int]:
    """Samples by signature."""
    rows = profiler.get_profiling_summary().shapes
    return {row.signature: row.count for row in rows if node is None or row.node_name == node}


def signature_of(*args: Any, **kwargs: Any) -> str:
    """The one of a call with these arguments."""
    profiler = profiler_on(by_shape=True)

    @profiler.profile_node
    def node(*_args: Any, **_kwargs: Any) -> None:
        pass

    node(*args, **kwargs)
    ((signature, count),) = shapes_of(profiler).items()
    assert count == 1
    assert profiler.get_profiling_summary().internal_errors == 0
    return signature


@dataclasses.dataclass
class Batch:
    image: Any
    label: Any
    number: int = 3


@dataclasses.dataclass
class Half:
    """A dataclass that lacks one of its fields."""

    image: Any

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


Pair = collections.namedtuple("Pair", "left right")  # noqa: PYI024 as users write it
T = Tensor(8, 3)
U = Tensor(dtype="int64")


@pytest.mark.parametrize(
    ("args", "signature"),
    [
        ((), ""),
        ((1, "text", None, b"", 2.5, object(), Tensor, len, dataclasses), ""),
        ((T,), "float32[8,3]"),
        ((3, T, "x", U), "float32[8,3], int64[]"),
        (([T, U],), "(float32[8,3], int64[])"),
        (((T, 1), T), "(float32[8,3]), float32[8,3]"),
        ((Pair(T, U),), "(float32[8,3], int64[])"),
        (({"a": T, "b": 2, "c": U},), "(float32[8,3], int64[])"),
        ((collections.OrderedDict(x=T),), "(float32[8,3])"),
        ((Batch(T, U), U), "(float32[8,3], int64[]), int64[]"),
        ((Half(T),), "(float32[8,3])"),
        (([], (), {}, [1, 2], {"a": 1}), ""),
        (([[T]], [1], ([T],), Batch([T], 1)), ""),  # one level deep, no more
        ((SimpleNamespace(shape=(2, 3), dtype="u1"),), "u1[2,3]"),
        ((Tensor(None, 2, -1, "n", 2**70, True),), "float32[?,2,?,?,?,1]"),
        ((Tensor(dtype=Dtype("torch.bfloat16")),), "bfloat16[]"),
        ((Tensor(dtype=Dtype("plain")),), "plain[]"),
        ((Tensor(dtype=float),), "float[]"),
        ((Tensor(dtype=SimpleNamespace(name="complex64")),), "complex64[]"),
        ((Tensor(dtype=SimpleNamespace(name=3)),), "namespace(name=3)[]"),
        ((Tensor(dtype="x" * 65),), f"{'x' * 64}[]"),
        ((Tensor(dtype="a\0b"),), "?[]"),
        ((Tensor(dtype="\ud800ü"),), "\ud800ü[]"),
        ((Tensor(*[1] * 65), U), "int64[]"),  # too many dimensions to be a shape
    ],
)
def test_signatures(args: tuple[Any, ...], signature: str) -> None:
    assert signature_of(*args) == signature


def test_keywords_are_values_behind_the_others() -> None:
    assert signature_of(T, mask=U, other=3, more=[T]) == "float32[8,3], int64[], (float32[8,3])"


def test_numpy() -> None:
    numpy: Any = pytest.importorskip("numpy")
    image = numpy.zeros((1, 3, 8, 8), "float32")
    record = numpy.zeros(2, [("a", "i4"), ("b", "f8")])
    assert signature_of(image, numpy.int64(3), image[:, :, ::2]) == "float32[1,3,8,8], int64[], float32[1,3,4,8]"
    assert signature_of(record, record.dtype) == "void96[2]"
    assert signature_of({"x": image > 0}) == "(bool[1,3,8,8])"


def test_torch() -> None:
    torch: Any = pytest.importorskip("torch")
    image = torch.zeros(1, 3, 8, 8)
    packed = torch.nn.utils.rnn.pack_sequence([torch.zeros(3, 2), torch.zeros(2, 2)])
    assert signature_of(image, torch.nn.Linear(2, 2), image.shape) == "float32[1,3,8,8]"
    assert signature_of(torch.nn.Parameter(torch.zeros(2, dtype=torch.bfloat16)), packed) == (
        "bfloat16[2], (float32[5,2], int64[3])"
    )


class Listed:
    """A shape that is a sequence and no tuple, as tensorflow's is."""

    def __init__(self, sizes: list[Any], length: int | None = None) -> None:
        self.sizes, self.length = sizes, length

    def __len__(self) -> int:
        return len(self.sizes) if self.length is None else self.length

    def __getitem__(self, at: int) -> Any:
        return self.sizes[at]


@pytest.mark.parametrize(
    ("shape", "signature"),
    [
        ([4, 5], "float32[4,5]"),
        (Listed([4, None]), "float32[4,?]"),
        (Listed([4], 2), ""),  # one that raises
        (Listed([4], 10**6), ""),
        (Listed([4], -1), ""),
        ("ab", ""),
        (b"ab", ""),
        (7, ""),
        (None, ""),
        ({"a": 1}, ""),
    ],
)
def test_shapes_that_are_no_tuples(shape: Any, signature: str) -> None:
    tensor = Tensor()
    tensor._shape = shape
    assert signature_of(tensor) == signature


def test_long_signatures_are_cut() -> None:
    assert signature_of(*[U] * 3) == "int64[], int64[], int64[]"
    many = signature_of(*[U] * 65)
    assert many == f"{', '.join(['int64[]'] * 64)}..."
    listed = signature_of([U] * 1000)
    assert listed == f"({', '.join(['int64[]'] * 63)})..."
    wide = signature_of(*[Tensor(*[10**9] * 20)] * 20)
    assert wide.endswith("]...")
    assert 800 < len(wide) <= 1024
    assert signature_of([0] * 1000, *range(1000)) == ""
    assert signature_of(*[Tensor(dtype="é" * 64)] * 64).endswith("...")


class Raising:
    """Each attribute does something that it should not."""

    error: BaseException = ValueError("no shape")
    asked = 0

    @property
    def shape(self) -> Any:
        Raising.asked += 1
        raise self.error

    @property
    def dtype(self) -> Any:
        raise self.error


def test_attributes_that_raise_do_not_reach_the_call() -> None:
    for error in (ValueError("no"), AttributeError("no"), MemoryError(), RecursionError(), StopIteration()):
        Raising.error = error
        assert signature_of(Raising(), T) == "float32[8,3]"


def test_an_interrupt_in_an_attribute_comes_later(profiler: cp.Profiler) -> None:
    Raising.error = KeyboardInterrupt()
    called: list[Any] = []
    node = profiler.profile_node(name="node")(called.append)
    value = Raising()

    def call_often() -> None:
        for _ in range(100):
            node(value)
            sum(range(100))

    with pytest.raises(KeyboardInterrupt):
        call_often()
    assert called[0] is value


def test_an_attribute_that_is_a_node_itself(profiler: cp.Profiler) -> None:
    class Lazy:
        @property
        @profiler.profile_node(name="shape")
        def shape(self) -> tuple[int, ...]:
            return described(self), 2

        @property
        @profiler.profile_node(name="dtype")
        def dtype(self) -> str:
            return "int8"

    @profiler.profile_node
    def described(_value: Any) -> int:
        return 4

    node = profiler.profile_node(name="node")(nothing)
    node(Lazy())
    assert shapes_of(profiler, "node") == {"int8[4,2]": 1}
    assert shapes_of(profiler, "shape") == {"": 1}
    assert shapes_of(profiler, "dtype") == {"": 1}
    assert [name for name in shapes_of(profiler) if name] == ["int8[4,2]"]


@pytest.mark.skipif(
    HAS_NO_GIL and sys.version_info < (3, 14), reason="this CPython keeps classes once it has had threads"
)
def test_what_a_class_is_is_found_out_once_and_forgotten_with_it(profiler: cp.Profiler) -> None:
    node = profiler.profile_node(name="node")(nothing)
    classes = []
    for number in range(20):
        kind = type(f"Made{number}", (), {"shape": (number,), "dtype": "int8"} if number % 2 else {"__slots__": ("a",)})
        node(kind())
        classes.append(weakref.ref(kind))
    del kind
    gc.collect()
    assert [each() for each in classes] == [None] * 20
    assert shapes_of(profiler)[""] == 10
    assert shapes_of(profiler)["int8[7]"] == 1


def test_more_dtypes_than_are_remembered() -> None:
    for number in range(300):
        assert signature_of(Tensor(1, dtype=Dtype(f"my.d{number}"))) == f"d{number}[1]"


def test_no_attribute_is_asked_for_while_it_is_off() -> None:
    profiler = cp.Profiler()
    Raising.error, Raising.asked = ValueError(), 0
    node = profiler.profile_node(name="node")(nothing)
    for nvtx in (False, True):
        profiler.set_profiling(True, nvtx=nvtx)
        node(Raising())
    assert Raising.asked == 0
    assert list(profiler.get_profiling_summary().shapes) == []


# --- kinds of calls ---


class Model:
    """With parameters of its own, which are no argument."""

    shape, dtype = (9, 9), "own"

    def forward(self, x: Any) -> Any:
        return x

    @staticmethod
    def static(x: Any) -> Any:
        return x

    @classmethod
    def made(cls, x: Any) -> Any:
        return x


def test_self_is_no_argument(profiler: cp.Profiler) -> None:
    class Decorated(Model):
        forward = profiler.profile_node(name="forward")(Model.forward)
        static = staticmethod(profiler.profile_node(name="static")(Model.static))
        made: Any = classmethod(profiler.profile_node(name="made")(vars(Model)["made"].__func__))

    model = Decorated()
    model.forward(T)
    model.static(T)
    model.made(T)
    Decorated.forward(model, x=U)
    for name in ("forward", "static", "made"):
        assert "float32[8,3]" in shapes_of(profiler, name)
        assert not any("own" in signature for signature in shapes_of(profiler, name))
    assert shapes_of(profiler, "forward") == {"float32[8,3]": 1, "int64[]": 1}
    assert profiler.profile_node(name="plain")(same)(model) is model
    assert shapes_of(profiler, "plain") == {"own[9,9]": 1}


def test_self_of_what_other_decorators_wrapped(profiler: cp.Profiler) -> None:
    def twice(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    class Wrapped(Model):
        forward = profiler.profile_node(name="outer")(profiler.profile_node(name="inner")(twice(Model.forward)))

    assert Wrapped().forward(U) is U
    assert shapes_of(profiler) == {"int64[]": 1}


def test_instrumented_methods(profiler: cp.Profiler) -> None:
    model = Model()
    with profiler.instrument(model, "forward", name="forward"):
        model.forward(T)
    with cp.instrument(Model(), "static", name="static", profiler=profiler):
        Model.static(T)
    assert shapes_of(profiler, "forward") == {"float32[8,3]": 1}


def test_suspended_kinds(profiler: cp.Profiler) -> None:
    @profiler.profile_node
    async def coroutine(_x: Any) -> int:
        await asyncio.sleep(0)
        return 1

    @profiler.profile_node
    def generator(x: Any) -> Generator[Any, None, None]:
        yield x
        yield x

    @profiler.profile_node
    async def agenerator(x: Any) -> Any:
        yield x

    async def main() -> None:
        await asyncio.gather(coroutine(T), coroutine(U), coroutine(_x=T))
        assert [each async for each in agenerator(U)] == [U]

    asyncio.run(main())
    assert list(generator(T)) == [T, T]
    generator(T).close()  # never begun: nothing
    assert shapes_of(profiler, coroutine.__qualname__.rpartition(">.")[2]) == {"float32[8,3]": 2, "int64[]": 1}
    assert shapes_of(profiler, "generator") == {"float32[8,3]": 1}
    assert shapes_of(profiler, "agenerator") == {"int64[]": 1}


def test_blocks_have_the_empty_signature(profiler: cp.Profiler) -> None:
    with profiler.profile_node("block"):
        pass
    assert shapes_of(profiler) == {"": 1}


# --- where calls count ---


def test_outcomes_skips_and_records(profiler: cp.Profiler) -> None:
    profiler.set_profiling(True, by_shape=True, skip_first_n=2)

    @profiler.profile_node
    def node(_x: Any, error: BaseException | None = None) -> None:
        if error is not None:
            raise error

    for x in (T, T, U, T):
        node(x)
    for error in (ValueError(), asyncio.CancelledError()):
        with pytest.raises(type(error)):
            node(U, error)
    profiler.record("inference", "node", 5.0)
    summary = profiler.get_profiling_summary()
    (row,) = summary
    assert (row.count, row.skipped_count, row.error_count, row.cancelled_count) == (3, 2, 1, 1)
    by_signature = {shape.signature: shape for shape in summary.shapes}
    assert {name: each.count for name, each in by_signature.items()} == {"int64[]": 1, "float32[8,3]": 1}
    assert (by_signature["int64[]"].error_count, by_signature["int64[]"].cancelled_count) == (1, 1)
    assert by_signature["float32[8,3]"].share == 0.5
    assert all(each.stage is cp.ExecutionStage.INFERENCE for each in summary.shapes)


def test_figures_of_a_signature(profiler: cp.Profiler) -> None:
    node = profiler.profile_node(name="node")(work)
    for _ in range(50):
        node(T)
    (shape,) = profiler.get_profiling_summary().shapes
    (row,) = profiler.get_profiling_summary()
    names = ("count", "min_ms", "max_ms", "total_ms", "p50_ms", "p99_ms")
    assert [getattr(shape, name) for name in names] == [getattr(row, name) for name in names]
    assert shape.mean_ms == pytest.approx(row.mean_ms)
    assert (shape.share, shape.tail_share) == (1.0, 1.0)
    assert 1 <= shape.tail_count <= 50


def test_stages_and_resets(profiler: cp.Profiler) -> None:
    node = profiler.profile_node(name="node")(nothing)
    for stage in ("train", "own"):
        with cp.stage(stage):
            node(T)
    summary = profiler.get_profiling_summary()
    assert [(shape.stage, shape.signature) for shape in summary.shapes] == [
        ("train", "float32[8,3]"),
        ("own", "float32[8,3]"),
    ]
    assert [shape.stage for shape in profiler.get_profiling_summary("own").shapes] == ["own"]
    profiler.reset_profiling()
    assert shapes_of(profiler) == {}
    node(U)
    assert shapes_of(profiler) == {"int64[]": 1}
    profiler.set_profiling(True)  # fully specified anew: calls from now on are not told apart
    node(U)
    summary = profiler.get_profiling_summary()
    assert (summary[0].count, shapes_of(profiler)) == (2, {"int64[]": 1})
    profiler.set_profiling(False, by_shape=True)
    node(U)
    assert shapes_of(profiler) == {"int64[]": 1}


def test_sixteen_are_kept_under_racing_threads(profiler: cp.Profiler) -> None:
    node = profiler.profile_node(name="node")(nothing)
    tensors = [Tensor(number) for number in range(40)]
    sums = []

    def call(offset: int) -> None:
        for number in range(400):
            node(tensors[(number * 7 + offset) % 40])

    def look() -> None:
        summary = profiler.get_profiling_summary()
        sums.append((sum(row.count for row in summary), sum(shape.count for shape in summary.shapes)))

    with beside(look):
        run_threads(*(functools.partial(call, number) for number in range(8)))
    assert all(nodes == shapes for nodes, shapes in sums)
    counts = shapes_of(profiler)
    assert len(counts) == 17
    assert sum(counts.values()) == 3200
    assert counts.pop(OVERFLOW) == 3200 - 16 * 80
    assert set(counts.values()) == {80}


def test_a_forked_child_starts_anew(profiler: cp.Profiler) -> None:
    node = profiler.profile_node(name="node")(nothing)
    node(T)

    def child() -> None:
        assert shapes_of(profiler) == {}
        node(U)
        assert shapes_of(profiler) == {"int64[]": 1}

    fork(child)
    assert shapes_of(profiler) == {"float32[8,3]": 1}


# --- what becomes of them ---


def test_snapshots_keep_and_merge_them(profiler: cp.Profiler) -> None:
    others = [profiler, cp.Profiler()]
    others[1].set_profiling(True, by_shape=True)
    for at, each in enumerate(others):
        node = each.profile_node(name="node")(nothing)
        for number in range(20):
            node(Tensor(number + 10 * at))
    snapshots = [each.snapshot() for each in others]
    for each, snapshot in zip(others, snapshots, strict=True):
        stored = cp.Snapshot.from_bytes(snapshot.to_bytes())
        assert stored == snapshot == pickle.loads(pickle.dumps(snapshot))
        assert stored.stats().shapes == each.get_profiling_summary().shapes
        assert stored.stats("train").shapes == ()
    merged = cp.Snapshot.merge(snapshots)
    assert merged == cp.Snapshot.merge(reversed(snapshots)) == cp.Snapshot.from_bytes(merged.to_bytes())
    counts = {shape.signature: shape.count for shape in merged.stats().shapes}
    assert counts.pop(OVERFLOW) == 8
    assert counts == {f"float32[{number}]": 2 if 10 <= number < 16 else 1 for number in range(26)}


def test_summaries_are_values(profiler: cp.Profiler) -> None:
    node = profiler.profile_node(name="node")(nothing)
    node(T)
    summary = profiler.get_profiling_summary()
    for other in (summary.copy(), copy.copy(summary), copy.deepcopy(summary), pickle.loads(pickle.dumps(summary))):
        assert other.shapes == summary.shapes
        assert isinstance(other.shapes, ShapeSummary)
    (shape,) = summary.shapes
    assert {shape: 1}[copy.copy(shape)] == 1
    with pytest.raises(AttributeError, match=r"^can.t set attribute$"):
        shape.count = 3  # type: ignore[misc]


Row = collections.namedtuple(  # noqa: PYI024 as the core's, without types
    "Row",
    "node_name stage signature count error_count cancelled_count mean_ms p50_ms p99_ms min_ms max_ms total_ms tail"
    " slowest",
)


def row(signature: str, count: int, tail: int, slowest: int, name: str = "node") -> Row:
    """What the core gives for a signature."""
    return Row(name, "inference", signature, count, 0, 0, 1.0, 1.0, 2.0, 0.5, 9.0, float(count), tail, slowest)


def of_rows(*rows: Row) -> ShapeSummary:
    count = sum(each[3] for each in rows)
    node = SimpleNamespace(node_name=rows[0].node_name, stage="inference", p50_ms=1.0, p99_ms=2.0, count=count)
    return shapes_from(rows, [node])


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([row("a", 980, 1, 10), row("b", 20, 9, 10)], "b"),
        ([row("a", 9800, 0, 100), row("b", 200, 100, 100)], "b"),
        ([row("a", 980, 6, 10), row("b", 20, 4, 10)], None),  # less than half of the tail
        ([row("a", 600, 6, 10), row("b", 400, 4, 10)], None),  # as all others
        ([row("a", 4000, 10, 100), row("b", 6000, 90, 100)], None),  # it is the usual one
        ([row("a", 996, 4, 10), row("b", 4, 6, 10)], None),  # too few of them
        ([row("a", 179, 0, 10), row("b", 20, 10, 10)], None),  # too few in all
        ([row("a", 700, 4, 10), row("b", 300, 6, 10)], None),  # may be by chance
        ([row("a", 710, 40, 100), row("b", 290, 60, 100)], "b"),
        ([row("a", 1000, 10, 10)], None),
        ([row("a", 990, 0, 10), row(OVERFLOW, 10, 10, 10)], OVERFLOW),
        ([row("a", 0, 0, 0), row("b", 0, 0, 0)], None),
    ],
)
def test_who_makes_the_tail(rows: list[Row], found: str | None) -> None:
    summary = of_rows(*rows)
    assert [verdict.stats.signature for verdict in summary.verdicts] == ([] if found is None else [found])
    assert sum(shape.share for shape in summary) == pytest.approx(1.0 if rows[0][3] else 0.0)
    for verdict in summary.verdicts:
        assert verdict.node_count == sum(each[3] for each in rows)
        assert str(verdict) in str(summary)


def test_a_node_without_percentiles_has_no_verdict() -> None:
    node = SimpleNamespace(node_name="node", stage="inference", p50_ms=None, p99_ms=None, count=1000)
    assert shapes_from([row("a", 980, 1, 10), row("b", 20, 9, 10)], [node]).verdicts == ()


def test_the_odd_shape_is_found_where_it_was_slow(profiler: cp.Profiler) -> None:
    node = profiler.profile_node(name="node")(work)
    usual, odd = Tensor(224, 224), Tensor(7, 224)
    for _ in range(5):  # a busy machine may make a tail of other calls
        profiler.reset_profiling()
        for number in range(600):
            node(odd if number % 50 == 49 else usual)
        summary = profiler.get_profiling_summary()
        if summary.shapes.verdicts:  # type: ignore[attr-defined]
            break
    (verdict,) = summary.shapes.verdicts  # type: ignore[attr-defined]
    assert verdict.stats.signature == "float32[7,224]"
    assert (verdict.stats.count, verdict.node_count) == (12, 600)
    assert verdict.stats.p50_ms > 2 * verdict.node_p50_ms
    assert (verdict.node_p50_ms, verdict.node_p99_ms) == (summary[0].p50_ms, summary[0].p99_ms)
    text = profiler.format_profiling_summary()
    assert "node (inference): float32[7,224] makes the tail: it is 2.0 % of the calls and" in text
    assert "float32[7,224] makes the tail" in summary._repr_html_()
    assert "float32[7,224] makes the tail" in summary.shapes._repr_html_()  # type: ignore[attr-defined]


def test_what_is_shown(profiler: cp.Profiler) -> None:
    node = profiler.profile_node(name="<b>\x1b[31m\n")(nothing)
    for number in range(20):
        node(Tensor(number))
    node(Tensor(1, dtype="<script>\x1b\u2028\n"))
    with profiler.profile_node("without tensors"):
        pass
    with pytest.raises(ZeroDivisionError):
        profiler.profile_node(name="failing")(fail)(T)
    assert "without tensors" not in str(profiler.get_profiling_summary().shapes)
    lines = profiler.format_profiling_summary().splitlines()
    begin = lines.index(next(line for line in lines if line.endswith("  Signature")))
    table = lines[begin + 2 :]
    assert len(table) == 18
    assert all(line.startswith(r"<b>\x1b[31m\n") for line in table[:-1])
    assert sum("(all other signatures)" in line for line in table) == 1
    assert table[-1].split() == ["failing", "inference", "0", "0", "%", *"------"[:5], "0", "%", "1", "float32[8,3]"]
    html = profiler.get_profiling_summary()._repr_html_()
    assert html.count("Calls by input signature") == 1
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert "<script>" not in html


def test_without_figures_nothing_is_shown() -> None:
    profiler = cp.Profiler()
    assert "Signature" not in profiler.format_profiling_summary()
    profiler.set_profiling(True, by_shape=True)
    assert "Signature" not in profiler.format_profiling_summary()
    assert str(ShapeSummary()) == ""
    with profiler.profile_node("block"):
        pass
    assert "Signature" not in profiler.format_profiling_summary()
    assert profiler.get_profiling_summary().shapes[0].signature == ""


def test_small_shares() -> None:
    text = str(of_rows(row("a", 99_999, 10, 10), row("b", 1, 0, 10), row("c", 500, 0, 10)))
    assert "<0.1 %" in text
    assert "0.5 %" in text
    assert text.count("100 %") == 2  # of the calls, and of the tail


def test_the_section_of_a_document() -> None:
    profiler = profiler_on(by_shape=True)

    @profiler.profile_node(name="a|node")
    def node(value: Any) -> None:
        sum(range(300_000 if value.dtype == "odd" else 1))

    for number in range(600):
        node(Tensor(2, 3, dtype="odd" if number % 50 == 49 else "usual"))
    for number in range(16):
        node(Tensor(2, 3, dtype=f"t{number}"))
    with pytest.raises(AttributeError):
        node(3)
    with profiler.profile_node("no tensor in it"):
        pass
    for of in (profiler.get_profiling_summary(), profiler.snapshot()):
        section = View(of).document.sections["shapes"]
        names = [column.name for column in section.columns]
        rows = [dict(zip(names, row, strict=True)) for row in section.rows]
        assert len(rows) == 17
        (odd,) = [row for row in rows if row["makes_tail"] == "yes"]
        assert (odd["node_name"], odd["signature"], odd["count"]) == ("a|node", "odd[2,3]", 12)
        assert section.notes == tuple(map(str, profiler.get_profiling_summary().shapes.verdicts))  # type: ignore[attr-defined]
        assert {"(all other signatures)"} <= {row["signature"] for row in rows}
        assert [row["error_count"] for row in rows if row["error_count"]] == [1]
    assert "shapes" not in View(cp.Profiler().snapshot()).document.sections


def test_a_section_without_samples_has_no_times() -> None:
    profiler = profiler_on(by_shape=True)

    @profiler.profile_node
    def node(value: Any) -> None:
        raise KeyError(value)

    with pytest.raises(KeyError):
        node(Tensor(2, 3, dtype="int8"))
    (row,) = View(profiler.snapshot()).document.sections["shapes"].rows
    assert row[2:] == ("int8[2,3]", "", 0, 0.0, None, None, None, None, None, 0.0, 1, 0)


def test_dtypes_of_any_name_come_back() -> None:
    """FAILURES F4: a signature is data, in snapshots as in sections."""
    names = [name for name in NAMES if "\0" not in name]
    for first in range(0, len(names), 16):
        profiler = profiler_on(by_shape=True)
        some = names[first : first + 16]
        node = profiler.profile_node(name="node")(nothing)
        for name in some:
            node(Tensor(2, 3, dtype=name))
        expected = sorted({f"{name[:64]}[2,3]" for name in some})
        snapshot = cp.Snapshot.from_bytes(profiler.snapshot().to_bytes())
        assert sorted(shape.signature for shape in snapshot.stats().shapes) == expected
        shown = View(snapshot).document
        assert sorted(str(row[2]) for row in shown.sections["shapes"].rows) == expected
        shown.to_json()
        text = str(snapshot.stats().shapes)
        assert len(text.split("\n")) == 2 + len(expected)
        text.encode("utf-8")


def test_modules_of_torch() -> None:
    torch: Any = pytest.importorskip("torch")
    from cprofiling.integrations.torch import profile_modules

    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    profiler = profiler_on(by_shape=True)
    with profile_modules(model, profiler=profiler):
        model(torch.zeros(2, 4))
        model(torch.zeros(5, 4))
    shapes = profiler.get_profiling_summary().shapes
    assert {(shape.node_name, shape.signature) for shape in shapes} == {
        ("0", "float32[2,4]"), ("0", "float32[5,4]"), ("1", "float32[2,3]"), ("1", "float32[5,3]"),
    }  # fmt: skip


def test_a_block_that_is_entered_for_calls_at_the_same_time() -> None:
    """Two threads, and code of the user's that asks for a shape, each with arguments of its own."""
    profiler = profiler_on(by_shape=True)
    site = profiler.profile_node("block")
    asked, may_go_on = threading.Event(), threading.Event()

    class Slow:
        dtype = "int16"

        @property
        def shape(self) -> tuple[int, ...]:
            asked.set()
            assert may_go_on.wait(60)
            return (7,)

    def call(*arguments: object) -> None:
        site._enter_call(arguments)
        site.__exit__(None, None, None)

    thread = threading.Thread(target=lambda: call(Slow(), Tensor(2, 3, dtype="int64")))
    thread.start()
    assert asked.wait(60)
    call(Tensor(2, 3, dtype="int8"))
    may_go_on.set()
    thread.join()
    call()
    with site:
        pass
    with pytest.raises(TypeError, match="arguments must be a tuple"):
        site._enter_call([3])  # type: ignore[arg-type]
    assert shapes_of(profiler) == {"int8[2,3]": 1, "int16[7], int64[2,3]": 1, "": 2}
