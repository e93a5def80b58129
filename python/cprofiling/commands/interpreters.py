"""Sub-interpreters of a recorded program, as plain Python has them."""

from __future__ import annotations

import functools
from contextlib import suppress
from types import ModuleType
from typing import Any

from cprofiling import _core
from cprofiling.nodes.from_patterns.source import PROFILER


def keep_plain(beginning: str, interpreters: ModuleType) -> None:
    """Keep what the module ``concurrent.interpreters`` makes and sends plain.

    Nodes that patterns made stay here: others get the function where CPython sends it by its code, else its name.

    beginning: What each new interpreter executes first.
    """
    core = interpreters._interpreters  # noqa: SLF001 there is no other place
    queues = interpreters._queues._queues  # noqa: SLF001
    create, execute, call, put = core.create, core.exec, core.call, queues.put

    def function_of(value: Any) -> Any:
        is_ours = type(value) is _core.Function and value.profiler is PROFILER
        return value.__wrapped__ if is_ours else value

    def sent(value: Any) -> Any:
        if type(value) is tuple:
            return tuple(map(sent, value))
        function = function_of(value)
        if function is not value and "<locals>" not in function.__qualname__:  # which has no name to be found by
            try:
                interpreters.create_queue().put(function)
            except interpreters.NotShareableError:
                return value
        return function

    @functools.wraps(create)
    def created(*arguments: Any, **options: Any) -> Any:
        made = create(*arguments, **options)
        with suppress(Exception):  # the program goes on as without us
            execute(made, beginning)
        return made

    core.create = created
    core.exec = functools.wraps(execute)(lambda to, code, *rest, **more: execute(to, function_of(code), *rest, **more))
    core.call = functools.wraps(call)(lambda *arguments, **options: call(*map(sent, arguments), **options))
    queues.put = functools.wraps(put)(lambda *arguments, **options: put(*map(sent, arguments), **options))
