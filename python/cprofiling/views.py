"""Reports of statistics and recordings, in every format.

``View(of).render("md")`` and ``View(of).write("report.html")`` show a summary, a snapshot, a recording, or a timing
report as ``cprofiling.layers.get_timing_report`` returns it.
"""

from cprofiling._internal.faces import adopt
from cprofiling._internal.report_format import Format
from cprofiling.report.format_list import FORMATS
from cprofiling.report.view import View

__all__ = ["FORMATS", "Format", "View"]

adopt(globals())
