"""Formats of other packages, found by their entry points."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import cprofiling as cp
from cprofiling.commands.main import main
from cprofiling.views import FORMATS, Format, View


class Names(Format):
    """The names of the nodes."""

    suffixes = (".names",)

    def render(self, view: View) -> str:
        return "".join(f"{node.node_name}\n" for node in view.tables.nodes)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Register the format; give a list of the times the entry points were read."""
    read: list[str] = []

    def entry_points(*, group: str) -> list[EntryPoint]:
        read.append(group)
        return [EntryPoint("names", f"{__name__}:Names", group)]

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Names.__module__])
    return read


def test_a_format_of_another_package_is_found(
    registered: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profiler = cp.Profiler()
    profiler.set_profiling(True)
    profiler.record("test", "load", 1.0)
    view = View(profiler.snapshot())
    for name in ("text", "md", "json", "csv"):
        view.render(name)
    assert not registered  # built-in names need no look at what is installed
    assert view.render("names") == "load\n"
    with pytest.raises(NotImplementedError):
        Format().render(view)
    assert registered == ["cprofiling.formats"]
    view.write(tmp_path / "a.names")
    assert (tmp_path / "a.names").read_text(encoding="utf-8") == "load\n"
    profiles = tmp_path / "statistics"
    profiles.write_bytes(profiler.snapshot().to_bytes())
    main(["report", str(profiles), "-r", "names"])
    assert capsys.readouterr().out == "load\n"


@pytest.mark.parametrize("name", ["names", "", None, 1])
def test_unknown_formats_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"format must be one of '{FORMATS[0]}'"):
        View(cp.Profiler().snapshot()).render(name)
