"""The rules of the package that its text and its names show, and that no linter knows."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import cprofiling
from cprofiling import _core
from repository import PACKAGE, relative

pytestmark = pytest.mark.lint

WIDTH = 120
LONGEST_FUNCTION = 70  # lines, with the docstring
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "_pb2" not in path.name)  # which are generated
GRPC = {"google", "grpc", "grpc_health", "grpc_reflection"}
# What may be imported at the top of a module, or of those of a package, that no others import at their own top.
NEEDS: dict[str, set[str]] = {
    "commands.demo_pipeline": {"numpy", "scipy", "sklearn"},
    "testing.gates.test_call": {"pytest"},
    "testing.gates.plugin": {"pytest"},
    "integrations.dask": {"distributed"},
    "integrations.lightning": set(),  # its base class is of one of two packages
    "integrations.ray": set(),  # which has a message without it
    "integrations.torch": {"torch"},
    "monitoring.server": GRPC,  # all of the package
    "monitoring.top.from_server": GRPC,
    "server": GRPC,
}
# What makes objects, or runs code, as a file or a message says.
UNSAFE_MODULES = {"cloudpickle", "dill", "joblib", "jsonpickle", "marshal", "pickle", "shelve", "yaml"}
UNSAFE_CALLS = {"__import__", "compile", "eval", "exec", "numpy.load", "np.load", "torch.load"}


# Who else may read variables of the environment, and which: those of others, and what is not to be followed.
READ_VARIABLES = {
    "commands.completion": "COMP_LINE",
    "commands.main": "_ARGCOMPLETE",
    "commands.parsing": "COLUMNS, as argparse does",
    "devices.nsight.tools": "all, for a program that it becomes",
    "commands.doctor": "all, for a program that it runs; NVTX_INJECTION64_PATH",
    "_internal.process": "RANK, WORLD_SIZE; which process came first, for what environment.py has let through",
    "devices.nsight.reader": "all, for a program that it runs",
    "recording.torch_operators.collect": "KINETO_LOG_LEVEL",
    "nodes.own_cost": "what it hides and puts back",
    "commands.program": "PYTHONINSPECT",
    "monitoring.server": "GRPC_VERBOSITY",
}


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def dotted(path: Path) -> str:
    """The name of a module within the package."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def needy_part(name: str) -> str | None:
    """Which of the modules and packages that need an extra has this name, or is above it; None: none."""
    return next((part for part in NEEDS if f"{name}.".startswith((f"{part}.", f"cprofiling.{part}."))), None)


def imported_by(nodes: Iterator[ast.AST]) -> set[str]:
    """The names of the modules that import statements name."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            found.add(node.module)
    return found


def unsafe_uses(tree: ast.Module) -> list[str]:
    """The imports of unsafe modules and the calls of unsafe functions."""
    imports = {name for name in imported_by(ast.walk(tree)) if name.partition(".")[0] in UNSAFE_MODULES}
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return sorted(imports | (calls & UNSAFE_CALLS))


@pytest.mark.parametrize(
    ("code", "uses"),
    [
        ("import pickle", ["pickle"]),
        ("def f():\n    from yaml.loader import Loader", ["yaml.loader"]),
        ("torch.load(path)", ["torch.load"]),
        ("value = [eval(text)]", ["eval"]),
        ("json.loads(text); re.compile(text); ast.literal_eval(text)", []),
    ],
)
def test_the_search_for_unsafe_uses_finds_them(code: str, uses: list[str]) -> None:
    assert unsafe_uses(ast.parse(code)) == uses


def test_no_input_becomes_code_or_objects() -> None:
    assert {relative(path): uses for path in MODULES if (uses := unsafe_uses(tree_of(path)))} == {}


def test_modules_import_the_standard_library_only() -> None:
    wrong = []
    for path in MODULES:
        top = {name.partition(".")[0] for name in imported_by(iter(tree_of(path).body))}
        foreign = top - set(sys.stdlib_module_names) - {"cprofiling"} - NEEDS.get(needy_part(dotted(path)) or "", set())
        wrong += [f"{relative(path)}: {name}" for name in sorted(foreign)]
    assert wrong == [], "what is an extra is imported where it is used"


def test_what_needs_an_extra_is_imported_by_nobody_at_once() -> None:
    wrong = []
    for path in MODULES:
        own = NEEDS.get(needy_part(dotted(path)) or "", set())
        needed = {needy_part(name) for name in imported_by(iter(tree_of(path).body)) if name.startswith("cprofiling.")}
        wrong += [f"{relative(path)}: {part}" for part in needed if part is not None and not NEEDS[part] <= own]
    assert wrong == []


def test_the_package_itself_only_passes_names_on() -> None:
    body = tree_of(PACKAGE / "__init__.py").body
    assert ast.get_docstring(ast.Module(body=body, type_ignores=[]))
    imports = [node for each in body for node in ast.walk(each) if isinstance(node, ast.ImportFrom)]
    names = {alias.asname or alias.name for node in imports for alias in node.names}
    others = [ast.unparse(node).split("(")[0].split()[:2] for node in body[1:] if not isinstance(node, ast.ImportFrom)]
    assert others == [
        ["if", "TYPE_CHECKING:"],
        ["__version__", "="],
        ["__all__", "="],
        ["def", "__getattr__"],
        ["adopt"],
        ["_startup.start"],
    ]
    assert cprofiling.__all__ == sorted(cprofiling.__all__)
    assert sorted(names - {"Any", "TYPE_CHECKING", "_build", "_startup", "adopt"}) == cprofiling.__all__


def modules() -> list[ModuleType]:
    """The package's modules that can be imported here."""
    names = [name for _, name, _ in pkgutil.walk_packages([str(PACKAGE)], "cprofiling.")]
    usable = [name for name in names if needy_part(name) is None and not name.endswith("__main__")]
    return [importlib.import_module(name) for name in usable]


def described(owner: ModuleType | type) -> Iterator[tuple[str, object]]:
    """The public functions, classes and members that a module or class defines itself, with their full names."""
    for name, value in vars(owner).items():
        is_own = not isinstance(owner, ModuleType) or getattr(value, "__module__", "") == owner.__name__
        if name.startswith("_") or not is_own or inspect.ismemberdescriptor(value):
            continue
        function = getattr(value, "__func__", value)
        if inspect.isroutine(function) or inspect.isdatadescriptor(value) or inspect.isclass(value):
            yield f"{owner.__name__}.{name}", function
        if inspect.isclass(value):
            yield from described(value)


def test_every_public_name_is_described() -> None:
    found = {name: value for module in [cprofiling, *modules()] for name, value in described(module)}
    assert len(found) > 50
    bare = [name for name, value in found.items() if not (getattr(value, "__doc__", None) or "").strip()]
    assert bare == []


def test_every_name_that_is_passed_on_is_described() -> None:
    assert [name for name in cprofiling.__all__ if not inspect.getdoc(getattr(cprofiling, name))] == []


def test_everything_in_the_extension_is_described() -> None:
    functions = [value for value in vars(_core).values() if inspect.isbuiltin(value)]
    types = [value for value in vars(_core).values() if inspect.isclass(value)]
    assert functions
    assert types
    bare = [function.__name__ for function in functions if not function.__doc__]
    for kind in types:
        members = {name: value for name, value in vars(kind).items() if not name.startswith("_")}
        bare += [kind.__name__] if not kind.__doc__ else []
        bare += [f"{kind.__name__}.{name}" for name, value in members.items() if not value.__doc__]
    assert bare == []


def test_functions_are_short() -> None:
    wrong = []
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                wrong += [f"{relative(path)}: {node.name}: {lines}"] if lines > LONGEST_FUNCTION else []
    assert wrong == []


def reads_variables(tree: ast.Module) -> bool:
    """Whether a module does more with the environment than to set variables, and to remove them."""
    nodes = list(ast.walk(tree))
    all_uses = [
        node for node in nodes if isinstance(node, ast.Attribute) and node.attr.startswith(("environ", "getenv"))
    ]
    changed: list[ast.AST] = [
        node.value for node in nodes if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load)
    ]
    for node in nodes:
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Attribute)
        ):
            changed += [node.value.func.value] if node.value.func.attr == "pop" else []
    imported = imported_names(nodes)
    return bool([use for use in all_uses if use not in changed and is_of_os(use)]) or bool(
        {"environ", "getenv"} & imported
    )


def is_of_os(use: ast.Attribute) -> bool:
    return isinstance(use.value, ast.Name) and use.value.id == "os"


def imported_names(nodes: list[ast.AST]) -> set[str]:
    return {
        alias.name for node in nodes if isinstance(node, ast.ImportFrom) and node.module == "os" for alias in node.names
    }


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("os.environ['A'] = '1'; del os.environ['A']; os.environ.pop('A', None)", False),
        ("environment.given('A')", False),
        ("a = os.environ['A']", True),
        ("a = os.environ.pop('A')", True),
        ("os.environ.get('A')", True),
        ("os.getenv('A')", True),
        ("os.environb", True),
        ("from os import environ", True),
        ("'A' in os.environ", True),
    ],
)
def test_the_search_for_reading_finds_it(code: str, found: bool) -> None:
    assert reads_variables(ast.parse(code)) is found


def test_variables_are_read_through_one_door() -> None:
    reading = {dotted(path).removesuffix(".__init__") for path in MODULES if reads_variables(tree_of(path))}
    assert reading == {"_internal.environment", *READ_VARIABLES}


def opened_to_write(source: str) -> list[str]:
    """The calls that may write to what somebody else has put there, a link for instance."""
    found = []
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call):
            text, name = ast.unparse(call), ast.unparse(call.func)
            texts = [each.value for each in ast.walk(call) if isinstance(each, ast.Constant)]
            modes = [each for each in texts if isinstance(each, str)]
            is_open = name in ("open", "io.open", "os.fdopen", "gzip.open") or name.endswith(".open")
            writes = any(re.fullmatch("[rwxabt+]*[wa+][rwxabt+]*", mode) for mode in modes) or "O_CREAT" in text
            by_name = name.split(".")[-1] in ("write_text", "write_bytes", "touch", "mktemp", "copyfile", "copy2")
            if ((is_open and writes) or by_name) and "O_EXCL" not in text and "exist_ok=False" not in text:
                found.append(text)
    return found


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("open(p)", 0), ("open(p, 'rb')", 0), ("open(p, 'w')", 1), ("open(p, mode='ab')", 1), ("p.open('r+b')", 1),
        ("os.open(p, os.O_WRONLY | os.O_CREAT)", 1), ("os.open(p, os.O_CREAT | os.O_EXCL)", 0), ("p.write_text(t)", 1),
        ("open(os.open(p, os.O_CREAT | os.O_EXCL), 'w')", 0), ("p.touch(0o600)", 1), ("open(p, 'xb')", 0),
    ],
)  # fmt: skip
def test_the_search_for_writing_finds_it(code: str, found: int) -> None:
    assert len(opened_to_write(code)) == found


def test_files_are_written_through_one_door() -> None:
    """Which no link leads through; what is made with O_EXCL, or in a new folder, is nobody else's."""
    modules = [path for path in MODULES if relative(path) != "python/cprofiling/_internal/files.py"]
    found = [(relative(path), each) for path in modules for each in opened_to_write(path.read_text(encoding="utf-8"))]
    assert found == []


def test_lines_of_the_package_fit() -> None:
    wrong = []
    for path in MODULES:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > WIDTH or line != line.rstrip():
                wrong.append(f"{relative(path)}:{number}")
    assert wrong == [], f"longer than {WIDTH} columns, or with blanks at the end"
