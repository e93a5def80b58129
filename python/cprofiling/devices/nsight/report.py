"""Read Nsight Compute reports, with the limits of kernels and advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cprofiling._internal import arguments
from cprofiling._internal.text import shown_value

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath

    from cprofiling.devices.nsight.kernels import NcuReport


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
    from cprofiling.devices.nsight import reader  # loaded where it is used, as a program seldom does

    return reader.read_file(name, float(timeout_s))


analyze_ncu_report.__module__ = "cprofiling"
