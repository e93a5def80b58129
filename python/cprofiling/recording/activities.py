"""Activities, resources and formats of a recording."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import Enum, Flag, IntEnum
from typing import Any

from cprofiling._internal.text import shown_value


class ProfilerActivity(Enum):
    """Kind of processor to record, named as in torch.profiler."""

    CPU = "cpu"
    CUDA = "cuda"
    XPU = "xpu"
    PrivateUse1 = "npu"
    NPU = PrivateUse1  # the same, by the name that such devices go by


class Resource(Flag):
    """Category of events.

    Others are neither recorded nor paid for.
    """

    CPU = 1
    """Nodes, labelled blocks, operators."""
    NPU = 2
    """Work of devices of all kinds, and the calls that start it."""
    ALL = 3


class RecordFormat(IntEnum):
    """Output made when a recording ends."""

    ChromeTrace = 0
    """A Chrome trace, in the file that was given, if any."""
    PandasDataFrame = 1
    """Nothing is written."""


ON_DEVICES = frozenset((ProfilerActivity.CUDA, ProfilerActivity.XPU, ProfilerActivity.NPU))


def activities_of(wanted: Iterable[Any] | None) -> frozenset[ProfilerActivity] | None:
    """Return the requested activities, None for all available ones.

    wanted: members of ``ProfilerActivity``, of torch's class of that name, or names like "cpu". Raises TypeError or
    ValueError for anything else, and for an empty collection.
    """
    if wanted is None:
        return None
    if isinstance(wanted, (str, Enum)) or not hasattr(wanted, "__iter__"):
        raise TypeError(f"activities must be a collection of ProfilerActivity, got {shown_value(wanted)}")
    known = {name.lower(): activity for name, activity in ProfilerActivity.__members__.items()}
    found = set()
    for value in wanted:
        name = getattr(value, "name", None) if type(value).__name__ == "ProfilerActivity" else value
        if not isinstance(name, str):
            raise TypeError(f"activities must be members of ProfilerActivity or their names, got {shown_value(value)}")
        if name.lower() not in known:
            names = ", ".join(ProfilerActivity.__members__)
            raise ValueError(f"activities must be of {names}, got {shown_value(value)}")
        found.add(known[name.lower()])
    if not found:
        raise ValueError("activities must name at least one activity, got none; None stands for all there are")
    return frozenset(found)


def missing_reason(activity: ProfilerActivity) -> str | None:
    """Return why an activity cannot be recorded here, None if it can.

    PyTorch is asked if it is loaded, never imported. CUDA devices are recorded without it, too.
    """
    reason = torch_reason(activity)
    if reason is None or activity is not ProfilerActivity.CUDA:
        return reason
    from cprofiling.devices import cupti

    other = cupti.missing_reason()
    return None if other is None else f"{reason}; and {other}"


def torch_reason(activity: ProfilerActivity) -> str | None:
    """Return why PyTorch cannot record an activity, None if it can.

    None also for the CPU.
    """
    if activity is ProfilerActivity.CPU:
        return None
    torch = sys.modules.get("torch")
    if torch is None:
        return "work on devices is recorded through PyTorch, which this program has not loaded"
    try:
        name = {ProfilerActivity.CUDA: "cuda", ProfilerActivity.XPU: "xpu"}.get(activity)
        if name is None:
            name = torch._C._get_privateuse1_backend_name()
        backend = getattr(torch, name, None)
        if backend is None or not backend.is_available():
            return f"PyTorch {torch.__version__} finds no device of this kind"
        if not any(each.name == activity.name for each in torch.profiler.supported_activities()):
            return f"the profiler of PyTorch {torch.__version__} was built without it"
    except Exception as error:  # noqa: BLE001 whatever a driver answers with, it is a reason
        return f"PyTorch cannot tell: {error}"
    return None


def supported_activities() -> set[ProfilerActivity]:
    """Return the activities that can be recorded here and now.

    PyTorch is asked if it is loaded, never imported.
    """
    return {activity for activity in ProfilerActivity if missing_reason(activity) is None}
