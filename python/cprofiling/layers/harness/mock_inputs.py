"""Inputs made from a signature, with random tensors.

Numbers come from generators of our own, so that two runs have equal inputs and the program's own random state stays as
it is. Nothing is imported but PyTorch and NumPy, and these only where the signature has something of theirs.

The text of this module is part of each stage's program (see ``program``), which has names of its own for those that are
imported from this package.
"""

from __future__ import annotations

import importlib
import math
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from cprofiling._internal import log
from cprofiling._internal.text import shown_text, shown_value
from cprofiling.layers.signatures import NUMPY, element_size, escaped, is_tensor, unescaped

if TYPE_CHECKING:
    from cprofiling.layers.signatures import StageIOSignature

    Range = tuple[float, float]

INTEGERS = (0, 2)  # from the first to below the second: valid as indices, tokens and masks nearly everywhere
SEED = 0

_ARRAY_DTYPE = re.compile(r"[<>=|]?\w+(\[\w+\])?", re.ASCII)
_MOST_GAPS = 4  # times the elements: a view into so much more memory is made without its gaps
_MOST_DRAWN = 2**63 - 1
_SMALL_VIEW = 1 << 26  # bytes that such a view may have anyway


class MockInputs(dict[str, "Any"]):
    """Inputs by parameter.

    Attributes:
        unknown: Type names of the inputs without a recorded value, which are None, by parameter; by JSON pointer for
            a part of an input.
        given: Names of the inputs that were given.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unknown: dict[str, str] = {}
        self.given: frozenset[str] = frozenset()

    def for_a_run(self) -> MockInputs:
        """Return the inputs for one run, with containers of its own.

        Tensors and arrays are the same in each run, without the gradients of earlier ones, and so are given inputs.
        """
        made = MockInputs()
        made.unknown, made.given = self.unknown, self.given
        made.update((name, value if name in self.given else _unused(value)) for name, value in self.items())
        return made


def _unused(value: Any) -> Any:
    """A value that was made, as it was before a run had it."""
    kind = type(value)
    if kind in (list, tuple, set):
        return kind(map(_unused, value))
    if kind is dict:
        return {key: _unused(each) for key, each in value.items()}
    if kind is SimpleNamespace:
        return SimpleNamespace(**_unused(vars(value)))
    if getattr(value, "grad", None) is not None:
        value.grad = None
    return value


def make_inputs(
    signature: StageIOSignature,
    *,
    value_ranges: Mapping[str, Range] | None = None,
    device: Any = None,
    seed: int = SEED,
    given: Mapping[str, Any] | None = None,
) -> MockInputs:
    """Make inputs for a stage.

    Floating and complex tensors are normally distributed, integers 0 or 1, booleans random. Tensors have their recorded
    strides, unless these leave much memory unused, and ``requires_grad``. A dataclass becomes a
    ``types.SimpleNamespace`` with its fields, a named tuple a plain tuple. A value with only its type known becomes
    None, and the log says so.

    Args:
        signature: The signature.
        value_ranges: Limits of the values by parameter, or by JSON pointer for a part of one (``"/batch/tokens"``): a
            pair, from the first to below the second, such as ``(0, 32000)``; between them, values are uniform. Complex
            and boolean ones have no limits.
        device: The device for all tensors that were on an accelerator; None: the recorded one, or where this machine
            lacks it, another accelerator or the CPU, which a line in the log says.
        seed: Of the values, 0 to 2^63 - 1, which is not checked; equal seeds give equal inputs.
        given: Values by parameter that are not made, but taken as they are.

    Raises:
        TypeError: An argument is of another type.
        ValueError: A range is for no tensor or array that is made, or has no value that its type can have; a tensor's
            type or device is unknown.
        ImportError: PyTorch or NumPy is needed, and not there.
        MemoryError: A tensor is larger than this machine's memory.
    """
    maker = _Maker(signature, checked_ranges(value_ranges, signature), device, seed)
    given = given or {}
    maker.made.given = frozenset(given)
    for name, value in signature.input_signatures.items():
        maker.made[name] = given[name] if name in given else maker.value(value, f"/{escaped(name)}")
    maker.made.update(given)
    if maker.unused_ranges:
        pointer = shown_text("text", min(maker.unused_ranges))
        raise ValueError(f"value_ranges must be for tensors or arrays that are made; none is at {pointer}")
    return maker.made


def checked_ranges(ranges: Any, signature: StageIOSignature) -> dict[str, Range]:
    """Return ranges by JSON pointer, checked as ``make_inputs`` says."""
    if ranges is None:
        return {}
    if not hasattr(ranges, "items"):
        raise TypeError(f"value_ranges must be a mapping, got {shown_value(ranges)}")
    made = {}
    for key, limits in ranges.items():
        if not isinstance(key, str):
            raise TypeError(f"value_ranges must have names of parameters as keys, got {shown_value(key)}")
        pointer = key if key.startswith("/") else f"/{escaped(key)}"
        if unescaped(pointer.split("/")[1]) not in signature.input_signatures:
            known = ", ".join(map(repr, signature.input_signatures))
            raise ValueError(f"value_ranges must be for inputs of the stage ({known}), got {shown_value(key)}")
        is_pair = isinstance(limits, (tuple, list)) and len(limits) == 2
        if not is_pair or any(isinstance(each, bool) or not isinstance(each, (int, float)) for each in limits):
            raise TypeError(f"value_ranges[{key!r}] must be a pair of numbers, got {shown_value(limits)}")
        low, high = limits
        if not math.isfinite(low) or not math.isfinite(high) or low >= high:
            raise ValueError(f"value_ranges[{key!r}] must be finite and rise, got {shown_value(limits)}")
        made[pointer] = (low, high)
    return made


class _Maker:
    """Makes the values of one stage."""

    def __init__(self, signature: StageIOSignature, ranges: dict[str, Range], device: Any, seed: int) -> None:
        self.made = MockInputs()
        self._types = signature.types
        self._ranges = ranges
        self.unused_ranges = set(ranges)
        self._seed = seed
        self._device = device
        self._torch: _TorchValues | None = None
        self._numpy: Any = None

    def value(self, value: Any, pointer: str) -> Any:
        """Return the value that a signature's value stands for."""
        kind = self._types.get(pointer, "").partition(" ")[0]
        if not kind and is_tensor(value):
            return self._tensor(value, pointer)
        if kind in ("other", "truncated"):
            is_part = "/" in pointer[1:]
            self.made.unknown[pointer if is_part else unescaped(pointer[1:])] = value
            shown = f"{shown_text('pointer', pointer)}: only its type is known, {shown_text('value', value)}"
            log.say(f"[Harness] Input {shown}; None stands in for it")
            return None
        if type(value) is dict:
            made = {key: self.value(each, f"{pointer}/{escaped(key)}") for key, each in value.items()}
            return SimpleNamespace(**made) if kind == "dataclass" else made
        if kind == "dict":
            found: dict[Any, Any] = {}
            for place, pair in enumerate(value):
                key, each = self._items(pair, f"{pointer}/{place}")
                try:
                    found[key] = each
                except TypeError:  # it cannot be a key
                    found[str(key)] = each
            return found
        if type(value) is list:
            items = self._items(value, pointer)
            if kind == "set":
                with suppress(TypeError):  # an item, such as a dict, cannot be in a set
                    return set(items)
            return tuple(items) if kind in ("tuple", "namedtuple") else items
        if kind == "device":
            return self._of_torch().device(value)
        if kind == "dtype":
            try:
                return self._of_torch().dtype(value)
            except ValueError as error:
                raise ValueError(f"input {shown_text('text', pointer)}: {error}") from None
        return float(value) if kind == "float" else value

    def _items(self, value: list[Any], pointer: str) -> list[Any]:
        return [self.value(each, f"{pointer}/{place}") for place, each in enumerate(value)]

    def _tensor(self, tensor: dict[str, Any], pointer: str) -> Any:
        shape = tensor["shape"]
        if 0 not in shape and tensor["device"] != "meta":
            size = _storage(shape, _steps(tensor) or _contiguous(shape)) * element_size(tensor["dtype"])
            there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            if size > there:
                what = f"{tensor['dtype']} {shape} takes {size >> 20} MiB"
                raise MemoryError(f"input {shown_text('text', pointer)}: {what}, and this machine has {there >> 20}")
        limits = self._limits(pointer)
        if tensor["device"] == NUMPY and self._numpy is None:
            random = _imported(NUMPY).random
            self._numpy = random.Generator(random.PCG64(self._seed))
        try:
            if tensor["device"] == NUMPY:
                return _array(_imported(NUMPY), self._numpy, tensor, limits)
            return self._of_torch().tensor(tensor, limits)
        except (RuntimeError, TypeError, ValueError, OverflowError, NotImplementedError) as error:
            shown = shown_text("text", f"{tensor['dtype']} {shape} on {tensor['device']}")
            raise ValueError(
                f"input {shown_text('text', pointer)}: no such tensor can be made here ({shown}): {error}"
            ) from None

    def _limits(self, pointer: str) -> Range | None:
        """Return the nearest range of a value, its containers or parameter."""
        while pointer:
            if pointer in self._ranges:
                self.unused_ranges.discard(pointer)
                return self._ranges[pointer]
            pointer = pointer.rpartition("/")[0]
        return None

    def _of_torch(self) -> _TorchValues:
        if self._torch is None:
            self._torch = _TorchValues(self._device, self._seed)
        return self._torch


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ImportError(f"the signature has values of {name}, which is not installed: pip install {name}") from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _integers(limits: Range | None) -> tuple[int, int]:
    """Return limits of integers, the second one excluded."""
    low, high = map(math.ceil, limits or INTEGERS)
    if low == high:
        raise ValueError(f"no integer within {limits}")
    return low, high


def _check_reach(limits: Range, most: float) -> None:
    """Check that limits of floats are within what the type can hold."""
    if max(*map(abs, limits), limits[1] - limits[0]) > most:
        raise ValueError(f"its values, and the distance of the limits, are at most {most:g}")


# --- Strides --------------------------------------------------------------------------------------


def _contiguous(shape: list[int]) -> list[int]:
    steps, step = [], 1
    for length in reversed(shape):
        steps.append(step)
        step *= max(length, 1)
    return steps[::-1]


def _storage(shape: list[int], steps: list[int]) -> int:
    """Return the number of elements from a view's first to its last."""
    return 1 + sum((length - 1) * step for length, step in zip(shape, steps, strict=True))


def _steps(tensor: dict[str, Any]) -> list[int] | None:
    """Return the strides to make, None for those of a contiguous tensor."""
    shape, steps = tensor["shape"], tensor.get("stride")
    if not steps or 0 in shape or min(steps) < 0:
        return None
    pairs = zip(shape, steps, _contiguous(shape), strict=True)
    if all(length == 1 or step == plain for length, step, plain in pairs):
        return None
    size = _storage(shape, steps)
    if size > math.prod(shape) * _MOST_GAPS and size * element_size(tensor["dtype"]) > _SMALL_VIEW:
        return None
    return list(steps)


# --- PyTorch --------------------------------------------------------------------------------------


class _TorchValues:
    """Makes values of PyTorch's."""

    def __init__(self, device: Any, seed: int) -> None:
        self._torch = _imported("torch")
        try:
            self._wanted = None if device is None else self._torch.empty(0, device=device).device
        except Exception as error:  # noqa: BLE001 each backend has an error of its own
            reason = _first_line(error)
            raise ValueError(f"device must be one that is here, got {shown_value(device)}: {reason}") from None
        self._seed = seed
        self._generators: dict[str, Any] = {}
        self._devices: dict[str, Any] = {}

    def dtype(self, name: str) -> Any:
        """Return the type of elements that has a name."""
        found = getattr(self._torch, name, None)
        if not isinstance(found, self._torch.dtype):
            raise ValueError(f"this PyTorch has no dtype {shown_value(name)}")
        return found

    def device(self, name: str) -> Any:
        """Return the device to use for a recorded one."""
        kind = name.partition(":")[0]
        if self._wanted is not None and kind not in ("cpu", "meta"):
            return self._wanted
        if name not in self._devices:
            torch = self._torch
            try:
                device = torch.device(name)
                torch.empty(0, device=device)
            except Exception as error:  # noqa: BLE001 each backend has an error of its own
                device, reason = self._substitute(kind), _first_line(error)
                shown = shown_text("text", name)
                log.complain(f"[Harness] Device {shown} is not here ({reason}); {device} stands in for it")
            self._devices[name] = device
        return self._devices[name]

    def _substitute(self, kind: str) -> Any:
        torch = self._torch
        accelerator = getattr(torch, "accelerator", None)
        if accelerator is not None and accelerator.is_available():
            found = accelerator.current_accelerator()
            return torch.device(found.type, accelerator.current_device_index())
        module = getattr(torch, kind, None)
        if accelerator is None and module is not None and module.is_available():  # an unknown index
            return torch.device(kind, 0)
        return torch.device("cpu")

    def tensor(self, tensor: dict[str, Any], limits: Range | None) -> Any:
        """Return a tensor."""
        torch = self._torch
        dtype = self.dtype(tensor["dtype"])
        device = self.device(tensor["device"])
        shape, steps = tensor["shape"], _steps(tensor)
        if steps is None:
            made = self._filled(shape, dtype, device, limits)
        else:
            flat = self._filled([_storage(shape, steps)], dtype, device, limits)
            made = torch.as_strided(flat, shape, steps)
        return made.requires_grad_() if tensor.get("requires_grad") else made

    def _filled(self, shape: list[int], dtype: Any, device: Any, limits: Range | None) -> Any:
        torch, key = self._torch, str(device)
        if device.type == "meta":
            return torch.empty(shape, dtype=dtype, device=device)
        if key not in self._generators:
            try:
                generator = torch.Generator(device=device)
            except RuntimeError:  # values are made on the CPU then, and moved
                generator = torch.Generator()
            self._generators[key] = generator.manual_seed(self._seed)
        made = self._values(shape, dtype, limits, self._generators[key])
        return made if made.device == device else made.to(device)

    def _values(self, shape: list[int], dtype: Any, limits: Range | None, generator: Any) -> Any:
        torch = self._torch
        place = {"generator": generator, "device": generator.device}
        if dtype.is_complex:
            plain = dtype if dtype in (torch.complex64, torch.complex128) else torch.complex64
            return torch.randn(shape, dtype=plain, **place).to(dtype)
        if dtype.is_floating_point:
            plain = dtype if dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16) else torch.float32
            if limits is None:
                made = torch.randn(shape, dtype=plain, **place)
            else:
                _check_reach(limits, torch.finfo(dtype).max)
                made = torch.rand(shape, dtype=plain, **place).mul_(limits[1] - limits[0]).add_(limits[0])
            if "_x2" in str(dtype):  # two in a byte, and nothing that makes them
                return torch.zeros(shape, dtype=torch.uint8, device=made.device).view(dtype)
            return (made.abs_() if "e8m0" in str(dtype) else made).to(dtype)  # which has no sign
        if dtype == torch.bool:
            return torch.randint(0, 2, shape, dtype=torch.uint8, **place).to(torch.bool)
        low, high = _integers(limits)
        kept = torch.iinfo(dtype)
        if low < kept.min or high - 1 > kept.max:
            raise ValueError(f"its values are from {kept.min} to {kept.max}, not from {low} to {high - 1}")
        if high > _MOST_DRAWN:
            raise ValueError(f"values from {_MOST_DRAWN} on cannot be drawn")
        return torch.randint(low, high, shape, dtype=torch.int64, **place).to(dtype)


# --- NumPy ----------------------------------------------------------------------------------------


def _array(numpy: Any, generator: Any, tensor: dict[str, Any], limits: Range | None) -> Any:
    if not _ARRAY_DTYPE.fullmatch(tensor["dtype"]):  # of the others, NumPy makes records by evaluating them
        raise ValueError(f"no values can be made for {shown_value(tensor['dtype'])}")
    dtype = numpy.dtype(tensor["dtype"])
    steps = _steps(tensor)
    shape = tensor["shape"] if steps is None else [_storage(tensor["shape"], steps)]
    if dtype.kind in "iu":
        made = generator.integers(*_integers(limits), shape, dtype=dtype.newbyteorder("="))
    elif dtype.kind == "b":
        made = generator.integers(0, 2, shape)
    elif dtype.kind == "c":
        made = generator.standard_normal(shape) + 1j * generator.standard_normal(shape)
    elif dtype.kind == "f" and limits is None:
        made = generator.standard_normal(shape)
    elif dtype.kind == "f" and limits is not None:
        _check_reach(limits, float(numpy.finfo(dtype).max))
        made = generator.uniform(*limits, shape)
    else:  # texts, dates, records
        made = numpy.full(shape, None, dtype=object) if dtype.hasobject else numpy.zeros(shape, dtype)
    made = numpy.asarray(made).astype(dtype, copy=False)
    if steps is None:
        return made
    return numpy.lib.stride_tricks.as_strided(made, tensor["shape"], [step * dtype.itemsize for step in steps])
