"""TorchFX's pipelines: a node for each step that really runs.

``wave | chain`` runs nothing: only reading ``.ys`` does, by a plan that TorchFX makes, in which filters that follow
each other are one fused cascade. ``with profile_waves(): (wave | chain).ys`` makes nodes of the plan's steps, named by
their place in it and their class: ``0 FusedSOSCascade(HiButterworth, LoButterworth)``, ``1 Normalize``.
"""

from __future__ import annotations

import functools
import inspect
import threading

from cprofiling.integrations.profiled import Profiled
from cprofiling.nodes import NodeSite, profile_node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from torchfx import Wave

    from cprofiling import _core
    from cprofiling.nodes import StageName

    Settings = tuple[str | None, _core.Profiler | None]

__all__ = ["Profiled", "profile_waves"]

_LONGEST = 3_000  # bytes of a list of filters: a node's name has at most 4,096
_PATCHED = ("_materialize", "_build_plan")
_patching = threading.Lock()


class _Running(threading.local):
    """How many waves this thread runs, one inside the other."""

    waves = 0


class _Patch:
    """What is in TorchFX while somebody wants it."""

    wanted: tuple[Settings, ...] = ()  # the newest last
    originals: tuple[Any, ...] = ()
    ours: tuple[Any, ...] = ()


_running = _Running()


def profile_waves(*, stage: StageName = None, profiler: _core.Profiler | None = None) -> Profiled:
    """Count the steps of all waves that run from now on as calls of nodes, until the handle is removed.

    Of several handles for one Profiler a step counts once.

    stage: the execution stage to count under; default: the one in force. profiler: the Profiler that counts; default:
    as for ``profile_node``.

    Raises TypeError and ValueError for a wrong stage or profiler, AttributeError where TorchFX makes no plans.
    """
    site = NodeSite("", stage, profiler)  # checks them
    settings = (site.stage, site.profiler)
    with _patching:
        if not _Patch.wanted:
            _put_in()
        _Patch.wanted = (*_Patch.wanted, settings)
    return Profiled((), [functools.partial(_remove, settings)])


def _remove(settings: Settings) -> None:
    from torchfx import Wave

    with _patching:
        left = list(_Patch.wanted)
        left.remove(settings)
        _Patch.wanted = tuple(left)
        if left:
            return
        for name, original, our in zip(_PATCHED, _Patch.originals, _Patch.ours, strict=True):
            if inspect.getattr_static(Wave, name) is our:  # else somebody's is on top of it
                setattr(Wave, name, original)


def _put_in() -> None:
    """Put our own methods in the places of TorchFX's: plans have nodes only where a wave runs them."""
    from torchfx import Wave

    originals = tuple(inspect.getattr_static(Wave, name) for name in _PATCHED)
    run, make_plan = (getattr(Wave, name) for name in _PATCHED)

    @functools.wraps(run)
    def materialize(wave: Wave) -> None:
        _running.waves += 1
        try:
            run(wave)
        finally:
            _running.waves -= 1

    @functools.wraps(make_plan)
    def build_plan(pipeline: list[Any]) -> list[Any]:
        plan = make_plan(pipeline)
        return [_node(place, step) for place, step in enumerate(plan)] if _running.waves else plan

    _Patch.originals, _Patch.ours = originals, (materialize, staticmethod(build_plan))
    for name, our in zip(_PATCHED, _Patch.ours, strict=True):
        setattr(Wave, name, our)


def _node(place: int, step: Any) -> Any:
    """Return what counts a step's calls; all else it answers as the step does."""
    for stage, profiler in _Patch.wanted:
        step = profile_node(step, name=f"{place} {_name_of(step)}", stage=stage, profiler=profiler)
    return step


def _name_of(step: Any) -> str:
    """Return what a step is called: its class, and that of each filter where several are fused in it."""
    filters = getattr(step, "_filters", None)
    name = type(inspect.unwrap(step)).__name__
    if not isinstance(filters, list):
        return name
    parts = [type(each).__name__ for each in filters]
    if len(", ".join(parts).encode()) > _LONGEST:
        parts = [f"{len(parts)} filters"]
    gain = getattr(step, "_gain", 1.0)
    return f"{name}({', '.join(parts if gain == 1.0 else [*parts, f'gain {gain}'])})"
