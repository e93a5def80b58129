"""What a Profiler is asked for beyond times: the bits of ``cprofiling/extra.h``, and what makes figures of the answers.

That is loaded where it is first needed, as most programs ask for times only, and kept: statistics may be read while the
interpreter ends, when nothing can be imported any more.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

GPU, LAUNCHES, COUNTERS, MEMORY, WAITS = 1, 2, 4, 8, 16
LAUNCHES_UNKNOWN, PEAK_UNKNOWN = 32, 64  # what was asked for and could not be had
COUNTER_SHIFT = 8  # of the bits of single counters

_maker: Callable[[tuple[Any, ...]], dict[str, Any]] | None = None


def fields_maker() -> Callable[[tuple[Any, ...]], dict[str, Any]]:
    """Return ``extras.fields_from``."""
    global _maker  # noqa: PLW0603 what is loaded once
    if _maker is None:
        from cprofiling.nodes.resources import fields_from

        _maker = fields_from
    return _maker


_shapes_maker: Callable[[Iterable[tuple[Any, ...]], Iterable[Any]], Any] | None = None


def shapes_maker() -> Callable[[Iterable[tuple[Any, ...]], Iterable[Any]], Any]:
    """Return ``shapes.shapes_from``."""
    global _shapes_maker  # noqa: PLW0603 what is loaded once
    if _shapes_maker is None:
        from cprofiling.nodes.input_shapes import shapes_from

        _shapes_maker = shapes_from
    return _shapes_maker


def is_any() -> bool:
    """Whether a Profiler of this process was asked for more than times and waits, or statistics with more were met."""
    return _maker is not None
