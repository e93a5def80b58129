"""Names of telefuser's stage_bench_harness, by ``cprofiling.harness``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cprofiling.integrations.telefuser.profiler import (
    StageIOSignature,
    TensorSignature,
    get_profiler_output_dir,
    signature_with_tensors,
)
from cprofiling.layers.harness import stage_bench
from cprofiling.layers.harness.signature_file import load_signatures

__all__ = [
    "HarnessConfig",
    "StageBenchHarness",
    "StageIOSignature",
    "TensorSignature",
    "get_profiler_output_dir",
    "main",
]


@dataclass
class HarnessConfig(stage_bench.HarnessConfig):
    """``HarnessConfig`` with the profiler's ``output_dir`` as default."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.output_dir is None:
            self.output_dir = str(get_profiler_output_dir())


class StageBenchHarness(stage_bench.StageBenchHarness):
    """``StageBenchHarness`` that also takes signatures of telefuser's kind."""

    def __init__(
        self,
        stage_name: str,
        io_signature: Any,
        stage_instance: Any = None,
        config: stage_bench.HarnessConfig | None = None,
        **options: Any,
    ) -> None:
        super().__init__(stage_name, io_signature, stage_instance, config, **options)
        self.io_signature: Any = signature_with_tensors(self._signature)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the stages of a signature file, or the signature of one.

    arguments: by default those of the process. ``cprofiling harness`` runs a stage. Raises SystemExit for wrong
    arguments, an unreadable file and an unknown stage.
    """
    made = argparse.ArgumentParser(prog="stage_bench_harness", description="Show the signatures of stages.")
    made.add_argument("--signature", required=True, help="a file of signatures")
    made.add_argument("--stage", help="the stage")
    made.add_argument("--warmup", type=int, default=1, help="runs before the recorded ones")
    made.add_argument("--profile_steps", type=int, default=1, help="recorded runs")
    made.add_argument("--output_dir", help="where files go")
    made.add_argument("--list_stages", action="store_true", help="list the stages in the file")
    chosen = made.parse_args(arguments)
    try:
        stages = load_signatures(chosen.signature)
    except (OSError, ValueError) as error:
        made.error(str(error))
    if chosen.list_stages:
        print("\n".join((f"Available stages in {chosen.signature}:", *(f"  - {_shown(name)}" for name in stages))))
        return
    if chosen.stage not in stages:
        made.error(f"argument --stage: it must be one of {', '.join(map(ascii, stages)) or 'none'}")
    signature = signature_with_tensors(stages[chosen.stage])
    lines = [f"Stage: {_shown(signature.stage_name)}", "Input signatures:"]
    lines += [f"  {_shown(name)}: {_value(value)}" for name, value in signature.input_signatures.items()]
    if signature.output_signature is not None:
        lines.append(f"Output signature: {_value(signature.output_signature)}")
    if signature.metadata:
        lines += ["Metadata:", *(f"  {_shown(name)}: {value!a}" for name, value in signature.metadata.items())]
    print("\n".join(lines))


def _value(value: Any) -> str:
    if isinstance(value, TensorSignature):
        return f"shape={value.shape}, dtype={value.dtype!a}, device={value.device!a}"
    return ascii(value)


def _shown(name: str) -> str:
    return name if name.isprintable() else ascii(name)


if __name__ == "__main__":
    main()
