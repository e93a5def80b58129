"""Profile the modules of a PyTorch model as nodes, by forward hooks.

``with profile_modules(model, depth=2): model(batch)``. Under ``torch.compile`` results are equal. A compiled module
counts as a whole; each call of a profiled module inside one breaks the graph, so that there is something to count:
profile no deeper than you compile, and remove the profile for ``fullgraph=True``.

The hooks are in the modules themselves. Copies and pickles of a module have no-ops in their place, which need no
cprofiling. Replicas that share the hooks (``DataParallel``) count under the same names.
"""

from __future__ import annotations

import contextlib
import fnmatch
import reprlib
import sys
import threading
from collections.abc import Iterable, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn import ModuleDict, ModuleList

from cprofiling._internal import arguments
from cprofiling._internal.text import checked_text, shown_value
from cprofiling.integrations.handle import Profiled
from cprofiling.nodes.decorators import NodeSite

if TYPE_CHECKING:
    from cprofiling import _core
    from cprofiling.nodes.decorators import StageName

__all__ = ["Profiled", "profile_modules"]

_CALL = torch.nn.Module._call_impl.__code__
_CUT_SHORT = "_StopRecomputationError"  # how torch.utils.checkpoint leaves a module when it has what it needs


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
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {shown_value(model)}")
    depth = arguments.index_between("depth", depth, 0)
    if isinstance(names, str):
        raise TypeError(f"names must be paths of modules, or a mapping of them, got {names!r}")
    modules: dict[str, tuple[torch.nn.Module, int]] = {}
    levels: dict[str, int] = {}
    for path, module in model.named_modules():
        parent, _, name = path.rpartition(".")
        is_original = name == "_orig_mod"  # torch.compile made its parent of it, and is called for it
        is_called = not is_original and not isinstance(module, (ModuleList, ModuleDict))
        levels[path] = levels[parent] + is_called if path else 0
        if is_called:
            modules[".".join(part for part in path.split(".") if part != "_orig_mod")] = module, levels[path]
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


def put_hooks(
    modules: Iterable[tuple[str, torch.nn.Module]],
    *,
    stage: StageName = None,
    profiler: _core.Profiler | None = None,
) -> Profiled:
    """Make each module a node of its name until the handle is removed.

    Raises TypeError and ValueError for a wrong name, stage or profiler, RuntimeError for a module that takes no hooks;
    no module has one then.
    """
    hooks = [(module, _Hook(NodeSite(name, stage, profiler))) for name, module in modules]
    with contextlib.ExitStack() as undo:
        undo.callback(_end_what_is_over)
        for module, hook in hooks:
            undo.callback(module.register_forward_pre_hook(hook, prepend=True).remove)
            undo.callback(module.register_forward_hook(hook, always_call=True).remove)
        kept = undo.pop_all()
    return Profiled((str(hook.site.name) for _, hook in hooks), [kept.close])


class _Call(NamedTuple):
    """An open call of a module."""

    hook: _Hook
    frame: FrameType | None  # that calls the module: the same one for both hooks
    site: NodeSite  # of its own: what opens it and what closes it are two frames
    error: int  # the id of the exception that is being handled further out


class _Here(threading.local):
    """Open calls of a thread, innermost last.

    Greenlets may mix theirs.
    """

    def __init__(self) -> None:
        self.calls: list[_Call] = []


_here = _Here()


class _Hook:
    """Hook that runs first in a call, and at its end, also on an exception."""

    __slots__ = ("site",)

    def __init__(self, site: NodeSite) -> None:
        self.site = site

    def __call__(self, module: torch.nn.Module, args: Any, *output: Any) -> None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code is not _CALL:
            frame = frame.f_back
        if output:
            self._close(frame)
        elif self._is_newest(module):
            _end_what_is_over()
            site = NodeSite(self.site.name, self.site.stage, self.site.profiler)
            _here.calls.append(_Call(self, frame, site, id(sys.exc_info()[1])))
            site._enter_call(args)

    def __reduce__(self) -> tuple[Any, ...]:
        """Reduce to a no-op that needs no cprofiling."""
        return getattr, (contextlib.nullcontext(), "__exit__")

    def _is_newest(self, module: torch.nn.Module) -> bool:
        """Return whether this hook counts for its Profiler."""
        for hook in tuple(module._forward_pre_hooks.values()):
            if hook is self:
                return True
            if isinstance(hook, _Hook) and hook.site.profiler is self.site.profiler:
                return False
        return False  # it was removed a moment ago

    def _close(self, frame: FrameType | None) -> None:
        calls = _here.calls
        for call in reversed(calls):
            if call.hook is self and call.frame is frame:
                break
        else:
            return  # it began before the hooks were there, or does not count
        if call is not calls[-1]:
            _end_what_is_over()
        kind, error, _ = sys.exc_info()
        fails = error is not None and id(error) != call.error and type(error).__name__ != _CUT_SHORT
        _end(calls, call, kind if fails else None)


def _end_what_is_over() -> None:
    """End as errors this thread's calls that hooks missed, by interrupts."""
    calls = _here.calls
    while calls and (call := calls[-1]).frame is not None:
        try:
            call.frame.clear()
        except RuntimeError:  # it runs, in this greenlet or another
            return
        _end(calls, call, BaseException)


def _end(calls: list[_Call], call: _Call, error: type[BaseException] | None) -> None:
    with contextlib.suppress(RuntimeError):  # an interrupt came before it began, or after it ended
        call.site.__exit__(error, None, None)
    if call in calls:  # else a finalizer called a module meanwhile, and its hooks did the same
        calls.remove(call)


def _keep_out_of_graphs(function: Any) -> None:
    """Exclude a function from torch.compile, without loading it."""
    function._torchdynamo_disable = True
    function._torchdynamo_disable_msg = "it counts the calls of a module, see cprofiling.integrations.torch"
    with contextlib.suppress(AttributeError):  # of other versions: there it may compile the hooks, too
        frames = torch._C._dynamo.eval_frame
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))


_keep_out_of_graphs(_Hook.__call__)
