"""Text of the program ``profile_{stage}.py``.

Whatever a stage is called and was given, the program's syntax tree is that of the template with other constants: the
names and values are in strings, of which only the program's own code makes anything.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

_WIDTH = 100  # of a piece of a long line
_NUMBERS = re.compile(r"\[\n *(?:-?\d+,\n *)*-?\d+\n *\]")  # a list of them, which gets one line
_PLACES = ("@STAGE@", "@SIGNATURE@", "@OPTIONS@")

TEMPLATE = '''\
"""Profile one stage of a pipeline alone, with inputs made up from its recorded signature.

    python THIS_FILE --factory MODULE:FUNCTION [--warmup N] [--profile-steps N] [--output-dir DIR] [--entry NAME]

FUNCTION is called without arguments and returns the stage; modules are found in the current directory, too. Or import
`profile_stage` from here and give it a stage. Only the stage's own packages are needed, and PyTorch for a trace.
"""

import argparse
import asyncio
import contextlib
import importlib
import inspect
import json
import os
import sys
import time
from types import SimpleNamespace

try:
    import torch
except ImportError:
    torch = None

STAGE = @STAGE@
SIGNATURE = json.loads(@SIGNATURE@)
OPTIONS = json.loads(@OPTIONS@)

# What stages call their inputs, and models their parameters, that mean the same.
LATENTS = ("latents", "hidden_states", "sample", "x", "latent", "noise")
TIMESTEP = ("timestep", "timesteps", "t", "time")
CONDITION = (
    "encoder_hidden_states", "context", "prompt_embeds", "prompt_emb", "prompt_emb_posi", "prompt_embeddings",
)
REFERENCE = ("ref_latent", "ref_latents", "reference_latents")


def create_inputs():
    """Make the stage's inputs by parameter: equal ones each time; None where only the type is known."""
    return {name: make(value, "/" + escaped(name)) for name, value in SIGNATURE["input_signatures"].items()}


def run_single_step(stage, inputs, entry=OPTIONS["entry"]):
    """Run the stage once: the method named, its profile_step, a single denoising step, its process, or a call."""
    if entry is not None:
        return call(getattr(stage, entry), inputs)
    if callable(getattr(stage, "profile_step", None)):
        return call(stage.profile_step, inputs)
    has_model = getattr(stage, "dit", None) is not None and getattr(stage, "scheduler", None) is not None
    if has_model and first(inputs, LATENTS) is not None:
        return denoise(stage, inputs)
    return call(getattr(stage, "process", stage), inputs)


def profile_stage(
    stage, warmup=OPTIONS["warmup"], profile_steps=OPTIONS["profile_steps"], output_dir=".", entry=OPTIONS["entry"]
):
    """Run the stage under PyTorch's profiler; return times in ms and the path of the trace."""
    times, path = [], None
    for _ in range(warmup):
        run_single_step(stage, create_inputs(), entry)
    with contextlib.ExitStack() as stack:
        prof = None
        if torch is not None:
            prof = torch.profiler.profile(record_shapes=True, profile_memory=True, with_stack=True)
            stack.enter_context(prof)
        for number in range(profile_steps):
            inputs = create_inputs()
            synchronize()
            start = time.perf_counter()
            with torch.profiler.record_function(f"step {number}") if prof else contextlib.nullcontext():
                run_single_step(stage, inputs, entry)
                synchronize()
            times.append((time.perf_counter() - start) * 1000)
    if prof is not None:
        os.makedirs(output_dir, exist_ok=True)
        path = os.path.join(output_dir, OPTIONS["file"] + "_trace.json.gz")
        prof.export_chrome_trace(path)
    return {"stage_name": STAGE, "timing_ms": times, "trace_path": path}


# ---- Inputs


def make(value, place):
    """Make the value that one of a signature stands for; `place` is its JSON pointer."""
    kind = SIGNATURE.get("types", {}).get(place, "").partition(" ")[0]
    if kind in ("other", "truncated"):
        return None
    if kind in ("dtype", "device"):
        return getattr(torch, value) if kind == "dtype" else torch.device(value)
    if isinstance(value, dict):
        if not kind and {"shape", "dtype", "device"} <= set(value):
            return make_array(value, place) if value["device"] == "numpy" else make_tensor(value, place)
        made = {key: make(each, place + "/" + escaped(key)) for key, each in value.items()}
        return SimpleNamespace(**made) if kind == "dataclass" else made
    if isinstance(value, list):
        made = [make(each, f"{place}/{number}") for number, each in enumerate(value)]
        return {"tuple": tuple, "namedtuple": tuple, "set": set, "dict": dict}.get(kind, list)(made)
    return float(value) if kind == "float" else value


def make_tensor(value, place):
    """Make a tensor of random values; integers are 0 or 1, unless a range was given."""
    shape, dtype, steps = value["shape"], getattr(torch, value["dtype"]), value.get("stride")
    generator = torch.Generator().manual_seed(OPTIONS["seed"])
    low, high = limits(place) or (None, None)
    if (dtype.is_floating_point or dtype.is_complex) and low is None:
        made = torch.randn(shape, generator=generator, dtype=torch.complex64 if dtype.is_complex else torch.float32)
    elif dtype.is_floating_point:
        made = torch.rand(shape, generator=generator) * (high - low) + low
    else:
        made = torch.randint(*(0, 2) if low is None else (int(low), int(high)), shape, generator=generator)
    made = made.to(dtype)
    if steps and len(steps) == len(shape) and min(steps) > 0 and 0 not in shape:
        made = torch.empty_strided(shape, steps, dtype=dtype).copy_(made)
    made = made.to(device_for(value["device"]))
    return made.requires_grad_() if value.get("requires_grad") else made


def make_array(value, place):
    """Make a NumPy array likewise."""
    import numpy

    dtype, shape = numpy.dtype(value["dtype"]), value["shape"]
    generator = numpy.random.Generator(numpy.random.PCG64(OPTIONS["seed"]))
    low, high = limits(place) or (None, None)
    if dtype.kind in "fc":
        made = generator.standard_normal(shape) if low is None else generator.uniform(low, high, shape)
    elif dtype.kind in "biu":
        made = generator.integers(*(0, 2) if low is None else (int(low), int(high)), shape)
    else:
        made = numpy.zeros(shape, dtype)
    return numpy.asarray(made).astype(dtype)


def limits(place):
    """Return the range that was given for a value, or for what it is in."""
    while place:
        if place in (OPTIONS["value_ranges"] or {}):
            return OPTIONS["value_ranges"][place]
        place = place.rpartition("/")[0]
    return None


def device_for(name):
    """Return the device that was chosen or recorded; the CPU where it is not here."""
    if OPTIONS["device"] is not None and name.partition(":")[0] not in ("cpu", "meta"):
        return torch.device(OPTIONS["device"])
    try:
        torch.empty(0, device=name)
    except Exception as error:
        print(f"device {name!a} is not here, the CPU stands in for it: {error}", file=sys.stderr)
        return torch.device("cpu")
    return torch.device(name)


def escaped(name):
    """Escape a part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


# ---- Running


def call(function, inputs):
    """Call a function with those inputs that it takes; run a coroutine or generator to its end."""
    args, kwargs = [], dict(inputs)
    known = parameters_of(function)
    if known is not None:
        unknown = {name[1:] for name, kind in SIGNATURE.get("types", {}).items() if kind in ("other", "truncated")}
        gathers = next((name for name, each in known.items() if each.kind is each.VAR_POSITIONAL), None)
        gathered = kwargs.pop(gathers, None) or []
        rest = {
            name: value
            for name, value in kwargs.items()
            if value is not None or escaped(name) not in unknown or is_needed(known, name)
        }
        kwargs = {}
        for name, each in known.items():
            if each.kind is each.VAR_KEYWORD:
                kwargs.update(rest)
            elif each.kind is each.VAR_POSITIONAL:
                args.extend(gathered)
            elif each.kind is each.POSITIONAL_ONLY or (gathered and each.kind is not each.KEYWORD_ONLY):
                if name in rest or each.default is not each.empty:
                    args.append(rest.pop(name, each.default))
            elif name in rest:
                kwargs[name] = rest.pop(name)
    result = function(*args, **kwargs)
    if inspect.iscoroutine(result):
        return asyncio.run(result)
    return list(result) if inspect.isgenerator(result) else result


def parameters_of(function):
    """Return a callable's parameters by name, of a module those of its forward; None where nobody knows them."""
    function = getattr(function, "_orig_mod", function)
    if hasattr(function, "forward") and hasattr(function, "_parameters"):
        function = function.forward
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None


def is_needed(known, name):
    """Tell whether a parameter has no default."""
    return name in known and known[name].default is inspect.Parameter.empty


def first(inputs, names):
    """Return the first input that has one of the names; None without one."""
    return next((inputs[name] for name in names if inputs.get(name) is not None), None)


def name_for(function, names):
    """Return the name that a callable has for something."""
    return next((name for name in names if name in (parameters_of(function) or {})), names[0])


def denoise(stage, inputs):
    """Run one step of a denoising loop: predict the noise, and take it away."""
    scheduler, latents, reference = stage.scheduler, first(inputs, LATENTS), first(inputs, REFERENCE)
    set_timesteps(stage, inputs)
    timestep = scheduler.timesteps[0]
    dtype, device = getattr(stage, "torch_dtype", None), getattr(stage, "device", None)
    shown = latents if reference is None else torch.cat([latents, reference], dim=1)
    predict = getattr(stage, "predict_noise_with_cfg", None)
    if predict is None and hasattr(scheduler, "scale_model_input"):
        shown = scheduler.scale_model_input(shown, timestep)
    state = None
    if hasattr(stage.dit, "sparse_attention_state") and hasattr(stage.dit, "create_sparse_state"):
        state = call(stage.dit.create_sparse_state, {"numeral_timestep": 1, "layer_idx": 0})
    arguments = {**inputs, "latents": moved(shown, dtype), "sparse_state": state}
    has_gradient = any(getattr(value, "requires_grad", False) for value in inputs.values())
    half = getattr(stage, "device_type", None) is not None and dtype in (torch.float16, torch.bfloat16)
    with contextlib.nullcontext() if has_gradient else torch.inference_mode():
        with torch.autocast(stage.device_type, dtype) if half else contextlib.nullcontext():
            if predict is not None:
                arguments["timestep"] = moved(scheduler.timesteps[0:1], dtype, device)
                for name in parameters_of(predict) or {}:
                    if name not in arguments and is_needed(parameters_of(predict), name) and hasattr(stage, name):
                        arguments[name] = getattr(stage, name)
                noise = call(predict, arguments)
            else:
                noise = part_of(call(stage.dit, model_arguments(stage, arguments, timestep)), "sample")
        return latents if noise is None else part_of(scheduler.step(noise, timestep, latents), "prev_sample")


def set_timesteps(stage, inputs):
    """Set a schedule of two steps, with what the inputs and the stage have for it."""
    scheduler = stage.scheduler
    known = list(parameters_of(scheduler.set_timesteps) or {})
    own = ("num_inference_steps", "sigmas", "timesteps", "device", "shift", "args", "kwargs")
    arguments = {name: inputs[name] for name in known[1:] if name not in own and inputs.get(name) is not None}
    shift = first(inputs, ("sigma_shift", "shift"))
    if shift is not None and {"shift", "kwargs"} & set(known):
        arguments["shift"] = shift
    if "device" in known and getattr(stage, "device", None) is not None:
        arguments["device"] = stage.device
    config = getattr(scheduler, "config", None)
    if "mu" in known and getattr(config, "use_dynamic_shifting", False):
        arguments.setdefault("mu", getattr(config, "base_shift", 0.5))
    scheduler.set_timesteps(2, **arguments)


def model_arguments(stage, arguments, timestep):
    """Return the arguments of a model that is called itself, under the names that it has for them."""
    model, latents = stage.dit, arguments["latents"]
    given = {name: value for name, value in arguments.items() if name != "latents" and value is not None}
    condition = first(given, CONDITION)
    if condition is not None:
        given.setdefault(name_for(model, CONDITION), condition)
    name = name_for(model, LATENTS)
    given[name] = latents
    if name != "sample":
        timestep = moved(timestep, getattr(stage, "torch_dtype", None)).reshape(1).expand(latents.shape[0])
    given[name_for(model, TIMESTEP)] = timestep.to(latents.device)
    return given


def moved(value, dtype=None, device=None):
    """Return a tensor of another type, or on another device."""
    wanted = {name: each for name, each in (("dtype", dtype), ("device", device)) if each is not None}
    return value.to(**wanted) if wanted else value


def part_of(value, attribute):
    """Return what a model or a scheduler gives back: its attribute, its first part, or it."""
    if getattr(value, attribute, None) is not None:
        return getattr(value, attribute)
    return value[0] if isinstance(value, (tuple, list)) else value


def synchronize():
    """Wait for the work of an accelerator in use."""
    accelerator = getattr(torch, "accelerator", None) or getattr(torch, "cuda", None)  # older ones have the latter
    if accelerator is not None and accelerator.is_available():
        accelerator.synchronize()


def main():
    """Profile the stage that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--factory", required=True, metavar="MODULE:FUNCTION")
    parser.add_argument("--warmup", type=int, default=OPTIONS["warmup"], metavar="N")
    parser.add_argument("--profile-steps", type=int, default=OPTIONS["profile_steps"], metavar="N")
    parser.add_argument("--output-dir", default=".", metavar="DIR")
    parser.add_argument("--entry", default=OPTIONS["entry"], metavar="NAME")
    asked = parser.parse_args()
    sys.path.insert(0, os.getcwd())
    module, _, name = asked.factory.partition(":")
    stage = importlib.import_module(module)
    for part in name.split("."):
        stage = getattr(stage, part)
    result = profile_stage(stage(), asked.warmup, asked.profile_steps, asked.output_dir, asked.entry)
    print("ms per step:", *(round(each, 3) for each in result["timing_ms"]))
    print("trace:", result["trace_path"] or "none, as PyTorch is not installed")


if __name__ == "__main__":
    main()
'''


def program_for(stage_name: str, signature: dict[str, Any], options: dict[str, Any]) -> str:
    """Return the program for a stage, in ASCII.

    signature: the stage's signature, as files have it. options: ``warmup``, ``profile_steps``, ``entry``,
    ``value_ranges``, ``device``, ``seed``, and ``file``, with which the trace's name begins. The program uses them
    unless its arguments say otherwise.
    """
    text = TEMPLATE
    pieces = (ascii(stage_name), _laid_out(signature), _laid_out(options))
    made = []
    for place, piece in zip(_PLACES, pieces, strict=True):
        before, _, text = text.partition(place)  # what was put in is not looked at again
        made += [before, piece]
    return "".join([*made, text])


def _laid_out(value: Any) -> str:
    """Return a value as string literals of its JSON, cut into lines."""
    text = _NUMBERS.sub(lambda found: f"[{', '.join(re.findall('-?[0-9]+', found[0]))}]", json.dumps(value, indent=1))
    lines = text.splitlines(keepends=True)
    pieces = [line[start : start + _WIDTH] for line in lines for start in range(0, len(line), _WIDTH)]
    if len(pieces) == 1:
        return repr(pieces[0])
    return "\n" + "\n".join(f"    {piece!r}" for piece in pieces) + "\n"
