"""Methods that present or analyse recordings, importing on call."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import IO, TYPE_CHECKING, Any

from cprofiling._internal import arguments
from cprofiling._internal.text import file_name_of, shown_value
from cprofiling.nodes.exports import Viewable

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from _typeshed import StrOrBytesPath
    from matplotlib.axes import Axes

    from cprofiling._internal.tables import Figures
    from cprofiling.analysis.averages import KeyAverages
    from cprofiling.analysis.device_figures import CopyFigures, IdleTimes, KernelFigures, LaunchFigures, NodeKernel
    from cprofiling.analysis.findings.finding import Findings
    from cprofiling.analysis.frames import FramesPerSecond, RecordedFrames
    from cprofiling.analysis.gaps import Gaps
    from cprofiling.analysis.inference_reports import Report, Summary
    from cprofiling.analysis.warm_up import WarmUp
    from cprofiling.analysis.what_if import WhatIf
    from cprofiling.recording.profile import profile
    from cprofiling.recording.result import Recording
    from cprofiling.report.document import Document


class RecordingExports(Viewable):
    """Reports of a ``Recording``, and of the ``profile`` that made it."""

    __slots__ = ()

    if TYPE_CHECKING:

        def _finished(self) -> Recording: ...

    def _document(self, **about: str | None) -> Document:
        from cprofiling.report import from_recording

        return from_recording.of_recording(self._finished(), **about)

    def _pictured(self, document: Document) -> Document:
        from cprofiling.report import from_recording

        return from_recording.with_pictures(document, self._finished())

    def _frames(self, frame: str | None, skip_first_n: int) -> RecordedFrames:
        from cprofiling.analysis.evidence import Evidence
        from cprofiling.analysis.frames import RecordedFrames

        return RecordedFrames(Evidence(self._finished()), frame, skip_first_n)

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_node: bool = False
    ) -> KeyAverages:
        """Return the figures of all events by name, with torch.profiler's columns.

        Args:
            group_by_input_shape: Separate rows by ``input_shapes``; a RuntimeWarning where none were recorded.
            group_by_stack_n: Separate rows by this many innermost frames of their Python stack; 0 for none.
            group_by_node: Separate rows by the innermost node around them.

        Raises TypeError or ValueError unless ``group_by_stack_n`` is an integer of 0 or more.
        """
        from cprofiling.analysis import grouping

        return grouping.key_averages(self._finished(), group_by_input_shape, group_by_stack_n, group_by_node)

    def _repr_html_(self) -> str:
        """Return the table of averages that notebooks show."""
        return self.key_averages()._repr_html_()

    def export_stacks(self, path: StrOrBytesPath, metric: str = "self_cpu_time_total") -> None:
        r"""Write folded stacks of self times, as flame graphs need them.

        A line is ``outermost;...;innermost microseconds``, the last frame an event's name. Those before are the events
        around it, up to one with a recorded Python stack, then the frames of that. A ``;``, a line break or a control
        character in a name is written as an escape such as ``\x3b``. Stacks below a microsecond are left out.

        Args:
            path: A file, replaced when complete, with mode 0600; a device or pipe is written to.
            metric: ``self_cpu_time_total``, or ``self_device_time_total`` (or ``cuda``, ``xpu``, ``privateuse1``
                instead of ``device``) for the device's work started there.

        Raises:
            TypeError: ``path`` is no path.
            ValueError: It is empty, or ``metric`` is unknown.
            OSError: The file cannot be written.
        """
        from cprofiling.analysis import grouping

        grouping.export_stacks(self._finished(), path, metric)

    def export_memory_timeline(self, path: StrOrBytesPath, device: str | None = None) -> None:
        """Write the bytes that PyTorch's allocators had given out, over time.

        Needs operators recorded with ``profile_memory=True``; traces of torch.profiler will do. What was given out
        before the recording counts if it was given back in it. The formats are torch.profiler's, which tell bytes by
        category; recordings know no categories, so that all bytes are of the last one, the unknown.

        Args:
            path: A file whose name ends in ``.json`` or ``.json.gz`` (``[times, sizes]``, times in µs since 1970, sizes
                a list of a 0 and eight numbers each), in ``.raw.json.gz`` (``[ns, action, bytes, category]`` of each
                allocation) or in ``.html`` (a picture, made by matplotlib).
            device: Such as ``"cpu"`` or ``"cuda:0"``; None: the first device with allocations, else the host.

        Raises RuntimeError where no allocations were recorded, TypeError or ValueError for a wrong argument, OSError if
        the file cannot be written, and ImportError without matplotlib for a picture.
        """
        from cprofiling.analysis import memory_timeline

        memory_timeline.export(self._finished(), path, device)

    def export_chrome_trace(
        self,
        path: StrOrBytesPath | None = None,
        use_python_export: object = False,  # noqa: ARG002 as torch.profiler calls it
        *,
        file: IO[str] | IO[bytes] | None = None,
    ) -> None:
        """Write a Chrome trace for Perfetto, TensorBoard and similar readers.

        Args:
            path: The file, compressed if its name ends in ``.gz``. It appears when it is complete.
            use_python_export: Ignored; torch.profiler's own handlers pass it.
            file: Instead of a path, an open file, binary or text, which stays open.

        Raises TypeError unless exactly one of the two is given with the right type; ValueError for an empty path or a
        closed file; OSError if writing fails.
        """
        from cprofiling.recording.traces import chrome_writer

        chrome_writer.export(self._finished(), path, file)

    def to_pandas(self) -> pd.DataFrame:
        """Return the events as a pandas DataFrame, indexed by row number.

        Columns are listed in ``cprofiling.export``. Raises ImportError without pandas.
        """
        from cprofiling.recording import dataframe

        return dataframe.to_pandas(self._finished())

    def to_polars(self) -> pl.DataFrame:
        """Return the events as a polars DataFrame, with ``row`` as last column.

        Raises ImportError without polars.
        """
        from cprofiling.recording import dataframe

        return dataframe.to_polars(self._finished())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the DataFrame as an Arrow stream, without any package."""
        from cprofiling.recording import dataframe

        return dataframe.arrow_stream(self._finished())

    def summary(self) -> Summary:
        """Return inference latencies in ns, with extremes and percentiles.

        Inferences are those of ``inferences()``. Percentiles are interpolated between the two nearest latencies
        (NumPy's ``linear``) and rounded down, as the mean is; None without an inference. This and the other reports
        print as text and have ``to_pandas()``.
        """
        from cprofiling.analysis import inference_reports

        return inference_reports.summary(self._finished())

    def inferences(self) -> Report:
        """Return each inference with trace_id, span_id, thread.id and dur (ns).

        An inference is a span named ``Inference``; without any, each outermost call of a node; else each outermost
        labelled block, step or annotation, or a row that is in no other. A note counts inferences left out, as they
        failed or were not recorded to their end.
        """
        from cprofiling.analysis import inference_reports

        return inference_reports.inferences(self._finished())

    def device_executions(self) -> Report:
        """Return Total, Run and IoWait of each span's device work, in ns.

        Total is from the start of the first work that the innermost node, labelled block or step started on a device
        to the end of the last; Run the time of its computations added up; IoWait their difference, negative where
        computations overlapped.
        """
        from cprofiling.analysis import inference_reports

        return inference_reports.device_executions(self._finished())

    def device_operators(self) -> Report:
        """Return device work by name, with average_elapsed (ns) and count.

        The longest comes first.
        """
        from cprofiling.analysis import inference_reports

        return inference_reports.device_operators(self._finished())

    def external_operators(self) -> Report:
        """Return host operators with ids, thread.id, name, operator_index and dur.

        trace_id and span_id are of the operator, or the span in which it ran; operator_index counts within the event
        directly around it, from 0; dur is in ns.
        """
        from cprofiling.analysis import inference_reports

        return inference_reports.external_operators(self._finished())

    def kernel_breakdown(self, *, launched_only: bool = False) -> Figures[KernelFigures]:
        """Return count, total, mean, extremes and deviation of each kernel.

        launched_only: leave out work without a recorded launch, here and in ``copy_breakdown`` and
            ``idle_times``.
        """
        from cprofiling.analysis import device_figures

        return device_figures.kernel_breakdown(self._finished(), launched_only=launched_only)

    def top_kernels(self, n: int = 5, *, node: str | None = None) -> Figures[NodeKernel]:
        """Return the longest kernels of each node, the busiest node first.

        n: how many of each node, 1 or more. node: only that node, which may have none; None: all nodes, and work
            started outside of them.

        Raises TypeError or ValueError for a wrong ``n`` or ``node``.
        """
        from cprofiling.analysis import device_figures

        return device_figures.top_kernels(self._finished(), n, node=node)

    def copy_breakdown(self, *, launched_only: bool = False) -> Figures[CopyFigures]:
        """Return count, bytes, time and bandwidth of device copies, by kind."""
        from cprofiling.analysis import device_figures

        return device_figures.copy_breakdown(self._finished(), launched_only=launched_only)

    def launch_statistics(self) -> Figures[LaunchFigures]:
        """Return times and queue delays of device launches, by name."""
        from cprofiling.analysis import device_figures

        return device_figures.launch_statistics(self._finished())

    def idle_times(self, *, launched_only: bool = False) -> Figures[IdleTimes]:
        """Return idle times of each device stream, by cause.

        A gap waits for the host if the call that started the work after it began only in it; for the next kernel if
        it is shorter than 30 µs; else for something else.
        """
        from cprofiling.analysis import device_figures

        return device_figures.idle_times(self._finished(), launched_only=launched_only)

    def warm_up(self) -> WarmUp:
        """Return each node's warm-up, its cost, and the ``skip_first_n`` it needs.

        The recording should begin before the first call.
        """
        from cprofiling.analysis import warm_up
        from cprofiling.analysis.evidence import Evidence

        return warm_up.of_recording(Evidence(self._finished()))

    def gaps(self, frame: str | None = None, *, least_ns: int = 0, skip_first_n: int = 0) -> Gaps:
        """Return time inside frames without a node, by the nodes around it.

        The longest total comes first. Each gap is on its frame's thread; without frames, gaps are between nodes of one
        thread.

        Args:
            frame: Name of the node, labelled block or step that is a frame. None: spans named ``Inference``; else the
                steps; else the outermost labelled blocks around nodes, or the outermost nodes, if all have one name.
            least_ns: Gaps up to this length are left out, 0 or more.
            skip_first_n: Number of first frames left out, 0 or more.

        Raises TypeError for a wrong type, ValueError for an unknown name or a number out of range.
        """
        from cprofiling.analysis import gaps

        return gaps.of_frames(self._frames(frame, skip_first_n), least_ns)

    def what_if(
        self,
        node: str | Mapping[str, float] | None = None,
        factor: float = 2.0,
        *,
        edges: Iterable[tuple[str, str]] | None = None,
        frame: str | None = None,
        skip_first_n: int = 0,
    ) -> WhatIf:
        """Estimate each frame's time if nodes were faster.

        As ``ProfilingSummary.what_if``, frame by frame; time of a frame outside nodes stays as it is.

        Args:
            node: Its name; a dict of factors by names, for several at once; None: each node in its turn.
            factor: How many times as fast, 1e-9 to 1e9; ``math.inf``: as if it took no time.
            edges: Pairs of names, as ``set_graph`` takes them, such as ``pipeline.profiler.graph``. None: the nodes of
                a frame's thread run one after the other.
            frame: As in ``gaps``.
            skip_first_n: As in ``gaps``.

        Raises TypeError or ValueError for a wrong argument, a node that the recording does not have, and a cycle.
        """
        from cprofiling.analysis import what_if

        return what_if.of_frames(self._frames(frame, skip_first_n), node, factor, edges)

    def frames_per_second(
        self,
        total_frames: int | Mapping[str, int] | None = None,
        *,
        frame: str | None = None,
        skip_first_n: int = 0,
    ) -> FramesPerSecond:
        """Return frames per second, latency, and frames in progress.

        Args:
            total_frames: How many frames were processed, if a span is several; for several stages a mapping by stage,
                as ``ProfilingSummary.frames_per_second`` takes it.
            frame: As in ``gaps``.
            skip_first_n: As in ``gaps``.

        Raises TypeError or ValueError for a wrong argument.
        """
        from cprofiling.analysis import frames

        return frames.of_frames(self._frames(frame, skip_first_n), total_frames)

    def findings(self, baseline: RecordingExports | None = None) -> Findings:
        """Return bottlenecks with figures, advice and rows as evidence.

        baseline: another recording of the same program, to find what changed. Raises TypeError for anything else.
        """
        from cprofiling.analysis.evidence import Evidence
        from cprofiling.analysis.findings import findings

        other = _baseline(baseline)
        return findings(Evidence(self._finished()), None if other is None else Evidence(other))

    def plot(self, ax: Axes | None = None, *, top: int = 10) -> Axes:
        """Draw the timeline, with a lane per thread and device stream.

        Spans finer than a pixel are drawn together; the title counts them.

        ax: matplotlib axes, None for a new figure. top: number of names with a colour of their own, by self time, 1 to
        18.

        Returns the axes. Raises ImportError without matplotlib, naming the extra; TypeError or ValueError for an
        invalid number.
        """
        from cprofiling.report import plots

        return plots.plot_recording(self._finished(), ax, top=top)

    def overview(
        self,
        baseline: RecordingExports | None = None,
        row_limit: int | None = 20,
        sort_by: str | None = None,
        group_by_node: bool = False,
    ) -> str:
        """Return averages, latencies, device figures and findings as text.

        Args:
            baseline: Another recording of the same program, which the findings compare with.
            row_limit: The most rows of each table; all if it is None or negative.
            sort_by: The figure by which the averages are sorted (see ``KeyAverages.table``); None: the device's own
                time with a device, else the host's.
            group_by_node: Separate averages by the node around them.

        Raises TypeError or ValueError for a wrong argument.
        """
        from cprofiling.analysis import inference_reports

        return inference_reports.overview(self._finished(), _baseline(baseline), row_limit, sort_by, group_by_node)


def _baseline(baseline: RecordingExports | None) -> Recording | None:
    if baseline is None:
        return None
    if not isinstance(baseline, RecordingExports):
        raise TypeError(f"baseline must be a recording, got {shown_value(baseline)}")
    return baseline._finished()


def reduced(recording: Recording) -> tuple[Any, ...]:
    """Reduce a recording to its Chrome trace, for pickles."""
    from cprofiling.recording.traces import reader

    pieces: list[bytes] = []
    recording.write_chrome(pieces.append)
    return reader.load_again, (b"".join(pieces),)


def load_trace(path: StrOrBytesPath) -> Recording:
    """Read a Chrome trace of torch.profiler (1.13 or later) or our own.

    It may be gzipped. A line on stderr shows the progress after a second, in terminals and notebooks. Time is linear in
    the file's size; memory is that of the events, at most about the uncompressed text, and a window of the file.

    Parts that a recording cannot have (asynchronous events, samples) are left out, with a RuntimeWarning.

    Raises:
        TypeError: ``path`` is no path.
        ValueError: It is empty.
        OSError: The file cannot be read.
        FormatError: It is damaged, or no trace; ``FormatError`` is a ``ValueError``, and tells the offset in the
            uncompressed text. So is a compressed file that unpacks to more than 300 times its size and 64 MiB.
    """
    from cprofiling.recording.traces import reader

    return reader.load(path)


def tensorboard_trace_handler(
    dir_name: StrOrBytesPath, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """Return a handler that writes traces for TensorBoard into a folder.

    Files are named ``{worker}.{time}.pt.trace.json``, with the time in ns since 1970.

    Args:
        dir_name: The folder, made with mode 0700 if missing.
        worker_name: Default is host name and process number. Path characters are escaped.
        use_gzip: Compress, with a name ending in ``.gz``.

    Raises TypeError for an invalid folder, ValueError for an empty one. The handler raises OSError if the folder or
    file cannot be made.
    """
    if worker_name is not None and not isinstance(worker_name, str):
        raise TypeError(f"worker_name must be a str or None, got {shown_value(worker_name)}")
    folder = arguments.path("dir_name", dir_name)

    def handler(prof: profile) -> None:
        import time

        from cprofiling._internal.files import make_folders
        from cprofiling.recording.traces.chrome_writer import export_to_path

        make_folders(folder)
        worker = worker_name if worker_name is not None else f"{os.uname().nodename}_{os.getpid()}"
        name = f"{file_name_of(worker)}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}"
        export_to_path(prof.recording, os.path.join(folder, name), compress=use_gzip)

    return handler
