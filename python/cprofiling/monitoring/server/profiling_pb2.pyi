from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExecutionStage(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXECUTION_STAGE_UNSPECIFIED: _ClassVar[ExecutionStage]
    EXECUTION_STAGE_TRAIN: _ClassVar[ExecutionStage]
    EXECUTION_STAGE_VAL: _ClassVar[ExecutionStage]
    EXECUTION_STAGE_TEST: _ClassVar[ExecutionStage]
    EXECUTION_STAGE_INFERENCE: _ClassVar[ExecutionStage]
EXECUTION_STAGE_UNSPECIFIED: ExecutionStage
EXECUTION_STAGE_TRAIN: ExecutionStage
EXECUTION_STAGE_VAL: ExecutionStage
EXECUTION_STAGE_TEST: ExecutionStage
EXECUTION_STAGE_INFERENCE: ExecutionStage

class SetProfilingRequest(_message.Message):
    __slots__ = ("session_id", "enabled", "synchronize_cuda", "reset", "skip_first_n", "median")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    SYNCHRONIZE_CUDA_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    SKIP_FIRST_N_FIELD_NUMBER: _ClassVar[int]
    MEDIAN_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    enabled: bool
    synchronize_cuda: bool
    reset: bool
    skip_first_n: int
    median: str
    def __init__(self, session_id: _Optional[str] = ..., enabled: bool = ..., synchronize_cuda: bool = ..., reset: bool = ..., skip_first_n: _Optional[int] = ..., median: _Optional[str] = ...) -> None: ...

class SetProfilingResponse(_message.Message):
    __slots__ = ("profiling_enabled",)
    PROFILING_ENABLED_FIELD_NUMBER: _ClassVar[int]
    profiling_enabled: bool
    def __init__(self, profiling_enabled: bool = ...) -> None: ...

class GetProfilingSummaryRequest(_message.Message):
    __slots__ = ("session_id", "stage", "stage_name", "with_snapshot")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    STAGE_NAME_FIELD_NUMBER: _ClassVar[int]
    WITH_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    stage: ExecutionStage
    stage_name: str
    with_snapshot: bool
    def __init__(self, session_id: _Optional[str] = ..., stage: _Optional[_Union[ExecutionStage, str]] = ..., stage_name: _Optional[str] = ..., with_snapshot: bool = ...) -> None: ...

class GetProfilingSummaryResponse(_message.Message):
    __slots__ = ("node_stats", "profiling_enabled", "skip_first_n", "reasons", "internal_errors", "median", "snapshot")
    NODE_STATS_FIELD_NUMBER: _ClassVar[int]
    PROFILING_ENABLED_FIELD_NUMBER: _ClassVar[int]
    SKIP_FIRST_N_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    INTERNAL_ERRORS_FIELD_NUMBER: _ClassVar[int]
    MEDIAN_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    node_stats: _containers.RepeatedCompositeFieldContainer[NodeProfilingStats]
    profiling_enabled: bool
    skip_first_n: int
    reasons: _containers.RepeatedScalarFieldContainer[str]
    internal_errors: int
    median: str
    snapshot: bytes
    def __init__(self, node_stats: _Optional[_Iterable[_Union[NodeProfilingStats, _Mapping]]] = ..., profiling_enabled: bool = ..., skip_first_n: _Optional[int] = ..., reasons: _Optional[_Iterable[str]] = ..., internal_errors: _Optional[int] = ..., median: _Optional[str] = ..., snapshot: _Optional[bytes] = ...) -> None: ...

class NodeProfilingStats(_message.Message):
    __slots__ = ("node_name", "stage", "count", "mean_ms", "median_ms", "std_ms", "min_ms", "max_ms", "total_ms", "last_ms", "stage_name", "error_count", "cancelled_count", "skipped_count", "dropped_count", "p50_ms", "p99_ms")
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    MEAN_MS_FIELD_NUMBER: _ClassVar[int]
    MEDIAN_MS_FIELD_NUMBER: _ClassVar[int]
    STD_MS_FIELD_NUMBER: _ClassVar[int]
    MIN_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_MS_FIELD_NUMBER: _ClassVar[int]
    STAGE_NAME_FIELD_NUMBER: _ClassVar[int]
    ERROR_COUNT_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_COUNT_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_COUNT_FIELD_NUMBER: _ClassVar[int]
    DROPPED_COUNT_FIELD_NUMBER: _ClassVar[int]
    P50_MS_FIELD_NUMBER: _ClassVar[int]
    P99_MS_FIELD_NUMBER: _ClassVar[int]
    node_name: str
    stage: ExecutionStage
    count: int
    mean_ms: float
    median_ms: float
    std_ms: float
    min_ms: float
    max_ms: float
    total_ms: float
    last_ms: float
    stage_name: str
    error_count: int
    cancelled_count: int
    skipped_count: int
    dropped_count: int
    p50_ms: float
    p99_ms: float
    def __init__(self, node_name: _Optional[str] = ..., stage: _Optional[_Union[ExecutionStage, str]] = ..., count: _Optional[int] = ..., mean_ms: _Optional[float] = ..., median_ms: _Optional[float] = ..., std_ms: _Optional[float] = ..., min_ms: _Optional[float] = ..., max_ms: _Optional[float] = ..., total_ms: _Optional[float] = ..., last_ms: _Optional[float] = ..., stage_name: _Optional[str] = ..., error_count: _Optional[int] = ..., cancelled_count: _Optional[int] = ..., skipped_count: _Optional[int] = ..., dropped_count: _Optional[int] = ..., p50_ms: _Optional[float] = ..., p99_ms: _Optional[float] = ...) -> None: ...

class ResetProfilingRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class ResetProfilingResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSessionsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSessionsResponse(_message.Message):
    __slots__ = ("sessions",)
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    sessions: _containers.RepeatedCompositeFieldContainer[Session]
    def __init__(self, sessions: _Optional[_Iterable[_Union[Session, _Mapping]]] = ...) -> None: ...

class Session(_message.Message):
    __slots__ = ("session_id", "profiling_enabled")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PROFILING_ENABLED_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    profiling_enabled: bool
    def __init__(self, session_id: _Optional[str] = ..., profiling_enabled: bool = ...) -> None: ...

class WatchProfilingRequest(_message.Message):
    __slots__ = ("session_id", "stage", "stage_name", "interval_ms", "max_updates")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    STAGE_NAME_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_UPDATES_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    stage: ExecutionStage
    stage_name: str
    interval_ms: int
    max_updates: int
    def __init__(self, session_id: _Optional[str] = ..., stage: _Optional[_Union[ExecutionStage, str]] = ..., stage_name: _Optional[str] = ..., interval_ms: _Optional[int] = ..., max_updates: _Optional[int] = ...) -> None: ...

class WatchProfilingResponse(_message.Message):
    __slots__ = ("node_stats", "profiling_enabled", "skip_first_n", "reasons", "internal_errors", "median")
    NODE_STATS_FIELD_NUMBER: _ClassVar[int]
    PROFILING_ENABLED_FIELD_NUMBER: _ClassVar[int]
    SKIP_FIRST_N_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    INTERNAL_ERRORS_FIELD_NUMBER: _ClassVar[int]
    MEDIAN_FIELD_NUMBER: _ClassVar[int]
    node_stats: _containers.RepeatedCompositeFieldContainer[NodeProfilingStats]
    profiling_enabled: bool
    skip_first_n: int
    reasons: _containers.RepeatedScalarFieldContainer[str]
    internal_errors: int
    median: str
    def __init__(self, node_stats: _Optional[_Iterable[_Union[NodeProfilingStats, _Mapping]]] = ..., profiling_enabled: bool = ..., skip_first_n: _Optional[int] = ..., reasons: _Optional[_Iterable[str]] = ..., internal_errors: _Optional[int] = ..., median: _Optional[str] = ...) -> None: ...
