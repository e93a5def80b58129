"""Shell completion by argcomplete (the extra ``[completion]``).

The shell runs the command with ``_ARGCOMPLETE`` in its environment, and reads completions from descriptor 8. Nothing
here is loaded otherwise.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

# What the commands take after their own options, which the parser of those does not see.
_SCRIPTS = ("run", "serve")
_PROGRAMS = (*_SCRIPTS, "ncu", "nsys")
# What is a file, or may be, by the names that values have in the help.
_FILES = frozenset(("BASELINE", "FILE", "NEW", "OUT", "PATH", "PROGRAM", "TARGET"))


def answer(parser: argparse.ArgumentParser) -> None:
    """Complete the command line and exit, or return without argcomplete."""
    try:
        import argcomplete
    except ModuleNotFoundError:
        return
    for command, made in commands_of(parser).items():
        if command in _PROGRAMS:
            made.add_argument("program", metavar="PROGRAM", nargs=argparse.REMAINDER)
        if command in _SCRIPTS:
            made.add_argument("-m", metavar="MODULE", help="a module in place of a script")
        for action in made._actions:
            _have_completed(action, argcomplete.completers)
    nothing = argcomplete.completers.SuppressCompleter()
    argcomplete.autocomplete(parser, default_completer=nothing, exit_method=sys.exit)


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands, by name."""
    [choices] = [each.choices for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    return dict(choices)


def _have_completed(action: argparse.Action, completers: Any) -> None:
    """Set completers for an option's values, unless it has choices."""
    words = frozenset(str(action.metavar).split("|"))
    if words & _FILES:
        completer: Any = completers.FilesCompleter()
    elif words & {"DIR"}:
        completer = completers.DirectoriesCompleter()
    elif action.metavar == "NAME" and action.dest == "stage":
        completer = _stages
    else:
        return
    action.completer = completer  # type: ignore[attr-defined]


def _stages(parsed_args: argparse.Namespace, **_ignored: object) -> list[str]:
    """Return the stages in the file of signatures that the harness is given."""
    from cprofiling.layers.harness.signature_file import load_signatures

    path = getattr(parsed_args, "signature", None)
    try:
        return [] if path is None else list(load_signatures(path))
    except (OSError, ValueError):
        return []
