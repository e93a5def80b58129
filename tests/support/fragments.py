"""A fragment of HTML as notebooks show it, read strictly; and names that break what does not escape."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

DASH = "\N{EN DASH}"
ALLOWED_TAGS = {
    "div", "style", "table", "caption", "thead", "tbody", "tr", "th", "td", "span", "p", "details", "summary",
}  # fmt: skip
ALLOWED_ATTRIBUTES = {"class", "title", "scope", "style", "aria-hidden"}
HOSTILE_NAMES = [
    "<script>alert(1)</script>",
    "</td></tr></table><img src=x onerror=alert(1)>",
    "<!-- comment",
    "]]><![CDATA[",
    "</style><style>*{display:none}",
    "\"><b onclick='x'>",
    'it\'s "quoted" & &amp; &lt; &#60;',
    "\x1b[31mred\x1b[0m",
    "line\nbreak\r\ttab\x00nul\x85",
    "\ud800 lone \udfff",
    "\u202eright to left\u2066 \u2028",
    "javascript:alert(1)",
    "C:\\path\\n",
    "  two  spaces  ",
    "x" * 4096,
    "",
]


@dataclass
class Cell:
    tag: str
    attributes: dict[str, str | None]
    text: str = ""


@dataclass
class Fragment(HTMLParser):
    """A strict reader: every tag must be known and closed in order, and no text may stand outside the elements."""

    tags: list[str] = field(default_factory=list)
    rows: list[list[Cell]] = field(default_factory=list)
    items: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    styles: list[str] = field(default_factory=list)
    open_tags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED_TAGS
        assert {name for name, _ in attrs} <= ALLOWED_ATTRIBUTES
        self.tags.append(tag)
        self.open_tags.append(tag)
        attributes = dict(attrs)
        if "style" in attributes:
            self.styles.append(str(attributes["style"]))
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append(Cell(tag, attributes))
        elif tag == "p":
            self.items.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open_tags:
            assert data.strip() == ""
        elif not {"th", "td"}.isdisjoint(self.open_tags):
            self.rows[-1][-1].text += data
        elif "p" in self.open_tags:
            self.items[-1] += data
        else:
            tag = self.open_tags[-1]
            self.texts[tag] = self.texts.get(tag, "") + data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"comment {data!r}")

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(f"declaration {decl!r}")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(f"declaration {data!r}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"processing instruction {data!r}")

    @property
    def head(self) -> list[str]:
        return [cell.text for cell in self.rows[0]]

    @property
    def body(self) -> list[list[Cell]]:
        """The rows without heads, folded ones too."""
        return [row for row in self.rows if row[0].tag == "td"]

    def column(self, label: str) -> list[str]:
        index = self.head.index(label)
        return [row[index].text for row in self.body]

    def titles(self, label: str) -> list[str | None]:
        index = self.head.index(label)
        return [row[index].attributes.get("title") for row in self.body]


def parsed(html: str) -> Fragment:
    """Return the fragment read back, after checking that it is whole and can be encoded."""
    html.encode("utf-8")
    fragment = Fragment()
    fragment.feed(html)
    fragment.close()
    assert fragment.open_tags == []
    assert len({len(row) for row in fragment.rows}) <= 1
    return fragment
