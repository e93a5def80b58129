"""The frozen statistics, the stages and the summary list (failure scenarios F2, F9)."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pytest

from cprofiling.nodes.resources import NO_COUNTERS
from cprofiling.nodes.stats import ExecutionStage, NodeProfilingStats, ProfilingSummary, stats_from_row

FIRST_TEN = (
    "node_name", "stage", "count", "mean_ms", "median_ms", "std_ms", "min_ms", "max_ms", "total_ms", "last_ms",
)  # fmt: skip
WITH_DEFAULTS = (
    "p50_ms", "p90_ms", "p95_ms", "p99_ms", "p999_ms",
    "error_count", "cancelled_count", "skipped_count", "dropped_count",
    "first_ms", "self_total_ms", "active_total_ms",
)  # fmt: skip
BEYOND_TIMES = (
    "gpu_count", "gpu_mean_ms", "gpu_p50_ms", "gpu_p99_ms", "gpu_total_ms", "queue_delay_ms", "gpu_reason",
    "counters", "launches", "memory", "sync_total_ms", "sync_count",
)  # fmt: skip
UNASKED: tuple[Any, ...] = (0, None, None, None, None, None, None, NO_COUNTERS, None, None, None, 0)
ROW: tuple[Any, ...] = (
    "blur", "train", 3, 2.0, 2.5, 0.5, 1.0, 3.0, 6.0, 3.0,
    2.5, 2.9, 2.95, 2.99, 2.999, 1, 2, 3, 4, 9.0, 5.0, None,
)  # fmt: skip
FIELDS = (*FIRST_TEN, *WITH_DEFAULTS, *BEYOND_TIMES)
untyped: Any = namedtuple  # noqa: PYI024 as the core's, without types
CORE_ROW: Any = untyped("CoreRow", (*FIRST_TEN, *WITH_DEFAULTS, "resources"))(*ROW, None)  # only times were asked for
ZEROS: tuple[Any, ...] = (0.0,) * 7
PROTOCOLS = range(6)


@pytest.fixture
def summary() -> ProfilingSummary:
    return ProfilingSummary(
        [stats_from_row(CORE_ROW), NodeProfilingStats("b", "val", 0, *ZEROS)],
        skip_first_n=3,
        reasons=["no CUDA device"],
        internal_errors=2,
        cost_ns=48.5,
    )


def attributes(summary: ProfilingSummary) -> tuple[object, ...]:
    return summary.skip_first_n, summary.reasons, summary.internal_errors, summary.cost_ns


# --- ExecutionStage ---


def test_a_stage_is_its_value_in_every_respect() -> None:
    stages = {member.name: member.value for member in ExecutionStage}
    assert stages == {"TRAIN": "train", "VAL": "val", "TEST": "test", "INFERENCE": "inference"}
    for member in ExecutionStage:
        value = member.value
        assert str(member) == f"{member}" == f"{member:s}" == value
        assert f"{member:<12}|" == f"{value:<12}|"
        assert ({member: 1}[value], {value: 1}[member]) == (1, 1)  # type: ignore[index]
        assert json.dumps(member) == json.dumps(value)
        assert ExecutionStage(value) is copy.copy(member) is copy.deepcopy(member) is member
        assert all(pickle.loads(pickle.dumps(member, protocol)) is member for protocol in PROTOCOLS)


# --- NodeProfilingStats ---


def test_the_first_ten_fields_make_one_and_the_rest_is_unknown_or_zero() -> None:
    assert tuple(field.name for field in dataclasses.fields(NodeProfilingStats)) == FIELDS
    stats = NodeProfilingStats(*ROW[:10])
    assert stats == NodeProfilingStats(**dict(zip(FIRST_TEN, ROW[:10], strict=True)))
    assert dataclasses.astuple(stats)[:10] == ROW[:10]
    assert [getattr(stats, name) for name in BEYOND_TIMES] == list(UNASKED)
    for name in WITH_DEFAULTS:
        assert getattr(stats, name) == (0 if name.endswith("_count") else None), name
    with pytest.raises(TypeError, match="last_ms"):
        NodeProfilingStats(*ROW[:9])


def test_it_compares_and_hashes_by_all_fields() -> None:
    stats = NodeProfilingStats(*ROW)
    assert stats == NodeProfilingStats(*ROW)
    assert hash(stats) == hash(NodeProfilingStats(*ROW))
    assert len({stats, NodeProfilingStats(*ROW), dataclasses.replace(stats, stage=ExecutionStage.TRAIN)}) == 1
    for name in FIELDS:
        change: dict[str, Any] = {name: -1}
        assert dataclasses.replace(stats, **change) != stats, name
    as_tuple: object = ROW
    assert stats != as_tuple


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_it_survives_pickling(protocol: int) -> None:
    for stats in (NodeProfilingStats(*ROW), stats_from_row(CORE_ROW), NodeProfilingStats("\ud800\x00", "s", 1, *ZEROS)):
        restored = pickle.loads(pickle.dumps(stats, protocol))
        assert type(restored) is NodeProfilingStats
        assert restored == stats
        assert hash(restored) == hash(stats)
        assert type(restored.stage) is type(stats.stage)
    assert copy.deepcopy(stats) == copy.copy(stats) == stats


# --- stats_from_row ---


def test_a_row_makes_what_the_constructor_makes() -> None:
    stats = stats_from_row(CORE_ROW)
    assert (type(stats), stats) == (NodeProfilingStats, NodeProfilingStats(*ROW))
    assert list(vars(stats)) == list(vars(NodeProfilingStats(*ROW)))
    assert repr(stats) == repr(NodeProfilingStats(ROW[0], ExecutionStage.TRAIN, *ROW[2:]))


@pytest.mark.parametrize("stage", [*ExecutionStage, "", "Train", "warm-up", "train ", "\ud800", "always"])
def test_a_known_stage_becomes_its_member_and_any_other_stays_a_str(stage: str) -> None:
    for given in {stage, getattr(stage, "value", stage)}:
        assert stats_from_row(CORE_ROW._replace(stage=given)).stage is stage


# --- ProfilingSummary ---


def test_a_summary_is_a_list(summary: ProfilingSummary) -> None:
    members = [stats_from_row(CORE_ROW), NodeProfilingStats("b", "val", 0, *ZEROS)]
    assert isinstance(summary, list)
    assert summary == members
    assert members == summary
    assert summary != members[:1]
    assert repr(summary) == repr(members)
    assert summary[1:] == members[1:]
    assert sorted(summary, key=lambda stats: stats.count)[0].node_name == "b"


@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, ProfilingSummary.copy]
    + [lambda summary, protocol=protocol: pickle.loads(pickle.dumps(summary, protocol)) for protocol in PROTOCOLS],
    ids=["copy.copy", "copy.deepcopy", "copy", *(f"pickle{protocol}" for protocol in PROTOCOLS)],
)
def test_copies_of_a_summary_keep_its_attributes(
    summary: ProfilingSummary, duplicate: Callable[[ProfilingSummary], ProfilingSummary]
) -> None:
    copied = duplicate(summary)
    assert type(copied) is ProfilingSummary
    assert copied is not summary
    assert copied == summary
    assert attributes(copied) == attributes(summary) == (3, ("no CUDA device",), 2, 48.5)
    copied.clear()
    assert len(summary) == 2
