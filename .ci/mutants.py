"""Change one place of the sources at a time, and list the changes that no test notices.

    python .ci/mutants.py --room cprofiling/stats --sample 400 --seed 1
    python .ci/mutants.py --room python/cprofiling/nodes --tests tests/nodes

A room is how the paths of its sources begin, and may have wildcards, as cprofiling/nodes/*.c. C is compiled with -O1; a
mutant runs the C programs that are linked with what it changes. Where the compiler makes the same code of it, or none
of it, it does not count. Python needs pytest and coverage: a mutant runs the tests, among ``--tests``, that run its
line; of those that start programs nothing is known, and ``--whole`` runs them all. Survivors are printed as in
mutants_equivalent.txt, where those stand that no test can notice, and why; ``--only FILE`` tries what such a file
lists. All is done in a copy of the checkout, below build/mutants.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
COPY = ROOT / "build" / "mutants" / "tree"
BUILT = ROOT / "build" / "mutants" / "built"
NOT_CODE = re.compile(
    r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|^[ \t]*#(?:\\\n|[^\n])*", re.DOTALL | re.MULTILINE
)
TOKEN = re.compile(
    r"->|<<=|>>=|<=|>=|==|!=|&&|\|\||\+\+|--|\+=|-=|<<|>>|(?<=[\w)\]] )[-+]|[<>]|\b(?:true|false)\b"
    r"|(?<![\w.])\d+\.\d+(?![\w.])|(?<![\w.])(?:0[xX][0-9a-fA-F]+|\d+)(?![\w.])"
)
SWAPS = {
    "<": "<= >=", "<=": "< >", ">": ">= <=", ">=": "> <", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "++": "--",
    "--": "++", "+=": "-=", "-=": "+=", "<<": ">>", ">>": "<<", "+": "-", "-": "+", "true": "false", "false": "true",
}  # fmt: skip
DECLARATION = re.compile(r"(?:return\b.|case\b|typedef\b|(?:const |struct )*\w+[ *]+(?:const )?\w+ *(?:[=;,\[]|:))")
STATEMENT = re.compile(r"(?<=[;{}:])\s*\n[ \t]+(\w[^;{}]*;|\+\+[^;{}]*;|--[^;{}]*;|\*[^;{}]*;)", re.DOTALL)
COMPARISONS: dict[type[ast.cmpop], list[type[ast.cmpop]]] = {
    ast.Lt: [ast.LtE, ast.GtE], ast.LtE: [ast.Lt, ast.Gt], ast.Gt: [ast.GtE, ast.LtE], ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq], ast.NotEq: [ast.Eq], ast.Is: [ast.IsNot], ast.IsNot: [ast.Is], ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
}  # fmt: skip
PRELOADED = ["pytest", "hypothesis", "numpy", "pandas", "rich.console", "rich.table", "jinja2", "jsonschema", "pyarrow"]


class Mutant(NamedTuple):
    """A source with one change."""

    path: str
    line: int
    source: str  # with the change
    old: str  # the line, and what it becomes
    new: str

    def __str__(self) -> str:
        return f"{self.path}\n- {self.old}\n+ {self.new}\n"


def make(path: str, text: str, begin: int, end: int, words: str) -> Mutant:
    """Return the mutant that has these words in place of a part of the text."""
    first, last = text.rfind("\n", 0, begin) + 1, text.find("\n", end)
    old, new = text[first:last], text[first:begin] + words + text[end:last]
    source = text[:begin] + words + "\n" * text.count("\n", begin, end) + text[end:]
    return Mutant(path, text.count("\n", 0, begin) + 1, source, " ".join(old.split()), " ".join(new.split()))


# ---- C


def mutate_c(path: str, text: str) -> Iterator[Mutant]:
    """Find all mutants of a C file."""
    code = NOT_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)
    hints = re.compile(r"(?<=__builtin_expect)\(.*?, [01]\)")
    for token in TOKEN.finditer(hints.sub(lambda found: found.group()[:-3] + "   ", code)):
        word = token.group()
        if word[0].isdigit():
            number = float(word) if "." in word else int(word, 0)
            for words in [str(number + 1), str(number - 1)][: 2 if number > 0 else 1]:
                yield make(path, text, *token.span(), words)
        for words in SWAPS.get(word, "").split():
            yield make(path, text, *token.span(), words)
    for found in STATEMENT.finditer(code):
        if not DECLARATION.match(found.group(1)):
            yield make(path, text, *found.span(1), ";")
    for found in re.finditer(r"\b(?:if|while) \(", code):
        depth = end = 1
        while depth:
            depth += {"(": 1, ")": -1}.get(code[found.end() + end - 1], 0)
            end += 1
        begin, end = found.end(), found.end() + end - 2
        yield make(path, text, begin, end, f"!({text[begin:end]})")


class Program(NamedTuple):
    """A C program of the tests."""

    name: str
    striped: bool
    units: list[str]  # sources of what it is linked with, its own first
    seconds: float


class Core:
    """Compiles and runs what a mutant of C changes."""

    def __init__(self, room: str, watches_threads: bool) -> None:
        sys.path[:0] = [str(COPY / "tests/core"), str(COPY / "tests/support")]
        self.tests = importlib.import_module("test_core")
        self.kind = "tsan" if watches_threads else "aarch64"  # whose arguments the programs get
        self.flags = ["-O1", "-fsanitize=thread" if watches_threads else "-fPIC"]
        self.needs: dict[str, set[str]] = {}
        self.programs: list[Program] = []
        for unit in [*COPY.glob("cprofiling/**/*.c"), *COPY.glob("tests/core/**/*.c")]:
            path = str(unit.relative_to(COPY))
            for striped in (False, True):
                if not self.compile(path, BUILT, striped) and not path.startswith("tests/"):
                    sys.exit(f"{path} cannot be compiled")
        for name, path in self.tests.SOURCES.items():
            for striped in [False, True] if name in self.tests.STRIPED else [False]:
                program = Program(name, striped, [str(path.relative_to(COPY))], 0)
                if name in self.tests.LOADERS or (name == "stripes" and not striped):
                    continue
                listing = self.link(program, [str(self.object_of(program.units[0], striped)), *self.archive(striped)])
                units = [
                    path
                    for path in self.needs
                    if f"){self.object_of(path, striped).name}\n" in listing or path in program.units
                ]
                begun = time.monotonic()
                if self.run(program, 60):
                    seconds = time.monotonic() - begun
                    if seconds < 5 or path.parent.name in room.split("/"):
                        self.programs.append(program._replace(units=units, seconds=seconds))
                else:
                    print(f"left out, as it fails: {name}")
        self.programs.sort(key=lambda program: (Path(program.units[0]).parent.name not in room, program.seconds))

    def object_of(self, path: str | Path, striped: bool, folder: Path = BUILT) -> Path:
        """Return where the object file of a source is."""
        kind = f"{self.kind}-striped" if striped else self.kind
        return folder / kind / str(path).replace("/", "-").replace(".c", ".o")

    def archive(self, striped: bool) -> list[str]:
        """Put the core into an archive, of which a program takes what it needs."""
        archive = self.object_of("core", striped).with_suffix(".a")
        objects = [self.object_of(path, striped) for path in self.needs if path.startswith("cprofiling/")]
        subprocess.run(["ar", "rcs", archive, *objects, self.object_of("tests/core/fake_alloc.c", striped)], check=True)
        return [str(archive), "-Wl,-t,-t"]

    def compile(self, path: str, folder: Path, striped: bool) -> bool:
        """Compile a file of the copy, and remember what it includes."""
        target = self.object_of(path, striped, folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        noted = target.with_suffix(".d")
        if folder == BUILT and self.is_new(target, noted):
            self.needs[path] = self.needs.get(path, set()) | set(self.included(noted))
            return True
        flags = [flag for flag in self.tests.COMMON if not flag.startswith("-W")]
        flags += ["-isystem", self.tests.NVTX] if self.tests.NVTX else []
        flags += ["-DCPROF_STRIPES=8"] if striped else []
        command = ["gcc", "-w", *self.flags, "-fvisibility=hidden", *flags, "-MMD", "-c", path, "-o", str(target)]
        if subprocess.run(command, cwd=COPY, capture_output=True, check=False).returncode:
            return False
        self.needs[path] = self.needs.get(path, set()) | set(self.included(noted))
        return True

    def included(self, noted: Path) -> list[str]:
        """Read what the compiler notes of the files that it has read."""
        words = noted.read_text(encoding="utf-8").replace("\\\n", " ").split()
        return [os.path.normpath(word) for word in words[1:]]

    def is_new(self, target: Path, noted: Path) -> bool:
        """Tell whether an object file is newer than what it is made of."""
        if not noted.exists() or not target.exists():
            return False
        return all((COPY / path).stat().st_mtime < target.stat().st_mtime for path in self.included(noted))

    def link(self, program: Program, objects: list[str]) -> str:
        """Link a program, and return what the linker says."""
        wrapped = [f"-Wl,--wrap={name}" for name in self.tests.WRAPPED.findall(self.tests.text_of(program.name))]
        command = ["gcc", *self.flags, "-pthread", *wrapped, *objects, "-o", str(BUILT / "program"), "-lm", "-ldl"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def run(self, program: Program, limit_s: float) -> bool:
        """Run the program that was linked last."""
        argument = self.tests.ARGUMENTS.get((program.name, self.kind))
        room = 1 << (47 if self.kind == "tsan" else 33)  # its shadow memory is of that size
        return passes([str(BUILT / "program"), *([argument] if argument else [])], limit_s, room)

    def verdict(self, mutant: Mutant) -> str:
        """Say killed, survived, or why the mutant does not count."""
        folder = BUILT / "mutant"
        shutil.rmtree(folder, ignore_errors=True)
        made: dict[tuple[str, bool], Path] = {}
        same: set[bool] = set()

        def objects(units: list[str], striped: bool) -> list[str]:
            for unit in units:
                if mutant.path in self.needs[unit] and (unit, striped) not in made:
                    if not self.compile(unit, folder, striped):
                        raise SyntaxError(unit)
                    made[unit, striped] = self.object_of(unit, striped, folder)
                    same.add(made[unit, striped].read_bytes() == self.object_of(unit, striped).read_bytes())
            return [str(made.get((unit, striped), self.object_of(unit, striped))) for unit in units]

        try:
            for program in self.programs:
                if any(mutant.path in self.needs[unit] for unit in program.units):
                    files = objects(program.units, program.striped)
                    if any(str(folder) in file and same != {True} for file in files):
                        self.link(program, files)
                        if not self.run(program, 10 * program.seconds + 6):
                            return "killed"
            objects([path for path in self.needs if not path.startswith("tests")], False)
        except SyntaxError:
            return "not C"
        if same == {True}:
            return "same code"
        return "survived"


def passes(command: list[str], limit_s: float, room: int) -> bool:
    """Run a program in the copy within so many bytes, and end what it started."""
    environment = os.environ | {"PYTHONPATH": f"{COPY}/python:{COPY}/tests/support", "TMPDIR": str(BUILT)}
    cpu_s = int(limit_s / 3) + 1  # others may use the processor, too
    limits = {
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_DATA: (room, room),
        resource.RLIMIT_CPU: (cpu_s, cpu_s),
    }

    def limit() -> None:
        for kind, values in limits.items():
            resource.setrlimit(kind, values)

    process = subprocess.Popen(
        command,
        cwd=COPY,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=limit,  # noqa: PLW1509 - there are no threads
    )
    return wait(process.pid, process.poll, limit_s) == 0


def wait(leader: int, poll: Callable[[], int | None], limit_s: float) -> int | None:
    """Wait for the end of a process that leads a group, and end the group. None: it took too long."""
    end, pause = time.monotonic() + limit_s, 0.001
    while (status := poll()) is None and time.monotonic() < end:
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    while status is None and poll() is None:
        time.sleep(0.01)
    return status


# ---- Python


def mutate_python(path: str, text: str) -> Iterator[Mutant]:
    """Find all mutants of a Python module."""
    lines = [0]
    for line in text.encode().splitlines(keepends=True):
        lines.append(lines[-1] + len(line))

    def change(node: Any, words: str) -> Mutant:
        begin = len(text.encode()[: lines[node.lineno - 1] + node.col_offset].decode())
        end = len(text.encode()[: lines[node.end_lineno - 1] + node.end_col_offset].decode())
        return make(path, text, begin, end, words)

    def visit(node: ast.AST, inside: bool) -> Iterator[Mutant]:
        """Visit what runs: no annotation, decorator or part of an f-string; nothing that asks for a version."""
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.If | ast.IfExp) and is_fixed(node.test)):
            return
        for field, value in ast.iter_fields(node):
            if field not in ("annotation", "returns", "decorator_list", "type_params"):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        yield from visit(child, inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        for other in others_of(node, inside):
            yield change(node, f"({ast.unparse(other)})" if isinstance(other, ast.expr) else ast.unparse(other))
        test = getattr(node, "test", None) if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert) else None
        for each in [test] if test else node.ifs if isinstance(node, ast.comprehension) else []:
            yield change(each, f"(not ({ast.unparse(each)}))")

    return visit(ast.parse(text), False)


def is_fixed(test: ast.expr) -> bool:
    """Tell whether a condition asks where it runs."""
    return re.search("TYPE_CHECKING|version_info|sys.platform", ast.unparse(test)) is not None


def others_of(node: ast.AST, inside: bool) -> Iterator[ast.AST]:
    """Find what a node of the syntax tree may become."""
    if isinstance(node, ast.Compare):
        for i, operator in enumerate(node.ops):
            for kind in COMPARISONS[type(operator)]:
                yield ast.Compare(node.left, [*node.ops[:i], kind(), *node.ops[i + 1 :]], node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values)
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        if not any(isinstance(part, ast.JoinedStr) for part in (node.left, node.right)):
            yield ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield from [ast.Constant(node.value + 1), ast.Constant(node.value - 1)]
    elif inside and (isinstance(node, ast.Raise | ast.AugAssign | ast.Assign | ast.Delete) or is_call(node)):
        yield ast.Pass()
    elif isinstance(node, ast.Return) and node.value and ast.unparse(node.value) != "None":
        yield ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Break | ast.Continue):
        yield ast.Continue() if isinstance(node, ast.Break) else ast.Break()


def is_call(node: ast.AST) -> bool:
    """Tell whether it is a statement that only calls something."""
    return isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)


class Watch:
    """A plugin of pytest that notes which lines of the room each test runs, and how long it takes."""

    def __init__(self, room: str) -> None:
        self.coverage = importlib.import_module("coverage").Coverage(
            data_file=None, config_file=False, include=[f"{COPY}/{room}*", f"{COPY}/{room}/*"]
        )
        self.seconds: dict[str, float] = {}
        self.coverage.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Begin a test."""
        self.coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Add the time of a part of a test; one that fails is not to be run."""
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + report.duration
        if report.failed:
            self.seconds[report.nodeid] = float("inf")

    def lines(self) -> dict[str, list[str]]:
        """Return the lines that each test runs, those of imports for the test named with nothing."""
        self.coverage.stop()
        data = self.coverage.get_data()
        lines: dict[str, list[str]] = {}
        for file in data.measured_files():
            for line, tests in data.contexts_by_lineno(file).items():
                for test in tests:
                    lines.setdefault(test, []).append(f"{os.path.relpath(file, COPY)}:{line}")
        return lines


class Modules:
    """Runs the tests of a mutant of Python."""

    def __init__(self, room: str, tests: list[str], whole: bool) -> None:
        sys.path[:0] = [str(COPY / "python"), str(COPY / "tests/support")]
        os.environ["PYTHONPATH"] = f"{COPY}/python:{COPY}/tests/support"
        for module in PRELOADED:
            try:
                importlib.import_module(module)
            except ImportError:
                print(f"without {module}")
        self.whole = tests if whole else []
        if whole:
            return
        kept = BUILT / f"{room.replace('/', '-')}.json"
        found = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
        for path in sorted(path for test in tests for path in [COPY / test, *(COPY / test).rglob("test_*.py")]):
            if path.is_dir():
                continue
            name, key = str(path.relative_to(COPY)), hashlib.sha256(path.read_bytes()).hexdigest()
            if found.get(name, {}).get("key") != key:
                fork(partial(watch, room, name), 600)
                found[name] = json.loads((BUILT / "lines.json").read_text(encoding="utf-8")) | {"key": key}
                kept.write_text(json.dumps(found), encoding="utf-8")
        self.seconds = {test: took for file in found.values() for test, took in file["seconds"].items() if took < 60}
        self.lines: dict[str, set[str]] = {}
        for file in found.values():
            for test, lines in file["lines"].items():
                for line in lines:
                    self.lines.setdefault(line, set()).update([test] if test else file["seconds"])

    def verdict(self, mutant: Mutant) -> str:
        """Say killed, survived, or that no test runs the line."""
        path = COPY / mutant.path
        made = path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc"
        made.unlink(missing_ok=True)
        if self.whole:
            return "survived" if fork(lambda: run_pytest(["-x", *self.whole]), 900) == 0 else "killed"
        tests = sorted(
            self.lines.get(f"{mutant.path}:{mutant.line}", set()) & set(self.seconds), key=self.seconds.__getitem__
        )
        if not tests:
            return "survived"
        status = fork(lambda: run_pytest(["-x", *tests]), 5 * sum(self.seconds[test] for test in tests) + 20)
        made.unlink(missing_ok=True)
        return "survived" if status == 0 else "killed"


def watch(room: str, name: str) -> int:
    """Run the tests of a file, and leave in lines.json what each of them runs."""
    plugin = Watch(room)
    status = run_pytest([name], plugin)
    (BUILT / "lines.json").write_text(
        json.dumps({"seconds": plugin.seconds, "lines": plugin.lines()}), encoding="utf-8"
    )
    return status


def run_pytest(arguments: list[str], *plugins: object) -> int:
    """Run tests; a status that is no failure means that there were none."""
    flags = [
        "-q",
        "-p",
        "no:cprofiling",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
    ]
    return int(importlib.import_module("pytest").main([*flags, *arguments], plugins=list(plugins))) % 5


def fork(body: Callable[[], int], limit_s: float) -> int | None:
    """Run it in a child process, without output."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setsid()
            os.chdir(COPY)
            output = os.open(BUILT / "output", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            for descriptor in range(3):
                os.dup2(output, descriptor)
            status = int(body())
        except BaseException:  # noqa: BLE001 - a status is all that the parent gets
            traceback.print_exc()
        finally:
            os._exit(status)

    def poll() -> int | None:
        ended, status = os.waitpid(child, os.WNOHANG)
        return status if ended else None

    return wait(child, poll, limit_s)


# ---- what it is called with


def listed(path: Path) -> set[str]:
    """Read the mutants of a list."""
    blocks = path.read_text(encoding="utf-8").split("\n\n") if path.exists() else []
    return {"\n".join(block.strip().split("\n")[:3]) + "\n" for block in blocks}


def main() -> None:
    """Try the mutants of a room."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--room", required=True, help="how the paths of the sources begin")
    parser.add_argument("--tests", nargs="*", default=[], help="folders or files of Python tests")
    parser.add_argument(
        "--whole", action="store_true", help="all of them, also those whose programs alone run the line"
    )
    parser.add_argument("--threads", action="store_true", help="run the programs of C under ThreadSanitizer")
    parser.add_argument("--sample", type=int, default=400, help="the number of mutants to try (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="which sample (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=1440, help="when to stop (default: after %(default)s minutes)")
    parser.add_argument("--only", type=Path, metavar="FILE", help="try those that this file lists")
    options = parser.parse_args()
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    made = [str(path.relative_to(ROOT)) for path in (ROOT / "python/cprofiling").glob("_core*.so")]
    BUILT.mkdir(parents=True, exist_ok=True)
    for file in [*files.split("\0")[:-1], *made]:
        (COPY / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / file, COPY / file)
    in_python = options.room.startswith("python")
    mutants: list[Mutant] = []
    for file in sorted(files.split("\0")):
        if fnmatch(file, f"{options.room}*") and file.endswith((".py",) if in_python else (".c", ".h")):
            text = (ROOT / file).read_text(encoding="utf-8")
            mutants += (mutate_python if in_python else mutate_c)(file, text)
    possible = len(mutants)
    random.Random(options.seed).shuffle(mutants)
    if options.only:
        wanted = listed(options.only)
        mutants = [mutant for mutant in mutants if str(mutant) in wanted]
    equivalent = listed(Path(__file__).with_name("mutants_equivalent.txt"))
    worker = Modules(options.room, options.tests, options.whole) if in_python else Core(options.room, options.threads)
    counts = dict.fromkeys(["killed", "survived", "equivalent", "same code", "not C"], 0)
    end = time.monotonic() + 60 * options.minutes
    for mutant in mutants:
        if counts["killed"] + counts["survived"] >= options.sample or time.monotonic() > end:
            break
        (COPY / mutant.path).write_text(mutant.source, encoding="utf-8")
        verdict = "equivalent" if str(mutant) in equivalent else worker.verdict(mutant)
        shutil.copy2(ROOT / mutant.path, COPY / mutant.path)
        counts[verdict] += 1
        print(*counts.values(), end="\r", file=sys.stderr, flush=True)
        if verdict == "survived":
            print(f"{mutant}{mutant.path}:{mutant.line}\n", flush=True)
    print(f"{options.room}: {possible} possible;", ", ".join(f"{count} {name}" for name, count in counts.items()))


if __name__ == "__main__":
    main()
