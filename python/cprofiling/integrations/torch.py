"""The modules of a PyTorch model as nodes, by hooks: ``with profile_modules(model, depth=2): model(batch)``.

The hooks are in the modules themselves. Copies and pickles of a model have hooks in their place that do nothing, and
need no cprofiling. Replicas that share the hooks (``DataParallel``) count under the same names.

Under ``torch.compile`` results are equal. A module that is compiled counts as a whole; each call of a profiled module
inside of one breaks the graph, so that there is something to count: profile no deeper than you compile, and take the
profile off for ``fullgraph=True``.
"""

from __future__ import annotations

import contextlib
import fnmatch
import sys
import threading
from collections.abc import Mapping
from contextvars import ContextVar

import torch

from cprofiling import checks
from cprofiling.format import shown_value
from cprofiling.integrations.profiled import Profiled
from cprofiling.nodes import NodeSite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType
    from typing import Any

    from cprofiling import _core
    from cprofiling.nodes import StageName

__all__ = ["Profiled", "profile_modules"]

_CALL = torch.nn.Module._call_impl.__code__
_CUT_SHORT = "_StopRecomputationError"  # how torch.utils.checkpoint leaves a module when it has what it needs
_UNFINISHED = (BaseException, None, None)  # how a call ends of which nobody told
_open: ContextVar[_Call | None] = ContextVar("open", default=None)
_settling = threading.Lock()  # guards which of a module's nodes count


def profile_modules(
    model: torch.nn.Module,
    depth: int = 1,
    names: Mapping[str, str] | Iterable[str] | None = None,
    *,
    stage: StageName = None,
    profiler: _core.Profiler | None = None,
) -> Profiled:
    """Count the calls of a model's modules as those of nodes, by forward hooks, until the handle is removed.

    A call that raises counts as an error; one that ``torch.utils.checkpoint`` repeats counts again.
    A module that has several places in the model is one node, under the name of its first. Profiled twice for one
    Profiler, it counts once, under the newer name.

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
        ValueError: ``depth`` is below 0; there is no module of a name.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {shown_value(model)}")
    depth = checks.index_between("depth", depth, 0)
    root = type(model).__name__
    how: dict[str, Any] = {"stage": stage, "profiler": profiler}
    if names is None:
        levels = range(min(depth, 1), depth + 1)
        return put_hooks([(path or root, module) for path, module, level in _walk(model) if level in levels], **how)
    if isinstance(names, str):
        raise TypeError(f"names must be paths of modules, or a mapping of them, got {names!r}")
    modules = {path: module for path, module, _ in _walk(model)}
    return put_hooks([(name or root, modules[path]) for path, name in _chosen(modules, names).items()], **how)


def put_hooks(
    modules: Iterable[tuple[str, torch.nn.Module]],
    *,
    stage: StageName = None,
    profiler: _core.Profiler | None = None,
) -> Profiled:
    """Make a node of each module, under the name that goes with it."""
    sites = [(module, NodeSite(name, stage, profiler)) for name, module in modules]  # wrong ones raise before any hook
    handles = [_put(module, _Node(site)) for module, site in sites]
    return Profiled([str(site.name) for _, site in sites], [handle.remove for handle in handles])


def _walk(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module, int]]:
    """Return a model and the modules below it, each once: their paths, and how deep they are."""
    seen = set()
    waiting = [("", model, 0)]
    while waiting:
        path, module, level = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        is_called = not isinstance(module, (torch.nn.ModuleList, torch.nn.ModuleDict))
        if is_called:
            yield path, module, level
        below = level + (is_called or module is model)
        children = dict(module.named_children())
        if "_orig_mod" in children:  # torch.compile made the module of this one
            children = dict(children["_orig_mod"].named_children())
        waiting += [(f"{path}.{name}" if path else name, child, below) for name, child in reversed(children.items())]


def _chosen(modules: Mapping[str, torch.nn.Module], names: Mapping[str, str] | Iterable[str]) -> dict[str, str]:
    """Return the names of the nodes that were asked for by the paths of their modules."""
    renamed = names if isinstance(names, Mapping) else {}
    found: dict[str, str] = {}
    for pattern in names:
        if not isinstance(pattern, str):
            raise TypeError(f"names must be paths of modules, got {shown_value(pattern)}")
        paths = [pattern] if pattern in modules or renamed else fnmatch.filter(modules, pattern)
        if not paths or paths[0] not in modules:
            raise ValueError(f"names must be paths of modules, got {pattern!r}, which is none of {', '.join(modules)}")
        found.update({path: renamed.get(path, path) for path in paths})
    return found


class _Node:
    """A module's node: what opens and closes its calls."""

    __slots__ = ("counts", "idle", "site")

    def __init__(self, site: NodeSite) -> None:
        self.site = site
        self.idle: list[NodeSite] = []  # such as no call uses
        self.counts = True  # unless a newer one of the same Profiler does

    def opened(self) -> NodeSite:
        """Open a call, in an object of its own: what opens and what closes it are two frames."""
        try:
            site = self.idle.pop()
        except IndexError:
            site = NodeSite(self.site.name, self.site.stage, self.site.profiler)
        site.__enter__()
        return site


class _Call:
    """An open call, in the list of its thread or task."""

    __slots__ = ("error", "frame", "node", "outer", "site", "thread")

    def __init__(self, node: _Node, frame: FrameType | None, outer: _Call | None) -> None:
        self.node = node
        self.frame = frame  # that calls the module
        self.outer = outer
        self.error = id(sys.exc_info()[1])  # one that is being handled further out
        self.thread = threading.get_ident()
        self.site: NodeSite | None = node.opened()

    def end(self, *exception: Any) -> None:
        """Close it, if it is open."""
        site, self.site = self.site, None
        self.frame = None
        if site is not None:
            site.__exit__(*exception)
            self.node.idle.append(site)


class _Hook:
    """A hook, which its module keeps, and which copies and pickles of the module are not to have."""

    __slots__ = ("node",)

    def __init__(self, node: _Node) -> None:
        self.node = node

    def __reduce__(self) -> tuple[Any, ...]:
        """Reduce to what does nothing whatever it is called with, and is there without cprofiling."""
        return getattr, (contextlib.nullcontext(), "__exit__")


class _Before(_Hook):
    __slots__ = ()

    def __call__(self, module: torch.nn.Module, args: Any) -> None:
        if self.node.counts:
            frame = _calling(sys._getframe(1))
            _open.set(_Call(self.node, frame, _running(frame)))


class _After(_Hook):
    __slots__ = ()

    def __call__(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        """End the call; it is told of exceptions, too, by being called while one is handled."""
        frame = _calling(sys._getframe(1))
        inner = call = _open.get()
        while call is not None and (call.node is not self.node or call.frame is not frame):
            call = call.outer
        if call is None:
            return  # it began before the hooks were there
        while inner is not None and inner is not call:
            inner.end(*_UNFINISHED)
            inner = inner.outer
        _open.set(call.outer)
        error = sys.exc_info()
        if error[1] is None or id(error[1]) == call.error or type(error[1]).__name__ == _CUT_SHORT:
            call.end(None, None, None)
        else:
            call.end(*error)


def _calling(caller: FrameType | None) -> FrameType | None:
    """Return the frame that calls the module: the same one for both hooks, also where an exception ends the call."""
    while caller is not None and caller.f_code is not _CALL:
        caller = caller.f_back
    return caller


def _running(frame: FrameType | None) -> _Call | None:
    """Return the innermost open call; those that hooks were not told of, as for interrupts, are ended."""
    call = _open.get()
    while call is not None and call.thread == threading.get_ident() and _has_ended(call, frame):
        call.end(*_UNFINISHED)
        call = call.outer
    return call


def _has_ended(call: _Call, frame: FrameType | None) -> bool:
    """Whether a call of this thread, or of another greenlet or task, is known not to run around a frame."""
    if call.site is None:
        return True
    if frame is None or call.frame is None:
        return False
    while frame is not None and frame is not call.frame:
        frame = frame.f_back
    return frame is None


def _put(module: torch.nn.Module, node: _Node) -> Profiled:
    with _settling:
        before = module.register_forward_pre_hook(_Before(node), prepend=True)
        after = module.register_forward_hook(_After(node), always_call=True)
        _settle(module)

    def remove() -> None:
        with _settling:
            before.remove()
            after.remove()
            _settle(module)

    return Profiled((), [remove])


def _settle(module: torch.nn.Module) -> None:
    """Have of several nodes of one Profiler the newest one count."""
    profilers = set()
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, _Before):
            profiler = hook.node.site.profiler
            hook.node.counts = profiler not in profilers
            profilers.add(profiler)


def _keep_out_of_graphs() -> None:
    """Have torch.compile run the hooks, and what they call, as they are, without loading it."""
    for hook in (_Before, _After):
        function: Any = hook.__call__
        function._torchdynamo_disable = True
        function._torchdynamo_disable_msg = "it counts the calls of a module, see cprofiling.integrations.torch"
        with contextlib.suppress(AttributeError):  # of other versions: there it may compile the hooks, too
            frames = torch._C._dynamo.eval_frame
            skip = frames._FrameAction.SKIP
            frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))


_keep_out_of_graphs()
