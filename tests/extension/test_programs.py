"""Random programs of calls, blocks, generators, coroutines and contexts: each begun call is counted, and once."""

from __future__ import annotations

import pytest

from calls import by_name, outcomes
from programs import Program

# Programs drop coroutines that they have not begun.
pytestmark = [pytest.mark.native, pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")]


@pytest.mark.parametrize("seed", range(30))
def test_each_begun_call_is_counted_once(seed: int) -> None:
    program = Program(seed)
    program.run(150)
    stats = by_name(program.p)
    assert {name: sum(outcomes(program.p, name)) for name in stats} == program.begun
    assert program.p.get_profiling_summary().internal_errors == 0
    for one in stats.values():
        assert one.self_total_ms is None or 0.0 <= one.self_total_ms <= one.total_ms
    with program.p.profile_node("afterwards"):
        pass
    after = by_name(program.p)["afterwards"]
    assert after.self_total_ms == after.total_ms
