"""Failures, output and arguments shared by the commands."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cprofiling._internal.text import shown_lines, shown_text

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

ROWS = 20  # of a trace's tables, unless told

EXIT_FAILURE = 1
EXIT_INTERRUPTED = 130  # as shells say
INT64_MAX = 2**63 - 1


class CommandError(Exception):
    """Failure told in one line, with the exit ``status``."""

    def __init__(self, message: str, status: int = EXIT_FAILURE) -> None:
        """Take over message and status."""
        super().__init__(message)
        self.status = status


class Parser(argparse.ArgumentParser):
    """Argument parser with help that fits 24 lines of 80 columns."""

    def __init__(self, **options: Any) -> None:
        """Accept argparse's keywords but formatter_class."""
        super().__init__(**options, formatter_class=HelpFormatter)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuse unknown arguments with this command's own usage."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:  # noqa: ARG002 always goes to stdout here
        """Print the help as a result. CommandError when it cannot be written."""
        write(self.format_help().rstrip("\n"))


class HelpFormatter(argparse.HelpFormatter):
    """Formatter that names an option's value once and keeps examples.

    A usage of more than two lines is cut to required options.
    """

    def __init__(self, prog: str) -> None:
        """Take the terminal's width without ``shutil``, a slow import."""
        columns = 0
        with suppress(KeyError, ValueError):
            columns = int(os.environ["COLUMNS"])
        if columns <= 0:
            with suppress(AttributeError, ValueError, OSError):
                columns = os.get_terminal_size(sys.__stdout__.fileno()).columns  # type: ignore[union-attr]
        super().__init__(prog, width=(columns if columns > 0 else 80) - 2)

    def _format_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None,
    ) -> str:
        listed = list(actions)
        whole = super()._format_usage(usage, listed, groups, prefix)
        if usage is not None or whole.count("\n") <= 3:  # with the empty line below
            return whole
        needed = [action for action in listed if action.required or not action.option_strings]
        return super()._format_usage(None, needed, (), prefix).replace(self._prog, f"{self._prog} [OPTION]...", 1)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"

    def _format_action(self, action: argparse.Action) -> str:
        if isinstance(action, argparse._SubParsersAction):  # without a line for its metavar
            return "".join(map(super()._format_action, self._iter_indented_subactions(action)))
        return super()._format_action(action)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("example: ") else super()._fill_text(text, width, indent)


def split_program(
    arguments: Sequence[str], with_value: Sequence[str], *, modules: bool = False
) -> tuple[list[str], list[str]]:
    """Split a command's arguments from the program and its arguments.

    The program is behind the first ``--``, or begins with the first argument that is no option and no option's value.

    with_value: options of the command that take a value. modules: whether ``-m`` begins a program, too.
    """
    place = 0
    while place < len(arguments) and arguments[place].startswith("-"):
        argument = arguments[place]
        if argument == "--":
            return list(arguments[:place]), list(arguments[place + 1 :])
        if modules and argument.startswith("-m"):
            break
        place += 2 if argument in with_value else 1
    return list(arguments[:place]), list(arguments[place:])


def attempt(what: str, action: Callable[..., Any], *arguments: Any) -> Any:
    """Run the user's code, turning any exception into a line with its place."""
    try:
        return action(*arguments)
    except CommandError:
        raise
    except (Exception, SystemExit) as error:
        import traceback  # only now: programs that `run` runs are shown differently where it is loaded

        frames = traceback.extract_tb(error.__traceback__)
        ours = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
        places = [
            f"{os.path.basename(each.filename)}:{each.lineno}" for each in frames if not each.filename.startswith(ours)
        ]
        place = f" ({places[-1]})" if places else ""
        lines = str(error).splitlines() or [""]
        raise CommandError(shown_text("error", f"{what}: {type(error).__name__}: {lines[0]}{place}")) from error


def write(text: str) -> None:
    """Print a result on stdout, escaping control characters on a terminal.

    Raises CommandError if that fails.
    """
    write_as_is(shown_lines(text) if is_terminal() else text)


def write_as_is(text: str) -> None:
    """Print text on stdout unescaped, to control a terminal.

    Raises CommandError if that fails, SystemExit if its reader has closed a pipe, as ``head`` does.
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "replace").decode(encoding), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes it once more
        raise SystemExit(EXIT_FAILURE) from None
    except OSError as error:
        raise CommandError(f"cannot write to stdout: {error.strerror}") from None


def compared(text: str | None, status: int) -> str | None:
    """Return a comparison's text to print.

    Raises CommandError, after printing, if there is no verdict.
    """
    if status != EXIT_FAILURE:
        return text
    if text is not None:
        write(text)
    raise CommandError("no row can be judged")


def is_terminal() -> bool:
    """Return whether stdout is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def fail(message: str, status: int = EXIT_FAILURE) -> int:
    """Print an error in one line on stderr, and return the exit status."""
    print(f"cprofiling: {message}", file=sys.stderr)
    return status


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """Return an argparse converter of integers from ``low`` to ``high``."""

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            limits = f"of at least {low}" if high == INT64_MAX and value < low else f"from {low} to {high}"
            raise argparse.ArgumentTypeError(f"expected a whole number {limits}, got {text!r}")
        return value

    return convert


def add_number(
    parser: argparse.ArgumentParser, option: str, low: int, high: int, text: str, default: int | None = None
) -> None:
    """Add an option that takes a whole number from ``low`` to ``high``."""
    told = text if default is None else f"{text} (default: {default})"
    parser.add_argument(option, type=whole_number(low, high), default=default, metavar="N", help=told)


def not_empty(text: str) -> str:
    """Refuse an empty text for argparse."""
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError(f"expected a text that is not empty and has no NUL, got {text!a}")
    return text


def number(what: str, low: float, high: float) -> Callable[[str], float]:
    """Return an argparse converter of numbers from ``low`` to ``high``."""

    def convert(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            limits = " to ".join(f"{limit:.7g}" for limit in (low, high))
            raise argparse.ArgumentTypeError(f"expected {what} from {limits}, got {text!r}")
        return value

    return convert


def checked(check: Callable[[str], str]) -> Callable[[str], str]:
    """Return an argparse converter with the message of a check's ValueError."""

    def convert(text: str) -> str:
        try:
            return check(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert
