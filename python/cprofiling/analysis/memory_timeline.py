"""Bytes given out by PyTorch's allocators over time, in torch.profiler's files.

Those tell the bytes by category, which torch.profiler guesses from the graph of operators and tensors. Recordings lack
that graph: all bytes are of the last category, which is the unknown one.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
from typing import TYPE_CHECKING, Any

from cprofiling._internal import arguments
from cprofiling._internal.files import atomic_writer
from cprofiling._internal.optional import imported
from cprofiling._internal.row_kinds import INSTANT
from cprofiling._internal.text import shown_value
from cprofiling.recording.columns import MEMORY, column, known_args, texts_of

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath

    from cprofiling.recording.columns import Recording

    Allocation = tuple[int, int, int]  # ns, or -1 for what was there before; action; bytes, negative where given back

_PREEXISTING, _CREATE, _DESTROY = 1, 2, 4  # torch.profiler's; 3 is a new version of a tensor
_UNKNOWN = 7  # category, the last
_CPU = "cpu"
_TYPES = {0: _CPU, 1: "cuda", 6: "hip", 12: "xpu", 13: "mps", 15: "hpu", 19: "mtia", 20: "privateuseone"}
_RAW, _PICTURE = ".raw.json.gz", ".html"
_ENDINGS = (".json", ".json.gz", _RAW, _PICTURE)


def export(recording: Recording, path: StrOrBytesPath, device: str | None = None) -> None:
    """Write the timeline (see ``Recording.export_memory_timeline``)."""
    name = arguments.path("path", path)
    if not name.endswith(_ENDINGS):
        raise ValueError(f"path must end in one of {', '.join(_ENDINGS)}, got {shown_value(path)}")
    allocations = _allocations(recording, device)
    if name.endswith(_RAW):
        content: Any = [[*allocation, _UNKNOWN] for allocation in allocations]
    else:
        content = _by_time(allocations)
    data = _page(*content) if name.endswith(_PICTURE) else json.dumps(content).encode()
    with atomic_writer(name) as file:
        file.write(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)


def _allocations(recording: Recording, wanted: str | None) -> list[Allocation]:
    """Return what was given out and back on a device, what was there first."""
    if wanted is not None and not isinstance(wanted, str):
        raise TypeError(f"device must be a str or None, got {shown_value(wanted)}")
    names = texts_of(recording, MEMORY)
    rows = zip(column(recording, "kind"), column(recording, "name"), column(recording, "start_ns"), strict=True)
    by_device: dict[str, list[Allocation]] = {}
    given_out: set[tuple[str, object]] = set()
    for row, (kind, name, ns) in enumerate(rows):
        args = known_args(recording, row) if kind == INSTANT and name in names else {}
        size = args.get("Bytes")
        if not isinstance(size, int):
            continue
        kind_of_device = _TYPES.get(args.get("Device Type", 0), "other")
        device = kind_of_device if kind_of_device == _CPU else f"{kind_of_device}:{args.get('Device Id', 0)}"
        found, place = by_device.setdefault(device, []), (device, args.get("Addr"))
        if size >= 0:
            given_out.add(place)
        elif place in given_out:
            given_out.remove(place)
        else:  # given out before the recording
            found.insert(0, (-1, _PREEXISTING, -size))
        found.append((ns, _CREATE if size >= 0 else _DESTROY, size))
    if not by_device:
        raise RuntimeError("no allocations were recorded: profile_memory=True records those of PyTorch's operators")
    devices = sorted(by_device, key=lambda device: (device == _CPU, device))
    chosen = devices[0] if wanted is None else f"{wanted}:0" if f"{wanted}:0" in by_device else wanted
    if chosen not in by_device:
        raise ValueError(f"device must be one with allocations, here {', '.join(devices)}, got {shown_value(wanted)}")
    return by_device[chosen]


def _by_time(allocations: list[Allocation]) -> tuple[list[int], list[list[int]]]:
    """Return times in µs, and at each the bytes by category behind a 0."""
    first = next(ns for ns, _, _ in allocations if ns >= 0) // 1000
    times: list[int] = []
    sizes: list[list[int]] = []
    total = 0
    for ns, _, size in allocations:
        total += size
        time = ns // 1000 if ns >= 0 else first
        row = [0] * (_UNKNOWN + 1) + [total]
        if times and times[-1] == time:
            sizes[-1] = row
        else:
            times.append(time)
            sizes.append(row)
    return times, sizes


def _page(times: list[int], sizes: list[list[int]]) -> bytes:
    """Return a page with a picture. ImportError without matplotlib."""
    figure = imported("matplotlib.figure").Figure(figsize=(10, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.fill_between([(time - times[0]) / 1e3 for time in times], [row[-1] / 2**20 for row in sizes], step="post")
    axes.set_xlabel("time (ms)")
    axes.set_ylabel("memory given out (MiB)")
    axes.margins(0)
    axes.set_ylim(bottom=0)
    png = io.BytesIO()
    figure.savefig(png, format="png")
    text = base64.b64encode(png.getvalue()).decode()
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>Memory timeline</title>'
    return f'{head}<img alt="Memory given out over time" src="data:image/png;base64,{text}">'.encode()
