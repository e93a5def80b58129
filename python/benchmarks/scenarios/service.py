"""An asyncio service: 1,000 tasks at once, each waits, looks something up and answers in JSON."""

from __future__ import annotations

import asyncio
import cProfile
import hashlib
import json
from collections.abc import Awaitable, Callable

import cprofiling as cp

from .pairs import BARE, Variant
from .sklearn_steps import viztracer

TASKS = 1_000
ROWS = {number: {"user": number, "tags": [f"tag {place}" for place in range(20)]} for number in range(TASKS)}

Request = Callable[[int], Awaitable[str]]


async def fetch(number: int) -> dict[str, object]:
    """Wait for a row, as for a database."""
    await asyncio.sleep(0.001)
    return {**ROWS[number], "token": hashlib.sha256(b"%d" % number * 200).hexdigest()}


async def render(row: dict[str, object]) -> str:
    """Turn a row into JSON, after others had their turn."""
    await asyncio.sleep(0)
    return json.dumps(row)


async def answer(number: int) -> str:
    """Serve one request."""
    return await render(await fetch(number))


def service(profiler: cp.Profiler | None) -> Request:
    """Return the service; each of its functions is a node of the Profiler, if there is one."""
    if profiler is None:
        return answer
    node = profiler.profile_node
    inner_fetch, inner_render = node("fetch")(fetch), node("render")(render)

    @node("answer")
    async def profiled(number: int) -> str:
        return await inner_render(await inner_fetch(number))

    return profiled


def variants() -> dict[str, Variant]:
    """Return the ways to run it."""

    def serve(request: Request) -> Variant:
        async def all_at_once() -> None:
            await asyncio.gather(*map(request, range(TASKS)))

        return Variant(lambda: asyncio.run(all_at_once()))

    profiler = cp.Profiler()
    profiler.set_profiling(True)
    return {
        BARE: serve(service(None)),
        "cprofiling": serve(service(profiler)),
        "cProfile": serve(service(None))._replace(session=cProfile.Profile),
        "VizTracer": serve(service(None))._replace(session=viztracer),
    }
