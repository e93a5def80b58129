"""Memory over time, in the files that torch.profiler writes."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
from recorded import outer, profile

KIB = 1024


def allocations(*sizes: tuple[int, int, int, str], device: tuple[int, int] = (0, -1)) -> list[dict[str, Any]]:
    """Return moments as torch.profiler writes them: of µs, bytes, and address."""
    kind, number = device
    return [
        {
            "ph": "i", "s": "t", "name": name, "cat": "cpu_instant_event", "pid": 1, "tid": 1, "ts": us,
            "args": {"Bytes": size, "Addr": place, "Device Type": kind, "Device Id": number, "Total Allocated": 7},
        }
        for us, size, place, name in sizes
    ]  # fmt: skip


@pytest.fixture
def recording(tmp_path: Path) -> cp.Recording:
    host = allocations((10, KIB, 1, "[memory]"), (20, -4 * KIB, 2, "[memory]"), (30, -KIB, 1, "[memory]"))
    others = allocations((40, 5, 1, "another")) + allocations((50, 2 * KIB, 1, "[memory]"), device=(1, 1))
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": [*host, *others]}))
    return cp.load_trace(tmp_path / "trace.json")


def sizes(*bytes_: int) -> list[list[int]]:
    return [[0] * 8 + [each] for each in bytes_]


def test_bytes_given_out_over_time(recording: cp.Recording, tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    recording.export_memory_timeline(path, device="cpu")
    # What is given back without having been given out in the recording was there before.
    assert json.loads(path.read_text()) == [[10, 20, 30], sizes(5 * KIB, KIB, 0)]
    recording.export_memory_timeline(path)
    assert json.loads(path.read_text()) == [[50], sizes(2 * KIB)]
    recording.export_memory_timeline(tmp_path / "memory.json.gz", device="cuda:1")
    assert json.loads(gzip.decompress((tmp_path / "memory.json.gz").read_bytes())) == [[50], sizes(2 * KIB)]


def test_each_allocation(recording: cp.Recording, tmp_path: Path) -> None:
    recording.export_memory_timeline(tmp_path / "memory.raw.json.gz", device="cpu")
    unknown, before, create, destroy = 7, 1, 2, 4
    assert json.loads(gzip.decompress((tmp_path / "memory.raw.json.gz").read_bytes())) == [
        [-1, before, 4 * KIB, unknown],
        [10_000, create, KIB, unknown],
        [20_000, destroy, -4 * KIB, unknown],
        [30_000, destroy, -KIB, unknown],
    ]


def test_a_picture(recording: cp.Recording, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    recording.export_memory_timeline(tmp_path / "memory.html", device="cpu")
    assert re.search('<img alt="[^"]+" src="data:image/png;base64,iVBORw', (tmp_path / "memory.html").read_text())


def test_devices_are_called_as_in_torch(tmp_path: Path) -> None:
    kinds = [row for kind in range(21) for row in allocations((5000, kind, 1, "[memory]"), device=(kind, 0))]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": kinds}))
    with pytest.raises(ValueError, match="here cuda:0, hip:0, hpu:0, mps:0, mtia:0, other:0, privateuseone:0, xpu:0, "):
        cp.load_trace(tmp_path / "trace.json").export_memory_timeline(tmp_path / "memory.json", device="none")
    for number, name in {1: "cuda", 6: "hip", 12: "xpu", 13: "mps", 15: "hpu", 19: "mtia", 20: "privateuseone"}.items():
        cp.load_trace(tmp_path / "trace.json").export_memory_timeline(tmp_path / "memory.json", device=name)
        assert json.loads((tmp_path / "memory.json").read_text()) == [[5000], sizes(number)]


def test_wrong_arguments(recording: cp.Recording, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"path must end in one of \.json, \.json\.gz, .*, got "):
        recording.export_memory_timeline(tmp_path / "memory.txt")
    with pytest.raises(ValueError, match="device must be one with allocations, here cuda:1, cpu, got 'cuda:0'"):
        recording.export_memory_timeline(tmp_path / "memory.json", device="cuda:0")
    wrong: Any = 3
    with pytest.raises(TypeError, match="device must be a str or None, got 3"):
        recording.export_memory_timeline(tmp_path / "memory.json", device=wrong)
    with profile() as prof:
        outer()
    with pytest.raises(RuntimeError, match="no allocations were recorded: profile_memory=True"):
        prof.export_memory_timeline(tmp_path / "memory.json")
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]


@pytest.mark.filterwarnings("ignore:.*export_memory_timeline:FutureWarning")
def test_the_bytes_are_those_of_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    def train() -> None:
        layer = torch.nn.Linear(64, 32)
        for _ in range(3):
            layer(torch.ones(8, 64)).sum().backward()

    options: Any = {"profile_memory": True, "record_shapes": True, "with_stack": True}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options) as theirs:
        train()
    if not hasattr(theirs, "export_memory_timeline"):
        pytest.skip("this torch.profiler has no timeline of memory")
    theirs.export_memory_timeline(str(tmp_path / "theirs.json"), device="cpu")
    theirs.export_chrome_trace(str(tmp_path / "trace.json"))
    cp.load_trace(tmp_path / "trace.json").export_memory_timeline(tmp_path / "ours.json")
    wanted, found = (json.loads((tmp_path / name).read_text()) for name in ("theirs.json", "ours.json"))
    assert [len(row) for row in found[1]] == [len(wanted[1][0])] * len(found[0])
    assert max(map(sum, found[1])) == max(map(sum, wanted[1]))
    with cp.profile(operators=True, profile_memory=True) as prof:
        train()
    prof.export_memory_timeline(tmp_path / "own.json", device="cpu")
    own = json.loads((tmp_path / "own.json").read_text())
    assert max(map(sum, own[1])) == max(map(sum, found[1]))
