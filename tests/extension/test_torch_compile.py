"""Nodes under torch.compile (failure scenario F15): equal results, whatever is compiled around or inside of them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import cprofiling as cp
from calls import counts, profiler_on

torch: Any = pytest.importorskip("torch")

# PyTorch and what it uses warn of deprecations of their own.
pytestmark = pytest.mark.filterwarnings("default")


class Net(torch.nn.Module):  # type: ignore[misc]
    """Two layers, whose forward is a node, with a node inside that is a function."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.second = torch.nn.Linear(8, 2)

    @cp.profile_node("net")
    def forward(self, x: Any, *, scale: float = 1.0) -> Any:
        """Document forward."""
        return self.second(activate(self.first(x))) * scale


class Plain(Net):
    def forward(self, x: Any, *, scale: float = 1.0) -> Any:
        return self.second(torch.relu(self.first(x))) * scale


@cp.profile_node
def activate(x: Any) -> Any:
    return torch.relu(x)


class Model(cp.PipelineProfiling, torch.nn.Module):  # type: ignore[misc]
    """A pipeline that is a module."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def forward(self, x: Any) -> Any:
        return self.net(x) + 1


class NodeModel(Model):
    """A pipeline whose forward is a node."""

    @cp.profile_node("model")
    def forward(self, x: Any) -> Any:
        return super().forward(x)


def pair(cls: type[Any] = Net) -> tuple[Any, Any]:
    """A module, and one with the same weights that has no nodes."""
    torch.manual_seed(0)
    net, plain = cls(), Plain()
    plain.load_state_dict((net.net if issubclass(cls, Model) else net).state_dict())
    return net, plain


@pytest.fixture(autouse=True)
def fresh() -> None:
    """Forget what was compiled before."""
    torch.compiler.reset()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("is_on", [True, False], ids=["on", "off"])
def test_a_module_with_decorated_forward_compiles_with_equal_results(backend: str, is_on: bool) -> None:
    net, plain = pair()
    compiled = torch.compile(net, fullgraph=False, backend=backend)
    p = cp.Profiler()
    p.set_profiling(is_on)
    with p, torch.no_grad():
        for rows in (3, 3, 5, 7):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(compiled(x, scale=2.0), plain(x, scale=2.0))
    assert counts(p) == ({"activate": 4, "net": 4} if is_on else {})


def test_calls_of_the_module_itself_go_on_counting() -> None:
    net, plain = pair()
    compiled = torch.compile(net, fullgraph=False, backend="eager")
    x = torch.randn(3, 4)
    with profiler_on() as p:
        torch.testing.assert_close(compiled(x), plain(x))
        torch.testing.assert_close(net(x), plain(x))
    assert counts(p) == {"activate": 2, "net": 2}


def test_switching_on_and_off_between_calls_of_the_compiled_module() -> None:
    net, plain = pair()
    compiled = torch.compile(net, fullgraph=False, backend="eager")
    x = torch.randn(3, 4)
    with cp.Profiler() as p:
        for is_on in (False, True, False, True):
            p.set_profiling(is_on)
            torch.testing.assert_close(compiled(x), plain(x))
    assert counts(p) == {"activate": 2, "net": 2}


def test_a_compiled_function_with_nodes_and_blocks_inside() -> None:
    @torch.compile(fullgraph=False, backend="eager")  # type: ignore[untyped-decorator, unused-ignore]
    def function(x: Any) -> Any:
        with cp.profile_node("block"):
            return activate(2 * x) + 1

    x = torch.randn(3, 4)
    with profiler_on() as p:
        for _ in range(3):
            torch.testing.assert_close(function(x), torch.relu(2 * x) + 1)
    assert counts(p) == {"activate": 3, "block": 3}


def test_gradients_are_equal() -> None:
    net, plain = pair()
    compiled = torch.compile(net, fullgraph=False, backend="aot_eager")
    x = torch.randn(3, 4)
    with profiler_on():
        compiled(x).sum().backward()
    plain(x).sum().backward()
    for ours, theirs in zip(net.parameters(), plain.parameters(), strict=False):
        torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("cls", [Model, NodeModel])
def test_a_pipeline_that_is_a_module(cls: type[Any]) -> None:
    model, plain = pair(cls)
    compiled = torch.compile(model, fullgraph=False, backend="eager")
    x = torch.randn(3, 4)
    for is_on in (False, True):
        model.set_profiling(is_on)
        torch.testing.assert_close(model(x), plain(x) + 1)
        torch.testing.assert_close(compiled(x), plain(x) + 1)
    assert counts(model.profiler) == {"activate": 2, "net": 2, **({"model": 2} if cls is NodeModel else {})}


def test_an_instrumented_module_compiles_with_equal_results() -> None:
    plain, reference = pair(Plain)[0], pair(Plain)[0]
    p = profiler_on()
    x = torch.randn(3, 4)
    with p.instrument(plain, "forward", name="instrumented"):
        torch.testing.assert_close(plain(x), reference(x))
        assert counts(p) == {"instrumented": 1}
        compiled = torch.compile(plain, fullgraph=False, backend="eager")
        torch.testing.assert_close(compiled(x), reference(x))
        assert counts(p) == {"instrumented": 2}
    torch.testing.assert_close(plain(x), reference(x))
    torch.testing.assert_close(compiled(x), reference(x))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, copy.copy, lambda module: pickle.loads(pickle.dumps(module))])
def test_modules_are_copied_and_pickled(duplicate: Any) -> None:
    x = torch.randn(3, 4)
    p = profiler_on()
    for module in (pair()[0], pair(Plain)[0]):
        expected = module(x)
        with p.instrument(module, "forward", name="instrumented"):
            torch.testing.assert_close(duplicate(module)(x), expected)
    assert counts(p) == {}


def test_a_traced_module_has_equal_results() -> None:
    net, plain = pair()
    x = torch.randn(3, 4)
    with profiler_on():
        traced = torch.jit.trace(net, x)
        torch.testing.assert_close(traced(x), plain(x))
        torch.testing.assert_close(torch.fx.symbolic_trace(net)(x), plain(x))


class Scaled(torch.nn.Module):  # type: ignore[misc]
    """A node with defaults, which the compiler watches."""

    @cp.profile_node("scaled")
    def forward(self, x: Any, scale: float = 2.0, *, bias: Any = None) -> Any:
        return scaled_by(x, factor=scale) if bias is None else x + bias


@cp.profile_node
def scaled_by(x: Any, offset: float = 1.0, *, factor: float = 3.0) -> Any:
    return torch.relu(x) * factor + offset


class Nested(torch.nn.Module):  # type: ignore[misc]
    """A module whose nodes are modules, methods and functions; decorated twice, too."""

    def __init__(self) -> None:
        super().__init__()
        self.scaled = Scaled()
        self.linear = torch.nn.Linear(4, 4)

    @cp.profile_node("outer")
    @cp.profile_node("inner")
    def method(self, x: Any, y: float = 1.0) -> Any:
        return scaled_by(x) - y

    def forward(self, x: Any) -> Any:
        return self.method(self.scaled(self.linear(x)))


class NestedModel(cp.PipelineProfiling, Nested):
    """A pipeline of them."""

    def forward(self, x: Any) -> Any:
        return super().forward(x)


@pytest.mark.parametrize("cls", [Nested, NestedModel, Scaled])
@pytest.mark.parametrize("is_on", [True, False], ids=["on", "off"])
def test_nodes_are_part_of_a_graph_that_must_be_one(cls: type[Any], is_on: bool) -> None:
    """Where the compiler may not stop, it goes through nodes: they must not make a program fail."""
    module = cls()
    p = cp.Profiler()
    p.set_profiling(is_on)
    with p:
        x = torch.randn(3, 4)
        expected = module(x)
        compiled = torch.compile(module, fullgraph=True, backend="eager")
        p.reset_profiling()
        for switched in (is_on, not is_on, is_on):
            p.set_profiling(switched)
            torch.testing.assert_close(compiled(x), expected)
        assert set(counts(p)) <= {"scaled"}  # a node that is compiled itself is called from outside
        exported = torch.export.export(module, (x,), strict=True).module()
        torch.testing.assert_close(exported(x), expected)


def test_the_compiler_sees_changed_defaults_of_a_node() -> None:
    @cp.profile_node
    def node(x: Any, factor: float = 2.0) -> Any:
        return x * factor

    compiled = torch.compile(lambda x: node(x), fullgraph=True, backend="eager")
    x = torch.ones(3)
    assert compiled(x).tolist() == [2.0] * 3
    node.__defaults__ = (5.0,)
    assert compiled(x).tolist() == [5.0] * 3


def test_a_part_of_the_graph_still_counts_when_it_was_compiled_while_off() -> None:
    nested = Nested()
    compiled = torch.compile(nested, fullgraph=False, backend="eager")
    x = torch.randn(3, 4)
    with cp.Profiler() as p:
        for is_on in (False, True, True):
            p.set_profiling(is_on)
            torch.testing.assert_close(compiled(x), nested(x))
    assert counts(p) == {"scaled_by": 8, "scaled": 4, "outer": 4}


def test_a_module_that_is_a_node_stays_a_part_of_its_parent() -> None:
    parent = torch.nn.Module()
    parent.linear = cp.profile_node("linear")(torch.nn.Linear(4, 4))
    assert [name for name, _ in parent.named_parameters()] == ["linear.weight", "linear.bias"]
    assert sorted(parent.state_dict()) == ["linear.bias", "linear.weight"]
    parent.train(False)
    assert not parent.linear.training
    with profiler_on() as p:
        parent.linear(torch.randn(3, 4))
    assert counts(p) == {"linear": 1}
