"""The lists that the build is told by hand are complete."""

from __future__ import annotations

import ast
import json
import re

import pytest

import cprofiling
from repository import BINDING, CORE, PACKAGE, ROOT

pytestmark = pytest.mark.lint

PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_build_and_the_tests_find_the_same_headers() -> None:
    found = []
    for name in ("setup.py", "tests/support/nvtx_headers.py"):
        tree = ast.parse((ROOT / name).read_text(encoding="utf-8"))
        (function,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "nvtx_include"]
        found.append(ast.unparse(function.body[1:]))  # type: ignore[arg-type]
    assert found[0] == found[1]


def test_every_package_is_installed() -> None:
    assert re.search(r'packages\.find\]\nwhere = \["python"\]\ninclude = \["cprofiling\*"\]', PYPROJECT)
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_the_audit_of_packages_is_claimed_only_where_it_can_run() -> None:
    """Elsewhere its database may be out of reach, and it says that nothing was found."""
    texts = [ROOT / "README.md", *(ROOT / ".ci").glob("*"), *(ROOT / ".github").rglob("*")]
    texts += [*PACKAGE.parent.rglob("*.md"), *PACKAGE.parent.rglob("*.py")]
    named = [path for path in texts if path.is_file() and "pip-audit" in path.read_text(encoding="utf-8")]
    assert named == [ROOT / ".github/workflows/nightly.yml"]
    assert "bin/pip-audit --strict" in named[0].read_text(encoding="utf-8")


def test_the_top_level_is_the_owners() -> None:
    known = {"cprofiling", "csrc", "python", "tests", "pyproject.toml", "setup.py", "README.md", "LICENSE"}
    made = {"build", "dist", "PKG-INFO", "setup.cfg"}  # the latter two are in source distributions
    assert {path.name for path in ROOT.iterdir() if not path.name.startswith(".")} - made == known


def test_supported_versions_are_said_once_each_way() -> None:
    assert 'requires-python = ">=3.10"\n' in PYPROJECT
    classifiers = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PYPROJECT)
    assert classifiers == ["3.10", "3.11", "3.12", "3.13", "3.14", "3.15"]
    compat = (BINDING / "compat.h").read_text(encoding="utf-8")
    assert re.findall(r"(.*)\n#error", compat) == ["#if PY_VERSION_HEX < 0x030a0000"]


def test_every_supported_version_is_tested() -> None:
    classifiers = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PYPROJECT)
    ci = ROOT / ".ci"
    assert f"\nVERSIONS = {json.dumps(classifiers)}\n" in (ci / "noxfile.py").read_text(encoding="utf-8")
    nightly = (ci / "nightly").read_text(encoding="utf-8")
    assert re.findall(r"'whole\((3\.\d+)\)'", nightly) == classifiers
    for workflow in (ROOT / ".github" / "workflows").iterdir():
        told = re.findall(r"^ +(3\.\d+)$", workflow.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(told) == set(classifiers), workflow
    newest = re.findall(r"python(3\.\d+)-venv", (ci / "pythons").read_text(encoding="utf-8"))
    assert newest == classifiers[-len(newest) :]


def test_the_version_is_said_once() -> None:
    version = cprofiling.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version)
    sources = [*(ROOT / "python").rglob("*.py"), *CORE.rglob("*.[ch]"), *BINDING.rglob("*.[ch]"), ROOT / "setup.py"]
    quoted = re.compile(rf"(?<![\d.]){re.escape(version)}(?![\d.])")
    said = [path for path in sources if quoted.search(path.read_text(encoding="utf-8"))]
    assert said == [PACKAGE / "__init__.py"]
    assert re.findall(r"^version\b.*$", PYPROJECT, re.MULTILINE) == ['version = { attr = "cprofiling.__version__" }']


def test_the_changelog_begins_with_this_version() -> None:
    docs = ROOT / "python" / "docs"
    changelog = (docs / "pages" / "development" / "changelog.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (\S+) \((?:\d{4}-\d{2}-\d{2}|not released yet)\)$", changelog, re.MULTILINE)
    assert versions[0] == cprofiling.__version__
    assert len(versions) == len(re.findall(r"^## ", changelog, re.MULTILINE))
    changes = list((docs / "changes").iterdir())
    assert changes
    for path in changes:
        assert re.fullmatch(r"[a-z-]+\.(added|changed|deprecated|removed|fixed|security)\.md", path.name)
        assert 1 <= len(path.read_text(encoding="utf-8").splitlines()) <= 12
