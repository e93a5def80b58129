"""Timing reports from files: ours, telefuser's, and damaged ones (failure scenarios I9, I10, I12, F3)."""

from __future__ import annotations

import copy
import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
from cprofiling._internal import json_input
from cprofiling.analysis.timing_reports import checked_timing_report, load_timing_report, timing_table
from timing_reports import MERGED, OURS, PEERS

SCHEMA = Path(cp.__file__).parent / "schemas" / "timing.schema.json"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tim\ning.json"


def refusal(path: Path, content: str | bytes) -> str:
    """What is said of a file."""
    path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
    with pytest.raises(cp.FormatError) as refused:
        load_timing_report(path)
    message = str(refused.value)
    shown = str(path).replace("\n", "\\n")
    assert message.startswith(f"{shown}: ")
    assert "\n" not in message
    return message.removeprefix(f"{shown}: ")


@pytest.mark.parametrize(
    "report", [OURS, PEERS, MERGED, {"stages": {}}], ids=["ours", "telefuser's", "merged", "the least"]
)
def test_reports_are_read_as_they_are(report: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(report))
    assert load_timing_report(path) == report
    assert load_timing_report(str(path)) == report
    assert checked_timing_report(report, "new") == report


def test_names_of_any_text_are_kept(path: Path) -> None:
    names = ["", "a b", "\ud800", "\0", "x" * 10_000, "\u202e", "🧑‍🚀", "$.stages"]
    report = {"stages": {name: {"duration_ms": 1} for name in names}}
    path.write_text(json.dumps(report))
    assert list(load_timing_report(path)["stages"]) == names


def test_every_cut_of_a_file_is_refused(path: Path) -> None:
    whole = json.dumps(OURS)
    for end in range(0, len(whole), 7):
        refusal(path, whole[:end])


def test_a_changed_bit_never_does_more_than_change_a_value_or_be_refused(path: Path) -> None:
    whole = json.dumps(PEERS).encode()
    refused = 0
    for place in range(len(whole)):
        path.write_bytes(bytes((*whole[:place], whole[place] ^ 1 << place % 8, *whole[place + 1 :])))
        try:
            assert load_timing_report(path).keys() >= {"stages"}
        except cp.FormatError:
            refused += 1
    assert len(whole) // 4 < refused < len(whole)


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"stages":'])
def test_deep_nesting_is_refused(opening: str, path: Path) -> None:
    assert "nested more than 100 levels deep" in refusal(path, opening * 10**6)


def test_nesting_up_to_the_limit_is_fine(path: Path) -> None:
    deep: Any = "[{" * 200  # brackets in texts are none
    for _ in range(json_input.DEEPEST - 1):
        deep = {'"\\': deep}
    path.write_text(json.dumps({"stages": {}, "metadata": deep}))
    assert load_timing_report(path)["metadata"] == deep
    assert "byte " in refusal(path, json.dumps({"stages": {}, "metadata": [deep]}))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "Expecting value: line 1 column 1 (char 0)"),
        ("nonsense", "Expecting value"),
        (b"\xff\xfe{", "can't decode byte 0xff in position 0"),
        ('{"stages": {}', "delimiter: line 1 column 14"),
        ('{"stages": {}} x', "Extra data"),
        ('{"stages": {"a": "\n"}}', "Invalid control character at"),
        ('{"stages": {"\\', "Unterminated string"),
        ("[]", "$: a timing report is an object, got [] (list)"),
        ("NaN", "$: the number is not finite"),
        ('{"stages": {}, "stages": {}}', "$.stages: the key is there twice"),
        ('{"stages": {"a b": {"duration_ms": 1, "x": [{"y": 1, "z": 0, "y": 2}]}}}', '$.stages["a b"].x[0].y: the key'),
        ('{"stages": {"a": {"duration_ms": NaN}}}', "$.stages.a.duration_ms: the number is not finite"),
        ('{"stages": {"a": {"duration_ms": -Infinity}}}', "$.stages.a.duration_ms: the number is not finite"),
        ('{"stages": {}, "metadata": [0, 1e999]}', "$.metadata[1]: the number is not finite, or too large"),
        ('{"stages": {}, "metadata": ' + "9" * 10**6 + "}", "$.metadata: the number is not finite, or too large"),
        ('{"stages": {}, "schema_version": 2}', "$.schema_version: this version of cprofiling reads version 1, got 2"),
        ('{"stages": {}, "schema_version": true}', "got True (bool)"),
        ('{"stages": {}, "schema_version": null}', "got None"),
        ('{"stages": {}, "schema_version": 1}', "$.request_id: it is missing"),
        ("{}", "$.stages: it is missing"),
        ('{"stages": []}', "$.stages: must be an object, got [] (list)"),
        ('{"stages": {"\\ud800": 1}}', '$.stages["\\ud800"]: must be an object'),
        ('{"stages": {"' + "x" * 99 + '": 1}}', '$.stages["' + "x" * 77 + '..."]: must be an object'),
        ('{"stages": {"a": {}}}', "$.stages.a.duration_ms: it is missing"),
        ('{"stages": {"a": {"duration_ms": "1\\n"}}}', "must be a number from 0 to 1e+18, got '1\\n' (str)"),
        ('{"stages": {"a": {"duration_ms": true}}}', "got True (bool)"),
        ('{"stages": {"a": {"duration_ms": -0.5}}}', "$.stages.a.duration_ms: must be a number from 0"),
        ('{"stages": {"a": {"duration_ms": 1e19}}}', "must be a number from 0 to 1e+18"),
        ('{"stages": {"a": {"duration_ms": null}}}', "must be a number"),
        ('{"stages": {"a": {"duration_ms": 1, "count": 9223372036854775808}}}', "must be a whole number from 0 to 922"),
        ('{"stages": {"a": {"duration_ms": 1, "count": 1.5}}}', "$.stages.a.count: must be a whole number"),
        ('{"stages": {"a": {"duration_ms": 1, "mean_ms": []}}}', "$.stages.a.mean_ms: must be a number"),
        ('{"stages": {"a": {"duration_ms": 1, "memory": 1}}}', "$.stages.a.memory: must be an object"),
        ('{"stages": {"a": {"duration_ms": 1, "parallel_info": {"num_ranks": 1, "ranks": 0}}}}', "must be a list, got"),
        (
            '{"stages": {"a": {"duration_ms": 1, "parallel_info": {"num_ranks": 1, "ranks": [{"rank": 0}]}}}}',
            "$.stages.a.parallel_info.ranks[0].duration_ms: it is missing",
        ),
        ('{"stages": {}, "request_id": 1}', "$.request_id: must be a text, got 1 (int)"),
        ('{"stages": {}, "memory": {"memory_increase_mb": "1"}}', "$.memory.memory_increase_mb: must be a number"),
        ('{"stages": {"a": {"duration_ms": 9, "mean_ms": 3, "min_ms": 4}}}', "$.stages.a: min_ms 4 (int) is above"),
        ('{"stages": {"a": {"duration_ms": 9, "mean_ms": 3, "max_ms": 2}}}', "mean_ms 3 (int) is above max_ms"),
        ('{"stages": {"a": {"duration_ms": 9, "min_ms": 3, "max_ms": 2}}}', "min_ms 3 (int) is above max_ms"),
        ('{"stages": {"a": {"duration_ms": 9, "min_ms": 1, "max_ms": 2, "std_ms": 3}}}', "is above max_ms - min_ms"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(content: str | bytes, complaint: str, path: Path) -> None:
    assert complaint in refusal(path, content)


def test_huge_files_are_not_read(path: Path) -> None:
    path.write_text("[" * 1001)
    with pytest.raises(cp.FormatError, match="larger than 1000 bytes"):
        json_input.read_json(str(path), 1000)
    path.write_text(json.dumps({"stages": {}}).ljust(1000))
    assert json_input.read_json(str(path), 1000) == {"stages": {}}
    with pytest.raises(cp.FormatError, match="larger than 33554432 bytes"):
        load_timing_report("/dev/zero")


def test_wrong_paths(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="path must be a path"):
        load_timing_report(1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="path must not be empty"):
        load_timing_report("")
    with pytest.raises(FileNotFoundError, match="nothing"):
        load_timing_report(tmp_path / "nothing")
    with pytest.raises(IsADirectoryError):
        load_timing_report(tmp_path)


def test_reports_that_are_no_files_are_checked_as_well() -> None:
    report = {"stages": {"a": {"duration_ms": math.nan}}}
    with pytest.raises(cp.FormatError, match=r"^new: \$\.stages\.a\.duration_ms: must be a number"):
        checked_timing_report(report, "new")
    with pytest.raises(cp.FormatError, match=r"^new: \$\.stages: a key must be a text, got 1 \(int\)"):
        checked_timing_report({"stages": {1: {}}}, "new")
    metadata = {1: object()}  # somebody else's
    assert checked_timing_report({"stages": {}, "metadata": metadata}, "new")["metadata"] is metadata


TABLE = """\
Pipeline timing of req_1
Wall clock: 1000.00 ms, stages: 64.00 ms
Stage     Count  Total (ms)  Mean (ms)  Min (ms)  Max (ms)   Share  Peak (MB)
-----------------------------------------------------------------------------
vae           4       50.00      12.50     12.00     13.00  10.0 %         24
dit           2       14.00       7.00      6.00      8.00  10.0 %
  rank 0      2        3.50       1.75      1.50      2.00               2560
Memory checkpoints (MB): in use / reserved (peaks)
  before_vae: 10 / 12 (20 / 24)"""


def test_the_table_to_the_character() -> None:
    assert timing_table(OURS) == TABLE


# ---- The published schema

WRONG: list[Any] = [None, True, -1, 1.5, 2**63, 1e19, "text", [], {}]


def places(value: Any, place: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The places of everything in a report."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place, *(found for key, item in pairs for found in places(item, (*place, key)))]


def changed(report: dict[str, Any], place: tuple[str | int, ...], change: Callable[[Any, str | int], None]) -> Any:
    """A copy of a report, changed at a place."""
    copied = copy.deepcopy(report)
    holder: Any = copied
    for key in place[:-1]:
        holder = holder[key]
    change(holder, place[-1])
    return copied


def put(value: Any, holder: Any, key: str | int) -> None:
    holder[key] = value


def variants() -> list[Any]:
    """Reports, right and wrong ones: without a part, and with another value in its place."""
    made: list[Any] = [OURS, PEERS, MERGED, *WRONG]
    for report in (OURS, PEERS, MERGED):
        for place in places(report)[1:]:
            made.append(changed(report, place, lambda holder, key: holder.pop(key)))
            made += [changed(report, place, functools.partial(put, x)) for x in WRONG]
    return made


def is_accepted(report: Any) -> bool:
    try:
        checked_timing_report(report, "report") if isinstance(report, dict) else load_timing_report(report)
    except (cp.FormatError, TypeError, FileNotFoundError):
        return False
    return True


def is_in_order(report: Any) -> bool:
    """Whether figures that are right each are right together, which the schema cannot say."""
    stages = report["stages"].values()
    spans = [(stage.get("min_ms"), stage.get("mean_ms"), stage.get("max_ms"), stage.get("std_ms")) for stage in stages]
    for least, mean, most, spread in spans:
        known = [value for value in (least, mean, most) if value is not None]
        if known != sorted(known) or (None not in (least, most, spread) and spread > most - least):
            return False
    return True


def test_the_schema_and_the_reader_agree() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    accepted = 0
    for report in variants():
        is_valid = validator.is_valid(report)
        assert is_accepted(report) == (is_valid and is_in_order(report)), report
        accepted += is_valid
    assert 100 < accepted < len(variants()) / 2
