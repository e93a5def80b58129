"""Command ``report``, to show statistics, timing reports and traces."""

from __future__ import annotations

import argparse
import errno
import os
import stat
from contextlib import suppress

from cprofiling._core import FormatError
from cprofiling._internal import file_kinds, files
from cprofiling._internal.text import shown_text
from cprofiling.analysis.timing_reports import load_timing_report
from cprofiling.commands.parsing import INT64_MAX, ROWS, CommandError, add_number, checked, compared, not_empty
from cprofiling.nodes import live_file
from cprofiling.nodes.rank_snapshot import RankedSnapshot
from cprofiling.recording.result import Recording
from cprofiling.recording.traces import reader
from cprofiling.report.format_list import FORMATS, find, format_of
from cprofiling.report.view import View

# ---- Files


def load(path: str) -> View:
    """Return a view of statistics, a live file, a timing report or a trace.

    The path may be a pipe's.

    Raises:
        OSError: It cannot be read.
        FormatError: It is damaged, or nothing of that.
        ValueError: A live file has no statistics yet.
    """
    if not stat.S_ISFIFO(os.stat(path).st_mode):
        return _load(path, path)
    # The first bytes tell the kind, and a pipe gives them only once.
    import tempfile

    with tempfile.TemporaryFile() as file:
        with files.open_to_read(path) as pipe:
            most = files.most_bytes(pipe)
            while file.tell() <= most and (piece := pipe.read(1 << 20)):
                file.write(piece)
        if file.tell() > most:
            raise FormatError(f"more than {most} bytes came out of the pipe")
        file.flush()
        name = f"/proc/self/fd/{file.fileno()}"
        try:
            return _load(name, path)
        except FormatError as error:
            raise FormatError(str(error).replace(name, shown_text("path", path))) from None


def _load(path: str, called: str) -> View:
    """Read a file, named ``called`` in messages."""
    head = file_kinds.head_of(path)
    kind = file_kinds.kind_of(head)
    if kind == file_kinds.STATISTICS:
        taken = RankedSnapshot.from_bytes(files.read_whole(path))
        known = {"rank": taken.rank, "world_size": taken.world_size, "host": taken.host or None, "pid": taken.pid}
        facts = {name: value for name, value in known.items() if value is not None}
        return View(taken.snapshot, source=called, facts=facts)
    if kind == file_kinds.LIVE:
        found = live_file.read(path)
        if not found.parts:
            raise FormatError("no Profiler has written to it yet")
        facts = {"state": found.state, "process": f"pid {found.process.pid}", "command": found.process.command}
        if found.reasons:
            facts["note"] = "; ".join(found.reasons)
        return View(found.snapshot, source=called, facts=facts)
    if kind == file_kinds.TIMING:
        return View(load_timing_report(path), source=called)
    if kind in (file_kinds.REPORT, file_kinds.TESTS):
        raise FormatError(f"{kind.what}: {kind.use}")
    if head and not file_kinds.may_be_json(head):
        raise FormatError(file_kinds.NEITHER)
    try:
        return View(reader.load(path, called), source=called)
    except reader.NoTraceError:
        raise FormatError(file_kinds.NEITHER) from None


def load_file(path: str) -> View:
    """Read a file of any known kind.

    Raises CommandError, naming the file.
    """
    name = shown_text("path", path)
    try:
        return load(path)
    except FormatError as error:
        told = shown_text("error", str(error))
        raise CommandError(told if told.startswith(name) else f"{name}: {told}") from None
    except (OSError, ValueError, OverflowError, RecursionError) as error:
        raise CommandError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from None
    except MemoryError:
        raise CommandError(f"cannot read {name}: there is not enough memory") from None


# ---- The command


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Describe the command and add its options."""
    parser.description = (
        "Show where the time went in a file: statistics, of Snapshot.to_bytes() or of a program that runs, a timing "
        "report, or a recording, which is a Chrome trace of this package, of PyTorch or of Kineto."
    )
    parser.epilog = "example: cprofiling report trace.json.gz -o report.html"
    add = parser.add_argument
    add("file", metavar="FILE", help="statistics, timing.json, or a trace (.json, .json.gz)")
    format_help = f"{', '.join(FORMATS)} (default: as the name of -o ends, else text)"
    add("-r", "--format", type=checked(_known_format), metavar="FORMAT", help=format_help)
    add("-o", "--output", type=not_empty, metavar="FILE", help="where to write it (default: stdout)")
    add("--open", action="store_true", help="show html in a browser, and print where it is")
    against_help = "another run, to compare with, for text, html, md and json. The exit status is that of compare"
    add("--against", type=not_empty, metavar="FILE", help=against_help)
    add("--sort-by", metavar="KEY", help="text of a trace: the figure by which averages are sorted")
    add_number(parser, "--limit", 1, INT64_MAX, f"text of a trace: the most rows of each table (default: {ROWS})")
    add("--group-by-node", action="store_true", help="text of a trace: tell apart what ran in which node")


def _known_format(name: str) -> str:
    find(name)
    return name


def run(options: argparse.Namespace) -> str | None:
    """Return the text to print, None if written to a file.

    Sets the exit status, that of a comparison. Raises CommandError for a file that cannot be read or is damaged or
    unknown, an output that cannot be written, options that do not fit, and a missing package.
    """
    view = load_file(options.file)
    against = None if options.against is None else load_file(options.against)
    kind = _format_of(options, view if against is None else view.beside(view))
    inputs = [path for path in (options.file, options.against) if path is not None]
    if options.output is not None and os.path.realpath(options.output) in map(os.path.realpath, inputs):
        raise CommandError(f"{shown_text('output', options.output)} is the file to be shown")
    text_only = {
        "--sort-by": options.sort_by,
        "--limit": options.limit,
        "--group-by-node": options.group_by_node or None,
    }
    asked = [option for option, value in text_only.items() if value is not None]
    if asked and (kind != "text" or not isinstance(view.of, Recording)):
        raise CommandError(f"{asked[0]} is for the text of traces only")
    try:
        if against is not None:
            view = view.beside(against)
            options.status = view.comparison.exit_status
        text: str | None = None
        if options.open and options.output is None:
            options.output = _new_page(options.file, view)
        elif options.output is None:
            text = (_text(options, view) if kind == "text" else view.render(kind)).rstrip("\n")
        elif kind == "text":
            with files.atomic_writer(options.output) as file:
                file.write(_text(options, view).encode("utf-8", "backslashreplace"))
        else:
            view.write(options.output, kind)
    except (ValueError, ImportError) as error:
        raise CommandError(shown_text("error", str(error))) from None
    except (OverflowError, RecursionError) as error:  # of figures that a file made elsewhere may have
        raise CommandError(f"cannot show {shown_text('path', options.file)}: {error}") from None
    except MemoryError:
        raise CommandError(f"cannot show {shown_text('path', options.file)}: there is not enough memory") from None
    except OSError as error:
        name = shown_text("output", options.output or options.file)
        raise CommandError(f"cannot write {name}: {error.strerror or error}") from None
    if options.open:
        text = _show(options.output)
    return compared(text, options.status)


def _format_of(options: argparse.Namespace, view: View) -> str:
    """Return the format that the options ask for."""
    kind = options.format or ("html" if options.open else "text")
    if options.format is None and options.output is not None:
        if os.path.isdir(options.output):
            raise CommandError(f"cannot write {shown_text('output', options.output)}: {os.strerror(errno.EISDIR)}")
        try:
            kind = format_of(options.output, view.formats)
        except ValueError as error:
            raise CommandError(f"-o: {error}; or say the format with -r") from None
    if options.open and kind != "html":
        raise CommandError(f"--open shows html, not {kind}")
    if options.output is None and find(kind).needs_file:
        raise CommandError(f"{kind} needs a file: say which with -o")
    return kind


def _new_page(path: str, view: View) -> str:
    """Write the page of a file into a new folder and return its path."""
    import tempfile

    name = os.path.basename(path).partition(".")[0] or "report"
    folder = tempfile.mkdtemp(prefix="cprofiling-")
    page = os.path.join(folder, f"{name}.html")
    try:
        view.write(page, "html")
    except BaseException:
        with suppress(OSError):
            os.rmdir(folder)
        raise
    return page


def _show(page: str) -> str:
    """Show a page in a browser, if there is one, and return its path."""
    import pathlib
    import webbrowser

    webbrowser.open(pathlib.Path(page).resolve().as_uri())
    return shown_text("output", page)


def _text(options: argparse.Namespace, view: View) -> str:
    name, recording = shown_text("path", options.file), view.of
    if not isinstance(recording, Recording):
        return f"{name}\n\n{view.render('text')}"
    if view.against is not None:
        return f"{_described(name, recording)}\n\n{view.render('text')}"
    rows = ROWS if options.limit is None else options.limit
    try:
        text = recording.overview(row_limit=rows, sort_by=options.sort_by, group_by_node=options.group_by_node)
    except ValueError as error:
        raise CommandError(f"--sort-by: {error}") from None
    return f"{_described(name, recording)}\n\n{text}"


def _described(name: str, recording: Recording) -> str:
    """Return the file's name and the time that it covers."""
    starts, ends = recording.column("start_ns"), recording.column("end_ns")
    span_ns = max(ends) - min(starts) if starts and ends else 0
    dropped = ""
    if recording.dropped:
        dropped = f"; {recording.dropped:,} more {'event was' if recording.dropped == 1 else 'events were'} dropped"
    shown = f"{span_ns / 1000:.3f} us"
    if span_ns >= 10**6:
        shown = f"{span_ns / 10**9:.3f} s" if span_ns >= 10**9 else f"{span_ns / 10**6:.3f} ms"
    return f"{name}: {shown}{dropped}"
