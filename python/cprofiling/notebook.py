"""Tables for notebooks, and figures beside tqdm's progress bars."""

from cprofiling._internal.faces import adopt
from cprofiling.report.notebook.progress_postfix import postfix
from cprofiling.report.notebook.summary import summary_html

__all__ = ["postfix", "summary_html"]

adopt(globals())
