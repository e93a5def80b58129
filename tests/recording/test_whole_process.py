"""CPROFILING_OUTPUT_PATH: a program is recorded without a change (failure scenarios D4, D7, D9, D11, D12, G12, G13)."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest

import cprofiling
from calls import NEVER, unwatched
from command import COMMAND, PACKAGE, Done, python
from cprofiling._internal import messages, process_exit
from cprofiling._internal import process as own_process
from cprofiling.recording import output_names, whole_process
from recorded import names_in_file

APP = """
import os, shutil, signal, sys, threading, time
import cprofiling as cp

@cp.profile_node("node")
def node(): pass

node()
"""


def environment(path: str, *, watched: bool = True, **more: str) -> dict[str, str]:
    """The environment of a recorded process. ``watched``: a tool may count its lines."""
    found = dict(os.environ) if watched else unwatched()
    return {**found, "PYTHONPATH": PACKAGE, "CPROFILING_OUTPUT_PATH": path, **more}


def run(code: str, folder: Path, path: str = "trace.json", *, watched: bool = True, **more: str) -> Done:
    """Run a program, which has a node and has called it, in a folder."""
    lines = "\n".join(line.removeprefix(" " * 8) for line in code.splitlines())
    (folder / "app.py").write_text(APP + lines + "\n")
    return python(["app.py"], folder, watched=watched, CPROFILING_OUTPUT_PATH=path, **more)


def left(folder: Path) -> list[str]:
    """What is in a folder beside the program."""
    return sorted(path.name for path in folder.iterdir() if path.name not in ("app.py", "__pycache__"))


@pytest.mark.parametrize(
    ("end", "status", "err"),
    [
        ("", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('said')", 1, "said"),
        ("raise ValueError('raised')", 1, "ValueError: raised"),
        ("signal.raise_signal(signal.SIGINT)", -signal.SIGINT, "KeyboardInterrupt"),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -signal.SIGTERM, ""),
        ("lock = threading.Lock(); lock.acquire(); os.kill(os.getpid(), 15); lock.acquire()", -signal.SIGTERM, ""),
        ("threading.Timer(0.1, os.kill, (os.getpid(), 15)).start(); time.sleep(60)", -signal.SIGTERM, ""),
    ],
)
def test_a_program_is_recorded_however_it_ends(end: str, status: int, err: str, tmp_path: Path) -> None:
    done = run(f"import atexit; atexit.register(node); print('out', flush=True)\n{end}", tmp_path)
    assert done.status == status
    assert done.out == "out\n"
    assert (done.err.splitlines() or [""])[-1] == err
    assert names_in_file(tmp_path / "trace.json") == (["node"] if status == -signal.SIGTERM else ["node", "node"])
    assert left(tmp_path) == ["trace.json"]
    assert (tmp_path / "trace.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("held", ["", "os.register_at_fork(before=node)"])
def test_calls_after_the_end_are_told(held: str, tmp_path: Path) -> None:
    """Functions of atexit run in reverse: after our end, if they were registered before the import."""
    (tmp_path / "app.py").write_text(
        "import atexit, os\n"
        "atexit.register(lambda: [node() for _ in range(5)])\n"
        "import cprofiling as cp\n"
        "node = cp.profile_node(lambda: None, name='node')\n"
        f"node()\n{held}\n"
    )
    done = python(["app.py"], tmp_path, watched=False, CPROFILING_OUTPUT_PATH="trace.json")
    assert (done.status, done.out) == (0, "")
    assert done.err.count("\n") == 1
    assert "without the calls and blocks after that: 5, in" in done.err
    assert names_in_file(tmp_path / "trace.json") == ["node"]


def test_a_handler_of_the_programs_own_is_left_alone(tmp_path: Path) -> None:
    code = """
        def handle(number, frame): raise SystemExit(number + 1)
        previous = signal.signal(signal.SIGTERM, handle)
        print(callable(previous))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    """
    assert run(code, tmp_path) == (16, "True\n", "")
    assert names_in_file(tmp_path / "trace.json") == ["node"]
    ignoring = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    (tmp_path / "sitecustomize.py").write_text(ignoring)
    code = "os.kill(os.getpid(), 15); print(signal.getsignal(15) is signal.SIG_IGN)"
    assert run(code, tmp_path, PYTHONPATH=f"{tmp_path}:{PACKAGE}") == (0, "True\n", "")


def test_a_server_that_handles_sigterm_and_ends_by_it(tmp_path: Path) -> None:
    """As uvicorn does: it imports the program when it has its handler, and restores the default action in the end."""
    program = f"""
import os, signal, time
handled = []
previous = signal.signal(signal.SIGTERM, lambda number, frame: handled.append(number))
{APP}
os.kill(os.getpid(), signal.SIGTERM)
print(handled, signal.getsignal(signal.SIGTERM) is previous, flush=True)
signal.signal(signal.SIGTERM, previous)
signal.raise_signal(signal.SIGTERM)
time.sleep(60)
"""
    (tmp_path / "server.py").write_text(program)
    done = python(["server.py"], tmp_path, watched=True, CPROFILING_OUTPUT_PATH="t.json")
    assert done == (-signal.SIGTERM, "[15] False\n", "")
    assert names_in_file(tmp_path / "t.json") == ["node"]


@pytest.mark.parametrize("case", ["at the end", "by a thread", "nobody reads"])
def test_sigterm_while_the_trace_is_written(case: str, tmp_path: Path) -> None:
    """Once, and twice at once, it waits for the trace; who sends another one later does not want to wait."""
    os.mkfifo(tmp_path / "pipe")
    thread = "threading.Thread(target=cp.profile().start).start(); time.sleep(0.1)\n" if case == "by a thread" else ""
    wait = "time.sleep(60)\n" if thread else ""
    (tmp_path / "app.py").write_text(f"{APP}{thread}print('ends', flush=True)\n{wait}")
    command = [sys.executable, "app.py"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment("pipe"), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.2)  # it waits for a reader of the pipe, as far as can be seen from here
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        if case == "nobody reads":
            time.sleep(process_exit._PATIENCE_S + 0.2)
            process.send_signal(signal.SIGTERM)
        else:
            assert names_in_file(tmp_path / "pipe") == ["node"]
        assert process.wait(NEVER) == -signal.SIGTERM


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "it is empty"),
        ("nowhere/trace.json", "No such file or directory"),
        ("app.py/trace.json", "Not a directory"),
        (".", "it is a folder"),
        ("new/", "it is a folder"),
        ("a\udcff.json", "it is not UTF-8"),
        ("a\n\x1b[31m/b", "No such file or directory"),
        ("x" * 100_000, "File name too long"),
        ("loop", "Too many levels of symbolic links"),
        ("$(touch hacked)", None),
    ],
)
def test_a_path_that_cannot_be_used_is_one_warning(path: str, reason: str | None, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    done = run("print('out'); sys.exit(4)", tmp_path, path)
    assert (done.status, done.out) == (4, "out\n")
    if reason is None:
        assert (done.err, names_in_file(tmp_path / path)) == ("", ["node"])
        return
    shown = ascii(path) if len(path) <= 80 else ascii(path[:80]) + "..."
    assert done.err == f"cprofiling: CPROFILING_OUTPUT_PATH={shown} cannot be used, so nothing is recorded: {reason}\n"
    assert left(tmp_path) == ["loop"]


def test_what_else_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reason(path: str) -> str:
        with pytest.raises(output_names.UnusablePathError) as caught:
            output_names.checked_path(path)
        return str(caught.value)

    assert reason("a\0b") == "it has a NUL"
    monkeypatch.setattr(os, "access", lambda *arguments, **more: False)
    assert reason(str(tmp_path / "new")) == "its folder is not writable"
    assert reason("/dev/null") == "it is not writable"
    monkeypatch.undo()
    assert reason("/dev/cprofiling-new") == reason("/proc/new") == "it is not writable"  # where no files are made
    monkeypatch.chdir(tmp_path)
    assert output_names.checked_path("new") == str(tmp_path / "new")
    tmp_path.rmdir()
    assert reason("new") == "No such file or directory"
    assert output_names.checked_path("/dev/null") == "/dev/null"


def test_a_trace_is_named_once_whatever_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **more: Any) -> None:
        raise OSError(errno.EIO, "no answer")

    made, name, free = tmp_path / "made", tmp_path / "name", tmp_path / "free"
    made.write_text("new")
    name.write_text("old")
    monkeypatch.setattr(os, "lstat", fail)  # then all files look the same
    assert not output_names.named(str(made), str(name))
    monkeypatch.undo()
    monkeypatch.setattr(os, "unlink", fail)
    assert output_names.named(str(made), str(free))
    assert [path.read_text() for path in (made, name, free)] == ["new", "old", "new"]


def test_a_folder_that_is_not_writable() -> None:
    nobody = 65534
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        is_root = os.geteuid() == 0  # who may write everywhere
        if is_root:
            os.seteuid(nobody)
        try:
            with pytest.raises(output_names.UnusablePathError, match="its folder is not writable"):
                output_names.checked_path(f"{folder}/new")
        finally:
            if is_root:
                os.seteuid(0)


# At its very end the process may write again: a build that counts what is executed then does.
SMALL_FILES = """
        import resource
        class Limit:
            def __init__(self): resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
            def __del__(self, resource=resource):
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        limit = Limit()
"""


@pytest.mark.parametrize(
    ("path", "code", "reason"),
    [
        ("/dev/full", "", "No space left on device"),
        ("sub/t.json", "os.mkdir('other'); shutil.rmtree('sub')", "No such file or directory"),
        ("sub/t.json", SMALL_FILES, "File too large"),
    ],
)
def test_a_path_that_fails_in_the_end_is_one_warning(path: str, code: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    done = run(f"{code}\nprint('out', flush=True)\nsys.exit(5)", tmp_path, path, watched="resource" not in code)
    shown = path if path.startswith("/") else f"{tmp_path}/{path}"
    assert done == (5, "out\n", f"cprofiling: the trace is not written to '{shown}': {reason}\n")
    assert [entry for entry in tmp_path.glob("sub/*") if entry.is_file()] == []


def test_the_path_is_that_of_the_start(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("untouched")
    (tmp_path / "trace.json.gz").symlink_to("victim")
    assert run("os.umask(0); os.chdir('/'); sys.stderr = None", tmp_path, "trace.json.gz") == (0, "", "")
    assert (tmp_path / "victim").read_text() == "untouched"
    with gzip.open(tmp_path / "trace.json.gz", "rt") as file:
        assert json.load(file)["traceEvents"]
    assert (tmp_path / "trace.json.gz").stat().st_mode & 0o777 == 0o600


def test_the_environment_is_ignored_where_python_ignores_it(tmp_path: Path) -> None:
    code = f"import sys; sys.path.insert(0, {PACKAGE!r}); import cprofiling; print('autostart' in dir(cprofiling))"
    done = python(["-E", "-c", code], tmp_path, watched=True, CPROFILING_OUTPUT_PATH="trace.json")
    assert (done, left(tmp_path)) == ((0, "False\n", ""), [])


def test_a_recording_of_the_programs_own_goes_first(tmp_path: Path) -> None:
    code = """
        with cp.profile(file="own.json"):
            node()
        with cp.profile() as prof:
            node()
            try:
                cp.profile().start()
            except RuntimeError as error:
                print(error)
        node()
        print(len(prof.events()))
    """
    done = run(code, tmp_path)
    assert done == (
        0,
        "a recording is running already: there can be one at a time in a process\n1\n",
        "cprofiling: the program starts a recording of its own: the automatic one, for "
        f"'{tmp_path}/trace.json', ends here\n",
    )
    assert names_in_file(tmp_path / "trace.json") == names_in_file(tmp_path / "own.json") == ["node"]


def test_a_recording_of_the_programs_own_from_the_first_on(tmp_path: Path) -> None:
    """There is a trace, which is empty, as is said; of a child process there is none."""
    command = [sys.executable, "-c", "import cprofiling as cp\nwith cp.profile(): pass"]
    starts = "cprofiling: the program starts a recording of its own"
    ends = f"{starts}: the automatic one, for '{{}}', ends here without an event\n"
    variables = environment("t.json")
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True)
    assert done.stderr == ends.format(tmp_path / "t.json")
    assert (left(tmp_path), names_in_file(tmp_path / "t.json")) == (["t.json"], [])
    variables[whole_process.OWNER] = "another"
    with subprocess.Popen(command, cwd=tmp_path, env=variables, stderr=subprocess.PIPE, text=True) as process:
        assert process.communicate(timeout=NEVER)[1] == ends.format(tmp_path / f"t_{process.pid}.json")
    assert left(tmp_path) == ["t.json"]


def test_no_process_takes_the_trace_of_another(tmp_path: Path) -> None:
    """Forked, spawned and started ones write beside the first's, if they have recorded anything."""
    code = """
        import multiprocessing, subprocess
        def work(n):
            with cp.record("work"): node()
        if __name__ == "__main__":
            node()
            for method in ("fork", "spawn", "forkserver"):
                context = multiprocessing.get_context(method)
                with context.Pool(1) as pool: pool.map(work, [1])
                child = context.Process(target=work, args=(2,)); child.start(); child.join()
            subprocess.run([sys.executable, "-c", "import cprofiling"])
            other = "import cprofiling as cp, os\\nwith cp.record('other'): print(os.getpid())"
            pid = subprocess.run([sys.executable, "-c", other], capture_output=True, text=True).stdout.strip()
            again = subprocess.run([sys.executable, "-c", other], capture_output=True, text=True,
                                   env={**os.environ, "CPROFILING_OUTPUT_PATH": ""})
            if not os.fork():
                multiprocessing.resource_tracker._resource_tracker._fd = None  # CPython 3.13.5 waits for the parent's
                sys.exit(0)
            os.wait()
            if not os.fork(): os._exit(0)
            os.wait()
            print(pid, again.stderr == "", os.environ["CPROFILING_OUTPUT_OWNER"].split(":")[0] == str(os.getpid()))
    """
    done = run(code, tmp_path)
    assert (done.status, done.err) == (0, "")
    pid, *rest = done.out.split()
    assert rest == ["True", "True"]
    traces = {name: names_in_file(tmp_path / name) for name in left(tmp_path)}
    assert traces.pop("trace.json") == ["node", "node"]
    assert traces.pop(f"trace_{pid}.json") == ["other"]
    assert [trace[-2:] for trace in traces.values() if "work" in trace] == [["work", "node"]] * 6


def test_who_comes_first_keeps_the_path(tmp_path: Path) -> None:
    """Of processes with no common beginning, the one that writes later sees that the file is another's."""
    code = """
        import subprocess
        variables = {name: value for name, value in os.environ.items() if "OWNER" not in name}
        subprocess.run([sys.executable, "-c", "import cprofiling as cp\\nwith cp.record('other'): pass"], env=variables)
        print(os.getpid())
    """
    done = run(code, tmp_path)
    (name,) = set(left(tmp_path)) - {"trace.json"}
    assert name == f"trace_{done.out.strip()}.json"
    assert done.err == (
        f"cprofiling: '{tmp_path}/trace.json' is somebody else's by now: the trace is '{tmp_path}/{name}'\n"
    )
    assert (names_in_file(tmp_path / "trace.json"), names_in_file(tmp_path / name)) == (["other"], ["node"])
    assert run("", tmp_path) == (0, "", "")  # one that starts later may write over it
    assert names_in_file(tmp_path / "trace.json") == ["node"]


AT_ONCE = """
import os, sys
import cprofiling as cp
with cp.record(f"of {os.getpid()}"): pass
print("recorded", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("before", [None, "an earlier trace"])
def test_processes_that_end_at_once_all_leave_a_trace(before: str | None, tmp_path: Path) -> None:
    """None of them has started another, and each has found the path as it was before."""
    if before is not None:
        (tmp_path / "t.json").write_text(before)
    (tmp_path / "app.py").write_text(AT_ONCE)
    variables = {name: value for name, value in environment("t.json").items() if name != whole_process.OWNER}
    reader, writer = os.pipe()
    command = [sys.executable, "app.py"]
    pipes: Any = {"stdin": reader, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, cwd=tmp_path, env=variables, **pipes) for _ in range(6)]
    os.close(reader)
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "recorded\n"
    os.close(writer)
    errors = [process.communicate(timeout=NEVER)[1] for process in processes]
    traces = {name: names_in_file(tmp_path / name) for name in left(tmp_path)}
    assert sorted(traces.values()) == sorted([f"of {process.pid}"] for process in processes)
    (first,) = (process.pid for process in processes if traces["t.json"] == [f"of {process.pid}"])
    others = {process.pid for process in processes} - {first}
    assert set(traces) == {"t.json", *(f"t_{pid}.json" for pid in others)}
    assert sorted(errors) == sorted(
        ""
        if pid == first
        else f"cprofiling: '{tmp_path}/t.json' is somebody else's by now: the trace is '{tmp_path}/t_{pid}.json'\n"
        for pid in (first, *others)
    )


def test_ranks_other_than_0_write_beside_the_path(tmp_path: Path) -> None:
    """In whatever order they come; so do the processes that they start. What is no number is no rank."""
    code = """
        import subprocess
        node()
        if not os.fork(): node(); sys.exit(0)
        os.wait()
        other = "import cprofiling as cp, os\\nwith cp.record('other'): print(os.getpid(), end=' ', flush=True)"
        subprocess.run([sys.executable, "-c", other])
        print(os.getpid())
    """
    for rank, own in [("2", "trace_rank2_{}.json.gz"), ("0", "trace.json.gz")]:
        done = run(code, tmp_path, "trace.json.gz", RANK=rank, WORLD_SIZE="3")
        assert (done.status, done.err) == (0, "")
        other, pid = done.out.split()
        found = {name: len(cprofiling.load_trace(tmp_path / name)) for name in left(tmp_path)}
        assert found.pop(own.format(pid)) == 2
        assert found.pop(f"trace_rank{rank}_{other}.json.gz") == 1
        (forked,) = found
        assert forked.startswith(f"trace_rank{rank}_")
        for name in left(tmp_path):
            (tmp_path / name).unlink()
    for no_rank in ("", "-1", "two", "9" * 5000):
        assert run("", tmp_path, RANK=no_rank) == (0, "", "")
        assert left(tmp_path) == ["trace.json"]
    assert run("", tmp_path, "nowhere/trace.json", RANK="1").err.endswith(
        "nothing is recorded: No such file or directory\n"
    )


def test_an_output_that_goes_into_a_file(tmp_path: Path) -> None:
    """The program's own output changes the file; the trace follows it."""
    (tmp_path / "app.py").write_text(f"{APP}print('out', flush=True)\n")
    with (tmp_path / "out").open("w") as out:
        done = subprocess.run(
            [sys.executable, "app.py"], cwd=tmp_path, env=environment("/dev/stdout"), stdout=out, stderr=-1, check=True
        )
    assert done.stderr == b""
    first, _, trace = (tmp_path / "out").read_text().partition("\n")
    assert first == "out"
    assert [event["name"] for event in json.loads(trace)["traceEvents"] if event["ph"] == "X"] == ["node"]


def test_a_message_says_all_of_where_a_trace_is(tmp_path: Path) -> None:
    folder = tmp_path / "long" / ("x" * 200)
    folder.mkdir(parents=True)
    code = f"open({str(folder / 't.json')!r}, 'w').close()\nprint(os.getpid())"
    done = run(code, tmp_path, str(folder / "t.json"))
    assert done.err.endswith(f"the trace is '{folder}/t_{done.out.strip()}.json'\n")


def test_nothing_goes_beside_a_device(tmp_path: Path) -> None:
    done = run("if not os.fork(): node(); sys.exit(0)\nos.wait()", tmp_path, "/dev/null")
    assert done == (0, "", "")
    assert not list(Path("/dev").glob("null_*"))


def test_threads_that_go_on_do_not_spoil_the_end(tmp_path: Path) -> None:
    code = """
        def go_on():
            while True: node(); time.sleep(0.001)
        for _ in range(8): threading.Thread(target=go_on, daemon=True).start()
        time.sleep(0.05)
        sys.exit(6)
    """
    status, _, err = run(code, tmp_path)
    assert status == 6
    told = r"cprofiling: the recording has ended with the program, without the calls and blocks after that: \d+, in .*"
    assert re.fullmatch(f"({told}\n)?", err), "it depends on the moment whether a thread calls once more"
    assert set(names_in_file(tmp_path / "trace.json")) == {"node"}


def test_other_interpreters_of_the_process_are_not_recorded(tmp_path: Path) -> None:
    code = """
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        other = interpreters.create()
        interpreters.run_string(other, "import cprofiling as cp\\nwith cp.record('inside'): pass")
        interpreters.destroy(other)
        import importlib
        for name in [name for name in sys.modules if name.startswith("cprofiling.") and name != "cprofiling._core"]:
            del sys.modules[name]
        import cprofiling.recording.profile
        node()
    """
    assert run(code, tmp_path, watched=False) == (0, "", "")
    assert names_in_file(tmp_path / "trace.json") == ["node", "node"]


def test_imported_by_a_thread(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(
        "import threading, sys\n"
        "def load():\n"
        "    global cp\n"
        "    import cprofiling as cp\n"
        "    with cp.record('inside'): pass\n"
        "thread = threading.Thread(target=load)\n"
        "thread.start()\n"
        "thread.join()\n"
    )
    done = python(["late.py"], tmp_path, watched=True, CPROFILING_OUTPUT_PATH="t.json")
    assert (done, names_in_file(tmp_path / "t.json")) == ((0, "", ""), ["inside"])


def test_the_command_does_not_write_over_what_it_reads(tmp_path: Path) -> None:
    assert run("", tmp_path).status == 0
    before = (tmp_path / "trace.json").read_bytes()
    command = [*COMMAND, "report", "trace.json"]
    variables = environment("trace.json")
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True)
    assert "node" in done.stdout
    assert done.stderr == ""
    assert (tmp_path / "trace.json").read_bytes() == before


def test_a_trace_tells_its_command_but_no_secrets(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    secrets = ["--api-token", "hunter2", "--db-password=hunter2", "--secret=a=hunter2", "-key", "hunter2"]
    secrets += ["db.password=hunter2", "--apiKey=hunter2", "postgres://me:hunter2@host/db"]
    arguments = ["app.py", "--max-tokens", "4", *secrets, "two words", "--tokenizer=bert", "--token"]
    assert python(arguments, tmp_path, watched=True, CPROFILING_OUTPUT_PATH="trace.json").status == 0
    text = (tmp_path / "trace.json").read_text(encoding="ascii")
    assert "hunter2" not in text
    command = json.loads(text)["cprofiling"]["program"]["command"]
    hidden = "--api-token HIDDEN --db-password=HIDDEN --secret=HIDDEN -key HIDDEN db.password=HIDDEN --apiKey=HIDDEN"
    assert command.split(maxsplit=1)[1] == (
        f"app.py --max-tokens 4 {hidden} postgres://HIDDEN@host/db 'two words' --tokenizer=bert --token"
    )
    assert python(["app.py", "x" * 10_000], tmp_path, watched=True, CPROFILING_OUTPUT_PATH="long.json").status == 0
    long = json.loads((tmp_path / "long.json").read_text(encoding="ascii"))["cprofiling"]["program"]["command"]
    assert len(long) == 1003
    assert long.endswith("x...")


@pytest.fixture
def automatic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[whole_process.Automatic]:
    """An automatic recording of this very process, with nothing left of it."""
    monkeypatch.setattr(process_exit, "_terminated_at", None)
    handler = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(whole_process.Automatic, "current", None)
    monkeypatch.setattr(os, "register_at_fork", lambda **functions: None)
    recording = whole_process.Automatic(str(tmp_path / "t.json"), is_first=True)
    recording.begin()
    yield recording
    recording.cancel()
    signal.signal(signal.SIGTERM, handler)


def test_faults_of_our_own_do_no_harm(
    automatic: whole_process.Automatic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:

    def fault(error: BaseException) -> Callable[..., None]:
        def fail(*arguments: object, **more: object) -> None:
            raise error

        return fail

    with monkeypatch.context() as patch:
        patch.setattr(cprofiling.profile, "stop", fault(MemoryError()))
        automatic.end()
    automatic.stop()
    assert capsys.readouterr() == ("", "cprofiling: the recording is lost: MemoryError\n")
    monkeypatch.setattr(whole_process.Automatic, "current", None)
    monkeypatch.setenv(whole_process.OWNER, "another's")
    monkeypatch.setattr(whole_process.Automatic, "begin", fault(OSError("as asked")))
    whole_process.start(str(tmp_path / "t.json"), "VARIABLE")
    assert capsys.readouterr() == ("", "cprofiling: VARIABLE is set, but nothing is recorded: as asked\n")
    monkeypatch.setattr(whole_process.Automatic, "begin", fault(RuntimeError("another interpreter")))
    whole_process.start(str(tmp_path / "t.json"), "VARIABLE")
    whole_process.start("", "VARIABLE")  # the first process has said so
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("builtins.open", fault(OSError()))
    assert own_process.started_ticks() == 0
    monkeypatch.setattr(sys, "stderr", None)
    messages.say("to nobody")
    assert output_names.reason(KeyboardInterrupt()) == "interrupted"


def test_a_worker_of_celery_ends_its_recording_itself(
    automatic: whole_process.Automatic, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connected: list[Callable[[], Any]] = []

    def connect(receiver: Callable[..., object], *, weak: bool, **_: object) -> None:
        connected.append(ref(receiver) if weak else lambda: receiver)  # as Celery does

    shutdown = SimpleNamespace(connect=connect)
    monkeypatch.setitem(sys.modules, "celery.signals", SimpleNamespace(worker_process_shutdown=shutdown))
    process_exit.call_before_worker_ends(automatic.end)
    with cprofiling.record("task"):
        pass
    connected[0]()(sender="worker", pid=1, exitcode=0)
    assert names_in_file(tmp_path / "t.json") == ["task"]
