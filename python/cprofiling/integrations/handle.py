"""Handle of integrations that removes their nodes from foreign objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class Profiled:
    """Handle that restores everything by ``remove()`` or a ``with`` block.

    names: the names of the nodes.
    """

    __slots__ = ("__weakref__", "_removers", "names")

    def __init__(self, names: Iterable[str], removers: Iterable[Callable[[], object]]) -> None:
        self.names = tuple(names)
        self._removers = list(removers)

    def remove(self) -> None:
        """Stop counting, and restore everything.

        Does nothing the second time.
        """
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
        """Restore everything."""
        self.remove()
