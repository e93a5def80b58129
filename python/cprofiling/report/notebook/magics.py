"""The magics ``%cprofiling`` for statements, ``%%cprofiling`` for cells.

A cell that begins with the magic stays the cell that it is: IPython runs it, shows its last value and its exceptions,
and lets it await. It is only put into a ``with`` block, which records.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import itertools
import os
import re
import sys
import weakref
from contextlib import ExitStack
from types import TracebackType
from typing import Any, NoReturn

from cprofiling._core import stage as _stage
from cprofiling._internal import arguments
from cprofiling._internal.messages import mention
from cprofiling._internal.text import counted
from cprofiling.recording.traces import chrome_writer
from cprofiling.report.notebook.cell_nodes import CellNodes, CellPatterns, mark_definitions
from cprofiling.report.notebook.cell_profile import CellRecording

_NAME = "cprofiling"
_CELL = re.compile(rf"%%{_NAME}(?![\w?])(.*)", re.DOTALL)
_TOKEN = re.compile(r"""\s*((?:[^\s"']|"[^"]*"|'[^']*')+)""")
_MOST_CAPACITY = 1_000_000_000  # as in cprofiling/trace/recording.h
_HELP = f"""Profile a statement, or a cell, and show how long each node took.

  %{_NAME} [options] STATEMENT       returns the value of an expression: x = %{_NAME} f()
  %%{_NAME} [options]                the cell below this line, which may await

It records all nodes that are called meanwhile, in all threads: those of cprofiling.profile_node, of pipelines, and what
-n names. No Profiler's statistics or settings change. An exception ends the cell as ever; what was measured until then
is shown.

options:
"""


# ---- Options


class _Parser(argparse.ArgumentParser):
    """Complains as IPython does of wrong use."""

    def error(self, message: str) -> NoReturn:
        raise _usage(message)


def _usage(message: str) -> Exception:
    from IPython.core.error import UsageError

    return UsageError(f"%{_NAME}: {message}; %{_NAME}? shows the options")


_PARSER = _Parser(prog=f"%{_NAME}", add_help=False, allow_abbrev=False, usage=argparse.SUPPRESS)
_PARSER.color = False  # type: ignore[attr-defined]  # the help is a docstring: from CPython 3.14 on it has colours else
_add = _PARSER.add_argument
_add("-n", "--node", metavar="GLOB", action="append", default=[],
     help="make nodes of functions meanwhile: MODULE:FUNCTION or MODULE, both globs; :FUNCTION is of the notebook "
     "itself; can be given several times")  # fmt: skip
_add("-o", "--output", metavar="VAR", help="keep the result in this variable: .summary, .recording, .elapsed_ms")
_add("-q", "--quiet", action="store_true", help="show nothing")
_add("--trace", metavar="FILE", help="write the recording as a Chrome trace (.gz compresses)")
_add("--stage", metavar="STAGE", help="the stage of calls that have none of their own, in all threads")
_add("--skip-first-n", metavar="N", default="0", help="leave the first N calls of each node out of the table")
_add("--sync-cuda", action="store_true", help="wait for a node's device before and after it")
_add("--operators", action="store_true", help="record PyTorch's operators, and devices, too (through torch.profiler)")
_add("--capacity", metavar="N", default="1000000", help="events that are kept of each thread (1,000,000)")
_WITHOUT_VALUE = {"-q", "--quiet", "--sync-cuda", "--operators"}


def _split(line: str) -> tuple[list[str], str]:
    """Split a line into its options and the statement, which is left as it is."""
    tokens: list[str] = []
    place = 0
    while (found := _TOKEN.match(line, place)) is not None and found[1].startswith("-"):
        place = found.end()
        if found[1] == "--":
            break
        tokens.append(_unquoted(found[1]))
        if found[1] not in _WITHOUT_VALUE and "=" not in found[1]:
            value = _TOKEN.match(line, place)
            if value is not None:
                tokens.append(_unquoted(value[1]))
                place = value.end()
    return tokens, line[place:].strip()


def _unquoted(token: str) -> str:
    return re.sub(r'"([^"]*)"|\'([^\']*)\'', lambda found: found[1] or found[2] or "", token)


def _options(shell: Any, line: str) -> argparse.Namespace:
    """Return the options of one use, checked, with its ``statement`` and ``patterns``.

    Variables are expanded in values, never in a statement. Raises IPython's UsageError.
    """
    tokens, statement = _split(line)
    options = _PARSER.parse_args(
        [shell.var_expand(token) if "$" in token or "{" in token else token for token in tokens]
    )
    options.statement = statement
    try:
        options.patterns = CellPatterns(options.node)
        options.skip_first_n = _count("--skip-first-n", options.skip_first_n, 0, 2**63 - 1)
        options.capacity = _count("--capacity", options.capacity, 1, _MOST_CAPACITY)
        options.stage = None if options.stage is None else _stage(options.stage, default=True)
        if options.output is not None and not options.output.isidentifier():
            raise ValueError(f"--output must be the name of a variable, got {options.output!r}")
        if options.trace is not None:
            path = options.trace = arguments.path("--trace", os.path.expanduser(options.trace))
            chrome_writer.check_name(path)
            if os.path.isdir(path) or not os.path.isdir(os.path.dirname(path) or "."):
                raise ValueError(f"--trace must be a file in a folder that is there, got {path!r}")
    except (TypeError, ValueError, ImportError, OSError) as error:
        raise _usage(str(error)) from None
    return options


def _count(option: str, text: str, least: int, most: int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"{option} must be an integer, got {text!r}") from None
    return arguments.index_between(option, number, least, most)


# ---- Recording


class Profiled:
    """The recorder around a statement or a cell."""

    _running: list[CellRecording] = []  # noqa: RUF012 of all, the innermost last

    def __init__(self, shell: Any, options: argparse.Namespace) -> None:
        """Have it ready."""
        self._shell = shell
        self._options = options
        self._nodes = CellNodes(options.patterns)
        self._recording = CellRecording(
            synchronizes=options.sync_cuda, operators=options.operators, capacity=options.capacity
        )
        self._undo = ExitStack()
        self._values: list[object] = []

    def __enter__(self) -> None:
        with ExitStack() as undo:
            if self._options.stage is not None:
                undo.enter_context(self._options.stage)
            undo.callback(self._nodes.end)
            self._nodes.begin()
            if self._running:
                self._running[-1].stand_aside()
                undo.callback(self._running[-1].resume, self._recording)
            try:
                self._recording.begin()
            except RuntimeError as error:
                raise _usage(f"{error}; stop that one first") from None
            self._running.append(self._recording)
            self._undo = undo.pop_all()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        __tracebackhide__ = True
        failure: OSError | None = None
        try:
            self._running.remove(self._recording)
            try:
                self._recording.stop()
            finally:
                self._undo.close()
            for value in self._values:
                self._shell.displayhook(value)
            failure = self._show(failed=kind is not None)
        except Exception as fault:  # noqa: BLE001 the cell's value or exception stays as without us
            mention(f"nothing is shown of what was profiled: {type(fault).__name__}: {fault}")
        if failure is not None and kind is None:
            raise failure

    def keep(self, value: object) -> None:
        """Show a value after the recording has ended."""
        self._values.append(value)

    def _show(self, *, failed: bool) -> OSError | None:
        """Show, write and keep the result. Return a failure to write."""
        options = self._options
        cell = self._recording.result(failed=failed, skip_first_n=options.skip_first_n)
        others = {*sys.stdlib_module_names, _NAME}
        modules = [name for name in list(sys.modules) if name.partition(".")[0] not in others]
        cell.notes += tuple(f"{complaint}." for complaint in options.patterns.complaints(modules))
        failure = None
        if options.trace is not None:
            try:
                chrome_writer.export_to_path(cell.recording, options.trace)
                cell.notes += (f"{counted(len(cell.recording), 'event is', 'events are')} in {options.trace!a}.",)
            except OSError as error:
                cell.notes += (f"The trace is not written: {error}.",)
                failure = error
        if options.output is not None:
            self._shell.user_ns[options.output] = cell
        if not options.quiet:
            from IPython.display import display

            display(cell)  # type: ignore[no-untyped-call]
        return failure


_numbers = itertools.count()
_prepared: dict[int, argparse.Namespace | Exception] = {}  # the options of cells not run yet, or their error
_opened: weakref.WeakValueDictionary[int, Profiled] = weakref.WeakValueDictionary()


def profiled(shell: Any, number: int) -> Profiled:
    """Return the recorder of a prepared cell, for the cell itself."""
    __tracebackhide__ = True
    options = _prepared.pop(number)
    if isinstance(options, Exception):
        raise options
    _opened[number] = made = Profiled(shell, options)
    return made


def keep(number: int, value: object) -> None:
    """Keep the value of a cell's last statement, for the cell itself."""
    _opened[number].keep(value)


# ---- How a cell gets there


def mark_cell(lines: list[str]) -> list[str]:
    """Replace the magic in a cell's first line by a call.

    IPython calls it with each cell. A cell of other magics inside is run by these.
    """
    found = _CELL.match(lines[0]) if lines else None
    rest = lines[1:]
    body = next((place for place, line in enumerate(rest) if line.strip()), None)
    if found is None or body is None:
        return lines
    if rest[body].startswith("%%"):
        from IPython.core.inputtransformer2 import cell_magic

        rest = [*rest[:body], *cell_magic(mark_cell(rest[body:]))]  # type: ignore[no-untyped-call]
    return [f"get_ipython().run_cell_magic({_NAME!r}, {found[1].strip()!r}, '')\n", *rest]


class CellTransformer(ast.NodeTransformer):
    """Puts a marked cell into a recording block, as IPython asks."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def visit(self, node: ast.AST) -> ast.AST:
        """Return the tree of a cell."""
        line = _marked_line(node)
        if not isinstance(node, ast.Module) or line is None:
            return node
        mark, *body = node.body
        body = self.visit(ast.Module(body, [])).body  # type: ignore[attr-defined]
        try:
            options: Any = _options(self._shell, line)
            if options.statement:
                raise _usage(f"there is {options.statement!r} behind the options of a cell")
            mark_definitions(node, options.patterns)
        except Exception as error:  # noqa: BLE001 it is raised when the cell runs
            options = error
        number = next(_numbers)
        _prepared[number] = options
        for old in list(_prepared)[:-100]:
            _prepared.pop(old, None)
        manager = ast.parse(
            f"__import__('cprofiling.report.notebook.magics').report.notebook.magics.profiled(get_ipython(), {number})",
            mode="eval",
        ).body
        inside = [statement for statement in body if not _is_future(statement)] or [ast.copy_location(ast.Pass(), mark)]
        block = ast.With(
            [ast.withitem(manager)], _with_shown_values(inside, self._shell.ast_node_interactivity, number)
        )
        node.body = [*filter(_is_future, body), ast.copy_location(block, mark)]
        for each in ast.walk(manager):
            ast.copy_location(each, mark)
        return ast.fix_missing_locations(node)


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _marked_line(node: ast.AST) -> str | None:
    """Return the text behind the magic in a cell's first line, or None."""
    first = node.body[0] if isinstance(node, ast.Module) and len(node.body) > 1 else None
    call = first.value if isinstance(first, ast.Expr) else None
    if not isinstance(call, ast.Call) or getattr(call.func, "attr", "") != "run_cell_magic" or len(call.args) != 3:
        return None
    name, line, body = (getattr(each, "value", None) for each in call.args)
    return line if name == _NAME and body == "" and isinstance(line, str) else None


def _with_shown_values(body: list[ast.stmt], interactivity: str, number: int) -> list[ast.stmt]:
    """Return statements that show the values IPython would show.

    The last one is shown when the block is over; where all are, each in its turn, among what the cell prints.
    """
    shown = body if interactivity == "all" else body[-1:] if interactivity.startswith("last_expr") else []
    source = f"__import__('cprofiling.report.notebook.magics').report.notebook.magics.keep({number})"
    if interactivity == "all":
        source = "get_ipython().displayhook()"
    for statement in shown:
        if isinstance(statement, ast.Expr):
            hook = ast.parse(source, mode="eval").body
            assert isinstance(hook, ast.Call)  # noqa: S101 as it is written
            hook.args.append(statement.value)
            for each in (hook, *hook.args[:-1], *ast.walk(hook.func)):
                ast.copy_location(each, statement)
            statement.value = hook
    return body


# ---- The magic itself


def _run(shell: Any, source: str, local_ns: dict[str, Any] | None, line: str | None) -> Any:
    """Run a statement or a cell as IPython would.

    ``line``: with options, for a statement.
    """
    __tracebackhide__ = True
    text = shell.transform_cell(source)
    name = shell.compile.cache(text, shell.execution_count)
    tree = shell.transform_ast(shell.compile.ast_parse(text, filename=name))
    is_expression = len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr)
    top = ast.Expression(tree.body[0].value) if is_expression else tree
    with shell.compile.extra_flags(ast.PyCF_ALLOW_TOP_LEVEL_AWAIT):
        code = shell.compile(top, name, "eval" if is_expression else "exec")
    if code.co_flags & inspect.CO_COROUTINE:
        raise _usage(f"a statement cannot await: begin the cell with %%{_NAME}")
    run = eval if is_expression else exec
    if line is None:
        return run(code, shell.user_ns, local_ns)
    with Profiled(shell, _options(shell, line)):
        return run(code, shell.user_ns, local_ns)


def load(shell: Any) -> None:
    """Register the magics with IPython."""
    from IPython.core.magic import needs_local_scope, no_var_expand

    @no_var_expand
    @needs_local_scope
    def cprofiling(line: str, cell: str | None = None, local_ns: dict[str, Any] | None = None) -> Any:
        __tracebackhide__ = True
        if cell is None:
            statement = _split(line)[1]
            if not statement:
                raise _usage(f"expected a statement to profile, or a cell that begins with %%{_NAME}")
            return _run(shell, statement, local_ns, line)
        if not cell.strip():
            raise _usage("the cell is empty")
        return _run(shell, f"%%{_NAME} {line}\n{cell}", local_ns, None)

    cprofiling.__doc__ = _HELP + _PARSER.format_help().partition("\n")[2]
    unload(shell)
    shell.input_transformer_manager.line_transforms.insert(0, mark_cell)
    shell.ast_transformers.append(CellTransformer(shell))
    shell.register_magic_function(cprofiling, "line_cell", _NAME)


def unload(shell: Any) -> None:
    """Take the magics away."""
    transforms = shell.input_transformer_manager.line_transforms
    transforms[:] = [each for each in transforms if each is not mark_cell]
    shell.ast_transformers[:] = [each for each in shell.ast_transformers if not isinstance(each, CellTransformer)]
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop(_NAME, None)
