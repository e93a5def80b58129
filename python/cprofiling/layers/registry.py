"""Times, memory and signatures of a run's stages, with those of workers."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from cprofiling import _core
from cprofiling._internal import process
from cprofiling._internal.text import shown_value
from cprofiling.layers.signatures import SCHEMA_VERSION as SIGNATURE_VERSION
from cprofiling.layers.signatures import StageIOSignature
from cprofiling.layers.workers import STAGE, Uses, WorkerRecords, WorkerWriter
from cprofiling.nodes.stats import ExecutionStage, NodeProfilingStats

if TYPE_CHECKING:
    from cprofiling.layers.memory import StageMemory
    from cprofiling.layers.signatures import Inputs

SCHEMA_VERSION = 1

_NS_PER_MS = 1e6
_DIGITS = 6  # of milliseconds: nanoseconds
_GIBIBYTE = 1024**3
_NO_TIMES = (0.0,) * 7  # of a stage that never succeeded
_NEVER = 2**63 - 1  # later than any time


class Registry:
    """Adds up each use of a stage. Any thread may use it at any time.

    Attributes:
        record_ms: Adds a use that succeeded to the times: called with STAGE, the name, and ms.
        reset_ns: When the stages were forgotten last, as ``perf_counter_ns``; uses that began before do not count.
        ended_ns: When the latest use ended.
        latest: The memory after the latest use of each stage.
        worker: Where the records of this process go too, if it works for another one.
        beside: What somebody has a stage's part of the report say beside its figures.
        made_signatures: Signatures that somebody has made, by stage: they go before those of calls.
        report_memory: Makes the report's part on the checkpoints.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.reset_ns = 0
        self.worker: WorkerWriter | None = None
        self.records = WorkerRecords()
        self.report_memory: Callable[[Mapping[str, StageMemory]], dict[str, Any]] = checkpoints_report
        self._begin("", {})
        process.call_at_fork(after_in_child=self._after_fork_in_child)

    def _begin(self, request_id: str, metadata: Mapping[str, Any]) -> None:
        self.request_id = request_id
        self.metadata = dict(metadata)
        self.ended_ns = 0
        self.latest: dict[str, StageMemory | None] = {}
        self._begun_ns: int | None = None
        self._identity = os.urandom(16).hex()
        self._own = Uses()
        self.record_ms = self._own.profiler.record
        self._signatures: dict[str, tuple[Inputs, Any]] = {}
        self.beside: dict[str, dict[str, Any]] = {}
        self.made_signatures: dict[str, StageIOSignature] = {}

    def reset(self, request_id: str, metadata: Mapping[str, Any], now_ns: int) -> None:
        """Forget everything, and begin with a request."""
        with self._lock:
            self._begin(request_id, metadata)
            self.reset_ns = self._begun_ns = now_ns
            self.records.pass_by()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Ignore the uses that begin meanwhile, in any thread."""
        before, self.reset_ns = self.reset_ns, _NEVER
        try:
            yield
        finally:
            if self.reset_ns == _NEVER:
                self.reset_ns = before

    def _after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        self.reset_ns = perf_counter_ns()
        self.worker = None
        self.records = WorkerRecords()
        self._begin(self.request_id, self.metadata)

    # ---- Taking notes

    def add(self, name: str, start_ns: int, end_ns: int, memory: StageMemory | None) -> None:
        """Add a use that succeeded."""
        if start_ns >= self.reset_ns:
            self.add_ms(name, (end_ns - start_ns) / _NS_PER_MS, start_ns, end_ns, memory)

    def add_ms(self, name: str, elapsed_ms: float, start_ns: int, end_ns: int, memory: StageMemory | None) -> None:
        """Add a use that took so long, between these times."""
        self.record_ms(STAGE, name, elapsed_ms)
        with self._lock:
            self._begun_ns = start_ns if self._begun_ns is None else min(self._begun_ns, start_ns)
            self.ended_ns = max(self.ended_ns, end_ns)
            self.latest[name] = memory
            self._own.add_memory(name, memory)
        if self.worker is not None:
            self.worker.write(name=name, ms=elapsed_ms, memory=memory)

    def add_fault(self, name: str, start_ns: int, *, is_cancelled: bool) -> None:
        """Count a use that an exception ended."""
        with self._lock:
            if start_ns < self.reset_ns:
                return
            self._own.add_fault(name, is_cancelled=is_cancelled)
        if self.worker is not None:
            self.worker.write(name=name, is_cancelled=is_cancelled)

    def add_checkpoint(self, name: str, memory: StageMemory) -> None:
        """Keep the memory at a moment, the latest under each name."""
        with self._lock:
            if self.reset_ns == _NEVER:
                return
            self._own.checkpoints[name] = memory
        if self.worker is not None:
            self.worker.write(checkpoint=name, memory=memory)

    def checkpoints(self) -> dict[str, StageMemory]:
        """Return the kept memory by name, of this process before workers'."""
        made: dict[str, StageMemory] = {}
        for each in self.records.processes():
            for name, memory in each.checkpoints.items():
                made[name] = max(memory, made.get(name, memory), key=lambda each: each.peak_reserved)
        with self._lock:
            return {**made, **self._own.checkpoints}

    def forget_checkpoints(self) -> None:
        """Forget the memory that was kept."""
        with self._lock:
            for each in (self._own, *self.records.processes()):
                each.checkpoints.clear()

    def add_signature(self, name: str, inputs: Inputs, output: Any) -> None:
        """Keep a stage's latest signature."""
        self._signatures[name] = (inputs, output)
        if self.worker is not None:
            self.worker.write(signature=StageIOSignature.of_call(name, inputs, output).to_dict())

    def set_metadata(self, key: str, value: Any) -> None:
        """Keep an entry for the report's metadata."""
        checked = json_value(f"metadata {key!a}", value)
        with self._lock:
            self.metadata[key] = checked

    # ---- Telling

    def is_empty(self) -> bool:
        """Tell whether no stage was used."""
        return not any(each.rows() or each.faults for each in (self._own, *self.records.processes()))

    def signatures(self) -> dict[str, StageIOSignature]:
        """Return the signatures by stage, of this process or the lowest rank."""
        made: dict[str, StageIOSignature] = {}
        for each in reversed(self.records.processes()):
            made.update(each.signatures)
        made.update((name, StageIOSignature.of_call(name, *call)) for name, call in dict(self._signatures).items())
        return {**made, **self.made_signatures}

    def signature_file(self) -> dict[str, Any]:
        """Return the signatures as their file has them."""
        return {
            "schema_version": SIGNATURE_VERSION,
            "request_id": self.request_id,
            "timestamp": _now(),
            "stages": {name: signature.to_dict() for name, signature in self.signatures().items()},
        }

    def report(self) -> dict[str, Any]:
        """Return the timing report."""
        with self._lock:
            stages, longest_ms = self._stages()
            own_ms = 0.0 if self._begun_ns is None else max(self.ended_ns - self._begun_ns, 0) / _NS_PER_MS
            made: dict[str, Any] = {
                "schema_version": SCHEMA_VERSION,
                "request_id": self.request_id,
                "timestamp": _now(),
                "wall_clock_ms": round(max(own_ms, longest_ms), _DIGITS),
                "total_stages_ms": round(sum(stage["duration_ms"] for stage in stages.values()), _DIGITS),
                "num_stages": len(stages),
                "stages": stages,
                "metadata": dict(self.metadata),
                "rank": process.rank(),
                "world_size": process.world_size(),
                "process": {"host": process.host(), "pid": os.getpid(), "id": self._identity},
            }
            checkpoints = self.checkpoints()
            if checkpoints:
                made["memory"] = self.report_memory(checkpoints)
            return made

    def _stages(self) -> tuple[dict[str, dict[str, Any]], float]:
        """Return the stages by their slowest process, and workers' longest in ms."""
        used = [(process.rank(), self._own), *((each.rank, each) for each in self.records.processes())]
        processes = [(rank, uses, uses.rows()) for rank, uses in used]
        stages: dict[str, dict[str, Any]] = {}
        longest_ms = 0.0
        for name in dict.fromkeys(name for _, uses, rows in processes for name in (*rows, *uses.faults)):
            ranks = sorted(
                ((rank, uses is self._own, rows[name], uses.memories.get(name)) for rank, uses, rows in processes
                 if name in rows),
                key=lambda each: each[:2],
            )  # fmt: skip
            is_of_workers = not all(is_own for _, is_own, _, _ in ranks)
            row = max((row for _, _, row, _ in ranks), key=lambda row: row.total_ms, default=None)
            row = row or NodeProfilingStats(name, ExecutionStage.INFERENCE, 0, *_NO_TIMES)
            longest_ms = max(longest_ms, row.total_ms if is_of_workers else 0.0)
            stage = {**_times_of(row), "percentage": 0.0}
            faults = [uses.faults.get(name, (0, 0)) for _, uses, _ in processes]
            for key, numbers in zip(("error_count", "cancelled_count"), zip(*faults, strict=True), strict=True):
                if any(numbers):
                    stage[key] = sum(numbers)
            known = [memory for _, _, _, memory in ranks if memory is not None]
            memory = self._own.memories.get(name) or max(known, key=lambda each: each.peak_reserved, default=None)
            if memory is not None:
                stage["memory"] = memory.as_mb()
            if is_of_workers:
                figures = [
                    {
                        "rank": rank,
                        **_times_of(row),
                        "peak_memory_gb": None if memory is None else round(memory.peak_reserved / _GIBIBYTE, 4),
                    }
                    for rank, _, row, memory in ranks
                ]
                stage["parallel_info"] = {"num_ranks": len(figures), "ranks": figures}
            stages[name] = {**stage, **self.beside.get(name, {})}
        total_ms = sum(stage["duration_ms"] for stage in stages.values())
        for stage in stages.values():
            stage["percentage"] = round(stage["duration_ms"] / total_ms * 100, 2) if total_ms > 0 else 0.0
        return stages, longest_ms


def _times_of(row: NodeProfilingStats) -> dict[str, Any]:
    """Return the calls and times of a stage as reports have them, in ms."""
    times = {"duration_ms": row.total_ms} | {
        name: getattr(row, name) for name in ("mean_ms", "min_ms", "max_ms", "std_ms")
    }
    return {"count": row.count, **{name: round(value, _DIGITS) for name, value in times.items()}}


def checkpoints_report(checkpoints: Mapping[str, StageMemory]) -> dict[str, Any]:
    """Return memory at several moments, and the highest of them."""
    highest = max(checkpoints.values(), key=lambda each: each.peak_reserved).as_mb()
    return {
        "peak_reserved_mb": highest["peak_reserved_mb"],
        "peak_allocated_mb": highest["peak_allocated_mb"],
        "snapshots": {name: memory.as_mb() for name, memory in checkpoints.items()},
    }


def json_value(parameter: str, value: Any) -> Any:
    """Return a copy of a value in JSON.

    Raises TypeError and ValueError, naming the parameter, where JSON cannot express it.
    """
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{parameter} must be a value that JSON can say, got {shown_value(value)}: {error}") from None


def _now() -> str:
    return datetime.now(timezone.utc).isoformat()


checked_name = _core.convert_name
