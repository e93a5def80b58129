"""Ways to run a stage, such as a single denoising step.

The text of this module is part of each stage's program, as that of ``mock_inputs`` is.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from cprofiling._internal import log
from cprofiling._internal.text import shown_value

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

ENTRY = "process"
OWN_STEP = "profile_step"
STEPS = 2  # of the schedule; the first is taken

# What a stage's inputs, and the parameters of models, are called that mean the same.
_LATENTS = ("latents", "hidden_states", "sample", "x", "latent", "noise")
_OF_A_UNET = "sample"  # its name for latents
_TIMESTEP = ("timestep", "timesteps", "t", "time")
_CONDITION = (
    "encoder_hidden_states", "context", "prompt_embeds", "prompt_emb", "prompt_emb_posi", "prompt_embeddings",
)  # fmt: skip
_REFERENCE = ("ref_latent", "ref_latents", "reference_latents")
_SHIFT = ("sigma_shift", "shift")
# What of a scheduler's set_timesteps() says another number of steps, or which ones.
_OF_THE_SCHEDULE = frozenset(("num_inference_steps", "sigmas", "timesteps", "device", "shift", "args", "kwargs"))
_MU = 0.5  # where neither the inputs nor the scheduler's configuration have one


class Step:
    """One repeatable run of a stage, called with its inputs.

    Attributes:
        name: The run, in words: ``"process()"``, ``"a single denoising step"``, ...
    """

    def __init__(self, name: str, run: Callable[[Mapping[str, Any]], Any], *changed: Any) -> None:
        self.name = name
        self._run = run
        self._changed = changed

    def __call__(self, inputs: Mapping[str, Any]) -> Any:
        """Run the stage with those of the inputs that it accepts."""
        return self._run(inputs)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Restore scheduler and sparse attention afterwards."""
        before = [
            {name: (value, _contents(value)) for name, value in _attributes(each).items()} for each in self._changed
        ]
        try:
            yield
        finally:
            for owner, attributes in zip(self._changed, before, strict=True):
                _restore(owner, attributes)


def step_of(stage: Any, entry: str | None = None) -> Step:
    """Return how a stage is run.

    That is by the method ``entry``, if one is named; else by the stage's own ``profile_step``; else by a single
    denoising step, if it has a ``dit`` and a ``scheduler`` (see ``DenoisingStep``); else by ``process``; else by a call
    of the stage.

    Raises TypeError for an entry that is no str, ValueError where the stage has nothing of it.
    """
    if entry is not None:
        if not isinstance(entry, str):
            raise TypeError(f"entry must be a str or None, got {shown_value(entry)}")
        method = getattr(stage, entry, None)
        if not callable(method):
            raise ValueError(f"entry must be a method of the stage, a {type(stage).__name__}, got {shown_value(entry)}")
        return Step(f"{entry}()", _caller(method))
    if callable(getattr(stage, OWN_STEP, None)):
        return Step(f"{OWN_STEP}()", _caller(getattr(stage, OWN_STEP)))
    if getattr(stage, "dit", None) is not None and getattr(stage, "scheduler", None) is not None:
        step = DenoisingStep(stage)
        return Step(
            "a single denoising step", step, stage.scheduler, getattr(stage.dit, "sparse_attention_state", None)
        )
    if callable(getattr(stage, ENTRY, None)):
        return Step(f"{ENTRY}()", _caller(getattr(stage, ENTRY)))
    if callable(stage):
        return Step("a call", _caller(stage))
    raise ValueError(
        f"stage_instance must have a method {ENTRY!r} or {OWN_STEP!r}, or be callable, or an entry must be named, "
        f"got {shown_value(stage)}"
    )


def _caller(method: Callable[..., Any]) -> Callable[[Mapping[str, Any]], Any]:
    """Return a step that runs a coroutine or generator to its end, too."""

    def run(inputs: Mapping[str, Any]) -> Any:
        args, kwargs = arguments_for(method, inputs)
        result = method(*args, **kwargs)
        if isinstance(result, Coroutine):
            return asyncio.run(result)
        return list(result) if inspect.isgenerator(result) else result

    return run


# --- Arguments ------------------------------------------------------------------------------------


def parameters_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter] | None:
    """Return a callable's parameters by name, None where unknown."""
    known: Any = getattr(function, "_orig_mod", function)  # of torch.compile
    is_module = hasattr(known, "forward") and hasattr(known, "_parameters")  # its __call__ takes anything
    if is_module and hasattr(getattr(known, "module", None), "forward"):  # for data-parallel work
        known = known.module
    try:
        return dict(inspect.signature(known.forward if is_module else known).parameters)
    except (TypeError, ValueError):
        return None


def accepts(function: Callable[..., Any], name: str) -> bool:
    """Tell whether a callable takes an argument by name."""
    parameters = parameters_of(function)
    if parameters is None:
        return True
    found = parameters.get(name)
    if found is not None and found.kind not in (found.VAR_POSITIONAL, found.VAR_KEYWORD, found.POSITIONAL_ONLY):
        return True
    return any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def arguments_for(function: Callable[..., Any], inputs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the inputs that a callable accepts as its arguments.

    Inputs without a known value are left out where the parameter has a default.

    Raises TypeError, with its name, for a missing argument.
    """
    parameters = parameters_of(function)
    if parameters is None:
        return [], dict(inputs)
    unknown = getattr(inputs, "unknown", {})
    required = {name for name, each in parameters.items() if each.default is each.empty}
    rest = {name: value for name, value in inputs.items() if name not in unknown or name in required}
    gathers = next((each.name for each in parameters.values() if each.kind is each.VAR_POSITIONAL), "")
    gathered = rest.pop(gathers, None) or ()
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for name, parameter in parameters.items():
        by_place = parameter.kind is parameter.POSITIONAL_ONLY or (
            gathered and parameter.kind is not parameter.KEYWORD_ONLY
        )
        if parameter.kind is parameter.VAR_KEYWORD:
            kwargs.update(rest)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            args.extend(gathered)
        elif name in rest:
            value = rest.pop(name)
            args.append(value) if by_place else kwargs.update({name: value})
        elif parameter.default is parameter.empty:
            known = ", ".join(map(repr, inputs)) or "none"
            called = getattr(function, "__qualname__", None) or type(function).__name__
            raise TypeError(f"{called} needs {name!r}, which is not among the inputs ({known})")
        elif by_place:
            args.append(parameter.default)
    return args, kwargs


# --- A denoising step -----------------------------------------------------------------------------


class DenoisingStep:
    """Single denoising step of a stage with ``dit`` and ``scheduler``.

    The scheduler is set to two steps, and the first one taken: a call of the stage's ``predict_noise_with_cfg``, or of
    ``dit`` without one; then, unless the noise is None, of ``scheduler.step``. Each gets the inputs that it accepts. A
    model called directly gets latents scaled by the scheduler's ``scale_model_input``, if any. Without latents among
    the inputs, the stage's ``process`` is run.
    """

    def __init__(self, stage: Any) -> None:
        self._stage = stage
        self._predict = getattr(stage, "predict_noise_with_cfg", None)

    def __call__(self, inputs: Mapping[str, Any]) -> Any:
        """Run one step and return the latents after it."""
        stage, scheduler, torch = self._stage, self._stage.scheduler, sys.modules.get("torch")
        latents, reference = _first(inputs, _LATENTS), _first(inputs, _REFERENCE)
        if latents is None:
            process = getattr(stage, ENTRY, None)
            names = ", ".join(map(repr, inputs)) or "none"
            if not callable(process):
                raise TypeError(f"a denoising step needs 'latents', which are not among the inputs ({names})")
            log.say(f"[Harness] There are no latents among the inputs ({names}): {ENTRY}() is run as a whole")
            return _caller(process)(inputs)
        self._set_timesteps(inputs)
        first = scheduler.timesteps[0]
        dtype, device = getattr(stage, "torch_dtype", None), getattr(stage, "device", None)
        is_unet = self._predict is None and _name_for(stage.dit, _LATENTS) == _OF_A_UNET
        timestep = _moved(first if is_unet else scheduler.timesteps[0:1], dtype=dtype, device=device)
        scale = getattr(scheduler, "scale_model_input", None)
        seen = scale(latents, first) if self._predict is None and callable(scale) else latents
        if reference is not None and torch is not None:
            seen = torch.cat([seen, reference], dim=1)
        sparse_state = None
        create = getattr(stage.dit, "create_sparse_state", None)
        if hasattr(stage.dit, "sparse_attention_state") and callable(create):
            args, kwargs = arguments_for(create, {"numeral_timestep": STEPS - 1, "layer_idx": 0})
            sparse_state = create(*args, **kwargs)
        arguments = {**inputs, "timestep": timestep, "latents": _moved(seen, dtype=dtype), "sparse_state": sparse_state}
        with _without_gradients(torch, inputs, scheduler):
            kind = getattr(stage, "device_type", None)
            cast: AbstractContextManager[Any] = nullcontext()
            if torch is not None and isinstance(kind, str) and dtype in (torch.float16, torch.bfloat16):
                cast = torch.autocast(device_type=kind, dtype=dtype)  # as the stage's own loop does
            with cast:
                noise = self._predicted(arguments)
            return latents if noise is None else _result(scheduler.step(noise, first, latents), "prev_sample")

    def _set_timesteps(self, inputs: Mapping[str, Any]) -> None:
        scheduler = self._stage.scheduler
        known = list(parameters_of(scheduler.set_timesteps) or {})
        arguments: dict[str, Any] = {
            name: inputs[name]
            for name in known[1:]  # the first is the number of steps
            if name not in _OF_THE_SCHEDULE and inputs.get(name) is not None
        }
        shift = _first(inputs, _SHIFT)
        if shift is not None and accepts(scheduler.set_timesteps, "shift"):
            arguments["shift"] = shift
        device = getattr(self._stage, "device", None)
        if device is not None and "device" in known:
            arguments["device"] = device
        config = getattr(scheduler, "config", None)
        if "mu" in known and getattr(config, "use_dynamic_shifting", False):  # which the loop makes of the image's size
            arguments.setdefault("mu", getattr(config, "base_shift", _MU))
        scheduler.set_timesteps(STEPS, **arguments)

    def _predicted(self, arguments: dict[str, Any]) -> Any:
        stage, predict = self._stage, self._predict
        if predict is not None:
            for name, parameter in (parameters_of(predict) or {}).items():  # what only the stage has
                is_needed = parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
                if is_needed and name not in arguments and hasattr(stage, name):
                    arguments[name] = getattr(stage, name)
            args, kwargs = arguments_for(predict, arguments)
            return predict(*args, **kwargs)
        latents, timestep = arguments.pop("latents"), arguments.pop("timestep")
        if arguments["sparse_state"] is None:
            del arguments["sparse_state"]
        condition = _first(arguments, _CONDITION)
        if condition is not None:
            arguments.setdefault(_name_for(stage.dit, _CONDITION), condition)
        name = _name_for(stage.dit, _LATENTS)
        arguments[name] = latents
        if name != _OF_A_UNET and hasattr(timestep, "expand") and len(getattr(latents, "shape", ())) > 0:
            timestep = timestep.expand(latents.shape[0])  # one per sample
        arguments[_name_for(stage.dit, _TIMESTEP)] = timestep
        args, kwargs = arguments_for(stage.dit, arguments)
        return _result(stage.dit(*args, **kwargs), "sample")


def _first(inputs: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """Return the first known input that has one of the names."""
    return next((inputs[name] for name in names if inputs.get(name) is not None), None)


def _name_for(function: Callable[..., Any], names: tuple[str, ...]) -> str:
    """Return a callable's name for something, by default the first one."""
    return next((name for name in names if name in (parameters_of(function) or {})), names[0])


def _moved(value: Any, **wanted: Any) -> Any:
    """Return a tensor with the wanted type and device."""
    arguments = {name: each for name, each in wanted.items() if each is not None}
    return value.to(**arguments) if arguments and hasattr(value, "to") else value


def _result(value: Any, attribute: str) -> Any:
    """Return a result's attribute, its first part, or itself."""
    found = getattr(value, attribute, None)
    if found is not None:
        return found
    if isinstance(value, (tuple, list)):
        return next(iter(value), value)
    return value


@contextmanager
def _without_gradients(torch: Any, inputs: Mapping[str, Any], scheduler: Any) -> Iterator[None]:
    """Run as inference does, unless an input has a gradient.

    A scheduler that has run in inference mode has tensors that may be changed in that mode only.
    """
    with ExitStack() as stack:
        if torch is not None and not any(getattr(value, "requires_grad", False) for value in inputs.values()):
            tensors = [value for value in _attributes(scheduler).values() if isinstance(value, torch.Tensor)]
            has_run_so = any(tensor.is_inference() for tensor in tensors)
            stack.enter_context(torch.inference_mode() if has_run_so else torch.no_grad())
        yield


# --- State ----------------------------------------------------------------------------------------


def _attributes(owner: Any) -> dict[str, Any]:
    found = dict(getattr(owner, "__dict__", {}))
    for kind in type(owner).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(owner, name):
                found[name] = getattr(owner, name)
    return found


def _contents(value: Any) -> Any:
    """Return a copy of a value's mutable contents, None without any."""
    if type(value) in (list, dict, set, deque):
        return value.copy()
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor) and value.device.type != "meta":
        return value.detach().clone(), _version_of(value)
    return None


def _version_of(tensor: Any) -> int | None:
    """Return a tensor's version, None for one of inference mode."""
    return None if tensor.is_inference() else tensor._version  # noqa: SLF001 no public one


def _restore(owner: Any, attributes: Mapping[str, tuple[Any, Any]]) -> None:
    """Put an object's attributes and their contents back as they were."""
    for name in _attributes(owner).keys() - attributes.keys():
        object.__delattr__(owner, name)
    now = _attributes(owner)
    for name, (value, contents) in attributes.items():
        if isinstance(contents, tuple):
            saved, version = contents
            if version is None:  # it may be changed in that mode only
                with sys.modules["torch"].inference_mode():
                    value.copy_(saved)
            elif _version_of(value) != version:
                value.detach().copy_(saved)
        elif contents is not None:
            value.clear()
            (value.extend if hasattr(value, "extend") else value.update)(contents)
        if name not in now or now[name] is not value:
            object.__setattr__(owner, name, value)
