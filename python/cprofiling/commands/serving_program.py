"""Program with a server beside it, for the command ``serve``."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import grpc

from cprofiling._internal.messages import say
from cprofiling._internal.text import shown_value
from cprofiling.commands.program import Launch, Program, say_unmatched
from cprofiling.monitoring.server.addresses import checked_address, is_local, socket_path
from cprofiling.monitoring.server.messages import Refusal
from cprofiling.monitoring.server.serving import serve
from cprofiling.nodes import profiler
from cprofiling.nodes.from_patterns import source
from cprofiling.nodes.from_patterns.patterns import Patterns

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

DEFAULT = "default"
NAMED = "nodes"  # that the command line names


class PlacedPipeline:
    """Pipeline of the program, looked up at each call as it may change."""

    def __init__(self, module: str, attribute: str) -> None:
        """Note the module's name, and the dotted path in it."""
        self._module = module
        self._attribute = attribute

    @property
    def profiling_enabled(self) -> bool:
        """As of the pipeline."""
        return bool(self._found().profiling_enabled)

    def set_profiling(self, enabled: bool, **options: Any) -> None:
        """As of the pipeline."""
        self._found().set_profiling(enabled, **options)

    def get_profiling_summary(self, stage: str | None) -> Any:
        """As of the pipeline."""
        return self._found().get_profiling_summary(stage)

    def reset_profiling(self) -> None:
        """As of the pipeline."""
        self._found().reset_profiling()

    def _found(self) -> Any:
        found: Any = sys.modules.get(self._module)
        for name in self._attribute.split("."):
            found = getattr(found, name, None)
        if found is None:
            place = shown_value(f"{self._module}:{self._attribute}")
            raise Refusal(grpc.StatusCode.NOT_FOUND, f"the program has no {place} yet")
        return found


class _NotRecorded:
    """Stand-in for a recording, with nodes and unmatched patterns only."""

    def __init__(self, patterns: Patterns) -> None:
        self.patterns = patterns
        self.module: str | None = None

    def begin(self) -> None:
        """Report at the end of this process, but not of its children."""
        atexit.register(self._conclude, os.getpid())

    def _conclude(self, speaker: int) -> None:
        if os.getpid() == speaker:
            say_unmatched(self.patterns)


class ServedProgram(Program):
    """Served program.

    Processes that it spawns are not served.
    """

    def __init__(self, arguments: Sequence[str], patterns: Patterns) -> None:
        """Note program, arguments and nodes.

        Raises CannotRunError if there is no such program.
        """
        super().__init__(arguments, _NotRecorded(patterns))  # type: ignore[arg-type]  # it is asked for no more

    def _watch_spawning(self, spawn: ModuleType) -> None:
        """Leave them as they are."""


def prepare(
    arguments: Sequence[str],
    patterns: Sequence[str],
    *,
    sessions: Sequence[tuple[str, str, str]],
    is_on: bool,
    serving: dict[str, Any],
    is_open: bool,
) -> Launch:
    """Serve, and return the exception that starts the program.

    Args:
        arguments: The program and its arguments.
        patterns: Which functions are nodes, of a session of their own; see ``node_patterns``.
        sessions: Name, module and attribute of each pipeline that is a session.
        is_on: Whether these, and the default Profiler, are on when the program begins.
        serving: Further arguments of ``serve``.
        is_open: Whether no token is wanted, whatever ``serving`` has; other machines must not reach the address then.

    Raises CannotRunError where there is no such program, and what ``serve`` raises.
    """
    program = ServedProgram(arguments, Patterns(patterns))
    targets: dict[str, Any] = {DEFAULT: profiler.default_profiler}
    if patterns:
        targets[NAMED] = source.PROFILER
    for name, module, attribute in sessions:
        if name in targets:
            raise ValueError(f"there is a session {shown_value(name)} already")
        targets[name] = PlacedPipeline(module, attribute)
    if is_open:
        serving["token"] = None
        if not is_local(checked_address(serving["address"])):
            raise ValueError(f"--no-token needs unix:PATH or an address such as 127.0.0.1:0, not {serving['address']}")
    server = serve(targets, **serving)
    if is_on:
        profiler.set_profiling(True)
        source.PROFILER.set_profiling(bool(patterns))
    say(f"serving on {server.address}")
    if serving["token"] is None:
        if socket_path(server.address) is not None:
            whose = "this user's programs"
        elif is_local(server.address):
            whose = "all users and programs of this machine"
        else:
            whose = "all who reach it"
        say(f"without a token: {whose} can control it, clients of cuvis-ai-core among them")
    sys.excepthook = program.launcher
    return Launch()
