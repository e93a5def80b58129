"""A pipeline of ten nodes for cuvis-ai-core, its data, and what is counted of it; for tests that have both."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import pytest

torch: Any = pytest.importorskip("torch")
pipeline_module: Any = pytest.importorskip("cuvis_ai_core.pipeline.pipeline")
schemas: Any = pytest.importorskip("cuvis_ai_schemas.pipeline")
enums: Any = pytest.importorskip("cuvis_ai_schemas.enums")
node_module: Any = pytest.importorskip("cuvis_ai_core.node.node")

Stage = enums.ExecutionStage
FEATURES = 4
BATCH = 2
TEN = ("Layer", *(f"Layer-{number}" for number in range(1, 7)), "Loss", "Accuracy", "Log")
STAGES_OF = {"Loss": {Stage.TRAIN, Stage.VAL}, "Accuracy": {Stage.VAL, Stage.TEST}}
EVERY = frozenset({Stage.TRAIN, Stage.VAL, Stage.TEST, Stage.INFERENCE})


def port(*shape: int, **options: Any) -> Any:
    return schemas.PortSpec(dtype=torch.float32, shape=shape, **options)


class _Annotated(node_module.Node):  # type: ignore[misc]
    """What cuvis-ai-core wants to know of nodes."""

    _category = enums.NodeCategory.TRANSFORM
    _tags = frozenset({enums.NodeTag.TABULAR})


class Layer(_Annotated):
    INPUT_SPECS: ClassVar[Any] = {"x": port(-1, FEATURES)}
    OUTPUT_SPECS: ClassVar[Any] = {"x": port(-1, FEATURES)}

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.linear = torch.nn.Linear(FEATURES, FEATURES)

    def forward(self, x: Any, **_: Any) -> dict[str, Any]:
        return {"x": self.linear(x)}


class Loss(_Annotated):
    INPUT_SPECS: ClassVar[Any] = {"x": port(-1, FEATURES), "truth": port(-1, FEATURES)}
    OUTPUT_SPECS: ClassVar[Any] = {"loss": port()}
    EXECUTION_STAGES = STAGES_OF["Loss"]

    def forward(self, x: Any, truth: Any, **_: Any) -> dict[str, Any]:
        return {"loss": ((x - truth) ** 2).mean()}


class Accuracy(_Annotated):
    INPUT_SPECS: ClassVar[Any] = {"x": port(-1, FEATURES), "truth": port(-1, FEATURES)}
    OUTPUT_SPECS: ClassVar[Any] = {"share": port()}
    EXECUTION_STAGES = STAGES_OF["Accuracy"]

    def forward(self, x: Any, truth: Any, **_: Any) -> dict[str, Any]:
        return {"share": (x.argmax(1) == truth.argmax(1)).float().mean()}


class Log(_Annotated):
    """A node that can be told what to do."""

    INPUT_SPECS: ClassVar[Any] = {"x": port(-1, FEATURES)}
    OUTPUT_SPECS: ClassVar[Any] = {"seen": port()}

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.acts: list[Any] = []  # called one by one; what they return that is not None the node returns

    def forward(self, x: Any, **_: Any) -> Any:
        outputs = self.acts.pop(0)() if self.acts else None
        return {"seen": x.sum()} if outputs is None else outputs


class Chain:
    """A CuvisPipeline of the ten nodes: seven layers, and three that read what the last of them gives."""

    def __init__(self, kind: type | None = None) -> None:
        torch.manual_seed(0)
        self.pipeline: Any = (kind or pipeline_module.CuvisPipeline)("chain")
        layers = [Layer() for _ in range(7)]
        self.loss, self.accuracy, self.log = Loss(), Accuracy(), Log()
        for left, right in itertools.pairwise(layers):
            self.pipeline.connect(left.outputs.x, right.inputs.x)
        for end in (self.loss, self.accuracy, self.log):
            self.pipeline.connect(layers[-1].outputs.x, end.inputs.x)

    def run(self, stage: Any = Stage.INFERENCE, times: int = 1) -> None:
        """Send batches through."""
        for _ in range(times):
            self.pipeline.forward(batch=batch(), stage=stage)


def batch() -> dict[str, Any]:
    return {"x": torch.ones(BATCH, FEATURES), "truth": torch.zeros(BATCH, FEATURES)}


def nodes_of(stage: Any) -> list[str]:
    """The names of the nodes that run in a stage, in the pipeline's order."""
    return [name for name in TEN if stage in STAGES_OF.get(name, EVERY)]


def counts(stats: list[Any]) -> dict[tuple[str, str], int]:
    return {(row.stage, row.node_name): row.count for row in stats}
