"""What pages have from the package itself: the help of a command, in place of a line `<!-- help NAME -->`."""

from __future__ import annotations

import os
import re

from cprofiling import cli
from cprofiling.completion import commands_of

_COLUMNS = "80"


def on_page_markdown(markdown: str, **_ignored: object) -> str:
    """Return a page with the help in it."""
    return re.sub(r"^<!-- help(?: (\w+))? -->$", _help, markdown, flags=re.MULTILINE)


def _help(match: re.Match[str]) -> str:
    os.environ["COLUMNS"] = _COLUMNS
    parser = cli.parser()
    shown = commands_of(parser)[match[1]] if match[1] else parser
    return f"```text\n{shown.format_help()}```"
