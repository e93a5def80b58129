"""Timelines and icicles of recordings: what is where, what is drawn together, and that nothing gets lost unsaid."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest

from cprofiling.recording.result import Recording
from cprofiling.report.document import Span, Timeline
from cprofiling.report.from_recording import OTHERS, icicle
from cprofiling.report.timeline import timeline
from recorded import outer, profile
from recordings import COUNTER, INSTANT, NODE, US, device, host, made, trace


def lanes(found: Timeline) -> dict[tuple[int, int], list[Span]]:
    """The spans of each depth of each track."""
    of: dict[tuple[int, int], list[Span]] = {}
    for span in found.spans:
        of.setdefault((span.track, span.depth), []).append(span)
    return of


def told(found: Timeline) -> list[tuple[str, int, int, int]]:
    return [(span.name, span.start_ns // US, span.duration_ns // US, span.depth) for span in found.spans]


def test_a_recording_made_here_has_its_threads_and_what_is_inside_what() -> None:
    with profile() as prof:
        outer()
        thread = threading.Thread(target=outer, name="another")
        thread.start()
        thread.join()
    found = timeline(prof._finished())
    assert [track.thread for track in found.tracks] == ["MainThread", "another"]
    assert len({track.pid for track in found.tracks}) == 1
    names = [[(span.name, span.depth) for span in found.spans if span.track == track] for track in (0, 1)]
    assert names[0] == [("outer", 0), ("inner", 1), ("label", 1), ("inner", 2)] == names[1]
    assert {(span.kind, span.outcome, span.count) for span in found.spans} == {
        ("node", "success", 1), ("record", "success", 1),
    }  # fmt: skip
    events = prof.events()
    assert found.total_spans == len(events) == 8
    assert found.start_ns == events[0].start
    assert found.duration_ns == max(event.end for event in events) - found.start_ns
    assert sorted(span.duration_ns for span in found.spans) == sorted(event.dur for event in events)
    assert found.aggregated_below_ns == 0


def test_nothing_is_a_timeline_of_nothing() -> None:
    empty = made([])
    assert timeline(empty) == Timeline(0, 0, (), (), 0)
    assert icicle(empty) == ()


def test_spans_that_overlap_without_being_inside_one_another_are_below_one_another() -> None:
    found = timeline(made([host("a", 0, 10), host("b", 5, 20), host("c", 6, 8), host("d", 12, 14), host("e", 30, 31)]))
    assert told(found) == [("a", 0, 10, 0), ("b", 5, 15, 1), ("c", 6, 2, 2), ("d", 12, 2, 2), ("e", 30, 1, 0)]
    for spans in lanes(found).values():
        assert all(one.start_ns + one.duration_ns <= next_one.start_ns for one, next_one in pairwise(spans))


def test_moments_are_there_and_readings_of_counters_and_the_whole_run_are_not() -> None:
    rows = [
        host("a", 0, 10),
        host("now", 5, 5, kind=INSTANT),
        host("bytes", 6, 6, kind=COUNTER),
        host("all", 0, 99, cat="Trace"),
    ]
    found = timeline(made(rows))
    assert told(found) == [("a", 0, 10, 0), ("now", 5, 0, 1)]
    assert found.total_spans == 2
    assert found.spans[1].kind == "instant"


def test_streams_of_devices_and_ranks_are_told() -> None:
    recording = Recording.empty()
    recording._add("a", 3, 0, 10, 1, 1)
    recording._add("k", 4, 2, 3, 0, 7, device=0, stream=7)
    recording._add("m", 4, 3, 4, 0, 8, device=0, stream=8)
    recording._name_process(1, "rank 3: python", "CPU", 5)
    recording._name_process(0, "GPU", None, 9)
    recording._name_thread(0, 7, " stream 7 ", 7)
    recording._finish()
    tracks = timeline(recording).tracks
    assert [(track.process, track.thread, track.rank, track.device, track.stream) for track in tracks] == [
        ("rank 3: python, CPU", "1", 3, None, None), ("GPU", "stream 7", None, 0, 7), ("GPU", "8", None, 0, 8),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fact", "rank"),
    [
        ('{"rank": 2, "world_size": 4}', 2),
        ('{"rank": 0, "world_size": 1}', None),
        ('{"rank": "2", "world_size": 4}', None),
        ("[1]", None),
        ("no JSON", None),
    ],
)
def test_the_rank_is_what_the_recording_tells(fact: str, rank: int | None) -> None:
    recording = Recording.empty()
    recording._add("a", 3, 0, 10, 1, 1)
    recording._set_fact("distributedInfo", fact)
    recording._finish()
    assert timeline(recording).tracks[0].rank == rank


def test_how_spans_ended_is_kept() -> None:
    rows = [host(name, 10 * at, 10 * at + 5, kind=NODE, outcome=at) for at, name in enumerate(("a", "b", "c"))]
    found = timeline(made([*rows, host("d", 50, 60, kind=NODE, flags=1)]))
    assert [span.outcome for span in found.spans] == ["success", "error", "cancelled", "unfinished"]


def test_stages_traces_and_arguments_are_kept_of_each_span() -> None:
    told = {"stage": "train", "trace_high": 1, "trace_low": 2, "args": '{"n": 1}'}
    rows = [host("a", 0, 10, kind=NODE, **told), host("b", 2, 3)]
    found = timeline(made(rows))
    assert [(span.stage, span.trace_id, span.arguments) for span in found.spans] == [
        ("train", f"{1:016x}{2:016x}", '{"n": 1}'), ("", None, None),
    ]  # fmt: skip
    short = [host("a", 10 * at, 10 * at + 1, kind=NODE, **told) for at in range(1000)]
    marks = [span for span in timeline(made([*short, host("long", 20_000, 100_000)]), 200).spans if span.count > 1]
    assert {(span.stage, span.trace_id, span.arguments) for span in marks} == {("train", None, None)}


def test_short_neighbours_become_one_where_there_are_very_many() -> None:
    short = [host("x" if at % 10 else "y", 10 * at, 10 * at + (1 if at % 10 else 9)) for at in range(1000)]
    failed = host("z", 10_005, 10_006, kind=NODE, outcome=1)
    found = timeline(made([*short, host("long", 20_000, 100_000), failed]), 200)
    assert 0 < len(found.spans) <= 200
    assert found.total_spans == sum(span.count for span in found.spans) == 1002
    assert found.aggregated_below_ns > 10 * US
    assert ("long", 20_000, 80_000, 0) in told(found)
    marks = [span for span in found.spans if span.count > 1]
    assert marks
    assert all(span.duration_ns < 2 * found.aggregated_below_ns for span in marks)
    assert {span.name for span in marks} >= {"x", "y"}  # that which took most of a mark's time
    assert [span.outcome for span in found.spans if span.outcome != "success"] == ["error"]
    for spans in lanes(found).values():
        assert all(one.start_ns + one.duration_ns <= next_one.start_ns for one, next_one in pairwise(spans))


def test_spans_that_are_long_are_kept_even_if_there_are_too_many() -> None:
    found = timeline(made([host("a", 10 * at, 10 * at + 10) for at in range(100)]), 10)
    assert [span.count for span in found.spans] == [1] * 100
    assert found.aggregated_below_ns == 1000 * US >> 8


def test_what_is_too_deep_and_on_too_many_threads_is_counted_only() -> None:
    rows = [host(f"d{depth}", depth, 100 - depth) for depth in range(5)]
    rows += [host("long", 0, 50, thread="1/2"), host("short", 0, 1, thread="1/3")]
    found = timeline(made(rows), most_depth=3, most_tracks=2)
    assert [span.name for span in found.spans] == ["d0", "d1", "d2", "long"]
    assert [track.tid for track in found.tracks] == [1, 2]
    assert found.total_spans == 7


def test_a_real_trace_keeps_each_span() -> None:
    recording = trace("train_rank0_sampled")
    found = timeline(recording)
    assert found.total_spans == len(found.spans) == len(recording) - 1  # without that of the whole run
    assert {track.rank for track in found.tracks} == {0}
    assert 5 <= sum(track.device is not None for track in found.tracks) <= len(found.tracks)
    coarse = timeline(recording, 1000)
    assert len(coarse.spans) <= 1000
    assert sum(span.count for span in coarse.spans) == coarse.total_spans == found.total_spans


def test_the_icicle_adds_up_calls_of_a_name_below_the_same_callers() -> None:
    rows = [
        host("f", 0, 100), host("g", 10, 40), host("h", 20, 30), host("g", 50, 60), host("k", 70, 95),
        host("f", 0, 50, thread="1/2"), host("g", 0, 10, thread="1/2"), device("k", 0, 99),
    ]  # fmt: skip
    found = icicle(made(rows))
    assert [(place.name, place.parent, place.self_ms, place.total_ms, place.count) for place in found] == [
        ("f", -1, 0.075, 0.15, 2), ("g", 0, 0.04, 0.05, 3), ("h", 1, 0.01, 0.01, 1), ("k", 0, 0.025, 0.025, 1),
    ]  # fmt: skip
    assert sum(place.self_ms for place in found) == pytest.approx(0.15)


def test_small_and_deep_places_are_one() -> None:
    rows = [host("f", 0, 1_000_000), *(host(f"tiny {at}", 100 * at, 100 * at + 10) for at in range(20))]
    found = icicle(made(rows))
    assert [(place.name, place.count, place.total_ms) for place in found[1:]] == [(OTHERS, 20, 0.2)]
    deep = icicle(made([host(f"r{at}", at, 1000 - at) for at in range(150)]))
    assert len(deep) == 100
    assert sum(place.self_ms for place in deep) == pytest.approx(1.0)
