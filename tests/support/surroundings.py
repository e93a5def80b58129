"""Surroundings that incomplete examples in documents need to run."""

from __future__ import annotations

import contextlib
import io
import sys
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from document_runs import run_python, run_shell
from documents import ROOT

# A group of this process alone.
_GROUP = """
import torch.distributed as dist
import cprofiling
dist.init_process_group("gloo", store=dist.FileStore("store", 1), rank=0, world_size=1)
profiler = cprofiling.Profiler()
profiler.set_profiling(True)
profiler.record("inference", "denoise", 2.0)
"""
_AFTER_GROUP = """
assert [row.count for row in merged.snapshot.stats()] == [1]
dist.destroy_process_group()
"""
# The pipeline of the example, trained for one turn.
_CUVIS = f"""
import functools, logging, runpy
example = runpy.run_path({str(ROOT / "python" / "examples" / "cuvis_pipeline.py")!r})
globals().update(example)
logger.remove()
for name in ("lightning", "lightning_fabric", "pytorch_lightning", "lightning.fabric", "lightning.pytorch"):
    logging.getLogger(name).setLevel(logging.ERROR)
config = TrainingConfig(max_epochs=1, accelerator="cpu", enable_progress_bar=False, num_sanity_val_steps=0)
config.default_root_dir = "."
GradientTrainer = functools.partial(GradientTrainer, training_config=config)
data = Digits()
pipeline, loss = build()
"""
_CUVIS_IMPORTS = ("cuvis_ai_core", "pytorch_lightning", "sklearn")
# Libraries of functions that are as native as need be, and what calls them.
_LIBRARIES = {
    "torchfx/__init__.py": "",
    "torchfx/_ops.py": "def parallel_iir_forward(): pass\n",
    "mypkg/__init__.py": "",
    "mypkg/native.py": "def filter(): pass\n",
}
_FIXTURES = """
import sys, types
import pytest
import mypkg.native
import torchfx._ops

class Wave:
    def __or__(self, other):
        return self

    @property
    def ys(self):
        torchfx._ops.parallel_iir_forward()

@pytest.fixture
def wave():
    return Wave()
"""
_NAMES = """
import mypkg.native
chain = frame = None
pipeline = lambda frame: [mypkg.native.filter() for _ in range(3)]
old_filter = new_filter = lambda: sum(range(1000))
"""


# A shell as notebooks have it.
_NOTEBOOK = """
import os, sys, warnings
sys.stderr = sys.stdout  # bars of progress
os.environ["IPYTHONDIR"] = {folder!r}
os.environ["MPLBACKEND"] = "agg"
warnings.simplefilter("ignore")
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in {cells!r}:
    shell.run_cell(cell).raise_error()
"""


def _in_group(code: str, folder: Path) -> None:
    (folder / "stats").mkdir()
    output = _printed(_GROUP + code + _AFTER_GROUP)
    assert output.startswith("{}\n")
    assert "denoise" in output
    assert list((folder / "stats").iterdir())


def _in_cuvis(code: str, folder: Path) -> None:
    for name in _CUVIS_IMPORTS:
        pytest.importorskip(name)
    from cprofiling.integrations import cuvis

    try:
        output = _printed(_CUVIS + code)
    finally:
        cuvis.uninstall()
    assert "Profiling Summary" in output
    assert output.splitlines()[-1].endswith(" 2")  # were skipped


def _printed(code: str) -> str:
    """Run code in this process, and return its output."""
    hook = sys.excepthook  # a process group puts one of its own in its place
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()) as output:
            warnings.simplefilter("ignore")  # of what these packages themselves use
            exec(code, {"__name__": "__main__"})
    finally:
        sys.excepthook = hook
    return output.getvalue()


def in_notebook(cells: list[str], folder: Path) -> None:
    """Run cells of a notebook, one after the other."""
    pytest.importorskip("IPython")
    run_python(_NOTEBOOK.format(folder=str(folder), cells=cells), folder)


def _in_pytest(code: str, folder: Path) -> None:
    pytest.importorskip("torch")
    for name, content in _LIBRARIES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    (folder / "conftest.py").write_text(_FIXTURES)
    (folder / "test_readme.py").write_text(textwrap.dedent(_NAMES) + code)
    assert "2 passed" in run_shell("python -m pytest -q -p no:cacheprovider test_readme.py", folder)


def _as_program(*packages: str) -> Callable[[str, Path], str]:
    def run(code: str, folder: Path) -> str:
        for package in packages:
            pytest.importorskip(package)
        (folder / "program.py").write_text(code)
        quiet = "PYTHONWARNINGS=ignore RAY_AUTH_MODE=disabled"
        return run_shell(f"{quiet} python program.py 2>/dev/null", folder)

    return run


SURROUNDINGS: dict[tuple[str, str], Callable[[str, Path], str | None]] = {
    ("python/docs/pages/guides/many-ranks.md", "While they run"): _in_group,
    ("python/docs/pages/guides/integrations.md", "Pipelines of cuvis-ai-core"): _in_cuvis,
    ("python/docs/pages/guides/ci.md", "The marker and the fixtures"): _in_pytest,
    ("python/docs/pages/guides/pools.md", "joblib"): _as_program("joblib"),
    ("python/docs/pages/guides/ray-spark.md", "Ray"): _as_program("ray"),
    ("python/docs/pages/guides/trainer.md", "The Trainer"): _as_program("pytorch_lightning"),
}
