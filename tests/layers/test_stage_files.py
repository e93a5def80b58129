"""The files of a run, its ranks and workers (failure scenarios D2, D10, D12 and D13 for stage reports)."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest

from cprofiling._internal import environment, process
from cprofiling.layers import context, output_folder, workers
from cprofiling.layers.memory import StageMemory
from cprofiling.layers.registry import Registry

Context = context.ProfilingContext


pytestmark = pytest.mark.usefixtures("fresh_stages")


# ---- Files


def test_files_of_a_run_are_in_its_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    context.set_pipeline_name("../wan/2.1")
    with caplog.at_level(logging.INFO, "cprofiling"):
        timing, signatures = context.dump_timing_report(), context.dump_io_signatures()
    folder = context.get_profiler_output_dir()
    assert folder.parent == tmp_path / "work_dirs" / "profiler_output" / "..%2Fwan%2F2.1"
    assert re.fullmatch(r"\d{8}_\d{4}", folder.name)
    assert (timing, signatures) == (folder / "timing.json", folder / "timing_io_signature.json")
    assert timing.stat().st_mode & 0o777 == 0o600
    folders = [folder, folder.parent, tmp_path / "work_dirs" / "profiler_output", tmp_path / "work_dirs"]
    assert [each.stat().st_mode & 0o777 for each in folders] == [0o700] * 4
    assert caplog.messages == [
        f"[Profiler] Timing report saved to: {timing}", f"[Profiler] Stage I/O signatures saved to: {signatures}",
    ]  # fmt: skip
    context.set_profiler_output_dir(tmp_path / "out" / "here")
    assert context.get_profiler_output_dir() == tmp_path / "out" / "here"
    assert context.dump_timing_report() == tmp_path / "out" / "here" / "timing.json"
    monkeypatch.setenv(environment.TIMING_REPORT, str(tmp_path / "x.json"))
    assert context.dump_timing_report() == tmp_path / "x.json"
    assert context.dump_io_signatures() == tmp_path / "x_io_signature.json"
    with pytest.raises(OSError, match=r"x\.json"):
        context.dump_timing_report(tmp_path / "x.json" / "timing.json")


def test_the_summary_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with Context("a\nb", capture_memory=True):
        pass
    context._registry._own.memories["a\nb"] = StageMemory(1 << 20, 2 << 20, 3 << 20, 4 << 20)
    context.print_timing_summary()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Pipeline timing of test"
    assert lines[4].split()[:2] == [r"a\nb", "1"]
    assert lines[4].split()[-1] == "4", "what was reserved, as ranks have it"
    assert lines[-2].startswith(r"  before_a\nb: ")


# ---- Whole processes


PROGRAM = """
import logging, sys
from cprofiling import layers

@layers.ProfilingContextDebug("stage")
def stage(x):
    return x

with layers.ProfilingContext("always"):
    stage(1)
"""


AT_A_MINUTE = """
from datetime import datetime
from cprofiling.layers import output_folder as output

class AMinute(datetime):
    @classmethod
    def now(cls):
        return cls(2026, 1, 2, 3, 4)

output.datetime = AMinute
"""


def run(program: str, folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program, which child processes may import."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("CPROFILING_", "_CPROFILING"))}
    environ |= {"PYTHONDONTWRITEBYTECODE": "1", **variables}
    (folder / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "program.py", *arguments], cwd=folder, env=environ,
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    (folder / "program.py").unlink()
    return done


def test_debug_mode_writes_at_exit(tmp_path: Path) -> None:
    done = run(PROGRAM, tmp_path, CPROFILING_PROFILE_DEBUG="on", CPROFILING_PIPELINE_NAME="wan")
    (folder,) = (tmp_path / "work_dirs" / "profiler_output" / "wan").iterdir()
    timing = json.loads((folder / "timing.json").read_text())
    assert {name: stage["count"] for name, stage in timing["stages"].items()} == {"stage": 1, "always": 1}
    signatures = json.loads((folder / "timing_io_signature.json").read_text())
    assert signatures["stages"]["stage"]["input_signatures"] == {"x": 1}
    assert "[Timing] stage:" in done.stderr
    assert f"[Profiler] Timing report saved to: {folder / 'timing.json'}" in done.stderr
    assert done.stdout == ""


def test_a_report_at_exit_is_written_where_a_variable_says(tmp_path: Path) -> None:
    done = run(PROGRAM, tmp_path)
    assert (done.stdout, done.stderr, list(tmp_path.iterdir())) == ("", "", []), "nowhere"
    run(PROGRAM, tmp_path, CPROFILING_TIMING_REPORT="x.json")
    assert list(json.loads((tmp_path / "x.json").read_text())["stages"]) == ["always"]
    assert not (tmp_path / "x_io_signature.json").exists(), "no stage was decorated"
    done = run(PROGRAM, tmp_path, CPROFILING_TIMING_REPORT="x.json/y.json")
    assert "[Profiler] The timing report is lost: " in done.stderr


def test_runs_in_one_minute_have_folders_of_their_own(tmp_path: Path) -> None:
    program = AT_A_MINUTE + PROGRAM
    for _ in range(3):
        run(program, tmp_path, CPROFILING_PROFILE_DEBUG="1")
    folders = sorted(path.name for path in (tmp_path / "work_dirs" / "profiler_output" / "default").iterdir())
    assert folders == ["20260102_0304", "20260102_0304-2", "20260102_0304-3"]


def test_ranks_share_a_folder_and_no_file(tmp_path: Path) -> None:
    program = AT_A_MINUTE + PROGRAM
    for rank in ("1", "0", "2"):
        variables = {"CPROFILING_PROFILE_DEBUG": "1", "CPROFILING_PROFILER_NAMES": "always"}
        done = run(program, tmp_path, **variables, RANK=rank, WORLD_SIZE="3")
        assert f"[Rank {rank}] [Timing] always" in done.stderr
    (folder,) = (tmp_path / "work_dirs" / "profiler_output" / "default").iterdir()
    names = sorted(path.name for path in folder.iterdir())
    assert [name for name in names if "trace" in name] == [f"always_rank{rank}.trace.json.gz" for rank in range(3)]
    timing = [name for name in names if name.startswith("timing") and "io_signature" not in name]
    assert timing[0] == "timing.json"
    assert [name.split("_")[1] for name in timing[1:]] == ["rank1", "rank2"]
    assert [json.loads((folder / name).read_text())["rank"] for name in timing] == [0, 1, 2]


@pytest.mark.parametrize("value", ["maybe", "2"])
def test_booleans_that_are_none_are_warned_of_once(tmp_path: Path, value: str) -> None:
    program = (
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as told:\n"
        "    warnings.simplefilter('always')\n"
        "    from cprofiling import layers\n"
        "    import cprofiling.layers\n"
        "print([(str(each.message), each.category.__name__) for each in told], layers.context.log.debug)\n"
    )
    done = run(
        program, tmp_path, CPROFILING_PROFILE_DEBUG=value, CPROFILING_WITH_STACK=value, CPROFILING_PROFILE_MEMORY=""
    )
    told, debug = done.stdout.rsplit(" ", 1)
    assert debug.strip() == "False"
    assert told.count("RuntimeWarning") == 2
    assert (
        f"CPROFILING_PROFILE_DEBUG must be one of 1, true, yes, on, or one of 0, false, no, off, got '{value}'" in told
    )
    assert "it is taken as false" in told
    assert "CPROFILING_WITH_STACK" in told
    assert "it is taken as true" in told
    assert "CPROFILING_PROFILE_MEMORY" not in told


WORKERS = """
import json, multiprocessing, os, sys, time
from cprofiling import layers

def work(rank):
    os.environ["RANK"] = str(rank)
    layers.mark_as_worker_process()
    layers.mark_as_worker_process()
    for _ in range(rank):
        with layers.ProfilingContext("dit", capture_memory=True):
            time.sleep(0.005)
    layers.ProfilingContext("decode")(lambda latents: None)(rank)
    for name in ("decode", "never"):
        try:
            with layers.ProfilingContext(name):
                raise KeyError
        except KeyError:
            pass

if __name__ == "__main__":
    layers.reset_timing_registry("req")
    context = multiprocessing.get_context(sys.argv[1])
    with layers.ProfilingContext("all"):
        workers = [context.Process(target=work, args=(rank,)) for rank in (1, 2, 3)]
        for each in workers: each.start()
        for each in workers: each.join()
    report = layers.get_timing_report()
    layers.print_timing_summary()
    print(json.dumps(report))
    print(json.dumps({name: each.to_dict() for name, each in layers.get_io_signatures().items()}))
    layers.reset_timing_registry("next")
    print(json.dumps(layers.get_timing_report()["stages"]))
    from cprofiling.layers import context
    print(os.path.isdir(context._registry.records._folder))
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_records_of_workers_are_the_main_processes(tmp_path: Path, method: str) -> None:
    done = run(WORKERS, tmp_path, method, CPROFILING_PROFILE_DEBUG="true", TMPDIR=str(tmp_path))
    *table, report, signatures, after, folder = done.stdout.splitlines()
    stages = json.loads(report)["stages"]
    assert set(stages) == {"dit", "decode", "never", "all"}
    errors = {name: stage["error_count"] for name, stage in stages.items() if "error_count" in stage}
    assert errors == {"decode": 3, "never": 3}, "those of all workers"
    dit = stages["dit"]
    ranks = dit["parallel_info"]["ranks"]
    assert dit["parallel_info"]["num_ranks"] == 3
    assert [(each["rank"], each["count"]) for each in ranks] == [(1, 1), (2, 2), (3, 3)]
    slowest = max(each["duration_ms"] for each in ranks)
    assert dit["duration_ms"] == slowest >= 15
    assert dit["memory"]["peak_allocated_mb"] > 0
    assert "parallel_info" not in stages["all"]
    memory = json.loads(report)["memory"]
    assert list(memory["snapshots"]) == ["before_dit", "after_dit"]
    assert memory["peak_reserved_mb"] == max(each["peak_reserved_mb"] for each in memory["snapshots"].values()) > 0
    assert json.loads(signatures)["decode"]["input_signatures"] == {"latents": 1}, "that of the lowest rank"
    assert json.loads(after) == {}
    assert folder == "True"
    assert sum("rank " in line for line in table) == 6
    assert "  after_dit: " in table[-1]
    written = sorted(path.name for path in tmp_path.rglob("*.json"))
    assert written == [], "nothing was left to report after the reset, and workers report nothing"
    assert not list(tmp_path.glob("cprofiling-workers-*"))


CHILDREN = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
from cprofiling import layers

@layers.ProfilingContextDebug("work")
def work(x):
    return x

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        assert list(pool.map(work, range(3))) == [0, 1, 2]
    child = context.Process(target=work, args=(1,))
    child.start()
    child.join()
    with layers.ProfilingContext("main"):
        pass
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_that_are_no_workers_write_their_own_reports(tmp_path: Path, method: str) -> None:
    done = run(CHILDREN, tmp_path, method, CPROFILING_PROFILE_DEBUG="1")
    reports = [json.loads(path.read_text()) for path in tmp_path.rglob("timing*.json")]
    counts = [
        {name: stage["count"] for name, stage in report["stages"].items()}
        for report in reports
        if "wall_clock_ms" in report
    ]
    assert sorted(counts, key=repr) == [{"main": 1}, {"work": 1}, {"work": 3}]
    assert done.stderr.count("[Profiler] Timing report saved to: ") == 3, "each is written once"


# ---- Folders


def test_a_run_keeps_its_folder_where_the_process_goes_elsewhere(tmp_path: Path) -> None:
    folder = context.get_profiler_output_dir()
    (tmp_path / "elsewhere").mkdir()
    os.chdir(tmp_path / "elsewhere")
    assert context.get_profiler_output_dir() == folder
    assert context.dump_timing_report() == folder / "timing.json"
    assert list(Path().iterdir()) == []
    shutil.rmtree(folder)
    assert context.get_profiler_output_dir().is_dir(), "another one, as somebody has removed it"


def test_children_are_in_the_folder_of_their_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = context.get_profiler_output_dir()
    told = os.environ["_CPROFILING_RUN_FOLDERS"]
    output_folder.forget()
    monkeypatch.setenv("_CPROFILING_RUN_FOLDERS", told)
    monkeypatch.setattr(process, "is_main", lambda: False)
    assert context.get_profiler_output_dir() == folder
    assert context.dump_timing_report() == folder / f"timing_rank0_{os.getpid()}.json"
    for broken in ("", "7", "{}", "nonsense", '{"x": 7}'):
        output_folder.forget()
        monkeypatch.setenv("_CPROFILING_RUN_FOLDERS", broken)
        assert context.get_profiler_output_dir().parent == folder.parent


def test_other_ranks_join_the_latest_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = datetime(2026, 1, 2, 3, 4, tzinfo=timezone.utc)
    monkeypatch.setattr(output_folder, "datetime", SimpleNamespace(now=lambda: moment))
    first = context.get_profiler_output_dir()
    second = first.with_name(f"{first.name}-2")
    second.mkdir()
    output_folder.forget()
    monkeypatch.setattr(process, "rank", lambda: 1)
    assert context.get_profiler_output_dir() == second


# ---- Workers


def test_lines_of_workers_that_make_no_sense(tmp_path: Path) -> None:
    registry = Registry()
    registry.records._folder = tmp_path / "workers"

    def told() -> list[tuple[int, float | None]]:
        stages = registry.report()["stages"]
        return [(rank["count"], rank["peak_memory_gb"]) for rank in stages["x"]["parallel_info"]["ranks"]]

    assert registry.report()["stages"] == {}
    writer = workers.WorkerWriter(str(tmp_path / "workers"))
    assert registry.report()["stages"] == {}
    (path,) = (tmp_path / "workers").iterdir()
    with path.open("ab") as file:
        file.write(b'{"rank": 0}\nnonsense\n7\n{"rank": 0, "name": "x", "ms": "y", "memory": null}\n\xff\n')
    writer.write(name="x", ms=2.0, memory=None)
    with path.open("ab") as file:
        file.write(b'{"rank": 0, "name": "x", "ms": 3.0')
    assert told() == [(1, None)]
    with path.open("ab") as file:
        file.write(b', "memory": [1, 2, 3, 1073741824]}\n')
    assert told() == [(2, 1.0)]
    path.unlink()
    assert told() == [(2, 1.0)]
    (tmp_path / "workers").rmdir()
    registry.records.pass_by()
    assert registry.report()["stages"] == {}


def test_of_the_checkpoints_of_workers_the_highest_counts(tmp_path: Path) -> None:
    registry = Registry()
    registry.records._folder = tmp_path
    for peak in (2, 3, 1):
        writer = workers.WorkerWriter(str(tmp_path))
        writer.write(name="x", ms=1.0, memory=None)
        for name in ("before_x", "own"):
            writer.write(checkpoint=name, memory=StageMemory(1, 1, 1, peak))
    registry.add_checkpoint("own", StageMemory(0, 0, 0, 0))
    assert registry.checkpoints() == {"before_x": (1, 1, 1, 3), "own": (0, 0, 0, 0)}
    registry.forget_checkpoints()
    assert registry.checkpoints() == {}


def test_a_worker_that_cannot_write_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    writer = workers.WorkerWriter(str(tmp_path / "file"))
    writer.write(name="x", ms=1.0, memory=None)
    assert len(caplog.messages) == 1
    assert "The records of this worker are lost: cannot write to" in caplog.messages[0]
    full = workers.WorkerWriter(str(tmp_path / "workers"))
    os.close(full._descriptor)
    full._descriptor = os.open("/dev/full", os.O_WRONLY)
    for _ in range(2):
        full.write(name="x", ms=1.0, memory=None)
    assert caplog.messages[1:] == ["[Profiler] Further records of this worker are lost: No space left on device"]


def test_a_worker_that_cannot_be_read_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    registry = Registry()
    registry.records._folder = tmp_path
    path = tmp_path / "worker.jsonl"
    path.mkdir()
    assert registry.report()["stages"] == {}
    assert set(caplog.messages) == {f"[Profiler] Records of workers are missing: cannot read '{path}': Is a directory"}
    caplog.clear()
    file = tmp_path / "file"
    file.touch()
    registry = Registry()
    registry.records._folder = file
    assert registry.report()["stages"] == {}
    assert set(caplog.messages) == {f"[Profiler] Records of workers are missing: cannot read '{file}': Not a directory"}


def test_a_worker_that_nobody_reads_is_a_worker_all_the_same(tmp_path: Path) -> None:
    program = (
        "import os\nfrom cprofiling.layers import context as layers\nlayers._folder_of_main = None\n"
        "os.environ.pop('_CPROFILING_WORKER_FOLDER')\nlayers.mark_as_worker_process()\n"
        "with layers.ProfilingContext('x'): pass\nprint(layers.get_timing_report()['num_stages'])\n"
    )
    done = run(program, tmp_path, CPROFILING_PROFILE_DEBUG="1")
    assert done.stdout == "1\n"
    assert list(tmp_path.iterdir()) == []


def test_a_killed_worker_has_told_what_it_did(tmp_path: Path) -> None:
    program = (
        "import os, signal\nfrom cprofiling import layers\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        "    layers.mark_as_worker_process()\n"
        "    for _ in range(7):\n"
        "        with layers.ProfilingContext('x'): pass\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "os.waitpid(pid, 0)\n"
        "print(layers.get_timing_report()['stages']['x']['count'])\n"
        "with layers.ProfilingContext('x'): pass\n"
        "print([each['count'] for each in layers.get_timing_report()['stages']['x']['parallel_info']['ranks']])\n"
    )
    assert run(program, tmp_path).stdout == "7\n[7, 1]\n"
