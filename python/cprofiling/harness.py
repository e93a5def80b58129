"""The harness that runs one stage alone, with inputs made from its signature."""

from cprofiling._internal.faces import adopt
from cprofiling.layers.harness.stage_bench import HarnessConfig, StageBenchHarness, call_factory

__all__ = ["HarnessConfig", "StageBenchHarness", "call_factory"]

adopt(globals())
