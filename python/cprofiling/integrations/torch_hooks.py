"""Forward hooks that make nodes of PyTorch's modules.

They are in the modules themselves. Copies and pickles of a module have in their place what does nothing, and needs no
cprofiling. Replicas that share the hooks (``DataParallel``) count under the same names.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING, NamedTuple

import torch

from cprofiling.integrations.handle import Profiled
from cprofiling.nodes.decorators import NodeSite

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType
    from typing import Any

    from cprofiling import _core
    from cprofiling.nodes.decorators import StageName

_CALL = torch.nn.Module._call_impl.__code__
_CUT_SHORT = "_StopRecomputationError"  # how torch.utils.checkpoint leaves a module when it has what it needs


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
    while calls and _is_over((call := calls[-1]).frame):
        _end(calls, call, BaseException)


def _is_over(frame: FrameType | None) -> bool:
    """Return whether a frame has finished, without keeping anything alive."""
    if frame is None:
        return False
    try:
        frame.clear()
    except RuntimeError:  # it runs, in this greenlet or another
        return False
    return True


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
