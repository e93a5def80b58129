"""Counting calls of functions, those of C++ libraries among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

from cprofiling import _core
from cprofiling.testing.counting.functions import checked_patterns, count_into, functions_of, stop_counting

if TYPE_CHECKING:
    Node: TypeAlias = tuple[str, str] | None
    Key: TypeAlias = tuple[str, Node]

_add_one = next  # under a name of our own, as the program may have calls of ``next`` counted


class Tally:
    """Counts of names, by node.

    Neither adding nor reading takes a lock: either may come while the same thread adds already, from a finaliser or a
    signal's handler, and in a child that was forked meanwhile. What they do are single steps for the interpreter.
    """

    def __init__(self) -> None:
        self._counters: dict[Key, count[int]] = {}

    def add(self, name: str) -> None:
        """Count a name once, for the node in which this thread is."""
        key = (name, _core.open_node())
        counter = self._counters.get(key)
        _add_one(self._counters.setdefault(key, count()) if counter is None else counter)

    def by_name(self) -> dict[str, int]:
        """Return how often each name was met."""
        found: dict[str, int] = {}
        for (name, _), met in self._met():
            found[name] = found.get(name, 0) + met
        return found

    def total(self) -> int:
        """Return how often all names together were met."""
        total = 0
        for _, met in self._met():
            total += met
        return total

    def by_node(self) -> dict[str, dict[str, int]]:
        """Return the counts in each node, without those inside it.

        A node's stages are one. Calls outside of nodes are left out.
        """
        found: dict[str, dict[str, int]] = {}
        for (name, node), met in self._met():
            if node is not None:
                names = found.setdefault(node[1], {})
                names[name] = names.get(name, 0) + met
        return found

    def _met(self) -> Iterator[tuple[Key, int]]:
        for key, counter in self._counters.copy().items():
            # ``count(3)``: what else tells the number counts one itself.
            yield key, int(count.__repr__(counter)[6:-1])


class CallCount(Mapping[str, int]):
    """Counts of calls, always those of now.

    A mapping: ``calls["mypkg.native:filter"]`` is the count of one function, 0 where it was not called, KeyError where
    it is not counted. A function is counted under one name, the first that a pattern takes.
    """

    def __init__(self, patterns: tuple[str, ...]) -> None:
        """Take over patterns that ``count_calls`` has checked."""
        self._patterns = patterns
        self._tally = Tally()
        self._names: dict[str, str] = {}  # each name that is taken, and the first one of the same function
        self._running = Lock()  # held while the block runs

    @property
    def is_on(self) -> bool:
        """Whether it counts at present."""
        return self._running.locked()

    @property
    def native_calls(self) -> int:
        """Calls of all the functions together."""
        return self._tally.total()

    @property
    def by_node(self) -> dict[str, dict[str, int]]:
        """Names and counts of functions for each node that called them itself.

        Nodes are known that are measured: their Profiler is on, or a recording runs.
        """
        return self._tally.by_node()

    def __getitem__(self, name: str) -> int:
        return self._tally.by_name().get(self._names[name], 0)

    def __iter__(self) -> Iterator[str]:
        return (name for name, first in self._names.items() if name == first)

    def __len__(self) -> int:
        return len(set(self._names.values()))

    def __enter__(self) -> CallCount:
        """Begin to count, on top of earlier blocks.

        Raises RuntimeError while the calls are being counted already.
        """
        if not self._running.acquire(blocking=False):
            raise RuntimeError("these calls are being counted already")
        try:
            found = functions_of(self._patterns)
            count_into(self._tally, found)
            for function in found:
                self._names.update(dict.fromkeys(function.names, function.names[0]))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        """Put the functions back. Doing so twice changes nothing."""
        stop_counting(self._tally)
        with suppress(RuntimeError):  # it is not held
            self._running.release()

    def __repr__(self) -> str:
        return f"<{self.native_calls} calls of {len(self)} functions>"


def count_calls(*patterns: str) -> CallCount:
    """Count calls of functions in all threads while a ``with`` block runs.

    Something that counts is put in the place of each function, in all modules that are loaded, whatever they call it,
    and taken away at the end of the block. So calls are counted that look the function up in a module, or in the class
    that is named; not those of what keeps it elsewhere, as in a default argument or a list, nor those between the
    functions of a library in C, C++ or Rust. A function that looks at the frame of its caller, such as
    ``warnings.warn``, sees one more; builtins that look at their caller's variables are not taken.

    Args:
        *patterns: ``module:function``, at least one. The module is imported, or, if its name has wildcards, those are
            meant that are loaded. Without wildcards the function is any callable but a class, ``module:Class.method``
            one of a class. With wildcards those are meant that the module defines, or has from a library in another
            language; none that begins with an underscore, unless the pattern does, and no objects that a class makes
            callable by a method in Python.

    Returns:
        The counts, to be used as a context manager, once or again and again.

    Raises:
        TypeError: A pattern is no str. At the beginning of the block: what is named is no function, or its class cannot
            be changed.
        ValueError: There is no pattern, or one of another form. At the beginning of the block: one takes no function.
        ImportError: A module cannot be imported, at the beginning of the block.
    """
    return CallCount(checked_patterns(patterns))
