"""Clients of our servers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import grpc

from cprofiling.server import profiling_pb2 as pb
from cprofiling.server import profiling_pb2_grpc

OWN = (("grpc.use_local_subchannel_pool", 1),)  # a connection that no other channel shares


@contextlib.contextmanager
def stub_of(server: Any, options: Any = ()) -> Iterator[Any]:
    """A client of a server, or of an address."""
    with grpc.insecure_channel(getattr(server, "address", server), options) as channel:
        yield profiling_pb2_grpc.ProfilingServiceStub(channel)


def sessions_of(stub: Any, **options: Any) -> list[Any]:
    """The sessions that a server lists."""
    return list(stub.ListSessions(pb.ListSessionsRequest(), **{"timeout": 10, **options}).sessions)


def watch(stub: Any, interval_ms: int = 60_000) -> Any:
    """The updates of the session ``p``."""
    return stub.WatchProfiling(pb.WatchProfilingRequest(session_id="p", interval_ms=interval_ms))
