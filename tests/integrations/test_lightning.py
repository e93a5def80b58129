"""The profiler for Lightning's Trainer: its actions as nodes, in the stage in which the Trainer is."""

from __future__ import annotations

import copy
import importlib.util
import logging
import pickle
import re
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
from calls import by_name, counts, outcomes, profiler_on, stages
from example_runs import counts_in, output_of

torch: Any = pytest.importorskip("torch")
pl: Any = pytest.importorskip("pytorch_lightning")

from cprofiling.integrations import lightning as integration  # noqa: E402 it needs Lightning
from cprofiling.integrations.lightning import Profiler  # noqa: E402

# PyTorch and what it uses warn of deprecations of their own.
pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("one_thread")]


class Model(pl.LightningModule):  # type: ignore[misc]
    """A layer, and a node of its own; its batch number ``fails_at`` fails."""

    def __init__(self, fails_at: int = -1) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.fails_at = fails_at

    @cp.profile_node("forward")
    def forward(self, x: Any) -> Any:
        return self.layer(x)

    def training_step(self, batch: Any, number: int) -> Any:
        if number == self.fails_at:
            raise ValueError("on purpose")
        return self(batch).sum()

    def validation_step(self, batch: Any) -> None:
        self(batch)

    test_step = predict_step = validation_step

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def trainer(profiler: Any, **options: Any) -> Any:
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return pl.Trainer(
        profiler=profiler, max_epochs=2, accelerator="cpu", enable_model_summary=False, **{**quiet, **options}
    )


def batches(count: int) -> Any:
    return torch.utils.data.DataLoader(torch.ones(count, 4))


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


def test_actions_count_in_the_stage_of_the_trainer() -> None:
    profiler = Profiler()
    run = trainer(profiler)
    model = Model()
    run.fit(model, batches(3), batches(2))
    run.validate(model, batches(2), verbose=False)
    run.test(model, batches(4), verbose=False)
    run.predict(model, batches(5))
    counted = stages(profiler.profiler)
    assert {stage: counted["forward", stage] for stage in ("train", "val", "test", "inference")} == {
        "train": 6, "val": 2 + 2 * 2 + 2, "test": 4, "inference": 5,
    }  # fmt: skip
    assert counted["run_training_epoch", "train"] == 2
    assert counted["run_training_batch", "train"] == 6
    assert counted["[Strategy]SingleDeviceStrategy.training_step", "train"] == 6
    assert counted["[Strategy]SingleDeviceStrategy.validation_step", "val"] == 8
    assert counted["[_TrainingEpochLoop].train_dataloader_next", "train"] >= 6
    assert counted["[_EvaluationLoop].val_next", "val"] >= 8
    assert all(stats.error_count == 0 for stats in profiler.profiler.get_profiling_summary())
    assert profiler._started == {}
    nested = by_name(profiler.profiler)["run_training_batch"]
    assert nested.self_total_ms is not None
    assert nested.self_total_ms < nested.total_ms


def test_results_are_the_same_as_without_and_counts_as_lightning_s_own() -> None:
    weights = []
    simple, profiler = pl.profilers.SimpleProfiler(), Profiler()
    for each in (None, profiler, simple):
        torch.manual_seed(0)
        model = Model()
        trainer(each).fit(model, batches(3), batches(1))
        weights.append(model.layer.weight.detach())
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])
    ours: dict[str, int] = {}
    for stats in profiler.profiler.get_profiling_summary():
        ours[stats.node_name] = ours.get(stats.node_name, 0) + stats.count
    ours.pop("forward")
    assert ours == {name: len(times) for name, times in simple.recorded_durations.items()}


def test_an_exception_in_a_step_is_counted_and_leaves_nothing_open() -> None:
    profiler = Profiler()
    with pytest.raises(ValueError, match="on purpose"):
        trainer(profiler).fit(Model(fails_at=1), batches(3))
    assert outcomes(profiler.profiler, "[Strategy]SingleDeviceStrategy.training_step") == (1, 1, 0, 0, 0)
    assert profiler._started == {}
    with profiler.profile("after"):
        assert profiler.profiler.profiling_enabled
    after = by_name(profiler.profiler)["after"]
    assert after.self_total_ms == after.total_ms


def test_the_report_is_logged_or_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("pytorch_lightning").setLevel(logging.INFO)
    with caplog.at_level(logging.INFO):
        trainer(Profiler()).fit(Model(), batches(1))
    (report,) = [record.message for record in caplog.records if "Profiler Report" in record.message]
    assert report.startswith("FIT Profiler Report\nProfiling Summary\n")
    assert "run_training_epoch" in report
    trainer(Profiler(dirpath=tmp_path, filename="report")).fit(Model(), batches(1))
    assert "run_training_epoch" in (tmp_path / "fit-report.txt").read_text()
    assert Profiler().summary().startswith("Profiler Report\n")


def test_started_and_stopped_by_hand(p: cp.Profiler) -> None:
    profiler = Profiler(p)
    assert profiler.profiler is p
    profiler.start("a")
    profiler.start("b")
    profiler.start("a")
    profiler.stop("a")
    profiler.stop("a")
    profiler.stop("b")
    with cp.stage("val"), profiler.profile("c") as name:
        assert name == "c"
    assert stages(p) == {("a", "inference"): 2, ("b", "inference"): 1, ("c", "val"): 1}
    with pytest.raises(ValueError, match="action_name must be that of an action that was started, got 'a'"):
        profiler.stop("a")


def test_threads_have_actions_of_their_own(p: cp.Profiler) -> None:
    profiler = Profiler(p)
    refused: list[BaseException] = []

    def work() -> None:
        try:
            profiler.stop("action")
        except ValueError as error:
            refused.append(error)
        for _ in range(10):
            profiler.start("action")
            profiler.stop("action")

    profiler.start("action")
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    profiler.stop("action")
    assert len(refused) == 4
    assert counts(p) == {"action": 41}


def test_a_copy_begins_anew_with_the_same_options() -> None:
    profiler = Profiler(skip_first_n=2, filename="report")
    trainer(profiler).fit(Model(), batches(3))
    for made in (pickle.loads(pickle.dumps(profiler)), copy.deepcopy(profiler)):
        assert made.profiler is not profiler.profiler
        assert made.profiler.profiling_enabled
        assert made.filename == "report"
        for _ in range(3):
            with made.profile("action"):
                pass
        assert outcomes(made.profiler, "action") == (1, 0, 0, 2, 0)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"profiler": "simple"}, TypeError, "profiler must be a cprofiling.Profiler, got 'simple'"),
        ({"profiler": profiler_on(), "skip_first_n": 1}, TypeError, "options are for a new Profiler, got skip_first_n"),
        ({"skip_first_n": -1}, ValueError, "skip_first_n must be >= 0, got -1"),
        ({"skip": 1}, TypeError, "skip"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=re.escape(says)):
        Profiler(**arguments)


def test_the_base_class_is_that_of_the_package_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both packages may be there; each one's Trainer belongs to its own profilers."""
    assert integration._base() is pl.profilers.Profiler
    package = types.ModuleType("lightning.pytorch")
    profilers = types.ModuleType("lightning.pytorch.profilers")
    profilers.Profiler = type("Profiler", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lightning", types.ModuleType("lightning"))
    monkeypatch.setitem(sys.modules, "lightning.pytorch", package)
    monkeypatch.setitem(sys.modules, "lightning.pytorch.profilers", profilers)
    assert integration._base() is profilers.Profiler
    for name in [name for name in sys.modules if name.partition(".")[0] in {"lightning", "pytorch_lightning"}]:
        monkeypatch.delitem(sys.modules, name)
    there = ["pytorch_lightning"]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name in there)
    monkeypatch.setattr(importlib, "import_module", lambda name: types.SimpleNamespace(Profiler=name))
    assert integration._base() == "pytorch_lightning.profilers"
    there.clear()
    assert integration._base() == "lightning.pytorch.profilers"


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    output = output_of("lightning_profiler.py", capsys)
    right = re.search(r"^([\d.]+)% of 297 digits read correctly$", output, re.MULTILINE)
    assert right is not None
    assert float(right[1]) > 80
    assert counts_in(output) == {
        ("train", "run_training_batch"): 35,
        ("train", "[LightningModule]Reader.optimizer_step"): 35,
        ("train", "read"): 35,
        ("val", "read"): 10,
        ("test", "read"): 2,
    }
