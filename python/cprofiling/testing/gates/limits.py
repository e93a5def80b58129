"""Limits of the marker ``cprofiling_limit`` and their check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from cprofiling._internal import arguments
from cprofiling._internal.text import checked_text, shown_text, shown_value
from cprofiling.devices.cupti import NO_CUDA
from cprofiling.testing.counting.functions import checked_patterns

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from cprofiling.testing.gates.test_call import Measured

MARKER = "cprofiling_limit"
_COUNTS = ("native_calls", "operators", "launches")
_KNOWN = (*_COUNTS, "p95_ms", "native")
_SEPARATORS = {"native_calls": ":", "operators": "::"}
_SHOWN = 12  # names in a message


class Limits(NamedTuple):
    """Limits of a test, numbers or numbers by name, None without."""

    native_calls: int | Mapping[str, int] | None = None
    operators: int | Mapping[str, int] | None = None
    launches: int | None = None
    p95_ms: float | Mapping[str, float] | None = None
    native: tuple[str, ...] = ()


def limits_of(marks: Iterable[Any], native: Iterable[str]) -> Limits:
    """Return the limits in a test's markers, the nearest first.

    Raises TypeError or ValueError for what makes no sense.
    """
    said: dict[str, Any] = {}
    for mark in reversed(list(marks)):
        if mark.args or not mark.kwargs:
            raise TypeError(f"{MARKER} takes keywords only ({', '.join(_KNOWN)}), got {shown_value(mark.args)}")
        said.update(mark.kwargs)
    for name in said:
        if name not in _KNOWN:
            raise TypeError(f"{MARKER} takes {', '.join(_KNOWN)}, got {name!r}")
    named = said.get("native", ())
    if not isinstance(named, (str, list, tuple)):
        raise TypeError(f"native must be a pattern or a list of them, got {shown_value(named)}")
    p95_ms = said.get("p95_ms")
    if isinstance(p95_ms, Mapping):
        p95_ms = {str(name): arguments.number_between(f"p95_ms[{name!r}]", ms, 0, 1e12) for name, ms in p95_ms.items()}
    elif p95_ms is not None:
        p95_ms = arguments.number_between("p95_ms", p95_ms, 0, 1e12)
    patterns = (*native, *((named,) if isinstance(named, str) else named))
    return Limits(
        _counts("native_calls", said.get("native_calls")),
        _counts("operators", said.get("operators")),
        None if said.get("launches") is None else arguments.index_between("launches", said["launches"], 0),
        p95_ms,
        checked_patterns(patterns) if patterns else (),
    )


def _counts(parameter: str, value: Any) -> int | dict[str, int] | None:
    if not isinstance(value, Mapping):
        return None if value is None else arguments.index_between(parameter, value, 0)
    for name in value:
        if _SEPARATORS[parameter] not in checked_text(parameter, name):
            raise ValueError(f"{parameter} must be by names with a {_SEPARATORS[parameter]!r}, got {shown_value(name)}")
    return {name: arguments.index_between(f"{parameter}[{name!r}]", most, 0) for name, most in value.items()}


def complaints(limits: Limits, measured: Measured) -> list[str]:
    """Return the limits that a test exceeded or that cannot be judged."""
    found = []
    native = measured.native_calls if measured.limited_calls is None else measured.limited_calls
    for what, most, counts, reason in (
        ("native_calls", limits.native_calls, native, "nothing is named as native: native=..."),
        ("operators", limits.operators, measured.operators, "they were not counted"),
    ):
        if most is not None:
            found += [f"{what} cannot be judged: {reason}"] if counts is None else _beyond(what, most, counts)
    if limits.launches is not None and measured.launches is None:
        # Without CUDA in the process there was no launch, which is no doubt, and no failure.
        if measured.launches_reason != NO_CUDA:
            found.append(f"launches cannot be judged: {measured.launches_reason}")
    elif limits.launches is not None and (measured.launches or 0) > limits.launches:
        found.append(f"launches: {measured.launches}, the limit is {limits.launches}")
    if limits.p95_ms is not None:
        found += _beyond_times(limits.p95_ms, measured)
    return found


def _beyond(what: str, most: int | Mapping[str, int], counts: Mapping[str, int]) -> list[str]:
    if isinstance(most, Mapping):
        # Functions that are counted are all in the counts, operators only where they were called.
        unknown = [name for name in most if name not in counts] if what == "native_calls" else []
        return [
            f"{what} of {shown_text('name', name)} cannot be judged: it is not among what is counted"
            for name in unknown
        ] + [
            f"{what} of {shown_text('name', name)}: {counts[name]}, the limit is {limit}"
            for name, limit in most.items()
            if counts.get(name, 0) > limit
        ]
    total = sum(counts.values())
    return [f"{what}: {total}, the limit is {most}: {listed(counts)}"] if total > most else []


def _beyond_times(most: float | Mapping[str, float], measured: Measured) -> list[str]:
    known: dict[str, float] = {}
    for row in measured.nodes:
        if row["count"]:
            known[row["node"]] = max(row["p95_ms"], known.get(row["node"], 0.0))  # of its stages
    if not isinstance(most, Mapping):
        if not known:
            return ["p95_ms cannot be judged: no node ran that belongs to no Profiler of its own"]
        most = dict.fromkeys(known, most)
    found = []
    for node, limit in most.items():
        if node not in known:
            found.append(f"p95_ms of {shown_text('name', node)} cannot be judged: the node did not run")
        elif known[node] > limit:
            found.append(f"p95_ms of {shown_text('name', node)}: {known[node]:.3f} ms, the limit is {limit:g} ms")
    return found


def listed(counts: Mapping[str, int]) -> str:
    """Return names with their counts, the largest first."""
    ranked = sorted(((name, count) for name, count in counts.items() if count), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{shown_text('name', name)} {count}" for name, count in ranked[:_SHOWN])
    return shown + (f" and {len(ranked) - _SHOWN} more" if len(ranked) > _SHOWN else "")
