"""The command ``attach``: programs that run are measured, and left as they were."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
from calls import IS_EMULATED, NEVER
from command import COMMAND, PACKAGE
from cprofiling import live
from cprofiling.commands import attach, main
from foreign import ATTACKER, skip_without_others

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(IS_EMULATED, reason="the processes are those of the emulator"),
]
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("CPROFILING_")},
    "PYTHONPATH": PACKAGE,
}
PROGRAM = """
import sys, threading, time
import cprofiling as cp
import stages
from stages import decode

@cp.profile_node
def step():
    time.sleep(0.001)

def plain():
    return 1

class Pipeline(cp.PipelineProfiling):
    def forward(self):
        with self.profile_node("inside"):
            return decode()

    def other(self):
        return 2

held = [plain]

def loop():
    pipeline = Pipeline()
    print("ready", flush=True)
    try:
        while True:
            step(), held[0](), stages.encode(), pipeline.forward(), pipeline.other()
    except KeyboardInterrupt:
        pass
    print([thread.name for thread in threading.enumerate() if type(thread) is not threading.Thread])
    print(type(plain).__name__, type(stages.encode).__name__, type(decode).__name__, type(Pipeline.other).__name__)
    print(cp.profiling_enabled(), pipeline.profiling_enabled, len(sys.meta_path) - finders)
    assert sys.getswitchinterval() == turn

finders, turn = len(sys.meta_path), sys.getswitchinterval()
loop()
"""
STAGES = """
def decode():
    return 3

def encode():
    return 4
"""
BUSY = "import sys, time\nprint('ready', flush=True)\nwhile True: time.sleep(0.001)"
# In a call of C until its input ends; then code of Python.
WAITS = """
import os, sys, time
print('ready', flush=True)
os.read(0, 1)
for _ in range(200):
    time.sleep(0.001)
print('cprofiling' in sys.modules)
"""
COUNTS = """
import sys, time
import cprofiling as cp
@cp.profile_node
def step(): time.sleep(0.001)
"""
needs_remote_exec = pytest.mark.skipif(not hasattr(sys, "remote_exec"), reason="sys.remote_exec came with Python 3.14")


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start programs that say that they are ready, and end them."""
    running = []

    def begin(code: str, *options: str, **settings: Any) -> subprocess.Popen[str]:
        (tmp_path / "stages.py").write_text(STAGES)
        program = subprocess.Popen(
            [sys.executable, *options, "-c", code],
            **{"env": {**ENVIRONMENT, "PYTHONPATH": f"{PACKAGE}:{tmp_path}"}, **settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        running.append(program)
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        return program

    yield begin
    for program in running:
        program.kill()
        program.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for temporary files, of the command alone."""
    made = tmp_path / "temporary"
    made.mkdir()
    return made


def given(*arguments: object, folder: Path, status: int = 0, **settings: Any) -> list[str]:
    """Give the command, and return the lines of both of its outputs."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        env={**ENVIRONMENT, "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=NEVER,
        check=False,
        **settings,
    )
    assert done.returncode == status, done.stderr
    lines = (done.stdout + done.stderr).splitlines()
    return [line for line in lines if not line.endswith(": waiting for 30 s")]  # where the machine has much to do


def ended(program: subprocess.Popen[str]) -> list[str]:
    """Interrupt a program, and return what it has printed since it was ready."""
    program.send_signal(signal.SIGINT)
    return program.communicate(timeout=NEVER)[0].splitlines()


def counts(path: Path, wanted: set[str]) -> dict[str, int]:
    """Return how often nodes were called, once all of these were."""
    until = time.monotonic() + NEVER
    while time.monotonic() < until:
        parts = live.read(path).parts
        found = {f"{part.label}: {row.node_name}": row.count for part in parts for row in part.summary if row.count}
        if found.keys() >= wanted:
            return found
        time.sleep(0.01)
    raise AssertionError(f"only {found} were called")


@needs_remote_exec
def test_a_program_is_measured_and_left_as_it_was(begun: Any, folder: Path) -> None:
    program = begun(PROGRAM)
    path = folder / f"cprofiling-{program.pid}.cprof"
    said = given("attach", program.pid, "-n", "__main__", "-n", "stages", "-n", "lost", folder=folder)
    assert said == [
        f"process {program.pid} is measured: 3 Profilers on, 5 functions named by -n",
        f"watch it:      cprofiling top {path}",
        f"switch it off: cprofiling attach {program.pid} --off",
        "cprofiling: -n 'lost' matched nothing: no module 'lost'",
        "cprofiling: running now, counted from their next call on: '__main__:loop'",
        "cprofiling: not covered, as others hold the functions already: '__main__:plain in a list'",
    ]
    wanted = {"default: step", "Pipeline: inside", "named: decode", "named: encode", "named: Pipeline.other"}
    assert set(counts(path, wanted)) == wanted
    assert path.stat().st_mode & 0o777 == 0o600
    assert given("top", program.pid, "--updates", "1", folder=folder)[0].startswith(f"process {program.pid}, running")
    assert given("attach", program.pid, folder=folder) == said[:3]
    fewer = given("attach", program.pid, "-n", "stages:decode", folder=folder)
    assert fewer[0] == f"process {program.pid} is measured: 3 Profilers on, 1 function named by -n"
    off = given("attach", program.pid, "--off", folder=folder)
    assert off == [f"process {program.pid} is as it was before", f"complete: {path}"]
    assert live.read(path).state == "ended"
    assert given("attach", program.pid, "--off", folder=folder, status=1) == [
        f"cprofiling: process {program.pid}: nothing was attached"
    ]
    assert ended(program) == [
        "['MainThread']",
        "function function function function",
        "False False 0",
    ]
    assert program.returncode == 0
    assert list(folder.iterdir()) == [path]


@needs_remote_exec
def test_a_program_without_nodes(begun: Any, folder: Path) -> None:
    program = begun(BUSY)
    first, *_, last = given("attach", program.pid, "--live", folder / "a b", folder=folder)
    assert first.endswith("1 Profiler on, 0 functions named by -n")
    assert last.endswith("it has no nodes of its own: name functions by -n")
    assert live.read(folder / "a b").state == "running"


@needs_remote_exec
def test_what_the_program_has_set_stays(begun: Any, folder: Path) -> None:
    code = f"""{COUNTS}
cp.set_profiling(True, skip_first_n=3, live={str(folder / "own")!r})
print("ready", flush=True)
try:
    while True: step()
except KeyboardInterrupt:
    [row] = cp.get_profiling_summary()
    print(cp.profiling_enabled(), row.skipped_count, row.count > 0)
"""
    program = begun(code)
    assert given("attach", program.pid, folder=folder)[1].endswith(f"cprofiling top {folder / 'own'}")
    given("attach", program.pid, "--off", folder=folder)
    assert live.read(folder / "own").state == "running"
    assert ended(program) == ["True 3 True"]


@needs_remote_exec
def test_a_worker_that_was_forked(begun: Any, folder: Path) -> None:
    code = f"""{COUNTS}
import os, signal
worker = os.fork()
if worker:
    print("ready", flush=True)
    print(worker, flush=True)
    sys.stdin.read()
    os.kill(worker, signal.SIGKILL)
else:
    while True: step()
"""
    program = begun(code)
    worker = int(program.stdout.readline())
    given("attach", worker, folder=folder)
    assert counts(folder / f"cprofiling-{worker}.cprof", {"default: step"})
    assert given("top", program.pid, folder=folder, status=1)
    assert program.communicate(timeout=NEVER)[0] == ""


@needs_remote_exec
def test_a_program_that_has_a_live_file(begun: Any, folder: Path) -> None:
    program = begun(f"{COUNTS}\nprint('ready', flush=True)\nwhile True: step()",
        env={**ENVIRONMENT, "CPROFILING_LIVE": str(folder / "own")})  # fmt: skip
    assert given("attach", program.pid, folder=folder)[1].endswith(f"cprofiling top {folder / 'own'}")
    assert given("attach", program.pid, "--off", folder=folder) == [f"process {program.pid} is as it was before"]
    assert live.read(folder / "own").state == "running"
    assert list(folder.iterdir()) == [folder / "own"]


@needs_remote_exec
def test_a_server(begun: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("grpc_reflection")
    program = begun(PROGRAM)
    monkeypatch.chdir(folder)
    said = given("attach", program.pid, "--server", "unix:s", "-n", "stages", "-s", "x=__main__:held", folder=folder)
    assert said[1] == f"serving on unix:{folder / 's'}"
    assert said[3:] == [f"switch it off: cprofiling attach {program.pid} --off"]
    shown = given("top", f"unix:{folder / 's'}", "--session", "nodes", "--updates", "1", folder=folder)
    assert shown[0].endswith("profiling on")
    twice = given("attach", program.pid, "--server", "127.0.0.1:0", folder=folder, status=1)
    assert twice[0].endswith(f"it serves on unix:{folder / 's'} already: give --off first")
    given("attach", program.pid, "--off", folder=folder)
    assert not any(folder.iterdir())
    refused = given("attach", program.pid, "--server", "0.0.0.0:0", folder=folder, status=1)
    assert "can be reached from other machines" in refused[0]
    assert ended(program)[-1] == "False False 0"


@needs_remote_exec
def test_a_failure_leaves_the_program_as_it_was(begun: Any, folder: Path) -> None:
    program = begun(PROGRAM)
    (folder / "x").write_text("no live file")
    said = given("attach", program.pid, "-n", "stages", "--live", folder / "x", folder=folder, status=1)
    assert said == [
        f"cprofiling: process {program.pid}: OSError: {str(folder / 'x')!r}: there is a file that is no live file"
    ]
    said = given("attach", program.pid, "--live", "/dev/null", folder=folder, status=1)
    assert "ValueError: live must be the path of a regular file" in said[0]
    assert ended(program)[1:] == ["function function function function", "False False 0"]


# ---- The main thread runs no code of Python


@needs_remote_exec
def test_it_waits_for_the_main_thread(begun: Any, folder: Path) -> None:
    program = begun(WAITS)
    late = given("attach", program.pid, "--timeout", "0.2", folder=folder, status=1)
    assert re.fullmatch(
        rf"cprofiling: process {program.pid} runs no Python code in its main thread, which waits in a call of C"
        r"( at <string>:4 \(<module>\))?, for 0.2 s: nothing was changed, and nothing will be; --timeout waits longer",
        late[0],
    )
    assert not any(folder.iterdir())
    assert program.communicate("\n", timeout=NEVER)[0] == "False\n"


@needs_remote_exec
def test_it_says_that_it_waits(begun: Any, folder: Path) -> None:
    program = begun(WAITS)
    with _waiting(program, folder) as command:
        program.stdin.write("\n")
        program.stdin.flush()
        _, err = command.communicate(timeout=NEVER)
    assert command.returncode == 0, err
    assert program.communicate(timeout=NEVER)[0] == "True\n"


@needs_remote_exec
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_command_that_is_ended_changes_nothing_later(begun: Any, folder: Path, how: signal.Signals) -> None:
    program = begun(WAITS)
    with _waiting(program, folder) as command:
        command.send_signal(how)
        _, err = command.communicate(timeout=NEVER)
    if how == signal.SIGINT:
        assert command.returncode == 130
        assert err == "cprofiling: interrupted: nothing was changed, and nothing will be\n"
        assert not any(folder.iterdir())
    assert program.communicate("\n", timeout=NEVER)[0] == "False\n"
    assert not any(folder.iterdir())


def _waiting(program: subprocess.Popen[str], folder: Path) -> subprocess.Popen[str]:
    """Start the command, and return it once it says that it waits."""
    command = subprocess.Popen(
        [*COMMAND, "attach", str(program.pid)],
        env={**ENVIRONMENT, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert command.stderr is not None
    assert command.stderr.readline().endswith(": waiting for 30 s\n")
    return command


@needs_remote_exec
def test_a_program_that_ends_meanwhile(begun: Any, folder: Path) -> None:
    program = begun("import os\nprint('ready', flush=True)\nos.read(0, 1)\nos._exit(0)")
    with _waiting(program, folder) as command:
        program.communicate("\n")
        assert command.communicate(timeout=NEVER)[1] == f"cprofiling: process {program.pid} has ended meanwhile\n"
    assert not any(folder.iterdir())


@needs_remote_exec
def test_one_command_at_a_time(begun: Any, folder: Path) -> None:
    program = begun(WAITS)
    with _waiting(program, folder) as command:
        other = given("attach", program.pid, folder=folder, status=1)
        assert other == [f"cprofiling: another 'cprofiling attach {program.pid}' is at work: wait for its end"]
        command.send_signal(signal.SIGINT)
        command.communicate(timeout=NEVER)


# ---- Processes that cannot be attached to


@needs_remote_exec
def test_a_program_that_forbids_it(begun: Any, folder: Path) -> None:
    for options, variables in [
        (["-X", "disable-remote-debug"], {}),
        ([], {"PYTHON_DISABLE_REMOTE_DEBUG": "1"}),
    ]:
        program = begun(BUSY, *options, env={**ENVIRONMENT, **variables})
        [line] = given("attach", program.pid, folder=folder, status=1)
        assert line.startswith(f"cprofiling: process {program.pid} does not let others in (PYTHON_DISABLE_REMOTE_DEBUG")


@needs_remote_exec
def test_a_program_that_cannot_import_this_package(begun: Any, folder: Path) -> None:
    program = begun(BUSY, "-I", "-S", cwd="/")
    [line] = given("attach", program.pid, folder=folder, status=1)
    assert line.startswith(f"cprofiling: process {program.pid} cannot import cprofiling: install it there, ")
    assert line.endswith(" -m pip install cprofiling")


@needs_remote_exec
def test_a_process_that_is_no_python(folder: Path) -> None:
    with subprocess.Popen(["sleep", str(NEVER)]) as other:
        [line] = given("attach", other.pid, folder=folder, status=1)
        other.kill()
    assert line.startswith(f"cprofiling: process {other.pid} (")
    assert line.endswith(") is no CPython 3.14 or later")


@needs_remote_exec
def test_other_users(begun: Any, folder: Path) -> None:
    skip_without_others()
    mine = begun(BUSY)
    as_other = {"user": ATTACKER, "group": ATTACKER, "extra_groups": []}
    try:
        theirs = begun(f"{COUNTS}\nprint('ready', flush=True)\nwhile True: step()", cwd="/", **as_other)
    except (AssertionError, OSError):
        pytest.skip("other users cannot run this Python")
    [line] = given("attach", mine.pid, folder=folder, status=1, cwd="/", **as_other)
    assert line == f"cprofiling: the system does not permit to look into process {mine.pid}: use sudo"
    path = Path(re.findall(r"cprofiling top (.*)", given("attach", theirs.pid, folder=folder)[1])[0])
    try:
        assert counts(path, {"default: step"})
        assert path.stat().st_uid == ATTACKER
    finally:
        path.unlink()


@pytest.mark.parametrize(("minor", "complaint"), [
    (99, r"process {pid} runs CPython 3.99, this command 3.\d+: {path} -m cprofiling attach {pid}"),
    (13, r"process {pid} runs CPython 3.13, and attaching needs 3.14 or later: start the program with "
         "CPROFILING_LIVE=PATH, or by 'cprofiling serve'"),
])  # fmt: skip
def test_another_version_of_python(minor: int, complaint: str, folder: Path) -> None:
    path = shutil.copy(shutil.which("sleep") or "", folder / f"python3.{minor}")
    with subprocess.Popen(["sleep", str(NEVER)], executable=path) as other:
        [line] = given("attach", other.pid, folder=folder, status=1)
        other.kill()
    assert re.fullmatch(f"cprofiling: {complaint}".format(pid=other.pid, path=re.escape(str(path))), line)


def test_a_python_that_cannot_attach(
    begun: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(sys, "remote_exec", raising=False)
    program = begun(BUSY)
    assert main.main(["attach", str(program.pid)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    own = f"3.{sys.version_info.minor}"
    assert f"attaching needs CPython 3.14 or later, here and in the program; this is {own}" in printed.err or (
        f"runs CPython {own}, and attaching needs 3.14 or later" in printed.err
    )


def test_processes_that_are_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen(["true"]) as gone:
        os.waitid(os.P_PID, gone.pid, os.WEXITED | os.WNOWAIT)
        for pid, complaint in [
            (gone.pid, f"there is no process {gone.pid}"),
            (os.getpid(), f"process {os.getpid()} is this command itself"),
        ]:
            assert main.main(["attach", str(pid)]) == 1
            assert capsys.readouterr().err == f"cprofiling: {complaint}\n"


@pytest.mark.parametrize(("arguments", "complaint"), [
    ((), "required: PID"),
    (("x",), "expected a whole number from 1 to 2147483647, got 'x'"),
    (("5", "--timeout", "0"), "expected a number of seconds from 0.1 to 86400, got '0'"),
    (("5", "--off", "-n", "a"), "--off undoes all, and goes with --timeout only"),
    (("5", "--no-token"), "options of a server need --server ADDRESS"),
    (("5", "--server", "unix:s", "--tls-key", "k"), "--tls-cert and --tls-key belong together"),
])  # fmt: skip
def test_wrong_arguments(arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main.main(["attach", *arguments])
    assert exit_.value.code == 2
    assert complaint in capsys.readouterr().err


def test_with_a_stand_in_for_the_interpreter(
    begun: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What does not depend on CPython 3.14: the script, its answer, and what is done in the program."""
    stand_in = f"""
import signal
def run(*_):
    with open({str(folder / "path")!r}) as file, open(file.read()) as script:
        exec(script.read(), {{}})
signal.signal(signal.SIGUSR1, run)
"""

    def remote_exec(pid: int, script: str) -> None:
        (folder / "path").write_text(script)
        os.kill(pid, signal.SIGUSR1)

    program = begun(stand_in + PROGRAM)
    path = folder / "live"
    monkeypatch.setattr(sys, "remote_exec", remote_exec, raising=False)
    monkeypatch.setattr(attach, "OLDEST", 10)
    assert main.main(["attach", str(program.pid), "-n", "__main__", "--live", str(path)]) == 0
    assert "3 Profilers on, 4 functions named by -n" in capsys.readouterr().out
    wanted = {"default: step", "Pipeline: inside", "named: Pipeline.other"}
    assert set(counts(path, wanted)) >= wanted
    assert main.main(["attach", str(program.pid), "--off"]) == 0
    assert ended(program)[-1] == "False False 0"
    assert cp.profiling_enabled() is False
