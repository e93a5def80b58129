"""The C programs of tests/core, one test for each and each flavour of build: plain, with sanitizers, for aarch64.

A program is a file ``test_<unit>.c``. It is linked with the whole core, and with ``--wrap`` for each function that it
replaces by WRAP (check.h). It passes when it ends with status 0; what it says otherwise is the
test's message.

With CPROFILING_COVERAGE=1 there is one flavour instead, built for gcov below build/core-coverage; the counts stay.
To see them, in the project's folder: ``gcovr --filter cprofiling/ build/core-coverage``, or for one unit
``gcov --branch-counts --stdout build/core-coverage/coverage/accum.o``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from nvtx_headers import nvtx_include

pytestmark = pytest.mark.core

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {path.stem.removeprefix("test_"): path for path in sorted((ROOT / "tests" / "core").rglob("test_*.c"))}
PROGRAMS = list(SOURCES)
NVTX = nvtx_include()
UNITS = {path.stem: path for path in sorted((ROOT / "cprofiling").rglob("*.c"))}
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror"]
COMMON = ["-std=c11", "-I.", "-ffp-contract=off", "-pthread", *WARNINGS]
# Programs that load a fake library.
DRIVEN = ["event", "wait"]
LOADERS = {*DRIVEN, "cupti"}
STRIPED = {"accum", "registry", "stress", "stripes"}
CUDA_PROGRAMS = {*LOADERS, "cupti_library"}
WRAPPED = re.compile(r"^WRAP(?:_REAL)?\([^,]+, (\w+)", re.MULTILINE)
WORKERS = 2
LIMIT_S = 300

# Where a program takes long: its argument.
ARGUMENTS = {
    ("billion", "aarch64"): "20000",
    ("counters", "aarch64"): "300",
    ("counters", "asan"): "3000",
    ("counters", "tsan"): "500",
    ("cupti", "asan"): "11",
    ("cupti", "tsan"): "11",
    ("event", "asan"): "5",
    ("event", "tsan"): "2",
    ("process", "aarch64"): "20",
    ("process", "asan"): "100",
    ("process", "tsan"): "100",
    ("snapshot", "tsan"): "threads",
    ("stress", "aarch64"): "100",
    ("stress", "tsan"): "2000",
    ("thread", "aarch64"): "20",
    ("thread", "tsan"): "5",
    ("recording", "aarch64"): "2000",
    ("recording", "asan"): "20000",
    ("recording", "tsan"): "2000",
}


class Flavour(NamedTuple):
    """One way to build and run."""

    name: str
    flags: list[str]
    compiler: str = "gcc"
    runner: tuple[str, ...] = ()

    def takes(self, program: str) -> bool:
        """Whether the program has something to show here."""
        if self.name == "striped":
            return program in STRIPED
        if program == "stripes":
            return False
        if self.name == "tsan":
            return re.search(r"check_(?:in_)?threads?\(|pthread_create\(", text_of(program)) is not None
        return program not in CUDA_PROGRAMS or self.name != "aarch64"  # ours are linked statically there

    @property
    def marks(self) -> list[pytest.MarkDecorator]:
        """The mark by which a run chooses the flavour; those that every run has are without."""
        sanitizer = "tsan" if self.name == "striped" else self.name
        return [getattr(pytest.mark, sanitizer)] if sanitizer in ("asan", "tsan", "aarch64") else []


SANITIZED = ["-O1", "-g1", "-fno-omit-frame-pointer"]  # so that it can tell the lines
FLAVOURS = [
    Flavour("plain", ["-O2"]),
    Flavour("asan", [*SANITIZED, "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]),
    Flavour("tsan", [*SANITIZED, "-fsanitize=thread"]),
    Flavour("striped", [*SANITIZED, "-fsanitize=thread", "-DCPROF_STRIPES=8"]),  # as for builds without the GIL
    Flavour("aarch64", ["-O2", "-static"], "aarch64-linux-gnu-gcc", ("qemu-aarch64",)),
]
COVERAGE = Flavour("coverage", ["-O0", "--coverage", "-fprofile-update=atomic"])
if os.environ.get("CPROFILING_COVERAGE"):
    FLAVOURS = [COVERAGE]

OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1",
    "TSAN_OPTIONS": "allocator_may_return_null=1:halt_on_error=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def text_of(program: str) -> str:
    return SOURCES[program].read_text(encoding="utf-8")


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **OPTIONS, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=LIMIT_S,
        check=False,
    )


class Workshop:
    """Builds what is asked for, once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.core: dict[str, dict[str, Path]] = {}
        self.runners: dict[str, tuple[str, ...]] = {}

    def compile(self, flavour: Flavour, source: str, target: Path, *flags: str) -> Path:
        """An object file, program or library of the source, a path below the project's folder."""
        headers = ["-isystem", NVTX] if NVTX else []
        command = [flavour.compiler, *COMMON, *headers, *flavour.flags, source, *flags, "-o", str(target)]
        completed = run(command)
        assert completed.returncode == 0, completed.stdout
        return target

    def core_of(self, flavour: Flavour) -> dict[str, Path]:
        """The object files of the core, and of what the programs share, by unit."""
        if flavour.name not in self.core:
            sources = {unit: str(path.relative_to(ROOT)) for unit, path in UNITS.items()} | {
                "fake_alloc": "tests/core/fake_alloc.c"
            }
            targets = {unit: self.folder / flavour.name / f"{unit}.o" for unit in sources}
            (self.folder / flavour.name).mkdir(parents=True, exist_ok=True)
            with ThreadPoolExecutor(WORKERS) as pool:
                jobs = [pool.submit(self.compile, flavour, sources[unit], targets[unit], "-c") for unit in sources]
            for job in jobs:
                job.result()
            self.core[flavour.name] = targets
        return self.core[flavour.name]

    def program(self, flavour: Flavour, name: str) -> Path:
        """A runnable program."""
        core = self.core_of(flavour)
        objects = [str(core[unit]) for unit in [*UNITS, "fake_alloc"]]
        wrapped = [f"-Wl,--wrap={function}" for function in WRAPPED.findall(text_of(name))]
        target = self.folder / flavour.name / name
        return self.compile(flavour, str(SOURCES[name].relative_to(ROOT)), target, *objects, *wrapped, "-lm", "-ldl")

    def fake_driver(self, flavour: Flavour, name: str, *flags: str) -> Path:
        """A fake libcuda, of which the soname is what counts."""
        target = self.folder / flavour.name / name / "libcuda.so.1"
        if target.exists():
            return target
        target.parent.mkdir(parents=True)
        shared = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", *flags]
        return self.compile(flavour, "tests/fakes/fake_cuda.c", target, *shared)

    def fake_tool(self, flavour: Flavour) -> Path:
        """A tool that listens to NVTX."""
        target = self.folder / flavour.name / "fake_nvtx.so"
        return self.compile(flavour, "tests/fakes/fake_nvtx.c", target, "-shared", "-fPIC")

    def fake_cupti(self, flavour: Flavour, name: str, *flags: str) -> Path:
        """A fake libcupti."""
        target = self.folder / flavour.name / name / "libcupti.so.13"
        target.parent.mkdir(parents=True, exist_ok=True)
        shared = ["-shared", "-fPIC", "-Wl,-soname,libcupti.so.13", *flags]
        return self.compile(flavour, "tests/fakes/fake_cupti.c", target, *shared)

    def runner_of(self, flavour: Flavour) -> tuple[str, ...]:
        """What to put before a program of this flavour; skips the test when the machine cannot run any."""
        missing = [tool for tool in (flavour.compiler, *flavour.runner) if shutil.which(tool) is None]
        if missing:
            pytest.skip(f"not on PATH: {', '.join(missing)}")
        if flavour.name not in self.runners:
            self.runners[flavour.name] = self.find_runner(flavour)
        return self.runners[flavour.name]

    def find_runner(self, flavour: Flavour) -> tuple[str, ...]:
        """Tries the flavour out on the smallest program. Some sanitizers need addresses that are not randomised."""
        source = self.folder / f"{flavour.name}.c"
        source.write_text("int main(void)\n{\n    return 0;\n}\n", encoding="utf-8")
        target = self.folder / f"{flavour.name}.out"
        built = run([flavour.compiler, *flavour.flags, str(source), "-o", str(target)])
        if built.returncode != 0:
            pytest.skip(f"{flavour.compiler} cannot build for {flavour.name}: {built.stdout.strip().splitlines()[-1]}")
        for runner in (flavour.runner, ("setarch", "--addr-no-randomize")):
            if (not runner or shutil.which(runner[0])) and run([*runner, str(target)]).returncode == 0:
                return runner
        pytest.skip(f"programs built for {flavour.name} do not run on this machine")


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    if FLAVOURS != [COVERAGE]:
        yield Workshop(tmp_path_factory.mktemp("core"))
        return
    folder = ROOT / "build" / "core-coverage"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    yield Workshop(folder)


def arguments_of(program: str, flavour: Flavour) -> list[str]:
    return [ARGUMENTS[program, flavour.name]] if (program, flavour.name) in ARGUMENTS else []


def check_passes(command: list[str], **environment: str) -> None:
    completed = run(command, **environment)
    assert completed.returncode == 0, f"exit status {completed.returncode}\n{completed.stdout}"


@pytest.mark.parametrize(
    ("flavour", "program"),
    [
        pytest.param(flavour, program, id=f"{flavour.name}-{program}", marks=flavour.marks)
        for flavour in FLAVOURS
        for program in PROGRAMS
        if program not in LOADERS and flavour.takes(program)
    ],
)
def test_program(flavour: Flavour, program: str, workshop: Workshop) -> None:
    if program == "nvtx" and NVTX is None:
        pytest.skip("NVTX's headers are not installed")
    runner = workshop.runner_of(flavour)
    check_passes([*runner, str(workshop.program(flavour, program)), *arguments_of(program, flavour)])


@pytest.mark.parametrize("driver", ["", "-DFAKE_CUDA_OLD_DRIVER"], ids=["new_driver", "old_driver"])
@pytest.mark.parametrize(
    ("flavour", "program"),
    [
        pytest.param(flavour, program, id=f"{flavour.name}-{program}", marks=flavour.marks)
        for flavour in FLAVOURS
        for program in DRIVEN
        if flavour.takes(program)
    ],
)
def test_driven(flavour: Flavour, program: str, driver: str, workshop: Workshop) -> None:
    runner = workshop.runner_of(flavour)
    library = workshop.fake_driver(flavour, f"driver{driver}", *([driver] if driver else []))
    command = [*runner, str(workshop.program(flavour, program)), *arguments_of(program, flavour)]
    check_passes(command, CPROFILING_LIBCUDA=str(library))


@pytest.mark.skipif(NVTX is None, reason="NVTX's headers are not installed")
@pytest.mark.parametrize(
    "flavour",
    [pytest.param(flavour, id=flavour.name, marks=flavour.marks) for flavour in FLAVOURS if flavour.name != "aarch64"],
)
def test_nvtx_with_a_tool(flavour: Flavour, workshop: Workshop) -> None:
    runner = workshop.runner_of(flavour)
    tool = str(workshop.fake_tool(flavour))
    check_passes([*runner, str(workshop.program(flavour, "nvtx")), tool])


@pytest.mark.parametrize(
    "flavour",
    [pytest.param(flavour, id=flavour.name, marks=flavour.marks) for flavour in FLAVOURS if flavour.takes("cupti")],
)
def test_cupti(flavour: Flavour, workshop: Workshop) -> None:
    runner = workshop.runner_of(flavour)
    library = workshop.fake_cupti(flavour, "cupti_whole")
    incomplete = workshop.fake_cupti(flavour, "cupti_incomplete", "-DFAKE_CUPTI_INCOMPLETE")
    program = [*runner, str(workshop.program(flavour, "cupti")), *arguments_of("cupti", flavour)]
    check_passes(program, CPROFILING_LIBCUPTI=str(library), FAKE_CUPTI_INCOMPLETE=str(incomplete))


def test_there_are_programs() -> None:
    """Each room has programs of its own."""
    homes = {path.parent.relative_to(ROOT / "tests" / "core") for path in SOURCES.values()}
    missing = [name for name, path in UNITS.items() if path.parent.relative_to(ROOT / "cprofiling") not in homes]
    assert missing == [], "units of the core without a program in tests/core"
