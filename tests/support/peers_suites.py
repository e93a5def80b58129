"""Run a peer's own test suite with and without our `install()`, and compare test by test.

    python tests/support/peers_suites.py cuvis-ai-core [--tests tests/pipeline] [--folder FOLDER]
    python tests/support/peers_suites.py telefuser

The suite comes from the peer's source distribution, which pip fetches into FOLDER unless it is there. What the suites
need beside the extra [peers] is in tests/support/peers_suites.txt. Exit status 1: an outcome differs, or nothing ran.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

INSTALL = "CPROFILING_PEERS_SUITES_INSTALL"  # tells the plugin which drop-in to install
LIMIT_S = 3000
REPEATS = 2  # of tests that ended differently: some depend on the load of the machine


class Suite(NamedTuple):
    """A peer's tests."""

    version: str
    module: str
    tests: str
    options: tuple[str, ...] = ()


SUITES = {
    "cuvis-ai-core": Suite("0.18.6", "cprofiling.integrations.cuvis", "tests", ("-m", "not stress")),
    "telefuser": Suite("0.1.0.post3", "cprofiling.integrations.telefuser", "tests/unit"),
}
Outcomes = dict[str, str]


def pytest_configure() -> None:
    """Install the drop-in: pytest loads this file as a plugin."""
    if INSTALL in os.environ:
        importlib.import_module(os.environ[INSTALL]).install()


def fetched(name: str, folder: Path) -> Path:
    """Return the folder of a peer's sources, fetched and unpacked if need be."""
    version = SUITES[name].version
    stem = f"{name.replace('-', '_')}-{version}"
    if not (folder / stem).is_dir():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", name]
        subprocess.run([*command, "--dest", folder, f"{name}=={version}"], check=True)
        with tarfile.open(folder / f"{stem}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return folder / stem


def run(suite: Suite, sources: Path, tests: str, report: Path, *, installs: bool) -> Outcomes:
    """Run tests of a suite, and return how each ended."""
    path = [str(Path(__file__).parent), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    if installs:
        environment[INSTALL] = suite.module
    command = [
        sys.executable, "-m", "pytest", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "no:cprofiling_pytest",
        "-p", Path(__file__).stem, "--tb=no", "--continue-on-collection-errors", f"--junit-xml={report}",
        *suite.options, tests,
    ]  # fmt: skip
    report.unlink(missing_ok=True)
    ended = subprocess.run(
        command, cwd=sources, env=environment, timeout=LIMIT_S, check=False, capture_output=True, text=True
    )
    if not report.exists():
        sys.exit(f"the suite did not end (status {ended.returncode}):\n{ended.stdout[-4000:]}{ended.stderr[-4000:]}")
    found: Outcomes = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        kinds = sorted({child.tag for child in case} & {"failure", "error", "skipped"})
        found[f"{case.get('classname')}::{case.get('name')}"] = "+".join(kinds) or "passed"
    return found


def compared(without: Outcomes, having: Outcomes) -> dict[str, str]:
    """Return the tests that ended differently, each with how."""
    pairs = {
        name: (without.get(name, "did not run"), having.get(name, "did not run")) for name in {**without, **having}
    }
    return {name: f"{one} without install(), {other} with" for name, (one, other) in pairs.items() if one != other}


def main() -> int:
    """Compare a suite's outcomes; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--tests", help="a path in the source distribution")
    parser.add_argument("--folder", type=Path, help="where source distributions are kept")
    asked = parser.parse_args()
    suite = SUITES[asked.suite]
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        sources, report = fetched(asked.suite, folder.resolve()), Path(scratch) / "report.xml"
        rounds: list[dict[str, str]] = []
        while len(rounds) <= REPEATS and all(rounds):
            without = run(suite, sources, asked.tests or suite.tests, report, installs=False)
            having = run(suite, sources, asked.tests or suite.tests, report, installs=True)
            different = compared(without, having)
            rounds.append({name: how for name, how in different.items() if not rounds or name in rounds[-1]})
            print(f"round {len(rounds)}, {len(different)} tests ended differently")
            print(*(f"  {name}: {how}" for name, how in different.items()), sep="\n", flush=True)
    for label, outcomes in (("without", without), ("with", having)):
        print(f"{label} install():", *(f"{count} {kind}" for kind, count in sorted(Counter(outcomes.values()).items())))
    return 1 if rounds[-1] or not without else 0


if __name__ == "__main__":
    sys.exit(main())
