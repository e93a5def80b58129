"""Folders and names of the files of a run.

The main process of rank 0 has a folder of its own for each run, and the plain names in it. Other ranks and processes
join it, and add their rank and number to each name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

from cprofiling._internal import environment, process
from cprofiling._internal.files import atomic_writer, close, make_folders
from cprofiling._internal.text import file_name_of

_TREE = ("work_dirs", "profiler_output")
_JOINED = "_CPROFILING_RUN_FOLDERS"  # in the environment of child processes: the folders of the run by pipeline
_EARLY = ".ranks"  # in a folder that another rank has made before rank 0 came
_MODE = 0o700

_folders: dict[str, Path] = {}


def folder() -> Path:
    """Return the folder of this run, and make it.

    That of ``CPROFILING_OUTPUT_DIR`` is taken as it is. Else it is made of the pipeline's name and the minute in which
    it is first asked for, below the folder in which the process works then; where an earlier run has that name, ``-2``
    is added, or a higher number.

    Raises OSError where it cannot be made.
    """
    given = environment.text(environment.OUTPUT_DIR)
    if given is not None:
        path = Path(given)
        make_folders(path)
        return path
    pipeline = file_name_of(environment.text(environment.PIPELINE) or environment.DEFAULT_PIPELINE)
    if pipeline not in _folders or not _folders[pipeline].is_dir():
        told = None  # by the run's main process, to its children
        if not process.is_main():
            with suppress(ValueError, KeyError, TypeError):
                told = Path(json.loads(environment.text(_JOINED) or "{}")[pipeline])
        _folders[pipeline] = told if told is not None and told.is_dir() else _made(pipeline)
    return _folders[pipeline]


def forget() -> None:
    """Take part in no run any more."""
    _folders.clear()
    os.environ.pop(_JOINED, None)


def _made(pipeline: str) -> Path:
    """Make a folder for this minute, told to child processes, or join one.

    Without one to join the first is made, for rank 0 to take.
    """
    parent = Path(*_TREE, pipeline).absolute()
    make_folders(parent)
    minute = datetime.now().strftime("%Y%m%d_%H%M")  # noqa: DTZ005 the name is for people, in their time
    if process.is_main() and process.rank() == 0:
        made = next(filter(_is_claimed, _numbered(parent, minute)))
        known = json.loads(environment.text(_JOINED) or "{}")
        os.environ[_JOINED] = json.dumps({**known, pipeline: str(made)})
        return made
    latest = parent / minute
    try:
        latest.mkdir(_MODE)
        (latest / _EARLY).touch(0o600, exist_ok=False)
    except FileExistsError:
        for path in _numbered(parent, minute):
            if not path.is_dir():
                break
            latest = path
    return latest


def _numbered(parent: Path, minute: str) -> Iterator[Path]:
    yield parent / minute
    for number in count(2):
        yield parent / f"{minute}-{number}"


def _is_claimed(path: Path) -> bool:
    try:
        path.mkdir(_MODE)
    except FileExistsError:
        try:
            (path / _EARLY).unlink()
        except OSError:
            return False
    return True


def named(where: Path, stem: str, ending: str) -> Path:
    """Return the path of a run's file, with a rank but for the main process."""
    rank = process.rank()
    if process.is_main() and rank == 0:
        return where / f"{stem}{ending}"
    return where / f"{stem}_rank{rank}_{os.getpid()}{ending}"


def reserved(where: Path, stem: str, ending: str) -> tuple[Path, str]:
    """Return the path and stem of a new file, numbered where it is taken."""
    numbers, numbered = count(2), stem
    while True:
        path = where / f"{numbered}{ending}"
        try:
            close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            numbered = f"{stem}-{next(numbers)}"
        else:
            return path, numbered


def write_json(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write a JSON file completely or not at all, and make its folder."""
    text = json.dumps(content, indent=2, allow_nan=False)
    parent = Path(path).parent
    if not parent.exists():
        make_folders(parent)
    with atomic_writer(path) as file:
        file.write(text.encode("ascii") + b"\n")
