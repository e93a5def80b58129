"""Remote control over gRPC: what its calls do, how they end, and whom it serves (failure scenarios I1, I3)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import re
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import cprofiling as cp
from calls import profiler_on, run_unwatched, unwatched
from forks import BESIDE_THREADS

grpc = pytest.importorskip("grpc")
pytest.importorskip("grpc_health")
pytest.importorskip("grpc_reflection")

from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: E402
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc  # noqa: E402

from cprofiling.monitoring.server import guard, messages, service, serving  # noqa: E402
from cprofiling.server import call_metadata, profiling_pb2_grpc, serve  # noqa: E402
from cprofiling.server import profiling_pb2 as pb  # noqa: E402
from grpc_clients import sessions_of, stub_of, watch  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
SERVER = Path(serving.__file__).parent
TOKEN = "correct-horse-battery"  # 21 characters
STATUS = grpc.StatusCode


class Pipeline(cp.PipelineProfiling):
    """A pipeline of the package's own."""


class Foreign:
    """A pipeline of others, whose methods may fail, or wait."""

    profiling_enabled = True

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.error: BaseException | None = None
        self.may_go = threading.Event()
        self.may_go.set()

    def _called(self, *call: Any) -> None:
        self.may_go.wait(10)
        self.calls.append((*call, threading.current_thread().name))
        if self.error is not None:
            raise self.error

    def set_profiling(self, enabled: bool, **options: Any) -> None:
        self._called("set", enabled, options)

    def reset_profiling(self) -> None:
        self._called("reset")

    def get_profiling_summary(self, stage: str | None = None) -> Any:
        self._called("get", stage)
        return [type("Stats", (), {"node_name": "n", "stage": "val", **dict.fromkeys(FIGURES, 2)})()]


FIGURES = ("count", "mean_ms", "median_ms", "std_ms", "min_ms", "max_ms", "total_ms", "last_ms")


def call_with(server: Any, name: str, **fields: Any) -> Any:
    """Make one call, and return its answer; a stream's is a list."""
    metadata, timeout = fields.pop("metadata", None), fields.pop("timeout", 10)
    with stub_of(server) as stub:
        answer = getattr(stub, name)(getattr(pb, f"{name}Request")(**fields), metadata=metadata, timeout=timeout)
        return list(answer) if name == "WatchProfiling" else answer


def refusal(call: Callable[[], Any]) -> tuple[Any, str]:
    with pytest.raises(grpc.RpcError) as raised:
        call()
    return raised.value.code(), raised.value.details()


@pytest.fixture(scope="module")
def sessions() -> dict[str, Any]:
    return {"p": cp.Profiler(), "pipeline": Pipeline(), "foreign": Foreign()}


@pytest.fixture(scope="module")
def server(sessions: dict[str, Any]) -> Iterator[Any]:
    with serve(sessions, token=None) as made:
        yield made


@pytest.fixture
def profiler(sessions: dict[str, Any]) -> cp.Profiler:
    profiler: cp.Profiler = sessions["p"]
    profiler.set_profiling(False, reset=True)
    return profiler


@pytest.fixture
def foreign(sessions: dict[str, Any]) -> Iterator[Foreign]:
    made: Foreign = sessions["foreign"]
    made.calls.clear()
    yield made
    made.error = None
    made.may_go.set()


def run_node(profiler: cp.Profiler, name: str = "node", times: int = 3, stage: str | None = None) -> None:
    for _ in range(times):
        with profiler.profile_node(name, stage=stage):
            pass


def test_profiling_is_switched_on_and_off(server: Any, profiler: cp.Profiler) -> None:
    answer = call_with(server, "SetProfiling", session_id="p", enabled=True, skip_first_n=2)
    assert (answer.profiling_enabled, profiler.profiling_enabled) == (True, True)
    run_node(profiler, times=5)
    assert [(row.count, row.skipped_count) for row in profiler.get_profiling_summary()] == [(3, 2)]
    answer = call_with(server, "SetProfiling", session_id="p", enabled=False, skip_first_n=2)
    assert (answer.profiling_enabled, profiler.profiling_enabled) == (False, False)
    assert len(profiler.get_profiling_summary()) == 1
    call_with(server, "SetProfiling", session_id="p", enabled=True, reset=True, skip_first_n=2)
    assert profiler.get_profiling_summary() == []
    call_with(server, "SetProfiling", session_id="p", enabled=True)
    run_node(profiler)
    assert profiler.get_profiling_summary().skip_first_n == 0
    call_with(server, "ResetProfiling", session_id="p")
    assert (profiler.get_profiling_summary(), profiler.profiling_enabled) == ([], True)


def test_the_median_is_chosen_and_told(server: Any, profiler: cp.Profiler) -> None:
    call_with(server, "SetProfiling", session_id="p", enabled=True, median="p2")
    for value in (1.0, 100.0) * 50:
        profiler.record("train", "node", value)
    [row] = profiler.get_profiling_summary()
    answers = call_with(server, "WatchProfiling", session_id="p", max_updates=1)
    for answer in (call_with(server, "GetProfilingSummary", session_id="p"), *answers):
        assert (answer.median, answer.node_stats[0].median_ms) == ("p2", row.median_ms)
        summary = messages.summary_from(answer)
        assert (summary.median, summary[0].median_ms, summary[0].p50_ms) == ("p2", row.median_ms, row.p50_ms)
        assert str(summary).startswith("Profiling Summary (median=p2)\n")
    call_with(server, "SetProfiling", session_id="p", enabled=True)
    answer = call_with(server, "GetProfilingSummary", session_id="p")
    assert (answer.median, answer.node_stats[0].median_ms) == ("histogram", row.p50_ms)


def test_another_servers_strange_figures_can_be_shown() -> None:
    answer = pb.GetProfilingSummaryResponse(skip_first_n=-1, internal_errors=-1, median="\x1b[2J")
    answer.node_stats.add(node_name="node", count=-1, mean_ms=float("nan"))
    summary = messages.summary_from(answer)
    assert summary.skip_first_n == 0
    assert str(summary).startswith("Profiling Summary (median=\\x1b[2J)\n")


def test_the_summary_has_the_figures(server: Any, profiler: cp.Profiler) -> None:
    profiler.set_profiling(True, skip_first_n=1)
    for value in (9.0, 1.0, 2.5, 7.25):
        profiler.record("train", "node", value)
    for name in ("node", "failing"):
        with pytest.raises(ZeroDivisionError), profiler.profile_node(name, stage="train"):
            raise ZeroDivisionError
    answer = call_with(server, "GetProfilingSummary", session_id="p")
    stats, _ = profiler.get_profiling_summary()
    sent, failing = answer.node_stats
    assert (sent.node_name, sent.stage, sent.HasField("stage_name")) == ("node", pb.EXECUTION_STAGE_TRAIN, False)
    assert {name: getattr(sent, name) for name in FIGURES} == {name: getattr(stats, name) for name in FIGURES}
    assert (sent.p50_ms, sent.p99_ms) == (stats.p50_ms, stats.p99_ms)
    assert (answer.profiling_enabled, answer.skip_first_n, answer.internal_errors) == (True, 1, 0)
    counts = (sent.count, sent.skipped_count, sent.error_count, sent.cancelled_count, sent.dropped_count)
    assert counts == (3, 1, 1, 0, 0)
    unknown = (failing.count, failing.mean_ms, failing.HasField("p50_ms"), failing.HasField("p99_ms"))
    assert unknown == (0, 0.0, False, False)


STAGES = ["train", "val", "test", "inference", "warm-up", ""]


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_can_be_asked_for(stage: str, server: Any, profiler: cp.Profiler) -> None:
    profiler.set_profiling(True)
    for each in STAGES:
        run_node(profiler, stage=each)
    for fields in ({}, {"stage": pb.EXECUTION_STAGE_UNSPECIFIED}):
        assert len(call_with(server, "GetProfilingSummary", session_id="p", **fields).node_stats) == len(STAGES)
    (sent,) = call_with(server, "GetProfilingSummary", session_id="p", stage_name=stage).node_stats
    number = STAGES.index(stage) + 1 if stage in STAGES[:4] else pb.EXECUTION_STAGE_UNSPECIFIED
    assert (sent.stage, sent.stage_name, sent.HasField("stage_name")) == (number, "" if number else stage, not number)
    if number:
        answer = call_with(server, "GetProfilingSummary", session_id="p", stage=number, stage_name=stage)
        assert list(answer.node_stats) == [sent]


def test_names_are_sent_as_they_are_but_surrogates(server: Any, profiler: cp.Profiler) -> None:
    profiler.set_profiling(True)
    names = ["größer", "a\nb\x1b[31m", "</script>", "🙂", "half \ud800"]
    for name in names:
        run_node(profiler, name, stage="st\udfffage")
    sent = call_with(server, "GetProfilingSummary", session_id="p").node_stats
    assert [row.node_name for row in sent] == [*names[:-1], "half \\ud800"]
    assert {row.stage_name for row in sent} == {"st\\udfffage"}


def test_another_pipeline_is_called_in_a_thread_of_its_own(server: Any, foreign: Foreign) -> None:
    call_with(server, "SetProfiling", session_id="foreign", enabled=True, skip_first_n=3, synchronize_cuda=True)
    (sent,) = call_with(server, "GetProfilingSummary", session_id="foreign", stage=pb.EXECUTION_STAGE_VAL).node_stats
    call_with(server, "ResetProfiling", session_id="foreign")
    options = {"synchronize_cuda": True, "reset": False, "skip_first_n": 3}
    thread = "cprofiling-session"
    assert foreign.calls == [("set", True, options, thread), ("get", "val", thread), ("reset", thread)]
    assert isinstance(foreign.calls[1][1], cp.ExecutionStage)
    assert (sent.node_name, sent.stage, sent.count, sent.HasField("p99_ms")) == ("n", pb.EXECUTION_STAGE_VAL, 2, False)


def test_pipelines_and_methods_of_a_subclass(server: Any, sessions: dict[str, Any]) -> None:
    class Counted(Pipeline):
        resets = 0

        def reset_profiling(self) -> None:
            self.resets += 1

    class Lazy(Foreign):
        def get_profiling_summary(self, stage: str | None = None) -> Any:
            self._called("read")
            yield from super().get_profiling_summary(stage)

    pipeline, counted, lazy = sessions["pipeline"], Counted(), Lazy()
    call_with(server, "SetProfiling", session_id="pipeline", enabled=True)
    run_node(pipeline.profiler, times=2)
    (sent,) = call_with(server, "GetProfilingSummary", session_id="pipeline").node_stats
    assert (pipeline.profiling_enabled, sent.count) == (True, 2)
    with serve({"counted": counted, "lazy": lazy}, token=None) as made:
        call_with(made, "ResetProfiling", session_id="counted")
        assert len(call_with(made, "GetProfilingSummary", session_id="lazy").node_stats) == 1
    assert counted.resets == 1
    assert lazy.calls[0] == ("read", "cprofiling-session")


class BrokenError(Exception):
    def __str__(self) -> str:
        raise SystemExit


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError("no such\ud800 thing"), "ValueError: no such\\ud800 thing"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt: "),
        (asyncio.CancelledError(), "CancelledError: "),
        (StopIteration(), "StopIteration: "),
        (GeneratorExit(), "GeneratorExit: "),
        (BrokenError(), "BrokenError"),
        (RuntimeError("x" * 5000), "RuntimeError: xxx"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_pipeline_that_fails(error: BaseException, shown: str, server: Any, foreign: Foreign) -> None:
    foreign.error = error
    code, details = refusal(lambda: call_with(server, "GetProfilingSummary", session_id="foreign"))
    assert code is STATUS.INTERNAL
    assert details.startswith(f"the session's pipeline failed: {shown}")
    assert len(details) <= 300
    foreign.error = None
    assert call_with(server, "GetProfilingSummary", session_id="foreign").node_stats


class NamelessType(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        if threading.current_thread().name == "cprofiling-session":
            raise MemoryError
        return "NamelessError"


class NamelessError(BrokenError, metaclass=NamelessType):
    pass


def test_a_failure_that_cannot_be_told_ends_the_call(server: Any, foreign: Foreign) -> None:
    """Its thread answers all the same, and gives its place back."""
    foreign.error = NamelessError()
    for _ in range(20):  # more than may wait at once
        assert refusal(lambda: call_with(server, "ResetProfiling", session_id="foreign", timeout=30)) == (
            STATUS.INTERNAL, "the session's pipeline failed, and there was no memory to tell why",
        )  # fmt: skip
    foreign.error = None
    call_with(server, "ResetProfiling", session_id="foreign")


def test_no_thread_is_to_be_had(server: Any, foreign: Foreign, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        no_thread = mock.Mock(side_effect=RuntimeError("can't start new thread"))
        patched.setattr(service, "threading", types.SimpleNamespace(Thread=no_thread))
        for _ in range(20):  # more than may wait at once
            assert refusal(lambda: call_with(server, "ResetProfiling", session_id="foreign")) == (
                STATUS.RESOURCE_EXHAUSTED, "there is no thread to be had: can't start new thread",
            )  # fmt: skip
    call_with(server, "ResetProfiling", session_id="foreign")
    assert len(foreign.calls) == 1


def test_a_fault_of_the_server_itself(profiler: cp.Profiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "stage_of", None)
    with serve({"p": profiler}, token=None) as made:
        code, details = refusal(lambda: call_with(made, "GetProfilingSummary", session_id="p"))
        assert (code, details) == (STATUS.INTERNAL, "the server failed: TypeError: 'NoneType' object is not callable")
        assert len(call_with(made, "ListSessions").sessions) == 1


def test_pipelines_that_wait_are_bounded_and_delay_nobody(server: Any, foreign: Foreign, profiler: cp.Profiler) -> None:
    foreign.may_go.clear()
    with stub_of(server) as stub:
        request = pb.ResetProfilingRequest(session_id="foreign")
        waiting = [stub.ResetProfiling.future(request) for _ in range(8)]
        code, details = refusal(lambda: [stub.ResetProfiling(request, timeout=0.1) for _ in range(50)])
        while code is STATUS.DEADLINE_EXCEEDED:  # one of the eight has come later
            code, details = refusal(lambda: stub.ResetProfiling(request, timeout=0.1))
        assert (code, details) == (STATUS.RESOURCE_EXHAUSTED, "8 calls wait for their pipelines already")
        assert call_with(server, "ResetProfiling", session_id="p") == pb.ResetProfilingResponse()
        foreign.may_go.set()
        codes = [future.code() for future in waiting]
    assert set(codes) <= {STATUS.OK, STATUS.RESOURCE_EXHAUSTED}


def test_sessions_are_listed_and_change(profiler: cp.Profiler) -> None:
    class Silent(Foreign):
        @property
        def profiling_enabled(self) -> bool:  # type: ignore[override]
            raise OSError

    with serve({"b": profiler_on(), "a": profiler, "silent": Silent()}, token=None) as made:
        listed = call_with(made, "ListSessions").sessions
        assert [(each.session_id, each.profiling_enabled) for each in listed[:2]] == [("a", False), ("b", True)]
        assert (listed[2].session_id, listed[2].HasField("profiling_enabled")) == ("silent", False)
        made.remove_session("a")
        made.add_session("größer", profiler)
        assert [each.session_id for each in call_with(made, "ListSessions").sessions] == ["b", "größer", "silent"]
        assert refusal(lambda: call_with(made, "ResetProfiling", session_id="a"))[0] is STATUS.NOT_FOUND
        assert repr(made) == f"<Server address={made.address!r} sessions=3>"
        with pytest.raises(KeyError):
            made.remove_session("a")
        with pytest.raises(ValueError, match=r"there is a session 'b' \(str\) already"):
            made.add_session("b", profiler)


def test_a_list_does_not_wait_for_a_pipeline_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_PATIENCE_S", 0.05)
    may_go = threading.Event()

    class Hanging(Foreign):
        @property
        def profiling_enabled(self) -> bool:  # type: ignore[override]
            return may_go.wait(10)

    with serve({"hanging": Hanging(), "p": cp.Profiler()}, token=None) as made:
        assert refusal(lambda: call_with(made, "ListSessions", timeout=0.01))[0] is STATUS.DEADLINE_EXCEEDED
        hanging, other = call_with(made, "ListSessions").sessions
        assert (hanging.HasField("profiling_enabled"), other.HasField("profiling_enabled")) == (False, True)
        may_go.set()


@pytest.mark.parametrize(
    ("sessions", "error", "complaint"),
    [
        ([], TypeError, "sessions must be a mapping"),
        ({1: cp.Profiler()}, TypeError, "session_id must be a str, got 1"),
        ({"": cp.Profiler()}, ValueError, "session_id must have 1 to 256 bytes"),
        ({"x" * 257: cp.Profiler()}, ValueError, "session_id must have 1 to 256 bytes"),
        ({"\ud800": cp.Profiler()}, ValueError, "session_id must have no surrogates"),
        ({"p": None}, TypeError, "target of session 'p' .* must be a Profiler, or a pipeline"),
        ({"p": cp.Profiler}, TypeError, "target of session 'p' .* must be a Profiler, or a pipeline"),
        ({"p": object()}, TypeError, "target of session 'p' .* must be a Profiler, or a pipeline"),
        (dict.fromkeys(map(str, range(1025)), cp.Profiler()), ValueError, "there are 1024 sessions already"),
    ],
)
def test_what_is_no_session(sessions: Any, error: type[Exception], complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        serve(sessions)


def test_an_unknown_session(server: Any) -> None:
    expected = (STATUS.NOT_FOUND, "there is no session 'nobody' (str)")
    for name in ("SetProfiling", "GetProfilingSummary", "ResetProfiling", "WatchProfiling"):
        assert refusal(functools.partial(call_with, server, name, session_id="nobody")) == expected


@pytest.mark.parametrize(
    ("name", "fields", "complaint"),
    [
        ("SetProfiling", {"skip_first_n": -1}, "skip_first_n must be >= 0, got -1"),
        ("SetProfiling", {"median": ""}, "median must be one of histogram, p2, got ''"),
        ("SetProfiling", {"median": "P2"}, "median must be one of histogram, p2, got 'P2'"),
        ("GetProfilingSummary", {"stage": 5}, "stage must be an ExecutionStage, got 5"),
        ("GetProfilingSummary", {"stage": 1, "stage_name": "val"}, "must be the same stage, got 'train' and 'val'"),
        ("GetProfilingSummary", {"stage_name": "a\0b"}, "stage_name must have no NUL and at most 4096 bytes"),
        ("GetProfilingSummary", {"stage_name": "x" * 4097}, "stage_name must have no NUL and at most 4096 bytes"),
        ("WatchProfiling", {"stage": 77}, "stage must be an ExecutionStage, got 77"),
        ("WatchProfiling", {"interval_ms": 99}, "interval_ms must be from 100 to 3600000, got 99"),
        ("WatchProfiling", {"interval_ms": 3_600_001}, "interval_ms must be from 100 to 3600000, got 3600001"),
        ("WatchProfiling", {"max_updates": 0}, "max_updates must be >= 1, got 0"),
    ],
)
def test_what_is_out_of_range(name: str, fields: dict[str, Any], complaint: str, server: Any) -> None:
    code, details = refusal(lambda: call_with(server, name, session_id="p", **fields))
    assert code is STATUS.INVALID_ARGUMENT
    assert complaint in details


def test_an_answer_that_is_too_large(server: Any, profiler: cp.Profiler) -> None:
    profiler.set_profiling(True)
    for number in range(1100):
        profiler.record("train", f"{number} {'x' * 4000}", 1.0)
    profiler.record("val", "small", 1.0)
    code, details = refusal(lambda: call_with(server, "GetProfilingSummary", session_id="p"))
    assert code is STATUS.RESOURCE_EXHAUSTED
    assert "ask for one stage" in details
    assert len(call_with(server, "GetProfilingSummary", session_id="p", stage=pb.EXECUTION_STAGE_VAL).node_stats) == 1


# ---- Watching


def test_watching_shows_what_changes(server: Any, profiler: cp.Profiler) -> None:
    profiler.set_profiling(True)
    with stub_of(server) as stub:
        updates = watch(stub, 100)
        assert list(next(updates).node_stats) == []
        run_node(profiler, times=4)
        assert [row.count for row in next(updates).node_stats] == [4]
        profiler.set_profiling(False)
        assert next(updates).profiling_enabled is False
        updates.cancel()
    limited = call_with(server, "WatchProfiling", session_id="p", interval_ms=100, max_updates=2, stage_name="odd")
    assert len(limited) == 2


def test_watching_ends_with_its_session(profiler: cp.Profiler) -> None:
    with serve({"p": profiler}, token=None) as made, stub_of(made) as stub:
        updates = watch(stub, 100)
        next(updates)
        made.remove_session("p")
        assert refusal(lambda: list(updates))[0] is STATUS.NOT_FOUND


def test_streams_are_bounded(server: Any, profiler: cp.Profiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MOST_STREAMS", 3)
    with grpc.insecure_channel(server.address) as channel:
        stub = profiling_pb2_grpc.ProfilingServiceStub(channel)
        health = health_pb2_grpc.HealthStub(channel)
        watching = [watch(stub) for _ in range(2)]
        watching.append(health.Watch(health_pb2.HealthCheckRequest()))
        for updates in watching:
            next(updates)
        expected = (STATUS.RESOURCE_EXHAUSTED, "there are 3 streams already")
        assert refusal(lambda: next(watch(stub))) == expected
        assert refusal(lambda: next(health.Watch(health_pb2.HealthCheckRequest()))) == expected
        assert refusal(lambda: next(reflected(channel))) == expected
        assert len(sessions_of(stub)) == 3
        for updates in watching:
            updates.cancel()
        for _ in range(1000):  # there is room again when the server has heard of it
            with contextlib.suppress(grpc.RpcError):
                assert len(call_with(server, "WatchProfiling", session_id="p", max_updates=1)) == 1
                return
        pytest.fail("those that watch no more still count")


# ---- Addresses, tokens, certificates


@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:0", "127.3.2.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"])
def test_loopback_is_served_with_a_token_that_is_found(address: str, profiler: cp.Profiler) -> None:
    if address.startswith("[") and not socket.has_ipv6:
        pytest.skip("there is no IPv6 on this machine")
    try:
        made = serve({"p": profiler}, address)
    except OSError as error:
        assert "[" in address  # a machine may have no address of version 6
        assert "cannot serve on" in str(error)  # noqa: PT017
        return
    host, _, port = made.address.rpartition(":")
    assert (host, port != "0") == (address.rpartition(":")[0], True)
    assert refusal(lambda: call_with(made, "ListSessions"))[0] is STATUS.UNAUTHENTICATED
    assert len(call_with(made, "ListSessions", metadata=call_metadata(made.address)).sessions) == 1
    made.stop()


OTHERS = ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.com:0", "127.1:0", "127.0.0.01:0", "localhost.example.com:0"]


def test_a_localhost_that_leads_elsewhere(profiler: cp.Profiler, monkeypatch: pytest.MonkeyPatch) -> None:
    both = [(2, 1, 6, "", ("127.0.0.1", 0)), (2, 1, 6, "", ("192.0.2.1", 0))]
    for found in (mock.Mock(return_value=both), mock.Mock(side_effect=OSError("no names"))):
        monkeypatch.setattr(socket, "getaddrinfo", found)
        with pytest.raises(ValueError, match="give tls or token"):
            serve({"p": profiler}, "localhost:0")


NO_ADDRESSES = [
    "", ":", "127.0.0.1", "127.0.0.1:", ":5000", "127.0.0.1:-1", "127.0.0.1:65536", "127.0.0.1:+5", "127.0.0.1:1e3",
    "::1:5000", "[::1]", "[127.0.0.1]:5", "[localhost]:5", "unixx:/tmp/socket", "dns:///localhost:5", "a b:5", "a/b:5",
    "http://127.0.0.1:5", "127.0.0.1:٣", "host\0:5", "-host:5", "x" * 300 + ":5", "127.0.0.1:000005",
]  # fmt: skip


def test_wrong_addresses(profiler: cp.Profiler) -> None:
    for address in OTHERS:
        with pytest.raises(ValueError, match="can be reached from other machines: give tls or token"):
            serve({"p": profiler}, address)
        with pytest.raises(ValueError, match="can be reached from other machines: token must not be None there"):
            serve({"p": profiler}, address, token=None)
    for address in NO_ADDRESSES:
        with pytest.raises(ValueError, match="address must be HOST:PORT"):
            serve({"p": profiler}, address, token=TOKEN)


def test_an_address_that_cannot_be_had(server: Any, profiler: cp.Profiler) -> None:
    taken = re.escape(server.address)
    with pytest.raises(OSError, match=rf"cannot serve on {taken}: Address already in use") as raised:
        serve({"p": profiler}, server.address)
    assert raised.value.errno == errno.EADDRINUSE
    with serve({"p": profiler}, "localhost:0") as made, pytest.raises(OSError, match=f"cannot serve on {made.address}"):
        serve({"p": profiler}, made.address)
    with pytest.raises(OSError, match=r"cannot serve on nowhere\.invalid:5: "):
        serve({"p": profiler}, "nowhere.invalid:5", token=TOKEN)
    with pytest.raises(TypeError, match="address must be a str, got 5000"):
        serve({"p": profiler}, 5000)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("token", "error"),
    [(b"x" * 20, TypeError), ("x" * 15, ValueError), ("x" * 4097, ValueError), ("x" * 20 + " ", ValueError),
     ("ü" * 20, ValueError), ("", ValueError)],
)  # fmt: skip
def test_what_is_no_token(token: Any, error: type[Exception], profiler: cp.Profiler) -> None:
    with pytest.raises(error, match=r"^token must") as raised:
        serve({"p": profiler}, token=token)
    assert not token or str(token) not in str(raised.value)


def test_a_token_is_wanted_of_all_calls_but_health(profiler: cp.Profiler) -> None:
    right = (("authorization", f"Bearer {TOKEN}"),)
    wrong: list[Any] = [
        None, (("authorization", TOKEN),), (("authorization", f"Bearer {TOKEN}x"),), (("authorization", "Bearer "),),
        (("authorization", f"bearer {TOKEN}"),), right * 2, (("x-authorization", f"Bearer {TOKEN}"),),
        (("authorization-bin", f"Bearer {TOKEN}".encode()),),
    ]  # fmt: skip
    with serve({"p": profiler}, "0.0.0.0:0", token=TOKEN) as made, insecure(made) as channel:
        stub = profiling_pb2_grpc.ProfilingServiceStub(channel)
        assert len(sessions_of(stub, metadata=right)) == 1
        list_sessions = functools.partial(stub.ListSessions, pb.ListSessionsRequest())
        for metadata in wrong:
            assert refusal(functools.partial(list_sessions, metadata=metadata))[0] is STATUS.UNAUTHENTICATED
        assert refusal(lambda: next(stub.WatchProfiling(pb.WatchProfilingRequest())))[0] is STATUS.UNAUTHENTICATED
        health = health_pb2_grpc.HealthStub(channel)
        assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
        assert refusal(lambda: next(health.Watch(health_pb2.HealthCheckRequest())))[0] is STATUS.UNAUTHENTICATED
        assert refusal(lambda: next(reflected(channel)))[0] is STATUS.UNAUTHENTICATED


def insecure(server: Any) -> Any:
    return grpc.insecure_channel(f"127.0.0.1:{server.address.rpartition(':')[2]}")


def reflected(channel: Any) -> Any:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    return stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    paths = (folder / "certificate.pem", folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    try:
        subprocess.run([*command, "-out", paths[0], "-keyout", paths[1]], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl: not on PATH: it makes the certificate")
    return paths


def test_tls(certificate: tuple[Path, Path], profiler: cp.Profiler) -> None:
    with serve({"p": profiler}, "0.0.0.0:0", tls=certificate) as made:
        address = f"localhost:{made.address.rpartition(':')[2]}"
        credentials = grpc.ssl_channel_credentials(certificate[0].read_bytes())
        with grpc.secure_channel(address, credentials) as channel:
            stub = profiling_pb2_grpc.ProfilingServiceStub(channel)
            assert refusal(lambda: sessions_of(stub))[0] is STATUS.UNAUTHENTICATED
            assert len(sessions_of(stub, metadata=call_metadata(f"127.0.0.1{address[9:]}"))) == 1
        with insecure(made) as channel:
            stub = profiling_pb2_grpc.ProfilingServiceStub(channel)
            assert refusal(lambda: stub.ListSessions(pb.ListSessionsRequest(), timeout=5))[0] is STATUS.UNAVAILABLE


def test_what_is_no_certificate(certificate: tuple[Path, Path], profiler: cp.Profiler, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="tls must be a certificate and its key"):
        serve({"p": profiler}, tls=(certificate[1], certificate[0]))
    with pytest.raises(FileNotFoundError):
        serve({"p": profiler}, tls=(tmp_path / "none", certificate[1]))
    with pytest.raises(ValueError, match=r"tls \(key\) must not be empty"):
        serve({"p": profiler}, tls=(certificate[0], ""))
    with pytest.raises(TypeError, match="tls must be a pair of paths"):
        serve({"p": profiler}, tls=certificate[0])  # type: ignore[arg-type]


# ---- Health, reflection, stubs


def test_health(server: Any) -> None:
    with grpc.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", "cprofiling.v1.ProfilingService"):
            assert stub.Check(health_pb2.HealthCheckRequest(service=name)).status == 1
        watched = stub.Watch(health_pb2.HealthCheckRequest(service="nobody"))
        assert next(watched).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        unknown = refusal(lambda: stub.Check(health_pb2.HealthCheckRequest(service="nobody")))
        assert unknown[0] is STATUS.NOT_FOUND


def test_reflection(server: Any) -> None:
    with grpc.insecure_channel(server.address) as channel:
        listed = next(reflected(channel)).list_services_response.service
        assert "cprofiling.v1.ProfilingService" in [each.name for each in listed]
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = reflection_pb2.ServerReflectionRequest(file_containing_symbol="cprofiling.v1.ProfilingService")
        (answer,) = stub.ServerReflectionInfo(iter([asked]))
        assert answer.file_descriptor_response.file_descriptor_proto == [pb.DESCRIPTOR.serialized_pb]


def test_a_large_question_about_the_service_is_none(server: Any) -> None:
    """It would stay in memory for as long as its stream."""
    asked = [reflection_pb2.ServerReflectionRequest(list_services="x" * size) for size in (60_000, 70_000)]
    with grpc.insecure_channel(server.address) as channel:
        answers = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter(asked))
        assert [each.WhichOneof("message_response") for each in answers] == ["list_services_response", "error_response"]


def without_versions(text: str) -> str:
    """A stub's text without the versions of what has generated it, and without what these write differently."""
    text = re.sub(r"(?<=GENERATED_VERSION = ').*(?=')|(?<=Protobuf Python Version: ).*", "", text)
    text = re.sub(r"(?<=Domain\.PUBLIC,\n)(    \d+,\n){3}", "", text)
    return text.replace("(object):", ":").replace("_Optional[bool]", "bool")


def test_the_stubs_are_up_to_date(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{SERVER.parents[2]}", *outputs]
    subprocess.run([*command, str(SERVER / "profiling.proto")], check=True, env=unwatched())
    made = sorted((tmp_path / "cprofiling" / "monitoring" / "server").iterdir())
    assert [path.name for path in made] == ["profiling_pb2.py", "profiling_pb2.pyi", "profiling_pb2_grpc.py"]
    for path in made:
        shipped = (SERVER / path.name).read_text(encoding="utf-8")
        assert without_versions(path.read_text(encoding="utf-8")) == without_versions(shipped)


def test_the_stubs_work_with_the_oldest_versions_that_may_be_installed() -> None:
    """Stubs refuse what is older than their generator: see the comment beside the extra ``grpc``."""
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    oldest = {
        name: tuple(map(int, version.split(".")))
        for name, version in re.findall(r'"(grpcio|protobuf)>=([\d.]+)[",]', project)
    }
    grpc_stub = (SERVER / "profiling_pb2_grpc.py").read_text(encoding="utf-8")
    [version] = re.findall(r"GENERATED_VERSION = '(.*)'", grpc_stub)
    assert tuple(map(int, version.split("."))) <= oldest["grpcio"]
    messages = (SERVER / "profiling_pb2.py").read_text(encoding="utf-8")
    [version] = re.findall(r"Protobuf Python Version: (.*)", messages)
    assert tuple(map(int, version.split("."))) <= oldest["protobuf"]


# ---- Starting and stopping


def test_stopping_ends_everything(profiler: cp.Profiler) -> None:
    made = serve({"p": profiler}, token=None)
    with stub_of(made) as stub:
        updates = watch(stub)
        next(updates)
        made.stop()
        assert refusal(lambda: list(updates))[0] is STATUS.UNAVAILABLE
    made.stop()
    assert "cprofiling-server" not in [thread.name for thread in threading.enumerate() if thread is made._thread]
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", int(made.address.rpartition(":")[2])))


@pytest.mark.parametrize(
    ("grace", "error"),
    [(-1, ValueError), (61, ValueError), (float("nan"), ValueError), ("1", TypeError), (True, TypeError)],
)
def test_a_wrong_grace(grace: Any, error: type[Exception], server: Any) -> None:
    with pytest.raises(error, match="grace_s must be"):
        server.stop(grace)


class Interrupted(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        if timeout is None:
            raise KeyboardInterrupt
        return super().wait(timeout)


def test_an_interrupt_while_it_starts_leaves_nothing(profiler: cp.Profiler) -> None:
    made = serving.Server(service.Sessions({"p": profiler}), "127.0.0.1:0", None, None)
    made._is_ready = Interrupted()
    before = list(serving._running)
    with pytest.raises(KeyboardInterrupt):
        made._start()
    assert not made._thread.is_alive()
    assert serving._running == before


@pytest.mark.parametrize("fault", [MemoryError("no more"), SystemExit(3)])
@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_a_server_that_ends_by_itself_tells(
    fault: BaseException, kind: str, profiler: cp.Profiler, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """Clients do not hang, and the address can be had again."""

    def fail() -> None:
        if isinstance(fault, MemoryError):
            dying._service.stopping.set_exception(fault)
        else:
            raise fault

    dying: Any = serve({"p": profiler}, f"unix:{tmp_path}/socket" if kind == "unix" else "127.0.0.1:0", token=None)
    assert dying.failure is None
    dying._loop.call_soon_threadsafe(fail)
    dying._thread.join(30)
    assert not dying._thread.is_alive()
    assert dying.failure is fault
    assert repr(fault) in repr(dying)
    (warning,) = recwarn
    assert dying.address in str(warning.message)
    assert repr(fault) in str(warning.message)
    assert refusal(lambda: call_with(dying, "ListSessions"))[0] is STATUS.UNAVAILABLE
    with serve({"p": profiler}, dying.address, token=None) as anew, stub_of(anew) as stub:
        answer = stub.ListSessions(pb.ListSessionsRequest(), timeout=10, wait_for_ready=True)  # gRPC knows the refusal
        assert len(answer.sessions) == 1
    dying.stop()


def test_it_may_be_stopped_by_its_own_thread(profiler: cp.Profiler) -> None:
    made = serve({"p": profiler}, token=None)
    assert made._loop is not None
    made._loop.call_soon_threadsafe(made.stop)
    made._thread.join(10)
    assert not made._thread.is_alive()


def test_event_loops_of_the_program_are_not_disturbed(server: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def list_often() -> set[int]:
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub = profiling_pb2_grpc.ProfilingServiceStub(channel)
            found = set()
            for _ in range(8):
                calls = (stub.ListSessions(pb.ListSessionsRequest()) for _ in range(40))
                found |= {len(answer.sessions) for answer in await asyncio.gather(*calls)}
            return found

    assert asyncio.run(list_often()) == {3}
    assert caplog.records == []


def test_a_program_ends_as_it_would_while_somebody_watches() -> None:
    code = """
import cprofiling as cp, sys
from cprofiling.server import serve
server = serve({'p': cp.Profiler()}, token=None)
print(server.address, flush=True)
input()
sys.exit(3)
"""
    command, pipe = [sys.executable, "-W", "error", "-c", code], subprocess.PIPE
    with subprocess.Popen(command, env=unwatched(), stdin=pipe, stdout=pipe, stderr=pipe, text=True) as child:
        assert child.stdout is not None
        with grpc.insecure_channel(child.stdout.readline().strip()) as channel:
            stub = profiling_pb2_grpc.ProfilingServiceStub(channel)
            updates = watch(stub)
            next(updates)
            assert child.communicate("\n", timeout=30) == ("", "")
            assert refusal(lambda: next(updates)) == (STATUS.UNAVAILABLE, "the server stops")
    assert child.returncode == 3


@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)"])
def test_a_forked_child_has_no_server_and_profiles_on(end: str) -> None:
    code = f"""
import cprofiling as cp, os, sys
from cprofiling.server import serve
p = cp.Profiler()
server = serve({{'p': p}})
p.set_profiling(True)
pid = os.fork()
with p.profile_node('node'): pass
if pid == 0:
    server.stop()
    try: serve({{'p': p}})
    except RuntimeError as error: print(error, p.get_profiling_summary()[0].count, flush=True)
    {end}
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), p.get_profiling_summary()[0].count)
server.stop()
serve({{'p': p}}).stop()
"""
    done = run_unwatched(code, "-W", "error", *BESIDE_THREADS)
    refused = "gRPC does not serve in a process that was forked while it served: start the process by spawn"
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{refused} 1\n0 1\n", "")


@pytest.mark.parametrize("given", [None, "INFO"])
def test_importing_leaves_grpcs_settings_alone_and_the_package_needs_no_grpc(
    given: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if given is not None:
        monkeypatch.setenv("GRPC_VERBOSITY", given)
    code = """
import sys, cprofiling, os
print([name for name in sys.modules if name.partition('.')[0] in ('grpc', 'google')])
import cprofiling.server
print(os.environ.get('GRPC_VERBOSITY'))
"""
    done = run_unwatched(code, "-W", "error")
    assert (done.stdout, done.stderr) == (f"[]\n{given}\n", "")
    assert (SERVER / "profiling.proto").is_file()


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc_health", None)
    for name in ("cprofiling.server", "cprofiling.monitoring.server"):
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ModuleNotFoundError, match=r'needs the extra grpc: pip install "cprofiling\[grpc\]"') as raised:
        import cprofiling.server  # noqa: F401
    assert raised.value.name == "grpc_health"
