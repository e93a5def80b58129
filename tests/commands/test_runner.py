"""``cprofiling run``: a program runs as Python runs it (scenario D16), and the functions meant are nodes."""

from __future__ import annotations

import os
import py_compile
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import cprofiling
from calls import unwatched
from command import PACKAGE, SCRIPT, Done, python
from cprofiling import _core
from cprofiling.commands import main as cli
from cprofiling.nodes.from_patterns import source as node_source
from cprofiling.nodes.from_patterns.patterns import Pattern, Selection
from recorded import names_in_file

OWN_LINE = re.compile(r"^cprofiling: .*\n", re.MULTILINE)
ADDRESS = re.compile(r"0x[0-9a-f]+")


def run(*arguments: str, folder: Path, options: Sequence[str] = (), watched: bool = True, **more: Any) -> Done:
    """Run ``cprofiling run``."""
    return python([*options, SCRIPT, "run", *arguments], folder, watched=watched, **more)


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


# Programs that are one script, called with the arguments "one" and "-n". What they print must not vary by itself.
SCRIPTS = {
    "names": """
        import sys, os, __main__
        def f(): pass
        print(sys.argv, sys.orig_argv, sys.path[0], sys.path[1:], os.getcwd(), sys.flags, __name__, __file__)
        print(__doc__, __package__, __spec__, type(__loader__), __builtins__, globals().get("__annotations__"))
        print(globals().get("__cached__"), list(globals()))
        print(__main__.__dict__ is globals(), sys.modules["__main__"], f.__module__, f.__qualname__)
        print(sys.excepthook is sys.__excepthook__, hasattr(sys, "last_value"), sys.exc_info())
    """,
    "stack": """
        import inspect, logging, sys, traceback, warnings
        def f():
            traceback.print_stack()
            print(len(inspect.stack()), sys._getframe(1).f_back)
        f()
        warnings.warn("deep", stacklevel=9)
        logging.error("logged", stack_info=True)
    """,
    "recursion": """
        import sys
        depth = 0
        def deep():  # is no node: these take C's stack, too, of which 3.12 allows less
            global depth
            depth += 1
            deep()
        def f():
            deep()
        try:
            deep()
        except RecursionError:
            print(depth, sys.getrecursionlimit())
        deep()
    """,
    "exception": """
        import traceback
        class Own(Exception):
            pass
        def f(n):
            try:
                return 1 / n
            except ZeroDivisionError as error:
                try:
                    raise Own("own") from error
                except Own:
                    traceback.print_exc()
                    raise KeyError(n)
        print("begun")
        f(0)
    """,
    "nul": "def f(): pass\n\0\n",
    "warnings": """
        import warnings
        def f(): return "\\d" is "d"
        warnings.warn("here", DeprecationWarning)
        warnings.warn("there")
        f()
    """,
    "interrupt": """
        import os, signal, sys
        def f(): os.kill(os.getpid(), signal.SIGINT)
        class Late:
            def __del__(self): print("late", file=sys.__stderr__)
        late = Late()
        f()
        while True: pass
    """,
    "handled": """
        import os, signal
        def f(number, frame): raise SystemExit(number + 1)
        signal.signal(signal.SIGTERM, f)
        os.kill(os.getpid(), signal.SIGTERM)
        while True: pass
    """,
    "hooks": """
        import atexit, sys
        def f(kind, value, traceback):
            print("hook", kind, value, traceback.tb_frame.f_code.co_name, traceback.tb_next, file=sys.stderr)
            raise OSError("in the hook")
        def late():
            print("late", sys.last_value)
            1 / 0
        sys.excepthook = f
        atexit.register(lambda: late())
        raise ValueError("first")
    """,
    "threads": """
        import threading, sys
        ended = threading.Event()
        def f():
            ended.wait()
            print("thread", threading.current_thread().name, threading.main_thread().name)
            sys.exit(7)
        def g(): raise ValueError("in a thread")
        threading.Thread(target=f).start()
        thread = threading.Thread(target=g)
        thread.start()
        thread.join()
        print("main ends")
        ended.set()
    """,
    "input": """
        import sys
        def f(): return input("? ")
        print(f(), sys.stdin.read().split())
    """,
    "future": """
        #!/usr/bin/env python
        # -*- coding: latin-1 -*-
        '''The docstring.'''
        from __future__ import annotations
        def f(x: Unknown) -> Other:
            '''
            >>> f(1)
            1
            >>> g(2)
            5
            '''
            return x
        class C:
            'Of a class.'
            def method(self: Self): return super().__repr__()
        g = lambda x: x + 2
        import doctest, inspect
        print(__doc__, f.__doc__, f.__annotations__, C.method.__annotations__, inspect.signature(f))
        print(inspect.getsource(f), inspect.getsource(C), inspect.getsourcelines(C.method), inspect.getfile(f))
        print(doctest.testmod())
    """,
    "pickles": """
        import copy, functools, pickle
        def f(x): return x
        class C:
            def __new__(cls, *args): return super().__new__(cls)
            def __init_subclass__(cls, **more): print(cls, more)
            def __class_getitem__(cls, item): return (cls, item)
            def __init__(self, x): self.x = x
            def __eq__(self, other): return self.x == other.x
            @classmethod
            def make(cls): return cls(4)
            @staticmethod
            def static(x): return x
            @property
            def double(self): return self.x * 2
            @double.setter
            def double(self, value): self.x = value / 2
            @functools.lru_cache
            def cached(self=None): return 1
            __hash__ = object.__hash__
        class D(C, key=1):
            @classmethod
            def __class_getitem__(cls, item): return item
            @staticmethod
            def __new__(cls, *args): return super().__new__(cls)
        print(pickle.loads(pickle.dumps(f)) is f, pickle.loads(pickle.dumps(C.make)) == C.make, C[1], D[2])
        c = pickle.loads(pickle.dumps(D(5)))
        c.double = 9
        print(c.x, c.double, C.make().x, C.static(6), C.cached(), copy.deepcopy(c) == c, C.__new__(C))
    """,
    "asyncio": """
        import asyncio
        async def f(n):
            await asyncio.sleep(0)
            if n: await f(n - 1)
            else: raise ValueError("deep")
        async def g():
            for i in range(2):
                yield i
        async def main():
            print([i async for i in g()])
            await f(2)
        asyncio.run(main(), debug=False)
    """,
    "pool": """
        import multiprocessing, os, sys
        def f(x): return x * x
        def g(): raise ValueError("in a child")
        if __name__ == "__main__":
            for method in ("fork", "spawn"):
                context = multiprocessing.get_context(method)
                with context.Pool(1) as pool:
                    print(pool.map(f, range(3)))
                child = context.Process(target=g, name="child")
                child.start()
                child.join()
                print(child.exitcode)
        else:
            print("imported as", __name__, sys.argv, flush=True)
    """,
    "closed": """
        import os, sys
        def f(): os.close(1)
        print("lost")
        f()
    """,
    "replaced": """
        import sys, types
        def f(): raise ValueError("gone")
        sys.modules["__main__"] = types.ModuleType("__main__")
        sys.argv = sys.path = None
        f()
    """,
    "nodes of its own": """
        import cprofiling as cp
        @cp.profile_node("own")
        def f(): return cp.profiling_enabled()
        cp.set_profiling(True)
        print(f(), [(stats.node_name, stats.count) for stats in cp.get_profiling_summary()])
    """,
}
SPOILING = ("replaced",)  # what a tool needs that counts lines
WITHOUT_PATTERNS = ("names", "stack", "exception", "hooks", "nodes of its own")  # what is run so, too
ARGUMENTS = ("app.py", "one", "-n")
STDIN = "first line\nsecond line\n"


def dedented(text: str) -> str:
    lines = text.splitlines()[1:] if text.startswith("\n") else text.splitlines()
    return "\n".join(line[8:] if line.startswith(" " * 8) else line for line in lines).rstrip(" ") + "\n"


def compared(done: Done) -> tuple[int, str, str]:
    """What must be equal: without our own lines and addresses, but with as much of them as there is."""
    return done.status, ADDRESS.sub("0x", done.out), ADDRESS.sub("0x", OWN_LINE.sub("", done.err))


def check_equal(folder: Path, *program: str, bare: bool = True, watched: bool = True, **more: Any) -> Done:
    """Run a program plainly, recorded if ``bare``, and with its functions as nodes: each must look the same."""
    options = more.setdefault("options", ())
    plain = compared(python([*options, *program], folder, watched=False, stdin=more.get("stdin", "")))
    out = ["-o", str(folder / "t.json")]
    if bare:
        assert compared(run(*out, *program, folder=folder, watched=False, **more)) == plain
    nodes = run(*out, "-n", "*:[fgC]*", *program, folder=folder, watched=watched, **more)
    assert compared(nodes) == plain
    return nodes


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_sees_and_does_the_same(name: str, tmp_path: Path) -> None:
    write(tmp_path, {"app.py": dedented(SCRIPTS[name])})
    bare, watched = name in WITHOUT_PATTERNS, name not in SPOILING
    check_equal(tmp_path, *ARGUMENTS, stdin=STDIN, bare=bare, watched=watched)
    if name == "recursion" and sys.version_info[:2] == (3, 12):
        return  # which allows 750 calls of nodes inside one another
    plain = compared(python([*ARGUMENTS], tmp_path, watched=False, stdin=STDIN))
    assert compared(run("--all", *ARGUMENTS, folder=tmp_path, watched=False, stdin=STDIN)) == plain


SHOW = """
import sys, os
def f(): return 1 / len(sys.argv[2:])
print(sys.argv, sys.orig_argv, sys.path[0], sys.path[1:], __name__, __file__, __package__, __spec__)
print(__doc__, list(globals()))
if "-x" in sys.argv:
    raise ValueError("as asked")
print(f())
"""
PROJECT = {
    "app.py": SHOW,
    "pkg/__init__.py": "print('pkg is imported')\n",
    "pkg/__main__.py": "from . import part\nfrom .part import f\nprint(f(), part.__package__)\n" + SHOW,
    "pkg/part.py": "def f(): return 3\n",
    "pkg/bare/__init__.py": "",
    "pkg/sub.py": "from .part import f as g\nimport pkg.sub\nprint(g(), pkg.sub is sys.modules['__main__'])\n".replace(
        "import", "import sys\nimport", 1
    )
    + SHOW,
    "pkg/broken.py": "def f(): pass\nx = = 1\n",
    "pkg/leaving.py": "def f(): raise SystemExit('left')\nf()\n",
    "pkg/at_exit.py": "import atexit\ndef f(): print(list(globals()))\natexit.register(f)\n",
    "pkg/interrupted.py": "import signal\ndef f(): signal.raise_signal(signal.SIGINT)\nf()\n",
    "folder/__main__.py": "from part import f as g\nprint(g())\n" + SHOW,
    "folder/part.py": "def f(): return 4\n",
    "empty/nothing.py": "",
    "uses_broken.py": "def f(): import pkg.broken\nf()\n",
    "uses_failing.py": "import failing\n",
    "failing.py": "def f(): raise ValueError('while it is imported')\nf()\n",
    "shadowing/app.py": "import json, argparse, token\nprint(json.f(), argparse.f(), token.__file__)\n",
    "shadowing/json.py": "def f(): return 'my json'\n",
    "shadowing/argparse/__init__.py": "def f(): return 'my argparse'\n",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    write(folder, PROJECT)
    with zipfile.ZipFile(folder / "packed.zip", "w") as archive:
        for name in ("__main__.py", "part.py"):
            archive.write(folder / "folder" / name, name)
    py_compile.compile(str(folder / "app.py"), str(folder / "compiled.pyc"))
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "linked.py").symlink_to("../app.py")
    return folder


@pytest.mark.parametrize(
    "program",
    [
        "-m app 1 -x",
        "-mpkg 1 2",
        "-m pkg.sub -o F",
        "-m pkg.bare",
        "-m pkg.broken",
        "-m pkg.leaving",
        "-m pkg.interrupted",
        "-m pkg.at_exit",
        "-m nothing",
        "-m json.tool --help",
        "folder a b",
        "./empty",
        "packed.zip a b",
        "compiled.pyc a b",
        "elsewhere/linked.py a b",
        "./pkg/../app.py -x",
        "uses_broken.py",
        "uses_failing.py",
        "shadowing/app.py",
    ],
)
def test_a_program_of_any_kind_sees_and_does_the_same(program: str, project: Path) -> None:
    check_equal(project, *program.split())


@pytest.mark.parametrize("program", [["{}/app.py", "1", "2"], ["-m", "app"]])
def test_where_the_working_folder_is_gone(program: list[str], project: Path) -> None:
    shell = ["sh", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$@"', "sh", sys.executable]
    arguments = [argument.format(project) for argument in program]
    own = [SCRIPT, "run", "-o", str(project / "t.json")]
    variables = unwatched() | {"PYTHONPATH": PACKAGE}
    plain, ours = (
        subprocess.run(
            [*shell, *start, *arguments], cwd=project, env=variables, capture_output=True, text=True, check=False
        )
        for start in ([], own)
    )
    assert plain.returncode == ours.returncode
    assert plain.stdout == ours.stdout
    assert OWN_LINE.sub("", ours.stderr) == plain.stderr


def test_a_program_that_cannot_be_recorded_runs_all_the_same(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"sitecustomize.py": "import cprofiling\nkept = cprofiling.profile()\nkept.start()\n", "app.py": "print(1)\n"},
    )
    done = run("app.py", folder=tmp_path, PYTHONPATH=f"{tmp_path}:{PACKAGE}")
    assert (done.status, done.out) == (0, "1\n")
    assert done.err == (
        "cprofiling: nothing is recorded: a recording is running already: there can be one at a time in a process\n"
    )


def test_options_of_the_interpreter_stay(project: Path) -> None:
    done = check_equal(project, "app.py", "1", "2", options=["-X", "dev", "-W", "error", "-B", "-OO"])
    assert "dev_mode=True" in done.out or done.status == 0


STAGES = """
from __future__ import annotations
import functools

def outer(n: int) -> int:
    def inner(): return n
    return inner() + (lambda: 1)()

class Stage:
    def forward(self, x): return outer(x) + self.helper()
    def helper(self): return 0
    @property
    def size(self): return 3
    @functools.cached_property
    def once(self): return 4
    class Part:
        @staticmethod
        def forward(): return 5

async def later(): return 6
def numbers(): yield 7
first = Stage().forward(1)
"""
USES = """
import asyncio, sys
import stages, space.inside
from stages import Stage
class Own(Stage):
    def forward(self, x): return super().forward(x)
stage = Own()
print(stage.forward(2), stage.size, stage.once, Stage.Part.forward(), asyncio.run(stages.later()), [*stages.numbers()])
print(space.inside.f(), stages.first)
sys.path.insert(0, "packed")
import zipped
print(zipped.f(), zipped.__file__[-18:])
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    files = {
        "app.py": USES,
        "stages.py": STAGES,
        "space/inside.py": "def f(): return 8\n",
        "zipped.py": "def f(): return 9\n",
    }
    write(tmp_path, files)
    with zipfile.ZipFile(tmp_path / "packed", "w") as archive:
        archive.write(tmp_path / "zipped.py", "zipped.py")
    (tmp_path / "zipped.py").unlink()
    return tmp_path


def test_the_functions_meant_are_nodes_from_their_first_call(pipeline: Path) -> None:
    compiles: Any = {"PYTHONDONTWRITEBYTECODE": ""}
    plain = python(["app.py"], pipeline, watched=False, **compiles)
    stale = {path: path.read_bytes() for path in pipeline.glob("**/*.pyc")}
    assert {path.name.partition(".")[0] for path in stale} == {"stages", "inside"}
    patterns = ["stages:*.forward", "-n", "stages:[!S]*", "-n", "__main__:Own*", "-n", "space*", "-n", "zip?ed:f"]
    done = run("-n", *patterns, "app.py", folder=pipeline, **compiles)
    assert done == (0, plain.out, f"cprofiling: 12 events are in '{pipeline}/trace.json'\n")
    assert names_in_file(pipeline / "trace.json") == [
        *["Stage.forward", "outer", "outer.<locals>.inner"],  # while the module is imported
        *["Own.forward", "Stage.forward", "outer", "outer.<locals>.inner"],
        *["Stage.Part.forward", "later", "numbers", "f", "f"],
    ]
    assert {path: path.read_bytes() for path in pipeline.glob("**/*.pyc")} == stale


BARE = """
class C:
    def f(self): return 1
class Closed(type):
    def __setattr__(self, name, value): raise AttributeError(name)
class D(metaclass=Closed):
    def f(self): return 5
"""


def test_modules_without_source_and_modules_that_are_there_already(tmp_path: Path) -> None:
    write(tmp_path, {"source/bare.py": BARE, "source/zipped.py": "def f(): return 6\n"})
    for name in ("bare", "zipped"):
        py_compile.compile(str(tmp_path / "source" / f"{name}.py"), str(tmp_path / f"{name}.pyc"))
    with zipfile.ZipFile(tmp_path / "packed", "w") as archive:
        archive.write(tmp_path / "zipped.pyc", "zipped.pyc")
    (tmp_path / "zipped.pyc").unlink()
    program = """
        import json, sys, threading, importlib.machinery, importlib.util
        sys.path.append("packed")
        import _heapq, bare, own, zipped
        class Loader:
            known = 7
            def create_module(self, spec): return None
            def exec_module(self, module): exec("def f(): return 4", vars(module))
        class Old:
            def load_module(self, name): raise ImportError("is old")
        class Finder:
            def find_spec(self, name, path, target=None):
                loader = {"made": Loader, "old": Old}.get(name)
                return loader and importlib.machinery.ModuleSpec(name, loader())
        sys.meta_path.append(Finder())
        import made
        print(json.dumps([bare.C().f(), own.f(), made.f(), _heapq.heappop([3]), bare.D().f(), zipped.f()]))
        print(type(made.__loader__), made.__spec__, importlib.util.find_spec("old").loader.load_module)
        del sys.modules["made"]
        print(importlib.util.find_spec("made").loader.known, importlib.util.find_spec("mad"))
        importlib.reload(own).f()
        thread = threading.Thread(target=own.f)
        thread.start()
        thread.join()
    """
    write(tmp_path, {"app.py": dedented(program), "own.py": "def f(): return 2\n"})
    plain = compared(python(["app.py"], tmp_path, watched=False))
    meant = ("json:dumps", "_heapq", "ba*", "own", "mad*", "old", "zipped", "threading")
    named = [each for name in meant for each in ("-n", name)]
    # Unwatched, as a watcher's own end calls what is meant here, after ours.
    done = run(*named, "-o", "t.json", "app.py", folder=tmp_path, watched=False)
    assert compared(done) == plain
    recorded = names_in_file(tmp_path / "t.json")
    ours = [name for name in recorded if name in ("C.f", "f", "heappop", "D.f", "dumps")]
    assert ours == ["C.f", "f", "f", "heappop", "f", "dumps", "f", "f"]
    assert "Thread.start" in recorded  # by its exact name even what this package itself runs on
    assert [line.partition(":")[2] for line in done.err.splitlines()[1:]] == [
        " -n 'old' matched nothing: no module 'old'"
    ]


def test_everything_may_be_meant(tmp_path: Path) -> None:
    program = """
        import argparse, asyncio, collections, concurrent.futures, dataclasses, decimal, email.message, enum, json
        import logging, pathlib, pickle, random, tempfile, typing, unittest, xml.dom.minidom
        class Color(enum.Enum):
            RED = 1
            def shown(self): return self.name.lower()
        @dataclasses.dataclass
        class Point:
            x: int
            def __post_init__(self): self.y = self.x
        async def main(): return await asyncio.gather(asyncio.to_thread(str, 1), asyncio.sleep(0, 2))
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            print(Color.RED.shown(), Point(3), asyncio.run(main()), list(pool.map(abs, [-1])), decimal.Decimal(1))
        print(xml.dom.minidom.parseString("<a/>").toxml(), typing.get_type_hints(Point), pathlib.Path("a") / "b")
        random.seed(1)
        print(random.random(), len(unittest.defaultTestLoader.loadTestsFromName("unittest").__class__.__name__))
    """
    write(tmp_path, {"app.py": dedented(program)})
    plain = compared(python(["app.py"], tmp_path, watched=False))
    assert plain[0] == 0
    assert compared(run("-n", "*", "-o", "t.json", "app.py", folder=tmp_path)) == plain
    recorded = set(names_in_file(tmp_path / "t.json"))
    assert {"Color.shown", "Point.__post_init__", "main", "run"} <= recorded


def test_patterns_that_match_nothing_are_named(pipeline: Path) -> None:
    patterns = ["stages:Stage.forwrd", "stage", "__main__:Own.forward", "nothing.like:*", "stages:fooo"]
    done = run(*(option for pattern in patterns for option in ("-n", pattern)), "app.py", folder=pipeline)
    assert done.status == 0
    assert done.err.splitlines() == [
        f"cprofiling: 1 events are in '{pipeline}/trace.json'",
        "cprofiling: -n 'stages:Stage.forwrd' matched nothing: no function 'Stage.forwrd' in stages; "
        "similar: Stage.forward, Stage.Part.forward, Stage.once",
        "cprofiling: -n 'stage' matched nothing: no module 'stage'; similar: stages, space",
        "cprofiling: -n 'nothing.like:*' matched nothing: no module 'nothing.like'",
        "cprofiling: -n 'stages:fooo' matched nothing: no function 'fooo' in stages",
    ]


def complaints(program: str, *patterns: str, folder: Path, main: Sequence[str] = ("app.py",)) -> list[str]:
    """What is said of patterns, without what all of it has in common."""
    write(folder, {"app.py": dedented(program)})
    done = run(*(option for pattern in patterns for option in ("-n", pattern)), *main, folder=folder)
    said = [line for line in done.err.splitlines() if " matched nothing: " in line]
    told = [line.split(" matched nothing: ")[0].removeprefix("cprofiling: ") for line in said]
    assert [each.removeprefix("no trace is written: ") for each in told] == [f"-n {each!r}" for each in patterns]
    return [line.split(" matched nothing: ")[1] for line in said]


@pytest.mark.parametrize("program", ["print(1)", "def foo(:", "def other(): pass", "1 / 0"])
@pytest.mark.parametrize("main", [("app.py",), ("-m", "app")])
def test_a_module_that_is_there_is_not_said_to_be_missing(program: str, main: Sequence[str], tmp_path: Path) -> None:
    function, module = complaints(program, "__main__:foo", "__main_:foo", folder=tmp_path, main=main)
    assert function == "no function 'foo' in __main__"
    similar = module.removeprefix("no module '__main_'; similar: ").split(", ")
    assert similar[0] == "__main__"
    assert similar.count("__main__") == 1


def test_imported_modules_without_such_a_function(tmp_path: Path) -> None:
    write(tmp_path, {"bare.py": "", "broken.py": "def f(:"})
    program = """
        import bare, zlib
        try:
            import broken
        except SyntaxError:
            pass
    """
    assert complaints(program, "bare:foo", "zlib:compres", "broken:f", "b?re", folder=tmp_path) == [
        "no function 'foo' in bare",
        "no function 'compres' in zlib; similar: compress, decompress, compressobj",
        "no function 'f' in broken",
        "no function '*' in b?re",
    ]


def test_what_wildcards_do_not_take_is_said(tmp_path: Path) -> None:
    write(tmp_path, {"json_tools.py": "def dumper(): pass\n"})
    rule = "a wildcard takes no module that is loaded before the program begins: give the exact name"
    assert complaints("import json", "json*:*", "genericpat[h]:*", folder=tmp_path) == [
        f"{rule} (json, json.decoder, json.encoder, ...)",
        f"{rule} (genericpath)",
    ]
    program = "import json, json_tools"
    assert complaints(program, "json*:dumpe", "json:dumpe", folder=tmp_path) == [
        f"no function 'dumpe' in json*; similar: dumper; {rule} (json, json.decoder, json.encoder, ...)",
        "no function 'dumpe' in json; similar: dump, dumps",
    ]


def test_the_modules_statistics_are_its_own(tmp_path: Path) -> None:
    program = """
        import cprofiling as cp
        def f(): g()
        @cp.profile_node
        def g(): pass
        cp.set_profiling(True)
        f()
        print([(stats.node_name, stats.count) for stats in cp.get_profiling_summary()])
    """
    write(tmp_path, {"app.py": dedented(program)})
    done = run("-n", "__main__:f", "app.py", folder=tmp_path)
    assert (done.status, done.out) == (0, "[('g', 1)]\n")
    assert names_in_file(tmp_path / "trace.json") == ["f", "g"]


def test_processes_of_the_program_are_recorded_beside_it(tmp_path: Path) -> None:
    program = """
        import multiprocessing, os, sys
        import helper
        def f(x): return helper.g(x)
        if __name__ == "__main__":
            f(0)
            for method in ("fork", "spawn", "forkserver"):
                context = multiprocessing.get_context(method)
                with context.Pool(1) as pool:
                    assert pool.map(f, range(2)) == [0, 1]
                child = context.Process(target=f, args=(2,))
                child.start()
                child.join()
                print(method, child.pid)
            idle = context.Process(target=print)
            idle.start()
            idle.join()
            if not os.fork():
                f(3)
                multiprocessing.resource_tracker._resource_tracker._fd = None  # CPython 3.13.5 waits for the parent's
                sys.exit(5)
            print(os.wait()[1])
    """
    write(tmp_path, {"app.py": dedented(program), "helper.py": "def g(x): return x\n"})
    done = run("-n", "__main__:f", "-n", "helper", "-o", "t.json", "app.py", folder=tmp_path)
    assert (done.status, done.err) == (0, f"cprofiling: 2 events are in '{tmp_path}/t.json'\n")
    printed = dict(line.split() for line in done.out.splitlines() if " " in line)
    assert done.out.splitlines()[-1] == str(5 << 8)
    assert [names_in_file(tmp_path / f"t_{pid}.json") for pid in printed.values()] == [["f", "g"]] * 3
    traces = [names_in_file(path) for path in tmp_path.glob("t*.json")]
    assert sorted(map(len, traces)) == [2, 2, 2, 2, 2, 4, 4, 4]
    assert {tuple(trace[:2]) for trace in traces} == {("f", "g")}
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_a_spawned_process_that_does_not_find_the_package_runs_all_the_same(tmp_path: Path) -> None:
    program = """
        import multiprocessing, os, sys
        def f(x): return "cprofiling" in sys.modules
        if __name__ == "__main__":
            import multiprocessing.spawn
            os.environ["PYTHONPATH"] = os.path.abspath("instead")
            cprofiling = sys.modules["cprofiling"]
            os.rename(os.path.dirname(cprofiling.__file__), "elsewhere")
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(f, [1]))
    """
    write(tmp_path, {"app.py": dedented(program), "instead/cprofiling.py": "raise ImportError"})
    (tmp_path / "cprofiling").symlink_to(Path(cprofiling.__file__).parent)
    done = run("-n", "__main__:f", "app.py", folder=tmp_path, PYTHONPATH=str(tmp_path))
    assert (done.status, done.out) == (0, "[False]\n")


def test_where_the_trace_goes(tmp_path: Path) -> None:
    write(tmp_path, {"app.py": "import cprofiling as cp\nwith cp.record('block'): pass\n"})
    done = run("-o", "t.json.gz", "--", "app.py", folder=tmp_path)
    assert done == (0, "", f"cprofiling: 1 events are in '{tmp_path}/t.json.gz'\n")
    assert [event.name for event in cprofiling.load_trace(tmp_path / "t.json.gz").events()] == ["block"]
    assert {path.name for path in tmp_path.iterdir()} == {"app.py", "t.json.gz"}
    variable: Any = {"CPROFILING_OUTPUT_PATH": "asked.json"}
    done = run("app.py", folder=tmp_path, **variable)
    assert done == (0, "", f"cprofiling: 1 events are in '{tmp_path}/asked.json'\n")
    done = run("--output=given.json", "-m", "app", folder=tmp_path, **variable, CPROFILING_OUTPUT_OWNER="another")
    assert done == (0, "", f"cprofiling: 1 events are in '{tmp_path}/given.json'\n")
    (tmp_path / "asked.json").unlink()
    done = run("app.py", folder=tmp_path, **variable, CPROFILING_OUTPUT_OWNER="another")
    assert re.fullmatch(rf"cprofiling: 1 events are in '{tmp_path}/asked_\d+\.json'\n", done.err)
    for variable in ({}, {"CPROFILING_OUTPUT_PATH": "trace.json"}):
        done = run("app.py", folder=tmp_path, RANK="3", **variable)  # which does not have the path
        assert re.fullmatch(rf"cprofiling: 1 events are in '{tmp_path}/trace_rank3_\d+\.json'\n", done.err)
        assert not (tmp_path / "trace.json").exists()
    assert run("app.py", folder=tmp_path, RANK="0").err == f"cprofiling: 1 events are in '{tmp_path}/trace.json'\n"
    write(tmp_path, {"bare.py": "print(1)\n"})
    done = run("-o", "/dev/full", "bare.py", folder=tmp_path)
    assert done.status == 0
    assert done.err.splitlines() == [
        "cprofiling: the trace is not written to '/dev/full': No space left on device",
        "cprofiling: the program has no nodes of its own: name functions that are to be nodes by -n",
    ]


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        ([], 2, "a program is required: SCRIPT or -m MODULE"),
        (["-o", "x"], 2, "a program is required"),
        (["-n"], 2, "expected one argument"),
        (["-n", ":f", "app.py"], 2, "expected MODULE:FUNCTION or MODULE, both globs, got ':f'"),
        (["-n", "m:", "app.py"], 2, "got 'm:'"),
        (["--unknown", "app.py"], 2, "unrecognized arguments: --unknown"),
        (["--out", "x", "app.py"], 2, "unrecognized arguments: --out"),
        (["-m"], 2, "-m needs the name of a module"),
        (["nowhere.py"], 2, "cannot open 'nowhere.py': No such file or directory"),
        (["a\0b"], 2, "cannot open 'a\\x00b': it has a NUL"),
        (
            ["-o", "/nowhere/t.json", __file__],
            1,
            "cannot write the trace to '/nowhere/t.json': No such file or directory",
        ),
        (["-o", "", __file__], 1, "cannot write the trace to '': it is empty"),
        (
            ["-o", "x.txt", __file__],
            2,
            "cannot write the trace to 'x.txt': its name must end in .json, .json.gz",
        ),
        (["-o", "x.pftrace", __file__], 1, "'x.pftrace'. Use .json.gz, which Perfetto opens"),
        (["-o", __file__, __file__], 2, "its name must end in .json, .json.gz"),
    ],
)
def test_wrong_arguments(
    arguments: list[str], status: int, complaint: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    hook = sys.excepthook
    try:
        returned = cli.main(["run", *arguments])
    except SystemExit as exit_:
        returned = exit_.code  # type: ignore[assignment]
    printed = capsys.readouterr()
    assert (returned, printed.out) == (status, "")
    assert complaint in printed.err.splitlines()[-1]
    assert sys.excepthook is hook


@pytest.mark.parametrize("kind", ["code", "callable", "missing file", "preparation"])
def test_a_failure_before_the_program_is_shown(kind: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What is hard to bring about from outside, asked of the extension."""

    def fail() -> Any:
        raise ValueError("as asked")

    programs = {
        "code": lambda: fail.__code__,
        "callable": lambda: fail,
        "missing file": lambda: b"/nowhere/app.py",
        "preparation": fail,
    }
    finished: list[bool] = []
    _core.run_program(programs[kind], finished.append, "ignored")
    assert finished == [True]
    last = capsys.readouterr().err.splitlines()[-1]
    expected = "FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/app.py'"
    assert last == (expected if kind == "missing file" else "ValueError: as asked")
    with pytest.raises(TypeError, match="at least 2 arguments, got 1"):
        _core.run_program(fail)  # type: ignore[call-arg]


def compiled(source: str, *wanted: str) -> tuple[Any, list[str]]:
    """What a source defines when the functions of these names are nodes, and all names that were asked for."""
    asked: list[str] = []

    def is_wanted(name: str) -> bool:
        asked.append(name)
        return name in wanted

    loader = SourceFileLoader("made", "made.py")
    code = node_source.compiled(source, "made.py", is_wanted, loader.source_to_code)
    defined: dict[str, Any] = {"__name__": "made"}
    if code is not None:
        exec(code, defined)
    return defined, asked


def test_functions_are_found_wherever_they_are_defined() -> None:
    source = """
if True:
    def a(): pass
else:
    def b(): pass
for i in []:
    def c(): pass
else:
    async def d(): pass
while 0:
    def e(): pass
try:
    def f(): pass
except ValueError:
    def g(): pass
else:
    def h(): pass
finally:
    def i(): pass
with open(__file__) as file:
    class C:
        def j(self):
            class D:
                def k(self):
                    def l(): return lambda: 0
match 1:
    case 2:
        def m(): pass
"""
    defined, asked = compiled(source)
    nested = ["C.j", "C.j.<locals>.D.k", "C.j.<locals>.D.k.<locals>.l"]
    assert sorted(asked) == sorted([*"abcdefghim", *nested])
    assert list(defined) == ["__name__"]


def test_the_node_is_below_all_decorators_and_where_the_definition_is() -> None:
    source = """
seen = []
def first(function): seen.append(function); return function

@first
@first
def f(): raise ValueError
def g(): return 1
class C:
    def __new__(cls): return super().__new__(cls)
    @classmethod
    def __class_getitem__(cls, item): return item
    def _C__private(self): return 2
    def __private(self): return 3
import types

@types.coroutine
def old(): yield 5
async def new(): return await old()
def jit(cache): return first
@jit(cache=True)
def kernel(): pass
"""
    defined, _ = compiled(source, "f", "g", "C.__new__", "C.__class_getitem__", "C.__private", "old", "kernel")
    f, g, kind = defined["f"], defined["g"], defined["C"]
    assert defined["seen"] == [f, f, defined["kernel"]]
    assert type(defined["kernel"]) is FunctionType
    assert defined["new"]().send(None) == 5
    assert defined["old"].__code__.co_firstlineno == 17
    assert [type(node) for node in (f, g, kind._C__private)] == [_core.Function] * 3
    assert (f.__code__.co_firstlineno, g.__code__.co_firstlineno) == (5, 8)
    with pytest.raises(ValueError, match=r"^$") as caught:
        f()
    assert [entry.lineno for entry in caught.traceback][1:] == [6]
    assert isinstance(vars(kind)["__new__"], staticmethod)
    assert (kind()._C__private(), kind[4]) == (3, 4)


def test_scripts_that_are_not_compiled(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def f(:")
    os.mkfifo(tmp_path / "pipe")
    for name in ("bad.py", "pipe", "missing", "."):
        assert node_source.compiled_script(str(tmp_path / name), Selection([Pattern("*")])) is None


def test_a_folder_or_archive_without_a_program_leaves_an_old_trace_alone(tmp_path: Path) -> None:
    write(tmp_path, {"app/stages.py": "", "trace.json": "old"})
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.writestr("stages.py", "")
    for name in ("app", "app.zip"):
        done = run(name, folder=tmp_path)
        assert (done.status, done.out) == (1, "")
        assert "can't find '__main__' module" in done.err.splitlines()[-1]
        assert (tmp_path / "trace.json").read_text() == "old"
    write(tmp_path, {"app/__main__.py": "import cprofiling as cp\nwith cp.record('label'): raise KeyError"})
    assert run("app", folder=tmp_path).status == 1
    assert names_in_file(tmp_path / "trace.json") == ["label"]


def test_a_module_that_is_not_there_leaves_an_old_trace_alone(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text("old")
    done = run("-m", "nosuchmodule", folder=tmp_path)
    assert (done.status, done.out) == (1, "")
    assert done.err.endswith("No module named nosuchmodule\n")
    assert (tmp_path / "trace.json").read_text() == "old"
    write(tmp_path, {"broken/__init__.py": "1 / 0"})
    assert run("-m", "broken.module", folder=tmp_path).status == 1
    assert names_in_file(tmp_path / "trace.json") == []
    write(tmp_path, {"fails.py": "import cprofiling as cp\nwith cp.record('label'): raise KeyError"})
    assert run("-m", "fails", folder=tmp_path).status == 1
    assert names_in_file(tmp_path / "trace.json") == ["label"]


PLAIN = """
class Stage:
    def forward(self, x): return inner(x)
def inner(x): return x
print(Stage().forward(3))
"""


@pytest.mark.parametrize("main", [("app.py",), ("-m", "app"), ("folder",)])
def test_a_program_without_nodes_of_its_own_has_its_functions_as_nodes(main: tuple[str, ...], tmp_path: Path) -> None:
    write(tmp_path, {"app.py": PLAIN, "folder/__main__.py": PLAIN, "helper.py": "def f(): pass\n"})
    done = run(*main, folder=tmp_path)
    assert done == (0, "3\n", f"cprofiling: 2 events are in '{tmp_path}/trace.json'\n")
    assert names_in_file(tmp_path / "trace.json") == ["Stage.forward", "inner"]


@pytest.mark.parametrize("main", [("app.py",), ("-m", "app")])
def test_a_program_with_nodes_of_its_own_has_no_others(main: tuple[str, ...], tmp_path: Path) -> None:
    program = """
        def main():
            from cprofiling import profile_node
            with profile_node("own"): pass
        main()
    """
    write(tmp_path, {"app.py": dedented(program)})
    assert run(*main, folder=tmp_path).status == 0
    assert names_in_file(tmp_path / "trace.json") == ["own"]
    run("-n", "__main__", *main, folder=tmp_path)
    assert names_in_file(tmp_path / "trace.json") == ["main", "own"]


def test_a_pattern_that_matches_nothing_leaves_an_old_trace_alone(tmp_path: Path) -> None:
    write(tmp_path, {"app.py": "def f(): pass\ndef h(): pass\nf()\nraise SystemExit(4)\n", "trace.json": "old"})
    done = run("-n", "__main__:g", "app.py", folder=tmp_path)
    complaint = "-n '__main__:g' matched nothing: no function 'g' in __main__"
    assert done == (4, "", f"cprofiling: no trace is written: {complaint}\n")
    done = run("-n", "__main__:g", "-n", "a.b:c", "app.py", folder=tmp_path)
    assert done.err == (
        f"cprofiling: no trace is written: {complaint}\ncprofiling: -n 'a.b:c' matched nothing: no module 'a.b'\n"
    )
    assert (tmp_path / "trace.json").read_text() == "old"
    done = run("-n", "__main__:g", "-n", "__main__:f", "app.py", folder=tmp_path)
    assert done.err == f"cprofiling: 1 events are in '{tmp_path}/trace.json'\ncprofiling: {complaint}\n"
    done = run("-n", "__main__:h", "app.py", folder=tmp_path)  # which is there, and is not called
    assert done.err == f"cprofiling: 0 events are in '{tmp_path}/trace.json'\n"


def test_a_point_in_the_place_of_the_colon(tmp_path: Path) -> None:
    assert complaints("class Stage:\n  def forward(self): pass\n", "__main__.Stage.forward", folder=tmp_path) == [
        "no module '__main__.Stage.forward'; a function is named by MODULE:FUNCTION, here '__main__:Stage.forward'"
    ]


SENDING = """
import sys
print(sys.path[0], flush=True)
def f(n, *rest): return n * 2, len(rest)
def g(n): return f(n)
class C:
    @staticmethod
    def twice(n): return n * 2
def show():
    import sys
    sys.stdout.write(f"{sys.path} {list(globals())}\\n")
    sys.stdout.flush()
def main():
    from concurrent import interpreters
    from concurrent.futures import InterpreterPoolExecutor
    def fn(): return 5
    def fnn(n=1): return n
    other, queue = interpreters.create(), interpreters.create_queue()
    other.exec(show)
    other.exec("import part")
    for function, *rest in ((f, 4), (g, 4), (C.twice, 4), (fn,), (fnn,), (len, "abc"), (part.double, 4)):
        try:
            print(function.__name__, other.call(function, *rest), flush=True)
        except interpreters.ExecutionFailed as error:
            print(error)
        except interpreters.NotShareableError as error:
            print(error, repr(error.__cause__))
    thread = other.call_in_thread(show)
    thread.join()
    for function in (f, g, fn, fnn, None):
        try:
            queue.put(function)
            print(type(queue.get()).__name__ != "NoneType")
        except interpreters.NotShareableError as error:
            print(error)
    try:
        other.exec(fnn)
    except ValueError as error:
        print(error)
    other.close()
    with InterpreterPoolExecutor(1, initializer=show) as pool:
        print(list(pool.map(f, range(3))), list(pool.map(part.double, range(3))), pool.submit(f, 1, (f,)).result())
        print(repr(pool.submit(divmod, 1, 0).exception()))
print(__name__, flush=True)
if __name__ == "__main__":
    import part
    sys.path.insert(0, "inserted later")
    main()
"""


@pytest.mark.skipif(sys.version_info < (3, 14), reason="concurrent.interpreters came with Python 3.14")
@pytest.mark.parametrize("program", [("app.py",), ("-m", "app"), ("folder",), ("elsewhere/app.py",)])
def test_subinterpreters_see_and_do_the_same(program: tuple[str, ...], tmp_path: Path) -> None:
    """Its modules are found there, and its functions sent by their code or their name, as without us."""
    part = {f"{folder}part.py": "def double(n): return n * 2\n" for folder in ("", "folder/", "elsewhere/")}
    write(tmp_path, {"app.py": SENDING, "folder/__main__.py": SENDING, "elsewhere/app.py": SENDING, **part})
    done = check_equal(tmp_path, *program, watched=False)
    assert (done.status, "ExecutionFailed" in done.err) == (0, False)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="concurrent.interpreters came with Python 3.14")
def test_a_script_that_sends_a_function_to_a_subinterpreter_runs_once(tmp_path: Path) -> None:
    program = """
        from concurrent import interpreters
        def f(n): return n * 2
        other = interpreters.create()
        print("sent", other.call(f, 4), flush=True)
        print(f(1))
        other.close()
    """
    write(tmp_path, {"app.py": dedented(program)})
    assert run("app.py", folder=tmp_path) == (
        0,
        "sent 8\n2\n",
        f"cprofiling: 1 events are in '{tmp_path}/trace.json'\n",
    )
