"""Read Nsight Compute reports, with the limits of kernels and advice."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cprofiling._core import FormatError
from cprofiling._internal import arguments
from cprofiling._internal.text import shown_value

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath

    from cprofiling.devices.nsight.kernels import NcuReport

_BINARY = (".ncu-rep", ".nsight-cuprof-report")
_SHOWN = 300  # characters of what ncu says


def analyze_ncu_report(path: StrOrBytesPath, *, timeout_s: float = 120.0) -> NcuReport:
    """Read an ncu report, and return its kernels with verdict and advice.

    It reads the output of ``LC_ALL=C ncu --csv --print-units base``, with ``--page raw`` or ``--page details``,
    summaries too, among whatever else is in the file. Times are in ns, sizes in bytes, frequencies in Hz, rates in
    byte/s; ``n/a`` becomes None. ncu itself converts a file ``*.ncu-rep`` to CSV first.

    The verdicts are ``memory_bound``, ``compute_bound``, ``latency_bound`` and ``launch_bound``. A kernel without the
    metrics for one has None, with a reason.

    Args:
        path: The file.
        timeout_s: How many seconds ncu may take for a file ``*.ncu-rep``: above 0, and below 1e9.

    Returns:
        An immutable sequence of kernels, which prints itself as a table.

    Raises:
        TypeError: ``path`` is no path, or ``timeout_s`` no number.
        ValueError: ``path`` is empty or has a NUL, or ``timeout_s`` is out of range.
        OSError: The file cannot be read. FileNotFoundError, telling what to install, where ncu is needed and not there;
            TimeoutError where it took too long.
        FormatError: The file is no such report, cut, damaged, or in other units or the numbers of some locale; the
            message tells line and column, and how to export it. Or ncu itself refuses it.
    """
    name = arguments.path("path", path)
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)):
        raise TypeError(f"timeout_s must be a number, got {shown_value(timeout_s)}")
    if not 0 < timeout_s < 1e9:
        raise ValueError(f"timeout_s must be above 0 and below 1e9 seconds, got {shown_value(timeout_s)}")
    from cprofiling._internal import files

    with files.open_to_read(name) as file:
        if name.lower().endswith(_BINARY):
            return _imported(name, float(timeout_s))
        from cprofiling.devices.nsight import reader

        return reader.read(file, name)


def _imported(name: str, timeout_s: float) -> NcuReport:
    """Return the contents of a report in ncu's own format."""
    import subprocess
    import tempfile

    from cprofiling.devices.nsight import reader, tools

    tool = tools.find_tool("ncu")
    if tool is None:
        raise FileNotFoundError(f"ncu is needed to read {name}: {tools.missing('ncu')}")
    command = [tool, "--import", os.path.abspath(name), "--csv", "--page", "raw", "--print-units", "base"]
    environment = {**os.environ, "LC_ALL": "C"}  # the numbers of one locale
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as complaints:
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=complaints, env=environment, check=False,
                timeout=timeout_s,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"ncu took more than {timeout_s:g} s to read {name}") from None
        output.seek(0)
        complaints.seek(0)
        if done.returncode:
            said = _said(complaints.read(1 << 16)) or _said(output.read(1 << 16)) or "nothing"
            raise FormatError(f"{name}: ncu cannot read it (exit status {done.returncode}), and says: {said}")
        return reader.read(output, f"what ncu prints of {name}")


def _said(data: bytes) -> str:
    return " ".join(data.decode("utf-8", "replace").split())[:_SHOWN]
