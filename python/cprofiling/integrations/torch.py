"""Profile the modules of a PyTorch model as nodes, by hooks.

``with profile_modules(model, depth=2): model(batch)``. Under ``torch.compile`` results are equal. A compiled module
counts as a whole; each call of a profiled module inside one breaks the graph, so that there is something to count:
profile no deeper than you compile, and remove the profile for ``fullgraph=True``.
"""

from __future__ import annotations

import fnmatch
import reprlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cprofiling._internal import arguments
from cprofiling._internal.text import checked_text, shown_value
from cprofiling.integrations.handle import Profiled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import torch

    from cprofiling import _core
    from cprofiling.nodes.decorators import StageName

__all__ = ["Profiled", "profile_modules"]


def profile_modules(
    model: torch.nn.Module,
    depth: int = 1,
    names: Mapping[str, str] | Iterable[str] | None = None,
    *,
    stage: StageName = None,
    profiler: _core.Profiler | None = None,
) -> Profiled:
    """Count calls of a model's modules until the handle is removed.

    A call that raises counts as an error; one that ``torch.utils.checkpoint`` repeats counts again. A module with
    several places in the model is one node, under the name of its first. Profiled twice for one Profiler, it counts
    once, under the newer name.

    Args:
        model: Any module; of one that ``torch.compile`` made, the modules of its original.
        depth: How deep to go: 1 are the model's children, 2 theirs, too, and so on; 0 is the model itself. Lists and
            dicts of modules, which nobody calls, are no level.
        names: Which modules, at any depth: their paths as in ``named_modules()``, "" for the model, with wildcards as
            in ``fnmatch``; or by path the names of their nodes. Default: all down to ``depth``, named by their paths,
            the model by its class.
        stage: The execution stage to count under; default: the one in force.
        profiler: The Profiler that counts; default: as for ``profile_node``.

    Raises:
        TypeError: An argument is of another kind.
        ValueError: ``depth`` is below 0; no module has a given name.
        RuntimeError: A module takes no hooks, as one of ``torch.jit.script``; choose others by ``names``.
    """
    import torch

    from cprofiling.integrations.torch_hooks import put_hooks

    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {shown_value(model)}")
    depth = arguments.index_between("depth", depth, 0)
    if isinstance(names, str):
        raise TypeError(f"names must be paths of modules, or a mapping of them, got {names!r}")
    modules = {path: (module, level) for path, module, level in _walk(model)}
    default = {path: path or type(model).__name__ for path in modules}
    chosen: dict[str, str] = {}
    if names is None:
        chosen = {path: default[path] for path, (_, level) in modules.items() if min(depth, 1) <= level <= depth}
    for pattern in names or ():
        if not isinstance(pattern, str):
            raise TypeError(f"names must be paths of modules, got {shown_value(pattern)}")
        matching = [pattern] if pattern in default else fnmatch.filter(default, pattern)
        if not matching:
            known = reprlib.repr(list(default))
            raise ValueError(f"names must be paths of modules, got {pattern!r}, which is none of {known}")
        if isinstance(names, Mapping):
            chosen.update(dict.fromkeys(matching, checked_text(f"names[{pattern!r}]", names[pattern])))
        else:
            chosen.update({path: default[path] for path in matching})
    return put_hooks([(name, modules[path][0]) for path, name in chosen.items()], stage=stage, profiler=profiler)


def _walk(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module, int]]:
    """Yield the called modules of a model once, with path and depth."""
    from torch.nn import ModuleDict, ModuleList

    levels: dict[str, int] = {}
    for path, module in model.named_modules():
        parent, _, name = path.rpartition(".")
        is_original = name == "_orig_mod"  # torch.compile made its parent of it, and is called for it
        is_called = not is_original and not isinstance(module, (ModuleList, ModuleDict))
        levels[path] = levels[parent] + is_called if path else 0
        if is_called:
            yield ".".join(part for part in path.split(".") if part != "_orig_mod"), module, levels[path]
