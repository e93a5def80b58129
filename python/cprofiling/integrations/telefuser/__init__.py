"""Drop-in for telefuser's profiler, by one import or ``install()``.

It has the names of ``telefuser.utils.profiler``, ``.memory_snapshot`` and ``.stage_bench_harness``, and follows their
variables: ``TELEFUSER_PROFILE_DEBUG`` (when this is imported), ``TELEFUSER_TIMING_REPORT``,
``TELEFUSER_PIPELINE_NAME``, ``TELEFUSER_PROFILER_OUTPUT_DIR``, ``PROFILER_OUTPUT_DIR``, ``ENABLE_PROFILER_NAMES``, and
``TELEFUSER_TORCH_PROFILER_RECORD_SHAPES``, ``_PROFILE_MEMORY`` and ``_WITH_STACK``. They go before those of
``cprofiling.layers``. Neither telefuser nor an accelerator is needed.

It differs in this: a stage that runs again adds up; a use that an exception leaves has no time, and is counted apart;
nobody waits for a device; metadata must be what JSON can say; lines are logged by ``logging.getLogger("cprofiling")``;
reports and signatures say more.

``install()`` puts the names into telefuser's own modules, in this process only: what was decorated before stays as it
is, and a process that was not forked from this one installs them itself.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from cprofiling.integrations.telefuser import harness as _harness
from cprofiling.integrations.telefuser import memory as _memory
from cprofiling.integrations.telefuser import profiler as _profiler
from cprofiling.integrations.telefuser.harness import HarnessConfig, StageBenchHarness, main
from cprofiling.integrations.telefuser.memory import *  # noqa: F403 its names are ours
from cprofiling.integrations.telefuser.profiler import *  # noqa: F403
from cprofiling.nodes.from_patterns.import_hook import LoaderThen

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

__all__ = ["HarnessConfig", "StageBenchHarness", "install", "main", "uninstall"]
__all__ += _profiler.__all__  # which has the rest

_OURS = {
    "telefuser.utils.memory_snapshot": _memory,
    "telefuser.utils.profiler": _profiler,
    "telefuser.utils.stage_bench_harness": _harness,
}
_MISSING = object()
_replaced: dict[str, tuple[ModuleType, dict[str, object]]] = {}  # by module: it, and what it had


def install() -> None:
    """Put these names into telefuser's modules, now or on import."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    for name in _OURS:
        module = sys.modules.get(name)
        if module is not None:
            _put_into(module)


def uninstall() -> None:
    """Restore telefuser's modules."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    for module, had in _replaced.values():
        for name, value in had.items():
            if value is _MISSING:
                delattr(module, name)
            else:
                setattr(module, name, value)
    _replaced.clear()


def _put_into(module: ModuleType) -> None:
    """Put the names into a module, keeping the old ones.

    A module imported anew is another module.
    """
    known = _replaced.get(module.__name__)
    if known is not None and known[0] is module:
        return
    ours = _OURS[module.__name__]
    _replaced[module.__name__] = module, {name: vars(module).get(name, _MISSING) for name in ours.__all__}
    for name in ours.__all__:
        setattr(module, name, getattr(ours, name))


class _Finder:
    """Module finder that puts the names into telefuser's modules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification of a telefuser module, None for others."""
        if fullname not in _OURS:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if finder is self or find is None else find(fullname, path, target)
            if spec is not None:
                spec.loader = LoaderThen(spec.loader, _put_into)  # type: ignore[assignment]
                return spec
        return None


_finder = _Finder()
