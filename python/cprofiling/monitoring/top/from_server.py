"""Client of another process's sessions."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc

from cprofiling._internal.text import counted, shown_text, shown_value
from cprofiling.monitoring.server import profiling_pb2 as pb
from cprofiling.monitoring.server import profiling_pb2_grpc
from cprofiling.monitoring.server.addresses import checked_address
from cprofiling.monitoring.server.guard import checked_token
from cprofiling.monitoring.server.messages import summary_from
from cprofiling.monitoring.server.token_files import call_metadata
from cprofiling.monitoring.top.samples import Moment, Part, notes_of

if TYPE_CHECKING:
    from cprofiling.monitoring.top.screen import Wait

_DEFAULT = "default"  # the session that the command serve has
_PATIENCE_S = 10.0  # with a server that does not answer
_STEP_S = 0.05  # between two looks for a moment
_MOST_BYTES = 16 * 1024 * 1024  # of an answer


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
        options = (("grpc.max_receive_message_length", _MOST_BYTES), ("grpc.enable_http_proxy", 0))
        if self.roots is None:
            return grpc.insecure_channel(address, options)
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(self.roots), options)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata of each call, as the server may have begun anew."""
        return call_metadata(self.address, self.token)


def moments(
    server: Endpoint, session: str | None, stage: str | None, wait: Wait, *, interval_ms: int, updates: int | None
) -> Generator[Moment, None, None]:
    """Give the statistics of a session again and again.

    Args:
        server: Where to ask.
        session: Its id; None: the only one, or ``default``.
        stage: Only the nodes of this stage.
        wait: Called until the answer comes; returns whether to go on.
        interval_ms: Between two moments.
        updates: After how many to end; None: when the server ends.

    Raises TopError where the server does not answer, or refuses, and what ``Endpoint.channel`` raises.
    """
    request = pb.WatchProfilingRequest(interval_ms=interval_ms)
    if stage is not None:
        request.stage_name = stage
    if updates is not None:
        request.max_updates = updates
    with server.channel() as channel:
        answers = _Aside(_answers(channel, server, session, request))
        try:
            yield from answers.taken(wait)
        except grpc.RpcError as error:
            raise TopError(_reason(server, error)) from None
        finally:
            channel.close()  # which ends the call that is waited for
            answers.end()


def _answers(channel: Any, server: Endpoint, session: str | None, request: Any) -> Iterable[Moment]:
    stub = profiling_pb2_grpc.ProfilingServiceStub(channel)
    request.session_id = _session(stub, server, session)
    for answer in stub.WatchProfiling(request, metadata=server.metadata):
        summary = summary_from(answer)
        state = "on" if answer.profiling_enabled else "off"
        yield Moment(
            title=f"session {shown_text('session', request.session_id)} at {server.address}, profiling {state}",
            origin=(server.address, request.session_id),
            taken_s=time.monotonic(),
            parts=(Part("", summary),),
            notes=tuple(notes_of(summary)),
            switch=partial(_switched, server, request.session_id, "off" if answer.profiling_enabled else "on"),
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
            name = _session(stub, server, session)
            about = {"timeout": _PATIENCE_S, "metadata": server.metadata}
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


class _Aside:
    """Takes samples in a thread, one ahead, so that keys still work."""

    def __init__(self, moments: Iterable[Moment]) -> None:
        self._moments = moments
        self._queue: queue.Queue[Moment | BaseException | None] = queue.Queue(1)
        self._thread = threading.Thread(target=self._take, name="cprofiling top", daemon=True)
        self._thread.start()

    def _take(self) -> None:
        try:
            for moment in self._moments:
                self._queue.put(moment)
            self._queue.put(None)
        except BaseException as error:  # noqa: BLE001 it is raised where the moments are taken
            self._queue.put(error)

    def taken(self, wait: Wait) -> Generator[Moment, None, None]:
        """Yield the samples, and raise the error that ended them."""
        while True:
            try:
                found = self._queue.get_nowait()
            except queue.Empty:
                if not wait(_STEP_S):
                    return
                continue
            if found is None:
                return
            if isinstance(found, BaseException):
                raise found
            yield found

    def end(self) -> None:
        """Wait for the thread, for which there are no more moments."""
        while self._thread.is_alive():
            with suppress(queue.Empty):
                self._queue.get(timeout=_STEP_S)  # which it may wait for


def _session(stub: Any, server: Endpoint, wanted: str | None) -> str:
    """Return the session's id, after the server has shown that it answers."""
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


def _reason(server: Endpoint, error: Any) -> str:
    details = shown_text("details", str(error.details()))
    return f"{server.address}: {error.code().name}: {details}"
