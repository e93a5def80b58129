"""Command ``doctor``, the features that work on this machine, or why not.

CUDA is asked in a separate process (``cuda_probe``), and not loaded here.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata, util
from typing import Any, NamedTuple

from cprofiling import __version__, _core
from cprofiling._internal import environment
from cprofiling._internal.text import shown_text
from cprofiling.devices import cuda_probe, operations
from cprofiling.devices.cupti import library_folders
from cprofiling.devices.nsight import tools
from cprofiling.nodes.own_cost import own_costs_ns

FORMAT, FORMAT_VERSION = "cprofiling doctor", 1
ROOT = "/"  # below which the system's files are
WIDTH, INDENT = 96, 21
PATIENCE_S = 20.0  # for a process that is asked: a driver with many devices takes seconds to start
_MARKS = {True: "ok", False: "no", None: "-"}
_INJECTED = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")  # what would make a tool record the question
_CUPTI_NAMES = ("libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so")
_BUILT_FOR = (("cuda", "CUDA"), ("hip", "ROCm"), ("xpu", "XPU"))
_MULTIPLE_SUBSCRIBERS = 39  # a CUptiResult
_SYS_ADMIN = 1 << 21  # among the capabilities
_NOT_ALLOWED, _NOT_OFFERED = ("EACCES", "EPERM"), ("ENOENT", "EOPNOTSUPP", "ENODEV", "ENXIO")
_SHORT_OF = ("EMFILE", "ENFILE", "ENOMEM", "EBUSY")
_DRIVER_ADVICE = {
    34: "take the toolkit's stubs out of LD_LIBRARY_PATH: they are for linking only",
    100: "see whether nvidia-smi lists a device, and what CUDA_VISIBLE_DEVICES says",
    802: "wait until the machine has started; with NVSwitch, start nvidia-fabricmanager",
    803: "restart the machine: the driver's library and its kernel module are of different versions",
    804: "take the package cuda-compat away, or use a GPU for data centres, which are all that it is for",
}


class Row(NamedTuple):
    """One finding.

    works: None if unknown, or for a mere fact.
    """

    name: str
    works: bool | None
    detail: str
    why: str = ""  # it does not work, or not fully
    what_to_do: str = ""


def examine() -> dict[str, Any]:
    """Return all findings, as ``--json`` prints them."""
    answers = ask_cuda()
    sections: list[tuple[str, Callable[[], Iterable[Row]]]] = [
        ("build", lambda: [Row("build", True, _core.BUILT_WITH)]),
        ("CUDA driver", lambda: driver_rows(answers)),
        ("devices", lambda: device_rows(answers)),
        ("CUPTI", lambda: cupti_rows(answers)),
        ("NVTX", nvtx_rows),
        ("ncu", lambda: tool_rows("ncu")),
        ("nsys", lambda: tool_rows("nsys")),
        ("GPU counters", gpu_counter_rows),
        ("perf events", perf_rows),
        ("torch", torch_rows),
    ]
    rows: list[Row] = []
    for name, section in sections:
        try:
            rows += list(section())
        except Exception as error:  # noqa: BLE001 of whatever kind
            rows.append(Row(name, None, "", f"it could not be found out: {type(error).__name__}: {error}"))
    step_ps, read_ps = _core.clock_figures()  # first: this chooses the clock
    clock, clock_reason = _core.clock()
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "cprofiling": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "libc": " ".join(filter(None, platform.libc_ver())) or None,
        "container": in_container(),
        "clock": {
            "name": clock,
            "reason": clock_reason,
            "resolution_ns": step_ps / 1000,
            "read_ns": read_ps / 1000,
        },
        "cost": {
            "call_ns": round(_core.cost_ns(None), 1),
            "floor_ns": 2 * read_ps / 1000,
            "options_ns": own_costs_ns(),
        },
        "checks": [row._asdict() for row in rows],
    }


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Describe the command and add its options."""
    parser.description = (
        "Print what of the profiler works on this machine, and for what does not, why, and what to do about it."
    )
    parser.epilog = "example: cprofiling doctor --json"
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")


def run(options: argparse.Namespace) -> str:
    """Return the report as a page of text, or JSON."""
    facts = examine()
    return json.dumps(facts, indent=2, allow_nan=False) if options.json else page(facts)


def page(facts: dict[str, Any]) -> str:
    """Return the result of ``examine`` as text that fits a screen."""
    clock, cost = facts["clock"], facts["cost"]
    libc = facts["libc"] or "an unknown C library"
    is_tested = bool(re.fullmatch(r"Linux .* (x86_64|aarch64), glibc .*", f"{facts['system']}, {libc}"))
    without = {"gpu_time": " (no device is in use here)"}
    options = [f"{name} {ns:,.0f} ns{without.get(name, '')}" for name, ns in cost["options_ns"].items()]
    rows = [
        Row(
            "platform",
            is_tested or None,
            f"{facts['system']}, {libc}" + (", in a container" if facts["container"] else ""),
            "" if is_tested else "cprofiling is tested on Linux with glibc, on x86_64 and aarch64",
        ),
        Row(
            "clock",
            True,
            f"{clock['name']}: steps of {clock['resolution_ns']:.3g} ns, a read takes {clock['read_ns']:.1f} ns",
            clock["reason"] or "",
        ),
        Row("cost of a call", True, f"{cost['call_ns']:.0f} ns for a node; {cost['floor_ns']:.0f} ns are the clock's"),
        Row("cost of options", None, f"of a call in all, with {', '.join(options)}"),
        *(Row(**check) for check in facts["checks"]),
    ]
    lines = [f"cprofiling {facts['cprofiling']}, Python {facts['python']}", ""]
    for row in rows:
        texts = [row.detail, row.why and f"why: {row.why}", row.what_to_do and f"do: {row.what_to_do}"]
        told = [
            line
            for text in filter(None, texts)
            for line in textwrap.wrap(shown_text("text", text), WIDTH - INDENT, break_on_hyphens=False)
        ]
        label = f"{shown_text('name', row.name):<{INDENT - 4}}{_MARKS[row.works]:<4}"
        lines.append((label + "".join(told[:1])).rstrip())
        lines += [" " * INDENT + line for line in told[1:]]
    return "\n".join(lines)


# ---- CUDA


def ask_cuda() -> dict[str, Any]:
    """Return answers of ``cuda_probe``, with ``fault`` if incomplete."""
    driver = environment.text("CPROFILING_LIBCUDA") or "libcuda.so.1"
    cupti = environment.text("CPROFILING_LIBCUPTI")
    command = [sys.executable or "python3", "-I", cuda_probe.__file__, driver, *([cupti] if cupti else cupti_paths())]
    output, fault = _output_of(command, {name: os.environ[name] for name in os.environ if name not in _INJECTED})
    answers: dict[str, Any] = {"fault": fault}
    for line in output.splitlines():
        with contextlib.suppress(ValueError):  # a library's own words, or a line that was cut
            found = json.loads(line)
            answers.update(found if isinstance(found, dict) else {})
    return answers


def _output_of(command: Sequence[str], environment: dict[str, str] | None = None) -> tuple[str, str | None]:
    """Return a program's stdout, and its fault, waiting up to PATIENCE_S."""
    try:
        nowhere = subprocess.DEVNULL
        done = subprocess.run(
            command, env=environment, stdin=nowhere, stdout=subprocess.PIPE, stderr=nowhere, timeout=PATIENCE_S,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        return (error.stdout or b"").decode("utf-8", "replace"), f"it did not answer within {PATIENCE_S:g} s"
    except OSError as error:
        return "", f"it cannot be run: {error.strerror}"
    fault = None
    if done.returncode < 0:
        fault = f"it was ended by signal {-done.returncode}"
    elif done.returncode:
        fault = f"it ended with exit status {done.returncode}"
    return done.stdout.decode("utf-8", "replace"), fault


def cupti_paths() -> list[str]:
    """Return possible paths of libcupti, in the profiler's order."""
    paths = [os.path.join(os.fsdecode(folder), name) for folder in library_folders() for name in _CUPTI_NAMES]
    return [path for path in paths if os.path.exists(path)] + list(_CUPTI_NAMES)


def driver_rows(answers: dict[str, Any]) -> Iterable[Row]:
    """Yield rows on the driver."""
    name, driver = "CUDA driver", answers.get("driver")
    if driver is None:
        yield _unanswered(name, answers)
        return
    if "error" in driver:
        has_module = os.path.exists(os.path.join(ROOT, "proc/driver/nvidia/version"))
        if in_container():
            start = "start" if has_module else "install NVIDIA's driver on the host, and start"
            advice = (
                f"{start} the container with its GPUs (docker run --gpus all, which needs the NVIDIA Container Toolkit)"
            )
        elif has_module:
            advice = "install the driver's libraries, of the version that the kernel's module has"
        else:
            advice = "install NVIDIA's driver, if there is a GPU of NVIDIA's; nothing else of the profiler needs one"
        yield Row(name, False, "", driver["error"], advice)
        return
    version, code = driver["version"], driver["code"]
    detail = f"for CUDA {version // 1000}.{version % 1000 // 10}"
    if code == 0:
        yield Row(name, True, f"{detail} and earlier")
    else:
        advice = _DRIVER_ADVICE.get(code, "see whether nvidia-smi answers, and what dmesg says of NVRM")
        yield Row(name, False, detail, f"cuInit answers {driver['code_name'] or 'CUresult'} ({code})", advice)


def _unanswered(name: str, answers: dict[str, Any]) -> Row:
    return Row(name, False, "", f"asked for its version: {answers['fault']}", "see whether nvidia-smi answers")


def device_rows(answers: dict[str, Any]) -> Iterable[Row]:
    """Yield rows on devices, listed by the driver or used by PyTorch."""
    listed = (answers.get("driver") or {}).get("devices")
    others = operations.present()
    used = [each for each in others if each.is_in_use]
    if not listed and not used:
        yield Row("devices", True, "the CPU only", "" if listed is None else "the driver lists no device")
    for device in listed or ():
        memory = f"{device['memory_bytes'] / 2**30:.1f} GiB"
        kind = f"compute capability {device['compute_capability']}, {device['multiprocessors']} multiprocessors"
        yield Row(f"device {device['ordinal']}", True, f"{device['name']}, {memory}, {kind}")
    for each in used:
        wants = [f"no {operation}: {why}" for operation, why in each.operations if why is not None]
        yield Row(f"{each.device_type} devices", True, f"{each.count}", "; ".join(wants))
    unused: dict[str, list[str]] = {}  # by the reason
    for each in others:
        if not each.is_in_use:
            why = dict(each.operations)["synchronize"] or "the program has not begun to use it"
            unused.setdefault(why, []).append(each.device_type)
    for why, kinds in unused.items():
        advice = "use one in a program: its summary's reasons tell the missing figures then"
        yield Row("other devices", None, f"through PyTorch: {', '.join(kinds)}", why, advice)


def cupti_rows(answers: dict[str, Any]) -> Iterable[Row]:
    """Yield rows on CUPTI, and its one subscriber."""
    name, cupti = "CUPTI", answers.get("cupti")
    if cupti is None:
        yield _unanswered(name, answers)
    elif "path" not in cupti:
        advice = "pip install nvidia-cuda-cupti (for CUDA 12: nvidia-cuda-cupti-cu12), or install the CUDA toolkit"
        yield Row(name, False, "", cupti.get("error", "there is no libcupti"), advice)
    elif "error" in cupti:
        yield Row(name, False, cupti["path"], cupti["error"], "install CUPTI anew, or take this one away")
    elif "code" not in cupti:
        yield Row(name, False, cupti["path"], "it needs the CUDA driver", "get the CUDA driver to work first")
    elif cupti["code"] == 0:
        yield Row(name, True, f"version {cupti['version']}, {cupti['path']}")
    else:
        why = f"cuptiSubscribe answers {cupti['code_name'] or 'CUptiResult'} ({cupti['code']})"
        advice = "take a CUPTI that is not newer than the driver"
        if cupti["code"] == _MULTIPLE_SUBSCRIBERS:
            advice = "end the other tool (Nsight, a profiler that is preloaded): a process can have one at a time"
        yield Row(name, False, f"version {cupti['version']}, {cupti['path']}", why, advice)


def nvtx_rows() -> Iterable[Row]:
    """Yield rows on NVTX, and whether a tool listens."""
    is_heard, reason = _core.nvtx_status()
    tool = os.environ.get("NVTX_INJECTION64_PATH")
    if reason is not None:
        yield Row("NVTX", False, "", reason, "pip install nvidia-nvtx, then build cprofiling again")
    elif is_heard:
        yield Row("NVTX", True, "a tool listens")
    elif tool:
        advice = "unset NVTX_INJECTION64_PATH, or start the program by the tool that set it"
        yield Row("NVTX", False, "", f"the tool in NVTX_INJECTION64_PATH does not start: {tool}", advice)
    else:
        yield Row("NVTX", True, "built in; no tool listens now")


# ---- NVIDIA's tools


def tool_rows(name: str) -> Iterable[Row]:
    """Yield rows on a tool's path and version."""
    found = tools.find_tool(name)
    if found is None:
        why, advice = tools.missing(name).split("; ", 1)
        yield Row(name, False, "", why, advice)
        return
    path = shutil.which(found) or found
    output, fault = _output_of([path, "--version"])
    version = re.search(r"[Vv]ersion:? +([0-9][\w.-]*)", output)
    if fault is None and version is not None:
        yield Row(name, True, f"{version[1]}, {path}")
    else:
        why = fault or "asked for its version, it tells none"
        yield Row(name, False, path, why, "install it anew, or take this one away")


def gpu_counter_rows() -> Iterable[Row]:
    """Yield a row on users' access to GPU counters, if the driver tells."""
    setting = re.search(r"^RmProfilingAdminOnly: *(\d+)", text_of("proc/driver/nvidia/params") or "", re.MULTILINE)
    if setting is None:
        return
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)", text_of("proc/self/status") or "", re.MULTILINE)
    if setting[1] == "0" or (effective is not None and int(effective[1], 16) & _SYS_ADMIN):
        yield Row("GPU counters", True, "ncu may read them")
    else:
        why = "the driver lets only administrators read the GPU's counters, which ncu does"
        advice = (
            "load the kernel's module with NVreg_RestrictProfilingToAdminUsers=0, or run ncu with CAP_SYS_ADMIN "
            "(docker run --cap-add SYS_ADMIN)"
        )
        yield Row("GPU counters", False, "", why, advice)


# ---- The CPU's counters


def perf_rows() -> Iterable[Row]:
    """Yield rows on CPU counters, joined by reason, and kernel settings."""
    groups: dict[str | None, list[str]] = {}
    for name, _, reason in _core.perf_status():
        groups.setdefault(reason, []).append(name)
    for reason, names in groups.items():
        advice = "" if reason is None else perf_advice(reason)
        yield Row("counters", reason is None, ", ".join(names), reason or "", advice)
    settings = []
    for name in ("perf_event_paranoid", "kptr_restrict"):
        text = text_of(f"proc/sys/kernel/{name}")
        settings.append(f"{name} {'unknown' if text is None else text.strip() or 'empty'}")
    yield Row("perf events", None, f"hardware events are read by system calls; {', '.join(settings)}")


def perf_advice(reason: str) -> str:
    """Return advice on a counter refused for this reason."""
    if any(word in reason for word in _NOT_OFFERED):
        return "take a machine that shows its processor's counters: no virtual one, or one with a virtual PMU"
    level = re.match(r"\s*(-?\d{1,9})\s*$", text_of("proc/sys/kernel/perf_event_paranoid") or "")
    if level is not None and int(level[1]) > 2:
        return "sysctl kernel.perf_event_paranoid=2, or give the program CAP_PERFMON"
    if in_container() and any(word in reason for word in (*_NOT_ALLOWED, "ENOSYS")):
        return "let the container call perf_event_open: docker run --cap-add PERFMON, or a seccomp profile that has it"
    if any(word in reason for word in _NOT_ALLOWED):
        return "give the program CAP_PERFMON, or have what restricts it (SELinux, seccomp) let perf_event_open pass"
    if any(word in reason for word in _SHORT_OF):
        return "free what is short, and ask again: open files (ulimit -n), memory, or the counters themselves"
    return "ask for fewer hardware counters at once, or take a newer kernel"


# ---- PyTorch


def torch_rows() -> Iterable[Row]:
    """Yield a row on PyTorch, by its files, without importing it."""
    spec = util.find_spec("torch")
    if spec is None:
        yield Row("torch", False, "", "it is not installed", "pip install torch, if the program is to use it")
        return
    text = text_of(os.path.join(os.path.dirname(spec.origin), "version.py")) if spec.origin else None
    kinds = []
    for name, word in _BUILT_FOR:
        found = re.search(rf"^{name}\b[^=\n]*= *'([^'\n]*)'", text or "", re.MULTILINE)
        kinds += [f"{word} {found[1]}"] if found else []
    loaded = ", imported" if "torch" in sys.modules else ""
    version = "of an unknown version"
    with contextlib.suppress(metadata.PackageNotFoundError):
        version = metadata.version("torch") or version
    yield Row("torch", True, f"{version}, for {' and '.join(kinds) or 'the CPU'}{loaded}")


# ---- Files of the system


def text_of(path: str) -> str | None:
    """Return the text of a system file below ROOT, or None."""
    try:
        with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def in_container() -> bool:
    """Return whether this process seems to be in a container."""
    return any(os.path.exists(os.path.join(ROOT, name)) for name in (".dockerenv", "run/.containerenv")) or (
        re.search(r"docker|kubepods|containerd|lxc", text_of("proc/1/cgroup") or "") is not None
    )
