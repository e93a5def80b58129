"""The program of a stage: whatever the stage is called, a fixed text with other constants (failures D10, I10, I11)."""

from __future__ import annotations

import ast
import importlib.util
import json
import random
import string
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cprofiling
from command import python
from cprofiling._internal.text import file_name_of
from cprofiling.harness import HarnessConfig, StageBenchHarness
from cprofiling.layers.harness.program import program_for, template

NAMES = 10_000
OPTIONS: dict[str, Any] = {
    "warmup": 1, "profile_steps": 1, "entry": None, "value_ranges": None, "device": None, "seed": 0, "file": "x",
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
TAIL = template().partition("@OPTIONS@)\n")[2]  # the same in each program


def shape_of(text: str) -> str:
    """The syntax tree of a program, without the constants that differ from stage to stage."""
    assert text.endswith(TAIL)
    tree = ast.parse(text.removesuffix(TAIL))
    found = [node for node in tree.body if isinstance(node, ast.Assign)]
    assert [ast.unparse(node.targets[0]) for node in found[1:]] == list(PLACES)
    for node in found[1:]:
        value = node.value.args[0] if isinstance(node.value, ast.Call) else node.value
        assert isinstance(value, ast.Constant)
        assert isinstance(value.value, str)
        value.value = None
    return ast.dump(tree)


def shape_of_template() -> str:
    text = template()
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
import sys
import numpy

class Stage:
    calls = 0

    def process(self, image, name="?"):
        Stage.calls += 1
        print("process", Stage.calls, image.shape, name, "cprofiling" in sys.modules)
        return image + 1

    def other(self, image):
        print("other", float(image.sum()))

    @classmethod
    def made(cls):
        return cls()
"""


@pytest.mark.slow
def test_the_program_runs_as_it_is(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    image = {"shape": [2, 3], "dtype": "float32", "device": "numpy", "stride": [3, 1], "requires_grad": False}
    signature = {"stage_name": "a 'b'\n", "input_signatures": {"image": image, "name": "Ann"}}
    program = StageBenchHarness("a 'b'\n", signature, device="cpu").generate_test_script()
    assert constants(program)[2] == {**OPTIONS, "device": "cpu", "file": "a%20%27b%27%0A"}
    (tmp_path / "program.py").write_text(program)
    (tmp_path / "mine.py").write_text(MODULE)
    begin = ["program.py", "--factory", "mine:Stage.made"]
    done = python([*begin, "--output-dir", "out", "--warmup", "2", "--profile-steps", "2"], tmp_path, watched=False)
    assert done.status == 0, done.err
    assert done.out.splitlines()[:4] == [f"process {number} (2, 3) Ann False" for number in (1, 2, 3, 4)]
    assert "ms per step: " in done.out
    if importlib.util.find_spec("torch") is None:
        assert done.out.endswith("trace: none, as PyTorch is not installed\n")
    else:
        assert done.out.endswith("trace: out/a%20%27b%27%0A_trace.json.gz\n")
        steps = [event.name for event in cprofiling.load_trace(tmp_path / "out/a%20%27b%27%0A_trace.json.gz").events()]
        assert [name for name in steps if name.startswith("step ")] == ["step 0", "step 1"]
    done = python([*begin, "--entry", "other", "--warmup", "0"], tmp_path, watched=False)
    assert done.out.startswith("other ")


@pytest.mark.slow
def test_the_program_has_telefuser_s_functions(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    latents = {"shape": [2, 3], "dtype": "bfloat16", "device": "cpu", "stride": [1, 2], "requires_grad": True}
    inputs = {
        "x": latents, "tokens": {"shape": [50], "dtype": "int64", "device": "cpu"}, "fields": {"a": 1},
        "array": {"shape": [4], "dtype": "int16", "device": "numpy"}, "who": "Thing", "words": ["a", "b"],
    }  # fmt: skip
    types = {"/fields": "dataclass m.Fields", "/who": "other", "/words": "set"}
    signature = {"stage_name": "s", "input_signatures": inputs, "types": types}
    config, ranges = HarnessConfig(0, 1, tmp_path), {"tokens": (5, 9)}
    harness = StageBenchHarness("s", signature, Nothing(), config, value_ranges=ranges)
    program: dict[str, Any] = {"__name__": "program"}
    exec(harness.generate_test_script(), program)
    made, ours = program["create_inputs"](), harness._made_inputs()
    assert repr(made) == repr(ours)
    assert set(made["tokens"].tolist()) == {5, 6, 7, 8}
    assert torch.equal(made["x"], ours["x"])
    result = program["profile_stage"](Nothing(), warmup=0, profile_steps=2, output_dir=str(tmp_path / "theirs"))
    assert (result["stage_name"], len(result["timing_ms"])) == ("s", 2)
    assert Path(result["trace_path"]) == tmp_path / "theirs" / "s_trace.json.gz"


def test_the_program_runs_a_stage_as_the_harness_does(capsys: pytest.CaptureFixture[str]) -> None:
    program: dict[str, Any] = {"__name__": "program"}
    signature = {"stage_name": "s", "input_signatures": {"a": "T", "x": 1}, "types": {"/a": "other"}}
    exec(program_for("s", signature, OPTIONS), program)
    inputs = program["create_inputs"]()
    assert (inputs, inputs.unknown) == ({"a": None, "x": 1}, {"a": "T"})
    assert capsys.readouterr().err == "[Harness] Input /a: only its type is known, T; None stands in for it\n"

    async def coroutine(x: int) -> int:
        return x + 1

    run = program["run_single_step"]
    assert run(coroutine, inputs) == 2
    assert run(lambda x, a="default", **more: (x, a, more), inputs) == (1, "default", {})
    stage = types.SimpleNamespace(process=coroutine, other=lambda x: -x)
    assert (run(stage, inputs), run(stage, inputs, "other")) == (2, -1)
    stage.profile_step = lambda a: a
    assert run(stage, inputs) is None
    with pytest.raises(ValueError, match=r"entry must be a method of the stage, .*, got 'none' \(str\)"):
        run(stage, inputs, "none")


@pytest.mark.parametrize("is_available", [True, False])
@pytest.mark.parametrize("kind", ["accelerator", "cuda"])
def test_the_program_waits_for_the_device_of_any_torch(kind: str, is_available: bool) -> None:
    program: dict[str, Any] = {"__name__": "program"}
    exec(program_for("s", {"stage_name": "s", "input_signatures": {}}, OPTIONS), program)
    waited: list[str] = []
    device = types.SimpleNamespace(is_available=lambda: is_available, synchronize=lambda: waited.append(kind))
    program["torch"] = types.SimpleNamespace(**{kind: device})
    program["synchronize"]()
    assert waited == [kind] * is_available
    program["torch"] = None
    program["synchronize"]()
