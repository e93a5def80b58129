"""gpu_time, from Python to a driver that is a fake with a virtual clock (failure scenarios H1 to H8).

Each test is a process of its own.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from calls import WATCH_DOG, check_script
from fakes import build

pytestmark = [pytest.mark.native, pytest.mark.forks]

TESTS = Path(__file__).parents[1]
Run = Callable[[str], None]

PREAMBLE = f"""{WATCH_DOG}import asyncio, gc, os, sys, threading
sys.path.insert(0, {str(TESTS)!r})
import cprofiling as cp
from fakes.cuda_process import MS, Stream, Tensor, fake, finish, stats, use_torch
"""

START = """
torch = use_torch()
cp.set_profiling(True, gpu_time=True)

def busy(ms, device=0):
    "Work for the stream that torch uses on a device."
    fake.launch(torch.streams[device], round(ms * MS))

@cp.profile_node
def node(ms=0, device=None):
    busy(ms, 0 if device is None else device.device.index)
    return "result"

def known(name="node"):
    "The GPU times of a node: how many, and their sum in ms."
    fake.advance(10_000 * MS)
    return stats(name).gpu_count, stats(name).gpu_total_ms
"""


@pytest.fixture
def run(libcuda: str) -> Run:
    """Run a script with the fake driver."""
    return lambda script: check_script(PREAMBLE + START + textwrap.dedent(script), CPROFILING_LIBCUDA=libcuda)


# ---- figures -------------------------------------------------------------------------------------


def test_a_thousand_nodes_on_three_streams_and_two_devices(run: Run) -> None:
    run("""
        streams = [(0, torch.streams[0]), (0, fake.new_stream(0, 1)), (1, torch.streams[1])]
        def work(device, ns):
            fake.launch(torch.streams[device.device.index], ns)
        nodes = [cp.profile_node(name=f"node {i}")(work) for i in range(1000)]
        given = [[] for _ in nodes]
        for call in range(3):
            for i, node in enumerate(nodes):
                device, torch.streams[device] = streams[(i + call) % 3]
                given[i].append(1 + (7919 * i + 104_729 * call) % 16_000_000)
                node(Tensor(device), given[i][-1])
            fake.advance(20_000 * MS)
        summary = {s.node_name: s for s in cp.get_profiling_summary()}
        assert len(summary) == 1000
        for i, times in enumerate(given):
            s = summary[f"node {i}"]
            assert (s.count, s.gpu_count, s.gpu_reason) == (3, 3, None), s
            assert s.gpu_total_ms == sum(times) / 1e6, (s, times)
            assert abs(s.gpu_mean_ms - sum(times) / 3e6) <= 1e-12 * s.gpu_mean_ms, (s, times)
            assert abs(s.gpu_p50_ms - sorted(times)[1] / 1e6) <= 0.01 * s.gpu_p50_ms + 1e-6, (s, times)
            assert abs(s.gpu_p99_ms - max(times) / 1e6) <= 0.01 * s.gpu_p99_ms, (s, times)
            assert s.queue_delay_ms >= 0
        assert fake.broken_rules() == [] and fake.open_pushes() == 0
        assert fake.calls(b"cuCtxSynchronize") == 0
    """)


def test_percentiles_and_the_delay_in_the_queue(run: Run) -> None:
    run("""
        first, second = cp.profile_node("first")(busy), cp.profile_node("second")(busy)
        first(1)
        busy(50_000)                 # of others: what comes behind waits for it
        second(1)
        assert known("first") == (1, 1.0)
        fake.advance(50_000 * MS)
        assert known("second") == (1, 1.0)
        assert stats("first").queue_delay_ms == 0
        assert 49_000 < stats("second").queue_delay_ms <= 50_001    # the clock of the host goes on meanwhile
        for ms in range(1, 501):
            node(ms / 100)
            fake.advance(6 * MS)
        s = stats()
        assert (s.gpu_count, s.gpu_total_ms) == (500, sum(range(1, 501)) * 10_000 / 1e6)
        assert abs(s.gpu_p50_ms - 2.5) <= 0.025 + 0.01 and abs(s.gpu_p99_ms - 4.95) <= 0.0495 + 0.01, s
        assert "gpu_count" in repr(s) and "GPU" in cp.format_profiling_summary()
        finish(first=1, second=1, node=500)
    """)


def test_every_kind_of_node(run: Run) -> None:
    run("""
        class Model:
            @cp.profile_node("method")
            def forward(self):
                busy(2)
        @cp.profile_node
        async def coroutine():
            busy(3)
            await asyncio.sleep(0)
            busy(4)
        @cp.profile_node
        def generator():
            busy(5)
            yield 1
            busy(6)
        @cp.profile_node
        async def async_generator():
            busy(7)
            yield 1
            busy(8)
        @cp.profile_node("outer")
        def outer():
            busy(1)
            node(9)
        async def main():
            await coroutine()
            async for _ in async_generator():
                busy(100)
            async with cp.profile_node("async block"):
                busy(10)
                await asyncio.sleep(0)
        node(1)
        Model().forward()
        asyncio.run(main())
        assert list(generator()) == [1]
        with cp.profile_node("block"):
            busy(11)
        outer()
        assert known() == (2, 10.0)
        for name, ms in (("method", 2), ("coroutine", 7), ("block", 11), ("async block", 10), ("outer", 10)):
            assert known(name) == (1, ms), (name, stats(name))
        for name in ("generator", "async_generator"):    # what the consumer gives the stream in between is not theirs
            assert known(name) == (0, None), (name, stats(name))
            assert "gave way to its consumer" in stats(name).gpu_reason
        finish(node=2, method=1, coroutine=1, async_generator=1, generator=1, block=1, outer=1, **{"async block": 1})
    """)


def test_what_has_no_gpu_time(run: Run) -> None:
    run("""
        @cp.profile_node
        def fails():
            busy(1)
            raise KeyError
        @cp.profile_node
        async def cancelled():
            busy(1)
            await asyncio.sleep(60)
        async def cancel():
            task = asyncio.create_task(cancelled())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for call in (fails, lambda: asyncio.run(cancel())):
            try:
                call()
            except KeyError:
                pass
        assert (stats("fails").error_count, stats("cancelled").cancelled_count) == (1, 1)
        assert (stats("fails").gpu_count, stats("fails").gpu_reason) == (0, None)
        finish(fails=0, cancelled=0)

        cp.set_profiling(True, gpu_time=True, skip_first_n=2, reset=True)
        for ms in (1, 2, 4, 8):
            node(ms)
        assert known() == (2, 12.0)
        assert stats().skipped_count == 2

        cp.set_profiling(True, gpu_time=True, reset=True)
        def switch(call):
            busy(1)
            call()
        switched = cp.profile_node("switched")(switch)
        switched(cp.reset_profiling)
        assert stats("switched").dropped_count == 1
        switched(lambda: cp.set_profiling(False))    # counted as it began
        assert known("switched") == (1, 1.0)
        cp.set_profiling(True)
        node(1)
        assert stats().gpu_count == 0 and stats().gpu_reason is None
        busy(5_000)
        cp.set_profiling(True, gpu_time=True)
        node(1)
        cp.reset_profiling()                         # while its time is under way
        node(2)
        assert known() == (1, 2.0)
        assert fake.open_events() <= 8
        finish(node=1)
    """)


def test_times_that_are_not_there_yet_come_with_a_later_summary(run: Run) -> None:
    """H7."""
    run("""
        node(3)
        s = stats()
        assert (s.count, s.gpu_count, s.gpu_total_ms, s.gpu_reason) == (1, 0, None, "the device has not told yet")
        calls = fake.calls(b"cuCtxSynchronize")
        fake.advance(2 * MS)
        assert stats().gpu_count == 0
        fake.advance(1 * MS)
        assert (stats().gpu_count, stats().gpu_total_ms, stats().gpu_reason) == (1, 3.0, None)
        assert fake.calls(b"cuCtxSynchronize") == calls == 0
        for _ in range(4096 + 10):
            node(1)
        s = stats()
        assert s.gpu_count == 1 and s.gpu_reason == "too many calls waited for the device (10 calls)", s
        assert known() == (1 + 4096, 3.0 + 4096)
        finish(node=1 + 4096 + 10)
    """)


def test_snapshots_carry_gpu_times(run: Run) -> None:
    run("""
        import pickle
        profilers = [cp.Profiler(), cp.Profiler()]
        for ms, profiler in enumerate(profilers, 1):
            profiler.set_profiling(True, gpu_time=True)
            profiler.profile_node("node")(busy)(ms)
        fake.advance(100 * MS)
        taken = [pickle.loads(pickle.dumps(profiler.snapshot())) for profiler in profilers]
        merged = stats(of=type("Of", (), {"get_profiling_summary": cp.Snapshot.merge(taken).stats}))
        assert (merged.count, merged.gpu_count, merged.gpu_total_ms, merged.gpu_mean_ms) == (2, 2, 3.0, 1.5)
        assert [taken[i].stats()[0].gpu_total_ms for i in range(2)] == [1.0, 2.0]
    """)


def test_synchronising_and_gpu_time_together(run: Run) -> None:
    run("""
        cp.set_profiling(True, gpu_time=True, synchronize_cuda=True)
        busy(5)
        node(3, Tensor(0))
        with cp.profile_node("block"):
            busy(4)
        s = stats()
        assert (s.gpu_count, s.gpu_total_ms) == (1, 3.0)
        assert s.sync_total_ms > 0 and fake.calls(b"cuCtxSynchronize") == 4
        assert (stats("block").gpu_total_ms, stats("block").sync_total_ms > 0) == (4.0, True)
        text = cp.format_profiling_summary()
        assert "Waiting for devices (synchronize_cuda) took" in text and "the GPU times need none of it" in text, text
        finish(node=1, block=1)
        cp.set_profiling(True, synchronize_cuda=True, skip_first_n=1, reset=True)
        node(1, Tensor(0))
        assert stats().sync_total_ms is None
        node(1, Tensor(0))
        assert stats().sync_total_ms > 0 and stats().gpu_count == 0
        assert "the GPU times need none of it" not in cp.format_profiling_summary()
        finish(node=1)
    """)


# ---- streams -------------------------------------------------------------------------------------


def test_given_streams(run: Run) -> None:
    run("""
        mine = fake.new_stream(0, 1)
        far = fake.new_stream(1, 1)
        class Protocol:
            def __cuda_stream__(self):
                return 0, mine
        def timed(stream, handle=mine, device=None):
            cp.set_profiling(True, gpu_time=True, gpu_stream=stream, reset=True)
            busy(1_000)                        # of the stream that torch uses: not timed
            def work(*tensors):
                fake.launch(handle, 2 * MS)
            cp.profile_node("work")(work)(*([] if device is None else [Tensor(device)]))
            assert known("work") == (1, 2.0), (stream, stats("work"))
            assert stats("work").gpu_reason is None
        timed(mine)
        timed(Stream(mine))
        timed(Protocol())
        timed(lambda: mine)
        timed(lambda: Stream(far, 1), far)
        timed(far, far, device=1)
        timed(lambda: None, torch.streams[0])
        assert fake.broken_rules() == [] and fake.open_pushes() == 0
        del sys.modules["torch"]               # a stream is enough
        timed(mine)
    """)


def test_streams_that_are_not_to_be_had(run: Run) -> None:
    run("""
        def fails():
            raise KeyError("own")
        for stream, said in ((fails, "KeyError"), (lambda: "x", "gpu_stream must return"), (lambda: -5, "must return")):
            cp.set_profiling(True, gpu_time=True, gpu_stream=stream, reset=True)
            assert node(1) == "result"
            assert stats().gpu_reason == "the stream was not told (1 call)", stats()
            assert said in str(cp.get_profiling_summary().reasons), cp.get_profiling_summary().reasons
        destroyed = fake.new_stream(0, 1)
        fake.destroy_stream(destroyed)
        cp.set_profiling(True, gpu_time=True, gpu_stream=lambda: destroyed, reset=True)
        assert node(1) == "result"
        s = stats()
        assert (s.count, s.gpu_count, s.gpu_reason) == (1, 0, "the device refused (1 call)"), s
        assert any("CUDA_ERROR_INVALID_HANDLE" in reason for reason in cp.get_profiling_summary().reasons)
        cp.set_profiling(True, gpu_time=True)
        node(2)                                # others have their times
        assert known() == (1, 2.0)
    """)


def test_wrong_arguments_change_nothing(run: Run) -> None:
    run("""
        node(1)
        for error, name, wrong in (
            (TypeError, "gpu_time", None), (TypeError, "gpu_time", "yes"), (TypeError, "gpu_stream", "x"),
            (ValueError, "gpu_stream", -1), (TypeError, "gpu_stream", True), (ValueError, "gpu_stream", 1 << 64),
            (TypeError, "gpu_stream", Stream), (TypeError, "kernels", "x"), (TypeError, "kernels", None),
            (TypeError, "nvtx", None), (TypeError, "memory", 1), (ValueError, "memory", "all"),
            (TypeError, "counters", "cpu_time"), (ValueError, "counters", ["x"]), (TypeError, "counters", [1]),
            (TypeError, "counters", 5),
        ):
            try:
                cp.set_profiling(False, reset=True, **{name: wrong})
            except error as refused:
                assert name in str(refused), refused
            else:
                raise AssertionError((name, wrong))
        assert cp.profiling_enabled()
        node(2)
        assert known() == (2, 3.0)
        finish(node=2)
    """)


def test_nodes_that_change_the_stream_or_the_device(run: Run) -> None:
    run("""
        first, second = torch.streams[0], fake.new_stream(0, 1)
        @cp.profile_node
        def changes():
            busy(1)
            torch.streams[0] = second
            busy(7)
        changes()
        torch.streams[0] = first
        assert known("changes") == (1, 7.0)
        assert stats("changes").gpu_reason == "1 call began on one stream and ended on another"
        with cp.profile_node("block"):
            busy(2)
            fake.bind(1)                       # the call is timed on the device where it began
        assert known("block") == (1, 2.0)
        fake.bind(-1)
        node(3, Tensor(1))
        assert known() == (1, 3.0) and fake.current_device() == -1
        finish(changes=1, block=1, node=1)
    """)


# ---- what is never done --------------------------------------------------------------------------


def test_a_stream_capture_is_not_disturbed(run: Run) -> None:
    """H4."""
    run("""
        node(1)
        fake.begin_capture(torch.streams[0])
        node(1)
        def ends(begins, ms):
            (fake.begin_capture if begins else fake.end_capture)(torch.streams[0])
            busy(ms)
        cp.get_profiling_summary()
        ending = cp.profile_node("ending")(ends)
        ending(False, 1)
        ending(True, 1)
        assert stats("ending").gpu_reason == "the stream was being captured (2 calls)"
        assert fake.end_capture(torch.streams[0]) == 1
        assert known() == (1, 1.0)
        assert stats().gpu_reason == "the stream was being captured (1 call)"
        node(2)
        assert known() == (2, 3.0)
        cp.set_profiling(True, gpu_time=True, memory=True)
        fake.begin_capture(torch.streams[0])
        node(1)
        assert fake.end_capture(torch.streams[0]) == 1
        assert stats().memory.device is None
        node(1)
        assert stats().memory.device.entry == 20 << 30    # of the whole device, as nobody's allocator tells
        finish(node=5, ending=2)
    """)


def test_contexts_that_go(run: Run) -> None:
    """H2, H6: what waits in a context that is destroyed, or has failed, is lost; a new one starts anew."""
    run("""
        node(5)
        fake.device_reset(0)
        node_in_between = cp.profile_node("in between")(lambda: None)
        node_in_between()
        assert stats("in between").gpu_count == 0
        assert stats("in between").gpu_reason == "there was no context on the device (1 call)", stats("in between")
        fake.activate(0)
        torch.streams[0] = fake.new_stream(0, 0)
        fake.bind(0)
        node(3)
        s = known(), stats().gpu_reason
        assert s == ((1, 3.0), "the context was destroyed (1 call)"), s
        with cp.profile_node("cut"):
            fake.device_reset(0)
        assert stats("cut").gpu_count == 0 and stats("cut").count == 1
        fake.activate(0)
        fake.bind(0)
        torch.streams[0] = fake.new_stream(0, 0)
        fake.break_context(0, 700)
        for _ in range(3):
            assert node() == "result"
        assert any("CUDA_ERROR_ILLEGAL_ADDRESS (700)" in reason for reason in cp.get_profiling_summary().reasons)
        assert "the device refused (3 calls)" in stats().gpu_reason
        node(2, Tensor(1))                      # the other device goes on
        assert known() == (2, 5.0)
        assert fake.open_pushes() == 0 and fake.references(0) == fake.references(1) == 1
    """)


def test_a_driver_that_shuts_down_is_left_alone(run: Run) -> None:
    """H8."""
    run("""
        node(5)
        fake.break_driver(4)
        node()
        calls = fake.total_calls()
        for _ in range(3):
            assert node() == "result"
        s = stats()
        assert s.count == 5 and s.gpu_count == 0 and fake.total_calls() == calls
        assert any("CUDA_ERROR_DEINITIALIZED (4)" in reason for reason in cp.get_profiling_summary().reasons)
    """)


def test_a_forked_child_makes_no_call_of_the_driver(run: Run) -> None:
    """H5."""
    run("""
        end_watch_dog()
        node(1)
        @cp.profile_node
        def forks():
            busy(2)
            return os.fork()
        @cp.profile_node
        def generator():
            yield
        open_call = generator()
        next(open_call)
        child = forks()
        if child == 0:
            sys.modules["torch"].cuda.is_initialized = lambda: False
            calls = fake.total_calls()
            ok = node() == "result"
            open_call.close()
            s = stats()
            ok = ok and fake.total_calls() == calls and fake.violations() == 0 and s.count == 1 and not s.gpu_count
            del open_call
            gc.collect()
            ok = ok and any("fork" in reason for reason in cp.get_profiling_summary().reasons)
            ok = ok and fake.total_calls() == calls and stats("forks").count == 0
            os._exit(0 if ok else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        open_call.close()
        assert known("forks") == (1, 2.0) and known() == (1, 1.0)
        finish(node=1, forks=1, generator=1)
    """)


WATCH = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
static uint64_t (*calls)(void);
static uint64_t before;
static void look(void)
{
    (void)fprintf(stderr, "%s", calls() == before ? "" : "the driver was called at the end");
}
void watch(uint64_t (*counter)(void))
{
    calls = counter;
    before = counter();
    (void)atexit(look);
}
"""


def test_nothing_is_called_as_the_interpreter_ends(run: Run, tmp_path: Path) -> None:
    """H8: with times under way, calls open, and Profilers that are collected last of all."""
    (tmp_path / "watch.c").write_text(WATCH)
    library = build.library(tmp_path / "watch.so", tmp_path / "watch.c")
    run(f"""
        import ctypes
        node(1_000)
        @cp.profile_node
        def generator():
            yield
        left = generator()
        next(left)
        cp.profile_node("left open").__enter__()
        profiler = cp.Profiler()
        profiler.set_profiling(True, gpu_time=True, memory=True)
        profiler.profile_node("node")(busy)(5)
        cp.get_profiling_summary()
        del left                  # it ends here: what comes later is none of the driver's
        ctypes.CDLL({str(library)!r}).watch(fake.total_calls)
    """)


NO_LOADING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
static int probes;
int cuda_probes(void)
{
    return probes;
}
void *dlopen(const char *name, int flags)
{
    static void *(*real)(const char *, int);
    if (real == NULL) {
        void *address = dlsym(RTLD_NEXT, "dlopen");
        memcpy(&real, &address, sizeof real);
    }
    if (name != NULL && (strstr(name, "libcu") != NULL || strstr(name, "libnv") != NULL)) {
        probes++;
        (void)fprintf(stderr, "%s", (flags & RTLD_NOLOAD) == 0 ? name : "");
    }
    return real(name, flags);
}
"""


def test_without_cuda_nothing_is_loaded(libcuda: str, tmp_path: Path) -> None:
    """H1: not even where the loader would find a driver; and nodes are counted as ever."""
    (tmp_path / "watch.c").write_text(NO_LOADING)
    library = build.library(tmp_path / "watch.so", tmp_path / "watch.c")
    check_script(
        PREAMBLE
        + """
import ctypes
cp.set_profiling(True, gpu_time=True, gpu_stream=5, kernels=True, nvtx=True, memory="peak", counters=("cpu_time",),
                 synchronize_cuda=True)
@cp.profile_node
def node():
    return "result"
for _ in range(300):
    assert node() == "result"
with cp.profile_node("block"):
    pass
summary = {s.node_name: s for s in cp.get_profiling_summary()}
assert {name: s.count for name, s in summary.items()} == {"node": 300, "block": 1}
assert summary["node"].gpu_reason == "no device was in use (300 calls)"
assert summary["node"].gpu_total_ms is None and summary["node"].counters["cpu_time"].samples == 300
assert summary["node"].memory.device is None and summary["node"].memory.host.calls == 300
assert summary["node"].launches is None and "Launches" not in cp.format_profiling_summary()
assert "launches: no CUDA in the process" in cp.get_profiling_summary().reasons
assert cp.get_profiling_summary().internal_errors == 0
assert ctypes.CDLL(None).cuda_probes() > 0
with open("/proc/self/maps") as maps:
    mapped = maps.read()
assert "libcuda" not in mapped and "libcupti" not in mapped
        """,
        LD_PRELOAD=" ".join(filter(None, [os.environ.get("LD_PRELOAD"), str(library)])),
        LD_LIBRARY_PATH=str(Path(libcuda).parent),
        CPROFILING_LIBCUDA="",
    )


# ---- faults --------------------------------------------------------------------------------------


def test_what_goes_wrong_in_between_is_counted_and_harms_nobody(run: Run) -> None:
    run("""
        from cprofiling import _core
        from cprofiling.devices import in_use as devices
        from cprofiling.nodes import profiler as control, decorators as nodes, probe_callbacks as probers
        def use(**replaced):
            order = ("options", "place", "place_after", "memory", "memory_after", "launches", "wait_device", "wait")
            mine = tuple(replaced.get(name, given) for name, given in zip(order, probers.PROBERS, strict=True))
            control.set_up_core(mine)
        def raises(*arguments):
            raise ValueError("planted")
        def answers(answer):
            return lambda *arguments: answer
        handle = torch.streams[0]
        memory = {"memory": answers((0, 100, 200))}
        faults = 0
        for replaced in (
            {"place": raises}, {"place": answers((1,))}, {"place": answers((1, "x"))}, {"place": answers(5)},
            {"place_after": raises}, {"place_after": answers((1,))}, {"place_after": answers("x")},
            {"memory": raises}, {"memory": answers((1, 2))}, {"memory": answers("x")},
            {**memory, "memory_after": raises}, {**memory, "memory_after": answers((1,))},
        ):
            use(**replaced)
            cp.set_profiling(True, gpu_time=True, memory=True, reset=True)
            assert node(1) == "result"
            error = KeyError("own")
            try:
                with cp.profile_node("block"):
                    raise error
            except KeyError as caught:
                assert caught is error and error.__context__ is None
            summary = cp.get_profiling_summary()
            assert stats().count == 1 and stats("block").error_count == 1, replaced
            assert summary.internal_errors >= faults + 1, (replaced, summary.internal_errors, faults)
            faults = summary.internal_errors
        use(**memory, memory_after=answers((150, 300)))
        cp.set_profiling(True, gpu_time=True, memory=True, reset=True)
        node(1)
        figures = stats().memory.device
        assert (figures.calls, figures.entry, figures.exit, figures.change, figures.peak) == (1, 100, 150, 50, 300)
        use(**memory, memory_after=answers(None), place=answers(None))
        cp.set_profiling(True, gpu_time=True, memory=True, reset=True)
        node(1)
        assert stats().memory.device is None and stats().gpu_reason == "no device was in use (1 call)"
        assert cp.get_profiling_summary().internal_errors == faults
        assert fake.broken_rules() == [] and fake.open_pushes() == 0
    """)


def test_an_interrupt_while_the_stream_is_asked_for_is_not_lost(run: Run) -> None:
    run("""
        def interrupts():
            raise KeyboardInterrupt
        cp.set_profiling(True, gpu_time=True, gpu_stream=interrupts)
        try:
            node(1)
            for _ in range(100):
                pass
        except KeyboardInterrupt:
            cp.set_profiling(False)
        else:
            raise AssertionError("lost")
    """)


def test_a_block_that_is_left_by_what_it_asks(run: Run) -> None:
    run("""
        asked = []
        def leaves():
            if block.entered and not asked:
                asked.append(True)
                block.left.__exit__(None, None, None)
            return torch.streams[0]
        block = type("State", (), {"entered": False})()
        cp.set_profiling(True, gpu_time=True, gpu_stream=leaves)
        block.left = cp.profile_node("block")
        block.left.__enter__()
        busy(2)
        block.entered = True
        block.left.__exit__(None, None, None)
        assert asked and known("block")[0] == 1
        node(1)
        finish(block=1, node=1)
    """)
