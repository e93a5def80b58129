"""Drop-in for the profiler of FuriosaAI's SDK, by changing one import.

``from cprofiling.integrations.furiosa import profile, RecordFormat, Resource`` replaces the same names of
``furiosa.runtime.profiler`` (0.8 to 0.10): a recording by ``cprofiling.profile``, with the vendor's method and column
names. With ``FURIOSA_PROFILER_OUTPUT_PATH`` (or ``NUX_PROFILER_PATH``) every program that imports cprofiling writes its
trace, as with ``CPROFILING_OUTPUT_PATH``. Differences: a ChromeTrace without ``file`` is not written to standard
output; reports of an empty recording are empty, and say so.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

from cprofiling._core import record as _record
from cprofiling._internal.row_kinds import DEVICE, KINDS
from cprofiling.analysis.inference_reports import Report
from cprofiling.recording import profile as session
from cprofiling.recording.activities import RecordFormat
from cprofiling.recording.activities import Resource as _Resource
from cprofiling.recording.dataframe import FRAME_COLUMNS

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RecordFormat", "Resource", "profile"]

_EXECUTION_COLUMNS = ("trace_id", "span_id", "pe_index", "execution_index", "NPU Total", "NPU Run", "NPU IoWait")


class Resource:
    """Categories of events, in both spellings of the vendor.

    The values are those of ``cprofiling.Resource``.
    """

    CPU = Cpu = _Resource.CPU
    NPU = Npu = _Resource.NPU
    ALL = All = _Resource.ALL


class profile(session.profile):  # noqa: N801 the vendor's name
    """Record the inside of a ``with`` block.

    resource: categories to record. format: output. config: ``file``, an open file for a ChromeTrace, and other
    arguments of ``cprofiling.profile``. Raises TypeError and ValueError for wrong arguments.
    """

    def __init__(
        self,
        resource: _Resource = _Resource.ALL,
        format: RecordFormat = RecordFormat.ChromeTrace,  # noqa: A002 the vendor's name
        **config: Any,
    ) -> None:
        super().__init__(resource=resource, format=format, **config)

    def record(self, name: str = "", warm_up: bool = False) -> _record:
        """Label a block, recording nothing inside with ``warm_up``."""
        return super().record(name, warm_up)

    def get_pandas_dataframe(self) -> pd.DataFrame:
        """Return all events as `to_pandas()` does."""
        return self.to_pandas()

    def get_pandas_dataframe_with_filter(self, column: str, value: object) -> pd.DataFrame:
        """Return events with a value in a column, None for those without.

        Raises:
            ValueError: Unknown column.
            ImportError: pandas is not installed.
        """
        if column not in FRAME_COLUMNS:
            raise ValueError(f"column must be one of {', '.join(FRAME_COLUMNS)}, got {column!r}")
        frame = self.to_pandas()
        values = frame[column]
        return frame[values.isna() if value is None else (values == value).fillna(value=False)].copy()

    def get_cpu_pandas_dataframe(self) -> pd.DataFrame:
        """Return the events that happened on the host."""
        frame = self.to_pandas()
        return frame[frame["kind"] != KINDS[DEVICE]].copy()

    def get_npu_pandas_dataframe(self) -> pd.DataFrame:
        """Return the events that happened on devices."""
        return self.get_pandas_dataframe_with_filter("kind", KINDS[DEVICE])

    def print_summary(self, file: IO[str] | None = None) -> None:
        """Print the latencies of the inferences."""
        print(self.summary(), file=file)

    def print_inferences(self, file: IO[str] | None = None) -> None:
        """Print the first hundred inferences."""
        print(self.inferences(), file=file)

    def print_external_operators(self, file: IO[str] | None = None) -> None:
        """Print the first hundred operators of frameworks on the host."""
        print(self.external_operators(), file=file)

    def print_npu_operators(self, file: IO[str] | None = None) -> None:
        """Print device operators with name, average_elapsed (ns) and count.

        The longest comes first.
        """
        print(self.device_operators(), file=file)

    def print_npu_executions(self, file: IO[str] | None = None) -> None:
        """Print the executions on devices, with their times in ns."""
        report = self.device_executions()
        print(Report(_EXECUTION_COLUMNS, report.rows, report.notes), file=file)
