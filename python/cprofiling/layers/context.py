"""Contexts that measure stages, and the reports on them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from fnmatch import fnmatchcase
from logging import INFO
from pathlib import Path
from time import perf_counter_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from cprofiling import _core
from cprofiling._internal import arguments, environment, log, process
from cprofiling._internal.text import shown_value
from cprofiling.analysis.timing_reports import timing_table
from cprofiling.layers import output_folder, workers
from cprofiling.layers.memory import MemoryReader
from cprofiling.layers.recording import StageRecording
from cprofiling.layers.registry import Registry, checked_name, json_value
from cprofiling.layers.signatures import NO_INPUTS, Capture, signature_of_output
from cprofiling.layers.workers import STAGE
from cprofiling.nodes.decorators import ASYNC_GENERATOR, COROUTINE, GENERATOR, kind_of
from cprofiling.recording import profile as session

if TYPE_CHECKING:
    from _typeshed import StrPath

    from cprofiling.layers.memory import DevicePeak
    from cprofiling.layers.signatures import Inputs, StageIOSignature

    F = TypeVar("F", bound=Callable[..., Any])

_registry = Registry()
_memory = MemoryReader()
_folder_of_main = workers.folder_of_main()
_names: tuple[str, ...] = ()  # patterns of the stages to record
unreported = _registry.paused  # keeps uses out of the reports

_claim = session._claim  # noqa: SLF001 the current recording; read in each use
_logs = log.logger.isEnabledFor

# One use of a context: the context, the use around it in this thread or task, the time of its start, and other parts.
_Use = tuple["ProfilingContext", "Any", int, "_Parts | None"]
_innermost: ContextVar[_Use | None] = ContextVar("cprofiling_stage", default=None)


class ProfilingContext:
    """Measure the time and memory of each use of a stage.

    Use it as ``with ProfilingContext("vae_decode"):``, ``async with``, or as a decorator of a function, method or
    coroutine function; a decorated function also keeps the signatures of its arguments and result
    (``get_io_signatures``). One object may be used any number of times, by any threads and tasks, and inside itself.
    It is always on. Each use logs a line at INFO to ``logging.getLogger("cprofiling")``. A use that raises has no
    time and is counted apart; the exception passes.

    Memory is that of the current device of the accelerator used through PyTorch, else the process's resident memory,
    read at most once per millisecond, with its peak since the start of the process.

    Args:
        name: The stage, as in ``profile_node``.
        reset_peak_memory: Reset the device's peak at the start, for every reader in the process; stages around this
            one keep theirs. Without a device it does nothing.
        capture_memory: Keep the memory before and after, as ``before_{name}`` and ``after_{name}`` of the report.

    Raises:
        TypeError: The name is no str; the decorated object is a class, no function, or a generator function.
        ValueError: The name is too long or has a NUL.
    """

    __slots__ = ("_latest", "capture_memory", "name", "reset_peak_memory")

    def __init__(self, name: str, *, reset_peak_memory: bool = True, capture_memory: bool = False) -> None:
        self.name = checked_name(name)
        self.reset_peak_memory = reset_peak_memory
        self.capture_memory = capture_memory
        self._latest: _Use | None = None  # that has not ended

    def __reduce__(self) -> tuple[Any, ...]:
        options = {"reset_peak_memory": self.reset_peak_memory, "capture_memory": self.capture_memory}
        return functools.partial(type(self), self.name, **options), ()

    def __repr__(self) -> str:
        return f"ProfilingContext({self.name!r})"

    def __enter__(self) -> ProfilingContext:
        start_ns = perf_counter_ns()
        parts = None
        is_recording = _claim._owner is not None  # noqa: SLF001
        if is_recording or self.capture_memory or _names or start_ns >= _memory.look_ns:
            parts = _begin_parts(self, start_ns)
            start_ns = perf_counter_ns()
        self._latest = use = (self, _innermost.get(), start_ns, parts)
        _innermost.set(use)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        end_ns = perf_counter_ns()
        use = _innermost.get()
        if use is not None and use[0] is self:
            _innermost.set(use[1])
        else:
            use = self._take_out(use)
            if use is None:
                return
        self._latest = None
        name, start_ns = self.name, use[2]
        if (
            kind is None
            and use[3] is None
            and end_ns < _memory.stale_ns
            and _registry.latest.get(name) is _memory.host
            and start_ns >= _registry.reset_ns
            and _registry.worker is None
            and not (log.debug or _logs(INFO))
        ):
            _registry.record_ms(STAGE, name, (end_ns - start_ns) / 1e6)
            _registry.ended_ns = end_ns
        else:
            _end_use(self, use, end_ns, kind)

    def _take_out(self, use: _Use | None) -> _Use | None:
        """Find the ending use where it is not the innermost."""
        inner = []
        while use is not None and use[0] is not self:
            inner.append(use)
            use = use[1]
        if use is None:
            return self._latest
        around = use[1]
        for each in reversed(inner):
            around = (each[0], around, each[2], each[3])
        _innermost.set(around)
        return use

    async def __aenter__(self) -> ProfilingContext:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)

    def __call__(self, function: F) -> F:
        """Return a function that measures each call of the given one."""
        if isinstance(function, (staticmethod, classmethod)):
            return type(function)(self(function.__func__))
        if isinstance(function, type) or not callable(function):
            raise TypeError(f"function must be a function, got {shown_value(function)}")
        kind = kind_of(function)
        if kind in (GENERATOR, ASYNC_GENERATOR):
            raise TypeError(f"function must not yield, got {shown_value(function)}: use cprofiling.profile_node")
        capture = Capture(function)

        @functools.wraps(function)
        def measured(*args: Any, **kwargs: Any) -> Any:
            start_ns = perf_counter_ns()
            inputs = _captured(self.name, capture, args, kwargs)
            with self:
                result = function(*args, **kwargs)
            _keep_signature(self.name, start_ns, inputs, result)
            return result

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            start_ns = perf_counter_ns()
            inputs = _captured(self.name, capture, args, kwargs)
            with self:
                result = await function(*args, **kwargs)
            _keep_signature(self.name, start_ns, inputs, result)
            return result

        capture.measured = awaited if kind == COROUTINE else measured
        return capture.measured  # type: ignore[return-value]


_context: Any = ProfilingContext if log.debug else _core.IdleContext
ProfilingContextDebug: type[ProfilingContext] = _context
"""``ProfilingContext`` if ``CPROFILING_PROFILE_DEBUG`` is true, else a context that does nothing.

As a decorator, the latter returns the function itself, unchecked."""


# ---- What a use does besides taking the time


class _Parts(NamedTuple):
    """Parts of a use other than its time."""

    label: _core.record | None = None
    peak: DevicePeak | None = None
    recording: StageRecording | None = None


def _begin_parts(context: ProfilingContext, now_ns: int) -> _Parts:
    """Begin the requested parts of a stage."""
    name, label, peak, recording = context.name, None, None, None
    with _told(name):
        if any(name == pattern or fnmatchcase(name, pattern) for pattern in _names):
            recording = StageRecording.begin(name)
    with _told(name):
        if context.capture_memory:
            _checkpoint(f"before_{name}")
        if _memory.uses_device(now_ns) and context.reset_peak_memory:
            peak = _memory.begin_peak()
    if _claim.owner is not None:
        label = _core.record(name)
        label.__enter__()
    return _Parts(label, peak, recording)


def _end_use(context: ProfilingContext, use: _Use, end_ns: int, kind: type[BaseException] | None) -> None:
    """Take note of a use that has ended."""
    name = context.name
    _, _, start_ns, parts = use
    parts = parts or _Parts()
    if parts.label is not None:
        parts.label.__exit__(kind, None, None)
    memory = None
    with _told(name):
        memory = _memory.read(end_ns) if parts.peak is None else _memory.end_peak(parts.peak)
    with _told(name):
        if kind is None:
            _registry.add(name, start_ns, end_ns, memory)
        else:
            _registry.add_fault(name, start_ns, is_cancelled=kind.__name__ == "CancelledError")
        if context.capture_memory:
            _checkpoint(f"after_{name}")
        if log.is_heard():
            shown = name if name.isprintable() else ascii(name)[1:-1]
            failed = "" if kind is None else f" ({kind.__name__})"
            line = f"[Rank {process.rank()}] [Timing] {shown}: {(end_ns - start_ns) / 1e6:.2f} ms{failed}"
            if memory is not None:
                mb = memory.as_mb()
                line += f", memory: {mb['allocated_mb']:.0f}/{mb['reserved_mb']:.0f} MB"
                line += f" (peak: {mb['peak_allocated_mb']:.0f}/{mb['peak_reserved_mb']:.0f} MB)"
            log.say(line)
    if parts.recording is not None:
        with _told(name):
            parts.recording.end(process.rank())


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Log faults of the profiler, which must not stop the stage."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 for that
        _tell(name, error)


def _tell(name: str, error: Exception) -> None:
    with suppress(Exception):  # an error's own text can be one
        log.complain(f"[Profiler] {name!a}: {type(error).__name__}: {error}")


def _checkpoint(name: str) -> None:
    memory = _memory.read_anew()
    if memory is not None:
        _registry.add_checkpoint(name, memory)


def _captured(name: str, capture: Capture, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Inputs | None:
    """Return the signatures of arguments, None where their code raises."""
    if not args and not kwargs:
        return NO_INPUTS
    try:
        return capture.inputs(args, kwargs)
    except Exception as error:  # noqa: BLE001 as in _told(), which takes longer
        _tell(name, error)
        return None


def _keep_signature(name: str, start_ns: int, inputs: Inputs | None, result: Any) -> None:
    if inputs is None or start_ns < _registry.reset_ns:
        return
    try:
        output_signature = None if result is None else signature_of_output(result)
        _registry.add_signature(name, inputs, output_signature)
    except Exception as error:  # noqa: BLE001 as above
        _tell(name, error)


# ---- Which stages are recorded, and where files go


def enable_profiler_for_names(names: str) -> None:
    """Record the stages of these names at each use and write traces.

    Args:
        names: Names separated by commas, with wildcards as in a shell (``dit_*``). An empty text has no names. Child
            processes that start later record the same stages.

    Each use writes ``{stage}_rank{r}.trace.json.gz`` and ``{stage}_rank{r}.breakdown.json`` into the folder of the
    run, later uses with ``-2`` and so on. One recording runs at a time: a stage that starts during another one's
    recording is not recorded, and the log says so.

    Raises TypeError unless given a str.
    """
    if not isinstance(names, str):
        raise TypeError(f"names must be a str, got {shown_value(names)}")
    _set_environment("names", environment.NAMES, names)
    choose(names)


def choose(names: str) -> None:
    """Record the stages of these names, in this process only."""
    global _names  # noqa: PLW0603 looked at in each use
    _names = tuple(name.strip() for name in names.split(",") if name.strip())


def set_pipeline_name(name: str) -> None:
    """Name the pipeline, and so the folder of its runs.

    Raises TypeError and ValueError for an invalid name.
    """
    _set_environment("name", environment.PIPELINE, checked_name(name))


def set_profiler_output_dir(path: StrPath) -> None:
    """Write files into this folder, which is made.

    Raises TypeError and ValueError for an invalid path.
    """
    _set_environment("path", environment.OUTPUT_DIR, arguments.path("path", path))


def get_profiler_output_dir() -> Path:
    """Return the folder of this run's files, which is made.

    ``work_dirs/profiler_output/{pipeline}/{YYYYMMDD_HHMM}``, with ``-2`` and so on where an earlier run has that,
    unless another one was set. The same for the whole run. OSError where it cannot be made.
    """
    return output_folder.folder()


def _set_environment(parameter: str, variable: str, value: str) -> None:
    """Set a variable for this process and its children."""
    try:
        os.environ[variable] = value
    except ValueError as error:  # a NUL, or surrogates that are no bytes
        raise ValueError(
            f"{parameter} must be a value that {variable} can have, got {shown_value(value)}: {error}"
        ) from None


# ---- The report


def reset_timing_registry(request_id: str = "", metadata: Mapping[str, Any] | None = None) -> None:
    """Forget all stages, and begin with a request.

    Args:
        request_id: What the report calls it; default: ``req_`` and the time.
        metadata: What the report is to say of it: keys that are str, values that JSON can say.

    TypeError and ValueError for others. A stage that is in use meanwhile is not counted.
    """
    if not isinstance(request_id, str):
        raise TypeError(f"request_id must be a str, got {shown_value(request_id)}")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(f"metadata must be a mapping or None, got {shown_value(metadata)}")
    checked = json_value("metadata", dict(metadata or {}))
    now = f"{datetime.now():%Y%m%d_%H%M%S_%f}"  # noqa: DTZ005 for people, in their time
    _registry.reset(request_id or f"req_{now}", checked, perf_counter_ns())


def set_timing_metadata(key: str, value: Any) -> None:
    """Add an entry to the metadata of the report.

    Raises TypeError and ValueError for a key that is no str and a value that JSON cannot express.
    """
    if not isinstance(key, str):
        raise TypeError(f"key must be a str, got {shown_value(key)}")
    _registry.set_metadata(key, value)


def get_timing_report() -> dict[str, Any]:
    """Return the figures of all stages since the last reset.

    The keys are those of ``timing.json`` and its published schema: ``request_id``, ``timestamp``,
    ``wall_clock_ms`` (from the reset, or the first use, to the end of the last), ``total_stages_ms``, ``num_stages``,
    ``metadata``, and ``stages``: by name ``count``, ``duration_ms`` (of all uses), ``mean_ms``, ``min_ms``, ``max_ms``,
    ``std_ms``, ``percentage`` (of ``total_stages_ms``, to which stages inside others add too), ``memory`` in MiB (in
    use after the last use, and the highest of all), and ``error_count`` and ``cancelled_count`` where there were any. A
    stage that worker processes have used has the times of the slowest process, and those of all in ``parallel_info``.
    ``memory`` at the top has the checkpoints of ``capture_memory``.
    """
    return _registry.report()


def dump_timing_report(path: StrPath | None = None) -> Path:
    """Write the timing report, and return its path.

    Args:
        path: Used exactly; its folder is made. Default: that of ``CPROFILING_TIMING_REPORT``, else ``timing.json`` in
            the folder of this run.

    Raises OSError where it cannot be written, TypeError and ValueError for an invalid path.
    """
    target = _report_path() if path is None else Path(arguments.path("path", path))
    output_folder.write_json(target, _registry.report())
    log.say(f"[Profiler] Timing report saved to: {target}")
    return target


def print_timing_summary() -> None:
    """Print the timing report as a table."""
    print(timing_table(_registry.report()))


def get_io_signatures() -> dict[str, StageIOSignature]:
    """Return the signatures of each decorated stage's latest use, by name."""
    return _registry.signatures()


def dump_io_signatures(path: StrPath | None = None) -> Path:
    """Write the signatures, for the harness, and return their path.

    Args:
        path: As for ``dump_timing_report``; default: beside the timing report, ``_io_signature`` being added to its
            name.
    """
    target = _signature_path(_report_path()) if path is None else Path(arguments.path("path", path))
    output_folder.write_json(target, _registry.signature_file())
    log.say(f"[Profiler] Stage I/O signatures saved to: {target}")
    return target


def _report_path() -> Path:
    given = environment.text(environment.TIMING_REPORT)
    if given is None:
        return output_folder.named(output_folder.folder(), "timing", ".json")
    path = Path(given)
    return output_folder.named(path.parent, path.name.removesuffix(".json"), ".json" if path.suffix == ".json" else "")


def _signature_path(report: Path) -> Path:
    return report.with_name(f"{report.name.removesuffix('.json')}_io_signature.json")


def mark_as_worker_process() -> None:
    """Mark this process as a worker of the one that started it.

    What it uses from now on is in the report of the main process, if that has imported this module too: times, memory,
    faults and signatures, up to the last use if it is killed.
    """
    if _registry.worker is not None:
        return
    folder = _folder_of_main if _folder_of_main is not None and process.is_as_imported() else workers.folder_of_main()
    if folder is not None:
        _registry.worker = workers.WorkerWriter(folder)
    AtExit.is_worker = True


class AtExit:
    """Report at the end of the process."""

    is_worker = False
    is_wanted = False  # in any case
    _ended_in = 0  # the number of the process

    @classmethod
    def write(cls) -> None:
        """Write the report, if it is wanted, once in each process."""
        if cls._ended_in == os.getpid():
            return
        cls._ended_in = os.getpid()
        try:
            wanted = log.debug or cls.is_wanted or environment.text(environment.TIMING_REPORT) is not None
            if wanted and not cls.is_worker and not _registry.is_empty():
                report = dump_timing_report()
                if _registry.signatures():
                    dump_io_signatures(_signature_path(report))
        except Exception as error:  # noqa: BLE001 the program's exit status is its own
            log.complain(f"[Profiler] The timing report is lost: {type(error).__name__}: {error}")
        if process.is_as_imported():
            _registry.records.remove()


def gather_workers() -> None:
    """Have later workers write records for this process, unless it is one."""
    if not process.is_of_multiprocessing():
        _registry.records.open()
