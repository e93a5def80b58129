"""Guard between clients and handlers, for tokens and failures."""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
from google.protobuf.message import DecodeError

from cprofiling.monitoring.server.messages import Refusal, described, wire_text

if TYPE_CHECKING:
    T = TypeVar("T")
    Answering = Callable[[Any, Any], Awaitable[None]]  # takes the requests and the context, and sends all answers

AUTO = "auto"  # too short to be a token: one is made
OPEN_TO_ALL = "/grpc.health.v1.Health/Check"  # its clients can rarely be given a token
MOST_CALLS = 128  # at once, of all clients; as many again without a required token
# Of one connection, and as many without a request so far; not of a unix socket, which does not tell clients apart.
MOST_CALLS_EACH = 64
MOST_STREAMS = 64  # of answers, at once: so that there is room for other calls
REQUEST_PATIENCE_S = 5.0  # with a client that does not send its request, which takes no place until then
PATIENCE_S = 30.0  # with one that does not read a stream
_LONGEST_DETAILS = 300
_LEAST_TOKEN, _MOST_TOKEN = 16, 4096
_MOST_BYTES_KEPT = 65_536  # of a request that stays in memory for as long as its stream


def checked_token(token: Any) -> str | None:
    """Return a token, or None.

    Raises TypeError or ValueError without showing the token.
    """
    if token is None:
        return None
    if not isinstance(token, str):
        raise TypeError(f"token must be a str or None, got {type(token).__name__}")
    if not _LEAST_TOKEN <= len(token) <= _MOST_TOKEN or not all("!" <= character <= "~" for character in token):
        raise ValueError(
            f"token must have {_LEAST_TOKEN} to {_MOST_TOKEN} printable ASCII characters and no blanks, got "
            f"{len(token)} characters"
        )
    return token


class Guard(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # there are no types of it
    """Wraps all handlers of a server.

    To gRPC, all of them take and give streams, which is the same to a client. For a handler of one request, gRPC would
    wait itself, as long as the client likes, before anybody here is asked.

    Attributes:
        streams: How many calls give a stream of answers now.
    """

    def __init__(self, token: str | None) -> None:
        """Require this token for all calls but the health check, None for none."""
        self.streams = 0
        self._calls: Counter[str] = Counter()  # by connection; and of those without a token
        self._open_calls: Counter[str] = Counter()
        self._silent: Counter[str] = Counter()
        self._expected = None if token is None else f"Bearer {token}".encode("ascii")
        self._wrapped: dict[str, Any] = {}  # by the method's name: there are as many as the server has

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], call_details: Any) -> Any:
        """Return the handler of a call, one that refuses it, or None."""
        method = call_details.method
        if method != OPEN_TO_ALL and not self._has_token(call_details.invocation_metadata):
            return _REFUSING
        handler = self._wrapped.get(method)
        if handler is None:
            found = await continuation(call_details)
            if found is None:
                return None
            calls = self._open_calls if method == OPEN_TO_ALL and self._expected is not None else self._calls
            handler = self._wrapped[method] = self._guarded(found, calls)
        return handler

    def _has_token(self, metadata: Any) -> bool:
        if self._expected is None:
            return True
        given = [value for key, value in metadata or () if key == "authorization"]
        if len(given) != 1:
            return False
        own = given[0] if isinstance(given[0], bytes) else str(given[0]).encode("utf-8", "replace")
        return hmac.compare_digest(own, self._expected)

    def _guarded(self, handler: Any, calls: Counter[str]) -> Any:
        async def first_request(context: Any) -> Any:
            data = await self._first_request(context)
            if data is not grpc.aio.EOF:
                self._enter(context, calls, is_stream=handler.response_streaming)
            return data

        made = _conversation if handler.request_streaming else _one_request
        answering = made(handler, first_request)
        return grpc.stream_stream_rpc_method_handler(_tame(answering), None, handler.response_serializer)

    async def _first_request(self, context: Any) -> Any:
        """Wait for a request, which clients send at once."""
        peer = context.peer()
        if self._silent[peer] >= _most_of(peer):
            raise Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "there are too many calls without a request")
        self._silent[peer] += 1
        try:
            late = grpc.StatusCode.DEADLINE_EXCEEDED
            return await in_time(context.read(), late, "the request has not come", REQUEST_PATIENCE_S)
        finally:
            _take_off(self._silent, peer)

    def _enter(self, context: Any, calls: Counter[str], *, is_stream: bool) -> None:
        """Take a place for a call until all of its answer has left.

        Raises Refusal without one.
        """
        peer = context.peer()
        if calls.total() >= MOST_CALLS or calls[peer] >= _most_of(peer):
            raise Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "there are too many calls already")
        if is_stream and self.streams >= MOST_STREAMS:
            raise Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, f"there are {MOST_STREAMS} streams already")
        calls[peer] += 1
        self.streams += is_stream

        def leave(_call: Any) -> None:
            _take_off(calls, peer)
            self.streams -= is_stream

        call = asyncio.current_task()
        assert call is not None  # noqa: S101 gRPC has one for each call
        call.add_done_callback(leave)


def _most_of(peer: str) -> int:
    """Return the limit of one peer. All clients of a unix socket are one."""
    return MOST_CALLS if peer.startswith("unix:") else MOST_CALLS_EACH


def _take_off(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


async def _refuse(_requests: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, 'the metadata must have "authorization: Bearer TOKEN"')


_REFUSING = grpc.stream_stream_rpc_method_handler(_refuse)  # which waits for no request


def _one_request(handler: Any, first_request: Callable[[Any], Any]) -> Answering:
    """Return a handler of one request, with an answer or a stream of them."""
    behavior = handler.unary_stream or handler.unary_unary

    async def answering(_requests: Any, context: Any) -> None:
        data = await first_request(context)
        if data is grpc.aio.EOF:
            raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, "there is no request")
        if handler.response_streaming and len(data) > _MOST_BYTES_KEPT:
            details = f"a request that begins a stream has at most {_MOST_BYTES_KEPT} bytes"
            raise Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, details)
        try:
            request = handler.request_deserializer(data)
        except DecodeError:
            details = "the request is no message of its type"
            raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, details) from None
        answer = await behavior(request, context)
        if answer is not None:
            await context.write(answer)

    return answering


def _conversation(handler: Any, first_request: Callable[[Any], Any]) -> Answering:
    """Return a handler that answers each request of a stream."""

    async def answering(_requests: Any, context: Any) -> None:
        requests = _Requests(context, handler.request_deserializer, await first_request(context))
        async with aclosing(handler.stream_stream(requests, context)) as answers:
            async for answer in answers:
                await send(context, answer)

    return answering


class _Requests:
    """Requests of a stream, empty if too large or malformed."""  # a generator would be ended by the event loop

    def __init__(self, context: Any, parse: Callable[[bytes], Any], first: Any) -> None:
        self._context, self._parse, self._first = context, parse, first

    def __aiter__(self) -> _Requests:
        return self

    async def __anext__(self) -> Any:
        data, self._first = self._first, None
        if data is None:
            data = await self._context.read()
        if data is grpc.aio.EOF:
            raise StopAsyncIteration
        try:
            return self._parse(data if len(data) <= _MOST_BYTES_KEPT else b"")
        except DecodeError:
            return self._parse(b"")


async def send(context: Any, message: Any) -> None:
    """Send a message of a stream.

    Raises Refusal if the reader is too slow.
    """
    await in_time(context.write(message), grpc.StatusCode.RESOURCE_EXHAUSTED, "the reader has not read", PATIENCE_S)


async def in_time(waiting: Awaitable[T], code: Any, details: str, patience_s: float) -> T:
    """Return the awaited result, passing on its errors.

    Raises Refusal after ``patience_s`` seconds.
    """
    task = asyncio.ensure_future(waiting)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())  # else logged if this is cancelled too
    try:
        # Not wait_for: up to CPython 3.11, it forgets that the client is gone if it hears of that when all is done.
        done, _ = await asyncio.wait({task}, timeout=patience_s)
        if not done:
            raise Refusal(code, f"{details} for {patience_s:g} s")
        return task.result()
    finally:
        task.cancel()


def _tame(answering: Answering) -> Answering:
    """Return a handler that ends a call as the raised exception says."""

    async def tamed(requests: Any, context: Any) -> None:
        try:
            await answering(requests, context)
            return
        except (asyncio.CancelledError, grpc.aio.AbortError):
            raise
        except Refusal as refusal:
            code, details = refusal.code, refusal.details
        except BaseException as error:  # noqa: BLE001 the server goes on
            code, details = grpc.StatusCode.INTERNAL, f"the server failed: {described(error)}"
        try:  # gRPC waits until the client has read earlier messages; nothing here can end that
            await context.abort(code, wire_text(details[:_LONGEST_DETAILS])[:_LONGEST_DETAILS])
        except (asyncio.CancelledError, grpc.aio.AbortError):
            raise
        except Exception:  # noqa: BLE001 the client is gone: it would be logged, as often as clients go
            raise asyncio.CancelledError from None

    return tamed
