"""Recordings made by hand: each row as a dict, in an order that does not matter."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from cprofiling.recording.result import Recording

NODE, RECORD, STEP, HOST, DEVICE, INSTANT, COUNTER = range(7)
US = 1000
# Real GPU traces, which are not part of the project: in the folder that the environment names, or in one beside this.
TRACES = Path(os.environ.get("CPROFILING_TRACES", Path(__file__).resolve().parents[3] / "shared" / "data" / "traces"))

Row = dict[str, Any]
_CATS = {NODE: "cpu_op", RECORD: "user_annotation", STEP: "user_annotation", HOST: "cpu_op", DEVICE: "kernel"}


class Dropping(Recording):
    """A recording that says that events are missing."""

    dropped = 12_345


DROPPED = "Dropped: 12,345 events are missing from these figures, as there was no room for them."


def made(rows: Iterable[Row], *, dropping: bool = False) -> Recording:
    """A finished recording of rows, which have the keywords of a recording's ``_add``.

    Instead of some of them a row has ``start`` and ``end`` (ns), and ``thread``, ``pid/tid``. It is of the host, and
    has the category that its kind has, where it does not say.
    """
    recording = (Dropping if dropping else Recording).empty()
    for row in rows:
        given = {"kind": HOST, "end": row["start"], "thread": "1/1", **row}
        pid, _, tid = given.pop("thread").partition("/")
        given.setdefault("cat", _CATS.get(given["kind"], ""))
        recording._add(
            pid=_number(pid), tid=_number(tid), start_ns=given.pop("start"), end_ns=given.pop("end"), **given
        )
    recording._finish()
    return recording


def _number(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdigit() else text


def host(name: str, start: int, end: int, **more: Any) -> Row:
    """A row of the host, in whole microseconds."""
    return {"name": name, "start": start * US, "end": end * US, **more}


def device(name: str, start: int, end: int, **more: Any) -> Row:
    """Work of a device, in whole microseconds."""
    place = {"kind": DEVICE, "thread": "0/7", "device": 0, "stream": 7}
    return host(name, start, end, **{**place, **more})


def call(name: str, start: int, end: int, correlation: int, **more: Any) -> Row:
    """A call of the device's runtime, in whole microseconds."""
    return host(name, start, end, **{"cat": "cuda_runtime", "correlation": correlation, **more})


def trace(name: str) -> Recording:
    """One of the real GPU traces, which are not part of the project; the test is skipped where they are not there."""
    path = TRACES / f"{name}.json.gz"
    if not path.exists():
        pytest.skip(f"needs the traces in {TRACES}")
    from cprofiling import load_trace

    return load_trace(path)
