"""Reports on files for the command ``report``."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cprofiling._core import FormatError
from cprofiling._internal.text import shown_text
from cprofiling.commands.parsing import ROWS

if TYPE_CHECKING:
    from cprofiling.recording.result import Recording
    from cprofiling.report.read_files import Loaded
    from cprofiling.report.view import View


class ReportError(Exception):
    """There is no report, for the reason that it says."""


@dataclass(frozen=True)
class Request:
    """Request for a report.

    Attributes:
        path: The file: statistics, a timing report, or a trace of ours, of PyTorch or of Kineto, compressed or not.
        format: One of ``views.FORMATS``; None: as the name of ``output`` ends; text where there is none.
        output: Where it goes; None: it is returned.
        against: Another run, to be compared with.
        sort_by: Of the text of a trace: the figure by which the averages are sorted; None: the device's or the host's
            own time.
        limit: Likewise: the most rows of each table; None: 20.
        group_by_node: Likewise: whether the averages tell apart what ran in different nodes.
    """

    path: str
    format: str | None = None
    output: str | None = None
    against: str | None = None
    sort_by: str | None = None
    limit: int | None = None
    group_by_node: bool = False


def report_on(request: Request) -> tuple[str | None, int]:
    """Report on a file, and return text and exit status.

    The text is None if it was written to a file; the status is that of a comparison.

    Raises ReportError for a file that cannot be read or is damaged or unknown, an output that cannot be written,
    options that do not fit, and a missing package.
    """
    from cprofiling.report.formats import find

    kind = _format(request)
    if request.output is None and find(kind).needs_file:
        raise ReportError(f"{kind} needs a file: say which with -o")
    loaded = load_file(request.path)
    other = None if request.against is None else load_file(request.against)
    _check_output(request)
    _check_options(request, kind, loaded)
    try:
        view = _view(request, loaded, other)
        status = 0 if other is None else view.comparison.exit_status
        if kind == "text":
            text = _text(request, view)
        elif request.output is not None:
            view.write(request.output, kind)
            return None, status
        else:
            text = view.render(kind)
    except (ValueError, ImportError) as error:
        raise ReportError(shown_text("error", str(error))) from None
    except (OverflowError, RecursionError) as error:  # of figures that a file made elsewhere may have
        raise ReportError(f"cannot show {shown_text('path', request.path)}: {error}") from None
    except MemoryError:
        raise ReportError(f"cannot show {shown_text('path', request.path)}: there is not enough memory") from None
    except OSError as error:
        raise _cannot_write(request, error) from None
    return _delivered(request, text), status


def _format(request: Request) -> str:
    from cprofiling.report.formats import format_of
    from cprofiling.report.view import View

    if request.format is not None:
        return request.format
    if request.output is None:
        return "text"
    if os.path.isdir(request.output):
        raise ReportError(f"cannot write {shown_text('output', request.output)}: {os.strerror(errno.EISDIR)}")
    try:
        return format_of(request.output)
    except ValueError:
        loaded = load_file(request.path)  # as what it can be shown in depends on what it is
        fitting = View(loaded.of, against=None if request.against is None else loaded.of).formats
    try:
        return format_of(request.output, fitting)
    except ValueError as error:
        raise ReportError(f"-o: {error}; or say the format with -r") from None


def _check_output(request: Request) -> None:
    inputs = [path for path in (request.path, request.against) if path is not None]
    if request.output is not None and os.path.realpath(request.output) in map(os.path.realpath, inputs):
        raise ReportError(f"{shown_text('output', request.output)} is the file to be shown")


def load_file(path: str) -> Loaded:
    """Read a file of any known kind.

    Raises ReportError, naming the file.
    """
    from cprofiling.report.read_files import load

    name = shown_text("path", path)
    try:
        return load(path)
    except FormatError as error:
        told = shown_text("error", str(error))
        raise ReportError(told if told.startswith(name) else f"{name}: {told}") from None
    except (OSError, ValueError, OverflowError, RecursionError) as error:
        raise ReportError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from None
    except MemoryError:
        raise ReportError(f"cannot read {name}: there is not enough memory") from None


def _check_options(request: Request, kind: str, loaded: Loaded) -> None:
    from cprofiling.recording.result import Recording

    asked = [
        option
        for option, is_given in (
            ("--sort-by", request.sort_by is not None),
            ("--limit", request.limit is not None),
            ("--group-by-node", request.group_by_node),
        )
        if is_given
    ]
    if asked and (kind != "text" or not isinstance(loaded.of, Recording)):
        raise ReportError(f"{asked[0]} is for the text of traces only")


def _view(request: Request, loaded: Loaded, other: Loaded | None) -> View:
    from cprofiling.report.view import View

    against = None
    if other is not None and request.against is not None:
        against = View(other.of, source=request.against, facts=other.facts)
    return View(loaded.of, against=against, source=request.path, facts=loaded.facts)


def _text(request: Request, view: View) -> str:
    from cprofiling.recording.result import Recording

    name, recording = shown_text("path", request.path), view.of
    if not isinstance(recording, Recording):
        return f"{name}\n\n{view.render('text')}"
    if view.against is not None:
        return f"{_described(name, recording)}\n\n{view.render('text')}"
    rows = ROWS if request.limit is None else request.limit
    try:
        text = recording.overview(row_limit=rows, sort_by=request.sort_by, group_by_node=request.group_by_node)
    except ValueError as error:
        raise ReportError(f"--sort-by: {error}") from None
    return f"{_described(name, recording)}\n\n{text}"


def _delivered(request: Request, text: str) -> str | None:
    """Return a text as it is printed, or write it."""
    if request.output is None:
        return text.rstrip("\n") if text.endswith("\n") else text
    from cprofiling._internal.files import atomic_writer

    try:
        with atomic_writer(request.output) as file:
            file.write(text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise _cannot_write(request, error) from None
    return None


def _cannot_write(request: Request, error: OSError) -> ReportError:
    name = shown_text("output", request.output or request.path)
    return ReportError(f"cannot write {name}: {error.strerror or error}")


def _described(name: str, recording: Recording) -> str:
    """Return the file's name and the time that it covers."""
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
