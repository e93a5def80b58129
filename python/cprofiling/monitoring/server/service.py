"""Calls of ``cprofiling.v1.ProfilingService``.

They run in the server's event loop, one after the other.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import grpc

from cprofiling.monitoring.server import profiling_pb2 as pb
from cprofiling.monitoring.server import profiling_pb2_grpc
from cprofiling.monitoring.server.guard import send
from cprofiling.monitoring.server.messages import Refusal, filled, stage_of, wire_text
from cprofiling.monitoring.server.sessions import Session, Sessions

if TYPE_CHECKING:
    from typing import Any

INTERVAL_MS, LEAST_INTERVAL_MS, MOST_INTERVAL_MS = 1000, 100, 3_600_000
_PATIENCE_S = 1.0  # with a pipeline that is to tell whether it is on, in the list of all


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
        await self._call(
            session,
            lambda target: target.set_profiling(
                request.enabled,
                synchronize_cuda=request.synchronize_cuda,
                reset=request.reset,
                skip_first_n=request.skip_first_n,
            ),
        )
        return pb.SetProfilingResponse(profiling_enabled=request.enabled)

    async def GetProfilingSummary(self, request: Any, _context: Any) -> Any:
        """Read a session's statistics."""
        return await self._summary(request, pb.GetProfilingSummaryResponse())

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


def _check_at_least(field: str, value: int, least: int) -> None:
    if value < least:
        raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, f"{field} must be >= {least}, got {value}")
