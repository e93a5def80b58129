"""The magics of IPython: what they measure, what they leave as it is, and what they say of wrong use."""

from __future__ import annotations

import atexit
import json
import os
import re
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp

pytest.importorskip("IPython")

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from cprofiling._core import FormatError
from cprofiling.report.notebook import magics
from cprofiling.report.notebook.cell_nodes import CellPatterns
from cprofiling.report.notebook.cell_profile import CellProfile, CellRecording, joined

SETUP = """
import cprofiling as cp, time, threading
@cp.profile_node(name="f")
def f(x=1):
    return x
def plain(x=1):
    return f(x)
class Thing:
    def method(self): return f()
    @staticmethod
    def static(): return f()
"""


class Shell:
    """A shell of IPython, what its cells show, and how they end."""

    def __init__(self, home: Path) -> None:
        config = Config()
        config.HistoryManager.enabled = False
        config.InteractiveShell.colors = "nocolor"
        config.InteractiveShell.ipython_dir = str(home)
        self.ip: Any = InteractiveShell.instance(config=config)
        self.shown: list[Any] = []
        publisher: Any = self.ip.display_pub
        publisher.publish = self._publish
        self.ip.run_line_magic("load_ext", "cprofiling")
        assert self.run(SETUP) is None

    def _publish(self, data: Any, **_: Any) -> None:
        self.shown.append(data)

    def run(self, cell: str) -> Any:
        """The value of a cell that ends well."""
        result = self.ip.run_cell(cell, store_history=True)
        result.raise_error()
        return result.result

    def error(self, cell: str) -> BaseException:
        """What a cell raises."""
        result = self.ip.run_cell(cell)
        error = result.error_before_exec or result.error_in_exec
        assert isinstance(error, BaseException)
        return error

    def profiled(self, cell: str) -> CellProfile:
        """What the magic that begins a cell, or statement, has kept of it."""
        magic, _, rest = cell.partition("cprofiling")
        self.run(f"{magic}cprofiling -o kept {rest.lstrip(' ')}")
        kept = self.ip.user_ns["kept"]
        assert isinstance(kept, CellProfile)
        return kept


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ipython")


@pytest.fixture
def shell(home: Path) -> Iterator[Shell]:
    kept = {name: getattr(sys, name) for name in ("displayhook", "excepthook")}
    main = sys.modules["__main__"]
    made = Shell(home)
    try:
        yield made
    finally:
        made.ip.reset(new_session=False)
        atexit.unregister(made.ip.atexit_operations)
        InteractiveShell.clear_instance()
        for name, value in kept.items():
            setattr(sys, name, value)
        sys.modules["__main__"] = main


def counts(cell: CellProfile) -> dict[str, int]:
    return {row.node_name: row.count for row in cell.summary}


# ---- What a cell is


def test_a_cell_shows_its_nodes_and_keeps_its_value(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.run("%%cprofiling\nfor i in range(5):\n    f(i)\nf(7)") == 7
    assert "Out[" in capsys.readouterr().out
    (data,) = shell.shown
    assert data["text/plain"].startswith("Profiled ")
    assert "f                                        inference        6 " in data["text/plain"]
    assert "<table>" in data["text/html"]
    assert "of wall time</b>" in data["text/html"]


def test_a_value_is_shown_as_ipython_is_set(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.run("%%cprofiling -q\nf(1)\ny = f(2)") is None
    shell.run("%%cprofiling -q\nf(41);")
    assert "41" not in capsys.readouterr().out
    shell.ip.ast_node_interactivity = "all"
    shell.run("%%cprofiling -q\nf(1)\nf(2)\nz = 3")
    shown = capsys.readouterr().out
    assert ("1\n" in shown, "2\n" in shown) == (True, True)
    assert shell.shown == []


def test_a_statement_gives_its_value(shell: Shell) -> None:
    assert shell.run("x = %cprofiling -q f(5)\nx") == 5
    assert shell.run("%cprofiling -q y = f({'a': 6}['a'])\ny") == 6
    assert shell.run("def g():\n    inner = 4\n    %cprofiling -q f(inner)\n    return inner\ng()") == 4
    assert shell.run("%cprofiling -q -- -f(5)") == -5
    assert shell.shown == []


def test_showing_the_value_is_no_part_of_it(shell: Shell) -> None:
    shell.run("class Loud:\n    def __repr__(self): return f('loud')")
    assert counts(shell.profiled("%%cprofiling\nf()\nLoud()")) == {"f": 1}
    assert counts(shell.profiled("%cprofiling Loud()")) == {}


def test_a_cell_may_await_and_a_statement_says_that_it_may_not(shell: Shell) -> None:
    shell.run("@cp.profile_node(name='wait')\nasync def wait():\n    return 3")
    assert "begin the cell with %%cprofiling" in str(shell.error("%cprofiling await wait()"))
    assert shell.run("%%cprofiling -q -o a\nawait wait() + await wait()") == 6
    assert counts(shell.ip.user_ns["a"]) == {"wait": 2}


@pytest.mark.filterwarnings("ignore:To exit")
def test_an_exception_is_shown_as_ever_after_what_was_measured(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    error = shell.error("%%cprofiling\nf()\nf()\n1 / 0")
    assert isinstance(error, ZeroDivisionError)
    out = capsys.readouterr().out
    assert "line 4" in out
    assert "----> 4 1 / 0" in out
    assert "magics.py" not in out
    (data,) = shell.shown
    assert "until an exception ended it" in data["text/plain"]
    assert " 2 " in data["text/plain"]
    assert isinstance(shell.error("%cprofiling f()/0"), ZeroDivisionError)
    assert "magics.py" not in capsys.readouterr().out
    assert isinstance(shell.error("%%cprofiling\nf()\nraise KeyboardInterrupt"), KeyboardInterrupt)
    assert isinstance(shell.error("%%cprofiling\nf()\nraise SystemExit(3)"), SystemExit)
    assert len(shell.shown) == 4


def test_future_statements_and_magics_stay_what_they_are(shell: Shell) -> None:
    assert shell.run("%%cprofiling -q\nfrom __future__ import annotations\ndef g(x: nowhere): return f()\ng(1)") == 1
    shell.run("%%cprofiling -q\nfrom __future__ import annotations")
    shell.run("%%cprofiling -q\nversion = !echo 5\n%time f()")
    assert shell.ip.user_ns["version"] == ["5"]
    assert shell.run("%%cprofiling -o a\n\n%%time\nf(3)") == 3
    assert counts(shell.ip.user_ns["a"]) == {"f": 1}
    shell.run("%%time\n%%cprofiling -o b\nf()\nf()")
    assert counts(shell.ip.user_ns["b"]) == {"f": 2}
    shell.run("get_ipython().run_cell_magic('cprofiling', '-o c', 'f()\\nf()\\nf()')")
    assert counts(shell.ip.user_ns["c"]) == {"f": 3}


def test_unloading_takes_the_magics_away(shell: Shell) -> None:
    transforms = list(shell.ip.input_transformer_manager.line_transforms)
    shell.run("%reload_ext cprofiling")
    assert shell.ip.input_transformer_manager.line_transforms == transforms
    shell.run("%unload_ext cprofiling")
    assert magics.mark_cell not in shell.ip.input_transformer_manager.line_transforms
    assert shell.ip.ast_transformers == []
    assert "not found" in str(shell.error("%%cprofiling\nf()"))


# ---- What is measured


def test_all_profilers_and_threads_are_seen_and_none_is_changed(shell: Shell) -> None:
    shell.run(
        "class P(cp.PipelineProfiling):\n"
        "    @cp.profile_node(name='step')\n"
        "    def step(self): pass\n"
        "    def forward(self): self.step()\n"
        "off, on = P(), P()\n"
        "on.set_profiling(True, skip_first_n=1)\n"
        "for _ in range(3): on.forward()"
    )
    was_on = cp.profiling_enabled()
    cell = shell.profiled(
        "%%cprofiling\noff.forward()\non.forward()\nt = threading.Thread(target=f)\nt.start()\nt.join()\nP().forward()"
    )
    assert counts(cell) == {"step": 3, "f": 1}
    namespace = shell.ip.user_ns
    assert cp.profiling_enabled() is was_on
    assert namespace["on"].get_profiling_summary()[0].count == 3  # 4 calls, of which one is skipped
    assert namespace["on"].get_profiling_summary().skip_first_n == 1
    assert (namespace["off"].profiling_enabled, namespace["off"].get_profiling_summary()) == (False, [])


def test_figures_are_those_of_the_calls(shell: Shell) -> None:
    cell = shell.profiled(
        "%%cprofiling --skip-first-n 1\n"
        "@cp.profile_node(name='fails')\n"
        "def fails(): raise ValueError\n"
        "def step():\n"
        "    with cp.profile_node('outer'):\n"
        "        f()\n"
        "        try: fails()\n"
        "        except ValueError: pass\n"
        "step(); step(); step()"
    )
    rows = {row.node_name: row for row in cell.summary}
    assert {name: (row.count, row.error_count, row.skipped_count) for name, row in rows.items()} == {
        "f": (2, 0, 1), "fails": (0, 3, 0), "outer": (2, 0, 1),
    }  # fmt: skip
    assert cell.summary.skip_first_n == 1
    durations = [event.dur for event in cell.recording.events() if event.name == "f"][1:]
    assert rows["f"].total_ms == pytest.approx(sum(durations) / 1e6, abs=1e-9)
    outer = rows["outer"]
    assert outer.self_total_ms is not None
    assert outer.self_total_ms < outer.total_ms <= cell.elapsed_ms
    assert (rows["fails"].mean_ms, rows["fails"].p99_ms) == (0.0, None)
    assert cell.summary.histogram("f").count == 2
    assert "skip_first_n=1" in repr(cell)


def test_the_stage_is_that_of_all_calls_without_one(shell: Shell) -> None:
    cell = shell.profiled(
        "%%cprofiling --stage train\nf()\nt = threading.Thread(target=f)\nt.start()\nt.join()\n"
        "with cp.stage('val'): f()"
    )
    assert {(row.stage, row.count) for row in cell.summary} == {("train", 2), ("val", 1)}
    assert all(isinstance(row.stage, cp.ExecutionStage) for row in cell.summary)
    assert [row.stage for row in shell.profiled("%%cprofiling\nf()").summary] == ["inference"]


def test_a_statement_inside_a_cell_is_measured_in_both(shell: Shell) -> None:
    cell = shell.profiled("%%cprofiling\nf()\n%cprofiling -q -o inner f()\nf()")
    assert counts(cell) == {"f": 3}
    assert counts(shell.ip.user_ns["inner"]) == {"f": 1}
    assert [event.thread_name for event in cell.recording.events()] == [threading.main_thread().name] * 3
    shell.run("%%cprofiling -o outer\nwith cp.record('a'):\n    %cprofiling -q f()")
    outer = shell.ip.user_ns["outer"]
    assert counts(outer) == {"a": 0, "f": 1}
    assert outer.notes == ("1 call was cut off, and counted as no sample.",)


def test_rows_survive_the_joining() -> None:
    with cp.profile() as prof, cp.record("outer"), cp.profile_node("inner", stage="val"):
        pass
    second = cp.Recording.empty()
    second._add("op", 3, 10, 20, "main", 7, cat="cpu_op", shapes="[[1]]", args='{"k": 1}')
    second._name_process("main", "second", None, None)
    second._name_thread("main", 7, "worker", None)
    second._finish()
    whole = joined([prof.recording, second])
    op, outer, inner = whole.events()
    assert (op.name, op.shapes, whole.args(op.row)) == ("op", "[[1]]", '{"k": 1}')
    assert (op.thread_name, op.start) == ("worker", 10)
    assert (outer.name, inner.name, inner.stage, inner.parent) == ("outer", "inner", "val", outer.row)
    assert [event.start for event in (outer, inner)] == [event.start for event in prof.recording.events()]
    assert outer.span_id == prof.recording.events()[0].span_id
    assert whole.facts["cprofiling"] == prof.recording.facts["cprofiling"]


def test_a_recording_of_the_users_takes_over(shell: Shell) -> None:
    cell = shell.profiled("%%cprofiling\nf()\nwith cp.profile() as prof:\n    f()\nf()")
    assert counts(cell) == {"f": 1}
    assert len(shell.ip.user_ns["prof"].recording) == 1
    assert "recording of its own" in cell.notes[0]
    cell = shell.profiled("%%cprofiling\nwith cp.profile() as prof:\n    pass\n%cprofiling -q f()\nf()")
    assert counts(cell) == {"f": 1}
    cell = shell.profiled("%%cprofiling\nprof = cp.profile()\n%cprofiling -q prof.start()\nf()\nprof.stop()")
    assert counts(cell) == {}
    assert len(shell.ip.user_ns["prof"].recording) == 1
    shell.run("prof = cp.profile()\nprof.start()")
    error = shell.error("%%cprofiling\nf()")
    assert "a recording is running already" in str(error)
    shell.run("prof.stop()")
    assert counts(shell.profiled("%%cprofiling\nf()")) == {"f": 1}


def test_a_statement_in_a_thread_may_outlive_the_cell(shell: Shell) -> None:
    cell = shell.profiled(
        "%%cprofiling\n"
        "begun, ended = threading.Event(), threading.Event()\n"
        "def wait():\n    begun.set()\n    ended.wait(60)\n    return f()\n"
        "def work():\n    get_ipython().run_line_magic('cprofiling', '-q -o inner wait()')\n"
        "t = threading.Thread(target=work)\nf()\nt.start()\nassert begun.wait(60)\n0"
    )
    shell.run("ended.set()\nt.join()")
    assert counts(cell) == {"f": 1}
    assert counts(shell.ip.user_ns["inner"]) == {"f": 1}
    assert counts(shell.profiled("%cprofiling f()")) == {"f": 1}


@pytest.mark.parametrize(
    ("cell", "counted", "told", "not_told"),
    [
        ("%cprofiling --capacity 5 [f() for _ in range(8)]", {"f": 5}, ["Dropped: 3 events are missing"], []),
        ("%%cprofiling --sync-cuda\nf()", {"f": 1}, [], ["No node was called."]),
        ("%%cprofiling\n1 + 1", {}, ["No node was called.", "-n :*"], ["TOTAL"]),
        (
            "%%cprofiling -n '<b>:x'\nwith cp.profile_node('<script>\\x1b[31m'): pass",
            {"<script>\x1b[31m": 1},
            ["&lt;script&gt;\\x1b[31m", "&lt;b&gt;"],
            ["<script", "<b>:"],
        ),
    ],
)
def test_a_cell_tells_what_it_lacks(
    shell: Shell, cell: str, counted: dict[str, int], told: list[str], not_told: list[str]
) -> None:
    found = shell.profiled(cell)
    page = found._repr_html_()
    assert counts(found) == counted
    assert [text for text in told if text not in page] == [text for text in not_told if text in page] == []
    assert "<script>" in repr(found) or all(text in repr(found) for text in told)


@pytest.mark.parametrize("is_shown", [False, True])
def test_a_fault_of_the_profiler_leaves_nothing_behind(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, is_shown: bool
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("broken")

    with monkeypatch.context() as patched:
        if is_shown:
            patched.setattr(CellRecording, "result", fail)
            with pytest.warns(RuntimeWarning, match="nothing is shown of what was profiled: ValueError: broken"):
                assert shell.run("%%cprofiling\nf(3)") == 3
        else:
            patched.setattr("cprofiling.report.notebook.cell_nodes.wrap_members", fail)
            assert str(shell.error("%%cprofiling -n :*\nf()")) == "broken"
    assert counts(shell.profiled("%%cprofiling\nplain()")) == {"f": 1}


# ---- Functions that are made nodes


def test_functions_of_the_notebook_are_nodes_meanwhile(shell: Shell) -> None:
    namespace = shell.ip.user_ns
    before = {name: namespace[name] for name in ("plain", "Thing", "f")}
    method = vars(namespace["Thing"])["method"]
    cell = shell.profiled(
        "%%cprofiling -n :plain -n ':Thing.*'\nalias, hold = plain, [plain]\nplain(); Thing().method(); Thing.static()"
    )
    assert counts(cell) == {"plain": 1, "Thing.method": 1, "Thing.static": 1, "f": 3}
    assert {name: namespace[name] for name in before} == before
    assert vars(namespace["Thing"])["method"] is method
    assert namespace["alias"] is before["plain"]
    assert counts(shell.profiled("%%cprofiling\nplain(); Thing.static(); hold[0]()")) == {"f": 3}


def test_functions_that_the_cell_defines_are_nodes_meanwhile(shell: Shell) -> None:
    cell = shell.profiled(
        "%%cprofiling -n :*\n"
        "def g():\n"
        "    def inner(): return f()\n"
        "    return inner()\n"
        "class New:\n"
        "    def __new__(cls): return super().__new__(cls)\n"
        "    def method(self): return g()\n"
        "kept = [g]\n"
        "New().method()"
    )
    assert counts(cell) == {"f": 1, "g.<locals>.inner": 1, "g": 1, "New.method": 1, "New.__new__": 1}
    assert shell.run("type(g).__name__, type(vars(New)['method']).__name__") == ("function", "function")
    later = shell.profiled("%%cprofiling\ng(); kept_g = New().method()")
    assert counts(later) == {"f": 2}


def test_functions_of_modules_are_nodes_meanwhile(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "magic_lab").mkdir()
    (tmp_path / "magic_lab" / "__init__.py").write_text("")
    (tmp_path / "magic_lab" / "first.py").write_text("def a(): return 1\ndef b(): return 2\n")
    (tmp_path / "magic_lab" / "second.py").write_text("from magic_lab.first import a\ndef both(): return a()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    shell.run("from magic_lab.first import a, b")
    plain = shell.ip.user_ns["a"]
    cell = shell.profiled(
        "%%cprofiling -n 'magic_*:a' -n magic_lab.second\nimport magic_lab.second\na(); b(); magic_lab.second.both()"
    )
    assert counts(cell) == {"a": 2, "both": 1}
    assert shell.ip.user_ns["a"] is plain
    assert sys.modules["magic_lab.first"].a is sys.modules["magic_lab.second"].a is plain
    assert counts(shell.profiled("%%cprofiling\nmagic_lab.second.both()")) == {}
    assert not any(type(finder).__name__ == "NodeFinder" for finder in sys.meta_path)
    for name in [name for name in sys.modules if name.startswith("magic_lab")]:
        del sys.modules[name]


def test_what_a_wildcard_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    own = types.ModuleType("own_module")
    own.__file__ = "/somewhere/own_module.py"
    monkeypatch.setitem(sys.modules, "own_module", own)
    monkeypatch.setitem(sys.modules, "made_module", types.ModuleType("made_module"))
    patterns = CellPatterns(["*", "json.*:dumps", "json:loads"])
    taken = {
        name: patterns.selection_of_loaded(name) is not None
        for name in ("__main__", "own_module", "made_module", "json", "json.decoder", "pytest", "string")
    }
    assert taken == {
        "__main__": True, "own_module": True, "made_module": False, "json": True, "json.decoder": True, "pytest": False,
        "string": False,
    }  # fmt: skip


def test_what_was_not_met_is_told_with_a_hint(shell: Shell) -> None:
    cell = shell.profiled("%%cprofiling -n plain -n nowhere:x -n :plane\nf()")
    assert cell.notes == (
        "-n 'plain' matched nothing: a function of the notebook is named by ':plain'.",
        "-n 'nowhere:x' matched nothing: no module 'nowhere'.",
        "-n '__main__:plane' matched nothing: no function 'plane' in __main__; similar: plain.",
    )


# ---- Files and variables


def test_the_trace_is_written(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "a trace.json"
    shell.ip.user_ns["where"] = str(path)
    cell = shell.profiled("%%cprofiling --trace '{where}'\nf()\nf()")
    assert cell.notes == (f"2 events are in {str(path)!r}.",)
    assert [event["name"] for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"] == ["f", "f"]
    shell.run(f"%%cprofiling --trace={tmp_path}/b.json.gz\nf()")
    assert len(cp.load_trace(tmp_path / "b.json.gz")) == 1
    with pytest.raises(FormatError):
        cp.Snapshot.from_bytes((tmp_path / "b.json.gz").read_bytes())


def test_a_trace_that_cannot_be_written_is_an_error_unless_the_cell_has_one(shell: Shell) -> None:
    error = shell.error("%%cprofiling -o a --trace /dev/full\nf()")
    assert isinstance(error, OSError)
    assert "The trace is not written" in shell.ip.user_ns["a"].notes[0]
    assert isinstance(shell.error("%%cprofiling --trace /dev/full\n1 / 0"), ZeroDivisionError)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("-z", "unrecognized arguments: -z"),
        ("-n", "expected one argument"),
        ("-n a:", "expected MODULE:FUNCTION or MODULE"),
        ("-o 1x", "--output must be the name of a variable, got '1x'"),
        ("--skip-first-n -1", "--skip-first-n must be from 0"),
        ("--skip-first-n x", "--skip-first-n must be an integer, got 'x'"),
        ("--capacity 0", "--capacity must be from 1 to 1000000000, got 0"),
        ("--trace /nowhere/at/all", "--trace must be a file in a folder that is there"),
        ("--trace ''", "--trace must not be empty"),
        ("--stage '\\ud800' f()", None),
        ("f()", "there is 'f()' behind the options of a cell"),
    ],
)
def test_wrong_use_is_told_before_anything_runs(shell: Shell, line: str, said: str | None) -> None:
    error = shell.error(f"%%cprofiling {line}\nran = True")
    if said is not None:
        assert said in str(error)
        assert type(error).__name__ == "UsageError"
    assert "ran" not in shell.ip.user_ns


def test_a_magic_without_anything_to_run_says_so(shell: Shell) -> None:
    assert "expected a statement to profile" in str(shell.error("%cprofiling -q"))
    assert "cell body is empty" in str(shell.error("%%cprofiling\n"))
    assert "the cell is empty" in str(shell.error("get_ipython().run_cell_magic('cprofiling', '', '  ')"))
    assert isinstance(shell.error("%cprofiling f("), SyntaxError)
    assert isinstance(shell.error("%%cprofiling\nf("), SyntaxError)


def test_operators_are_recorded_when_asked(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)  # other tests may have loaded it
    with pytest.warns(RuntimeWarning, match="operators are not recorded: PyTorch is not loaded"):
        cell = shell.profiled("%%cprofiling --operators\nf()")
    assert counts(cell) == {"f": 1}


def test_the_help_names_each_option(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a terminal's help is coloured from CPython 3.14 on
    magics.load(shell.ip)
    text = shell.ip.find_line_magic("cprofiling").__doc__
    named = (r"-n( GLOB)?, --node GLOB", r"-o( VAR)?, --output VAR")  # CPython 3.13 and later show the argument once
    for option in (*named, "--trace FILE", "--sync-cuda", "--stage", "--skip-first-n", "--operators"):
        assert re.search(option, text)
    assert max(map(len, text.splitlines())) <= 120
    assert "\x1b" not in text


MODULE = """
import contextlib, functools, cprofiling as cp
p = cp.Profiler()
@p.profile_node
def function(x, y=1):
    return ("VERSION", x, y)
class Thing:
    @p.profile_node
    def method(self):
        return "VERSION"
    @property
    @p.profile_node("value")
    def value(self):
        return "VERSION"
    @p.profile_node
    @staticmethod
    def static():
        return "VERSION"
    @p.profile_node
    def becomes_a_generator(self):
        YIELDS "VERSION"
class Pipeline(cp.PipelineProfiling):
    def forward(self):
        return function("VERSION")
"""

USES = """
old = [function(0), thing.method(), thing.value, thing.static(), pipeline.forward(), kept()]
old.append(list(thing.becomes_a_generator()))
new = [edited.function(0), edited.Thing().method(), edited.Thing().value, edited.Thing.static()]
"""


@pytest.mark.filterwarnings("ignore:Assigning a code object:DeprecationWarning")  # of Python 3.13 and later
def test_autoreload_reaches_what_is_decorated(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is edited while a notebook uses it: old and new instances run the new code, and count."""
    file = tmp_path / "edited.py"

    def write(version: str, word: str, later: float) -> None:
        file.write_text(MODULE.replace("VERSION", version).replace("YIELDS", word).replace("y=1", f"y={version!r}"))
        os.utime(file, (time.time() + later,) * 2)

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "edited", None)
    del sys.modules["edited"]
    write("one", "return", -10)
    shell.ip.run_line_magic("load_ext", "autoreload")
    shell.ip.run_line_magic("autoreload", "2")
    assert shell.run("import edited; from edited import function; kept = edited.Thing().method") is None
    assert shell.run("thing, pipeline = edited.Thing(), edited.Pipeline(); kept_p = edited.p") is None
    assert shell.run(USES) is None
    assert shell.ip.user_ns["old"][:3] == [("one", 0, "one"), "one", "one"]
    write("another", "yield", 0)
    shell.ip.user_ns["kept_p"].set_profiling(True)
    assert shell.run(USES) is None
    expected = [("another", 0, "another"), *["another"] * 3]
    assert shell.ip.user_ns["old"] == [*expected, ("another", "another", "another"), "another", ["another"]]
    assert shell.ip.user_ns["new"] == expected
    kept = {stats.node_name: stats.count for stats in shell.ip.user_ns["kept_p"].get_profiling_summary()}
    assert kept["Thing.becomes_a_generator"] == 1
    assert min(kept["function"], kept["Thing.method"]) >= 2
