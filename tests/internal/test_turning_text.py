"""Names that separate lines or turn the direction of writing: escaped in every view, as in the summary's table."""

from __future__ import annotations

import csv
import io
import json
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
import timing_reports
from calls import profiler_on
from cprofiling._internal.text import shown_text
from cprofiling.analysis.inference_reports import overview
from cprofiling.analysis.timing_reports import timing_table
from cprofiling.commands import main
from cprofiling.integrations.telefuser import profiler as telefuser_profiler
from cprofiling.report.csv import text_of
from cprofiling.report.notebook.cell_profile import CellProfile
from hostile_names import TURNING
from recordings import NODE, RECORD, STEP, Row, host, made

pytestmark = pytest.mark.native

NAME = f"a{TURNING}b"
SHOWN = "a" + "".join(f"\\u{ord(character):04x}" for character in TURNING) + "b"
# What JSON and scripts in a page write for these characters is no character.
RAW = re.compile(f"[{TURNING}]")


def check(text: str, *, least: int = 1) -> None:
    """Check that a view has the name, escaped, and nothing of it as it is."""
    assert not RAW.search(text), ascii(text[max(0, RAW.search(text).start() - 80) :][:160])  # type: ignore[union-attr]
    begin = SHOWN[: SHOWN.index("\\u2028")]  # long names are cut in some tables
    assert text.count(begin) + text.count(begin.replace("\\", "&#92;")) >= least, ascii(text[:2000])


class Image:
    """What has a signature."""

    shape, dtype = (1, 2), "uint8"


@pytest.fixture
def summary() -> cp.ProfilingSummary:
    profiler = profiler_on(skip_first_n=1, by_shape=True, counters=("cpu_time",), memory=True)
    node = profiler.profile_node(id, name=NAME)
    with cp.stage(NAME):
        for _ in range(4):
            node(Image())
    profiler.record(NAME, f"{NAME}2", 5.0)
    profiler.set_graph([(NAME, f"{NAME}2")])
    return profiler.get_profiling_summary()


@pytest.fixture
def recording() -> cp.Recording:
    rows: list[Row] = []
    for at in range(60):
        start, time = 10_000 * at, 6000 if at else 9000
        rows.append(host("step", start, start + 9000, kind=STEP))
        rows.append(host(NAME, start, start + time, kind=NODE, stage=NAME, span=at + 1, stack=f"{NAME}.py(3): {NAME}"))
        rows += [host(NAME, start + 10 * number, start + 10 * number + 9) for number in range(20)]
        rows.append(host(f"{NAME}2", start + time, start + time + 10, kind=NODE, stage=NAME, span=at + 1000))
        rows.append(host(f"{NAME}3", start + time + 20, start + time + 30, kind=RECORD))
    recording: cp.Recording = made(rows)
    return recording


# ---- statistics


def test_the_one_function() -> None:
    assert shown_text("name", NAME) == SHOWN


def test_views_of_statistics(summary: cp.ProfilingSummary) -> None:
    check(str(summary), least=4)
    check(summary._repr_html_(), least=4)
    check(str(summary.shapes))
    for table in (summary.warm_up(), summary.what_if(), summary.frames_per_second()):
        check(str(table))
        check(table._repr_html_())
    check(str(summary.histogram(NAME)))
    check(summary.histogram(NAME)._repr_html_())
    check(summary.to_markdown(), least=4)


@pytest.mark.parametrize("kind", ["text", "md", "html", "csv", "json", "prom"])
def test_files_of_statistics(summary: cp.ProfilingSummary, tmp_path: Path, kind: str) -> None:
    if kind == "html":
        pytest.importorskip("jinja2")
    if kind == "prom":
        pytest.importorskip("prometheus_client")
    profiler = profiler_on()
    profiler.record(NAME, NAME, 5.0)
    profiler.snapshot().save(tmp_path / "file", kind)
    text = (tmp_path / "file").read_text()
    check(text.replace("\\\\u", "\\u") if kind == "prom" else text)
    if kind == "csv":
        names = [row["node_name"] for row in csv.DictReader(io.StringIO(text))]
        assert [text_of(name) for name in names] == [NAME]  # and there is a way back
        for like in (SHOWN, f"\\{SHOWN}", f"\\{NAME}", "\\u0041", "\\u202"):
            profiler.record("like", like, 1.0)
        read = csv.DictReader(io.StringIO(profiler.snapshot().to_csv()))
        assert [text_of(row["node_name"]) for row in read][1:] == [
            SHOWN,
            f"\\{SHOWN}",
            f"\\{NAME}",
            "\\u0041",
            "\\u202",
        ]


# ---- recordings


def test_views_of_recordings(recording: cp.Recording, tmp_path: Path) -> None:
    averages = recording.key_averages(group_by_node=True)
    findings = recording.findings()
    assert findings
    for table in (averages, findings, recording.warm_up(), recording.what_if(), recording.gaps(), recording.summary()):
        check(str(table), least=type(table).__name__ != "Summary")
        check(table._repr_html_(), least=type(table).__name__ != "Summary")
    check(recording._repr_html_())
    check(overview(recording))
    cell = CellProfile(recording, 1.0, failed=False, skip_first_n=0, notes=(NAME,))
    check(repr(cell), least=2)
    check(cell._repr_html_(), least=2)
    recording.export_stacks(tmp_path / "stacks")
    check((tmp_path / "stacks").read_text())


@pytest.mark.parametrize("kind", ["text", "md", "html", "csv", "json"])
def test_files_of_recordings(recording: cp.Recording, tmp_path: Path, kind: str) -> None:
    if kind == "html":
        pytest.importorskip("jinja2")
    recording.save(tmp_path / "file", kind)
    check((tmp_path / "file").read_text())


# ---- commands


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command in a folder of its own, and return what it says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*arguments: str) -> str:
        main.main(list(arguments))
        printed = capsys.readouterr()
        return printed.out + printed.err

    return run


def test_report_compare_and_merge(run: Callable[..., str], recording: cp.Recording) -> None:
    memory = {"memory": timing_reports.MEMORY}
    for place, file in enumerate(("a.json", "b.json")):
        stages = {NAME: timing_reports.stage(9, 5.0 + place, 0.1, **memory)}
        report = timing_reports.ours(stages, rank=place, world_size=2, request_id=NAME, metadata={NAME: NAME})
        report["process"] = {"host": NAME, "pid": place, "id": f"00f{place}"}
        report["memory"] = {
            "peak_allocated_mb": 1.0,
            "peak_reserved_mb": 1.0,
            "snapshots": {NAME: timing_reports.MEMORY},
        }
        Path(file).write_text(json.dumps(report))
    for name in ("a", "b"):
        profiler = profiler_on()
        profiler.record(NAME, NAME, 5.0)
        Path(f"{name}.cprof").write_bytes(profiler.snapshot().to_bytes())
    recording.export_chrome_trace("trace.json")
    for kind in ("text", "md"):
        check(run("compare", "--format", kind, "a.json", "b.json"))
        for file in ("a.json", "a.cprof", "trace.json"):
            check(run("report", "-r", kind, file))
        check(run("report", "-r", kind, "a.cprof", "--against", "b.cprof"))
    check(run("merge", "a.json", "b.json"))
    check(run("merge", "a.cprof", "b.cprof"))


def test_top(run: Callable[..., str]) -> None:
    profiler = profiler_on(live="live.cprof")
    profiler.record(NAME, NAME, 1.5)
    profiler.set_profiling(False)
    check(run("top", "live.cprof"), least=2)
    check(run("top", "live.cprof", "--stage", NAME + "x"))
    check(run("top", "live.cprof", "-n", NAME + "x"))


def test_harness(run: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("cprofiling")
    monkeypatch.setattr(logger, "handlers", [logging.NullHandler()])
    Path("turning_factory.py").write_text(
        f"class Stage:\n    def process(self, **inputs):\n        return {NAME!r}\n\ndef stage():\n    return Stage()\n"
    )
    signature = {"stage_name": NAME, "input_signatures": {"image": NAME, NAME: NAME}, "output_signature": NAME}
    Path("sig.json").write_text(json.dumps({"schema_version": 1, "stages": {NAME: signature}}))
    check(run("harness", "--signature", "sig.json", "--list"), least=2)
    wrong = run("harness", "--signature", "sig.json", "--stage", "x", "--factory", "turning_factory:stage")
    assert not RAW.search(wrong)
    done = run(
        "harness",
        "--signature",
        "sig.json",
        "--stage",
        NAME,
        "--factory",
        "turning_factory:stage",
        "--output-dir",
        "out",
    )
    assert not RAW.search(done)
    for path in Path("out").rglob("*.py"):
        assert not RAW.search(path.read_text())


# ---- stages, and others


def test_timing_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stages = {NAME: timing_reports.stage(9, 5.0, 0.1, memory=timing_reports.MEMORY)}
    memory = {"snapshots": {NAME: timing_reports.MEMORY}}
    report: dict[str, Any] = timing_reports.ours(stages, request_id=NAME, memory=memory)
    check(timing_table(report), least=3)
    Path("a.json").write_text(json.dumps(report))
    check(telefuser_profiler.compare_timing_reports("a.json", "a.json"))


def test_measurements() -> None:
    def function() -> None: ...

    function.__name__ = function.__qualname__ = NAME
    measured = cp.measure(function, repeat=30)
    check(str(measured))
    check(measured._repr_html_())
