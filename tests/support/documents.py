"""Documents for people, with their blocks, headings and links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "python" / "docs"
PAGES_FOLDER = DOCS / "pages"
PAGES = sorted(PAGES_FOLDER.rglob("*.md"))
DOCUMENTS = [README, *PAGES]

SHELL_TAGS = {"sh", "bash", "console", "shell", "shell-session", "zsh"}
_FENCE = re.compile(r"^```(\S*)(?: title=\"(\S+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#{1,6}) (.+?)(?: \{#([\w-]+)\})?$", re.MULTILINE)
_LINK = re.compile(r"(?<!\!)\[[^\[\]]*\]\(<?([^)\s>]+)>?\)")


@dataclass(frozen=True)
class Block:
    """A fenced block of a document.

    ``shown`` is its output in the document: the next block, if that is text.
    """

    document: Path
    line: int
    tag: str
    title: str
    content: str
    shown: str

    def __str__(self) -> str:
        return f"{name_of(self.document)}:{self.line}"


def name_of(document: Path) -> str:
    """Return the path of a document within the repository."""
    return str(document.relative_to(ROOT))


def text_of(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def fenced_blocks(text: str) -> list[tuple[str, str]]:
    """Return the tag and the content of each fenced block."""
    return [(tag, content) for tag, _, content in _FENCE.findall(text)]


def blocks_of(document: Path) -> list[Block]:
    """Return the fenced blocks of a document."""
    text = text_of(document)
    found = list(_FENCE.finditer(text))
    return [_block(document, text, *pair) for pair in zip_longest(found, found[1:])]


def _block(document: Path, text: str, fence: re.Match[str], next_: re.Match[str] | None) -> Block:
    tag, title, content = fence.groups(default="")
    shown = next_[3] if next_ is not None and next_[1] == "text" else ""
    return Block(document, text[: fence.start()].count("\n") + 1, tag, title, content, shown)


def blocks(*tags: str) -> list[Block]:
    """Return the blocks of all documents with one of these tags."""
    return [block for document in DOCUMENTS for block in blocks_of(document) if block.tag in tags]


def section(document: Path, line: int) -> str:
    """Return the heading above a line of a document."""
    above = "\n".join(prose_of(document).split("\n")[:line])
    headings = _HEADING.findall(above)
    return headings[-1][1] if headings else ""


def prose_of(document: Path) -> str:
    """Return a document with empty lines in place of its blocks."""
    return _FENCE.sub(lambda match: "\n" * match[0].count("\n"), text_of(document))


def anchors_of(document: Path) -> set[str]:
    """Return the anchors of headings and names in a document.

    The two differ in what few headings have; a heading with other characters needs an anchor of its own, in braces.
    """
    seen: dict[str, int] = {}
    anchors = set(names_in(document))
    for _, heading, own in _HEADING.findall(prose_of(document)):
        slug = own or slug_of(heading)
        number = seen.get(slug, 0)
        seen[slug] = number + 1
        anchors.add(f"{slug}-{number}" if number else slug)
    return anchors


def names_in(document: Path) -> list[str]:
    """Return the names that a page of the reference describes."""
    return re.findall(r"^::: (\S+)$", text_of(document), re.MULTILINE)


def slug_of(heading: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).strip().replace(" ", "-")


def links_of(document: Path) -> list[str]:
    """Return the targets of a document's links."""
    return _LINK.findall(prose_of(document))


def commands_in(block: Block) -> Iterator[str]:
    """Yield the command lines of a shell block."""
    for line in block.content.replace("\\\n", " ").splitlines():
        yield from filter(None, (part.strip() for part in line.split(" && ")))


def is_shown(output: str, shown: str) -> bool:
    """Return whether an output is shown, but for figures and after `...`."""
    begun = shown.removesuffix("...\n")
    if begun != shown:
        output = "\n".join(output.splitlines()[: begun.count("\n")])
    return without_figures(output) == without_figures(begun)


def without_figures(output: str) -> list[str]:
    """Return the words of all lines in a fixed order, without figures."""
    by_chance = ("  outliers: ", "  warning: ", "Median(ms) is ")
    lines = [line for line in output.splitlines() if not line.startswith(by_chance)]
    return sorted(" ".join(re.sub(r"\d[\d.]*(%| ?[nµmu]?s\b)?", "", line).split()) for line in lines if line.strip())
