"""Ranges for NVIDIA's tools, and the capture window, from Python to fakes of a tool and of the driver.

Each test is a process of its own. What the environment may say of a window is in test_capture_window.py.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from calls import WATCH_DOG, check_script
from cprofiling import _core
from fakes import build
from nvtx_headers import nvtx_include

pytestmark = [pytest.mark.native, pytest.mark.forks]

TESTS = Path(__file__).parents[1]
Run = Callable[[str], None]
needs_headers = pytest.mark.skipif(_core.BUILT_WITH.endswith("without NVTX"), reason="built without NVTX's headers")

PREAMBLE = f"""{WATCH_DOG}import asyncio, contextlib, ctypes, gc, os, sys, threading
sys.path.insert(0, {str(TESTS)!r})
import cprofiling as cp
from cprofiling import _core
from fakes.cuda_process import fake, use_torch

class Tool:
    "What the tool has heard."
    def __init__(self):
        self.library = ctypes.CDLL(os.environ["NVTX_INJECTION64_PATH"])
        self.library.fake_nvtx_log.argtypes, self.library.fake_nvtx_log.restype = [ctypes.c_uint64], ctypes.c_char_p
        self.library.fake_nvtx_violations.restype = self.library.fake_nvtx_open.restype = ctypes.c_uint64
        self.heard = 0
    def news(self, threads=False):
        "What it heard since it was asked last; without domains and threads, unless they are asked for."
        said = []
        while (text := self.library.fake_nvtx_log(self.heard)) is not None:
            self.heard += 1
            kind, *words = text.decode("utf-8", "surrogatepass").split(" ")
            if kind != "domain":
                assert words[0] == "cprofiling", text
                said.append((kind, *words[1:]) if threads else " ".join((kind, *words[2 if kind != "name" else 1:])))
        return said
    def finish(self):
        assert self.library.fake_nvtx_violations() == self.library.fake_nvtx_open() == 0
        assert cp.get_profiling_summary().internal_errors == 0

def profiler_calls():
    made, index = [], 0
    while (what := fake.profiler_log(index)) >= 0:
        made.append(what)
        index += 1
    return made

tool = Tool() if "NVTX_INJECTION64_PATH" in os.environ else None
"""


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> str:
    include = nvtx_include()
    assert include, "NVTX's headers were there when this was built"
    return str(build.fake_nvtx(tmp_path_factory.mktemp("fakes"), include))


def check(script: str, told: str = "", **environment: str) -> None:
    check_script(PREAMBLE + textwrap.dedent(script), told=told, **environment)


@pytest.fixture
def run(tool: str) -> Run:
    """Run a script with a tool that listens."""
    return lambda script: check(script, NVTX_INJECTION64_PATH=tool)


# ---- ranges --------------------------------------------------------------------------------------


@needs_headers
def test_nodes_are_ranges(run: Run) -> None:
    run("""
        cp.set_profiling(True, nvtx=True)
        inner = cp.profile_node("inner")(lambda: None)
        outer = cp.profile_node("outer")(lambda: inner())
        @cp.profile_node("generator")
        def generator():
            with cp.profile_node("block"):
                yield
        outer()
        said = tool.news()
        assert said == ["name outer", "push outer 0", "name inner", "push inner 0", "pop inner", "pop outer"], said
        made = generator()
        next(made)
        assert tool.library.fake_nvtx_open() == 0          # it is suspended
        inner()
        assert list(made) == []
        said = tool.news()
        assert said == [
            "name generator", "push generator 0", "name block", "push block 0", "pop block", "pop generator",
            "push inner 1", "pop inner", "push generator 1", "push block 1", "pop block", "pop generator"], said
        cp.set_profiling(True, nvtx=True, skip_first_n=9, reset=True)
        outer()                                    # skipped, but shown
        assert "push outer 1" in tool.news()
        cp.set_profiling(False)
        outer()
        assert tool.news() == []
        assert _core.nvtx_status() == (True, None)
        tool.finish()
    """)


@needs_headers
def test_every_resumption_is_a_range(run: Run) -> None:
    run("""
        cp.set_profiling(True, nvtx=True)

        @cp.profile_node("c")
        async def coroutine():
            await asyncio.sleep(0)
            with cp.profile_node("b"):
                await asyncio.sleep(0)

        @cp.profile_node("g")
        async def generator():
            yield 1
            await asyncio.sleep(0)
            yield 2

        async def consume():
            async for _ in generator():
                pass

        asyncio.run(coroutine())
        assert tool.news() == [
            "name c", "push c 0", "pop c",
            "push c 1", "name b", "push b 0", "pop b", "pop c",
            "push c 2", "push b 1", "pop b", "pop c"]

        async def two():
            await asyncio.gather(coroutine(), coroutine())

        asyncio.run(two())
        said = tool.news()
        depth = 0
        for each in said:                    # one task's range is closed before the next one's is opened
            depth += 1 if each.startswith("push") else -1
            assert 0 <= depth <= 2 and (depth == 1 or " b" in each or each.startswith("pop c")), said
        assert sum(each.startswith("push c") for each in said) == 6 and depth == 0
        asyncio.run(consume())
        said = tool.news()
        pushes = [each for each in said if each.startswith("push")]
        assert pushes == [f"push g {at}" for at in range(len(pushes))] and len(pushes) >= 3, said
        assert said[1::2] == pushes and set(said[2::2]) == {"pop g"}
        tool.finish()
    """)


@needs_headers
def test_ranges_are_balanced_in_every_thread(run: Run) -> None:
    run("""
        cp.set_profiling(True, nvtx=True)
        ready = threading.Barrier(8)

        @cp.profile_node("node")
        def node(depth=0):
            if depth:
                node(depth - 1)

        @cp.profile_node("steps")
        def steps():
            yield
            yield

        def work(shared):
            ready.wait()
            for _ in range(20):
                node(3)
            with contextlib.suppress(ValueError, StopIteration):
                next(shared)                 # it goes from thread to thread

        shared = steps()
        threads = [threading.Thread(target=work, args=(shared,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        said = tool.news(threads=True)
        assert [each for each in said if each[0] == "name" and each[1] == "node"] != []
        open_in = {}
        payloads = []
        for kind, *words in said:
            if kind == "name":
                continue
            names = open_in.setdefault(words[0], [])
            if kind == "push":
                names.append(words[1])
                payloads += [int(words[2])] if words[1] == "node" else []
            else:
                assert names.pop() == words[1]
        assert len(open_in) == 8 and not any(open_in.values())
        assert sorted(payloads) == list(range(8 * 20 * 4)), "each call has its own number"
        tool.finish()
    """)


@needs_headers
def test_whatever_leaves_a_node_ends_its_range(run: Run) -> None:
    run("""
        cp.set_profiling(True, nvtx=True)

        @cp.profile_node("node")
        def node(error):
            if error is not None:
                raise error

        for error in (KeyError("own"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()):
            try:
                node(error)
            except BaseException as caught:
                assert caught is error and error.__context__ is None

        @cp.profile_node("task")
        async def waits():
            await asyncio.sleep(60)

        async def cancel():
            task = asyncio.create_task(waits())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        asyncio.run(cancel())
        block = cp.profile_node("block")
        block.__enter__()
        with contextlib.suppress(KeyError):
            node(KeyError())
        block.__exit__(None, None, None)
        said = tool.news()
        assert sum(each.startswith("push") for each in said) == sum(each.startswith("pop") for each in said) == 8
        assert said[-4:] == ["push block 0", "push node 4", "pop node", "pop block"], said
        tool.finish()
    """)


@needs_headers
def test_each_key_of_each_profiler_is_registered_once(run: Run) -> None:
    run("""
        names = ["with blank", "", "line\\nbreak", "節点", "\\ud800", "a:b:1"]
        first, second = cp.Profiler(), cp.Profiler()
        for profiler in (first, second):
            profiler.set_profiling(True, nvtx=True)
        for _ in range(3):
            for name in names:
                for stage in ("train", "val"):
                    first.profile_node(name, stage=stage)(len)("")
            second.profile_node("mine")(len)("")
        said = tool.news()
        registered = [each.removeprefix("name ") for each in said if each.startswith("name ")]
        assert sorted(registered) == sorted(names * 2 + ["mine"]), registered
        assert [each for each in said if each.startswith("push mine")] == [f"push mine {at}" for at in range(3)]
        first.reset_profiling()
        first.profile_node("a:b:1", stage="val")(len)("")
        assert [each for each in tool.news() if each.startswith("name")] == []
        tool.finish()
    """)


@needs_headers
def test_what_is_switched_inside_a_node_counts_from_the_next_call(run: Run) -> None:
    run("""
        node = cp.profile_node("node")(lambda call: call())
        node(lambda: cp.set_profiling(True, nvtx=True))
        assert tool.news() == []
        node(lambda: cp.set_profiling(True))
        assert tool.news() == ["name node", "push node 0", "pop node"]
        node(tuple)
        assert tool.news() == []
        cp.set_profiling(True, nvtx=True)
        node(lambda: cp.set_profiling(False))
        node(tuple)
        assert tool.news() == ["push node 1", "pop node"]
        tool.finish()
    """)


@needs_headers
@pytest.mark.parametrize("refusal", ["", "FAKE_NVTX_REFUSES", "FAKE_NVTX_IS_DEAF"])
def test_without_a_tool_that_listens_nothing_is_pushed(tool: str, refusal: str) -> None:
    environment = {"NVTX_INJECTION64_PATH": tool, refusal: "1"} if refusal else {}
    check(
        """
        cp.set_profiling(True, nvtx=True)
        node = cp.profile_node("node")(len)
        assert node("abc") == 3
        assert _core.nvtx_status() == (False, None)
        assert tool is None or tool.news() == []
        (stats,) = cp.get_profiling_summary()
        assert stats.count == 1 and cp.get_profiling_summary().internal_errors == 0
        assert stats == cp.NodeProfilingStats(**{
            **vars(stats), "counters": {}, "launches": None, "memory": None, "gpu_reason": None}), "no more than times"
        """,
        **environment,
    )


# ---- the capture window --------------------------------------------------------------------------


@needs_headers
def test_exactly_the_calls_of_the_window_are_captured(tool: str, libcuda: str) -> None:
    """Profiling is off; all nodes are ranges as long as the window is not over, and none are afterwards."""
    check(
        """
        use_torch()
        seen = []

        @cp.profile_node("my:node")
        def node():
            seen.append(profiler_calls())
            other()

        other = cp.profile_node("other")(lambda: None)
        for call in range(7):
            node()
            assert seen[-1] == {2: [1], 3: [1, 0, 1]}.get(call, [] if call < 2 else [1, 0, 1, 0]), (call, seen)
        assert profiler_calls() == [1, 0, 1, 0]
        assert _core.capture_report() == "2 of 2 calls captured after 2 that were passed by"
        said = tool.news()
        pushes = [each for each in said if each.startswith("push")]
        assert pushes == [text for at in range(4) for text in (f"push my:node {at}", f"push other {at}")], pushes
        calls = fake.total_calls()
        for _ in range(100):
            node()
        assert fake.total_calls() == calls and tool.news() == []
        assert fake.broken_rules() == []
        assert cp.get_profiling_summary() == []
        tool.finish()
        """,
        CPROFILING_LIBCUDA=libcuda,
        CPROFILING_CAPTURE="my:node:2:2",
        NVTX_INJECTION64_PATH=tool,
    )


def test_blocks_of_tasks_that_overlap_share_a_start_and_a_stop(libcuda: str) -> None:
    check(
        """
        use_torch()
        cp.set_profiling(True, gpu_time=True)
        async def work():
            async with cp.profile_node("block"):
                await asyncio.sleep(0)
        async def main():
            await asyncio.gather(work(), work())
        asyncio.run(main())
        assert profiler_calls() == [1, 0]
        assert [s.count for s in cp.get_profiling_summary()] == [2]
        """,
        CPROFILING_LIBCUDA=libcuda,
        CPROFILING_CAPTURE="block:0:2",
    )


def test_the_window_is_closed_however_a_call_ends(libcuda: str) -> None:
    check(
        """
        use_torch()
        cp.set_profiling(True, skip_first_n=100)      # it has skips of its own

        @cp.profile_node("node")
        def generator(error=None):
            if error is not None:
                raise error
            yield

        error = KeyError("own")
        try:
            next(generator(error))
        except KeyError as caught:
            assert caught is error and error.__context__ is None
        assert profiler_calls() == [1, 0]
        made = generator()
        next(made)
        assert profiler_calls() == [1, 0, 1]
        del made
        gc.collect()
        assert profiler_calls() == [1, 0, 1, 0]
        assert list(generator()) == [None]
        assert profiler_calls() == [1, 0, 1, 0]
        assert cp.get_profiling_summary().internal_errors == 0
        """,
        CPROFILING_LIBCUDA=libcuda,
        CPROFILING_CAPTURE="node:0:2",
    )


@pytest.mark.parametrize(
    ("before", "report"),
    [
        ("", "1 of 1 calls captured; cuProfilerStart was left out: there was no driver"),
        ("use_torch(); fake.bind(-1)", "1 of 1 calls captured; cuProfilerStart answered 201"),
        ("use_torch(); fake.fail(b'cuProfilerStart', 999, 1)", "1 of 1 calls captured; cuProfilerStart answered 999"),
        ("use_torch(); fake.fail(b'cuProfilerStop', 4, 1)", "1 of 1 calls captured; cuProfilerStop answered 4"),
    ],
)
def test_a_driver_that_does_not_help_is_told_of(libcuda: str, before: str, report: str) -> None:
    check(
        f"""
        {before}
        node = cp.profile_node("node")(len)
        for _ in range(3):
            assert node("abc") == 3
        assert _core.capture_report() == {report!r}, _core.capture_report()
        assert not {bool(before)} or fake.broken_rules() == []
        """,
        told=f"cprofiling: CPROFILING_CAPTURE: {report}\n",
        CPROFILING_LIBCUDA=libcuda if before else "",
        CPROFILING_CAPTURE="node:0:1",
    )


def test_the_child_of_a_fork_has_no_window(libcuda: str) -> None:
    """H5."""
    check(
        """
        end_watch_dog()
        use_torch()
        child = None

        @cp.profile_node("node")
        def forks():
            global child
            child = os.fork()

        forks()
        if child == 0:
            calls = fake.total_calls()
            for _ in range(3):
                cp.profile_node("node")(len)("")
            os._exit(0 if fake.total_calls() == calls and fake.violations() == 0 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert profiler_calls() == [1, 0]
        """,
        CPROFILING_LIBCUDA=libcuda,
        CPROFILING_CAPTURE="node:0:1",
    )
