"""Runs operations on files again and again, with the first, the second ... call of the system failing (D6, D7, D18).

    python -m isolated.failing_calls SHARE KIND...     (in tests/, with tests/fakes/failing_calls.c preloaded)

The N-th call that concerns the operation's folder, or its sockets, fails with each error, alone or with all later ones
of its kind, or does less than it was asked for. What is saved must be complete, or be refused with a reason and be as
before; what is read must be right, or refused; what happens beside the program's own work must leave that alone. No
other file may be left, and no descriptor. Of all cases of the operations whose names begin with a KIND a random SHARE
is tried. Printed are the numbers of cases, and of calls that failed by name.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import gc
import gzip
import io
import json
import logging
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import cprofiling as cp
from cprofiling import layers
from cprofiling._internal import files
from cprofiling.analysis.timing_reports import load_timing_report
from cprofiling.commands import main as command
from cprofiling.commands import report
from cprofiling.layers.harness.signature_file import load_signatures
from cprofiling.layers.workers import WorkerRecords, WorkerWriter
from cprofiling.monitoring import live_writer
from cprofiling.nodes import live_file
from cprofiling.nodes.rank_snapshot import RankedSnapshot
from cprofiling.testing.gates import baseline

SHORT = 0
ONCE, THE_SAME, ALL = 0, 1, 2  # calls that fail after the first
CODES = (SHORT, errno.EINTR, errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.EACCES)
SOCKET_CODES = (SHORT, errno.EINTR, errno.EIO, errno.ENOBUFS, errno.ECONNRESET)
MEMORY = Path("/dev/shm")
FOLDER = Path(tempfile.mkdtemp(prefix="failing-calls-", dir=MEMORY if MEMORY.is_dir() else None))
OUT = FOLDER / "out"
OLD = b"what was there"
SETTLES_S = 5.0  # at most, for what servers' own threads have open
NEVER = 1.0  # seconds of an answer that only a failure lets expire

calls: Any = ctypes.CDLL(None)
calls.failing_calls_end.restype = calls.failing_calls_failures.restype = ctypes.c_int64
calls.failing_calls_name.restype = ctypes.c_char_p
calls.failing_calls_order.argtypes = [ctypes.c_char_p, ctypes.c_int64, ctypes.c_int, ctypes.c_int]


class Fault(NamedTuple):
    """Which call fails, and how."""

    nth: int
    code: int
    lasting: int  # ONCE, THE_SAME or ALL

    def __str__(self) -> str:
        how = os.strerror(self.code) if self.code else "short"
        return f"call {self.nth}: {how}{['', ' from there on', ', and all calls from there on'][self.lasting]}"


class Tried(NamedTuple):
    """What came of an attempt: the call that failed, if any, and how many there were."""

    failed: str
    calls: int


class Operation(NamedTuple):
    """What is tried. ``check`` gets the result or the exception; ``prepare`` comes before each attempt."""

    operate: Callable[[], Any]
    check: Callable[[Any], None]
    prepare: Callable[[], object] = list
    codes: tuple[int, ...] = CODES
    under: str = str(FOLDER)

    def attempt(self, fault: Fault) -> Tried:
        """Try once. AssertionError for what must not be."""
        self.prepare()
        gc.collect()
        before = open_files()
        calls.failing_calls_order(self.under.encode(), fault.nth, fault.code, fault.lasting)
        try:
            outcome = self.operate()
        except Exception as error:
            outcome = error
        made = calls.failing_calls_end()
        failed = calls.failing_calls_name().decode() if calls.failing_calls_failures() else ""
        if failed in ("unlink", "rmdir") or fault.lasting == ALL:
            remove_what_stays()
        try:
            self.check(outcome)
        except Exception as error:
            raise AssertionError(f"{failed}: {error!r}") from outcome if isinstance(outcome, Exception) else None
        del outcome
        gc.collect()
        deadline = time.monotonic() + SETTLES_S
        while open_files() > before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert open_files() <= before, f"{failed}: {open_files() - before} descriptors are left open"
        return Tried(failed, made)


class Program(NamedTuple):
    """A program of its own, which must say and return what it does without us."""

    source: str
    environment: dict[str, str]
    expected: tuple[int, bytes]
    check: Callable[[str], None]
    prepare: Callable[[], object] = list
    codes: tuple[int, ...] = CODES

    def attempt(self, fault: Fault) -> Tried:
        """As that of an operation."""
        self.prepare()
        log = FOLDER / "log"
        log.unlink(missing_ok=True)
        given = {"UNDER": str(OUT), "NTH": fault.nth, "CODE": fault.code, "LASTING": fault.lasting, "LOG": log}
        environment = {
            **os.environ, **self.environment, **{f"FAILING_CALLS_{name}": str(value) for name, value in given.items()}
        }  # fmt: skip
        done = subprocess.run([sys.executable, "-c", self.source], env=environment, capture_output=True, check=False)
        said = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
        failed = next((name for name, has_failed in said if has_failed == "1"), "")
        assert (done.returncode, done.stdout) == self.expected, f"{failed}: {done}"
        if failed in ("unlink", "rmdir") or fault.lasting == ALL:
            remove_what_stays()
        try:
            self.check(done.stderr.decode())
        except Exception as error:
            raise AssertionError(f"{failed}: {error!r}: {done.stderr.decode()}") from None
        return Tried(failed, len(said))


def remove_what_stays() -> None:
    """Remove temporary files, folders, sockets and empty files that could not be removed."""
    empty = [path for path in OUT.rglob("*") if path.is_file() and not path.stat().st_size]
    for path in {*OUT.rglob(".cprofiling-*"), *OUT.rglob("*.tmp"), *OUT.rglob("*.token"), *OUT.glob("socket"), *empty}:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def sweep(operation: Operation | Program, share: float, rng: random.Random, tried: Counter[str]) -> Iterator[str]:
    """Try all cases, or some; yield what is wrong."""
    operation.attempt(Fault(0, errno.EIO, ONCE))  # caches fill
    gc.freeze()  # collections look at what is new
    most = operation.attempt(Fault(0, errno.EIO, ONCE)).calls
    for code in operation.codes:
        for lasting in (ONCE, THE_SAME, ALL)[: 1 if code in (SHORT, errno.EINTR) else 3]:  # these are tried again
            for nth in range(1, most + 1):
                if rng.random() < share:
                    fault = Fault(nth, code, lasting)
                    try:
                        tried[operation.attempt(fault).failed] += 1
                    except AssertionError as error:
                        yield f"{fault}, {error}"


# --- what there is to save and to read ---


def profiled() -> cp.Profiler:
    profiler = cp.Profiler()
    profiler.set_profiling(True)
    for number in range(300):
        profiler.record("train", f"node {number % 150}", 1.5 + number)
    return profiler


def recorded() -> cp.Recording:
    with cp.profile(operators=False, with_stack=True) as prof:
        for number in range(400):
            with cp.record(f"label {number}"):
                pass
    return prof.recording


PROFILER = profiled()
SNAPSHOT = PROFILER.snapshot()
RECORDING = recorded()


def fresh_folder(name: str, old: bytes | None) -> Callable[[], None]:
    def prepare() -> None:
        shutil.rmtree(OUT, ignore_errors=True)
        OUT.mkdir()
        if old is not None:
            (OUT / name).write_bytes(old)

    return prepare


def content_of(name: str) -> bytes | None:
    """What a file has, which is the only one in its folder."""
    left = sorted(path.name for path in OUT.iterdir())
    assert left in ([], [name]), f"files are left: {left}"
    return (OUT / name).read_bytes() if left else None


def shape_of(content: bytes) -> bytes:
    """A file's text, without the moments that it tells."""
    return re.sub(rb"[0-9]", b"0", gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content)


def saves(name: str, save: Callable[[str], Any], old: bytes | None) -> Operation:
    """An operation that saves a file, or says why not."""
    path = str(OUT / name)
    fresh_folder(name, None)()
    save(path)
    new = content_of(name) or b""

    def check(outcome: Any) -> None:
        content = content_of(name)
        if isinstance(outcome, Exception):
            assert isinstance(outcome, (OSError, Refused)), repr(outcome)
            assert str(FOLDER) in str(outcome), f"the path is not told: {outcome!r}"
            if content != old:
                assert "is not merged" in str(outcome), f"refused, and changed: {outcome!r}"
                report.load(path)  # the others are
        else:
            assert content is not None
            assert shape_of(content) == shape_of(new), "saved, but not what was to be"

    return Operation(functools.partial(save, path), check, fresh_folder(name, old))


class Refused(Exception):
    """A command that has failed, with what it said."""


def run_command(*arguments: str) -> None:
    """Run a subcommand. Raises Refused where its exit status is not 0."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        status = command.main(list(arguments))
    if status:
        assert said.getvalue().startswith("cprofiling: "), said.getvalue()
        raise Refused(said.getvalue())


def reads(name: str, make: Callable[[str], Any], read: Callable[[str], Any]) -> Operation:
    """An operation that reads a file, or says why not."""
    path = str(FOLDER / name)
    make(path)
    right = read(path)

    def check(outcome: Any) -> None:
        if isinstance(outcome, Exception):
            assert isinstance(outcome, (OSError, cp.FormatError, Refused)), repr(outcome)
        else:
            assert outcome == right, "it is read wrong"

    return Operation(functools.partial(read, path), check)


STATISTICS, OTHERS, TRACE, PACKED = (str(FOLDER / name) for name in ("a.cprof", "b.cprof", "a.json", "a.json.gz"))
Path(STATISTICS).write_bytes(SNAPSHOT.to_bytes())
Path(OTHERS).write_bytes(profiled().snapshot().to_bytes())
RECORDING.export_chrome_trace(TRACE)
recorded().export_chrome_trace(PACKED)


# --- live files: calls are as without them, and what is not in the file is told ---


def node(value: int) -> int:
    return value + 1


BESIDE = profiled().profile_node(name="node")(node)
CALLS = 5


def keep_live(path: str, commit: Callable[[], object]) -> list[str]:
    """Call nodes of a Profiler that is kept in a live file; return the warnings."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        profiler = cp.Profiler()
        profiler.set_profiling(True, live=path)
        try:
            call = profiler.profile_node(name="node")(node)
            for value in range(CALLS):
                assert call(value) == value + 1
                commit()
        finally:
            profiler.set_profiling(False)
    return [str(each.message) for each in told]


def counts_in(path: str) -> list[tuple[str, int]]:
    """The nodes in a live file and their calls, or why newer ones are not there."""
    found = live_file.read(path)
    assert found.state == live_file.ENDED, found.state
    return [(row.node_name, row.count) for part in found.parts for row in part.summary]


def check_live(old: bytes | None, outcome: Any) -> None:
    """What is counted is in the file, or that it is not is told. Statistics that could not be read may be kept."""
    path = str(OUT / "live.cprof")
    kept = OUT / "live-2.cprof"
    if kept.exists():
        assert kept.read_bytes() == old
        kept.rename(path) if isinstance(outcome, Exception) else kept.unlink()
    content = content_of("live.cprof")
    if isinstance(outcome, Exception):
        assert isinstance(outcome, OSError), repr(outcome)
        assert path in str(outcome), f"the path is not told: {outcome!r}"
        assert content == old, f"refused, but changed: {outcome!r}"
        return
    told = [each for each in outcome if "kept as" not in each]
    assert all(path in each for each in told), told
    if not told:
        assert counts_in(path) == [("node", CALLS)], "figures are missing without a word"
    elif content is not None:
        found = live_file.read(path)
        assert sum(row.count for part in found.parts for row in part.summary) <= CALLS


def ended_live_file() -> bytes:
    path = str(FOLDER / "ended.cprof")
    keep_live(path, list)
    return Path(path).read_bytes()


def live(old: bytes | None) -> Operation:
    operate = functools.partial(keep_live, str(OUT / "live.cprof"), live_writer.commit)
    return Operation(operate, functools.partial(check_live, old), fresh_folder("live.cprof", old))


def live_later() -> Operation:
    """A file that is made once something is counted, as in a child."""
    path = str(OUT / "live.cprof")

    def operate() -> list[str]:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            profiler = cp.Profiler()
            profiler.set_profiling(True)
            file = live_writer.LiveWriter(path, live_writer._later(path))
            file.add(profiler)
            call = profiler.profile_node(name="node")(node)
            for value in range(CALLS):
                assert call(value) == value + 1
                file._core.commit()
            file.close()
        return [str(each.message) for each in told]

    return Operation(operate, functools.partial(check_live, None), fresh_folder("live.cprof", None))


# --- stages: what they return is theirs, and what is not written or read is told ---


def stages() -> Operation:
    """Run a stage that is recorded into two files, and read what a worker writes beside."""
    told: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("cprofiling").addHandler(handler)
    layers.set_profiler_output_dir(OUT / "run")
    layers.enable_profiler_for_names("recorded")

    def operate() -> dict[str, int]:
        told.clear()
        layers.reset_timing_registry()
        with layers.ProfilingContext("recorded"):
            assert BESIDE(1) == 2
        records = WorkerRecords()
        records._folder = OUT / "workers"
        writer = WorkerWriter(str(OUT / "workers"))
        for _ in range(CALLS):
            writer.write(name="worker", ms=1.0, memory=None)
        with contextlib.suppress(OSError):
            os.close(writer._descriptor)
        return {name: row.count for each in records.processes() for name, row in each.rows().items()}

    def check(outcome: Any) -> None:
        assert isinstance(outcome, dict), repr(outcome)
        left = sorted(path.name for path in (OUT / "run").glob("*"))
        whole = ["recorded_rank0.breakdown.json", "recorded_rank0.trace.json.gz"]
        assert set(left) <= set(whole), f"files are left: {left}"
        assert (left == whole and outcome == {"worker": CALLS}) or told, "it is not complete, without a word"
        for name in left:
            content = (OUT / "run" / name).read_bytes()
            assert json.loads(gzip.decompress(content) if name.endswith(".gz") else content)

    return Operation(operate, check, fresh_folder("run", None))


# --- programs: status and output are theirs ---

CALLS_NODES = f"""
import os, sys
import cprofiling as cp

@cp.profile_node(name="node")
def node(value):
    return value + 1

sys.stdout.write(str([node(value) for value in range({CALLS})]))
sys.stdout.flush()
"""
SAYS = str([value + 1 for value in range(CALLS)]).encode()


def check_program(name: str, read: Callable[[str], Any], old: bytes | None, stderr: str) -> None:
    path = OUT / name
    lines = stderr.splitlines()
    assert all(line.startswith(("cprofiling: ", "  ")) or "RuntimeWarning: " in line for line in lines), lines
    if beside := re.search("by now: the trace is '(.*)'", stderr):
        assert read(beside[1]) == [("node", CALLS)]
        Path(beside[1]).unlink()
    content = content_of(name)
    if not lines:
        assert read(str(path)) == [("node", CALLS)], "it is not complete, without a word"
    elif content not in (None, old):
        damage = None
        try:
            report.load(str(path))
        except cp.FormatError as error:
            damage = str(error)
        assert damage in (None, "no Profiler has written to it yet"), damage


def trace_counts(path: str) -> list[tuple[str, int]]:
    return sorted(Counter(names_of(cp.load_trace(path))).items())


def program(
    ending: str, variable: str, name: str, read: Callable[[str], Any], old: bytes | None, status: int
) -> Program:
    return Program(
        CALLS_NODES + ending,
        {variable: str(OUT / name), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        (status, SAYS),
        functools.partial(check_program, name, read, old),
        fresh_folder(name, old),
    )


# --- servers: what fails is one call, and the next one is answered ---


class Server:
    """A server, and a question with the right answer; it is asked again after each failure."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        self.ask = ask
        self.right = ask()

    def check(self, outcome: Any) -> None:
        if not isinstance(outcome, Exception):
            is_cut = isinstance(outcome, bytes) and self.right.startswith(outcome)  # HTTP/1.0 does not tell
            assert is_cut or outcome == self.right, "the answer is wrong"
        assert BESIDE(1) == 2
        assert self.ask() == self.right, "the server does not answer any more"


def scrapes() -> Operation:
    """Ask for the metrics of Prometheus."""
    import urllib.request

    import prometheus_client

    from cprofiling.export import PrometheusCollector

    registry = prometheus_client.CollectorRegistry()
    registry.register(PrometheusCollector(PROFILER))
    server, _ = prometheus_client.start_http_server(0, "127.0.0.1", registry)

    def ask() -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=NEVER) as answer:
            text: bytes = answer.read()
        return b"\n".join(line for line in text.splitlines() if b"call_cost" not in line)

    asked = Server(ask)
    return Operation(ask, asked.check, codes=SOCKET_CODES, under="sockets")


def controls(address: str) -> Operation:
    """Ask the server for remote control.

    gRPC itself closes a listener of which an accept fails for good, and waits for good where a send has no buffer.
    """
    import grpc

    from cprofiling.server import profiling_pb2 as pb
    from cprofiling.server import profiling_pb2_grpc, serve

    server = serve({"p": PROFILER}, address, token=None)

    def ask() -> int:
        options = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0))
        with grpc.insecure_channel(server.address, options) as channel:
            stub = profiling_pb2_grpc.ProfilingServiceStub(channel)
            wanted = pb.GetProfilingSummaryRequest(session_id="p")
            return len(stub.GetProfilingSummary(wanted, timeout=NEVER).node_stats)

    asked = Server(ask)
    codes = tuple(code for code in SOCKET_CODES if code != errno.ENOBUFS)
    return Operation(ask, asked.check, codes=codes, under="connections")


def serves() -> Operation:
    """Start a server on a socket of the file system, and stop it."""
    from cprofiling.server import serve

    address = f"unix:{OUT}/socket"
    with contextlib.suppress(OSError):  # gRPC keeps some descriptors after the first start that fails
        serve({"p": PROFILER}, f"unix:{OUT}/none/socket")

    def operate() -> str:
        with serve({"p": PROFILER}, address):
            assert BESIDE(1) == 2
        return "served"

    def check(outcome: Any) -> None:
        assert outcome == "served" or (isinstance(outcome, OSError) and address in str(outcome)), repr(outcome)
        assert content_of("nothing") is None

    return Operation(operate, check, fresh_folder("socket", None))


def serves_at_a_port() -> Operation:
    """Start a server on a port, and stop it."""
    from cprofiling.server import serve

    def operate() -> str:
        with serve({"p": PROFILER}, "localhost:0", token=None):
            assert BESIDE(1) == 2
        return "served"

    def check(outcome: Any) -> None:
        assert outcome == "served" or (isinstance(outcome, OSError) and "localhost" in str(outcome)), repr(outcome)

    codes = (*SOCKET_CODES, errno.EMFILE)
    return Operation(operate, check, codes=codes, under="sockets")


def serves_with_a_token() -> Operation:
    """Start a server whose token is in a file, ask it, and stop it."""
    import grpc

    from cprofiling.server import call_metadata, profiling_pb2_grpc, serve
    from cprofiling.server import profiling_pb2 as pb

    os.environ.update(XDG_RUNTIME_DIR=str(OUT), XDG_CACHE_HOME=str(OUT / "cache"))

    def operate() -> int | None:
        with serve({"p": PROFILER}) as server, grpc.insecure_channel(server.address) as channel:
            stub = profiling_pb2_grpc.ProfilingServiceStub(channel)
            wanted = pb.GetProfilingSummaryRequest(session_id="p")
            try:
                found = stub.GetProfilingSummary(wanted, timeout=NEVER, metadata=call_metadata(server.address))
            except grpc.RpcError as error:
                assert error.code() is grpc.StatusCode.UNAUTHENTICATED, repr(error)  # noqa: PT017 raised if not
                return None
            return len(found.node_stats)

    right = operate()

    def check(outcome: Any) -> None:
        assert outcome in (None, right) or (isinstance(outcome, OSError) and "token" in str(outcome)), repr(outcome)
        assert not [*OUT.rglob("*.token"), *OUT.rglob("*.tmp")]

    return Operation(operate, check, fresh_folder("token", None))


def names_of(recording: cp.Recording) -> list[str]:
    return [event.name for event in recording.events()]


SAVES: dict[str, tuple[str, Callable[[str], Any]]] = {
    **{
        f"{kind} of {of}": (f"file{suffix}", functools.partial(what.save, format=kind))
        for of, what in (("a recording", RECORDING), ("a snapshot", SNAPSHOT))
        for kind, suffix in (("text", ".txt"), ("html", ".html"), ("json", ".json"), ("csv", ".csv"), ("md", ".md"))
    },
    "parquet": ("file.parquet", functools.partial(SNAPSHOT.save, format="parquet")),
    "chrome": ("trace.json", RECORDING.export_chrome_trace),
    "packed chrome": ("trace.json.gz", RECORDING.export_chrome_trace),
    "stacks": ("stacks.txt", RECORDING.export_stacks),
    "timing report": ("timing.json", layers.dump_timing_report),
    "signatures": ("signatures.json", layers.dump_io_signatures),
    "baseline": ("tests.json", lambda path: baseline.save(path, {})),
    "report": ("page.html", lambda path: run_command("report", TRACE, "-o", path)),
    "report of statistics": ("text.txt", lambda path: run_command("report", STATISTICS, "-o", path)),
    "merge": ("all.cprof", lambda path: run_command("merge", STATISTICS, OTHERS, "-o", path)),
    "merge of traces": ("all.json.gz", lambda path: run_command("merge", TRACE, PACKED, "-o", path)),
}
READS: dict[str, tuple[str, Callable[[str], Any], Callable[[str], Any]]] = {
    "load_trace": ("r.json", RECORDING.export_chrome_trace, lambda path: names_of(cp.load_trace(path))),
    "load_trace, packed": ("r.json.gz", RECORDING.export_chrome_trace, lambda path: names_of(cp.load_trace(path))),
    "load_timing_report": ("timing.json", layers.dump_timing_report, load_timing_report),
    "load_signatures": ("signatures.json", layers.dump_io_signatures, load_signatures),
    "a baseline": ("tests.json", lambda path: baseline.save(path, {}), baseline.load),
    "statistics": (
        "r.cprof",
        lambda path: Path(path).write_bytes(SNAPSHOT.to_bytes()),
        lambda path: RankedSnapshot.from_bytes(files.read_whole(path)).snapshot,
    ),
    "a live file": ("live.cprof", lambda path: keep_live(path, list), counts_in),
    "what report shows": ("shown.cprof", lambda path: keep_live(path, list), lambda path: run_command("report", path)),
}


def operations() -> dict[str, Callable[[], Operation | Program]]:
    """All, by name: each is made when it is tried."""
    made: dict[str, Callable[[], Operation | Program]] = {}
    for name, (file, save) in SAVES.items():
        made[f"save: {name}"] = functools.partial(saves, file, save, None)
        made[f"replace: {name}"] = functools.partial(saves, file, save, OLD)
    for name, case in READS.items():
        made[f"read: {name}"] = functools.partial(reads, *case)
    made["stages"] = stages
    made["live"] = functools.partial(live, None)
    made["live, again"] = lambda: live(ended_live_file())
    made["live, later"] = live_later
    for ending, status in (("sys.exit(3)", 3), ("os.kill(os.getpid(), 15)", -15)):
        for old in (None, OLD):
            about = f", {status}{', replaced' * (old is not None)}"
            made[f"recorded{about}"] = functools.partial(
                program, ending, "CPROFILING_OUTPUT_PATH", "trace.json", trace_counts, old, status
            )
        made[f"kept live, {status}"] = functools.partial(
            program, ending, "CPROFILING_LIVE", "live.cprof", counts_in, None, status
        )
    made["serve"] = serves
    made["serve at a port"] = serves_at_a_port
    made["serve with a token"] = serves_with_a_token
    made["scrape"] = scrapes
    made["control"] = functools.partial(controls, "127.0.0.1:0")
    made["control by a socket"] = lambda: controls(f"unix:{FOLDER}/socket")
    return made


def main(share: float, kinds: tuple[str, ...]) -> int:
    rng = random.Random(sys.version)  # each Python tries others
    tried: Counter[str] = Counter()
    wrong = 0
    for name, make in operations().items():
        if name.startswith(kinds):
            before = tried.total()
            try:
                found = [f"{name}: {each}" for each in sweep(make(), share, rng, tried)]
            except ImportError as error:
                print(f"{name}: left out: {error}")
                continue
            print(f"{name}: {tried.total() - before} tried, {len(found)} wrong", *found, sep="\n", flush=True)
            wrong += len(found)
    del tried[""]
    print(dict(tried.most_common()))
    print(f"{tried.total()} calls failed, {wrong} wrong")
    return min(wrong, 1)


if __name__ == "__main__":
    try:
        status = main(float(sys.argv[1]), tuple(sys.argv[2:]))
    finally:
        shutil.rmtree(FOLDER)
    sys.stdout.flush()
    os._exit(status)  # a server of prometheus_client's goes on
