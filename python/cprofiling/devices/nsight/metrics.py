"""Metrics of kernels, by name."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence

DURATION = ("gpu__time_duration.sum", "gpu__time_duration.avg", "gpu__time_duration.max")
COMPUTE = ("sm__throughput.avg.pct_of_peak_sustained_elapsed",)
MEMORY = ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",)
DRAM = (
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
)
L2 = ("lts__throughput.avg.pct_of_peak_sustained_elapsed", "lts__t_sectors.avg.pct_of_peak_sustained_elapsed")
L1 = (
    "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__throughput.avg.pct_of_peak_sustained_active",
)
TENSOR = (
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
)
OCCUPANCY = ("sm__warps_active.avg.pct_of_peak_sustained_active",)
MOST_OCCUPANCY = ("sm__maximum_warps_per_active_cycle_pct",)
WAVES = ("launch__waves_per_multiprocessor",)
GRID = ("launch__grid_size",)
PROCESSORS = ("launch__sm_count", "device__attribute_multiprocessor_count")
DRAM_BYTES = ("dram__bytes.sum",)
DRAM_PARTS = ("dram__bytes_read.sum", "dram__bytes_write.sum")
LIMITS = {
    "registers": ("launch__occupancy_limit_registers",),
    "shared memory": ("launch__occupancy_limit_shared_mem",),
    "warps": ("launch__occupancy_limit_warps",),
    "the number of blocks on an SM": ("launch__occupancy_limit_blocks",),
    "barriers": ("launch__occupancy_limit_barriers",),
}
Operations = tuple[tuple[tuple[str, ...], int], ...]
# Of each type of numbers, additions, products and fused operations: the metrics that count them, and how many one is.
OPERATIONS: tuple[Operations, ...] = tuple(
    tuple(
        (tuple(f"{unit}__sass_thread_inst_executed_op_{kind}{name}_pred_on.sum" for unit in ("sm", "smsp")), count)
        for name, count in (("add", 1), ("mul", 1), ("fma", 2))
    )
    for kind in "fhd"
)
_OPERATION_NAMES = [name for operations in OPERATIONS for names, _ in operations for name in names]
_SHARES = (*COMPUTE, *MEMORY, *DRAM, *L2, *L1, *TENSOR, *OCCUPANCY, *MOST_OCCUPANCY)
# What verdicts and figures are made of: these are numbers, or the file is damaged.
NUMBERS = frozenset(
    (
        *DURATION, *_SHARES, *WAVES, *GRID, *PROCESSORS, *DRAM_BYTES, *DRAM_PARTS,
        *(name for names in LIMITS.values() for name in names), *_OPERATION_NAMES,
    )
)  # fmt: skip
# The base units required of some metrics; "" for counts.
BASES = {
    **dict.fromkeys(DURATION, ("ns",)),
    **dict.fromkeys((*DRAM_BYTES, *DRAM_PARTS), ("byte",)),
    **dict.fromkeys(_SHARES, ("%", "")),
    **dict.fromkeys(_OPERATION_NAMES, ("inst", "")),
}

# The labels of the details page in small letters. Where one label is of two metrics, the percentage comes first.
_LABELS: dict[str, tuple[str, ...]] = {
    "duration": DURATION[:1],
    "compute (sm) throughput": COMPUTE,
    "memory throughput": (*MEMORY, "dram__bytes.sum.per_second"),
    "dram throughput": (DRAM[0], "dram__bytes.sum.per_second"),
    "l2 cache throughput": L2[:1],
    "l1/tex cache throughput": L1[1:],
    "achieved occupancy": OCCUPANCY,
    "theoretical occupancy": MOST_OCCUPANCY,
    "theoretical active warps per sm": ("sm__maximum_warps_avg_per_active_cycle",),
    "achieved active warps per sm": ("sm__warps_active.avg.per_cycle_active",),
    "waves per sm": WAVES,
    "grid size": GRID,
    "block size": ("launch__block_size",),
    "threads": ("launch__thread_count",),
    "# sms": PROCESSORS[:1],
    "registers per thread": ("launch__registers_per_thread",),
    "static shared memory per block": ("launch__shared_mem_per_block_static",),
    "dynamic shared memory per block": ("launch__shared_mem_per_block_dynamic",),
    "driver shared memory per block": ("launch__shared_mem_per_block_driver",),
    "shared memory configuration size": ("launch__shared_mem_config_size",),
    "block limit registers": LIMITS["registers"],
    "block limit shared mem": LIMITS["shared memory"],
    "block limit warps": LIMITS["warps"],
    "block limit sm": LIMITS["the number of blocks on an SM"],
    "block limit blocks": LIMITS["the number of blocks on an SM"],
    "block limit barriers": LIMITS["barriers"],
    "elapsed cycles": ("gpc__cycles_elapsed.max",),
    "sm active cycles": ("sm__cycles_active.avg",),
    "sm frequency": ("gpc__cycles_elapsed.avg.per_second",),
    "dram frequency": ("dram__cycles_elapsed.avg.per_second",),
    "l1/tex hit rate": ("l1tex__t_sector_hit_rate.pct",),
    "l2 hit rate": ("lts__t_sector_hit_rate.pct",),
}


def metric_id(name: str, unit: str) -> str:
    """Return a metric's id for its id or label.

    Other names are taken as ids.

    unit: base unit, which tells metrics of one label apart.
    """
    ids = _LABELS.get(name.strip().lower())
    return name.strip() if ids is None else ids[0 if unit == "%" else -1]


class Metrics(Mapping[str, "float | None"]):
    """Values of one kernel's metrics by id in base units, immutable.

    Labels of the details page, such as ``Compute (SM) Throughput``, work as keys; iteration gives the ids. A metric
    without a value (``n/a``) is None.
    """

    __slots__ = ("_places", "_values")

    def __init__(self, places: Mapping[str, int], values: Sequence[float]) -> None:
        """Map ``places`` to ``values``, nan for unknown, without copying."""
        self._places = places
        self._values = values if isinstance(values, array) else array("d", values)

    def __getitem__(self, name: str) -> float | None:
        value: float = self._values[self._place(name)]
        return None if math.isnan(value) else value

    def _place(self, name: str) -> int:
        place = self._places.get(name)
        if place is not None:
            return place
        for each in _LABELS.get(str(name).lower(), ()):  # of no other type is a label
            if each in self._places:
                return self._places[each]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __hash__(self) -> int:
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type[Metrics], tuple[dict[str, int], list[float]]]:
        return Metrics, (dict(self._places), list(self._values))

    def __repr__(self) -> str:
        return f"Metrics({dict(self)!r})"

    def first(self, names: Sequence[str]) -> float | None:
        """Return the first known value of some metrics, or None."""
        return next((value for value in map(self.get, names) if value is not None), None)


class Texts(Mapping[str, str]):
    """Texts by name, immutable and hashable."""

    __slots__ = ("_texts",)

    def __init__(self, texts: Mapping[str, str] | None = None) -> None:
        """Make a mapping of copies."""
        self._texts = dict(texts or {})

    def __getitem__(self, name: str) -> str:
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __hash__(self) -> int:
        return hash(frozenset(self._texts.items()))

    def __reduce__(self) -> tuple[type[Texts], tuple[dict[str, str]]]:
        return Texts, (dict(self._texts),)

    def __repr__(self) -> str:
        return f"Texts({self._texts!r})"


NO_TEXTS = Texts()
