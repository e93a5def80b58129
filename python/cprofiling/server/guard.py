"""What stands between a client and the handlers: the token, requests that are no messages, and handlers that fail."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable

import grpc
from google.protobuf.message import DecodeError

from cprofiling.server.messages import wire_text
from cprofiling.server.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OPEN_TO_ALL = "/grpc.health.v1.Health/Check"  # those that ask it can rarely be told a token
_LONGEST_DETAILS = 300
_MOST_BYTES_KEPT = 65_536  # of a request that stays in memory for as long as its stream

_MALFORMED = Refusal(grpc.StatusCode.INVALID_ARGUMENT, "the request is no message of its type")
_TOO_LARGE = Refusal(
    grpc.StatusCode.RESOURCE_EXHAUSTED, f"a request that begins a stream has at most {_MOST_BYTES_KEPT} bytes"
)


class Guard(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # there are no types of it
    """Wraps all handlers of a server."""

    def __init__(self, token: str | None) -> None:
        """Want this token of all calls but the check of health; None: want none."""
        self._expected = None if token is None else f"Bearer {token}".encode("ascii")
        self._wrapped: dict[str, Any] = {}  # by the method's name: there are as many as the server has

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], call_details: Any) -> Any:
        """Return the handler of a call, or one that refuses it; None: there is none."""
        method = call_details.method
        if method != OPEN_TO_ALL and not self._has_token(call_details.invocation_metadata):
            return _REFUSING
        handler = self._wrapped.get(method)
        if handler is None:
            found = await continuation(call_details)
            if found is None:
                return None
            handler = self._wrapped[method] = guarded(found)
        return handler

    def _has_token(self, metadata: Any) -> bool:
        if self._expected is None:
            return True
        given = [value for key, value in metadata or () if key == "authorization"]
        return len(given) == 1 and hmac.compare_digest(_bytes(given[0]), self._expected)


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


async def _refuse(_request: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, 'the metadata must have "authorization: Bearer TOKEN"')


_REFUSING = grpc.unary_unary_rpc_method_handler(_refuse)


def guarded(handler: Any) -> Any:
    """Return a handler of the same kind, whose calls end with a status that says what is wrong.

    One that takes a stream of requests gets an empty one for each that is no message of its type.
    """
    parse = handler.request_deserializer
    if handler.request_streaming:
        empty = parse(b"")
        return grpc.stream_stream_rpc_method_handler(
            handler.stream_stream, _lenient(parse, lambda _: empty), handler.response_serializer
        )
    lenient = _lenient(parse, lambda refusal: refusal, is_kept=handler.response_streaming)
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(_tame(handler.unary_stream), lenient, handler.response_serializer)
    return grpc.unary_unary_rpc_method_handler(_tame(handler.unary_unary), lenient, handler.response_serializer)


def _lenient(
    parse: Callable[[bytes], Any], otherwise: Callable[[Refusal], Any], *, is_kept: bool = True
) -> Callable[[bytes], Any]:
    """Return a parser of requests that raises nothing: the framework would log it, as often as a client likes."""

    def deserializer(data: bytes) -> Any:
        if is_kept and len(data) > _MOST_BYTES_KEPT:
            return otherwise(_TOO_LARGE)
        try:
            return parse(data)
        except DecodeError:
            return otherwise(_MALFORMED)

    return deserializer


def _tame(behavior: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Awaitable[Any]]:
    """Return a coroutine function that does what a handler does, and ends the call as the handler's exception says."""

    async def tamed(request: Any, context: Any) -> Any:
        try:
            if isinstance(request, Refusal):
                raise Refusal(request.code, request.details)
            return await behavior(request, context)
        except (asyncio.CancelledError, grpc.aio.AbortError):
            raise
        except Refusal as refusal:
            code, details = refusal.code, refusal.details
        except BaseException as error:  # noqa: BLE001 the server goes on, and so does the pipeline
            code, details = grpc.StatusCode.INTERNAL, f"the session's pipeline failed: {_described(error)}"
        return await context.abort(code, wire_text(details)[:_LONGEST_DETAILS])

    return tamed


def _described(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 a broken __str__ must not hide the error
        return type(error).__name__
