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
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import ModuleDict, ModuleList

from cprofiling import _core
from cprofiling._internal import arguments
from cprofiling._internal.text import checked_text, shown_value
from cprofiling.integrations.handle import Profiled

if TYPE_CHECKING:
    from cprofiling.nodes.decorators import StageName

__all__ = ["Profiled", "profile_modules"]

_CALL = torch.nn.Module._call_impl.__code__
_CUT_SHORT = "_StopRecomputationError"  # how torch.utils.checkpoint leaves a module when it has what it needs
_NO_OUTPUT = object()


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
    hooks = [(module, _Hook(name, stage, profiler)) for name, module in modules]
    with contextlib.ExitStack() as undo:
        undo.callback(_end_what_is_over)
        for module, hook in hooks:
            undo.callback(hook.leave, module)
            undo.callback(module.register_forward_pre_hook(hook, prepend=True).remove)
            undo.callback(module.register_forward_hook(hook, always_call=True).remove)
            _choose_newest(module)
        kept = undo.pop_all()
    return Profiled((str(hook.name) for _, hook in hooks), [kept.close])


class _Here(threading.local):
    """Open calls of a thread, innermost last.

    Greenlets may mix theirs.
    """

    def __init__(self) -> None:
        self.calls: list[_Hook] = []


_here = _Here()


class _Hook(_core.Block):
    """Hook that runs first in a call, and at its end, also on an exception.

    It is also the open call. While it is one, other calls by threads or by the module itself are hooks that stand in.
    """

    __slots__ = ("calls", "counts", "frame", "is_free", "stands_for")

    def __init__(self, *node: object) -> None:
        self.counts = True
        self.is_free = True
        self.stands_for: _Hook | None = None
        self.frame: FrameType | None = None  # that calls the module: the same one for both hooks
        self.calls: list[_Hook] = []  # of the thread

    def __call__(self, module: torch.nn.Module, args: Any, output: Any = _NO_OUTPUT) -> None:
        try:
            frame: FrameType | None = sys._getframe(2)  # PyTorch has a function between
        except ValueError:  # the module runs its hooks itself, first of all in a greenlet or thread
            frame = sys._getframe(1)
        if output is not _NO_OUTPUT:
            if self.frame is frame and self.calls[-1] is self:
                self.__exit__(None)
                self.calls.pop()
                self.frame = None
                self.is_free = True
            else:
                self._close(_calling(sys._getframe(1)))
            return
        if not self.counts:
            return
        if frame is None or frame.f_code is not _CALL:
            frame = _calling(sys._getframe(1))
        calls = _here.calls
        try:
            if calls and calls[-1].frame is not sys._getframe(6):  # usually that calls the module around this one
                _end_what_is_over()
        except ValueError:  # not as many frames are around
            _end_what_is_over()
        is_free, self.is_free = self.is_free, False  # in one step: other threads come here, too
        call = self
        if not is_free:
            call = _Hook(self.name, self.stage, self.profiler)
            call.stands_for = self
        call.calls = calls
        call.frame = frame
        calls.append(call)
        call._enter_call(args)

    def __reduce__(self) -> tuple[Any, ...]:
        """Reduce to a no-op that needs no cprofiling."""
        return getattr, (contextlib.nullcontext(), "__exit__")

    def leave(self, module: torch.nn.Module) -> None:
        """Count no more, but let an older hook."""
        self.counts = False
        _choose_newest(module)

    def _close(self, frame: FrameType | None) -> None:
        calls = _here.calls
        for call in reversed(calls):
            if call.frame is frame and self in (call, call.stands_for):
                break
        else:
            return  # it began before the hooks were there, or does not count
        if call is not calls[-1]:
            _end_what_is_over()
        kind, _, traceback = sys.exc_info()
        if kind is not None and kind.__name__ == _CUT_SHORT:
            kind = None
        # The traceback of an exception that is being handled further out begins there.
        fails = traceback is not None and traceback.tb_frame is sys._getframe(2)
        _end(calls, call, kind if fails else None)


_Hook.own_methods()


def _calling(frame: FrameType | None) -> FrameType | None:
    """Return the nearest frame that calls a module, of this one and its callers."""
    while frame is not None and frame.f_code is not _CALL:
        frame = frame.f_back
    return frame


def _choose_newest(module: torch.nn.Module) -> None:
    """Have one hook of a module count for each Profiler."""
    profilers: list[_core.Profiler | None] = []
    for hook in tuple(module._forward_pre_hooks.values()):
        if isinstance(hook, _Hook):
            hook.counts = hook.profiler not in profilers
            profilers.append(hook.profiler)


def _end_what_is_over() -> None:
    """End as errors this thread's calls that hooks missed, by interrupts."""
    calls = _here.calls
    while calls and (call := calls[-1]).frame is not None:
        try:
            call.frame.clear()
        except RuntimeError:  # it runs, in this greenlet or another
            return
        _end(calls, call, BaseException)


def _end(calls: list[_Hook], call: _Hook, error: type[BaseException] | None) -> None:
    if call in calls:
        with contextlib.suppress(RuntimeError):  # an interrupt came before it began, or after it ended
            call.__exit__(error, None, None)
    if call in calls:  # else a finalizer called a module meanwhile, and its hooks did the same
        calls.remove(call)
        call.frame = None
        call.is_free = True


def _keep_out_of_graphs(function: Any) -> None:
    """Exclude a function from torch.compile, without loading it."""
    function._torchdynamo_disable = True
    function._torchdynamo_disable_msg = "it counts the calls of a module, see cprofiling.integrations.torch"
    with contextlib.suppress(AttributeError):  # of other versions: there it may compile the hooks, too
        frames = torch._C._dynamo.eval_frame
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))


_keep_out_of_graphs(_Hook.__call__)
