"""Folded stacks of a recording, for flame graphs."""

from __future__ import annotations

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
    r"""Write the self times of a recording as folded stacks.

    A line is ``outermost;...;innermost microseconds``; equal stacks are one line, those of less than a microsecond are
    left out. The last frame is a row's name. Those before it are the names of the rows around it, up to one with which
    its Python stack was recorded: then the frames of that. A ``;``, a line break or a control character in a name is
    written as an escape such as ``\x3b``. The file appears under its name when it is complete, with mode 0600.

    Args:
        recording: A finished recording.
        path: Where to write, exactly; an existing file is replaced, a device or pipe written to.
        metric: ``self_cpu_time_total``, or ``self_device_time_total`` (or ``cuda``, ``xpu``, ``privateuse1`` instead of
            ``device``): the device's work that was started there.

    Raises:
        TypeError: ``path`` is none.
        ValueError: It is empty, or ``metric`` is another one.
        OSError: The file cannot be written; it names the path.
    """
    name = arguments.path("path", path)
    if metric not in _METRICS:
        raise ValueError(f"metric must be one of {', '.join(_METRICS)}, got {metric!r}")
    tree = host_tree(recording)
    if metric == _HOST_METRIC:
        times = self_times(recording, tree)
    else:  # of the device work started directly in each row
        starts, ends = column(recording, "start_ns"), column(recording, "end_ns")
        times = [0] * len(recording)
        for row, owner in device_owners(recording, tree).items():
            times[owner] += ends[row] - starts[row]
    paths = _Paths(recording.strings)
    names, stacks = column(recording, "name"), column(recording, "stack")
    of_rows = [0] * len(recording)
    sums: dict[int, int] = {}
    for row, parent in enumerate(tree.parents):
        if parent == -2:
            continue
        around = paths.of_stack(stacks[row]) if stacks[row] else of_rows[parent] if parent >= 0 else 0
        of_rows[row] = number = paths.inside(around, paths.shown(names[row]))
        sums[number] = sums.get(number, 0) + times[row]
    lines = [f"{paths.text(number)} {time // 1000}\n" for number, time in sums.items() if time >= 1000]
    with atomic_writer(name) as file:
        file.write("".join(lines).encode())


class _Paths:
    """Paths of frames from the outermost inwards, 0 for the empty one."""

    def __init__(self, strings: list[str]) -> None:
        self._strings = strings
        self._numbers: dict[tuple[int, str], int] = {}
        self._ends: list[tuple[int, str]] = [(0, "")]
        self._stacks: dict[int, int] = {}
        self._shown: dict[int, str] = {}

    def inside(self, path: int, frame: str) -> int:
        """Return the path that goes on with a frame."""
        number = self._numbers.setdefault((path, frame), len(self._ends))
        if number == len(self._ends):
            self._ends.append((path, frame))
        return number

    def of_stack(self, text: int) -> int:
        """Return the path of a recorded stack, innermost frame first."""
        if text not in self._stacks:
            path = 0
            for frame in reversed(frames_of(self._strings[text])):
                path = self.inside(path, _escaped(frame))
            self._stacks[text] = path
        return self._stacks[text]

    def shown(self, text: int) -> str:
        """Return a text as a frame."""
        if text not in self._shown:
            self._shown[text] = _escaped(self._strings[text])
        return self._shown[text]

    def text(self, path: int) -> str:
        """Return a path in writing."""
        frames = []
        while path:
            path, frame = self._ends[path]
            frames.append(frame)
        return ";".join(reversed(frames))


def _escaped(frame: str) -> str:
    return shown_text("frame", frame).replace(";", "\\x3b")
