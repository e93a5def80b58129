"""The program of a stage: whatever the stage is called, a fixed text with other constants (failures D10, I10, I11)."""

from __future__ import annotations

import ast
import json
import os
import random
import runpy
import shutil
import string
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cprofiling
from cprofiling.handlers import file_name_of
from cprofiling.harness import HarnessConfig, StageBenchHarness
from cprofiling.stages.breakdown import NOTHING, STAND_IN
from cprofiling.stages.program import TEMPLATE, program_for

FOLDER = str(Path(cprofiling.__file__).parents[1])
NAMES = 10_000
OPTIONS: dict[str, Any] = {
    "warmup": 1, "profile_steps": 1, "entry": None, "value_ranges": None, "device": None, "seed": 0,
}  # fmt: skip
# What would be code, or lead elsewhere, if it were not only data.
HOSTILE = [
    "", " ", ".", "..", "../x", "/etc/passwd", "a/../../b", "~", "~root", "-rf", "con", "NUL", "nul.txt", "a\0b", "\\",
    "a\\", "'", '"', '"""', "'''", "\"\"\"\nimport os\n'''", "'; import os; '", '"+__import__("os").system("id")+"',
    "{stage}", "{0}", "%s", "%n", "@STAGE@", "@SIGNATURE@", "@OPTIONS@", "x@OPTIONS@@STAGE@", "$(id)", "`id`", "\n",
    "\r", "\r\n", "\t", "\x0b", "\x0c", "\x1b[2J", "\x85", "\u2028", "\u2029", "\ufeff", "\u202e", "\ud800", "\udfff",
    "\ud83d\ude00", "\U0001f600", "e\u0301", "\u00e9", "x" * 5_000, "\u00e9" * 300, "/" * 300, "../" * 100,
    "# -*- coding", "# -*- coding: utf-7 -*-",
    "\\N{BULLET}", "\\u0041", "\\x41", "\\\n", "f'{1}'", "None", "__main__", "a.py", ".py",
    "-", "a b", "C:\\x", "COM1", "*", "?", "|", "<", ">", ":",
]  # fmt: skip
PIECES = [*string.printable, *HOSTILE[:60], "import os", "def f():", ")", "]", "}", "\\", "'" * 3, '"' * 3]


def random_names(count: int) -> Iterator[str]:
    """Names of pieces of code and paths, and of any characters."""
    choose = random.Random(20_260_102)
    yield from HOSTILE
    for number in range(count - len(HOSTILE)):
        length = choose.randrange(1, 12)
        if number % 2:
            yield "".join(choose.choices(PIECES, k=length))
        else:
            yield "".join(chr(choose.randrange(0x110000 >> choose.choice((0, 4, 8, 13)))) for _ in range(length))


PLACES = ("STAGE", "SIGNATURE", "OPTIONS")


def shape_of(text: str) -> str:
    """The syntax tree of a program, without the constants that differ from stage to stage."""
    tree = ast.parse(text)
    found = [node for node in tree.body if isinstance(node, ast.Assign)]
    assert [ast.unparse(node.targets[0]) for node in found] == list(PLACES)
    for node in found:
        value = node.value.args[0] if isinstance(node.value, ast.Call) else node.value
        assert isinstance(value, ast.Constant)
        assert isinstance(value.value, str)
        value.value = None
    return ast.dump(tree)


def shape_of_template() -> str:
    text = TEMPLATE
    for place in PLACES:
        assert text.count(f"@{place}@") == 1
        text = text.replace(f"@{place}@", "'x'")
    return shape_of(text)


def constants(text: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The stage's name, its signature and the options in a program."""
    found = {ast.unparse(node.targets[0]): node.value for node in ast.parse(text).body if isinstance(node, ast.Assign)}

    def loaded(name: str) -> dict[str, Any]:
        call = found[name]
        assert isinstance(call, ast.Call)
        value: dict[str, Any] = json.loads(ast.literal_eval(call.args[0]))
        return value

    return ast.literal_eval(found["STAGE"]), loaded("SIGNATURE"), loaded("OPTIONS")


@pytest.mark.slow
def test_ten_thousand_names_are_nothing_but_data() -> None:
    template = shape_of_template()
    seen = set()
    for name in random_names(NAMES):
        signature = {"stage_name": name, "input_signatures": {name: name}, "types": {f"/{name}": name}}
        text = program_for(name, signature, OPTIONS)
        assert text.isascii()
        assert shape_of(text) == template, ascii(name)
        file = f"profile_{file_name_of(name)}.py"
        assert len(file) < 256
        assert "/" not in file, ascii(name)
        assert file.isascii()
        assert file.isprintable()
        seen.add(name)
    assert len(seen) > NAMES * 0.9


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_what_goes_in_comes_out(name: str) -> None:
    signature = {"stage_name": name, "input_signatures": {name: [1.5, True, None, [-1, 2], name]}}
    found = constants(program_for(name, signature, OPTIONS))
    assert found[0] == name
    assert found[1:] == (json.loads(json.dumps(signature)), OPTIONS)  # JSON makes one character of two surrogates


def test_files_of_any_name_stay_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "er" / "out"
    config = HarnessConfig(warmup=0, output_dir=folder)
    for name in HOSTILE[:60:3]:
        harness = StageBenchHarness(name, {"stage_name": name, "input_signatures": {}}, Nothing(), config)
        result = harness.profile(output_suffix=name)
        for key in ("trace_path", "breakdown_path", "script_path"):
            assert Path(result[key]).parent == folder
            assert Path(result[key]).stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep"]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["er"]


class Nothing:
    """A stage."""

    def process(self) -> None:
        """Do nothing."""


def test_the_layout_is_readable() -> None:
    tensor = {"shape": [1, -2, 3], "dtype": "float32"}
    text = program_for("dit", {"x": tensor, "long": "y" * 250, "none": []}, OPTIONS)
    assert "\n    '  \"shape\": [1, -2, 3],\\n'\n" in text
    assert max(map(len, text.splitlines())) <= 120
    assert constants(text)[1] == {"x": tensor, "long": "y" * 250, "none": []}
    assert constants(program_for("x", {}, {}))[1:] == ({}, {})


MODULE = """
import numpy

class Stage:
    calls = 0

    def process(self, image, name="?"):
        Stage.calls += 1
        print("process", Stage.calls, image.shape, name)
        return image + 1

    def other(self, image):
        print("other", float(image.sum()))

def stage():
    return Stage()
"""


def test_the_program_runs_as_it_is(tmp_path: Path) -> None:
    pytest.importorskip("numpy", reason="numpy is not installed")
    image = {"shape": [2, 3], "dtype": "float32", "device": "numpy", "stride": [3, 1], "requires_grad": False}
    signature = {"stage_name": "a 'b'\n", "input_signatures": {"image": image, "name": "Ann"}}
    (tmp_path / "program.py").write_text(StageBenchHarness("a 'b'\n", signature, device="cpu").generate_test_script())
    (tmp_path / "mine.py").write_text(MODULE)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error", "program.py", *arguments]
        environment = {**os.environ, "PYTHONPATH": FOLDER, "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    done = run("--factory", "mine:stage", "--output-dir", "out", "--warmup", "2", "--profile-steps", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:4] == [f"process {number} (2, 3) Ann" for number in (1, 2, 3, 4)]
    assert "ms per step: " in done.stdout
    assert "[Harness] Running 2 warmup iteration(s)..." in done.stderr.splitlines()
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == [f"a%20%27b%27%0A_{end}" for end in ("breakdown.json", "trace.json.gz")] + [
        "profile_a%20%27b%27%0A.py"
    ]
    again, first = ((tmp_path / name).read_text() for name in (f"out/{written[-1]}", "program.py"))
    assert constants(again)[:2] == constants(first)[:2]
    assert constants(first)[2] == {**OPTIONS, "device": "cpu"}
    assert constants(again)[2] == {**constants(first)[2], "warmup": 2, "profile_steps": 2}
    assert done.stdout.splitlines()[-1] in (STAND_IN, NOTHING)
    with (tmp_path / "out" / written[-1]).open("a") as file:
        file.write("# mine\n")
    shutil.copy(tmp_path / "out" / written[-1], tmp_path / "program.py")
    (tmp_path / written[-1]).symlink_to("program.py")
    done = run("--factory", "mine:stage", "--output-dir", ".")
    assert done.returncode == 0, done.stderr
    assert "Test script" not in done.stderr
    assert (tmp_path / "program.py").read_text().endswith("# mine\n")
    (tmp_path / written[-1]).unlink()
    done = run("--factory", "mine:stage", "--entry", "other", "--warmup", "0")
    assert done.stdout.startswith("other ")
    assert (tmp_path / written[0]).exists()


def test_the_program_needs_a_factory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "program.py"
    path.write_text(program_for("x", {"stage_name": "x", "input_signatures": {}}, OPTIONS))
    monkeypatch.setattr(sys, "argv", ["program.py"])
    with pytest.raises(SystemExit) as exit_:
        runpy.run_path(str(path), run_name="__main__")
    assert exit_.value.code == 2
    assert "required: --factory" in capsys.readouterr().err
