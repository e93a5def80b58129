"""Files in folders that other users may write to, with the kernel's protection of links switched off."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cprofiling as cp
from command import COMMAND
from cprofiling import _core, layers, live
from cprofiling._internal import files
from cprofiling._internal.files import atomic_writer
from cprofiling.analysis.timing_reports import load_timing_report
from cprofiling.commands import main
from cprofiling.commands.report import load as load_shown
from cprofiling.layers import output_folder
from cprofiling.layers.harness.signature_file import load_signatures
from cprofiling.nodes.live_file import own_head
from cprofiling.recording.output_names import OutputPath, checked_path
from cprofiling.recording.traces import reader as loading
from cprofiling.testing.gates import baseline
from foreign import ATTACKER, VICTIM, begun_as, run_as, shared_folder, stop

pytestmark = [pytest.mark.native, pytest.mark.forks]

SECRET = b"what the victim has written"
PROGRAM = "import cprofiling as cp\n@cp.profile_node('node')\ndef node(): pass\nnode()\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    with shared_folder() as path:
        yield path


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PATIENCE_S", 0.2)


@pytest.fixture(scope="module")
def recording() -> cp.Recording:
    with cp.profile(operators=False) as prof, cp.record("block"):
        pass
    return prof.recording


class Own:
    """What the victim has, that is not to be written to: a file that it has open, and a pipe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "own"
        self.file = self.folder / "file"
        self.pipe = self.folder / "pipe"
        run_as(VICTIM, self.make)
        self.descriptor = os.open(self.file, os.O_RDWR)
        self.reader = os.open(self.pipe, os.O_RDONLY | os.O_NONBLOCK)

    def make(self) -> None:
        os.umask(0)
        self.folder.mkdir(0o755)
        self.file.write_bytes(SECRET)
        os.mkfifo(self.pipe, 0o666)

    def check(self) -> None:
        assert self.file.read_bytes() == SECRET
        assert os.read(self.reader, 1) == b""


@pytest.fixture
def own(folder: Path) -> Iterator[Own]:
    made = Own(folder)
    yield made
    os.close(made.descriptor)
    os.close(made.reader)


def listened(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        path.chmod(0o777)


def piped(path: Path) -> None:
    os.mkfifo(path)
    path.chmod(0o666)


def written(path: Path) -> None:
    path.write_bytes(b"x")
    path.chmod(0o666)


ATTACKS: dict[str, Callable[[Path, Own], object]] = {
    "pipe": lambda path, _: piped(path),
    "socket": lambda path, _: listened(path),
    "link to a descriptor": lambda path, own: path.symlink_to(f"/proc/self/fd/{own.descriptor}"),
    "link to stdout": lambda path, _: path.symlink_to("/dev/stdout"),
    "link to a device": lambda path, _: path.symlink_to("/dev/null"),
    "link to a file": lambda path, own: path.symlink_to(own.file),
    "link to a pipe": lambda path, own: path.symlink_to(own.pipe),
    "links in a circle": lambda path, _: path.symlink_to(path.name),
    "link to a folder": lambda path, own: path.symlink_to(own.folder),
    "hard link to a file": lambda path, own: os.link(own.file, path),
    "hard link to a pipe": lambda path, own: os.link(own.pipe, path),
    "folder": lambda path, _: path.mkdir(),
    "file": lambda path, _: written(path),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_another_user_has_put_there_gets_nothing(attack: str, folder: Path, own: Own) -> None:
    path = folder / "report.json"
    run_as(ATTACKER, lambda: ATTACKS[attack](path, own))
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if attack == "pipe" else -1

    def write() -> None:
        try:
            with atomic_writer(path) as file:
                file.write(b"secret")
        except OSError as error:
            assert error.filename == str(path)  # noqa: PT017
        else:  # what is the victim's own by owner may be replaced
            assert attack == "hard link to a file"
            assert path.read_bytes() == b"secret"

    run_as(VICTIM, write)
    own.check()
    assert reader < 0 or os.read(reader, 100) == b""
    assert not list(folder.glob(".cprofiling-*"))


def test_a_device_of_the_system_and_a_pipe_that_is_closed_to_its_owner(folder: Path) -> None:
    def write() -> None:
        with atomic_writer("/dev/null") as file:
            file.write(b"x")
        os.mkfifo(folder / "pipe", 0o400)
        with pytest.raises(PermissionError), atomic_writer(folder / "pipe"):
            pass

    run_as(VICTIM, write)


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("moment", ["before the start", "meanwhile"])
def test_a_trace_is_written_beside(attack: str, moment: str, folder: Path, own: Own, recording: cp.Recording) -> None:
    path = folder / "trace.json"
    output = OutputPath(str(path), is_first=True)
    run_as(ATTACKER, lambda: ATTACKS[attack](path, own))
    if moment == "before the start":
        output = OutputPath(str(path), is_first=True)

    def write() -> None:
        if (attack, moment) == ("folder", "before the start"):
            with pytest.raises(ValueError, match="it is a folder"):
                checked_path(str(path))
        elif moment == "before the start":
            assert checked_path(str(path)) == str(path)
        written = output.write(recording)
        assert written is not None
        assert (written == str(path)) == (attack.startswith("hard") and moment == "before the start")
        assert stat.S_IMODE(os.lstat(written).st_mode) == 0o600
        assert len(loading.load(written)) == 1

    run_as(VICTIM, write)
    own.check()


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_live_file_is_where_another_user_has_put_something(attack: str, folder: Path, own: Own) -> None:
    path = folder / "live.cprof"
    run_as(ATTACKER, lambda: ATTACKS[attack](path, own))

    def write() -> None:
        with pytest.raises((OSError, ValueError)):
            cp.Profiler().set_profiling(True, live=path)

    run_as(VICTIM, write)
    own.check()
    assert [each.name for each in folder.iterdir() if each != own.folder] == [path.name]


class Results:
    """What files are written of."""

    def __init__(self) -> None:
        self.profiler = cp.Profiler()
        self.profiler.set_profiling(True)
        self.profiler.record("train", "node", 1.0)
        with cp.profile(operators=False) as prof, cp.record("block"):
            pass
        self.recording = prof.recording
        self.snapshot = self.profiler.snapshot()
        self.own = tempfile.TemporaryDirectory(dir="/tmp")
        Path(self.own.name).chmod(0o755)
        self.one = str(Path(self.own.name, "one.cprof"))
        Path(self.one).write_bytes(self.snapshot.to_bytes())
        Path(self.one).chmod(0o644)
        self.trace = str(Path(self.own.name, "trace.json"))
        self.recording.export_chrome_trace(self.trace)
        Path(self.trace).chmod(0o644)


@pytest.fixture(scope="module")
def results() -> Iterator[Results]:
    made = Results()
    yield made
    made.own.cleanup()


def recorded_in_a_process(results: Results, path: Path) -> None:
    OutputPath(str(path), is_first=True).write(results.recording)


# Each way to write a file, with how the file's name ends.
WRITERS: dict[str, tuple[str, Callable[[Results, Path], object]]] = {
    **{
        f"save {suffix}": (suffix, lambda results, path: results.snapshot.save(path))
        for suffix in (".html", ".md", ".json", ".csv", ".txt", ".prom", ".parquet")
    },
    "save .json.gz": (".json.gz", lambda results, path: results.recording.save(path)),
    "export_chrome_trace": (".json", lambda results, path: results.recording.export_chrome_trace(path)),
    "export_stacks": (".txt", lambda results, path: results.recording.export_stacks(path)),
    "trace of a process": (".json", recorded_in_a_process),
    "baseline": (".json", lambda _, path: baseline.save(str(path), {})),
    "stage report": (".json", lambda _, path: output_folder.write_json(path, {})),
    "file of a run": (".json.gz", lambda _, path: output_folder.reserved(path.parent, path.name[:-8], ".json.gz")),
    "timing report": (".json", lambda _, path: layers.dump_timing_report(path)),
    "signatures": (".json", lambda _, path: layers.dump_io_signatures(path)),
    "live file": (".cprof", lambda results, path: results.profiler.set_profiling(True, live=path)),
    "merge": (".cprof", lambda results, path: main.main(["merge", results.one, results.one, "-o", str(path)])),
    "merge of traces": (
        ".json",
        lambda results, path: main.main(["merge", results.trace, results.trace, "-o", str(path)]),
    ),
    "report": (".html", lambda results, path: main.main(["report", results.one, "-o", str(path)])),
}


@pytest.mark.parametrize("place", ["final", "temporary"])
@pytest.mark.parametrize("attack", ["link to a file", "hard link to a file", "link to a folder"])
@pytest.mark.parametrize("writer", WRITERS)
def test_nothing_that_is_written_follows_a_link(
    writer: str, attack: str, place: str, folder: Path, own: Own, results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    suffix, write = WRITERS[writer]
    for package in {".html": ["jinja2"], ".parquet": ["pyarrow"], ".prom": ["prometheus_client"]}.get(suffix, []):
        pytest.importorskip(package)
    write(results, Path(results.own.name, f"unharmed{suffix}"))  # as the victim can import nothing of root's
    assert Path(results.own.name, f"unharmed{suffix}").is_file()
    results.profiler.set_profiling(True)
    path = folder / f"written{suffix}"
    names = {"final": path, "temporary": folder / f".cprofiling-{bytes(8).hex()}.tmp"}  # if it could be guessed
    run_as(ATTACKER, lambda: ATTACKS[attack](names[place], own))

    def try_it() -> None:
        monkeypatch.setattr(os, "urandom", bytes)
        with contextlib.suppress(OSError, ValueError):
            write(results, path)

    run_as(VICTIM, try_it)
    own.check()
    assert {each.name for each in own.folder.iterdir()} == {"file", "pipe"}


@pytest.mark.slow
def test_a_link_that_is_changed_all_the_time(folder: Path, own: Own) -> None:
    path = folder / "report.json"
    folder.chmod(0o777)  # the attacker may replace what the victim has written

    def change() -> None:
        for number in range(10**9):
            path.with_suffix(".new").unlink(missing_ok=True)
            path.with_suffix(".new").symlink_to("/dev/null" if number % 2 else own.file)
            path.with_suffix(".new").replace(path)

    def write() -> None:
        for _ in range(500):
            with atomic_writer(path) as file:
                file.write(b"new")

    attacker = begun_as(ATTACKER, change)
    try:
        run_as(VICTIM, write)
    finally:
        stop(attacker)
    own.check()


def test_a_whole_program_beside_a_pipe_that_nobody_reads(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    run_as(ATTACKER, lambda: os.mkfifo(folder / "trace.json"))
    command = [*COMMAND, "run", "-o", str(folder / "trace.json"), "app.py"]
    started = time.monotonic()
    os.chown(folder, ATTACKER, -1)  # root may replace anything in a sticky folder
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert time.monotonic() - started < 30
    written = [path for path in folder.glob("*.json") if path.is_file()]
    assert [len(loading.load(path)) for path in written] == [1], done.stderr


# ---- The other end of what is the user's own


def test_a_pipe_that_nobody_reads(tmp_path: Path, impatient: None) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(TimeoutError, match=r"nobody has read the pipe for 0\.2 s") as caught, atomic_writer(path):
        pytest.fail("nobody reads")
    assert caught.value.filename == str(path)


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_a_reader_that_does_not_read(kind: str, tmp_path: Path, impatient: None) -> None:
    path = tmp_path / "other"
    with socket.socket(socket.AF_UNIX) as server:
        if kind == "pipe":
            os.mkfifo(path)
            end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        else:
            server.bind(str(path))
            server.listen()
            end = -1
        with pytest.raises(TimeoutError, match="has done nothing"), atomic_writer(path) as file:
            file.write(bytes(10_000_000))
        if end >= 0:
            os.close(end)


def test_a_slow_reader_gets_everything(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    taken: list[bytes] = []

    def read() -> None:
        time.sleep(0.1)
        with path.open("rb", buffering=0) as file:
            while piece := file.read(50_000):
                taken.append(piece)
                time.sleep(0.01)

    reader = threading.Thread(target=read)
    reader.start()
    data = bytes(range(256)) * 4000
    with atomic_writer(path) as file:
        file.write(data)
    reader.join()
    assert b"".join(taken) == data


# ---- Reading


READERS: dict[str, Callable[[str], object]] = {
    "live file": live.read,
    "anything": load_shown,
    "trace": cp.load_trace,
    "timing report": load_timing_report,
    "signatures": load_signatures,
    "report of ncu": cp.analyze_ncu_report,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("has_writer", [False, True])
def test_a_pipe_that_nothing_comes_from(reader: str, has_writer: bool, tmp_path: Path, impatient: None) -> None:
    path = tmp_path / "pipe.csv"
    os.mkfifo(path)
    end = os.open(path, os.O_RDWR | os.O_NONBLOCK) if has_writer else -1
    with pytest.raises((TimeoutError, cp.FormatError)):
        READERS[reader](str(path))
    if has_writer:
        os.close(end)


@pytest.mark.parametrize(
    "arguments", [["top"], ["report"], ["merge"], ["compare"], ["serve", "--token-file"]], ids=" ".join
)
def test_no_command_waits_for_a_pipe(
    arguments: list[str], tmp_path: Path, impatient: None, capsys: pytest.CaptureFixture[str]
) -> None:
    if arguments[0] == "serve":
        pytest.importorskip("grpc")
        pytest.importorskip("grpc_health")
        pytest.importorskip("grpc_reflection")
    path = tmp_path / "pipe"
    os.mkfifo(path)
    (tmp_path / "app.py").write_text("")
    rest = [str(tmp_path / "app.py")] if arguments[0] in ("serve", "compare") else []
    assert main.main([*arguments, str(path), *rest]) == 1
    assert str(path) in capsys.readouterr().err


def test_a_pipe_is_not_read_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_MOST_OF_PIPE", 1 << 20)
    with pytest.raises(cp.FormatError, match="more than 1048576 bytes"):
        load_shown("/dev/fd/" + str(_endless(b" ")))
    with pytest.raises(cp.FormatError, match="more than 1048576 bytes"):
        files.read_whole("/dev/zero")
    monkeypatch.setattr(files, "_MOST_OF_PIPE", 2 << 20)
    assert len(files.read_whole(f"/dev/fd/{_endless(b' ')}")) == 2 << 20


def _endless(data: bytes) -> int:
    end, other = os.pipe()

    def write() -> None:
        for _ in range(32):
            os.write(other, data * (1 << 16))
        os.close(other)

    threading.Thread(target=write, daemon=True).start()
    return end


def forged(length: int) -> bytes:
    """The beginning of a live file whose newest statistics have that many bytes."""
    commit = struct.pack("<7Q", 1, time.time_ns(), 8192, length, 0, 0, 0)
    place = commit + struct.pack("<Q", _core.checksum(commit))
    return own_head().to_bytes() + place.ljust(512, b"\0")


@pytest.mark.parametrize("length", [2**31, 2**40, 2**63, 2**64 - 1])
def test_a_live_file_that_is_mostly_holes(length: int, tmp_path: Path) -> None:
    path = tmp_path / "live.cprof"
    path.write_bytes(forged(length))
    os.truncate(path, min(8192 + length, 2**41))
    started = time.process_time()
    with pytest.raises(cp.FormatError, match="wrong checksum of its statistics"):
        live.read(path)
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    "data",
    [
        b"\1",
        struct.pack("<Q", 2**60),
        struct.pack("<QIIQQ", 1, 1, 0, 0, 0) + b"\xff",
        struct.pack("<QIIQQ", 1, 9, 0, 0, 2**63),
    ],
)
def test_a_live_file_with_forged_parts(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "live.cprof"
    commit = struct.pack("<7Q", 1, 2**64 - 1, 8192, len(data), 2, 2**64 - 1, _core.checksum(data))
    beginning = own_head().to_bytes() + commit + struct.pack("<Q", _core.checksum(commit))
    path.write_bytes(beginning.ljust(8192, b"\0") + data)
    with pytest.raises(cp.FormatError):
        live.read(path)


def test_a_live_file_with_an_errno_that_there_is_not(tmp_path: Path) -> None:
    path, data = tmp_path / "live.cprof", struct.pack("<Q", 0)
    commit = struct.pack("<7Q", 1, 1, 8192, len(data), 2, 2**64 - 1, _core.checksum(data))
    beginning = own_head().to_bytes() + commit + struct.pack("<Q", _core.checksum(commit))
    path.write_bytes(beginning.ljust(8192, b"\0") + data)
    assert "Unknown error" in live.read(path).reasons[0]


@pytest.mark.parametrize("reader", ["anything", "merge"])
def test_statistics_that_are_mostly_holes(reader: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "all.cprof"
    profiler = cp.Profiler()
    path.write_bytes(profiler.snapshot().to_bytes())
    os.truncate(path, 2**40)
    if reader == "merge":
        assert main.main(["merge", str(path)]) == 1
        assert "has holes" in capsys.readouterr().err
    else:
        with pytest.raises(cp.FormatError, match="has holes"):
            load_shown(str(path))
