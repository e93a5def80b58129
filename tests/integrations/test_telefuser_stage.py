"""telefuser's own denoising stage, tiny: recorded in a run, then run by both harnesses and by the program."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cprofiling as cp

NEEDED = [
    name for name in ("telefuser", "torch", "einops", "ftfy", "transformers") if not importlib.util.find_spec(name)
]
pytestmark = pytest.mark.skipif(bool(NEEDED), reason=f"telefuser's stages need {', '.join(NEEDED)}")

TINY = """
import torch
from telefuser.core.config import ModelRuntimeConfig
from telefuser.models.wan_video_dit import WanModel
from telefuser.pipelines.wan_video.single_dit_denoising import SingleDitDenoisingStage
from telefuser.schedulers.flow_match import FlowMatchScheduler
from telefuser.utils.profiler import ProfilingContext4Debug

class Modules:
    def fetch_module(self, name):
        torch.manual_seed(0)
        sizes = dict(dim=24, in_dim=4, ffn_dim=48, out_dim=4, text_dim=8, freq_dim=16, num_heads=2, num_layers=1)
        return WanModel(**sizes, eps=1e-6, patch_size=(1, 2, 2), has_image_input=False).eval()

class Number:
    @ProfilingContext4Debug("number")
    def process(this, x, shape):
        return 3.5

def stage():
    config = ModelRuntimeConfig(device_type="cpu", torch_dtype=torch.float32)
    return SingleDitDenoisingStage("dit", Modules(), config, FlowMatchScheduler())
"""
RUN = """
import telefuser.utils.profiler as profiler, telefuser.utils.stage_bench_harness as harness
from cprofiling.integrations import telefuser as ours

theirs = harness.StageBenchHarness
ours.install()
import tiny, torch

stage, text = tiny.stage(), torch.randn(1, 5, 8)
stage.process(torch.randn(1, 4, 1, 4, 4), 3, None, text, text, None, 3.0, 5.0)
assert stage.scheduler.timesteps.is_inference()
before = stage.scheduler.timesteps.clone()
tiny.Number().process(1, {"shape": 4})
profiler.dump_io_signatures("sig.json")
config = harness.HarnessConfig(output_dir="out")
mine = harness.StageBenchHarness.from_signature_file("sig.json", "dit_denoise", stage, config)
assert type(mine.io_signature.input_signatures["latents"]) is ours.TensorSignature
assert mine.io_signature.input_signatures["latents"].shape == (1, 4, 1, 4, 4)
mine.profile()
assert mine.run_single_step().shape == (1, 4, 1, 4, 4)
assert torch.equal(stage.scheduler.timesteps, before)
number = harness.StageBenchHarness.from_signature_file("sig.json", "number", tiny.Number(), config)
assert list(number.io_signature.input_signatures) == ["x", "shape"], number.io_signature
assert number.run_single_step() == 3.5

ours.uninstall()
config = harness.HarnessConfig(output_dir="out")
found = theirs.from_signature_file("sig.json", "dit_denoise", stage, config)
found.setup()
assert found.run_single_step().shape == (1, 4, 1, 4, 4)
assert theirs.from_signature_file("sig.json", "number", None, config).io_signature.output_signature is None
print("ok")
"""


def python(folder: Path, *arguments: str, **variables: str) -> str:
    path = os.pathsep.join([str(Path(cp.__file__).parents[1]), str(folder)])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_stage_that_has_run_in_inference_mode(tmp_path: Path) -> None:
    (tmp_path / "tiny.py").write_text(TINY)
    variables = {"TELEFUSER_PROFILE_DEBUG": "true", "TELEFUSER_TIMING_REPORT": "t.json"}
    assert python(tmp_path, "-c", RUN, **variables).endswith("ok\n")
    assert len(cp.load_trace(tmp_path / "out" / "dit_denoise_trace.json.gz")) > 100
    printed = python(tmp_path, "out/profile_dit_denoise.py", "--factory", "tiny:stage", "--output-dir", "alone")
    assert printed.endswith("trace: alone/dit_denoise_trace.json.gz\n")
    names = [event.name for event in cp.load_trace(tmp_path / "alone" / "dit_denoise_trace.json.gz").events()]
    assert names.count("step 0") == 1
    assert names.count("aten::convolution") == 2  # with guidance, once for each of two texts
