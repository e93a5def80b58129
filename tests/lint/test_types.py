"""What type checkers see: annotations that hold, stubs that are true, and users' code that is accepted or refused."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import cprofiling
from calls import unwatched

pytestmark = pytest.mark.lint

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(cprofiling.__file__).parent
STUB = PACKAGE / "_core.pyi"
# What the package only uses where it is there: reading it takes longer than all else.
USED = (
    "IPython.*, distributed.*, google.*, grpc.*, jinja2.*, matplotlib.*, numpy.*, opentelemetry.*, pandas.*, polars.*,"
    " prometheus_client.*, pyarrow.*, rich.*, scipy.*, sklearn.*, torch.*, tqdm.*, trio.*"
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first run leaves what the others need not read again."""
    return tmp_path_factory.mktemp("mypy")


def run_mypy(cache: Path, module: str, option: str, *arguments: str) -> str:
    """Run mypy, or a tool of it, on the package that is tested, and return what it says when it is not content."""
    pytest.importorskip("mypy")
    configuration = cache / "mypy.ini"
    configuration.write_text(f"[mypy]\n[mypy-{USED.replace(' ', '')}]\nfollow_imports = skip\n", encoding="utf-8")
    environment = {**unwatched(), "MYPY_CACHE_DIR": str(cache)}
    if PACKAGE.parent.name != "site-packages":  # where mypy looks anyhow, and wants to hear nothing of it
        environment |= {"MYPYPATH": str(PACKAGE.parent), "PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-m", module, option, str(configuration), *arguments]
    done = subprocess.run(command, cwd=cache, env=environment, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"exit status {done.returncode}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("name", ["usage", "misuse"])
def test_code_of_users(name: str, cache: Path) -> None:
    assert run_mypy(cache, "mypy", "--config-file", "--strict", str(ROOT / "tests" / "typing" / f"{name}.py")) == ""


@pytest.mark.slow
def test_the_stubs_are_true(cache: Path) -> None:
    assert run_mypy(cache, "mypy.stubtest", "--mypy-config-file", "cprofiling._core") == ""


def test_the_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()
    assert STUB.is_file()


def test_the_stubs_name_the_files_of_the_extension() -> None:
    text = STUB.read_text(encoding="utf-8")
    named = set(re.findall(r"csrc/[\w/]+\.[ch]", text))
    assert {name for name in named if not (ROOT / name).is_file()} == set()
    classes = re.findall(r"^class (\w+).*?(?=^\S)", text, re.MULTILINE | re.DOTALL)
    described = re.findall(r"^class (\w+)[^\n]*\n    \"\"\"[^\n]* Is in csrc/", text, re.MULTILINE)
    assert described == classes
    assert len(classes) > 5
