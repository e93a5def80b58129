"""How a stage is run: its entry, or one denoising step, after which scheduler and stage are as before."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import cprofiling as cp
from cprofiling.layers.harness.mock_inputs import MockInputs
from cprofiling.layers.harness.run_stage import Step, arguments_for, step_of

torch: Any = pytest.importorskip("torch")

# PyTorch and what it uses warn of deprecations of their own.
pytestmark = pytest.mark.filterwarnings("default")

LATENTS = torch.arange(8.0).reshape(1, 2, 4)


class Scheduler:
    """Notes what it is told, and changes everything that it has."""

    __slots__ = ("__dict__", "slot")

    def __init__(self) -> None:
        self.slot = "before"
        self.timesteps = torch.tensor([900.0, 500.0, 100.0])
        self.sigmas = torch.tensor([3.0, 2.0])
        self.order: list[Any] = [1]
        self.known = {"a": 1}
        self.past: deque[int] = deque([1, 2], maxlen=3)
        self.gone = 7
        self.empty: list[Any] | None = None

    def set_timesteps(self, num_inference_steps: int, device: Any = None, shift: float = 1.0, mu: float = 0.0) -> None:
        told.append(("set_timesteps", num_inference_steps, str(device), shift, mu))
        self.timesteps = torch.linspace(1000, 500, num_inference_steps)
        self.slot = "after"

    def step(self, noise: Any, timestep: Any, sample: Any) -> Any:
        told.append(("step", float(timestep), torch.is_grad_enabled()))
        self.sigmas.mul_(2)
        self.order.append(2)
        self.known["b"] = 2
        self.past.append(9)
        self.added = True
        if hasattr(self, "gone"):
            del self.gone
        return SimpleNamespace(prev_sample=sample - noise)


def state(scheduler: Scheduler) -> dict[str, Any]:
    """What a scheduler has, in texts."""
    return {name: repr(value) for name, value in {**vars(scheduler), "slot": scheduler.slot}.items()}


class Stage:
    """A stage with all that a denoising stage may have."""

    device = torch.device("cpu")
    device_type = "cpu"
    torch_dtype = torch.bfloat16
    scale = 2.0

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.dit = SimpleNamespace(
            sparse_attention_state=SimpleNamespace(step=0), create_sparse_state=self.create_sparse_state
        )

    def create_sparse_state(self, numeral_timestep: int, layer_idx: int = 5) -> Any:
        told.append(("create_sparse_state", numeral_timestep, layer_idx))
        self.dit.sparse_attention_state.step = numeral_timestep
        return self.dit.sparse_attention_state

    def predict_noise_with_cfg(
        self, latents: Any, timestep: Any, prompt: Any, scale: Any, sparse_state: Any, cfg_scale: float = 5.0
    ) -> Any:
        autocast = torch.is_autocast_enabled("cpu")
        of_tensors = (tuple(latents.shape), latents.dtype, timestep.tolist(), timestep.dtype)
        told.append(("predict", *of_tensors, prompt, scale, cfg_scale))
        told.append(("inside", autocast, sparse_state.step, self.scheduler.slot))
        return torch.ones(1, 2, 4)

    def process(self, **_inputs: Any) -> None:
        raise AssertionError


told: list[Any] = []


@pytest.fixture(autouse=True)
def log() -> list[Any]:
    told.clear()
    return told


def run(stage: Any, entry: str | None = None, **inputs: Any) -> Any:
    step = step_of(stage, entry)
    with step.restored():
        return step(inputs)


def test_one_step_of_the_schedule_is_taken() -> None:
    stage = Stage()
    stage_before, before = copy.copy(vars(stage)), state(stage.scheduler)
    reference = torch.zeros(1, 1, 4)
    inputs = {"latents": LATENTS, "ref_latent": reference, "prompt": "cat", "sigma_shift": 8.0, "steps": 50}
    out = run(stage, **inputs, num_inference_steps=50, cfg_scale=3.0, mu=0.7)
    torch.testing.assert_close(out, LATENTS - 1)
    assert told == [
        ("set_timesteps", 2, "cpu", 8.0, 0.7),
        ("create_sparse_state", 1, 0),
        ("predict", (1, 3, 4), torch.bfloat16, [1000.0], torch.bfloat16, "cat", 2.0, 3.0),
        ("inside", True, 1, "after"),
        ("step", 1000.0, False),
    ]
    assert state(stage.scheduler) == before
    assert vars(stage) == stage_before
    assert stage.dit.sparse_attention_state.step == 0
    assert not torch.is_autocast_enabled("cpu")


def test_objects_that_are_put_back_are_the_same_objects() -> None:
    stage = Stage()
    kept = dict(vars(stage.scheduler))
    run(stage, latents=LATENTS, prompt=None)
    assert vars(stage.scheduler).keys() == kept.keys()
    assert all(vars(stage.scheduler)[name] is value for name, value in kept.items())


@pytest.mark.parametrize("where", ["set_timesteps", "step", "predict_noise_with_cfg"])
def test_the_state_is_put_back_after_an_exception(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    before = state(stage.scheduler)
    kind = Stage if where.startswith("predict") else Scheduler
    original = getattr(kind, where)

    def fail(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        raise KeyError(where)

    fail.__wrapped__ = original  # type: ignore[attr-defined]
    monkeypatch.setattr(kind, where, fail)
    with pytest.raises(KeyError, match=where):
        run(stage, latents=LATENTS, prompt=None)
    assert state(stage.scheduler) == before
    assert stage.dit.sparse_attention_state.step == 0


def test_no_noise_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stage, "predict_noise_with_cfg", lambda self, latents: None)
    assert run(Stage(), latents=LATENTS) is LATENTS
    assert [entry[0] for entry in told] == ["set_timesteps", "create_sparse_state"]


def test_inputs_with_gradients_keep_them() -> None:
    latents = LATENTS.clone().requires_grad_()
    assert run(Stage(), latents=latents, prompt=None).requires_grad
    assert told[-1] == ("step", 1000.0, True)


def test_what_predicting_needs_and_nobody_has_is_named() -> None:
    with pytest.raises(TypeError, match=r"predict_noise_with_cfg needs 'prompt', which is not among the inputs \('lat"):
        run(Stage(), latents=LATENTS)


def test_a_stage_without_latents_is_run_whole(caplog: pytest.LogCaptureFixture) -> None:
    stage = SimpleNamespace(dit=object(), scheduler=object(), process=lambda prompt: prompt * 2)
    with caplog.at_level(logging.INFO, "cprofiling"):
        assert run(stage, prompt="ab") == "abab"
    assert "no latents among the inputs ('prompt'): process() is run as a whole" in caplog.text
    stage = SimpleNamespace(dit=object(), scheduler=object())
    with pytest.raises(TypeError, match=r"a denoising step needs 'latents', which are not among the inputs \(none\)"):
        run(stage)


class Model(torch.nn.Module):  # type: ignore[misc]
    """A model with names of its own."""

    def forward(self, hidden_states: Any, timestep: Any, encoder_hidden_states: Any = None, guidance: Any = 0) -> Any:
        told.append(("dit", tuple(hidden_states.shape), timestep.tolist(), encoder_hidden_states, guidance))
        return (hidden_states * 0 + 1,)


class Plain:
    """A scheduler with little."""

    def set_timesteps(self, steps: int, **more: Any) -> None:
        told.append(("set_timesteps", steps, more))
        self.timesteps = torch.linspace(1000, 500, steps)

    def step(self, noise: Any, _timestep: Any, sample: Any) -> Any:
        return [sample - noise]


@pytest.mark.parametrize("wrap", [lambda model: model, torch.nn.DataParallel, torch.compile], ids=["", "dp", "compile"])
def test_a_stage_without_predicting_calls_its_model(wrap: Any) -> None:
    stage = SimpleNamespace(dit=wrap(Model()), scheduler=Plain())
    latents = torch.zeros(2, 3)
    with torch.compiler.set_stance("force_eager"):
        out = run(stage, latents=latents, prompt_embeds="words", guidance=4, shift=3.0, unknown=1)
    torch.testing.assert_close(out, latents - 1)
    assert told == [("set_timesteps", 2, {"shift": 3.0}), ("dit", (2, 3), [1000.0, 1000.0], "words", 4)]


def test_latents_are_scaled_for_a_model_that_is_called_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(_self: Any, sample: Any, timestep: Any) -> Any:
        told.append(("scale", float(timestep)))
        return sample * 10

    monkeypatch.setattr(Plain, "scale_model_input", scaled, raising=False)
    stage = SimpleNamespace(dit=lambda sample, timestep: sample + timestep * 0, scheduler=Plain())
    torch.testing.assert_close(run(stage, latents=LATENTS), LATENTS - LATENTS * 10)
    assert told == [("set_timesteps", 2, {}), ("scale", 1000.0)]
    stage.predict_noise_with_cfg = lambda latents: latents  # which knows what its model needs
    torch.testing.assert_close(run(stage, latents=LATENTS), LATENTS * 0)
    assert told[2:] == [("set_timesteps", 2, {})]


def test_a_model_that_takes_anything_gets_everything() -> None:
    def dit(x: Any, **more: Any) -> Any:
        told.append(sorted(more))
        return SimpleNamespace(sample=x + 1)

    stage = SimpleNamespace(dit=dit, scheduler=Plain())
    torch.testing.assert_close(run(stage, latents=LATENTS, guidance=4), LATENTS * 0 - 1)
    assert told[-1] == ["guidance", "timestep"]


def test_a_scheduler_that_shifts_by_size_is_told_something() -> None:
    stage = SimpleNamespace(dit=lambda sample, timestep: sample, scheduler=Scheduler())
    stage.scheduler.config = SimpleNamespace(use_dynamic_shifting=True, base_shift=0.3)
    run(stage, latents=LATENTS)
    run(stage, latents=LATENTS, mu=0.9)
    assert [entry[4] for entry in told if entry[0] == "set_timesteps"] == [0.3, 0.9]


# --- entries --------------------------------------------------------------------------------------


def test_the_way_in_which_a_stage_is_run() -> None:
    everything = Stage()
    everything.profile_step = lambda latents: "own"  # type: ignore[attr-defined]
    everything.other = lambda: "other"  # type: ignore[attr-defined]
    assert (step_of(everything).name, run(everything, latents=1)) == ("profile_step()", "own")
    assert (step_of(everything, "other").name, run(everything, "other", latents=1)) == ("other()", "other")
    assert step_of(Stage()).name == "a single denoising step"
    assert step_of(Stage(), "process").name == "process()"
    assert step_of(SimpleNamespace(process=print)).name == "process()"
    assert step_of(len).name == "a call"
    assert run(Model(), hidden_states=LATENTS, timestep=LATENTS)[0].shape == LATENTS.shape
    assert run(lambda a, b=2: (a, b), a=1, c=3) == (1, 2)


def test_what_runs_later_is_run_to_its_end() -> None:
    async def wait(size: int) -> int:
        await asyncio.sleep(0)
        return size + 1

    def give(size: int) -> Iterator[int]:
        yield from range(size)

    assert run(wait, size=3) == 4
    assert run(SimpleNamespace(process=cp.profile_node("node")(wait)), size=4) == 5
    assert run(SimpleNamespace(other=give), "other", size=3) == [0, 1, 2]


def test_a_stage_with_nothing_to_run_is_refused() -> None:
    with pytest.raises(ValueError, match="stage_instance must have a method 'process' or 'profile_step'"):
        step_of(SimpleNamespace(dit=None, scheduler=1))
    with pytest.raises(ValueError, match="entry must be a method of the stage, a Stage, got 'nothing'"):
        step_of(Stage(), "nothing")
    with pytest.raises(TypeError, match="entry must be a str or None, got 3"):
        step_of(Stage(), 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("function", "inputs", "expected"),
    [
        (lambda a, b=0: 0, {"a": 1, "c": 3}, ([], {"a": 1})),
        (lambda a, *, b: 0, {"a": 1, "b": 2}, ([], {"a": 1, "b": 2})),
        (lambda a, /, b: 0, {"a": 1, "b": 2}, ([1], {"b": 2})),
        (lambda a, b=5, *rest: 0, {"a": 1, "rest": [3, 4]}, ([1, 5, 3, 4], {})),
        (lambda a, *rest, c=1: 0, {"a": 1, "rest": None, "c": 2}, ([], {"a": 1, "c": 2})),
        (lambda a=0, **more: 0, {"a": 1, "more": {"b": 2}}, ([], {"a": 1, "more": {"b": 2}})),
        (lambda a=0, b=3, /, **more: 0, {"b": 1, "c": 2}, ([0, 1], {"c": 2})),
    ],
)
def test_a_callee_gets_what_it_accepts(function: Any, inputs: Any, expected: Any) -> None:
    assert arguments_for(function, inputs) == expected


def test_what_a_callee_needs_is_named() -> None:
    with pytest.raises(TypeError, match=r"fromkeys needs 'iterable', which is not among the inputs \('a', 'b'\)"):
        arguments_for(dict.fromkeys, {"a": 1, "b": 2})


def test_nobody_knows_the_parameters_of_some_callables() -> None:
    assert arguments_for(max, {"a": 1}) == ([], {"a": 1})
    scheduler = SimpleNamespace(set_timesteps=Unknowable(), timesteps=torch.ones(2), step=lambda noise, *_: noise)
    stage = SimpleNamespace(dit=SimpleNamespace(), scheduler=scheduler, predict_noise_with_cfg=Unknowable())
    assert run(stage, latents=LATENTS, shift=3.0) is LATENTS
    assert told == [((2,), ["shift"]), ((), ["latents", "shift", "sparse_state", "timestep"])]


class Unknowable:
    """A callable whose signature is wrong."""

    __signature__ = "none"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        told.append((args, sorted(kwargs)))
        return kwargs.get("latents")


def test_an_input_that_is_not_known_leaves_the_default() -> None:
    inputs = MockInputs()
    inputs.update(a=None, b=None)
    inputs.unknown.update(a="Generator", b="Thing")
    assert arguments_for(lambda a, b=7: 0, inputs) == ([], {"a": None})
    assert arguments_for(lambda a, b=7, **more: 0, inputs) == ([], {"a": None})


def test_a_step_without_state_restores_nothing() -> None:
    step = Step("x", lambda inputs: inputs["a"], None, 3)
    with step.restored():
        assert step({"a": 1}) == 1


class InPlace:
    """A scheduler that counts in a tensor of its own."""

    def __init__(self) -> None:
        with torch.inference_mode():
            self.count = torch.zeros(1)

    def set_timesteps(self, steps: int) -> None:
        self.timesteps = torch.arange(steps)

    def step(self, noise: Any, timestep: Any, latents: Any) -> Any:
        self.count += 1
        return latents - noise


def test_a_stage_that_has_run_in_inference_mode() -> None:
    """Its tensors have no version, and may be changed in that mode only."""
    scheduler = InPlace()
    count = scheduler.count
    stage = SimpleNamespace(dit=lambda latents, timestep: latents / 2, scheduler=scheduler)
    out = run(stage, latents=torch.ones(2))
    assert (out.tolist(), scheduler.count is count, count.tolist()) == ([0.5, 0.5], True, [0.0])
    assert out.is_inference()
    scheduler.count = torch.zeros(1)
    out = run(stage, latents=torch.ones(2))
    assert (out.is_inference(), scheduler.count.tolist()) == (False, [0.0])
