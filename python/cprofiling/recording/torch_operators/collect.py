"""Collect PyTorch's operators and kernels by running torch.profiler.

Each stretch of a recording, from start or ``resume()`` to ``pause()`` or end, is one run of torch.profiler: its own
pause switch knows one thread only, and writes to stderr each time.

torch.profiler cannot be used twice at a time, and hardly notices: the one started first loses its data, or the process
crashes. So nothing is started while another one is in use, and nothing is stopped that may not be ours. It must not be
on when the process ends, nor be ended by another thread if it records only one. After its use, PyTorch's library aborts
a forked child that ends through ``sys.exit()`` instead of ``os._exit()``.
"""

from __future__ import annotations

import atexit
import gc
import io
import json
import mmap
import os
import shutil
import sys
import tempfile
from _thread import get_ident, get_native_id
from collections.abc import Callable
from contextlib import suppress
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any

from cprofiling._core import FormatError
from cprofiling._internal.messages import mention, warn
from cprofiling._internal.process import call_at_fork, unkept
from cprofiling.recording.torch_operators.trace import MARK, RunTrace, known_flops, may_be_damaged, mended, true_names
from cprofiling.recording.traces.reader import loaded

if TYPE_CHECKING:
    from cprofiling import _core
    from cprofiling.recording.result import Recording

# What torch.autograd.profiler._is_profiler_enabled is while we record: as true as the True that all others set.
_OURS = 1
_NOT_LOADED = "PyTorch is not loaded; import torch before the recording starts"
_NO_PROFILER = "this PyTorch has no profiler that could record them"
_IN_USE = "a profiler of PyTorch is in use already, and there can be only one at a time"
_NOT_ENDED = (
    "an earlier run of PyTorch's profiler goes on, which only the main thread can end, or the process that this one was"
    " forked from"
)
_TAKEN = "another profiler of PyTorch was started meanwhile, and took them"
_OTHER_THREAD = "where PyTorch's profiler does not record all threads, only the main thread may start and end it"
_NO_WORK = (
    "the work of the device is not recorded: PyTorch's profiler was told of the calls that start it, but not of the"
    " work, for which a process may need a privilege"
)
_STEP = "ProfilerStep"
_MARKS = 40  # at either end of a run: the first are slow, and an interrupt may fall into any
_OFFSETS = 20
_LOG_LEVEL, _ERRORS = "KINETO_LOG_LEVEL", "6"
# Activities, and the modules of torch that stand for their devices, in the order in which torch.profiler chooses one.
_DEVICES = {"CUDA": "cuda", "XPU": "xpu", "MTIA": "mtia", "HPU": "hpu"}


def begin(
    *,
    host: bool,
    devices: frozenset[str] | None,
    record_shapes: bool,
    profile_memory: bool,
    with_stack: bool,
    is_wanted: bool,
    with_flops: bool = False,
) -> Operators | None:
    """Return a recorder of operators for a starting recording, or None.

    PyTorch is never imported. The first ``start()`` in a process takes about a second, as PyTorch sets its profiler up;
    later ones take half a millisecond.

    Args:
        host: Record operators.
        devices: Kinds of devices by torch's names, None for all. torch.profiler records the first available one; named
            others are warned of.
        record_shapes: With shapes and types of arguments.
        profile_memory: With allocated memory, which PyTorch knows of one thread only: a recording started by the main
            thread has the operators of no other then.
        with_stack: With the Python frames around them.
        is_wanted: Warn if there can be none.
        with_flops: With floating-point operations, where PyTorch has a formula, and with shapes, which that needs.
    """
    activities, reason = _activities(sys.modules.get("torch"), host, devices)
    if not activities:
        if is_wanted and reason is not None:
            warn(f"operators are not recorded: {reason}")
        return None
    settings = {"record_shapes": record_shapes, "profile_memory": profile_memory, "with_stack": with_stack}
    if with_flops:
        settings |= {"record_shapes": True, "with_flops": True}
    return Operators(sys.modules["torch"], {"activities": activities, **settings})


class Operators:
    """Operators of one recording.

    Faults are warned of and leave the rest of the recording as it is.
    """

    def __init__(self, torch: Any, settings: dict[str, Any]) -> None:
        self._torch = torch
        self._settings = settings
        self._was_prepared = False
        self._prepared: _Run | None = None
        self._run: _Run | None = None
        self._ended: list[_Run] = []
        self._said: set[str] = set()

    def prepare(self) -> None:
        """Warm torch.profiler up, to keep its setup out of the recording."""
        if self._prepared is None:
            self._attempt(self._prepare)

    def _prepare(self) -> _Run:
        flag = self._torch.autograd.profiler._is_profiler_enabled
        warms_up = _warms_up(self._torch)
        if type(flag) is int and not warms_up:
            raise _UnavailableError(_NOT_ENDED)
        if flag or warms_up or self._torch.autograd._profiler_enabled():
            raise _UnavailableError(_IN_USE)
        run = _Run(self._torch, self._settings)
        is_silenced = not self._was_prepared and _LOG_LEVEL not in os.environ
        if is_silenced:  # torch.profiler reports on stderr at its first use
            os.environ[_LOG_LEVEL] = _ERRORS
        try:
            run.prepare()
        finally:
            if is_silenced:
                del os.environ[_LOG_LEVEL]
        self._was_prepared = True
        self._prepared = run
        return run

    def start(self) -> None:
        """Begin to record."""
        if self._run is None and _at_exit.watch(self):
            self._attempt(self._start)

    def end(self) -> None:
        """End the stretch, before ``stop()`` or ``join()``."""
        run = self._run
        if run is not None and not self._attempt(run.end):
            self._run = None
            _at_exit.stop_left(run)

    def stop(self) -> None:
        """Stop torch.profiler after ``end()``, slower the more it has recorded."""
        run, self._run = self._run, None
        if run is not None and self._attempt(run.stop):
            self._ended.append(run)

    def join(self, recording: _core.Recording) -> None:
        """Add new operators to an unfinished recording."""
        self.stop()
        runs, self._ended = self._ended, []
        for run in runs:
            self._attempt(run.add_to, recording)

    def cancel(self) -> None:
        """Let go of everything that runs or was not joined."""
        self.stop()
        self._ended.clear()
        run, self._prepared = self._prepared, None
        if run is not None:
            self._attempt(run.cancel)

    def forget(self) -> None:
        """Leave the run to the parent process after a fork."""
        self._run = self._prepared = None

    def silence_thread(self) -> bool:
        """Stop recording in this thread, which forks.

        Returns whether it did, so that ``unsilence_thread()`` must follow. The child's only thread must not record into
        the parent's data. It can neither stop the profiler nor be silenced itself: another thread may have held a lock
        of PyTorch's, never released there.
        """
        is_running = self._run is not None
        if is_running:
            self._torch._C._autograd._enable_record_function(False)
        return is_running

    def unsilence_thread(self) -> None:
        """Have this thread record again."""
        self._torch._C._autograd._enable_record_function(True)

    def _start(self) -> None:
        run, self._prepared = self._prepared, None
        if run is None or not run.is_untouched():
            run = self._prepare()
            self._prepared = None
        run.start()
        self._run = run

    def _attempt(self, action: Callable[..., object], *arguments: object) -> bool:
        """Run an action that may fail, warning of each reason once."""
        try:
            action(*arguments)
        except Exception as error:  # noqa: BLE001 whatever PyTorch raises, the user's recording goes on
            reason = str(error) if isinstance(error, _UnavailableError) else f"{type(error).__name__}: {error}"
            if reason not in self._said:
                self._said.add(reason)
                mention(f"operators are not recorded: {reason}")
            return False
        return True


class _AtExit:
    """Stops torch.profiler at exit and keeps it out of forked children.

    The process would crash otherwise.
    """

    def __init__(self) -> None:
        self._watched: Operators | None = None
        self._silenced: dict[int, Operators] = {}  # by the thread that forks
        self._left: list[_Run] = []
        self._is_over = False

    def watch(self, operators: Operators) -> bool:
        """Watch a new run.

        Returns False if the process is ending.
        """
        if self._watched is None:
            atexit.register(unkept(self._stop))
            call_at_fork(
                before=self._before_fork,
                after_in_parent=self._after_fork_in_parent,
                after_in_child=self._after_fork_in_child,
            )
        self._watched = operators
        self.stop_left()
        return not self._is_over

    def stop_left(self, *runs: _Run) -> None:
        """Stop runs from the main thread, if they can be stopped at all."""
        self._left += runs
        if _is_main_thread():
            for run in self._left:
                with suppress(Exception):
                    run.stop()
            self._left.clear()

    def _before_fork(self) -> None:
        if self._watched is not None and self._watched.silence_thread():
            self._silenced[get_ident()] = self._watched

    def _after_fork_in_parent(self) -> None:
        operators = self._silenced.pop(get_ident(), None)
        if operators is not None:
            operators.unsilence_thread()

    def _after_fork_in_child(self) -> None:
        self._silenced.clear()

    def _stop(self) -> None:
        self._is_over = True
        self.stop_left()
        if self._watched is not None:
            self._watched.end()
            self._watched.stop()


_at_exit = _AtExit()


class _UnavailableError(Exception):
    """There are no operators, for the reason given."""


class _Run:
    def __init__(self, torch: Any, settings: dict[str, Any]) -> None:
        self._torch = torch
        self._pid = os.getpid()
        self._has_flops = "with_flops" in settings
        self._offset_ns = 0  # what the time of day is ahead of the monotonic clock: recordings take it at their start
        self._begin_ns = self._end_ns = 0
        self._marks: list[tuple[int, int]] = []  # the moments before and after each
        self._has_marks = torch.profiler.ProfilerActivity.CPU in settings["activities"]
        kind = torch._C._profiler._ExperimentalConfig
        stacks = {"verbose": True} if settings["with_stack"] else {}
        configuration, self._has_all_threads = None, False
        if not settings["profile_memory"] or not _is_main_thread():
            with suppress(TypeError):  # old versions cannot do that
                configuration, self._has_all_threads = kind(profile_all_threads=True, **stacks), True
        configuration = configuration or kind(**stacks)
        tracker = _step_tracker(torch)
        is_known = _STEP in getattr(tracker, "_step_dict", ())
        self._profile = torch.profiler.profile(experimental_config=configuration, **settings)
        if tracker is not None and not is_known:
            tracker.erase_step_count(_STEP)  # it has no schedule: see _warms_up()

    def prepare(self) -> None:
        self._check_thread()
        self._profile.prepare_trace()
        # Some versions make an object of each event when they stop, which takes twenty times as long as all the rest.
        self._profile.profiler._parse_kineto_results = lambda *_, **__: []
        self._claim()

    def is_untouched(self) -> bool:
        """Return whether this process started or prepared no other profiler since."""
        is_ours = type(self._torch.autograd.profiler._is_profiler_enabled) is int and self._pid == os.getpid()
        return is_ours and not _warms_up(self._torch)

    def start(self) -> None:
        self._check_thread()
        try:
            self._profile.start_trace()
        except BaseException:
            self._torch.autograd.profiler._is_profiler_enabled = False
            raise
        self._claim()
        readings = []
        for _ in range(_OFFSETS):
            before, day, after = monotonic_ns(), time_ns(), monotonic_ns()
            readings.append((after - before, day - (before + after) // 2))
        self._offset_ns = min(readings)[1]
        self._mark()
        self._begin_ns = self._now_ns()

    def end(self) -> None:
        self._end_ns = self._now_ns()
        self._check_own()
        self._mark()

    def stop(self) -> None:
        self._check_own()
        backend = self._profile.profiler
        device = getattr(self._torch, backend.use_device or "", None)
        if device is not None and hasattr(device, "is_initialized") and not device.is_initialized():
            backend.use_device = None  # which it would initialise, to wait for work that it does not have
        self._profile.stop_trace()

    def cancel(self) -> None:
        """End a run that was prepared and never started."""
        if self.is_untouched():
            self._profile.start_trace()
            self._claim()
            self.stop()

    def add_to(self, recording: _core.Recording) -> None:
        """Add the operators to an unfinished recording."""
        found = self._found()
        events = self._profile.profiler.kineto_results.events
        # What the trace does not have, or not as it is.
        names = true_names(events()) if may_be_damaged(found) else {}
        flops = known_flops(events()) if self._has_flops else {}
        trace = RunTrace(found, self._marks, self._begin_ns, self._end_ns, names, flops)
        if not trace.add_to(recording):
            return
        threads = "all" if self._has_all_threads else "the main thread"
        fact = {"torch": self._torch.__version__, "threads": threads} | ({"flops": True} if self._has_flops else {})
        recording._set_fact("operators", json.dumps(fact))
        if trace.lacks_work():
            mention(_NO_WORK)

    def _claim(self) -> None:
        self._torch.autograd.profiler._is_profiler_enabled = _OURS

    def _check_own(self) -> None:
        if not self.is_untouched():
            raise _UnavailableError(_TAKEN)
        self._check_thread()

    def _check_thread(self) -> None:
        if not self._has_all_threads and not _is_main_thread():
            raise _UnavailableError(_OTHER_THREAD)

    def _mark(self) -> None:
        if not self._has_marks:
            return
        kind = getattr(self._torch._C._profiler, "_RecordFunctionFast", self._torch.profiler.record_function)
        for mark in [kind(MARK) for _ in range(_MARKS)]:
            before = self._now_ns()
            with mark:
                pass
            self._marks.append((before, self._now_ns()))

    def _now_ns(self) -> int:
        return monotonic_ns() + self._offset_ns

    def _found(self) -> Recording:
        """Return torch.profiler's trace as a recording, with its times."""
        folder = tempfile.mkdtemp(prefix="cprofiling-")
        try:
            path = os.path.join(folder, "operators.json")
            self._profile.export_chrome_trace(path)
            with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as trace:
                try:
                    return loaded(trace.read)
                except FormatError:
                    return loaded(io.BytesIO(mended(trace[:])).read)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _activities(torch: Any, host: bool, devices: frozenset[str] | None) -> tuple[list[Any], str | None]:
    """Return torch.profiler's activities to record, or why there are none."""
    if torch is None:
        return [], _NOT_LOADED
    try:
        if not torch.profiler.kineto_available() or not hasattr(torch.autograd.profiler, "_is_profiler_enabled"):
            return [], _NO_PROFILER
        supported = {activity.name: activity for activity in torch.profiler.supported_activities()}
        modules = {**_DEVICES, "PrivateUse1": torch._C._get_privateuse1_backend_name()}
        found = {name: getattr(torch, module, None) for name, module in modules.items()}
        available = [name for name, device in found.items() if device is not None and device.is_available()]
        there = [name for name in available if devices is None or name in devices]
    except Exception as error:  # noqa: BLE001 something else of that name, or PyTorch while it is being imported
        return [], f"{_NO_PROFILER}: {error!r}"
    if devices is not None and len(there) > 1:
        others = ", ".join(there[1:])
        warn(f"{others} is not recorded: torch.profiler records one kind of device at a time, here {there[0]}")
    wanted = (["CPU"] if host else []) + there[:1]
    return [supported[name] for name in wanted if name in supported], None


def _warms_up(torch: Any) -> bool:
    """Return whether a torch.profiler.profile is in its schedule's warm-up.

    No flag of PyTorch's tells. Its objects are looked for if one was made that has not been left as a context since.
    """
    if _STEP not in getattr(_step_tracker(torch), "_step_dict", ()):
        return False
    for each in gc.get_objects():
        if issubclass(type(each), torch.profiler.profile):
            action = getattr(getattr(each, "current_action", None), "name", None)
            if action == "WARMUP" and getattr(each, "step_rec_fn", None) is not None:
                return True
    return False


def _step_tracker(torch: Any) -> Any:
    """Return the tracker of torch.profiler objects, None in versions without."""
    return getattr(torch.autograd.profiler, "KinetoStepTracker", None)


def _is_main_thread() -> bool:
    return get_native_id() == os.getpid()
