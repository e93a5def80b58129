"""Recordings beside other profilers of PyTorch, and forks in them: prints what each case has brought, as JSON.

Run by test_operators.py: in some of these cases PyTorch's profiler crashes where nobody takes care.
"""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch

import cprofiling as cp

CPU = [torch.profiler.ProfilerActivity.CPU]
NEVER = 60.0
X = torch.ones(2)
Result = tuple[list[str] | None, list[str]]


def profiler(**options: Any) -> Any:
    """Another profiler of PyTorch."""
    return torch.profiler.profile(activities=CPU, **options)


def warming_up() -> Any:
    """One that warms up in its first step, and records the second."""
    return profiler(schedule=torch.profiler.schedule(wait=0, warmup=1, active=1, repeat=1))


def of_theirs(theirs: Any) -> list[str]:
    return [event.key for event in theirs.key_averages() if event.key != "aten::empty"]


def of_ours(ours: cp.profile) -> list[str]:
    return [event.name for event in ours.events()]


def in_new_thread(function: Callable[[], object]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join(NEVER)


def first() -> Result:
    """Our first recording: what PyTorch sets up at its profiler's first use is to be quiet."""
    with cp.profile() as ours:
        torch.cos(X)
    return None, of_ours(ours)


def around() -> Result:
    with profiler() as theirs:
        torch.neg(X)
        with cp.profile() as ours, cp.record("label"):
            torch.cos(X)
        torch.exp(X)
    return of_theirs(theirs), of_ours(ours)


def around_warming_up() -> Result:
    theirs = warming_up()
    theirs.start()
    with cp.profile() as ours:
        torch.cos(X)
    theirs.step()
    torch.exp(X)
    theirs.step()
    theirs.stop()
    return of_theirs(theirs), of_ours(ours)


def inside() -> Result:
    with cp.profile() as ours, cp.record("label"):
        torch.cos(X)
        with profiler() as theirs:
            torch.neg(X)
        torch.exp(X)
    return of_theirs(theirs), of_ours(ours)


def inside_of_a_stretch() -> Result:
    with cp.profile() as ours:
        torch.cos(X)
        with profiler() as theirs:
            torch.neg(X)
        ours.pause()
        ours.resume()
        torch.exp(X)
    return of_theirs(theirs), of_ours(ours)


def outliving() -> Result:
    with cp.profile() as ours:
        torch.cos(X)
        theirs = profiler()
        theirs.start()
        torch.neg(X)
    torch.exp(X)
    theirs.stop()
    return of_theirs(theirs), of_ours(ours)


def outliving_while_it_warms_up() -> Result:
    with cp.profile() as ours:
        torch.cos(X)
        theirs = warming_up()
        theirs.start()
    torch.neg(X)
    theirs.step()
    torch.exp(X)
    theirs.step()
    theirs.stop()
    return of_theirs(theirs), of_ours(ours)


def while_we_warm_up() -> Result:
    """It comes and goes between our warm-up and our recording, which begins anew then."""
    with cp.profile(schedule=cp.schedule(wait=0, warmup=1, active=1, repeat=1)) as ours:
        with profiler() as theirs:
            torch.neg(X)
        ours.step()
        torch.exp(X)
        ours.step()
    return of_theirs(theirs), of_ours(ours)


def while_we_have_warmed_up() -> Result:
    """It comes while we warm up, and is there when we should record."""
    with cp.profile(schedule=cp.schedule(wait=0, warmup=1, active=1, repeat=1)) as ours:
        with profiler() as theirs:
            torch.neg(X)
            ours.step()
            torch.exp(X)
        ours.step()
    return of_theirs(theirs), of_ours(ours)


def left_while_we_warm_up() -> Result:
    with profiler() as theirs:
        pass
    with cp.profile(schedule=lambda _: cp.ProfilerAction.WARMUP) as ours, profiler() as theirs:
        torch.neg(X)
    return of_theirs(theirs), of_ours(ours)


def in_another_thread() -> Result:
    started, ended = threading.Event(), threading.Event()
    found = []

    def run() -> None:
        with profiler() as theirs:
            torch.neg(X)
            started.set()
            ended.wait(NEVER)
            torch.exp(X)
        found.extend(of_theirs(theirs))

    thread = threading.Thread(target=run)
    thread.start()
    started.wait(NEVER)
    with cp.profile() as ours:
        torch.cos(X)
    ended.set()
    thread.join(NEVER)
    return found, of_ours(ours)


def started_in_another_thread() -> Result:
    found = []

    def run() -> None:
        with profiler() as theirs:
            torch.neg(X)
        found.extend(of_theirs(theirs))

    with cp.profile() as ours:
        in_new_thread(run)
        torch.cos(X)
    return found, of_ours(ours)


def forked() -> Result:
    """The child goes on without operators, and can tell why; the parent's are those of the parent.

    In the child nothing is called that takes a lock of PyTorch's, which another thread may have held.
    """
    busy = threading.Event()
    switch = torch._C._autograd._enable_record_function
    switched: list[tuple[int, bool]] = []

    def logged(enable: bool) -> None:
        switched.append((os.getpid(), enable))
        switch(enable)

    torch._C._autograd._enable_record_function = logged

    def work() -> None:
        while not busy.is_set():
            torch.tan(X)

    thread = threading.Thread(target=work)
    thread.start()
    with cp.profile() as ours:
        torch.cos(X)
        pid = os.fork()
        if pid == 0:
            torch.neg(X)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                with cp.profile() as own, cp.record("label"):
                    torch.neg(X)
            as_expected = of_ours(own) == ["label"] and "forked" in str(caught[0].message)
            as_expected = as_expected and switched == [(os.getppid(), False)]
            os._exit(0 if as_expected else 1)
        _, status = os.waitpid(pid, 0)
        torch.exp(X)
        busy.set()
        thread.join(NEVER)
    torch._C._autograd._enable_record_function = switch
    assert switched == [(os.getpid(), False), (os.getpid(), True)]
    return [f"status {status}"], [name for name in of_ours(ours) if name != "aten::tan"]


def ended_by_another_thread() -> Result:
    """With the memory, only the main thread can end PyTorch's profiler, which it does when it comes by."""
    ours = cp.profile(profile_memory=True)
    ours.start()
    with cp.record("label"):
        torch.cos(X)
    in_new_thread(ours.stop)
    with cp.profile() as again:
        torch.neg(X)
    return of_ours(again), of_ours(ours)


def of_another_thread() -> Result:
    """Not by the main thread: PyTorch tells no memory, but the operators of all threads."""
    ours = cp.profile(profile_memory=True)
    in_new_thread(ours.start)
    torch.neg(X)
    in_new_thread(ours.stop)
    return None, of_ours(ours)


def never_ended() -> Result:
    """PyTorch would crash at the end of the process, were its profiler still on."""
    kept.append(cp.profile(profile_memory=True))
    kept[0].start()
    torch.neg(X)
    return None, []


kept: list[cp.profile] = []


CASES: list[Callable[[], Result]] = [
    first, around, around_warming_up, inside, inside_of_a_stretch, outliving, outliving_while_it_warms_up,
    while_we_warm_up, while_we_have_warmed_up, left_while_we_warm_up, in_another_thread, started_in_another_thread,
    forked, ended_by_another_thread, of_another_thread, never_ended,
]  # fmt: skip


def outcome(case: Callable[[], Result]) -> tuple[str, list[str] | None, list[str], list[str]]:
    """The case's name, the events of the other profiler and of ours, and what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        theirs, ours = case()
    return case.__name__, theirs, ours, [str(each.message) for each in caught if each.category is RuntimeWarning]


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps([outcome(case) for case in CASES]))
