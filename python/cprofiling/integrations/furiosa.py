"""Drop-in for the profiler of FuriosaAI's SDK: a program changes one import.

``from cprofiling.integrations.furiosa import profile, RecordFormat, Resource`` stands for the same names of
``furiosa.runtime.profiler`` (0.8 to 0.10): a recording by ``cprofiling.profile``, with the vendor's names of methods
and columns. ``FURIOSA_PROFILER_OUTPUT_PATH`` (or ``NUX_PROFILER_PATH``) makes every program that imports cprofiling
write its trace, as ``CPROFILING_OUTPUT_PATH`` does. It differs in this: a ChromeTrace for which no ``file`` is given is
not written to standard output; reports of an empty recording are empty, and say so.
"""

from __future__ import annotations

from cprofiling import session
from cprofiling._core import record as _record
from cprofiling.activities import RecordFormat
from cprofiling.activities import Resource as _Resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any

    import pandas as pd

__all__ = ["RecordFormat", "Resource", "profile"]

_EXECUTION_COLUMNS = ("trace_id", "span_id", "pe_index", "execution_index", "NPU Total", "NPU Run", "NPU IoWait")


class Resource:
    """Categories of events, by both spellings of the vendor; the values are those of ``cprofiling.Resource``."""

    CPU = Cpu = _Resource.CPU
    NPU = Npu = _Resource.NPU
    ALL = All = _Resource.ALL


class profile(session.profile):  # noqa: N801 the vendor's name
    """Record what happens inside a ``with`` block.

    resource: what to record. format: what is made of it. config: ``file``, an open file for a ChromeTrace; and whatever
    else ``cprofiling.profile`` takes. Raises TypeError and ValueError for wrong arguments.
    """

    def __init__(
        self,
        resource: _Resource = _Resource.ALL,
        format: RecordFormat = RecordFormat.ChromeTrace,  # noqa: A002 the vendor's name
        **config: Any,
    ) -> None:
        super().__init__(resource=resource, format=format, **config)

    def record(self, name: str = "", warm_up: bool = False) -> _record:
        """Label a block; with ``warm_up`` nothing inside is recorded."""
        return super().record(name, warm_up)

    def get_npu_pandas_dataframe(self) -> pd.DataFrame:
        """The rows of the DataFrame that happened on devices."""
        return self.get_device_pandas_dataframe()

    def print_npu_operators(self, file: IO[str] | None = None) -> None:
        """Print the operators of devices: name, average_elapsed (ns), count; the longest first."""
        self.print_device_operators(file)

    def print_npu_executions(self, file: IO[str] | None = None) -> None:
        """Print the executions on devices, with their times in ns."""
        from cprofiling.reports import Report

        report = self.device_executions()
        print(Report(_EXECUTION_COLUMNS, report.rows, report.notes), file=file)
