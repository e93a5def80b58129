"""The list of report formats, built in and of other packages."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cprofiling._internal.report_format import Format
from cprofiling._internal.text import shown_value
from cprofiling.recording.traces import chrome_writer

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "cprofiling.formats"  # of entry points: a name, and a class of ``Format``

# A format is one class in one file, and one line here: its name, module and class.
_BUILT_IN = {
    "text": "cprofiling.report.text:Text",
    "html": "cprofiling.report.html.render:Html",
    "md": "cprofiling.report.markdown:Markdown",
    "json": "cprofiling.report.json:Json",
    "csv": "cprofiling.report.csv:Csv",
    "parquet": "cprofiling.report.parquet:Parquet",
    "chrome": "cprofiling.report.chrome:Chrome",
    "prom": "cprofiling.monitoring.prometheus:TextFormat",
}
FORMATS = tuple(_BUILT_IN)


def find(name: Any) -> Format:
    """Return the format of a name. Raises ValueError for an unknown one."""
    made: Format
    if name in FORMATS:
        module, _, kind = _BUILT_IN[name].partition(":")
        made = getattr(import_module(module), kind)()
        return made
    for entry in _others():
        if entry.name == name:
            made = entry.load()()
            return made
    raise ValueError(f"format must be one of {', '.join(map(repr, FORMATS))}, got {shown_value(name)}")


def _others() -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points  # takes longer than all else here

    return entry_points(group=GROUP)


def format_of(path: str, fitting: Collection[str] = FORMATS) -> str:
    """Return the format that the name of a file ends in.

    Raises ValueError for any other end, which lists those of the ``fitting`` formats.
    """
    chrome_writer.check_name(path)
    file = os.path.basename(path).lower()
    formats = {name: find(name) for name in FORMATS}
    for name, each in formats.items():
        if file.endswith(each.suffixes):
            return name
    for entry in _others():
        if file.endswith(entry.load().suffixes):
            return entry.name
    suffixes = ", ".join(suffix for name in FORMATS if name in fitting for suffix in formats[name].suffixes)
    raise ValueError(f"path must end in one of {suffixes}, got {shown_value(path)}")
