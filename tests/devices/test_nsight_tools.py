"""``cprofiling ncu`` and ``cprofiling nsys``: the command lines, run or printed, for any name of a node."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import cprofiling
from bare_path import bare_path
from command import COMMAND
from cprofiling import _core
from cprofiling.commands import main
from cprofiling.devices import cuda_toolkits
from cprofiling.devices.nsight import tools as deep_dive

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(cprofiling.__file__).parents[1])}
PROGRAM = ("--", "python", "app.py", "--epochs", "1 0")
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=300)
ODD = (
    "a/b", "../../etc/passwd", "/absolute", ".", "..", "-o", "--log-file", "a b", "a\nb", "it's", '"', "$(id)", "`id`",
    "a\\b",
    "regex:.*", "cprofiling@x", "[a]+*,b", "a:1:2", "%p", "%q{HOME}", "=", "~", "CON", "d\u00e9tecteur",
    "\u202e", "\x1b[31m",
    "x" * 4096, "\U0001f40d" * 60,
)  # fmt: skip


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    return bare_path(monkeypatch, tmp_path)


def install(folder: Path, name: str, script: str = "exit 0") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return path


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main.main(list(arguments)) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.count("\n") == 1
    return captured.out.removesuffix("\n")


def test_the_command_line_of_ncu(tools: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(tools, "ncu")
    assert printed(capsys, "ncu", "--node", "encoder", *PROGRAM) == (
        "CPROFILING_CAPTURE=encoder:0:1 LC_ALL=C ncu --profile-from-start off --nvtx "
        "--nvtx-include cprofiling@encoder/ --target-processes all --set basic --csv --page raw "
        "--print-units base --log-file encoder.csv -- python app.py --epochs '1 0'"
    )
    options = ("--skip", "10", "--count", "3", "--set", "full", "--output", "-x %p.csv")
    line = printed(capsys, "ncu", "--node", "a:b/c d", *options, *PROGRAM)
    assert line == (
        "CPROFILING_CAPTURE='a:b/c d:10:3' LC_ALL=C ncu --profile-from-start off --nvtx "
        "--nvtx-include 'cprofiling@a:b\\/c d/' --target-processes all --set full --csv --page raw "
        "--print-units base --log-file './-x %p.csv' -- python app.py --epochs '1 0'"
    )


def test_the_command_line_of_nsys(tools: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(tools, "nsys")
    assert printed(capsys, "nsys", "--node", "encoder", "--skip", "2", *PROGRAM) == (
        "CPROFILING_CAPTURE=encoder:2:1 nsys profile -t cuda,nvtx,osrt -c cudaProfilerApi --capture-range-end=stop "
        "--cuda-graph-trace=node -o encoder -- python app.py --epochs '1 0'"
    )
    assert " -o /tmp/x -- python app.py" in printed(capsys, "nsys", "--node", "a", "--output", "/tmp/x", *PROGRAM)
    assert " --capture-range-end=repeat:3 " in printed(capsys, "nsys", "--node", "a", "--count", "3", *PROGRAM)


def test_dashes_before_the_program_may_be_left_out(tools: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(tools, "nsys")
    line = printed(capsys, "nsys", "--skip=1", "--node", "a", "--output", "x", "app", "--node", "b", "--", "c")
    assert line.startswith("CPROFILING_CAPTURE=a:1:1 nsys ")
    assert line.endswith(" -o x -- app --node b -- c")


def test_what_is_behind_the_first_dashes_is_the_programs(tools: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(tools, "nsys")
    line = printed(capsys, "nsys", "--node", "a", "--", "app", "--node", "b", "--", "-c", "")
    assert line.endswith(" -o a -- app --node b -- -c ''")


WRONG = [
    (["--node", "a"], "a program is required, such as: -- python app.py"),
    (["--node", "a", "--"], "a program is required, such as: -- python app.py"),
    (list(PROGRAM), "argument --node: the name of a node is required"),
    (["--nod=a", *PROGRAM], "unrecognized arguments: --nod=a"),
    (["--node", "", *PROGRAM], "argument --node: expected the name of a node, 1 to 4096 bytes without NUL, got ''"),
    (["--node", "a\0", *PROGRAM], "got 'a\\x00'"),
    (["--node", "\ud800", *PROGRAM], "got '\\ud800'"),
    (["--node", "\u00e9" * 2049, *PROGRAM], "1 to 4096 bytes without NUL, got '\\xe9"),
    (["--node", "a", "--skip", "-1", *PROGRAM], "argument --skip: expected a whole number of at least 0"),
    (["--node", "a", "--skip", str(2**63), *PROGRAM], f"got '{2**63}'"),
    (["--node", "a", "--count", "0", *PROGRAM], "argument --count: expected a whole number of at least 1"),
    (["--node", "a", "--count", "many", *PROGRAM], "got 'many'"),
    (["--node", "a", "--output", "", *PROGRAM], "argument --output: expected a text that is not empty"),
    (["--node"], "argument --node: expected one argument"),
]
MORE = (["--node", "a"], ["--run"], PROGRAM, ["--skip", "0"], ["--count", "1"], ["--set", "basic"], ["--output", "x"])


@pytest.mark.parametrize(
    ("name", "arguments", "complaint"),
    [
        *((name, *wrong) for name in ("ncu", "nsys") for wrong in WRONG),
        *(("ncu", ["--analyze", "x", *more], "it goes without a program and other options") for more in MORE),
        ("ncu", ["--set", ""], "argument --set: expected a text that is not empty and has no NUL"),
        ("ncu", ["--analyze", ""], "argument --analyze: expected a text that is not empty and has no NUL"),
        ("ncu", ["--analyze", "a\0"], "argument --analyze: expected a text that is not empty and has no NUL"),
    ],
)
def test_wrong_arguments(name: str, arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main.main([name, *arguments])
    captured = capsys.readouterr()
    assert exit_.value.code == 2
    assert captured.out == ""
    assert captured.err.startswith(f"usage: cprofiling {name}")
    assert complaint in captured.err


@pytest.mark.parametrize(("name", "product"), [("ncu", "Nsight Compute"), ("nsys", "Nsight Systems")])
def test_without_the_tool_the_line_is_printed_all_the_same(
    name: str, product: str, tools: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main([name, "--node", "a", *PROGRAM]) == 0
    captured = capsys.readouterr()
    locale = "LC_ALL=C " if name == "ncu" else ""
    assert captured.out.startswith(f"CPROFILING_CAPTURE=a:0:1 {locale}{name} ")
    assert captured.out.count("\n") == captured.err.count("\n") == 1
    assert captured.err.startswith(
        f"cprofiling: {name} was not found on PATH, nor where it usually is; install {product}: "
    )


@pytest.mark.parametrize("name", ["ncu", "nsys"])
def test_what_is_not_there_cannot_be_run(name: str, tools: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([name, "--node", "a", "--run", *PROGRAM]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"cprofiling: {deep_dive.missing(name)}\n"


def test_what_cannot_be_run_is_said(tools: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(tools, "ncu").write_text("no program, as it has no first line that names one\n")
    assert main.main(["ncu", "--node", "a", "--run", *PROGRAM]) == 1
    assert capsys.readouterr().err == "cprofiling: cannot run ncu: Exec format error\n"
    assert main.main(["ncu", "--node", "a", "--run", "--", "a\0b"]) == 1
    assert capsys.readouterr().err == "cprofiling: cannot run ncu: embedded null byte\n"


@pytest.mark.parametrize("name", ["ncu", "nsys"])
def test_it_becomes_the_tool(name: str, tmp_path: Path) -> None:
    install(tmp_path / "bin", name, 'printf "%s|" "$0" "$CPROFILING_CAPTURE" "$@"; cat >&2; exit 7')
    environment = {**ENVIRONMENT, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    command = [*COMMAND, name, "--node", "a:\u00e9\n", "--skip", "5", "--run"]
    done = subprocess.run([*command, *PROGRAM], env=environment, input=b"input", capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (7, b"input")
    found = done.stdout.decode().split("|")
    assert found[:2] == [str(tmp_path / "bin" / name), "a:\u00e9\n:5:1"]
    build = deep_dive.ncu_command if name == "ncu" else deep_dive.nsys_command
    assert found[2:-1] == build("a:\u00e9\n", PROGRAM[1:])[1:]


@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH"])
def test_the_tool_may_be_in_the_toolkit(
    variable: str, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = install(tmp_path / "my cuda" / "bin", "ncu")
    monkeypatch.setenv(variable, str(tmp_path / "my cuda"))
    assert deep_dive.find_tool("ncu") == str(path)
    assert f" '{path}' --profile-from-start off " in printed(capsys, "ncu", "--node", "a", *PROGRAM)


def test_the_tool_may_be_where_it_usually_is(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"nsys": (f"{tmp_path}/a/*", f"{tmp_path}/b-*/bin")}
    monkeypatch.setattr(deep_dive, "USUAL_PLACES", places)
    assert deep_dive.find_tool("nsys") is None
    (tmp_path / "a" / "2031.1").mkdir(parents=True)
    (tmp_path / "a" / "2030.1" / "nsys").mkdir(parents=True)  # a folder of this name
    older = install(tmp_path / "b-9.5" / "bin", "nsys")
    assert deep_dive.find_tool("nsys") == str(older)
    newer = install(tmp_path / "b-10.1" / "bin", "nsys")
    assert deep_dive.find_tool("nsys") == str(newer)
    first = install(tmp_path / "a" / "2024.3.1", "nsys")
    assert deep_dive.find_tool("nsys") == str(first)
    install(tools, "nsys")
    assert deep_dive.find_tool("nsys") == "nsys"


def test_toolkits_come_in_one_order(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cuda-9.2", "cuda-13.0", "cuda-12.8", "cuda"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(cuda_toolkits, "USUAL", (f"{tmp_path}/cuda*",))
    usual = [str(tmp_path / name) for name in ("cuda-13.0", "cuda-12.8", "cuda-9.2", "cuda")]
    assert cuda_toolkits.toolkit_folders() == usual
    monkeypatch.setenv("CUDA_PATH", "/there")
    monkeypatch.setenv("CUDA_HOME", usual[1])
    assert cuda_toolkits.toolkit_folders() == [usual[1], "/there", usual[0], *usual[2:]]
    monkeypatch.setattr(_core, "environment_is_trusted", lambda: False)  # failure scenario G13
    assert cuda_toolkits.toolkit_folders() == usual


@given(st.one_of(st.sampled_from(ODD), NAMES), st.sampled_from(["", ".csv"]))
def test_the_file_of_any_node_stays_in_its_folder(node: str, suffix: str) -> None:
    """Failure scenario D10."""
    name = deep_dive.output_name(node, suffix)
    assert re.fullmatch(r"[A-Za-z0-9._=][A-Za-z0-9._=-]*", name)
    assert name not in (".", "..")
    assert len(os.fsencode(name)) <= 255


@given(NAMES, NAMES)
@example("a/b", "a=2Fb")
@example("-a", "=2Da")
def test_two_nodes_have_two_files(one: str, other: str) -> None:
    assert (deep_dive.output_name(one, "") == deep_dive.output_name(other, "")) == (one == other)


@given(NAMES)
@example("regex:a")
@example("a\\/b]")
def test_the_filter_is_the_name_with_escapes(node: str) -> None:
    text = deep_dive.nvtx_filter(node)
    assert text.startswith("cprofiling@")
    assert text.endswith("/")
    inside = text.removeprefix("cprofiling@").removesuffix("/")
    assert not inside.startswith("regex:")
    assert re.search(r"(?<!\\)(?:\\\\)*[/\[\]+*@,]", inside) is None  # none of them means anything
    assert re.sub(r"\\(.)", r"\1", inside, flags=re.DOTALL) == node


@settings(max_examples=25, deadline=None)
@given(st.lists(st.one_of(NAMES, st.binary(min_size=1, max_size=20).map(os.fsdecode)), min_size=1, max_size=20))
@example(list(ODD))
def test_a_shell_reads_what_was_meant(texts: list[str]) -> None:
    """Failure scenario F4: names with quotes, escapes of terminals, the ends of lines, in one line all the same."""
    texts = [text.replace("\0", "") for text in texts]
    for encoding in ("utf-8", "ascii"):
        line = deep_dive.shell_line(
            {"VALUE": texts[0]}, ["bash", "-c", 'printf "%s\\0" "$VALUE" "$@"', "_", *texts], encoding
        )
        assert line.isprintable()
        assert line.encode(encoding)
        done = subprocess.run(["bash", "-c", line], capture_output=True, check=True)
        assert done.stdout.split(b"\0")[:-1] == [os.fsencode(text) for text in (texts[0], *texts)]


def test_texts_without_secrets_are_quoted_as_ever() -> None:
    assert deep_dive.quoted("a b") == shlex.quote("a b")
    assert deep_dive.quoted("\u00e9") == "'\u00e9'"
    assert deep_dive.quoted("\u00e9", "ascii") == "$'\\xc3\\xa9'"
    assert deep_dive.quoted("it's\n\\") == "$'it\\'s\\x0a\\\\'"
    assert deep_dive.quoted("\udcff\ud800") == "$'\\xff\\xed\\xa0\\x80'"


def test_the_line_fits_where_it_is_printed(tmp_path: Path) -> None:
    environment = {**ENVIRONMENT, "PYTHONIOENCODING": "ascii", "PATH": str(tmp_path)}
    command = [*COMMAND, "nsys", "--node", "d\u00e9", *PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert done.stdout.startswith(b"CPROFILING_CAPTURE=$'d\\xc3\\xa9:0:1' nsys profile ")


def test_no_trace_is_written_of_the_command_but_of_the_program(tmp_path: Path) -> None:
    """The path of an automatic recording is the program's, which the tool starts as another process."""
    install(tmp_path / "bin", "nsys", 'while [ "$1" != -- ]; do shift; done; shift; "$@"')
    trace = tmp_path / "trace.json"
    environment = {
        **ENVIRONMENT,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "CPROFILING_OUTPUT_PATH": str(trace),
    }
    environment.pop("RANK", None)
    command = [*COMMAND, "nsys", "--node", "a"]
    program = [sys.executable, "-c", "import cprofiling, sys\nwith cprofiling.record('work'): sys.exit(5)"]
    for run, status in ((["--"], 0), (["--run", "--"], 5)):
        assert not trace.exists()
        done = subprocess.run([*command, *run, *program], env=environment, check=False, capture_output=True)
        assert done.returncode == status
    assert [event.name for event in cprofiling.load_trace(trace).events()] == ["work"]
