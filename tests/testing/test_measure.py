"""``cprofiling.measure``: samples, figures, devices, and the reasons not to trust them, on a clock that tests own."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import gc
import importlib
import math
import os
import pickle
import random
import re
import statistics
import sys
from collections import UserDict
from collections.abc import AsyncIterator, Callable, Iterator
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from calls import run_python
from fakes.fake_torch import FakeTorch, forget_devices
from fragments import parsed
from markup import Markup

# By name: as an attribute, ``cprofiling.measure`` may be the function.
module: Any = importlib.import_module("cprofiling.testing.measure")
Measurement = module.Measurement
measure = module.measure

get_stats = gc.get_stats

MS = 1_000_000


class Clock:
    """Nanoseconds that go on by ``tick`` at each read."""

    def __init__(self, tick: int = 10) -> None:
        self.now = 0
        self.tick = tick
        self.log: list[str] = []

    def __call__(self) -> int:
        self.now += self.tick
        self.log.append("clock")
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def quiet(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """A machine that gives no cause for a warning, without torch unless the test asks for the real one."""
    monkeypatch.setattr(module, "_clock_ns", clock)
    monkeypatch.setattr(module, "_CPU_FOLDER", "/nothing")
    monkeypatch.setattr(gc, "get_stats", list)
    monkeypatch.setattr(sys, "gettrace", lambda: None)
    monkeypatch.setattr(sys, "getprofile", lambda: None)
    monkeypatch.delattr(sys, "monitoring", raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    if "real_torch" not in request.fixturenames:
        monkeypatch.setitem(sys.modules, "torch", None)


@pytest.fixture
def real_torch() -> Any:
    return pytest.importorskip("torch")


def working(clock: Clock, durations_ns: list[int]) -> Callable[..., None]:
    """A function whose n-th call takes ``durations_ns[n]`` on the clock, its reads included."""
    remaining = iter(durations_ns)

    def work(*_: object) -> None:
        clock.now += next(remaining) - clock.tick

    return work


def measured(clock: Clock, durations_ns: list[int]) -> Any:
    return measure(working(clock, durations_ns), warmup=0, repeat=len(durations_ns))


def steady(count: int = 20, around: int = 100 * MS) -> list[int]:
    """Samples that differ by 0.1 % and do not drift."""
    return [around + (around // 1000) * (i % 3 - 1) for i in range(count)]


# Calls


def test_calls_and_arguments() -> None:
    calls: list[tuple[object, ...]] = []
    first, second = object(), object()
    result = measure(lambda *args: calls.append(args), first, second, warmup=2, repeat=5)
    assert len(calls) == 7
    assert all(call[0] is first and call[1] is second for call in calls)
    assert (result.warmup, result.count, len(result.samples_ms)) == (2, 5, 5)
    by_default = measure(lambda: calls.append(()))
    assert (len(calls), by_default.warmup, by_default.count, by_default.synchronized) == (7 + 23, 3, 20, None)


def test_waits_before_the_start_and_before_the_stop(clock: Clock) -> None:
    def my_wait() -> None:
        clock.log.append("wait")

    result = measure(lambda: clock.log.append("fn"), warmup=1, repeat=3, synchronize=my_wait)
    assert clock.log[:16] == ["fn", *["wait", "clock", "fn", "wait", "clock"] * 3]
    assert clock.log.count("wait") == 6
    assert result.synchronized == "my_wait"


@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt(), SystemExit(3), StopIteration()])
@pytest.mark.parametrize("at", [0, 2, 3, 7])
def test_exceptions_of_fn_pass_untouched(error: BaseException, at: int) -> None:
    """A1, A2: the same object, from a warm-up call or a timed one, and no call after it."""
    calls: list[int] = []

    def fails() -> None:
        calls.append(len(calls))
        if len(calls) > at:
            raise error

    with pytest.raises(type(error)) as caught:
        measure(fails, warmup=3, repeat=5)
    assert caught.value is error
    assert caught.value.__context__ is None
    assert len(calls) == at + 1


def test_exceptions_of_the_wait_pass_untouched() -> None:
    error = OSError("device lost")

    def wait() -> None:
        raise error

    with pytest.raises(OSError, match="device lost") as caught:
        measure(lambda: None, synchronize=wait)
    assert caught.value is error


# Arguments


@dataclasses.dataclass
class Index:
    value: int

    def __index__(self) -> int:
        return self.value


class BrokenIndex:
    def __index__(self) -> int:
        raise LookupError("no index today")


def test_anything_with_index_counts() -> None:
    result = measure(len, (), warmup=Index(0), repeat=Index(6))
    assert (result.warmup, result.count) == (0, 6)


async def coroutine_function(*_: object) -> None:
    await asyncio.sleep(0)


async def async_generator_function() -> AsyncIterator[int]:
    yield 1


class AsyncCallable:
    async def __call__(self) -> None:
        await asyncio.sleep(0)

    async def method(self) -> None:
        await asyncio.sleep(0)


ALLOWED = 'synchronize must be "auto", True, False, None or a callable without arguments, got '
ASYNC = "a call would only make its coroutine; measure a function that runs it, such as lambda: asyncio.run(main())"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"warmup": -1}, ValueError, f"warmup must be from 0 to {sys.maxsize}, got -1"),
        ({"repeat": 0}, ValueError, f"repeat must be from 1 to {sys.maxsize}, got 0"),
        ({"repeat": Index(-7)}, ValueError, f"repeat must be from 1 to {sys.maxsize}, got -7"),
        ({"warmup": True}, TypeError, "warmup must be an integer, got True (bool)"),
        ({"repeat": 2.0}, TypeError, "repeat must be an integer, got 2.0 (float)"),
        ({"warmup": 10**5000}, ValueError, f"warmup must be from 0 to {sys.maxsize}, got an integer of 16610 bits"),
        ({"warmup": BrokenIndex()}, LookupError, "no index today"),
        ({"synchronize": "cuda"}, ValueError, f"{ALLOWED}'cuda' (str)"),
        ({"synchronize": 1}, TypeError, f"{ALLOWED}1 (int)"),
        ({"synchronize": b"auto"}, TypeError, f"{ALLOWED}b'auto' (bytes)"),
        ({"synchronize": coroutine_function}, TypeError, ALLOWED),
        ({"fn": 3}, TypeError, "fn must be callable, got 3 (int)"),
        ({"fn": None}, TypeError, "fn must be callable, got None (NoneType)"),
        ({"fn": "len"}, TypeError, "fn must be callable, got 'len' (str)"),
        ({"fn": coroutine_function}, TypeError, ASYNC),
        ({"fn": async_generator_function}, TypeError, ASYNC),
        ({"fn": functools.partial(functools.partial(coroutine_function, 1), 2)}, TypeError, ASYNC),
        ({"fn": AsyncCallable()}, TypeError, ASYNC),
        ({"fn": AsyncCallable().method}, TypeError, ASYNC),
        ({"reverse": True}, TypeError, "no argument 'reverse'; for fn, use a lambda: measure(lambda: fn(..., reverse="),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    """F7: and nothing was called."""
    calls: list[None] = []
    with pytest.raises(error, match=re.escape(message)):
        measure(**{"fn": lambda: calls.append(None), **arguments})
    assert calls == []


# Names


class Node:
    def __call__(self) -> None:
        pass

    def forward(self) -> None:
        pass


class Named:
    __name__ = "ufunc"

    def __call__(self) -> None:
        pass


def test_names() -> None:
    def inner() -> None:
        pass

    expected: dict[str, Callable[..., object]] = {
        "inner": inner,
        "Node.forward": Node().forward,
        "Node": Node(),
        "ufunc": Named(),
        "<lambda>": lambda: None,
        "dict": dict,
    }
    assert [measure(fn).name for fn in expected.values()] == list(expected)
    assert measure(functools.partial(functools.partial(len), ())).name == "len"


# Figures


def exact_percentile(ordered: list[int], percent: int) -> float:
    position = Fraction((len(ordered) - 1) * percent, 100)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return float((ordered[below] + (position - below) * (ordered[above] - ordered[below])) / MS)


@pytest.mark.parametrize("count", [1, 2, 5, 20, 101])
@pytest.mark.parametrize("magnitude", [1, 3, 10**15])
def test_figures_are_the_rational_values_rounded(clock: Clock, count: int, magnitude: int) -> None:
    chance = random.Random(count * magnitude)
    durations = [clock.tick + magnitude + chance.randrange(magnitude) for _ in range(count)]
    result = measured(clock, durations)
    ordered = sorted(durations)
    assert result.samples_ms == tuple(float(Fraction(value, MS)) for value in durations)
    assert result.count == count
    assert result.total_ms == float(Fraction(sum(durations), MS))
    assert result.mean_ms == float(Fraction(sum(durations), count * MS))
    assert (result.min_ms, result.max_ms) == (ordered[0] / MS, ordered[-1] / MS)
    assert result.median_ms == exact_percentile(ordered, 50)
    assert result.p90_ms == exact_percentile(ordered, 90)
    assert result.p99_ms == exact_percentile(ordered, 99)
    variance = statistics.pvariance([Fraction(value, MS) for value in durations])
    assert result.std_ms == pytest.approx(math.sqrt(variance), rel=1e-15, abs=0)


# Outliers


def test_outliers_at_the_limit(clock: Clock) -> None:
    # With a MAD of 1,000 ns the limit is a deviation of 3.5 * 1,000 / 0.6745 = 5,189.03 ns.
    around = [10 * MS - 1_000, 10 * MS, 10 * MS + 1_000] * 5
    assert measured(clock, [*around, 10 * MS + 5_189, 10 * MS - 5_189]).outliers == ()
    assert measured(clock, [*around, 10 * MS + 5_190, 10 * MS - 5_190]).outliers == (15, 16)


def test_outliers_where_most_samples_are_equal(clock: Clock) -> None:
    """A MAD of 0 is taken as the clock's step, 10 ns: a deviation of 51.89 ns is the limit."""
    durations = [MS] * 18
    assert measured(clock, [*durations, MS + 51, MS - 51]).outliers == ()
    assert measured(clock, [*durations, MS + 52, MS - 52]).outliers == (18, 19)
    assert measured(clock, durations).outliers == ()
    assert measured(clock, [MS - 1, MS, MS + 1] * 6 + [MS + 51, MS + 52]).outliers == (19,)


# Warnings of clock and samples


def only_warning(result: Any) -> str:
    assert len(result.warnings) == 1, result.warnings
    return str(result.warnings[0])


def test_warning_of_a_clock_that_stands_still(clock: Clock) -> None:
    """E4: times of 0 count, and every figure is finite."""
    clock.tick = 0
    result = measure(lambda: None)
    assert result.samples_ms == (0.0,) * 20
    assert (result.mean_ms, result.std_ms, result.p99_ms, result.outliers) == (0.0, 0.0, 0.0, ())
    assert only_warning(result).startswith("the median, 0.00 ns, is below 100 times")


def test_a_coarse_clock_is_as_good_as_its_step(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten reads out of eleven show no step at all; the step counts, not the typical difference."""

    def coarse() -> int:
        return clock() // 110 * 110

    monkeypatch.setattr(module, "_clock_ns", coarse)
    assert "costs, 110.0 ns" in only_warning(measured(clock, [10_000] * 20))


DRIFT = "the calls drift: the second half is {} than the first, by {:.1f} % of the median"


@pytest.mark.parametrize(
    ("durations", "warning"),
    [
        ([1_000] * 20, None),
        ([999] * 20, "the median, 999.0 ns, is below 100 times what timing an empty call costs, 10.00 ns: do more work "
         "in fn"),
        ([95 * MS, 100 * MS, 105 * MS] * 7, None),
        ([94 * MS, 100 * MS, 106 * MS] * 7, "the samples spread: their MAD is 6.0 % of the median, above 5 %"),
        # The odd sample in the middle belongs to neither half; the median of all is it.
        ([100 * MS] * 10 + [103 * MS] + [106 * MS] * 10, DRIFT.format("slower", 600 / 103)),
        ([100 * MS] * 10 + [97 * MS] + [94 * MS] * 10, DRIFT.format("faster", 600 / 97)),
        ([97_500_000] * 10 + [102_500_000] * 10, None),
        ([100 * MS], "1 sample: too few for percentiles, which need 5"),
        ([100 * MS] * 4, "4 samples: too few for percentiles, which need 5"),
    ],
)  # fmt: skip
def test_warnings_of_samples(clock: Clock, durations: list[int], warning: str | None) -> None:
    assert measured(clock, durations).warnings == (() if warning is None else (warning,))


def test_no_drift_within_the_noise(clock: Clock) -> None:
    noisy = [70 * MS, 100 * MS, 130 * MS, 100 * MS, 85 * MS] * 2
    shifted = [value + 10 * MS for value in noisy]
    assert only_warning(measured(clock, noisy + shifted)).startswith("the samples spread")


@pytest.mark.parametrize("kind", ["generator", "coroutine", "async_generator"])
def test_warning_of_work_that_did_not_run(clock: Clock, kind: str) -> None:
    made: dict[str, Any] = {
        "generator": (letter for letter in "abc"),
        "coroutine": coroutine_function(),
        "async_generator": async_generator_function(),
    }
    work = working(clock, [100 * MS] * 21)

    def returns_it() -> object:
        work()
        return made[kind]

    result = measure(returns_it, warmup=1)
    made["coroutine"].close()
    assert only_warning(result) == f"fn returned a {kind}, and what that would do was not timed: run it inside fn"


class Wave:
    """TorchFX's, as far as it is looked at: filters that have not run are in a list."""

    def __init__(self, *pipeline: object) -> None:
        self._pipeline = list(pipeline)


def test_filters_of_a_wave_that_did_not_run(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """`wave | chain` runs nothing."""
    monkeypatch.setitem(sys.modules, "torchfx", SimpleNamespace(Wave=Wave))
    work = working(clock, [100 * MS] * 42)
    for wave, told in ((Wave("filter"), True), (Wave(), False)):

        def piped(wave: Wave = wave) -> Wave:
            work()
            return wave

        warnings = measure(piped, warmup=1).warnings
        why = "fn returned a Wave; its filters did not run and were not timed: read its .ys inside fn"
        assert warnings == ((why,) if told else ())
    with pytest.raises(
        TypeError, match=r"^fn must be callable, got .*Wave.*: measure\(lambda: \(wave \| chain\)\.ys\) runs"
    ):
        measure(Wave("filter"))


# Warnings of the machine


def test_warning_of_garbage_collection(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "get_stats", get_stats)
    work = working(clock, steady())
    runs = iter([0, *[None] * 18, 2])

    def collecting() -> None:
        work()
        generation = next(runs)
        if generation is not None:
            gc.collect(generation)

    gc.disable()
    try:
        warning = only_warning(measure(collecting, warmup=0, repeat=20))
    finally:
        gc.enable()
    assert warning == "the garbage collector ran 2 times during the timed calls"


def test_warning_of_tracers(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def warned() -> str:
        return only_warning(measured(clock, steady())).rpartition(": ")[2]

    names: list[str | None] = [None, "coverage", None, None, None, "mine"]
    monkeypatch.setattr(sys, "monitoring", SimpleNamespace(get_tool=names.__getitem__), raising=False)
    assert warned() == "sys.monitoring (coverage), sys.monitoring (mine)"
    monkeypatch.setattr(sys, "gettrace", lambda: print)
    monkeypatch.setattr(sys, "getprofile", lambda: print)
    monkeypatch.delattr(sys, "monitoring")
    assert warned() == "sys.settrace, sys.setprofile"


@pytest.mark.parametrize(
    ("load", "cpus", "warning"),
    [
        (4.0, 4, None),
        (5.25, 4, "the machine is busy: load average 5.2 on 4 CPUs"),
        (5.25, None, "the machine is busy: load average 5.2 on 1 CPU"),
        (None, 4, None),
    ],
)
def test_warning_of_a_busy_machine(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, load: float | None, cpus: int | None, warning: str | None
) -> None:
    def average() -> tuple[float | None, float, float]:
        if load is None:
            raise OSError("no load average")
        return load, 2.5, 3.5

    monkeypatch.setattr(os, "getloadavg", average)
    monkeypatch.setattr(os, "cpu_count", lambda: cpus)
    assert measured(clock, steady()).warnings == ((warning,) if warning else ())


@pytest.mark.parametrize(
    ("governors", "named"),
    [
        ([b"powersave\n"], "powersave"),
        ([b"performance\n", b"schedutil\n", b"\n", b"ondemand\n", b"later\n"], "ondemand, schedutil"),
        ([b"caf\xe9"], "caf\ufffd"),
        ([b"performance\n"], None),
        ([], None),  # not readable
    ],
)
def test_warning_of_the_governor(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, governors: list[bytes], named: str | None
) -> None:
    """The first four CPUs are all that there are."""
    monkeypatch.setattr(module, "_CPU_FOLDER", str(tmp_path))
    for cpu, content in enumerate(governors):
        folder = tmp_path / f"cpu{cpu}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_bytes(content)
    expected = f'CPU frequency may change: the governor is {named}, not "performance"'
    assert measured(clock, steady()).warnings == ((expected,) if named else ())


# Devices


class FakeTensor:
    def __init__(self, device: str) -> None:
        self.device = device


class FakeModule:
    def __init__(self, parameters: list[str], buffers: list[str]) -> None:
        self.held = ([FakeTensor(device) for device in parameters], [FakeTensor(device) for device in buffers])

    def parameters(self) -> Iterator[FakeTensor]:
        return iter(self.held[0])

    def buffers(self) -> Iterator[FakeTensor]:
        return iter(self.held[1])

    def __call__(self, *_: object) -> None:
        pass

    def forward(self) -> None:
        pass


class Torch(FakeTorch):
    """With the types that are looked for. ``log`` holds the names of the devices that were waited for."""

    def __init__(self, kind: str = "cpu", contexts: tuple[int, ...] = (), **options: Any) -> None:
        super().__init__(kind, devices=1 if kind == "mps" else 4, **options)
        self.nn, self.Tensor = SimpleNamespace(Module=FakeModule), FakeTensor
        self._C._cuda_hasPrimaryContext = lambda index: index in contexts
        self.allocate(1)

    def _call(self, name: str) -> None:
        """Only waits are noted."""

    def _synchronize(self, device: int = 0) -> None:
        self.log.append(f"{self.kind}:{device}")


@pytest.fixture
def use_torch(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    def make(*arguments: Any, **keywords: Any) -> Torch:
        torch = Torch(*arguments, **keywords)
        forget_devices(monkeypatch)
        monkeypatch.setitem(sys.modules, "torch", torch)
        return torch

    return make


def waited(fn: Callable[..., object], *args: object, **keywords: Any) -> str | None:
    """What the calls waited for, where nothing else is amiss with that."""
    result = measure(fn, *args, warmup=0, repeat=5, **keywords)
    assert all(warning.startswith("the median") for warning in result.warnings), result.warnings
    return result.synchronized  # type: ignore[no-any-return]


def ignore(*_: object, **__: object) -> None:
    pass


CUDA_0, CUDA_1, CPU, META = FakeTensor("cuda:0"), FakeTensor("cuda:1"), FakeTensor("cpu"), FakeTensor("meta")


@pytest.mark.parametrize(
    ("args", "devices"),
    [
        ((CUDA_1,), "cuda:1"),
        ((CPU, META, CUDA_1), "cuda:1"),
        ((CUDA_1, CUDA_0, CUDA_1), "cuda:1, cuda:0"),
        (([CUDA_1],), "cuda:1"),
        (((1, {"image": [CPU, CUDA_1]}),), "cuda:1"),
        ((UserDict(image=CUDA_1),), "cuda:1"),
        (({CUDA_1}, frozenset({CUDA_1})), "cuda:1"),
        ((FakeModule(["cuda:1"], []),), "cuda:1"),
        ((FakeModule([], ["cuda:1"]),), "cuda:1"),
        ((FakeModule(["cuda:0", "cuda:1"], ["cpu"]),), "cuda:0, cuda:1"),
        (([0.0] * 100_000, CUDA_1), "cuda:1"),
    ],
)
def test_the_devices_of_arguments(use_torch: Callable[..., Any], args: tuple[object, ...], devices: str) -> None:
    torch = use_torch("cuda", contexts=(0, 1, 2))
    assert waited(ignore, *args) == devices
    assert set(torch.log) == set(devices.split(", "))


def test_the_devices_of_fn(use_torch: Callable[..., Any]) -> None:
    use_torch("cuda", contexts=(0, 1, 2))
    node = FakeModule(["cuda:1"], [])
    for fn in (node, node.forward, lambda: node(CPU), functools.partial(ignore, CPU, image=CUDA_1)):
        assert waited(fn) == "cuda:1"


def test_a_closure_with_an_unassigned_variable(use_torch: Callable[..., Any]) -> None:
    use_torch("cuda", contexts=(0, 1, 2))
    tensor = CUDA_1

    def fn(*, both: bool = False) -> object:
        return (later, tensor) if both else None

    assert waited(fn) == "cuda:1"
    later = CPU
    assert fn(both=True) == (later, tensor)


def test_the_search_ends(use_torch: Callable[..., Any]) -> None:
    """Behind too many other objects a tensor is not found, and the devices in use stand in."""
    use_torch("cuda", contexts=(2,))
    assert waited(ignore, [*range(100_000), CUDA_1]) == "cuda:2"


def test_the_devices_in_use_where_no_tensor_is_found(use_torch: Callable[..., Any]) -> None:
    torch = use_torch("cuda", contexts=(0, 2))
    assert waited(ignore, CPU) == "cuda:0, cuda:2"
    assert set(torch.log) == {"cuda:0", "cuda:2"}
    del torch._C._cuda_hasPrimaryContext
    torch.current = 3
    assert waited(ignore) == "cuda:3"


@pytest.mark.parametrize(
    ("keywords", "synchronize"),
    [
        ({"contexts": (0,)}, False),
        ({"contexts": (0,)}, None),
        ({"contexts": ()}, "auto"),  # no context is made
        ({"begun": False}, "auto"),  # CUDA is not initialised
    ],
)
def test_nothing_is_waited_for(use_torch: Callable[..., Any], keywords: dict[str, Any], synchronize: Any) -> None:
    torch = use_torch("cuda", **keywords)
    assert waited(ignore, CUDA_0 if keywords == {"contexts": (0,)} else CPU, synchronize=synchronize) is None
    assert torch.log == []


def test_true_says_so_where_there_is_no_device(clock: Clock, use_torch: Callable[..., Any]) -> None:
    expected = "synchronize=True, but no accelerator is in use: nothing was waited for"
    work = working(clock, [100 * MS] * 10)
    assert only_warning(measure(work, repeat=5, warmup=0, synchronize=True)) == expected
    use_torch("cuda", begun=False)
    assert only_warning(measure(work, repeat=5, warmup=0, synchronize=True)) == expected


def test_each_call_waits_twice_for_each_device(use_torch: Callable[..., Any]) -> None:
    torch = use_torch("cuda", contexts=(0, 1))
    measure(lambda *_: torch.log.append("fn"), CUDA_0, CUDA_1, warmup=2, repeat=3)
    both = ["cuda:0", "cuda:1"]
    assert torch.log[:17] == ["fn", "fn", *[*both, "fn", *both] * 3]
    assert torch.log.count("fn") == 5


def test_an_empty_timing_includes_the_wait(clock: Clock, use_torch: Callable[..., Any]) -> None:
    torch = use_torch("cuda", contexts=(0,))

    def wait(_: int) -> None:
        clock.now += 990

    torch.accelerator.synchronize = wait
    result = measure(working(clock, [50_000] * 20), CUDA_0, warmup=0)
    assert "the median, 50.99 µs, is below 100 times what timing an empty call costs, 1.00 µs" in only_warning(result)
    assert measure(working(clock, [99_010] * 20), CUDA_0, warmup=0).warnings == ()


@pytest.mark.parametrize("synchronize", ["auto", True])
def test_a_stream_capture_is_not_disturbed(clock: Clock, use_torch: Callable[..., Any], synchronize: Any) -> None:
    torch = use_torch("cuda", contexts=(0,))
    torch.capturing = True
    result = measure(working(clock, [100 * MS] * 5), CUDA_0, warmup=0, repeat=5, synchronize=synchronize)
    assert only_warning(result) == "a stream of cuda is being captured: nothing was waited for"
    assert result.synchronized is None
    assert torch.log == []
    torch = use_torch("cuda", contexts=(0,))
    del torch.cuda.is_current_stream_capturing
    assert waited(ignore, CUDA_0) == "cuda:0"


def test_an_accelerator_other_than_cuda(use_torch: Callable[..., Any]) -> None:
    torch = use_torch("xpu")
    torch.current = 2
    assert waited(ignore, FakeTensor("xpu:1")) == "xpu:1"
    assert waited(ignore) == "xpu:2"
    assert set(torch.log) == {"xpu:1", "xpu:2"}
    use_torch("xpu", accelerator=False).xpu.current_device = None
    assert waited(ignore) == "xpu:0"


def test_an_accelerator_that_is_not_in_use(use_torch: Callable[..., Any]) -> None:
    torch = use_torch("xpu", begun=False)
    assert waited(ignore) is None
    del torch.xpu
    assert waited(ignore) is None
    del torch.accelerator
    assert waited(ignore) is None
    assert torch.log == []


@pytest.mark.parametrize(
    ("kind", "devices", "missed", "synchronized"),
    [
        ("cpu", ["xla:0"], "xla:0", None),
        ("cpu", ["cuda:0"], "cuda:0", None),  # in a forked child, or without storage
        ("cuda", ["xla:0", "cuda:0", "xla:1"], "xla:0, xla:1", "cuda:0"),
        ("mps", ["mps:0", "xpu:0"], "xpu:0", "mps:0"),
    ],
)
def test_warning_of_a_device_without_a_wait(
    clock: Clock,
    use_torch: Callable[..., Any],
    kind: str,
    devices: list[str],
    missed: str,
    synchronized: str | None,
) -> None:
    torch = use_torch(kind, contexts=(0,))
    result = measure(working(clock, [100 * MS] * 5), *map(FakeTensor, devices), warmup=0, repeat=5)
    assert only_warning(result) == f"torch cannot wait for {missed}: work there may be missing"
    assert result.synchronized == synchronized
    assert set(torch.log) == ({synchronized} if synchronized else set())


def test_a_module_that_only_bears_the_name_of_torch(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of ours costs nobody the measurement."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    result = measure(working(clock, [100 * MS] * 5), warmup=0, repeat=5)
    assert only_warning(result).startswith("nothing was waited for: torch told no device (AttributeError: ")
    assert result.count == 5
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=FakeTensor, nn=SimpleNamespace(Module=FakeModule)))
    result = measure(working(clock, [100 * MS] * 5), warmup=0, repeat=5)
    assert only_warning(result).startswith("nothing was waited for: PyTorch does not answer (AttributeError: ")


def test_the_search_comes_after_the_warm_up(use_torch: Callable[..., Any]) -> None:
    torch = use_torch("cuda", contexts=(1,))
    torch.begun = False

    def first_use() -> None:
        torch.begun = True

    assert measure(first_use, warmup=1, repeat=5).synchronized == "cuda:1"


@pytest.mark.parametrize("synchronize", ["auto", False])
def test_warning_of_a_device_that_the_timed_calls_began_to_use(
    clock: Clock, use_torch: Callable[..., Any], synchronize: Any
) -> None:
    torch = use_torch("cuda", contexts=(1,))
    torch.begun = False
    work = working(clock, [100 * MS] * 5)

    def first_use() -> None:
        torch.begun = True
        work()

    result = measure(first_use, warmup=0, repeat=5, synchronize=synchronize)
    late = "cuda:1 came into use during the timed calls and was not waited for: use a larger warmup"
    assert result.warnings == ((late,) if synchronize == "auto" else ())
    assert result.synchronized is None
    assert torch.log == []


def test_with_the_real_torch(real_torch: Any) -> None:
    on_gpu = real_torch.cuda.is_available()
    device = "cuda:0" if on_gpu else "cpu"
    layer = real_torch.nn.Linear(8, 8).to(device)
    batch = real_torch.ones(4, 8, device=device)
    results = [measure(fn, *args, warmup=1, repeat=5) for fn, args in ((layer, (batch,)), (lambda: layer(batch), ()))]
    assert [result.synchronized for result in results] == ["cuda:0" if on_gpu else None] * 2
    assert [result.name for result in results] == ["Linear", "<lambda>"]
    assert not any("torch told no device" in warning for result in results for warning in result.warnings)


# The result


def sample_measurement(**changes: Any) -> Any:
    figures = {
        "name": "node",
        "samples_ms": (0.0125, 0.012, 1.25, 2500.0),
        "count": 4,
        "mean_ms": 625.31,
        "median_ms": 0.63125,
        "std_ms": 1082.4,
        "min_ms": 0.012,
        "max_ms": 2500.0,
        "p90_ms": 0.000042,
        "p99_ms": 0.99999999,
        "total_ms": 2501.2745,
        "warmup": 1,
        "synchronized": "cuda:0",
        "outliers": (2, 3),
        "warnings": ("first reason", "second reason"),
    }
    return Measurement(**{**figures, **changes})


def test_the_result_is_a_frozen_and_picklable_value(clock: Clock) -> None:
    result = measured(clock, steady())
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.count = 3
    twin = dataclasses.replace(result)
    assert (twin == result, hash(twin) == hash(result), {twin, result} == {result}) == (True, True, True)
    assert dataclasses.replace(result, warmup=9) != result
    assert dataclasses.asdict(result)["samples_ms"] == result.samples_ms
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        restored = pickle.loads(pickle.dumps(result, protocol))
        assert (restored, type(restored)) == (result, Measurement)


def test_report() -> None:
    assert str(sample_measurement()) == (
        "node: median 631.2 µs (4 calls after 1 warm-up call, synchronised with cuda:0)\n"
        "  mean 625.3 ms, std 1.08 s, total 2.50 s\n"
        "  min 12.00 µs, p90 42.00 ns, p99 1.00 ms, max 2.50 s\n"
        "  outliers: [2] 1.25 ms, [3] 2.50 s\n"
        "  warning: first reason\n"
        "  warning: second reason"
    )


def test_report_without_anything_to_say() -> None:
    quiet = sample_measurement(synchronized=None, outliers=(), warnings=(), warmup=0, count=1)
    assert str(quiet).splitlines()[0] == "node: median 631.2 µs (1 call after 0 warm-up calls)"
    assert len(str(quiet).splitlines()) == 3
    document = Markup(quiet._repr_html_())
    assert "outliers" not in document.texts
    assert "p" not in document.tags


def test_report_of_many_outliers() -> None:
    samples = tuple(float(value) for value in range(1, 31))
    ten = ", ".join(f"[{i}] {i + 1}.00 ms" for i in range(10))
    assert f"outliers: {ten}\n" in str(sample_measurement(samples_ms=samples, outliers=tuple(range(10))))
    assert f"outliers: {ten} and 5 more\n" in str(sample_measurement(samples_ms=samples, outliers=tuple(range(15))))


HOSTILE = "</td><script>alert('1') & \"2\"\x1b[31m\n\ud800"


def test_report_shows_control_characters_as_escapes() -> None:
    """F3, F4."""
    text = str(sample_measurement(name=HOSTILE, synchronized=HOSTILE, warnings=(HOSTILE,)))
    assert len(text.splitlines()) == 5
    assert text.count("\\x1b[31m\\n\\ud800") == 3
    assert text.encode("utf-8").decode("utf-8") == text


def test_html() -> None:
    page = parsed(sample_measurement()._repr_html_())
    assert page.texts["caption"] == "node: 4 calls after 1 warm-up call, synchronised with cuda:0"
    assert {label.text: value.text for label, value in page.rows[1:]} == {
        "Median": "631.2 µs",
        "Mean": "625.3 ms",
        "Std": "1.08 s",
        "Min": "12.00 µs",
        "p90": "42.00 ns",
        "p99": "1.00 ms",
        "Max": "2.50 s",
        "Total": "2.50 s",
    }
    assert page.items == ["Outliers: [2] 1.25 ms, [3] 2.50 s", "Warning: first reason", "Warning: second reason"]


def test_html_is_escaped() -> None:
    """F4, I14: what a name says stays text, and can be encoded."""
    plain = Markup(sample_measurement()._repr_html_())
    markup = sample_measurement(name=HOSTILE, synchronized=HOSTILE, warnings=(HOSTILE, HOSTILE))._repr_html_()
    hostile = Markup(markup)
    assert hostile.tags == plain.tags
    shown = "</td><script>alert('1') & \"2\"\\x1b[31m\\n\\ud800"
    assert "".join(hostile.texts).count(shown) == 4
    assert markup.encode("utf-8").decode("utf-8") == markup


# As it is used


def test_with_the_real_clock_and_machine() -> None:
    """G11: torch is never imported, and no other heavy module."""
    run = run_python(
        """
import sys
from cprofiling.testing.measure import measure
result = measure(sorted, list(range(1000)), warmup=1, repeat=8)
assert result.count == len(result.samples_ms) == 8
assert 0 < result.min_ms <= result.median_ms <= result.p90_ms <= result.p99_ms <= result.max_ms <= result.total_ms
assert result.synchronized is None
print(ascii(str(result)))
unwanted = {"torch", "numpy", "asyncio", "statistics"} & set(sys.modules)
assert not unwanted, unwanted
"""
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("'sorted: median ")
