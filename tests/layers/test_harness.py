"""The harness: one stage alone under the profiler, as a class and as a command (failure scenarios D9, D16)."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cprofiling as cp
from command import COMMAND, python
from cprofiling import FormatError
from cprofiling.commands import main
from cprofiling.devices import operations
from cprofiling.harness import HarnessConfig, StageBenchHarness, call_factory
from cprofiling.layers import context, recording
from cprofiling.layers.harness import stage_bench
from cprofiling.layers.harness.mock_inputs import MockInputs
from cprofiling.layers.harness.stage_bench import synchronize
from cprofiling.layers.recording import NOTHING, STAND_IN

SIGNATURE: dict[str, Any] = {
    "stage_name": "stage",
    "input_signatures": {"size": 3, "helper": "Generator", "when": "nan"},
    "types": {"/helper": "other", "/when": "float"},
    "output_signature": [3, {"a": "x"}],
}
FILES = ["profile_stage.py", "stage_breakdown.json", "stage_trace.json.gz"]


@cp.profile_node("inner")
def inner() -> None:
    pass


class Stage:
    """A stage of plain Python."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def process(self, size: int, helper: Any, other: int = 5) -> list[Any]:
        self.calls.append((size, helper, other))
        inner()
        return [size, {"a": "y"}]

    def fail(self, size: int) -> None:
        raise KeyError(size)


@pytest.fixture(autouse=True)
def without_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch, which other tests may have loaded, has no part in this."""
    options = {"record_shapes": True, "profile_memory": True, "with_stack": True, "operators": False}
    monkeypatch.setattr(recording, "options", lambda: options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "made" / "out"


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "cprofiling"]


def test_a_stage_is_run_and_files_are_written(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    bench = StageBenchHarness("stage", SIGNATURE, stage, HarnessConfig(2, 3, folder, capture_output=True))
    with caplog.at_level(logging.INFO, "cprofiling"):
        bench.setup()
        result = bench.profile()
    assert stage.calls == [(3, None, 5)] * 5
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert folder.stat().st_mode & 0o777 == 0o700
    times = result.pop("timing_ms")
    assert len(times) == 3
    assert all(time > 0 for time in times)
    breakdown = result.pop("kernel_breakdown")
    assert breakdown == json.loads((folder / "stage_breakdown.json").read_text())
    assert [kernel["name"] for kernel in breakdown["top_kernels"]] == ["inner"]
    assert (breakdown["name"], breakdown["note"]) == ("stage", STAND_IN)
    assert result == {
        "stage_name": "stage", "warmup": 2, "profile_steps": 3, "trace_path": f"{folder}/stage_trace.json.gz",
        "breakdown_path": f"{folder}/stage_breakdown.json", "script_path": f"{folder}/profile_stage.py",
        "output": [3, {"a": "y"}], "output_differences": [],
    }  # fmt: skip
    names = [event.name for event in cp.load_trace(result["trace_path"]).events()]
    assert names == ["step 0", "inner", "step 1", "inner", "step 2", "inner"]
    assert lines(caplog) == [
        "[Harness] Input /helper: only its type is known, Generator; None stands in for it",
        "[Harness] Stage 'stage' is run by process()",
        "[Harness] Setup complete for stage 'stage'",
        "[Harness] Mock inputs: ['size', 'helper', 'when']",
        "[Harness] Running 2 warmup iteration(s)...",
        "[Harness] Running 3 profile iteration(s)...",
        f"[Harness] Chrome trace saved to: {folder}/stage_trace.json.gz",
        f"[Harness] Kernel breakdown saved to: {folder}/stage_breakdown.json",
        f"[Harness] Test script saved to: {folder}/profile_stage.py",
        f"[Harness] Average iteration time: {sum(times) / 3:.2f} ms",
    ]


def test_arguments_of_profile_win_and_zero_is_a_number(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    bench = StageBenchHarness("stage", SIGNATURE, stage, HarnessConfig(warmup=4, output_dir=folder), entry="process")
    result = bench.profile(warmup=0, profile_steps=2, output_suffix="_a/b")
    assert (len(stage.calls), result["warmup"], result["profile_steps"]) == (2, 0, 2)
    assert "output" not in result
    monkeypatch.setenv("RANK", "3")
    whose = f"_rank3_{os.getpid()}"
    assert bench.profile(profile_steps=1)["warmup"] == 4
    assert sorted(path.name for path in folder.iterdir()) == [
        "profile_stage.py", f"profile_stage{whose}.py", "stage_a%2Fb_breakdown.json", "stage_a%2Fb_trace.json.gz",
        f"stage_breakdown{whose}.json", f"stage_trace{whose}.json.gz",
    ]  # fmt: skip


def test_the_program_that_runs_is_not_written_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = StageBenchHarness("stage", SIGNATURE, Stage(), HarnessConfig(output_dir=folder))
    program = Path(bench.profile()["script_path"])
    program.write_text("# mine")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(program), raising=False)
    assert bench.profile()["script_path"] == str(program)
    assert program.read_text() == "# mine"
    monkeypatch.delattr(sys.modules["__main__"], "__file__")
    bench.profile()
    assert program.read_text() != "# mine"


def test_one_step_is_run_without_a_recording(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    bench = StageBenchHarness("stage", SIGNATURE, inputs={"helper": 9, "other": 8})
    with pytest.raises(RuntimeError, match="no stage to run: give stage_instance"):
        bench.run_single_step()
    bench.setup()
    bench.stage_instance = stage
    assert bench.run_single_step() == [3, {"a": "y"}]
    assert bench.run_single_step({"size": 1, "helper": 2}) == [1, {"a": "y"}]
    assert stage.calls == [(3, 9, 8), (1, 2, 5)]
    bench.stage_instance = lambda size: size
    assert bench.run_single_step() == 3
    bench.stage_instance, bench.entry = stage, "fail"
    with pytest.raises(KeyError, match="3"):
        bench.run_single_step()
    assert lines(caplog) == []


def test_what_the_stage_raises_is_passed_on_and_what_was_unknown_said(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = StageBenchHarness("stage", SIGNATURE, Stage(), HarnessConfig(output_dir=folder), entry="fail")
    with pytest.raises(KeyError, match="3"):
        bench.profile()
    assert lines(caplog)[-1] == (
        "[Harness] The stage failed; None stood in for what only the type is known of: 'helper' ('Generator')"
    )
    with pytest.raises(KeyError, match="3"):
        bench.profile(warmup=0)
    assert not (folder / FILES[2]).exists()
    with cp.profile(operators=False):  # it has ended all the same
        pass


def test_each_run_has_lists_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stage(left: list[int]) -> int:
        return left.pop()

    monkeypatch.setenv("CPROFILING_OUTPUT_DIR", str(tmp_path))  # where reports go, too
    signature = {"stage_name": "stage", "input_signatures": {"left": [7]}}
    bench = StageBenchHarness("stage", signature, stage, HarnessConfig(2, 2, capture_output=True))
    assert bench.profile()["output"] == 7
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES
    assert (bench.run_single_step(), bench.run_single_step({"left": [3]})) == (7, 3)


def test_runs_are_not_in_the_reports_of_stages(folder: Path) -> None:
    @context.ProfilingContext("harness: once", capture_memory=True)
    def stage(size: int, reset: bool = False) -> int:
        if reset:
            context.reset_timing_registry("new")
        return 1 // size

    def known() -> tuple[Any, Any, Any]:
        stages, checkpoints = context.get_timing_report()["stages"], context._registry.checkpoints()
        return stages, context.get_io_signatures(), checkpoints

    stage(1)
    before = known()
    assert "harness: once" in before[0]
    signature = {"stage_name": "stage", "input_signatures": {"size": 2}}
    bench = StageBenchHarness("stage", signature, stage, HarnessConfig(output_dir=folder))
    bench.profile()
    with pytest.raises(ZeroDivisionError):
        bench.run_single_step({"size": 0})
    assert known() == before
    stage(1)
    assert context.get_timing_report()["stages"]["harness: once"]["count"] == 2
    bench.run_single_step({"size": 1, "reset": True})
    stage(1)
    assert context.get_timing_report()["stages"]["harness: once"]["count"] == 1
    context.reset_timing_registry()


def test_the_harness_does_not_take_over_a_recording(folder: Path) -> None:
    bench = StageBenchHarness("stage", SIGNATURE, Stage(), HarnessConfig(0, 1, folder))
    with cp.profile(operators=False), pytest.raises(RuntimeError, match="a recording is running already"):
        bench.profile()


def test_a_trace_that_is_too_large_is_recorded_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage()
    monkeypatch.setattr(stage_bench, "MOST_TRACE_BYTES", 10)
    with caplog.at_level(logging.INFO, "cprofiling"):
        StageBenchHarness("stage", SIGNATURE, stage, HarnessConfig(0, 1, folder)).profile()
    assert len(stage.calls) == 3
    again = [line for line in lines(caplog) if "recorded again" in line]
    assert again == [
        "[Harness] The trace has 0.0 MB: it is recorded again, without Python's frames",
        "[Harness] The trace has 0.0 MB: it is recorded again, without events of memory",
    ]
    (event,) = [event for event in cp.load_trace(folder / FILES[2]).events() if event.name == "inner"]
    assert event.stack is None


TENSOR = {"shape": [2], "dtype": "float32", "device": "cpu", "stride": [1], "requires_grad": False}
OTHER = {**TENSOR, "shape": [3], "dtype": "int8", "device": "cuda"}


@pytest.mark.parametrize(
    ("made", "recorded", "expected"),
    [
        (TENSOR, TENSOR, []),
        (
            [TENSOR, {"a": 1}],
            [OTHER, {"a": 2}],
            ["output[0]: shape is [2], was [3]", "output[0]: dtype is float32, was int8"],
        ),
        ({"a": "x"}, {"a": 1}, ["output['a']: is 'x' (str), was 1 (int)"]),
        ([1], [1, 2], ["output: is [1] (list), was [1, 2] (list)"]),
        ({"a": 1}, {"b": 1}, ["output: is {'a': 1} (dict), was {'b': 1} (dict)"]),
    ],
)
def test_an_output_is_compared_with_the_recorded_one(made: Any, recorded: Any, expected: list[str]) -> None:
    assert stage_bench._differences(made, recorded) == expected


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: HarnessConfig(warmup=-1), ValueError, "warmup must be from 0 to 1000000, got -1"),
        (lambda: HarnessConfig(warmup="1"), TypeError, "warmup must be an integer, got '1'"),  # type: ignore[arg-type]
        (lambda: HarnessConfig(profile_steps=0), ValueError, "profile_steps must be from 1 to 1000000, got 0"),
        (lambda: HarnessConfig(output_dir=3), TypeError, "output_dir must be a path, got 3"),  # type: ignore[arg-type]
        (lambda: StageBenchHarness(1, SIGNATURE), TypeError, "stage_name must be a str"),  # type: ignore[arg-type]
        (lambda: StageBenchHarness("s", 1), TypeError, "io_signature must be the signature"),  # type: ignore[arg-type]
        (lambda: StageBenchHarness("s", {}), FormatError, "io_signature.stage_name: it is missing"),
        (lambda: StageBenchHarness("s", SIGNATURE, config=1), TypeError, "config must be a HarnessConfig"),  # type: ignore[arg-type]
        (lambda: StageBenchHarness("s", SIGNATURE, seed=-1), ValueError, "seed must be from 0"),
        (lambda: StageBenchHarness("s", SIGNATURE, inputs=[1]), TypeError, "inputs must be a Mapping, got"),  # type: ignore[arg-type]
        (lambda: StageBenchHarness("s", SIGNATURE, value_ranges="ab"), TypeError, "value_ranges must be a mapping"),  # type: ignore[arg-type]
        (lambda: StageBenchHarness("s", SIGNATURE, value_ranges={"x": (0, 1)}), ValueError, "value_ranges must be for"),
        (lambda: StageBenchHarness("s", SIGNATURE, Stage()).profile(output_suffix=1), TypeError, "output_suffix must"),  # type: ignore[arg-type]
        (lambda: StageBenchHarness("s", SIGNATURE, Stage()).profile(-1), ValueError, "warmup must be"),
        (lambda: StageBenchHarness("s", SIGNATURE, 3).setup(), ValueError, "stage_instance must have a method"),
    ],
)
def test_wrong_arguments_are_named(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


@pytest.fixture
def signatures(tmp_path: Path) -> Path:
    path = tmp_path / "sig.json"
    stages = {"stage": SIGNATURE, "o\nther": {"stage_name": "o\nther", "input_signatures": {}}}
    path.write_text(json.dumps({"schema_version": 1, "stages": stages}))
    return path


def test_a_file_of_signatures(signatures: Path) -> None:
    bench = StageBenchHarness.from_signature_file(signatures, "stage", Stage(), HarnessConfig(7), seed=3)
    assert (bench.stage_name, bench.config.warmup) == ("stage", 7)
    assert bench.run_single_step()[0] == 3
    with pytest.raises(TypeError, match="stage_name must be a str, got"):
        StageBenchHarness.from_signature_file(signatures, ["stage"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"must be a stage in .*sig.json'\) \('stage', 'o\\nther'\), got 'none'"):
        StageBenchHarness.from_signature_file(signatures, "none")
    signatures.write_text('{"stages": {}}')
    with pytest.raises(ValueError, match=r"\(none\), got 'x'"):
        StageBenchHarness.from_signature_file(signatures, "x")


# --- devices --------------------------------------------------------------------------------------


def test_the_devices_in_use_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    fields = dict.fromkeys(operations.DeviceOperations._fields, "reason")
    row = operations.DeviceOperations(**{**fields, "tensor_type": "xpu"})
    there = {**row._asdict(), "current_index": lambda: 0, "synchronize": waited.append}
    inputs = MockInputs()
    for number, place in enumerate((("xpu", 2), ("cpu", 1), ("xpu", None))):
        inputs[str(number)] = SimpleNamespace(device=SimpleNamespace(type=place[0], index=place[1]))
    for found in (None, "no answer", row, operations.DeviceOperations(**there)):
        monkeypatch.setattr(operations, "in_use", lambda found=found: found)
        synchronize(inputs)
    assert waited == [0, 2]


# --- the factory and the command ------------------------------------------------------------------

MODULE = """
import sys

class Stage:
    def process(self, size, helper):
        print("process", size, helper, file=sys.stderr)
        if size == 4:
            raise ValueError("no\\nfour")

    def other(self):
        print("other", file=sys.stderr)

    @classmethod
    def made(cls):
        return cls()

def stage():
    return Stage()

def function():
    return lambda size: print("function", size, file=sys.stderr)

def nothing():
    pass

def broken():
    raise OSError(28, "No space left")

constant = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"factory_of_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / "broken_module.py").write_text("import what_is_not_there")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return name


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("module", ValueError, "factory must be MODULE:FUNCTION, got 'module'"),
        (":stage", ValueError, "factory must be MODULE:FUNCTION"),
        (".x:stage", ValueError, "factory must be MODULE:FUNCTION"),
        ("nowhere_to_be.found:stage", ValueError, "factory must be in a module that can be imported, got 'nowhere"),
        ("json.nowhere:stage", ValueError, "factory must be in a module that can be imported"),
        ("{}:constant", ValueError, "factory must name a function in its module"),
        ("{}:stage.none.at_all", ValueError, "factory must name a function in its module"),
        ("{}:nothing", ValueError, "factory must return a stage, .* returned None"),
        ("broken_module:stage", ModuleNotFoundError, "what_is_not_there"),
        (3, TypeError, "factory must be a str, got 3"),
    ],
)
def test_factories(module: str, spec: Any, error: type[Exception], message: str) -> None:
    for good in ("stage", "Stage.made"):
        assert type(call_factory(f"{module}:{good}")).__name__ == "Stage"
    with pytest.raises(error, match=message):
        call_factory(spec.format(module) if isinstance(spec, str) else spec)


def command(*arguments: str) -> int:
    return main.main(["harness", "--signature", "sig.json", *arguments])


def test_the_command_lists_stages(signatures: Path, module: str, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(signatures.read_text())
    tensor = {"shape": [1, 2], "dtype": "int8", "device": "cpu"}
    content["stages"]["stage"]["input_signatures"].update(image=tensor, text="\x1b" * 99)
    signatures.write_text(json.dumps(content))
    assert command("--list") == 0
    printed = capsys.readouterr()
    shown = printed.out.splitlines()
    assert shown[:3] == ["stage", "  size: 3", "  helper: 'Generator'"]
    assert shown[4] == "  image: int8 [1, 2] on cpu"
    assert shown[5] == f"  text: {repr(chr(27) * 99)[:77]}..."
    assert shown[6] == "o\\nther"
    assert printed.err == ""
    signatures.write_text('{"stages": {}}')
    assert command("--list") == 0
    assert capsys.readouterr().out == "no stages in sig.json\n"


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is configured by the program."""
    logger = logging.getLogger("cprofiling")
    monkeypatch.setattr(logger, "handlers", [logging.NullHandler()])


def test_the_command_runs_a_stage(
    signatures: Path, module: str, quiet: None, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["--stage", "stage", "--factory", f"{module}:stage", "--output-dir", "out", "--warmup", "0"]
    assert command(*run, "--profile-steps", "12") == 0
    printed = capsys.readouterr()
    assert printed.err == "process 3 None\n" * 12
    shown = printed.out.splitlines()
    assert shown[0].startswith("stage: ")
    assert shown[0].endswith(", ... ms per step, recording included")
    assert shown[1:] == [
        NOTHING,
        "trace: out/stage_trace.json.gz",
        "breakdown: out/stage_breakdown.json",
        "script: out/profile_stage.py",
    ]
    assert sorted(path.name for path in Path("out").iterdir()) == FILES
    assert command(*run, "--entry", "other") == 0
    assert capsys.readouterr().err == "other\n"
    assert command("--stage", "stage", "--factory", f"{module}:function", "--output-dir", "out") == 0
    assert capsys.readouterr().err == "function 3\n" * 2


def test_the_command_says_in_a_line_what_went_wrong(
    signatures: Path, module: str, quiet: None, capsys: pytest.CaptureFixture[str]
) -> None:
    def failure(*arguments: str) -> str:
        assert command(*arguments) == 1
        printed = capsys.readouterr()
        assert printed.out == ""
        last = printed.err.splitlines()[-1]
        assert last.startswith("cprofiling: ")
        return last.removeprefix("cprofiling: ")

    factory = ["--factory", f"{module}:stage", "--output-dir", "out"]
    assert failure("--stage", "x", *factory) == "--stage must be a stage in sig.json ('stage', 'o\\nther'), got 'x'"
    assert failure("--stage", "stage", "--factory", "m").startswith("--factory: ValueError: factory must be MODULE:F")
    assert failure("--stage", "stage", "--factory", f"{module}:broken").startswith(
        f"--factory: OSError: [Errno 28] No space left ({module}.py:"
    )
    assert failure("--stage", "stage", *factory, "--entry", "x").startswith("the stage: ValueError: entry must be a")
    content = json.loads(signatures.read_text())
    content["stages"]["stage"]["input_signatures"]["size"] = 4
    signatures.write_text(json.dumps(content))
    assert failure("--stage", "stage", *factory).startswith(f"the stage: ValueError: no ({module}.py:")
    Path("file").touch()
    assert failure("--stage", "stage", *factory[:2], "--output-dir", "file").startswith("--output-dir: FileExistsE")
    signatures.write_text("{")
    assert failure("--list").startswith("sig.json: Expecting property name")
    signatures.unlink()
    assert failure("--list") == "cannot read sig.json: No such file or directory"


def test_the_command_needs_no_current_directory(
    signatures: Path, module: str, tmp_path: Path, quiet: None, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    arguments = ["--stage", "stage", "--factory", f"{module}:stage", "--output-dir", str(tmp_path / "out")]
    assert main.main(["harness", "--signature", str(signatures), *arguments]) == 0
    assert (tmp_path / "out" / FILES[0]).exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "required: --signature"),
        (["--signature", "s"], "required: --stage and --factory, or --list"),
        (["--signature", "s", "--stage", "x"], "required: --stage and --factory, or --list"),
        (["--signature", "s", "--list", "--warmup", "-1"], "expected a whole number from 0 to 1000000, got '-1'"),
        (["--signature", "s", "--list", "--profile-steps", "0"], "expected a whole number from 1 to 1000000, got '0'"),
    ],
)
def test_wrong_options(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main.main(["harness", *arguments])
    assert exit_.value.code == 2
    assert complaint in capsys.readouterr().err


def test_the_command_speaks_on_stderr(signatures: Path, module: str, tmp_path: Path) -> None:
    arguments = ["--signature", "sig.json", "--stage", "stage", "--factory", f"{module}:stage", "--output-dir", "o"]
    done = python([*COMMAND[1:], "harness", *arguments], tmp_path, watched=False)
    assert done.status == 0, done.err
    assert "[Harness] Running 1 warmup iteration(s)...\n" in done.err
    assert "[Harness] Chrome trace saved to: o/stage_trace.json.gz\n" in done.err
    assert done.out.startswith("stage: ")
