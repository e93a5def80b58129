# The C extension: types and signatures. Each entry says which file of csrc/ it is in.
#
# The package's own modules are the only users of what is here; users import `stage` from the package itself, and `Profiler` as the
# subclass that control.py makes of it. Times are ns in the core; what crosses this border says its unit in its name.

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from enum import Enum
from types import MethodType, TracebackType
from typing import Any, SupportsFloat, SupportsIndex, TypeAlias, final, overload

from typing_extensions import Self, disjoint_base

# The 22 fields of NodeProfilingStats, in its order.
_Row: TypeAlias = tuple[
    str,  # node_name
    str,  # stage
    int,  # count
    float,  # mean_ms
    float,  # median_ms
    float,  # std_ms
    float,  # min_ms
    float,  # max_ms
    float,  # total_ms
    float,  # last_ms
    float | None,  # p50_ms
    float | None,  # p90_ms
    float | None,  # p95_ms
    float | None,  # p99_ms
    float | None,  # p999_ms
    int,  # error_count
    int,  # cancelled_count
    int,  # skipped_count
    int,  # dropped_count
    float | None,  # first_ms
    float | None,  # self_total_ms
    float | None,  # active_total_ms
]

@disjoint_base
class Profiler:
    """Statistics of nodes, and the switch that gathers them. Is in csrc/profiler_type.c."""

    def __new__(cls) -> Self: ...
    @property
    def profiling_enabled(self) -> bool: ...
    @property
    def _internal_errors(self) -> int: ...
    @property
    def _refused_keys(self) -> int: ...
    def set_profiling(
        self,
        enabled: bool,
        *,
        synchronize_cuda: bool = False,
        reset: bool = False,
        skip_first_n: SupportsIndex = 0,
    ) -> None: ...
    def reset_profiling(self) -> None: ...
    def record(self, stage: str | Enum, node_name: str, elapsed_ms: SupportsFloat | SupportsIndex) -> None: ...
    # (rows, the skip_first_n that they were gathered with, histogram counts that were lost); is in csrc/summary.c.
    def _rows(self, stage: str | Enum | None, /) -> tuple[list[_Row], int, int]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...
    def __reduce__(self) -> tuple[type[Self], tuple[()]]: ...

@disjoint_base
class Function:
    """A callable whose calls are counted as those of a node. Is in csrc/function_type.c; its node, in csrc/node.c.

    ``kind`` is one of ``ext_kind`` in csrc/function.h. What it does not have itself it answers as the wrapped callable does.
    """

    def __new__(
        cls,
        function: Callable[..., Any],
        kind: int,
        name: str | Callable[[Any], str] | None,
        default_name: str,
        stage: str | Enum | None,
        profiler: Profiler | None,
        inner: Function | None,
        binds: bool,
    ) -> Self: ...
    @property
    def detached(self) -> bool: ...
    def detach(self) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None, /) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None, /) -> MethodType: ...
    def __getattribute__(self, name: str, /) -> Any: ...
    def __setattr__(self, name: str, value: Any, /) -> None: ...
    def __delattr__(self, name: str, /) -> None: ...
    def __reduce__(self) -> str | tuple[Any, ...]: ...

@disjoint_base
class Block:
    """A block of code that counts as a node's call. Is in csrc/block_type.c; its node, in csrc/node.c."""

    def __new__(
        cls,
        name: str | Callable[[Any], str] | None,
        stage: str | Enum | None,
        profiler: Profiler | None,
    ) -> Self: ...
    @property
    def name(self) -> str | Callable[[Any], str] | None: ...
    @property
    def stage(self) -> str | None: ...
    @property
    def profiler(self) -> Profiler | None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...
    def __aenter__(self) -> Awaitable[Self]: ...
    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> Awaitable[None]: ...

@final
class stage:  # noqa: N801
    """Context manager: the execution stage of the calls that start inside. Is in csrc/stage_type.c."""

    def __new__(cls, stage: str | Enum, *, default: bool = False) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

@final
class ProfiledGenerator(Generator[Any, Any, Any]):
    """What a wrapped generator function returns. Is in csrc/suspendable.c."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...
    def send(self, value: Any, /) -> Any: ...
    def throw(self, *exception: Any) -> Any: ...
    def close(self) -> None: ...

@final
class ProfiledCoroutine(Coroutine[Any, Any, Any]):
    """What a wrapped coroutine function returns. Is in csrc/suspendable.c."""

    def __await__(self) -> Generator[Any, Any, Any]: ...  # itself, in fact
    def __next__(self) -> Any: ...
    def send(self, value: Any, /) -> Any: ...
    def throw(self, *exception: Any) -> Any: ...
    def close(self) -> None: ...

@final
class ProfiledAsyncGenerator(AsyncIterator[Any]):
    """What a wrapped asynchronous generator function returns. Is in csrc/suspendable.c."""

    def __aiter__(self) -> Self: ...
    def __anext__(self) -> ProfiledStep: ...
    def asend(self, value: Any, /) -> ProfiledStep: ...
    def athrow(self, *exception: Any) -> ProfiledStep: ...
    def aclose(self) -> ProfiledStep: ...

@final
class ProfiledStep(Awaitable[Any], Iterator[Any]):
    """One step of an asynchronous generator. Is in csrc/suspendable.c."""

    def __await__(self) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...
    def send(self, value: Any, /) -> Any: ...
    def throw(self, *exception: Any) -> Any: ...
    def close(self) -> None: ...

@final
class Ready(Awaitable[Any], Iterator[Any]):
    """What entering and leaving a Block asynchronously returns. Is in csrc/ready_type.c."""

    def __await__(self) -> Generator[Any, Any, Any]: ...  # itself, in fact
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...

@final
class View:
    """A thread's view of its interpreter; made by the extension only. Is in csrc/view.c."""

# The functions are in csrc/module.c, which names the file of each one's work.

def configure(
    *,
    mixin: type[Any],
    profiler_class: Callable[[], Profiler],
    default_profiler: Profiler,
    device_finder: Callable[[tuple[Any, ...]], int | None],
    stream_finder: Callable[[int], int],
) -> None: ...
def pipeline_profiler(pipeline: object, /) -> Any: ...  # csrc/pipeline.c
def profiler_of(candidate: object, /) -> Any: ...  # csrc/pipeline.c
def forget_pipeline(pipeline: object, /) -> None: ...  # csrc/pipeline.c
def convert_name(name: str, /) -> str: ...  # csrc/convert.c
def clock() -> tuple[str, str | None]: ...
def clock_backward() -> int: ...
def refine_clock() -> None: ...
def gpu_reason() -> str | None: ...
def cost_ns() -> float: ...  # csrc/cost.c
