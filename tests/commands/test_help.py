"""What ``--help`` says: of each command it fits a screen, and shows an example that the command takes."""

from __future__ import annotations

import shlex

import pytest

from cprofiling.commands import main
from cprofiling.commands.completion import commands_of

LINES, COLUMNS = 24, 80
COMMANDS = ("", *commands_of(main.parser()))
HAVE_A_PROGRAM = ("run", "serve", "ncu", "nsys")


@pytest.fixture(params=COMMANDS, ids=lambda name: name or "cprofiling")
def command(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of each command, with a terminal of the usual size; "" is the command of all of them."""
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    name: str = request.param
    return name


def help_of(command: str) -> str:
    return (commands_of(main.parser())[command] if command else main.parser()).format_help()


def test_there_are_commands() -> None:
    assert {"demo", "run", "report", "compare", "top"} < set(COMMANDS)


def test_help_fits_a_screen(command: str) -> None:
    lines = help_of(command).splitlines()
    assert len(lines) <= LINES
    assert [line for line in lines if len(line) > COLUMNS] == []


def test_help_names_each_option_once_with_its_value(command: str) -> None:
    assert "FILE, --" not in help_of(command)


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
