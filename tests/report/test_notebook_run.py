"""Notebooks as they are used: run by a kernel, exported, and shown by a real browser."""

from __future__ import annotations

import base64
import copy
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cprofiling
from browser import chromium
from fragments import parsed

nbformat: Any = pytest.importorskip("nbformat")
nbclient: Any = pytest.importorskip("nbclient")
nbconvert: Any = pytest.importorskip("nbconvert")
pytest.importorskip("ipykernel")

EXAMPLE = Path(__file__).resolve().parents[2] / "python" / "examples" / "notebook.ipynb"
PLAIN = [
    "%load_ext cprofiling\nimport cprofiling as cp, sys\nsys.modules['matplotlib'] = None  # as if it were not there",
    "profiler = cp.Profiler()  # off\n@profiler.profile_node(name='<i>node</i>')\ndef work(): pass\n"
    "for _ in range(5): work()\nprofiler.get_profiling_summary()",
    "%%cprofiling -o cell\nfor _ in range(7): work()",
    "%%cprofiling\nimport asyncio\nawait asyncio.sleep(0)\nwork()\nraise RuntimeError('as ever')",
    "profiler.snapshot()",
    "cell.recording.findings()",
    "cell.summary.plot()",
    "profiler.get_profiling_summary().plot()",
    "cell.recording.plot()",
    "cell.summary.histogram('<i>node</i>').plot()",
    "cell.summary.histogram('<i>node</i>')",
    "import time\nclass Slow:\n    mode = 'wb'\n    def write(self, piece): time.sleep(1.1)\n"
    "cell.recording.export_chrome_trace(file=Slow())\n"
    "with cp.profile(operators=False) as prof:\n    with cp.record('short'): pass\n"
    "    with cp.record('long'): time.sleep(0.01)\nprof",
]


def run(notebook: Any, home: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    """Run a notebook in a kernel that finds this package and no settings of the user's."""
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(name, str(home / name))
    package = str(Path(cprofiling.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    nbclient.NotebookClient(notebook, timeout=150, kernel_name="python3", **options).execute()
    return notebook


@pytest.fixture(scope="module")
def patches() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patches:
        yield patches


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory, patches: pytest.MonkeyPatch) -> Any:
    for package in ("sklearn", "matplotlib", "tqdm"):
        pytest.importorskip(package)
    return run(nbformat.read(EXAMPLE, 4), tmp_path_factory.mktemp("example"), patches)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, patches: pytest.MonkeyPatch) -> Any:
    cells = [nbformat.v4.new_code_cell(source) for source in PLAIN]
    return run(nbformat.v4.new_notebook(cells=cells), tmp_path_factory.mktemp("plain"), patches, allow_errors=True)


def outputs(cell: Any, kind: str) -> list[str]:
    """What a cell shows of a kind."""
    return [output.data[kind] for output in cell.outputs if "data" in output and kind in output.data]


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_the_example_has_no_outputs() -> None:
    notebook = nbformat.read(EXAMPLE, 4)
    nbformat.validate(notebook)
    assert all((cell.outputs, cell.execution_count) == ([], None) for cell in code_cells(notebook))


@pytest.mark.slow
def test_the_example_shows_tables_and_pictures(example: Any) -> None:
    cells = code_cells(example)
    tables = [html for cell in cells for html in outputs(cell, "text/html")]
    assert len(tables) == 4
    assert all("<table>" in table for table in tables)
    assert all(node in tables[0] for node in ("distances", "vote", "standardise", "skip_first_n=1"))
    assert "distances_by_scipy" in tables[1]
    assert "euclidean_distances" in tables[2]
    assert re.search(r"<td>224</td>", tables[3])
    pictures = [base64.b64decode(png) for cell in cells for png in outputs(cell, "image/png")]
    assert len(pictures) == 4
    assert all(picture.startswith(b"\x89PNG") for picture in pictures)
    shown = [text for cell in cells for text in outputs(cell, "text/plain") if "read correctly" in text]
    assert float(shown[0].strip("'").partition("%")[0]) > 95
    streams = "".join(output.text for cell in cells for output in cell.outputs if output.output_type == "stream")
    assert "225/225" in streams
    assert "Warning" not in streams


def test_with_profiling_off_and_without_extras(plain: Any) -> None:
    off, cell, failed, snapshot, findings, *plots, histogram, recorded = code_cells(plain)[1:]
    for empty in (off, snapshot):
        assert outputs(empty, "text/html")[0].startswith("<p>No profiling data collected.</p>")
    (table,) = outputs(cell, "text/html")
    assert "&lt;i&gt;node&lt;/i&gt;" in table
    assert "<td>7</td>" in table
    shown, error = failed.outputs
    assert "until an exception ended it" in shown.data["text/html"]
    assert (error.ename, error.evalue) == ("RuntimeError", "as ever")
    assert not any("cprofiling/" in line for line in error.traceback)
    assert "Findings" in outputs(findings, "text/html")[0]
    for plot in plots:
        (error,) = plot.outputs
        assert error.ename == "ImportError"
        assert 'pip install "cprofiling[plot]"' in error.evalue
    assert "&lt;i&gt;node&lt;/i&gt;: 7 samples\n" in outputs(histogram, "text/html")[0]
    averages = parsed(outputs(recorded, "text/html")[0])
    assert [output.name for output in recorded.outputs if "writing: 0.0 MB" in output.get("text", "")] == ["stderr"]
    assert (averages.texts["caption"], averages.column("Name")) == ("Averages by name", ["long", "short"])


@pytest.mark.slow
def test_a_wide_and_long_table_scrolls_and_unfolds() -> None:
    api: Any = pytest.importorskip("playwright.sync_api")
    executable = chromium()
    if executable is None:
        pytest.skip("not on PATH: chromium")
    profiler = cprofiling.Profiler()
    profiler.set_profiling(True)
    for number in range(30):
        profiler.record("inference", f"node {number}", 1.0 + number)
    table = profiler.get_profiling_summary()._repr_html_()
    assert table is not None
    fade = "getComputedStyle(document.querySelector('.cprofiling-scroll')).maskImage"
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 400, "height": 900})
        page.set_content(f"<!DOCTYPE html><body>{table}</body>")
        rows = page.locator("tbody tr")
        assert (rows.count(), sum(row.is_visible() for row in rows.all())) == (30, 20)
        page.get_by_text("Show 10 more rows").click()
        assert all(row.is_visible() for row in rows.all())
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        for place, fading in (("0", "to left"), ("100", "0.133.*0.133"), ("1e6", "to right")):
            page.evaluate(f"document.querySelector('.cprofiling-scroll').scrollLeft = {place}")
            page.wait_for_function(f"{fade}.match('{fading}')")
        page.set_viewport_size({"width": 1680, "height": 900})
        page.wait_for_function(f"{fade} == 'none'")
        browser.close()


def exported(notebook: Any, path: Path, theme: str) -> Path:
    """The notebook as a page."""
    html, _ = nbconvert.HTMLExporter(theme=theme).from_notebook_node(copy.deepcopy(notebook))
    path.write_text(html, encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_browser_shows_it_all(example: Any, plain: Any, tmp_path: Path, theme: str) -> None:
    api: Any = pytest.importorskip("playwright.sync_api")
    executable = chromium()
    if executable is None:
        pytest.skip("not on PATH: chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(color_scheme=theme, viewport={"width": 1400, "height": 900})
        page.route(re.compile("^https?:"), lambda route: route.abort())  # what nbconvert's own template asks for
        page.goto(exported(example, tmp_path / "example.html", theme).as_uri())
        tables = page.locator(".cprofiling-table table")
        assert tables.count() == 4
        assert all(tables.nth(place).is_visible() for place in range(4))
        assert "distances" in tables.first.inner_text()
        sizes = page.eval_on_selector_all("img", "images => images.map(each => [each.naturalWidth, each.width])")
        assert len(sizes) == 4
        assert all(0 < shown <= natural for natural, shown in sizes)
        text, paper = page.evaluate(
            "[getComputedStyle(document.querySelector('.cprofiling-table td')).color,"
            " getComputedStyle(document.body).backgroundColor].map(each => each.match(/\\d+/g).slice(0, 3).map(Number))"
        )
        assert abs(sum(text) - sum(paper)) > 400, "the table can be read on this paper"
        page.goto(exported(plain, tmp_path / "plain.html", theme).as_uri())
        shown = page.inner_text("body")
        assert shown.count("No profiling data collected.") == 2
        assert shown.count('pip install "cprofiling[plot]"') == 4
        assert "7 samples" in page.locator("pre", has_text="samples").last.inner_text()
        assert "<i>node</i>" in page.locator(".cprofiling-table table").first.inner_text()
        browser.close()
