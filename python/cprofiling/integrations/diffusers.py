"""Profile the components of a diffusers pipeline as nodes.

``with profile_pipeline(pipe, profiler=p): pipe("a prompt")`` counts each model under its component's name (``unet``,
``text_encoder``), by hooks as in ``cprofiling.integrations.torch``; the scheduler's ``step`` as ``scheduler``; methods
that a pipeline calls by name as ``vae.decode``, ``vae.encode``, ``scheduler.set_timesteps``; a tokenizer as itself.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cprofiling._internal.text import shown_value
from cprofiling.integrations.handle import Profiled
from cprofiling.nodes.decorators import NodeSite, profile_node
from cprofiling.nodes.instrumentation import surround

if TYPE_CHECKING:
    from cprofiling import _core
    from cprofiling.nodes.decorators import StageName
    from cprofiling.nodes.instrumentation import Instrumentation

__all__ = ["Profiled", "profile_pipeline"]

_OF_MODELS = {"encode": ".encode", "decode": ".decode", "generate": ".generate"}
_OF_OTHERS = {
    "__call__": "", "step": "", "set_timesteps": ".set_timesteps", "add_noise": ".add_noise",
    "preprocess": ".preprocess", "postprocess": ".postprocess",
}  # fmt: skip


def profile_pipeline(pipeline: Any, *, stage: StageName = None, profiler: _core.Profiler | None = None) -> Profiled:
    """Count calls of a pipeline's components until the handle is removed.

    A component that is replaced meanwhile is not counted any more; another pipeline that shares components is.

    pipeline: any object with ``components``, such as a ``DiffusionPipeline``. stage: execution stage; default: the one
    in force. profiler: the Profiler that counts; default: as for ``profile_node``.

    Raises TypeError for an object without components, and for a wrong stage or profiler.
    """
    import torch

    from cprofiling.integrations.torch import put_hooks

    components = getattr(pipeline, "components", None)
    if not isinstance(components, Mapping):
        raise TypeError(f"pipeline must have components, got {shown_value(pipeline)}")
    NodeSite("", stage, profiler)  # checks them
    how: dict[str, Any] = {"stage": stage, "profiler": profiler}
    models = [(name, each) for name, each in components.items() if isinstance(each, torch.nn.Module)]
    handles: list[Profiled | Instrumentation] = [put_hooks(models, **how)]
    names = [name for name, _ in models]
    for name, component in components.items():
        methods = _OF_MODELS if isinstance(component, torch.nn.Module) else _OF_OTHERS
        for method, suffix in methods.items():
            with contextlib.suppress(Exception):  # what cannot be had, or replaced, is not counted
                # Found in the class; a component that is a class is called itself.
                kinds = () if isinstance(component, type) else type(component).__mro__
                if any(method in vars(kind) for kind in kinds) and callable(getattr(component, method)):
                    node = functools.partial(profile_node, name=name + suffix, **how)
                    handles.append(surround(component, method, node))
                    names.append(name + suffix)
    return Profiled(names, [handle.remove for handle in handles])
