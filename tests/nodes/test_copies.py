"""What users keep in their objects is copied, pickled and referenced weakly with these."""

from __future__ import annotations

import copy
import pickle
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

import cprofiling as cp
from calls import profiler_on
from recorded import outer, profile

pytestmark = pytest.mark.native


def recording() -> cp.Recording:
    """A recording of nodes and labelled blocks."""
    with profile() as prof, cp.record("label"):
        outer()
    return prof.recording


def measured() -> cp.Profiler:
    """A Profiler that has counted one call."""
    profiler = profiler_on()
    profiler.record("train", "node", 1.5)
    return profiler


KEPT: dict[str, Any] = {
    "stage": cp.stage("train"),
    "default stage": cp.stage(cp.ExecutionStage.VAL, default=True),
    "record": cp.record("label"),
    "warm-up": cp.record("label", warm_up=True),
    "block": cp.profile_node("block", stage="train"),
    "block of a Profiler": cp.Profiler().profile_node("block"),
    "Profiler": measured(),
    "schedule": cp.schedule(wait=1, warmup=2, active=3),
    "snapshot": measured().snapshot(),
    "summary": measured().get_profiling_summary(),
    "row": measured().get_profiling_summary()[0],
    "measurement": cp.measure(int, repeat=2),
    "recording": recording(),
    "event": recording().event(0),
}


@pytest.mark.parametrize("name", KEPT)
def test_it_goes_with_the_object_that_keeps_it(name: str) -> None:
    """`self.st = cp.stage("train")` does not break `deepcopy(trainer)`."""
    kept = KEPT[name]
    trainer = SimpleNamespace(kept=kept)
    copies = [copy.copy(kept), copy.deepcopy(trainer).kept]
    copies += [pickle.loads(pickle.dumps(trainer, protocol)).kept for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)]
    for other in copies:
        assert type(other) is type(kept)
        if not isinstance(kept, cp.Profiler):
            assert repr(other) == repr(kept)


@pytest.mark.parametrize("name", KEPT)
def test_cloudpickle_takes_it(name: str) -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    assert type(pickle.loads(cloudpickle.dumps(KEPT[name]))) is type(KEPT[name])


@pytest.mark.parametrize("name", sorted(KEPT.keys() - {"event"}))
def test_it_can_be_referenced_weakly(name: str) -> None:
    assert weakref.ref(KEPT[name])() is KEPT[name]


def test_copies_of_what_is_entered_are_not() -> None:
    for made in (cp.stage("train"), cp.stage("train", default=True), cp.profile_node("block"), cp.record("label")):
        with made, pytest.raises(RuntimeError):
            copy.deepcopy(made).__exit__(None, None, None)


def test_a_recording_is_the_same_where_it_is_read_again() -> None:
    first = recording()
    again = pickle.loads(pickle.dumps(first))
    assert [(event.name, event.start, event.dur) for event in again.events()] == [
        (event.name, event.start, event.dur) for event in first.events()
    ]


class OwnProfiler(cp.Profiler):
    """As a program may write it."""

    def __init__(self, owner: str, *, tags: list[str]) -> None:
        self.owner = owner
        self.tags = tags


class SlottedProfiler(cp.Profiler):
    """One with a slot, and an argument that __new__ takes."""

    __slots__ = ("owner",)
    owner: str

    def __new__(cls, owner: str = "nobody") -> SlottedProfiler:
        made = super().__new__(cls)
        made.owner = owner
        return made


def test_a_subclass_of_profiler_may_take_arguments() -> None:
    made = OwnProfiler("me", tags=["a"])
    made.set_profiling(True)
    made.record("train", "node", 1.0)
    assert (made.owner, made.tags) == ("me", ["a"])
    for other in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert (type(other), other.owner, other.tags) == (OwnProfiler, "me", ["a"])
        assert not other.profiling_enabled
        assert other.get_profiling_summary() == []
    assert copy.copy(made).tags is made.tags
    assert copy.deepcopy(made).tags is not made.tags
    assert SlottedProfiler("me").owner == "me"
    with pytest.raises(TypeError, match="no arguments"):
        cp.Profiler("me")  # type: ignore[call-arg]
