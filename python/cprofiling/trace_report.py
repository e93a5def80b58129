"""The command ``report``: what a trace shows, as text."""

from __future__ import annotations

from cprofiling.format import shown_text
from cprofiling.recording import load_trace
from cprofiling.snapshot import FormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cprofiling.recording import Recording


class ReportError(Exception):
    """There is no report, for the reason that it says."""


def report_on(path: str, sort_by: str | None, row_limit: int, *, group_by_node: bool) -> str:
    """Return the report on a trace.

    Args:
        path: The trace: one of ours, of PyTorch or of Kineto, compressed or not.
        sort_by: The figure by which the averages are sorted; None: the device's or the host's own time.
        row_limit: The most rows of each table.
        group_by_node: Whether the averages tell apart what ran in different nodes.

    Raises ReportError for a file that cannot be read, is damaged or is no trace, and for an unknown figure.
    """
    name = shown_text("path", path)
    try:
        recording = load_trace(path)
    except FormatError as error:
        raise ReportError(shown_text("error", str(error))) from None
    except (OSError, ValueError) as error:
        raise ReportError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from None
    except MemoryError:
        raise ReportError(f"cannot read {name}: there is not enough memory") from None
    try:
        text = recording.overview(row_limit=row_limit, sort_by=sort_by, group_by_node=group_by_node)
    except ValueError as error:
        raise ReportError(f"--sort-by: {error}") from None
    return f"{_described(name, recording)}\n\n{text}".rstrip("\n")


def _described(name: str, recording: Recording) -> str:
    """What the file is: its name, and how much time it is about."""
    starts, ends = recording.column("start_ns"), recording.column("end_ns")
    span_ns = max(ends) - min(starts) if starts and ends else 0
    dropped = ""
    if recording.dropped:
        dropped = f"; {recording.dropped:,} more {'event was' if recording.dropped == 1 else 'events were'} dropped"
    return f"{name}: {_shown_time(span_ns)}{dropped}"


def _shown_time(span_ns: int) -> str:
    for unit, size in (("s", 10**9), ("ms", 10**6)):
        if span_ns >= size:
            return f"{span_ns / size:.3f} {unit}"
    return f"{span_ns / 1000:.3f} us"
