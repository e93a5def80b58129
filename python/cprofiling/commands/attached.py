"""What ``cprofiling attach`` does inside the program that it measures.

It runs in a thread of its own: what the main thread is amid when it starts that may hold any lock.
"""

from __future__ import annotations

import argparse
import gc
import sys
import traceback
from _thread import RLock
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any
from weakref import ref

from cprofiling import _core
from cprofiling._internal.process import hold_at_fork
from cprofiling._internal.text import shown_names
from cprofiling.monitoring import live_writer
from cprofiling.nodes.from_patterns import source
from cprofiling.nodes.from_patterns.import_hook import NodeFinder, wrap_members
from cprofiling.nodes.from_patterns.patterns import MAIN, Patterns
from cprofiling.nodes.profiler import PipelineProfiling, Profiler, default_profiler

if TYPE_CHECKING:
    from cprofiling.monitoring.server import Server

_PACKAGE = __name__.partition(".")[0]


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Do what the command asks for, and return what it is to tell.

    Of a failure that is ``error``, a line. Where nothing was attached before, nothing is then.
    """
    global _attached
    with _lock:
        try:
            if not request["off"]:
                return _attach(request)
            attachment, _attached = _attached, None
            if attachment is None:
                return {"error": "nothing was attached"}
            paths = [] if attachment.file is None else [attachment.file.path]
            attachment.undo()
            return {"live": paths}
        except OSError as error:
            place = "" if error.filename is None else f" {error.filename!a}:"
            return {"error": f"OSError:{place} {error.strerror or error}"}
        except Exception as error:  # noqa: BLE001 the command tells
            return {"error": traceback.format_exception_only(error)[-1].strip()}


class Attachment:
    """What was changed in this program, to be undone.

    Attributes:
        file: The live file, unless the program itself has asked for it.
        server: The server.
    """

    def __init__(self) -> None:
        self.file: live_writer.LiveWriter | None = None
        self.server: Server | None = None
        self._finder: NodeFinder | None = None
        self._replaced: list[tuple[Any, str, Any, Any]] = []  # owner, name, original, node
        self._switched: list[ref[Profiler]] = []

    def name_nodes(self, texts: list[str]) -> list[str]:
        """Make nodes of the functions that patterns name, and of no others, and return remarks."""
        self.unname_nodes()
        patterns = Patterns(texts)
        spec = getattr(sys.modules.get(MAIN), "__spec__", None)
        for name, module in list(sys.modules.items()):
            package = name.partition(".")[0]
            names = (name, spec.name) if name == MAIN and spec is not None else (name,)
            if package == _PACKAGE or module is None:
                continue
            if package in sys.stdlib_module_names:
                selection = patterns.selection_of_loaded(name)
            else:
                selection = patterns.selection(*names)
            if selection is not None:
                self._replaced += wrap_members(module, selection)
        names_of = {
            id(original): f"{original.__module__}:{original.__qualname__}"
            for _, _, original, _ in self._replaced
            if isinstance(original, FunctionType)
        }
        self._replace_imported(names_of)
        self._finder = NodeFinder(patterns, None)
        sys.meta_path.insert(0, self._finder)
        others = {*sys.stdlib_module_names, _PACKAGE}
        remarks = list(
            patterns.complaints([name for name in list(sys.modules) if name.partition(".")[0] not in others])
        )
        if running := set(self._running(names_of)):
            remarks.append(f"running now, counted from their next call on: {shown_names(running)}")
        if held := set(self._held(names_of)):
            remarks.append(f"not covered, as others hold the functions already: {shown_names(held)}")
        return remarks

    def unname_nodes(self) -> None:
        """Put the functions back where their nodes still are."""
        for owner, name, original, node in reversed(self._replaced):
            if vars(owner).get(name) is node:
                setattr(owner, name, original)
        self._replaced.clear()
        if self._finder is not None:
            with suppress(ValueError):
                sys.meta_path.remove(self._finder)
            self._finder = None

    @property
    def nodes(self) -> int:
        """How many functions are nodes."""
        return len({id(original) for _, _, original, _ in self._replaced})

    def switch_on(self, profiler: Profiler) -> None:
        """Switch a Profiler on that is off, with the statistics that it has."""
        if not profiler.profiling_enabled:
            rows = profiler._rows(None)  # noqa: SLF001 the package's own
            Profiler.set_profiling(profiler, True, skip_first_n=rows.skip_first_n, median=rows.median)
            self._switched.append(ref(profiler))

    def undo(self) -> None:
        """Leave the program as it was."""
        for each in self._switched:
            if (profiler := each()) is not None:
                Profiler.set_profiling(profiler, False)
        self._switched.clear()
        self.unname_nodes()
        if self.server is not None:
            self.server.stop()
        if self.file is not None:
            live_writer.end(self.file)
        self.server = self.file = None

    def _replace_imported(self, names_of: dict[int, str]) -> None:
        """Put nodes where other modules have imported the functions."""
        nodes = {id(original): (original, node) for _, _, original, node in self._replaced}
        for module in list(sys.modules.values()):
            if not issubclass(type(module), ModuleType):
                continue
            for name, value in list(object.__getattribute__(module, "__dict__").items()):  # lazy ones stay so
                if id(value) in names_of:
                    original, node = nodes[id(value)]
                    with suppress(Exception):
                        setattr(module, name, node)
                        self._replaced.append((module, name, original, node))

    def _running(self, names_of: dict[int, str]) -> Iterator[str]:
        """Yield functions that threads are in; their frames go on as they are."""
        codes = {
            original.__code__: names_of[id(original)]
            for _, _, original, _ in self._replaced
            if id(original) in names_of
        }
        has_gil: bool = getattr(sys, "_is_gil_enabled", lambda: True)()  # without it, the frames change meanwhile
        frames: list[FrameType | None] = list(sys._current_frames().values()) if has_gil else []  # noqa: SLF001
        while frames:
            frame = frames.pop()
            if frame is not None:
                frames.append(frame.f_back)
                if frame.f_code in codes:
                    yield codes[frame.f_code]

    def _held(self, names_of: dict[int, str]) -> Iterator[str]:
        """Yield functions that something else refers to than a module, with its type."""
        originals = [original for _, _, original, _ in self._replaced if id(original) in names_of]
        own = {id(originals), *map(id, self._replaced)}
        nodes = [node for *_, node in self._replaced]
        own.update(map(id, nodes), (id(vars(node)) for node in nodes if hasattr(node, "__dict__")))
        wanted = list(map(id, originals))
        for holder in gc.get_referrers(*originals):
            held = list(map(id, gc.get_referents(holder)))
            is_own = id(holder) in own or held in (wanted, wanted[::-1])  # the arguments of the call, in either order
            if not is_own and type(holder) is not FrameType:
                yield from (f"{names_of[each]} in a {type(holder).__name__}" for each in held if each in names_of)


_lock = RLock()
hold_at_fork(_lock)
_attached: Attachment | None = None


def _attach(request: dict[str, Any]) -> dict[str, Any]:
    """Measure this program."""
    global _attached  # noqa: PLW0603 there is one program
    attachment = _attached or Attachment()
    remarks: list[str] = []
    told: dict[str, Any] = {"served": [], "remarks": remarks}
    server = request["server"]
    if server is not None and attachment.server is not None:
        return {"error": f"it serves on {attachment.server.address} already: give --off first"}
    try:
        if request["patterns"]:
            remarks += attachment.name_nodes(request["patterns"])
        profilers = [*_profilers(), *([source.PROFILER] if attachment.nodes else [])]
        if request["live"] is not None:
            file, is_new = live_writer.keep_all(request["live"], remarks.append, profilers)
            attachment.file = file if is_new else attachment.file
            if attachment.nodes and not file.holds(source.PROFILER):
                file.add(source.PROFILER, "named")
        if server is not None:
            from cprofiling.commands.serve import serve

            attachment.server, told["served"] = serve(
                argparse.Namespace(**server, node=attachment.nodes), request["token"]
            )
        for profiler in profilers:
            attachment.switch_on(profiler)
    except BaseException:
        if _attached is None:
            attachment.undo()
        raise
    _attached = attachment
    files = map(live_writer.file_of, profilers)  # the program itself may have asked for another one
    told["live"] = list(dict.fromkeys(file.path for file in files if file is not None))
    return {**told, "nodes": attachment.nodes, "profilers": len(profilers)}


def _profilers() -> Iterator[Profiler]:
    """Yield the Profilers of this program, but that of named nodes, as the garbage collector knows them."""
    classes = list[type](_with_subclasses(Profiler)) + list(_with_subclasses(PipelineProfiling))
    known = set(map(id, classes))
    yield default_profiler
    seen = {id(default_profiler), id(source.PROFILER)}
    for each in gc.get_referrers(*classes):
        if id(type(each)) in known:
            profiler = each if isinstance(each, Profiler) else _core.profiler_of(each)
            if profiler is not None and id(profiler) not in seen:
                seen.add(id(profiler))
                yield profiler


def _with_subclasses(cls: type) -> Iterator[type]:
    yield cls
    below: list[type] = type.__subclasses__(cls)
    for each in below:
        yield from _with_subclasses(each)
