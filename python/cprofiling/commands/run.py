"""Command ``run``, to run a program as Python does, and record it."""

from __future__ import annotations

import builtins
import errno
import functools
import os
import pkgutil
import sys
import weakref
from importlib.machinery import BuiltinImporter, PathFinder, SourceFileLoader
from types import ModuleType
from typing import TYPE_CHECKING

from cprofiling import _core
from cprofiling._internal.messages import say
from cprofiling.commands.run_recording import RunRecording
from cprofiling.nodes.from_patterns import source
from cprofiling.nodes.from_patterns.import_hook import NodeFinder
from cprofiling.nodes.from_patterns.patterns import MAIN
from cprofiling.recording.output_names import UnusablePathError, checked_path, shown_path
from cprofiling.recording.traces import chrome_writer
from cprofiling.recording.whole_process import Automatic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CodeType

    Runnable = bytes | CodeType | Callable[[], object]  # as csrc/types.h has it

OUTPUT = "trace.json"
_WITH_VALUE = ("-o", "--output", "-n", "--node")
_PACKAGE = __name__.partition(".")[0]
# Loaded before sys.path has the program's folder: what lies there under such a name is never found by plain Python.
_FIRST = {
    "_collections_abc", "_sitebuiltins", "abc", "codecs", "encodings", "genericpath", "io", "os", "posixpath", "site",
    "sitecustomize", "stat", "usercustomize", "zipimport",
}  # fmt: skip


class Launch(BaseException):
    """Exception that unwinds this command, then starts the program."""

    def __str__(self) -> str:
        return "cprofiling run is a command: it runs no program inside another one"


class CannotRunError(Exception):
    """Missing program or place for its trace, with the exit ``status``."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def split(arguments: Sequence[str], with_value: Sequence[str] = _WITH_VALUE) -> tuple[list[str], list[str]]:
    """Split arguments of ``run`` from the program and its arguments.

    The program is ``-m`` with a module, or a script.

    with_value: options of the command that take a value, if not those of ``run``.
    """
    place = 0
    while place < len(arguments) and arguments[place].startswith("-"):
        argument = arguments[place]
        if argument == "--":
            return list(arguments[:place]), list(arguments[place + 1 :])
        if argument.startswith("-m"):
            break
        place += 2 if argument in with_value else 1
    return list(arguments[:place]), list(arguments[place:])


def prepare(output: str | None, patterns: Sequence[str], arguments: Sequence[str]) -> Launch:
    """Prepare to run and record a program, and return the Launch to raise.

    Args:
        output: Where the trace goes; None: as the environment says, or else ``trace.json``.
        patterns: Which functions are nodes; see ``node_patterns``.
        arguments: The program and its arguments, as ``split`` gives them; at least one.

    Raises CannotRunError or ValueError for what is wrong with the arguments.
    """
    automatic = Automatic.current
    if output is None and automatic is not None:
        path, is_first = automatic.output.path, automatic.output.is_owner
    else:
        path, is_first = _checked_output(OUTPUT if output is None else output), True
    recording = RunRecording(path, patterns, is_first=is_first)
    sys.excepthook = Program(arguments, recording).launcher
    return Launch()


def _checked_output(value: str) -> str:
    try:
        path = checked_path(value)
    except UnusablePathError as error:
        raise CannotRunError(f"cannot write the trace to {shown_path(value)}: {error}", 1) from None
    is_file = os.path.isfile(path) or not os.path.exists(path)
    if is_file and not path.endswith(chrome_writer.ENDINGS) and os.path.splitext(path)[1]:
        raise CannotRunError(
            f"cannot write the trace to {shown_path(value)}: its name must end in {', '.join(chrome_writer.ENDINGS)}", 2
        )
    return path


class Program:
    """Script, folder, archive or module, with its arguments.

    Folders and archives have a ``__main__``.
    """

    def __init__(self, arguments: Sequence[str], recording: RunRecording) -> None:
        self._recording = recording
        self._hook = sys.excepthook
        self.launcher = functools.partial(_core.run_program, self.prepare, self.finish)  # lives while it runs
        self._module: str | None = None
        self._main = weakref.ref(sys.modules[MAIN])  # what holds it makes its objects die late
        self._is_compiled = False  # whether the script is run from code of ours
        self._given = list(arguments)
        first, *rest = arguments
        if first.startswith("-m"):
            names = [first[2:], *rest] if first[2:] else rest
            if not names:
                raise CannotRunError("-m needs the name of a module", 2)
            self._module, *rest = names
            first = "-m"
        self._arguments = [first, *rest]
        self._path = _absolute(first)
        if self._module is None:
            self._check_script()
        recording.module = self._module

    def _check_script(self) -> None:
        try:
            os.stat(self._path)
            reason = None if os.access(self._path, os.R_OK) else os.strerror(errno.EACCES)
        except OSError as error:
            reason = error.strerror
        except ValueError:
            reason = "it has a NUL"
        if reason is not None:
            raise CannotRunError(f"cannot open {shown_path(self._arguments[0])}: {reason}", 2)

    def prepare(self) -> Runnable:
        """Set up Python's state for the program, and return its code or path."""
        sys.excepthook = self._hook
        _forget_launch()
        sys.modules[MAIN] = _new_main()
        self._main = weakref.ref(sys.modules[MAIN])
        run = self._resolved()
        sys.orig_argv = [*_interpreter(), *self._given]
        sys.argv = self._arguments
        finder = NodeFinder(self._recording.patterns, self._module)
        finder.install()
        finder.call_after("multiprocessing.spawn", self._watch_spawning)
        try:
            self._recording.begin()
        except Exception as error:  # noqa: BLE001 the program goes on as without us
            say(f"nothing is recorded: {error}")
        return run()

    def _resolved(self) -> Callable[[], Runnable]:
        """Put the program's folder first in ``sys.path``, and return its runner."""
        import runpy

        as_main = runpy._run_module_as_main  # type: ignore[attr-defined]  # noqa: SLF001 as the interpreter does
        if self._module is not None:
            _begin_path(_working_folder())
            return lambda: functools.partial(as_main, self._module)
        if pkgutil.get_importer(self._path) is not None:
            _begin_path(self._path, always=True)
            self._recording.folder = self._path
            return lambda: functools.partial(as_main, MAIN, False)
        _begin_path(os.path.dirname(os.path.realpath(self._arguments[0])))
        return self._script

    def _script(self) -> Runnable:
        """Return the script's code if it has matching functions, else its path."""
        selection = self._recording.patterns.selection(MAIN)
        if selection is not None:
            selection.note_module()
        code = None if selection is None else source.compiled_script(self._path, selection)
        if code is None:
            return os.fsencode(self._path)
        self._is_compiled = True
        main = sys.modules[MAIN]
        main.__file__, main.__cached__ = self._path, None  # type: ignore[attr-defined]
        main.__loader__ = SourceFileLoader(MAIN, self._path)
        return code

    def _watch_spawning(self, spawn: ModuleType) -> None:
        from cprofiling.commands import spawned

        spawned.watch(spawn, self._recording)

    def finish(self, failed: bool) -> None:
        """End the process as Python does after a program."""
        main = self._main()
        if main is not None and self._is_compiled:
            for name in ("__file__", "__cached__"):  # which go with a script's end
                vars(main).pop(name, None)
        if not failed and not (sys.flags.inspect or os.environ.get("PYTHONINSPECT")):
            sys.exit(0)


def _absolute(path: str) -> str:
    try:
        return path if os.path.isabs(path) else f"{os.getcwd()}/{path}"
    except OSError:
        return path


def _working_folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def _forget_launch() -> None:
    """Remove traces of the exception that unwound this package."""
    traceback = getattr(sys, "last_traceback", None)
    while traceback is not None:
        traceback.tb_frame.clear()
        traceback = traceback.tb_next
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        vars(sys).pop(name, None)


def _new_main() -> ModuleType:
    main = ModuleType(MAIN)
    main.__loader__ = BuiltinImporter  # as the interpreter itself does
    main.__annotations__ = {}
    vars(main)["__builtins__"] = builtins
    return main


def _began_as_module() -> bool:
    """Return whether this command runs as ``python -m cprofiling``."""
    return os.path.dirname(os.path.abspath(sys.argv[0])) == os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _interpreter() -> list[str]:
    """Return the interpreter and its options, without this command."""
    given = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1]
    return given[: -2 if _began_as_module() and given[-1] == _PACKAGE else -1]


def _begin_path(folder: str | None, *, always: bool = False) -> None:
    """Replace this command's folder in the path by the program's."""
    own = _working_folder() if _began_as_module() else os.path.dirname(os.path.realpath(sys.argv[0]))
    has_first = not (sys.flags.isolated or getattr(sys.flags, "safe_path", False))
    if has_first and sys.path[:1] == [own]:
        del sys.path[0]
    if folder is not None and (has_first or always):
        sys.path.insert(0, folder)
        _forget_shadowed(folder)


def _forget_shadowed(folder: str) -> None:
    """Let the program import its own modules over this package's imports."""
    loaded = {name for name in sys.modules if "." not in name} - _FIRST - {MAIN, _PACKAGE}
    for name in loaded:
        known = getattr(sys.modules[name], "__spec__", None)
        if known is None or known.origin in (None, "built-in", "frozen"):
            continue
        spec = PathFinder.find_spec(name, [folder])
        if spec is None or spec.loader is None or spec.origin is None:
            continue
        if os.path.realpath(spec.origin) != os.path.realpath(known.origin):
            for forgotten in [each for each in sys.modules if each == name or each.startswith(f"{name}.")]:
                del sys.modules[forgotten]
