"""What the calls of ``cprofiling.v1.ProfilingService`` do. They run in the server's event loop, one after the other."""

from __future__ import annotations

import asyncio

import grpc

from cprofiling.server import profiling_pb2 as pb
from cprofiling.server import profiling_pb2_grpc
from cprofiling.server.messages import filled, stage_of, wire_text
from cprofiling.server.refusal import Refusal
from cprofiling.server.sessions import Session, Sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_WATCHING = 64
INTERVAL_MS, LEAST_INTERVAL_MS, MOST_INTERVAL_MS = 1000, 100, 3_600_000
PATIENCE_S = 30.0  # with a reader that does not read


class ProfilingService(profiling_pb2_grpc.ProfilingServiceServicer):
    """The handlers, each of which returns its answer, or raises: a Refusal, or whatever a pipeline has raised."""

    def __init__(self, sessions: Sessions) -> None:
        """Serve these sessions; to be made in the event loop that serves them."""
        self.sessions = sessions
        self.stopping: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watching = 0

    async def SetProfiling(self, request: Any, _context: Any) -> Any:
        """Switch a session on or off; what is not set has its default."""
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
        """Send the statistics again and again: none is made before the one before it has left."""
        interval_ms = request.interval_ms if request.HasField("interval_ms") else INTERVAL_MS
        if not LEAST_INTERVAL_MS <= interval_ms <= MOST_INTERVAL_MS:
            limits = f"from {LEAST_INTERVAL_MS} to {MOST_INTERVAL_MS}"
            raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, f"interval_ms must be {limits}, got {interval_ms}")
        updates = request.max_updates if request.HasField("max_updates") else None
        if updates is not None:
            _check_at_least("max_updates", updates, 1)
        if self._watching >= MOST_WATCHING:
            raise Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MOST_WATCHING} calls watch already")
        self._watching += 1
        try:
            while True:
                await _send(context, await self._summary(request, pb.WatchProfilingResponse()))
                updates = None if updates is None else updates - 1
                if updates == 0:
                    return
                await self._pause(interval_ms / 1000)
        finally:
            self._watching -= 1

    async def _call(self, session: Session, function: Any) -> Any:
        return await session.call(function, self.sessions.free)

    async def _summary(self, request: Any, response: Any) -> Any:
        """Fill a message with the statistics that a request asks for."""
        session, stage = self.sessions.get(request.session_id), stage_of(request)
        enabled, summary = await self._call(
            session, lambda target: (bool(target.profiling_enabled), target.get_profiling_summary(stage))
        )
        return filled(response, summary, enabled=enabled)

    async def _told(self, session: Session) -> Any:
        message = pb.Session(session_id=wire_text(session.name))
        try:
            message.profiling_enabled = bool(await self._call(session, lambda target: target.profiling_enabled))
        except asyncio.CancelledError:
            raise
        except BaseException:  # noqa: BLE001 one session's fault does not hide the others
            message.ClearField("profiling_enabled")
        return message

    async def _pause(self, seconds: float) -> None:
        """Wait for a while. Refusal when the server stops meanwhile."""
        stopped, _ = await asyncio.wait({self.stopping}, timeout=seconds)
        if stopped:
            raise Refusal(grpc.StatusCode.UNAVAILABLE, "the server stops")


def _check_at_least(field: str, value: int, least: int) -> None:
    if value < least:
        raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, f"{field} must be >= {least}, got {value}")


async def _send(context: Any, message: Any) -> None:
    """Send a message of a stream. Refusal where the reader does not make room for it in time."""
    sending = asyncio.ensure_future(context.write(message))
    try:
        # Not wait_for: up to CPython 3.11, it forgets that the client is gone if it hears of that when all is sent.
        sent, _ = await asyncio.wait({sending}, timeout=PATIENCE_S)
        if not sent:
            raise Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, f"the reader has not read for {PATIENCE_S:g} s")
        sending.result()
    finally:
        sending.cancel()
