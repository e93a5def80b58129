"""Figures as Parquet, through pyarrow: the columns that Arrow has, and in the file's metadata what else is known."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from cprofiling.recording.dataframe import imported

if TYPE_CHECKING:
    from typing import IO, Any

    from cprofiling.report.document import Document

KEY = "cprofiling"


def write(arrow: Any, document: Document, file: IO[bytes]) -> None:
    """Write what has ``__arrow_c_stream__`` into an open file.

    The schema's metadata has, under ``cprofiling``, the document without its nodes and spans, as JSON.

    Raises:
        ImportError: pyarrow is not installed; it names the extra.
    """
    pyarrow = imported("pyarrow", install="cprofiling[parquet]")
    parquet = imported("pyarrow.parquet", install="cprofiling[parquet]")
    table = pyarrow.RecordBatchReader.from_stream(arrow).read_all()
    about = replace(document, nodes=(), timeline=None, icicle=()).to_dict()
    table = table.replace_schema_metadata({KEY: json.dumps(about, allow_nan=False)})
    parquet.write_table(table, file)


def require() -> None:
    """Load pyarrow. ImportError where it is not installed; it names the extra."""
    imported("pyarrow.parquet", install="cprofiling[parquet]")
