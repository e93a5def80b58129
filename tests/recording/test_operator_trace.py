"""What torch.profiler's traces become before they are joined to a recording; and where there is no PyTorch for it."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cprofiling as cp
from calls import run_python
from cprofiling.recording.result import Recording
from cprofiling.recording.torch_operators import collect
from cprofiling.recording.torch_operators.trace import MARK, Clock, RunTrace, may_be_damaged, mended, true_names
from cprofiling.recording.traces.reader import load_again

PID = os.getpid()
BASE = 1_700_000_000_000_000_000
ALL: Any = {"host": True, "devices": None, "record_shapes": False, "profile_memory": False, "with_stack": False}


def at(name: str, start: int, dur: int = 10, **more: Any) -> dict[str, Any]:
    """An event of a thread of this process, from `start` ns after the time's base on."""
    return {"ph": "X", "cat": "cpu_op", "pid": PID, "tid": 7, "ns": start, "dur": dur / 1000, "name": name, **more}


def found(*events: dict[str, Any], **facts: Any) -> Recording:
    """What torch.profiler's trace of such events is read as."""
    texts = []
    for each in events:
        members = {key: value for key, value in each.items() if key != "ns"}
        texts.append(f'{json.dumps(members)[:-1]}, "ts": {each["ns"] // 1000}.{each["ns"] % 1000:03}}}')
    whole = json.dumps({"baseTimeNanoseconds": BASE, **facts})
    return load_again(f'{whole[:-1]}, "traceEvents": [{", ".join(texts)}]}}'.encode())


def joined(
    trace: Recording,
    begin: int = 0,
    end: int = 1_000_000,
    *,
    marks: Sequence[tuple[int, int]] = (),
    names: Mapping[tuple[int, int], str] | None = None,
) -> Recording:
    """The rows of a run, as a recording of their own."""
    recording = Recording.empty()
    RunTrace(trace, marks, BASE + begin, BASE + end, dict(names or {})).add_to(recording)
    recording._finish()
    return recording


def shown(recording: Recording) -> list[tuple[str, int, int]]:
    return [(each.name, each.start - BASE, each.end - BASE) for each in recording.events()]


# ---- Times


def test_the_clocks_are_compared_at_both_ends() -> None:
    """Theirs runs 1 % slow, and is 5,000 ns behind at the beginning."""

    def theirs(ns: int) -> int:
        return ns * 99 // 100 - 5_000

    moments = [1_000, 2_000, 3_000, 1_000_000, 1_001_000, 1_002_000]
    marks = [(ns - 100, ns + 200) for ns in moments]
    seen = [(theirs(ns), theirs(ns) + 100) for ns in moments]
    clock = Clock(marks, seen)
    for ns in (1_000, 50_000, 500_000, 1_002_000):
        assert abs(clock(theirs(ns)) - ns) <= 60
    assert clock(theirs(400_000)) <= clock(theirs(400_000) + 1)


def test_the_narrowest_marks_decide() -> None:
    marks = [(0, 9_000), (9_990, 10_060), (0, 99_000)] * 2
    seen = [(5_001, 5_002), (10_001, 10_051), (20_001, 20_002)] * 2
    assert Clock(marks, seen)(10_001) == 10_000


def test_durations_stay_where_the_clocks_have_not_drifted_apart() -> None:
    moments = [1_001, 2_001, 3_001, 1_000_001, 1_001_001, 1_002_001]
    marks = [(ns - 100, ns + 200) for ns in moments]
    seen = [(ns + (40 if ns < 10_000 else 60), ns + 100) for ns in moments]
    clock = Clock(marks, seen)
    assert {clock(ns) - ns for ns in range(0, 2_000_000, 7)} == {clock(0)}
    assert -90 <= clock(0) <= 0


def test_times_in_whole_microseconds_are_never_too_early() -> None:
    moments = [1_100, 2_300, 3_500, 4_950, 6_001, 7_250]
    marks = [(ns - 50, ns + 150) for ns in moments]
    seen = [(ns // 1000 * 1000, (ns + 100) // 1000 * 1000) for ns in moments]
    clock = Clock(marks, seen)
    for ns, (start, _) in zip(moments, seen, strict=True):
        assert ns - 50 <= clock(start) <= ns + 1_000


def test_marks_that_are_missing_are_an_error() -> None:
    with pytest.raises(ValueError, match="1 of 2 marks of the time"):
        Clock([(0, 1), (2, 3)], [(0, 1)])


def test_without_marks_the_times_are_as_they_are() -> None:
    assert Clock([], [])(BASE) == BASE


# ---- Rows


def test_what_is_not_of_the_run_is_left_out() -> None:
    trace = found(
        at("before", 99),
        at("first", 100),
        at("cut off", 190, 50),
        at("after", 200),
        at(MARK, 101),
        at(MARK, 401),
        at("PyTorch Profiler (0)", 0, 500, pid="Spans", tid="PyTorch Profiler", cat="Trace"),
        at("Record Window End", 150, ph="i", s="g", pid="", tid=""),
        at("kernel", 300, pid=0, tid=3, cat="kernel", args={"device": 0, "stream": 3, "correlation": 5}),
    )
    recording = joined(trace, 100, 200, marks=[(BASE + 96, BASE + 116), (BASE + 396, BASE + 416)])
    assert shown(recording) == [("first", 100, 110), ("cut off", 190, 200), ("kernel", 300, 310)]
    (kernel,) = (each for each in recording.events() if each.kind == "device")
    assert (kernel.device, kernel.stream, kernel.correlation, kernel.cat) == (0, 3, 5, "kernel")


def test_moments_and_counters_stay_what_they_are() -> None:
    trace = found(
        at("[memory]", 5, cat="cpu_instant_event", args={"Bytes": 64}, ph="i", s="t"),
        at("in use", 6, args={"bytes": 3}, ph="C"),
        at("ProfilerStep#4", 1, 100, cat="user_annotation"),
    )
    recording = joined(trace)
    assert [each.kind for each in recording.events()] == ["step", "instant"]
    assert shown(recording)[1] == ("[memory]", 5, 5)
    column = recording.column("kind")
    assert column is not None
    assert list(column) == [2, 5, 6]
    assert json.loads(recording.args(1) or "") == {"Bytes": 64}


def test_arrows_are_kept_where_both_ends_are() -> None:
    def arrow(phase: str, number: int, ns: int, **more: Any) -> dict[str, Any]:
        bound: dict[str, Any] = {"bp": "e"} if phase == "f" else {}
        return at("ac2g", ns, ph=phase, id=number, cat="ac2g", **bound, **more)

    trace = found(
        at("launch", 110),
        at("kernel", 900, pid=0, tid=3, cat="kernel"),
        arrow("s", 1, 111),
        arrow("f", 1, 900, pid=0, tid=3),
        arrow("s", 2, 90),
        arrow("f", 2, 120),
        arrow("s", 3, 115, pid="Spans", tid="x"),
    )
    flows = [(flow[0], flow[1] - BASE, *flow[2:]) for flow in joined(trace, 100, 200).flows]
    assert [flow[:3] for flow in flows] == [("s", 111, 1), ("f", 900, 1)]
    assert [flow[4:] for flow in flows] == [("ac2g", "ac2g", False), ("ac2g", "ac2g", True)]


def test_names_of_threads_and_devices_come_along_and_facts_but_those_of_the_file() -> None:
    def name(what: str, pid: int | str, tid: int | str, **args: Any) -> dict[str, Any]:
        return at(what, 0, ph="M", pid=pid, tid=tid, args=args)

    trace = found(
        name("process_name", PID, 0, name="python"),
        name("thread_name", PID, 7, name="thread 7 (pt_autograd_0)"),
        name("process_name", 0, 0, name="python"),
        name("process_labels", 0, 0, labels="GPU 0"),
        name("process_sort_index", 0, 0, sort_index=5_000_000),
        name("thread_name", 0, "stream 3", name="stream 3"),
        name("process_sort_index", "Spans", 0, sort_index=9),
        at("op", 1),
        at("kernel", 2, pid=0, tid="stream 3", cat="kernel"),
        deviceProperties=[{"id": 0}],
        traceName="/tmp/x.json",
        schemaVersion=1,
        with_stack=1,
    )
    recording = joined(trace)
    assert recording.facts == {"deviceProperties": '[{"id": 0}]', "with_stack": "1"}
    tracks = {track[:4]: track[4:9] for track in recording.tracks}
    assert tracks == {
        (PID, 7, None, None): (None, None, "thread 7 (pt_autograd_0)", None, None),
        (0, 0, None, "stream 3"): ("python", "GPU 0", "stream 3", 5_000_000, None),
    }


def test_many_rows_and_long_ones_are_read_in_pieces() -> None:
    long = "x" * 300_000
    trace = found(*(at(f"op {i}", i) for i in range(1500)), at(long, 1500))
    recording = joined(trace)
    assert [each.name for each in recording.events()] == [*(f"op {i}" for i in range(1500)), long]
    assert len(joined(found())) == 0


# ---- Python frames

OWN = str(Path(cp.__file__).resolve().parent)


def frame(name: str, start: int, dur: int, number: int, *around: str, parent: int | None = None) -> dict[str, Any]:
    """A Python frame of torch.profiler's, with the names of those around it."""
    args: dict[str, Any] = {"Python id": number, "Python parent id": parent}
    if around:
        args["Call stack"] = "".join(f"{each};" for each in around)
    return at(name, start, dur, cat="python_function", args=args)


def test_frames_of_this_package_are_left_out_and_what_they_call_up_to_the_user_s() -> None:
    session, user = f"{OWN}/session.py(1): start", "train.py(3): main"
    trace = found(
        frame(user, 0, 900, 1),
        frame(session, 10, 500, 2, user, parent=1),
        frame("weakref.py(4): __new__", 20, 100, 3, session, user, parent=2),
        frame("<built-in function len>", 30, 10, 4, "weakref.py(4): __new__", session, user, parent=3),
        frame("handler.py(8): on_ready", 200, 200, 5, "weakref.py(4): __new__", session, user, parent=3),
        frame("<built-in function len>", 210, 10, 6, "handler.py(8): on_ready", session, user, parent=5),
        at("aten::mm", 220, 10, args={"Call stack": f"handler.py(8): on_ready;{session};{user};"}),
        frame("json/__init__.py(1): dumps", 600, 10, 7, user, parent=1),
        frame("<built-in method __exit__ of cprofiling._core.record object at 0x7f>", 700, 10, 8, user, parent=1),
        frame("<built-in method __exit__ of _thread.RLock object at 0x7f>", 710, 10, 9, f"{OWN}/x.py(1): f"),
        frame("<built-in function print>", 720, 10, 10),
    )
    recording = joined(trace)
    kept = [each.name for each in recording.events()]
    assert kept == [
        user, "handler.py(8): on_ready", "<built-in function len>", "aten::mm", "json/__init__.py(1): dumps",
        "<built-in function print>",
    ]  # fmt: skip
    assert [each.parent for each in recording.events()] == [None, 0, 1, 1, 0, 0]
    stacks = [each.stack for each in recording.events()]
    assert stacks == [None, user, f"handler.py(8): on_ready\n{user}", f"handler.py(8): on_ready\n{user}", user, None]
    ids = [json.loads(recording.args(each.row) or "{}").get("Python parent id") for each in recording.events()]
    assert ids == [None, 1, 5, None, 1, None]


def test_frames_have_their_stacks_where_all_that_is_around_them_is_left_out() -> None:
    trace = found(
        frame(f"{OWN}/runner.py(1): run", 0, 900, 1),
        frame("runpy.py(4): run_path", 20, 100, 2, f"{OWN}/runner.py(1): run", parent=1),
        frame("main.py(1): <module>", 30, 50, 3, "runpy.py(4): run_path", f"{OWN}/runner.py(1): run", parent=2),
    )
    (main,) = joined(trace).events()
    assert (main.name, main.stack) == ("main.py(1): <module>", None)
    assert '"Python parent id": null' in (main._recording.args(main.row) or "")


@pytest.mark.parametrize(
    ("freed", "read"),
    [
        (b"a.py(0): P\x9c\xfet\x0e\x7f", "a.py(0): unknown"), (b"a.py(0): \xc2\x85", "a.py(0): unknown"),
        (b'a.py(0): "q\\', 'a.py(0): "q\\'), (b"\n\xff", "unknown"), (b"\x01): f", "unknown"),
        ("m\u00e9.py(2): f\u00e9".encode(), "m\u00e9.py(2): f\u00e9"),
    ],
)  # fmt: skip
def test_a_name_that_was_freed_costs_that_name(freed: bytes, read: str) -> None:
    trace = b"""{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7,
        "ts": 1000, "dur": 2, "args": {"Call stack": "inner.py(1): f;%s;outer.py(2): g;", "Ev Idx": 0
        }}]}"""
    (event,) = joined(load_again(mended(trace % freed)), begin=-BASE).events()
    assert (event.name, event.stack) == ("aten::mm", f"inner.py(1): f\n{read}\nouter.py(2): g")


@pytest.mark.parametrize(
    ("name", "is_kept"),
    [
        ("cprofiling/recording/profile.py(1): start", False), ("mine/cprofiling/recording/profile.py(1): start", True),
        (f"{OWN}_mine/session.py(1): start", True), ("nn.Module: Linear_0", True), ("torch/nn/x.py(1): f", True),
        (f"{OWN}/session.py(1): start", False), (f"{Path(os.__file__).parent}/site-packages/x.py(1): f", True),
    ],
)  # fmt: skip
def test_the_package_is_known_by_its_folder(name: str, is_kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["", f"{Path(OWN).parent}/", "/elsewhere"])
    assert bool(joined(found(frame(name, 0, 10, 1))).events()) is is_kept
    monkeypatch.setattr(sys, "path", ["/elsewhere"])
    assert bool(joined(found(frame("cprofiling/recording/profile.py(1): start", 0, 10, 1))).events())


def test_calls_that_start_work_without_any_work_are_noticed() -> None:
    launch = at("cudaLaunchKernelExC", 5, cat="cuda_runtime")
    alone = RunTrace(found(launch), [], BASE, BASE + 100, {})
    assert alone.lacks_work()
    with_kernel = found(launch, at("kernel", 9, pid=0, tid=3, cat="kernel"))
    assert not RunTrace(with_kernel, [], BASE, BASE + 100, {}).lacks_work()
    assert not RunTrace(found(at("aten::mm", 5)), [], BASE, BASE + 100, {}).lacks_work()


# ---- Names


def test_names_are_replaced_by_thread_and_time() -> None:
    trace = found(at("unknown", 5), at("unknown", 5, tid=8), at("a/b", 50))
    names = {(7, BASE + 5): 'é "\\\U0001f600', (7, BASE + 50): "a\\b"}
    recording = joined(trace, names=names)
    assert sorted(each.name for each in recording.events()) == ["a\\b", "unknown", 'é "\\\U0001f600']


@pytest.mark.parametrize(
    ("name", "cat", "expected"),
    [
        ("aten::mm", "cpu_op", False),
        ("unknown", "cpu_op", True),
        ("a/b", "cpu_op", True),
        ("plain", "user_annotation", True),
    ],
)
def test_where_names_may_be_damaged(name: str, cat: str, expected: bool) -> None:
    assert may_be_damaged(found(at(name, 1, cat=cat))) is expected


def test_a_true_name_that_cannot_be_read_is_left_out() -> None:
    freed = SimpleNamespace(name=b"\x9c".decode)
    tab = SimpleNamespace(name=lambda: "tab\t", device_resource_id=lambda: 7, start_ns=lambda: 3)
    assert true_names([freed, tab]) == {(7, 3): "tab\t"}


def test_true_names_are_those_that_traces_damage() -> None:
    def of(name: str, start: int, **clock: Any) -> Any:
        given = clock or {"start_ns": lambda: start}
        return SimpleNamespace(name=lambda: name, device_resource_id=lambda: 7, **given)

    events = [of("aten::mm", 1), of('quote"', 2), of("aten::mm", 3), of("tab\t", 4), of("\x7f", 5), of("a/b c", 6)]
    events.append(of("\u00e9", 0, start_us=lambda: 9))
    assert true_names(events) == {(7, 2): 'quote"', (7, 4): "tab\t", (7, 5): "\x7f", (7, 9000): "\u00e9"}


@pytest.mark.parametrize(
    ("name", "read"),
    [('quote"q', 'quote"q'), ('a", b', 'a", b'), ("back\\q", "back\\q"), ("tab\tx", "tab x"), ("plain", "plain")],
)
@pytest.mark.parametrize(
    "layout",
    [
        '{"ph": "X", "cat": "user_annotation", "name": "%s", "pid": 1, "tid": 1,\n  "ts": 1, "dur": 1}',
        '{\n    "ph": "X",\n    "name": "%s",\n    "pid": 1,\n    "tid": 1,\n    "ts": 1,\n    "dur": 1\n    }',
        '{"ph": "X", "pid": "Spans", "tid": 1, "ts": 1, "dur": 1, "name": "%s",\n "args": {\n "Op count": 0\n }\n }',
    ],
)
def test_damaged_traces_are_mended(layout: str, name: str, read: str) -> None:
    events = ",\n".join((layout % name, layout % "second"))
    trace = f'{{"traceEvents": [\n{events}\n]}}'
    recording = load_again(mended(trace.encode()))
    assert [each.name for each in recording.events()] == [read, "second"]


# ---- Where there is no PyTorch, or one that is strange


def test_pytorch_is_never_imported() -> None:
    script = """
import sys, warnings
import cprofiling as cp
with warnings.catch_warnings():
    warnings.simplefilter("error")
    with cp.profile() as prof:
        with cp.record("label"):
            pass
assert "cprofiling.recording.torch_operators.collect" not in sys.modules
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with cp.profile(operators=True) as prof:
        with cp.record("label"):
            pass
assert [str(each.message) for each in caught] == [
    "operators are not recorded: PyTorch is not loaded; import torch before the recording starts"
]
assert caught[0].category is RuntimeWarning and caught[0].filename == "<string>"
assert [event.name for event in prof.events()] == ["label"]
assert "torch" not in sys.modules
"""
    result = run_python(script)
    assert (result.returncode, result.stderr) == (0, "")


def stub(**parts: Any) -> Any:
    """A torch with a profiler, of which parts can be replaced."""
    activities = [SimpleNamespace(name=name) for name in ("CPU", "CUDA", "XPU", "PrivateUse1")]
    profiler = SimpleNamespace(
        kineto_available=lambda: True,
        supported_activities=lambda: activities,
        ProfilerActivity=SimpleNamespace(CPU=activities[0]),
    )
    whole = {
        "profiler": profiler,
        "autograd": SimpleNamespace(profiler=SimpleNamespace(_is_profiler_enabled=False)),
        "_C": SimpleNamespace(_get_privateuse1_backend_name=lambda: "npu"),
    }
    return SimpleNamespace(**{**whole, **parts})


def device(available: bool) -> Any:
    return SimpleNamespace(is_available=lambda: available)


@pytest.mark.parametrize(
    ("parts", "wanted", "expected"),
    [
        ({}, {}, ["CPU"]),
        ({"cuda": device(False), "xpu": device(True)}, {}, ["CPU", "XPU"]),
        ({"cuda": device(True), "xpu": device(True)}, {}, ["CPU", "CUDA"]),
        ({"cuda": device(True)}, {"host": False}, ["CUDA"]),
        ({"cuda": device(True)}, {"devices": frozenset()}, ["CPU"]),
        ({"cuda": device(True)}, {"devices": frozenset({"XPU"})}, ["CPU"]),
        ({"cuda": device(True), "xpu": device(True)}, {"devices": frozenset({"XPU"})}, ["CPU", "XPU"]),
        ({"npu": device(True)}, {}, ["CPU", "PrivateUse1"]),
        ({"mtia": device(True)}, {}, ["CPU"]),
    ],
)
def test_activities_are_those_that_there_are(
    monkeypatch: pytest.MonkeyPatch, parts: dict[str, Any], wanted: dict[str, Any], expected: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", stub(**parts))
    made = collect.begin(**{**ALL, **wanted}, is_wanted=True)
    assert made is not None
    assert [activity.name for activity in made._settings["activities"]] == expected


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"profiler": SimpleNamespace(kineto_available=lambda: False)}, "no profiler that could record them$"),
        ({"autograd": SimpleNamespace(profiler=SimpleNamespace())}, "no profiler that could record them$"),
        ({"profiler": None}, "no profiler that could record them: AttributeError"),
    ],
)
def test_a_pytorch_without_its_profiler(monkeypatch: pytest.MonkeyPatch, parts: dict[str, Any], message: str) -> None:
    monkeypatch.setitem(sys.modules, "torch", stub(**parts))
    with pytest.warns(RuntimeWarning, match=message):
        assert collect.begin(**ALL, is_wanted=True) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert collect.begin(**ALL, is_wanted=False) is None
        assert collect.begin(**{**ALL, "host": False, "devices": frozenset()}, is_wanted=False) is None


def test_a_recording_without_anything_for_pytorch_to_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", stub())
    prof = cp.profile(resource=cp.Resource.NPU, operators=True)
    with pytest.warns(RuntimeWarning, match="selects nothing"):
        prof.start()
    prof.stop()
    assert prof.events() == []


def test_of_several_kinds_of_devices_one_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", stub(cuda=device(True), xpu=device(True)))
    named = frozenset({"CUDA", "XPU"})
    with pytest.warns(RuntimeWarning, match="^XPU is not recorded: .* one kind of device at a time, here CUDA"):
        made = collect.begin(**{**ALL, "devices": named}, is_wanted=True)
    assert made is not None
    assert [activity.name for activity in made._settings["activities"]] == ["CPU", "CUDA"]
