"""Sessions of a server, and the calls of ``cprofiling.v1.ProfilingService``.

Calls run in the server's event loop, one after the other.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import grpc

from cprofiling._internal.text import shown_value
from cprofiling.monitoring.server import profiling_pb2 as pb
from cprofiling.monitoring.server import profiling_pb2_grpc
from cprofiling.monitoring.server.guard import send
from cprofiling.monitoring.server.messages import MOST_BYTES, Refusal, described, filled, stage_of, wire_text
from cprofiling.nodes.profiler import PipelineProfiling, Profiler
from cprofiling.nodes.snapshot import Snapshot
from cprofiling.nodes.stats import MEDIANS

INTERVAL_MS, LEAST_INTERVAL_MS, MOST_INTERVAL_MS = 1000, 100, 3_600_000
_PATIENCE_S = 1.0  # with a pipeline that is to tell whether it is on, in the list of all
_METHODS = ("set_profiling", "get_profiling_summary", "reset_profiling")
_LONGEST_ID = 256
_MOST_SESSIONS = 1024
_AROUND = 1024  # bytes that are left for a reason
_MOST_ASIDE = 8  # calls of others' methods that run at once, in all sessions


class Session:
    """One name and its target.

    A Profiler of this package answers at once. Others' methods may wait, so each of their calls has a thread.
    """

    def __init__(self, name: str, target: Any) -> None:
        """Take over a target, which has been checked."""
        self.name = name
        self.target = target
        self._controls: Profiler | None = None  # which controls the target, unless that overrides it
        if type(target) is Profiler:
            self._controls = target
        elif isinstance(target, PipelineProfiling):
            names = (*_METHODS, "profiling_enabled", "profiler")
            if all(getattr(type(target), each) is getattr(PipelineProfiling, each) for each in names):
                self._controls = target.profiler

    async def call(self, function: Callable[[Any], Any], free: threading.Semaphore) -> Any:
        """Return the target's result.

        Raises Refusal if it fails, or too many wait.
        """
        if self._controls is not None:
            outcome = _outcome(function, self._controls)
        else:
            outcome = await _aside(partial(_outcome, function, self.target), free)
        if isinstance(outcome, Refusal):
            raise outcome
        return outcome


def _outcome(function: Callable[[Any], Any], target: Any) -> Any:
    """Return a function's result, or the Refusal for its exception."""
    try:
        return function(target)
    except Refusal as refusal:
        return refusal
    except BaseException as error:  # noqa: BLE001
        return Refusal(grpc.StatusCode.INTERNAL, f"the session's pipeline failed: {described(error)}")


async def _aside(function: Callable[[], Any], free: threading.Semaphore) -> Any:
    """Return a function's result from one of a bounded number of threads."""
    if not free.acquire(blocking=False):
        raise Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{_MOST_ASIDE} calls wait for their pipelines already")
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()

    def give(outcome: Any) -> None:
        if not answer.done():
            answer.set_result(outcome)

    failed = Refusal(grpc.StatusCode.INTERNAL, "the session's pipeline failed, and there was no memory to tell why")

    def run() -> None:
        try:
            outcome = function()
        except BaseException:  # noqa: BLE001 who waits for it must not wait for ever
            outcome = failed
        free.release()
        with suppress(RuntimeError):  # the server has stopped meanwhile
            loop.call_soon_threadsafe(give, outcome)

    try:
        threading.Thread(target=run, name="cprofiling-session", daemon=True).start()
    except RuntimeError as error:
        free.release()
        raise Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, f"there is no thread to be had: {error}") from None
    return await answer


class Sessions:
    """All sessions of a server by name, changed by any thread."""

    def __init__(self, targets: Mapping[str, Any]) -> None:
        """Add all.

        Raises TypeError or ValueError for an invalid session or name.
        """
        if not isinstance(targets, Mapping):
            raise TypeError(
                f"sessions must be a mapping of names to pipelines or Profilers, got {shown_value(targets)}"
            )
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self.free = threading.BoundedSemaphore(_MOST_ASIDE)
        for name, target in targets.items():
            self.add(name, target)

    def add(self, name: str, target: Any) -> None:
        """Add a session.

        Raises TypeError or ValueError for a wrong or taken name, another target, or too many sessions.
        """
        if not isinstance(name, str):
            raise TypeError(f"session_id must be a str, got {shown_value(name)}")
        try:
            size = len(name.encode("utf-8"))
        except UnicodeEncodeError:
            raise ValueError(f"session_id must have no surrogates, got {shown_value(name)}") from None
        if not 1 <= size <= _LONGEST_ID:
            raise ValueError(f"session_id must have 1 to {_LONGEST_ID} bytes of UTF-8, got {shown_value(name)}")
        has_methods = all(callable(getattr(target, each, None)) for each in _METHODS)
        has_property = hasattr(type(target), "profiling_enabled")  # which is not asked for its value yet
        if isinstance(target, type) or not has_methods or not (has_property or hasattr(target, "profiling_enabled")):
            raise TypeError(
                f"target of session {shown_value(name)} must be a Profiler, or a pipeline with {', '.join(_METHODS)} "
                f"and profiling_enabled, got {shown_value(target)}"
            )
        session = Session(name, target)
        with self._lock:
            if name in self._sessions:
                raise ValueError(f"there is a session {shown_value(name)} already")
            if len(self._sessions) >= _MOST_SESSIONS:
                raise ValueError(f"there are {_MOST_SESSIONS} sessions already, the most that a server has")
            self._sessions = {**self._sessions, name: session}

    def remove(self, name: str) -> None:
        """Remove a session, leaving its Profiler's statistics.

        Raises KeyError for an unknown name.
        """
        with self._lock:
            left = dict(self._sessions)
            del left[name]
            self._sessions = left

    def get(self, name: str) -> Session:
        """Return a session. Refusal for an unknown one."""
        session = self._sessions.get(name)
        if session is None:
            raise Refusal(grpc.StatusCode.NOT_FOUND, f"there is no session {shown_value(name)}")
        return session

    def all(self) -> list[Session]:
        """Return all, sorted by name."""
        sessions = self._sessions  # which is replaced, never changed
        return [sessions[name] for name in sorted(sessions)]


class ProfilingService(profiling_pb2_grpc.ProfilingServiceServicer):
    """Handlers that return an answer, or raise a Refusal."""

    def __init__(self, sessions: Sessions) -> None:
        """Serve these sessions, created in their event loop."""
        self.sessions = sessions
        self.stopping: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def cuvis_handlers(self) -> Any:
        """Return handlers for clients of cuvis-ai-core, with fewer fields."""
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                getattr(self, name),
                getattr(pb, f"{name}Request").FromString,
                getattr(pb, f"{name}Response").SerializeToString,
            )
            for name in ("SetProfiling", "GetProfilingSummary")
        }
        return grpc.method_handlers_generic_handler("cuvis_ai.v1.CuvisAIService", handlers)

    async def SetProfiling(self, request: Any, _context: Any) -> Any:
        """Switch a session on or off, with defaults for unset options."""
        session = self.sessions.get(request.session_id)
        _check_at_least("skip_first_n", request.skip_first_n, 0)
        options = {}  # what targets of other packages need not know
        if request.HasField("median"):
            if request.median not in MEDIANS:
                raise Refusal(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"median must be one of {', '.join(MEDIANS)}, got {shown_value(request.median)}",
                )
            options["median"] = request.median
        await self._call(
            session,
            lambda target: target.set_profiling(
                request.enabled,
                synchronize_cuda=request.synchronize_cuda,
                reset=request.reset,
                skip_first_n=request.skip_first_n,
                **options,
            ),
        )
        return pb.SetProfilingResponse(profiling_enabled=request.enabled)

    async def GetProfilingSummary(self, request: Any, _context: Any) -> Any:
        """Read a session's statistics, and its snapshot if that is asked for."""
        response = await self._summary(request, pb.GetProfilingSummaryResponse())
        if request.with_snapshot:
            snapshot = await self._call(self.sessions.get(request.session_id), _snapshot_of)
            if response.ByteSize() + len(snapshot) > MOST_BYTES - _AROUND:
                response.reasons.append(f"the histograms are too large to be sent: {len(snapshot):,} bytes")
                snapshot = b""
            response.snapshot = snapshot
        return response

    async def ResetProfiling(self, request: Any, _context: Any) -> Any:
        """Discard a session's statistics."""
        await self._call(self.sessions.get(request.session_id), lambda target: target.reset_profiling())
        return pb.ResetProfilingResponse()

    async def ListSessions(self, _request: Any, _context: Any) -> Any:
        """Tell of all sessions."""
        return pb.ListSessionsResponse(sessions=[await self._told(session) for session in self.sessions.all()])

    async def WatchProfiling(self, request: Any, context: Any) -> None:
        """Send statistics repeatedly, each after the one before has left."""
        interval_ms = request.interval_ms if request.HasField("interval_ms") else INTERVAL_MS
        if not LEAST_INTERVAL_MS <= interval_ms <= MOST_INTERVAL_MS:
            limits = f"from {LEAST_INTERVAL_MS} to {MOST_INTERVAL_MS}"
            raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, f"interval_ms must be {limits}, got {interval_ms}")
        updates = request.max_updates if request.HasField("max_updates") else None
        if updates is not None:
            _check_at_least("max_updates", updates, 1)
        while True:
            await send(context, await self._summary(request, pb.WatchProfilingResponse()))
            updates = None if updates is None else updates - 1
            if updates == 0:
                return
            stopped, _ = await asyncio.wait({self.stopping}, timeout=interval_ms / 1000)
            if stopped:
                raise Refusal(grpc.StatusCode.UNAVAILABLE, "the server stops")

    async def _call(self, session: Session, function: Any) -> Any:
        return await session.call(function, self.sessions.free)

    async def _summary(self, request: Any, response: Any) -> Any:
        """Fill a message with the statistics that a request asks for."""
        session, stage = self.sessions.get(request.session_id), stage_of(request)
        return await self._call(
            session,
            lambda target: filled(response, target.get_profiling_summary(stage), is_on=target.profiling_enabled),
        )

    async def _told(self, session: Session) -> Any:
        message = pb.Session(session_id=wire_text(session.name))
        asked = self._call(session, lambda target: bool(target.profiling_enabled))
        with suppress(Refusal, asyncio.TimeoutError):  # one session's fault does not hide the others
            message.profiling_enabled = await asyncio.wait_for(asked, _PATIENCE_S)
        return message


def _snapshot_of(target: Any) -> bytes:
    """Return a target's snapshot as bytes, empty where it gives none."""
    take = getattr(target, "snapshot", None)
    snapshot = take() if callable(take) else None
    return snapshot.to_bytes() if isinstance(snapshot, Snapshot) else b""


def _check_at_least(field: str, value: int, least: int) -> None:
    if value < least:
        raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, f"{field} must be >= {least}, got {value}")
