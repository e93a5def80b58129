"""Rules on the host, which yield findings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import nsmallest

from cprofiling._internal.row_kinds import STEP
from cprofiling._internal.text import counted
from cprofiling.analysis.device_figures import COMMUNICATION_KERNEL
from cprofiling.analysis.evidence import Evidence
from cprofiling.analysis.findings.finding import Finding
from cprofiling.recording import intervals
from cprofiling.recording.columns import COPIES, SETS, grouped, has, texts_of

# Less than this is not worth anybody's time.
LEAST_NS = 1_000_000
# A fifth of the time: removing it makes a program a quarter faster.
OUTSIDE_SHARE = 0.2
# A tenth of the time in which everything else stands still, waiting for data.
LOADING_SHARE = 0.1
# More than half: making anything else faster gains less.
DOMINANT_SHARE = 0.5
DOMINANT_NAMES = 3  # at least: of two, one always has half
# As long in Python as in what it calls for.
PYTHON_SHARE = 0.5
PYTHON_OF_ALL = 0.1  # of the whole recording's time
PYTHON_OPERATORS = 10  # too few operators are no pattern
# Calls of one function, directly within one call of another, that take no longer than what calling costs.
SHORT_CALLS = 50
SHORT_NS = 100_000
SHORT_SHARE = 0.1
BACKWARD = ("autograd::engine::", "torch::autograd::")  # how the names of what autograd's engine calls begin
_MOST_ROWS = 10_000  # that a finding cites of its kind, the longest

_BATCH = "a larger batch size makes fewer calls of it, a lower precision (autocast) cheaper ones"
_ONE_CALL = (
    "It was called once: put record() blocks around its parts, or make the functions that it calls nodes, to see which "
    "of them takes the time."
)
_PLAIN_CALLS = (
    "Look inside it first: make the functions that it calls nodes, or put record() blocks around its parts; "
    "with_stack=True shows the lines that call it. What is not written in Python has no parts to see: call it less "
    "often, or with less."
)

_FEWER_OPERATORS = (
    "Do it in fewer calls: batch the items, use fused or foreach=True optimizers, torch.compile to fuse operators, or "
    "a larger batch size."
)
_FEWER_CALLS = "Do it in fewer calls: give it many items at once, or move the loop into it; cache what comes again."

_LOADING = re.compile(
    r"data_?loader|prefetch|(next|get)[_ ]?batch"
    r"|(?<![a-z])(pre)?(load|read|fetch)\w*?[_ ]?(batch|data|sample|image|frame|file)"
    r"|(batch|data|sample|image|frame|file)s?[_ ]?(load|read|fetch)",
    re.IGNORECASE,
)


def percent(share: float) -> str:
    """Return a share as texts show it."""
    return f"{share * 100:.0f} %"


def milliseconds(time_ns: float) -> str:
    """Return a time as texts show it."""
    return f"{time_ns / 1e6:,.2f} ms"


def longest(evidence: Evidence, rows: Iterable[int]) -> tuple[int, ...]:
    """Return the longest rows, as many as a finding cites, by their start."""
    kept = sorted(rows, key=lambda row: (-evidence.duration(row), row))[:_MOST_ROWS]
    return tuple(sorted(kept))


def outside_nodes(evidence: Evidence) -> Iterator[Finding]:
    """Find much time between nodes in which none ran."""
    rows = evidence.outermost_nodes
    busy = evidence.times_of(rows)
    if len(busy) < 2:
        return
    idle = intervals.gaps(busy)
    wall = busy[-1][1] - busy[0][0]
    idle_ns = intervals.length(idle)
    if idle_ns < max(LEAST_NS, OUTSIDE_SHARE * wall):
        return
    widest = nsmallest(_MOST_ROWS // 2, idle, key=lambda gap: gap[0] - gap[1])
    edges = {time for gap in widest for time in gap}
    ends = {end: row for row in rows if (end := evidence.ends[row]) in edges}
    starts = {start: row for row in reversed(rows) if (start := evidence.starts[row]) in edges}
    around = {row for end, start in widest for row in (ends[end], starts[start])}
    longest_ns = widest[0][1] - widest[0][0]
    before, after = evidence.texts[ends[widest[0][0]]], evidence.texts[starts[widest[0][1]]]
    share = idle_ns / wall
    yield Finding(
        "outside_nodes",
        f"{percent(share)} of the time is outside any node",
        f"No node ran in {milliseconds(idle_ns)} of {milliseconds(wall)}, in {counted(len(idle), 'gap')}; the longest, "
        f"{milliseconds(longest_ns)}, is between {before!r} and {after!r}.",
        "Find out what runs there: put record() blocks around the code between the nodes, or profile it as nodes; "
        "overlap it with the nodes in a thread, if it waits.",
        {"idle_ns": idle_ns, "wall_ns": wall, "gaps": len(idle), "longest_gap_ns": longest_ns, "share": share},
        tuple(sorted(around)),
        idle_ns / max(evidence.wall, 1),
    )


def data_loading(evidence: Evidence) -> Iterator[Finding]:
    """Find time in which everything waits for data, by names of loaders."""
    names = {number for number, text in enumerate(evidence.strings) if _LOADING.search(text)}
    rows = evidence.tree.outermost(
        [row for row in evidence.spans if evidence.names[row] in names and evidence.kinds[row] != STEP] if names else []
    )
    if not rows:
        return
    within = evidence.within(rows)
    # A node around others may do nothing but wait for them.
    waiting = evidence.around({*rows, *evidence.nodes})
    busy = [row for row in (*evidence.nodes, *evidence.operators) if row not in waiting and not within[row]]
    busy += [row for row in evidence.work if not within[evidence.owners.get(row, row)]]
    times = evidence.times_of(sorted(rows))
    waiting_ns = intervals.length(times) - intervals.length(intervals.common(times, evidence.times_of(busy)))
    share = waiting_ns / max(evidence.wall, 1)
    if waiting_ns < LEAST_NS or share < LOADING_SHARE:
        return
    called = sorted({evidence.texts[row] for row in rows})
    yield Finding(
        "data_loading",
        f"Everything waits for data in {percent(share)} of the time",
        f"In {milliseconds(waiting_ns)} of {milliseconds(evidence.wall)} data was loaded ({', '.join(called[:3])}: "
        f"{counted(len(rows), 'call')}) while no other node and no device worked.",
        "Load in the background: DataLoader with more workers (num_workers=...), prefetch_factor and "
        "persistent_workers=True, pin_memory=True for a device; or a thread that prepares the next batch.",
        {"waiting_ns": waiting_ns, "loading_ns": intervals.length(times), "calls": len(rows), "share": share},
        longest(evidence, rows),
        share,
    )


def dominant_operator(evidence: Evidence) -> Iterator[Finding]:
    """Find a name that takes more than half of the time on its side.

    Nodes are compared by node self time, with the operators inside; operators by host self time.
    """
    own, name_of, spans, cats = evidence.host_self_times, evidence.names.__getitem__, evidence.spans, evidence.cats
    total, own_of_nodes = sum(own), evidence.node_self_times
    for_nodes = grouped(evidence.nodes, name_of)
    for rows in for_nodes.values() if len(for_nodes) >= DOMINANT_NAMES else ():
        yield from _dominant(evidence, rows, sum(map(own_of_nodes.__getitem__, rows)), total, "host")
    others = [row for row in evidence.host_rows if row not in spans and cats[row] not in evidence.runtime]
    for_host = grouped(others, name_of) if len(set(map(name_of, evidence.host_rows))) >= DOMINANT_NAMES else {}
    for rows in for_host.values():
        yield from _dominant(evidence, rows, sum(map(own.__getitem__, rows)), total, "host")
    memory = texts_of(evidence.recording, *COPIES, *SETS)
    for_device = grouped(evidence.work, name_of)
    for rows in for_device.values() if len(for_device) >= DOMINANT_NAMES else ():
        kept = [row for row in rows if evidence.cats[row] not in memory]
        yield from _dominant(evidence, kept, sum(map(evidence.duration, kept)), evidence.work_time, "device")


def _dominant(evidence: Evidence, rows: list[int], time: int, total: int, side: str) -> Iterator[Finding]:
    if time < max(LEAST_NS, DOMINANT_SHARE * total):
        return
    share = time / total
    name = evidence.texts[rows[0]]
    yield Finding(
        "dominant_operator",
        f"{name} takes {percent(share)} of the time on the {side}",
        f"{counted(len(rows), 'call')} of {name!r} took {milliseconds(time)} of {milliseconds(total)} on the {side}, "
        f"without {'nodes that' if rows[0] in evidence.spans else 'what'} ran inside "
        f"{'it' if len(rows) == 1 else 'them'}.",
        _advice_on(evidence, rows, name, side),
        {"time_ns": time, "total_ns": total, "calls": len(rows), "share": share},
        longest(evidence, rows),
        share,
    )


def _advice_on(evidence: Evidence, rows: list[int], name: str, side: str) -> str:
    """Return what to do about rows of one name that take most of the time."""
    if COMMUNICATION_KERNEL.match(name):
        return (
            "It waits for the slowest rank: compare the ranks; overlap it with computation, send less (bucket_cap_mb, "
            "gradient accumulation with no_sync(), lower precision)."
        )
    if side == "device":
        return f"Look at it first: key_averages(group_by_node=True) shows where it is called; {_BATCH}."
    if evidence.framework.isdisjoint(rows):
        return f"{_ONE_CALL if len(rows) == 1 else _PLAIN_CALLS} {_shapes_advice(evidence)}"
    if rows[0] in evidence.spans:
        return (
            "Look inside it first: key_averages(group_by_node=True) has its operators, and Self CPU of its own row is "
            f"what it does beside its operators. {_shapes_advice(evidence)} A larger batch size makes fewer calls."
        )
    return f"Look at it first. {_shapes_advice(evidence)} {_BATCH[0].upper()}{_BATCH[1:]}."


def _shapes_advice(evidence: Evidence) -> str:
    call = "key_averages(group_by_input_shape=True, group_by_node=True)"
    if has(evidence.recording, "shapes"):
        return f"{call} shows what it is called with, and where."
    return f"Recorded with record_shapes=True, {call} shows what it is called with, and where."


def python_overhead(evidence: Evidence) -> Iterator[Finding]:
    """Find code that spends more time outside its operators than in them."""
    parents, spans = evidence.tree.parents, evidence.spans
    inner = (row for row in evidence.host_rows if parents[row] in spans and row not in spans)
    called = grouped(inner, parents.__getitem__)  # by the row of code directly around them
    least = max(LEAST_NS, PYTHON_OF_ALL * evidence.wall)
    for rows in grouped(called, evidence.names.__getitem__).values():
        operators = [row for around in rows for row in called[around]]
        called_ns = sum(map(evidence.duration, operators))
        if len(operators) < PYTHON_OPERATORS or sum(evidence.host_self_times[row] for row in rows) < max(
            least, called_ns
        ):
            continue
        inside = set(rows)
        within = [row for row in evidence.host_rows if evidence.tree.parents[row] in inside]
        tracks = {evidence.tracks[row] for row in rows}
        elsewhere = [row for row in evidence.operators if evidence.tracks[row] not in tracks]
        alone = intervals.without(evidence.times_of(rows), evidence.times_of([*within, *elsewhere]))
        own = intervals.length(alone)
        if own < max(least, PYTHON_SHARE * (own + called_ns)):
            continue
        share = own / (own + called_ns)
        name, they = evidence.texts[rows[0]], "it" if len(rows) == 1 else "they"
        yield Finding(
            "python_overhead",
            f"{name} spends {percent(share)} of its time outside the operators that it calls",
            f"{counted(len(rows), 'call')} of {name!r} spent {milliseconds(own)} in Python, or in what is not "
            f"recorded, and {milliseconds(called_ns)} in the {len(operators):,} operators that {they} called directly.",
            "Make fewer and larger calls: a larger batch size, whole arrays instead of loops, torch.compile, or a CUDA "
            "graph; with_stack=True shows the lines.",
            {
                "python_ns": own, "operators_ns": called_ns, "operators": len(operators), "calls": len(rows),
                "share": share,
            },
            longest(evidence, rows),
            min(own / max(evidence.wall, 1), 1.0),
        )  # fmt: skip


def many_short_calls(evidence: Evidence) -> Iterator[Finding]:
    """Find many short calls of one function within one call of another."""
    # Calls of a runtime, Python frames, steps, and calls by autograd's engine cannot be batched.
    passed = texts_of(evidence.recording, "python_function") | evidence.runtime
    engine = {number for number, text in enumerate(evidence.strings) if text.startswith(BACKWARD)}
    names, cats, parents = evidence.names, evidence.cats, evidence.tree.parents
    with_many = {parent for parent, count in Counter(parents).items() if count >= SHORT_CALLS}
    calls = (row for row in evidence.host_rows if parents[row] in with_many and cats[row] not in passed)
    batches = (row for row in calls if evidence.kinds[row] != STEP and names[row] not in engine)
    siblings = grouped(  # by the row around them, their thread and name
        batches, lambda row: (parents[row], -1 if parents[row] >= 0 else evidence.tracks[row], names[row])
    )
    by_names: dict[tuple[int, int], list[list[int]]] = {}
    for (parent, _, name), rows in siblings.items():
        if len(rows) >= SHORT_CALLS and sum(map(evidence.duration, rows)) <= SHORT_NS * len(rows):
            by_names.setdefault((evidence.names[parent] if parent >= 0 else -1, name), []).append(rows)
    for (around, _), runs in by_names.items():
        rows = [row for run in runs for row in run]
        time = sum(map(evidence.duration, rows))
        share = time / max(evidence.wall, 1)
        if time < LEAST_NS or share < SHORT_SHARE:
            continue
        called = evidence.texts[rows[0]]
        where = "in nothing recorded"
        if around >= 0:
            where = f"in {counted(len(runs), 'call')} of {evidence.strings[around]!r}"
        yield Finding(
            "many_short_calls",
            f"{called} is called {len(rows):,} times for {milliseconds(time / len(rows))} each",
            f"{len(rows):,} calls of {called!r} {where} took {milliseconds(time)}, {percent(share)} of the time.",
            _FEWER_CALLS if evidence.framework.isdisjoint(rows) else _FEWER_OPERATORS,
            {"time_ns": time, "calls": len(rows), "mean_ns": time / len(rows), "share": share},
            longest(evidence, rows),
            min(share, 1.0),
        )
