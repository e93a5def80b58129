"""Modules of PyTorch as nodes: hooks that count, whatever happens in between, and that leave nothing behind."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import copy
import io
import itertools
import pickle
import re
import sys
import threading
from typing import Any

import pytest

import cprofiling as cp
from calls import by_name, counts, in_new_thread, outcomes, profiler_on, stages
from example_runs import counts_in, output_of

torch: Any = pytest.importorskip("torch")

from cprofiling.integrations import torch as integration  # noqa: E402 it needs torch
from cprofiling.integrations.torch import profile_modules  # noqa: E402 it needs torch, too

# PyTorch and what it uses warn of deprecations of their own.
pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("one_thread")]

nn: Any = torch.nn


class Block(nn.Module):  # type: ignore[misc]
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.second(torch.relu(self.first(x)))


class Net(nn.Module):  # type: ignore[misc]
    """A module, a list of blocks, and one that is used twice; what it is told to raise, it raises."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 4)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.again = self.stem
        self.nothing = None
        self.head = Raising()

    def forward(self, x: Any, error: BaseException | None = None) -> Any:
        x = self.again(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(x, error=error)


class Raising(nn.Module):  # type: ignore[misc]
    def forward(self, x: Any, error: BaseException | None = None) -> Any:
        if error is not None:
            raise error
        return x


X = torch.ones(2, 4)
CHILDREN = {"stem": 2, "blocks.0": 1, "blocks.1": 1, "head": 1}


@pytest.fixture
def net() -> Any:
    torch.manual_seed(0)
    return Net()


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Any:
    """After each test no call is open."""
    yield
    assert integration._here.calls == []


def hooks_of(model: Any) -> int:
    """How many hooks, and notes about hooks, the modules have."""
    return sum(
        len(getattr(module, name))
        for module in model.modules()
        for name in (
            "_forward_hooks",
            "_forward_pre_hooks",
            "_forward_hooks_always_called",
            "_forward_hooks_with_kwargs",
        )
    )


# ---- Which modules


def test_the_children_count_each_under_its_path(net: Any, p: cp.Profiler) -> None:
    plain = net(X)
    with profile_modules(net, profiler=p) as handle:
        assert handle.names == ("stem", "blocks.0", "blocks.1", "head")
        assert torch.equal(net(X), plain)
    assert counts(p) == CHILDREN
    assert hooks_of(net) == 0
    assert torch.equal(net(X), plain)
    assert counts(p) == CHILDREN


@pytest.mark.parametrize(
    ("depth", "names"),
    [
        (0, ["Net"]),
        (1, list(CHILDREN)),
        (2, [*CHILDREN, "blocks.0.first", "blocks.0.second", "blocks.1.first", "blocks.1.second"]),
    ],
)
def test_depth(net: Any, p: cp.Profiler, depth: int, names: list[str]) -> None:
    with profile_modules(net, depth, profiler=p) as handle:
        net(X)
    assert sorted(handle.names) == sorted(names)
    assert counts(p).keys() == set(names)


def test_the_children_of_a_list_of_modules(p: cp.Profiler) -> None:
    blocks = nn.ModuleList([Block(), nn.ModuleDict({"a": Block()})])
    with profile_modules(blocks, profiler=p) as handle:
        blocks[0](X)
        blocks[1]["a"](X)
    assert handle.names == ("0", "1.a")
    assert counts(p) == {"0": 1, "1.a": 1}


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["head"], {"head"}),
        (["blocks.*.first", "blocks.0.first"], {"blocks.0.first", "blocks.1.first"}),
        (["", "stem"], {"Net", "stem"}),
        ({"": "all", "blocks.0": "a", "blocks.1": "a"}, {"all", "a"}),
        ({"blocks.?": "a", "stem": ""}, {"a", ""}),
        ([], set()),
    ],
)
def test_names(net: Any, p: cp.Profiler, names: Any, found: set[str]) -> None:
    with profile_modules(net, names=names, profiler=p):
        net(X)
    assert counts(p).keys() == found
    assert counts(p).get("a", 2) == 2


def test_a_module_with_several_places_is_one_node(p: cp.Profiler) -> None:
    first, second = Block(), Block()
    second.first = first.first
    both = nn.Sequential(first, second)
    with profile_modules(both, 2, profiler=p) as handle:
        both(X)
    assert handle.names == ("0", "0.first", "0.second", "1", "1.second")
    assert counts(p) == {"0": 1, "0.first": 2, "0.second": 1, "1": 1, "1.second": 1}


def test_modules_that_run_their_hooks_themselves(p: cp.Profiler) -> None:
    class Own(Block):
        again = 0

        def forward(self, x: Any) -> Any:
            self.again -= 1
            return self(x) if self.again > 0 else super().forward(x)

        def __call__(self, x: Any) -> Any:
            for hook in self._forward_pre_hooks.values():
                hook(self, (x,))
            result = self.forward(x)
            for hook in self._forward_hooks.values():
                hook(self, (x,), result)
            return result

    with profile_modules(model := Own(), 0, profiler=p), profile_modules(model, 1, profiler=p):
        model(X)
        inner = Own()
        model.first.forward = lambda x: inner(x)
        with profile_modules(inner, names={"": "inner"}, profiler=p):
            model(X)
        model.again = 3
        model(X)
        pytest.importorskip("greenlet").greenlet(model).switch(X)  # nothing is around it
    assert counts(p) == {"Own": 6, "first": 4, "second": 4, "inner": 1}
    assert by_name(p)["Own"].self_total_ms is not None  # each ended when it did


def test_nested_nodes_know_what_is_theirs(net: Any, p: cp.Profiler) -> None:
    with profile_modules(net, names=["blocks.0", "blocks.0.first", "blocks.0.second"], profiler=p):
        net(X)
    stats = by_name(p)
    inner = stats["blocks.0.first"].total_ms + stats["blocks.0.second"].total_ms
    assert stats["blocks.0"].self_total_ms == pytest.approx(stats["blocks.0"].total_ms - inner, abs=1e-5)


def test_stages_and_who_counts(net: Any) -> None:
    with profiler_on() as bound, profile_modules(net, 0):
        net(X)
        with cp.stage("train"):
            net(X)
    assert stages(bound) == {("Net", "inference"): 1, ("Net", "train"): 1}
    p = profiler_on()
    with profile_modules(net, 0, stage="val", profiler=p):
        net(X)
    assert stages(p) == {("Net", "val"): 1}


def test_calls_are_in_recordings(net: Any) -> None:
    with cp.profile(operators=False) as prof, profile_modules(net, profiler=cp.Profiler()):
        net(X)
    assert [event.name for event in prof.events()] == ["stem", "stem", "blocks.0", "blocks.1", "head"]


def test_off_nothing_counts(net: Any) -> None:
    p = cp.Profiler()
    with profile_modules(net, profiler=p):
        net(X)
        p.set_profiling(True, skip_first_n=1)
        for _ in range(3):
            net(X)
        p.set_profiling(False)
        net(X)
    assert counts(p) == {"stem": 5, "blocks.0": 2, "blocks.1": 2, "head": 2}


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"model": None}, TypeError, "model must be a torch.nn.Module, got None"),
        ({"model": Net}, TypeError, "model must be a torch.nn.Module, got "),
        ({"depth": -1}, ValueError, "depth must be >= 0, got -1"),
        ({"depth": True}, TypeError, "depth must be an integer, got True"),
        ({"depth": None}, TypeError, "depth must be an integer, got None"),
        ({"names": "stem"}, TypeError, "names must be paths of modules, or a mapping of them, got 'stem'"),
        ({"names": [1]}, TypeError, "names must be paths of modules, got 1"),
        ({"names": ["no.*"]}, ValueError, "names must be paths of modules, got 'no.*', which is none of ['', 'stem', "),
        ({"names": {"stem.*": "x"}}, ValueError, "names must be paths of modules, got 'stem.*', which is none of"),
        ({"names": {"stem": 3}}, TypeError, "names['stem'] must be a str, got 3 (int)"),
        ({"names": {"stem": lambda module: "x"}}, TypeError, "names['stem'] must be a str, got <function "),
        ({"names": {"stem": "a\0b"}}, ValueError, "name"),
        ({"profiler": 1}, TypeError, "profiler"),
        ({"stage": 1}, TypeError, "stage"),
    ],
)  # fmt: skip
def test_wrong_arguments_change_nothing(net: Any, arguments: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=re.escape(says)):
        profile_modules(**{"model": net, **arguments})
    assert hooks_of(net) == 0


# ---- Exceptions


@pytest.mark.parametrize("kind", [ValueError, asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_forward_raises_passes_through_and_counts(net: Any, p: cp.Profiler, kind: type[BaseException]) -> None:
    error = kind("on purpose")
    with profile_modules(net, names=["", "stem", "head"], profiler=p):
        with pytest.raises(kind) as raised:
            net(X, error)
        assert raised.value is error
        net(X)
        net(X)
    assert outcomes(p, "stem") == (6, 0, 0, 0, 0)
    assert outcomes(p, "head") == outcomes(p, "Net") == (2, 1, 0, 0, 0)


def test_calls_while_an_exception_is_handled_are_no_errors(net: Any, p: cp.Profiler) -> None:
    with profile_modules(net, names=["", "head"], profiler=p):
        try:
            net(X, ValueError("first"))
        except ValueError:
            net(X)
            with contextlib.suppress(KeyError):
                net(X, KeyError("second"))
            net(X)
            with contextlib.suppress(ValueError):
                net(X, sys.exc_info()[1])  # the same again
    assert outcomes(p, "Net") == outcomes(p, "head") == (2, 3, 0, 0, 0)


def test_an_exception_caught_inside_is_the_inner_module_s_alone(p: cp.Profiler) -> None:
    class Forgiving(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = Raising()

        def forward(self, x: Any, kind: type[BaseException], goes_on: bool) -> Any:
            with contextlib.suppress(kind):
                self.inner(x, kind())
            return self.inner(x) if goes_on else x

    with profile_modules(model := Forgiving(), names=["", "inner"], profiler=p):
        for kind in (ValueError, KeyboardInterrupt):
            for goes_on in (True, False):
                model(X, kind, goes_on)
        # An interrupt, of which hooks are not told, ends at the latest with the call around it.
        assert outcomes(p, "Forgiving") == (4, 0, 0, 0, 0)
        assert outcomes(p, "inner") == (2, 4, 0, 0, 0)
    assert by_name(p)["Forgiving"].self_total_ms is not None  # each inner one ended before it


def test_an_interrupt_that_leaves_all_modules(net: Any, p: cp.Profiler) -> None:
    """The hooks are told of it by nobody: they find out at the next call, or when the handle is removed."""
    with profile_modules(net, names=["", "head"], profiler=p):
        with pytest.raises(KeyboardInterrupt):
            net(X, KeyboardInterrupt())
        net(X)
        assert outcomes(p, "Net") == outcomes(p, "head") == (1, 1, 0, 0, 0)
    other = profiler_on()
    with pytest.raises(KeyboardInterrupt), profile_modules(net, names=["", "head"], profiler=other):
        net(X, KeyboardInterrupt())
    assert outcomes(other, "Net") == outcomes(other, "head") == (0, 1, 0, 0, 0)


def test_what_an_interrupted_call_kept_alive_calls_a_module_when_it_goes(net: Any, p: cp.Profiler) -> None:
    freed: list[Any] = []

    class Batch:
        def __del__(self) -> None:
            freed.append(net.head(X))

    with profile_modules(net, names=["stem", "head"], profiler=p):
        with contextlib.suppress(KeyboardInterrupt):
            net.head._call_impl(Batch(), KeyboardInterrupt)  # its frame is the only one that has the batch
        assert freed == []
        net.stem(X)
    assert len(freed) == 1
    assert outcomes(p, "head") == (1, 1, 0, 0, 0)
    assert outcomes(p, "stem") == (1, 0, 0, 0, 0)


def test_an_interrupt_at_any_line_of_the_hooks(p: cp.Profiler) -> None:
    model = nn.Sequential(nn.Identity())
    before = sys.gettrace()
    lines = 0

    def interrupt_after(count: int) -> Any:
        def trace(frame: Any, event: str, argument: Any) -> Any:
            nonlocal lines
            if frame.f_code.co_filename != integration.__file__:
                return None
            lines += event == "line"
            if lines == count:
                raise KeyboardInterrupt
            return trace

        return trace

    def interrupt_each_line() -> int:
        with profile_modules(model, names=["", "0"], profiler=p):
            for count in itertools.count(1):
                nonlocal lines
                lines = 0
                sys.settrace(interrupt_after(count))
                try:
                    model(X)
                except KeyboardInterrupt:
                    continue
                finally:
                    sys.settrace(before)
                break
            model(X)
            assert integration._here.calls == []
        return count

    # CPython 3.11 keeps an exception as handled when another comes as its handler begins.
    assert in_new_thread(interrupt_each_line) > 40
    stats = by_name(p)
    assert stats["Sequential"].count >= 2
    assert stats["0"].count > stats["Sequential"].count


def test_a_hook_of_somebody_else_that_raises(net: Any, p: cp.Profiler) -> None:
    def refuse(*_: Any) -> None:
        raise ValueError("refused")

    with profile_modules(net, 0, profiler=p):
        first = net.register_forward_pre_hook(refuse, prepend=True)  # before ours: our call does not begin
        with pytest.raises(ValueError, match="refused"):
            net(X)
        first.remove()
        with net.register_forward_pre_hook(refuse), pytest.raises(ValueError, match="refused"):
            net(X)
        net(X)
    assert outcomes(p, "Net") == (1, 1, 0, 0, 0)


def test_a_module_that_calls_itself(p: cp.Profiler) -> None:
    class Recursive(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, depth: int) -> Any:
            if depth < 0:
                raise ValueError("too deep")
            return self(x, depth - 1) if depth else x

    with profile_modules(model := Recursive(), 0, profiler=p):
        model(X, 10)
        assert outcomes(p, "Recursive") == (11, 0, 0, 0, 0)
        refused = model.register_forward_pre_hook(lambda module, args: module(args[0], -1) if args[1] == 1 else None)
        with pytest.raises(ValueError, match="too deep"):
            model(X, 3)
        refused.remove()
    assert outcomes(p, "Recursive") == (11, 4, 0, 0, 0)


def test_a_recomputation_that_checkpoints_cut_short_is_no_error(p: cp.Profiler) -> None:
    from torch.utils.checkpoint import checkpoint

    model = Block()
    with profile_modules(model, names=["", "first", "second"], profiler=p):
        checkpoint(model, X.clone().requires_grad_(), use_reentrant=False).sum().backward()
    assert {name: outcomes(p, name)[:2] for name in ("Block", "first", "second")} == {
        "Block": (2, 0), "first": (2, 0), "second": (2, 0),
    }  # fmt: skip


# ---- Installing and removing


def test_installed_and_removed_again_and_again(net: Any, p: cp.Profiler) -> None:
    keep = net.stem.register_forward_hook(lambda *_: None)
    for _ in range(50):
        handle = profile_modules(net, 2, profiler=p)
        net(X)
        handle.remove()
        handle.remove()
    assert counts(p)["stem"] == 100
    assert hooks_of(net) == 1
    keep.remove()


def test_profiled_twice_for_one_profiler_it_counts_once(net: Any, p: cp.Profiler) -> None:
    other = profiler_on()
    first = profile_modules(net, names={"stem": "old", "head": "head"}, profiler=p)
    second = profile_modules(net, names={"stem": "new"}, profiler=p)
    with profile_modules(net, names={"stem": "theirs"}, profiler=other):
        net(X)
    assert counts(p) == {"new": 2, "head": 1}
    assert counts(other) == {"theirs": 2}
    second.remove()
    net(X)
    assert counts(p) == {"new": 2, "head": 2, "old": 2}
    first.remove()
    assert hooks_of(net) == 0


def test_removed_by_the_model_itself_while_it_runs(net: Any, p: cp.Profiler) -> None:
    handle = profile_modules(net, names=["", "head"], profiler=p)
    net.head.register_forward_hook(lambda *_: handle.remove())
    net(X)
    assert hooks_of(net) == 1
    with profile_modules(net, names=["stem"], profiler=p):
        net(X)
    assert counts(p)["stem"] == 2
    assert by_name(p)["stem"].error_count == 0


def test_one_of_two_handles_is_removed_while_the_module_runs(p: cp.Profiler) -> None:
    model = Block()
    first = profile_modules(model, 0, profiler=profiler_on())
    with profile_modules(model, 0, profiler=p):
        model.first.register_forward_hook(lambda *_: first.remove())
        model(X)
        assert outcomes(p, "Block") == (1, 0, 0, 0, 0)


def test_removed_by_a_hook_a_moment_before(net: Any, p: cp.Profiler) -> None:
    handle = profile_modules(net, names=[""], profiler=p)
    net.register_forward_pre_hook(lambda *_: handle.remove(), prepend=True)
    net(X)
    assert counts(p) == {}


def test_installed_by_the_model_itself_while_it_runs(net: Any, p: cp.Profiler) -> None:
    handles: list[Any] = []
    net.stem.register_forward_hook(lambda *_: handles.append(profile_modules(net, names=["", "stem"], profiler=p)))
    net(X)
    while handles:
        handles.pop().remove()
    assert outcomes(p, "stem") == (1, 0, 0, 0, 0)


# ---- Copies, pickles, replicas, threads


def _saved(model: Any) -> Any:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module)), _saved])
def test_copies_and_pickles_do_not_count(net: Any, p: cp.Profiler, duplicate: Any) -> None:
    with profile_modules(net, 2, profiler=p):
        expected = net(X)
        before = counts(p)
        made = duplicate(net)
        assert torch.equal(made(X), expected)
        with pytest.raises(ValueError, match="on purpose"):
            made(X, ValueError("on purpose"))
        assert torch.equal(duplicate(made)(X), expected)
    assert counts(p) == before
    with profile_modules(made, 1, profiler=p):
        made(X)
    assert counts(p)["stem"] == before["stem"] + 2


def test_pickles_need_no_cprofiling(net: Any) -> None:
    with profile_modules(net, 2):
        assert b"cprofiling" not in pickle.dumps(net)


def test_replicas_in_threads_count(net: Any, p: cp.Profiler) -> None:
    with profile_modules(net, names=["", "head"], profiler=p):
        replicas = [net._replicate_for_data_parallel() for _ in range(4)]
        ready = threading.Barrier(4)

        def work(replica: Any) -> Any:
            ready.wait()
            return [replica(X) for _ in range(25)][-1]

        with concurrent.futures.ThreadPoolExecutor(4) as executor:
            assert len(list(executor.map(work, replicas))) == 4
    assert outcomes(p, "Net") == outcomes(p, "head") == (100, 0, 0, 0, 0)


def test_threads_share_a_module_and_some_raise(net: Any, p: cp.Profiler) -> None:
    def work(number: int) -> None:
        for turn in range(25):
            with contextlib.suppress(ValueError):
                net(X, ValueError() if (turn + number) % 5 == 0 else None)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with (
            profile_modules(net, names=["", "stem", "head"], profiler=p),
            concurrent.futures.ThreadPoolExecutor(4) as executor,
        ):
            list(executor.map(work, range(4)))
    finally:
        sys.setswitchinterval(interval)
    assert outcomes(p, "Net") == outcomes(p, "head") == (80, 20, 0, 0, 0)
    assert outcomes(p, "stem") == (200, 0, 0, 0, 0)


def test_handles_come_and_go_while_threads_run(net: Any, p: cp.Profiler) -> None:
    expected = net(X)
    stop = threading.Event()

    def work() -> bool:
        same = True
        while not stop.is_set():
            same = same and torch.equal(net(X), expected)
        return same

    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        results = [executor.submit(work) for _ in range(2)]
        for _ in range(30):
            profile_modules(net, 2, profiler=p).remove()
        stop.set()
        assert all(result.result() for result in results)
    assert hooks_of(net) == 0


def test_a_task_begun_inside_of_a_module(p: cp.Profiler) -> None:
    """The task has its own view of what is open; what is open around it stays so."""
    tasks: list[asyncio.Task[Any]] = []
    inner = Block()

    async def later() -> Any:
        return inner(X)

    class Starting(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            tasks.append(asyncio.get_running_loop().create_task(later()))
            return x

    async def main() -> None:
        model(X)
        await tasks[0]
        model(X)
        await tasks[1]

    with profile_modules(model := Starting(), 0, profiler=p), profile_modules(inner, 0, profiler=p):
        asyncio.run(main())
    assert counts(p) == {"Starting": 2, "Block": 2}
    assert outcomes(p, "Starting") == outcomes(p, "Block") == (2, 0, 0, 0, 0)


def test_greenlets_that_take_turns(net: Any, p: cp.Profiler) -> None:
    greenlet = pytest.importorskip("greenlet")

    class Switching(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            greenlet.getcurrent().parent.switch()
            return x

    with profile_modules(model := Switching(), 0, profiler=p), profile_modules(net, 0, profiler=p):
        runs = [greenlet.greenlet(lambda: model(X)) for _ in range(3)]
        for _ in range(2):
            for run in runs:
                run.switch()
                net(X)
    assert outcomes(p, "Switching") == (3, 0, 0, 0, 0)
    assert outcomes(p, "Net") == (6, 0, 0, 0, 0)


# ---- torch.compile


@pytest.fixture
def fresh_compiler() -> None:
    torch.compiler.reset()


@pytest.mark.usefixtures("fresh_compiler")
def test_a_profiled_model_compiles_with_equal_results(net: Any, p: cp.Profiler) -> None:
    from torch._dynamo.utils import counters

    with torch.no_grad(), profile_modules(net, 1, profiler=p), profile_modules(net, 0, profiler=p):
        expected = net(X)
        compiled = torch.compile(net, backend="eager")
        for _ in range(3):
            torch.testing.assert_close(compiled(X), expected)
        assert counts(p) == {"Net": 4} | {name: 4 * count for name, count in CHILDREN.items()}
        with pytest.raises(ValueError, match="on purpose"):
            compiled(X, ValueError("on purpose"))
    assert any("it counts the calls of a module" in reason for reason in counters["graph_break"])
    torch.testing.assert_close(compiled(X), expected)
    torch.testing.assert_close(net(X), expected)
    assert by_name(p)["Net"].error_count == by_name(p)["head"].error_count == 1
    assert counts(p)["Net"] == 4


@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_model_counts_as_a_whole_and_stays_one_graph(net: Any, p: cp.Profiler) -> None:
    expected = net(X)
    compiled = torch.compile(net, backend="eager", fullgraph=True)
    with profile_modules(compiled, 0, profiler=p):
        for _ in range(3):
            torch.testing.assert_close(compiled(X), expected)
    assert counts(p) == {"OptimizedModule": 3}
    with profile_modules(compiled, profiler=p) as handle:
        assert handle.names == tuple(CHILDREN)
    net.blocks[0].compile(backend="eager", fullgraph=True)
    with profile_modules(net, profiler=p):
        torch.testing.assert_close(net(X), expected)
    assert counts(p) == {"OptimizedModule": 3, **CHILDREN}


@pytest.mark.usefixtures("fresh_compiler")
def test_gradients_of_a_profiled_model_are_equal(net: Any, p: cp.Profiler) -> None:
    plain = copy.deepcopy(net)
    plain(X).sum().backward()
    with profile_modules(net, 2, profiler=p):
        torch.compile(net, backend="aot_eager")(X).sum().backward()
    for ours, theirs in zip(net.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_traced_and_scripted_models(p: cp.Profiler) -> None:
    model = Block()
    with profile_modules(model, profiler=p):
        expected = model(X)
        torch.testing.assert_close(torch.jit.trace(model, X)(X), expected)
        torch.testing.assert_close(torch.fx.symbolic_trace(model)(X), expected)
    scripted = torch.jit.trace(model, X)
    before = counts(p)
    with profile_modules(scripted, 0, profiler=p):
        torch.testing.assert_close(scripted(X), expected)
    assert counts(p) == {**before, type(scripted).__name__: 1}


def test_a_module_that_takes_no_hooks(p: cp.Profiler) -> None:
    model = nn.Sequential(nn.Identity(), torch.jit.script(nn.Identity()), nn.Identity())
    with pytest.raises(RuntimeError, match="ScriptModules"):
        profile_modules(model, profiler=p)
    assert hooks_of(model[0]) == hooks_of(model[2]) == 0
    with profile_modules(model, names=["0", "2"], profiler=p):
        model(X)
    assert counts(p) == {"0": 1, "2": 1}


# ---- All in all


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    output = output_of("torch_modules.py", capsys)
    right = re.match(r"([\d.]+)% of 397 digits read correctly\n", output)
    assert right is not None
    assert float(right[1]) > 80
    blocks = ("first block", "second block", "head", "first convolution")
    assert counts_in(output) == {
        ("train", "step"): 59,
        **{("train", block): 59 for block in blocks},
        **{("test", block): 99 for block in blocks},
    }
