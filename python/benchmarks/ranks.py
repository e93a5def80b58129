"""Statistics of several gloo processes, gathered into one, against what one process counts of the same samples.

``python python/benchmarks/ranks.py`` checks 4 processes with 50 nodes of 100,000 samples each. It prints the worst
figure of each kind, and the exit status tells whether all are within their bars. With ``--kill R`` rank R is killed
before it answers: it has to be named, and the figures must be those of the others. It takes a process of its own.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cprofiling as cp

MOMENTS_BAR = 1e-12
PERCENTILE_BAR = 0.01
PERCENTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99}
STAGE = "inference"
TIMEOUT_S = 60.0


def samples_of(rank: int, node: int, count: int) -> list[float]:
    """The samples of a node on a rank, in ms: from 0.05 to 10, most of them small."""
    draw = random.Random(rank * 1000 + node).random
    return [0.05 + 9.95 * draw() ** 3 for _ in range(count)]


def recorded(profiler: cp.Profiler, ranks: list[int], nodes: int, count: int) -> None:
    """Count the samples of ranks."""
    profiler.set_profiling(True)
    for rank in ranks:
        for node in range(nodes):
            for sample in samples_of(rank, node, count):
                profiler.record(STAGE, f"node {node}", sample)


def store_of(rank: int, ranks: int, told: Path) -> Any:
    """The store of the group, which rank 0 has; it tells the others where."""
    import torch.distributed

    dist: Any = torch.distributed
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, ranks, is_master=True, wait_for_workers=False)
        told.with_suffix(".new").write_text(str(store.port))
        told.with_suffix(".new").rename(told)
        return store
    while not told.exists():
        time.sleep(0.01)
    return dist.TCPStore("127.0.0.1", int(told.read_text()), ranks, is_master=False)


def child(rank: int, options: argparse.Namespace, folder: Path) -> None:
    """Be one rank: count, and gather on rank ``dst``, which writes what it got."""
    import torch.distributed as dist

    from cprofiling.integrations.torch_distributed import gather

    store = store_of(rank, options.ranks, folder / "port")
    dist.init_process_group("gloo", store=store, rank=rank, world_size=options.ranks)
    profiler = cp.Profiler()
    recorded(profiler, [rank], options.nodes, options.samples)
    if rank == options.kill:
        os.kill(os.getpid(), signal.SIGKILL)
    if options.kill is None:
        dist.barrier()  # so that nobody waits for others' samples
    else:
        time.sleep(0.5)  # until it is dead
    begin = time.monotonic()
    got = gather(profiler, dst=options.dst, timeout=options.timeout)
    if got is not None and got.snapshot is not None:
        result = {
            "seconds": time.monotonic() - begin,
            "missing": list(got.missing),
            "refused": list(got.refused),
            "nodes": len(got.skew()),
        }
        (folder / "merged").write_bytes(got.snapshot.to_bytes())
        (folder / "result").write_text(json.dumps(result))
    if rank == 0:
        while any(not (folder / f"end {other}").exists() for other in range(1, options.ranks) if other != options.kill):
            time.sleep(0.01)  # the store ends with it
    (folder / f"end {rank}").touch()


def forked(rank: int, options: argparse.Namespace, folder: Path) -> int:
    """Start a rank; torch is imported only once."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            child(rank, options, folder)
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    return pid


def compare(merged: cp.Snapshot, alive: list[int], nodes: int, count: int) -> dict[str, float]:
    """The worst differences: of counts and totals absolute, else relative."""
    single = cp.Profiler()
    recorded(single, alive, nodes, count)
    expected = {stats.node_name: stats for stats in single.get_profiling_summary()}
    worst = dict.fromkeys(("keys", "count", "total", "exact total", "mean", "std", "percentile"), 0.0)
    stats_of = {stats.node_name: stats for stats in merged.stats()}
    worst["keys"] = len(stats_of.keys() ^ expected.keys())
    for node in range(nodes):
        stats, one = stats_of[f"node {node}"], expected[f"node {node}"]
        values = sorted(sample for rank in alive for sample in samples_of(rank, node, count))
        differences = {
            "count": abs(stats.count - len(values)),
            "total": abs(stats.total_ms - one.total_ms),
            "exact total": abs(stats.total_ms - math.fsum(values)),
            "mean": abs(stats.mean_ms / one.mean_ms - 1),
            "std": abs(stats.std_ms / one.std_ms - 1),
            "percentile": max(
                abs(getattr(stats, name) / values[math.ceil(part * len(values)) - 1] - 1)
                for name, part in PERCENTILES.items()
            ),
        }
        worst = {kind: max(value, differences.get(kind, 0)) for kind, value in worst.items()}
    return worst


def within_bars(worst: dict[str, float]) -> bool:
    """Whether all differences are as small as they have to be."""
    exact = all(worst[kind] == 0 for kind in ("keys", "count", "total", "exact total"))
    return exact and max(worst["mean"], worst["std"]) <= MOMENTS_BAR and worst["percentile"] <= PERCENTILE_BAR


def main() -> int:
    """Run the check and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--kill", type=int, default=None)
    parser.add_argument("--dst", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S)
    options = parser.parse_args()
    import torch.distributed  # noqa: F401 before the fork: it takes seconds

    with TemporaryDirectory() as name:
        folder = Path(name)
        pids = [forked(rank, options, folder) for rank in range(options.ranks)]
        statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        result: dict[str, Any] = json.loads((folder / "result").read_text())
        merged = cp.Snapshot.from_bytes((folder / "merged").read_bytes())
    alive = [rank for rank in range(options.ranks) if rank != options.kill]
    worst = compare(merged, alive, options.nodes, options.samples)
    print(json.dumps({"statuses": statuses, **result, "worst": worst}))
    killed = [] if options.kill is None else [options.kill]
    ends = [-signal.SIGKILL if rank in killed else 0 for rank in range(options.ranks)]
    return 0 if within_bars(worst) and result["missing"] == killed and statuses == ends else 1


if __name__ == "__main__":
    sys.exit(main())
