"""What a server does with clients that send rubbish, too much, or nothing at all (failure scenarios I2, I3, I4, I5)."""

from __future__ import annotations

import contextlib
import gc
import json
import random
import runpy
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
from calls import profiler_on, unwatched

grpc = pytest.importorskip("grpc")
pytest.importorskip("grpc_health")
pytest.importorskip("grpc_reflection")

from cprofiling.monitoring.server import guard, service, serving  # noqa: E402
from cprofiling.monitoring.server.messages import Refusal  # noqa: E402
from cprofiling.server import profiling_pb2 as pb  # noqa: E402
from cprofiling.server import serve  # noqa: E402
from grpc_clients import OWN, sessions_of, stub_of, watch  # noqa: E402

STATUS = grpc.StatusCode
PREFIX = "/cprofiling.v1.ProfilingService/"
UNARY = ("SetProfiling", "GetProfilingSummary", "ResetProfiling", "ListSessions")
ALL = (*UNARY, "WatchProfiling")
HEALTH = "/grpc.health.v1.Health/"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
MIB = 1024 * 1024
LARGE = b"\n\x80\x80\xc0\x02" + b"x" * 5 * MIB  # a session_id of 5 MiB, and rubbish
ROUNDS, MOST_GROWTH = 3, 16 * MIB  # in the rounds after the first

Call = Callable[[Any, str], Any]  # of a channel and an address; returns a status


def bytes_to(method: str, data: bytes, metadata: Any = None, timeout: float = 20, **options: Any) -> Call:
    """A call that sends bytes, and returns the status."""

    def call(channel: Any, _address: str) -> Any:
        path = method if "/" in method else PREFIX + method
        if method in {"WatchProfiling", HEALTH + "Watch"}:
            return status_of(lambda: next(channel.unary_stream(path)(data, metadata=metadata, timeout=timeout)))
        return status_of(lambda: channel.unary_unary(path)(data, metadata=metadata, timeout=timeout, **options))

    return call


def status_of(call: Callable[[], Any]) -> Any:
    try:
        call()
    except grpc.RpcError as error:
        return error.code()
    return STATUS.OK


def many_to(method: str, requests: list[bytes]) -> Call:
    """A call to a method of one request that sends another number of them."""
    return lambda channel, _address: status_of(
        lambda: channel.stream_unary(PREFIX + method)(iter(requests), timeout=20)
    )


def raw(data: bytes) -> Call:
    """Bytes on a connection of their own, which need not be answered: the server ends it, or this does."""

    def call(_channel: Any, address: str) -> Any:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.settimeout(0.02)
            with contextlib.suppress(OSError):
                connection.sendall(data)
                while connection.recv(65536):
                    pass
        return None

    return call


def cancelled(method: str) -> Call:
    def call(channel: Any, _address: str) -> Any:
        made = channel.unary_unary(PREFIX + method).future(b"")
        made.cancel()
        return made.code()

    return call


def nested(depth: int) -> bytes:
    """Groups of an unknown field, one in the other."""
    return b"\xa3\x06" * depth + b"\xa4\x06" * depth


def reflection(data: list[bytes]) -> Call:
    return lambda channel, _address: status_of(lambda: list(channel.stream_stream(REFLECTION)(iter(data), timeout=20)))


KNOWN = {STATUS.OK, STATUS.INVALID_ARGUMENT, STATUS.NOT_FOUND}
DRAW = random.Random(7)
WHOLE = pb.SetProfilingRequest(session_id="p", enabled=True, skip_first_n=3).SerializeToString()
FLIPPED = [bytes([*WHOLE[:at], WHOLE[at] ^ (1 << bit), *WHOLE[at + 1 :]]) for at in range(3) for bit in range(8)]
MALFORMED = [b"\xff", b"\n\x05ab", b"\n\x02\xff\xfe", b"\x0b", nested(200), b"\x08" + b"\xff" * 11]
UNKNOWN_FIELDS = b"\xa0\x06\x01"
NAMES = ["", "../p", "/etc/passwd", "p\0", "P", "p ", "%70", "'; DROP", "x" * 100_000, "🙂" * 1000, "\x1b[2J", "{p}"]
IDS = [pb.GetProfilingSummaryRequest(session_id=name).SerializeToString() for name in NAMES]
NO_CALLS = [
    *(PREFIX + name for name in ("Stop", "", "setprofiling", "SetProfiling/")),
    "/cprofiling.v2.ProfilingService/SetProfiling", "/", "/a/b/c", "/../../etc", HEALTH + "Nothing", "/x" * 500,
]  # fmt: skip
METADATA = [(("x", "y" * 100_000),), tuple((f"k{number}", "v" * 50) for number in range(1000))]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NO_PROTOCOL = [
    b"", b"\0", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", PREFACE[:10], PREFACE,
    PREFACE * 3, PREFACE + b"\xff" * 100, PREFACE + b"\0\0\x06\x04\0\0\0\0\0" + b"\xff" * 6, b"A" * 100_000,
    DRAW.randbytes(1000),
]  # fmt: skip


# What is sent, and the statuses that it may end with.
KINDS: dict[str, tuple[list[Call], set[Any]]] = {
    "random": ([bytes_to(name, DRAW.randbytes(DRAW.randrange(1, 200))) for name in ALL for _ in range(10)], KNOWN),
    "cut": ([bytes_to("SetProfiling", WHOLE[:size]) for size in range(len(WHOLE))], KNOWN),
    "flipped": ([bytes_to("SetProfiling", data) for data in FLIPPED], KNOWN),
    "malformed": (
        [
            *(bytes_to(name, data) for name in ("ResetProfiling", "WatchProfiling") for data in MALFORMED),
            *(bytes_to(HEALTH + name, b"\xff") for name in ("Check", "Watch")),
        ],
        {STATUS.INVALID_ARGUMENT},
    ),
    "reflection": ([reflection([b"\xff"]), reflection([b"\xff"] * 50), reflection([b"x" * 70_000])], {STATUS.OK}),
    "unknown fields": ([bytes_to(name, UNKNOWN_FIELDS * 100_000) for name in UNARY], {STATUS.NOT_FOUND, STATUS.OK}),
    "nested": ([bytes_to(name, nested(50)) for name in UNARY], {STATUS.NOT_FOUND, STATUS.OK}),
    "too large": (
        [
            *(bytes_to(name, LARGE) for name in ALL),
            bytes_to("WatchProfiling", UNKNOWN_FIELDS * 40_000),
            bytes_to(HEALTH + "Watch", b"\n\x80\x80\x08" + b"x" * 131_072),
            bytes_to("SetProfiling", bytes(32 * MIB), compression=grpc.Compression.Gzip),
            *(bytes_to("ListSessions", b"", each) for each in METADATA),
        ],
        {STATUS.RESOURCE_EXHAUSTED},
    ),
    "other sessions": (
        [bytes_to(name, data) for name in ALL if name != "ListSessions" for data in IDS],
        {STATUS.NOT_FOUND, STATUS.RESOURCE_EXHAUSTED},  # the latter for the longest, of a stream
    ),
    "no such call": ([bytes_to(path, b"") for path in NO_CALLS], {STATUS.UNIMPLEMENTED}),
    "no request": ([many_to(name, []) for name in ALL], {STATUS.INVALID_ARGUMENT}),
    "two requests": ([many_to(name, [b"", b""]) for name in UNARY], {STATUS.NOT_FOUND, STATUS.OK}),
    "no time": ([bytes_to(name, b"", timeout=0) for name in UNARY], {STATUS.DEADLINE_EXCEEDED, *KNOWN}),
    "cancelled": ([cancelled(name) for name in UNARY for _ in range(3)], {STATUS.CANCELLED, *KNOWN}),
    "no protocol": ([raw(data) for data in NO_PROTOCOL], {None}),
}
HOSTILE = [(kind, call, expected) for kind, (calls, expected) in KINDS.items() for call in calls]


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


PROGRAM = """
import gc, sys
import cprofiling as cp
from cprofiling.server import serve

profiler = cp.Profiler()
server = serve({"p": profiler}, token=None)
print(server.address, flush=True)
for _ in sys.stdin:
    with profiler.profile_node("node"):
        gc.collect()
    with open("/proc/self/statm") as file:
        print(file.read().split()[1], flush=True)
"""


def test_hostile_requests_have_their_status_and_leave_the_server_as_it_was() -> None:
    command, pipe, grown = [sys.executable, "-W", "error", "-c", PROGRAM], subprocess.PIPE, []
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        address = child.stdout.readline().strip()
        for _ in range(ROUNDS):
            larger = (("grpc.max_send_message_length", 256 * MIB),)
            with grpc.insecure_channel(address, larger) as channel, stub_of(address) as stub:
                found = [(what, call(channel, address), expected) for what, call, expected in HOSTILE]
                assert [(what, code) for what, code, expected in found if code not in expected] == []
                stub.SetProfiling(pb.SetProfilingRequest(session_id="p", enabled=True, reset=True), timeout=10)
                print(file=child.stdin, flush=True)
                grown.append(int(child.stdout.readline()) * 4096)
                answer = stub.GetProfilingSummary(pb.GetProfilingSummaryRequest(session_id="p"), timeout=10)
                assert [row.count for row in answer.node_stats] == [1]
        assert child.communicate(timeout=30) == ("", "")
    assert child.returncode == 0
    assert max(grown) - grown[0] < MOST_GROWTH, grown


@pytest.fixture
def server() -> Iterator[Any]:
    with serve({"p": cp.Profiler()}, token=None) as made:
        yield made


def eventually(is_so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_connections_that_say_nothing_take_no_thread(server: Any) -> None:
    host, _, port = server.address.rpartition(":")
    before = threading.active_count()
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=5))
        with stub_of(server) as stub:
            assert len(sessions_of(stub)) == 1
        assert threading.active_count() <= before + 2


def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a file descriptor, of which the program needs some itself."""
    limit = "grpc.max_allowed_incoming_connections"
    monkeypatch.setattr(serving, "_OPTIONS", tuple({**dict(serving._OPTIONS), limit: 20}.items()))
    with serve({"p": cp.Profiler()}, token=None) as made:
        host, _, port = made.address.rpartition(":")
        with contextlib.ExitStack() as stack:
            address = (host, int(port))
            connections = [stack.enter_context(socket.create_connection(address, timeout=10)) for _ in range(60)]
            for connection in connections[20:]:
                with contextlib.suppress(ConnectionResetError):
                    assert not connection.recv(1)
        with stub_of(made) as stub:
            assert len(sessions_of(stub, wait_for_ready=True)) == 1


class Withheld:
    """Calls whose requests never come: each would be the only one."""

    def __init__(self) -> None:
        self._may_end = threading.Event()

    def requests(self) -> Iterator[bytes]:
        self._may_end.wait(20)
        yield from ()

    def call(self, channel: Any, method: str) -> Any:
        return channel.stream_unary(PREFIX + method).future(self.requests())

    def end(self, calls: list[Any]) -> None:
        for call in calls:
            call.cancel()
        self._may_end.set()


def test_calls_that_never_send_their_request_are_ended(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "REQUEST_PATIENCE_S", 0.1)
    withheld = Withheld()
    with grpc.insecure_channel(server.address) as channel:
        calls = [withheld.call(channel, name) for name in ALL]
        found = [(call.code(), call.details()) for call in calls]
        withheld.end(calls)
    assert found == [(STATUS.DEADLINE_EXCEEDED, "the request has not come for 0.1 s")] * len(ALL)
    assert eventually(lambda: server._guard.streams == 0)


def test_those_without_a_token_do_not_keep_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MOST_CALLS", 4)
    withheld, token = Withheld(), "x" * 16
    with serve({"p": cp.Profiler()}, token=token) as made, grpc.insecure_channel(made.address) as channel:
        calls = [withheld.call(channel, "ListSessions") for _ in range(20)]
        assert {call.code() for call in calls} <= {STATUS.UNAUTHENTICATED, STATUS.RESOURCE_EXHAUSTED}
        with stub_of(made) as stub:
            assert len(sessions_of(stub, metadata=(("authorization", f"Bearer {token}"),))) == 1
        withheld.end(calls)


@pytest.mark.parametrize("token", [None, "x" * 16])
def test_calls_that_never_send_their_request_take_no_place(token: str | None) -> None:
    """Nor do the checks of health, which need no token, of any number of connections."""
    withheld = Withheld()
    metadata = None if token is None else (("authorization", f"Bearer {token}"),)
    with serve({"p": cp.Profiler()}, token=token) as made, contextlib.ExitStack() as stack:
        channels = [stack.enter_context(grpc.insecure_channel(made.address, OWN)) for _ in range(5)]
        checks = [channel.stream_unary(HEALTH + "Check") for channel in channels for _ in range(92)]
        silent = [check.future(withheld.requests()) for check in checks]
        assert eventually(lambda: sum(call.done() for call in silent) == 28 * 5)
        assert {call.code() for call in silent if call.done()} == {STATUS.RESOURCE_EXHAUSTED}
        stub = stack.enter_context(stub_of(made, OWN))
        started = time.monotonic()
        assert len(sessions_of(stub, timeout=4, metadata=metadata)) == 1
        assert time.monotonic() - started < 3
        withheld.end(silent)


def test_calls_of_one_connection_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MOST_CALLS_EACH", 2)
    with serve({"p": cp.Profiler()}, token=None) as made, stub_of(made, OWN) as stub, stub_of(made, OWN) as other:
        watching = [watch(stub) for _ in range(2)]
        for each in watching:
            next(each)
        assert status_of(lambda: sessions_of(stub)) is STATUS.RESOURCE_EXHAUSTED
        assert status_of(lambda: sessions_of(other)) is STATUS.OK
        watching[0].cancel()
        assert eventually(lambda: status_of(lambda: sessions_of(stub)) is STATUS.OK)
        watching[1].cancel()
        assert eventually(lambda: not made._guard._calls)


def test_clients_of_a_socket_do_not_share_what_is_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the same name there."""
    for name, limit in {"MOST_CALLS_EACH": 1, "MOST_CALLS": 3, "REQUEST_PATIENCE_S": 30}.items():
        monkeypatch.setattr(guard, name, limit)
    withheld = Withheld()
    with (
        tempfile.TemporaryDirectory() as folder,
        serve({"p": cp.Profiler()}, f"unix:{folder}/s") as made,
        contextlib.ExitStack() as stack,
    ):
        channels = [stack.enter_context(grpc.insecure_channel(made.address, OWN)) for _ in range(2)]
        silent = [withheld.call(channel, "ListSessions") for channel in channels]
        assert eventually(lambda: made._guard._silent.total() == 2)
        stubs = [stack.enter_context(stub_of(made, OWN)) for _ in range(4)]
        watching = []
        for stub in stubs[:3]:  # one after the other: until its request is there, each is silent, too
            watching.append(watch(stub))
            next(watching[-1])
        assert status_of(lambda: sessions_of(stubs[3])) is STATUS.RESOURCE_EXHAUSTED
        for each in watching:
            each.cancel()
        withheld.end(silent)


def test_idle_connections_do_not_keep_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = {"grpc.max_connection_idle_ms": 1000, "grpc.server_handshake_timeout_ms": 1000}
    assert fewer.keys() <= dict(serving._OPTIONS).keys()
    monkeypatch.setattr(serving, "_OPTIONS", tuple({**dict(serving._OPTIONS), **fewer}.items()))
    hello = PREFACE + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
    with serve({"p": cp.Profiler()}, token=None) as made, contextlib.ExitStack() as stack:
        host, _, port = made.address.rpartition(":")
        for number in range(300):
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=10))
            if number % 2:
                with contextlib.suppress(OSError):
                    connection.sendall(hello)
        with stub_of(made) as stub:
            assert len(sessions_of(stub, wait_for_ready=True)) == 1


@pytest.fixture(scope="module")
def large() -> cp.Profiler:
    """More than a client takes that does not read."""
    profiler = profiler_on()
    for number in range(800):
        profiler.record("train", f"{number} {'x' * 4000}", 1.0)
    return profiler


def test_a_reader_that_does_not_read_is_left_alone_and_then_ended(
    large: cp.Profiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()

    class Told(Refusal):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            ended.set()

    monkeypatch.setattr(guard, "Refusal", Told)
    monkeypatch.setattr(guard, "PATIENCE_S", 0.3)
    monkeypatch.setattr(service, "LEAST_INTERVAL_MS", 1)
    with serve({"p": large}, token=None) as made, stub_of(made) as stub:
        slow = watch(stub, 1)
        assert len(next(slow).node_stats) == 800
        before = resident()
        assert ended.wait(20)
        assert resident() - before < 64 * MIB
        assert made._guard.streams == 1  # what it has not read is still there
        assert len(sessions_of(stub)) == 1
        assert status_of(lambda: list(slow)) is STATUS.RESOURCE_EXHAUSTED
        assert slow.details() == "the reader has not read for 0.3 s"
        assert eventually(lambda: made._guard.streams == 0)


def test_answers_that_nobody_reads_are_bounded(
    large: cp.Profiler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guard, "MOST_CALLS", 3)
    request = pb.GetProfilingSummaryRequest(session_id="p").SerializeToString()
    with serve({"p": large}, token=None) as made, stub_of(made, OWN) as stub:
        with grpc.insecure_channel(made.address, (*OWN, ("grpc.http2.bdp_probe", 0))) as unread:
            waiting = []

            def is_full() -> bool:
                waiting.append(unread.unary_stream(PREFIX + "GetProfilingSummary")(request))
                return status_of(lambda: sessions_of(stub)) is STATUS.RESOURCE_EXHAUSTED

            assert eventually(is_full)
        assert eventually(lambda: status_of(lambda: sessions_of(stub)) is STATUS.OK)
    assert caplog.records == []  # clients that leave are no news


def test_a_client_that_goes_away_is_forgotten(server: Any) -> None:
    with stub_of(server) as stub:
        next(watch(stub))
        assert server._guard.streams == 1
    assert eventually(lambda: server._guard.streams == 0)


BENCHMARK = Path(__file__).resolve().parents[2] / "python" / "benchmarks" / "remote.py"


@pytest.mark.slow
def test_many_clients_lose_no_sample() -> None:
    """A second of the benchmark, whose times are nothing here (failure scenario I4)."""
    command = [sys.executable, str(BENCHMARK), "--seconds", "0.5", "--runs", "1"]
    environment = {**unwatched(), "PYTHONPATH": str(Path(cp.__file__).parents[1])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.stderr == ""
    run, verdict = done.stdout.splitlines()
    assert verdict.endswith("; nothing was wrong")
    real = json.loads(run)["real"]
    assert (real["lost"], real["complaints"]) == (0, [])
    assert real["calls"] > 0
    assert {"OK", "NOT_FOUND"} <= set(real["statuses"])


RIGHT = {"calls": 9, "lost": 0, "p99": 1.0, "failed": 0, "complaints": [], "statuses": {"OK": 3, "NOT_FOUND": 1}}


@pytest.mark.parametrize(
    ("difference", "fault"),
    [
        ({}, None),
        ({"statuses": {"OK": 3, "NOT_FOUND": 1, "INVALID_ARGUMENT": 1}}, None),
        ({"lost": 1}, "1 samples were lost"),
        ({"failed": 2}, "2 processes failed"),
        ({"complaints": ["node 1: 3 after 4"]}, "node 1: 3 after 4"),
        (
            {"statuses": {"OK": 3, "NOT_FOUND": 1, "INTERNAL": 1}},
            "calls ended otherwise than they should: {'OK': 3, 'NOT_FOUND': 1, 'INTERNAL': 1}",
        ),
    ],
)
def test_the_benchmark_tells_what_is_wrong(difference: dict[str, Any], fault: str | None) -> None:
    remote = runpy.run_path(str(BENCHMARK))
    assert list(remote["faults"]({**RIGHT, **difference}, constant=False)) == ([fault] if fault else [])
