"""Operators of a framework beside nodes: a node's own time has them in it, in every figure that is made of it.

Ten pipelines of known times are written as a trace and read back, so that no noise is in them.
"""

from __future__ import annotations

import html
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import cprofiling as cp
from cprofiling.report.html import figures
from cprofiling.report.notebook.cell_profile import CellProfile
from cprofiling.views import View
from recordings import NODE, RECORD, Row, host, made

pytestmark = pytest.mark.native

FRAMES = 40
BETWEEN_US = 100  # from frame to frame
WITHIN = 0.05  # of the times known


@dataclass
class Part:
    """A node of a pipeline: its own time in us, the part of that in operators, and the nodes inside."""

    name: str
    own_us: int
    in_operators: float
    operators: int = 3
    inside: list[Part] = field(default_factory=list)

    @property
    def whole_us(self) -> int:
        return self.own_us + sum(part.whole_us for part in self.inside)

    def all(self) -> Iterator[Part]:
        yield self
        for part in self.inside:
            yield from part.all()

    def rows(self, start_us: int) -> Iterator[Row]:
        """Yield a call: its operators, some of which have others inside them, then the nodes inside, then Python."""
        yield host(self.name, start_us, start_us + self.whole_us, kind=NODE, span=start_us * 100 + len(self.name))
        at, each = start_us, int(self.own_us * self.in_operators) // self.operators
        for number in range(self.operators):
            yield host(f"aten::op{number}", at, at + each)
            yield host("aten::inner", at, at + each // 2)
            at += each
        for part in self.inside:
            yield from part.rows(at)
            at += part.whole_us


C = Part("c", 50, 1)


def pipelines() -> list[list[Part]]:
    """Ten of them: one after the other, nested, all or nothing in operators, and a recursion of names at random."""
    found = [
        [Part("load", 200, 0.0), Part("model", 9000, 1.0), Part("save", 800, 0.5)],
        [Part("load", 200, 1.0), Part("model", 9000, 0.0), Part("save", 800, 0.9)],
        [Part("frame", 300, 0.1, inside=[Part("model", 7000, 0.99, 12), Part("post", 1200, 0.9)])],
        [Part("frame", 3000, 0.95, inside=[Part("a", 700, 0.5, inside=[Part("b", 900, 0.9, inside=[C])])])],
        [Part(f"n{number}", 1000, 0.95, 10) for number in range(8)],
    ]  # fmt: skip
    dice = random.Random(15)
    for _ in range(5):
        names = iter(dice.sample(["load", "blur", "net", "nms", "track", "draw", "send", "log"], 8))
        outer = [Part(next(names), dice.randint(20, 9000), dice.random(), dice.randint(1, 20)) for _ in range(4)]
        for part in outer[:2]:
            part.inside = [Part(next(names), dice.randint(20, 5000), dice.random(), dice.randint(1, 9))]
        found.append(outer)
    return found


@dataclass
class Known:
    """A pipeline's recording, and what is known of it."""

    recording: cp.Recording
    own_ms: dict[str, float]  # of a frame
    frame_ms: float


@pytest.fixture(params=range(10))
def known(request: pytest.FixtureRequest, tmp_path: Path) -> Known:
    parts = pipelines()[request.param]
    frame_us = sum(part.whole_us for part in parts)
    rows = []
    for number in range(FRAMES):
        start_us = at = number * (frame_us + BETWEEN_US)
        rows.append(host("step", start_us, start_us + frame_us, kind=RECORD, span=start_us + 1))
        for part in parts:
            rows += part.rows(at)
            at += part.whole_us
    made(rows).export_chrome_trace(tmp_path / "trace.json")
    own_ms = {part.name: part.own_us / 1000 for outer in parts for part in outer.all()}
    return Known(cp.load_trace(tmp_path / "trace.json"), own_ms, frame_us / 1000)


def near(value: float) -> object:
    return pytest.approx(value, rel=WITHIN)


def test_frames_per_second(known: Known) -> None:
    [of] = known.recording.frames_per_second(frame="step")
    assert of.frames == FRAMES
    assert of.nodes_ms == near(known.frame_ms)
    assert of.serial_fps == near(1000 / known.frame_ms)


def test_what_if(known: Known) -> None:
    found = known.recording.what_if(frame="step")
    assert {of.node: of.own_ms for of in found} == {name: near(own) for name, own in known.own_ms.items()}
    assert {of.node: of.after_ms for of in found} == {
        name: near(known.frame_ms - own / 2) for name, own in known.own_ms.items()
    }


def test_shares_of_the_page_and_the_column_self(known: Known) -> None:
    document = View(known.recording).document
    table = figures.node_table(document)
    names, shares, own = (
        [heading.title for heading in table.headings].index(title) for title in ("Node", "Share", "Self")
    )
    rows = {row[names]: row for row in table.values if row[names] != "step"}
    assert {name: row[own] for name, row in rows.items()} == {
        name: near(FRAMES * of) for name, of in known.own_ms.items()
    }
    assert {name: row[shares] for name, row in rows.items()} == {
        name: near(of / known.frame_ms) for name, of in known.own_ms.items()
    }


def test_what_a_cell_shows(known: Known) -> None:
    cell = CellProfile(known.recording, 1.0, failed=False, skip_first_n=0, notes=())
    assert {row.node_name: row.self_total_ms for row in cell.summary if row.node_name != "step"} == {
        name: near(FRAMES * own) for name, own in known.own_ms.items()
    }
    for text in (cell._repr_html_(), repr(cell)):
        [fps] = re.findall(r"\(([\d.]+) FPS\)", html.unescape(text))
        assert float(fps) == near(1000 / known.frame_ms)
    [of] = cell.summary.frames_per_second(FRAMES)
    assert of.serial_fps == near(1000 / known.frame_ms)


def test_findings(known: Known) -> None:
    nodes = [
        each for each in known.recording.findings() if each.kind == "dominant_operator" and "aten" not in each.title
    ]
    longest = max(known.own_ms, key=known.own_ms.__getitem__)
    share = known.own_ms[longest] / known.frame_ms
    expected = [(longest, near(share))] if share > 0.5 and len(known.own_ms) > 2 else []
    assert [(each.title.partition(" ")[0], each.figures["share"]) for each in nodes] == expected


def test_gaps_are_those_between_nodes(known: Known) -> None:
    assert known.recording.gaps(frame="step").share == pytest.approx(0, abs=WITHIN)


def test_warm_ups_are_of_node_self_times() -> None:
    """The part of the cost that is in no node inside is not zero because operators took it."""
    rows: list[Row] = []
    for number in range(60):
        start, time = number * 20_000, 9000 if number < 3 else 1000 + number % 7
        rows += [host("net", start, start + time, kind=NODE, span=number + 1), host("aten::mm", start, start + time)]
    [of] = made(rows).warm_up()
    assert of.cold == 3
    assert of.own_excess_ms == near(3 * 8.0)


def test_host_self_time_is_another_figure(known: Known) -> None:
    """Of key_averages() and the icicle, whose rows operators are."""
    averages = {each.key: each for each in known.recording.key_averages()}
    assert averages["aten::inner"].self_cpu_time_total == averages["aten::inner"].cpu_time_total
    assert sum(each.self_cpu_time_total for each in averages.values()) == near(1000 * FRAMES * known.frame_ms)
    for name, own_ms in known.own_ms.items():
        assert averages[name].self_cpu_time_total <= 1000 * FRAMES * own_ms
