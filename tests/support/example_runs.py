"""Run an example in this process, which has its packages imported."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "python" / "examples"


def output_of(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run an example and return its output."""
    capsys.readouterr()
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def counts_in(output: str) -> dict[tuple[str, str], int]:
    """Return the counts of a printed table by stage and node."""
    rows = output.split("\n" + "-" * 125 + "\n")[1].splitlines()
    return {(row[41:53].rstrip(), row[:40].rstrip()): int(row[54:59]) for row in rows}
