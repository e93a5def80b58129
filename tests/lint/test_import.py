"""``import cprofiling`` loads little, and does nothing (failure scenarios G10, G11)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cprofiling
from cprofiling import _build, _core

pytestmark = pytest.mark.lint

FOLDER = Path(cprofiling.__file__).parents[1]
# What would take longer to load than the package itself, or is a sign that something is done at import.
TOO_MUCH = {
    "argparse", "asyncio", "concurrent", "ctypes", "decimal", "email", "fractions", "http", "json", "logging",
    "multiprocessing", "random", "shutil", "signal", "ssl", "statistics",
    "subprocess", "tempfile", "threading", "traceback", "unittest", "uuid",
}  # fmt: skip
BASELINE = "import contextvars, dataclasses, enum, os, sys"
# Prints what the import changed in the process, and what it did by the audit events of the interpreter.
PROBE = f"""
{BASELINE}

def seen():
    return {{
        "modules": sorted(sys.modules),
        "descriptors": sorted(os.listdir("/proc/self/fd")),
        "threads": os.listdir("/proc/self/task"),
        "environment": dict(os.environ),
    }}

events = []
before = seen()
sys.addaudithook(lambda name, arguments: events.append((name, [str(argument) for argument in arguments])))
import cprofiling
done = list(events)
import json
print(json.dumps([before, seen(), done]))
"""
# Calls by which the traces show where the import begins and ends.
MARKED = f"""
{BASELINE}

def mark():
    try:
        os.open("/marked", os.O_RDONLY)
    except OSError:
        pass

mark()
import cprofiling
mark()
"""
# The interpreter's own, of every import, and what types.coroutine() does; all else would be ours.
QUIET_EVENTS = (
    "builtins.id",
    "code.__new__",
    "compile",
    "cpython.",
    "exec",
    "function.__new__",
    "import",
    "marshal.",
    "object.",
    "os.listdir",
    "sys._get",
)


def interpreter(code: str, *prefix: str, folder: Path | None = None) -> str:
    """Run code in an interpreter that loads nothing by itself, and return its output."""
    environment = {**os.environ, "PYTHONPATH": str(FOLDER)}
    command = [*prefix, sys.executable, "-S", "-B", "-W", "error", "-c", code]
    return subprocess.run(command, env=environment, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture(autouse=True, scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have the package as it is when installed: in a checkout its import reads the sources of the extension."""
    folder = tmp_path_factory.mktemp("installed")
    shutil.copytree(FOLDER / "cprofiling", folder / "cprofiling", ignore=shutil.ignore_patterns("__pycache__"))
    set_build(folder, _core.BUILD)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[__name__], "FOLDER", folder)
        yield


def set_build(folder: Path, build: str) -> None:
    """Say in a package which sources it is for, as setup.py does."""
    file = folder / "cprofiling" / "_build.py"
    text, changed = re.subn("(?m)^ID.*", f'ID = "{build}"', file.read_text())
    assert changed == 1
    file.write_text(text)


@pytest.fixture(scope="module")
def observed() -> tuple[dict[str, list[str]], dict[str, list[str]], list[tuple[str, list[str]]]]:
    before, after, events = json.loads(interpreter(PROBE))
    return before, after, events


Observed = tuple[dict[str, list[str]], dict[str, list[str]], list[tuple[str, list[str]]]]


def test_it_loads_the_standard_library_only_and_not_much_of_it(observed: Observed) -> None:
    before, _, events = observed
    loaded = {arguments[0].partition(".")[0] for name, arguments in events if name == "import"}
    assert "cprofiling" in loaded
    assert loaded - set(sys.stdlib_module_names) == {"cprofiling"}
    assert (loaded & TOO_MUCH) - {name.partition(".")[0] for name in before["modules"]} == set()


def test_it_leaves_nothing_open_and_starts_nothing(observed: Observed) -> None:
    before, after, _ = observed
    for what in ("descriptors", "threads", "environment"):
        assert after[what] == before[what]


def test_it_opens_modules_only(observed: Observed) -> None:
    _, _, events = observed
    others = [event for event in events if not event[0].startswith((*QUIET_EVENTS, "open"))]
    assert others == []
    opened = [arguments for name, arguments in events if name == "open"]
    assert opened
    assert [arguments for arguments in opened if not arguments[0].endswith((".py", ".pyc", ".so"))] == []
    assert {arguments[1] for arguments in opened} <= {"r", "rb", "None"}


def test_the_system_sees_modules_opened_only(tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("there is no strace on this machine")
    trace = tmp_path / "trace"
    calls = "trace=open,openat,creat,socket,connect,bind,clone,clone3,fork,vfork,execve,memfd_create"
    try:
        interpreter(MARKED, strace, "-f", "-qq", "-e", calls, "-o", str(trace))
    except subprocess.CalledProcessError as error:
        pytest.skip(f"strace may not trace here: {error.stderr.strip()}")
    inside = trace.read_text().split('"/marked"')[1].splitlines()[1:-1]
    opened = re.compile(r'\d+ +openat\(AT_FDCWD, "[^"]*(\.pyc?|\.so|/[\w.-]+)", O_RDONLY\S*(\) = |, .*)').match
    assert any("_core." in line for line in inside)
    assert [line for line in inside if not opened(line)] == []
    files = [re.sub(r'.*AT_FDCWD, "([^"]*)".*', r"\1", line) for line in inside if "O_DIRECTORY" not in line]
    assert [name for name in files if not re.search(r"\.(pyc?|so)(\.\d+)*$", name)] == []


def test_an_extension_of_another_build_is_refused() -> None:
    set_build(FOLDER, "01234567")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        interpreter("import cprofiling")
    said = f"is of build {_core.BUILD}, the package is for 01234567: reinstall cprofiling"
    assert caught.value.stderr.endswith(f"{said}\n")
    set_build(FOLDER, _core.BUILD)
    assert interpreter("import cprofiling") == ""


def test_a_checkout_whose_c_sources_were_changed_wants_a_build(tmp_path: Path) -> None:
    checkout = Path(__file__).parents[2]
    assert _build.of_sources(str(checkout)) == _core.BUILD, "the package that is tested is of other sources: build it"
    for part in ("cprofiling", "csrc", "python/cprofiling"):
        shutil.copytree(checkout / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    for built in FOLDER.glob("cprofiling/_core.*"):
        shutil.copy(built, tmp_path / "python/cprofiling")
    package = tmp_path / "python"
    (package / "cprofiling/_startup.py").write_text("def start(): print('changed')\n")
    code = f"import sys; sys.path.insert(0, {str(package)!r}); import cprofiling"
    assert interpreter(code) == "changed\n"
    (tmp_path / "csrc/module.c").write_text("")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        interpreter(code)
    assert caught.value.stderr.endswith("build it anew: python setup.py build_ext --inplace --force\n")


@pytest.mark.parametrize("flags", [["-I"], ["-E", "-s"], ["-OO"], ["-X", "dev"]], ids=" ".join)
def test_it_works_with_the_interpreter_locked_up(flags: list[str], tmp_path: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(FOLDER)!r}); import cprofiling; print(cprofiling.profiling_enabled())"
    command = [sys.executable, *flags, "-S", "-W", "error", "-c", code]
    home = {name: value for name, value in os.environ.items() if name.startswith("LD_")} | {"HOME": "/nonexistent"}
    done = subprocess.run(command, env=home, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")
    assert list(tmp_path.iterdir()) == []


def test_many_threads_may_import_it_at_once() -> None:
    code = (
        "import sys, threading\n"
        "gate, names = threading.Barrier(32), []\n"
        "def load():\n"
        "    gate.wait()\n"
        "    import cprofiling\n"
        "    names.append(cprofiling.Profiler().get_profiling_summary())\n"
        "threads = [threading.Thread(target=load) for _ in range(32)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
        "print(names == [[]] * 32)\n"
    )
    assert interpreter(code) == "True\n"
