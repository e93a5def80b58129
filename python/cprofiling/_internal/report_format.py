"""Interface of a format of reports."""

from __future__ import annotations

from typing import Any

from cprofiling._internal.files import atomic_writer


class Format:
    """Format of reports, with ``render`` for text or ``write`` for a file.

    Attributes:
        suffixes: How names of its files end, in small letters.
        compares: Whether it shows two runs side by side.
        needs_file: Whether it is written to files only, as it is binary or long.
        only: The things it is for, for messages; empty for all.
    """

    suffixes: tuple[str, ...] = ()
    compares = False
    needs_file = False
    only = ""

    def fits(self, of: object) -> bool:  # noqa: ARG002 most fit all
        """Tell whether a result can be shown in it."""
        return True

    def render(self, view: Any) -> str:
        """Return a ``cprofiling.views.View`` as text."""
        raise NotImplementedError

    def write(self, view: Any, path: str) -> None:
        """Write a ``cprofiling.views.View`` to a file, whole or not at all."""
        data = self.render(view).encode("utf-8", "backslashreplace")
        with atomic_writer(path) as file:
            file.write(data)
