"""Rules on copies, and on devices that wait for the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from cprofiling._internal.text import counted
from cprofiling.analysis.device_figures import copy_kind, launches
from cprofiling.analysis.evidence import Evidence
from cprofiling.analysis.findings.finding import Finding
from cprofiling.analysis.findings.host import LEAST_NS, longest, milliseconds, percent
from cprofiling.recording.columns import column, grouped

# A tenth of the device's work, or of the time of the host, which waits in calls that copy.
COPY_SHARE = 0.1
# Half of that for memory that is not pinned, and for copies that are as many as a quarter of the kernels: these can be
# avoided.
PAGEABLE_SHARE = 0.05
COPIES_PER_KERNEL = 0.25
# Launches that a device begins within 20 µs had no other to wait for: launching itself takes 3 to 10 µs.
PROMPT_NS = 20_000
# One such launch says nothing; in twenty in a row the host does not keep up.
STRETCH_LAUNCHES = 20
STRETCH_IDLE = 0.5
STRETCH_SHARE = 0.05

_ADVICE = {
    "HtoD": "pin_memory=True in the DataLoader and non_blocking=True in .to() let copies run beside kernels; make "
    "tensors on the device instead of moving them there.",
    "DtoH": "Fetch results once, not in each step: .item(), .cpu(), .tolist() and print() of tensors wait for the "
    "device; else non_blocking=True into pinned memory.",
    "DtoD": "Copies within the device come of .contiguous(), .clone(), torch.cat and other strides: look at what "
    "started them; write into preallocated tensors (out=, copy_), keep one memory_format.",
}
_OTHER_ADVICE = "Look at what started them: key_averages(group_by_node=True)."


def copies(evidence: Evidence) -> Iterator[Finding]:
    """Find directions of copying that take much time."""
    sizes = column(evidence.recording, "bytes")
    by_kind = grouped(evidence.copies, lambda row: copy_kind(evidence.texts[row]))
    waits = {launch.row: launch for launch in launches(evidence.recording)} if by_kind else {}
    for kind, rows in by_kind.items():
        time = sum(map(evidence.duration, rows))
        pageable = sum(evidence.duration(row) for row in rows if "pageable" in evidence.texts[row].lower())
        calls = {waits[row].call_row: waits[row].host_ns for row in rows if row in waits}
        host_ns = sum(calls.values())
        many = len(rows) >= COPIES_PER_KERNEL * (len(evidence.work) - len(evidence.copies))
        least = PAGEABLE_SHARE if many else COPY_SHARE
        is_long = time >= least * evidence.work_time or pageable >= PAGEABLE_SHARE * evidence.work_time
        if max(time, host_ns) < LEAST_NS or not (is_long or host_ns >= COPY_SHARE * evidence.wall):
            continue
        size = sum(max(sizes[row], 0) for row in rows)
        share = time / max(evidence.work_time, 1)
        pinned = f", {milliseconds(pageable)} of it from or to memory that is not pinned" if pageable else ""
        title = f"{kind} copies take {percent(share)} of the device's time"
        if host_ns >= max(time, COPY_SHARE * evidence.wall):
            title = f"The host is held up by {kind} copies for {percent(host_ns / max(evidence.wall, 1))} of its time"
        times = {"time_ns": time, "pageable_ns": pageable, "host_ns": host_ns}
        yield Finding(
            "copies",
            title,
            f"{counted(len(rows), 'copy', 'copies')} of {size / (1 << 20):,.1f} MiB took {milliseconds(time)} of "
            f"{milliseconds(evidence.work_time)} of the device's work{pinned}; the host spent {milliseconds(host_ns)} "
            f"in the calls that made {'it' if len(rows) == 1 else 'them'}, waiting there included."
            f"{started_by(evidence, rows)}",
            _ADVICE.get(kind, _OTHER_ADVICE),
            {"count": len(rows), "bytes": size, **times, "share": share},
            longest(evidence, rows),
            min(max(time, host_ns) / max(evidence.wall, 1), 1.0),
        )


def started_by(evidence: Evidence, rows: list[int]) -> str:
    """Return a sentence on the most frequent starter of work, or nothing."""
    counts = Counter(evidence.texts[evidence.owners[row]] for row in rows if row in evidence.owners)
    if not counts:
        return ""
    [(name, count)] = counts.most_common(1)
    return f" {count:,} of {len(rows):,} {'was' if count == 1 else 'were'} started by {name!r}."


def launch_bound(evidence: Evidence) -> Iterator[Finding]:
    """Find stretches in which a device waits for launches."""
    if not evidence.work:
        return
    streams = column(evidence.recording, "stream")
    devices = column(evidence.recording, "device")
    delays = {launch.row: launch.delay_ns for launch in launches(evidence.recording)}
    for (device, stream), rows in grouped(evidence.work, lambda row: (devices[row], streams[row])).items():
        prompt: list[list[int]] = [[]]  # runs of work that began soon after its launch
        for row in rows:
            if delays.get(row, PROMPT_NS) < PROMPT_NS:
                prompt[-1].append(row)
            elif prompt[-1]:
                prompt.append([])
        stretches = [
            stretch
            for stretch in prompt
            if len(stretch) >= STRETCH_LAUNCHES
            and 1 - sum(map(evidence.duration, stretch)) / max(_length(evidence, stretch), 1) >= STRETCH_IDLE
        ]
        time = sum(_length(evidence, stretch) for stretch in stretches)
        share = time / max(evidence.wall, 1)
        if time < LEAST_NS or share < STRETCH_SHARE:
            continue
        kept = [row for stretch in stretches for row in stretch]
        work = sum(map(evidence.duration, kept))
        yield Finding(
            "launch_bound",
            f"The device waits for launches in {percent(share)} of the time",
            f"In {counted(len(stretches), 'stretch', 'stretches')} on stream {stream} of device {device}, "
            f"{milliseconds(time)} together, {len(kept):,} kernels and copies began as soon as they were launched, and "
            f"took {milliseconds(work)} only: {work / len(kept) / 1000:,.1f} µs each.",
            "Launch less often: a CUDA graph (torch.cuda.graph, or torch.compile(mode='reduce-overhead')), fused "
            "kernels, a larger batch size; and no .item() or synchronize() in between.",
            {"stretches": len(stretches), "time_ns": time, "work_ns": work, "launches": len(kept), "share": share},
            longest(evidence, kept),
            min((time - work) / max(evidence.wall, 1), 1.0),
        )


def _length(evidence: Evidence, stretch: list[int]) -> int:
    return evidence.ends[stretch[-1]] - evidence.starts[stretch[0]]
