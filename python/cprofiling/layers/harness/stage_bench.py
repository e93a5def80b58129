"""Harness of one stage, with inputs made from its signature.

The signatures are in a file that stage reports have written (``timing_io_signature.json``); see ``cprofiling.layers``.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from cprofiling._internal import arguments, log
from cprofiling._internal.files import atomic_writer, make_folders
from cprofiling._internal.progress import progress
from cprofiling._internal.text import checked_text, file_name_of, shown_text, shown_value
from cprofiling.devices import operations
from cprofiling.layers import context, output_folder
from cprofiling.layers import recording as stage_recording
from cprofiling.layers.harness.mock_inputs import SEED, MockInputs, checked_ranges, make_inputs
from cprofiling.layers.harness.program import program_for
from cprofiling.layers.harness.run_stage import Step, step_of
from cprofiling.layers.harness.signature_file import checked_signature, load_signatures
from cprofiling.layers.signatures import is_tensor, signature_of_output
from cprofiling.recording.profile import profile
from cprofiling.recording.traces import chrome_writer

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath, StrPath

    from cprofiling.layers.harness.mock_inputs import Range
    from cprofiling.layers.signatures import StageIOSignature
    from cprofiling.recording.result import Recording

__all__ = ["HarnessConfig", "StageBenchHarness", "call_factory"]

MOST_TRACE_BYTES = 10_000_000  # of one step

_MOST_RUNS = 1_000_000
# What a trace that is too large does without, in this order, and the options of a recording that ask for it.
_SPARED = (("Python's frames", "with_stack"), ("events of memory", "profile_memory"))


@dataclass
class HarnessConfig:
    """Settings of a harness.

    Attributes:
        warmup: Runs before the recorded ones, 0 or more.
        profile_steps: Recorded runs, 1 or more.
        output_dir: Where the files go; it is made. None: where the pipeline's own reports go, see
            ``cprofiling.layers.get_profiler_output_dir``.
        capture_output: Keep the result of the last recorded run, and compare it with the signature.

    Raises TypeError and ValueError for values out of these ranges.
    """

    warmup: int = 1
    profile_steps: int = 1
    output_dir: StrPath | None = None
    capture_output: bool = False

    def __post_init__(self) -> None:
        self.warmup = arguments.index_between("warmup", self.warmup, 0, _MOST_RUNS)
        self.profile_steps = arguments.index_between("profile_steps", self.profile_steps, 1, _MOST_RUNS)
        if self.output_dir is not None:
            self.output_dir = arguments.path("output_dir", self.output_dir)


class StageBenchHarness:
    """Run one stage alone, under a profiler.

    Inputs are made as ``cprofiling.layers.harness.mock_inputs.make_inputs`` says: equal ones in each process. Each run
    has lists and dicts of its own; changes in tensors stay for the next run.

    The stage is run as ``cprofiling.layers.harness.run_stage.step_of`` says: by the method ``entry``, if one is named;
    else by its own ``profile_step``; else, if it has a ``dit`` and a ``scheduler``, by a single denoising step; else by
    its ``process``; else by a call of it. It gets those inputs that it accepts; a coroutine is awaited. The reports of
    ``cprofiling.layers`` have nothing of what stages do meanwhile.

    Args:
        stage_name: The stage's name.
        io_signature: Its signature: as ``cprofiling.layers.get_io_signatures`` has it, or as a file does.
        stage_instance: The stage, or a callable; it can be set later, as the attribute of this name.
        config: See ``HarnessConfig``.
        entry: The method to run.
        value_ranges: Limits of the inputs' values by parameter, such as ``{"tokens": (0, 32000)}``.
        device: The device of all tensors that were on an accelerator; None: as recorded, or what there is.
        seed: Of the inputs' values.
        inputs: Values of inputs that are not made, such as those with only their type in the signature.

    Raises TypeError for arguments of other types, ValueError for a range of no input, and FormatError (a ValueError)
    for a signature that makes no sense.
    """

    def __init__(  # noqa: PLR0913 the options of a harness
        self,
        stage_name: str,
        io_signature: StageIOSignature | Mapping[str, Any],
        stage_instance: Any = None,
        config: HarnessConfig | None = None,
        *,
        entry: str | None = None,
        value_ranges: Mapping[str, Range] | None = None,
        device: Any = None,
        seed: int = SEED,
        inputs: Mapping[str, Any] | None = None,
    ) -> None:
        self.stage_name = checked_text("stage_name", stage_name)
        self._signature = self.io_signature = checked_signature("io_signature", io_signature)
        self.stage_instance = stage_instance
        self.config = HarnessConfig() if config is None else arguments.member("config", config, HarnessConfig)
        self.entry = entry
        self._ranges = checked_ranges(value_ranges, self._signature)
        self._device = device
        self._seed = arguments.index_between("seed", seed, 0, 2**63 - 1)
        self._given = dict(arguments.member("inputs", inputs or {}, Mapping))  # type: ignore[type-abstract]
        self._inputs: MockInputs | None = None

    @classmethod
    def from_signature_file(
        cls,
        signature_path: StrOrBytesPath,
        stage_name: str,
        stage_instance: Any = None,
        config: HarnessConfig | None = None,
        **options: Any,
    ) -> StageBenchHarness:
        """Make a harness for a stage of a file, with options of the class.

        Raises as the class, FormatError for a damaged file, OSError for one that cannot be read, and ValueError for a
        stage that it does not have; the message lists those that it has.
        """
        signatures = load_signatures(arguments.path("signature_path", signature_path))
        if checked_text("stage_name", stage_name) not in signatures:
            known = ", ".join(map(repr, signatures)) or "none"
            raise ValueError(
                f"stage_name must be a stage in {signature_path!r} ({known}), got {shown_value(stage_name)}"
            )
        return cls(stage_name, signatures[stage_name], stage_instance, config, **options)

    def setup(self) -> None:
        """Make the inputs and find how the stage is run.

        Raises as ``make_inputs`` and ``step_of``.
        """
        made = make_inputs(
            self._signature, value_ranges=self._ranges, device=self._device, seed=self._seed, given=self._given
        )
        self._inputs = made
        shown = shown_text("stage_name", self.stage_name)
        if self.stage_instance is not None:
            log.say(f"[Harness] Stage '{shown}' is run by {self._how_to_run().name}")
        log.say(f"[Harness] Setup complete for stage '{shown}'")
        log.say(f"[Harness] Mock inputs: {list(made)}")

    def _made_inputs(self) -> MockInputs:
        if self._inputs is None:
            self.setup()
        assert self._inputs is not None  # noqa: S101 setup() has made them
        return self._inputs

    def _how_to_run(self) -> Step:
        if self.stage_instance is None:
            raise RuntimeError("no stage to run: give stage_instance")
        return step_of(self.stage_instance, self.entry)

    def run_single_step(self, inputs: Mapping[str, Any] | None = None) -> Any:
        """Run the stage once, with made or given inputs, and return its result.

        Raises RuntimeError without a stage; exceptions of the stage pass.
        """
        step = self._how_to_run()
        if inputs is not None:
            arguments.member("inputs", inputs, Mapping)  # type: ignore[type-abstract]
        given = self._made_inputs().for_a_run() if inputs is None else inputs
        with context.unreported(), step.restored():
            return _run(step, given)

    def profile(
        self, warmup: int | None = None, profile_steps: int | None = None, output_suffix: str = ""
    ) -> dict[str, Any]:
        """Record the stage, and write trace, breakdown and program.

        Args:
            warmup: Runs before, 0 or more; None: as configured.
            profile_steps: Recorded runs, 1 or more; None: as configured.
            output_suffix: Added to the stage's name in those of trace and breakdown.

        Returns:
            ``stage_name``, ``warmup``, ``profile_steps``, ``timing_ms`` (of each recorded run, with what recording
            costs, up to the end of the device's work), ``kernel_breakdown`` (see
            ``cprofiling.layers.recording.breakdown_of``), ``trace_path``, ``breakdown_path``, ``script_path``; with
            ``capture_output`` also ``output`` and ``output_differences``, a list of where it is not as recorded.

        Raises TypeError and ValueError for wrong arguments, RuntimeError without a stage or where another recording
        runs, OSError where files cannot be written. Exceptions of the stage pass.
        """
        config = HarnessConfig(
            self.config.warmup if warmup is None else warmup,
            self.config.profile_steps if profile_steps is None else profile_steps,
            self.config.output_dir,
            self.config.capture_output,
        )
        stem = file_name_of(f"{self.stage_name}{checked_text('output_suffix', output_suffix)}")
        step, inputs = self._how_to_run(), self._made_inputs()
        folder = folder_for(config.output_dir)
        trace_path = output_folder.named(folder, f"{stem}_trace", ".json.gz")
        breakdown_path = output_folder.named(folder, f"{stem}_breakdown", ".json")
        with context.unreported(), step.restored():
            log.say(f"[Harness] Running {config.warmup} warmup iteration(s)...")
            with progress("warmup", config.warmup) as advance:
                for _ in range(config.warmup):
                    _run(step, inputs.for_a_run())
                    synchronize(inputs)
                    advance(1)
            recording, times, output = _record(step, inputs, config.profile_steps, trace_path)
        breakdown = stage_recording.breakdown_of(recording, self.stage_name)
        output_folder.write_json(breakdown_path, breakdown)
        log.say(f"[Harness] Kernel breakdown saved to: {breakdown_path}")
        result: dict[str, Any] = {
            "stage_name": self.stage_name,
            "warmup": config.warmup,
            "profile_steps": config.profile_steps,
            "timing_ms": times,
            "kernel_breakdown": breakdown,
            "trace_path": str(trace_path),
            "breakdown_path": str(breakdown_path),
            "script_path": str(self._save_program(folder)),
        }
        if config.capture_output:
            result["output"] = output
            result["output_differences"] = _differences(signature_of_output(output), self._signature.output_signature)
        log.say(f"[Harness] Average iteration time: {sum(times) / len(times):.2f} ms")
        return result

    def generate_test_script(self) -> str:
        """Return a program that profiles the stage without this package.

        ``python profile_x.py --factory module:function`` runs it. It has the functions ``create_inputs``,
        ``run_single_step`` and ``profile_stage``, and writes a trace of PyTorch's profiler.
        Its inputs have the shapes and types of those here; it also makes those that this harness was given.
        """
        options = {
            "warmup": self.config.warmup,
            "profile_steps": self.config.profile_steps,
            "entry": self.entry,
            "value_ranges": self._ranges or None,
            "device": None if self._device is None else str(self._device),
            "seed": self._seed,
            "file": file_name_of(self.stage_name),
        }
        return program_for(self.stage_name, self._signature.to_dict(), options)

    def _save_program(self, folder: Path) -> Path:
        path = output_folder.named(folder, f"profile_{file_name_of(self.stage_name)}", ".py")
        running = getattr(sys.modules.get("__main__"), "__file__", None)
        with suppress(OSError):  # one of them is not there
            if running is not None and os.path.samefile(running, path):  # its user may have changed it
                return path
        with atomic_writer(path) as file:
            file.write(self.generate_test_script().encode("ascii"))
        log.say(f"[Harness] Test script saved to: {path}")
        return path


def _run(step: Step, inputs: Mapping[str, Any]) -> Any:
    """Run the stage, and name unknown inputs where it fails."""
    try:
        return step(inputs)
    except Exception:
        unknown = getattr(inputs, "unknown", None)
        if unknown:
            shown = ", ".join(f"{name!a} ({kind!a})" for name, kind in unknown.items())
            log.complain(f"[Harness] The stage failed; None stood in for what only the type is known of: {shown}")
        raise


def _record(step: Step, inputs: MockInputs, runs: int, path: Path) -> tuple[Recording, list[float], Any]:
    """Record runs, with fewer details while the trace is too large.

    Returns:
        The recording, the time of each run in ms, and the result of the last one.
    """
    log.say(f"[Harness] Running {runs} profile iteration(s)...")
    options, output = dict(stage_recording.options()), None
    spared = iter(_SPARED)
    while True:
        times = []
        with progress("profile", runs) as advance, profile(**options) as prof:
            for number in range(runs):
                given = inputs.for_a_run()
                start_ns = perf_counter_ns()
                with prof.record(f"step {number}"):
                    output = _run(step, given)
                    synchronize(given)
                times.append((perf_counter_ns() - start_ns) / 1e6)
                advance(1)
        chrome_writer.export_to_path(prof.recording, path, compress=True)
        size = path.stat().st_size
        what, option = next((each for each in spared if options[each[1]]), ("", ""))
        if size <= MOST_TRACE_BYTES * runs or not option:
            log.say(f"[Harness] Chrome trace saved to: {path}")
            return prof.recording, times, output
        log.say(f"[Harness] The trace has {size / 1e6:.1f} MB: it is recorded again, without {what}")
        options[option] = False


def call_factory(factory: str) -> Any:
    """Return the stage or callable that a factory makes.

    factory: ``module:function``; the function may belong to an object of the module, as in ``module:Class.method``.

    Raises TypeError unless given a str; ValueError for another form, an unknown module or function, and a function
    that returns None. Exceptions of module and function pass.
    """
    stage = factory_of(factory)()
    if stage is None:
        raise ValueError(f"factory must return a stage, {shown_value(factory)} returned None")
    return stage


def factory_of(factory: str) -> Callable[..., Any]:
    """Return the function at ``module:function``, as ``call_factory``."""
    module_name, _, name = checked_text("factory", factory).partition(":")
    if not module_name or module_name.startswith(".") or not name:
        raise ValueError(f"factory must be MODULE:FUNCTION, got {shown_value(factory)}")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ValueError(f"factory must be in a module that can be imported, got {shown_value(factory)}") from None
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ValueError(f"factory must name a function in its module, got {shown_value(factory)}")
    function: Callable[..., Any] = found
    return function


def synchronize(inputs: Mapping[str, Any]) -> None:
    """Wait for the devices in use and those of the inputs."""
    row = operations.in_use()
    if (
        not isinstance(row, operations.DeviceOperations)
        or isinstance(row.synchronize, str)
        or isinstance(row.current_index, str)
    ):
        return
    indices = {row.current_index()}
    for value in inputs.values():
        device: Any = getattr(value, "device", None)
        if getattr(device, "type", None) == row.tensor_type and device.index is not None:
            indices.add(device.index)
    for index in sorted(indices):
        row.synchronize(index)


def folder_for(output_dir: StrPath | None) -> Path:
    """Return the folder for files, made, by default that of reports."""
    if output_dir is None:
        return output_folder.folder()
    folder = Path(output_dir)
    make_folders(folder)
    return folder


def _differences(made: Any, recorded: Any, where: str = "output") -> list[str]:
    """Return where two signatures of an output differ."""
    if is_tensor(made) and is_tensor(recorded):
        return [
            f"{where}: {key} is {made[key]}, was {recorded[key]}"
            for key in ("shape", "dtype")
            if made[key] != recorded[key]
        ]
    if isinstance(made, dict) and isinstance(recorded, dict) and made.keys() == recorded.keys():
        return [line for key in made for line in _differences(made[key], recorded[key], f"{where}[{key!r}]")]
    if isinstance(made, list) and isinstance(recorded, list) and len(made) == len(recorded):
        pairs = zip(made, recorded, strict=True)
        return [line for place, pair in enumerate(pairs) for line in _differences(*pair, f"{where}[{place}]")]
    if type(made) is type(recorded) and not isinstance(made, (dict, list)):
        return []
    return [f"{where}: is {shown_value(made)}, was {shown_value(recorded)}"]
