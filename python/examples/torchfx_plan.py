"""Profile the steps of a plan that TorchFX runs.

Four filters in a row are one node. Filters a chord of three tones with noise, and prints the noise that is gone.
Needs torchfx.
"""

import torch
from torchfx import Wave
from torchfx.effect import Normalize
from torchfx.filter import HiButterworth, LoButterworth

import cprofiling as cp
from cprofiling.integrations.torchfx import profile_waves

RATE, SECONDS, TONES = 44_100, 2, (440.0, 554.37, 659.26)


def main() -> None:
    """Filter the wave ten times, and print the times of the steps."""
    torch.manual_seed(0)
    time = torch.arange(RATE * SECONDS, dtype=torch.float64) / RATE
    chord = torch.stack([torch.sin(2 * torch.pi * tone * time) for tone in TONES]).sum(0) / len(TONES)
    noise = 0.3 * torch.randn_like(chord)
    chain = HiButterworth(100, order=2) | LoButterworth(2000, order=4) | LoButterworth(2500, order=4)
    cp.set_profiling(True)
    with profile_waves():
        for _ in range(10):
            wave = Wave(chord + noise, RATE) | chain | HiButterworth(50, order=2) | Normalize(0.5)
            filtered = wave.ys  # the plan runs here
    left = Wave(noise, RATE) | chain  # not counted: the handle is removed
    print(f"{left.ys.std() / noise.std():.0%} of the noise is left, and the peak is {filtered.abs().max():.2f}\n")
    print(cp.format_profiling_summary())


if __name__ == "__main__":
    main()
