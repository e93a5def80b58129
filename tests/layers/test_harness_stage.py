"""Real stages of diffusers, tiny and made without a download: recorded in a full run, then run alone by the harness."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import cprofiling as cp
from command import SCRIPT, python
from cprofiling import layers
from cprofiling.harness import HarnessConfig, StageBenchHarness
from cprofiling.layers.harness.stage_bench import MOST_TRACE_BYTES

torch: Any = pytest.importorskip("torch")
pytest.importorskip("diffusers")

# PyTorch and what it uses warn of deprecations of their own.
pytestmark = pytest.mark.filterwarnings("default")

PROGRAM = '''
"""Two denoising stages, of a transformer with guidance and of a U-Net."""

import cprofiling as cp
import torch
from cprofiling.layers import ProfilingContext
from diffusers.utils import import_utils

import_utils._torchvision_available = False  # what there is may be for another build of PyTorch

from diffusers.models.transformers.dit_transformer_2d import DiTTransformer2DModel
from diffusers.models.unets.unet_2d import UNet2DModel
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from diffusers.schedulers.scheduling_euler_discrete import EulerDiscreteScheduler

torch.manual_seed(0)


class Guided:
    def __init__(self):
        self.scheduler = DDIMScheduler()
        self.dit = DiTTransformer2DModel(
            num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=4, num_layers=2, sample_size=8,
            norm_num_groups=2, num_embeds_ada_norm=10,
        ).eval()

    def predict_noise_with_cfg(self, latents, timestep, class_labels, guidance_scale):
        both = torch.cat([latents, latents])
        noise = self.dit(both, timestep=timestep.expand(both.shape[0]), class_labels=class_labels).sample
        with_label, without = noise.chunk(2)
        return without + guidance_scale * (with_label - without)

    @ProfilingContext("denoise")
    @torch.no_grad()
    def process(self, latents, class_labels, guidance_scale=4.0, num_inference_steps=3):
        self.scheduler.set_timesteps(num_inference_steps)
        for t in self.scheduler.timesteps:
            timestep = t.unsqueeze(0)
            with cp.record("one step"):
                noise = self.predict_noise_with_cfg(latents, timestep, class_labels, guidance_scale)
                latents = self.scheduler.step(noise, t, latents).prev_sample
        return latents


class Plain:
    def __init__(self):
        self.scheduler = EulerDiscreteScheduler()
        self.dit = UNet2DModel(
            sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(8, 8),
            down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
            norm_num_groups=4, attention_head_dim=4,
        ).eval()

    @ProfilingContext("../plain 'U-Net'")
    @torch.inference_mode()
    def process(self, latents, num_inference_steps=3):
        self.scheduler.set_timesteps(num_inference_steps)
        for t in self.scheduler.timesteps:
            with cp.record("one step"):
                noise = self.dit(self.scheduler.scale_model_input(latents, t), t).sample
                latents = self.scheduler.step(noise, t, latents).prev_sample
        return latents


def guided():
    return Guided()


def plain():
    return Plain()
'''
GUIDED, PLAIN = "denoise", "../plain 'U-Net'"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("stages")
    (made / "tiny_stages.py").write_text(PROGRAM)
    return made


@pytest.fixture(scope="module")
def stages(folder: Path) -> Iterator[ModuleType]:
    sys.path.insert(0, str(folder))
    import importlib

    yield importlib.import_module("tiny_stages")
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def full_runs(stages: ModuleType, folder: Path) -> dict[str, list[str]]:
    """The operators of one step of the loop of each stage; a file of their signatures is written."""
    layers.reset_timing_registry("tiny")
    found = {}
    for name, stage, inputs in (
        (GUIDED, stages.Guided(), {"class_labels": torch.tensor([1, 10]), "guidance_scale": 3.0}),
        (PLAIN, stages.Plain(), {}),
    ):
        stage.process(torch.randn(1, 4, 8, 8), **inputs)  # warms up
        with cp.profile() as prof:
            stage.process(torch.randn(1, 4, 8, 8), **inputs)
        steps = [event for event in prof.events() if event.name == "one step"]
        each = [operators(prof.recording, step.start, step.end) for step in steps]
        assert len(each) == 3
        # The last one is another: it ends at no noise. The first one of Euler's looks up where the schedule begins.
        assert each[0] == each[1] or name == PLAIN
        found[name] = each[0]
    layers.dump_io_signatures(folder / "timing_io_signature.json")
    return found


def operators(recording: cp.Recording, start: int, end: int) -> list[str]:
    """The names of the operators between two moments, in order."""
    events = [event for event in recording.events() if event.name.startswith("aten::") and event.cat == "cpu_op"]
    return [event.name for event in events if start <= event.start <= end]


def operators_of_trace(path: Path) -> list[str]:
    recording = cp.load_trace(path)
    (step,) = [event for event in recording.events() if event.name == "step 0"]
    return operators(recording, step.start, step.end)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def check_one_step(names: list[str], step_of_loop: list[str]) -> None:
    """What a single step ran is what a step of the loop does, after setting the schedule."""
    assert len(step_of_loop) > 100
    before = len(names) - len(step_of_loop)
    assert names[before:] == step_of_loop
    assert 0 < before < 60
    assert not set(names[:before]) & {"aten::linear", "aten::conv2d", "aten::addmm", "aten::cat"}


@pytest.mark.slow
def test_a_fresh_process_runs_one_step_and_so_does_its_program(full_runs: dict[str, list[str]], folder: Path) -> None:
    command = [SCRIPT, "harness", "--signature", "timing_io_signature.json", "--stage", GUIDED]
    done = python([*command, "--factory", "tiny_stages:guided", "--output-dir", "out"], folder, watched=False)
    assert done.status == 0, done.err
    assert "[Harness] Stage 'denoise' is run by a single denoising step\n" in done.err
    assert "aten::addmm" in done.out
    trace = folder / "out" / "denoise_trace.json.gz"
    assert trace.stat().st_size < MOST_TRACE_BYTES
    check_one_step(operators_of_trace(trace), full_runs[GUIDED])
    breakdown = json.loads((folder / "out" / "denoise_breakdown.json").read_text())
    assert breakdown["name"] == GUIDED
    assert len(breakdown["top_kernels"]) == min(50, breakdown["num_kernels"])
    assert all(kernel["ms"] >= 0 for kernel in breakdown["top_kernels"])

    program = ["out/profile_denoise.py", "--factory", "tiny_stages:guided", "--output-dir", "again"]
    done = python(program, folder, watched=False)
    assert done.status == 0, done.err
    assert names_in(folder / "again") == ["denoise_trace.json.gz"]
    check_one_step(operators_of_trace(folder / "again" / "denoise_trace.json.gz"), full_runs[GUIDED])


def test_a_model_is_called_as_its_loop_does(full_runs: dict[str, list[str]], stages: ModuleType, folder: Path) -> None:
    stage = stages.plain()
    before = dict(vars(stage.scheduler)), dict(vars(stage))
    random_state = torch.get_rng_state()
    bench = StageBenchHarness.from_signature_file(
        folder / "timing_io_signature.json", PLAIN, stage, HarnessConfig(1, 1, folder / "plain", capture_output=True)
    )
    result = bench.profile()
    check_one_step(operators_of_trace(Path(result["trace_path"])), full_runs[PLAIN])
    assert Path(result["trace_path"]).name == "..%2Fplain%20%27U-Net%27_trace.json.gz"
    assert result["output_differences"] == []
    assert tuple(result["output"].shape) == (1, 4, 8, 8)
    assert (dict(vars(stage.scheduler)), dict(vars(stage))) == before
    assert torch.equal(torch.get_rng_state(), random_state)
