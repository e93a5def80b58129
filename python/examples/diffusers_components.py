"""Profile the model and the scheduler of a diffusers pipeline.

Makes images of noise with a small untrained model. Needs diffusers and torch.
"""

import torch
from diffusers import DDIMPipeline, DDIMScheduler, UNet2DModel

import cprofiling as cp
from cprofiling.integrations.diffusers import profile_pipeline

STEPS = 10


def main() -> None:
    """Make two images, and print the times of the components."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # more threads slow such small batches down
    unet = UNet2DModel(
        sample_size=16, in_channels=1, out_channels=1, block_out_channels=(32, 64), norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    pipeline = DDIMPipeline(unet, DDIMScheduler())
    pipeline.set_progress_bar_config(disable=True)
    profiler = cp.Profiler()
    profiler.set_profiling(True)
    with profile_pipeline(pipeline, profiler=profiler):
        images = [pipeline(num_inference_steps=STEPS, output_type="np").images for _ in range(2)]
    print(f"{len(images)} images of {images[0].shape[1]} x {images[0].shape[2]} pixels in {STEPS} steps each\n")
    print(profiler.format_profiling_summary(total_frames=len(images)))


if __name__ == "__main__":
    main()
