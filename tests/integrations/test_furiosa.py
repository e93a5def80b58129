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
from recordings import TRACES


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
    pytest.importorskip("pandas")
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
with cp.record("labelled"):
    pass
"""
    done = run_python(script, **{variable: str(path)})
    assert done.returncode == 0, done.stderr
    names = [event["name"] for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    assert names == ["labelled"]


# ---- Traces that the vendor's profiler has written


def furiosa_trace(path: Path) -> Path:
    """Write a trace as the SDK does: two inferences, each with an execution of two operators."""
    events: list[dict[str, Any]] = []

    def add(name: str, cat: str, tid: int, start: int, dur: int, span: int, parent: int, **args: int) -> None:
        ids = {"trace_id": f"{7:032x}", "span_id": f"{span:016x}", "parent_span_id": f"{parent:016x}"}
        place = {"ph": "X", "pid": 1, "tid": tid, "ts": start, "dur": dur}
        events.append({"name": name, "cat": cat, **place, "args": {**ids, **args}})

    for number, start in enumerate((0, 100)):
        span = number * 10
        add("Inference", "Runtime", 5, start, 80, span + 1, 0)
        add("Enqueue", "Nux", 5, start + 5, 5, span + 2, span + 1)
        on_npu = {"pe_index": number, "execution_index": number}
        add("Execution", "NPU", 900 + number, start + 20, 40, span + 3, span + 2, dram_base=4096, **on_npu)
        for index, name in enumerate(("LowLevelConv2d", "LowLevelMask")):
            operator = {"operator_index": index, "instruction_index": index * 7, **on_npu}
            add(name, "Nux", 900 + number, start + 22 + 10 * index, 10 - index, span + 4 + index, span + 3, **operator)
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_the_vendor_s_traces_have_work_of_devices(tmp_path: Path) -> None:
    recording = cp.load_trace(furiosa_trace(tmp_path / "npu.json"))
    on_device = [(event.name, event.device) for event in recording.events() if event.kind == "device"]
    assert on_device == [
        (name, pe) for pe in (0, 1) for name in ("Execution", "LowLevelConv2d", "LowLevelMask")
    ]  # fmt: skip
    assert [row[2:] for row in recording.device_executions().rows] == [
        (0, 0, 40_000, 40_000, 0), (1, 0, 40_000, 40_000, 0),
    ]  # fmt: skip
    assert [row[1] for row in recording.device_executions().rows] == [f"{1:016x}", f"{11:016x}"]
    assert {row[0]: row[2] for row in recording.device_operators().rows} == {
        "Execution": 2, "LowLevelConv2d": 2, "LowLevelMask": 2,
    }  # fmt: skip
    assert [row[1] for row in recording.inferences().rows] == [f"{1:016x}", f"{11:016x}"]


def test_parents_that_lead_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "npu.json"
    args = {"pe_index": 0, "span_id": f"{3:016x}", "parent_span_id": f"{3:016x}"}
    event = {"ph": "X", "name": "a", "cat": "NPU", "pid": 1, "tid": 2, "ts": 1, "dur": 1, "args": args}
    path.write_text(json.dumps({"traceEvents": [event]}))
    assert cp.load_trace(path).device_executions().rows == ()


def test_inferences_of_one_label_have_ids_of_their_own(tmp_path: Path) -> None:
    with profile() as profiler, profiler.record("label"):
        pass
    path = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(path))
    trace = json.loads(path.read_text())
    (label,) = (event for event in trace["traceEvents"] if event["name"] == "label")
    for _ in range(3):
        place = {"pid": label["pid"], "tid": label["tid"], "ts": label["ts"], "dur": 0}
        trace["traceEvents"].append({"ph": "X", "name": "Inference", "cat": "user_annotation", **place})
    path.write_text(json.dumps(trace))
    rows = cp.load_trace(path).inferences().rows
    assert len({row[0] for row in rows}) == 1
    assert len({row[1] for row in rows}) == 3


def test_work_of_an_mtia_is_work_of_a_device(tmp_path: Path) -> None:
    """A trace of the real kind has that on 12 streams, as another reader of such traces finds."""
    work = {"ph": "X", "cat": "mtia_ccp_events", "pid": 17, "tid": 3910, "ts": 10, "dur": 5}
    call = {"ph": "X", "cat": "mtia_runtime", "name": "runFunction", "pid": 1, "tid": 2, "ts": 5, "dur": 1}
    events = [
        {**call, "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 8},
        {**call, "args": {"correlation": 4, "device": 17}},
        {**work, "name": "pe_exe", "args": {"stream": 112, "correlation": 4}},
        {**work, "name": "dma_request", "tid": 3672, "args": {"stream": 105}},
    ]
    path = tmp_path / "mtia.json"
    path.write_text(json.dumps({"traceEvents": events}))
    recording = cp.load_trace(path)
    places = [(event.device, event.stream) for event in recording.events() if event.kind == "device"]
    assert sorted(places) == [(17, 105), (17, 112)]
    assert len(recording.device_executions().rows) == 1
    assert "Self MTIA" in recording.key_averages().table()


def test_a_real_trace_of_an_mtia() -> None:
    path = TRACES / "mtia_inference.json.gz"
    if not path.exists():
        pytest.skip(f"needs the traces in {TRACES}")
    recording = cp.load_trace(path)
    work = [event for event in recording.events() if event.kind == "device"]
    assert (len(work), len({event.name for event in work}), len({event.stream for event in work})) == (1313, 6, 12)
    assert {event.device for event in work} == {17}
