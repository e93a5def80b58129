"""Profile PyTorch Lightning with ``Trainer(profiler=Profiler())``.

Each action of the Trainer (``[LightningModule]Net.training_step``, ``run_training_batch``, ...) counts under its name,
in the Trainer's stage: ``train``, ``val`` (sanity checks, too), ``test``, ``inference`` (predict). The user's own nodes
inside an action belong to the same Profiler and stage. Works with the packages ``lightning`` and ``pytorch_lightning``:
with the one already imported, of both with the former.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cprofiling import _core
from cprofiling._internal.text import shown_value
from cprofiling.nodes import profiler as control
from cprofiling.nodes.decorators import NodeSite

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Profiler"]

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
_STAGES = {"train": "train", "sanity_check": "val", "validate": "val", "test": "test", "predict": "inference"}


def _base() -> Any:
    """Return the base class of profilers of the Lightning package in use."""
    imported = [package for package in _PACKAGES if package in sys.modules]
    there = imported or [package for package in _PACKAGES if importlib.util.find_spec(package.partition(".")[0])]
    return importlib.import_module(f"{there[0] if there else _PACKAGES[0]}.profilers").Profiler


class Profiler(_base()):  # type: ignore[misc]  # a class that is found when this is imported
    """Lightning profiler that counts by a Profiler of this package.

    At the end of each run the Trainer logs the table, or appends it to a file, as with Lightning's own profilers. A
    copy in a spawned process counts there by a new Profiler with the same options.

    Args:
        profiler: The Profiler that counts, as it is configured; default: a new one, on, with the options.
        dirpath: The folder of the file; default: the logger's.
        filename: The name of the file, without its ``.txt``; default: none, the table is logged.
        options: As of ``Profiler.set_profiling``, without ``enabled``.

    Raises:
        TypeError: An argument is of another kind, or there are options beside a Profiler.
        ValueError: An option is out of range.
    """

    def __init__(
        self,
        profiler: control.Profiler | None = None,
        *,
        dirpath: str | Path | None = None,
        filename: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(dirpath=dirpath, filename=filename)
        if profiler is not None and not isinstance(profiler, _core.Profiler):
            raise TypeError(f"profiler must be a cprofiling.Profiler, got {shown_value(profiler)}")
        if profiler is not None and options:
            raise TypeError(f"options are for a new Profiler, got {', '.join(options)} and {profiler!r}")
        self._options = options
        self._prepare(profiler)

    def _prepare(self, profiler: control.Profiler | None) -> None:
        if profiler is None:
            profiler = control.Profiler()
            profiler.set_profiling(True, **self._options)
        self.profiler = profiler
        self._sites: dict[tuple[str, str | None], NodeSite] = {}
        self._started: dict[tuple[int, str], list[NodeSite]] = {}  # by thread and action, the unstopped ones

    def start(self, action_name: str) -> None:
        """Begin an action, which may be open already, of this thread."""
        site = NodeSite(action_name, self._stage_now(), self.profiler)
        self._started.setdefault((threading.get_ident(), action_name), []).append(site)
        site.__enter__()

    def stop(self, action_name: str) -> None:
        """End this thread's latest action of this name.

        Raises ValueError without one.
        """
        key = (threading.get_ident(), action_name)
        sites = self._started.get(key)
        if sites is None:
            raise ValueError(f"action_name must be that of an action that was started, got {action_name!r}")
        site = sites.pop()
        if not sites:
            del self._started[key]
        site.__exit__(None, None, None)

    @contextlib.contextmanager
    def profile(self, action_name: str) -> Iterator[str]:
        """Count a block as an action, or as an error if it raises."""
        stage = self._stage_now()
        site = self._sites.get((action_name, stage))
        if site is None:
            site = self._sites[action_name, stage] = NodeSite(action_name, stage, self.profiler)
        with _core.stage(stage) if stage is not None else contextlib.nullcontext(), site:
            yield action_name

    def summary(self) -> str:
        """Return the table, under a title as Lightning's own profilers have it."""
        title = f"{self._stage.upper()} Profiler Report" if self._stage else "Profiler Report"
        return f"{title}{os.linesep}{self.profiler.format_profiling_summary()}{os.linesep}"

    def _stage_now(self) -> str | None:
        """Return the Trainer's stage, None if not running."""
        try:
            return _STAGES.get(self._lightning_module.trainer.state.stage.value)
        except (AttributeError, ReferenceError, RuntimeError):  # none was set, or it is gone, or has no Trainer
            return None

    def __getstate__(self) -> dict[str, Any]:
        """Drop the state of this process."""
        own = ("profiler", "_sites", "_started", "_lightning_module", "_write_stream", "_output_file")
        state = {name: value for name, value in self.__dict__.items() if name not in own}
        return state | {"_write_stream": None, "_output_file": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin anew, with a Profiler of the same options."""
        self.__dict__.update(state)
        self._prepare(None)
