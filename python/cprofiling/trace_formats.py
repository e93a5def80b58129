"""The format that a trace is written in, which is that of the file's name."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cprofiling.recording import Recording

_PERFETTO = ".pftrace"
ENDINGS = (".json", ".json.gz", _PERFETTO)
"""How the names of traces end that the command is asked to write."""


def is_perfettos(name: str) -> bool:
    """Whether a file of this name is in Perfetto's own format; all others are Chrome traces."""
    return name.endswith(_PERFETTO)


def load_writer(name: str) -> None:
    """Load what writes a file of this name, while nothing is lost yet. ImportError where it needs a missing package."""
    if is_perfettos(name):
        from cprofiling import perfetto_trace

        perfetto_trace.require()
    else:
        from cprofiling import chrome  # noqa: F401 at the end of a process it may not be there to be imported


def export(recording: Recording, path: str, name: str | None = None) -> None:
    """Write a recording to a path, in the format of its name, or of another ``name`` that it is to get.

    A Chrome trace is compressed if the name ends in ``.gz``. Raises as the exporters do.
    """
    name = path if name is None else name
    if is_perfettos(name):
        from cprofiling import perfetto_trace

        perfetto_trace.export_perfetto_trace(recording, path)
    else:
        from cprofiling import chrome

        chrome.export_to_path(recording, path, compress=name.endswith(".gz"))
