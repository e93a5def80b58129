"""What can be shown in all formats: the methods of summaries, snapshots and recordings for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from _typeshed import StrOrBytesPath

    from cprofiling.report.view import View


class Viewable:
    """What a summary, a snapshot and a recording have in common: each can be had in every format that fits it.

    ``cprofiling.views`` has the same for timing reports, which are dicts.
    """

    __slots__ = ()

    def to_json(self, *, indent: int | None = None) -> str:
        """All that is known, as JSON in ASCII, of the schema ``cprofiling/schemas/report.schema.json``.

        indent: spaces for each level; None: all in one line.
        """
        return _view(self).document.to_json(indent=indent)

    def to_markdown(self) -> str:
        """Tables as GitHub's Markdown, whatever is in the names; for pull requests and issues."""
        return _view(self).render("md")

    def to_csv(self) -> str:
        """Return CSV, a line for each node, or for each event of a recording."""
        return _view(self).render("csv")

    def to_html(self, *, against: Viewable | None = None) -> str:
        """A report as one HTML page that needs nothing else.

        against: another run of the same kind, which is shown beside it; TypeError or ValueError for what is none.

        ImportError without Jinja2, naming the extra.
        """
        return _view(self, against).render("html")

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas DataFrame with a row for each node.

        Texts are objects (None where there is none), integers int64 or nullable Int64, times float64 (NaN where they
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
        """Write a Parquet file: a row for each node, of a recording for each event.

        ImportError without pyarrow, naming the extra; OSError where it cannot be written; TypeError and ValueError for
        what is no path.
        """
        _view(self).write(path, "parquet")

    def save(
        self,
        path: StrOrBytesPath,
        format: str | None = None,  # noqa: A002 what it is
        *,
        against: Viewable | None = None,
    ) -> None:
        """Write a file in the format that its name ends in, or in another one.

        The file appears under its name when it is complete, replaces what was there, and is readable by its owner only.

        path: used exactly. format: ``text``, ``html``, ``md``, ``json``, ``csv``, ``parquet``, ``chrome`` (of
            recordings), ``prom`` (of snapshots); None: as the name ends: ``.txt``, ``.html``, ``.md``, ``.json``,
            ``.csv``, ``.parquet``, ``.json.gz`` (chrome), ``.prom``. against: another run of the same kind, to be
            compared with: for text, html, md and json.

        ValueError for another end, a format that does not fit, and runs of different kinds; TypeError for what is no
        path or run; ImportError, naming the extra, where a package is missing; OSError where it cannot be written.
        """
        _view(self, against).write(path, format)


def _view(of: Viewable, against: Viewable | None = None) -> View:
    from cprofiling.report.view import View

    return View(of, against=against)
