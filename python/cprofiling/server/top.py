"""A client that asks for the statistics of a session of another process, live."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass

import grpc

from cprofiling.format import shown_text, shown_value
from cprofiling.server import profiling_pb2 as pb
from cprofiling.server import profiling_pb2_grpc
from cprofiling.server.addresses import join_address, split_address
from cprofiling.server.guard import checked_token
from cprofiling.server.messages import summary_from
from cprofiling.top.moments import Moment, Part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_DEFAULT = "default"  # the session that the command serve has
_PATIENCE_S = 10.0  # with a server that does not answer
_MOST_BYTES = 16 * 1024 * 1024  # of an answer


class TopError(Exception):
    """There is nothing to be shown, for the reason that it says."""


@dataclass(frozen=True)
class Endpoint:
    """A server: where it is, and how it is asked.

    Attributes:
        address: The ``host:port``.
        token: What the server wants; None: nothing.
        roots: Certificates in PEM format of those who may vouch for the server; None: it does not use TLS.
    """

    address: str
    token: str | None = None
    roots: bytes | None = None

    def channel(self) -> Any:
        """Return a channel to it. TypeError or ValueError for an address or a token that is none."""
        address = join_address(*split_address(self.address))
        checked_token(self.token)
        options = (("grpc.max_receive_message_length", _MOST_BYTES), ("grpc.enable_http_proxy", 0))
        if self.roots is None:
            return grpc.insecure_channel(address, options)
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(self.roots), options)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What each call must have."""
        return () if self.token is None else (("authorization", f"Bearer {self.token}"),)


def moments(
    server: Endpoint, session: str | None = None, stage: str | None = None, *, interval_ms: int, updates: int | None
) -> Generator[Moment, None, None]:
    """Give the statistics of a session again and again.

    Args:
        server: Where to ask.
        session: Its id; None: the only one, or ``default``.
        stage: Only the nodes of this stage.
        interval_ms: Between two moments.
        updates: After how many to end; None: when the server ends.

    Raises TopError where the server does not answer, or refuses, and what ``Endpoint.channel`` raises.
    """
    with server.channel() as channel:
        try:
            stub = profiling_pb2_grpc.ProfilingServiceStub(channel)
            wanted = _session(stub, server, session)
            request = pb.WatchProfilingRequest(session_id=wanted, interval_ms=interval_ms)
            if stage is not None:
                request.stage_name = stage
            if updates is not None:
                request.max_updates = updates
            for answer in stub.WatchProfiling(request, metadata=server.metadata):
                yield _moment(server, wanted, answer)
        except grpc.RpcError as error:
            raise TopError(_reason(server, error)) from None


def _session(stub: Any, server: Endpoint, wanted: str | None) -> str:
    """Return which session is meant. Also where that is said, the server has to show that it answers."""
    answer = stub.ListSessions(pb.ListSessionsRequest(), timeout=_PATIENCE_S, metadata=server.metadata)
    names: list[str] = [session.session_id for session in answer.sessions]
    if wanted is not None:
        return wanted
    if len(names) == 1:
        return names[0]
    if _DEFAULT in names:
        return _DEFAULT
    listed = ", ".join(map(shown_value, names[:20])) or "none"
    raise TopError(f"which session? {server.address} has {listed}")


def _moment(server: Endpoint, session: str, answer: Any) -> Moment:
    summary = summary_from(answer)
    state = "on" if answer.profiling_enabled else "off"
    notes = list(summary.reasons)
    if summary.internal_errors:
        notes.append(f"{summary.internal_errors} faults inside the profiler")
    return Moment(
        title=f"session {shown_text('session', session)} at {server.address}, profiling {state}",
        whose=(server.address, session),
        taken_s=time.monotonic(),
        parts=(Part("", summary),),
        notes=tuple(notes),
    )


def _reason(server: Endpoint, error: Any) -> str:
    details = shown_text("details", str(error.details()))
    return f"{server.address}: {error.code().name}: {details}"
