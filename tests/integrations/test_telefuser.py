"""The drop-in for telefuser's profiler: its names, its variables, and telefuser's own modules with ours in them."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import json
import logging
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
import ncu_samples
from command import Done, python
from cprofiling._internal import environment, log
from cprofiling.analysis.timing_reports import load_timing_report
from cprofiling.integrations import telefuser
from cprofiling.integrations.telefuser import memory, profiler
from cprofiling.integrations.telefuser.harness import StageBenchHarness
from cprofiling.layers import context as layers
from cprofiling.layers import output_folder
from cprofiling.layers.memory import MemoryReader, StageMemory
from cprofiling.layers.recording import StageRecording
from cprofiling.layers.registry import checkpoints_report
from timing_reports import peers

VARIABLES = (
    *profiler._Followed.variables, profiler.PIPELINE, profiler.OUTPUT_DIR,
    "PROFILER_OUTPUT_DIR", "TELEFUSER_TIMING_REPORT", environment.NAMES, environment.PIPELINE, environment.OUTPUT_DIR,
    environment.TIMING_REPORT,
)  # fmt: skip


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing was used, nothing is set, and all is as before afterwards."""
    monkeypatch.chdir(tmp_path)
    for variable in VARIABLES:
        monkeypatch.setenv(variable, "")  # so that what the test sets is taken back
        monkeypatch.delenv(variable)
    chosen = StageRecording.chosen
    output_folder.forget()
    telefuser.reset_timing_registry("test")
    yield
    telefuser.uninstall()
    layers.enable_profiler_for_names("")
    profiler._Followed.values = (None,) * 4
    StageRecording.chosen = chosen
    telefuser.reset_timing_registry()
    layers.AtExit.is_wanted = False
    layers._registry.report_memory = checkpoints_report
    output_folder.forget()


def stages() -> dict[str, Any]:
    return telefuser.get_timing_report()["stages"]  # type: ignore[no-any-return]


# ---- Contexts


def test_contexts_measure_where_there_is_no_accelerator() -> None:
    @telefuser.ProfilingContext("decorated")
    def function(first: int, *, scale: float = 1.0) -> float:
        return first * scale

    @telefuser.ProfilingContext("coroutine", capture_memory=True)
    async def coroutine() -> str:
        return "done"

    @telefuser.ProfilingContext("generator")
    def generator() -> Iterator[int]:
        yield 1

    async def block() -> None:
        async with telefuser.ProfilingContext("async"):
            pass

    assert function(2, scale=3.0) == 6.0
    assert asyncio.run(coroutine()) == "done"
    assert list(generator()) == [1]
    asyncio.run(block())
    with telefuser.ProfilingContext("block", reset_peak_memory=False) as context:
        assert isinstance(context, telefuser.ProfilingContext)
    assert [(name, stage["count"]) for name, stage in stages().items()] == [
        ("decorated", 1), ("coroutine", 1), ("generator", 1), ("async", 1), ("block", 1),
    ]  # fmt: skip
    assert stages()["block"]["memory"]["allocated_mb"] > 1
    assert list(telefuser.get_memory_snapshots()) == ["before_coroutine", "after_coroutine"]
    signature = telefuser.get_io_signatures()["decorated"]
    assert (signature.input_signatures, signature.metadata) == ({"first": 2, "scale": 3.0}, {"first": 2, "scale": 3.0})


def test_debug_contexts_do_nothing_unless_asked() -> None:
    def function() -> None: ...

    assert telefuser.ProfilingContext4Debug("vae")(function) is function
    with telefuser.ProfilingContext4Debug("vae", reset_peak_memory=False, capture_memory=True):
        pass
    assert stages() == {}


def run(code: str, folder: Path, **variables: str) -> Done:
    return python(["-W", "error", "-c", code], folder, watched=True, **variables)


def test_debug_mode_writes_the_report_at_the_end(tmp_path: Path) -> None:
    code = """if True:
        from cprofiling.integrations.telefuser import ProfilingContext4Debug
        @ProfilingContext4Debug("vae")
        def f(x): pass
        f(1)"""
    done = run(code, tmp_path, TELEFUSER_PROFILE_DEBUG="true", TELEFUSER_TIMING_REPORT="out/x.json")
    assert done.status == 0, done.err
    assert "[Timing] vae: " in done.err
    assert "[Profiler] Timing report saved to: out/x.json" in done.err
    report = load_timing_report(tmp_path / "out" / "x.json")
    assert report["stages"]["vae"]["count"] == 1
    assert json.loads((tmp_path / "out" / "x_io_signature.json").read_text())["stages"]["vae"]["metadata"] == {"x": 1}
    done = run(code, tmp_path, TELEFUSER_PIPELINE_NAME="wan")
    assert (done.status, done.err) == (0, "")
    assert not (tmp_path / "work_dirs").exists()


def test_what_is_always_on_writes_the_report_at_the_end_too(tmp_path: Path) -> None:
    code = """if True:
        import cprofiling.integrations.telefuser as t
        with t.ProfilingContext("vae", capture_memory=True): pass"""
    done = run(code, tmp_path, TELEFUSER_PIPELINE_NAME="wan")
    assert (done.status, done.err) == (0, "")
    (path,) = (tmp_path / "work_dirs" / "profiler_output" / "wan").glob("*/timing.json")
    report = load_timing_report(path)
    assert report["memory"]["snapshots"].keys() == {"before_vae", "after_vae"}
    assert report["memory"]["total_device_memory_mb"] > 0
    done = run(f"{code}\n        t.mark_as_worker_process()", tmp_path, TELEFUSER_PIPELINE_NAME="worker")
    assert (done.status, done.err) == (0, "")
    assert not (tmp_path / "work_dirs" / "profiler_output" / "worker").exists()


def test_a_variable_that_says_nothing_is_warned_of(tmp_path: Path) -> None:
    done = run("import cprofiling.integrations.telefuser", tmp_path, TELEFUSER_PROFILE_DEBUG="maybe")
    assert "TELEFUSER_PROFILE_DEBUG must be one of 1, true, yes, on" in done.err
    assert "is taken as false" in done.err


# ---- What the environment says, and the functions that change it


def test_names_are_followed_as_the_environment_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = telefuser.ProfilingContext("vae")
    monkeypatch.setenv("PROFILER_OUTPUT_DIR", str(tmp_path / "out"))
    monkeypatch.setenv("ENABLE_PROFILER_NAMES", "dit, vae")
    monkeypatch.setenv("TELEFUSER_TORCH_PROFILER_WITH_STACK", "false")
    with context:
        pass
    assert StageRecording.chosen == {"record_shapes": True, "profile_memory": True, "with_stack": False}
    monkeypatch.delenv("TELEFUSER_TORCH_PROFILER_WITH_STACK")
    monkeypatch.setenv("ENABLE_PROFILER_NAMES", "other")
    with context:
        pass
    assert StageRecording.chosen["with_stack"]
    monkeypatch.delenv("ENABLE_PROFILER_NAMES")
    with context:
        pass
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "vae_rank0.breakdown.json",
        "vae_rank0.trace.json.gz",
    ]


@pytest.mark.parametrize("told", ["true", "false"])
def test_pytorch_s_profiler_is_asked_for_what_the_environment_says(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    for variable in profiler._Followed.variables[1:]:
        monkeypatch.setenv(variable, told)
    asked: list[dict[str, Any]] = []
    own = torch.profiler.profile

    def profile(**options: Any) -> Any:
        asked.append(options)
        return own(**options)

    monkeypatch.setattr(torch.profiler, "profile", profile)
    with telefuser.ProfilingContext("outer") as context:
        assert context._profiler is None
    telefuser.enable_profiler_for_names("outer")
    with telefuser.ProfilingContext("outer") as context:
        assert isinstance(context._profiler, cp.profile)
    assert context._profiler is None
    assert [asked[0][name] for name in ("record_shapes", "profile_memory", "with_stack")] == [told == "true"] * 3


def test_functions_set_the_variables(tmp_path: Path) -> None:
    telefuser.enable_profiler_for_names("vae")
    assert os.environ["ENABLE_PROFILER_NAMES"] == "vae"
    telefuser.set_pipeline_name("wan")
    assert os.environ["TELEFUSER_PIPELINE_NAME"] == "wan"
    assert telefuser.get_profiler_output_dir().parent.parts[-3:] == ("work_dirs", "profiler_output", "wan")
    os.environ["PROFILER_OUTPUT_DIR"] = str(tmp_path / "theirs")
    assert telefuser.get_profiler_output_dir() == tmp_path / "theirs"
    telefuser.set_profiler_output_dir(str(tmp_path / "ours"))
    assert os.environ["TELEFUSER_PROFILER_OUTPUT_DIR"] == str(tmp_path / "ours")
    assert telefuser.get_profiler_output_dir() == tmp_path / "ours"
    with pytest.raises(TypeError, match="path must be a path"):
        telefuser.set_profiler_output_dir(None)  # type: ignore[arg-type]


# ---- The registry


def test_the_registry_takes_what_others_have_measured(tmp_path: Path) -> None:
    registry = telefuser.reset_timing_registry("req_001", {"model": "tiny"})
    assert registry is telefuser.GlobalTimingRegistry.get_instance()
    registry.record("vae", 1500.0, telefuser.MemorySnapshot(1.0, 2.0, 3.0, 4.5))
    registry.record("vae", 500.0)
    registry.record_parallel_stage(
        "dit", {1: {"duration_ms": 30.0, "peak_memory_gb": 0.5}, 0: {"duration_ms": 10.0, "peak_memory_gb": 0.25}}
    )
    registry.set_metadata("steps", 4)
    registry.finalize()
    ended_ns = layers._registry.ended_ns
    registry.finalize()
    assert layers._registry.ended_ns == ended_ns
    report = registry.get_report()
    assert (report["request_id"], report["metadata"]) == ("req_001", {"model": "tiny", "steps": 4})
    assert (report["stages"]["vae"]["duration_ms"], report["stages"]["vae"]["count"]) == (2000, 2)
    assert report["stages"]["vae"]["memory"]["peak_reserved_mb"] == 4.5
    parallel = report["stages"]["dit"]["parallel_info"]
    assert (report["stages"]["dit"]["duration_ms"], parallel["num_ranks"]) == (30, 2)
    ranks = [(each["rank"], each["duration_ms"], each["peak_memory_gb"]) for each in parallel["ranks"]]
    assert ranks == [(0, 10.0, 0.25), (1, 30.0, 0.5)]
    registry.dump(str(tmp_path / "new" / "timing.json"))
    assert load_timing_report(tmp_path / "new" / "timing.json")["stages"] == report["stages"]
    telefuser.dump_timing_report(str(tmp_path / "timing.json"))
    assert load_timing_report(tmp_path / "timing.json")["stages"] == report["stages"]
    summary = registry.summary()
    assert "req_001" in summary
    assert "rank 1" in summary
    assert telefuser.GlobalTimingRegistry.reset().get_report()["stages"] == {}
    assert telefuser.get_timing_report()["request_id"].startswith("req_2")
    assert telefuser.reset_timing_registry(None).get_report()["request_id"].startswith("req_2")


@pytest.mark.parametrize(
    ("name", "duration_ms", "error"),
    [(None, 1.0, TypeError), ("vae", "1", TypeError), ("vae", -1.0, ValueError), ("vae", float("nan"), ValueError)],
)
def test_what_is_no_time_is_refused(name: Any, duration_ms: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        telefuser.GlobalTimingRegistry.get_instance().record(name, duration_ms)
    with pytest.raises(ValueError, match=r"empty|arg"):
        telefuser.GlobalTimingRegistry.get_instance().record_parallel_stage("vae", {})
    assert stages() == {}


def test_signatures(tmp_path: Path) -> None:
    tensor = types.SimpleNamespace(shape=(2, 3), dtype="torch.float32", device="cpu", requires_grad=True)
    signature = telefuser.TensorSignature.from_tensor(tensor)
    assert signature == telefuser.TensorSignature((2, 3), "float32", "cpu", True)
    told = {"shape": [2, 3], "dtype": "float32", "device": "cpu", "requires_grad": True}
    assert signature.to_dict() == told
    given = {"latents": signature, "pair": [signature, {"deep": signature}], "steps": 4}
    made = telefuser.StageIOSignature("dit", given, signature, {"steps": 4})
    assert made.to_dict() == {
        "stage_name": "dit",
        "input_signatures": {"latents": told, "pair": [told, {"deep": told}], "steps": 4},
        "output_signature": told,
        "metadata": {"steps": 4},
    }
    registry = telefuser.GlobalTimingRegistry.get_instance()
    registry.record_signature(made)
    assert registry.get_io_signatures()["dit"].input_signatures == given
    assert telefuser.get_io_signatures()["dit"].output_signature == signature
    registry.dump_io_signatures(str(tmp_path / "a.json"))
    telefuser.dump_io_signatures(str(tmp_path / "b.json"))
    for name in "ab":
        assert json.loads((tmp_path / f"{name}.json").read_text())["stages"]["dit"] == made.to_dict()
    with_stride = telefuser.TensorSignature.from_dict({**told, "stride": [3, 1]})
    assert (with_stride.stride, with_stride.to_dict()) == ((3, 1), {**told, "stride": [3, 1]})
    assert with_stride == signature


def test_the_summary_is_logged_or_printed(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    telefuser.GlobalTimingRegistry.get_instance().record("vae", 5.0)
    with caplog.at_level(logging.INFO, "cprofiling"):
        telefuser.print_timing_summary()
    assert "vae" in caplog.text
    assert capsys.readouterr().err == ""
    log.logger.setLevel(logging.WARNING)
    monkeypatch.setattr(log.logger, "level", logging.WARNING)
    telefuser.print_timing_summary()
    assert "vae" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stderr", None)
    telefuser.print_timing_summary()


# ---- Memory


def test_figures_of_a_snapshot() -> None:
    snapshot = telefuser.MemorySnapshot(1024.0, 2048.0, 1536.0, 3072.004)
    assert (snapshot.allocated_gb, snapshot.reserved_gb) == (1, 2)
    assert (snapshot.peak_allocated_gb, round(snapshot.peak_reserved_gb, 3)) == (1.5, 3)
    assert (snapshot.pool_overhead_mb, snapshot.pool_overhead_gb, snapshot.pool_overhead_pct) == (1024, 1, 50)
    assert telefuser.MemorySnapshot(0, 0, 0, 0).pool_overhead_pct == 0
    assert snapshot.to_dict() == {
        "allocated_mb": 1024.0, "reserved_mb": 2048.0, "peak_allocated_mb": 1536.0, "peak_reserved_mb": 3072.0,
    }  # fmt: skip
    assert snapshot == telefuser.MemorySnapshot(1024.0, 2048.0, 1536.0, 3072.004)
    assert snapshot != telefuser.MemorySnapshot(0, 0, 0, 0)
    assert snapshot != object()
    assert repr(snapshot) == (
        "MemorySnapshot(allocated=1024.0MB, reserved=2048.0MB, peak_allocated=1536.0MB, peak_reserved=3072.0MB)"
    )


def test_memory_is_that_of_the_process_without_an_accelerator(capsys: pytest.CaptureFixture[str]) -> None:
    assert telefuser.get_memory_analysis() == {}
    telefuser.print_memory_analysis()
    assert telefuser.get_memory_info().keys() == {
        "allocated_mb", "reserved_mb", "peak_allocated_mb", "peak_reserved_mb",
    }  # fmt: skip
    recorded = telefuser.record_memory_snapshot("before_forward")
    assert recorded.peak_reserved_mb >= recorded.reserved_mb > 1
    assert telefuser.get_memory_snapshots() == {"before_forward": recorded}
    analysis = telefuser.get_memory_analysis()
    assert analysis["snapshots"] == {"before_forward": recorded.to_dict()}
    assert analysis["peak_reserved_gb"] == recorded.peak_reserved_gb
    assert analysis["remaining_memory_mb"] < analysis["total_device_memory_mb"]
    assert "baseline" not in analysis
    baseline = telefuser.set_memory_baseline()
    analysis = telefuser.get_memory_analysis()
    assert analysis["baseline"] == baseline.to_dict()
    assert analysis["memory_increase_mb"] == round(recorded.peak_reserved_mb - baseline.reserved_mb, 2)
    assert telefuser.get_timing_report()["memory"] == analysis
    telefuser.print_memory_analysis()
    telefuser.reset_peak_memory_stats()
    printed = capsys.readouterr().err
    assert "No memory was recorded." in printed
    assert "Above the baseline: " in printed
    assert "'before_forward': " in printed
    telefuser.reset_memory_registry()
    assert telefuser.get_memory_analysis() == {}
    with pytest.raises(TypeError, match="checkpoint_name must be a str"):
        telefuser.record_memory_snapshot(1)  # type: ignore[arg-type]


def test_memory_of_an_accelerator_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    from cprofiling.devices import operations

    calls: list[str] = []
    row = types.SimpleNamespace(current_index=lambda: 1, memory_free_total=lambda index: (0, (4 + index) << 20))
    monkeypatch.setattr(operations, "in_use", lambda: row)
    monkeypatch.setattr(MemoryReader, "uses_device", lambda self, now_ns: True)
    monkeypatch.setattr(MemoryReader, "read_anew", lambda self: StageMemory(1 << 20, 2 << 20, 3 << 20, 4 << 20))

    def begin_peak(self: MemoryReader) -> str:
        calls.append("begin")
        return "peak"

    monkeypatch.setattr(MemoryReader, "begin_peak", begin_peak)
    monkeypatch.setattr(MemoryReader, "end_peak", lambda self, begun: calls.append(f"end {begun}"))
    telefuser.reset_peak_memory_stats()
    assert calls == ["begin", "end peak"]
    assert telefuser.record_memory_snapshot("now") == telefuser.MemorySnapshot(1, 2, 3, 4)
    assert telefuser.get_memory_analysis()["remaining_memory_mb"] == 1
    row.current_index = "there is only one"
    assert telefuser.get_memory_analysis()["remaining_memory_mb"] == 0
    monkeypatch.setattr(MemoryReader, "begin_peak", lambda self: None)
    telefuser.reset_peak_memory_stats()
    assert calls == ["begin", "end peak"]


def test_memory_of_a_device_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    names = memory._NAMES
    module = types.SimpleNamespace(
        reset_peak_memory_stats=calls.append,
        **{name: lambda device, size=size: size << 20 for size, name in enumerate(names, 1)},
    )
    torch = types.SimpleNamespace(fake=module, device=lambda text: types.SimpleNamespace(type=text.partition(":")[0]))
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert telefuser.capture_memory_snapshot("fake:1") == telefuser.MemorySnapshot(1, 2, 3, 4)
    telefuser.reset_peak_memory_stats("fake:1")
    assert calls == ["fake:1"]
    telefuser.reset_peak_memory_stats("cpu")
    assert telefuser.get_memory_info("cpu")["allocated_mb"] > 1


# ---- Kernels and comparisons


def test_kernels_of_ncu(tmp_path: Path) -> None:
    path = tmp_path / "kernels.csv"
    for kernels, bottleneck in (
        (ncu_samples.KERNELS[:1], "memory_bound"),
        (ncu_samples.KERNELS, "compute_bound"),  # that of the longest kernel
        (ncu_samples.KERNELS[2:], "latency_bound"),
    ):
        path.write_text(ncu_samples.raw(kernels))
        found = telefuser.analyze_ncu_report(str(path))
        assert found.keys() == {
            "metrics", "dram_throughput_pct", "sm_throughput_pct", "bottleneck", "recommendation",
        }  # fmt: skip
        assert found["bottleneck"] == bottleneck
        assert found["recommendation"]
    path.write_text(ncu_samples.raw(ncu_samples.KERNELS[:1]))
    found = telefuser.analyze_ncu_report(str(path))
    assert found["metrics"] == dict(zip(telefuser.NCU_KEY_METRICS, ("35.25", "12.41", "83.27", "88.5"), strict=True))
    assert (found["dram_throughput_pct"], found["sm_throughput_pct"]) == (83.27, 12.41)
    for duration_us, shown in ((0.25, "250"), (1234.5, "1.2345"), (2e6, "2")):
        kernel = dataclasses.replace(ncu_samples.KERNELS[0], values={ncu_samples.DURATION: duration_us})
        path.write_text(ncu_samples.raw([kernel]))
        assert telefuser.analyze_ncu_report(path)["metrics"]["gpu__time_duration.avg"] == shown
    with pytest.raises(cp.FormatError):
        telefuser.analyze_ncu_report(__file__)


def test_comparisons(tmp_path: Path) -> None:
    reports = peers({"vae": 10.0, "dit": 10.0, "a|b": 10.0, "gone": 3.0}), peers({"vae": 20.0, "dit": 5.0, "a|b": 10.2})
    paths = [tmp_path / "old.json", tmp_path / "new.json"]
    for path, report in zip(paths, reports, strict=True):
        path.write_text(json.dumps({**report, "peak_memory_gb": 1.5}))
    lines = telefuser.compare_timing_reports(str(paths[0]), str(paths[1])).splitlines()
    assert lines[0] == "### Performance Comparison"
    assert lines[4] == "| Total (ms) | 33.0 | 35.2 | +6.7% \N{LARGE RED CIRCLE} |"
    assert lines[5] == "| Peak Memory (GB) | 1.50 | 1.50 | - |"
    assert lines[10:] == [
        "| a&#124;b | 10.0 | 10.2 | +2.0% \N{MEDIUM WHITE CIRCLE} |",
        "| dit | 10.0 | 5.0 | -50.0% \N{LARGE GREEN CIRCLE} |",
        "| gone | 3.0 | 0.0 | -100.0% \N{LARGE GREEN CIRCLE} |",
        "| vae | 10.0 | 20.0 | +100.0% \N{LARGE RED CIRCLE} |",
    ]
    paths[0].write_text('{"stages": {"vae": {"duration_ms": 0}}}')
    assert "| Total (ms) | 0.0 | 35.2 | +0.0% " in telefuser.compare_timing_reports(str(paths[0]), str(paths[1]))


# ---- The harness

TENSOR = {"shape": [2, 3], "dtype": "float32", "device": "cpu", "requires_grad": False}
SIGNATURES = {
    "request_id": "req", "timestamp": "2026-01-02T03:04:05",
    "stages": {
        "dit": {
            "stage_name": "dit", "input_signatures": {"latents": TENSOR, "steps": 4}, "output_signature": TENSOR,
            "metadata": {"steps": 4},
        },
        "a\nb": {"stage_name": "a\nb", "input_signatures": {}, "output_signature": None, "metadata": {}},
    },
}  # fmt: skip


@pytest.fixture
def signature_file(tmp_path: Path) -> str:
    path = tmp_path / "io_signature.json"
    path.write_text(json.dumps(SIGNATURES))
    return str(path)


def test_the_harness_takes_signatures_of_either_kind(signature_file: str, tmp_path: Path) -> None:
    config = telefuser.HarnessConfig(warmup=0, output_dir=str(tmp_path / "out"))
    harness = telefuser.StageBenchHarness.from_signature_file(signature_file, "dit", config=config)
    assert isinstance(harness, StageBenchHarness)
    given = harness.io_signature.input_signatures
    assert given == {"latents": telefuser.TensorSignature((2, 3), "float32", "cpu"), "steps": 4}
    assert harness.io_signature.output_signature == given["latents"]
    assert "argparse" in harness.generate_test_script()
    made = telefuser.StageIOSignature("dit", {"steps": 4})
    assert telefuser.StageBenchHarness("dit", made, config=config).stage_name == "dit"
    with pytest.raises(ValueError, match="dit"):
        telefuser.StageBenchHarness.from_signature_file(signature_file, "nothing")
    os.environ["TELEFUSER_PROFILER_OUTPUT_DIR"] = str(tmp_path / "theirs")
    assert telefuser.HarnessConfig().output_dir == str(tmp_path / "theirs")


def test_the_command_of_the_harness(signature_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    telefuser.main(["--signature", signature_file, "--list_stages"])
    assert capsys.readouterr().out == f"Available stages in {signature_file}:\n  - dit\n  - 'a\\nb'\n"
    telefuser.main(["--signature", signature_file, "--stage", "dit", "--warmup", "2"])
    printed = capsys.readouterr().out
    assert printed.splitlines() == [
        "Stage: dit", "Input signatures:", "  latents: shape=(2, 3), dtype='float32', device='cpu'", "  steps: 4",
        "Output signature: shape=(2, 3), dtype='float32', device='cpu'", "Metadata:", "  steps: 4",
    ]  # fmt: skip
    telefuser.main(["--signature", signature_file, "--stage", "a\nb"])
    assert capsys.readouterr().out == "Stage: 'a\\nb'\nInput signatures:\n"
    command = ["-m", "cprofiling.integrations.telefuser.harness", "--list_stages", "--signature", signature_file]
    done = python(command, Path.cwd(), watched=True)
    assert (done.status, done.out.splitlines()[1]) == (0, "  - dit")
    for arguments in (["--signature", signature_file, "--stage", "x"], ["--signature", "nothing"], []):
        with pytest.raises(SystemExit) as exit_:
            telefuser.main(arguments)
        assert exit_.value.code == 2
    assert "must be one of 'dit', 'a\\nb'" in capsys.readouterr().err


# ---- Put into telefuser's own modules

THEIRS = "ProfilingContext = HarnessConfig = 'theirs'\n_private = 'theirs'\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package of the same name, with few of the names."""
    folder = tmp_path / "site" / "telefuser" / "utils"
    folder.mkdir(parents=True)
    for name in ("../__init__", "__init__", "other"):
        (folder / f"{name}.py").write_text("")
    for name in ("profiler", "memory_snapshot", "stage_bench_harness"):
        (folder / f"{name}.py").write_text(THEIRS)
    monkeypatch.syspath_prepend(str(folder.parents[1]))
    kept = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "telefuser"}
    for name in kept:
        del sys.modules[name]
    yield
    telefuser.uninstall()
    for name in [name for name in sys.modules if name.partition(".")[0] == "telefuser"]:
        del sys.modules[name]
    sys.modules.update(kept)


def module(name: str) -> Any:
    return importlib.import_module(f"telefuser.utils.{name}")


def test_names_are_put_into_modules_before_and_after_their_import(package: None) -> None:
    early: Any = module("profiler")
    telefuser.install()
    telefuser.install()
    late: Any = module("stage_bench_harness")
    assert module("other").__spec__ is not None
    for where, ours in (
        (early, profiler),
        (late, importlib.import_module("cprofiling.integrations.telefuser.harness")),
        (module("memory_snapshot"), memory),
    ):
        assert where._private == "theirs"
        assert all(getattr(where, name) is getattr(ours, name) for name in ours.__all__)
    assert early.ProfilingContext is telefuser.ProfilingContext
    assert late.__loader__.get_source("telefuser.utils.stage_bench_harness") == THEIRS
    telefuser.uninstall()
    assert vars(early)["ProfilingContext"] == vars(late)["HarnessConfig"] == "theirs"
    assert not hasattr(early, "GlobalTimingRegistry")
    telefuser.uninstall()
    telefuser.install()
    assert early.ProfilingContext is telefuser.ProfilingContext
    del sys.modules["telefuser.utils.profiler"]
    assert module("profiler") is not early
    assert module("profiler").ProfilingContext is telefuser.ProfilingContext


def test_what_is_not_there_is_not_found_after_installing_either(package: None, tmp_path: Path) -> None:
    telefuser.install()
    (tmp_path / "site" / "telefuser" / "utils" / "profiler.py").unlink()
    importlib.invalidate_caches()
    with pytest.raises(ModuleNotFoundError, match=r"telefuser\.utils\.profiler"):
        module("profiler")
    assert [finder for finder in sys.meta_path if isinstance(finder, telefuser._Finder)] == [telefuser._finder]


# ---- The package itself

AGAINST = """
import json, os, sys, types, inspect, dataclasses
import telefuser.utils.profiler as profiler
import telefuser.utils.memory_snapshot as memory
import telefuser.utils.stage_bench_harness as harness
import torch
from cprofiling.integrations import telefuser as ours

def check(condition, *told):
    if not condition:
        raise AssertionError(told)

for module in (profiler, memory, harness):
    for name, value in vars(module).items():
        if not name.startswith("_") and name != "F" and getattr(value, "__module__", None) == module.__name__:
            check(name in ours._OURS[module.__name__].__all__, module.__name__, name)
            mine = getattr(ours, name)
            if inspect.isfunction(value) and name != "main":
                check(list(inspect.signature(mine).parameters) == list(inspect.signature(value).parameters), name)
            if inspect.isclass(value):
                parameters = [set(inspect.signature(each).parameters) for each in (value, mine)]
                check(parameters[0] <= parameters[1] | {"kwargs"}, name, parameters)
                members = {key for key in vars(value) if not key.startswith("_")}
                check(members <= {key for key in dir(mine)} | {field.name for field in dataclasses.fields(mine)}
                      if dataclasses.is_dataclass(mine) else members <= set(dir(mine)), name, members - set(dir(mine)))
check(ours.NCU_KEY_METRICS == profiler.NCU_KEY_METRICS)

paths = sys.argv[1:]
check(ours.compare_timing_reports(*paths) == profiler.compare_timing_reports(*paths))
tensor = torch.zeros(2, 3, dtype=torch.bfloat16, requires_grad=True)
theirs, mine = profiler.TensorSignature.from_tensor(tensor), ours.TensorSignature.from_tensor(tensor)
check(theirs.to_dict() == mine.to_dict(), mine)
for a, b in ((theirs, None), ([theirs, theirs], theirs), (1, None)):
    made = [kind.StageIOSignature("s", {"x": a}, b, {"k": 1}).to_dict() for kind in (profiler, ours)]
    check(made[0] == made[1], made)
for figures in ((1.234, 5.678, 9.0, 10.0), (0.0, 0.0, 0.0, 0.0)):
    a, b = profiler.MemorySnapshot(*figures), ours.MemorySnapshot(*figures)
    check(a.to_dict() == b.to_dict() and repr(a) == repr(b))
    for name in dir(a):
        if not name.startswith("_") and name != "to_dict":
            check(getattr(a, name) == getattr(b, name), name)

def failure(context):
    try:
        with context("vae"):
            pass
    except Exception as error:
        return type(error).__name__

old = profiler.ProfilingContext
check(failure(old) is not None)  # there is no accelerator here
ours.install()
from telefuser.utils.profiler import ProfilingContext, ProfilingContext4Debug, reset_timing_registry
check(ProfilingContext is ours.ProfilingContext and ProfilingContext4Debug is ours.ProfilingContext)
reset_timing_registry("req_9")

class Stage:
    @ProfilingContext4Debug("vae decode")
    def process(self, latents, *, scale=2.0):
        return latents * scale

Stage().process(torch.ones(2, 3), scale=3.0)
check(profiler.get_timing_report()["stages"]["vae decode"]["count"] == 1)
(signature,) = profiler.get_io_signatures().values()
check(signature.input_signatures["latents"] == ours.TensorSignature((2, 3), "float32", "cpu"))
check(signature.output_signature == ours.TensorSignature((2, 3), "float32", "cpu"))
profiler.dump_io_signatures("sig.json")
theirs = harness.StageBenchHarness
result = theirs.from_signature_file("sig.json", "vae decode", Stage(), harness.HarnessConfig(output_dir="h")).profile()
check(result["stage_name"] == "vae decode" and len(result["timing_ms"]) == 1, result)
ours.uninstall()
check(profiler.ProfilingContext is old and harness.StageBenchHarness is not theirs)
config = harness.HarnessConfig(output_dir="h")
found = harness.StageBenchHarness.from_signature_file("sig.json", "vae decode", None, config)
check(found.io_signature.input_signatures["latents"].shape == (2, 3))
ours.install()
print("ok")
"""


@pytest.mark.slow
def test_telefuser_itself(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    if importlib.util.find_spec("telefuser") is None:
        pytest.skip("telefuser is not installed")
    paths = [tmp_path / "old.json", tmp_path / "new.json"]
    old = peers({"vae decode": 10.0, "dit_1": 10.0, "x": 0.0, "gone": 1.0}, peak_memory_gb=1.25)
    paths[0].write_text(json.dumps(old))
    paths[1].write_text(json.dumps(peers({"vae decode": 20.0, "dit_1": 9.0, "x": 4.0, "new": 2.0})))
    variables = {"TELEFUSER_PROFILE_DEBUG": "true", "TELEFUSER_TIMING_REPORT": "t.json"}
    done = python(["-c", AGAINST, *map(str, paths)], tmp_path, watched=True, **variables)
    assert done.status == 0, done.err
    assert done.out.endswith("ok\n")
    assert "Traceback" not in done.err
    report = load_timing_report(tmp_path / "t.json")
    assert (report["request_id"], list(report["stages"])) == ("req_9", ["vae decode"])
    assert (tmp_path / "t_io_signature.json").exists()
