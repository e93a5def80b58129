"""Profile each step of TorchFX pipelines that really runs.

``wave | chain`` runs nothing: reading ``.ys`` does, by a plan in which neighbouring filters are one fused cascade.
``with profile_waves(): (wave | chain).ys`` makes nodes of the plan's steps, named by place and class: ``0
FusedSOSCascade(HiButterworth, LoButterworth)``, ``1 Normalize``.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cprofiling._internal.process import hold_at_fork
from cprofiling.integrations.handle import Profiled
from cprofiling.nodes.decorators import NodeSite, profile_node

if TYPE_CHECKING:
    from torchfx import Wave

    from cprofiling import _core
    from cprofiling.nodes.decorators import StageName

    Settings = tuple[str | None, _core.Profiler | None]

__all__ = ["Profiled", "profile_waves"]

_LONGEST = 3_000  # bytes of a list of filters: a node's name has at most 4,096
_patching = threading.RLock()  # finalizers may remove
hold_at_fork(_patching)


class _Patch:
    """Replacement of TorchFX's method that runs a wave, while in use."""

    wanted: list[Settings] = []  # noqa: RUF012 it is the process's; the newest last
    original: Any = None
    ours: Any = None


def profile_waves(*, stage: StageName = None, profiler: _core.Profiler | None = None) -> Profiled:
    """Count the steps of all waves until the handle is removed.

    With several handles for one Profiler a step counts once.

    stage: execution stage; default: the one in force. profiler: the Profiler that counts; default: as for
    ``profile_node``.

    Raises TypeError and ValueError for a wrong stage or profiler, AttributeError if TorchFX makes no plans.
    """
    from torchfx import Wave

    Wave._build_plan  # noqa: B018 if missing, nothing is changed
    site = NodeSite("", stage, profiler)  # checks them
    settings = (site.stage, site.profiler)
    with _patching:
        _Patch.wanted.append(settings)
        if Wave._materialize is not _Patch.ours:
            _Patch.original, _Patch.ours = Wave._materialize, _counting(Wave._materialize)
            Wave._materialize = _Patch.ours

    def remove() -> None:
        with _patching:
            _Patch.wanted.remove(settings)
            if not _Patch.wanted and Wave._materialize is _Patch.ours:  # else somebody's is on top of it
                Wave._materialize = _Patch.original

    return Profiled((), [remove])


def _counting(run: Callable[[Wave], None]) -> Callable[[Wave], None]:
    """Return a function that runs a wave by a plan of counting steps."""

    @functools.wraps(run)
    def materialize(wave: Wave) -> None:
        make_plan = wave._build_plan
        # In the wave itself: who asks for a plan without running it gets TorchFX's.
        vars(wave)["_build_plan"] = lambda pipeline: [_node(*step) for step in enumerate(make_plan(pipeline))]
        try:
            run(wave)
        finally:
            vars(wave).pop("_build_plan", None)

    return materialize


def _node(place: int, step: Any) -> Any:
    """Return a step that counts its calls and otherwise behaves the same.

    Its node is called by its class, with those of filters fused in it.
    """
    with contextlib.suppress(Exception):  # what cannot be counted runs all the same
        name, filters = f"{place} {type(step).__name__}", getattr(step, "_filters", None)
        if isinstance(filters, list):
            parts = [type(each).__name__ for each in filters]
            if len(", ".join(parts).encode()) > _LONGEST:
                parts = [f"{len(parts)} filters"]
            gain = getattr(step, "_gain", 1.0)
            name += f"({', '.join(parts if gain == 1.0 else [*parts, f'gain {gain}'])})"
        for stage, profiler in tuple(_Patch.wanted):
            step = profile_node(step, name=name, stage=stage, profiler=profiler)
    return step
