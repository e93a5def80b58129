"""FastAPI: blocks that are entered in one thread of its pool and left in another."""

# FastAPI's decorators have no types here.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import cprofiling as cp
from calls import NEVER, by_name, profiler_on

pytestmark = pytest.mark.integration

fastapi = pytest.importorskip("fastapi")
pytest.importorskip("httpx")
testclient = pytest.importorskip("fastapi.testclient")
responses = pytest.importorskip("fastapi.responses")
REQUESTS = 30


def application(p: cp.Profiler, shared: Any) -> Any:
    """A program whose dependency and whose streamed generator have a block around their yield."""
    app: Any = fastapi.FastAPI()

    def connection() -> Iterator[str]:
        with p.profile_node("dependency"), shared, cp.stage("train"), cp.record("label"), p:
            yield "connected"

    def pieces(fails: bool) -> Iterator[bytes]:
        with p.profile_node("stream"), shared, cp.stage("val"), cp.record("label"), p:
            for number in range(20):
                yield b"%d " % number
            if fails:
                raise KeyError("the program's own")

    @app.get("/stream")
    def stream(connected: str = fastapi.Depends(connection)) -> Any:
        assert connected == "connected"
        return responses.StreamingResponse(pieces(False))

    @app.get("/fails")
    def fails(connected: str = fastapi.Depends(connection)) -> Any:
        raise fastapi.HTTPException(418, connected)

    @app.get("/breaks")
    def breaks() -> Any:
        return responses.StreamingResponse(pieces(True))

    return app


@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.parametrize("records", [True, False])
def test_thirty_parallel_requests(is_on: bool, records: bool) -> None:
    p = profiler_on()
    p.set_profiling(is_on)
    shared = p.profile_node("shared")
    with testclient.TestClient(application(p, shared)) as client, ThreadPoolExecutor(REQUESTS) as pool:
        prof = cp.profile(operators=False) if records else None
        if prof is not None:
            prof.start()
        answers = list(pool.map(client.get, ["/stream"] * REQUESTS, timeout=NEVER))
        refused = list(pool.map(client.get, ["/fails"] * REQUESTS, timeout=NEVER))
        if prof is not None:
            prof.stop()
            assert [event.name for event in prof.events()].count("label") == 3 * REQUESTS
        with pytest.raises(KeyError, match="own"):
            client.get("/breaks")
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.text for answer in answers} == {"".join(f"{number} " for number in range(20))}
    assert [(answer.status_code, answer.json()["detail"]) for answer in refused] == [(418, "connected")] * REQUESTS
    if not is_on:
        assert p.get_profiling_summary() == []
        return
    stats = by_name(p)
    assert stats["stream"].count == REQUESTS
    assert stats["stream"].error_count == 1
    assert sum((stats["dependency"].count, stats["dependency"].error_count)) == 2 * REQUESTS
    assert sum((stats["shared"].count, stats["shared"].error_count)) == 3 * REQUESTS + 1
    assert p.get_profiling_summary().internal_errors == 0
    with pytest.raises(RuntimeError, match="shared"):
        shared.__exit__(None, None, None)
