"""Rules on copies, and on hosts and devices that wait for each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from cprofiling._internal.text import counted
from cprofiling.analysis.device_figures import copy_kind, launches
from cprofiling.analysis.evidence import Evidence
from cprofiling.analysis.findings.finding import Finding
from cprofiling.analysis.findings.host import LEAST_NS, longest, milliseconds, percent
from cprofiling.recording.columns import column, grouped, sources_of

# A tenth of the device's work, or of the time of the host, which waits in calls that copy.
COPY_SHARE = 0.1
# Half of that for memory that is not pinned, and for copies that are as many as a quarter of the kernels: these can be
# avoided.
PAGEABLE_SHARE = 0.05
COPIES_PER_KERNEL = 0.25
# A tenth of the time, as of copies.
WAIT_SHARE = 0.1
_MOST_PLACES = 5
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
            f"{started_by(evidence, rows)}{_by_node(evidence, calls)}",
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


def _by_node(evidence: Evidence, waits: Mapping[int, int]) -> str:
    """Return a sentence on the nodes around calls that wait, or nothing without nodes.

    waits: How long each call took, in ns.
    """
    around = grouped(waits, evidence.nodes_around.__getitem__)
    by_name = grouped(around, lambda node: evidence.texts[node] if node >= 0 else "")
    if not any(by_name):
        return ""
    sources, whole = sources_of(evidence.recording), max(sum(waits.values()), 1)
    found = []
    for name, nodes in by_name.items():
        calls = [call for node in nodes for call in around[node]]
        place = f" ({sources[name]})" if name in sources else ""
        found.append((sum(map(waits.__getitem__, calls)), len(calls), f"{name!r}{place}" if name else "outside nodes"))
    found.sort(key=lambda each: -each[0])
    told = [
        f"{where} {milliseconds(time)} ({percent(time / whole)}) in {counted(count, 'call')}"
        for time, count, where in found[:_MOST_PLACES]
    ]
    more = f", and {len(found) - _MOST_PLACES} more" if len(found) > _MOST_PLACES else ""
    return f" By node: {', '.join(told)}{more}."


def device_waits(evidence: Evidence) -> Iterator[Finding]:
    """Find time that the host spends in calls that only wait for a device."""
    names = {number for number, text in enumerate(evidence.strings) if "Synchronize" in text}
    waiting = [row for row in evidence.host_rows if evidence.names[row] in names]
    rows = evidence.tree.outermost([row for row in waiting if evidence.cats[row] in evidence.runtime])
    waits = {row: evidence.duration(row) for row in rows}
    time = sum(waits.values())
    share = min(time / max(evidence.wall, 1), 1.0)
    if time < LEAST_NS or share < WAIT_SHARE:
        return
    yield Finding(
        "device_waits",
        f"The host waits for devices in {percent(share)} of the time",
        f"{counted(len(rows), 'call')} that synchronized took {milliseconds(time)}.{_by_node(evidence, waits)}",
        "Wait once, where results are needed: .item(), .cpu(), print() of tensors and synchronize() each wait for all "
        "that was started before. Where the device is busy meanwhile, its work is what takes long.",
        {"time_ns": time, "calls": len(rows), "share": share},
        longest(evidence, rows),
        share,
    )


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
