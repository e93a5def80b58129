"""CPU counters by name, and their values in the statistics of a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cprofiling import _core
from cprofiling._internal import arguments
from cprofiling._internal.text import checked_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

UNITS = dict(_core.perf_units())  # in the order of the bits in cprofiling/stats/counter.h
COUNTERS = tuple(UNITS)
HARDWARE_COUNTERS = COUNTERS[COUNTERS.index("cycles") :]


@dataclass(frozen=True)
class CounterValue:
    """Value of one counter over a node's calls, immutable and hashable.

    Attributes:
        mean: ``total`` divided by ``samples``.
        total: Sum over the samples in which the counter had a value.
        samples: Number of these, at least 1; less than the node's samples where some had none.
        unit: What is counted: ``ns`` for ``cpu_time``, ``times`` for all others.
        estimated: Whether any sample was scaled up, as the hardware counted for a part of the time only.
    """

    mean: float
    total: int
    samples: int
    unit: str
    estimated: bool = False


class NodeCounters(dict[str, "CounterValue | None"]):
    """Counters of a node by name, those requested, in a fixed order.

    The value is None where the kernel, container or virtual machine refuses a counter, or no sample had a value. The
    dict is immutable, hashable and picklable. Hardware counters (``cycles`` and those after it) count user space only,
    in the node's thread.
    """

    __slots__ = ()

    def __init__(
        self, values: Mapping[str, CounterValue | None] | Iterable[tuple[str, CounterValue | None]] = ()
    ) -> None:
        """Copy what ``dict`` accepts, from names to ``CounterValue`` or None.

        ``dataclasses.asdict`` creates one with dicts as values, which ``json`` can write.

        Raises TypeError for other values.
        """
        super().__init__(values)
        checked: dict[Any, Any] = self
        if not all(isinstance(name, str) and isinstance(value, _VALUES) for name, value in checked.items()):
            for name, value in checked.items():
                checked_text("a counter's name", name)
                if value is not None:
                    arguments.member(f"the value of {name}", value, CounterValue)

    @property
    def ipc(self) -> float | None:
        """Instructions per cycle, None if either is unknown or cycles are 0."""
        cycles, instructions = self.get("cycles"), self.get("instructions")
        if cycles is None or instructions is None or cycles.samples != instructions.samples or cycles.total == 0:
            return None
        return instructions.total / cycles.total

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({super().__repr__()})"

    def _stay(self, *_: NoReturn, **__: NoReturn) -> None:
        """Refuse to change. Raises TypeError always."""
        raise TypeError(f"{type(self).__name__} is immutable")

    __setitem__ = __delitem__ = __ior__ = _stay  # type: ignore[assignment]
    clear = pop = popitem = setdefault = update = _stay  # type: ignore[assignment]

    def __copy__(self) -> NodeCounters:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> NodeCounters:
        return self

    def __reduce__(self) -> tuple[type[NodeCounters], tuple[dict[str, CounterValue | None]]]:
        return type(self), (dict(self),)


_VALUES = (CounterValue, type(None), dict)
NO_COUNTERS = NodeCounters()


def counters_from(asked: int, counted: Sequence[int], totals: Sequence[int], estimated: int) -> NodeCounters:
    """Make a node's counters from the core's figures.

    Args:
        asked: The bits that ``checked_counters`` returned.
        counted: For each of ``COUNTERS``, the samples with a value.
        totals: For each, the sum of these.
        estimated: The samples whose hardware counters were scaled.
    """
    values: dict[str, CounterValue | None] = {}
    for bit, name in enumerate(COUNTERS):
        if asked >> bit & 1:
            total, samples, is_estimated = totals[bit], counted[bit], estimated > 0 and name in HARDWARE_COUNTERS
            known = samples > 0
            values[name] = CounterValue(total / samples, total, samples, UNITS[name], is_estimated) if known else None
    return NodeCounters(values)
