"""Switching, resetting, record(), and the refusal of wrong arguments (failure scenarios B3, E9, E14, F1 to F7)."""

# Nodes are made of lambdas here, which have no types.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import contextvars
import copy
import decimal
import enum
import fractions
import inspect
import math
import pydoc
import re
import statistics
import textwrap
import types
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
from calls import NEVER, Index, by_name, profiler_on, run_python
from cprofiling import _core

pytestmark = pytest.mark.native


class Pipe(cp.PipelineProfiling):
    """A pipeline to control."""


class _Module:
    """The module's functions in the place of a Profiler's methods."""

    set_profiling = staticmethod(cp.set_profiling)
    reset_profiling = staticmethod(cp.reset_profiling)
    get_profiling_summary = staticmethod(cp.get_profiling_summary)
    format_profiling_summary = staticmethod(cp.format_profiling_summary)

    @property
    def profiling_enabled(self) -> bool:
        return cp.profiling_enabled()

    def mark(self) -> None:
        with cp.profile_node("n"):
            pass


@pytest.fixture(params=["Profiler", "pipeline", "module"])
def control(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Whatever has the five names; off and empty."""
    if request.param == "module":
        yield _Module()
        cp.set_profiling(False, reset=True)
    else:
        yield cp.Profiler() if request.param == "Profiler" else Pipe()


def call(control: Any, times: int = 1) -> None:
    """Run the node "n" some times."""
    for _ in range(times):
        if isinstance(control, _Module):
            control.mark()
        else:
            with control.profile_node("n"):
                pass


def figures(control: Any) -> list[tuple[int, int]]:
    """Samples and skips of each key."""
    return [(stats.count, stats.skipped_count) for stats in control.get_profiling_summary()]


def brief(value: Any) -> str:
    """A test's id: what the value looks like, if that is short."""
    return repr(value)[:20] if not isinstance(value, int) or abs(value) < 2**70 else "huge"


# ---- on and off ----------------------------------------------------------------------------------


def test_off_at_first_and_on_when_switched_on(control: Any) -> None:
    assert control.profiling_enabled is False
    call(control)
    summary = control.get_profiling_summary()
    assert summary == []
    is_off = "profiling is off: call set_profiling(True)"
    assert str(summary) == control.format_profiling_summary() == f"No profiling data collected.\n{is_off}"
    assert summary.reasons == (is_off,)
    assert is_off in summary._repr_html_()
    assert control.set_profiling(True) is None
    assert control.format_profiling_summary() == "No profiling data collected."
    assert control.profiling_enabled is True
    call(control, 3)
    control.set_profiling(False)
    assert control.profiling_enabled is False
    call(control, 2)
    assert figures(control) == [(3, 0)]
    control.set_profiling(enabled=True)
    call(control)
    assert figures(control) == [(4, 0)]


@pytest.mark.parametrize("value", [True, 1, 5, -1, 2.5])
def test_what_is_true_switches_on_and_what_is_false_off(control: Any, value: Any) -> None:
    control.set_profiling(value)
    assert control.profiling_enabled is True
    control.set_profiling(type(value)(0))
    assert control.profiling_enabled is False


def test_the_signature_is_keyword_only(control: Any) -> None:
    for wrong in (
        lambda: control.set_profiling(),
        lambda: control.set_profiling(True, True),
        lambda: control.set_profiling(True, skip=3),
        lambda: control.set_profiling(True, enabled=True),
        lambda: control.reset_profiling(1),
        lambda: control.format_profiling_summary(None, 5),
        lambda: control.get_profiling_summary("a", "b"),
    ):
        with pytest.raises(TypeError):
            wrong()
    assert control.profiling_enabled is False


def test_signatures_can_be_inspected() -> None:
    expected = (
        "(enabled, *, synchronize_cuda=False, reset=False, skip_first_n=0, gpu_time=False, gpu_stream=None, "
        "kernels=False, nvtx=False, memory=False, counters=(), live=None, by_shape=False, median='histogram')"
    )
    for owner in (cp.Profiler(), Pipe(), cp):
        signature = inspect.signature(owner.set_profiling)
        plain = [parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()]
        assert str(inspect.Signature(plain)) == expected
    assert list(inspect.signature(cp.Profiler().record).parameters) == ["stage", "node_name", "elapsed_ms"]


# ---- full replacement, resets, skips -------------------------------------------------------------


def test_every_call_fully_specifies_the_configuration(control: Any) -> None:
    control.set_profiling(True, skip_first_n=2)
    call(control, 5)
    assert figures(control) == [(3, 2)]
    control.set_profiling(True, reset=True)
    assert control.get_profiling_summary() == []
    call(control, 5)
    assert figures(control) == [(5, 0)]


@pytest.mark.parametrize("skip", [0, 2, 7])
def test_switching_off_never_discards(control: Any, skip: int) -> None:
    control.set_profiling(True, skip_first_n=2)
    call(control, 5)
    control.set_profiling(False, skip_first_n=skip)
    summary = control.get_profiling_summary()
    assert (figures(control), summary.skip_first_n) == ([(3, 2)], 2)
    assert "skip_first_n=2)" in control.format_profiling_summary()
    control.set_profiling(True, skip_first_n=2)
    call(control)
    assert figures(control) == [(4, 2)]


def test_switching_on_with_another_skip_than_the_statistics_have_discards_them(control: Any) -> None:
    control.set_profiling(True, skip_first_n=2)
    call(control, 5)
    control.set_profiling(False, skip_first_n=3)
    with pytest.warns(
        RuntimeWarning, match=r"^skip_first_n changes from 2 to 3: the statistics .* are discarded"
    ) as told:
        control.set_profiling(True, skip_first_n=3)
    assert [warning.filename for warning in told] == [__file__]
    assert control.get_profiling_summary() == []
    control.set_profiling(True, skip_first_n=2)  # there is nothing to discard
    control.set_profiling(True, skip_first_n=3)
    call(control, 5)
    assert figures(control) == [(2, 3)]
    assert "skip_first_n=3)" in control.format_profiling_summary()


def test_p2_estimates_medians_from_the_first_call_on(control: Any) -> None:
    control.set_profiling(True)
    call(control, 5)
    with pytest.warns(RuntimeWarning, match=r"^median changes from .histogram. to .p2.: the stat"):
        control.set_profiling(True, median="p2")
    assert control.get_profiling_summary() == []
    call(control, 5)
    control.set_profiling(True, median="p2")
    control.set_profiling(False)
    assert control.get_profiling_summary().median == "p2"
    assert control.format_profiling_summary().startswith("Profiling Summary (median=p2)\n")
    control.set_profiling(True)  # the other direction discards nothing
    assert (figures(control), control.get_profiling_summary().median) == ([(5, 0)], "histogram")


@pytest.mark.parametrize(
    ("value", "error", "shown"),
    [
        ("P2", ValueError, "'P2'"),
        ("", ValueError, "''"),
        ("p2\udc80" + "x" * 99, ValueError, r"'p2\udc80" + "x" * 68 + "..."),
        (None, TypeError, "None (NoneType)"),
        (b"p2", TypeError, "b'p2' (bytes)"),
    ],
)
def test_medians_of_another_kind_are_refused(control: Any, value: Any, error: type[Exception], shown: str) -> None:
    with pytest.raises(error) as raised:
        control.set_profiling(True, median=value)
    assert str(raised.value) == f'median must be "histogram" or "p2", got {shown}'
    assert control.profiling_enabled is False


@pytest.mark.parametrize("count", range(1, 8))
def test_the_median_is_exact_of_up_to_five_samples(count: int) -> None:
    values = [9.0, 1.5, 7.25, 3.0, 4.5, 8.0, 2.0][:count]
    profiler = profiler_on()
    for value in values:
        profiler.record("train", "n", value)
    [row] = profiler.get_profiling_summary()
    assert row.p50_ms == row.median_ms
    if count <= 5:
        assert row.median_ms == statistics.median(values)
    else:
        assert row.median_ms == pytest.approx(statistics.median_low(values), rel=0.01)


def test_discarding_can_be_refused_by_making_its_warning_an_error(control: Any) -> None:
    control.set_profiling(True)
    call(control, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="skip_first_n changes from 0 to 3"):
            control.set_profiling(True, skip_first_n=3)
        assert figures(control) == [(5, 0)]
        control.set_profiling(True, skip_first_n=3, reset=True)
    assert figures(control) == []


@pytest.mark.parametrize("enabled", [True, False])
def test_reset_profiling_keeps_state_and_configuration_and_clears_skips(control: Any, enabled: bool) -> None:
    control.set_profiling(True, skip_first_n=2)
    call(control, 5)
    control.set_profiling(enabled, skip_first_n=2)
    for _ in range(3):
        assert control.reset_profiling() is None
        assert control.profiling_enabled is enabled
        assert control.get_profiling_summary() == []
        assert control.get_profiling_summary().skip_first_n == 2
        assert control.format_profiling_summary().startswith("No profiling data collected.")
    call(control, 3)
    assert figures(control) == ([(1, 2)] if enabled else [])


def test_exactly_n_are_skipped_per_key() -> None:
    p = profiler_on(skip_first_n=3)
    for i in range(10):
        for stage in ("a", "b"):
            p.record(stage, "one", float(i))
            with cp.stage(stage):
                call(p)
    assert [(stats.count, stats.skipped_count) for stats in p.get_profiling_summary()] == [(7, 3)] * 4
    recorded = p.get_profiling_summary("a")[0]
    assert (recorded.min_ms, recorded.max_ms, recorded.first_ms, recorded.total_ms) == (3.0, 9.0, 0.0, 42.0)


def test_a_key_whose_calls_were_all_skipped() -> None:
    p = profiler_on(skip_first_n=5)
    p.record("train", "n", 7.0)
    p.record("train", "n", 8.0)
    (stats,) = p.get_profiling_summary()
    assert (stats.count, stats.skipped_count, stats.first_ms, stats.total_ms, stats.last_ms) == (0, 2, 7.0, 0.0, 0.0)
    assert (stats.median_ms, stats.p50_ms, stats.p999_ms) == (0.0, None, None)
    assert "Average" not in p.format_profiling_summary()


# ---- skip_first_n: what is taken (F7) ------------------------------------------------------------


class Number(enum.IntEnum):
    THREE = 3


@pytest.mark.parametrize(
    ("value", "number"),
    [(0, 0), (3, 3), (2**63 - 1, 2**63 - 1), (Index(3), 3), (Number.THREE, 3), (Index(0), 0), (-0, 0)],
)
def test_skip_first_n_takes_what_has_an_index(control: Any, value: Any, number: int) -> None:
    control.set_profiling(True, skip_first_n=value)
    call(control, 5)
    skipped = min(number, 5)
    assert figures(control) == [(5 - skipped, skipped)]
    assert control.get_profiling_summary().skip_first_n == number


REFUSED_SKIPS: list[tuple[Any, type[Exception], str]] = [
    (-1, ValueError, r"^skip_first_n must be >= 0, got -1$"),
    (-(2**70), ValueError, r"^skip_first_n must be >= 0, got -1180591620717411303424$"),
    (2**63, ValueError, r"^skip_first_n must be <= 9223372036854775807, got 9223372036854775808$"),
    (10**5000, ValueError, r"^skip_first_n must be <= 9223372036854775807"),
    (-(10**5000), ValueError, r"^skip_first_n must be >= 0"),
    (Index(-1), ValueError, r"^skip_first_n must be >= 0, got -1$"),
    (True, TypeError, r"^skip_first_n must be .*bool"),
    (1.0, TypeError, r"^skip_first_n must be .*float"),
    (None, TypeError, r"^skip_first_n must be .*NoneType"),
    ("3", TypeError, r"^skip_first_n must be .*str"),
    (decimal.Decimal(3), TypeError, r"^skip_first_n must be .*Decimal"),
    (Index(ZeroDivisionError("own")), ZeroDivisionError, r"^own$"),
    (Index(1.5), TypeError, r"__index__"),
    (int, TypeError, r"^skip_first_n must be .*type"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "error", "message"), REFUSED_SKIPS, ids=brief)
@pytest.mark.parametrize("enabled", [True, False])
def test_skip_first_n_refuses_everything_else_and_changes_nothing(
    control: Any, value: Any, error: type[Exception], message: str, enabled: bool
) -> None:
    control.set_profiling(enabled, skip_first_n=2)
    control.set_profiling(True, skip_first_n=2)
    call(control, 5)
    control.set_profiling(enabled, skip_first_n=2)
    before = control.get_profiling_summary()
    with pytest.raises(error, match=message):
        control.set_profiling(not enabled, reset=True, skip_first_n=value)
    assert control.profiling_enabled is enabled
    assert control.get_profiling_summary() == before
    assert control.get_profiling_summary().skip_first_n == 2


class NoTruth:
    def __bool__(self) -> bool:
        raise ZeroDivisionError("own")


@pytest.mark.parametrize("parameter", ["enabled", "synchronize_cuda", "reset", "by_shape"])
@pytest.mark.parametrize("value", [None, "yes", "", b"", [], {}, object(), NoTruth()])
def test_switches_that_are_none_are_refused_and_change_nothing(control: Any, parameter: str, value: Any) -> None:
    control.set_profiling(True, skip_first_n=1)
    call(control, 3)
    before = control.get_profiling_summary()
    with pytest.raises((TypeError, ZeroDivisionError), match=f"^{parameter} must be|own"):
        control.set_profiling(**{"enabled": False, "skip_first_n": 9, parameter: value})
    assert control.profiling_enabled is True
    assert control.get_profiling_summary() == before


# ---- record() (E9) -------------------------------------------------------------------------------


def test_record_counts_only_while_on_and_returns_nothing() -> None:
    p: Any = cp.Profiler()
    assert p.record("train", "n", 1.0) is None
    assert p.get_profiling_summary() == []
    p.set_profiling(True)
    assert p.record("train", "n", 2.0) is None
    p.set_profiling(False)
    p.record("train", "n", 3.0)
    assert [stats.last_ms for stats in p.get_profiling_summary()] == [2.0]


def test_record_shares_a_key_with_calls_but_has_no_stage_in_force_and_no_parent() -> None:
    p = profiler_on()
    call(p)
    with cp.stage("val"), p.profile_node("around"):
        p.record("inference", "n", 1e6)
    stats = by_name(p)
    assert (stats["n"].stage, stats["n"].count, stats["n"].max_ms, stats["n"].last_ms) == ("inference", 2, 1e6, 1e6)
    assert stats["around"].self_total_ms == stats["around"].total_ms < 1e6


# ---- names and stages: what is taken (F1 to F3) --------------------------------------------------


class Plain(enum.Enum):
    NUMBER = 5


def _generator() -> Iterator[int]:
    yield 1


OBJECTS: list[Any] = [
    5, 0, -1, True, 1.5, math.nan, 1j, b"x", bytearray(b"x"), memoryview(b"x"), [], ["a"], (), ("a",), {}, {"a": 1},
    set(), frozenset("a"), object(), range(3), slice(1), ..., NotImplemented, Plain.NUMBER, Number.THREE, math,
    ValueError("x"), decimal.Decimal(1), fractions.Fraction(1), _generator(), types.SimpleNamespace(), iter("a"),
    cp.ExecutionStage,
]  # fmt: skip
TOO_LONG = ["x" * 4097, "é" * 2049, "\ud800" * 1366, "x" * 10_000_000]
WITH_NUL = ["\0", "a\0b", "\0" * 5000]


class Foreign:
    def run(self) -> str:
        return "ran"


def _node(parameter: str, value: Any, p: cp.Profiler) -> Any:
    return p.profile_node(lambda: None, **{parameter: value})


NAME_TAKERS: dict[str, Callable[[cp.Profiler, Any], Any]] = {
    "record": lambda p, value: p.record("train", value, 1.0),
    "profile_node": lambda p, value: p.profile_node(name=value),
    "decorator": lambda p, value: _node("name", value, p),
    "instrument": lambda p, value: p.instrument(Foreign(), "run", name=value),
    "cp.profile_node": lambda p, value: cp.profile_node(name=value, profiler=p),
    "cp.instrument": lambda p, value: cp.instrument(Foreign(), "run", name=value, profiler=p),
}
STAGE_TAKERS: dict[str, Callable[[cp.Profiler, Any], Any]] = {
    "record": lambda p, value: p.record(value, "n", 1.0),
    "profile_node": lambda p, value: p.profile_node("n", stage=value),
    "decorator": lambda p, value: _node("stage", value, p),
    "instrument": lambda p, value: p.instrument(Foreign(), "run", stage=value),
    "cp.profile_node": lambda p, value: cp.profile_node("n", stage=value, profiler=p),
    "cp.instrument": lambda p, value: cp.instrument(Foreign(), "run", stage=value, profiler=p),
    "cp.stage": lambda p, value: cp.stage(value),
    "default stage": lambda p, value: cp.stage(value, default=True),
    "get_profiling_summary": lambda p, value: p.get_profiling_summary(value),
    "format_profiling_summary": lambda p, value: p.format_profiling_summary(stage=value),
    "cp.get_profiling_summary": lambda p, value: cp.get_profiling_summary(value),
    "cp.format_profiling_summary": lambda p, value: cp.format_profiling_summary(value),
    "pipeline": lambda p, value: Pipe().get_profiling_summary(value),
}


def refused(p: cp.Profiler, take: Callable[[cp.Profiler, Any], Any], value: Any) -> Exception:
    """The exception that refuses the value; nothing may have changed."""
    before = p.get_profiling_summary()
    with pytest.raises((TypeError, ValueError)) as caught:
        take(p, value)
    assert p.profiling_enabled
    assert p.get_profiling_summary() == before
    return caught.value


@pytest.fixture
def p() -> cp.Profiler:
    """A Profiler with some figures."""
    profiler = profiler_on()
    profiler.record("train", "known", 1.0)
    return profiler


@pytest.mark.parametrize("kind", ["name", "stage"])
def test_names_and_stages_that_are_no_str_are_type_errors(p: cp.Profiler, kind: str) -> None:
    for taker, take in (NAME_TAKERS if kind == "name" else STAGE_TAKERS).items():
        is_record = (kind, taker) == ("name", "record")
        for value in OBJECTS:
            if kind == "name" and callable(value) and not is_record:
                continue
            error = refused(p, take, value)
            assert type(error) is TypeError
            assert str(error).startswith(f"{'node_name' if is_record else kind} must be ")
            assert type(value).__name__ in str(error)


@pytest.mark.parametrize("kind", ["name", "stage"])
@pytest.mark.parametrize("value", TOO_LONG + WITH_NUL, ids=lambda value: repr(value)[:12])
def test_too_long_names_and_nul_are_value_errors(p: cp.Profiler, kind: str, value: str) -> None:
    """F3: parameter, value and limit are named; the value is not repeated at length."""
    for taker, take in (NAME_TAKERS if kind == "name" else STAGE_TAKERS).items():
        error = refused(p, take, value)
        parameter = "node_name" if (kind, taker) == ("name", "record") else kind
        text = str(error)
        assert type(error) is ValueError
        assert text.startswith(f"{parameter} must ")
        assert len(text) < 300
        assert text.isascii()
        if "\0" in value:
            assert "NUL" in text
            assert r"\x00" in text
        else:
            assert "4096 bytes" in text.replace(",", "")
            assert str(len(value.encode("utf-8", "surrogatepass"))) in text.replace(",", "")


GOOD_NAMES = [
    "", " ", "\t\n", "plain", "é", "e\u0301", "👩‍🔬", "\u202eright to left", "\ud800", "a\udfffb", "\x1b[31m", "\u2028",
    "x" * 4096, "é" * 2048, "\ud800" * 1365, "__overflow__", "TOTAL", "None", "%s{}$", "-", "=1+1", "</script>", '"',
    "\\", "\x7f", "\x85",
]  # fmt: skip


@pytest.mark.parametrize("name", GOOD_NAMES, ids=lambda value: ascii(value)[:12])
def test_every_other_str_is_kept_exactly(name: str) -> None:
    """F3, and no normalisation: what looks alike but differs is another key."""
    p = profiler_on()
    p.record(name, name, 1.0)
    with p.profile_node(name, stage=name):
        pass
    p.profile_node(lambda: None, name=name, stage=name)()
    foreign = Foreign()
    with p.instrument(foreign, "run", name=name, stage=name):
        foreign.run()
    with cp.stage(name):
        p.profile_node(name)(lambda: None)()
    p.record("other stage", name, 1.0)
    stats = p.get_profiling_summary(name)[0]
    assert (stats.node_name, stats.stage, stats.count) == (name, name, 5)
    assert len(p.get_profiling_summary()) == 2
    p.format_profiling_summary().encode("utf-8")
    p._repr_html_().encode("utf-8")


class SubStr(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "misleading"

    def encode(self, *args: Any) -> bytes:
        return b"misleading"


class TextName(str, enum.Enum):
    BLUR = "blur"


@pytest.mark.parametrize("name", [SubStr("blur"), TextName.BLUR])
def test_a_str_subclass_is_its_text(name: Any) -> None:
    """F2."""
    p = profiler_on()
    for take in NAME_TAKERS.values():
        take(p, name)
    with p.profile_node(name):
        pass
    (train, inference) = p.get_profiling_summary()
    assert (train.node_name, inference.node_name) == ("blur", "blur")
    assert type(train.node_name) is str


# ---- other parameters ----------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1, "p", object(), cp.Profiler, Pipe(), math])
def test_profilers_that_are_none(value: Any) -> None:
    foreign = Foreign()
    for take in (
        lambda: cp.profile_node("n", profiler=value),
        lambda: cp.profile_node(lambda: None, profiler=value),
        lambda: cp.instrument(foreign, "run", profiler=value),
    ):
        with pytest.raises(TypeError, match=f"^profiler must be .*{type(value).__name__}"):
            take()
    assert vars(foreign) == {}


# ---- threads, finalizers, other ways in ----------------------------------------------------------


def test_a_summary_knows_what_the_profiler_costs_and_that_nothing_went_wrong(control: Any) -> None:
    control.set_profiling(True)
    call(control)
    summary = control.get_profiling_summary()
    assert isinstance(summary, cp.ProfilingSummary)
    assert summary.internal_errors == 0
    assert summary.cost_ns is not None
    assert summary.cost_ns > 0
    assert all(summary.reasons)
    assert figures(control) == [(1, 0)]


def test_whatever_makes_a_summary_less_certain_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unlucky(cp.Profiler):
        """Its extension reports three samples lost, two keys that could not be read, and one refused."""

        __slots__ = ()
        _refused_keys = 1

        def _rows(self, stage: Any, /) -> Any:
            return [], 0, "histogram", 3, 2, []

    monkeypatch.setattr(_core, "clock", lambda: ("CLOCK_MONOTONIC", "the counter is not invariant"))
    monkeypatch.setattr(_core, "clock_backward", lambda: 4)
    monkeypatch.setattr(_core, "gpu_reason", lambda: "the device is gone")
    unlucky = Unlucky()
    unlucky.set_profiling(True)
    assert unlucky.get_profiling_summary().reasons == (
        "the clock is CLOCK_MONOTONIC, as the counter is not invariant",
        "the clock went backwards 4 times; these calls count as 0 ns",
        "the device is gone",
        "3 samples are missing from the percentiles, for want of memory",
        "2 keys or more are missing, as a thread has stopped in the middle of an update",
        "there are more keys than a Profiler keeps; calls of the others are __overflow__ of their stage",
    )


# --- while the interpreter ends ---


@pytest.mark.parametrize(
    "asked",
    [
        "",
        "synchronize_cuda=True",
        "gpu_time=True, kernels=True, nvtx=True",
        "memory='peak'",
        "counters=('cpu_time', 'cycles')",
    ],
)
def test_what_is_gathered_can_be_read_when_nothing_can_be_imported_any_more(asked: str) -> None:
    """A pipeline that prints its summary in __del__, which runs at the end of the interpreter, prints it (G5)."""
    script = f"""
        import sys
        import cprofiling as cp

        profiler = cp.Profiler()
        profiler.set_profiling(True, {asked})
        profiler.profile_node("node")(len)("")

        class Late:
            def __del__(self, profiler=profiler):
                try:
                    import colorsys
                except ImportError:
                    pass
                else:
                    print("too early")
                [stats] = profiler.get_profiling_summary()
                [same] = profiler.snapshot().stats()
                assert stats == same
                assert stats.node_name in profiler.format_profiling_summary()
                profiler.set_profiling(True, {asked})
                print("done")

        late = Late()
    """
    done = run_python(textwrap.dedent(script))
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


# --- what is not there ---


def test_a_stage_in_which_nothing_ran_is_told_with_those_that_there_are() -> None:
    profiler = profiler_on()
    assert profiler.format_profiling_summary("trian") == "No profiling data collected."
    profiler.record("train", "node", 1)
    profiler.record("odd\x1b\u202e", "node", 1)
    for stage in ("trian", cp.ExecutionStage.VAL):
        reason = f"no node has run in stage '{stage}'; stages with nodes: 'odd\\x1b\\u202e', 'train'"
        assert profiler.format_profiling_summary(stage) == f"No profiling data collected.\n{reason}"
        assert profiler.get_profiling_summary(stage).reasons == (reason,)
        assert profiler.snapshot().stats(stage).reasons == (reason,)
    assert profiler.get_profiling_summary("train").reasons == profiler.snapshot().stats("train").reasons == ()


@cp.profile_node(name="of nobody")
def of_nobody() -> None:
    """A node that counts for whatever is bound, in the stage that is in force."""


NOT_INHERITED = (
    "no node has run in stage 'entered', which was entered: new threads do not inherit cp.stage() or `with profiler`; "
    "submit contextvars.copy_context().run, or use cp.stage(..., default=True)"
)


def test_a_stage_that_was_entered_without_a_node_is_told() -> None:
    """In a process of its own, as it tells of the first ones only."""
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]
    script = f"import sys; sys.path[:0] = {folders!r}; import test_control; test_control.enter_without_a_node()"
    done = run_python(script)
    assert (done.returncode, done.stderr) == (0, "")


def enter_without_a_node() -> None:
    """As where the nodes ran in a pool's threads, which know neither the stage nor the Profiler of the with block."""
    before = profiler_on()
    before.record("train", "node", 1)
    profiler = profiler_on()
    with cp.stage("entered"), profiler, ThreadPoolExecutor(1) as pool:
        pool.submit(of_nobody).result(NEVER)
    assert str(profiler.get_profiling_summary()) == f"No profiling data collected.\n{NOT_INHERITED}"
    assert profiler.format_profiling_summary("entered") == f"No profiling data collected.\n{NOT_INHERITED}"
    assert profiler.format_profiling_summary("another") == "No profiling data collected."
    assert before.format_profiling_summary().endswith(f"FPS)\n{NOT_INHERITED}")
    assert before.get_profiling_summary("train").reasons == ()
    assert profiler_on().get_profiling_summary().reasons == ()  # it was entered before
    profiler.reset_profiling()
    assert profiler.get_profiling_summary().reasons == ()
    with cp.stage("entered"), profiler, ThreadPoolExecutor(1) as pool:
        pool.submit(contextvars.copy_context().run, of_nobody).result(NEVER)
    assert [(row.stage, row.count) for row in profiler.get_profiling_summary()] == [("entered", 1)]
    with cp.stage("entered"):
        pass
    for each in (before, profiler, profiler_on()):
        assert each.get_profiling_summary().reasons == ()  # a node has run in it


def test_of_thousands_of_stages_the_first_ones_are_told() -> None:
    profiler = profiler_on()
    for number in range(1000):
        with cp.stage(f"request {number}"):
            pass
    assert len(profiler.get_profiling_summary().reasons) <= 1
    with cp.stage("request 1"), profiler:
        of_nobody()
    assert "request 1'" not in str(profiler.get_profiling_summary())


def test_a_row_is_found_by_its_name() -> None:
    profiler = profiler_on()
    for stage, name in (("train", "a"), ("val", "a"), ("val", "b\u2028")):
        profiler.record(stage, name, 1)
    summary = profiler.get_profiling_summary()
    assert summary.node("b\u2028") is summary.node("b\u2028", "val") is summary[2]
    assert summary.node("a", cp.ExecutionStage.TRAIN) is summary[0]
    wrong: dict[tuple[str, str | None], str] = {
        ("c", None): r"name must be that of a node ('a', 'b\u2028'), got 'c'",
        ("a", None): "stage must be one in which the node ran ('train', 'val'), got None",
        ("a", "test"): "stage must be one in which the node ran ('train', 'val'), got 'test'",
    }
    for where, message in wrong.items():
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            summary.node(*where)
    with pytest.raises(ValueError, match=r"^name must be that of a node \(none\), got 'a'$"):
        cp.ProfilingSummary().node("a")
    with pytest.raises(TypeError, match=r"^name must be a str, got 3 \(int\)$"):
        summary.node(3)  # type: ignore[arg-type]


def test_a_summary_s_str_is_the_table() -> None:
    profiler = profiler_on(skip_first_n=1, counters=("cpu_time",), by_shape=True)
    for _ in range(3):
        with profiler.profile_node("node"):
            pass
    summary = profiler.get_profiling_summary()
    assert str(summary) == profiler.format_profiling_summary()
    assert "skip_first_n=1" in str(summary)
    assert "CPU time" in str(summary)
    assert str(copy.copy(summary)) == str(summary)
    assert repr(summary).startswith("[NodeProfilingStats(")
    assert str(cp.ProfilingSummary()) == "No profiling data collected."


def test_a_record_with_a_stage_and_a_time_says_which_is_meant() -> None:
    message = (
        r"^record\(name\) labels a block, and takes one name, got 3 arguments: Profiler\.record\(stage, node_name, "
    )
    with pytest.raises(TypeError, match=message):
        cp.record("train", "load", 3.5)  # type: ignore[call-arg,arg-type]


def test_help_begins_with_an_example_and_the_public_names() -> None:
    """What help(cprofiling) shows."""
    text = pydoc.plain(pydoc.render_doc(cp))
    assert text.index("import cprofiling as cp") < text.index("cp.set_profiling(True)") < text.index("PACKAGE CONTENTS")
    told = set(re.findall(r"\w+", text.partition("PACKAGE CONTENTS")[0]))
    assert set(cp.__all__) <= told
