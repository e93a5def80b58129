"""A recording's events and reports, as users ask for them: of the recording, and of the ``profile`` that made it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
from recordings import made

pytestmark = pytest.mark.native


@cp.profile_node("node")
def node() -> None:
    pass


def gpu_rows() -> list[dict[str, Any]]:
    """A node that launches a kernel, and a copy that something else started."""
    return [
        {"name": "step", "start": 0, "end": 9000, "kind": 0, "span": 5, "trace_high": 1, "trace_low": 2},
        {"name": "cudaLaunchKernel", "cat": "cuda_runtime", "start": 10, "end": 20, "kind": 3, "correlation": 7},
        {
            "name": "gemm", "cat": "kernel", "start": 100, "end": 400, "kind": 4, "device": 1, "stream": 7,
            "correlation": 7, "thread": "1/7",
        },
        {
            "name": "Memcpy HtoD", "cat": "gpu_memcpy", "start": 500, "end": 600, "kind": 4, "device": 1, "stream": 8,
            "correlation": 8, "bytes": 4096, "thread": "1/8",
        },
    ]  # fmt: skip


def test_what_an_event_knows() -> None:
    recording = made(
        [
            {
                "name": "whole", "start": 1000, "end": 3000, "kind": 1, "stage": "train", "span": 0xABC,
                "parent_span": 0xDEF, "trace_high": 1, "trace_low": 2, "outcome": 2, "flags": 3,
                "shapes": "[[1]]", "types": '["f"]',
                "stack": "a.py(1): f\nb.py(2): g", "memory_change": -5, "memory_peak": 6, "device_memory_change": 7,
                "device_memory_peak": 8, "thread": "3/4",
            },
        ]
    )  # fmt: skip
    (event,) = recording.events()
    assert (event.name, event.cat, event.kind, event.stage) == ("whole", "user_annotation", "record", "train")
    assert (event.start, event.end, event.dur) == (1000, 3000, 2000)
    assert event.trace_id == "0" * 15 + "1" + "0" * 15 + "2"
    assert (event.span_id, event.parent_span_id, event.parent) == ("0" * 13 + "abc", "0" * 13 + "def", None)
    assert (event.outcome, event.unfinished, event.cut) == ("cancelled", True, True)
    assert (event.shapes, event.types, event.stack) == ("[[1]]", '["f"]', "a.py(1): f\nb.py(2): g")
    assert (event.memory_change, event.memory_peak) == (-5, 6)
    assert (event.device_memory_change, event.device_memory_peak) == (7, 8)
    assert (event.thread_id, event.thread_name) == (4, None)
    assert (event.device, event.stream, event.correlation, event.bytes) == (None, None, None, None)
    assert repr(event) == "<Event 'whole' record of 2.000 us>"


def test_what_an_event_of_a_device_knows() -> None:
    events = {event.name: event for event in made(gpu_rows()).events()}
    kernel, moved = events["gemm"], events["Memcpy HtoD"]
    assert (kernel.kind, kernel.device, kernel.stream, kernel.correlation, kernel.bytes) == ("device", 1, 7, 7, None)
    assert (moved.stream, moved.bytes) == (8, 4096)
    assert (kernel.trace_id, kernel.span_id) == (None, None)
    assert events["cudaLaunchKernel"].parent == events["step"].row


def test_threads_of_loaded_traces_may_be_texts(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    events = [{"ph": "X", "name": "x", "ts": 1, "dur": 2, "pid": "Spans", "tid": "PyTorch Profiler"}]
    path.write_text(json.dumps({"traceEvents": events}))
    (event,) = cp.load_trace(str(path)).events()
    assert event.thread_id == "PyTorch Profiler"
    assert (event.start, event.end) == (1000, 3000)


def test_reports_are_the_recordings_and_the_profiles() -> None:
    with cp.profile(operators=False) as prof, cp.record("Inference"):
        node()
    for reporting in (prof, prof.recording):
        assert [event.name for event in reporting.events()] == ["Inference", "node"]
        assert reporting.key_averages().total_average().count == 2
        assert len(reporting.inferences().rows) == 1
        assert reporting.device_executions().rows == ()
        assert reporting.device_operators().rows == ()
        assert reporting.external_operators().rows == ()
        assert ("Inference counts", 1) in reporting.summary().rows
        assert isinstance(str(reporting.findings()), str)
        assert "Inference" in reporting.overview()
        for figures in (reporting.kernel_breakdown(), reporting.copy_breakdown(), reporting.launch_statistics()):
            assert list(figures) == []
        assert list(reporting.idle_times()) == []
    assert repr(prof.recording) == "<Recording of 2 events>"
    assert prof.dropped == 0


def with_counters() -> cp.Recording:
    """A node within another, and readings of a counter before, between and behind them."""
    counter = {"name": "memory", "kind": 6, "args": '{"bytes": 1}'}
    return made([
        {"name": "outer", "kind": 0, "start": 100, "end": 900, "span": 1},
        {"name": "inner", "kind": 0, "start": 300, "end": 600, "span": 2, "parent_span": 1},
        {"name": "other", "kind": 0, "start": 950, "end": 960, "span": 3},
        *({**counter, "start": at} for at in (0, 50, 200, 950)),
    ])  # fmt: skip


def test_events_are_found_by_the_numbers_of_their_rows() -> None:
    recording = with_counters()
    outer, inner, other = recording.events()
    assert [event.name for event in (outer, inner, other)] == ["outer", "inner", "other"]
    assert inner.parent == outer.row
    assert inner.parent is not None
    assert recording.event(inner.parent).name == "outer"
    for event in (outer, inner, other):
        assert recording.event(event.row).name == event.name
    assert len(recording) == 7
    others = set(range(len(recording))) - {event.row for event in recording.events()}
    assert {recording.event(row).kind for row in others} == {"counter"}
    assert repr(recording) == "<Recording of 3 events>"


@pytest.mark.parametrize("row", [7, -1, 1 << 70, 10**5000], ids=["7", "-1", "large", "too large to be shown"])
def test_a_row_that_there_is_not(row: int) -> None:
    with pytest.raises(IndexError, match="row must be that of one of 7 rows, counted from 0, got "):
        with_counters().event(row)


@pytest.mark.parametrize("row", [None, 1.0, "1", True])
def test_a_row_that_is_no_number(row: Any) -> None:
    with pytest.raises(TypeError, match="row must be an integer, got "):
        with_counters().event(row)
    with pytest.raises(IndexError, match="of 0 rows"):
        made([]).event(0)


def test_a_recording_that_is_being_made_has_a_repr() -> None:
    recording = cp.Recording.empty()
    assert repr(recording) == "<Recording that is not finished>"
    recording._finish()
    assert repr(recording) == "<Recording of 0 events>"


def test_dropped_events_are_said_in_every_report() -> None:
    with cp.profile(operators=False, capacity=2) as prof:
        for _ in range(5):
            node()
    assert prof.dropped == 3
    assert repr(prof.recording) == "<Recording of 2 events, 3 dropped>"
    texts = [
        prof.key_averages().table(),
        prof.overview(),
        str(prof.findings()),
        *(str(getattr(prof, name)()) for name in ("summary", "inferences", "device_executions", "device_operators")),
        str(prof.external_operators()),
    ]
    for text in texts:
        assert "3 events" in text, text


def test_frames(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    with cp.profile(operators=False) as prof, cp.record("label"):
        node()
    frame = prof.to_pandas()
    assert list(frame["name"]) == ["label", "node"]
    assert [prof.event(row).name for row in frame.index] == ["label", "node"]
    path = tmp_path / "stacks.txt"
    with pytest.raises(RuntimeError, match=r"^export_stacks\(\) requires with_stack=True; recording\.export_stacks"):
        prof.export_stacks(path)  # as torch.profiler has it
    prof.recording.export_stacks(path)
    assert path.read_text().startswith("label")


def test_a_notebook_shows_its_averages() -> None:
    prof = cp.profile(operators=False)
    assert prof._repr_html_() == "<p>&lt;profile: not started&gt;</p>"
    with prof:
        node()
        assert prof._repr_html_() == "<p>&lt;profile: running&gt;</p>"
    assert prof._repr_html_() == prof.recording._repr_html_() == prof.key_averages()._repr_html_()
    assert "<td" in prof._repr_html_()
    assert ">node<" in prof._repr_html_()


def test_metadata_is_in_the_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with cp.profile(file=path, operators=False) as prof:
        prof.add_metadata("run", 'the "first"')
        prof.add_metadata_json("sizes", "[1, 2]")
        prof.preset_metadata_json("more", '{"a": null}')
        node()
    trace = json.loads(path.read_text())
    assert (trace["run"], trace["sizes"], trace["more"]) == ('the "first"', [1, 2], {"a": None})


@pytest.mark.parametrize(
    ("rank", "size", "expected"), [("3", "8", (3, 8)), ("-1", "0", (0, 1)), ("x", "", (0, 1)), (None, None, (0, 1))]
)
def test_the_rank_is_the_environments(
    monkeypatch: pytest.MonkeyPatch, rank: str | None, size: str | None, expected: tuple[int, int]
) -> None:
    for variable, value in (("RANK", rank), ("WORLD_SIZE", size)):
        if value is None:
            monkeypatch.delenv(variable, raising=False)
        else:
            monkeypatch.setenv(variable, value)
    with cp.profile(operators=False) as prof:
        node()
    info = json.loads(prof.recording.facts["distributedInfo"])
    assert (info["rank"], info["world_size"]) == expected


def test_a_recording_is_immutable_and_itself_when_copied() -> None:
    with cp.profile(operators=False) as prof:
        node()
    recording = prof.recording
    assert copy.copy(recording) is recording
    assert copy.deepcopy(recording) is recording
    with pytest.raises(AttributeError):
        recording.anything = 1  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="finished"):
        recording._add("x", 0, 0, 1, 1, 1)
