"""A CuvisPipeline of ten light nodes, with cuvis-ai-core's own profiler and with the drop-in."""

from __future__ import annotations

from .. import cuvis
from .pairs import BARE, Variant

CALLS = 200


def variants() -> dict[str, Variant]:
    """Return the ways to run it."""
    made = cuvis.pipelines()

    def forward(name: str) -> Variant:
        run, batch = made[name].forward, {"x": 1}

        def work() -> None:
            for _ in range(CALLS):
                run(batch=batch)

        return Variant(work)

    return {
        BARE: forward("off"),
        "cprofiling": forward(cuvis.OURS)._replace(session=cuvis.in_its_place),
        "its own profiler": forward(cuvis.ITS_OWN),
    }
