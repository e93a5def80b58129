"""The HTML report in a real Chromium: sorted, filtered, zoomed, compared, by mouse and by keys.

Of each page it is required that it says nothing on the console, asks for nothing, and that axe-core finds nothing. With
CPROFILING_PICTURES=folder, pictures are left there, to be looked at.
"""

from __future__ import annotations

import json
import os
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import browser
import cprofiling as cp
from calls import profiler_on
from cprofiling._internal.text import format_time, shown_text
from cprofiling.commands import main
from cprofiling.report.document import Document, Span, Timeline, Track
from cprofiling.report.html.render import render
from cprofiling.report.timeline import timeline
from cprofiling.views import View
from hostile_names import NAMES
from recorded import profile
from recordings import NODE, host, made, trace

pytest.importorskip("jinja2")
playwright = pytest.importorskip("playwright.sync_api")

Show = Callable[..., Any]
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
READY = "document.documentElement.dataset.ready === 'yes'"
WORKERS = 3
# What a timeline says of so many spans, one after the other.
WALK = """count => Array.from({length: count}, () => {
    document.querySelector('.timeline .lanes').dispatchEvent(new KeyboardEvent('keydown', {key: 'n'}));
    return document.querySelector('.timeline .chosen-text b').textContent;
})"""
STAGE = ".timeline .lanes"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    executable = browser.chromium()
    if executable is None:
        pytest.skip(f"not on PATH: {' or '.join(browser.NAMES)}")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def show(chromium: Any, tmp_path: Path) -> Iterator[Show]:
    """Opens a report; it has nothing to say on the console, and wants nothing from elsewhere, in all of the test."""
    said: list[str] = []
    contexts: list[Any] = []

    def open_page(document: Document, against: Document | None = None, **options: Any) -> Any:
        file = tmp_path / f"{len(contexts)}.html"
        file.write_bytes(render(document, against).encode())
        contexts.append(chromium.new_context(**{"viewport": {"width": 1300, "height": 900}, **options}))
        page = contexts[-1].new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on(
            "request", lambda request: said.append(request.url) if request.url.split("?")[0] != file.as_uri() else None
        )
        page.set_default_timeout(60_000)
        page.goto(file.as_uri())
        if options.get("java_script_enabled", True):
            page.wait_for_function(READY)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []


@pytest.fixture(scope="module")
def statistics() -> Document:
    """Of a pipeline of twelve nodes in two stages."""
    p, values = profiler_on(skip_first_n=1), random.Random(5)
    for stage in ("train", "val"):
        for number in range(12):
            for _ in range(40):
                p.record(stage, f"node {number}", 10 ** (number / 3 - 2) * values.lognormvariate(0, 0.5))
    with pytest.raises(ZeroDivisionError), p.profile_node("node 3", stage="val"):
        raise ZeroDivisionError
    return View(p.snapshot(), title="Twelve nodes", source="twelve.stats").document


@pytest.fixture(scope="module")
def recorded() -> Document:
    """Of three threads that do some work."""

    @cp.profile_node("frame")
    def frame(number: int) -> None:
        with cp.record(f"decode {number % 2}"):
            for _ in range(10):
                with cp.profile_node("block"):
                    sum(range(200))
        with cp.profile_node("wait"):
            time.sleep(0.001)

    def work() -> None:
        for number in range(5):
            frame(number)
        with cp.record("a long name " * 60):
            pass

    with profile() as prof:
        threads = [threading.Thread(target=work, name=f"worker {number}") for number in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return View(prof, title="Three workers").document


def column_of(page: Any, table: str, title: str) -> int:
    heads: list[str] = page.locator(f"#{table} thead th button").all_inner_texts()
    return int(
        page.locator(f"#{table} thead th button").nth(heads.index(title)).locator("xpath=..").get_attribute("data-c")
    )


def cells(page: Any, column: int, table: str = "nodes") -> list[str]:
    """What the rows that are shown have in a column."""
    rows = f"#{table} tbody tr:not(.detail):not([hidden]) > *:nth-child({column + 1})"
    texts: list[str] = page.eval_on_selector_all(rows, "found => found.map(cell => cell.textContent)")
    return texts


def choose(page: Any, *titles: str, table: str = "nodes") -> None:
    """Tick or clear columns, or press a button, in the chooser of a table."""
    part = page.locator(f"#part-{table}")
    part.locator(".columns summary").click()
    for title in titles:
        part.locator(".choices").locator("label, button").filter(has_text=re.compile(f"^{re.escape(title)}$")).click()
    page.keyboard.press("Escape")


def heads_of(page: Any, table: str = "nodes") -> list[str]:
    """The columns of a table that are shown, with their groups."""
    found: list[str] = page.eval_on_selector_all(
        f"#{table} thead th[data-c]",
        "heads => heads.filter(head => head.offsetWidth).map(head => [head.dataset.group, head.firstChild.textContent]"
        ".filter(Boolean).join(', '))",
    )
    return found


def view_of(page: Any) -> tuple[int, int]:
    """From when to when the timeline shows its recording, as drawn."""
    page.evaluate("new Promise(next => requestAnimationFrame(() => requestAnimationFrame(next)))")
    start, end = page.locator(STAGE).get_attribute("data-view").split()
    return int(start), int(end)


def quarter(page: Any) -> tuple[float, float]:
    """A place on the timeline, at a quarter of its width."""
    lanes = page.locator(".lanes svg")
    lanes.scroll_into_view_if_needed()
    box = lanes.bounding_box()
    return box["x"] + box["width"] / 4, box["y"] + 30


def facts(page: Any, what: str) -> dict[str, str]:
    """What the panel tells of the selected span or frame."""
    panel = page.get_by_role("region", name=f"Selected {what}")
    return dict(zip(panel.locator("dt").all_inner_texts(), panel.locator("dd").all_inner_texts(), strict=True))


def violations(page: Any, *rules: str) -> list[str]:
    """What axe-core finds, by all of its rules or some."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(page, options={"runOnly": rules} if rules else None).response["violations"]
    return [f"{each['id']}: {[one['html'][:200] for one in each['nodes'][:3]]}" for each in found]


def picture(page: Any, name: str) -> None:
    folder = os.environ.get("CPROFILING_PICTURES")
    if folder:
        page.screenshot(path=str(Path(folder) / f"report-{name}.png"), full_page=True)


def test_the_table_is_sorted_by_any_column_both_ways(show: Show, statistics: Document) -> None:
    page = show(statistics)
    by_total = sorted(statistics.nodes, key=lambda node: -(node.total_ms or 0))
    assert cells(page, 0) == [node.node_name for node in by_total]
    head = page.locator("#nodes thead th", has_text="Total")
    assert head.get_attribute("aria-sort") == "descending"
    page.locator("#part-nodes").get_by_role("button", name="p99", exact=True).click()
    by_p99 = sorted(statistics.nodes, key=lambda node: -(node.p99_ms or 0))
    shown = cells(page, column_of(page, "nodes", "p99"))
    assert shown == [format_time(node.p99_ms or 0).replace(" ", "") for node in by_p99]
    assert head.get_attribute("aria-sort") is None
    p99 = page.locator("#nodes thead th[aria-sort]")
    assert (p99.count(), p99.get_attribute("aria-sort")) == (1, "descending")
    page.locator("#part-nodes").get_by_role("button", name="p99", exact=True).click()
    assert p99.get_attribute("aria-sort") == "ascending"
    assert cells(page, column_of(page, "nodes", "p99")) == shown[::-1]
    page.locator("#part-nodes").get_by_role("button", name="Node", exact=True).press("Enter")
    names = cells(page, 0)
    assert names[:4] == ["node 0", "node 0", "node 1", "node 1"]
    assert names[-1] == "node 11"
    assert "sorted by Node, ascending" in page.locator("#part-nodes .said").inner_text()


def test_the_table_is_filtered_by_words_and_stage(show: Show, statistics: Document) -> None:
    page = show(statistics)
    page.locator("#part-nodes").get_by_label("Filter").fill("NODE 1")
    assert set(cells(page, 0)) == {"node 1", "node 10", "node 11"}
    assert page.locator("#part-nodes .said").inner_text() == "6 of 24 rows"
    page.locator("#nodes-stage").select_option(label="val")
    assert sorted(cells(page, 0)) == ["node 1", "node 10", "node 11"]
    assert set(cells(page, 1)) == {"val"}
    page.locator("#part-nodes").get_by_label("Filter").fill("nothing")
    assert cells(page, 0) == []
    page.locator("#part-nodes").get_by_label("Filter").fill("")
    page.locator("#nodes-stage").select_option(label="all")
    assert len(cells(page, 0)) == 24


def test_times_have_the_unit_that_fits_or_one_for_all(show: Show, statistics: Document) -> None:
    page = show(statistics)
    column = column_of(page, "nodes", "Mean")
    fitting = cells(page, column)
    assert {text[-2:] for text in fitting} >= {"µs", "ms"}
    page.locator("#part-nodes").get_by_label("Unit").select_option(label="µs")
    in_one = cells(page, column)
    by_total = sorted(statistics.nodes, key=lambda node: -(node.total_ms or 0))
    for text, node in zip(in_one, by_total, strict=True):
        assert text.endswith("µs")
        assert float(text[:-2].replace(",", "")) == pytest.approx((node.mean_ms or 0) * 1e3, rel=1e-4, abs=0.005)
    page.locator("#part-nodes").get_by_label("Unit").select_option(label="that fits")
    assert cells(page, column) == fitting


def test_a_node_opens_by_key_and_shows_its_distribution_and_all_figures(show: Show, statistics: Document) -> None:
    page = show(statistics)
    first = page.locator("#nodes .open").first
    assert not page.locator("#nodes thead th", has_text="Std").is_visible()
    first.press("Enter")
    assert first.get_attribute("aria-expanded") == "true"
    detail = page.locator("#nodes tr.detail")
    label = detail.locator("svg").get_attribute("aria-label")
    assert label.startswith("Distribution: 39 samples from ")
    assert {"Std", "Min", "p95", "First"} <= set(detail.locator("dt").all_inner_texts())
    assert detail.locator("svg .name").all_text_contents()[0] == "p50"
    first.press("ArrowDown")
    assert page.evaluate("document.activeElement === document.querySelectorAll('#nodes .open')[1]")
    page.locator("#part-nodes").get_by_role("button", name="Count", exact=True).click()
    assert page.evaluate("document.querySelector('tr.detail').previousSibling.dataset.i") == "0"
    first = page.locator("#nodes .open[aria-expanded=true]")
    first.click()
    assert page.locator("tr.detail").count() == 0
    choose(page, "All")
    assert page.locator("#nodes thead th", has_text="Std").is_visible()


def test_reasons_are_there_with_the_columns_that_have_their_marks(show: Show, statistics: Document) -> None:
    first, second = statistics.nodes[:2]
    nodes = (
        replace(first, active_total_ms=1.0),
        replace(second, active_total_ms=None, unknown={"active_total_ms": "why"}),
    )
    page = show(replace(statistics, nodes=nodes))
    reason = page.locator("#nodes-notes li", has_text="why")
    assert not reason.is_visible()
    choose(page, "Active")
    assert reason.is_visible()
    choose(page, "Active")
    assert not reason.is_visible()


@pytest.fixture(scope="module")
def real() -> Document:
    """Of a program with twelve nodes in two stages, with memory and counters."""
    p = cp.Profiler()

    def make(size: int) -> Callable[[], int]:
        return lambda: sum(bytearray(size))

    steps = [p.profile_node(make(1000 * size), name=f"a step with a name {size}") for size in range(11)]

    @p.profile_node
    def decode() -> None:
        raise ZeroDivisionError

    p.set_profiling(True, memory="peak", counters=("cpu_time", "context_switches"))
    for stage in ("train", "val"):
        with cp.stage(stage):
            for step in steps * 3:
                step()
            with pytest.raises(ZeroDivisionError):
                decode()
    summary = p.get_profiling_summary()
    return View(summary, title="A real program").document


@pytest.mark.parametrize("width", [400, 1280, 1680])
def test_every_column_is_seen_without_scrolling(show: Show, real: Document, statistics: Document, width: int) -> None:
    for document, against in ((real, None), (statistics, real)):
        page = show(document, against, viewport={"width": width, "height": 900})
        name = "nodes" if against is None else "comparison"
        box = page.locator(f"#{name}").locator("xpath=..").evaluate("box => [box.scrollWidth, box.clientWidth]")
        assert box[0] <= box[1]
        over = "cells => cells.filter(cell => cell.scrollWidth > cell.offsetWidth + 1).map(cell => cell.textContent)"
        assert page.eval_on_selector_all(f"#{name} tbody tr > *:not(.source)", over) == [], (
            "no cell is drawn over the next"
        )
        assert len(heads_of(page, name)) >= 4
    page = show(real, viewport={"width": width, "height": 900})
    shown = heads_of(page)
    if width > 400:
        assert {"Node", "Stage", "Distribution", "Total", "Self", "Share", "Mean", "p50", "p99", "Errors"} <= set(shown)
        return
    assert shown[:4] == ["Node", "Total", "Share", "p99"]
    first = page.locator("#nodes tbody th").first
    assert first.bounding_box()["width"] < 400 / 3 + 2
    stage = first.evaluate("head => getComputedStyle(head, '::after').content")
    assert stage in ('"train"', '"val"'), "the stage stands below the name"


def test_columns_are_chosen_and_kept_in_the_address(show: Show, real: Document) -> None:
    page = show(real)
    fitting = heads_of(page)
    assert "Std" not in fitting
    choose(page, "Std", "p50", "CPU time")
    chosen = heads_of(page)
    assert set(fitting) ^ set(chosen) >= {"Std", "p50"}
    assert "nodes=" in page.url
    page.get_by_role("link", name="How it was measured").click()
    page.wait_for_url("**?nodes=*#part-measured")  # a link to a part keeps the rest
    page.reload()
    page.wait_for_function(READY)
    assert heads_of(page) == chosen
    said = page.locator("#part-nodes .columns summary").inner_text()
    assert said == f"Columns: {len(chosen)} of {page.locator('#nodes thead th').count()}"
    choose(page, "As many as fit")
    assert heads_of(page) == fitting
    assert "nodes=" not in page.url
    page.goto(page.url.partition("#")[0] + "?nodes=Total,%3Cimg%3E,CPU%20time#part-nodes")
    page.wait_for_function(READY)
    assert heads_of(page) == ["Node", "Total", "CPU time"], "somebody wrote it by hand"


def test_heads_stand_over_their_figures(show: Show, real: Document) -> None:
    page = show(real)
    right = """(cells) => cells.map(cell => {
        const range = document.createRange();
        range.selectNodeContents(cell.querySelector('button') ?? cell);
        return range.getBoundingClientRect().right;
    })"""
    heads = page.eval_on_selector_all("#nodes thead th[data-c]:not(.text, .chart, .source)", right)
    first = page.eval_on_selector_all("#nodes tbody tr:first-child td:not(.text, .chart, .source)", right)
    apart = [abs(head - cell) for head, cell in zip(heads, first, strict=True)]
    assert max(apart) < 12


def test_the_file_and_line_of_a_node_can_be_copied(show: Show, real: Document) -> None:
    page = show(real)
    line = f"{__file__}:"
    by_name = {node.node_name: node.source or "" for node in real.nodes}
    assert by_name["decode"].startswith(line)
    page.locator("#nodes .open", has_text="a step with a name 3").first.click()
    source = page.locator("tr.detail .source")
    told = source.locator("code").inner_text()
    assert told == by_name["a step with a name 3"]
    source.get_by_role("button").click()
    source.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("getSelection().toString()") == told
    choose(page, "Source")
    assert "Source" in heads_of(page)


def test_many_rows_are_shown_when_asked_for(show: Show) -> None:
    p = profiler_on()
    for number in range(120):
        p.record("train", f"node {number}", 1.0 + number)
    page = show(View(p.snapshot()).document)
    assert len(cells(page, 0)) == 50
    assert page.locator("#part-nodes .said").inner_text() == "120 rows, the first 50 shown"
    page.emulate_media(media="print")
    assert page.locator("#part-nodes .said").is_visible(), "on paper it says, too, that there are more"
    page.emulate_media(media="screen")
    page.locator("#part-nodes").get_by_label("Filter").fill("node 11")
    assert cells(page, 0) == [f"node {number}" for number in (119, 118, 117, 116, 115, 114, 113, 112, 111, 110, 11)]
    page.locator("#part-nodes").get_by_label("Filter").fill("")
    page.locator("#part-nodes").get_by_role("button", name="Show all 120 rows").click()
    assert len(cells(page, 0)) == 120


def test_without_scripts_the_table_is_there(show: Show, statistics: Document) -> None:
    page = show(statistics, java_script_enabled=False)
    assert page.locator("#nodes tbody tr").count() == 24
    assert page.locator("#nodes tbody tr").first.is_visible()
    assert page.get_by_role("columnheader", name="Std").is_visible()
    assert page.locator(".tools, #theme:visible").count() == 0


def test_the_timeline_is_zoomed_and_moved_by_keys(show: Show, recorded: Document) -> None:
    page = show(recorded)
    assert recorded.timeline is not None
    whole = recorded.timeline.duration_ns
    stage = page.locator(STAGE)
    assert view_of(page) == (0, whole)
    page.locator("#part-timeline").scroll_into_view_if_needed()
    stage.focus()
    page.keyboard.press("+")
    start, end = view_of(page)
    assert end - start == pytest.approx(whole / 2, rel=0.01)
    page.keyboard.press("ArrowRight")
    assert view_of(page)[0] > start
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("-")
    assert view_of(page) == (0, whole)
    page.keyboard.press("n")
    chosen = page.locator(".timeline .chosen-text")
    assert chosen.inner_text().startswith("frame: ")
    page.keyboard.press("ArrowDown")
    assert chosen.inner_text().startswith("decode 0: ")
    page.keyboard.press("ArrowDown")
    assert chosen.inner_text().startswith("block: ")
    page.keyboard.press("Enter")
    start, end = view_of(page)
    assert 0 < end - start < whole / 20
    page.keyboard.press("Escape")
    assert chosen.inner_text() == "No span is selected."
    page.keyboard.press("Home")
    assert view_of(page) == (0, whole)


def test_the_timeline_is_zoomed_by_wheel_and_buttons_and_dragged(show: Show, recorded: Document) -> None:
    page = show(recorded)
    assert recorded.timeline is not None
    whole = recorded.timeline.duration_ns
    page.mouse.move(*quarter(page))
    page.mouse.wheel(0, 100)
    assert view_of(page) == (0, whole), "a page that is scrolled past it stays as it is"
    middle = quarter(page)
    page.mouse.move(*middle)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    start, end = view_of(page)
    assert end - start < whole
    assert (start + (end - start) / 4) / whole == pytest.approx(0.25, abs=0.02), "what is below the pointer stays there"
    page.mouse.move(*middle)
    page.keyboard.down("Shift")
    page.mouse.down()
    page.mouse.move(middle[0] - 100, middle[1], steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    moved = view_of(page)
    assert moved[0] > start
    assert moved[1] - moved[0] == pytest.approx(end - start, rel=0.01)
    page.mouse.wheel(0, -300)
    assert view_of(page)[1] - view_of(page)[0] < end - start, "once clicked, the wheel alone zooms"
    page.get_by_role("button", name="Zoom out").click()
    page.get_by_role("button", name="Show the whole recording").click()
    assert view_of(page) == (0, whole)
    page.locator(".overview").click(position={"x": 5, "y": 10})
    page.get_by_role("button", name="Zoom in").click()
    start, _ = view_of(page)
    page.get_by_role("button", name="Later").click()
    assert view_of(page)[0] > start
    page.get_by_role("button", name="Earlier").click()
    assert view_of(page)[0] == pytest.approx(start, abs=1)


def test_spans_are_found_and_told(show: Show, recorded: Document) -> None:
    page = show(recorded)
    assert recorded.timeline is not None
    search = page.locator(".timeline").get_by_label("Search")
    search.fill("DECODE 1")
    assert page.locator("#part-timeline .said").first.inner_text() == f"{2 * WORKERS} matches"
    search.press("Enter")
    chosen = page.locator(".timeline .chosen-text")
    assert chosen.inner_text().startswith("decode 1: ")
    told = facts(page, "span")
    assert told["Thread"].startswith("worker")
    assert told["Parent"] == "frame"
    assert page.locator("#part-timeline .said").first.inner_text() == f"1 of {2 * WORKERS}"
    start, end = view_of(page)
    assert end - start < recorded.timeline.duration_ns / 3, "Enter zooms to it"
    first = chosen.inner_text()
    page.locator(".timeline").get_by_role("button", name="Next match").click()
    assert chosen.inner_text() != first
    page.locator(".timeline").get_by_role("button", name="Previous match").click()
    assert chosen.inner_text() == first
    page.locator(".lanes path.dim").first.wait_for()
    search.fill("")
    stage = page.locator(STAGE)
    stage.focus()
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    view_of(page)
    box = page.locator(".lanes .chosen").bounding_box()
    place = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.keyboard.press("Escape")
    page.mouse.move(*place)
    tip = page.locator(".tip")
    assert tip.locator("b").inner_text() == "frame"
    assert "worker" in tip.inner_text()
    page.mouse.click(*place)
    assert chosen.inner_text().startswith("frame: ")
    told = page.get_by_role("region", name="Selected span").inner_text()
    assert re.search(rf"^{re.escape(__file__)}:\d+$", told, re.MULTILINE), "where its function is"
    page.mouse.move(0, 0)
    assert not tip.is_visible()


def test_a_range_is_summed_up(show: Show, recorded: Document) -> None:
    page = show(recorded)
    assert recorded.timeline is not None
    sums = page.locator(".timeline .sums")
    page.get_by_role("button", name="Sum up what is shown, by name").click()
    cells = sums.locator("tr").evaluate_all("rows => rows.map(row => [...row.cells].map(cell => cell.textContent))")
    rows = {row[0]: row[1:] for row in cells}
    spans = recorded.timeline.spans
    assert sums.locator("p").inner_text().startswith(f"{len(spans)} spans in 0.00 ms to ")
    assert rows.pop("Name") == ["Spans", "Self", "Total"]
    for name, (count, own, total) in rows.items():
        of = [span for span in spans if shown_text("name", span.name) == name]
        inside = sum(
            span.duration_ns
            for span in spans
            for around in of
            if span.track == around.track
            and span.depth == around.depth + 1
            and around.start_ns <= span.start_ns < around.start_ns + around.duration_ns
        )
        whole = sum(span.duration_ns for span in of)
        assert count == str(len(of))
        assert (own, total) == (format_time((whole - inside) / 1e6), format_time(whole / 1e6))
    place = quarter(page)
    page.mouse.move(*place)
    page.mouse.down()
    page.mouse.move(place[0] + 40, place[1], steps=4)
    page.mouse.up()
    assert view_of(page) == (0, recorded.timeline.duration_ns)
    assert page.locator(".lanes .range").bounding_box()["width"] == pytest.approx(40, abs=2)
    assert not sums.locator("p").inner_text().startswith(f"{len(spans)} spans")
    page.keyboard.press("Escape")
    assert sums.inner_text() == ""
    assert page.locator(".lanes .range").count() == 0


def test_keys_of_other_timelines_work(show: Show, recorded: Document) -> None:
    page = show(recorded)
    assert recorded.timeline is not None
    whole = recorded.timeline.duration_ns
    page.locator(STAGE).focus()
    page.mouse.move(*quarter(page))
    page.keyboard.press("w")
    start, end = view_of(page)
    assert end - start == pytest.approx(whole / 2, rel=0.01)
    assert (start + (end - start) / 4) / whole == pytest.approx(0.25, abs=0.02), "what is below the pointer stays there"
    page.keyboard.press("d")
    assert view_of(page)[0] > start
    page.keyboard.press("a")
    page.keyboard.press("s")
    assert view_of(page) == (0, whole)
    for key in "nnf":
        page.keyboard.press(key)
    start, end = view_of(page)
    assert end - start < whole
    shown = page.locator(".timeline .status").inner_text()
    page.keyboard.type("wwwwwwww")
    view_of(page)
    nearer = page.locator(".timeline .status").inner_text()
    digits = [len(re.findall(r"\d", text.partition(" to ")[0])) for text in (shown, nearer)]
    assert digits[0] + 1 < digits[1], "digits follow the zoom"
    page.keyboard.press("/")
    page.keyboard.type("block")
    assert page.locator(".timeline").get_by_label("Search").input_value() == "block"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.className") == "lanes"


def test_a_panel_tells_what_is_known_of_the_selected_span(show: Show) -> None:
    hostile = (
        '{"path": "<img src=x onerror=alert(1)>", "turned \\u202e": [1, "\\u202e"], "n": 3, "none": {}, "kind": "node",'
        f' "trace_id": "{1:016x}{0xAB:016x}", "stage": "another"}}'
    )
    rows = [
        host(
            "load", 3168, 3200, kind=NODE, stage="train \u202e", outcome=1, trace_high=1, trace_low=0xAB, args=hostile
        ),
        host("read", 3170, 3180, args="no JSON <b>"),
        host("start", 0, 1, kind=NODE),
    ]
    document = Document("Told", "recording", timeline=timeline(made(rows)))
    page = show(document, viewport={"width": 1280, "height": 900})
    panel = page.get_by_role("region", name="Selected span")
    page.locator(STAGE).focus()
    height = panel.bounding_box()
    page.keyboard.press("n")
    page.keyboard.press("n")
    panel.locator("dt", has_text="none").wait_for()
    assert facts(page, "span") == {
        "Inside": "read 10.00 µs", "Self": "22.00 µs, 68.8 %", "Parent": "none", "Stage": r"train \u202e",
        "Start": "3.16800 ms", "Thread": "1", "Process": "1", "Kind": "node", "Error": "failed",
        "Trace id": f"{1:016x}{0xAB:016x}",
        "path": "<img src=x onerror=alert(1)>", r"turned \u202e": r'[1,"\u202e"]', "n": "3", "none": "{}",
        "stage": "another",
    }  # fmt: skip
    assert panel.get_by_role("status").inner_text().startswith("load: 32.00 µs")
    assert panel.bounding_box() == height, "it stands still"
    page.keyboard.press("ArrowDown")
    told = facts(page, "span")
    assert (told["Parent"], told["Arguments"]) == ("load", "no JSON <b>")
    assert not told.keys() & {"Stage", "Error", "Trace id"}
    for _ in range(20):
        if page.evaluate("document.activeElement.className") == "panel":
            break
        page.keyboard.press("Tab")
    else:
        pytest.fail("keys do not reach the panel")


def test_the_timeline_and_its_panel_stand_above_the_fold(show: Show, recorded: Document) -> None:
    command = {"command": "python " + "a/very/long/path/" * 12, "packages": "torch 2.8.0, numpy 2.3.5, jax 0.7.2"}
    document = replace(recorded, facts={**recorded.facts, **command})
    page = show(document, viewport={"width": 1280, "height": 900})
    for part in (".overview", STAGE, ".timeline .panel"):
        box = page.locator(part).bounding_box()
        assert box["y"] > 0
        assert box["y"] + box["height"] < 900
    assert page.locator(STAGE).bounding_box()["height"] > 200


def test_short_spans_are_hidden_as_the_address_tells(show: Show) -> None:
    rows = [host("frame", 0, 1000), *(host(f"step {at}", 10 * at, 10 * at + at) for at in range(1, 10))]
    page = show(Document("Filtered", "recording", timeline=timeline(made(rows))))
    least, hidden = page.get_by_label("At least"), page.locator("#part-timeline .said").last
    for text, count in (("5us", 4), ("0.005 ms", 4), (".0055", 5), ("5000 ns", 4), ("1 s", 10)):
        least.fill(text)
        assert hidden.inner_text() == f"{count} shorter spans are hidden"
    least.fill("5 µs")
    page.locator(".timeline").get_by_label("Search").fill("step")
    assert page.locator("#part-timeline .said").first.inner_text() == "5 matches"
    page.reload()
    page.wait_for_function(READY)
    assert (least.input_value(), hidden.inner_text()) == ("5 µs", "4 shorter spans are hidden")
    assert page.evaluate(WALK, 1) == ["frame"]
    assert facts(page, "span")["Self"] == "955.0 µs, 95.5 %", "without those that are hidden, too"
    least.fill("many")
    assert least.get_attribute("aria-invalid") == "true"
    assert hidden.inner_text() == "Give a time, such as 0.1 ms or 50 µs"
    least.fill("")
    assert hidden.inner_text() == ""
    assert "?" not in page.url


def test_marks_of_several_spans_are_hatched_and_count_them(show: Show) -> None:
    spans = (Span(0, "long", 0, 10**9, 0), *(Span(0, "short", 10_000 * at, 9_000, 1) for at in range(100)))
    drawn = Timeline(0, 10**9, (Track("p", "t", 1, 2),), (*spans, Span(0, "mark", 5 * 10**8, 10**8, 1, count=7)), 108)
    page = show(Document("Marks", "recording", timeline=drawn))
    hatched = page.locator(".lanes path[fill='url(#hatch-0)']")
    assert hatched.get_attribute("d").count("z") == 2
    box = hatched.bounding_box()
    page.mouse.move(box["x"] + 1, box["y"] + 8)
    assert "spans within a pixel, drawn as one mark" in page.locator(".tip").inner_text()
    page.mouse.click(box["x"] + box["width"] - 5, box["y"] + 8)
    assert "mark: 7 short spans of one or more names" in page.locator(".timeline .chosen-text").inner_text()
    page.keyboard.press("Escape")
    for key in "nnf":
        page.keyboard.press(key)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("f")
    view_of(page)
    assert hatched.count() == 0


def test_neighbours_that_are_drawn_each_are_no_mark(show: Show) -> None:
    page = show(Document("Two", "recording", timeline=timeline(made([host("a", 0, 600), host("b", 600, 1000)]))))
    box = page.locator(".lanes svg").bounding_box()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 50)
    assert page.locator(".tip").inner_text().splitlines() == ["a", "600.0 µs", "1"]


def test_spans_finer_than_a_pixel_are_said_to_be_drawn_together(show: Show) -> None:
    with profile() as prof:
        for _ in range(4000):
            with cp.record("short"):
                pass
        time.sleep(0.01)
    page = show(View(prof).document)
    status = page.locator(".timeline .status")
    assert "finer than a pixel here, and drawn together as" in status.inner_text()
    page.locator(STAGE).focus()
    for _ in range(2):
        page.keyboard.press("n")
    page.keyboard.press("Enter")
    view_of(page)
    assert "Each span is drawn for itself." in status.inner_text()


def test_the_icicle_is_walked_and_zoomed_by_keys_and_mouse(show: Show, recorded: Document) -> None:
    page = show(recorded)
    tree = page.locator(".tree")
    tree.focus()
    text = page.locator(".icicle .chosen-text")
    page.keyboard.press("ArrowDown")
    assert text.inner_text().startswith(("wait: ", "decode"))
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowUp")
    assert text.inner_text().startswith("frame: ")
    assert f"{5 * WORKERS} calls" in text.inner_text()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert tree.get_attribute("data-top") != "-1"
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    assert tree.get_attribute("data-top") == "-1"
    places = page.locator(".tree rect[data-place]")
    before = places.count()
    assert before >= 4
    places.nth(1).hover(force=True)
    assert page.locator(".tip").is_visible()
    place = places.nth(1).get_attribute("data-place")
    places.nth(1).click(force=True)
    assert tree.get_attribute("data-top") == place
    page.get_by_role("button", name="Whole tree").click()
    assert places.count() == before
    page.get_by_text("The tree as a table").click()
    assert page.locator("#tree-0").is_visible()


@pytest.fixture
def called() -> Document:
    """A tree with a name that is called by two others, and by itself."""
    rows = [
        host("main", 0, 1000),
        host("parse", 10, 110), host("read", 20, 100), host("open", 30, 40),
        host("train", 200, 900), host("read", 210, 510, kind=NODE), host("read", 220, 420, kind=NODE),
        host("open", 230, 240),
    ]  # fmt: skip
    return View(made(rows), title="Called").document


def drawn(page: Any) -> list[list[tuple[str, str, int]]]:
    """The rows of the tree from the top: names, colours and widths from the left."""
    view_of(page)
    found = page.locator(".tree svg").evaluate("""svg => {
        const rows = {}, names = [...svg.querySelectorAll('text')];
        for (const box of svg.querySelectorAll('rect[data-place]')) {
            const [x, y, width] = ['x', 'y', 'width'].map(name => Number(box.getAttribute(name)));
            const text = names.find(each => {
                const [right, down] = ['x', 'y'].map(name => Number(each.getAttribute(name)));
                return Math.abs(right - x - 4) < 1 && down > y && down < y + 20;
            });
            (rows[y] ||= []).push([x, text ? text.textContent : '', box.getAttribute('class'), width]);
        }
        return Object.keys(rows).map(Number).sort((a, b) => a - b).map(y => rows[y].sort((a, b) => a[0] - b[0]));
    }""")
    return [[(name, colour, round(width)) for _, name, colour, width in row] for row in found]


def names_of(page: Any) -> list[list[str]]:
    return [[name for name, *_ in row] for row in drawn(page)]


def test_the_tree_is_left_heavy_and_its_colours_are_those_of_the_timeline(show: Show, called: Document) -> None:
    page = show(called)
    assert names_of(page)[:3] == [["main"], ["train", "parse"], ["read", "read"]]
    page.locator(STAGE).focus()
    colours = {}
    for name in ("main", "train", "parse", "read"):
        page.locator(".timeline").get_by_label("Search").fill(name)
        view_of(page)
        (colours[name],) = page.locator(".lanes path:not(.dim):not(.grid):not([fill])").evaluate_all(
            "paths => paths.map(path => path.getAttribute('class'))"
        )
    assert {(name, colour) for row in drawn(page) for name, colour, _ in row if name in colours} == {*colours.items()}


def test_a_sandwich_has_callers_above_and_callees_below(show: Show, called: Document) -> None:
    page = show(called)
    tree = page.locator(".icicle")
    tree.get_by_label("Search").fill("READ")
    assert tree.locator(".said").first.inner_text() == "3 matches"
    page.locator(".tree rect.dim").first.wait_for()
    tree.get_by_label("Search").press("Enter")
    assert tree.locator(".said").first.inner_text() == "1 of 3"
    assert page.locator(".tree").get_attribute("data-top") != "-1", "Enter zooms to it"
    tree.get_by_label("Search").fill("")
    tree.get_by_role("button", name="Sandwich").click()
    assert tree.get_by_role("button", name="Sandwich").get_attribute("aria-pressed") == "true"
    rows = drawn(page)
    assert [[name for name, *_ in row] for row in rows[:4]] == [
        ["main", "main"],
        ["train", "parse"],
        ["read"],
        ["read", "open"],
    ]
    whole, (train, parse) = rows[2][0][2], [width for *_, width in rows[1]]
    assert [train / whole, parse / whole] == pytest.approx([300 / 380, 80 / 380], abs=0.01)
    text = tree.locator(".chosen-text")
    assert text.inner_text() == "read: self 170.0 µs, total 380.0 µs, 2 calls", "calls inside are callees"
    page.locator(".tree").focus()
    page.keyboard.press("ArrowUp")
    assert text.inner_text() == "train: 300.0 µs in 1 call of read from here"
    page.keyboard.press("ArrowRight")
    assert text.inner_text().startswith("parse: ")
    assert facts(page, "frame") == {"Total share": "21.1 %", "Total of a call": "80.00 µs", "Calls": "read"}
    for key in ("ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    assert text.inner_text() == "read: self 190.0 µs, total 200.0 µs, 1 call"
    assert facts(page, "frame")["Called by"] == "read"
    page.reload()
    page.wait_for_function(READY)
    assert names_of(page)[:3] == [["main", "main"], ["train", "parse"], ["read"]], "the address knows"
    tree.get_by_role("button", name="Left-heavy").click()
    assert names_of(page)[0] == ["main"]
    page.locator(".tree").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("c")
    assert names_of(page)[:2] == [["main"], ["train"]]
    page.keyboard.press("Escape")
    assert names_of(page)[1] == ["train", "parse"]
    assert "?" not in page.url


def test_two_runs_are_compared(show: Show, statistics: Document, recorded: Document) -> None:
    page = show(statistics, statistics)
    assert page.locator("#comparison tbody tr").count() == 24
    change = page.locator("#comparison thead th[data-group=Mean]", has_text="Change").get_attribute("data-c")
    assert set(cells(page, int(change), "comparison")) == {"0.0%"}
    page.locator("#comparison .open").first.click()
    detail = page.locator("#comparison tr.detail")
    assert detail.locator("svg .h0, svg .h1").count() == 2
    assert "Mean, Change" in detail.locator("dt").all_inner_texts()
    page.locator("#comparison thead button", has_text="Change").first.click()
    assert "sorted by Mean, Change, descending" in page.locator("#part-comparison .said").inner_text()
    choose(page, "Mean, Before", "Mean, Now", "Mean, Change", table="comparison")
    assert not page.locator("#comparison th.group", has_text="Mean").is_visible()
    assert "Count, Change" in heads_of(page, "comparison")
    assert page.evaluate("document.documentElement.scrollWidth === innerWidth"), "the table scrolls, not the page"
    both = show(recorded, recorded)
    assert both.locator(".timeline").count() == both.locator(".icicle").count() == 2
    assert both.locator(f"{STAGE} svg path").count() > 4


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "rules"), [("light", ()), ("dark", ("color-contrast",))])
def test_a_checker_of_accessibility_finds_nothing(
    show: Show, statistics: Document, recorded: Document, scheme: str, rules: tuple[str, ...]
) -> None:
    page = show(recorded, recorded, color_scheme=scheme, viewport={"width": 1000, "height": 250})
    assert page.evaluate("(lanes => lanes.scrollHeight > lanes.clientHeight)(document.querySelector('.lanes'))")
    choose(page, "All")
    page.locator("#nodes .open").first.click()
    page.locator("details").first.locator("summary").click()
    page.locator(STAGE).first.focus()
    page.keyboard.press("n")
    page.get_by_label("At least").first.fill("1 ns")
    page.get_by_role("button", name="Sandwich").last.click()
    assert violations(page, *rules) == []
    picture(page, f"recording-{scheme}")
    page = show(statistics, color_scheme=scheme)
    page.locator(".columns summary").click()
    assert violations(page, *rules) == []
    picture(page, f"statistics-{scheme}")
    assert violations(show(Document("Nothing", "statistics"), color_scheme=scheme), *rules) == []


def test_light_and_dark_follow_the_system_or_a_choice(show: Show, statistics: Document) -> None:
    def background(page: Any) -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light, dark = (background(show(statistics, color_scheme=scheme)) for scheme in ("light", "dark"))
    assert light != dark
    page = show(statistics, color_scheme="dark")
    button = page.get_by_role("button", name="Theme")
    button.click()
    assert background(page) == light
    page.reload()
    page.wait_for_function(READY)
    assert (background(page), button.inner_text()) == (light, "Theme: light")
    button.click()
    assert background(page) == dark
    button.click()
    assert button.inner_text() == "Theme: system"


def test_it_prints_in_light_with_all_of_the_timeline(show: Show, recorded: Document) -> None:
    page = show(recorded, color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.querySelector('section')).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    assert not page.get_by_role("button", name="Zoom in").is_visible()
    assert page.locator("#tracks-0").is_visible()
    assert page.locator(".lanes svg").get_attribute("viewBox").startswith("0 0 1000 ")
    assert page.evaluate("""['overview', 'ruler', 'lanes'].map(name => {
        const svg = document.querySelector(`.${name} svg, svg.${name}`), {a} = svg.getScreenCTM();
        return Math.round(1000 * a - svg.clientWidth); })""") == [0, 0, 0], "as wide as the paper"
    assert not page.locator(".timeline .panel").is_visible()
    page.evaluate(WALK, 1)
    assert "Parent" in page.locator(".timeline .panel").inner_text()
    picture(page, "print")
    assert len(page.pdf(format="A4")) > 10_000
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not page.locator("#tracks-0").is_visible()
    assert page.locator(".lanes svg").get_attribute("viewBox") is None


def test_tables_are_printed_across_with_their_heads_on_each_page(show: Show, statistics: Document) -> None:
    page = show(statistics, viewport={"width": 400, "height": 900})
    narrow = heads_of(page)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert len(heads_of(page)) > len(narrow), "paper has more room"
    display = "name => getComputedStyle(document.querySelector(name)).display"
    # A head is repeated with all that is in it but buttons.
    assert page.evaluate(display, "#nodes thead") == "table-header-group"
    assert page.evaluate(display, "#nodes thead .sort") == "contents"
    apart = "name => getComputedStyle(document.querySelector(name)).breakAfter"
    assert [page.evaluate(apart, name) for name in ("h2", ".tools", "#nodes tbody tr")] == ["avoid"] * 3
    before = "getComputedStyle(document.querySelector('#nodes tbody')).breakBefore"
    assert page.evaluate(before) == "avoid", "no head without a row"
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert heads_of(page) == narrow
    (box, *_) = re.findall(rb"/MediaBox \[([\d. ]+)\]", page.pdf(prefer_css_page_size=True))
    left, bottom, right, top = map(float, box.split())
    assert (round(right - left), round(top - bottom)) == (842, 595), "A4 across"


def test_hostile_names_show_as_themselves(show: Show) -> None:
    p = profiler_on()
    with profile() as prof:
        for name in NAMES:
            p.record("train", name, 1.0)
            with cp.record(name):
                pass
    shown = sorted(shown_text("name", name) for name in NAMES)
    page = show(View(p.snapshot(), title="<img src=x onerror=alert(1)>").document)
    page.locator("#part-nodes").get_by_role("button", name=f"Show all {len(NAMES)} rows").click()
    assert sorted(cells(page, 0)) == shown
    page.locator("#nodes thead button").first.click()
    assert sorted(cells(page, 0)) == shown
    assert page.locator("h1").inner_text() == "<img src=x onerror=alert(1)>"
    page = show(View(prof).document)
    assert set(page.evaluate(WALK, len(NAMES))) == {name or "(no name)" for name in shown}


RUN = "window.ran = 1"
HOSTILE = [
    f"<script>{RUN}</script>", f"</script><script>{RUN}</script>", f"</title><script>{RUN}</script>",
    f"javascript:{RUN}", f'"><img src=x onerror="{RUN}">', f"'><svg onload='{RUN}'>",
    f"<a href='javascript:{RUN}'>here</a>",
    f'<iframe srcdoc="<script>parent.{RUN}</script>"></iframe>', f"--><script>{RUN}</script><!--", f"${{{RUN}}}",
    "<style>body { background: url(http://127.0.0.1:9/style) }</style>",
    "red; background: url(http://127.0.0.1:9/value)",
    "</style><link rel=stylesheet href=http://127.0.0.1:9/sheet>", "<base href=http://127.0.0.1:9/>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>", "<form action=http://127.0.0.1:9/><button>x</form>",
]  # fmt: skip
FORBIDDEN = """[...document.querySelectorAll('*')].filter(element =>
    element.matches('iframe, base, form, object, embed, meta[http-equiv=refresh], [href^="javascript:" i]')
    || [...element.attributes].some(each => each.name.startsWith('on'))).map(element => element.outerHTML)"""
INJECTED = """elsewhere => {
    document.body.insertAdjacentHTML('beforeend', `<img src=x onerror="window.ran = 1">
        <svg onload="window.ran = 1"></svg><a id=bad href="javascript:window.ran = 1">x</a>
        <iframe srcdoc="<script>parent.ran = 1</script>"></iframe>
        <p style="background: url(${elsewhere})"></p><img src="${elsewhere}">`);
    const script = document.createElement('script');
    script.textContent = 'window.ran = 1';
    document.body.append(script);
    document.getElementById('bad').click();
    return fetch(elsewhere, {signal: AbortSignal.timeout(2000)}).then(() => 'sent', error => error.name);
}"""


def hostile_trace() -> dict[str, Any]:
    """A trace as somebody else may have written it: every text in it is to run or to fetch something."""
    events: list[dict[str, Any]] = []
    for number, text in enumerate(HOSTILE):
        event = {"ph": "X", "name": text, "cat": text, "ts": 10 * number, "dur": 9, "pid": text, "tid": text}
        events.append(event | {"cname": text, "id": text, "args": {text: text, "stack": text, "Call stack": text}})
        events.append({"ph": "M", "name": "thread_name", "pid": text, "tid": text, "args": {"name": text}})
        events.append({"ph": "M", "name": "process_name", "pid": text, "tid": text, "args": {"name": text}})
        events.append({"ph": "i", "name": text, "ts": 10 * number, "pid": text, "tid": text, "args": {text: [text]}})
    told = {text: text for text in HOSTILE}
    return {"traceEvents": events, "otherData": told, "metadata": told, "displayTimeUnit": HOSTILE[0], **told}


def hostile_statistics() -> bytes:
    p = profiler_on()
    for text in HOSTILE:
        p.record(text, text, 1.0)
    return p.snapshot().to_bytes()


@pytest.mark.parametrize("kind", ["trace", "statistics"])
def test_a_report_of_a_hostile_file_runs_and_fetches_nothing(
    kind: str, chromium: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / f"<img src=x onerror='{RUN}'>.{'json' if kind == 'trace' else 'cprof'}"
    file.write_bytes(json.dumps(hostile_trace()).encode() if kind == "trace" else hostile_statistics())
    assert main.main(["report", str(file), "-o", str(tmp_path / "report.html")]) == 0
    capsys.readouterr()
    context = chromium.new_context(viewport={"width": 1300, "height": 900})
    page, wanted, dialogs = context.new_page(), [], []
    page.on("request", lambda request: wanted.append(request.url))
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    page.goto((tmp_path / "report.html").as_uri())
    page.wait_for_function(READY)
    page.evaluate("() => document.querySelectorAll('button:not([hidden])').forEach(button => button.click())")
    if kind == "trace":
        assert set(page.evaluate(WALK, len(HOSTILE))) <= set(HOSTILE)
    assert page.locator("body").inner_text().count(RUN) >= len(HOSTILE) / 2
    assert page.evaluate("document.querySelectorAll('script').length") == 2
    assert page.evaluate(FORBIDDEN) == []
    assert (dialogs, wanted) == ([], [(tmp_path / "report.html").as_uri()])
    with socket.create_server(
        ("127.0.0.1", 0)
    ) as witness:  # and if there were a hole in that, nothing would come of it
        assert page.evaluate(INJECTED, f"http://127.0.0.1:{witness.getsockname()[1]}/") == "TypeError"
        page.wait_for_timeout(200)
        witness.setblocking(False)
        with pytest.raises(BlockingIOError):
            witness.accept()
    assert page.evaluate("window.ran") is None
    context.close()


def test_a_real_trace_is_shown(show: Show) -> None:
    page = show(View(trace("train_rank0_sampled")).document, color_scheme="dark")
    page.locator(".timeline").get_by_label("Search").fill("nccl")
    page.locator(".timeline").get_by_label("Search").press("Enter")
    assert "nccl" in page.locator(".timeline .chosen-text").inner_text()
    picture(page, "trace-dark")


@pytest.mark.slow
def test_a_hundred_thousand_spans_can_be_read_at_once(show: Show) -> None:
    with profile() as prof:
        for _ in range(10_000):
            with cp.record("batch"):
                for _ in range(9):
                    with cp.record("step"):
                        pass
    page = show(Document("Very many", "recording", timeline=timeline(prof._finished())))
    assert "100,000 spans on 1 thread or stream" in page.locator("#part-timeline .notes").first.inner_text()
    assert "finer than a pixel" in page.locator(".timeline .status").inner_text()
    assert len(page.content().encode()) < 1_000_000
    opened = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    assert 0 < opened < 60_000  # the promise, 3 s, is for python/benchmarks
