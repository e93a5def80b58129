"""set_profiling(kernels=True): what each node gives to devices, from Python to a CUPTI that is a fake (H1, H5, H8).

Each test that has CUDA is a process of its own.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from calls import WATCH_DOG, check_script, run_python
from fakes import build

pytestmark = [pytest.mark.native, pytest.mark.forks]

TESTS = Path(__file__).parents[1]
Run = Callable[[str], None]

PREAMBLE = f"""{WATCH_DOG}import asyncio, ctypes, gc, os, sys, threading
sys.path.insert(0, {str(TESTS)!r})
import cprofiling as cp
from cprofiling import _core
from fakes.cuda_process import cupti, fake, use_torch

give_kernel = cupti.kernel  # once: threads that ask at the same time would get a function each
LAUNCH, COPY, FILL = (211, 307), (41, 277), (51, 216)      # calls of the runtime, which call the driver
TO_DEVICE, TO_HOST, ON_DEVICE, ON_HOST = 1, 2, 8, 9

def call(numbers, give=None, *arguments):
    "A call of the runtime, and of the driver in it, in this thread; the device does its work at once, in 1000 ns."
    made = cupti.correlation()
    runtime, driver = numbers
    cupti.enter(2, runtime, made)
    cupti.enter(1, driver, made)
    if give is not None:
        now = cupti.now()
        give(*arguments, *((now, now + 1000) if give is not give_kernel else (now, now + 1000, 0, 7)), made)
    cupti.leave(1, driver, made)
    cupti.leave(2, runtime, made)

def kernel():
    call(LAUNCH, give_kernel, b"kernel")

def copy(direction, count):
    call(COPY, cupti.copy, direction, 1, 2, count)

def settle():
    end = cupti.now() + 100_000
    while cupti.now() < end:
        pass

def stats(of=cp):
    settle()
    return {{s.node_name: s for s in of.get_profiling_summary()}}

def launches(name="node", of=cp):
    return stats(of)[name].launches

def finish(subscribed=0):
    assert cupti.violations() == 0, cupti.violation()
    assert cupti.open_buffers() == 0
    assert cupti.is_subscribed() == subscribed
    assert cp.get_profiling_summary().internal_errors == 0

use_torch()
"""


@pytest.fixture
def run(libraries: dict[str, str]) -> Run:
    """Run a script with the fake libraries."""
    return lambda script: check_script(PREAMBLE + textwrap.dedent(script), **libraries)


@pytest.fixture
def run_before_cuda(libraries: dict[str, str]) -> Run:
    """Run a script that loads the driver itself."""
    later = {**libraries, "CPROFILING_LIBCUDA": "", "FAKE_LIBCUDA": libraries["CPROFILING_LIBCUDA"]}
    preamble = PREAMBLE.replace("use_torch()\n", "import time\n")
    return lambda script: check_script(preamble + textwrap.dedent(script), **later)


# ---- figures -------------------------------------------------------------------------------------


def test_every_figure_is_exact_and_the_innermost_nodes(run: Run) -> None:
    run("""
        from cprofiling.nodes.resources import NodeLaunches
        cp.set_profiling(True, kernels=True)

        @cp.profile_node("inner")
        def inner():
            copy(TO_DEVICE, 1 << 40)
            copy(TO_HOST, 5)
            kernel()

        @cp.profile_node("outer")
        def outer():
            for _ in range(3):
                kernel()
            copy(TO_DEVICE, 100)
            copy(TO_DEVICE, 11)
            inner()
            copy(TO_HOST, 1000)
            copy(ON_DEVICE, 7)
            call(COPY, cupti.peer_copy, 13)
            call(FILL, cupti.fill, 1, 4096)
            copy(ON_HOST, 99)
            call(LAUNCH)                      # a launch whose kernel has not run

        kernel()                              # nobody's
        outer()
        copy(TO_DEVICE, 1)
        settle()
        assert launches("outer") == NodeLaunches(
            launches=4, kernels=3, kernel_ms=0.003, copies=6, bytes_to_device=111,
            bytes_to_host=1000, bytes_on_device=20, fills=1), launches("outer")
        assert launches("inner") == NodeLaunches(1, 1, 0.001, 2, 1 << 40, 5, 0, 0), launches("inner")
        outer()
        settle()
        assert (launches("outer").launches, launches("inner").bytes_to_device) == (8, 2 << 40)
        text = cp.format_profiling_summary()
        assert "Launches" in text and "2.0 TiB" in text, text
        cp.set_profiling(False)
        finish()
    """)


def test_threads_generators_and_coroutines_have_their_own(run: Run) -> None:
    run("""
        cp.set_profiling(True, kernels=True)

        @cp.profile_node("generator")
        def generator():
            kernel()
            yield
            kernel()

        @cp.profile_node("coroutine")
        async def coroutine():
            kernel()
            await asyncio.sleep(0)
            kernel()

        @cp.profile_node("thread")
        def in_thread():
            for _ in range(100):
                kernel()

        @cp.profile_node("consumer")
        def consumer():
            for _ in generator():
                kernel()

        async def main():
            asyncio.get_running_loop().slow_callback_duration = 60  # a busy machine is no fault
            await asyncio.gather(coroutine(), coroutine())

        threads = [threading.Thread(target=in_thread) for _ in range(4)]
        with cp.profile_node("block"):
            for thread in threads:
                thread.start()
            kernel()
            for thread in threads:
                thread.join()
        consumer()
        asyncio.run(main())
        expected = dict(generator=2, coroutine=4, thread=400, consumer=1, block=1)
        known = {name: (s.launches.launches, s.launches.kernels) for name, s in stats().items()}
        assert known == {name: (count, count) for name, count in expected.items()}, known
        cp.set_profiling(False)
        finish()
    """)


def test_threads_launch_beside_resets_switches_recordings_and_reads(run: Run) -> None:
    """Every figure is exact afterwards, and nothing is left behind (C3, G2)."""
    run("""
        def on():
            cp.set_profiling(True, kernels=True, gpu_time=True)

        def record():
            with cp.profile(activities=["CPU", "CUDA"]) as prof:
                node()
            assert prof.dropped == 0 and len(prof.events()) > 0

        def launch():
            for _ in range(100):
                node()

        def start(*bodies):
            threads = [threading.Thread(target=body) for body in bodies]
            for thread in threads:
                thread.start()
            return threads

        def join(threads):
            for thread in threads:
                thread.join()

        def until_all_have_launched(body):
            def repeat():
                while launching:
                    body()
            return repeat

        on()
        node = cp.profile_node("node")(kernel)
        launching = True
        others = start(*map(until_all_have_launched, (on, record, cp.reset_profiling, cp.get_profiling_summary)))
        join(start(*[launch] * 4))
        launching = False
        join(others)
        cp.set_profiling(False)
        finish()
        on()
        cp.reset_profiling()
        join(start(*[launch] * 4))
        found = stats()["node"]
        assert (found.count, found.launches.launches, found.launches.kernels) == (400, 400, 400), found
        cp.set_profiling(False)
        finish()
    """)


def test_calls_that_are_no_samples(run: Run) -> None:
    """Skipped ones give nothing; of one that fails the device has done its work all the same."""
    run("""
        cp.set_profiling(True, kernels=True, skip_first_n=2, reset=True)

        @cp.profile_node
        def node(error=None):
            kernel()
            if error is not None:
                raise error

        for _ in range(2):
            node()
        assert launches() is None
        try:
            node(KeyError("own"))
        except KeyError as error:
            assert error.__context__ is None
        node()
        s = stats()["node"]
        assert (s.count, s.skipped_count, s.error_count) == (1, 2, 1)
        assert (s.launches.launches, s.launches.kernels) == (2, 2), s.launches

        def resets():
            kernel()
            cp.reset_profiling()
            kernel()
        cp.profile_node("resets")(resets)()
        assert stats()["resets"].launches is None, "what it began in is gone"
        cp.set_profiling(False)
        cp.set_profiling(True, kernels=True, reset=True)
        kernel()
        node()
        assert launches().launches == 1
        cp.set_profiling(False)
        finish()
    """)


def test_snapshots_carry_launches_and_waits(run: Run) -> None:
    run("""
        import pickle
        from fakes.cuda_process import Tensor
        profilers = [cp.Profiler(), cp.Profiler()]
        for calls, profiler in enumerate(profilers, 1):
            profiler.set_profiling(True, kernels=True, synchronize_cuda=True)
            node = profiler.profile_node("node")(lambda tensor: (kernel(), copy(TO_HOST, 10)))
            for _ in range(calls):
                node(Tensor(0))
        each = [stats(profiler)["node"] for profiler in profilers]
        taken = [profiler.snapshot() for profiler in profilers]
        for snapshot, expected in zip(taken, each):
            for copied in (snapshot, cp.Snapshot.from_bytes(snapshot.to_bytes()), pickle.loads(pickle.dumps(snapshot))):
                (found,) = copied.stats()
                assert found == expected and found.launches == expected.launches
                assert found.sync_total_ms == expected.sync_total_ms > 0
        (merged,) = cp.Snapshot.merge(taken).stats()
        assert merged.launches == type(merged.launches)(3, 3, 0.003, 3, 0, 30, 0, 0), merged.launches
        assert abs(merged.sync_total_ms - sum(found.sync_total_ms for found in each)) < 1e-9
        for profiler in profilers:
            profiler.set_profiling(False)
        finish()
    """)


# ---- who holds CUPTI -----------------------------------------------------------------------------


def test_profilers_share_the_subscriber_and_the_last_one_gives_it_back(run: Run) -> None:
    run("""
        first, second = cp.Profiler(), cp.Profiler()
        nodes = [each.profile_node("node")(kernel) for each in (first, second)]
        first.set_profiling(True, kernels=True)
        first.set_profiling(True, kernels=True)
        assert cupti.calls(b"cuptiSubscribe") == 1
        second.set_profiling(True, kernels=True)
        assert cupti.calls(b"cuptiSubscribe") == 1
        nodes[0]()
        for _ in range(2):
            nodes[1]()
        first.set_profiling(True)
        assert cupti.is_subscribed()
        nodes[0]()
        assert (launches(of=first).launches, launches(of=second).launches) == (1, 2)
        assert {s.node_name: s.count for s in first.get_profiling_summary()} == {"node": 2}
        second.set_profiling(False)
        finish()
        cupti.hold(1)                     # another client can come
        second.set_profiling(True, kernels=True)
        cupti.hold(0)
        nodes[1]()
        assert launches(of=second).launches == 2, "it was not to be had at the start"
        first.set_profiling(True, kernels=True)
        del first, nodes
        gc.collect()
        finish()                          # a Profiler that nobody has any more has given it back
    """)


def test_a_recording_and_a_profiler_hold_it_together(run: Run) -> None:
    run("""
        cp.set_profiling(True, kernels=True)
        node = cp.profile_node("node")(kernel)
        node()
        with cp.profile(activities=["CUDA"]) as prof:
            node()
            settle()
        assert cupti.is_subscribed() and cupti.calls(b"cuptiSubscribe") == 1
        node()
        assert [event.name for event in prof.events() if event.kind == "device"] == ["kernel"]
        assert (launches().launches, launches().kernels) == (3, 3)
        cp.set_profiling(False)
        finish()
    """)


def test_another_client_is_named_and_nothing_else_is_harmed(run: Run) -> None:
    run("""
        cupti.hold(1)
        cp.set_profiling(True, kernels=True, counters=("cpu_time",))
        node = cp.profile_node("node")(lambda: (kernel(), "result")[1])
        assert [node() for _ in range(3)] == ["result"] * 3
        s = stats()["node"]
        assert (s.count, s.launches, s.counters["cpu_time"].samples) == (3, None, 3)
        told = cp.get_profiling_summary().reasons
        assert told.count(
            "launches: another profiler (torch.profiler, Nsight) holds CUPTI: "
            "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39) from cuptiSubscribe") == 1, told
        assert "Launches" not in cp.format_profiling_summary()
        cupti.hold(0)
        assert not cupti.is_subscribed()
        cp.set_profiling(True, kernels=True)      # asked for anew, it is to be had
        node()
        assert launches().launches == 1
        [told] = cp.get_profiling_summary().reasons
        assert told.startswith("launches: not counted in all calls: CUPTI was not to be had then"), told
        cp.set_profiling(False)
        finish()
    """)


WATCH = """
#include <stdio.h>
#include <stdlib.h>
static int (*is_subscribed)(void);
static void look(void)
{
    (void)fprintf(stderr, "%s", is_subscribed() == 0 ? "given back" : "held");
}
void watch(int (*asked)(void))
{
    is_subscribed = asked;
    (void)atexit(look);
}
"""


@pytest.mark.parametrize("ending", ["", "sys.exit()", "1 / 0", "left = profilers[0].profile_node('open').__enter__()"])
def test_it_is_given_back_at_the_end(libraries: dict[str, str], tmp_path: Path, ending: str) -> None:
    """H8: while the driver is there, by ``atexit``, whoever still holds it."""
    (tmp_path / "watch.c").write_text(WATCH)
    library = build.library(tmp_path / "watch.so", tmp_path / "watch.c")
    script = f"""
        profilers = [cp.Profiler() for _ in range(3)]
        for profiler in [*profilers, cp]:
            profiler.set_profiling(True, kernels=True)
        profilers.pop()
        node = cp.profile_node("node")(kernel)
        node()
        ctypes.CDLL({str(library)!r}).watch(cupti.is_subscribed)
        assert cupti.is_subscribed()
        {ending}
        """
    done = run_python(PREAMBLE + textwrap.dedent(script), **libraries)
    assert done.stderr.endswith("given back")
    assert ("ZeroDivisionError" in done.stderr) == (done.returncode != 0) == (ending == "1 / 0")


def test_the_child_of_a_fork_leaves_it_alone(run: Run) -> None:
    """H5."""
    run("""
        end_watch_dog()
        cp.set_profiling(True, kernels=True)
        node = cp.profile_node("node")(kernel)
        node()
        with cp.profile_node("open"):
            child = os.fork()
            if child == 0:
                calls = cupti.total_calls()
                node()
                ok = stats()["node"].count == 1 and launches() is None
                ok = ok and any("fork" in reason for reason in cp.get_profiling_summary().reasons)
                cp.set_profiling(True, kernels=True)
                node()
                cp.set_profiling(False)
                ok = ok and cupti.total_calls() == calls and cupti.violations() == 0
                os._exit(0 if ok else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        node()
        assert launches().launches == 2
        cp.set_profiling(False)
        finish()
    """)


def test_cuda_that_comes_later_is_found(run_before_cuda: Run) -> None:
    run_before_cuda("""
        cp.set_profiling(True, kernels=True)
        node = cp.profile_node("node")(kernel)
        node()
        fake.reset()                       # loads the driver
        end = time.monotonic() + 60
        while launches() is None and time.monotonic() < end:
            node()
            time.sleep(0.01)
        assert launches().launches > 0
    """)


def test_the_child_of_a_fork_may_be_the_first_with_cuda(run_before_cuda: Run) -> None:
    run_before_cuda("""
        end_watch_dog()
        cp.set_profiling(True, kernels=True)
        node = cp.profile_node("node")(kernel)
        node()
        child = os.fork()
        if child == 0:
            use_torch()
            cupti.reset(0)
            end = time.monotonic() + 30
            node()
            while launches() is None and time.monotonic() < end:
                time.sleep(0.01)
                node()
            cp.set_profiling(False)
            os._exit(0 if launches().launches == 1 and not cupti.is_subscribed() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert launches() is None
    """)


# ---- what may go wrong ---------------------------------------------------------------------------


def test_every_call_of_cupti_may_fail(run: Run) -> None:
    """H1: no exception, CPU figures as ever, the reason in the summary; and the next time it works again."""
    run("""
        node = cp.profile_node("node")(lambda: (kernel(), "result")[1])
        for function in (
            "cuptiGetVersion", "cuptiGetTimestamp", "cuptiSubscribe", "cuptiEnableCallback",
            "cuptiActivityRegisterCallbacks", "cuptiActivityEnable", "cuptiActivityFlushAll",
            "cuptiActivityGetNextRecord", "cuptiActivityGetNumDroppedRecords",
        ):
            cupti.fail(function.encode(), 15, 1)
            for expected in (None, 2):
                cp.set_profiling(True, kernels=True, reset=True)
                for _ in range(2):
                    assert node() == "result"
                    settle()
                    summary = cp.get_profiling_summary()
                assert summary[0].count == 2 and summary.internal_errors == 0, function
                if expected is None:
                    assert any(f"(15) from {function}" in reason for reason in summary.reasons), summary.reasons
                    assert summary[0].launches is None or summary[0].launches.launches == 2, function
                else:
                    assert (summary[0].launches.kernels, summary.reasons) == (2, ()), (function, summary.reasons)
                cp.set_profiling(False)
                assert not cupti.is_subscribed(), function
        finish()
    """)


def test_giving_it_back_may_fail(run: Run) -> None:
    run("""
        node = cp.profile_node("node")(kernel)
        for function in ("cuptiActivityDisable", "cuptiActivityFlushAll", "cuptiUnsubscribe"):
            for code in (1, 15, 999):
                cp.set_profiling(True, kernels=True, reset=True)
                node()
                cupti.fail(function.encode(), code, 1)
                cp.set_profiling(False)
                s = stats()["node"]
                assert s.count == 1 and s.launches.launches == 1
                assert _core.cupti_reason() == f"{_core.cupti_reason().split(' ')[0]} ({code}) from {function}"
                assert cupti.is_subscribed() == (function == "cuptiUnsubscribe")
                use_torch()
                cupti.reset()
        finish()
    """)


def test_an_old_cupti_and_lost_records_are_said(run: Run) -> None:
    run("""
        node = cp.profile_node("node")(kernel)
        cupti.set_version(12)
        cp.set_profiling(True, kernels=True)
        node()
        assert launches() is None
        assert any("older than that of CUDA 11" in reason for reason in cp.get_profiling_summary().reasons)
        cp.set_profiling(False)
        cupti.set_version(18)
        cp.set_profiling(True, kernels=True)
        node()
        cupti.drop(3)
        assert (launches().launches, launches().kernels) == (1, 1)
        assert "launches: records that CUPTI had no room for: 3" in cp.get_profiling_summary().reasons
        cp.set_profiling(False)
        finish()
    """)
