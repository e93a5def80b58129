"""What nodes tell to NVIDIA's tools, and what they hear of CUPTI, from Python to fakes of both.

Each test is a process of its own.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from calls import WATCH_DOG, run_python
from fakes import build
from nvtx_headers import nvtx_include

pytestmark = pytest.mark.native

TESTS = Path(__file__).parents[1]
NVTX = nvtx_include()

PREAMBLE = f"""{WATCH_DOG}import asyncio, ctypes, os, sys, threading, time
sys.path.insert(0, {str(TESTS)!r})
import cprofiling as cp
from fakes.cuda_process import MS, fake, use_torch

def stats():
    return {{s.node_name: s for s in cp.get_profiling_summary()}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fakes")


@pytest.fixture(scope="module")
def libcuda(folder: Path) -> str:
    return str(build.fake_driver(folder))


@pytest.fixture(scope="module")
def libcupti(folder: Path) -> str:
    return str(build.fake_cupti(folder))


def check(script: str, **environment: str) -> None:
    """Run the script; its assertions, and its silence, are the test."""
    done = run_python(PREAMBLE + textwrap.dedent(script), "-X", "dev", **environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout == ""


# ---- launches ------------------------------------------------------------------------------------

LAUNCHING = """
cupti = ctypes.CDLL(os.environ["CPROFILING_LIBCUPTI"])
cupti.fake_cupti_launch.argtypes = [ctypes.c_char_p, ctypes.c_int64]
cupti.fake_cupti_upload.argtypes = [ctypes.c_uint64, ctypes.c_int64]

def kernel(ns):
    cupti.fake_cupti_launch(b"kernel", ns)

def settled():
    "What nodes have launched, once all of it has run."
    deadline = time.monotonic() + 60
    while True:
        known = {name: s.launches for name, s in stats().items()}
        if all(each is None or each.kernels == each.launches for each in known.values()) or time.monotonic() > deadline:
            return known
        time.sleep(0.005)
"""


def test_each_node_has_its_own_launches(libcuda: str, libcupti: str) -> None:
    check(
        LAUNCHING
        + """
use_torch()
cp.set_profiling(True, kernels=True)

@cp.profile_node("inner")
def inner():
    kernel(10_000)
    cupti.fake_cupti_upload(4096, 1_000)

@cp.profile_node("outer")
def outer():
    kernel(20_000)
    inner()
    kernel(20_000)

@cp.profile_node("coroutine")
async def coroutine():
    kernel(1_000)
    await asyncio.sleep(0)
    kernel(1_000)

async def others():
    task = asyncio.ensure_future(coroutine())
    await asyncio.sleep(0)
    kernel(5)                      # of nobody
    await task

outer()
asyncio.run(others())
kernel(5)
known = settled()
assert (known["outer"].launches, known["outer"].kernels, known["outer"].kernel_ms > 0) == (2, 2, True), known
assert (known["inner"].launches, known["inner"].kernels) == (1, 1), known
assert (known["inner"].copies, known["inner"].bytes_to_device) == (1, 4096), known
assert (known["coroutine"].launches, known["outer"].copies) == (2, 0), known
assert cupti.fake_cupti_is_subscribed() == 1
cp.set_profiling(False)            # CUPTI is given back
assert cupti.fake_cupti_is_subscribed() == 0
kernel(5)
outer()
assert settled()["outer"] == known["outer"]
cp.set_profiling(True, kernels=True, skip_first_n=1, reset=True)
outer()
outer()
assert settled()["outer"].launches == 2
assert cupti.fake_cupti_violations() == 0
assert cp.get_profiling_summary().internal_errors == 0
""",
        CPROFILING_LIBCUDA=libcuda,
        CPROFILING_LIBCUPTI=libcupti,
    )


def test_where_another_client_has_cupti_nodes_go_on_without(libcuda: str, libcupti: str) -> None:
    check(
        LAUNCHING
        + """
use_torch()
cupti.fake_cupti_hold(1)
cp.set_profiling(True, kernels=True, gpu_time=True)
node = cp.profile_node("node")(lambda: kernel(1_000))
node()
assert settled()["node"] is None
assert stats()["node"].count == 1 and stats()["node"].gpu_count == 1
assert cp.get_profiling_summary().reasons != ()
assert cp.get_profiling_summary().internal_errors == 0
""",
        CPROFILING_LIBCUDA=libcuda,
        CPROFILING_LIBCUPTI=libcupti,
    )


def test_cuda_that_comes_later_is_found(libcuda: str, libcupti: str) -> None:
    check(
        LAUNCHING
        + """
cp.set_profiling(True, kernels=True)
node = cp.profile_node("node")(lambda: kernel(1_000))
node()
fake.reset()                       # loads the driver
deadline = time.monotonic() + 60
while settled()["node"] is None and time.monotonic() < deadline:
    node()
    time.sleep(0.01)
assert settled()["node"].launches > 0
""",
        CPROFILING_LIBCUDA="",
        FAKE_LIBCUDA=libcuda,
        CPROFILING_LIBCUPTI=libcupti,
    )


# ---- ranges --------------------------------------------------------------------------------------


@pytest.mark.skipif(NVTX is None, reason="NVTX's headers are not installed")
def test_nodes_are_ranges(folder: Path) -> None:
    assert NVTX is not None
    check(
        """
        tool = ctypes.CDLL(os.environ["NVTX_INJECTION64_PATH"])
        tool.fake_nvtx_log.argtypes, tool.fake_nvtx_log.restype = [ctypes.c_uint64], ctypes.c_char_p
        tool.fake_nvtx_violations.restype = tool.fake_nvtx_open.restype = ctypes.c_uint64
        heard = 0
        def news():
            global heard
            said = []
            while (text := tool.fake_nvtx_log(heard)) is not None:
                kind, *words = text.decode().split(" ")
                said.append(" ".join([kind, *words[2 if kind in ("push", "pop") else 1:]]))
                heard += 1
            return said
        cp.set_profiling(True, nvtx=True)
        inner = cp.profile_node("inner")(lambda: None)
        @cp.profile_node("outer")
        def outer():
            inner()
        @cp.profile_node("generator")
        def generator():
            with cp.profile_node("block"):
                yield
        def fails():
            raise KeyError
        outer()
        said = [each for each in news() if not each.startswith("domain")]
        assert said == ["name outer", "push outer 0", "name inner", "push inner 0", "pop inner", "pop outer"], said
        made = generator()
        next(made)
        assert tool.fake_nvtx_open() == 0          # it is suspended
        inner()
        assert list(made) == []
        said = news()
        assert said == [
            "name generator", "push generator 0", "name block", "push block 0", "pop block", "pop generator",
            "push inner 1", "pop inner", "push generator 1", "push block 1", "pop block", "pop generator"], said
        try:
            cp.profile_node("fails")(fails)()
        except KeyError:
            pass
        thread = threading.Thread(target=outer)
        thread.start()
        thread.join()
        dropped = generator()
        next(dropped)
        del dropped
        cp.set_profiling(True, nvtx=True, skip_first_n=9, reset=True)
        outer()                                    # skipped, but shown
        assert "push outer 2" in news()
        cp.set_profiling(False)
        outer()
        assert news() == []
        assert tool.fake_nvtx_open() == tool.fake_nvtx_violations() == 0
        assert cp.get_profiling_summary().internal_errors == 0
        """,
        NVTX_INJECTION64_PATH=str(build.fake_nvtx(folder, NVTX)),
    )


# ---- the capture window --------------------------------------------------------------------------


def test_the_window_is_around_the_chosen_calls(libcuda: str) -> None:
    check(
        """
        use_torch()
        def profiler_calls():
            made, index = [], 0
            while (what := fake.profiler_log(index)) >= 0:
                made.append(what)
                index += 1
            return made
        seen = []
        @cp.profile_node("node")                   # profiling is off: tools do not need it
        def node(*inside):
            seen.append(profiler_calls())
            for call in inside:
                call()
        @cp.profile_node("another")
        def another():
            pass
        node()
        another()
        node(node)
        node()
        assert seen == [[], [1], [1], [1, 0]], seen
        assert profiler_calls() == [1, 0]
        cp.set_profiling(True)
        node()
        assert profiler_calls() == [1, 0] and fake.broken_rules() == []
        assert {name: s.count for name, s in stats().items()} == {"node": 1}
        """,
        CPROFILING_LIBCUDA=libcuda,
        CPROFILING_CAPTURE="node:1:2",
    )


def test_the_window_around_blocks_and_coroutines(libcuda: str) -> None:
    check(
        """
        use_torch()
        cp.set_profiling(True, gpu_time=True)
        async def work():
            async with cp.profile_node("block"):
                await asyncio.sleep(0)
        async def main():
            await asyncio.gather(work(), work())   # they overlap: one start, one stop
        asyncio.run(main())
        assert (fake.profiler_log(0), fake.profiler_log(1), fake.profiler_log(2)) == (1, 0, -1)
        assert stats()["block"].count == 2
        """,
        CPROFILING_LIBCUDA=libcuda,
        CPROFILING_CAPTURE="block:0:2",
    )
