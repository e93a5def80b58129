"""Shell completion by argcomplete (the extra ``[completion]``).

The shell runs the command with ``_ARGCOMPLETE`` in its environment, and reads completions from descriptor 8. Nothing
here is loaded otherwise.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from typing import Any

# What they run is a script, or a module after -m.
_SCRIPTS = ("run", "serve")
# The names in the help of values that are, or may be, files.
_FILES = frozenset(("BASELINE", "FILE", "NEW", "OUT", "PATH", "PROGRAM", "TARGET"))


def answer(parser: argparse.ArgumentParser) -> None:
    """Complete the command line and exit, or return without argcomplete."""
    try:
        import argcomplete
    except ModuleNotFoundError:
        return
    words = os.environ.get("COMP_LINE", "").split()
    for command, made in commands_of(parser, words).items():
        if made.takes_program:
            made.add_argument("program", metavar="PROGRAM", nargs=argparse.REMAINDER)
        if command in _SCRIPTS:
            made.add_argument("-m", metavar="MODULE", help="a module in place of a script")
        for action in made._actions:
            words_of_value = frozenset(str(action.metavar).split("|"))
            completer: Any = None
            if words_of_value & _FILES:
                completer = argcomplete.completers.FilesCompleter()
            elif "DIR" in words_of_value:
                completer = argcomplete.completers.DirectoriesCompleter()
            elif action.metavar == "NAME" and action.dest == "stage":
                completer = _stages
            if completer is not None:
                action.completer = completer
    nothing = argcomplete.completers.SuppressCompleter()
    argcomplete.autocomplete(parser, default_completer=nothing, exit_method=sys.exit)


def commands_of(parser: argparse.ArgumentParser, words: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the parsers of commands by name.

    words: only those among these; None for all.
    """
    [choices] = [each.choices for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    found = {name: made for name, made in choices.items() if words is None or name in words}
    for made in found.values():
        made.prepare()
    return found


def _stages(parsed_args: argparse.Namespace, **_ignored: object) -> list[str]:
    """Return the stages in the file of signatures that the harness is given."""
    from cprofiling.layers.harness.signature_file import load_signatures

    path = getattr(parsed_args, "signature", None)
    try:
        return [] if path is None else list(load_signatures(path))
    except (OSError, ValueError):
        return []
