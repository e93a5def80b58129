"""Repeated timing of one callable, and how far its figures can be trusted.

The clock is ``time.perf_counter_ns`` (CLOCK_MONOTONIC on Linux). Nothing is subtracted from what it says: a sample
holds the call of ``fn`` from Python, the release of its result and, where a device is synchronised, the wait for it.
Samples stay integers of nanoseconds until the result is made, so that every figure is exact but for its last rounding.
"""

from __future__ import annotations

import functools
import gc
import inspect
import math
import os
import sys
import types
from collections import UserDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise
from time import perf_counter_ns as _clock_ns
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn, TypeAlias

from cprofiling._internal import arguments
from cprofiling._internal.quantiles import quantile
from cprofiling._internal.text import counted, format_time, shown_text, shown_value

if TYPE_CHECKING:
    from cprofiling.analysis.warm_up import WarmUp
    from cprofiling.devices.operations import DeviceOperations

    _Synchronize: TypeAlias = Literal["auto"] | bool | Callable[[], object] | None

__all__ = ["Measurement", "measure"]

_NS_PER_MS = 1_000_000
_OUTLIERS_SHOWN = 10

_OUTLIER_Z = 3.5  # Iglewicz and Hoaglin's limit for |0.6745 (x - median) / MAD|
_CLOCK_FACTOR = 100  # at this many times the cost of an empty timing, the timing itself is 1 % of the figure
_SPREAD_LIMIT = 0.05  # of MAD / median
_DRIFT_LIMIT = 0.05  # of the shift between the halves' medians / median
_DRIFT_ERRORS = 3.0  # ... which must also be above this many standard errors
_DRIFT_HALF = 2  # samples at least
_MEDIAN_ERROR = 1.2533 * 1.4826  # standard error of a median in units of MAD / sqrt(n), for normal noise
_PERCENTILE_SAMPLES = 5

_CLOCK_READS = 1_000
_EMPTY_TIMINGS = 11
_OBJECTS_SEARCHED = 10_000
_CPU_FOLDER = "/sys/devices/system/cpu"


@dataclass(frozen=True)
class Measurement:
    """Result of :func:`measure`, in uncorrected milliseconds.

    Percentiles, the median among them, interpolate linearly between the order statistics: with the samples sorted and
    counted from 0, the q-th percentile lies at position ``(count - 1) * q / 100`` (definition 7 of Hyndman and Fan,
    "Sample Quantiles in Statistical Packages", 1996).

    Outliers are the samples with a modified z-score ``0.6745 * |x - median| / MAD`` exceeds 3.5, where MAD is the
    median absolute deviation from the median (Iglewicz and Hoaglin, "How to Detect and Handle Outliers", 1993). A MAD
    below the step of the clock, 0 included, is taken as that step: what the clock cannot tell apart is no outlier.
    Outliers are named, never removed: every figure is of all samples.
    """

    name: str
    """The callable's qualified name (after the last ``<locals>.``), or that of its type."""
    samples_ms: tuple[float, ...] = field(repr=False)
    """One time per timed call, in the order of the calls."""
    count: int
    """How many calls were timed, at least 1."""
    mean_ms: float
    median_ms: float
    std_ms: float
    """Population standard deviation; 0.0 for one sample."""
    min_ms: float
    max_ms: float
    p90_ms: float
    p99_ms: float
    total_ms: float
    warmup: int
    """How many calls went before, untimed."""
    synchronized: str | None
    """The device waited for, such as ``"cuda:0"``, or the name of the caller's own function; None: nothing."""
    outliers: tuple[int, ...]
    """Indices into ``samples_ms``, rising."""
    warnings: tuple[str, ...]
    """Why these figures should not be trusted, a sentence each; empty if no reason was found."""

    def __str__(self) -> str:
        figures = self._figures()
        lines = [
            f"{self.name}: median {format_time(self.median_ms)} ({self._conditions()})",
            "  " + ", ".join(f"{label} {figures[label]}" for label in ("mean", "std", "total")),
            "  " + ", ".join(f"{label} {figures[label]}" for label in ("min", "p90", "p99", "max")),
        ]
        if self.outliers:
            lines.append(f"  outliers: {self._format_outliers()}")
        lines.extend(f"  warning: {warning}" for warning in self.warnings)
        return "\n".join(shown_text("line", line) for line in lines)

    def warm_up(self) -> WarmUp:
        """Find the call from which times are steady, as ``Recording.warm_up``."""
        from cprofiling.analysis import warm_up

        return warm_up.of_measurement(self)

    def _repr_html_(self) -> str:
        from cprofiling._internal.tables import Shown, html_table

        figures = self._figures().items()
        rows = [(label if label.startswith("p") else label.capitalize(), Shown(text)) for label, text in figures]
        notes = [f"Outliers: {self._format_outliers()}"] if self.outliers else []
        notes += [f"Warning: {warning}" for warning in self.warnings]
        return html_table(("Figure", "Time"), rows, notes, caption=f"{self.name}: {self._conditions()}")

    def _figures(self) -> dict[str, str]:
        labels = ("median", "mean", "std", "min", "p90", "p99", "max", "total")
        return {label: format_time(getattr(self, f"{label}_ms")) for label in labels}

    def _conditions(self) -> str:
        calls = f"{counted(self.count, 'call')} after {counted(self.warmup, 'warm-up call')}"
        return calls if self.synchronized is None else f"{calls}, synchronised with {self.synchronized}"

    def _format_outliers(self) -> str:
        shown = ", ".join(f"[{i}] {format_time(self.samples_ms[i])}" for i in self.outliers[:_OUTLIERS_SHOWN])
        hidden = len(self.outliers) - _OUTLIERS_SHOWN
        return f"{shown} and {hidden} more" if hidden > 0 else shown


def measure(
    fn: Callable[..., object],
    *args: object,
    warmup: int = 3,
    repeat: int = 20,
    synchronize: _Synchronize = "auto",
    **unknown: NoReturn,
) -> Measurement:
    """Time each of ``repeat`` calls of ``fn(*args)``, after a warm-up.

    Garbage collection stays as the caller set it. Exceptions of ``fn`` and of the wait for a device pass through
    untouched, and no result is made.

    With ``synchronize="auto"`` the accelerators are waited for on which torch tensors and modules live that are found
    in ``fn``, its bound object, its closure, ``args``, and the lists, tuples, sets and dicts among them; if there are
    none, those that torch has in use in this process. The search comes after the warm-up calls. torch is never
    imported, CUDA is never initialised and no context is made for it. While the current CUDA stream is being captured
    nothing is waited for, and a warning says so.

    Args:
        fn: What to measure. Keyword arguments go in with a lambda: ``measure(lambda: f(x, reverse=True))``.
        *args: Its positional arguments, the same objects at each call.
        warmup: Number of untimed calls before, 0 to ``sys.maxsize``.
        repeat: Number of timed calls, 1 to ``sys.maxsize``.
        synchronize: The device to wait for before and after each timed call, so that work left running on it
            counts in full; the second wait is part of the sample. ``"auto"``: the devices in use, if any.
            ``True``: the same, with a warning if there is none. ``False`` or ``None``: nothing. A callable without
            arguments: is called for it, twice per timed call; libraries other than torch need this, or an ``fn`` that
            waits by itself.
        **unknown: Nothing else is known.

    Returns:
        The samples, their figures, and the reasons not to trust them.

    Raises:
        TypeError: ``fn`` is not callable, or is a coroutine function or an async generator function (measure a function
            that runs it, such as ``lambda: asyncio.run(main())``); ``warmup`` or ``repeat`` is a bool or has no
            ``__index__``; ``synchronize`` is of another type; there is another keyword, which may be meant for ``fn``.
        ValueError: ``warmup`` or ``repeat`` is out of range, or ``synchronize`` is another string.
    """
    if unknown:
        name = next(iter(unknown))
        raise TypeError(
            f"measure() has no argument {name!r}; for fn, use a lambda: measure(lambda: fn(..., {name}=...))"
        )
    _check_fn(fn)
    warmup = arguments.index_between("warmup", warmup, 0, sys.maxsize)
    repeat = arguments.index_between("repeat", repeat, 1, sys.maxsize)
    _check_synchronize(synchronize)
    cautions = _warm_up(fn, args, warmup)
    is_found = synchronize == "auto" or synchronize is True
    wait = _find_device_wait(fn, args) if is_found else _Wait()
    if callable(synchronize):
        wait = _Wait(_name_of(synchronize), synchronize)
    if synchronize is True and wait.call is None and not wait.warnings:
        wait = _Wait(warnings=("synchronize=True, but no accelerator is in use: nothing was waited for",))
    collections_before = _collections()
    samples_ns = _time_calls(fn, args, repeat, wait.call)
    collections = _collections() - collections_before
    reads = [_clock_ns() for _ in range(_CLOCK_READS)]
    steps = sorted(later - earlier for earlier, later in pairwise(reads) if later > earlier)
    step_ns = empty_ns = steps[len(steps) // 2] if steps else 1
    # The caller's own function is not called more often than promised.
    if wait.call is not None and not callable(synchronize):
        empty_ns = max(step_ns, int(_median(_time_calls(lambda: None, (), _EMPTY_TIMINGS, wait.call))))
    warnings = wait.warnings
    if not warnings and wait.call is None and is_found and (late := _find_device_wait(fn, args).label) is not None:
        warnings = (f"{late} came into use during the timed calls and was not waited for: use a larger warmup",)
    cautions += [*_sample_warnings(samples_ns, empty_ns), *warnings, *_environment_warnings(collections)]
    return _summarise(_name_of(fn), samples_ns, step_ns, warmup, wait.label, tuple(cautions))


Measurement.__module__ = measure.__module__ = "cprofiling"


def _check_fn(fn: Callable[..., object]) -> None:
    if not callable(fn):
        hint = ": measure(lambda: (wave | chain).ys) runs its filters" if _is_wave(fn) else ""
        raise TypeError(f"fn must be callable, got {shown_value(fn)}{hint}")
    target = _without_partials(fn)
    for candidate in (target, type(target).__call__):
        if inspect.iscoroutinefunction(candidate) or inspect.isasyncgenfunction(candidate):
            raise TypeError(
                f"fn must not be async, got {shown_value(fn)}: a call would only make its coroutine; "
                "measure a function that runs it, such as lambda: asyncio.run(main())"
            )


def _check_synchronize(synchronize: object) -> None:
    allowed = 'synchronize must be "auto", True, False, None or a callable without arguments'
    if isinstance(synchronize, str) and synchronize != "auto":
        raise ValueError(f"{allowed}, got {shown_value(synchronize)}")
    is_wait = callable(synchronize) and not inspect.iscoroutinefunction(synchronize)
    if not (is_wait or synchronize is None or isinstance(synchronize, (str, bool))):
        raise TypeError(f"{allowed}, got {shown_value(synchronize)}")


def _without_partials(fn: Callable[..., object]) -> Callable[..., object]:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn


def _name_of(fn: Callable[..., object]) -> str:
    target = _without_partials(fn)
    candidates = (getattr(target, "__qualname__", None), getattr(target, "__name__", None), type(target).__qualname__)
    return next(name for name in candidates if isinstance(name, str)).rpartition("<locals>.")[2]


def _warm_up(fn: Callable[..., object], args: tuple[object, ...], warmup: int) -> list[str]:
    for _ in range(warmup - 1):
        fn(*args)
    # Only one result is looked at: keeping one during a timed call would hold its memory twice.
    result = fn(*args) if warmup else None
    if inspect.isgenerator(result) or inspect.iscoroutine(result) or inspect.isasyncgen(result):
        return [f"fn returned a {type(result).__name__}, and what that would do was not timed: run it inside fn"]
    if _is_wave(result) and getattr(result, "_pipeline", None):
        return ["fn returned a Wave; its filters did not run and were not timed: read its .ys inside fn"]
    return []


def _is_wave(value: object) -> bool:
    """Tell whether a value is a wave of TorchFX, where ``|`` runs nothing."""
    torchfx = sys.modules.get("torchfx")
    return torchfx is not None and isinstance(value, getattr(torchfx, "Wave", ()))


def _time_calls(
    fn: Callable[..., object], args: tuple[object, ...], repeat: int, wait: Callable[[], object] | None
) -> list[int]:
    clock = _clock_ns
    samples = [0] * repeat  # made beforehand: no list grows between two timed calls
    for i in range(repeat):
        if wait is None:
            start = clock()
            fn(*args)
        else:
            wait()
            start = clock()
            fn(*args)
            wait()
        samples[i] = clock() - start
    return samples


class _Wait(NamedTuple):
    """A wait for devices, with their names, and why some are not waited for."""

    label: str | None = None
    call: Callable[[], object] | None = None
    warnings: tuple[str, ...] = ()


def _find_device_wait(fn: Callable[..., object], args: tuple[object, ...]) -> _Wait:
    torch = sys.modules.get("torch")
    if torch is None:
        return _Wait()
    from cprofiling.devices.operations import in_use  # here, as only torch's devices are in it

    try:
        row = in_use()
        held: dict[str, None] = {}  # the devices in the order found, each once
        for each in _reachable(fn, args):
            if isinstance(each, torch.nn.Module):
                held.update((str(part.device), None) for part in chain(each.parameters(), each.buffers()))
            elif isinstance(each, torch.Tensor):
                held[str(each.device)] = None
        if isinstance(row, str):
            return _Wait(warnings=(f"nothing was waited for: {row}",))
        names = [name for name in held if name.partition(":")[0] not in ("cpu", "meta")]
        if not names and row is not None:
            has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
            if row.tensor_type == "cuda" and has_context is not None:  # to wait for one without a context would make it
                names = [f"cuda:{index}" for index in range(torch.cuda.device_count()) if has_context(index)]
            else:
                names = [f"{row.tensor_type}:{0 if isinstance(row.current_index, str) else row.current_index()}"]
        return _wait_for(row, names)
    except Exception as error:  # noqa: BLE001 a half-imported torch, or a module that only bears its name
        return _Wait(warnings=(f"nothing was waited for: torch told no device ({type(error).__name__}: {error})",))


def _reachable(fn: Callable[..., object], args: tuple[object, ...]) -> Iterator[object]:
    """Yield ``fn``, ``args`` and a limited number of objects in them."""
    pending: deque[object] = deque((fn, *args))
    seen: set[int] = set()
    while pending:
        found = pending.popleft()
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        held: Iterable[object] = ()
        # Plain containers only: iterating over somebody's own Mapping could read a file or a network.
        if isinstance(found, (list, tuple, set, frozenset)):
            held = found
        elif isinstance(found, (dict, UserDict)):
            held = (found.data if isinstance(found, UserDict) else found).values()
        elif isinstance(found, functools.partial):
            held = (found.func, *found.args, *found.keywords.values())
        elif isinstance(found, types.MethodType):
            held = (found.__self__, found.__func__)
        elif isinstance(found, types.FunctionType):
            held = found.__closure__ or ()
        elif isinstance(found, types.CellType):
            with suppress(ValueError):  # a variable that is not assigned yet
                held = (found.cell_contents,)
        pending.extend(islice(held, max(0, _OBJECTS_SEARCHED - len(seen) - len(pending))))


def _wait_for(row: DeviceOperations | None, names: list[str]) -> _Wait:
    waited, missed = [], []
    calls: list[Callable[[], object]] = []
    for name in names:
        kind, _, index = name.partition(":")
        # None in use in a forked child and for tensors without storage, even though a tensor says that it is there.
        if row is None or kind != row.tensor_type or isinstance(row.synchronize, str):
            missed.append(name)
        else:
            waited.append(name)
            calls.append(functools.partial(row.synchronize, int(index or 0)))
    if row is not None and calls and row.is_captured():
        return _Wait(warnings=(f"a stream of {row.device_type} is being captured: nothing was waited for",))
    warnings = (f"torch cannot wait for {', '.join(missed)}: work there may be missing",) if missed else ()
    return _Wait(", ".join(waited) or None, (lambda: [call() for call in calls]) if calls else None, warnings)


def _sample_warnings(samples_ns: list[int], empty_ns: int) -> Iterator[str]:
    middle, deviation = _median(samples_ns), _deviation(samples_ns)
    if middle < _CLOCK_FACTOR * empty_ns:
        yield (
            f"the median, {_format_ns(middle)}, is below {_CLOCK_FACTOR} times what timing an empty call costs, "
            f"{_format_ns(empty_ns)}: do more work in fn"
        )
    if deviation > _SPREAD_LIMIT * middle:
        share, limit = 100 * deviation / middle, 100 * _SPREAD_LIMIT
        yield f"the samples spread: their MAD is {share:.1f} % of the median, above {limit:.0f} %"
    half = len(samples_ns) // 2
    if half >= _DRIFT_HALF:
        first, second = samples_ns[:half], samples_ns[-half:]
        shift = _median(second) - _median(first)
        # The noise is taken within each half, where a drift does not inflate it as it does that of the whole.
        error = _MEDIAN_ERROR * math.hypot(_deviation(first), _deviation(second)) / math.sqrt(half)
        if middle > 0 and abs(shift) > max(_DRIFT_LIMIT * middle, _DRIFT_ERRORS * error):
            change, share = "slower" if shift > 0 else "faster", abs(shift) / middle
            yield f"the calls drift: the second half is {change} than the first, by {100 * share:.1f} % of the median"
    if len(samples_ns) < _PERCENTILE_SAMPLES:
        yield f"{counted(len(samples_ns), 'sample')}: too few for percentiles, which need {_PERCENTILE_SAMPLES}"


def _environment_warnings(collections: int) -> Iterator[str]:
    if collections:
        yield f"the garbage collector ran {counted(collections, 'time')} during the timed calls"
    running = {"sys.settrace": sys.gettrace(), "sys.setprofile": sys.getprofile()}
    tracers = [name for name, function in running.items() if function is not None]
    monitoring = getattr(sys, "monitoring", None)  # CPython 3.12 and later
    if monitoring is not None:
        tools = (monitoring.get_tool(tool_id) for tool_id in range(6))
        tracers.extend(f"sys.monitoring ({tool})" for tool in tools if tool is not None)
    if tracers:
        yield f"the calls ran under a tracer, debugger, profiler or coverage tool: {', '.join(tracers)}"
    cpus = os.cpu_count() or 1
    with suppress(OSError):
        load = os.getloadavg()[0]
        if load > cpus:
            yield f"the machine is busy: load average {load:.1f} on {counted(cpus, 'CPU')}"
    governors = set()
    for cpu in range(cpus):
        # Most virtual machines have none, and a CPU may be offline.
        with suppress(OSError), open(f"{_CPU_FOLDER}/cpu{cpu}/cpufreq/scaling_governor", "rb") as file:
            governors.add(file.read(64).decode("ascii", "replace").strip())
    slow = sorted(governors - {"performance", ""})
    if slow:
        yield f'CPU frequency may change: the governor is {", ".join(slow)}, not "performance"'


def _collections() -> int:
    return sum(generation["collections"] for generation in gc.get_stats())


def _summarise(
    name: str, samples_ns: list[int], step_ns: int, warmup: int, synchronized: str | None, warnings: tuple[str, ...]
) -> Measurement:
    ordered, count, total = sorted(samples_ns), len(samples_ns), sum(samples_ns)
    squares = count * sum(sample * sample for sample in samples_ns) - total * total  # exact: integers
    middle, scale = _median(ordered), max(_deviation(ordered), step_ns)
    return Measurement(
        name=name,
        samples_ms=tuple(sample / _NS_PER_MS for sample in samples_ns),
        count=count,
        mean_ms=total / (count * _NS_PER_MS),
        median_ms=quantile(ordered, 50, _NS_PER_MS),
        std_ms=math.sqrt(squares) / (count * _NS_PER_MS),
        min_ms=ordered[0] / _NS_PER_MS,
        max_ms=ordered[-1] / _NS_PER_MS,
        p90_ms=quantile(ordered, 90, _NS_PER_MS),
        p99_ms=quantile(ordered, 99, _NS_PER_MS),
        total_ms=total / _NS_PER_MS,
        warmup=warmup,
        synchronized=synchronized,
        outliers=tuple(i for i, sample in enumerate(samples_ns) if 0.6745 * abs(sample - middle) / scale > _OUTLIER_Z),
        warnings=warnings,
    )


def _median(values: Sequence[float]) -> float:
    return quantile(sorted(values), 50)


def _deviation(values: Sequence[float]) -> float:
    """Return the median absolute deviation from the median (MAD)."""
    middle = _median(values)
    return _median([abs(value - middle) for value in values])


def _format_ns(nanoseconds: float) -> str:
    return format_time(nanoseconds / _NS_PER_MS)
