"""The running recording, its schedule and its handlers."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from _thread import RLock
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from cprofiling import _core
from cprofiling._internal import arguments as checks
from cprofiling._internal.messages import mention, warn
from cprofiling._internal.process import call_at_fork, unkept
from cprofiling._internal.row_kinds import KINDS
from cprofiling._internal.text import shown_value
from cprofiling.recording.activities import (
    ON_DEVICES,
    ProfilerActivity,
    RecordFormat,
    Resource,
    activities_of,
    missing_reason,
    torch_reason,
)
from cprofiling.recording.result import Recording, Reports
from cprofiling.recording.schedule import ProfilerAction

if TYPE_CHECKING:
    import threading

    from _typeshed import StrOrBytesPath

    from cprofiling.devices.cupti import DeviceActivity
    from cprofiling.recording.torch_operators.collect import Operators

    P = TypeVar("P", bound="profile")
    ScheduleFunction = Callable[[int], Any]

_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
_IN_USE = "a recording is running already: there can be one at a time in a process"
_WHEN_FULL = ("drop_oldest", "drop_newest")
_STEP_NAME = "ProfilerStep#{}"
_NOTHING_OF_IT = "nothing of this cycle was recorded; reports cover the cycle before"
_NO_DEVICE = "work on devices is recorded through PyTorch, where it has a device, or of CUDA, where that is in use"
_PATIENCE_S = 5.0  # with another thread that is at work on a recording when the process ends
_MOST_CAPACITY = 1_000_000_000  # as in cprofiling/trace/recording.h


class _Claim:
    """Claim to record, without keeping its owner alive.

    An owner that nobody can stop any more would block all others.
    """

    def __init__(self) -> None:
        self.lock = RLock()  # a signal's handler may end a recording while another is being started
        self._owner: weakref.ref[profile] | None = None
        self._late: _core.Recorder | None = None  # counts what comes after a recording that ended with the process
        call_at_fork(after_in_child=self._after_fork_in_child)
        atexit.register(unkept(self._at_exit))

    @property
    def owner(self) -> profile | None:
        return None if self._owner is None else self._owner()

    def take(self, owner: profile) -> None:
        """Make this the owner. RuntimeError while another is."""
        held = self.owner
        if held is not None and held is not owner:
            held._make_way()
        self._late = None
        with self.lock:
            held = self.owner  # it may have been interrupted before it could give the claim back
            if held is not None and held is not owner and held._running:
                raise RuntimeError(_IN_USE)
            self._owner = weakref.ref(owner)

    def give_back(self, owner: profile) -> bool:
        """Release the claim, False if another owner has it and keeps it."""
        with self.lock:
            held = self.owner  # None also while it goes: then it is not to be found any more
            if held is not None and held is not owner:
                return False
            self._owner = None
            return True

    def _after_fork_in_child(self) -> None:
        self.lock = RLock()
        self._late = None
        owner, self._owner = self.owner, None
        if owner is not None:
            owner._forget()

    def _at_exit(self) -> None:
        owner = self.owner
        if owner is None or not owner._end_with_process() or sys.__stderr__ is None:
            return
        with suppress(Exception):
            self._late = _core.Recorder(1, True, None, False, None, True)
            self._late.tell_missed()


_claim = _Claim()


class profile(Reports):  # noqa: N801 a context manager, named as others name theirs
    """Record each call of a node and each block labelled by ``record()``.

    Used as ``with cp.profile(...) as prof:``, or by ``prof.start()`` and ``prof.stop()``. There can be one at a time in
    a process. It is independent of statistics: nodes are recorded whether or not their Profiler is on.

    Args:
        activities: Members of ``ProfilerActivity`` (or of torch's), or names; None: all available ones. A named one
            that this machine lacks gives a warning.
        schedule: Action for each step: ``schedule(...)``, or a callable of the step's number that returns a
            ``ProfilerAction``. None: record everything from the start to the end.
        on_trace_ready: Called with this object when a cycle of the schedule is finished; without one, at the end.
        record_shapes: Also record shapes and types of the arguments that have ``shape`` and ``dtype``.
        profile_memory: Also record, of each node, the change of the process's resident memory and its peak where it
            rose; and of the framework's allocator where a device is in use. A counter shows it over time.
        with_stack: Also record the Python frames at each node's start.
        operators: Whether PyTorch's operators, and the device work they start, are recorded as children of the nodes
            that ran them: "auto", if PyTorch is loaded when the recording starts; True or False. torch.profiler records
            them: while something else uses it, there are no operators, with a warning. The first start in a process
            takes a second then.
        resource: The categories to record.
        format: ``ChromeTrace``, which is written into ``file`` at the end; or ``PandasDataFrame``. All reports are
            available with both.
        file: A path, compressed if it ends in ".gz", or an open file, text or binary.
        capacity: Events kept of each thread, 1 to 1,000,000,000; each takes 64 bytes. A thread that begins after
            another has ended goes on in its room, so that many short threads take no more than few. Names, shapes and
            stacks are kept beside them, once each, also those of dropped events: at most 1,048,576, of 256 MiB in all.
            Further names become ``__overflow__``; further shapes and stacks are left out.
        when_full: "drop_oldest" or "drop_newest": which events go when there are more. ``dropped`` counts them.
        with_flops: Also record floating-point operations of matrix products, convolutions and the other PyTorch
            operators for which PyTorch has a formula; ``key_averages()`` sums them up.
        with_modules, experimental_config, acc_events: Options of torch.profiler without effect here, with a warning.

    A block that is open when the recording, or a cycle of it, ends is recorded up to there and marked ``unfinished``. A
    recording still running when the program ends is stopped then; if its object is gone, it is ended with a
    RuntimeWarning, and lost.

    Attributes:
        step_num: Number of the present step, from 0 on.
        current_action: The schedule's ``ProfilerAction`` for it.

    Raises TypeError and ValueError for wrong arguments, naming the parameter.
    """

    _running = False
    _synchronizes = False  # whether nodes wait for their devices; set before it starts, by the package itself

    def __init__(  # noqa: PLR0913 the options of a recording
        self,
        activities: Iterable[Any] | None = None,
        *,
        schedule: ScheduleFunction | None = None,
        on_trace_ready: Callable[[profile], object] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        operators: bool | str = "auto",
        resource: Resource = Resource.ALL,
        format: RecordFormat = RecordFormat.ChromeTrace,  # noqa: A002 as others call it
        file: Any = None,
        capacity: int = 1_000_000,
        when_full: str = "drop_oldest",
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: object = None,
        acc_events: bool = False,
    ) -> None:
        self._activities = activities_of(activities)
        self._schedule = checks.callable_or_none("schedule", schedule)
        self._handler = checks.callable_or_none("on_trace_ready", on_trace_ready)
        self._shapes = bool(record_shapes)
        self._memory = bool(profile_memory)
        self._stack = bool(with_stack)
        self._flops = bool(with_flops)
        wanted: Any = operators
        if not isinstance(wanted, bool) and wanted != "auto":
            raise (ValueError if isinstance(wanted, str) else TypeError)(
                f'operators must be True, False or "auto", got {shown_value(operators)}'
            )
        self._wants_operators = operators
        self._resource = checks.member("resource", resource, Resource)
        self._file = _checked_file(file, checks.member("format", format, RecordFormat))
        self._capacity = checks.index_between("capacity", capacity, 1, _MOST_CAPACITY, "events")
        self._when_full = checks.choice("when_full", when_full, _WHEN_FULL)
        others = {
            "with_modules": with_modules, "experimental_config": experimental_config, "acc_events": acc_events,
        }  # fmt: skip
        for name, value in others.items():
            if value:
                warn(f"{name} does nothing here: it is an option of torch.profiler")
        self._lock = RLock()
        self._metadata: dict[str, str] = {}
        self._clear()

    def __del__(self) -> None:
        if self._running:
            self._give_up()
            mention("a recording was running that nobody can stop any more: it ends here, and what it recorded is lost")

    def __repr__(self) -> str:
        if self._running:
            state = "paused" if self._paused else "running"
        elif self._is_parents:
            state = "of the parent process"
        else:
            state = "not started" if self._recording is None else f"stopped, {self._recording!r}"
        return f"<profile: {state}>"

    def _repr_html_(self) -> str:
        """Return the table of averages for notebooks, or the current state."""
        if self._recording is not None:
            return super()._repr_html_()
        from html import escape

        return f"<p>{escape(repr(self))}</p>"

    def _forget(self) -> None:
        """Drop the recording in a forked child, as the parent has it."""
        self._lock = RLock()
        self._running = False
        for source in self._sources:
            source.forget()
        self._clear()
        self._is_parents = True

    def _clear(self) -> None:
        self._is_parents = False
        self._recorder: _core.Recorder | None = None
        self._sources: list[Operators | DeviceActivity] = []  # of what there is beside ours
        self._recording: Recording | None = None
        self._paused = False
        self._pid = 0
        self._threads: dict[int | None, threading.Thread] = {}  # of before; those that begin meanwhile are named then
        self._note: str | None = None
        self._since_epoch_ns: int | None = None
        self._cycles = 0
        self._cycle_ended_before = 0  # the step that followed the last cycle
        self.step_num = 0
        self.current_action = ProfilerAction.NONE

    # ---- Control

    def start(self) -> None:
        """Begin. RuntimeError if a recording is running already."""
        with self._lock:
            if self._running:
                raise RuntimeError(_IN_USE)
            try:
                self._running = True
                _claim.take(self)
                self._clear()
                for activity in sorted(self._activities or (), key=lambda each: each.name):
                    reason = missing_reason(activity)
                    if reason is not None:
                        warn(f"activity {activity.name} is not recorded: {reason}")
                self._pid = os.getpid()
                self._sources = self._begin_sources()
                if not self._sources and Resource.CPU not in self._resource and self._activities is None:
                    warn(f"resource {self._resource!r} selects nothing that can be recorded here: {_NO_DEVICE}")
                self.current_action = self._action(0)
                self._warm_up()
                if self.current_action in _RECORDING:
                    self._begin_cycle()
            except BaseException:
                self._give_up()
                raise

    def _give_up(self) -> None:
        self._running = False
        self._recorder = None  # which ends it, if nobody did
        sources, self._sources = self._sources, []
        for source in sources:
            source.cancel()
        if _claim.give_back(self):
            _core.configure(thread_namer=None)

    def _make_way(self) -> None:
        """End for a recording that starts, if this one was started automatically."""

    def stop(self) -> None:
        """Stop recording, call the handler for new events, write the file.

        Raises RuntimeError if the recording is not running. Errors of handler and file are passed on; the recording has
        ended all the same. In a forked child nothing is called or written, as the recording is the parent's.
        """
        with self._lock:
            if self._is_parents:
                return
            if not self._running:
                raise RuntimeError("stop() needs a recording that is running: call start() first")
            is_ready = False
            try:
                self._running = False
                self._note = self._unrecorded()
                is_ready = self._recorder is not None and self._finish_last_cycle()
            finally:
                self._give_up()
            if self._recording is None:
                self._keep(Recording.empty())
            note = self._note
        try:
            try:
                if is_ready and self._handler is not None:
                    self._handler(self)
            finally:
                if self._file is not None and self._pid == os.getpid():
                    is_path = isinstance(self._file, str)
                    self.export_chrome_trace(self._file if is_path else None, file=None if is_path else self._file)
        finally:
            if note is not None:  # last of all, as filters may make an exception of it
                warn(note)

    def step(self) -> None:
        """End a step of the schedule and begin the next.

        The handler is called at the end of a cycle. Raises RuntimeError without a schedule, or if not running.
        """
        with self._lock:
            if self._schedule is None:
                raise RuntimeError("step() needs a schedule: give profile(schedule=...) one")
            if self._is_parents:
                return
            if not self._running:
                raise RuntimeError("step() needs a recording that is running: call start() first")
            before = self.current_action
            self.step_num += 1
            self.current_action = self._action(self.step_num)
            is_over = before is ProfilerAction.RECORD_AND_SAVE or self.current_action not in _RECORDING
            if self._recorder is None or not is_over:
                self._resume_cycle()
                return
            self._finish_cycle()
            self._cycle_ended_before = self.step_num
        try:
            if self._handler is not None:
                self._handler(self)
        finally:
            self._resume_cycle()

    def _resume_cycle(self) -> None:
        """Begin the cycle that the present step belongs to, or its next step."""
        with self._lock:
            if not self._running:
                return
            self._warm_up()
            if self.current_action not in _RECORDING:
                return
            if self._recorder is None:
                self._begin_cycle()
            else:
                self._recorder.step(_STEP_NAME.format(self.step_num))

    def pause(self) -> None:
        """Record nothing until ``resume()``.

        An open block that ends after ``resume()`` is one event, the pause included; one that ends during the pause is
        recorded up to the pause, and marked ``cut``. A block that begins during the pause is not recorded. RuntimeError
        unless the recording is running and not paused.
        """
        with self._lock:
            if self._is_parents:
                return
            if not self._running or self._paused:
                raise RuntimeError("pause() needs a recording that is running, and is not paused")
            if self._recorder is None:
                self._paused = True
                return
            for source in self._sources:
                source.end()
            self._recorder.pause()
            self._paused = True
            for source in self._sources:
                source.stop()

    def resume(self) -> None:
        """Go on after ``pause()``. RuntimeError if the recording is not paused."""
        with self._lock:
            if self._is_parents:
                return
            if not self._running or not self._paused:
                raise RuntimeError("resume() needs a recording that is paused: call pause() first")
            if self._recorder is not None:
                for source in self._sources:
                    source.start()
                self._recorder.resume()
            self._paused = False  # last: whoever could not resume can try again

    def record(self, name: str, warm_up: bool = False) -> _core.record:
        """As ``cprofiling.record``."""
        return _core.record(name, warm_up=warm_up)

    def add_metadata(self, key: str, value: str) -> None:
        """Add a text to the top level of traces written from now on.

        Errors are as in ``add_metadata_json``.
        """
        import json

        self.add_metadata_json(key, json.dumps(str(value)))

    def add_metadata_json(self, key: str, value: str) -> None:
        """Add a JSON text to the traces of cycles that end from now on.

        Raises TypeError unless the key is a str; ValueError for a reserved key or invalid JSON.
        """
        from cprofiling.recording import metadata

        key, value = metadata.checked(key, value)
        self._metadata[key] = value

    preset_metadata_json = add_metadata_json

    def __enter__(self: P) -> P:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._running:
            return
        try:
            self.stop()
        except Exception as failure:
            if error is None:
                raise
            mention(f"the recording was not finished as it should have been: {failure!r}")

    def _end_with_process(self) -> bool:
        """Stop at the end of the process, for the sake of handler and file.

        Returns whether one of these has got a result.
        """
        if not self._lock.acquire(timeout=_PATIENCE_S):
            return False
        self._lock.release()
        if not self._running:
            return False
        self.__exit__(SystemExit, SystemExit(), None)
        return self._file is not None or self._handler is not None

    # ---- What it knows of itself

    @property
    def dropped(self) -> int:
        """Number of events missing in the last finished cycle, for lack of room."""
        return self._finished().dropped

    @property
    def recording(self) -> Recording:
        """The last finished cycle. RuntimeError before the first."""
        return self._finished()

    def export_stacks(self, path: StrOrBytesPath, metric: str = "self_cpu_time_total") -> None:
        """Write folded Python stacks, as flame graphs need them.

        Raises RuntimeError unless recorded ``with_stack=True``, as torch.profiler does; ``recording.export_stacks()``
        writes those of nodes, blocks and operators.
        """
        if not self._stack:
            raise RuntimeError(
                "export_stacks() requires with_stack=True; recording.export_stacks() writes the names of nodes, blocks "
                "and operators inside one another"
            )
        super().export_stacks(path, metric)

    def _finished(self) -> Recording:
        recording = self._recording
        if recording is None:
            hint = "stop() it first" if self._running else "start() it first"
            raise RuntimeError(f"nothing is recorded yet: {hint}, or wait for a cycle of the schedule to end")
        return recording

    # ---- Cycles

    def _action(self, step: int) -> ProfilerAction:
        action = ProfilerAction.RECORD if self._schedule is None else self._schedule(step)
        if isinstance(action, ProfilerAction):
            return action
        name = getattr(action, "name", None)
        if isinstance(name, str) and name in ProfilerAction.__members__:
            return ProfilerAction[name]  # torch's of the same name
        raise TypeError(f"schedule must answer with a ProfilerAction, got {shown_value(action)}")

    def _records(self, activity: ProfilerActivity, resource: Resource) -> bool:
        return resource in self._resource and (self._activities is None or activity in self._activities)

    def _begin_cycle(self) -> None:
        from cprofiling.recording import call_details

        self._threads = {}
        self._note_threads()
        # Before the sources start: imports amid a recording of PyTorch's with stacks spoil names in it.
        describer = call_details.describer(shapes=self._shapes, stack=self._stack)
        memory_finder = call_details.device_memory_finder() if self._memory else None
        for source in self._sources if not self._paused else ():
            source.start()
        _core.configure(thread_namer=_name_of_thread)
        self._recorder = _core.Recorder(
            self._capacity,
            self._when_full == "drop_newest",
            describer,
            self._memory,
            memory_finder,
            self._records(ProfilerActivity.CPU, Resource.CPU),
            self._synchronizes,
        )
        if self._schedule is not None:
            self._recorder.step(_STEP_NAME.format(self.step_num))
        if self._paused:
            self._recorder.pause()

    def _begin_sources(self) -> list[Operators | DeviceActivity]:
        """Return the wanted recorders of PyTorch's operators and CUDA devices."""
        sources: list[Operators | DeviceActivity] = []
        if self._wants_operators is True or (self._wants_operators == "auto" and "torch" in sys.modules):
            from cprofiling.recording.torch_operators import collect

            devices = None
            if self._activities is not None or Resource.NPU not in self._resource:
                devices = {each for each in ON_DEVICES if self._records(each, Resource.NPU)}
            operators = collect.begin(
                host=self._records(ProfilerActivity.CPU, Resource.CPU),
                devices=None if devices is None else frozenset(each.name for each in devices),
                record_shapes=self._shapes,
                profile_memory=self._memory,
                with_stack=self._stack,
                with_flops=self._flops,
                is_wanted=self._wants_operators is True,
            )
            sources += [] if operators is None else [operators]
        by_torch = bool(sources) and torch_reason(ProfilerActivity.CUDA) is None
        if self._records(ProfilerActivity.CUDA, Resource.NPU) and not by_torch:
            from cprofiling.devices import cupti

            if cupti.missing_reason() is None:
                sources.append(cupti.DeviceActivity(is_wanted=self._activities is not None))
        return sources

    def _warm_up(self) -> None:
        """Warm up for a cycle, and undo that if the schedule skipped it."""
        for source in self._sources:
            if self.current_action is ProfilerAction.WARMUP:
                source.prepare()
            elif self.current_action is ProfilerAction.NONE:
                source.cancel()

    def _finish_last_cycle(self) -> bool:
        """End the cycle that the run ends in.

        Returns False if it is empty and left out: the last step() of a loop begins a step, too, and must not replace
        the cycle before.
        """
        before = self._recording
        self._finish_cycle()
        kinds = self._finished().column("kind") or ()
        if self._schedule is None or before is None or any(KINDS[kind] not in ("step", "counter") for kind in kinds):
            return True
        self._recording = before
        self._cycles -= 1
        had_begun = self._cycle_ended_before != self.step_num
        self._note = f"{self._where()}: {_NOTHING_OF_IT}" if had_begun else None
        return False

    def _finish_cycle(self) -> None:
        recorder, self._recorder = self._recorder, None
        assert recorder is not None  # noqa: S101 the callers have looked
        self._note_threads()
        for source in self._sources:
            source.end()
        self._since_epoch_ns = recorder.since_epoch_ns
        recording = recorder.finish(Recording)
        for source in self._sources:
            source.join(recording)
        self._cycles += 1
        self._keep(recording)

    def _keep(self, recording: Recording) -> None:
        """Describe and finish a recording, for all reports from now on."""
        from cprofiling.recording import metadata

        described = metadata.of_recording(recording, self._note, self._since_epoch_ns)
        for key, value in (described | self._metadata).items():
            recording._set_fact(key, value)
        metadata.name_process(recording, {tid: thread.name for tid, thread in self._threads.items()})
        recording._finish()
        self._recording = recording

    def _note_threads(self) -> None:
        import threading

        for thread in threading.enumerate():
            self._threads.setdefault(thread.native_id, thread)

    def _unrecorded(self) -> str | None:
        """Return planned recording that a run ending now leaves out, or None."""
        if self._schedule is None:
            return None
        where = self._where()
        if self.current_action in _RECORDING:
            return (
                f"{where}, which no step() has ended: the cycle is incomplete, its trace has what there is up to here"
            )
        if self._cycles == 0:
            return f"{where}: no cycle of its schedule was recorded"
        if self.current_action is ProfilerAction.WARMUP:
            return f"{where}: {_NOTHING_OF_IT}"
        return None

    def _where(self) -> str:
        """Return the place in the schedule where a run was stopped."""
        where = f"the recording was stopped in step {self.step_num}"
        describe = getattr(self._schedule, "describe", None)
        return where if describe is None else f"{where} ({describe(self.step_num)})"


def _name_of_thread() -> str | None:
    """Return the name of the thread that calls."""
    threading = sys.modules["threading"]
    thread = threading._active.get(threading.get_ident())
    return None if thread is None else thread.name


def _checked_file(file: Any, form: RecordFormat) -> Any:
    if file is None:
        return None
    if form is not RecordFormat.ChromeTrace:
        raise ValueError("file is for the format ChromeTrace: use to_pandas() for a DataFrame")
    from cprofiling.recording.traces import chrome_writer  # at the end of a process it may not be importable

    if isinstance(file, (str, bytes, os.PathLike)):
        path = checks.path("file", file)
        chrome_writer.check_name(path)
        return path
    if not hasattr(file, "write"):
        raise TypeError(f"file must be a path or an open file, got {shown_value(file)}")
    chrome_writer.checked_writer(file)
    return file
