"""Record processes that a program spawns by multiprocessing.

Each begins as the program did.
"""

from __future__ import annotations

import functools
import os
import runpy
from typing import TYPE_CHECKING

from cprofiling.commands.run_recording import RunRecording
from cprofiling.nodes.from_patterns import source
from cprofiling.nodes.from_patterns.import_hook import NodeFinder
from cprofiling.nodes.from_patterns.patterns import MAIN

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from cprofiling.nodes.from_patterns.patterns import Patterns

_KEY = "cprofiling"
# What a new process executes before it imports anything of the program. Not to find this package there is no fault.
_BEGINNING = """
import sys
sys.path.append({folder!r})
try:
    from cprofiling.commands.spawned import begin
except ImportError:
    begin = None
finally:
    sys.path.remove({folder!r})
if begin is not None:
    begin{arguments!r}
"""


def watch(spawn: ModuleType, recording: RunRecording) -> None:
    """Record new processes.

    spawn: the module ``multiprocessing.spawn``.
    """
    plain = spawn.get_preparation_data

    @functools.wraps(plain)
    def get_preparation_data(name: str) -> dict[str, Any]:
        data: dict[str, Any] = plain(name)
        main = (data.get("init_main_from_name"), data.get("init_main_from_path"))
        data[_KEY] = _Beginning(recording.output.path, recording.patterns.texts, *main)
        return data

    spawn.get_preparation_data = get_preparation_data  # type: ignore[attr-defined]


class _Beginning:
    """Data for a new process that starts a recording when unpickled."""

    def __init__(self, *arguments: object) -> None:
        self._arguments = arguments

    def __reduce__(self) -> tuple[Any, ...]:
        folder = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
        return exec, (_BEGINNING.format(folder=folder, arguments=self._arguments), {})


def begin(path: str, patterns: tuple[str, ...], module: str | None, script: str | None) -> None:
    """Record this spawned process.

    module or script: its future main module.
    """
    recording = RunRecording(path, patterns, is_first=False, speaks=False)
    finder = NodeFinder(recording.patterns, module)
    finder.install()
    finder.call_after("multiprocessing.spawn", functools.partial(watch, recording=recording))
    if script is not None:
        _compile_with_nodes(script, recording.patterns)
    try:
        recording.begin()
    except Exception:  # noqa: BLE001 the program goes on as without us
        return


def _compile_with_nodes(script: str, patterns: Patterns) -> None:
    """Compile the script with its nodes, as runpy uses another name."""
    plain = runpy._get_code_from_file  # type: ignore[attr-defined]  # noqa: SLF001 there is no other place

    @functools.wraps(plain)
    def get_code(*arguments: str) -> Any:
        found = plain(*arguments)  # the code, or a pair of it and the path
        selection = patterns.selection(MAIN) if os.path.abspath(arguments[-1]) == script else None
        code = None if selection is None else source.compiled_script(script, selection)
        if code is None:
            return found
        return (code, *found[1:]) if isinstance(found, tuple) else code

    runpy._get_code_from_file = get_code  # type: ignore[attr-defined]  # noqa: SLF001
