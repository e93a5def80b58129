"""A finding with its figures, advice and rows, and lists of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cprofiling._internal.tables import frame_of, html_list, short_repr
from cprofiling._internal.text import shown_text

if TYPE_CHECKING:
    import pandas as pd

_SHOWN_ROWS = 5
_NOTHING = "Nothing found: no rule's limit is reached."


@dataclass(frozen=True)
class Finding:
    """One thing that costs time or memory, or does more than it need.

    Attributes:
        kind: Which rule found it: ``outside_nodes``, ``data_loading``, ``copies``, ``dominant_operator``,
            ``memory_growth``, ``python_overhead``, ``many_short_calls``, ``float64``, ``gradients``, ``device_waits``,
            ``launch_bound``; against another recording ``more_copies``, ``more_calls``, ``slower_calls``, ``slower``.
        title: What it is, in a line.
        text: What the recording shows, in figures.
        advice: What to change, naming the option.
        figures: The figures by name, with units in the names (``_ns``, ``_bytes``); shares are from 0 to 1.
        rows: The rows of the recording that it rests on, by their start; ``Recording.event(row)`` gives each.
        share: Which part of the recording's time (of memory: of its growth) it concerns, 0 to 1.
    """

    kind: str
    title: str
    text: str
    advice: str
    figures: Mapping[str, float] = field(hash=False)
    rows: tuple[int, ...]
    share: float

    def __str__(self) -> str:
        """Return it as a paragraph."""
        shown = ", ".join(map(str, self.rows[:_SHOWN_ROWS]))
        more = f" and {len(self.rows) - _SHOWN_ROWS:,} more" if len(self.rows) > _SHOWN_ROWS else ""
        lines = (self.title, f"  {self.text}", f"  Advice: {self.advice}", f"  Rows: {shown}{more}")
        return "\n".join(shown_text("finding", line) for line in lines)


class Findings(list[Finding]):
    """A list of ``Finding``, largest share first, shown as text.

    Attributes:
        notes: Sentences on the findings, such as on dropped rows.
    """

    def __init__(self, found: Iterable[Finding] = (), *, notes: Iterable[str] = ()) -> None:
        """Make a list of findings."""
        super().__init__(sorted(found, key=lambda finding: -finding.share))
        self.notes = tuple(notes)

    def to_pandas(self) -> pd.DataFrame:
        """Return the findings as a pandas DataFrame.

        Raises ImportError, naming the extra, without pandas.
        """
        columns = ("kind", "title", "share", "text", "advice", "rows")
        return frame_of(columns, [tuple(getattr(finding, column) for column in columns) for finding in self])

    def __repr__(self) -> str:
        return short_repr(type(self).__name__, len(self), "finding")

    def _repr_html_(self) -> str:
        notes = self.notes if self else (_NOTHING, *self.notes)
        return html_list("Findings", [str(finding) for finding in self], notes)

    def __str__(self) -> str:
        """Return the findings as numbered paragraphs."""
        paragraphs = [f"{number}. {finding}" for number, finding in enumerate(self, 1)] or [_NOTHING]
        return "\n".join(("Findings", *paragraphs, *self.notes))
