"""What the integrations give back: the handle that takes away again what makes nodes of somebody else's objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Profiled:
    """A handle: ``remove()``, or the end of a ``with`` block, leaves everything as it was before.

    names: the names of the nodes.
    """

    __slots__ = ("__weakref__", "_removers", "names")

    def __init__(self, names: Iterable[str], removers: Iterable[Callable[[], object]]) -> None:
        self.names = tuple(names)
        self._removers = list(removers)

    def remove(self) -> None:
        """Count nothing more, and put everything back. Doing so twice changes nothing."""
        while True:
            try:
                remove = self._removers.pop()  # by one thread alone, without a lock
            except IndexError:
                return
            remove()

    def __enter__(self) -> Profiled:
        """Return the handle itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Remove what was put in."""
        self.remove()
