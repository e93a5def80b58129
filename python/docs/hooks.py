"""Fill in the parts of a page that come from elsewhere.

- `<!-- readme -->` is the first paragraph of the README, `<!-- readme: HEADING -->` a section of it.
- `<!-- help NAME -->` is the help of a command.
- `<!-- changes -->` is the list of changes, one file each, in `changes/`.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from cprofiling.commands import main
from cprofiling.commands.completion import commands_of

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page

_DOCS = Path(__file__).resolve().parent
_ROOT = _DOCS.parents[1]
_PACKAGE = _ROOT / "python" / "cprofiling"
_ROOMS = {path.parent.name for path in _PACKAGE.glob("*/__init__.py")} - {"integrations", "layers"}
_PRIVATE = re.compile(rf"(?<=\bcprofiling\.)(?:{'|'.join(sorted(_ROOMS))})\.(?:[a-z_]+\.)*(?=\w)")
_KINDS = ("added", "changed", "deprecated", "removed", "fixed", "security")


def on_page_markdown(markdown: str, page: Page, **_ignored: object) -> str:
    """Return a page with these parts in place."""
    folder = Path(page.file.src_uri).parent
    markdown = re.sub(
        r"^<!-- readme(?:: (.+))? -->$", lambda match: readme_section(match[1], folder), markdown, flags=re.MULTILINE
    )
    markdown = markdown.replace("<!-- changes -->", changes())
    return re.sub(r"^<!-- help(?: (\w+))? -->$", _help, markdown, flags=re.MULTILINE)


def on_post_page(output: str, **_ignored: object) -> str:
    """Return a page with names in tooltips that name no private room."""
    return _PRIVATE.sub("", output)


def readme_section(heading: str | None, folder: Path) -> str:
    """Return a section of the README, with links for a page in a folder."""
    text = (_ROOT / "README.md").read_text(encoding="utf-8")
    start = f"\n## {heading}\n" if heading else "\n"
    if start not in text:
        raise LookupError(f"README.md has no section {heading}")
    section = text.partition(start)[2].partition("\n## ")[0].strip()
    return re.sub(r"\]\(python/docs/pages/([^)]+)\)", lambda match: f"]({os.path.relpath(match[1], folder)})", section)


def changes() -> str:
    """Return the changes of the next version, by kind."""
    by_kind = defaultdict(list)
    for path in sorted((_DOCS / "changes").glob("*.md")):
        by_kind[path.suffixes[0][1:]].append(path.read_text(encoding="utf-8").strip().replace("\n", "\n  "))
    return "\n\n".join(
        "\n".join([f"### {kind.capitalize()}\n", *(f"- {text}" for text in by_kind[kind])])
        for kind in _KINDS
        if by_kind[kind]
    )


def _help(match: re.Match[str]) -> str:
    os.environ["COLUMNS"] = "80"
    parser = main.parser()
    shown = commands_of(parser)[match[1]] if match[1] else parser
    return f"```text\n{shown.format_help()}```"
