"""Counting operators by a dispatch mode, and launches through CUPTI."""

from __future__ import annotations

import importlib
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
from calls import check_script, run_python
from cprofiling.counting import count_dispatches

TESTS = Path(__file__).parents[1]
THREADS = 8


# ---- operators -----------------------------------------------------------------------------------


def test_without_pytorch_there_are_no_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    from cprofiling.testing.counting import dispatches

    monkeypatch.setattr(dispatches, "find_spec", lambda name: None)
    with count_dispatches() as d:
        pass
    assert (d.operators, d.operator_calls, d.by_node) == ({}, 0, {})
    with d, pytest.raises(RuntimeError, match="already"):
        d.__enter__()
    d.__exit__(None, None, None)


def test_a_module_that_only_bears_the_name_of_pytorch_has_no_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    with count_dispatches() as d:
        pass
    assert d.operators == {}


def test_a_count_that_could_not_begin_can_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from cprofiling.testing.counting import dispatches

    d = count_dispatches()
    with monkeypatch.context() as patch:
        patch.setattr(dispatches, "_counting_operators", lambda tally: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            d.__enter__()
    assert not d.is_on
    with d:
        assert d.is_on


def test_another_thread_cannot_end_a_count(torch: Any) -> None:
    a = torch.ones(2)
    refused: list[str] = []

    def end() -> None:
        try:
            d.__exit__(None, None, None)
        except RuntimeError as error:
            refused.append(str(error))

    with count_dispatches() as d:
        thread = threading.Thread(target=end)
        thread.start()
        thread.join()
        a.add(1)
    assert (len(refused), d.operators) == (1, {"aten::add": 1})
    d.__exit__(None, None, None)


def test_without_cuda_launches_are_not_known() -> None:
    d = count_dispatches()
    assert (d.cuda_launches, d.cuda_launches_reason) == (None, "nothing was counted yet")
    with d:
        assert d.cuda_launches is None
    assert (d.cuda_launches, d.cuda_launches_reason) == (None, "no CUDA in the process")
    assert repr(d) == "<0 operators, None launches>"


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def test_operators_are_counted_by_name(torch: Any) -> None:
    a = torch.ones(2, 2)
    with count_dispatches() as d:
        a.add(1).add(a).mm(a)
        a.add_(1)
    a.mm(a)
    assert d.operators == {"aten::add": 2, "aten::mm": 1, "aten::add_": 1}
    assert d.operator_calls == 4


@pytest.mark.slow
def test_counting_does_not_load_the_compiler(torch: Any) -> None:
    script = """
import sys, torch
from cprofiling.counting import count_dispatches
a = torch.ones(2)
with count_dispatches() as d:
    a.add(1)
print(d.operators, "torch._dynamo" in sys.modules)
"""
    done = run_python(script)
    assert (done.stdout, done.stderr) == ("{'aten::add': 1} False\n", "")


def test_operators_of_backward_passes_and_by_node(torch: Any, p: cp.Profiler) -> None:
    x = torch.ones(2, requires_grad=True)

    @p.profile_node("loss")
    def loss() -> Any:
        return (x * 2).sum()

    with count_dispatches() as d:
        loss().backward()
    assert d.operators["aten::mul"] == 2
    assert d.by_node == {"loss": {"aten::mul": 1, "aten::sum": 1}}


def test_operators_of_threads_and_executors(torch: Any) -> None:
    dispatch: Any = importlib.import_module("torch.utils._python_dispatch")
    a = torch.ones(2, 2)

    def work(times: int) -> None:
        for _ in range(times):
            a.mm(a)

    start, submit = threading.Thread.start, ThreadPoolExecutor.submit
    with ThreadPoolExecutor(1) as early, ThreadPoolExecutor(1) as outlasting:
        early.submit(work, 1).result()
        with count_dispatches() as d, count_dispatches() as inner:
            threads = [threading.Thread(target=work, args=(20,)) for _ in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            early.submit(work, 3).result()
            outlasting.submit(work, 5).result()
            gate, done = threading.Event(), threading.Event()

            def late() -> None:
                gate.wait()
                work(7)
                done.set()

            threading.Thread(target=late).start()
            open_ = threading.Event()
            for each in (early, outlasting):
                each.submit(open_.wait)
            later = [each.submit(dispatch._len_torch_dispatch_stack) for each in (early, outlasting)]
        open_.set()
        assert [each.result() for each in later] == [
            0,
            0,
        ]  # neither the thread is counted for ever, nor what comes late
        early.submit(work, 1).result()
        outlasting.submit(work, 1).result()
        gate.set()
        assert done.wait(60)
    assert d.operators == inner.operators == {"aten::mm": THREADS * 20 + 8}
    assert (threading.Thread.start, ThreadPoolExecutor.submit) == (start, submit)
    assert dispatch._len_torch_dispatch_stack() == 0
    assert not dispatch.is_in_torch_dispatch_mode()


def test_blocks_of_threads_that_overlap_leave_no_flag_set(torch: Any) -> None:
    from torch.utils import _python_dispatch as dispatch

    a = torch.ones(2)
    entered, left = threading.Event(), threading.Event()
    found = []

    def other() -> None:
        with count_dispatches() as d:
            entered.set()
            left.wait()
            a.add(1)
        found.append(d.operators)

    thread = threading.Thread(target=other)
    with count_dispatches() as d:
        thread.start()
        entered.wait()
    left.set()
    thread.join()
    assert (d.operators, found) == ({}, [{"aten::add": 1}])
    assert not dispatch.is_in_torch_dispatch_mode()


def test_a_task_in_a_thread_that_is_counted_already_is_counted_once(torch: Any) -> None:
    class Own(ThreadPoolExecutor):
        def _adjust_thread_count(self: Any) -> None:
            context = [self._create_worker_context()] if sys.version_info >= (3, 14) else []
            threading.Thread(target=lambda: self._work_queue.get().run(*context)).start()

    a = torch.ones(2)
    with count_dispatches() as d:
        Own(1).submit(a.add, 1).result()
    assert d.operators == {"aten::add": 1}


def test_operators_that_fail_count_and_the_exception_passes(torch: Any) -> None:
    a = torch.ones(2, 2)
    with pytest.raises(RuntimeError, match="shapes"), count_dispatches() as d:
        a.mm(torch.ones(3, 3))
    assert d.operators == {"aten::ones": 1, "aten::mm": 1}


# ---- launches ------------------------------------------------------------------------------------

LAUNCHING = f"""
import ctypes, os, sys, threading
sys.path.insert(0, {str(TESTS)!r})
from fakes.cuda_process import use_torch
from cprofiling import _core
from cprofiling.counting import count_dispatches; from cprofiling.testing.counting import dispatches
dispatches.find_spec = lambda name: None  # the torch of this process is a fake
cupti = ctypes.CDLL(os.environ["CPROFILING_LIBCUPTI"])
cupti.fake_cupti_launch.argtypes = [ctypes.c_char_p, ctypes.c_int64]
use_torch()
"""


def check(script: str, environment: dict[str, str]) -> None:
    check_script(LAUNCHING + script, **environment)


def test_launches_of_all_threads_are_counted(libraries: dict[str, str]) -> None:
    check(
        """
launch = lambda: cupti.fake_cupti_launch(b"kernel", 1000)
with count_dispatches() as d:
    launch()
    assert d.cuda_launches == 1, d.cuda_launches_reason
    with count_dispatches() as inner:
        thread = threading.Thread(target=launch)
        thread.start()
        thread.join()
launch()
assert (d.cuda_launches, inner.cuda_launches, d.cuda_launches_reason) == (2, 1, None)
with d:
    launch()
assert d.cuda_launches == 3
assert _core.cupti_status()["counting"] == 0
assert cupti.fake_cupti_is_subscribed() == 0
""",
        libraries,
    )


def test_where_cupti_is_taken_launches_are_not_known(libraries: dict[str, str]) -> None:
    check(
        """
cupti.fake_cupti_fail.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_uint64]
cupti.fake_cupti_fail(b"cuptiSubscribe", 39, 1)
with count_dispatches() as d:
    pass
assert d.cuda_launches is None
assert "another" in d.cuda_launches_reason or "CUPTI" in d.cuda_launches_reason, d.cuda_launches_reason
assert _core.cupti_status()["counting"] == 0
""",
        libraries,
    )


def test_launches_of_a_forked_child_are_not_known(libraries: dict[str, str]) -> None:
    check(
        """
with count_dispatches() as d:
    child = os.fork()
    if not child:
        reasons = [d.cuda_launches, d.cuda_launches_reason]
        d.__exit__(None, None, None)
        reasons += [d.cuda_launches, d.cuda_launches_reason]
        os._exit(reasons != 2 * [None, "the process was forked while they were counted"])
    assert os.waitpid(child, 0)[1] == 0
assert (d.cuda_launches, d.cuda_launches_reason) == (0, None)
""",
        libraries,
    )


def test_launches_are_not_known_where_cuda_came_while_they_were_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    from cprofiling.testing.counting import dispatches as launches

    count = launches.LaunchCount()
    with count:
        assert count.reason == "no CUDA in the process"
        monkeypatch.setattr(launches, "missing_reason", lambda: None)
    assert (count.count, count.reason) == (None, "CUDA came into the process while they were counted")
