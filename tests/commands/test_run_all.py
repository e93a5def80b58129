"""``cprofiling run --all``: every function of the user's own files is a node; and ``--operators``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import cprofiling as cp
from command import SCRIPT, Done, python
from recorded import names_in_file

APP = """\
import asyncio, functools, inspect, json, multiprocessing, pickle
import installed
from pkg.shapes import Shape, cached, make_adder

async def wait():
    await asyncio.sleep(0)

async def count():
    yield 1

async def main():
    await wait()
    return [each async for each in count()]

def square(n):
    return n * n

if __name__ == "__main__":
    shape = Shape.make(3)
    shape.double = 8
    print(shape.double, Shape.sides(), shape == Shape(4), json.dumps(list(shape.corners())), make_adder(1)(2))
    print(cached(1), cached(1), cached.cache_info(), asyncio.run(main()), installed.helper())
    print(inspect.signature(square), pickle.loads(pickle.dumps(square)) is square)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(square, range(3)))
"""
SHAPES = """\
import dataclasses, functools

@dataclasses.dataclass
class Shape:
    size: float
    @classmethod
    def make(cls, size): return cls(size)
    @staticmethod
    def sides(): return 4
    @property
    def double(self): return self.size * 2
    @double.setter
    def double(self, value): self.size = value / 2
    def corners(self):
        yield from (1, 2)

@functools.lru_cache
def cached(n): return n

def make_adder(n):
    def add(m): return n + m
    return add
"""
COST = (
    r"cprofiling: --all made nodes of (\d[\d,]*) functions: to record (\d+) calls? took about [\d.]+ .?s, \d+ ns each"
)


def run(*arguments: str, folder: Path, **environment: str) -> Done:
    return python([SCRIPT, "run", "-o", "trace.json", *arguments], folder, watched=False, **environment)


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A script, a module beside it, a package that is not installed but on the path, and one that is installed."""
    files = {
        "app.py": "import sys\nsys.path += ['elsewhere', 'venv/site-packages']\n" + APP,
        "elsewhere/pkg/__init__.py": "",
        "elsewhere/pkg/shapes.py": SHAPES,
        "venv/site-packages/installed.py": "def helper(): return 'not ours'\n",
    }
    write(tmp_path, files)
    return tmp_path


def test_every_function_of_the_users_files_is_a_node(project: Path) -> None:
    plain = python(["app.py"], project, watched=False)
    done = run("--all", "app.py", folder=project)
    assert (done.status, done.out) == (0, plain.out)
    of_events, cost = done.err.splitlines()
    assert of_events == f"cprofiling: 11 events are in '{project}/trace.json'"
    told = re.fullmatch(COST, cost)
    assert told is not None
    assert told.groups() == ("12", "11")
    shapes = ["make", "double", "double", "sides"]
    assert names_in_file(project / "trace.json") == [
        *[f"pkg.shapes.Shape.{name}" for name in shapes],
        "pkg.shapes.Shape.corners",
        "pkg.shapes.make_adder",
        "pkg.shapes.make_adder.<locals>.add",
        "pkg.shapes.cached",  # once, as its cache is outside
        *["main", "wait", "count"],
    ]
    [of_child] = project.glob("trace_*.json")
    assert names_in_file(of_child) == ["square"] * 3


def test_named_functions_are_nodes_beside_them(project: Path) -> None:
    done = run("--all", "-n", "installed", "app.py", folder=project)
    assert "helper" in names_in_file(project / "trace.json")
    assert "matched nothing" not in done.err


def test_functions_that_are_nodes_already_count_once(tmp_path: Path) -> None:
    program = "import cprofiling as cp\n@cp.profile_node('declared')\ndef f(): g()\ndef g(): pass\nf()\n"
    write(tmp_path, {"app.py": program})
    assert run("--all", "app.py", folder=tmp_path).status == 0
    assert names_in_file(tmp_path / "trace.json") == ["declared", "g"]


def test_the_trace_tells_where_functions_are(project: Path) -> None:
    run("--all", "app.py", folder=project)
    facts = json.loads(cp.load_trace(project / "trace.json").facts["cprofiling"])
    shapes = project / "elsewhere/pkg/shapes.py"
    assert facts["sources"]["pkg.shapes.Shape.make"] == f"{shapes}:6"
    assert "pkg.shapes.Shape.double" not in facts["sources"], "a getter and a setter have the name"
    assert facts["sources"]["pkg.shapes.make_adder.<locals>.add"] == f"{shapes}:21"
    assert facts["sources"]["wait"] == f"{project}/app.py:7"


def test_ten_thousand_functions_at_most(tmp_path: Path) -> None:
    functions = "".join(f"def f{number}(): pass\n" for number in range(10_011))
    write(tmp_path, {"app.py": "import many\nmany.f0(); many.f10010()\n", "many.py": functions})
    done = run("--all", "app.py", folder=tmp_path)
    assert done.status == 0
    *_, cost, left_out = done.err.splitlines()
    told = re.fullmatch(COST, cost)
    assert told is not None
    assert told.groups() == ("10,000", "1")
    assert left_out == "cprofiling: --all left out 11 functions, as it takes 10,000 at most"


def test_programs_of_which_nothing_is_the_users(tmp_path: Path) -> None:
    done = run("--all", "-m", "json.tool", "--help", folder=tmp_path)
    assert done.status == 0
    assert "--all found no functions: the program has none outside of installed packages" in done.err


def test_operators_are_recorded_from_the_import_of_torch_on(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = """\
import threading
def train():
    import torch
    torch.relu(torch.ones(3, 4))
train()
thread = threading.Thread(target=train)
thread.start()
thread.join()
"""
    write(tmp_path, {"app.py": program})
    done = run("--all", "--operators", "app.py", folder=tmp_path, OMP_NUM_THREADS="1")
    assert (done.status, done.out) == (0, "")
    events = cp.load_trace(tmp_path / "trace.json").events()
    operators = [event for event in events if event.name == "aten::relu"]
    assert len({event.thread_id for event in operators}) == 2
    rows = {event.row: event for event in events}
    around = {rows[event.parent].name for event in operators if event.parent is not None}
    assert around == {"train"}


def test_without_torch_there_are_no_operators(tmp_path: Path) -> None:
    write(tmp_path, {"app.py": "def f(): pass\nf()\n"})
    done = run("--operators", "app.py", folder=tmp_path)
    assert done.err.splitlines()[1:] == ["cprofiling: --operators recorded nothing: the program does not import torch"]
