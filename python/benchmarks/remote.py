"""What remote control does to a pipeline: 16 clients that reconfigure and read while 4 threads run nodes.

``python python/benchmarks/remote.py`` runs for 60 s twice, five times over, ten minutes in all: with the handlers that
ship, and with handlers that return constants. It checks that no sample is lost and that each call ends as it should,
and prints the 99th percentile of the nodes' times, in us, and how often it was within 10 % of that with constants. The
exit status is 0 where that was so in at least 3 of 5 runs and nothing else was wrong; else the last lines say what was.
The clients are processes of their own. Needs the extra grpc.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc

import cprofiling as cp
from cprofiling.monitoring.server import service, serving
from cprofiling.server import profiling_pb2 as pb
from cprofiling.server import profiling_pb2_grpc, serve

if not __package__:  # run by itself
    sys.path.append(str(Path(__file__).resolve().parent.parent))  # behind the package, if that is installed
    __package__ = Path(__file__).resolve().parent.name

from .spinning import NODES, Pipeline, node_names, percentile_us, sorted_times

CLIENTS, CLIENT_PROCESSES = 16, 2
SECONDS, RUNS = 60.0, 5
MOST_ADDED = 0.10
NEEDED = 0.6  # of the runs
SESSION, OTHER = "pipeline", "other"
BAD_EVERY = 50
SURE, EXPECTED = {"OK", "NOT_FOUND"}, {"OK", "NOT_FOUND", "INVALID_ARGUMENT"}  # the statuses that calls end with


class Constants(service.ProfilingService):
    """Handlers that know everything beforehand."""

    def __init__(self, sessions: Any) -> None:
        """Make the answers."""
        super().__init__(sessions)
        stats = [
            pb.NodeProfilingStats(
                node_name=name,
                stage=pb.EXECUTION_STAGE_INFERENCE,
                count=5,
                mean_ms=1.5,
                total_ms=7.5,
                p50_ms=1.5,
                p99_ms=2.0,
            )
            for name in node_names()
        ]
        self._set = pb.SetProfilingResponse(profiling_enabled=True)
        self._summary_of_all = pb.GetProfilingSummaryResponse(node_stats=stats, profiling_enabled=True)

    async def SetProfiling(self, _request: Any, _context: Any) -> Any:
        """Return the answer."""
        return self._set

    async def GetProfilingSummary(self, _request: Any, _context: Any) -> Any:
        """Return the answer."""
        return self._summary_of_all


def lost(pipeline: Pipeline) -> int:
    """How many samples the statistics have too few or too many."""
    made = sum(pipeline.frames)
    rows = {row.node_name: row for row in pipeline.profiler.get_profiling_summary()}
    counted = [(row.count + row.skipped_count + row.error_count + row.dropped_count) for row in rows.values()]
    return sum(abs(made - count) for count in counted) + made * (NODES - len(rows))


def serve_and_run(seconds: float, *, constant: bool) -> None:
    """Be the process that is profiled: say where it serves, run when it is told to, say how it went."""
    if constant:
        setattr(serving, "ProfilingService", Constants)  # noqa: B010 the type checker is not to know
    pipeline = Pipeline()
    with serve({SESSION: pipeline.profiler, OTHER: cp.Profiler()}, token=None) as server:
        print(server.address, flush=True)
        sys.stdin.readline()
        with pipeline.running():
            time.sleep(seconds)
        times = sorted_times(pipeline.times[-1])
        result: dict[str, float] = {"calls": len(times), "lost": lost(pipeline)}
        result |= {name: percentile_us(times, share) for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))}
        print(json.dumps(result), flush=True)
        sys.stdin.readline()


def client(address: str, seed: int, until: float, statuses: Counter[str], complaints: list[str]) -> None:
    """Reconfigure and read by turns until the time has come; now and then ask for what there is not."""
    draw = random.Random(seed)
    counts: dict[str, int] = {}
    with grpc.insecure_channel(address, (("grpc.use_local_subchannel_pool", 1),)) as channel:
        stub = profiling_pb2_grpc.ProfilingServiceStub(channel)
        number = 0
        while time.monotonic() < until:
            number += 1
            try:
                one_call(stub, draw, number, counts, complaints)
                statuses["OK"] += 1
            except grpc.RpcError as error:
                statuses[error.code().name] += 1


def one_call(stub: Any, draw: random.Random, number: int, counts: dict[str, int], complaints: list[str]) -> None:
    """Make one call; a summary's counts never fall, as nobody resets that session."""
    if number % BAD_EVERY == 0:
        stub.SetProfiling(pb.SetProfilingRequest(session_id=SESSION, skip_first_n=-1))
    elif number % BAD_EVERY == 1:
        stub.GetProfilingSummary(pb.GetProfilingSummaryRequest(session_id="nobody"))
    elif number % 2:
        for row in stub.GetProfilingSummary(pb.GetProfilingSummaryRequest(session_id=SESSION)).node_stats:
            if row.count < counts.get(row.node_name, 0):
                complaints.append(f"{row.node_name}: {row.count} after {counts[row.node_name]}")
            counts[row.node_name] = row.count
    elif draw.random() < 0.5:
        stub.SetProfiling(pb.SetProfilingRequest(session_id=SESSION, enabled=True))
    else:
        enabled, reset, skip = draw.random() < 0.5, draw.random() < 0.5, draw.randrange(5)
        stub.SetProfiling(pb.SetProfilingRequest(session_id=OTHER, enabled=enabled, reset=reset, skip_first_n=skip))


def run_clients(address: str, seconds: float, seed: int) -> None:
    """Be a process of clients: say which statuses there were, and what was wrong."""
    until = time.monotonic() + seconds
    statuses: Counter[str] = Counter()
    complaints: list[str] = []
    threads = [
        threading.Thread(target=client, args=(address, seed + number, until, statuses, complaints))
        for number in range(CLIENTS // CLIENT_PROCESSES)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"statuses": statuses, "complaints": complaints[:20]}))


def measured(seconds: float, *, constant: bool) -> dict[str, Any]:
    """Run once, in processes of their own, and return what they say."""
    command = [sys.executable, __file__, "--seconds", str(seconds)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*command, "--serve", "constant" if constant else "real"], stdin=pipe, stdout=pipe, text=True
    ) as child:
        if child.stdin is None or child.stdout is None:
            raise RuntimeError("a process was started without its pipes")
        address = child.stdout.readline().strip()
        clients = [
            subprocess.Popen([*command, "--clients", address, str(number * 1000)], stdout=pipe, text=True)
            for number in range(CLIENT_PROCESSES if address else 0)
        ]
        with suppress(BrokenPipeError):  # it has failed, and said how
            child.stdin.write("go\n")
            child.stdin.flush()
        result: dict[str, Any] = json.loads(child.stdout.readline() or "{}")
        told = [json.loads(each.communicate()[0] or "{}") for each in clients]
        with suppress(BrokenPipeError):
            child.stdin.write("end\n")
            child.stdin.close()
    statuses: Counter[str] = Counter()
    for each in told:
        statuses.update(each.get("statuses", {}))
    complaints = [] if constant else [complaint for each in told for complaint in each.get("complaints", ())]
    failed = [each for each in (child, *clients) if each.returncode]
    return {**result, "statuses": dict(statuses), "complaints": complaints, "failed": len(failed)}


def faults(result: dict[str, Any], *, constant: bool) -> Iterator[str]:
    """Say what went wrong: nothing may, but the calls that are to be refused."""
    statuses = set(result["statuses"])
    if result["failed"] or "p99" not in result:
        yield f"{result['failed']} processes failed"
    if result.get("lost"):
        yield f"{result['lost']} samples were lost"
    if not statuses <= EXPECTED or not ({"OK"} if constant else SURE) <= statuses:
        yield f"calls ended otherwise than they should: {result['statuses']}"
    yield from result["complaints"]


def main() -> int:
    """Run the check and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--serve", choices=("constant", "real"), help=argparse.SUPPRESS)
    parser.add_argument("--clients", nargs=2, metavar=("ADDRESS", "SEED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve_and_run(options.seconds, constant=options.serve == "constant")
        return 0
    if options.clients is not None:
        run_clients(options.clients[0], options.seconds, int(options.clients[1]))
        return 0
    if options.runs < 1:
        parser.error(f"--runs must be >= 1, got {options.runs}")
    good, wrong = 0, list[str]()
    for number in range(options.runs):
        order = (False, True) if number % 2 else (True, False)
        results = {constant: measured(options.seconds, constant=constant) for constant in order}
        ratio = results[False].get("p99", math.inf) / results[True].get("p99", math.nan)
        good += ratio <= 1 + MOST_ADDED
        wrong += [fault for constant, result in results.items() for fault in faults(result, constant=constant)]
        told = {"real": results[False], "constant": results[True]}
        print(json.dumps({"p99 over constants": round(ratio, 4), **told}), flush=True)
    verdict = f"within {MOST_ADDED:.0%} in {good} of {options.runs} runs; {'this' if wrong else 'nothing'} was wrong"
    print(verdict, *wrong, sep="\n")
    return 0 if not wrong and good >= NEEDED * options.runs else 1


if __name__ == "__main__":
    sys.exit(main())
