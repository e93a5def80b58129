"""Client of another process's sessions."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import grpc

from cprofiling._core import FormatError
from cprofiling._internal.text import counted, shown_text, shown_value
from cprofiling.monitoring.server import profiling_pb2 as pb
from cprofiling.monitoring.server import profiling_pb2_grpc
from cprofiling.monitoring.server.addresses import checked_address
from cprofiling.monitoring.server.guard import checked_token
from cprofiling.monitoring.server.messages import summary_from
from cprofiling.monitoring.server.token_files import call_metadata
from cprofiling.monitoring.top.samples import Moment, Part, notes_of
from cprofiling.nodes.snapshot import Snapshot

if TYPE_CHECKING:
    from cprofiling.monitoring.top.screen import Wait

_DEFAULT = "default"  # the session that the command serve has
_PATIENCE_S = 10.0  # with a server that does not answer
_STEP_S = 0.05  # between two looks for an answer
_MOST_PAUSE_S = 5.0  # between two tries, which begin with 1 s
_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_LASTING = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
)  # which no further try mends
_MOST_BYTES = 16 * 1024 * 1024  # of an answer
_RECONNECT = (("grpc.initial_reconnect_backoff_ms", 500), ("grpc.max_reconnect_backoff_ms", 2000))


class TopError(Exception):
    """There is nothing to be shown, for the reason that it says."""


@dataclass(frozen=True)
class Endpoint:
    """Address of a server with its credentials.

    Attributes:
        address: The ``host:port``, or ``unix:PATH``.
        token: What the server wants; None: what its token file says, where this user runs it.
        roots: Certificates in PEM format of those who may vouch for the server; None: it does not use TLS.
    """

    address: str
    token: str | None = None
    roots: bytes | None = None

    def channel(self) -> Any:
        """Return a channel to the server.

        Raises TypeError or ValueError for an invalid address or token.
        """
        address = checked_address(self.address)
        checked_token(self.token)
        options = (("grpc.max_receive_message_length", _MOST_BYTES), ("grpc.enable_http_proxy", 0), *_RECONNECT)
        if self.roots is None:
            return grpc.insecure_channel(address, options)
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(self.roots), options)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata of each call, as the server may have begun anew."""
        return call_metadata(self.address, self.token)


def moments(
    server: Endpoint, session: str | None, stage: str | None, wait: Wait, *, interval_s: float, updates: int | None
) -> Generator[Moment, None, None]:
    """Give the statistics of a session again and again, also after the server was away.

    Args:
        server: Where to ask.
        session: Its id; None: the only one, or ``default``.
        stage: Only the nodes of this stage.
        wait: Called until the answer comes, and between two; returns whether to go on.
        interval_s: Between two moments.
        updates: After how many to end, counting those without an answer; None: never.

    Raises TopError where the server does not answer at first, or refuses, and what ``Endpoint.channel`` raises.
    """
    last = None
    failures = 0
    with server.channel() as channel:
        stub = profiling_pb2_grpc.ProfilingServiceStub(channel)
        for given in count(1):
            asked_s = time.time()
            about = {"timeout": _PATIENCE_S, "metadata": server.metadata}
            try:
                if last is None:
                    listed = _awaited(stub.ListSessions.future(pb.ListSessionsRequest(), **about), wait)
                    if listed is None:
                        return
                    session = _chosen(listed, server, session)
                    request = pb.GetProfilingSummaryRequest(session_id=session, stage_name=stage, with_snapshot=True)
                answer = _awaited(stub.GetProfilingSummary.future(request, **about), wait)
                if answer is None:
                    return
                last, failures = _moment(answer, server, request.session_id), 0
                yield last
            except grpc.RpcError as error:
                if last is None or error.code() in _LASTING:
                    raise TopError(_reason(server, error)) from None
                failures += 1
                why = "" if error.code() in _AWAY else _reason(server, error)
                last = replace(last, away_s=last.away_s or asked_s, why=why)
                yield last
            pause_s = min(2.0 ** min(failures - 1, 9), _MOST_PAUSE_S) if failures else interval_s
            if given == updates or not wait(pause_s):
                return


def _awaited(call: Any, wait: Wait) -> Any:
    """Return the answer to a call, None if it is not wanted any more."""
    while not call.done():
        if not wait(_STEP_S):
            call.cancel()
            return None
    return call.result()


def _moment(answer: Any, server: Endpoint, session: str) -> Moment:
    summary = summary_from(answer)
    notes = notes_of(summary)
    part = Part("", summary)
    try:
        snapshot = Snapshot.from_bytes(answer.snapshot)
        part = Part("", snapshot.stats(), snapshot._find_histograms, snapshot._sources())  # noqa: SLF001 the package's
    except FormatError:
        lacking = "the session has no histograms" if answer.HasField("snapshot") else "the server is older"
        if answer.snapshot:
            lacking = "the server is newer"
        notes.append(f"{lacking}: p50, p99 and Max are known since the start only")
    state = "on" if answer.profiling_enabled else "off"
    return Moment(
        title=f"session {shown_text('session', session)} at {server.address}, profiling {state}",
        taken_s=time.time(),
        parts=(part,),
        notes=tuple(notes),
        switch=partial(_switched, server, session, "off" if answer.profiling_enabled else "on"),
    )


def _switched(server: Endpoint, session: str, action: str) -> str:
    try:
        return control(server, session, action)
    except TopError as error:
        return str(error)


def control(server: Endpoint, session: str | None, action: str, **options: Any) -> str:
    """Switch a session or list its stages, and return a message.

    Args:
        server: Where to ask.
        session: Its id; None: the only one, or ``default``.
        action: ``on``, ``off``, ``reset`` or ``stages``.
        options: Further fields of ``SetProfilingRequest``.

    Raises TopError where the server does not answer, or refuses, and what ``Endpoint.channel`` raises.
    """
    with server.channel() as channel:
        stub = profiling_pb2_grpc.ProfilingServiceStub(channel)
        try:
            about = {"timeout": _PATIENCE_S, "metadata": server.metadata}
            name = _chosen(stub.ListSessions(pb.ListSessionsRequest(), **about), server, session)
            shown = f"session {shown_text('session', name)} at {server.address}"
            if action == "stages":
                answer = stub.GetProfilingSummary(pb.GetProfilingSummaryRequest(session_id=name), **about)
                counts: dict[str, list[int]] = {}
                for row in summary_from(answer):
                    counts.setdefault(row.stage, []).append(row.count)
                lines = [
                    f"{shown_text('stage', stage)}: {counted(len(calls), 'node')}, {counted(sum(calls), 'call')}"
                    for stage, calls in counts.items()
                ]
                return "\n".join(lines) or f"{shown} has no statistics yet"
            if action == "reset":
                stub.ResetProfiling(pb.ResetProfilingRequest(session_id=name), **about)
                return f"{shown}: statistics discarded"
            request = pb.SetProfilingRequest(session_id=name, enabled=action == "on", **options)
            stub.SetProfiling(request, **about)
        except grpc.RpcError as error:
            raise TopError(_reason(server, error)) from None
    return f"{shown}: profiling {action}"


def _chosen(listed: Any, server: Endpoint, wanted: str | None) -> str:
    """Return the wanted session's id, or that of the only one, or the default."""
    names: list[str] = [session.session_id for session in listed.sessions]
    if wanted is not None:
        return wanted
    if len(names) == 1:
        return names[0]
    if _DEFAULT in names:
        return _DEFAULT
    told = ", ".join(map(shown_value, names[:20])) or "none"
    raise TopError(f"which session? {server.address} has {told}")


def _reason(server: Endpoint, error: Any) -> str:
    details = shown_text("details", str(error.details()))
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        details = f"there was no answer for {_PATIENCE_S:g} s"
    return f"{server.address}: {error.code().name}: {details}"
