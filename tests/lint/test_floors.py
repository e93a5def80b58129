"""The floors of the package: what a room imports, and that no module of ours is imported by its name in a text."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from graphlib import TopologicalSorter

import pytest

from repository import PACKAGE, ROOT, relative

pytestmark = pytest.mark.lint

# Who names modules of ours in texts: the lists of formats and subcommands, and what is there only if it was asked for.
LISTS = {
    "python/cprofiling/report/format_list.py": "the list of formats",
    "python/cprofiling/commands/main.py": "what the environment may have had loaded",
}
# Who imports modules of ours inside functions: they are loaded when they are wanted, or need an extra.
LATE = {
    "__init__": "results that few programs use",
    "_build": "the extension, which setup.py has not built yet",
    "_startup": "what a variable of the environment asks for",
    "commands.attached": "the server that was asked for",
    "commands.completion": "the shell waits for it",
    "commands.control": "gRPC",
    "commands.count": "the counting of what was asked for",
    "commands.demo": "scikit-learn",
    "commands.main": "completion, in a shell that asks for it",
    "commands.serve": "gRPC",
    "commands.top": "gRPC, or the reader of live files",
    "devices.nsight.report": "import cprofiling stays fast",
    "integrations.diffusers": "PyTorch",
    "integrations.ray": "a worker that may lack the package",
    "integrations.torch": "PyTorch",
    "nodes.probe_callbacks": "import cprofiling stays fast",
    "recording.activities": "import cprofiling stays fast",
    "recording.profile": "import cprofiling stays fast",
    "report.ipython_extension": "IPython",
    "testing.measure": "import cprofiling stays fast",
}
MODULE = re.compile(r"cprofiling(\.\w+){2,}(:\w+)?")


def named_modules(tree: ast.AST) -> set[str]:
    """The modules of this package that texts of a module name, without a description's."""
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    found = {text.partition(":")[0] for text in texts if MODULE.fullmatch(text)}
    parts = {name: PACKAGE.parent.joinpath(*name.split(".")) for name in found}
    return {name for name, path in parts.items() if path.is_dir() or path.with_suffix(".py").exists()}


def test_a_room_imports_only_rooms_below_it() -> None:
    pytest.importorskip("importlinter", reason="import-linter is not installed")
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def imported(tree: ast.AST) -> set[str]:
    """The modules that code imports, inside functions, too, but not for type checkers."""
    unread = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    statements = [node for node in ast.walk(tree) if node not in unread]
    named = {
        f"{node.module}.{alias.name}" for node in statements if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    named |= {str(node.module) for node in statements if isinstance(node, ast.ImportFrom)}
    return named | {alias.name for node in statements if isinstance(node, ast.Import) for alias in node.names}


def test_no_module_needs_one_that_needs_it() -> None:
    """Left out are packages, which pass names on, and ``exports``, by which results import what shows them."""
    paths = [path for path in PACKAGE.rglob("*.py") if path.stem not in ("__init__", "exports")]
    names = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in paths}
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in names.items()}
    graph = {name: imported(tree) & names.keys() - {name} for name, tree in trees.items()}
    assert len(graph) > 100
    TopologicalSorter(graph).prepare()  # names the circle, if there is one


def test_modules_of_ours_are_imported_at_the_top() -> None:
    """Left out is ``exports``, by which results import what shows them."""
    late = set()
    for path in PACKAGE.rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        functions = [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        if any(name.partition(".")[0] == "cprofiling" for function in functions for name in imported(function)):
            late.add(".".join(path.relative_to(PACKAGE).with_suffix("").parts))
    assert {name for name in late - LATE.keys() if name.rpartition(".")[2] != "exports"} == set()


def test_no_module_is_imported_by_a_text_but_from_a_list() -> None:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if "_pb2" not in path.name:
            named = named_modules(ast.parse(path.read_text(encoding="utf-8")))
            found.update({relative(path): named} if named else {})
    assert {name: named for name, named in found.items() if name not in LISTS} == {}
    assert set(LISTS) <= set(found)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import_module('cprofiling.nodes.stats')", {"cprofiling.nodes.stats"}),
        ("x = 'cprofiling.nodes.stats:NodeProfilingStats'", {"cprofiling.nodes.stats"}),
        ("x = 'cprofiling.node.duration'; y = 'see cprofiling.nodes.stats'", set()),
    ],
)
def test_the_search_for_names_finds_them(code: str, found: set[str]) -> None:
    assert named_modules(ast.parse(code)) == found
