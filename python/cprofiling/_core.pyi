# The C extension: types and signatures. Each entry says which file of csrc/ it is in.
#
# The package's own modules are the only users of what is here; users import `stage` from the package itself, and `Profiler` as the
# subclass that control.py makes of it. Times are ns in the core; what crosses this border says its unit in its name.

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from enum import Enum
from types import CodeType, MethodType, TracebackType
from typing import Any, SupportsFloat, SupportsIndex, TypeAlias, TypeVar, final, overload

from typing_extensions import Buffer, Self, disjoint_base

_F = TypeVar("_F")
_SnapshotT = TypeVar("_SnapshotT", bound=Snapshot)
_RecordingT = TypeVar("_RecordingT", bound=Recording)

# The first 22 fields of NodeProfilingStats, in its order, and what is known beyond times (csrc/summary_extra.c).
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
    tuple[Any, ...] | None,
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
    @property
    def _asked(self) -> int: ...
    @property
    def _device_note(self) -> str | None: ...
    def set_profiling(
        self,
        enabled: bool,
        *,
        synchronize_cuda: bool = False,
        reset: bool = False,
        skip_first_n: SupportsIndex = 0,
        gpu_time: bool = False,
        gpu_stream: object = None,
        kernels: bool = False,
        nvtx: bool = False,
        memory: bool | str = False,
        counters: Iterable[str] = (),
    ) -> None: ...
    def reset_profiling(self) -> None: ...
    def record(self, stage: str | Enum, node_name: str, elapsed_ms: SupportsFloat | SupportsIndex) -> None: ...
    # (rows, the skip_first_n that they were gathered with, histogram counts that were lost, keys that could not be
    # read); is in csrc/summary.c.
    def _rows(self, stage: str | Enum | None, /) -> tuple[list[_Row], int, int, int]: ...
    def _stop_launches(self) -> None: ...
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
        records: bool,
        mutes: bool,
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
    @classmethod
    def own_methods(cls) -> None: ...
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
class record:  # noqa: N801
    """A labelled block of a recording. Is in csrc/record_type.c; how it is entered and left, in csrc/opening.c."""

    def __new__(cls, name: str, args: str | None = None, *, warm_up: bool = False) -> Self: ...
    @property
    def name(self) -> str: ...
    @property
    def warm_up(self) -> bool: ...
    def __call__(self, function: _F) -> _F: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...
    def __aenter__(self) -> Awaitable[Self]: ...
    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> Awaitable[None]: ...

@disjoint_base
class Recording:
    """What happened, as a table of rows. Is in csrc/recording_type.c, recording_add.c, recording_read.c and recording_stream.c; the work, in cprofiling/table.c, trace_json.c, trace_load.c and arrow.c."""

    # A column is None where all rows have its "none"; else a view of the recording's own memory, read-only.
    def column(self, name: str, /) -> memoryview[int] | None: ...
    def none(self, name: str, /) -> int: ...
    @property
    def column_names(self) -> tuple[str, ...]: ...
    @property
    def strings(self) -> list[str]: ...
    # (pid, tid, texts that stand for them, process name and labels, thread name, sort numbers of both, highest lane)
    @property
    def tracks(
        self,
    ) -> list[
        tuple[int, int, str | None, str | None, str | None, str | None, str | None, int | None, int | None, int]
    ]: ...
    # (phase, ns, id, track, name, category, whether bound to the enclosing row)
    @property
    def flows(self) -> list[tuple[str, int, int, int, str, str, bool]]: ...
    @property
    def facts(self) -> dict[str, str]: ...
    @property
    def dropped(self) -> int: ...
    def args(self, row: SupportsIndex, /) -> str | None: ...
    def write_chrome(self, write: Callable[[bytes], object], /) -> None: ...
    def __len__(self) -> int: ...
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...
    # Buffers of one number for each row, of 4, 8 and 8 bytes.
    def _arrow_stream(
        self,
        *,
        spans: Buffer | None = None,
        execution_index: Buffer | None = None,
        operator_index: Buffer | None = None,
    ) -> object: ...
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, memo: object, /) -> Self: ...
    @classmethod
    def empty(cls) -> Self: ...
    def _add(
        self,
        name: str,
        kind: int,
        start_ns: int,
        end_ns: int,
        pid: int | str,
        tid: int | str,
        *,
        cat: str = ...,
        stage: str = ...,
        trace_high: int = 0,
        trace_low: int = 0,
        span: int = 0,
        parent_span: int = 0,
        outcome: int = 0,
        flags: int = 0,
        device: int = -1,
        stream: int = -1,
        correlation: int = -1,
        external_id: int = -1,
        bytes: int = ...,  # noqa: A002
        shapes: str = ...,
        types: str = ...,
        stack: str = ...,
        memory_change: int = ...,
        memory_peak: int = ...,
        device_memory_change: int = ...,
        device_memory_peak: int = ...,
        suspended_ns: int = 0,
        args: str = ...,
    ) -> None: ...
    def _set_fact(self, key: str, json: str, /) -> None: ...
    def _name_process(self, pid: int | str, name: str | None, labels: str | None, sort: int | None, /) -> None: ...
    def _name_thread(self, pid: int | str, tid: int | str, name: str | None, sort: int | None, /) -> None: ...
    def _load(self, read: Callable[[int], Buffer], shift_ns: int, /) -> dict[str, int]: ...
    def _finish(self) -> None: ...

@final
class Recorder:
    """A recording that runs. Is in csrc/recorder_type.c; what it records, in cprofiling/trace.c."""

    def __new__(
        cls,
        capacity: SupportsIndex,
        drop_newest: bool,
        describer: Callable[[tuple[Any, ...]], tuple[str | None, str | None, str | None]] | None,
        memory: bool,
        device_memory: Callable[[], tuple[int, int] | None] | None,
        hosts: bool,
    ) -> Self: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def step(self, name: str, /) -> None: ...
    def finish(self, kind: type[_RecordingT], /) -> _RecordingT: ...

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
    def __iter__(self) -> Self: ...
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
class MethodSwitch:
    """Stands in a class for a method of which some instances are instrumented. Is in csrc/method_switch_type.c."""

    @property
    def found(self) -> Any: ...
    @property
    def own(self) -> bool: ...
    def __new__(cls, found: object, own: bool) -> Self: ...
    def put(self, instance: object, wrapper: object, binds: bool, /) -> None: ...
    def of(self, instance: object, /) -> Function | None: ...
    def drop(self, instance: object, /) -> None: ...
    def __get__(self, instance: object, owner: type | None = None, /) -> Any: ...
    def __len__(self) -> int: ...

@final
class View:
    """A thread's view of its interpreter; made by the extension only. Is in csrc/view.c."""

class FormatError(ValueError):
    """Data that was to be read is cut, changed, or of another schema version. Is in csrc/snapshot_type.c."""

@disjoint_base
class Snapshot:
    """Statistics as they were at one moment, or several merged. Is in csrc/snapshot_type.c; the work, in cprofiling/snapshot.c."""

    @classmethod
    def merge(cls, snapshots: Iterable[Snapshot]) -> Self: ...
    @classmethod
    def from_bytes(cls, data: Buffer) -> Self: ...
    def to_bytes(self) -> bytes: ...
    # As Profiler._rows; is in csrc/summary.c.
    def _rows(self, stage: str | Enum | None, /) -> tuple[list[_Row], int, int, int]: ...
    # (keys, sources, merged or not, least and most skip_first_n, internal errors, cost in ns, notes)
    def _facts(self) -> tuple[int, int, bool, int, int, int, float, tuple[str, ...]]: ...
    def __reduce__(self) -> tuple[Callable[[bytes], Self], tuple[bytes]]: ...
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, memo: object, /) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

# The functions are in csrc/module.c, which names the file of each one's work.

def configure(
    *,
    mixin: type[Any],
    profiler_class: Callable[[], Profiler],
    default_profiler: Profiler,
    device_finder: Callable[[tuple[Any, ...]], int | None],
    stream_finder: Callable[[int], int],
    awaiter: Callable[[Any], Coroutine[Any, Any, Any]],
    record_wrapper: Callable[[Any, str, bool], Any],
    probers: tuple[Callable[..., Any], ...],
) -> None: ...
def set_thread_namer(namer: Callable[[], None] | None, /) -> None: ...  # csrc/view.c calls it
def pipeline_profiler(pipeline: object, /) -> Any: ...  # csrc/pipeline.c
def profiler_of(candidate: object, /) -> Any: ...  # csrc/pipeline.c
def forget_pipeline(pipeline: object, /) -> None: ...  # csrc/pipeline.c
def convert_name(name: str, /) -> str: ...  # csrc/convert.c
def clock() -> tuple[str, str | None]: ...
def clock_figures() -> tuple[int, int]: ...
def clock_backward() -> int: ...
def refine_clock() -> None: ...

# What measures beyond the clock; is in csrc/instruments.c, the work in the file of cprofiling/ that is named.
def poll_devices() -> None: ...
def gpu_reason() -> str | None: ...  # gpu_cuda.c
def gpu_time_reason() -> str | None: ...  # gpu_event.c
def nvtx_status() -> tuple[bool, str | None]: ...  # nvtx.c
def set_capture(name: str, skip: SupportsIndex, count: SupportsIndex, /) -> None: ...  # capture.c
def capture_report() -> str | None: ...
def perf_status() -> list[tuple[str, str, str | None]]: ...  # of each counter: its name, its unit, why it has no value
def perf_in_user_space() -> bool: ...  # perf_event.c

# The time of day in ns since 1970; notes in UTF-8. Is in csrc/snapshot_type.c.
def take_snapshot(
    kind: type[_SnapshotT], profiler: Profiler, taken_ns: int, notes: tuple[bytes, ...], /
) -> _SnapshotT: ...
def cost_ns() -> float: ...  # csrc/cost.c

# Goes into sys.excepthook with its first two arguments bound. Is in csrc/program.c.
def run_program(
    prepare: Callable[[], bytes | CodeType | Callable[[], object]],
    finish: Callable[[bool], object],
    /,
    *ignored: object,
) -> Any: ...
