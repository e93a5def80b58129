"""Chrome traces in files of all kinds, and what happens where they cannot be written."""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cprofiling as cp
from calls import run_python
from cprofiling._internal.text import file_name_of
from recorded import STRANGE
from recordings import made

pytestmark = pytest.mark.native

anything: Any = SimpleNamespace


@cp.profile_node("node")
def node() -> None:
    pass


@cp.profile_node("outer")
def outer() -> None:
    node()


@pytest.fixture(scope="module")
def recording() -> cp.Recording:
    with cp.profile() as prof:
        for _ in range(50):
            outer()
        for name in STRANGE:
            with cp.record(name):
                node()
        with cp.stage("train"):
            node()
        thread = threading.Thread(target=outer, name="a worker")
        thread.start()
        thread.join()
    return prof.recording


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def strictly(text: str | bytes) -> dict[str, Any]:
    """What a strict parser reads."""
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    trace = json.loads(text, parse_constant=refuse, object_pairs_hook=unique)
    assert isinstance(trace, dict)
    return trace


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    assert len(keys) == len(set(keys)), keys
    return dict(pairs)


def spans(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def test_a_trace_is_what_its_format_says(recording: cp.Recording, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    recording.export_chrome_trace(path)
    trace = strictly(path.read_bytes())
    assert trace["schemaVersion"] == 1
    assert trace["cprofiling"]["dropped"] == 0
    assert trace["distributedInfo"]["rank"] == 0
    assert trace["deviceProperties"] == []
    events = {event.span_id: event for event in recording.events()}
    written = spans(trace)
    assert len(written) == len(events)
    base = int(trace["baseTimeNanoseconds"])
    for span in written:
        event = events[span["args"]["span_id"]]
        assert span["name"] == event.name
        assert span["cat"] == event.cat
        assert span["pid"] == os.getpid()
        assert span["tid"] == event.thread_id
        assert round(span["ts"] * 1000) == event.start - base
        assert round(span["dur"] * 1000) == event.dur
        assert span["args"]["trace_id"] == event.trace_id
        assert span["args"].get("parent_span_id") == event.parent_span_id
        assert span["args"]["stage"] == event.stage
    names = {event["name"] for event in trace["traceEvents"] if event["ph"] == "X"}
    others = {event["name"] for event in trace["traceEvents"] if event["ph"] != "X"}
    assert not names & others, "no other event carries a span's name"
    assert names == {"node", "outer", *STRANGE}


def test_threads_and_process_have_names(recording: cp.Recording) -> None:
    file = io.BytesIO()
    recording.export_chrome_trace(file=file)
    metadata = [event for event in strictly(file.getvalue())["traceEvents"] if event["ph"] == "M"]
    threads = {event["tid"]: event["args"]["name"] for event in metadata if event["name"] == "thread_name"}
    assert threads[threading.get_native_id()] == "MainThread"
    assert "a worker" in threads.values()
    assert {event["name"] for event in metadata} >= {"process_name", "thread_name", "thread_sort_index"}


class Plain:
    """A file-like object with nothing but write."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, piece: bytes) -> None:
        self.pieces.append(bytes(piece))


class Trickle(io.RawIOBase):
    """A raw file that takes a little at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.data = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data[:1000])
        self.data += piece
        return len(piece)


def test_all_files_get_the_same(recording: cp.Recording, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    recording.export_chrome_trace(str(path))
    expected = path.read_bytes()
    packed = tmp_path / "trace.json.gz"
    recording.export_chrome_trace(packed)
    assert gzip.decompress(packed.read_bytes()) == expected
    text, binary, plain, trickle = io.StringIO(), io.BytesIO(), Plain(), Trickle()
    for file in (text, binary, plain, trickle):
        recording.export_chrome_trace(file=file)  # type: ignore[arg-type]
    assert text.getvalue().encode() == expected
    assert binary.getvalue() == expected
    assert b"".join(plain.pieces) == expected
    assert trickle.data == expected
    for mode, buffering in (("w", -1), ("wb", -1), ("wb", 0)):
        other = tmp_path / "other.json"
        with open(other, mode, buffering=buffering) as stream:
            recording.export_chrome_trace(file=stream)
            assert not stream.closed
        assert other.read_bytes() == expected


@pytest.mark.parametrize("mode", ["w+", "w+b"])
def test_a_wrapped_file_says_by_its_mode_what_it_takes(recording: cp.Recording, mode: str) -> None:
    with tempfile.NamedTemporaryFile(mode, encoding=None if "b" in mode else "utf-8") as file:
        recording.export_chrome_trace(file=file)
        assert len(spans(strictly(Path(file.name).read_bytes()))) == len(recording.events())


def test_a_file_that_takes_nothing_at_present(recording: cp.Recording) -> None:
    class Full(Trickle):
        def write(self, data: Any) -> None:  # type: ignore[override]
            return None

    with pytest.raises(BlockingIOError, match="blocking mode"):
        recording.export_chrome_trace(file=Full())  # type: ignore[arg-type]


@pytest.mark.parametrize("encoding", ["utf-16", "ascii", "latin-1", "shift_jis"])
def test_a_text_file_of_another_encoding_gets_what_it_can_take(
    recording: cp.Recording, tmp_path: Path, encoding: str
) -> None:
    path = tmp_path / "trace.json"
    with open(path, "w", encoding=encoding) as stream:
        recording.export_chrome_trace(file=stream)
    assert {span["name"] for span in spans(strictly(path.read_text(encoding=encoding)))} >= {*STRANGE}


class Odd(io.StringIO):
    """A text file with a word of its own for its encoding."""

    encoding = "whatever"


def test_characters_are_whole_in_each_piece() -> None:
    """Names are longer than the pieces in which a trace is written."""
    names = [letter * 100_000 for letter in "\u00e9\u20ac\U0001f600"]
    recording = made([{"name": name, "start": 0, "thread": "1/1"} for name in names])
    plain, text, odd = Plain(), io.StringIO(), Odd()
    for file in (plain, text, odd):
        recording.export_chrome_trace(file=file)  # type: ignore[arg-type]
    assert len(plain.pieces) > 2
    assert [span["name"] for span in spans(strictly(text.getvalue()))] == names
    assert odd.getvalue() == text.getvalue() == b"".join(plain.pieces).decode()


def test_files_are_private_and_whole(recording: cp.Recording, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("old")
    path.chmod(0o644)
    recording.export_chrome_trace(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["missing/trace.json", "missing/trace.json.gz", "folder"])
def test_a_path_that_cannot_be_written(recording: cp.Recording, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    path = tmp_path / name
    with pytest.raises(OSError, match=name.partition(".")[0]) as caught:
        recording.export_chrome_trace(path)
    assert caught.value.filename == str(path)
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]
    with cp.profile() as prof:
        node()
    with pytest.raises(OSError, match=r"missing|folder"):
        prof.export_chrome_trace(path)
    assert len(prof.events()) == 1


@pytest.mark.parametrize("way", ["path", "file", "text", "gz"])
def test_a_full_disk(recording: cp.Recording, tmp_path: Path, way: str) -> None:
    if way == "path":
        with pytest.raises(OSError, match="No space left") as caught:
            recording.export_chrome_trace("/dev/full")
        assert caught.value.filename == "/dev/full"
    elif way == "gz":
        link = tmp_path / "full.json.gz"
        link.symlink_to("/dev/full")
        with pytest.raises(OSError, match="No space left"):
            recording.export_chrome_trace(link)
        assert link.is_symlink()
    else:
        with pytest.raises(OSError, match="No space left"), open("/dev/full", "wb" if way == "file" else "w") as full:
            recording.export_chrome_trace(file=full)
    assert Path("/dev/full").is_char_device()


def test_a_file_size_limit_leaves_no_part(tmp_path: Path) -> None:
    """D7: EFBIG in the middle; the file that was there before is unharmed."""
    script = f"""
import resource, signal, os
import cprofiling as cp
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with cp.profile() as prof:
    for i in range(20000):
        with cp.record("label"): pass
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
path = {str(tmp_path / "trace.json")!r}
for target in (path, path + ".gz"):
    open(target, "w").write("before")
    try:
        prof.export_chrome_trace(target)
    except OSError as error:
        assert error.filename == target, error
    else:
        assert target.endswith(".gz"), "it should not have fitted"
    assert target.endswith(".gz") or open(target).read() == "before"
assert not [name for name in os.listdir({str(tmp_path)!r}) if name.endswith(".tmp")]
"""
    done = run_python(script)
    assert done.returncode == 0, done.stderr


def test_wrong_files(recording: cp.Recording, tmp_path: Path) -> None:
    closed = io.BytesIO()
    closed.close()
    reading = open(__file__, encoding="utf-8")  # noqa: SIM115 it is closed below
    for call in (lambda file: recording.export_chrome_trace(file=file), lambda file: cp.profile(file=file)):
        with pytest.raises(ValueError, match="closed"):
            call(closed)
        with pytest.raises(ValueError, match="open for writing"):
            call(reading)
        with pytest.raises(TypeError, match=r"file must be a (path|file object)"):
            call(3)
    reading.close()
    with pytest.raises(TypeError, match=r"either a path or a file, got neither$"):
        recording.export_chrome_trace()
    with pytest.raises(TypeError, match=r"either a path or a file, got both: path .*x'\).* and file <_io.BytesIO"):
        recording.export_chrome_trace(tmp_path / "x", file=io.BytesIO())
    assert list(tmp_path.iterdir()) == []


EXPORTS = ("export_chrome_trace", "export_stacks")


@pytest.mark.parametrize("name", EXPORTS)
def test_what_is_no_path_is_refused(recording: cp.Recording, name: str) -> None:
    export = getattr(recording, name)
    with pytest.raises(TypeError) as wrong:
        export(3)
    assert str(wrong.value) == "path must be a path, got 3 (int)"
    for empty in ("", b""):
        with pytest.raises(ValueError, match="path must not be empty"):
            export(empty)


def test_paths_of_bytes_are_paths(recording: cp.Recording, tmp_path: Path) -> None:
    recording.export_stacks(os.fsencode(tmp_path / "stacks"))
    recording.export_chrome_trace(os.fsencode(tmp_path / "trace.json.gz"))
    cp.tensorboard_trace_handler(os.fsencode(tmp_path / "logs"), "worker")(anything(recording=recording))
    assert {path.name for path in tmp_path.iterdir()} == {"stacks", "trace.json.gz", "logs"}
    assert strictly(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["schemaVersion"] == 1
    assert len(list((tmp_path / "logs").iterdir())) == 1


def test_an_error_of_the_file_passes_through(recording: cp.Recording) -> None:
    class Failing:
        calls = 0

        def write(self, piece: bytes) -> None:
            self.calls += 1
            raise RuntimeError("the file's own")

    failing = Failing()
    with pytest.raises(RuntimeError, match="the file's own"):
        recording.export_chrome_trace(file=failing)  # type: ignore[arg-type]
    assert failing.calls == 1
    recording.export_chrome_trace(file=io.BytesIO())


def test_a_profile_writes_its_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with cp.profile(file=path):
        node()
        assert not path.exists()
    assert [span["name"] for span in spans(strictly(path.read_text()))] == ["node"]
    stream = io.StringIO()
    with cp.profile(file=stream):
        outer()
    assert len(spans(strictly(stream.getvalue()))) == 2
    with pytest.raises(OSError, match="missing"), cp.profile(file=tmp_path / "missing" / "x"):
        pass
    failing = cp.profile(file=tmp_path / "missing" / "x")
    with pytest.warns(RuntimeWarning, match="not finished as it should"), pytest.raises(KeyError), failing:
        raise KeyError("the user's")
    with pytest.raises(ValueError, match="ChromeTrace"):
        cp.profile(file=path, format=cp.RecordFormat.PandasDataFrame)


def test_a_pipe_gets_the_trace(recording: cp.Recording, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdout.write(open(sys.argv[1]).read())", fifo], stdout=subprocess.PIPE
    )
    recording.export_chrome_trace(fifo)
    out, _ = reader.communicate(timeout=60)
    assert len(spans(strictly(out))) == len(recording.events())
    assert stat.S_ISFIFO(fifo.stat().st_mode)


# ---- TensorBoard's handler


@pytest.mark.parametrize("use_gzip", [False, True])
def test_the_handler_for_tensorboard(tmp_path: Path, use_gzip: bool) -> None:
    folder = tmp_path / "logs" / "run"
    handler = cp.tensorboard_trace_handler(folder, worker_name="worker 0", use_gzip=use_gzip)
    with cp.profile(schedule=cp.schedule(wait=0, warmup=0, active=1, repeat=2), on_trace_ready=handler) as prof:
        for _ in range(2):
            node()
            prof.step()
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) == 2
    for name in names:
        worker, time_ns, *rest = name.split(".")
        assert worker == "worker%200"
        assert time_ns.isdigit()
        assert rest == ["pt", "trace", "json", *(["gz"] if use_gzip else [])]
        data = (folder / name).read_bytes()
        trace = strictly(gzip.decompress(data) if use_gzip else data)
        assert sorted(span["name"] for span in spans(trace))[1] == "node"
    assert stat.S_IMODE(folder.stat().st_mode) & 0o077 == 0


def test_folders_are_private_at_each_level(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with cp.profile(on_trace_ready=cp.tensorboard_trace_handler(tmp_path / "tb" / "x" / "y")):
            node()
    finally:
        os.umask(before)
    folders = [tmp_path / "tb", tmp_path / "tb" / "x", tmp_path / "tb" / "x" / "y"]
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700] * 3


def test_the_workers_default_name(tmp_path: Path) -> None:
    with cp.profile(on_trace_ready=cp.tensorboard_trace_handler(tmp_path)):
        node()
    (path,) = tmp_path.iterdir()
    assert path.name.startswith(f"{os.uname().nodename}_{os.getpid()}.")
    with pytest.raises(TypeError, match="worker_name"):
        cp.tensorboard_trace_handler(tmp_path, worker_name=3)  # type: ignore[arg-type]
    for wrong, error in ((None, TypeError), (3, TypeError), ("", ValueError)):
        with pytest.raises(error, match=r"^dir_name must "):
            cp.tensorboard_trace_handler(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("use_gzip", [False, True])
def test_the_handler_of_torch(tmp_path: Path, use_gzip: bool) -> None:
    """It calls export_chrome_trace() with an option of torch's own."""
    profiler = pytest.importorskip("torch.profiler")
    handler = profiler.tensorboard_trace_handler(str(tmp_path), "worker", use_gzip)
    with cp.profile(on_trace_ready=handler, operators=False):
        node()
    (path,) = tmp_path.iterdir()
    assert path.name.endswith(".pt.trace.json.gz" if use_gzip else ".pt.trace.json")
    data = path.read_bytes()
    assert [span["name"] for span in spans(strictly(gzip.decompress(data) if use_gzip else data))] == ["node"]


def test_the_option_of_torch_s_export_means_nothing(recording: cp.Recording, tmp_path: Path) -> None:
    for place, option in enumerate(({}, {"use_python_export": True}, {"use_python_export": False})):
        recording.export_chrome_trace(tmp_path / str(place), **option)  # type: ignore[arg-type]
    first, *others = (path.read_bytes() for path in sorted(tmp_path.iterdir()))
    assert others == [first, first]


@pytest.mark.parametrize("name", ["..", ".", "", "/", "../../etc", "a/b", "x" * 300, "\0", "nul\n", "\udcff", "CON"])
def test_names_of_files_stay_in_their_folder(tmp_path: Path, name: str) -> None:
    """D10."""
    escaped = file_name_of(name)
    path = tmp_path / f"{escaped}.json"
    assert os.path.commonpath([path.resolve(), tmp_path]) == str(tmp_path)
    assert path.resolve().parent == tmp_path
    path.write_text("it is a legal name")
    assert escaped not in ("", ".", "..")


def test_names_of_files_are_told_apart() -> None:
    names = ["a", "A", "a/b", "a%2Fb", "x" * 300, "x" * 299 + "y", ".", "..", ""]
    assert len({file_name_of(name) for name in names}) == len(names)
