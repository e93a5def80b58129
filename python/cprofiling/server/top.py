"""A client that shows the statistics of a session of another process, live."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass

import grpc

from cprofiling.format import format_profiling_table, shown_text, shown_value
from cprofiling.server import profiling_pb2 as pb
from cprofiling.server import profiling_pb2_grpc
from cprofiling.server.addresses import join_address, split_address
from cprofiling.server.messages import summary_from

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_DEFAULT = "default"  # the session that the command serve has
_PATIENCE_S = 10.0  # with a server that does not answer
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"
_MOST_BYTES = 16 * 1024 * 1024  # of an answer


class TopError(Exception):
    """There is nothing to be shown, for the reason that it says."""


@dataclass(frozen=True)
class Server:
    """Where to ask, and how.

    Attributes:
        address: The ``host:port``.
        token: What the server wants; None: nothing.
        roots: Certificates in PEM format of those who may vouch for the server; None: it does not use TLS.
    """

    address: str
    token: str | None = None
    roots: bytes | None = None

    def channel(self) -> Any:
        """Return a channel to it. TypeError or ValueError for an address that is none."""
        address = join_address(*split_address(self.address))
        options = (("grpc.max_receive_message_length", _MOST_BYTES), ("grpc.enable_http_proxy", 0))
        if self.roots is None:
            return grpc.insecure_channel(address, options)
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(self.roots), options)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What each call must have."""
        return () if self.token is None else (("authorization", f"Bearer {self.token}"),)


def tables(
    server: Server, session: str | None = None, stage: str | None = None, *, interval_ms: int, updates: int | None
) -> Generator[str, None, None]:
    """Give the table of a session again and again, with a line above it that says of what it is.

    Args:
        server: Where to ask.
        session: Its id; None: the only one, or ``default``.
        stage: Only the nodes of this stage.
        interval_ms: Between two tables.
        updates: After how many to end; None: when the server ends.

    Raises TopError where the server does not answer, or refuses.
    """
    with server.channel() as channel:
        try:
            stub = profiling_pb2_grpc.ProfilingServiceStub(channel)
            wanted = _only_session(stub, server) if session is None else session
            request = pb.WatchProfilingRequest(session_id=wanted, interval_ms=interval_ms)
            if stage is not None:
                request.stage_name = stage
            if updates is not None:
                request.max_updates = updates
            for answer in stub.WatchProfiling(request, metadata=server.metadata):
                yield _shown(server, wanted, answer)
        except grpc.RpcError as error:
            raise TopError(_reason(server, error)) from None


def _only_session(stub: Any, server: Server) -> str:
    answer = stub.ListSessions(pb.ListSessionsRequest(), timeout=_PATIENCE_S, metadata=server.metadata)
    names: list[str] = [session.session_id for session in answer.sessions]
    if len(names) == 1:
        return names[0]
    if _DEFAULT in names:
        return _DEFAULT
    listed = ", ".join(map(shown_value, names[:20])) or "none"
    raise TopError(f"which session? {server.address} has {listed}")


def _shown(server: Server, session: str, answer: Any) -> str:
    summary = summary_from(answer)
    state = "on" if answer.profiling_enabled else "off"
    name = shown_text("session", session)
    table = format_profiling_table(summary, skip_first_n=summary.skip_first_n)
    reasons = [f"note: {shown_text('reason', reason)}" for reason in summary.reasons]
    if summary.internal_errors:
        reasons.append(f"note: {summary.internal_errors} faults inside the profiler")
    return "\n".join([f"session {name} at {server.address}, profiling {state}", table, *reasons])


def _reason(server: Server, error: Any) -> str:
    details = shown_text("details", str(error.details()))
    return f"{server.address}: {error.code().name}: {details}"


def show(texts: Iterable[str], write: Callable[[str], None], *, is_terminal: bool) -> None:
    """Write each text: in the place of the one before it on a terminal, where it is cut to the lines; else below it."""
    is_first = True
    for text in texts:
        if is_terminal:
            write(_CLEAR + _fitted(text, shutil.get_terminal_size().lines - 1))
        else:
            write(text if is_first else f"\n{text}")
        is_first = False


def _fitted(text: str, most: int) -> str:
    """Return as many lines as there is room for; the last one says how many more there are."""
    lines = text.split("\n")
    if len(lines) <= max(most, 2):
        return text
    kept = lines[: max(most, 2) - 1]
    return "\n".join([*kept, f"... {len(lines) - len(kept)} more lines"])
