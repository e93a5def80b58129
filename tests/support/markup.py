"""What a page or fragment of HTML shows: its tags, its texts, and the cells of its tables that are texts."""

from __future__ import annotations

from html.parser import HTMLParser


class Markup(HTMLParser):
    """Read markup, in which all tags that are opened must be closed."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.cells: list[str] = []
        self._is_cell = False
        self.feed(markup)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.append(tag)
        self._is_cell = tag == "td" and ("class", "cprofiling-text") in attrs
        self.cells += [""] * self._is_cell

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self._is_cell:
            self.cells[-1] += data

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self._is_cell = False
