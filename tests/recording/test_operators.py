"""PyTorch's operators in a recording: children of the nodes that ran them, on the threads that did."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cprofiling as cp
from calls import NEVER
from cprofiling.export import frame_columns
from cprofiling.recording.result import Event
from cprofiling.recording.torch_operators import collect
from recorded import check_nesting, names

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("default:::torch")


class Net(torch.nn.Module):  # type: ignore[misc]
    """Two layers, whose forward is a node, with a node inside that is a function."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.second = torch.nn.Linear(8, 2)

    @cp.profile_node("net")
    def forward(self, x: Any) -> Any:
        return self.second(activate(self.first(x)))


@cp.profile_node("activate")
def activate(x: Any) -> Any:
    return torch.relu(x)


NET = Net()
X = torch.ones(3, 4)
neg = cp.profile_node("neg")(torch.neg)


@cp.profile_node("multiply")
def multiply() -> None:
    torch.nn.functional.conv2d(torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3))
    torch.relu(torch.ones(16, 32) @ torch.ones(32, 8))


def is_profiling() -> bool:
    return bool(torch.autograd.profiler._is_profiler_enabled)


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Any:
    """No test leaves PyTorch's profiler on, for the others."""
    assert not is_profiling()
    yield
    assert not is_profiling()


def ancestors(events: dict[int, Event], event: Event) -> list[str]:
    found = []
    while event.parent is not None:
        event = events[event.parent]
        found.append(event.name)
    return found


def test_operators_are_children_of_the_nodes_that_ran_them() -> None:
    with cp.profile() as prof:
        NET(X)
        worker = threading.Thread(target=NET, args=(X,), name="worker")
        worker.start()
        worker.join(NEVER)
        with cp.record("label"):
            torch.mm(X, X.t())
        torch.atan(X)
    events = {event.row: event for event in prof.events()}
    check_nesting([*events.values()])
    found = [(event.name, event.thread_name, ancestors(events, event)) for event in events.values()]
    for thread in ("MainThread", "worker"):
        here = [(name, around) for name, where, around in found if where == thread]
        assert [around for name, around in here if name == "aten::linear"] == [["net"], ["net"]]
        assert ("aten::relu", ["activate", "net"]) in here
        assert ("aten::clamp_min", ["aten::relu", "activate", "net"]) in here
        assert all(around[-1] == "net" for name, around in here if name == "aten::addmm")
    assert ("aten::mm", "MainThread", ["label"]) in found
    assert ("aten::atan", "MainThread", []) in found
    kinds = {event.kind for event in events.values() if event.name.startswith("aten::")}
    assert kinds == {"host"}
    assert {event.cat for event in events.values() if event.kind == "host"} == {"cpu_op"}


def test_short_nodes_contain_their_operators() -> None:
    """Some 200 ns are between the ends of such a node and of its operator: the clocks have to agree."""
    with cp.profile() as prof:
        for _ in range(2000):
            neg(X)
    events = {event.row: event for event in prof.events()}
    check_nesting([*events.values()])
    of_operators = [ancestors(events, event) for event in events.values() if event.name == "aten::neg"]
    assert of_operators == [["neg"]] * 2000


def test_dataframes_show_the_node_of_an_operator() -> None:
    with cp.profile() as prof:
        NET(X)
    columns = frame_columns(prof.recording)
    texts = [columns[name] for name in ("name", "trace_id", "parent_span_id", "span_id")]
    ids: dict[str, list[tuple[str | None, ...]]] = {}
    for name, *of_row in zip(*texts, strict=True):
        ids.setdefault(name, []).append(tuple(of_row))
    ((trace, _, net),) = ids["net"]
    ((_, parent, inside),) = ids["activate"]
    assert parent == net
    assert ids["aten::linear"] == [(trace, net, None)] * 2
    assert ids["aten::clamp_min"] == [(trace, inside, None)]


def infer() -> None:
    with torch.no_grad():
        for _ in range(4):
            torch.nn.functional.linear(torch.relu(X), X)


def train() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        with torch.profiler.record_function("forward"):
            loss = model(X).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


Figures = dict[tuple[Any, ...], tuple[int, int, int]]


def figures(averages: Any) -> Figures:
    """Of operators and labels, without the Python frames between them: both profilers' own are among these."""
    return {
        (each.key, str(each.input_shapes or []), *(re.sub("0x[0-9a-f]+", "", frame) for frame in each.stack)): (
            each.count,
            each.cpu_memory_usage,
            each.self_cpu_memory_usage,
        )
        for each in averages
        if "<" not in each.key and ".py(" not in each.key and not each.key.startswith("nn.Module")
    }


@pytest.mark.parametrize(
    ("work", "option", "grouping"),
    [
        (train, {}, {}),
        (train, {"record_shapes": True}, {"group_by_input_shape": True}),
        (train, {"profile_memory": True}, {}),
        (infer, {"with_stack": True}, {"group_by_stack_n": 2}),  # what goes backward has the forward stack in torch's
    ],
)
def test_averages_are_those_of_torch_profiler(
    work: Callable[[], None], option: dict[str, Any], grouping: dict[str, Any]
) -> None:
    verbose = torch._C._profiler._ExperimentalConfig(verbose=True)
    work()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], experimental_config=verbose, **option
    ) as theirs:
        work()
    with cp.profile(**option) as ours:
        work()
    expected = figures(theirs.key_averages(**grouping))
    assert sum(count for (name, *_), (count, *_) in expected.items() if name == "aten::linear") == 4
    assert figures(ours.key_averages(**grouping)) == expected


def test_options_are_passed_on() -> None:
    with cp.profile(record_shapes=True) as prof:
        torch.mm(X, X.t())
    (mm,) = (event for event in prof.events() if event.name == "aten::mm")
    assert (mm.shapes, mm.types) == ("[[3, 4], [4, 3]]", '["float", "float"]')
    assert mm.stack is None
    with cp.profile(with_stack=True) as prof:
        torch.mm(X, X.t())
    (mm,) = (event for event in prof.events() if event.name == "aten::mm")
    assert mm.shapes is None
    assert "test_options_are_passed_on" in (mm.stack or "")


def test_stacks_have_the_user_s_frames_only(tmp_path: Path) -> None:
    def step() -> Any:
        with cp.record("label"):
            return torch.mm(X, X.t())

    with cp.profile(with_stack=True) as prof:
        step()
        step()
    events = {event.row: event for event in prof.events()}
    check_nesting([*events.values()])
    own = str(Path(cp.__file__).parent)
    for event in events.values():
        for frame in (event.name, *(event.stack.split("\n") if event.stack else ())):
            assert frame
            assert not frame.startswith((own, "cprofiling/", "weakref.py", "threading.py"))
            assert "cprofiling._core" not in frame
    assert [ancestors(events, event)[-1] for event in events.values() if event.name == "aten::mm"] == ["label"] * 2
    prof.export_stacks(tmp_path / "stacks.txt")
    lines = (tmp_path / "stacks.txt").read_text().splitlines()
    assert lines
    assert not [line for line in lines if line.startswith(";") or ";;" in line]


def test_memory_of_nodes_and_of_operators_is_of_two_kinds() -> None:
    with cp.profile(profile_memory=True) as prof:
        NET(X)
    assert prof.key_averages().table().splitlines()[-1].startswith("CPU Mem of nodes and labelled blocks is the change")


def test_each_cycle_has_its_operators() -> None:
    cycles = []

    def keep(prof: cp.profile) -> None:
        cycles.append(prof.recording)

    schedule = cp.schedule(wait=1, warmup=1, active=2, repeat=2)
    work: list[Callable[[Any], Any]] = [
        torch.atan, torch.cos, torch.exp, torch.sin, torch.neg, torch.tan, torch.log, torch.tanh,
    ]  # fmt: skip
    with cp.profile(schedule=schedule, on_trace_ready=keep) as prof:
        for function in work:
            assert is_profiling() is (prof.current_action is not cp.ProfilerAction.NONE)
            function(X)
            prof.step()
    found = []
    for recording in cycles:
        events = {event.row: event for event in recording.events()}
        steps = [event for event in events.values() if event.kind == "step"]
        of_steps = [
            [e.name for e in events.values() if e.kind == "host" and step.start <= e.start <= e.end <= step.end]
            for step in steps
        ]
        found.append(of_steps)
    assert found == [[["aten::exp"], ["aten::sin"]], [["aten::log"], ["aten::tanh"]]]


def test_nothing_of_a_pause_remains() -> None:
    with cp.profile() as prof:
        torch.atan(X)
        block = cp.record("block").__enter__()
        torch.cos(X)
        prof.pause()
        assert not is_profiling()
        torch.exp(X)
        prof.resume()
        assert is_profiling()
        torch.sin(X)
        block.__exit__(None, None, None)
        prof.pause()
        torch.neg(X)
    events = {event.row: event for event in prof.events()}
    check_nesting([*events.values()])
    assert names(prof) == ["aten::atan", "block", "aten::cos", "aten::sin"]
    assert [ancestors(events, event) for event in events.values()] == [[], [], ["block"], ["block"]]


def test_a_cycle_that_begins_in_a_pause() -> None:
    with cp.profile(schedule=cp.schedule(wait=1, warmup=0, active=1, repeat=1)) as prof:
        prof.pause()
        prof.step()
        assert not is_profiling()
        torch.atan(X)
        prof.resume()
        torch.cos(X)
        prof.step()
        prof.pause()
        prof.resume()
        assert not is_profiling()
    assert names(prof) == ["ProfilerStep#1", "aten::cos"]


@pytest.mark.parametrize("steps", [0, 1])
def test_a_run_that_ends_in_the_warm_up(steps: int) -> None:
    prof = cp.profile(schedule=cp.schedule(wait=steps, warmup=1, active=1))
    prof.start()
    for _ in range(steps):
        prof.step()
    assert is_profiling()
    with pytest.warns(RuntimeWarning, match="no cycle"):
        prof.stop()
    assert names(prof) == []


def test_a_schedule_that_warms_up_for_nothing() -> None:
    actions = (cp.ProfilerAction.WARMUP, cp.ProfilerAction.NONE)
    prof = cp.profile(schedule=lambda step: actions[step % 2])
    prof.start()
    states = []
    for _ in range(4):
        states.append(is_profiling())
        prof.step()
    with pytest.warns(RuntimeWarning, match="no cycle"):
        prof.stop()
    assert states == [True, False, True, False]


def test_names_are_as_they_were_given() -> None:
    strange = [
        "plain",
        'quote " and \\',
        "tab\t, newline\n",
        "\u00e9\u6f22\U0001f600",
        "",
        "a/b",
        "\x01",
        "</script>",
        "unknown",
    ]
    for given in (strange[2:], strange):  # the quote makes torch's own trace unreadable
        with cp.profile() as prof:
            for name in given:
                with torch.profiler.record_function(name):
                    torch.neg(X)
        blocks = [event for event in prof.events() if event.cat == "user_annotation"]
        assert [event.name for event in blocks] == given
        assert [event.name for event in prof.events() if event not in blocks].count("aten::neg") == len(given)


def test_an_exception_passes_through() -> None:
    @cp.profile_node("node")
    def node() -> None:
        torch.atan(X)
        raise KeyError("the user's")

    with pytest.raises(KeyError, match="user's"), cp.profile() as prof:
        node()
    assert names(prof) == ["node", "aten::atan"]


def test_nothing_is_recorded_that_was_not_selected() -> None:
    for selected in ({"operators": False}, {"resource": cp.Resource.NPU}):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "resource .* selects nothing", RuntimeWarning)
            prof = cp.profile(**selected)
            prof.start()
        assert not is_profiling()
        neg(X)
        prof.stop()
        assert "aten::neg" not in names(prof)
    with cp.profile(activities=["cpu"], operators=True) as prof:
        neg(X)
    assert names(prof) == ["neg", "aten::neg"]


def test_threads_and_facts_are_those_of_the_recording() -> None:
    with cp.profile(record_shapes=True) as prof:
        neg(X)
    facts = prof.recording.facts
    assert json.loads(facts["operators"]) == {"torch": torch.__version__, "threads": "all"}
    assert json.loads(facts["deviceProperties"]) == []
    assert json.loads(facts["record_shapes"]) == 1
    assert not {"traceName", "baseTimeNanoseconds", "trace_id"} & facts.keys()
    program = os.path.basename(sys.argv[0])  # noqa: PTH119
    tracks = [track[:5] + track[6:7] for track in prof.recording.tracks]
    assert tracks == [(os.getpid(), threading.get_native_id(), None, None, program, "MainThread")]


def test_no_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with cp.profile() as prof:
        neg(X)
    assert names(prof) == ["neg", "aten::neg"]
    assert list(tmp_path.iterdir()) == []


# ---- What goes wrong


def of_kineto(name: str, replacement: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.profiler._KinetoProfile, name, replacement)


def fail(*_: Any) -> None:
    raise OSError("no space left on device")


def test_the_rest_of_a_recording_is_there_when_pytorchs_part_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    of_kineto("export_chrome_trace", fail, monkeypatch)
    with pytest.warns(RuntimeWarning) as caught, cp.profile() as prof:
        neg(X)
    assert [str(each.message) for each in caught] == ["operators are not recorded: OSError: no space left on device"]
    assert caught[0].filename == __file__
    assert names(prof) == ["neg"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["", "{", '{"traceEvents": [{"ph": "X", "name": ', "[]"])
def test_a_trace_that_cannot_be_read(content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(_: Any, path: str) -> None:
        Path(path).write_text(content, encoding="utf-8")

    of_kineto("export_chrome_trace", write, monkeypatch)
    with (
        pytest.warns(RuntimeWarning, match="operators are not recorded: (FormatError|ValueError): "),
        cp.profile() as prof,
    ):
        neg(X)
    assert names(prof) == ["neg"]


def test_a_failure_is_told_once_in_a_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    of_kineto("prepare_trace", fail, monkeypatch)
    prof = cp.profile()
    with pytest.warns(RuntimeWarning) as caught:
        prof.start()
    for _ in range(3):
        prof.pause()
        prof.resume()
    neg(X)
    prof.stop()
    assert len(caught) == 1
    assert names(prof) == ["neg"]


def test_a_profiler_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        of_kineto("start_trace", fail, patch)
        prof = cp.profile()
        with pytest.warns(RuntimeWarning, match="no space"):
            prof.start()
    assert not is_profiling()
    neg(X)
    prof.stop()
    assert names(prof) == ["neg"]
    with cp.profile() as prof:
        neg(X)
    assert names(prof) == ["neg", "aten::neg"]


def test_warnings_that_are_errors_do_not_end_a_recording(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    of_kineto("export_chrome_trace", fail, monkeypatch)
    with cp.profile() as prof:
        neg(X)
    assert names(prof) == ["neg"]
    assert capsys.readouterr().err == "cprofiling: operators are not recorded: OSError: no space left on device\n"


def test_versions_that_cannot_record_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = torch._C._profiler._ExperimentalConfig

    def configuration(*, verbose: bool = False) -> Any:
        return kind(verbose=verbose)

    monkeypatch.setattr(torch._C._profiler, "_ExperimentalConfig", configuration)
    monkeypatch.delattr(torch._C._profiler, "_RecordFunctionFast")
    with cp.profile() as prof:
        neg(X)
        worker = threading.Thread(target=neg, args=(X,))
        worker.start()
        worker.join(NEVER)
    assert names(prof) == ["neg", "aten::neg", "neg"]
    assert json.loads(prof.recording.facts["operators"])["threads"] == "the main thread"


def test_devices_are_not_initialised_only_to_wait_for_them() -> None:
    """A device's module is asked whether the program uses it before torch.profiler is made to wait for it."""
    seen: list[str | None] = []

    def run_with(module: Any) -> None:
        run = collect._Run(torch_like, {"activities": [], "profile_memory": False, "with_stack": False})
        torch_like.cuda = module
        run._claim()
        run.stop()

    class Profile:
        def __init__(self, **_: Any) -> None:
            self.profiler = SimpleNamespace(use_device="cuda")

        def stop_trace(self) -> None:
            seen.append(self.profiler.use_device)

    torch_like: Any = SimpleNamespace(
        profiler=SimpleNamespace(profile=Profile, ProfilerActivity=torch.profiler.ProfilerActivity),
        autograd=SimpleNamespace(profiler=SimpleNamespace()),
        _C=torch._C,
    )
    run_with(SimpleNamespace(is_initialized=lambda: False))
    run_with(SimpleNamespace(is_initialized=lambda: True))
    run_with(SimpleNamespace())
    assert seen == [None, "cuda", "cuda"]


def with_trace(change: Callable[[list[dict[str, Any]]], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have torch.profiler write other events than it has recorded."""
    export = torch.profiler._KinetoProfile.export_chrome_trace

    def write(self: Any, path: str) -> None:
        export(self, path)
        trace = json.loads(Path(path).read_text(encoding="utf-8"))
        change(trace["traceEvents"])
        Path(path).write_text(json.dumps(trace), encoding="utf-8")

    of_kineto("export_chrome_trace", write, monkeypatch)


def launch(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Make the operator the call that starts a kernel."""
    (call,) = (event for event in events if event["name"] == "aten::neg")
    call.update(name="cudaLaunchKernel", cat="cuda_runtime")
    call["args"]["correlation"] = 9
    return call


def test_work_of_a_device_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(events: list[dict[str, Any]]) -> None:
        launch(events)

    with_trace(change, monkeypatch)
    with pytest.warns(RuntimeWarning, match="the work of the device is not recorded"), cp.profile() as prof:
        neg(X)
    assert names(prof) == ["neg", "cudaLaunchKernel"]


def test_work_of_devices_is_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(events: list[dict[str, Any]]) -> None:
        start = launch(events)["ts"]
        place = {"pid": 0, "tid": 7}
        args = {"device": 0, "stream": 7, "correlation": 9}
        kernel = {"ph": "X", "cat": "kernel", "name": "kernel", "ts": start + 5e6, "dur": 2.5, "args": args}
        label = {"ph": "M", "name": "process_labels", "args": {"labels": "GPU 0"}}
        stream = {"ph": "M", "name": "thread_name", "args": {"name": "stream 7"}}
        events.extend({**place, **each} for each in (kernel, label, stream))

    with_trace(change, monkeypatch)
    with cp.profile() as prof:
        neg(X)
    kernel = prof.events()[-1]
    assert (kernel.name, kernel.kind, kernel.device, kernel.stream, kernel.dur) == ("kernel", "device", 0, 7, 2500)
    (track,) = (track for track in prof.recording.tracks if track[0] == 0)
    assert (track[5], track[6]) == ("GPU 0", "stream 7")
    averages = {each.key: each for each in prof.key_averages()}
    assert averages["neg"].device_time_total == averages["kernel"].self_device_time_total == 2.5


def test_a_recording_without_operators_says_nothing_of_them() -> None:
    with cp.profile() as prof:
        assert is_profiling()
        with cp.record("label"):
            pass
    assert names(prof) == ["label"]
    assert not {"operators", "host_name"} & prof.recording.facts.keys()


def test_the_profiler_is_off_when_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[Callable[[], None]] = []
    monkeypatch.setattr(collect, "_at_exit", collect._AtExit())
    monkeypatch.setattr("atexit.register", registered.append)
    with cp.profile() as prof:
        neg(X)
        (at_exit,) = registered
        at_exit()
        assert not is_profiling()
        prof.pause()
        prof.resume()
        assert not is_profiling()
        torch.exp(X)
    assert names(prof) == ["neg", "aten::neg"]


def test_what_a_forked_child_lets_go_of() -> None:
    prof = cp.profile()
    prof.start()
    (source,) = prof._sources
    assert isinstance(source, collect.Operators)
    run = source._run
    assert run is not None
    try:
        assert source.silence_thread()
        source.forget()
        assert not source.silence_thread()
        neg(X)
        prof.stop()
        assert names(prof) == ["neg"]
        with pytest.warns(
            RuntimeWarning, match="which only the main thread can end, or the process that this one was forked"
        ):
            prof.start()
        prof.stop()
    finally:
        source.unsilence_thread()
        run.stop()
    with prof:
        neg(X)
    assert names(prof) == ["neg", "aten::neg"]


# ---- In a process of their own: what is imported once is not imported again; other profilers, and forks, might crash


def isolated(script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(Path(__file__).parents[1] / "isolated" / script), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(Path(cp.__file__).parent.parent), **variables},
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result


@pytest.mark.slow
@pytest.mark.parametrize("way", ["by_harness", "by_layers", "by_hand", "by_schedule"])
def test_nothing_is_imported_amid_a_recording(way: str, tmp_path: Path) -> None:
    """PyTorch keeps addresses of names that an import frees."""
    result = isolated("imports_amid.py", str(tmp_path), way, CPROFILING_PROFILER_NAMES="*")
    assert json.loads(result.stdout) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_what_frees_names_amid_a_recording_costs_no_operators(seed: int, tmp_path: Path) -> None:
    operators_found, lost, warned = json.loads(isolated("stacks_fuzz.py", str(tmp_path), str(seed)).stdout)
    assert (operators_found, warned) == (40, [])
    assert lost < 200


@pytest.mark.slow
def test_other_profilers_of_pytorch_and_forks() -> None:
    """Nothing crashes, nobody's events are lost, and nothing is on stderr that is not ours."""
    result = isolated("operators.py")
    # PyTorch tells so of a profiler that is started while another one, here ours, warms up.
    cancelled = "This can happen if profiling was cancelled during warmup."
    assert [line for line in result.stderr.splitlines() if not line.endswith(cancelled)] == []
    in_use = "operators are not recorded: a profiler of PyTorch is in use already, and there can be only one at a time"
    taken = "operators are not recorded: another profiler of PyTorch was started meanwhile, and took them"
    main_only = (
        "operators are not recorded: where PyTorch's profiler does not record all threads,"
        " only the main thread may start and end it"
    )
    no_cycle = "the recording was stopped in step 0: no cycle of its schedule was recorded"
    step, cos, exp, neg, label = "ProfilerStep*", "aten::cos", "aten::exp", "aten::neg", "label"
    assert json.loads(result.stdout) == [
        ["first", None, [cos], []],
        ["around", [neg, cos, exp], [label], [in_use]],
        ["around_warming_up", [step, exp], [], [in_use]],
        ["inside", [neg], [label], [taken]],
        ["inside_of_a_stretch", [neg], [exp], [taken]],
        ["outliving", [neg, exp], [], [taken]],
        ["outliving_while_it_warms_up", [step, exp], [], [taken]],
        ["while_we_warm_up", [neg], ["ProfilerStep#1", exp], []],
        ["while_we_have_warmed_up", [neg, exp], ["ProfilerStep#1"], [in_use]],
        ["left_while_we_warm_up", [neg], [], [no_cycle]],
        ["in_another_thread", [neg, exp], [], [in_use]],
        ["started_in_another_thread", [neg], [], [taken]],
        ["forked", ["status 0"], [cos, exp], []],
        ["ended_by_another_thread", [neg], [label], [main_only]],
        ["of_another_thread", None, [neg], []],
        ["never_ended", None, [], []],
    ]


def test_floating_point_operations_are_those_that_torch_counts(tmp_path: Path) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_flops=True) as theirs:
        multiply()
    wanted = {each.key: each.flops for each in theirs.key_averages() if each.flops}
    assert wanted["aten::mm"] == 2 * 16 * 32 * 8
    with cp.profile(with_flops=True) as prof:
        multiply()
        multiply()
    averages = prof.key_averages()
    assert {each.key: each.flops for each in averages if each.flops} == {key: 2 * n for key, n in wanted.items()}
    assert averages.total_average().flops == 2 * sum(wanted.values())
    table = averages.table("flops")
    heading, _, first, *_ = table.splitlines()[1:]
    assert heading.split()[-2:] == ["Total", "FLOPs"]
    assert first.split()[0] == max(wanted, key=wanted.__getitem__)
    assert [line.split()[-1] for line in table.splitlines() if line.split()[:1] == ["aten::relu"]] == ["--"]
    assert averages.to_pandas().set_index("Name")["Total FLOPs"]["aten::mm"] == 2 * wanted["aten::mm"]
    prof.export_chrome_trace(tmp_path / "trace.json")
    loaded = cp.load_trace(tmp_path / "trace.json").key_averages(group_by_node=True)
    assert {each.key: each.node for each in loaded if each.flops} == dict.fromkeys(wanted, "multiply")
    with cp.profile() as prof:
        multiply()
    assert "FLOPs" not in prof.key_averages().table()
