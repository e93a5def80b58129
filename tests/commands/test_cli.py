"""The command: its output and help, its exit status, what it says when something fails, and the demo that it runs."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import runpy
import shlex
import subprocess
import sys
from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest

import cprofiling
from command import COMMAND
from cprofiling import NodeProfilingStats, ProfilingSummary
from cprofiling.commands import main
from cprofiling.commands.completion import commands_of
from cprofiling.commands.demo import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(cprofiling.__file__).parents[1])}
LINES, COLUMNS = 24, 80
COMMANDS = ("", *main.COMMANDS)
HAVE_A_PROGRAM = ("run", "serve", "ncu", "nsys")
SMALL = ("demo", "--frames", "50", "--batch-size", "8", "--seed", "1")
STAGES = ("train", "val", "inference")


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def run(*arguments: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], env=ENVIRONMENT, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False
    )


def table_rows(output: str) -> dict[tuple[str, str], list[float]]:
    """Return the rows of the printed table: the figures by stage and node."""
    rows = {}
    for line in output.split("\n" + "-" * 125 + "\n")[1].splitlines():
        stage, *figures = line[41:].split()
        rows[stage, line[:40].rstrip()] = [float(figure) for figure in figures]
    return rows


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    pytest.importorskip("sklearn")
    from cprofiling.commands import demo_pipeline

    return demo_pipeline


@pytest.fixture(scope="module")
def report(demo: ModuleType) -> str:
    """Return the output of a small demo, which said nothing on stderr, as that is no terminal."""
    done = run(*SMALL)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "required: COMMAND"),
        (["nothing"], "invalid choice: 'nothing'"),
        (["--nothing"], "COMMAND"),
        (["demo", "digits"], "unrecognized arguments: digits"),
        (["demo", "--frames", "24"], "from 25 to 1000000, got '24'"),
        (["demo", "--frames", "many"], "from 25 to 1000000, got 'many'"),
        (["demo", "--frames", "1000001"], "got '1000001'"),
        (["demo", "--batch-size", "0"], "from 1 to 10000, got '0'"),
        (["demo", "--batch-size", "1.5"], "got '1.5'"),
        (["demo", "--skip-first-n", "-1"], "expected a whole number of at least 0, got '-1'"),
        (["demo", "--skip-first-n", str(2**63)], "from 0 to 9223372036854775807, got '9223372036854775808'"),
        (["report", "x", "--limit", "0"], "expected a whole number of at least 1, got '0'"),
        (["report", "x", "--limit", "many"], "expected a whole number of at least 1, got 'many'"),
        (["demo", "--seed", str(2**32)], "from 0 to 4294967295"),
        (["demo", "--seed"], "expected one argument"),
        (["report", "x", "--unknown"], "unrecognized arguments: --unknown"),
        (["run", "--unknown", "app.py"], "unrecognized arguments: --unknown"),
        (["report", "x", "--limit"], "expected one argument"),
    ],
)
def test_wrong_arguments(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main.main(arguments)
    printed = capsys.readouterr()
    assert exit_.value.code == 2
    assert printed.out == ""
    own = f"cprofiling {arguments[0]}" if arguments and arguments[0] in main.COMMANDS else "cprofiling"
    assert printed.err.startswith(f"usage: {own} ")
    assert printed.err.splitlines()[-1].startswith(f"{own}: error: ")
    assert complaint in printed.err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main.main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr() == (f"cprofiling {cprofiling.__version__}\n", "")


def test_the_module_runs_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["anything", "--help"])
    with pytest.raises(SystemExit) as exit_:
        # Not run_module(): pytest's loader, which modules of an installed plugin have, does not know it.
        runpy.run_path(str(Path(cprofiling.__file__).with_name("__main__.py")), run_name="__main__")
    assert exit_.value.code == 0
    assert capsys.readouterr().out.startswith("usage: cprofiling ")


@pytest.fixture(params=COMMANDS, ids=lambda name: name or "cprofiling")
def command(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of each command, with a terminal of the usual size; "" is the command of all of them."""
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    name: str = request.param
    return name


def help_of(command: str) -> str:
    return (commands_of(main.parser())[command] if command else main.parser()).format_help()


def test_help_fits_a_screen(command: str) -> None:
    lines = help_of(command).splitlines()
    assert len(lines) <= LINES
    assert [line for line in lines if len(line) > COLUMNS] == []
    assert "FILE, --" not in help_of(command)  # each option is named once with its value


def test_help_ends_with_an_example_that_the_command_takes(command: str) -> None:
    *_, example = help_of(command).splitlines()
    words, _, _ = example.removeprefix("example: ").partition(" && ")
    program, *arguments = shlex.split(words)
    assert example.startswith("example: ")
    assert program == "cprofiling"
    options = main.parser().parse_args(arguments)
    assert options.command == (command or "run")
    assert bool(options.program) == (options.command in HAVE_A_PROGRAM)


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_is_printed(option: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main.main([*filter(None, [command]), option])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == help_of(command)


def imported(code: str) -> list[str]:
    """The modules of this package that a program has imported at its end."""
    code = f"import sys\n{code}\nprint(*sorted(name for name in sys.modules if name.startswith('cprofiling.')))"
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    return [name.removeprefix("cprofiling.") for name in done.stdout.splitlines()[-1].split()]


@pytest.mark.parametrize(
    ("arguments", "own"), [(["--help"], set()), (["doctor", "--help"], {"doctor"}), (["demo", "--help"], {"demo"})]
)
def test_only_the_command_that_is_wanted_is_imported(arguments: list[str], own: set[str]) -> None:
    assert not any(name.startswith("commands") for name in imported("import cprofiling"))
    code = f"from cprofiling.commands import main\ntry: main.main({arguments})\nexcept SystemExit: pass"
    loaded = {name.removeprefix("commands.") for name in imported(code) if name.startswith("commands.")}
    assert loaded == {"main", "parsing", *own}


@pytest.mark.parametrize("missing", PACKAGES)
def test_demo_without_its_packages(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "cprofiling.commands.demo_pipeline", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    assert main.main(["demo"]) == 1
    assert capsys.readouterr() == ("", 'cprofiling: the demo needs scikit-learn: pip install "cprofiling[demo]"\n')


def test_a_fault_of_our_own_is_not_taken_for_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cprofiling.commands.demo_pipeline", None)
    with pytest.raises(ModuleNotFoundError, match=r"cprofiling\.commands\.demo_pipeline"):
        main.main(["demo"])


def test_demo_prints_the_summary_of_all_stages(report: str) -> None:
    lines = report.splitlines()
    title = lines.index("Profiling Summary (50 frames, skip_first_n=3)")
    rows = table_rows(report)
    nodes = {stage: {node for row_stage, node in rows if row_stage == stage} for stage in STAGES}
    assert len(rows) == sum(map(len, nodes.values()))
    assert nodes["val"] == nodes["inference"] == nodes["train"] - {"augment", "learn"}
    assert len(nodes["val"]) >= 6
    assert {"augment", "learn"} < nodes["train"]
    assert {(stage, figures[0]) for (stage, _), figures in rows.items()} == {
        ("train", 27.0),
        ("val", 7.0),
        ("inference", 7.0),
    }
    assert all(figures[3] <= figures[5] <= figures[4] for figures in rows.values())  # min, median, max
    end = next(place for place, line in enumerate(lines) if line.startswith("TOTAL"))
    total = float(lines[end].removeprefix("TOTAL"))
    assert total == pytest.approx(sum(figures[6] for figures in rows.values()), abs=0.0005 * (len(rows) + 1))
    assert end == title + len(rows) + 4


def test_demo_prints_the_time_per_frame_and_the_cost(report: str) -> None:
    rows = table_rows(report)
    for stage in STAGES:
        line = rf"^Average per-frame pipeline time \({stage}\): ([\d.]+) ms \(.* FPS\), frames: (\d+) \(each node "
        match = re.search(line, report, re.MULTILINE)
        assert match is not None
        means = [figures[1] for (row_stage, _), figures in rows.items() if row_stage == stage]
        assert int(match[2]) == {"train": 30}.get(stage, 10)
        assert float(match[1]) == pytest.approx(sum(means), abs=0.005 * (len(means) + 1), rel=1e-3)
    cost = r"^Cost of profiling: (\d+) calls of \d+ ns each as measured here, [\d.]+ ms in all$"
    match = re.search(cost, report, re.MULTILINE)
    assert match is not None
    assert int(match[1]) == 30 * 10 + 20 * 8


def accuracies(report: str) -> list[float]:
    """Return the accuracies of the report: by round for training and validation, then that of inference."""
    block = report.partition("\n\n")[0]
    assert re.sub(r" +", " ", block.splitlines()[0]) == "Accuracy train val inference"
    return [float(number) for number in re.findall(r"\d\.\d{4}", block)]


@pytest.mark.slow
def test_demo_learns_to_read_digits(demo: ModuleType) -> None:
    done = accuracies(demo.run_demo(frames=150, batch_size=32, skip_first_n=0, seed=0))
    assert len(done) == 11
    assert done[-1] > 0.9  # a guess is right in 0.1 of all cases
    assert done[-2] > 0.9


def test_demo_with_equal_seeds_gives_equal_accuracies(demo: ModuleType, report: str) -> None:
    again, other = (
        accuracies(demo.run_demo(frames=50, batch_size=8, skip_first_n=skips, seed=seed))
        for skips, seed in ((0, 1), (3, 0))
    )
    assert accuracies(report) == again
    assert again != other


def test_demo_that_skips_all_calls_claims_no_time(demo: ModuleType) -> None:
    report = demo.run_demo(frames=25, batch_size=1, skip_first_n=15, seed=0)
    assert "per-frame" not in report
    assert "Cost of profiling: 230 calls" in report
    assert "\nProfiling Summary (25 frames, skip_first_n=15)\n" in report


def test_demo_tells_what_is_uncertain(demo: ModuleType) -> None:
    row = NodeProfilingStats("node", "val", 4, 2.5, 2.5, 0.0, 2.5, 2.5, 10.0, 2.5, skipped_count=1)
    summary = ProfilingSummary([row], reasons=["the clock is slow", "there is no device"], cost_ns=100.0)
    assert demo.cost_lines(summary) == [
        "Cost of profiling: 5 calls of 100 ns each as measured here, 0.00 ms in all",
        "Note: the clock is slow",
        "Note: there is no device",
    ]
    assert demo.cost_lines(ProfilingSummary()) == []


@pytest.mark.parametrize("frames", [25, 26, 33, 99, 600, 1_000_000])
def test_schedule_uses_all_frames(demo: ModuleType, frames: int) -> None:
    parts = demo.schedule(frames)
    assert [name for name, _ in parts] == ["train", "val"] * 5 + ["inference"]
    assert all(count > 0 for _, count in parts)
    assert sum(count for _, count in parts) == frames


@pytest.mark.parametrize("batch_size", [1, 7, 359, 1000])
def test_each_digit_comes_once_before_any_comes_again(demo: ModuleType, batch_size: int) -> None:
    import numpy as np

    count = 359
    images = np.arange(count, dtype=float)[:, None, None] * np.ones((1, 8, 8))
    digits = demo.Digits(images, np.arange(count) % 10)
    taken = list(islice(demo.batches(digits, batch_size, np.random.default_rng(0)), 3 * count // batch_size + 1))
    assert {len(batch.labels) for batch in taken} == {batch_size}
    order = np.concatenate([batch.images[:, 0, 0] for batch in taken]).astype(int)
    assert np.array_equal(np.concatenate([batch.labels for batch in taken]), order % 10)
    rounds = [order[start : start + count] for start in range(0, len(order) - count + 1, count)]
    assert len(rounds) >= 2
    assert all(sorted(part) == list(range(count)) for part in rounds)
    assert not np.array_equal(rounds[0], rounds[1])


def test_stages_share_no_digit(demo: ModuleType) -> None:
    import numpy as np
    from sklearn.datasets import load_digits

    parts = demo.split_digits(np.random.default_rng(0))
    everything = np.concatenate([part.images for part in parts.values()]).reshape(-1, 64)
    assert [len(parts[stage].labels) for stage in STAGES] == [1078, 359, 360]
    assert np.array_equal(
        np.unique(everything, axis=0, return_counts=True)[1],
        np.unique(load_digits().data, axis=0, return_counts=True)[1],
    )


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_no_progress_bar_elsewhere(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, stream: io.StringIO | None
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    with demo.progress_bar(1) as advance:
        advance("train")
    assert stream is None or stream.getvalue() == ""


def read_all(descriptor: int) -> str:
    """Read what was written to a terminal whose other end is closed."""
    content = b""
    while True:
        try:
            content += os.read(descriptor, 65536)
        except OSError:  # EIO: nobody has it open for writing any more
            return content.decode()


@pytest.mark.usefixtures("demo")
def test_terminal_on_stderr_alone() -> None:
    ours, theirs = pty.openpty()
    command = [*COMMAND, "demo", "--frames", "25", "--batch-size", "1"]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        drawn = read_all(ours)
        assert process.stdout is not None
        printed = process.stdout.read().decode()
    os.close(ours)
    assert process.returncode == 0
    assert [int(done) for done in re.findall(r"(\d+)/25 frames", drawn)] == list(range(1, 26))
    assert f"\rinference [{'#' * 30}] 25/25 frames\r" in drawn
    assert re.search(r"\r +\r$", drawn)
    assert printed.startswith("Accuracy")
    assert "\r" not in printed


def test_interrupted_demo_takes_its_bar_away(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*arguments: object) -> float:
        raise KeyboardInterrupt

    terminal = Terminal()
    monkeypatch.setattr(demo, "run_stage", interrupt)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert main.main(["demo"]) == 130
    assert terminal.getvalue().rpartition("\r")[2] == "cprofiling: interrupted\n"
    assert capsys.readouterr().out == ""


@pytest.mark.slow
@pytest.mark.usefixtures("demo")
def test_output_that_cannot_be_written() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        done = run("demo", "--frames", "25", "--batch-size", "1", stdout=full)
    finally:
        os.close(full)
    assert done.returncode == 1
    assert done.stderr == "cprofiling: cannot write to stdout: No space left on device\n"


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["report", "--help"], ["doctor"]])
def test_output_that_nobody_reads(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = run(*arguments, stdout=writer)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_output_that_is_not_read_to_its_end(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    events = [{"ph": "X", "name": f"n{i}", "ts": i, "dur": 1, "pid": 1, "tid": 1} for i in range(5_000)]
    trace.write_text(json.dumps(events))
    command = [*COMMAND, "report", "--limit", "5000", str(trace)]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(str(trace).encode())
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 1
