"""Records of worker processes, in files that the main process reads.

A file has one JSON text per line. Each line is written at once, so that the records of a killed worker can be read. An
incomplete last line is left until it is complete.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cprofiling._internal import environment, process
from cprofiling._internal.files import make_folders
from cprofiling._internal.log import complain
from cprofiling.layers.memory import StageMemory
from cprofiling.layers.signatures import StageIOSignature
from cprofiling.nodes.profiler import Profiler

if TYPE_CHECKING:
    from cprofiling.nodes.stats import NodeProfilingStats

_FOLDER = "_CPROFILING_WORKER_FOLDER"  # in the environment: where the workers of a process write
_ENDING = ".jsonl"
STAGE = "inference"  # of the Profilers that add up; nobody sees it


class WorkerWriter:
    """Write the records of a worker for its main process."""

    def __init__(self, folder: str) -> None:
        self._signatures: dict[str, Any] = {}
        self._descriptor = -1
        try:
            make_folders(folder)
            path = os.path.join(folder, f"{os.getpid()}_{os.urandom(8).hex()}{_ENDING}")
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            complain(f"[Profiler] The records of this worker are lost: cannot write to {folder!a}: {error.strerror}")

    def write(self, **record: Any) -> None:
        """Write a record for the main process, a signature only if it is new."""
        if "signature" in record:
            made = record["signature"]
            if self._signatures.get(made["stage_name"]) == made:
                return
            self._signatures[made["stage_name"]] = made
        if self._descriptor < 0:
            return
        line = json.dumps({"rank": process.rank(), **record}).encode("ascii") + b"\n"
        try:
            if os.write(self._descriptor, line) != len(line):
                raise OSError(0, "there is no room")
        except OSError as error:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1
            complain(f"[Profiler] Further records of this worker are lost: {error.strerror}")


class Uses:
    """Uses of stages in one process."""

    def __init__(self) -> None:
        self.profiler = Profiler()
        self.profiler._count_no_nodes()  # noqa: SLF001 as nodes that are off cost more where some Profiler is on
        self.profiler.set_profiling(True)
        self.memories: dict[str, StageMemory] = {}
        self.faults: dict[str, list[int]] = {}  # errors and cancellations by stage
        self.checkpoints: dict[str, StageMemory] = {}

    def rows(self) -> dict[str, NodeProfilingStats]:
        """Return the times by stage."""
        return {row.node_name: row for row in self.profiler.get_profiling_summary()}

    def add_memory(self, name: str, memory: StageMemory | None) -> None:
        """Keep the memory after a use, with the highest peaks of all."""
        if memory is not None:
            self.memories[name] = memory.with_peaks_of(self.memories.get(name))

    def add_fault(self, name: str, *, is_cancelled: bool) -> None:
        """Count a use that an exception ended."""
        self.faults.setdefault(name, [0, 0])[is_cancelled] += 1


class WorkerProcess(Uses):
    """Records of one worker so far."""

    def __init__(self, path: Path, begin: int) -> None:
        super().__init__()
        self.rank = 0
        self.signatures: dict[str, StageIOSignature] = {}
        self._path = path
        self._read = begin

    def read(self) -> None:
        """Read the new records."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                whole, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return
        except OSError as error:
            _complain_of_reading(self._path, error)
            return
        self._read += len(whole) + len(newline)
        for line in whole.splitlines():
            with suppress(ValueError, KeyError, TypeError):  # a line that somebody else has written
                self._add(json.loads(line))

    def _add(self, record: dict[str, Any]) -> None:
        self.rank = int(record["rank"])
        if "signature" in record:
            signature = StageIOSignature(**record["signature"])
            self.signatures[signature.stage_name] = signature
        elif "checkpoint" in record:
            self.checkpoints[record["checkpoint"]] = StageMemory(*record["memory"])
        elif "is_cancelled" in record:
            self.add_fault(record["name"], is_cancelled=bool(record["is_cancelled"]))
        else:
            self.profiler.record(STAGE, record["name"], record["ms"])
            self.add_memory(record["name"], None if record["memory"] is None else StageMemory(*record["memory"]))


class WorkerRecords:
    """Reads what the workers of this process write."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._files: dict[str, WorkerProcess] = {}
        self._begins: dict[str, int] = {}

    def open(self) -> None:
        """Choose a folder, which child processes find and make."""
        if self._folder is None:
            self._folder = Path(tempfile.gettempdir(), f"cprofiling-workers-{os.getuid()}-{os.urandom(16).hex()}")
            os.environ[_FOLDER] = str(self._folder)

    def processes(self) -> list[WorkerProcess]:
        """Return the workers and their records up to now, by rank."""
        for path in self._paths():
            if path.name not in self._files:
                self._files[path.name] = WorkerProcess(path, self._begins.get(path.name, 0))
        for each in self._files.values():
            each.read()
        return sorted(self._files.values(), key=lambda each: each.rank)

    def pass_by(self) -> None:
        """Ignore all records written so far."""
        self._files = {}
        for path in self._paths():
            with suppress(OSError):
                self._begins[path.name] = path.stat().st_size

    def _paths(self) -> list[Path]:
        if self._folder is None:
            return []
        try:
            return sorted(path for path in self._folder.iterdir() if path.name.endswith(_ENDING))
        except FileNotFoundError:  # no worker has written
            return []
        except OSError as error:
            _complain_of_reading(self._folder, error)
            return []

    def remove(self) -> None:
        """Remove the folder."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _complain_of_reading(path: Path, error: OSError) -> None:
    complain(f"[Profiler] Records of workers are missing: cannot read {str(path)!a}: {error.strerror}")


def folder_of_main() -> str | None:
    """Return the folder that the main process reads, if any."""
    return environment.text(_FOLDER)
