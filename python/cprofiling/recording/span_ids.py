"""W3C ids of rows, or of the spans they belong to."""

from __future__ import annotations

from collections.abc import Mapping

from cprofiling.recording.columns import Recording, column, has
from cprofiling.recording.tree import HostTree

_STRIDE, _MOST = 0x9E3779B97F4A7C15, 2**64 - 1  # odd: rows of one span get ids far apart


class SpanIds:
    """Ids in lower-case hexadecimal, 32 digits of a trace, 16 of a span.

    An operator and device work belong to the innermost span around them, or around their start.

    Attributes:
        rows: For each row that of its span, which may be itself; -1 where there is none.
    """

    def __init__(self, recording: Recording, tree: HostTree, owners: Mapping[int, int]) -> None:
        """Find the span of each row.

        owners: host row of each row of device work.
        """
        self._highs, self._lows = column(recording, "trace_high"), column(recording, "trace_low")
        self._spans, self._parents = column(recording, "span"), column(recording, "parent_span")
        self.rows = [-1] * len(recording)
        if has(recording, "span"):
            self._find(tree, owners)

    def _find(self, tree: HostTree, owners: Mapping[int, int]) -> None:
        around = self.rows
        for row, (span, parent) in enumerate(zip(self._spans, tree.parents, strict=True)):
            if span:
                around[row] = row
            elif parent >= 0:
                around[row] = around[parent]
        for row, owner in owners.items():
            if around[row] < 0:
                around[row] = around[owner]

    def trace(self, row: int) -> str | None:
        """Return the trace of a row's span."""
        span = self.rows[row]
        return f"{self._highs[span]:016x}{self._lows[span]:016x}" if span >= 0 else None

    def around(self, row: int) -> str | None:
        """Return the id of a row's span, which may be the row."""
        span = self.rows[row]
        return f"{self._spans[span]:016x}" if span >= 0 else None

    def own(self, row: int) -> str | None:
        """Return the id of a row that is a span."""
        return self.around(row) if self.rows[row] == row else None

    def distinct(self, row: int) -> str | None:
        """Return a row's id, made up for a row that is no span, or None."""
        span = self.rows[row]
        if span in (row, -1):
            return self.around(row)
        return f"{(self._spans[span] + (row + 1) * _STRIDE) & _MOST:016x}"

    def parent(self, row: int) -> str | None:
        """Return the parent id of a span (zeros for a root), else the row's span."""
        return f"{self._parents[row]:016x}" if self.rows[row] == row else self.around(row)
