"""Checks of arguments: what passes, and what the refusals say."""

from __future__ import annotations

import enum
import os
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
from cprofiling import export, harness, layers, notebook, views
from cprofiling._internal import arguments as checks


class Number:
    """An integer of another type."""

    def __index__(self) -> int:
        return 7


class Color(enum.Enum):
    RED = 1


def refusal(error: type[Exception], check: Any, *arguments: Any) -> str:
    with pytest.raises(error) as caught:
        check(*arguments)
    return str(caught.value)


def test_integers() -> None:
    assert checks.index("x", -5) == -5
    assert checks.index("x", Number()) == 7
    assert type(checks.index("x", Number())) is int
    for wrong in (True, 1.0, "1", None):
        assert refusal(TypeError, checks.index, "x", wrong).startswith(f"x must be an integer, got {wrong!r} (")


def test_integers_with_limits() -> None:
    assert [checks.index_between("x", value, 1, 3) for value in (1, 2, 3)] == [1, 2, 3]
    assert checks.index_between("x", 1 << 70, 0) == 1 << 70
    assert checks.index_between("x", Number(), 7, 7) == 7
    assert refusal(ValueError, checks.index_between, "x", 0, 1) == "x must be >= 1, got 0"
    assert refusal(ValueError, checks.index_between, "x", 4, 1, 3) == "x must be from 1 to 3, got 4"
    assert refusal(ValueError, checks.index_between, "x", 0, 1, 3, "events") == "x must be from 1 to 3 events, got 0"
    assert refusal(ValueError, checks.index_between, "x", -(10**5000), 1) == (
        "x must be >= 1, got an integer of 16610 bits"
    )
    assert refusal(ValueError, checks.index_between, "x", 1 << 128, 1, 3).endswith("got an integer of 129 bits")
    assert refusal(TypeError, checks.index_between, "x", False, 0) == "x must be an integer, got False (bool)"


def test_integers_that_may_be_missing() -> None:
    assert checks.index_or_none("x", None) is None
    assert checks.index_or_none("x", None, 1) is None
    assert checks.index_or_none("x", -1) == -1
    assert checks.index_or_none("x", Number(), 1) == 7
    assert refusal(ValueError, checks.index_or_none, "x", 0, 1) == "x must be >= 1, got 0"
    assert refusal(TypeError, checks.index_or_none, "x", 1.5) == "x must be an integer or None, got 1.5 (float)"
    assert refusal(TypeError, checks.index_or_none, "x", True, 1) == "x must be an integer or None, got True (bool)"


class OfBytes:
    def __fspath__(self) -> bytes:
        return b"a/b"


def test_paths() -> None:
    for given in ("a/b", b"a/b", Path("a/b"), OfBytes()):
        assert checks.path("x", given) == "a/b"
    assert os.fsencode(checks.path("x", b"\xff")) == b"\xff"
    assert refusal(ValueError, checks.path, "x", "") == "x must not be empty, got '' (str)"
    assert refusal(ValueError, checks.path, "x", "\ud800").startswith("x must be a name that files can have, got ")
    assert refusal(ValueError, checks.path, "x", b"a\0b") == "x must not have a NUL, got b'a\\x00b' (bytes)"
    for wrong in (None, 0, True, bytearray(b"a"), ["a"]):
        assert refusal(TypeError, checks.path, "x", wrong).startswith(f"x must be a path, got {wrong!r} (")


def test_members() -> None:
    assert checks.member("x", Color.RED, Color) is Color.RED
    assert refusal(TypeError, checks.member, "x", 1, Color) == "x must be a Color, got 1 (int)"


def test_choices() -> None:
    class Word(str):
        pass

    assert type(checks.choice("x", Word("b"), ("a", "b"))) is str
    assert refusal(ValueError, checks.choice, "x", "c", ("a", "b")) == "x must be one of 'a', 'b', got 'c' (str)"
    assert refusal(ValueError, checks.choice, "x", [], ("a",)) == "x must be one of 'a', got [] (list)"


def test_callables() -> None:
    assert checks.callable_or_none("x", None) is None
    assert checks.callable_or_none("x", print) is print
    assert refusal(TypeError, checks.callable_or_none, "x", 3) == "x must be callable or None, got 3 (int)"


def recorded() -> cp.Recording:
    with cp.profile() as prof, cp.record("block"):
        pass
    return prof.recording


def batches_of(*batches: Any, **others: Any) -> list[Any]:
    return list(cp.PipelineProfiling().iter_profiled_batches(*batches, stage="train", **others))


def view_of(**others: Any) -> views.View:
    return views.View(cp.Profiler().get_profiling_summary(), **others)


REFUSED: dict[str, Any] = {
    "args": lambda wrong: cp.record("block", wrong),
    "warm_up": lambda wrong: cp.record("block", warm_up=wrong),
    "default": lambda wrong: cp.stage("train", default=wrong),
    "batches": batches_of,
    "move": lambda wrong: batches_of([], move=wrong),
    "step": cp.schedule(wait=0, warmup=0, active=1),
    "step of describe": cp.schedule(wait=0, warmup=0, active=1).describe,
    "recording": export.event_rows,
    "recording as arrow": export.arrow_stream,
    "recording as columns": export.frame_columns,
    "name": lambda wrong: recorded().column(wrong),
    "row": lambda wrong: recorded().args(wrong),
    "indent": lambda wrong: recorded().to_json(indent=wrong),
    "metric": lambda wrong: recorded().export_stacks("stacks", wrong),
    "reasons": lambda wrong: notebook.summary_html([], reasons=wrong),
    "cost_ns": lambda wrong: notebook.summary_html([], cost_ns=wrong),
    "title": lambda wrong: view_of(title=wrong),
    "source": lambda wrong: view_of(source=wrong),
    "facts": lambda wrong: view_of(facts=wrong),
    "against": lambda wrong: view_of().beside(wrong),
    "format": lambda wrong: view_of().render(wrong),
    "factory": harness.call_factory,
    "signature_path": lambda wrong: harness.StageBenchHarness.from_signature_file(wrong, "stage"),
    "inputs": lambda wrong: harness.StageBenchHarness(
        "stage", layers.StageIOSignature("stage", {}), print
    ).run_single_step(wrong),
    "baseline": lambda wrong: layers.compare_timing_reports(wrong, {}),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_names_the_parameter(what: str) -> None:
    """Anything of a wrong type, also one that is long, and the message stays short."""

    class Wrong:
        def __repr__(self) -> str:
            return "w" * 10_000

    message = refusal(TypeError if what not in ("metric", "format") else ValueError, REFUSED[what], Wrong())
    assert message.startswith(f"{what.partition(' ')[0]} must be ")
    assert "www" in message
    assert len(message) < 500


def test_a_refused_value_names_the_parameter() -> None:
    """A path, a text or a number that is of the right type but not possible."""
    assert refusal(ValueError, layers.compare_timing_reports, "", {}) == "baseline must not be empty, got '' (str)"
    assert refusal(ValueError, layers.set_pipeline_name, "\ud800").startswith("name must be a value that CPROFILING_")
    assert refusal(IndexError, recorded().args, 2**70) == f"row must be 0 to 0, got {2**70}"
    assert refusal(ValueError, recorded().column, "x" * 10_000).startswith("name must be that of a column, got 'xxx")
    assert len(refusal(ValueError, recorded().column, "x" * 10_000)) < 200
    other = views.View(recorded())
    assert refusal(ValueError, lambda: view_of(against=other)) == (
        "against must be of the same kind, got a summary with a recording"
    )
