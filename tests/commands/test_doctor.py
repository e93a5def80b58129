"""The command ``doctor``, on machines that lack one thing or another (failure scenarios F4, G11 and H1)."""

from __future__ import annotations

import itertools
import json
import os
import platform
import re
import subprocess
import sys
from importlib import metadata, util
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import cprofiling
from calls import run_python
from cprofiling import _core
from cprofiling.commands import doctor, main
from cprofiling.devices import cuda_probe, cuda_toolkits, cupti
from cprofiling.devices import operations as device_table
from cprofiling.devices.nsight import tools
from cprofiling.nodes import own_cost
from fakes.fake_torch import forget_devices

ROOT = Path(__file__).resolve().parents[2]
NOTHING: dict[str, Any] = {"fault": None, "driver": {"error": "no driver"}, "cupti": {}}
COUNTERS = ("cpu_time", "context_switches", "page_faults", "cycles", "instructions", "branch_misses", "cache_misses")
PARAMETERS = "EnableMSI: 1\nRmProfilingAdminOnly: {}\n"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """NVIDIA's libraries, faked."""
    target = str(tmp_path_factory.mktemp("nvidia") / "libnvidia_fake.so")
    source = "tests/fakes/fake_nvidia.c"
    subprocess.run(
        ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", source, "-o", target],
        cwd=ROOT,
        check=True,
    )
    return target


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a machine that has nothing."""
    monkeypatch.setattr(doctor, "ROOT", str(tmp_path))
    monkeypatch.setattr(tools, "USUAL_PLACES", {"ncu": (), "nsys": (f"{tmp_path}/opt/nsys/*/bin",)})
    monkeypatch.setattr(cuda_toolkits, "USUAL", (f"{tmp_path}/usr/local/cuda*",))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in ("CUDA_HOME", "CUDA_PATH", "NVTX_INJECTION64_PATH", "CPROFILING_LIBCUDA", "CPROFILING_LIBCUPTI"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> None:
    """A core that has everything."""
    monkeypatch.setattr(_core, "perf_status", lambda: [(name, "times", None) for name in COUNTERS], raising=False)


def put(path: Path, text: str, *, runs: bool = False) -> Path:
    """Make a file, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755 if runs else 0o644)
    return path


def only(rows: Any) -> doctor.Row:
    """Return a section's one row, which has a reason and an advice if something does not work."""
    (row,) = rows
    assert row.works is not False or (row.why and row.what_to_do), row
    return row  # type: ignore[no-any-return]


# ---- The probe


def test_the_probe_tells_driver_and_devices(library: str) -> None:
    found = cuda_probe.driver(library)
    devices: Any = found.pop("devices")
    assert found == {"version": 13020, "code": 0, "code_name": "CUDA_SUCCESS"}
    assert [device["ordinal"] for device in devices] == [0, 1]
    assert devices[1] == {
        "ordinal": 1,
        "name": "Fake GPU 1 \ufffd\x1b[31m",
        "memory_bytes": 2 << 33,
        "compute_capability": "9.0",
        "multiprocessors": 133,
    }


def test_the_probe_tells_what_the_driver_refuses(library: str, monkeypatch: pytest.MonkeyPatch) -> None:  # H1
    monkeypatch.setenv("FAKE_NVIDIA_DEVICES", "-1")
    assert cuda_probe.driver(library)["devices"] == []
    monkeypatch.setenv("FAKE_NVIDIA_INIT", "100")
    assert cuda_probe.driver(library) == {"version": 13020, "code": 100, "code_name": "CUDA_ERROR_NO_DEVICE"}
    monkeypatch.setenv("FAKE_NVIDIA_INIT", "12345")
    assert cuda_probe.driver(library)["code_name"] == ""
    assert "/nowhere/libcuda.so" in str(cuda_probe.driver("/nowhere/libcuda.so")["error"])
    assert "cuInit" in str(cuda_probe.driver("libc.so.6")["error"])


def test_the_probe_takes_the_first_cupti_that_loads(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"path": library, "version": 130000, "code": 0, "code_name": "CUPTI_SUCCESS"}
    assert cuda_probe.cupti(["/nowhere/libcupti.so", library, "/nowhere"], has_driver=True) == found
    lacking = {"path": "libc.so.6", "error": "it lacks cuptiGetVersion"}  # the profiler gives up there, too
    assert cuda_probe.cupti(["/nowhere/libcupti.so", "libc.so.6", library], has_driver=True) == lacking
    assert cuda_probe.cupti([library], has_driver=True)["code"] == 0, "the subscriber was given back"
    monkeypatch.setenv("FAKE_NVIDIA_SUBSCRIBE", "39")
    assert cuda_probe.cupti([library], has_driver=True)["code_name"] == "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
    assert "/nowhere/first" in str(cuda_probe.cupti(["/nowhere/first", "/nowhere/second"], has_driver=True)["error"])
    assert cuda_probe.cupti([], has_driver=True) == {}
    assert cuda_probe.cupti([library], has_driver=False) == {"path": library}


@pytest.mark.parametrize("init", [None, "100"])
def test_cupti_is_not_called_without_a_driver_that_works(
    init: str | None, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUPTI 13.2 recurses then until its stack is full."""
    monkeypatch.setenv("FAKE_NVIDIA_CRASHES", "cuptiGetVersion")
    if init is None:
        monkeypatch.setenv("CPROFILING_LIBCUDA", "/nowhere/libcuda.so.1")
    else:
        monkeypatch.setenv("FAKE_NVIDIA_INIT", init)
    answers = doctor.ask_cuda()
    assert (answers["fault"], answers["cupti"]) == (None, {"path": asked})
    assert only(doctor.cupti_rows(answers)).why == "it needs the CUDA driver"


@pytest.fixture
def asked(library: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The fake libraries are what a process that is asked loads; no framework is loaded in this one."""
    forget_devices(monkeypatch)
    monkeypatch.setenv("CPROFILING_LIBCUDA", library)
    monkeypatch.setenv("CPROFILING_LIBCUPTI", library)
    return library


def test_another_process_is_asked(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/nowhere/tool.so")
    answers = doctor.ask_cuda()
    assert (answers["fault"], answers["cupti"]["path"]) == (None, asked)
    rows = list(doctor.device_rows(answers))
    assert [row.name for row in rows] == ["device 0", "device 1", "other devices"]
    assert rows[0].detail.endswith("8.0 GiB, compute capability 9.0, 132 multiprocessors")


@pytest.mark.parametrize(("function", "answered"), [("cuInit", ["fault"]), ("cuptiGetVersion", ["fault", "driver"])])
@pytest.mark.usefixtures("asked")
def test_a_library_that_crashes_does_no_harm(
    function: str, answered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NVIDIA_CRASHES", function)
    answers = doctor.ask_cuda()
    assert list(answers) == answered
    assert only(doctor.cupti_rows(answers)).why == "asked for its version: it was ended by signal 6"
    assert only(doctor.driver_rows(answers)).works is ("driver" in answers)


@pytest.mark.usefixtures("asked")
def test_a_library_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVIDIA_HANGS", "cuInit")
    monkeypatch.setattr(doctor, "PATIENCE_S", 0.3)
    answers = doctor.ask_cuda()
    assert answers == {"fault": "it did not answer within 0.3 s"}
    assert only(doctor.driver_rows(answers)).why.endswith("it did not answer within 0.3 s")


@pytest.mark.usefixtures("machine")
def test_what_was_answered_before_the_time_was_up_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: Any, **_options: Any) -> Any:
        raise subprocess.TimeoutExpired(command, 20.0, b'words\n{"driver": {"version": 13000, "code": 0}}\n{"cup')

    monkeypatch.setattr(subprocess, "run", run)
    assert only(doctor.driver_rows(doctor.ask_cuda())).works is True


def test_without_a_python_to_run_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert doctor.ask_cuda() == {"fault": "it cannot be run: No such file or directory"}


@pytest.mark.usefixtures("machine")
def test_a_program_with_other_rights_loads_no_library_of_its_environment(  # G13
    asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[Any] = []

    def output_of(command: Any, _environment: Any) -> tuple[str, None]:
        commands.append(command)
        return "", None

    monkeypatch.setattr(doctor, "_output_of", output_of)
    monkeypatch.setattr(_core, "environment_is_trusted", lambda: False)
    monkeypatch.setenv("CPROFILING_LIBCUDA", asked)
    doctor.ask_cuda()
    cuda, cupti = commands[0][3:5]
    assert cuda == "libcuda.so.1"
    assert Path(cupti).name == "libcupti.so.13"  # maybe that of a package beside PyTorch


# ---- CUDA


@pytest.mark.parametrize(
    ("code", "name", "detail", "why", "advice"),
    [
        (0, "", "for CUDA 12.8 and earlier", "", ""),
        (100, "CUDA_ERROR_NO_DEVICE", "for CUDA 12.8", "CUDA_ERROR_NO_DEVICE (100)", "CUDA_VISIBLE_DEVICES"),
        (34, "CUDA_ERROR_STUB_LIBRARY", "for CUDA 12.8", "(34)", "stubs"),
        (803, "", "for CUDA 12.8", "CUresult (803)", "restart the machine"),
        (999, "CUDA_ERROR_UNKNOWN", "for CUDA 12.8", "(999)", "dmesg"),
    ],
)
def test_a_driver_works_or_refuses(code: int, name: str, detail: str, why: str, advice: str) -> None:  # H1
    driver = {"version": 12080, "code": code, "code_name": name, "devices": []}
    row = only(doctor.driver_rows({"driver": driver}))
    assert (row.works, row.detail) == (code == 0, detail)
    assert why in row.why
    assert advice in row.what_to_do
    assert next(iter(doctor.device_rows({"driver": driver})))[2:] == ("the CPU only", "the driver lists no device", "")


def test_without_a_driver_the_advice_fits_the_machine(machine: Path) -> None:
    assert "if there is a GPU" in only(doctor.driver_rows(NOTHING)).what_to_do
    put(machine / "proc/driver/nvidia/version", "")
    assert "of the version that the kernel's module has" in only(doctor.driver_rows(NOTHING)).what_to_do
    put(machine / ".dockerenv", "")
    assert only(doctor.driver_rows(NOTHING)).what_to_do.startswith("start the container with its GPUs")
    (machine / "proc/driver/nvidia/version").unlink()
    assert "on the host" in only(doctor.driver_rows(NOTHING)).what_to_do


def test_devices_of_other_kinds_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def present() -> list[device_table.DevicePresence]:
        unbuilt = "not built for it"
        found: dict[str, tuple[int | None, str | None]] = {
            "xpu": (2, None), "mps": (None, None), "rocm": (None, unbuilt), "npu": (None, unbuilt),
        }  # fmt: skip
        return [
            device_table.DevicePresence(
                kind,
                count is not None,
                count,
                (("synchronize", why), ("new_event", why), ("memory_peak", why or "it keeps none")),
            )
            for kind, (count, why) in found.items()
        ]

    monkeypatch.setattr(device_table, "present", present)
    assert [(row.name, row.works, row.detail, row.why) for row in doctor.device_rows(NOTHING)] == [
        ("xpu devices", True, "2", "no memory_peak: it keeps none"),
        ("other devices", None, "through PyTorch: mps", "the program has not begun to use it"),
        ("other devices", None, "through PyTorch: rocm, npu", "not built for it"),
    ]


def test_devices_that_nobody_can_have_begun_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    cpu, others = doctor.device_rows(NOTHING)
    assert cpu.detail == "the CPU only"
    assert (others.detail, others.why) == ("through PyTorch: rocm, xpu, mps, npu", "PyTorch is not loaded")
    assert others.what_to_do


CUPTI = {"version": 28, "path": "/lib/libcupti.so.12", "code": 0, "code_name": ""}
HELD = "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"


@pytest.mark.parametrize(
    ("cupti", "works", "detail", "why", "advice"),
    [
        (CUPTI, True, "version 28, /lib/libcupti.so.12", "", ""),
        ({**CUPTI, "code": 39, "code_name": HELD}, False, "version 28", f"{HELD} (39)", "end the other tool"),
        ({**CUPTI, "code": 15}, False, "version 28", "CUptiResult (15)", "not newer than the driver"),
        (
            {"path": "/l/libcupti.so"},
            False,
            "/l/libcupti.so",
            "it needs the CUDA driver",
            "get the CUDA driver to work",
        ),
        ({}, False, "", "there is no libcupti", "pip install"),
        ({"error": "libcupti.so: no"}, False, "", "libcupti.so: no", "pip install"),
        ({"path": "libc.so.6", "error": "it lacks cuptiGetVersion"}, False, "libc.so.6", "it lacks", "anew"),
    ],
)
def test_cupti_works_or_says_why(cupti: dict[str, Any], works: bool, detail: str, why: str, advice: str) -> None:
    row = only(doctor.cupti_rows({"driver": {"code": 0}, "cupti": cupti}))
    assert row.works is works
    assert row.detail.startswith(detail)
    assert why in row.why
    assert advice in row.what_to_do


def test_the_library_is_the_one_that_the_profiler_takes() -> None:
    """The core has the names and the functions of its own; they are the same ones, in the same order."""
    library = (ROOT / "cprofiling/devices/cupti_library.c").read_text() + (
        ROOT / "cprofiling/devices/cupti_library.h"
    ).read_text()
    names = re.findall(r'"(libcupti\.so[.0-9]*)"', library)
    assert {*names} == {*doctor._CUPTI_NAMES}
    (listed,) = re.findall(r"names\[\] = \{(.*?)\}", library)
    assert listed.replace('"', "").split(", ") == [*doctor._CUPTI_NAMES[:-1], "ANY_NAME"]
    assert tuple(re.findall(r"X\(\w+, (cupti\w+),", library)) == cuda_probe._CUPTI_FUNCTIONS
    for folder in re.findall(r'"(\S*lib64)"', library):
        assert folder in cupti._IN_TOOLKITS


def test_cupti_is_looked_for_in_packages_then_toolkits(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = machine / "site [1]"
    monkeypatch.setattr(sys, "path", [str(packages)])
    monkeypatch.setenv("CUDA_HOME", str(machine / "own"))
    expected = [
        put(packages / "nvidia/cu13/lib/libcupti.so.13", ""),
        put(packages / "nvidia/cuda_cupti/lib/libcupti.so.12", ""),
        put(packages / "triton/backends/nvidia/lib/cupti/libcupti.so", ""),
        put(machine / "own/extras/CUPTI/lib64/libcupti.so", ""),
        put(machine / "usr/local/cuda-13.0/lib64/libcupti.so.13", ""),
        put(machine / "usr/local/cuda-9.2/lib/libcupti.so", ""),
    ]
    paths = doctor.cupti_paths()
    assert paths == [*map(str, expected), *doctor._CUPTI_NAMES]
    assert cupti.library_folders() == tuple(os.fsencode(path.parent) for path in expected)


# ---- NVTX and NVIDIA's tools


@pytest.mark.usefixtures("machine")
def test_nvtx_is_heard_or_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "nvtx_status", lambda: (True, None))
    assert only(doctor.nvtx_rows())[1:3] == (True, "a tool listens")
    monkeypatch.setattr(_core, "nvtx_status", lambda: (False, None))
    assert only(doctor.nvtx_rows())[1:3] == (True, "built in; no tool listens now")
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/nowhere")
    assert only(doctor.nvtx_rows()).why.endswith("does not start: /nowhere")
    monkeypatch.setattr(_core, "nvtx_status", lambda: (False, "built without NVTX's headers"))
    assert only(doctor.nvtx_rows()).works is False


def test_a_tool_is_found_and_asked_wherever_it_is(machine: Path) -> None:
    words_of_ncu = 'echo "NVIDIA (R) Nsight Compute"\necho "Version 2025.3.1.0 (build 36398880) (public-release)"\n'
    path = put(machine / "bin/ncu", f"#!/bin/sh\n[ $1 = --version ] || exit 1\n{words_of_ncu}", runs=True)
    assert only(doctor.tool_rows("ncu")) == ("ncu", True, f"2025.3.1.0, {path}", "", "")
    row = only(doctor.tool_rows("nsys"))
    assert (row.works, row.why) == (False, "nsys was not found on PATH, nor where it usually is")
    assert row.what_to_do.startswith("install Nsight Systems")
    words_of_nsys = "#!/bin/sh\necho NVIDIA Nsight Systems version 2025.1\n"
    path = put(machine / "opt/nsys/2025.1/bin/nsys", words_of_nsys, runs=True)
    assert only(doctor.tool_rows("nsys")).detail == f"2025.1, {path}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("#!/bin/sh\necho Version 2025.1\nexit 3\n", "it ended with exit status 3"),
        ("#!/bin/sh\necho nothing\n", "asked for its version, it tells none"),
        ("#!/nowhere/sh\n", "it cannot be run: No such file or directory"),
        ("\x7fELF", "it cannot be run: Exec format error"),
        ("#!/bin/sh\nkill -9 $$\n", "it was ended by signal 9"),
        ("#!/bin/sh\necho Version 2025.1\nexec sleep 60\n", "it did not answer within 0.5 s"),
    ],
)
def test_a_broken_tool_is_told_from_none(machine: Path, text: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "sleep" in text:
        monkeypatch.setattr(doctor, "PATIENCE_S", 0.5)
    path = put(machine / "bin/ncu", text, runs=True)
    monkeypatch.setenv("PATH", f"{machine / 'bin'}:/usr/bin:/bin")
    row = only(doctor.tool_rows("ncu"))
    assert (row.works, row.detail, row.why) == (False, str(path), why)
    assert "anew" in row.what_to_do


def test_who_may_read_the_gpus_counters(machine: Path) -> None:
    assert list(doctor.gpu_counter_rows()) == []
    put(machine / "proc/driver/nvidia/params", PARAMETERS.format(0))
    assert only(doctor.gpu_counter_rows()).works is True
    put(machine / "proc/driver/nvidia/params", PARAMETERS.format(1))
    assert "NVreg_RestrictProfilingToAdminUsers=0" in only(doctor.gpu_counter_rows()).what_to_do
    put(machine / "proc/self/status", "Name:\tx\nCapEff:\t0000000000200000\n")
    assert only(doctor.gpu_counter_rows()).works is True
    put(machine / "proc/self/status", "CapEff:\t00000000001fffff\n")
    assert only(doctor.gpu_counter_rows()).works is False


# ---- The CPU's counters, and PyTorch


def test_counters_that_share_a_reason_share_a_row(machine: Path, core: None, monkeypatch: pytest.MonkeyPatch) -> None:
    put(machine / "proc/sys/kernel/perf_event_paranoid", "2\n")
    reasons = {"cycles": "ENOENT: not offered", "cache_misses": "ENOENT: not offered", "instructions": "EACCES"}
    monkeypatch.setattr(_core, "perf_status", lambda: [(name, "times", reasons.get(name)) for name in COUNTERS])
    rows = list(doctor.perf_rows())
    assert [(row.works, row.detail) for row in rows[:3]] == [
        (True, "cpu_time, context_switches, page_faults, branch_misses"),
        (False, "cycles, cache_misses"),
        (False, "instructions"),
    ]
    assert "virtual" in rows[1].what_to_do
    assert rows[3][1:3] == (
        None, "hardware events are read by system calls; perf_event_paranoid 2, kptr_restrict unknown"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("level", "container", "reason", "advice"),
    [
        ("4\n", False, "EACCES", "sysctl kernel.perf_event_paranoid=2"),
        ("3", True, "EPERM", "sysctl kernel.perf_event_paranoid=2"),
        ("2\n", True, "EPERM", "docker run --cap-add PERFMON"),
        ("-1\n", True, "EINVAL", "fewer hardware counters at once"),
        ("1\n", False, "EACCES", "CAP_PERFMON"),
        ("2\n", False, "EPERM", "CAP_PERFMON"),
        ("garbage", False, "EACCES", "CAP_PERFMON"),
        ("9" * 5000, False, "EACCES", "CAP_PERFMON"),
        ("2\n", False, "EMFILE", "ulimit -n"),
        ("2\n", True, "EBUSY", "free what is short"),
        ("2\n", False, "ENOSYS", "newer kernel"),
        ("", True, "ENOSYS", "seccomp"),
        (None, True, "EPERM", "docker run"),
        ("4", True, "ENOENT", "no virtual one"),
    ],
)
def test_advice_on_counters(machine: Path, level: str | None, container: bool, reason: str, advice: str) -> None:
    if level is not None:
        put(machine / "proc/sys/kernel/perf_event_paranoid", level)
    if container:
        put(machine / "proc/1/cgroup", "0::/kubepods/pod1\n")
    assert advice in doctor.perf_advice(reason)


def test_files_that_cannot_be_read_are_unknown(machine: Path, core: None) -> None:
    (machine / "proc/sys/kernel/perf_event_paranoid").mkdir(parents=True)
    put(machine / "proc/sys/kernel/kptr_restrict", "\n")
    assert doctor.text_of("proc/sys/kernel/perf_event_paranoid") is None
    assert only(row for row in doctor.perf_rows() if row.works is None).detail.endswith(
        "by system calls; perf_event_paranoid unknown, kptr_restrict empty"
    )


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [
        ("cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n", "CUDA 13.0"),
        ("cuda = None\nhip = '6.3'\nxpu = None\n", "ROCm 6.3"),
        ("cuda = None\nxpu: Optional[str] = '20250000'\n", "XPU 20250000"),
        ("__version__ = '2.13.0'\n", "the CPU"),
        ("", "the CPU"),
    ],
)
def test_torch_is_described_without_importing_it(
    tmp_path: Path, lines: str, kinds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "torch/__init__.py", "raise SystemExit('imported')")
    put(tmp_path / "torch-2.13.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0+local\n")
    if lines:
        put(tmp_path / "torch/version.py", lines)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert only(doctor.torch_rows()) == ("torch", True, f"2.13.0+local, for {kinds}", "", "")


def test_torch_may_be_odd_or_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(util, "find_spec", lambda name: None)
    assert only(doctor.torch_rows()).works is False
    monkeypatch.setattr(util, "find_spec", lambda name: ModuleSpec(name, None))
    monkeypatch.setattr(metadata, "version", unknown)
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    assert only(doctor.torch_rows()).detail == "of an unknown version, for the CPU, imported"


# ---- The whole


def check(facts: dict[str, Any]) -> None:
    """The keys and kinds that are documented."""
    assert list(facts) == [
        "format", "version", "cprofiling", "python", "system", "libc", "container", "clock", "cost", "checks",
    ]  # fmt: skip
    assert facts["system"] == f"{platform.system()} {platform.release()} {platform.machine()}"
    assert facts["libc"] == " ".join(platform.libc_ver())
    assert (facts["format"], facts["version"]) == ("cprofiling doctor", 1)
    assert list(facts["clock"]) == ["name", "reason", "resolution_ns", "read_ns"]
    assert min(facts["clock"]["read_ns"], facts["clock"]["resolution_ns"]) > 0
    assert min(facts["cost"]["call_ns"], facts["cost"]["floor_ns"]) > 0
    assert list(facts["cost"]) == ["call_ns", "floor_ns", "options_ns"]
    assert {"gpu_time", "memory", "cpu_time"} <= facts["cost"]["options_ns"].keys()
    assert all(ns >= 0 for ns in facts["cost"]["options_ns"].values())
    for row in facts["checks"]:
        assert list(row) == ["name", "works", "detail", "why", "what_to_do"]
        assert row["works"] in (True, False, None)
        assert all(isinstance(row[key], str) for key in ("name", "detail", "why", "what_to_do"))
        assert row["works"] or row["why"] or row["works"] is None
    built = facts["checks"][0]
    assert (built["name"], built["works"]) == ("build", True)
    nvtx = r"without NVTX|NVTX of a CUDA toolkit|NVTX of [\w-]+ [\w.]+"
    assert re.fullmatch(rf"(GCC|Clang) \d+\.\d+.*, ({nvtx})", built["detail"])
    names = " ".join(row["name"] for row in facts["checks"])
    assert all(name in names for name in ("CUDA driver", "device", "CUPTI", "NVTX", "ncu", "nsys", "perf", "torch"))


def test_json_has_the_documented_keys(
    asked: str, core: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main.main(["doctor", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    check(facts)
    found = {row["name"]: row for row in facts["checks"]}
    assert found["device 0"]["detail"].startswith("Fake GPU 0 \ufffd\x1b[31m, 8.0 GiB")
    assert found["CUPTI"]["works"] is True
    assert asked in found["CUPTI"]["detail"]


@pytest.mark.usefixtures("machine", "asked", "core")
def test_the_page_is_plain_and_fits(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:  # F4
    hostile = ("cycles", "times", "\x1b[2J" + "why " * 40)
    monkeypatch.setattr(_core, "perf_status", lambda: [("cpu_time", "ns", None), hostile])
    assert main.main(["doctor"]) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert len(lines) < 50
    assert max(map(len, lines)) <= doctor.WIDTH
    assert text.isascii() or "\ufffd" in text
    assert "\x1b" not in text
    assert "Fake GPU 1" in text
    assert "\\x1b[2J" in text
    assert lines[2].startswith(f"platform         ok  Linux {platform.release()} {platform.machine()}, glibc ")
    assert any(line.startswith("clock            ok  ") for line in lines)
    assert any(line.startswith("ncu              no  why: ncu was not found") for line in lines)
    assert all(line == line.rstrip() for line in lines)


def test_each_option_is_measured_with_what_it_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the memory takes a system call, which a plain call has none of, so that its cost cannot be plain's."""
    status = [("cpu_time", "ns", None), ("page_faults", "times", None), ("cycles", "times", "ENOENT: not offered")]
    monkeypatch.setattr(_core, "perf_status", lambda: status)
    asked: list[dict[str, Any]] = []

    class Profiler(cprofiling.Profiler):
        __slots__ = ()

        def set_profiling(self, enabled: bool, **keywords: Any) -> None:
            asked.append(keywords)
            super().set_profiling(enabled, **keywords)

    monkeypatch.setattr(own_cost, "Profiler", Profiler)
    costs = own_cost.own_costs_ns()
    assert list(costs) == ["gpu_time", "memory", "cpu_time", "page_faults"]
    assert asked == [
        {"gpu_time": True}, {"memory": True}, {"counters": ("cpu_time",)}, {"counters": ("page_faults",)},
    ]  # fmt: skip
    assert costs["memory"] > _core.cost_ns(None)
    ticks = itertools.count(0, 1000)
    monkeypatch.setattr(own_cost, "perf_counter_ns", lambda: next(ticks))
    assert set(own_cost.own_costs_ns().values()) == {0.0}  # more than a bare call takes


def test_a_section_that_fails_keeps_no_other_from_being_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Any:
        raise OSError(5, "broken")

    monkeypatch.setattr(doctor, "ask_cuda", lambda: NOTHING)
    monkeypatch.setattr(doctor, "torch_rows", fail)
    facts = doctor.examine()
    check(facts)
    row = facts["checks"][-1]
    assert (row["name"], row["works"]) == ("torch", None)
    assert row["why"] == "it could not be found out: OSError: [Errno 5] broken"


@pytest.mark.parametrize("is_named", [False, True])
def test_the_real_machine_is_left_as_it_is(is_named: bool, library: str, tmp_path: Path) -> None:  # G11
    """The doctor loads neither PyTorch nor a library of CUDA's, writes nothing, and ends with 0 whatever it finds."""
    code = f"""
import os, sys
from cprofiling.commands import main as cli
os.chdir({str(tmp_path)!r})
status = cli.main(['doctor', '--json'])
maps = open('/proc/self/maps').read()
loaded = [name for name in ('libnvidia_fake', 'libcuda', 'libcupti') if name in maps]
assert not loaded and 'torch' not in sys.modules, loaded
assert os.environ.get('CPROFILING_LIBCUDA') == os.environ.get('KEPT')
sys.exit(status)
"""
    done = run_python(code, **({"CPROFILING_LIBCUDA": library, "KEPT": library} if is_named else {}))
    assert (done.returncode, done.stderr) == (0, "")
    check(json.loads(done.stdout, parse_constant=pytest.fail))
    assert list(tmp_path.iterdir()) == []


def test_a_page_tells_of_a_platform() -> None:
    facts: dict[str, Any] = {
        "cprofiling": "1.2", "python": "3.11.7", "system": "Linux 6.1 aarch64", "libc": "glibc 2.36",
        "container": True, "checks": [],
        "clock": {"name": "CLOCK_MONOTONIC", "reason": "no invariant TSC", "resolution_ns": 1.0, "read_ns": 21.04},
        "cost": {"call_ns": 99.6, "floor_ns": 42.08, "options_ns": {"gpu_time": 149.6, "memory": 12345.6}},
    }  # fmt: skip
    assert doctor.page(facts).splitlines() == [
        "cprofiling 1.2, Python 3.11.7",
        "",
        "platform         ok  Linux 6.1 aarch64, glibc 2.36, in a container",
        "clock            ok  CLOCK_MONOTONIC: steps of 1 ns, a read takes 21.0 ns",
        "                     why: no invariant TSC",
        "cost of a call   ok  100 ns for a node; 42 ns are the clock's",
        "cost of options  -   of a call in all, with gpu_time 150 ns (no device is in use here), memory",
        "                     12,346 ns",
    ]
    facts.update(container=False, libc=None)
    assert doctor.page(facts).splitlines()[2:4] == [
        "platform         -   Linux 6.1 aarch64, an unknown C library",
        "                     why: cprofiling is tested on Linux with glibc, on x86_64 and aarch64",
    ]
