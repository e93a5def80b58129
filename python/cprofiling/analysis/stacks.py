"""Folded stacks of a recording, for flame graphs."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from cprofiling._internal import arguments
from cprofiling._internal.files import atomic_writer
from cprofiling._internal.text import shown_text
from cprofiling.recording.columns import Recording, column, frames_of
from cprofiling.recording.tree import device_owners, host_tree, self_times

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath

_HOST_METRIC = "self_cpu_time_total"
_METRICS = (_HOST_METRIC, *(f"self_{word}_time_total" for word in ("cuda", "device", "xpu", "privateuse1")))


def export_stacks(recording: Recording, path: StrOrBytesPath, metric: str = _HOST_METRIC) -> None:
    """Write folded stacks (see ``Recording.export_stacks``)."""
    name = arguments.path("path", path)
    if metric not in _METRICS:
        raise ValueError(f"metric must be one of {', '.join(_METRICS)}, got {metric!r}")
    tree, strings = host_tree(recording), recording.strings
    if metric == _HOST_METRIC:
        times = self_times(recording, tree)
    else:  # of the device work started directly in each row
        starts, ends = column(recording, "start_ns"), column(recording, "end_ns")
        times = [0] * len(recording)
        for row, owner in device_owners(recording, tree).items():
            times[owner] += ends[row] - starts[row]
    numbers = {(-1, ""): 0}  # of paths, each by the path around it and its last frame; 0 is the empty one

    @cache
    def path_of(around: int, text: str) -> int:
        frame = shown_text("frame", text).replace(";", "\\x3b")
        return numbers.setdefault((around, frame), len(numbers))

    @cache
    def path_of_stack(stack: str) -> int:
        number = 0
        for frame in reversed(frames_of(stack)):
            number = path_of(number, frame)
        return number

    names, stacks = column(recording, "name"), column(recording, "stack")
    of_rows = [0] * len(recording)
    sums: dict[int, int] = {}
    for row, parent in enumerate(tree.parents):
        if parent != -2:
            around = path_of_stack(strings[stacks[row]]) if stacks[row] else of_rows[parent] if parent >= 0 else 0
            of_rows[row] = number = path_of(around, strings[names[row]])
            sums[number] = sums.get(number, 0) + times[row]
    paths, lines = list(numbers), []
    for number, time in sums.items():
        if time >= 1000:
            frames = []
            while number:
                number, frame = paths[number]  # noqa: PLW2901
                frames.append(frame)
            lines.append(f"{';'.join(reversed(frames))} {time // 1000}\n")
    with atomic_writer(name) as file:
        file.write("".join(lines).encode())
