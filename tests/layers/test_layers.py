"""Stage contexts, their report and their files (failure scenarios B1, D2, D10, F1, F3 and F10 for stages)."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import logging
import math
import os
import pickle
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
from calls import mapped
from cprofiling import _core
from cprofiling._internal import environment, log
from cprofiling.layers import context as layers
from cprofiling.layers.memory import MemoryReader, StageMemory
from cprofiling.layers.signatures import StageIOSignature
from fakes.fake_torch import forget_devices, torch_loader

Context = layers.ProfilingContext
HERE = Path(__file__).parents[1]
LOGGER = logging.getLogger("cprofiling")
HUGE = 64 << 20


class PlannedError(Exception):
    pass


pytestmark = [pytest.mark.native, pytest.mark.usefixtures("fresh_stages")]


def stages() -> dict[str, Any]:
    return layers.get_timing_report()["stages"]  # type: ignore[no-any-return]


def counts() -> dict[str, int]:
    return {name: stage["count"] for name, stage in stages().items()}


# ---- Contexts and decorators


def test_stages_leave_nodes_as_cheap_as_they_were() -> None:
    """The Profiler that adds stages up is on, yet nodes that are off need not look for one that is."""
    program = """
        import cprofiling as cp
        from cprofiling import layers

        node = cp.profile_node(name="node")(lambda: None)
        with layers.ProfilingContext("stage"), layers.context._registry._own.profiler:
            node()
        assert layers.get_timing_report()["num_stages"] == 1
    """
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env=environ, timeout=60, check=True)


def test_each_use_adds_up() -> None:
    for pause in (0.001, 0.003):
        with Context("vae"):
            time.sleep(pause)
    vae = stages()["vae"]
    assert vae["count"] == 2
    assert 1 <= vae["min_ms"] <= vae["mean_ms"] <= vae["max_ms"]
    assert vae["max_ms"] >= 3
    assert vae["duration_ms"] == pytest.approx(2 * vae["mean_ms"], abs=1e-5)
    assert vae["percentage"] == 100.0
    assert set(vae["memory"]) == {"allocated_mb", "reserved_mb", "peak_allocated_mb", "peak_reserved_mb"}
    assert 0 < vae["memory"]["allocated_mb"] <= vae["memory"]["peak_allocated_mb"]


def test_a_report_says_all_that_it_is_to_say() -> None:
    layers.reset_timing_registry("req_7", {"steps": 4})
    layers.set_timing_metadata("size", [512, 512])
    with Context("a"), Context("b"):
        pass
    report = layers.get_timing_report()
    assert list(report)[:7] == [
        "schema_version", "request_id", "timestamp", "wall_clock_ms", "total_stages_ms", "num_stages", "stages",
    ]  # fmt: skip
    assert (report["request_id"], report["num_stages"]) == ("req_7", 2)
    assert report["metadata"] == {"steps": 4, "size": [512, 512]}
    assert list(report["stages"]) == ["b", "a"], "in the order in which they ended first"
    total = sum(stage["duration_ms"] for stage in report["stages"].values())
    assert report["total_stages_ms"] == pytest.approx(total, abs=1e-5)
    assert report["wall_clock_ms"] >= report["stages"]["a"]["duration_ms"]
    assert (report["rank"], report["world_size"], report["process"]["pid"]) == (0, 1, os.getpid())
    assert "memory" not in report
    json.dumps(report, allow_nan=False)


def test_a_function_is_measured_and_stays_itself() -> None:
    def decode(latents: int, *, scale: float = 1.0) -> float:
        """Decode."""
        return latents * scale

    measured = Context("decode")(decode)
    assert measured(3, scale=2.0) == 6.0
    assert (measured.__name__, measured.__doc__) == ("decode", "Decode.")
    assert inspect.signature(measured) == inspect.signature(decode)
    assert counts() == {"decode": 1}


def test_methods_of_all_kinds_are_measured() -> None:
    class Stage:
        @Context("static")
        @staticmethod
        def static(x: int) -> int:
            return x

        @staticmethod
        @Context("inside static")
        def inside_static(x: int) -> int:
            return x

        @Context("class")
        @classmethod
        def of_class(cls, x: int) -> tuple[type, int]:
            return cls, x

        @property
        @Context("property")
        def size(self) -> int:
            return 5

    for owner in (Stage, Stage()):
        assert owner.static(1) == owner.inside_static(1) == 1
        assert owner.of_class(1) == (Stage, 1)
    assert Stage().size == 5
    assert counts() == {"static": 2, "inside static": 2, "class": 2, "property": 1}
    assert layers.get_io_signatures()["class"].input_signatures == {"x": 1}


def test_coroutines_are_measured_to_their_end() -> None:
    class Stage:
        async def __call__(self, seconds: float) -> str:
            await asyncio.sleep(seconds)
            return "done"

    @Context("coroutine")
    async def wait(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    async def both() -> list[float]:
        async with Context("around"):
            return list(await asyncio.gather(wait(0.02), wait(0.02)))

    assert inspect.iscoroutinefunction(wait)
    assert asyncio.run(both()) == [0.02, 0.02]
    report = layers.get_timing_report()
    assert report["wall_clock_ms"] < report["total_stages_ms"], "they ran at the same time"
    assert asyncio.run(Context("object")(Stage())(0.003)) == "done"
    assert counts() == {"coroutine": 2, "around": 1, "object": 1}
    assert stages()["coroutine"]["min_ms"] >= 20
    assert stages()["object"]["min_ms"] >= 3
    assert layers.get_io_signatures()["object"].output_signature == "done"


def test_one_object_is_used_by_tasks_and_threads_at_once() -> None:
    context = Context("one")

    async def task(seconds: float) -> None:
        async with context:
            with context:
                await asyncio.sleep(seconds)

    async def tasks() -> None:
        await asyncio.gather(*(task(0.002 * i) for i in range(10)))

    def use() -> None:
        for _ in range(200):
            with context, context:
                pass

    asyncio.run(tasks())
    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(use) for _ in range(4)]:
            future.result()
    one = stages()["one"]
    assert one["count"] == 2 * 10 + 4 * 200 * 2
    assert one["max_ms"] >= 18


def test_blocks_that_end_out_of_order_have_their_own_times() -> None:
    first, second = Context("first"), Context("second")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    time.sleep(0.002)
    second.__exit__(None, None, None)
    assert stages()["first"]["duration_ms"] < stages()["second"]["duration_ms"]
    assert stages()["second"]["duration_ms"] >= 2
    with Context("after"):
        pass
    assert counts() == {"first": 1, "second": 1, "after": 1}


def test_a_block_may_end_in_another_thread() -> None:
    context = Context("elsewhere")
    thread = threading.Thread(target=context.__enter__)
    thread.start()
    thread.join()
    context.__exit__(None, None, None)
    assert counts() == {"elsewhere": 1}
    context.__exit__(None, None, None)
    assert counts() == {"elsewhere": 1}, "it was not open any more"


def test_an_exception_passes_and_is_counted() -> None:
    error = PlannedError()
    for _ in range(2):
        with pytest.raises(PlannedError) as raised, Context("fails"):
            raise error
        assert raised.value is error

    @Context("cancelled")
    async def wait() -> None:
        await asyncio.sleep(60)

    async def cancel() -> None:
        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    with Context("fails"):
        pass
    fails, cancelled = stages()["fails"], stages()["cancelled"]
    assert (fails["count"], fails["error_count"]) == (1, 2)
    assert (cancelled["count"], cancelled["cancelled_count"], cancelled["duration_ms"]) == (0, 1, 0.0)
    assert "error_count" not in cancelled
    assert "cancelled" not in layers.get_io_signatures()


def test_a_reset_discards_what_is_running() -> None:
    with Context("running"):
        layers.reset_timing_registry("second")

    @Context("decorated")
    def resets(x: int) -> int:
        layers.reset_timing_registry("third")
        return x

    resets(1)
    with suppress(PlannedError), Context("fails"):
        layers.reset_timing_registry("fourth")
        raise PlannedError
    report = layers.get_timing_report()
    assert (report["request_id"], report["stages"], report["wall_clock_ms"]) == ("fourth", {}, 0.0)
    assert layers.get_io_signatures() == {}
    layers.reset_timing_registry()
    assert layers.get_timing_report()["request_id"].startswith("req_20")


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_copies_are_new_ones(copied: Callable[[Context], Context]) -> None:
    context = Context("x", reset_peak_memory=False, capture_memory=True)
    with context:
        made = copied(context)
    assert (made.name, made.reset_peak_memory, made.capture_memory) == ("x", False, True)
    assert repr(made) == "ProfilingContext('x')"
    with made:
        pass
    assert counts() == {"x": 2}


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (PlannedError, r"function must be a function, got <class '.*PlannedError'>"),
        (7, "function must be a function, got 7"),
        (generator, "function must not yield, got <function generator.*: use cprofiling.profile_node"),
        (async_generator, "function must not yield"),
    ],
)
def test_what_cannot_be_measured_is_refused(function: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Context("x")(function)


@pytest.mark.parametrize("name", [None, 7, b"x", ["x"], "a\0b", "x" * 4097, "\0", "é" * 2049])
def test_names_that_are_none(name: Any) -> None:
    error, message = (ValueError, "name must") if isinstance(name, str) else (TypeError, "name must be a str, got")
    for refuse in (Context, _core.IdleContext, layers.set_pipeline_name):
        with pytest.raises(error, match=message):
            refuse(name)


@pytest.mark.parametrize("name", ["", " ", "\ud800", "a\nb", "日本", "../../x", "x" * 4096])
def test_strange_names_are_names(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "cprofiling"), Context(name):
        pass
    assert counts() == {name: 1}
    assert "\n" not in caplog.messages[0]
    layers.dump_timing_report("timing.json")
    assert list(json.loads(Path("timing.json").read_text())["stages"]) == [name]


@pytest.mark.forks
def test_a_stage_that_is_open_at_a_fork_is_the_parents(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    layers.enable_profiler_for_names("outer")

    @Context("decorated")
    def fork(_x: int) -> int:
        return os.fork()

    with Context("outer"):
        child = fork(1)
    if not child:
        with Context("child's"):
            pass
        told = json.dumps([counts(), list(layers.get_io_signatures()), caplog.messages])
        (tmp_path / "child").write_text(told)
        os._exit(0)
    os.waitpid(child, 0)
    assert json.loads((tmp_path / "child").read_text()) == [{"child's": 1}, [], []]
    assert counts() == {"decorated": 1, "outer": 1}
    assert len(list(layers.get_profiler_output_dir().iterdir())) == 2


# ---- What is off


def test_debug_contexts_are_off_without_debug() -> None:
    assert layers.ProfilingContextDebug.__name__ == "IdleContext"
    idle = layers.ProfilingContextDebug("x", reset_peak_memory=False, capture_memory=True)
    assert idle(stages) is stages

    async def use() -> None:
        async with idle as entered:
            assert entered is idle
        with pytest.raises(PlannedError):
            async with idle:
                raise PlannedError

    asyncio.run(use())
    with idle as entered:
        assert entered is idle
    with pytest.raises(PlannedError), layers.ProfilingContextDebug("y"):
        raise PlannedError
    assert (idle.name, repr(idle)) == ("x", "ProfilingContextDebug('x')")
    assert pickle.loads(pickle.dumps(idle)).name == "x"
    assert counts() == {}
    wrong: list[Any] = [_core.IdleContext, lambda: _core.IdleContext("x", True), idle]  # type: ignore[call-arg]
    for call in wrong:
        with pytest.raises(TypeError):
            call()


# ---- What is logged


def test_a_line_for_each_use(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    with caplog.at_level(logging.INFO, "cprofiling"):
        with Context("vae_decode"):
            pass
        with pytest.raises(PlannedError), Context("fails"):
            raise PlannedError
        for name in ("read", "read_anew"):
            monkeypatch.setattr(layers._memory, name, lambda *_: None)
        monkeypatch.setattr(layers._memory, "stale_ns", 0)
        with Context("x", capture_memory=True):
            pass
    memory = r", memory: \d+/\d+ MB \(peak: \d+/\d+ MB\)"
    for message, end in zip(
        caplog.messages,
        [r"vae_decode: \d+\.\d\d ms" + memory, r"fails: \d+\.\d\d ms \(PlannedError\)" + memory, r"x: .* ms"],
        strict=True,
    ):
        assert re.fullmatch(r"\[Rank 0\] \[Timing\] " + end, message)
    assert {record.levelname for record in caplog.records} == {"INFO"}
    assert "memory" not in stages()["x"]
    assert "memory" not in layers.get_timing_report()


def test_debug_lines_go_to_stderr_without_logging(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "debug", True)
    monkeypatch.setattr(LOGGER, "hasHandlers", lambda: False)
    with Context("shown"):
        pass
    assert "[Timing] shown:" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stderr", None)
    with Context("without stderr"):
        pass
    assert counts() == {"shown": 1, "without stderr": 1}


def test_a_fault_of_the_profilers_is_told_and_loses_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_arguments: Any) -> Any:
        raise RuntimeError("planned")

    for name in ("read", "read_anew", "uses_device"):
        monkeypatch.setattr(layers._memory, name, fails)
    monkeypatch.setattr(layers._memory, "stale_ns", 0)
    monkeypatch.setattr("cprofiling.layers.signatures.Capture.inputs", fails)

    @Context("x", capture_memory=True)
    def twice(x: int) -> int:
        return 2 * x

    assert twice(2) == 4
    assert counts() == {"x": 1}
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert "[Profiler] 'x': RuntimeError: planned" in caplog.messages


class Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise UnspeakableError


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise PlannedError


def test_values_of_which_nothing_can_be_said_pass(caplog: pytest.LogCaptureFixture) -> None:
    value = Nameless("Value", (), {})()
    assert Context("x")(lambda: value)() is value
    assert Context("x")(lambda value: value)(value) is value
    assert counts() == {"x": 2}
    assert layers.get_io_signatures() == {}
    assert caplog.messages == [], "nor of the error"


def test_a_filter_that_raises_is_not_the_stages(caplog: pytest.LogCaptureFixture) -> None:
    def fails(_record: object) -> bool:
        raise PlannedError

    with caplog.at_level(logging.INFO, "cprofiling"):
        LOGGER.addFilter(fails)
        try:
            with Context("x"):
                pass
        finally:
            LOGGER.removeFilter(fails)
    assert counts() == {"x": 1}


# ---- Memory


def test_checkpoints_of_memory() -> None:
    for name in map(str, range(5)):  # a machine may take pages of others away just then
        with Context(name, capture_memory=True):
            kept = mapped(HUGE)
        memory = layers.get_timing_report()["memory"]
        assert list(memory["snapshots"])[-2:] == [f"before_{name}", f"after_{name}"]
        before, after = list(memory["snapshots"].values())[-2:]
        assert memory["peak_allocated_mb"] >= after["peak_allocated_mb"] - 0.01
        if after["allocated_mb"] >= before["allocated_mb"] + len(kept) / 2**20 * 0.9:
            return
        kept.close()
    raise AssertionError(f"{before} {after}")


def test_peaks_are_the_highest_of_all_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = iter([StageMemory(5, 6, 50, 60), StageMemory(7, 8, 20, 90)])
    monkeypatch.setattr(layers._memory, "read", lambda _now: StageMemory(*(each << 20 for each in next(figures))))
    monkeypatch.setattr(layers._memory, "stale_ns", 0)
    for _ in range(2):
        with Context("x"):
            pass
    assert stages()["x"]["memory"] == {
        "allocated_mb": 7.0, "reserved_mb": 8.0, "peak_allocated_mb": 50.0, "peak_reserved_mb": 90.0,
    }  # fmt: skip


def test_the_devices_peak_is_the_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_devices(monkeypatch)
    torch = torch_loader(monkeypatch, in_use=True)("cuda")
    monkeypatch.setattr(layers, "_memory", MemoryReader())
    torch.allocate(900 << 20)
    torch.allocate(-(900 << 20))
    with Context("outer"), Context("kept", reset_peak_memory=False):
        torch.allocate(40 << 20)
        with Context("inner"):
            torch.allocate(-(40 << 20))
    peaks = {name: stage["memory"]["peak_allocated_mb"] for name, stage in stages().items()}
    assert peaks == {"inner": 40.0, "kept": 40.0, "outer": 40.0}
    assert torch.calls("reset") == 2
    assert torch.violations == []


# ---- Signatures


def test_signatures_of_decorated_stages(tmp_path: Path) -> None:
    @Context("stage")
    def process(prompt: str, steps: int = 4, *rest: int, scale: float = 1.0, **more: Any) -> list[int]:
        return [steps, *rest]

    process("a", 2, 3, scale=2.5, extra=None)
    process("b")
    signature = layers.get_io_signatures()["stage"]
    assert signature.input_signatures == {"prompt": "b"}, "the latest counts"
    process("c", 1, 5, 6, scale=0.5, extra=[1, 2.0])
    path = layers.dump_io_signatures(tmp_path / "new" / "io.json")
    made = json.loads(path.read_text())
    assert set(made) == {"schema_version", "request_id", "timestamp", "stages"}
    assert made["request_id"] == "test"
    assert made["stages"] == {
        "stage": {
            "stage_name": "stage",
            "input_signatures": {"prompt": "c", "steps": 1, "rest": [5, 6], "scale": 0.5, "extra": [1, 2.0]},
            "output_signature": None,
            "output": [1, 5, 6],
            "metadata": {"prompt": "c", "steps": 1, "scale": 0.5},
        }
    }


def test_a_function_without_arguments_has_a_signature() -> None:
    Context("bare")(lambda: None)()
    assert layers.get_io_signatures()["bare"] == StageIOSignature("bare", {})


# ---- Which stages are recorded


def test_enabled_stages_are_recorded(caplog: pytest.LogCaptureFixture) -> None:
    layers.enable_profiler_for_names("vae_decode, dit_*")
    assert os.environ[environment.NAMES] == "vae_decode, dit_*"

    @cp.profile_node("inside")
    def inside() -> int:
        return sum(range(1000))

    with caplog.at_level(logging.INFO, "cprofiling"):
        for name in ("vae_decode", "dit_1", "other", "dit_1"):
            with Context(name):
                inside()
    folder = layers.get_profiler_output_dir()
    names = ["dit_1_rank0-2", "dit_1_rank0", "vae_decode_rank0"]
    endings = ("trace.json.gz", "breakdown.json")
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        f"{name}.{end}" for name in names for end in endings
    )
    events = {event.name for event in cp.load_trace(folder / "dit_1_rank0.trace.json.gz").events()}
    assert {"inside", "dit_1"} <= events
    breakdown = json.loads((folder / "vae_decode_rank0.breakdown.json").read_text())
    assert (breakdown["name"], breakdown["rank"]) == ("vae_decode", 0)
    assert f"[Profiler] Chrome trace saved to: {folder / 'vae_decode_rank0.trace.json.gz'}" in caplog.messages
    assert counts() == {"vae_decode": 1, "dit_1": 2, "other": 1}


def test_one_recording_at_a_time(caplog: pytest.LogCaptureFixture) -> None:
    layers.enable_profiler_for_names("*")
    with Context("outer"), Context("inner"):
        pass
    folder = layers.get_profiler_output_dir()
    assert sorted(path.name for path in folder.iterdir()) == ["outer_rank0.breakdown.json", "outer_rank0.trace.json.gz"]
    assert [message for message in caplog.messages if "'inner' is not recorded: a recording is running" in message]


def test_stages_are_labels_in_any_recording() -> None:
    with cp.profile(operators=False) as prof:
        with Context("labelled"):
            pass
        with pytest.raises(PlannedError), Context("failed"):
            raise PlannedError
    assert {event.name: event.outcome for event in prof.events()} == {"labelled": "success", "failed": "error"}


def test_a_trace_that_cannot_be_written_is_told(caplog: pytest.LogCaptureFixture, monkeypatch: Any) -> None:
    def full(*_arguments: Any, **_keywords: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cprofiling.recording.traces.chrome_writer.export_to_path", full)
    layers.enable_profiler_for_names("full")
    with Context("full"):
        pass
    assert counts() == {"full": 1}
    assert any("No space left on device" in message for message in caplog.messages)
    assert list(layers.get_profiler_output_dir().iterdir()) == []


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: layers.enable_profiler_for_names(None), TypeError, "names must be a str, got None"),  # type: ignore[arg-type]
        (lambda: layers.reset_timing_registry(7), TypeError, "request_id must be a str, got 7"),  # type: ignore[arg-type]
        (lambda: layers.reset_timing_registry("x", 7), TypeError, "metadata must be a mapping or None"),  # type: ignore[arg-type]
        (lambda: layers.reset_timing_registry("x", {"a": object()}), TypeError, "metadata must be a value that JSON"),
        (lambda: layers.set_timing_metadata(7, 7), TypeError, "key must be a str, got 7"),  # type: ignore[arg-type]
        (lambda: layers.set_timing_metadata("x", {1}), TypeError, "metadata 'x' must be a value that JSON can say"),
        (lambda: layers.set_profiler_output_dir(7), TypeError, "path must be a path, got 7"),  # type: ignore[arg-type]
        (lambda: layers.dump_timing_report(7), TypeError, "path must be a path, got 7"),  # type: ignore[arg-type]
        (lambda: layers.dump_io_signatures(7), TypeError, "path must be a path, got 7"),  # type: ignore[arg-type]
        (lambda: layers.set_timing_metadata("x", math.nan), ValueError, "metadata 'x' must be a value that JSON"),
        (lambda: layers.set_profiler_output_dir(""), ValueError, "path must not be empty"),
        (
            lambda: layers.enable_profiler_for_names("a\0"),
            ValueError,
            "names must be a value that CPROFILING_PROFILER_NAMES can have",
        ),
        (
            lambda: layers.set_pipeline_name("\ud800"),
            ValueError,
            "name must be a value that CPROFILING_PIPELINE_NAME can have",
        ),
    ],
)
def test_wrong_arguments(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
