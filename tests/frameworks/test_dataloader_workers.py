"""Workers of PyTorch's DataLoader: what a dataset does there is in their live files and traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker_runs import CALLS, counted, run, traced

pytest.importorskip("torch")
pytestmark = pytest.mark.integration

PROGRAM = """
import sys, time
import torch
import cprofiling as cp

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 1000

    @cp.profile_node("load")
    def __getitem__(self, index):
        return index

if __name__ == "__main__":
    persistent = sys.argv[2:] == ["persistent"]
    loader = torch.utils.data.DataLoader(
        Numbers(), batch_size=10, num_workers=2, multiprocessing_context=sys.argv[1], persistent_workers=persistent
    )
    assert sum(int(batch.sum()) for batch in loader) == sum(range(1000))
    if persistent:
        time.sleep(0.5)  # PyTorch ends such workers at once: they write what they count ten times a second
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_all_calls_of_workers_are_in_live_files_and_in_traces(method: str, tmp_path: Path) -> None:
    run(PROGRAM, tmp_path, method)
    assert counted(tmp_path) == {"load": CALLS}
    assert traced(tmp_path, "load") == {"load": CALLS}


def test_all_calls_of_persistent_workers_are_in_live_files(tmp_path: Path) -> None:
    run(PROGRAM, tmp_path, "fork", "persistent")
    assert counted(tmp_path) == {"load": CALLS}
