"""A snapshot with GPU times, of a driver that is a fake with a virtual clock."""

from __future__ import annotations

from pathlib import Path

import cprofiling as cp
from calls import WATCH_DOG, run_python
from fakes import build

TESTS = Path(__file__).parents[1]
GPU_MS = (1.0, 1.0, 5.0)  # of the calls of the node "gpu"; the node "host" has none
_SCRIPT = f"""{WATCH_DOG}import sys
sys.path.insert(0, {str(TESTS)!r})
import cprofiling as cp
from fakes.cuda_process import MS, fake, use_torch

torch = use_torch()
cp.set_profiling(True, gpu_time=True, memory=True)
fake.set_memory(0, 100, 1000)

@cp.profile_node
def gpu(ms):
    fake.launch(torch.streams[0], round(ms * MS))

for ms in {GPU_MS}:
    gpu(ms)
fake.advance(10_000 * MS)
cp.get_profiling_summary()
cp.set_profiling(True)
with cp.profile_node("host"):
    pass
from cprofiling.nodes.profiler import default_profiler
sys.stdout.write(default_profiler.snapshot().to_bytes().hex())
"""


def gpu_snapshot(folder: Path) -> cp.Snapshot:
    """The snapshot; the fake driver is built in the folder."""
    done = run_python(_SCRIPT, CPROFILING_LIBCUDA=str(build.fake_driver(folder)))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return cp.Snapshot.from_bytes(bytes.fromhex(done.stdout))
