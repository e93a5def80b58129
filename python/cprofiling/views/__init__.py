"""What people see of figures: one document, and the formats that show it.

``View(of).render("md")`` and ``View(of).write("report.html")`` show a summary, a snapshot, a recording, or a timing
report as ``cprofiling.layers.get_timing_report`` returns it.
"""

from cprofiling.views.formats import FORMATS, View

__all__ = ["FORMATS", "View"]
