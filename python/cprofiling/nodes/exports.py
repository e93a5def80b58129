"""Methods that show summaries, snapshots and recordings in all formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from cprofiling.nodes.buckets import Bucket
from cprofiling.nodes.decorators import StageName

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from _typeshed import StrOrBytesPath
    from matplotlib.axes import Axes

    from cprofiling.analysis.frames import FramesPerSecond
    from cprofiling.analysis.warm_up import WarmUp
    from cprofiling.analysis.what_if import WhatIf
    from cprofiling.nodes.histogram import Histogram
    from cprofiling.nodes.input_shapes import ShapeStats
    from cprofiling.nodes.stats import ProfilingSummary
    from cprofiling.report.document import Document
    from cprofiling.report.view import View


class Viewable:
    """Base class of objects that can be shown in every format.

    ``cprofiling.views`` does the same for timing reports, which are dicts.
    """

    __slots__ = ()

    def to_json(self, *, indent: int | None = None) -> str:
        """Return all data as JSON in ASCII (``schemas/report.schema.json``).

        indent: spaces for each level, 0 to 100; None: all in one line.
        """
        return _view(self).document.to_json(indent=indent)

    def to_markdown(self) -> str:
        """Return GitHub Markdown tables, with names escaped."""
        return _view(self).render("md")

    def to_csv(self) -> str:
        """Return CSV, a line for each node, or for each event of a recording."""
        return _view(self).render("csv")

    def to_html(self, *, against: Viewable | None = None) -> str:
        """A report as one HTML page that needs nothing else.

        against: another run of the same kind, which is shown beside it; TypeError or ValueError for others.

        ImportError without Jinja2, naming the extra.
        """
        return _view(self, against).render("html")

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas DataFrame with a row for each node.

        Texts are objects (None if missing), integers int64 or nullable Int64, times float64 (NaN where they
        are not known).

        ImportError without pandas, naming the extra.
        """
        from cprofiling.report import flat_columns

        return flat_columns.to_pandas(_view(self).tables.nodes)

    def to_polars(self) -> pl.DataFrame:
        """Return a polars DataFrame with a row for each node.

        ImportError without polars, naming the extra.
        """
        from cprofiling.report import flat_columns

        return flat_columns.to_polars(_view(self).tables.nodes)

    def to_parquet(self, path: StrOrBytesPath) -> None:
        """Write a Parquet file with a row per node, or per event of a recording.

        Raises ImportError without pyarrow, naming the extra; OSError if the file cannot be written; TypeError or
        ValueError for an invalid path.
        """
        _view(self).write(path, "parquet")

    def save(
        self,
        path: StrOrBytesPath,
        format: str | None = None,  # noqa: A002 the plain word for it
        *,
        against: Viewable | None = None,
    ) -> None:
        """Write a file in the format that its name ends in, or in another one.

        The file appears under its name when complete, replaces an older one, and is readable by its owner only.

        path: used exactly. format: ``text``, ``html``, ``md``, ``json``, ``csv``, ``parquet``, ``chrome`` (of
            recordings), ``prom`` (of snapshots); None: as the name ends: ``.txt``, ``.html``, ``.md``, ``.json``,
            ``.csv``, ``.parquet``, ``.json.gz`` (chrome), ``.prom``. against: another run of the same kind, to be
            compared with: for text, html, md and json.

        ValueError for an unknown suffix, a format that does not fit, and runs of different kinds; TypeError for an
        invalid path or run; ImportError, naming the extra, if a package is missing; OSError if writing fails.
        """
        _view(self, against).write(path, format)


class WithHistograms(Viewable):
    """Base class of summaries and snapshots."""

    __slots__ = ()

    def _document(self, **about: str | None) -> Document:
        from cprofiling.report import from_statistics

        return from_statistics.of_statistics(self, **about)

    # Gives the buckets of each key, (node, stage); neither pickled nor copied, and not there in summaries of rows.
    _find_histograms: Callable[[], Mapping[tuple[str, str], Sequence[Bucket]]]

    def histogram(self, node: str, stage: StageName = None) -> Histogram:
        """Return the distribution of a node's times, with ``plot()``.

        Of a Profiler's summary it is current: calls that have finished since are included.

        node: its name. stage: a str, or an enum with a str value; None for all together.

        Raises TypeError for other types, ValueError for an unknown node or a summary without histograms (made of rows,
        copied or unpickled).
        """
        from cprofiling.nodes.histogram import histogram_of

        if not hasattr(self, "_find_histograms"):
            raise ValueError("the summary has no histograms: those of a Profiler, a Snapshot or a cell have them")
        return histogram_of(self._find_histograms(), node, stage)


class SummaryExports(WithHistograms):
    """Methods that present or analyse a summary."""

    __slots__ = ()

    def __str__(self) -> str:
        from cprofiling.nodes.resource_columns import summary_text

        return summary_text(_summary(self))

    def warm_up(self) -> WarmUp:
        """Return whether each node's first call was cold, with the evidence.

        A recording's ``warm_up`` tells where it ends. Nodes with several input signatures (``by_shape=True``) are left
        out, and nodes with later calls about as long as the first (at least 0.9 times, from maximum and histogram).
        """
        from cprofiling.analysis import warm_up

        return warm_up.of_summary(_summary(self))

    def what_if(
        self,
        node: str | Mapping[str, float] | None = None,
        factor: float = 2.0,
        *,
        total_frames: int | Mapping[str, int] | None = None,
        edges: Iterable[tuple[str, str]] | None = None,
    ) -> WhatIf:
        """Estimate a frame's time if nodes were faster.

        Without edges that is exact for nodes that run one after the other: the own times of all nodes, added up. With
        edges it is the critical path through the mean times of the nodes, as if branches ran at the same time.

        Args:
            node: Its name; a dict of factors by names, for several at once; None: each node in its turn.
            factor: How many times as fast, 1e-9 to 1e9; ``math.inf``: as if it took no time.
            total_frames: Number of frames; a mapping by stage for several stages. None: as far as the nodes tell (see
                ``frames_per_second``).
            edges: Pairs of names: the second node begins when the first has ended. None: those of ``set_graph``;
                ``()``: none.

        Raises:
            TypeError, ValueError: An argument is wrong, the node has no sample, or the edges have a cycle.
        """
        from cprofiling.analysis import what_if

        return what_if.of_summary(_summary(self), node, factor, total_frames, edges)

    def frames_per_second(
        self, total_frames: int | Mapping[str, int] | None = None, *, seconds: float | None = None
    ) -> FramesPerSecond:
        """Return frames per second of each stage.

        The number of frames is the one given; else the calls of a node that encloses all others; else the calls of each
        node, if all ran, or succeeded, equally often; else unknown. Failed calls count.

        Args:
            total_frames: Number of frames, skipped and failed ones included, 1 to 2^63-1; a mapping by stage for
                several stages. It may name stages of ``ExecutionStage`` that have not run, but no other unknown stage.
            seconds: How long that took by the wall clock, which statistics do not know; 1e-9 to 1e12.

        Raises:
            TypeError, ValueError: An argument is wrong.
        """
        from cprofiling.analysis import frames

        return frames.of_summary(_summary(self), total_frames, seconds)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as an Arrow stream, without any package.

        Columns are those of ``to_pandas()``; unknown figures are null. ``requested_schema`` is ignored.
        """
        from cprofiling.report.flat_columns import arrow_stream

        return arrow_stream(_summary(self))

    def _repr_html_(self) -> str:
        """Return the HTML table that notebooks show in place of the list."""
        from cprofiling.report.notebook.summary import shapes_html, summary_html

        shown = _summary(self)
        names = ("skip_first_n", "reasons", "internal_errors", "cost_ns")
        html = summary_html(shown, **{name: getattr(shown, name) for name in names})
        return f"{html}\n{shapes_html(shown.shapes)}" if shown.shapes else html

    def plot(self, ax: Axes | None = None, *, top: int = 30) -> Axes:
        """Draw each node's total and own time as bars, and return the axes.

        ax: matplotlib axes, None for a new figure. top: number of rows, 1 to 1,000, longest first; the sum of the
        others is shown.

        Raises ImportError without matplotlib, naming the extra; TypeError or ValueError for an invalid number of rows.
        """
        from cprofiling.report import plots

        return plots.plot_summary(_summary(self), ax, top=top)


def _summary(of: SummaryExports) -> ProfilingSummary:
    return of  # type: ignore[return-value]  # no other class has these methods


def _view(of: Viewable, against: Viewable | None = None) -> View:
    from cprofiling.report.view import View

    return View(of, against=against)


def plot_histogram(histogram: Histogram, ax: Axes | None) -> Axes:
    """Draw a histogram (see ``Histogram.plot``)."""
    from cprofiling.report import plots

    return plots.plot_histogram(histogram, ax)


def shapes_html(shapes: Sequence[ShapeStats]) -> str:
    """Return the HTML table of input signatures."""
    from cprofiling.report.notebook import summary

    return summary.shapes_html(shapes)
