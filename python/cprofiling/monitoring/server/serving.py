"""Server thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import atexit
import errno
import os
import socket
import ssl
import stat
import tempfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from cprofiling._internal import arguments, files
from cprofiling._internal.messages import mention
from cprofiling._internal.text import shown_value
from cprofiling.monitoring.server import profiling_pb2, profiling_pb2_grpc, token_files
from cprofiling.monitoring.server.addresses import (
    checked_address,
    is_ip,
    is_local,
    join_address,
    socket_path,
    split_address,
)
from cprofiling.monitoring.server.guard import AUTO, Guard, checked_token
from cprofiling.monitoring.server.messages import MOST_BYTES
from cprofiling.monitoring.server.service import ProfilingService, Sessions
from cprofiling.recording.output_names import named

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath

SERVICE = profiling_pb2.DESCRIPTOR.services_by_name["ProfilingService"].full_name
_running: list[int] = []  # of each server that runs, the process: in a forked child it is another one
_TOKEN_BYTES = 32
_LEAST_DESCRIPTORS = 32
_PATIENCE_S = 5.0  # with the thread, beyond what a stop gives to calls
_OPTIONS = (
    ("grpc.so_reuseport", 0),  # a port that is taken is refused, instead of shared
    ("grpc.max_receive_message_length", MOST_BYTES),
    ("grpc.max_send_message_length", MOST_BYTES),
    ("grpc.max_allowed_incoming_connections", 256),  # each takes one of the program's file descriptors
    ("grpc.max_connection_idle_ms", 5_000),  # without a call
    ("grpc.server_handshake_timeout_ms", 5_000),  # a connection that says nothing
    ("grpc.keepalive_time_ms", 30_000),  # of a connection with a lost peer
    ("grpc.keepalive_timeout_ms", 10_000),
)


def serve(
    sessions: Mapping[str, Any],
    address: str = "127.0.0.1:0",
    *,
    tls: tuple[StrOrBytesPath, StrOrBytesPath] | None = None,
    token: str | None = AUTO,
) -> Server:
    """Start a server in a thread, and return it when clients can call.

    Args:
        sessions: What clients can control: Profilers, or pipelines, by names of 1 to 256 bytes of UTF-8, at most 1,024.
            A pipeline has ``set_profiling``, ``get_profiling_summary``, ``reset_profiling`` and
            ``profiling_enabled``, and ``snapshot`` for ``top`` to show percentiles of the last minute. It is called in
            threads of the server's, if it is not of ``PipelineProfiling``.
        address: ``host:port``; port 0: a free one. Or ``unix:PATH``, a socket that only this user can use, of mode
            0600, which is removed at the end.
        tls: Two files in PEM format, the certificate with its chain and the private key: calls are encrypted.
        token: 16 to 4096 printable ASCII characters without blanks, which all calls must have in their metadata, as
            ``authorization: Bearer TOKEN``, but the check of health. Without ``tls`` the network can read it. With
            ``"auto"``, a port has a random one, in a file of mode 0600 where ``cprofiling control``, ``cprofiling
            top`` and ``call_metadata`` of this user find it. None: none, so that all users and programs of this
            machine may call, where others cannot reach it.

    Raises:
        OSError: The address cannot be had, or a file of ``tls`` not be read, or none be made for the token.
        RuntimeError: This process was forked while a server ran.
        TypeError: An argument is of the wrong type, a session no pipeline.
        ValueError: An argument is out of its limits; the address is reached from other machines, and neither ``tls``
            nor ``token`` is given, or ``token`` is None; the files of ``tls`` are no certificate and key.
    """
    checked = checked_address(address)
    is_auto = token == AUTO
    wanted = os.urandom(_TOKEN_BYTES).hex() if is_auto else checked_token(token)
    if (wanted is None or (is_auto and tls is None)) and not is_local(checked):
        advice = "give tls or token" if is_auto else "token must not be None there"
        raise ValueError(
            f"address {shown_value(address)} can be reached from other machines: {advice}, or an address such as "
            "127.0.0.1:0"
        )
    if is_auto and socket_path(checked) is not None:
        wanted = None
    server = Server(Sessions(sessions), checked, _credentials(tls), wanted, has_file=is_auto and wanted is not None)
    if any(pid != os.getpid() for pid in _running):
        raise RuntimeError(
            "gRPC does not serve in a process that was forked while it served: start the process by spawn"
        )
    server._start()  # noqa: SLF001 nobody else does
    return server


def _credentials(tls: Any) -> Any:
    """Return the credentials in two files, None without TLS."""
    if tls is None:
        return None
    if not isinstance(tls, tuple) or len(tls) != 2:
        raise TypeError(f"tls must be a pair of paths (certificate, key) or None, got {shown_value(tls)}")
    certificate, key = arguments.path("tls (certificate)", tls[0]), arguments.path("tls (key)", tls[1])
    pair = (files.read_whole(key), files.read_whole(certificate))
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        raise ValueError(f"tls must be a certificate and its key, got {certificate!a} and {key!a}: {error}") from None
    return grpc.ssl_server_credentials([pair])


class Server:
    """Running server, made by ``serve``, and a context manager that stops it.

    It serves until it is stopped or the process ends. A forked child has none.

    Attributes:
        address: The ``host:port``, or ``unix:PATH``, that it has.
        failure: The exception that ended it without ``stop()``, of which a RuntimeWarning tells too; else None. Then
            ``serve()`` can take the address again.
        token_file: The file in which clients of this user find its token, None without one.
    """

    def __init__(
        self, sessions: Sessions, address: str, credentials: Any, token: str | None, *, has_file: bool = False
    ) -> None:
        """Take checked arguments."""
        self.address = address
        self.token_file: str | None = None
        self._token_to_write = token if has_file else None
        self._sessions = sessions
        self._credentials = credentials
        self._guard = Guard(token)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._is_ready = threading.Event()
        self.failure: BaseException | None = None
        self._grace_s: float = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Any
        self._service: ProfilingService
        self._thread = threading.Thread(target=self._run, name="cprofiling-server", daemon=True)

    def add_session(self, session_id: str, target: Any) -> None:
        """Add a session, as for ``serve``.

        Raises ValueError for a taken name.
        """
        self._sessions.add(session_id, target)

    def remove_session(self, session_id: str) -> None:
        """Remove a session, so that calls to it end with NOT_FOUND.

        Raises KeyError for an unknown name.
        """
        self._sessions.remove(session_id)

    def stop(self, grace_s: float = 0.5) -> None:
        """Stop taking calls, let running ones finish, and return at the end.

        grace_s: 0 to 60. Stopping again is fine, also in a forked child, where it never ran.
        """
        grace = arguments.number_between("grace_s", grace_s, 0, 60)
        if os.getpid() != self._pid:
            return
        with self._lock:
            loop, self._loop = self._loop, None
            if loop is not None:
                _running.remove(self._pid)
                self._grace_s = grace
                loop.call_soon_threadsafe(self._service.stopping.set_result, None)
        atexit.unregister(self.stop)
        if threading.current_thread() is not self._thread:  # where an object's __del__ may be called, too
            self._thread.join(grace + _PATIENCE_S)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        ended = "" if self.failure is None else f" ended by {self.failure!r}"
        return f"<Server address={self.address!r} sessions={len(self._sessions.all())}{ended}>"

    def _start(self) -> None:
        """Start the thread and wait until it serves, or raise its errors."""
        try:
            with ExitStack() as tried:  # without descriptors, gRPC ends the process, or waits for ever
                for _ in range(_LEAST_DESCRIPTORS // 2):
                    for end in os.pipe():
                        tried.callback(os.close, end)
            self._thread.start()
        except OSError as error:
            raise OSError(error.errno, f"cannot serve on {self.address}: {error.strerror}") from None
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, f"cannot serve on {self.address}: {error}") from None
        try:
            self._is_ready.wait()
        except BaseException:  # an interrupt
            self._is_ready.wait(_PATIENCE_S)
            self.stop(0)
            raise
        if self.failure is not None:
            self._thread.join()
            raise self.failure
        atexit.register(self.stop)

    def _run(self) -> None:
        """Serve in this thread to the end, whatever event loop policy is set."""
        loop: asyncio.AbstractEventLoop | None = None
        try:
            loop = asyncio.SelectorEventLoop()
            asyncio.set_event_loop(loop)
            loop.run_until_complete(self._serve())
        except BaseException as error:  # noqa: BLE001 the program goes on, and serve() raises it
            self.failure = error
            with self._lock:
                served, self._loop = self._loop, None
            if served is not None:
                _running.remove(self._pid)
                atexit.unregister(self.stop)
                with suppress(BaseException):
                    served.run_until_complete(self._give_up())
                mention(f"the server at {self.address} has ended, call serve() to have another: {error!r}")
        finally:
            self._loop = None
            self._is_ready.set()
            asyncio.set_event_loop(None)
            if loop is not None:
                loop.close()

    async def _serve(self) -> None:
        self._server = server = grpc.aio.server(interceptors=(self._guard,), options=_OPTIONS)
        self._service = ProfilingService(self._sessions)
        profiling_pb2_grpc.add_ProfilingServiceServicer_to_server(self._service, server)
        server.add_generic_rpc_handlers((self._service.cuvis_handlers(),))
        healthy = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
        await healthy.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
        reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
        path = socket_path(self.address)
        try:
            if path is None:
                self._bind_port(server)
            else:
                self._bind_socket(server, path)
        except BaseException:
            with suppress(Exception):
                await server.start()  # or it would keep what it has bound
                await server.stop(None)
            raise
        try:
            await server.start()
            if self._token_to_write is not None:
                self.token_file = token_files.write(self.address, self._token_to_write)
        except BaseException:
            await self._end()
            raise
        self._loop = asyncio.get_running_loop()
        _running.append(self._pid)
        self._is_ready.set()
        await self._service.stopping
        await healthy.enter_graceful_shutdown()
        await self._end()

    async def _give_up(self) -> None:
        """End after a failure, which has left tasks."""
        await self._end()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _end(self) -> None:
        await self._server.stop(self._grace_s)
        for path in (socket_path(self.address), self.token_file):
            if path is not None:
                with suppress(OSError):
                    os.unlink(path)

    def _bind_port(self, server: Any) -> None:
        """Take the address. OSError where it cannot be had."""
        host, port = split_address(self.address)
        is_name = not (is_ip(host, 4) or is_ip(host, 6))
        # gRPC would only print why, and is content with one of the addresses of a name, while another user has the
        # other and gets the calls. Other names than localhost are left to it.
        hosts = (host,) if not is_name else ("127.0.0.1", "::1") if host.lower() == "localhost" else ()
        for each in hosts:
            try:
                with socket.socket(socket.AF_INET6 if is_ip(each, 6) else socket.AF_INET) as tried:
                    tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    tried.bind((each, port))
            except OSError as error:
                if is_name and error.errno != errno.EADDRINUSE:
                    continue  # there is no such version of IP here
                text = f"cannot serve on {join_address(host, port)}: {os.strerror(error.errno or 0)}"
                raise OSError(error.errno, text) from None
        self.address = join_address(host, self._added(server, self.address))

    def _bind_socket(self, server: Any, path: str) -> None:
        """Create a socket, named when nobody else can use it.

        Raises OSError if that fails.
        """
        try:
            with suppress(FileNotFoundError):
                status = os.lstat(path)
                if stat.S_ISSOCK(status.st_mode) and status.st_uid == os.geteuid():
                    with socket.socket(socket.AF_UNIX) as tried:
                        tried.setblocking(False)
                        if tried.connect_ex(path) == errno.ECONNREFUSED:  # its server was killed
                            os.unlink(path)
            folder = tempfile.mkdtemp(prefix=".cprofiling-", dir=os.path.dirname(path))
            made = os.path.join(folder, "s")
            try:
                self._added(server, f"unix:{made}")
                os.chmod(made, 0o600)
                if not named(made, path):
                    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
            finally:
                with suppress(OSError):
                    os.unlink(made)
                with suppress(OSError):
                    os.rmdir(folder)
        except OSError as error:
            if error.errno is None:
                raise
            raise OSError(error.errno, f"cannot serve on {self.address}: {error.strerror}") from None

    def _added(self, server: Any, address: str) -> int:
        try:
            if self._credentials is None:
                return int(server.add_insecure_port(address))
            return int(server.add_secure_port(address, self._credentials))
        except RuntimeError as error:
            raise OSError(f"cannot serve on {self.address}: {error}") from None
