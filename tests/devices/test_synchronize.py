"""synchronize_cuda, from Python to a driver that is a fake (failure scenarios H1, H2, H4 to H6).

Each test is a process of its own.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from calls import WATCH_DOG, check_script

pytestmark = [pytest.mark.native, pytest.mark.forks]

Run = Callable[[str], None]

IMPORTS = f"""{WATCH_DOG}import asyncio, contextlib, os, sys, threading, time
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import cprofiling as cp
from fakes.cuda_process import MS, FakeTorch, Tensor, fake, finish, stats, use_torch
"""
PREAMBLE = """
TICK = 0.02

class Module:
    "A node with a parameter on a device."
    def __init__(self, index=None):
        self.weight, self.streams = Tensor(index), []
    def parameters(self):
        return iter([self.weight])
    def buffers(self):
        return iter(())
    @cp.profile_node("node")
    def forward(self, *work):
        for action in work:
            action()
        return "result"

streams = {}   # device -> the stream that torch says it uses

def pretend_torch():
    "A torch that has devices, of which the driver knows nothing yet."
    sys.modules["torch"] = FakeTorch(8)

def start(devices=2, synchronize_cuda=True):
    "A driver with devices in use, device 0 bound to this thread, and the default Profiler on."
    global streams
    streams = use_torch(devices).streams
    cp.set_profiling(True, synchronize_cuda=synchronize_cuda)

def busy(index, ms):
    "Work for a device, which takes some virtual milliseconds."
    fake.launch(streams[index], ms * MS)

def waits():
    return fake.calls(b"cuCtxSynchronize")
"""


def check(script: str, **environment: str) -> None:
    check_script(IMPORTS + PREAMBLE + textwrap.dedent(script), **environment)


@pytest.fixture
def run(libcuda: str) -> Run:
    """Run a script with the fake driver."""
    return lambda script: check(script, CPROFILING_LIBCUDA=libcuda)


# ---- waiting -------------------------------------------------------------------------------------


def test_a_node_is_waited_for_before_and_after(run: Run) -> None:
    run("""
        start()
        busy(0, 5)
        seen = []
        assert Module(0).forward(lambda: seen.append(fake.now()), lambda: busy(0, 7)) == "result"
        assert seen == [5 * MS]
        assert fake.now() == 12 * MS
        assert waits() == 2
        finish(node=1)
    """)


def test_a_recording_may_have_nodes_waited_for_whose_profiler_is_off(run: Run) -> None:
    run("""
        from cprofiling.report.notebook.cell_profile import CellRecording
        start(synchronize_cuda=False)
        cp.set_profiling(False)
        for synchronizes in (True, False):
            recording = CellRecording(synchronizes=synchronizes, operators=False, capacity=10)
            recording.begin()
            busy(0, 5)
            seen = []
            Module(0).forward(lambda: seen.append(fake.now()), lambda: busy(0, 7))
            assert seen == ([5 * MS] if synchronizes else [12 * MS])
            with cp.profile_node("block"):
                pass
            assert waits() == 4  # of the first round: twice for each
            recording.stop()
            assert [row.count for row in recording.result(failed=False, skip_first_n=0).summary] == [1, 1]
        Module(0).forward()
        assert waits() == 4
        finish()
    """)


def test_a_recording_takes_no_wait_from_a_profiler_that_has_asked_for_it(run: Run) -> None:
    run("""
        from cprofiling.report.notebook.cell_profile import CellRecording
        start()
        for synchronizes in (True, False):
            recording = CellRecording(synchronizes=synchronizes, operators=False, capacity=10)
            recording.begin()
            Module(0).forward()
            end_watch_dog()
            child = os.fork()
            if child == 0:  # it may not call the driver, and says of each wait why there was none
                Module(0).forward()
                os._exit(0 if any("fork" in reason for reason in cp.get_profiling_summary().reasons) else 1)
            assert os.waitpid(child, 0)[1] == 0
            recording.stop()
            before = waits()
            Module(0).forward()
            assert waits() == before + 2
        assert waits() == 8
        finish(node=4)
    """)


def test_nothing_is_waited_for_unless_asked(run: Run) -> None:
    run("""
        start(synchronize_cuda=False)
        busy(0, 5)
        Module(0).forward()
        with cp.profile_node("block"):
            pass
        cp.set_profiling(True, synchronize_cuda=True)
        cp.set_profiling(False)
        Module(0).forward()
        cp.set_profiling(True)
        Module(0).forward()
        assert (fake.now(), fake.total_calls()) == (0, 0)
        finish(node=2, block=1)
    """)


def test_the_device_is_that_of_the_nodes_parameters_or_of_its_tensors(run: Run) -> None:
    run("""
        start(devices=3)
        plain = cp.profile_node("plain")(lambda *args, **kwargs: None)
        @cp.profile_node
        def generator(*args, **kwargs):
            yield
        for number, call in enumerate((
            lambda: Module(1).forward(),
            lambda: plain(Tensor(1)),
            lambda: plain(5, [Tensor(), {"x": Tensor(1)}]),
            lambda: plain(5, key=Tensor(1)),
            lambda: plain(key=[Tensor(1)]),
            lambda: plain(Module(), Tensor(1)),
            lambda: Module(1).forward(*[lambda: plain(Tensor(1))]),
            lambda: list(generator(1, Tensor(1))),
            lambda: list(generator(key=Tensor(1))),
            lambda: list(generator(Module(1))),
        )):
            before = fake.now()
            for index, ms in ((0, 1000), (1, 5), (2, 1000)):
                busy(index, ms)
            call()
            assert fake.now() == before + 5 * MS, number
            assert fake.current_device() == 0
            fake.advance(10_000 * MS)
        finish(plain=6, node=2, generator=3)
    """)


def test_a_node_without_a_device_is_not_waited_for(run: Run) -> None:
    run("""
        start()
        busy(0, 5)
        Module().forward()
        cp.profile_node("plain")(lambda *args: None)(1, "x", Tensor())
        assert fake.now() == 0
        assert set(fake.names_called()) <= {"cuGetProcAddress"}
        finish(node=1, plain=1)
    """)


def test_a_block_waits_for_the_threads_current_device(run: Run) -> None:
    run("""
        start()
        fake.bind(1)
        busy(0, 1000)
        busy(1, 5)
        with cp.profile_node("block"):
            assert fake.now() == 5 * MS
            busy(1, 7)
        assert fake.now() == 12 * MS and fake.current_device() == 1
        fake.bind(-1)
        busy(1, 5)
        with cp.profile_node("block"):
            pass
        assert fake.now() == 12 * MS and fake.current_device() == -1
        finish(block=2)
    """)


def test_generators_and_coroutines_wait_at_their_begin_and_at_their_end(run: Run) -> None:
    run("""
        start()
        module = Module(0)

        @cp.profile_node
        def generator(module):
            seen.append(fake.now())
            busy(0, 2)
            yield
            busy(0, 3)

        @cp.profile_node
        async def coroutine(module):
            seen.append(fake.now())
            await asyncio.sleep(0)
            busy(0, 3)

        @cp.profile_node
        async def async_generator(module):
            seen.append(fake.now())
            yield
            busy(0, 3)

        async def use(made):
            async for _ in made:
                pass

        def run(function):
            seen.clear()
            before, waited = fake.now(), waits()
            busy(0, 5)
            made = function(module)
            assert waits() == waited
            if function is generator:
                list(made)
            else:
                asyncio.run(made if function is coroutine else use(made))
            assert seen == [before + 5 * MS]
            assert fake.now() == before + (10 if function is generator else 8) * MS
            assert waits() >= waited + 2

        seen = []
        for function in (generator, coroutine, async_generator):
            run(function)
        finish(generator=1, coroutine=1, async_generator=1)
    """)


def test_a_failing_node_fails_as_ever(run: Run) -> None:
    run("""
        start()
        def fail():
            raise error
        for is_broken in (False, False, True):
            if is_broken:
                fake.break_driver(700)
            error = KeyError("text")
            try:
                Module(0).forward(fail)
            except KeyError as caught:
                assert caught is error and error.__context__ is None
            try:
                with cp.profile_node("block"):
                    fail()
            except KeyError as caught:
                assert caught is error
        assert (stats().error_count, stats("block").error_count) == (3, 3)
        finish(node=0, block=0)
    """)


def test_a_call_keeps_the_configuration_that_it_began_with(run: Run) -> None:
    run("""
        start()
        def switch(synchronize_cuda):
            cp.set_profiling(True, synchronize_cuda=synchronize_cuda)
        Module(0).forward(lambda: switch(False))
        assert waits() == 2
        Module(0).forward(lambda: switch(True))
        assert waits() == 2
        with cp.profile_node("block"):
            switch(False)
        assert waits() == 4
        with cp.profile_node("block"):
            switch(True)
        assert waits() == 4
        finish(node=2, block=2)
    """)


def test_a_torch_that_does_not_tell_its_stream_is_waited_for_all_the_same(run: Run) -> None:
    run("""
        start()
        del sys.modules["torch"]._C
        Module(0).forward()
        del sys.modules["torch"].cuda
        Module(0).forward()
        assert waits() == 4
        finish(node=2)
    """)


def test_nodes_that_are_decorated_twice_wait_once(run: Run) -> None:
    run("""
        start()
        node = cp.profile_node("outer")(cp.profile_node("inner")(lambda module: "result"))
        assert node(Module(0)) == "result"
        assert waits() == 2
        finish(outer=1)
    """)


# ---- what is measured ----------------------------------------------------------------------------


def test_looking_for_the_device_and_waiting_before_are_not_measured(run: Run) -> None:
    run("""
        start()
        class Slow(Module):
            def parameters(self):
                time.sleep(TICK)
                return super().parameters()
        def release():
            while not fake.held():
                time.sleep(0.001)
            time.sleep(TICK)
            fake.hold(0)
        fake.hold(1)
        thread = threading.Thread(target=release)
        thread.start()
        begin = time.perf_counter()
        Slow(0).forward()
        elapsed_ms = (time.perf_counter() - begin) * 1e3
        thread.join()
        assert elapsed_ms - stats().total_ms >= 0.95e3 * 2 * TICK
        finish(node=1)
    """)


def test_waiting_after_is_measured_with_the_gil_released(run: Run) -> None:
    run("""
        start()
        turns = [0]
        def release():
            while not fake.held():
                time.sleep(0.001)
            end = time.perf_counter() + TICK
            while time.perf_counter() < end:
                turns[0] += 1      # runs only if the waiting thread has given up the GIL
            fake.hold(0)
        thread = threading.Thread(target=release)
        def hold():
            fake.hold(1)
            thread.start()
        Module(0).forward(hold)
        thread.join()
        assert turns[0] > 0
        assert stats().total_ms >= 0.95e3 * TICK
        assert stats().self_total_ms == stats().total_ms
        finish(node=1)
    """)


def test_the_wait_of_a_child_is_the_childs_time(run: Run) -> None:
    run("""
        start()
        inner, outer = Module(0), Module(0)
        child = cp.profile_node("child")(lambda module: busy(0, 5))
        outer.forward(lambda: child(inner))
        assert abs(stats().self_total_ms - (stats().total_ms - stats("child").total_ms)) < 1e-5
        finish(child=1, node=1)
    """)


# ---- what is never done --------------------------------------------------------------------------


def test_no_context_is_ever_created(run: Run) -> None:
    run("""
        fake.reset()
        pretend_torch()
        cp.set_profiling(True, synchronize_cuda=True)
        Module(0).forward()                 # a device that nobody uses
        with cp.profile_node("block"):
            pass
        assert (fake.references(0), fake.references(1), fake.current_device()) == (0, 0, -1)
        fake.activate(1)
        Module(0).forward()
        Module(1).forward()
        assert (fake.references(0), fake.references(1), fake.current_device()) == (0, 1, -1)
        Module(7).forward()                 # a device that there is not
        fake.set_initialized(0)
        Module(1).forward()
        assert fake.calls(b"cuInit") == 0
        assert cp.get_profiling_summary().reasons == () or "synchroni" not in str(cp.get_profiling_summary().reasons)
        finish(node=5, block=1)
    """)


@pytest.mark.parametrize("non_blocking", [0, 1])
def test_a_stream_capture_is_not_disturbed(run: Run, non_blocking: int) -> None:
    run(f"""
        start()
        streams[0] = fake.new_stream(0, {non_blocking})
        fake.begin_capture(streams[0])
        Module(0).forward(lambda: busy(0, 5))
        with cp.profile_node("block"):
            pass
        assert fake.end_capture(streams[0]) == 1
        assert waits() == 0
        (reason,) = [reason for reason in cp.get_profiling_summary().reasons if "capture" in reason]
        assert "4" in reason
        Module(0).forward()
        assert waits() == 2
        finish(node=2, block=1)
    """)


@pytest.mark.parametrize("function", ["cuCtxSynchronize", "cuDeviceGet", "cuStreamIsCapturing", "cuCtxGetDevice"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_driver_error_switches_waiting_off_and_raises_nothing(run: Run, function: str, nth: int) -> None:
    run(f"""
        start()
        fake.fail({function.encode()!r}, 700, {nth})
        module = Module(0)
        assert module.forward() == "result"
        fake.break_driver(700)
        calls = fake.total_calls()
        for _ in range(3):
            assert module.forward() == "result"
        with cp.profile_node("block"):
            pass
        assert fake.total_calls() == calls
        (reason,) = [reason for reason in cp.get_profiling_summary().reasons if "CUDA" in reason]
        assert "CUDA_ERROR_ILLEGAL_ADDRESS (700) from {function}" in reason
        assert reason in cp.get_profiling_summary()._repr_html_()
        finish(node=4, block=1)
    """)


def test_a_fault_of_the_device_finder_is_counted_and_harms_nobody(run: Run) -> None:
    run("""
        start()
        class Broken(Module):
            def parameters(self):
                raise KeyError("own")
        assert Broken(0).forward() == "result"
        assert stats().count == 1
        assert cp.get_profiling_summary().internal_errors >= 1
    """)


def test_a_node_may_use_threads_with_devices_of_their_own(run: Run) -> None:
    run("""
        start(devices=4)
        def work(index):
            fake.bind(index)
            module = Module((index + 1) % 4)
            for _ in range(50):
                busy((index + 1) % 4, 1)
                module.forward()
                assert fake.current_device() == index
        threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert waits() == 400
        assert [fake.references(index) for index in range(4)] == [1] * 4
        finish(node=200)
    """)


def test_a_forked_child_makes_no_call_of_the_driver(run: Run) -> None:
    """H5."""
    run("""
        start()
        Module(0).forward()
        calls = fake.total_calls()
        end_watch_dog()
        child = os.fork()
        if child == 0:
            ok = Module(0).forward() == "result" and fake.total_calls() == calls and fake.violations() == 0
            reasons = cp.get_profiling_summary().reasons
            os._exit(0 if ok and any("fork" in reason for reason in reasons) and stats().count == 1 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        Module(0).forward()
        assert waits() == 4
        finish(node=2)
    """)


# ---- finding the driver (H1) ---------------------------------------------------------------------


def test_torch_is_never_imported(tmp_path: Path, run: Run) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')")
    run(f"""
        sys.path.insert(0, {str(tmp_path)!r})
        cp.set_profiling(True, synchronize_cuda=True)
        fake.reset()
        Module(0).forward()
        with cp.profile_node("block"):
            pass
        cp.format_profiling_summary()
        assert "torch" not in sys.modules
    """)


def test_a_driver_that_is_loaded_later_is_noticed(libcuda: str) -> None:
    check(
        """
        cp.set_profiling(True, synchronize_cuda=True)
        pretend_torch_later = Module(0)
        pretend_torch_later.forward()
        start()
        deadline = time.monotonic() + 60
        while waits() == 0 and time.monotonic() < deadline:
            busy(0, 1)
            pretend_torch_later.forward()
            time.sleep(0.01)
        assert waits() > 0
        """,
        CPROFILING_LIBCUDA="",
        FAKE_LIBCUDA=libcuda,
    )


def test_a_library_that_cannot_be_loaded_is_a_reason(tmp_path: Path) -> None:
    for content in (None, b"no library"):
        path = tmp_path / "libcuda.so.1"
        if content is not None:
            path.write_bytes(content)
        check(
            """
            pretend_torch()
            cp.set_profiling(True, synchronize_cuda=True)
            assert Module(0).forward() == "result"
            (reason,) = [reason for reason in cp.get_profiling_summary().reasons if "CPROFILING_LIBCUDA" in reason]
            assert "cannot be loaded" in reason
            assert stats().count == 1
            """,
            CPROFILING_LIBCUDA=str(path),
        )
