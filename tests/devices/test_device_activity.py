"""Devices in recordings without PyTorch, through a CUPTI that is a fake (failure scenarios H5, H8).

Each test that has CUDA is a process of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
from calls import WATCH_DOG, check_script
from cprofiling import _core
from cprofiling.analysis.device_figures import NodeKernel
from cprofiling.devices import cuda_toolkits
from cprofiling.devices import cupti as device_activity
from cprofiling.recording import activities
from cprofiling.recording.result import Recording
from recordings import DROPPED, NODE, call, device, host, made

pytestmark = pytest.mark.native

ROOT = Path(__file__).parents[2]
Run = Callable[[str], None]

PREAMBLE = f"""{WATCH_DOG}import atexit, json, os, sys, warnings
sys.path.insert(0, {str(ROOT / "tests")!r})
import cprofiling as cp
from cprofiling import _core
from fakes.cuda_process import cupti

def launch(name, us):
    return cupti.launch(name.encode(), us * 1000)

def upload(count, us):
    return cupti.upload(count, us * 1000)

def wait(ms=2):
    end = cupti.now() + ms * 1_000_000
    while cupti.now() < end:
        pass

def works(recording):
    return [event for event in recording.events() if event.kind == "device"]

warnings.simplefilter("error")
"""
END = """
assert cupti.violations() == cupti.open_buffers() == cupti.is_subscribed() == 0
"""


@pytest.fixture
def run(libraries: dict[str, str]) -> Run:
    """Run a script with the fake libraries."""
    return lambda script: check_script(PREAMBLE + textwrap.dedent(script) + END, **libraries)


def test_a_recording_has_kernels_copies_and_their_calls(run: Run) -> None:
    run("""
        @cp.profile_node("inner")
        def inner():
            upload(4096, 20)
            launch("gemm", 100)

        @cp.profile_node("outer")
        def outer():
            launch("relu", 300)
            inner()
            wait()

        with cp.profile(activities=[cp.ProfilerActivity.CPU, cp.ProfilerActivity.CUDA]) as prof:
            outer()
        recording = prof.recording
        relu, copy, gemm = works(recording)
        assert (relu.name, relu.cat, relu.dur, relu.device, relu.stream) == ("relu", "kernel", 300_000, 0, 7)
        assert (copy.name, copy.cat) == ("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy")
        assert (copy.bytes, copy.dur, copy.start >= relu.end) == (4096, 20_000, True)
        assert (gemm.name, gemm.dur, gemm.start >= copy.end) == ("gemm", 100_000, True)
        launches = [event for event in recording.events() if event.cat == "cuda_runtime"]
        assert [event.name for event in launches] == ["cudaLaunchKernel", "cudaMemcpyAsync", "cudaLaunchKernel"]
        assert [event.correlation for event in launches] == [relu.correlation, copy.correlation, gemm.correlation]
        parents = [recording.event(event.parent).name for event in launches]
        assert parents == ["outer", "inner", "inner"]
        assert launches[0].thread_id == os.getpid()
        assert abs(relu.start - launches[0].start) < 1_000_000
        assert len(recording.flows) == 6
        figures = recording.top_kernels()
        assert [(of.node, of.kernel, of.count, of.total_ns) for of in figures] == [
            ("outer", "relu", 1, 300_000), ("inner", "gemm", 1, 100_000)]
        assert figures[1].node_busy_ns == 120_000
        assert [of.call for of in recording.launch_statistics()] == ["cudaLaunchKernel", "cudaMemcpyAsync"]
        assert recording.copy_breakdown()[0].bytes == 4096
        (idle,) = recording.idle_times()
        assert idle.device == 0 and idle.stream == 7
        assert json.loads(recording.facts["cupti"]) == {"version": 130000, "lost": None}
        assert recording.dropped == 0
    """)


def test_its_trace_has_rows_of_streams_and_arrows(run: Run, tmp_path: Path) -> None:
    run(f"""
        path = {str(tmp_path / "trace.json")!r}
        with cp.profile(activities=["CUDA"], file=path):
            launch("gemm", 100)
            wait()
        with open(path) as file:
            events = json.load(file)["traceEvents"]
        (kernel,) = (event for event in events if event.get("cat") == "kernel")
        assert (kernel["pid"], kernel["tid"], kernel["dur"]) == (0, 7, 100.0)
        assert kernel["args"] == {{"kind": "device", "correlation": 1, "device": 0, "stream": 7}}
        start, end = (event for event in events if event.get("cat") == "ac2g")
        assert (start["ph"], start["pid"], start["tid"]) == ("s", os.getpid(), os.getpid())
        assert (end["ph"], end["pid"], end["tid"], end["bp"]) == ("f", 0, 7, "e")
        names = {{event["name"]: event["args"] for event in events if event["ph"] == "M" and event["pid"] == 0}}
        assert names["process_labels"] == {{"labels": "GPU 0"}}
        assert names["thread_name"] == {{"name": "stream 7"}}
        again = cp.load_trace(path)
        assert [of.kernel for of in again.top_kernels()] == ["gemm"]
    """)


def test_pauses_and_cycles_hold_cupti_only_while_they_record(run: Run) -> None:
    run("""
        kept = []
        prof = cp.profile(
            activities=[cp.ProfilerActivity.CUDA], schedule=cp.schedule(wait=1, warmup=1, active=1, repeat=2),
            on_trace_ready=lambda each: kept.append(works(each.recording)))
        with prof:
            for step in range(6):
                held = cupti.is_subscribed()
                assert held == (step % 3 == 2), step
                launch(f"step {step}", 10)
                if step == 2:
                    wait()
                    prof.pause()
                    assert not cupti.is_subscribed()
                    launch("paused", 10)
                    prof.resume()
                    launch("resumed", 10)
                wait()
                prof.step()
        assert [[work.name for work in works] for works in kept] == [["step 2", "resumed"], ["step 5"]]
    """)


def test_all_activities_include_devices(run: Run) -> None:
    run("""
        assert cp.supported_activities() == {cp.ProfilerActivity.CPU, cp.ProfilerActivity.CUDA}
        with cp.profile() as prof:
            launch("gemm", 10)
            wait()
        assert [work.name for work in works(prof.recording)] == ["gemm"]
        for options in {"resource": cp.Resource.CPU}, {"activities": ["CPU"]}:
            with cp.profile(**options) as prof:
                launch("gemm", 10)
                wait()
            assert works(prof.recording) == []
        prof = cp.profile(resource=cp.Resource.NPU)  # devices only: that is something
        with prof:
            pass
    """)


def test_another_client_is_warned_of_and_the_recording_goes_on(run: Run) -> None:
    run("""
        cupti.hold(1)
        @cp.profile_node("node")
        def node():
            launch("gemm", 10)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with cp.profile(activities=["CPU", "CUDA"]) as prof:
                node()
                prof.pause()
                prof.resume()
        (warning,) = caught
        assert str(warning.message) == (
            "activity CUDA is not recorded: another profiler (torch.profiler, Nsight) holds CUPTI: "
            "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39) from cuptiSubscribe")
        assert [event.name for event in prof.events()] == ["node"]
        assert "cupti" not in prof.recording.facts
        with cp.profile() as prof:  # all that there is: that is without devices now
            node()
        assert [event.name for event in prof.events()] == ["node"]
        cupti.hold(0)
        with cp.profile(activities=["CUDA"]) as prof:
            launch("gemm", 10)
            wait()
        assert len(works(prof)) == 1
    """)


def test_losses_are_in_the_trace(run: Run) -> None:
    run("""
        with cp.profile(activities=["CUDA"]) as prof:
            launch("not over", 3_600_000_000)
            cupti.drop(3)
        assert prof.recording.dropped == 4
        assert json.loads(prof.recording.facts["cupti"])["lost"] == (
            "records that CUPTI had no room for: 3; records without times: 1")
        status = _core.cupti_status()
        assert (status["dropped"], status["untimed"], status["recording"]) == (3, 1, 0)
        assert status["library"] == os.environ["CPROFILING_LIBCUPTI"]
    """)


def test_a_forked_child_leaves_it_to_its_parent(run: Run) -> None:
    run("""
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork in a process with threads
        prof = cp.profile(activities=["CUDA"])
        prof.start()
        launch("gemm", 10)
        total = cupti.total_calls()
        child = os.fork()
        if child == 0:
            launch("in the child", 10)
            prof.stop()
            assert _core.cupti_reason() == "off(fork): CUPTI does not survive a fork"
            with cp.profile() as own:
                pass
            assert cupti.total_calls() == total
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        wait()
        prof.stop()
        assert [work.name for work in works(prof.recording)] == ["gemm"]
    """)


def test_a_recording_that_nobody_stops_gives_cupti_back(run: Run) -> None:
    run("""
        warnings.simplefilter("ignore")
        cp.profile(activities=["CUDA"]).start()
        assert not cupti.is_subscribed()
        kept = cp.profile(activities=["CUDA"])
        kept.start()
        assert cupti.is_subscribed()
        atexit._run_exitfuncs()
    """)


def test_a_torch_that_records_devices_itself_has_them(run: Run) -> None:
    run("""
        from unittest.mock import MagicMock
        from cprofiling.recording import profile as session
        from cprofiling.recording.torch_operators import collect
        collect.begin = lambda **options: MagicMock()
        for why_torch_does_not, is_held in ((None, 0), ("it has none", 1)):
            session.torch_reason = lambda activity: why_torch_does_not
            with cp.profile(operators=True):
                assert cupti.is_subscribed() == is_held
    """)


def test_without_cuda_no_library_is_opened() -> None:
    script = """
        import cprofiling as cp
        from cprofiling import _core; from cprofiling.devices import cupti as device_activity
        assert device_activity.missing_reason() == "no CUDA in the process"
        with cp.profile():
            pass
        assert _core.cupti_status()["library"] is None
        with open("/proc/self/maps") as maps:
            assert "libcu" not in maps.read()
        """
    check_script(textwrap.dedent(script))


def test_why_cuda_is_missing_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(_core, "cupti_status", lambda: {"cuda": False})
    reason = activities.missing_reason(cp.ProfilerActivity.CUDA)
    assert reason is not None
    assert reason.endswith("has not loaded; and no CUDA in the process")
    monkeypatch.setattr(_core, "cupti_status", lambda: {"cuda": True})
    assert activities.missing_reason(cp.ProfilerActivity.CUDA) is None
    assert activities.missing_reason(cp.ProfilerActivity.XPU) is not None


def test_installed_libraries_are_looked_for_where_packages_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "nvidia" / "cu13" / "lib"
    folder.mkdir(parents=True)
    toolkit = tmp_path / "cuda"
    for name in ("lib64", "lib"):
        (toolkit / name).mkdir(parents=True)
    monkeypatch.setattr(sys, "path", ["/no/such", str(tmp_path)])
    monkeypatch.setattr(cuda_toolkits, "toolkit_folders", lambda: [str(toolkit), str(toolkit)])
    in_order = (folder, toolkit / "lib64", toolkit / "lib")
    assert device_activity.library_folders() == tuple(map(os.fsencode, in_order))
    monkeypatch.setattr(
        cuda_toolkits, "toolkit_folders", lambda: [f"{toolkit}/{'../cuda/' * number}" for number in range(40)]
    )
    _core.cupti_set_folders(device_activity.library_folders())
    assert len(device_activity.library_folders()) == 32
    _core.cupti_set_folders(())


def test_wrong_arguments_are_refused() -> None:
    wrong: Any = 5
    with pytest.raises(TypeError, match="recording must be a Recording or None, got 5"):
        _core.cupti_add_trace(wrong)
    with pytest.raises(TypeError, match="folders must be a tuple of bytes, got 5"):
        _core.cupti_set_folders(wrong)
    with pytest.raises(TypeError, match="bytes"):
        _core.cupti_set_folders((wrong,))
    with pytest.raises(RuntimeError, match="finished"):
        _core.cupti_add_trace(made([]))


def test_what_does_not_fit_into_memory_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(_core, "cupti_add_trace", fail)
    activity = device_activity.DeviceActivity(is_wanted=True)
    with pytest.warns(RuntimeWarning, match="what devices did is incomplete"):
        activity.join(Recording.empty())
    activity.join(Recording.empty())  # says so once


# ---- the numbers and places of CUPTI's interface ---------------------------------------------------


def cuda_headers() -> Path | None:
    """The folder of CUDA's headers, with CUPTI's."""
    for home in (os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"):
        for below in ("extras/CUPTI/include", "include"):
            if home and (Path(home) / below / "cupti.h").exists():
                return Path(home) / below
    return None


def test_numbers_and_places_are_those_of_the_headers() -> None:
    folder = cuda_headers()
    if folder is None:
        pytest.skip("CUPTI's headers are not installed")
    command = [
        os.environ.get("CC", "cc"), "-std=c11", f"-I{ROOT}", f"-I{folder}", f"-I{folder.parent}/include",
        f"-I{folder.parents[2]}/include", "-fsyntax-only", str(ROOT / "tests" / "fakes" / "cupti_layout.c"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# Names of the headers that look like calls of cupti_calls.h, and are left out on purpose: copies and fills as nodes
# of graphs that are being made, functions for the host; of the driver, what only programs from before CUDA 3.2 call.
LOOKS_LIKE_A_CALL = re.compile(r"(?:__)?cu(?:da|64)?\w*(?:Launch|Memcpy|Memset)\w*")
LEFT_OUT = re.compile(r"cu(?:da)?(?:Graph\w*Mem(?:cpy|set)Node\w*|LaunchHostFunc(?:_v10000|_ptsz|_ptsz_v10000)?)")
AFTER_CUDA_3_1 = 83  # the first number of CUDA 3.2 or later


def calls_left_out(domain: str, header: str, ours: str) -> list[str]:
    """The calls of a header that cupti_calls.h should have, and has not."""
    known = set(re.findall(rf"X\({domain}, (\w+),", ours))
    for name, *versions in re.findall(rf"X, {domain}, \w+, (\w+), (\w*), \d+, (\w+), \d+", ours):
        known.update(name + version for version in versions)
    names = re.findall(rf"CUPTI_{domain}_TRACE_CBID_(\w+)\s*=\s*(\d+)", header)
    assert known <= {name for name, _ in names}
    wanted = [
        name
        for name, number in names
        if LOOKS_LIKE_A_CALL.fullmatch(name) and not LEFT_OUT.fullmatch(name) and not name.startswith("cu64")
        if domain == "RUNTIME" or int(number) >= AFTER_CUDA_3_1
    ]
    assert known >= {"RUNTIME": {"cudaLaunchKernel_v7000"}, "DRIVER": {"cuLaunchKernel"}}[domain] <= set(wanted)
    return sorted(set(wanted) - known)


@pytest.mark.parametrize("domain", ["RUNTIME", "DRIVER"])
def test_every_call_of_the_headers_is_known(domain: str) -> None:
    folder = cuda_headers()
    if folder is None:
        pytest.skip("CUPTI's headers are not installed")
    ours = (ROOT / "cprofiling" / "devices" / "cupti_calls.h").read_text(encoding="utf-8")
    header = (folder / f"cupti_{domain.lower()}_cbid.h").read_text(encoding="utf-8")
    assert calls_left_out(domain, header, ours) == []
    newer = header + f"CUPTI_{domain}_TRACE_CBID_cuLaunchKernelAnew_v14000 = 900,"
    assert calls_left_out(domain, newer, ours) == ["cuLaunchKernelAnew_v14000"]


# ---- the kernels of each node ----------------------------------------------------------------------

ROWS = [
    host("net", 0, 100, kind=NODE), host("layer", 10, 50, kind=NODE),
    call("cudaLaunchKernel", 12, 14, 1), call("cudaLaunchKernel", 15, 17, 2), call("cudaMemcpyAsync", 20, 22, 3),
    call("cudaLaunchKernel", 60, 62, 4), call("cudaLaunchKernel", 200, 202, 5),
    device("gemm", 20, 40, correlation=1), device("relu", 40, 50, correlation=2),
    device("Memcpy HtoD (Pinned -> Device)", 45, 60, correlation=3, cat="gpu_memcpy"),
    device("gemm", 70, 170, correlation=4), device("gemm", 210, 220, correlation=5), device("empty", 300, 300),
]  # fmt: skip
US = 1000


def test_kernels_by_node() -> None:
    found = made(ROWS).top_kernels()
    assert list(found) == [
        NodeKernel("net", "gemm", 1, 100 * US, 100.0 * US, 1.0, 1, 100 * US, 100 * US),
        NodeKernel("layer", "gemm", 1, 20 * US, 20.0 * US, 2 / 3, 2, 40 * US, 40 * US),
        NodeKernel("layer", "relu", 1, 10 * US, 10.0 * US, 1 / 3, 2, 40 * US, 40 * US),
        NodeKernel(None, "gemm", 1, 10 * US, 10.0 * US, 1.0, 2, 10 * US, 10 * US),
        NodeKernel(None, "empty", 1, 0, 0.0, 0.0, 2, 10 * US, 10 * US),
    ]
    assert re.search(r"│ layer\s+┆ relu ", str(found))


def test_kernels_of_one_node() -> None:
    (gemm,) = made(ROWS).top_kernels(1, node="layer")
    assert gemm.kernel == "gemm"
    nothing = made(ROWS, dropping=True).top_kernels(node="other")
    assert (list(nothing), nothing.notes) == ([], ("No kernel of a device was recorded.", DROPPED))
    untimed = made([device("empty", 300, 300)]).top_kernels()
    assert [(of.share, of.node_busy_ns, of.node_span_ns) for of in untimed] == [(0.0, 0, 0)]


def test_wrong_wishes_for_kernels() -> None:
    wrong: Any = 1.5
    with pytest.raises(ValueError, match="n must be >= 1, got 0"):
        made(ROWS).top_kernels(0)
    with pytest.raises(TypeError, match="n must be an integer"):
        made(ROWS).top_kernels(wrong)
    with pytest.raises(TypeError, match="node must be a str or None"):
        made(ROWS).top_kernels(node=wrong)
