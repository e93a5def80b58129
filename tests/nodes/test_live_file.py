"""Live files: what another process reads from them while a program runs, after its end, and after kill -9."""

from __future__ import annotations

import errno
import os
import random
import re
import resource
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
from calls import profiler_on, run_threads
from command import COMMAND
from cprofiling import _core, _startup, live
from cprofiling.monitoring import live_writer
from cprofiling.nodes import live_file
from forks import BESIDE_THREADS

pytestmark = pytest.mark.native

ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("CPROFILING_")},
    "PYTHONPATH": str(Path(cp.__file__).parents[1]),
}
PATIENCE_S = 30.0


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    live_writer._close_all()


class Pipeline(cp.PipelineProfiling):
    @cp.profile_node("step")
    def step(self) -> None: ...


def counts(path: Path) -> dict[str, dict[str, int]]:
    return {part.label: {row.node_name: row.count for row in part.summary} for part in live.read(path).parts}


def waited_for(path: Path, expected: dict[str, dict[str, int]]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not path.exists() or counts(path) != expected:
        assert time.monotonic() < until
        time.sleep(0.01)


def run(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments],
        env={**ENVIRONMENT, **environment}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


# ---- What is in it


def test_what_is_counted_is_in_the_file_without_being_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "live"
    profiler = profiler_on(live=path, skip_first_n=1)
    for value in range(11):
        profiler.record("train", "node", value)
    waited_for(path, {"Profiler": {"node": 10}})
    read = live.read(path)
    assert (read.state, read.process.pid, read.error, read.reasons) == ("running", os.getpid(), 0, ())
    (part,) = read.parts
    assert part.enabled
    assert not part.is_gone
    assert part.summary == profiler.get_profiling_summary()
    assert part.summary.skip_first_n == 1
    assert part.summary.cost_ns == pytest.approx(profiler.get_profiling_summary().cost_ns)
    assert read.snapshot.stats() == part.summary
    with pytest.raises(ValueError, match="snapshot"):
        _ = replace(read, parts=()).snapshot
    assert abs(read.taken_ns - time.time_ns()) < PATIENCE_S * 1e9
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["live"]


def test_profilers_of_a_process_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "live"
    first, second = Pipeline(), Pipeline()
    first.set_profiling(True, live=str(path))
    cp.set_profiling(True, live=bytes(path))
    second.set_profiling(True, live=path)
    first.step()
    second.step()
    second.step()
    waited_for(path, {"Pipeline": {"step": 1}, "default": {}, "Pipeline 2": {"step": 2}})
    del second
    waited_for(path, {"Pipeline": {"step": 1}, "default": {}, "": {"step": 2}})
    assert live.read(path).parts[-1].is_gone
    assert [row.count for row in live.read(path).snapshot.stats()] == [3]
    first.set_profiling(False)
    assert counts(path) in ({"default": {}, "": {"step": 3}}, {"default": {}, "": {"step": 2}, "Pipeline": {"step": 1}})
    cp.set_profiling(False)
    read = live.read(path)
    assert (read.state, counts(path)) == ("ended", {"default": {}, "": {"step": 3}})


def test_who_leaves_a_file_and_comes_back_is_counted_once(tmp_path: Path) -> None:
    path, other = tmp_path / "live", tmp_path / "other"
    keeper, profiler = cp.Profiler(), cp.Profiler()
    keeper.set_profiling(True, live=path)
    for count in range(1, 4):
        profiler.set_profiling(True, live=path)
        profiler.record("train", "node", 1)
        live_writer.commit()
        assert counts(path) == {"Profiler": {}, "Profiler 2": {"node": count}}
        assert [row.count for row in live.read(path).snapshot.stats()] == [count]
        profiler.set_profiling(count % 2 == 0, live=other)
        live_writer.commit()
        assert counts(path) == {"Profiler": {}, "": {"node": count}}
    profiler.reset_profiling()
    profiler.set_profiling(True, live=path)
    profiler.record("train", "node", 1)
    del profiler
    keeper.set_profiling(False)
    assert counts(path) == {"Profiler": {}, "": {"node": 4}}


def test_each_call_of_set_profiling_says_where(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    profiler = profiler_on(live=first)
    profiler.record("train", "node", 1)
    profiler.set_profiling(True, live=first, synchronize_cuda=True)
    assert live.read(first).state == "running"
    profiler.set_profiling(True, live=second)
    profiler.record("train", "node", 1)
    assert (live.read(first).state, counts(first)) == ("ended", {"Profiler": {"node": 1}})
    profiler.set_profiling(True)
    assert (live.read(second).state, counts(second)) == ("ended", {"Profiler": {"node": 2}})
    profiler.set_profiling(True, live=first)
    profiler.set_profiling(False, live=first)
    assert (live.read(first).state, counts(first)) == ("ended", {"Profiler": {"node": 2}})
    assert not live.read(first).parts[0].enabled
    profiler.set_profiling(False)


@pytest.mark.parametrize(
    ("end", "label"),
    [
        ("", "Profiler 2"), ("del profiler", ""), ("profiler.set_profiling(False)", ""),
        ("profiler.set_profiling(False); profiler.reset_profiling()", ""),
        ("profiler.set_profiling(True, live=sys.argv[1] + '2'); profiler.record('train', 'too late', 1)", ""),
    ],
)  # fmt: skip
def test_what_is_counted_at_the_very_end_is_in_it(end: str, label: str, tmp_path: Path) -> None:
    program = f"""
import sys
import cprofiling as cp
keeper, profiler = cp.Profiler(), cp.Profiler()
for each in (keeper, profiler):
    each.set_profiling(True, live=sys.argv[1])
del each
for _ in range(1000):
    profiler.record("train", "node", 1)
{end}
"""
    done = run(program, str(tmp_path / "live"))
    assert (done.returncode, done.stderr) == (0, "")
    read = live.read(tmp_path / "live")
    assert (read.state, counts(tmp_path / "live")) == ("ended", {"Profiler": {}, label: {"node": 1000}})
    assert "-c" in read.process.command


def test_a_process_that_counts_nothing_is_seen_to_live(tmp_path: Path) -> None:
    path = tmp_path / "live"
    profiler = profiler_on(live=path)
    profiler.record("train", "node", 1)
    live_writer.commit()
    first, statistics = live.read(path), path.read_bytes()[8192:]
    until = time.monotonic() + PATIENCE_S
    while (last := live.read(path)).commits < first.commits + 2:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert last.written_ns - first.written_ns >= 1e9
    assert last.taken_ns - first.taken_ns >= 1e9
    assert path.read_bytes()[8192:] == statistics
    assert replace(last, taken_ns=0, written_ns=0, commits=0) == replace(first, taken_ns=0, written_ns=0, commits=0)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["tool/app.py", "--password", "s3cret"], "app.py"), (["-m", "tool", "--password", "s3cret"], "tool"),
        (["-c", "exec(open('tool/app.py').read())", "s3cret"], "python -c"),
    ],
)  # fmt: skip
def test_arguments_of_the_program_are_in_no_file(arguments: list[str], name: str, tmp_path: Path) -> None:
    (tmp_path / "tool").mkdir()
    code = (
        "import cprofiling as cp\np = cp.Profiler()\np.set_profiling(True, live='live')\np.record('train', 'node', 1)\n"
    )
    for file in ("app.py", "__main__.py"):
        (tmp_path / "tool" / file).write_text(code)
    subprocess.run([sys.executable, *arguments], env=ENVIRONMENT, cwd=tmp_path, check=True, timeout=60)
    assert live.read(tmp_path / "live").process.command == name
    assert b"s3cret" not in (tmp_path / "live").read_bytes()
    reported = subprocess.run(
        [sys.executable, "-m", "cprofiling", "report", "live"],
        env=ENVIRONMENT, cwd=tmp_path, check=True, timeout=60, capture_output=True, text=True,
    )  # fmt: skip
    assert name in reported.stdout
    assert "s3cret" not in reported.stdout


def test_names_are_data(tmp_path: Path) -> None:
    names = ["\ud800", "a\nb\x1b[31m", "", "é" * 2048]
    pipeline = type("Päckage\n", (Pipeline,), {})()
    pipeline.set_profiling(True, live=tmp_path / "live")
    for name in names:
        pipeline.profiler.record("train", name, 1)
    live_writer.commit()
    assert counts(tmp_path / "live") == {"Päckage\n": dict.fromkeys(names, 1)}


def test_two_pipelines_that_go_at_once_and_many_threads(tmp_path: Path) -> None:
    path = tmp_path / "live"
    keeper = profiler_on(live=path)

    def come_and_go() -> None:
        for _ in range(50):
            pipeline = Pipeline()
            pipeline.set_profiling(True, live=path)
            pipeline.step()

    def commit() -> None:
        for _ in range(50):
            live_writer.commit()

    run_threads(*[come_and_go] * 4, commit)
    waited_for(path, {"Profiler": {}, "": {"step": 200}})
    keeper.set_profiling(False)


# ---- What a path can be


@pytest.mark.parametrize(
    ("value", "error", "complaint"),
    [
        (3, TypeError, r"live must be a path, got 3 \(int\)"),
        ("", ValueError, "live must not be empty"),
        ("a\0b", ValueError, "live must not have a NUL"),
        ("/dev/null", ValueError, "live must be the path of a regular file, got '/dev/null'"),
        ("/proc", ValueError, "regular file"),
    ],
)
def test_what_is_no_path(value: Any, error: type[Exception], complaint: str) -> None:
    profiler = cp.Profiler()
    for enabled in (True, False):
        if enabled or error is not ValueError or "regular" not in complaint:
            with pytest.raises(error, match=complaint):
                profiler.set_profiling(enabled, live=value)
    assert not profiler.profiling_enabled


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    own = tmp_path / "results.csv"
    own.write_text("mine")
    profiler = cp.Profiler()
    with pytest.raises(FileExistsError, match="no live file") as error:
        profiler.set_profiling(True, live=own)
    assert error.value.filename == str(own)
    assert own.read_text() == "mine"
    with pytest.raises(FileNotFoundError, match="missing"):
        profiler.set_profiling(True, live=tmp_path / "missing" / "live")
    assert not profiler.profiling_enabled
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    profiler.set_profiling(True, live=empty)
    profiler.set_profiling(False)
    assert live.read(empty).state == "ended"
    profiler.set_profiling(True, live=empty)
    assert live.read(empty).state == "running"
    profiler.set_profiling(False)


def test_a_file_is_of_one_process(tmp_path: Path) -> None:
    path = tmp_path / "live"
    profiler = profiler_on(live=path)
    profiler.record("train", "node", 1)
    program = "import cprofiling as cp, sys; cp.set_profiling(True, live=sys.argv[1])"
    done = run(program, str(path))
    assert done.returncode == 1
    assert "another process writes its statistics to it" in done.stderr.splitlines()[-1]
    profiler.set_profiling(False)
    assert counts(path) == {"Profiler": {"node": 1}}
    assert run(program, str(path)).returncode == 0
    assert counts(path) == {"default": {}}


def killed_with(path: Path, count: int) -> None:
    """A live file as kill -9 leaves it."""
    program = """
import os, sys
import cprofiling as cp
from cprofiling.monitoring import live_writer as writing
profiler = cp.Profiler()
profiler.set_profiling(True, live=sys.argv[1])
for _ in range(int(sys.argv[2])):
    profiler.record("train", "node", 1)
writing.commit()
os._exit(0)
"""
    assert run(program, str(path), str(count)).returncode == 0


def test_what_a_killed_process_has_left_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "live.cprof"
    killed_with(path, 3)
    profiler = cp.Profiler()
    with pytest.warns(RuntimeWarning, match=r"live.cprof' was of a process that was killed, .* as '.*live-2.cprof'"):
        profiler.set_profiling(True, live=path)
    assert counts(tmp_path / "live-2.cprof") == {"Profiler": {"node": 3}}
    assert live.read(tmp_path / "live-2.cprof").state == "killed"
    profiler.set_profiling(False)
    profiler.set_profiling(True, live=path)  # what has ended well is not kept,
    profiler.set_profiling(False)
    killed_with(path, 0)  # and a file without a figure is not
    profiler.set_profiling(True, live=path)
    profiler.set_profiling(False)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["live-2.cprof", "live.cprof"]
    killed_with(path, 4)
    environment = {"CPROFILING_LIVE": str(path)}
    done = run("import sys; from cprofiling import live; print(live.read(sys.argv[1]).state)", str(path), **environment)
    assert (done.returncode, done.stdout) == (0, "running\n")
    assert re.fullmatch(r"cprofiling: '.*live.cprof' was of .*: it is kept as '.*live-3.cprof'\n", done.stderr)
    assert counts(tmp_path / "live-3.cprof") == {"Profiler": {"node": 4}}


def test_not_everything_is_kept_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes of those that nobody writes to; what is no live file stays."""
    path = tmp_path / "live.cprof"
    kept = tmp_path / "kept"
    killed_with(kept, 2)
    writer = profiler_on(live=tmp_path / "live-2.cprof")
    (tmp_path / "live-3.cprof").write_text("mine")
    for number in range(4, 10):
        (tmp_path / f"live-{number}.cprof").write_bytes(kept.read_bytes())
    (tmp_path / "live-9.cprof").unlink()
    (tmp_path / "live-9.cprof").symlink_to("nowhere")
    for number, file in enumerate((5, 2, 3, 4, 6, 7, 8)):
        os.utime(tmp_path / f"live-{file}.cprof", (number, number))
    for count, number in ((5, 5), (6, 4)):
        killed_with(path, count)
        profiler = cp.Profiler()
        with pytest.warns(RuntimeWarning, match=f"live-{number}.cprof"):
            profiler.set_profiling(True, live=path)
        profiler.set_profiling(False)
        assert counts(tmp_path / f"live-{number}.cprof") == {"Profiler": {"node": count}}
    assert (tmp_path / "live-3.cprof").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()
    killed_with(path, 7)
    monkeypatch.setattr(live_writer, "_MOST_NAMES", 3)
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match="there is no name left to keep it"):
        cp.set_profiling(True, live=path)
    assert path.read_bytes() == before
    writer.set_profiling(False)
    assert not list(tmp_path.glob(".cprofiling*"))


def test_a_file_that_cannot_be_read_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "live"
    path.write_bytes(live_file.MAGIC + b"of a later version")
    profiler = cp.Profiler()
    with pytest.warns(RuntimeWarning, match="live-2"):
        profiler.set_profiling(True, live=path)
    profiler.set_profiling(False)
    assert (tmp_path / "live-2").read_bytes() == live_file.MAGIC + b"of a later version"


def test_an_empty_file_of_the_user_is_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    monkeypatch.setattr(live_writer, "ROOM", 2**60)
    for path in (empty, tmp_path / "none"):
        with pytest.raises(OSError, match=path.name):
            cp.set_profiling(True, live=path)
    assert [file.name for file in tmp_path.iterdir()] == ["empty"]


def test_a_full_disk_is_an_error_at_the_start(tmp_path: Path) -> None:
    profiler = cp.Profiler()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError, match="live") as error:
            profiler.set_profiling(True, live=tmp_path / "live")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert error.value.errno == errno.EFBIG
    assert list(tmp_path.iterdir()) == []
    assert not profiler.profiling_enabled


def test_an_error_is_told_though_nothing_can_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(code: int) -> Any:
        def call(*arguments: Any) -> None:
            raise OSError(code, os.strerror(code))

        return call

    before = len([*Path("/proc/self/fd").iterdir()])
    monkeypatch.setattr(os, "posix_fallocate", fail(errno.ENOSPC))
    monkeypatch.setattr(os, "unlink", fail(errno.EIO))
    with pytest.raises(OSError, match="No space left on device"):
        cp.Profiler().set_profiling(True, live=tmp_path / "live.cprof")
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_what_cannot_be_written_later_is_told(tmp_path: Path) -> None:
    """The statistics grow beyond what was reserved, and the disk is full then."""
    path = tmp_path / "live"
    program = """
import resource, signal, sys
import cprofiling as cp
from cprofiling.monitoring import live_writer as writing
writing.ROOM = 8192
profiler = cp.Profiler()
profiler.set_profiling(True, live=sys.argv[1])
profiler.record("train", "node", 1)
writing.commit()
resource.setrlimit(resource.RLIMIT_FSIZE, (24576, 24576))
for number in range(1000):
    profiler.record("train", f"node {number}", 1)
profiler.set_profiling(False)
print("on")
"""
    done = run(program, str(path))
    assert done.stdout == "on\n"
    assert done.stderr.startswith(f"cprofiling: the newest statistics are not in {str(path)!r}: File too large\n")
    read = live.read(path)
    assert (read.error, counts(path)) == (errno.EFBIG, {"Profiler": {"node": 1}})
    assert read.reasons == ("newer statistics could not be written to the file: File too large",)


# ---- Kill -9


KILLED = """
import sys, threading
from cprofiling.monitoring import live_writer as writing
writing.INTERVAL_NS = int(sys.argv[2])
import cprofiling as cp
profiler = cp.Profiler()
nodes = [profiler.profile_node(f"node {number}")(lambda: None) for number in range(5)]
profiler.set_profiling(True, live=sys.argv[1])

def work():
    while True:
        for node in nodes:
            node()

for _ in range(8):
    threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
"""


@pytest.mark.slow
def test_a_file_outlives_kill_9_at_any_moment(tmp_path: Path) -> None:
    """The benchmark live.py does this a thousand times."""
    choose = random.Random(8)
    for number in range(4):
        path = tmp_path / f"live{number}"
        interval_ns = 100_000_000 if number == 0 else 200_000
        command = [sys.executable, "-c", KILLED, str(path), str(interval_ns)]
        with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            seen: dict[str, int] = {}
            until = time.monotonic() + choose.uniform(0.0, 0.15)
            while time.monotonic() < until:
                newer = counts(path)["Profiler"]
                assert all(newer.get(name, 0) >= count for name, count in seen.items())
                seen = newer
            child.kill()
        last = live.read(path)
        assert last.state == "killed"
        assert last.reasons[0].startswith("the process was killed")
        assert all(counts(path)["Profiler"].get(name, 0) >= count for name, count in seen.items())


# ---- Forks and workers


@pytest.mark.forks
@pytest.mark.unsanitized
def test_a_forked_child_has_a_file_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "live.cprof"
    profiler, gone = cp.Profiler(), cp.Profiler()
    for each in (profiler, gone):
        each.set_profiling(True, live=path)
    profiler.record("train", "node", 1)
    del gone, each
    idle = os.fork()
    if idle == 0:
        os._exit(0)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            profiler.record("train", "the child's", 1)
            waited_for(tmp_path / f"live_{os.getpid()}.cprof", {"Profiler": {"the child's": 1}})
            live_writer._close_all()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(idle, 0)[1] == 0
    assert os.waitpid(child, 0)[1] == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["live.cprof", f"live_{child}.cprof"]
    assert live.read(tmp_path / f"live_{child}.cprof").state == "ended"
    profiler.set_profiling(False)
    assert counts(path) == {"Profiler": {"node": 1}}


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_end_their_files_themselves(method: str, tmp_path: Path) -> None:
    program = f"""
import multiprocessing, sys
import cprofiling as cp

def work(number):
    with cp.profile_node("work"):
        pass

if __name__ == "__main__":
    with cp.profile_node("parent"):
        pass
    workers = [multiprocessing.get_context({method!r}).Process(target=work, args=(n,)) for n in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
"""
    script = tmp_path / "script.py"
    script.write_text(program)
    environment = {**ENVIRONMENT, "CPROFILING_LIVE": str(tmp_path / "live.cprof")}
    command = [sys.executable, "-W", "error", *BESIDE_THREADS, str(script)]
    subprocess.run(command, env=environment, check=True, timeout=60)
    files = sorted(tmp_path.glob("live*"))
    assert len(files) == 3
    assert counts(files[0]) == {"default": {"parent": 1}}
    for file in files[1:]:
        assert (live.read(file).state, counts(file)) == ("ended", {"default": {"work": 1}})


def test_a_worker_that_loads_the_package_ends_its_file_itself(tmp_path: Path) -> None:
    program = """
import multiprocessing

def work():
    import cprofiling as cp
    with cp.profile_node("work"):
        pass

worker = multiprocessing.get_context("fork").Process(target=work)
worker.start()
worker.join()
"""
    path = tmp_path / "live.cprof"
    environment = {**ENVIRONMENT, "CPROFILING_LIVE": str(path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)
    assert (live.read(path).state, counts(path)) == ("ended", {"default": {"work": 1}})


# ---- The environment


COUNTING = """
import sys
import cprofiling as cp
class Pipeline(cp.PipelineProfiling):
    @cp.profile_node("step")
    def step(self):
        pass
pipeline = Pipeline()
pipeline.set_profiling(True)
pipeline.step()
with cp.profile_node("block"):
    pass
pipeline.set_profiling(False)
"""


def test_the_environment_asks_for_all_profilers(tmp_path: Path) -> None:
    path = tmp_path / "live"
    done = run(COUNTING, CPROFILING_LIVE=str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert counts(path) == {"default": {"block": 1}, "Pipeline": {"step": 1}}
    assert [part.enabled for part in live.read(path).parts] == [True, False]


def test_the_file_of_the_environment_stays_open_without_a_profiler(tmp_path: Path) -> None:
    """The only one in it goes to another file; who comes later has a place."""
    path, other = tmp_path / "live", tmp_path / "other"
    program = f"""
import sys
import cprofiling as cp
from cprofiling import live
with cp.profile_node("first"):
    pass
cp.set_profiling(True, live=sys.argv[1])
print(live.read({str(path)!r}).state)
{COUNTING}
"""
    done = run(program, str(other), CPROFILING_LIVE=str(path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "running\n", "")
    assert counts(path) == {"Pipeline": {"step": 1}, "": {"first": 1}}
    assert counts(other) == {"default": {"first": 1, "block": 1}}


def test_ranks_and_children_write_beside(tmp_path: Path) -> None:
    path = tmp_path / "live.cprof"
    assert run(COUNTING, CPROFILING_LIVE=str(path), RANK="1").returncode == 0
    (file,) = tmp_path.iterdir()
    assert file.name.startswith("live_rank1_")
    assert counts(file)["Pipeline"] == {"step": 1}
    file.unlink()
    start = f"subprocess.run([sys.executable, '-c', {COUNTING!r}], check=True)"
    child = f"import cprofiling, subprocess, sys; {start}\n{COUNTING}"
    assert run(child, CPROFILING_LIVE=str(path)).returncode == 0
    assert len(list(tmp_path.iterdir())) == 2
    assert path.exists()


SIBLING = f"""
import sys
import cprofiling
print("begun", flush=True)
sys.stdin.readline()  # when all have begun
{COUNTING}
"""


def test_siblings_whose_parent_counts_nothing_write_beside(tmp_path: Path) -> None:
    """As workers of a server do, which knows nothing of the package."""
    variables = {**ENVIRONMENT, "CPROFILING_LIVE": str(tmp_path / "live.cprof")}
    pipe = subprocess.PIPE
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", SIBLING], env=variables, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        for _ in range(3)
    ]
    errors = []
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "begun\n"
    for worker in workers:
        errors.append(worker.communicate("\n", timeout=60)[1])
        assert worker.returncode == 0
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    assert tmp_path / "live.cprof" in files
    assert {file.name for file in files} <= {"live.cprof", *(f"live_{worker.pid}.cprof" for worker in workers)}
    for file in files:
        assert counts(file) == {"default": {"block": 1}, "Pipeline": {"step": 1}}
    assert sorted(error.count("is in use already: statistics are kept in") for error in errors) == [0, 1, 1]


@pytest.mark.parametrize("when", ["at once", "once the server has ended"])
def test_a_process_that_sigterm_ends_has_ended(when: str, tmp_path: Path) -> None:
    """A server handles it, and sends it to itself once more where it has no handler any longer."""
    path = tmp_path / "live"
    end = "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)"
    serving = (f"previous = signal.signal(15, lambda *_: None); {end[:-16]}", f"signal.signal(15, previous); {end}")
    before, after = serving if when != "at once" else ("", end)
    program = f"import os, signal, time\n{before}\n{COUNTING}\n{after}"
    assert run(program, CPROFILING_LIVE=str(path)).returncode == -signal.SIGTERM
    assert live.read(path).state == "ended"
    assert counts(path) == {"default": {"block": 1}, "Pipeline": {"step": 1}}


@pytest.mark.parametrize("held", ["", "os.register_at_fork(before=late)"])
def test_functions_of_atexit_registered_before_the_import_count(held: str, tmp_path: Path) -> None:
    """They run after ours; the Profilers are still shown as what they were."""
    path = tmp_path / "live"
    late = "def late(): profiler.record('train', 'late', 1); cp.profile_node(len, name='late')(())"
    program = f"""
import atexit, os
{late}
atexit.register(late)
{COUNTING}
profiler = cp.Profiler()
profiler.set_profiling(True)
{held}
"""
    done = run(program, CPROFILING_LIVE=str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert live.read(path).state == "ended"
    assert counts(path) == {"default": {"block": 1, "late": 1}, "Pipeline": {"step": 1}, "Profiler": {"late": 1}}


@pytest.mark.parametrize("value", ["", "/proc/none/live", "/etc/hostname", "/dev/null"])
def test_what_the_environment_asks_for_in_vain(value: str) -> None:
    child = "subprocess.run([sys.executable, '-c', 'import cprofiling'])  # which does not repeat it"
    program = f"import subprocess, sys, cprofiling as cp; print(cp.profiling_enabled()); {child}"
    done = run(program, CPROFILING_LIVE=value)
    assert (done.returncode, done.stdout) == (0, "False\n")
    assert done.stderr.startswith(f"cprofiling: CPROFILING_LIVE={value!r} cannot be used, so no statistics are kept")
    assert done.stderr.count("\n") == 1


def test_commands_that_read_do_not_write(tmp_path: Path) -> None:
    path = tmp_path / "live"
    assert run(COUNTING, CPROFILING_LIVE=str(path)).returncode == 0
    before = path.read_bytes()
    command = [*COMMAND, "top", "--updates", "1"]
    environment = {**ENVIRONMENT, "CPROFILING_LIVE": str(path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert "block" in done.stdout
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "original", "only_reads"),
    [
        (["/usr/bin/cprofiling", "top"], [], True),
        (["/usr/bin/cprofiling", "run", "x.py"], [], False),
        (["-m", "top"], ["python", "-W", "error", "-m", "cprofiling", "top"], True),
        (["-m", "x.py"], ["python", "-m", "cprofiling", "serve", "x.py"], False),
        (["-m"], ["python", "-m", "pytest"], False),
        (["-m", "report"], ["python", "-mcprofiling", "report"], True),
        (["-m", "top"], ["python", "-Werror", "-X", "dev", "-BImcprofiling", "top"], True),
        (["-m", "top"], ["python", "-W", "-m", "--check-hash-based-pycs", "always", "-m", "cprofiling", "top"], True),
        (["-m", "m.py"], ["python", "-Bmcprofiling", "run", "m.py"], False),
        (["app.py", "top"], ["python", "app.py", "top"], False),
    ],
)
def test_what_only_reads(
    arguments: list[str], original: list[str], only_reads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", arguments)
    monkeypatch.setattr(sys, "orig_argv", original)
    assert _startup._only_reads() is only_reads


# ---- Files that are none, or not whole


def test_lengths_that_are_forged_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "live"
    profiler = profiler_on(live=path)
    profiler.record("train", "node", 1)
    live_writer._close_all()
    forged = bytearray(path.read_bytes())
    places = [list(struct.unpack_from("<8Q", forged, place)) for place in (4096, 4608)]
    latest = max(places)
    begin, end = latest[2], latest[2] + latest[3]
    struct.pack_into("<Q", forged, begin, 2)  # parts, of which there is one
    struct.pack_into("<Q", forged, begin + 24, 2**64 - 1)  # bytes of its snapshot
    latest[6] = _core.checksum(bytes(forged[begin:end]))
    place = 4096 + 512 * places.index(latest)
    struct.pack_into("<7Q", forged, place, *latest[:7])
    struct.pack_into("<Q", forged, place + 56, _core.checksum(bytes(forged[place : place + 56])))
    path.write_bytes(forged)
    with pytest.raises(cp.FormatError, match="no parts"):
        live.read(path)


def test_writes_and_reads_may_be_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pread, pwrite = os.pread, os.pwrite
    monkeypatch.setattr(os, "pread", lambda descriptor, size, at: pread(descriptor, min(size, 100), at))
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, at: pwrite(descriptor, data[:100], at))
    path = tmp_path / "live"
    profiler = profiler_on(live=path)
    profiler.record("train", "node", 1)
    profiler.set_profiling(False)
    assert live.read(path).state == "ended"
    assert counts(path) == {"Profiler": {"node": 1}}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "live"
    profiler = profiler_on(live=path)
    profiler.record("train", "node", 1)
    profiler.set_profiling(False)
    return path


def test_a_file_in_the_making_is_waited_for(tmp_path: Path, written: Path) -> None:
    path, ready = tmp_path / "made.cprof", tmp_path / "ready"
    path.touch()
    ready.write_bytes(written.read_bytes())
    maker = threading.Timer(0.05, os.replace, (ready, path))
    maker.start()
    assert live.read(path).commits == live.read(written).commits
    maker.join()


def test_what_is_no_live_file(tmp_path: Path, written: Path) -> None:
    whole = written.read_bytes()
    other = tmp_path / "other"
    for data, complaint in (
        (b"", "it is no live file"),
        (b"CPROF", "it is no live file"),
        (whole[:100], "it is cut: 100 bytes of the 4096"),
        (whole[:8] + b"\2" + whole[9:], "it is of version 2, known is 1"),
        (whole[:20] + b"\xff" + whole[21:], "wrong checksum of its head"),
        (whole[:4096], "there is no commit"),
        (whole[:8192], "cut or changed bytes"),
    ):
        other.write_bytes(data)
        with pytest.raises(cp.FormatError, match=complaint):
            live.read(other)
    with pytest.raises(FileNotFoundError):
        live.read(tmp_path / "none")
    with pytest.raises(TypeError, match="path must be a path"):
        live.read(3)  # type: ignore[arg-type]


def test_each_changed_bit_is_noticed(written: Path) -> None:
    whole = bytearray(written.read_bytes())
    commits = [_commit(whole, 4096), _commit(whole, 4608)]
    latest = max(commits)
    assert latest[0] == 2
    places = [*range(64), *range(4096, 4160), *range(4608, 4672), *range(latest[2], latest[2] + latest[3])]
    older = 4096 if commits[0] != latest else 4608
    with written.open("r+b", buffering=0) as file:
        for place in places:
            os.pwrite(file.fileno(), bytes([whole[place] ^ 0x10]), place)
            try:
                unseen = live.read(written).commits == latest[0]
            except cp.FormatError:
                unseen = False
            assert unseen == (older <= place < older + 64)
            os.pwrite(file.fileno(), whole[place : place + 1], place)


def _commit(data: bytearray, place: int) -> tuple[int, ...]:
    return struct.unpack_from("<8Q", data, place)


def test_whether_the_process_is_there() -> None:
    own = live_file.own_head()
    assert own.is_alive()
    assert live_file.head_from_bytes(own.to_bytes()) == own
    again = live_file.head_from_bytes(replace(own, command="é" * 3000, host="h" * 300).to_bytes())
    assert (again.command, again.host) == ("é" * 1024, "h" * 255)
    elsewhere: list[dict[str, Any]] = [{"boot": bytes(range(16))}, {"namespace": 1}]
    for changed in ({"started_ticks": own.started_ticks + 1}, {"pid": 2**22 + 5}, *elsewhere):
        assert replace(own, **changed).is_alive() is (None if changed in elsewhere else False)


def with_commits(data: bytearray, **changes: int) -> bytes:
    """The file with some numbers of both commits changed, and right checksums."""
    for place in (4096, 4608):
        names = ("number", "taken_ns", "offset", "length", "flags", "error", "checksum")
        numbers = {**dict(zip(names, _commit(data, place), strict=False)), **changes}
        if "checksum" in changes:
            numbers["checksum"] = _core.checksum(data[numbers["offset"] :][: numbers["length"]])
        fields = struct.pack("<7Q", *numbers.values())
        data[place : place + 64] = fields + struct.pack("<Q", _core.checksum(fields))
    return bytes(data)


def test_a_place_that_points_elsewhere_is_refused(written: Path) -> None:
    whole = written.read_bytes()
    latest = max(_commit(bytearray(whole), 4096), _commit(bytearray(whole), 4608))
    written.write_bytes(whole[: latest[2] + latest[3]])
    assert live.read(written).commits == latest[0]
    data = bytearray(whole)
    for offset, length in ((0, 8), (8192, 2**40), (2**63, 2**63), (2**62, 8)):
        written.write_bytes(with_commits(data, offset=offset, length=length))
        with pytest.raises(cp.FormatError, match="cut or changed bytes"):
            live.read(written)
    written.write_bytes(with_commits(bytearray(whole), length=4, checksum=0))  # less than the number of its parts
    with pytest.raises(cp.FormatError, match="its statistics are no parts with labels"):
        live.read(written)


def test_an_overflow_is_told(written: Path) -> None:
    """Of a Profiler that has refused a key, as the core writes it."""
    data = bytearray(written.read_bytes())
    latest = max(_commit(data, 4096), _commit(data, 4608))
    data[latest[2] + 16] = 1
    written.write_bytes(with_commits(data, checksum=0))
    read = live.read(written)
    assert read.parts[0].refused_keys == 1
    assert read.reasons[-1].startswith("there are more keys than a Profiler keeps")


def test_an_error_of_any_number_is_told(written: Path) -> None:
    stale = 2  # the flag of commits after which none could be written
    written.write_bytes(with_commits(bytearray(written.read_bytes()), flags=stale, error=2**40))
    (reason,) = [reason for reason in live.read(written).reasons if "newer statistics" in reason]
    assert reason.startswith("newer statistics could not be written to the file: ")


def test_a_file_of_another_machine_is_of_unknown_state(written: Path) -> None:
    data = bytearray(written.read_bytes())
    data[: live_file.HEAD_SIZE] = replace(live_file.own_head(), boot=bytes(range(16))).to_bytes()
    written.write_bytes(data)
    assert live.read(written).state == "ended"  # that it is complete is known anyway
    written.write_bytes(with_commits(data, flags=0))
    assert live.read(written).state == "unknown"


def test_a_failure_at_the_end_is_no_exception(tmp_path: Path) -> None:
    """Where warnings are exceptions, too: the other files are closed, and what the program does is what it did."""
    program = """
import os, sys
import cprofiling as cp
first, second = cp.Profiler(), cp.Profiler()
first.set_profiling(True, live=sys.argv[1])
second.set_profiling(True, live=sys.argv[2])
third = cp.Profiler()
third.set_profiling(True, live=sys.argv[3])
os.unlink(sys.argv[1])
os.unlink(sys.argv[3])
third.set_profiling(False)
third.set_profiling(True, live=sys.argv[3])
"""
    paths = [str(tmp_path / name) for name in ("first", "second", "third")]
    done = run(program, *paths)
    expected = "cprofiling: the newest statistics are not in {!r}: Stale file handle\n"
    assert (done.returncode, done.stderr) == (0, expected.format(paths[2]) + expected.format(paths[0]))
    assert [live.read(path).state for path in paths[1:]] == ["ended", "ended"]
