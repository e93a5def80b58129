"""Latency by input signature: arrays of numpy and PyTorch, and what views are made of."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import cprofiling as cp
from calls import profiler_on
from cprofiling.views import View
from hostile_names import NAMES


def signature_of(*args: Any) -> str:
    """The one of a call with these arguments."""
    profiler = profiler_on(by_shape=True)

    @profiler.profile_node
    def node(*_args: Any) -> None:
        pass

    node(*args)
    (shape,) = profiler.get_profiling_summary().shapes
    return shape.signature


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


# --- what views are made of ---


class Named:
    """A tensor whose dtype has any name."""

    shape = (2, 3)

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype


def test_the_section_of_a_document() -> None:
    profiler = profiler_on(by_shape=True)

    @profiler.profile_node(name="a|node")
    def node(value: Any) -> None:
        sum(range(30_000 if value.dtype == "odd" else 1))

    for number in range(600):
        node(Named("odd" if number % 50 == 49 else "usual"))
    for number in range(16):
        node(Named(f"t{number}"))
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
        node(Named("int8"))
    (row,) = View(profiler.snapshot()).document.sections["shapes"].rows
    assert row[2:] == ("int8[2,3]", "", 0, 0.0, None, None, None, None, None, 0.0, 1, 0)


def test_dtypes_of_any_name_come_back() -> None:
    """FAILURES F4: a signature is data, in snapshots as in sections."""
    names = [name for name in NAMES if "\0" not in name]
    for first in range(0, len(names), 16):
        profiler = profiler_on(by_shape=True)
        some = names[first : first + 16]
        node = profiler.profile_node(name="node")(_nothing)
        for name in some:
            node(Named(name))
        expected = sorted({f"{name[:64]}[2,3]" for name in some})
        snapshot = cp.Snapshot.from_bytes(profiler.snapshot().to_bytes())
        assert sorted(shape.signature for shape in snapshot.stats().shapes) == expected
        shown = View(snapshot).document
        assert sorted(str(row[2]) for row in shown.sections["shapes"].rows) == expected
        shown.to_json()
        text = str(snapshot.stats().shapes)
        assert len(text.split("\n")) == 2 + len(expected)
        text.encode("utf-8")


def _nothing(_value: Any) -> None:
    pass


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

    thread = threading.Thread(target=lambda: call(Slow(), Named("int64")))
    thread.start()
    assert asked.wait(60)
    call(Named("int8"))
    may_go_on.set()
    thread.join()
    with site:
        pass
    shapes = profiler.get_profiling_summary().shapes
    assert {shape.signature: shape.count for shape in shapes} == {"int8[2,3]": 1, "int16[7], int64[2,3]": 1, "": 1}


def test_a_block_that_is_entered_for_a_call() -> None:
    profiler = profiler_on(by_shape=True)
    site = profiler.profile_node("block")
    for arguments in ((Named("int8"),), ()):
        site._enter_call(arguments)
        site.__exit__(None, None, None)
    with site:
        pass
    with pytest.raises(TypeError, match="arguments must be a tuple"):
        site._enter_call([3])  # type: ignore[arg-type]
    shapes = profiler.get_profiling_summary().shapes
    assert {shape.signature: shape.count for shape in shapes} == {"int8[2,3]": 1, "": 2}
