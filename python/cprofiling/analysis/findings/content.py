"""Rules on growing memory, double precision and unused gradients."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from cprofiling._internal.row_kinds import INSTANT, RECORD, STEP
from cprofiling._internal.text import counted
from cprofiling.analysis.evidence import Evidence
from cprofiling.analysis.findings.finding import Finding
from cprofiling.analysis.findings.host import BACKWARD, LEAST_NS, longest, milliseconds, percent
from cprofiling.recording import intervals
from cprofiling.recording.columns import MEMORY, UNKNOWN, column, grouped, has, known_args, texts_of

# Below that, a process's memory grows by what its allocator keeps for later.
GROWTH_BYTES = 10 << 20
# As many calls as make four parts of three: one to warm up, three that must all grow.
GROWTH_CALLS = 12
_PARTS = 4
# Two parts in a hundred of the time: double precision takes 2 to 64 times as long as single.
FLOAT64_SHARE = 0.02
# Two nodes of autograd's graph more than at the beginning: the first may be left from before the recording.
GRADIENT_NODES = 2

_SEQUENCE = re.compile(r'"Sequence number":\s*(\d{1,18})\b')
_FLOAT64 = frozenset(("double", "float64"))
_FLOAT32 = frozenset(("float", "float32"))
_EVALUATED = frozenset(("val", "test"))
_MEMORY_CHANGES = (("memory_change", "the process"), ("device_memory_change", "the device's allocator"))


def memory_growth(evidence: Evidence) -> Iterator[Finding]:
    """Find memory that grows with each call or step after the first."""
    memory_names = texts_of(evidence.recording, MEMORY)
    if not memory_names and not any(has(evidence.recording, source) for source, _ in _MEMORY_CHANGES):
        return
    blocks = [row for row, kind in enumerate(evidence.kinds) if kind <= RECORD]
    units = grouped(evidence.tree.outermost(blocks), evidence.names.__getitem__)
    for source, what in _MEMORY_CHANGES:
        if has(evidence.recording, source):
            changes = column(evidence.recording, source)
            for rows in units.values():
                known = [row for row in rows if changes[row] != UNKNOWN]
                yield from _growth(evidence, known, [changes[row] for row in known], what)
    steps = [row for row, kind in enumerate(evidence.kinds) if kind == STEP]
    allocated: dict[tuple[int, int], tuple[list[int], list[int]]] = {}  # times and totals of each allocator
    for row, kind in enumerate(evidence.kinds):
        if kind != INSTANT or evidence.names[row] not in memory_names:
            continue
        args = {"Device Type": 0, "Device Id": -1, **known_args(evidence.recording, row)}
        device_type, number, total = (args.get(name) for name in ("Device Type", "Device Id", "Total Allocated"))
        if isinstance(total, int) and isinstance(device_type, int) and isinstance(number, int):
            times, totals = allocated.setdefault((device_type, number), ([evidence.window[0]], [total]))
            times.append(evidence.starts[row])
            totals.append(total)
    for (device_type, number), (times, totals) in allocated.items():
        what = f"the allocator of device {number}" if device_type else "the host's allocator"
        for rows in [steps] if steps else units.values():
            at_end = [totals[bisect_right(times, evidence.ends[row]) - 1] for row in rows]
            changes_of = [0, *(after - before for before, after in pairwise(at_end))]
            yield from _growth(evidence, rows, changes_of, what)


def _growth(evidence: Evidence, rows: Sequence[int], changes: Sequence[int], what: str) -> Iterator[Finding]:
    """Find calls with memory growing in each part but the first."""
    if len(rows) < GROWTH_CALLS:
        return
    bounds = [len(rows) * part // _PARTS for part in range(1, _PARTS + 1)]
    parts = [sum(changes[begin:end]) for begin, end in pairwise(bounds)]
    growth = sum(parts)
    if min(parts) <= 0 or growth < GROWTH_BYTES:
        return
    calls = len(rows) - bounds[0]
    name = evidence.texts[rows[0]]
    yield Finding(
        "memory_growth",
        f"Memory grows with each call of {name}",
        f"Over {calls:,} calls of {name!r}, the first {bounds[0]:,} left out, the memory of {what} grew by "
        f"{growth / (1 << 20):,.1f} MiB, {growth / calls / (1 << 10):,.1f} KiB a call, and did not stop.",
        "Look for what keeps results: lists that are appended to, caches without a limit, losses kept with their graph "
        "(use .item() or .detach()); in inference no_grad().",
        {"growth_bytes": growth, "calls": calls, "bytes_per_call": growth / calls},
        tuple(rows[bounds[0] :]),
        growth / max(sum(change for change in changes if change > 0), growth),
    )


def float64(evidence: Evidence) -> Iterator[Finding]:
    """Find double precision inside calls with single precision."""
    rows = _unexpected_doubles(evidence) if has(evidence.recording, "types") else []
    host_ns = intervals.length(evidence.times_of(rows))
    within = evidence.within(rows)
    device_ns = sum(evidence.duration(row) for row, owner in evidence.owners.items() if within[owner])
    time = max(host_ns, device_ns)
    share = time / max(evidence.wall, 1)
    if time < LEAST_NS or share < FLOAT64_SHARE:
        return
    names = sorted({evidence.texts[row] for row in rows})
    yield Finding(
        "float64",
        f"Double precision where inputs are single takes {percent(share)} of the time",
        f"{counted(len(rows), 'call')} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''}) worked on float64, "
        f"though inputs are float32: {milliseconds(host_ns)} on the host, {milliseconds(device_ns)} on devices.",
        "Keep to dtype=torch.float32 (numpy: dtype=np.float32): look for numpy arrays and Python floats that become "
        "tensors without a dtype, and for .double().",
        {"calls": len(rows), "host_ns": host_ns, "device_ns": device_ns, "share": share},
        longest(evidence, rows),
        min(share, 1.0),
    )


def _unexpected_doubles(evidence: Evidence) -> list[int]:
    """Return the outermost calls with unexpected double precision.

    Around an operator of unknown caller, single precision has to be the more frequent. The user's own code called with
    double precision, by unrecorded code, is meant to be.
    """
    tree = evidence.tree
    pairs = list(zip(column(evidence.recording, "types"), column(evidence.recording, "shapes"), strict=True))
    known = {}  # whether arguments have float32 arrays, and mostly float64 ones
    for pair in set(pairs):
        types, shapes = (json.loads(evidence.strings[text] or "[]") for text in pair)
        types = types if isinstance(types, list) else []
        shapes = shapes if isinstance(shapes, list) and shapes else [[1]] * len(types)
        # A value of shape [] is a number; one double among the many arguments of a whole function says little.
        kinds = [kind for kind, shape in zip(types, shapes, strict=False) if shape and isinstance(kind, str)]
        float32 = sum(kind in _FLOAT32 for kind in kinds)
        known[pair] = float32 > 0, sum(kind in _FLOAT64 for kind in kinds) >= max(float32, 1)
    singles = sum(known[pairs[row]][0] for row in evidence.host_rows)
    doubles = [row for row in evidence.host_rows if known[pairs[row]][1]]
    typed = tree.nearest(row for row, (types, _) in enumerate(pairs) if types > 0)
    found = []
    for row in tree.outermost(doubles):
        around = typed[tree.parents[row]] if tree.parents[row] >= 0 else -1
        is_operator = row not in evidence.spans and singles > len(doubles)
        if known[pairs[around]][0] if around >= 0 else is_operator:
            found.append(row)
    return found


def gradients(evidence: Evidence) -> Iterator[Finding]:
    """Find operators recorded for gradients that nothing computes."""
    rows = evidence.operators
    if any(evidence.texts[row].startswith(BACKWARD) for row in rows):  # then those of evaluations only
        stages = column(evidence.recording, "stage")
        wanted = {evidence.strings[stages[row]] for row in evidence.nodes}
        useless = _EVALUATED | ({"inference"} if "train" in wanted else set())
        within = evidence.within([row for row in evidence.nodes if evidence.strings[stages[row]] in useless])
        rows = [row for row in rows if within[row]]
    numbers: dict[int, list[tuple[int, int]]] = {}  # of autograd's graph, by thread, with their rows
    for row in rows:
        found = _SEQUENCE.search(evidence.recording.args(row) or "")
        if found:
            numbers.setdefault(evidence.tracks[row], []).append((int(found[1]), row))
    recorded = []
    for of in numbers.values():
        recorded += [row for (number, _), (later, row) in pairwise(of) if later > number]
    if len(recorded) < GRADIENT_NODES:
        return
    time = intervals.length(evidence.times_of(rows))
    share = time / max(evidence.wall, 1)
    yield Finding(
        "gradients",
        "Gradients are recorded, and no backward pass uses them",
        f"Autograd recorded {len(recorded):,} operations or more for gradients, in {milliseconds(time)} of operators, "
        "and no backward pass followed.",
        "Run inference under torch.inference_mode() or torch.no_grad(): it saves the memory of intermediate results, "
        "and the time of recording them.",
        {"operations": len(recorded), "operators_ns": time, "share": share},
        longest(evidence, recorded),
        min(share, 1.0),
    )
