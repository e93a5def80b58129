"""TorchFX's plans: the steps that really run as nodes, fused ones with what is fused in them."""

from __future__ import annotations

import concurrent.futures
import re
from typing import Any

import pytest

import cprofiling as cp
from calls import counts, outcomes, profiler_on, stages
from example_runs import output_of

torch: Any = pytest.importorskip("torch")
torchfx: Any = pytest.importorskip("torchfx")

from torchfx import Wave  # noqa: E402
from torchfx.effect import Gain, Normalize  # noqa: E402
from torchfx.filter import HiButterworth, LoButterworth  # noqa: E402

from cprofiling.integrations.torchfx import profile_waves  # noqa: E402 it needs torchfx

# PyTorch and what it uses warn of deprecations of their own.
pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("one_thread")]

RATE = 8_000


class Failing(torch.nn.Module):  # type: ignore[misc]
    """Fails as long as it is told to."""

    fails = True

    def forward(self, waveform: Any) -> Any:
        if self.fails:
            raise ValueError("on purpose")
        return waveform


class Mixing(torch.nn.Module):  # type: ignore[misc]
    """Runs another wave inside."""

    def forward(self, waveform: Any) -> Any:
        return waveform + (Wave(waveform, RATE) | LoButterworth(500)).ys


def wave() -> Any:
    return Wave(torch.linspace(-1, 1, 1_000, dtype=torch.float64), RATE)


def low() -> Any:
    return LoButterworth(1000, order=2)


def high() -> Any:
    return HiButterworth(100, order=2)


@pytest.fixture(autouse=True)
def nothing_stays() -> Any:
    """After each test TorchFX is as before."""
    before = dict(vars(Wave))
    yield
    assert dict(vars(Wave)) == before


def test_only_what_runs_counts(p: cp.Profiler) -> None:
    plain = (wave() | low() | Normalize(0.5)).ys
    with profile_waves(profiler=p):
        lazy = wave() | low() | Normalize(0.5)
        assert counts(p) == {}
        assert torch.equal(lazy.ys, plain)
        assert torch.equal(lazy.ys, plain)  # it has run
    assert counts(p) == {"0 LoButterworth": 1, "1 Normalize": 1}
    (wave() | low()).ys.sum()
    assert counts(p) == {"0 LoButterworth": 1, "1 Normalize": 1}


@pytest.mark.parametrize(
    ("chain", "names"),
    [
        ([high(), low()], ["0 FusedSOSCascade(HiButterworth, LoButterworth)"]),
        ([high() | low() | low()], ["0 FusedSOSCascade(HiButterworth, LoButterworth, LoButterworth)"]),
        ([high(), Normalize(), low()], ["0 HiButterworth", "1 Normalize", "2 LoButterworth"]),
        ([high(), Gain(0.5), low()], ["0 FusedSOSCascade(HiButterworth, LoButterworth, gain 0.5)"]),
        ([Normalize(), Gain(2.0), Normalize()], ["0 Normalize", "1 Gain", "2 Normalize"]),
        ([low() + high()], ["0 ParallelFilterCombination"]),
        ([torch.nn.Identity()], ["0 Identity"]),
        ([low() for _ in range(300)], ["0 FusedSOSCascade(300 filters)"]),
        ([type("L" * 5_000, (torch.nn.Identity,), {})(), Normalize()], ["1 Normalize"]),
    ],
)
def test_names_of_steps(p: cp.Profiler, chain: list[Any], names: list[str]) -> None:
    piped = wave()
    for step in chain:
        piped |= step
    with profile_waves(profiler=p):
        assert piped.ys.shape == (1, 1_000)
    assert counts(p) == dict.fromkeys(names, 1)


@pytest.mark.parametrize("depth", [2, 5, 10, 20])
def test_a_fused_cascade_is_one_node_at_any_depth(p: cp.Profiler, depth: int) -> None:
    fused = wave()
    for _ in range(depth):
        fused |= low()
    with profile_waves(profiler=p):
        unfused = wave()
        for _ in range(depth):
            unfused = wave_of((unfused | low()).ys)
        torch.testing.assert_close(fused.ys, unfused.ys)
    (cascade,) = [name for name in counts(p) if "Fused" in name]
    assert cascade.count("LoButterworth") == depth
    assert counts(p) == {"0 LoButterworth": depth, cascade: 1}


def wave_of(samples: Any) -> Any:
    return Wave(samples, RATE)


def test_stages_and_who_counts() -> None:
    with profiler_on() as bound, profile_waves(), cp.stage("train"):
        (wave() | low()).ys.sum()
    p = profiler_on()
    with profile_waves(stage="val", profiler=p):
        (wave() | low()).ys.sum()
    assert stages(bound) == {("0 LoButterworth", "train"): 1}
    assert stages(p) == {("0 LoButterworth", "val"): 1}


def test_an_exception_passes_through_and_the_wave_can_run_again(p: cp.Profiler) -> None:
    failing = Failing()
    piped = wave() | low() | failing | Normalize()
    with profile_waves(profiler=p):
        for _ in range(2):
            with pytest.raises(ValueError, match="on purpose"):
                piped.ys.sum()
        failing.fails = False
        assert piped.ys.abs().max() == 1.0
    assert outcomes(p, "0 LoButterworth") == (3, 0, 0, 0, 0)
    assert outcomes(p, "1 Failing") == (1, 2, 0, 0, 0)
    assert outcomes(p, "2 Normalize") == (1, 0, 0, 0, 0)


def test_filters_begin_anew_for_each_wave(p: cp.Profiler) -> None:
    """TorchFX resets the states of the plan's steps, through our wrappers as well."""
    chain = low()
    plain = [(wave() | chain).ys for _ in range(2)]
    with profile_waves(profiler=p):
        profiled = [(wave() | chain).ys for _ in range(2)]
    assert all(torch.equal(one, other) for one in plain for other in profiled)


def test_a_wave_inside_of_a_step(p: cp.Profiler) -> None:
    with profile_waves(profiler=p):
        (wave() | Mixing()).ys.sum()
        plan = Wave._build_plan([low()])
    assert counts(p) == {"0 LoButterworth": 1, "0 Mixing": 1}
    assert isinstance(plan[0], LoButterworth)  # who looks at a plan sees no wrappers


def test_several_handles(p: cp.Profiler) -> None:
    other = profiler_on()
    first = profile_waves(profiler=p)
    with profile_waves(profiler=other), profile_waves(profiler=p):
        (wave() | low()).ys.sum()
        first.remove()
        first.remove()
        (wave() | low()).ys.sum()
    (wave() | low()).ys.sum()
    assert counts(p) == counts(other) == {"0 LoButterworth": 2}


def test_somebody_else_s_patch_stays(p: cp.Profiler, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def theirs(self: Any) -> None:
        seen.append(self)
        ours(self)

    handle = profile_waves(profiler=p)
    ours = Wave._materialize
    with monkeypatch.context() as patch:
        patch.setattr(Wave, "_materialize", theirs)
        handle.remove()
        (wave() | low()).ys.sum()
        assert len(seen) == 2  # moving a wave to its device runs it, too
    assert counts(p) == {}
    Wave._materialize = ours.__wrapped__  # what the context put back


def test_threads_run_waves_at_once(p: cp.Profiler) -> None:
    expected = (wave() | high() | low()).ys
    with profile_waves(profiler=p), concurrent.futures.ThreadPoolExecutor(4) as executor:
        results = executor.map(lambda _: (wave() | high() | low()).ys, range(40))
        assert all(torch.equal(result, expected) for result in results)
    assert counts(p) == {"0 FusedSOSCascade(HiButterworth, LoButterworth)": 40}


@pytest.mark.parametrize("arguments", [{"profiler": 3}, {"stage": 3}])
def test_wrong_arguments(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=next(iter(arguments))):
        profile_waves(**arguments)


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    output = output_of("torchfx_plan.py", capsys)
    assert re.match(r"\d+% of the noise is left, and the peak is 0.50\n", output)
    cascade = "FusedSOSCascade(HiButterworth, LoButterworth, LoButterworth, HiButterworth)"
    assert re.search(rf"^0 {re.escape(cascade)} inference +10 ", output, re.MULTILINE)
    assert re.search(r"^1 Normalize +inference +10 ", output, re.MULTILINE)
