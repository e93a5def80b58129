"""A program run as Python does, and recorded, for the command ``run``."""

from __future__ import annotations

import builtins
import errno
import functools
import os
import pkgutil
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import BuiltinImporter, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from cprofiling import _core
from cprofiling._internal.messages import say
from cprofiling._internal.row_kinds import NODE
from cprofiling._internal.text import counted, format_time
from cprofiling.commands.interpreters import keep_plain
from cprofiling.nodes.from_patterns import source
from cprofiling.nodes.from_patterns.import_hook import NodeFinder, wrap_members
from cprofiling.nodes.from_patterns.patterns import MAIN, MOST_FUNCTIONS, Patterns, UsersFunctions
from cprofiling.nodes.own_cost import recorded_call_ns
from cprofiling.recording.output_names import UnusablePathError, checked_path, shown_path
from cprofiling.recording.traces import chrome_writer
from cprofiling.recording.whole_process import Automatic

if TYPE_CHECKING:
    from cprofiling.recording.result import Recording

    Runnable = bytes | CodeType | Callable[[], object]  # as csrc/types.h has it

OUTPUT = "trace.json"
_PACKAGE = __name__.partition(".")[0]
# Loaded before sys.path has the program's folder: what lies there under such a name is never found by plain Python.
_FIRST = {
    "_collections_abc", "_sitebuiltins", "abc", "codecs", "encodings", "genericpath", "io", "os", "posixpath", "site",
    "sitecustomize", "stat", "usercustomize", "zipimport",
}  # fmt: skip
_SPAWN_KEY = "cprofiling"
# What a new process executes before it imports anything of the program. Not to find this package there is no fault.
_BEGINNING = """
import sys
sys.path.append({folder!r})
try:
    from cprofiling.commands.program import begin
except ImportError:
    begin = None
finally:
    sys.path.remove({folder!r})
if begin is not None:
    begin{arguments!r}
"""


class Launch(BaseException):
    """Exception that unwinds this command, then starts the program."""

    def __str__(self) -> str:
        return "cprofiling run is a command: it runs no program inside another one"


class CannotRunError(Exception):
    """Missing program or place for its trace, with the exit ``status``."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def prepare(
    output: str | None,
    patterns: Sequence[str],
    arguments: Sequence[str],
    *,
    takes_users: bool = False,
    operators: bool = False,
) -> Launch:
    """Prepare to run and record a program, and return the Launch to raise.

    Args:
        output: Where the trace goes; None: as the environment says, or else ``trace.json``.
        patterns: Which functions are nodes; see ``node_patterns``.
        arguments: The program and its arguments, as ``split`` gives them; at least one.
        takes_users: Whether all functions of the user's files are nodes, too.
        operators: Whether PyTorch's operators are recorded, too.

    Raises CannotRunError or ValueError for wrong arguments.
    """
    automatic = Automatic.current
    if output is None and automatic is not None:
        path, is_first = automatic.output.path, automatic.output.is_owner
    else:
        is_first = True
        shown = shown_path(OUTPUT if output is None else output)
        try:
            path = checked_path(OUTPUT if output is None else output)
        except UnusablePathError as error:
            raise CannotRunError(f"cannot write the trace to {shown}: {error}", 1) from None
        is_file = os.path.isfile(path) or not os.path.exists(path)
        if is_file and not path.endswith(chrome_writer.ENDINGS) and os.path.splitext(path)[1]:
            endings = ", ".join(chrome_writer.ENDINGS)
            raise CannotRunError(f"cannot write the trace to {shown}: its name must end in {endings}", 2)
    recording = RunRecording(path, patterns, is_first=is_first, takes_users=takes_users, operators=operators)
    sys.excepthook = Program(arguments, recording).launcher
    return Launch()


class Recorder(Protocol):
    """Watcher of a program, with patterns of functions that are nodes."""

    patterns: Patterns
    module: str | None = None  # that is the program
    folder: str | None = None  # or archive, whose __main__ it is

    def begin(self) -> None:
        """Begin, as the program is about to."""


class RunRecording(Automatic, Recorder):
    """Recording of the command ``run``, with messages."""

    def __init__(
        self,
        path: str,
        patterns: Iterable[str],
        *,
        is_first: bool,
        takes_users: bool,
        operators: bool,
        speaks: bool = True,
    ) -> None:
        """Prepare it.

        patterns: Which functions are nodes; where there are none, those of a program without nodes of its own.
        takes_users: Whether all functions of the user's files are nodes, too.
        operators: Whether PyTorch's operators are recorded, too.
        speaks: Whether this process is the one that the user has started.
        """
        super().__init__(path, is_first=is_first)
        self.patterns = Patterns(patterns, default=(f"{MAIN}:*",), takes_users=takes_users)
        self.takes_operators = operators
        self._speaker = os.getpid() if speaks else 0

    def begin(self) -> None:
        """Start, replacing a recording started by the environment."""
        if Automatic.current is not None:
            Automatic.current.cancel()
        super().begin()
        if self.takes_operators and "torch" in sys.modules:
            self.record_operators()

    def record_operators(self, _torch: object = None) -> None:
        """Record PyTorch's operators from now on, as it has been imported."""
        with self._lock:
            if self._running and not self._sources:
                self._wants_operators = True
                self._sources = self._begin_sources()
                self._wants_operators = False  # of forked children, in which PyTorch cannot record them
                for source in self._sources:
                    source.start()

    def _finish(self) -> bool:
        """Finish, but keep an old trace if the program does not exist."""
        if getattr(sys.modules.get(MAIN), "__spec__", None) is None:
            has_no_main = self.folder is not None and PathFinder.find_spec(MAIN, [self.folder]) is None
            if has_no_main or (self.module is not None and _is_missing(self.module)):
                self.cancel()
        return super()._finish()

    def _write(self) -> None:
        if not self._is_in_vain():
            super()._write()

    def _is_in_vain(self) -> bool:
        """Return whether nothing was recorded as the named program is missing."""
        return bool(self.patterns.texts) and not self.patterns.has_met and not len(self.recording)

    def _written(self, recording: Recording, path: str) -> None:
        if os.getpid() == self._speaker:
            dropped = f", {recording.dropped:,} more were dropped" if recording.dropped else ""
            say(f"{len(recording):,} events are in {path!a}{dropped}")

    def _conclude(self) -> None:
        if os.getpid() == self._speaker:
            say_unmatched(self.patterns, "no trace is written: " if self._is_in_vain() else "")
            if self.takes_operators and "torch" not in sys.modules:
                say("--operators recorded nothing: the program does not import torch")
            if self.patterns.users is not None:
                self._say_cost(self.patterns.users)
            elif not len(self.recording) and not self.patterns.texts:
                say("the program has no nodes of its own: name functions that are to be nodes by -n")

    def _say_cost(self, users: UsersFunctions) -> None:
        if not users.made:
            say("--all found no functions: the program has none outside of installed packages; name those by -n")
            return
        calls = bytes(self.recording.column("kind") or b"").count(NODE) + self.recording.dropped
        cost_ns = recorded_call_ns()
        say(
            f"--all made nodes of {counted(users.made, 'function')}: to record {counted(calls, 'call')} took about "
            f"{format_time(calls * cost_ns * 1e-6)}, {cost_ns:.0f} ns each"
        )
        if users.left_out:
            say(f"--all left out {counted(users.left_out, 'function')}, as it takes {MOST_FUNCTIONS:,} at most")


def say_unmatched(patterns: Patterns, beginning: str = "") -> None:
    """Print a hint for each pattern without a match, after ``beginning``."""
    others = {*sys.stdlib_module_names, __name__.partition(".")[0]}
    for complaint in patterns.complaints([name for name in list(sys.modules) if name.partition(".")[0] not in others]):
        say(beginning + complaint)
        beginning = ""


def _is_missing(module: str) -> bool:
    """Return whether there is no such module, so that nothing ran."""
    from importlib.util import find_spec

    try:
        return find_spec(module) is None
    except ModuleNotFoundError:
        return True
    except Exception:  # noqa: BLE001 it is there, and cannot be imported
        return False


class Program:
    """Script, folder, archive or module, with its arguments.

    Folders and archives have a ``__main__``.
    """

    def __init__(self, arguments: Sequence[str], recording: Recorder) -> None:
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
        folder = None if os.path.isabs(first) else _working_folder()
        self._path = first if folder is None else f"{folder}/{first}"
        if self._module is None:
            try:
                os.stat(self._path)
                reason = None if os.access(self._path, os.R_OK) else os.strerror(errno.EACCES)
            except OSError as error:
                reason = error.strerror
            except ValueError:
                reason = "it has a NUL"
            if reason is not None:
                raise CannotRunError(f"cannot open {shown_path(first)}: {reason}", 2)
        recording.module = self._module

    def prepare(self) -> Runnable:
        """Set up Python's state for the program, and return its code or path."""
        sys.excepthook = self._hook
        traceback = getattr(sys, "last_traceback", None)  # of the exception that unwound this package
        while traceback is not None:
            traceback.tb_frame.clear()
            traceback = traceback.tb_next
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            vars(sys).pop(name, None)
        main = ModuleType(MAIN)
        main.__loader__ = BuiltinImporter  # as the interpreter itself does
        if sys.version_info < (3, 14):  # from then on they are made when asked for
            main.__annotations__ = {}
        vars(main)["__builtins__"] = builtins
        sys.modules[MAIN] = main
        self._main = weakref.ref(main)
        del main  # what holds it makes its objects die late
        run = self._resolved()
        interpreter = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1]  # and its options, and this command
        own = 2 if _began_as_module() and interpreter[-1] == _PACKAGE else 1
        sys.orig_argv = [*interpreter[:-own], *self._given]
        sys.argv = self._arguments
        _make_nodes(self._recording, self._module, f"__import__('sys').path[:] = {sys.path!a}")
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
        selection = self._recording.patterns.selection(MAIN, path=self._path)
        if selection is not None:
            selection.note_module()
        code = None if selection is None else source.compiled_script(self._path, selection)
        if code is None:
            return os.fsencode(self._path)
        self._is_compiled = True
        main = sys.modules[MAIN]
        main.__file__ = self._path
        if sys.version_info < (3, 15):  # which has it no more
            main.__cached__ = None  # type: ignore[attr-defined]
        main.__loader__ = SourceFileLoader(MAIN, self._path)
        return code

    def finish(self, failed: bool) -> None:
        """End the process as Python does after a program."""
        main = self._main()
        if main is not None and self._is_compiled:
            for name in ("__file__", "__cached__"):  # which go with a script's end
                vars(main).pop(name, None)
        if not failed and not (sys.flags.inspect or os.environ.get("PYTHONINSPECT")):
            sys.exit(0)


def _working_folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def _began_as_module() -> bool:
    """Return whether this command runs as ``python -m cprofiling``."""
    return os.path.dirname(os.path.abspath(sys.argv[0])) == os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _begin_path(folder: str | None, *, always: bool = False) -> None:
    """Replace this command's folder in the path by the program's."""
    own = _working_folder() if _began_as_module() else os.path.dirname(os.path.realpath(sys.argv[0]))
    has_first = not (sys.flags.isolated or getattr(sys.flags, "safe_path", False))
    if has_first and sys.path[:1] == [own]:
        del sys.path[0]
    if folder is None or not (has_first or always):
        return
    sys.path.insert(0, folder)
    # The program imports its own modules rather than those of the same names that this package has imported.
    for name in {name for name in sys.modules if "." not in name} - _FIRST - {MAIN, _PACKAGE}:
        known = getattr(sys.modules[name], "__spec__", None)
        if known is None or known.origin in (None, "built-in", "frozen"):
            continue
        spec = PathFinder.find_spec(name, [folder])
        if spec is None or spec.loader is None or spec.origin is None:
            continue
        if os.path.realpath(spec.origin) != os.path.realpath(known.origin):
            for forgotten in [each for each in sys.modules if each == name or each.startswith(f"{name}.")]:
                del sys.modules[forgotten]


def _make_nodes(recording: Recorder, module: str | None, beginning: str = "") -> None:
    """Make nodes in modules imported from now on, and record spawned processes as well.

    beginning: What each new sub-interpreter executes first.
    """
    finder = NodeFinder(recording.patterns, module)
    finder.install()
    finder.call_after("concurrent.interpreters", functools.partial(keep_plain, beginning))
    if not isinstance(recording, RunRecording):
        return
    if recording.takes_operators:
        finder.call_after("torch", recording.record_operators)

    def record_spawned(spawn: ModuleType) -> None:
        plain = spawn.get_preparation_data

        @functools.wraps(plain)
        def get_preparation_data(name: str) -> dict[str, Any]:
            data: dict[str, Any] = plain(name)
            main = (data.get("init_main_from_name"), data.get("init_main_from_path"))
            patterns = recording.patterns
            wanted = (patterns.texts, patterns.users is not None, recording.takes_operators)
            data[_SPAWN_KEY] = _Beginning(recording.output.path, *wanted, *main)
            return data

        spawn.get_preparation_data = get_preparation_data  # type: ignore[attr-defined]

    finder.call_after("multiprocessing.spawn", record_spawned)


class _Beginning:
    """Data for a new process that starts a recording when unpickled."""

    def __init__(self, *arguments: object) -> None:
        self._arguments = arguments

    def __reduce__(self) -> tuple[Any, ...]:
        folder = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
        return exec, (_BEGINNING.format(folder=folder, arguments=self._arguments), {})


def begin(
    path: str, patterns: tuple[str, ...], takes_users: bool, operators: bool, module: str | None, script: str | None
) -> None:
    """Record this spawned process.

    module or script: its future main module.
    """
    recording = RunRecording(path, patterns, is_first=False, takes_users=takes_users, operators=operators, speaks=False)
    _make_nodes(recording, module)
    main = sys.modules.get("__mp_main__")  # loaded, where a fork server has done that for its children
    path_of_main = getattr(main, "__file__", None)
    selection = None if main is None else recording.patterns.selection(MAIN, path=path_of_main)
    if main is not None and selection is not None:
        wrap_members(main, selection)
    if script is not None:
        import runpy  # which gives the script another name than the finder looks for

        plain = runpy._get_code_from_file  # type: ignore[attr-defined]  # noqa: SLF001 there is no other place

        @functools.wraps(plain)
        def get_code(*arguments: str) -> Any:
            found = plain(*arguments)  # the code, or a pair of it and the path
            is_script = script in map(os.path.abspath, arguments)  # one of which is the path, others are names
            selection = recording.patterns.selection(MAIN, path=script) if is_script else None
            code = None if selection is None else source.compiled_script(script, selection)
            if code is None:
                return found
            return (code, *found[1:]) if isinstance(found, tuple) else code

        runpy._get_code_from_file = get_code  # type: ignore[attr-defined]  # noqa: SLF001
    try:
        recording.begin()
    except Exception:  # noqa: BLE001 the program goes on as without us
        return
