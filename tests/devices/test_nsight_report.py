"""Reports of ncu: every layout gives the same kernels, and damage a message that says where."""

from __future__ import annotations

import copy
import io
import math
import os
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cprofiling as cp
import ncu_samples as samples
from bare_path import bare_path
from cprofiling.commands import main
from cprofiling.devices.nsight import reader as ncu_reader
from cprofiling.devices.nsight.kernels import NcuKernel, NcuReport
from cprofiling.devices.nsight.metrics import Metrics, Texts
from ncu_samples import KERNELS, LAYOUTS, Kernel

Layout = Callable[[Sequence[Kernel]], str]
EXPORT = "export it with: LC_ALL=C ncu --import FILE --csv --page raw --print-units base"
WHERE = r"sample: line \d+, column \d+: "
HEADER = '"ID","Kernel Name","gpu__time_duration.sum","dram__bytes.sum"\n'
UNITS = '"","","ns","byte"\n'


def read(data: str | bytes) -> NcuReport:
    return ncu_reader.read(io.BytesIO(data.encode() if isinstance(data, str) else data), "sample")


def refusal(data: str | bytes) -> str:
    """What is said of a file that is none."""
    with pytest.raises(cp.FormatError, match=WHERE) as refused:
        read(data)
    return str(refused.value).removeprefix("sample: ")


def values(*cells: str, name: str = "some__metric.sum", unit: str = "") -> list[float | None]:
    """How the cells of one column are read."""
    lines: list[list[object]] = [
        ["ID", "Kernel Name", name],
        ["", "", unit],
        *([place, "k", cell] for place, cell in enumerate(cells)),
    ]
    return [next(iter(kernel.metrics.values())) for kernel in read(samples.table(lines))]


@pytest.fixture
def without_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    return bare_path(monkeypatch, tmp_path)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_every_layout_gives_the_kernels_and_their_verdicts(layout: Layout, tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    path.write_bytes(layout(KERNELS).encode())
    report = cp.analyze_ncu_report(path)
    assert [(each.name, each.verdict, each.limiter) for each in report] == [
        (each.name, each.verdict, each.limiter) for each in KERNELS
    ]
    assert [each.at_limit for each in report] == [True, True, False, False]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_every_layout_gives_the_same_figures_in_base_units(layout: Layout) -> None:
    report = read(layout(KERNELS))
    for found, meant in zip(report, KERNELS, strict=True):
        assert found.grid in (meant.grid, None)
        for name in found.metrics.keys() & meant.values.keys():
            assert found.metrics[name] == pytest.approx(
                round(meant.values[name], 2) * 10 ** samples.POWERS.get(name, 0)
            )
        assert found.duration_ns == pytest.approx(meant.values[samples.DURATION] * 1000)
        assert len(found.metrics.keys() & meant.values.keys()) >= len(meant.values) - 1
    assert report.units[samples.DURATION] == "ns"
    assert report.units[samples.RATE] == "byte/s"
    assert report.units[samples.CLOCK] == "Hz"
    assert report.units[samples.COMPUTE] == "%"


def test_what_a_report_says_of_its_kernels() -> None:
    first = read(samples.raw())[0]
    assert (first.id, first.process_id, first.process_name, first.host) == (0, 77, "python3.11", "127.0.0.1")
    assert (first.device, first.capability, first.context, first.stream) == (0, "9.0", 1, 7)
    assert (first.block, first.grid, first.invocations, first.blocks) == ((256, 1, 1), (1024, 27, 1), 1, 27648)
    assert first.texts == {"launch__func_cache_config": "CachePreferNone"}
    assert first.metrics["launch__func_cache_config"] is None
    assert first.metrics["n/a__metric.sum"] is None
    rich = read(samples.details_rich())[0]
    assert rich.ranges == ("<default domain>:cprofiling:encoder:none",)
    assert rich.rules == (samples.HINT,)
    assert [each.invocations for each in read(samples.summary())] == [3] * 4


def test_metrics_are_known_by_id_and_by_label() -> None:
    for layout in (samples.raw, samples.details):
        metrics = read(layout())[0].metrics
        assert metrics["Compute (SM) Throughput"] == metrics[samples.COMPUTE] == 12.41
        assert metrics["Memory Throughput"] == 83.27
        assert "Duration" in metrics
        assert "No Such Label" not in metrics
        assert len(metrics) == len(set(metrics)) > 9
        assert "Duration" not in set(metrics)
        assert metrics.get(5) is None  # type: ignore[call-overload]
    with pytest.raises(KeyError, match="nothing"):
        metrics["nothing"]


def test_reports_are_immutable_values() -> None:
    report, same = read(samples.raw()), read(samples.raw())
    assert report == same
    assert hash(report) == hash(same)
    assert len({report[0], same[0], report[1]}) == 2
    for made in (pickle.loads(pickle.dumps(report)), copy.deepcopy(report), copy.copy(report)):
        assert made == report
        assert made[2].texts == report[2].texts
    assert repr(report) == "<NcuReport: 4 kernels>"
    assert report[1:3] == report.kernels[1:3]
    assert report.index(report[2]) == 2
    for owner, name in ((report, "kernels"), (report[0], "name")):
        with pytest.raises(AttributeError):
            setattr(owner, name, None)
    with pytest.raises(TypeError):
        report[0].metrics["x"] = 1.0  # type: ignore[index]
    with pytest.raises(TypeError):
        report[0].texts["x"] = ""  # type: ignore[index]
    assert repr(Metrics({"a": 0}, [1.5])) == "Metrics({'a': 1.5})"
    assert repr(Texts({"a": "b"})) == "Texts({'a': 'b'})"
    assert len(Texts({"a": "b"})) == 1


def test_a_report_prints_itself_as_a_table() -> None:
    text = str(read(samples.raw_between_lines()))
    lines = text.splitlines()
    assert ["memory_bound" in line for line in lines[3:7]] == [True, False, False, False]
    assert "scan<int>(int const*,\\nint*)" in lines[5]
    assert lines[8].startswith("compute_bound: At its limit. ")
    assert lines[9:11] == [line for line in lines if line.startswith(("latency_bound: ", "memory_bound: "))]
    assert lines[-1] == "1 line is not of the table, and left out."


def test_a_report_shows_itself_in_notebooks_escaped() -> None:
    shown = read(samples.raw())._repr_html_()
    assert "void scale&lt;float, 4&gt;(float *, int, &quot;a, b&quot;)" in shown
    assert "scale<float" not in shown
    assert "compute_bound: At its limit." in shown


def test_kernels_of_one_name_are_one_line() -> None:
    twice = (KERNELS[0], KERNELS[1], KERNELS[0])
    averages = read(samples.raw(twice)).by_kernel()
    assert [(each.name, each.count, each.verdict, each.at_limit) for each in averages] == [
        (KERNELS[1].name, 1, "compute_bound", True),
        (KERNELS[0].name, 2, "memory_bound", True),
    ]
    assert averages[1].total_us == pytest.approx(70.5)
    assert averages[1].mean_us == pytest.approx(35.25)
    assert averages[1].share_percent == pytest.approx(100 * 70.5 / (70.5 + 1234.5))
    assert averages[1].limiter == KERNELS[0].limiter
    assert "memory_bound" in str(averages)
    assert read(samples.summary(twice[:2])).by_kernel()[1].count == 3


def test_averages_of_kernels_whose_time_is_not_known() -> None:
    report = read(HEADER + UNITS + '"0","k","n/a","5"\n"1","k","1500","5"\n')
    (average,) = report.by_kernel()
    assert (average.count, average.total_us, average.mean_us, average.share_percent) == (2, None, None, None)
    assert average.verdict is None
    assert NcuReport(()).by_kernel() == []
    assert str(NcuReport(())).count("\n") == 3


def test_a_dataframe_has_the_table_and_all_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = ModuleType("pandas")
    pandas.DataFrame = lambda rows, columns: SimpleNamespace(rows=rows, columns=columns)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    frame = read(samples.raw()).to_pandas()
    assert frame.columns[:2] == ["kernel", "duration_us"]
    assert samples.BYTES in frame.columns
    assert [dict(zip(frame.columns, row, strict=True))["verdict"] for row in frame.rows] == [
        each.verdict for each in KERNELS
    ]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_file_cut_at_any_byte_is_a_report_or_refused_with_line_and_column(layout: Layout) -> None:
    """Failure scenario I9."""
    few = [Kernel(each.name, "", "", each.grid, dict(list(each.values.items())[:3])) for each in KERNELS[1:3]]
    data = layout(few if "details" not in layout.__name__ else KERNELS[2:3]).encode()
    whole = read(data)
    outcomes = set()
    for size in range(len(data)):
        try:
            report = read(data[:size])
        except cp.FormatError as error:
            text = str(error)
            place = text.removeprefix("sample: line ").split(":", 1)[0].split(", column ")
            lines = data[:size].decode("utf-8", "replace").split("\n")
            assert 1 <= int(place[0]) <= len(lines), text
            assert 1 <= int(place[1]) <= len(lines[int(place[0]) - 1]) + 1, text
            outcomes.add("refused")
        else:
            outcomes.add("read")
            assert [each.name for each in report] == [each.name for each in whole[: len(report)]]
            assert len(report) > 0
    assert outcomes == {"refused", "read"}


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_file_of_anything_is_a_report_or_refused(data: st.DataObject) -> None:
    """Failure scenario I9: bytes that are changed, left out or put in."""
    layout = data.draw(st.sampled_from(list(LAYOUTS.values())))
    changed = bytearray(layout(KERNELS[1:3]).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(changed)))
        changed[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        report = read(bytes(changed))
    except cp.FormatError as error:
        assert str(error).startswith("sample: line ")  # noqa: PT017 it may be a report as well
    else:
        str(report), report._repr_html_(), report.by_kernel(), [each.arithmetic_intensity for each in report]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ("", 'line 1, column 1: no header was found, a line with "ID" and "Kernel Name" as ncu --csv prints it'),
        ("a\nbc\n", "line 2, column 3: no header"),
        (b"\x7fELF\x00\x00\xff\n" * 3, "line 3, column 8: no header"),
        ("==ERROR== No permission\nx\n", "line 2, column 2: no header was found, a line with "),
        (HEADER, "line 1, column 62: the file ends behind the header, without any kernel"),
        (HEADER + '"","","ns","byte"\n==PROF== end\n', "line 2, column 18: the file ends behind the header"),
        (HEADER + '"0","k","1"\n', "line 2, column 12: the line has 3 cells, the header 4: it is cut or damaged"),
        (HEADER + '"0","k","1","2","3"\n', "line 2, column 17: the line has 5 cells, the header 4"),
        (HEADER + '"0","k\n\n","1","2\n', "line 4, column 7: the line is cut or damaged: unexpected end of data"),
        (HEADER + '"0","k"x,"1","2"\n', "line 2, column 5: the line is cut or damaged: "),
        (HEADER + UNITS + '"0","k","1,234","2"\n', f"line 3, column 9: '1,234' is a number of some locale: {EXPORT}"),
        (HEADER + UNITS + '"0","k","1.5","1 000,5"\n', "line 3, column 15: '1 000,5' is a number of some locale: "),
        (HEADER + UNITS.replace("ns", "us") + '"0","k","5","2"\n',
         f"line 3, column 9: \"gpu__time_duration.sum\" is in 'us', not in ns: {EXPORT}"),
        (HEADER + '"0","k","5","2"\n', 'line 2, column 9: "gpu__time_duration.sum" is without a unit, not in ns: '),
        (HEADER + '"0","k","abc","2"\n', "line 2, column 9: \"gpu__time_duration.sum\" must be a number, got 'abc'"),
        (HEADER.encode() + b'"0","\xc3\xa9\xff","1","2"\n', "line 2, column 7: byte 0xff is not UTF-8"),
        (HEADER + f'"0","{"k" * 200_000}","1","2"\n', "line 2, column 1: the line is cut or damaged: field larger"),
        ('"ID","Kernel Name","Metric Name"\n', 'line 1, column 33: the header has "Metric Name", but neither'),
    ],
)  # fmt: skip
def test_what_is_no_report_is_refused_with_line_and_column(data: str | bytes, complaint: str) -> None:
    if '"Metric Name"\n' in str(data):
        data = str(data) + '"0","k","Duration"\n'
        complaint = complaint.replace("line 1, column 33", "line 2, column 19")
    assert refusal(data).startswith(complaint)


def test_what_ncu_itself_says_is_passed_on() -> None:
    assert refusal("==ERROR== No permission\nx\n").endswith("; ncu says: ==ERROR== No permission")
    assert refusal("==WARNING== No kernels were profiled.\n").endswith(
        "ncu says: ==WARNING== No kernels were profiled."
    )
    assert refusal("==WARNING== No kernels found\n" + HEADER).endswith(
        "without any kernel; ncu says: ==WARNING== No kernels found"
    )


def test_a_file_that_may_be_cut_between_two_lines_says_so() -> None:
    text = samples.details()
    assert read(text).notes == ()
    assert read(text.removesuffix("\n")).notes == ("The last line of the file has no end: there may have been more.",)


def test_tables_one_after_the_other_are_one_report() -> None:
    report = read(samples.raw(KERNELS[:1]) + SUFFIX_OF_A_RUN + samples.details(KERNELS[1:2]) + samples.raw(KERNELS[3:]))
    assert sorted(each.verdict or "" for each in report) == ["compute_bound", "launch_bound", "memory_bound"]


SUFFIX_OF_A_RUN = samples.SUFFIX + "\n"


@pytest.mark.parametrize(
    ("cell", "value"),
    [("5", 5), ("1.5", 1.5), ("-2e3", -2000), ("7 (1; 2; 4)", 7), ("", None), ("n/a", None), ("(!) n/a", None),
     ("1e999", None), ("nan", None), ("CachePreferNone", None)],
)  # fmt: skip
def test_numbers(cell: str, value: float | None) -> None:
    assert values(cell) == [value]


@pytest.mark.parametrize(
    ("unit", "base"),
    [("nsecond", "ns"), ("cycle/second", "Hz"), ("byte/second", "byte/s"), ("percent", "%"), ("furlong", "furlong")],
)
def test_units_have_one_name(unit: str, base: str) -> None:
    report = read(samples.table([["ID", "Kernel Name", "some__metric.sum"], ["", "", unit], ["0", "k", "5"]]))
    assert (report[0].metrics["some__metric.sum"], report.units["some__metric.sum"]) == (5, base)


def test_lines_may_lack_the_columns_of_rules_at_their_end() -> None:
    head = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Description"\n'
    report = read(
        head + '"0","k","Duration","ns","1500000"\n"0","k","","","","Hint","Do this."\n"0","k","Duration","ns","9"\n'
    )
    assert (report[0].duration_ns, report[0].rules) == (1_500_000, ("Do this.",))
    assert "has 5 cells, the header 7" in refusal(head + '"0","k","Duration","ns","1.5"')
    assert "has 4 cells, the header 7" in refusal(head + '"0","k","Duration","ns"\n')


def test_memory_and_time_grow_with_the_file() -> None:
    """Failure scenario I9; a report of 3,000 kernels takes less than four times its size."""
    import tracemalloc

    line = samples.raw(KERNELS[:1]).split("\n", 2)
    data = ("\n".join(line[:2]) + "\n" + line[2] * 3_000).encode()
    tracemalloc.start()
    try:
        report = ncu_reader.read(io.BytesIO(data), "sample")
        assert tracemalloc.get_traced_memory()[1] < 4 * len(data)
    finally:
        tracemalloc.stop()
    assert len(report) == 3_000


@pytest.mark.parametrize(
    ("path", "options", "error", "message"),
    [
        *((path, {}, TypeError, "path must be a path") for path in (5, None, 1.5, [1])),
        *((path, {}, ValueError, "path must not") for path in ("", "a\0b")),
        *(("/", {"timeout_s": value}, ValueError, "above 0") for value in (0, -1, math.nan, math.inf, 1e10)),
        *(("/", {"timeout_s": value}, TypeError, "timeout_s must be a number") for value in (True, "5", None)),
    ],
)
def test_wrong_arguments(path: Any, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        cp.analyze_ncu_report(path, **options)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        cp.analyze_ncu_report(tmp_path / "none.csv")
    with pytest.raises(FileNotFoundError, match="No such file"):
        cp.analyze_ncu_report(tmp_path / "none.ncu-rep")
    with pytest.raises(IsADirectoryError):
        cp.analyze_ncu_report(tmp_path)


def tool(folder: Path, script: str) -> None:
    path = folder / "ncu"
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o700)


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    path = tmp_path / "-a b.NCU-REP"
    path.write_bytes(b"\0binary")
    return path


def test_a_report_of_ncu_own_format_goes_through_ncu(
    binary: Path, without_tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (without_tools / "output").write_text(samples.raw_between_lines())
    tool(
        without_tools, f'printf "%s|" "$@" "$LC_ALL" >{without_tools}/arguments\nexec /bin/cat {without_tools}/output\n'
    )
    monkeypatch.chdir(binary.parent)
    assert [each.verdict for each in cp.analyze_ncu_report(binary.name)] == [each.verdict for each in KERNELS]
    assert (without_tools / "arguments").read_text() == f"--import|{binary}|--csv|--page|raw|--print-units|base|C|"


def test_without_ncu_its_own_format_cannot_be_read(binary: Path, without_tools: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"ncu is needed to read .*: ncu was not found on PATH.*install Nsight"):
        cp.analyze_ncu_report(binary)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (
            "echo '==ERROR== bad\nfile' >&2; exit 3",
            r"ncu cannot read it \(exit status 3\), and says: ==ERROR== bad file$",
        ),
        ("echo '==ERROR== worse'; exit 1", r"\(exit status 1\), and says: ==ERROR== worse$"),
        ("exit 9", r"\(exit status 9\), and says: nothing$"),
        ("echo '==ERROR== odd'", r"^what ncu prints of .*: line 1, column 14: no header .*; ncu says: ==ERROR== odd$"),
    ],
)
def test_what_ncu_cannot_read(script: str, says: str, binary: Path, without_tools: Path) -> None:
    tool(without_tools, script)
    with pytest.raises(cp.FormatError, match=says):
        cp.analyze_ncu_report(binary)


def test_an_ncu_that_hangs_is_ended(binary: Path, without_tools: Path) -> None:
    tool(without_tools, "exec /bin/sleep 60")
    begin = time.monotonic()
    with pytest.raises(TimeoutError, match=r"ncu took more than 0\.2 s to read "):
        cp.analyze_ncu_report(binary, timeout_s=0.2)
    assert time.monotonic() - begin < 50


def test_the_command_prints_the_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.csv"
    path.write_text(samples.details())
    assert main.main(["ncu", "--analyze", str(path)]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out == f"{cp.analyze_ncu_report(path)}\n"


def test_the_command_says_why_it_prints_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "re\nport.csv"
    assert main.main(["ncu", "--analyze", str(path)]) == 1
    path.write_text("x")
    assert main.main(["ncu", "--analyze", str(path)]) == 1
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert printed.out == ""
    assert [line.startswith("cprofiling: ") for line in lines] == [True, True]
    assert "No such file" in lines[0]
    assert "re\\nport.csv: line 1, column 2: no header" in lines[1]


def test_a_pipe_is_a_file_too(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, samples.raw(KERNELS[:1]).encode())
    os.close(writer)
    try:
        assert len(cp.analyze_ncu_report(f"/dev/fd/{reader}")) == 1
    finally:
        os.close(reader)


def test_what_a_kernel_does_not_say_is_none() -> None:
    bare = NcuKernel("k", Metrics({}, []))
    assert bare.row() == ("k", *[None] * 9)
    assert (bare.flops, bare.dram_bytes, bare.arithmetic_intensity, bare.blocks) == (None, None, None, None)
    assert bare.reason is not None
    assert "Profile with ncu" in bare.recommendation
