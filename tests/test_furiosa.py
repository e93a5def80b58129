"""The drop-in for an accelerator vendor's profiler: programs written for it, with the import changed."""

from __future__ import annotations

import io
import json
import re
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
from calls import run_python
from cprofiling.integrations.furiosa import RecordFormat, Resource, profile


@cp.profile_node("run")
def run() -> None:
    pass


def test_a_trace_with_records(tmp_path: Path) -> None:
    """As in the vendor's guide: a file, a warm-up, a labelled run."""
    path = tmp_path / "mnist_trace.json"
    with path.open("w") as output, profile(file=output) as profiler:
        with profiler.record("warm up", warm_up=True):
            for _ in range(2):
                run()
        with profiler.record("trace"):
            for _ in range(2):
                run()
    events = json.loads(path.read_text())["traceEvents"]
    assert [event["name"] for event in events if event["ph"] == "X"] == ["trace", "run", "run"]


def test_pause_resume_and_frames() -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    with profile(format=RecordFormat.PandasDataFrame) as profiler:
        with profiler.record("Inference"):
            run()
        profiler.pause()
        with profiler.record("paused"):
            run()
        profiler.resume()
        with profiler.record("trace"):
            run()
        with profiler.record():
            pass
    frame = profiler.get_pandas_dataframe()
    assert list(frame["name"]) == ["Inference", "run", "trace", "run", ""]
    assert len(frame[frame["name"] == "trace"]) == 1
    assert {"trace_id", "parent_span_id", "span_id", "start", "end", "cat", "name", "thread.id", "dur"} <= set(frame)
    assert (frame["dur"] == frame["end"] - frame["start"]).all()
    filtered = profiler.get_pandas_dataframe_with_filter("name", "run")
    assert len(filtered) == 2
    assert len(profiler.get_cpu_pandas_dataframe()) == 5
    assert len(profiler.get_npu_pandas_dataframe()) == 0
    with pytest.raises(ValueError, match="column must be one of trace_id"):
        profiler.get_pandas_dataframe_with_filter("nosuch", 1)


def with_devices() -> cp.Recording:
    """Two executions on two devices, one of which computes and copies at once."""
    made = cp.Recording.empty()
    rows: list[dict[str, Any]] = [
        {
            "name": "Inference",
            "cat": "user_annotation",
            "kind": 1,
            "start_ns": 0,
            "end_ns": 9000,
            "span": 1,
            "trace_low": 7,
        },
        {"name": "launch", "cat": "cuda_runtime", "kind": 3, "start_ns": 10, "end_ns": 20, "correlation": 1},
        {"name": "launch", "cat": "cuda_runtime", "kind": 3, "start_ns": 30, "end_ns": 40, "correlation": 2},
    ]
    for row in rows:
        made._add(pid=1, tid=2, **row)
    for device, (start, end) in enumerate([(100, 400), (200, 800)]):
        made._add(
            name="conv", cat="kernel", kind=4, start_ns=start, end_ns=end, pid=device, tid=7, device=device, stream=7,
            correlation=device + 1,
        )  # fmt: skip
    made._finish()
    return made


def test_what_is_printed() -> None:
    profiler = profile()
    profiler._recording = with_devices()
    printed = {}
    for name in ("npu_operators", "npu_executions", "external_operators", "inferences", "summary"):
        file = io.StringIO()
        getattr(profiler, f"print_{name}")(file)
        printed[name] = file.getvalue()
    assert re.search(r"name .*average_elapsed \(ns\) .*count", printed["npu_operators"])
    assert re.search(r"conv +\D*450(\.0)? +\D*2\b", printed["npu_operators"])
    header = r"trace_id .*span_id .*pe_index .*execution_index .*NPU Total .*NPU Run .*NPU IoWait"
    assert re.search(header, printed["npu_executions"])
    assert re.search(r"\b300\b.*\b300\b.*\b0\b", printed["npu_executions"])
    assert "trace_id" in printed["inferences"]
    assert "Inference counts                : 1" in printed["summary"]


def test_reports_without_anything_are_empty_and_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    with profile() as profiler:
        pass
    profiler.print_npu_operators()
    profiler.print_npu_executions()
    profiler.print_external_operators()
    profiler.print_inferences()
    profiler.print_summary()
    printed = capsys.readouterr().out
    assert "No work on a device was recorded" in printed
    assert "Inference counts                : 0" in printed


def test_formats_are_integers_as_the_vendor_s() -> None:
    assert [(member.name, int(member)) for member in RecordFormat] == [("ChromeTrace", 0), ("PandasDataFrame", 1)]
    assert isinstance(RecordFormat.ChromeTrace, IntEnum)


def test_resources_by_both_spellings() -> None:
    assert Resource.CPU | Resource.NPU == Resource.ALL == Resource.All
    profiler = profile(Resource.Npu, RecordFormat.ChromeTrace)
    with pytest.warns(RuntimeWarning, match="selects nothing that can be recorded here"):
        profiler.start()
    run()
    profiler.stop()
    assert profiler.events() == []
    with profile(resource=Resource.Cpu) as profiler:
        run()
    assert [event.name for event in profiler.events()] == ["run"]
    with pytest.raises(TypeError, match="resource must be a Resource"):
        profile("cpu")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="nosuch"):
        profile(nosuch=1)


@pytest.mark.parametrize("variable", ["FURIOSA_PROFILER_OUTPUT_PATH", "NUX_PROFILER_PATH"])
def test_the_vendors_variable(tmp_path: Path, variable: str) -> None:
    path = tmp_path / "trace.json"
    script = """
import cprofiling as cp
from cprofiling.integrations import furiosa
with cp.record("labelled"):
    pass
"""
    done = run_python(script, **{variable: str(path)})
    assert done.returncode == 0, done.stderr
    names = [event["name"] for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    assert names == ["labelled"]
