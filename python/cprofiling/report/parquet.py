"""Figures as Parquet through pyarrow."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cprofiling._internal.files import atomic_writer
from cprofiling._internal.optional import imported
from cprofiling._internal.report_format import Format
from cprofiling.recording.result import Reports
from cprofiling.report.flat_columns import ArrowTable

if TYPE_CHECKING:
    from cprofiling.report.view import View

KEY = "cprofiling"


class Parquet(Format):
    """A row for each node or event, in the columns of Arrow."""

    suffixes = (".parquet", ".pq")
    needs_file = True

    def write(self, view: View, path: str) -> None:
        """Write the file.

        The schema's metadata has, under ``cprofiling``, the document without its nodes and spans, as JSON. Raises
        ImportError, naming the extra, without pyarrow.
        """
        pyarrow = imported("pyarrow", install="cprofiling[parquet]")
        parquet = imported("pyarrow.parquet", install="cprofiling[parquet]")
        arrow: Any = view.of if isinstance(view.of, Reports) else ArrowTable(view.tables.nodes)
        table = pyarrow.RecordBatchReader.from_stream(arrow).read_all()
        about = replace(view.tables, nodes=(), timeline=None, icicle=()).to_dict()
        table = table.replace_schema_metadata({KEY: json.dumps(about, allow_nan=False)})
        with atomic_writer(path) as file:
            parquet.write_table(table, file)
