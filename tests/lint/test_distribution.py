"""What is wrong with the files of a release is found: each fault is planted into files that have none."""

from __future__ import annotations

import re
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import cprofiling
import distribution
from distribution import main, problems, version_of

pytestmark = pytest.mark.lint

TAG = "cp311-cp311-manylinux_2_34_x86_64"
WHEEL, SOURCE = f"cprofiling-1.2-{TAG}.whl", "cprofiling-1.2.tar.gz"
ABOUT = "cprofiling-1.2.dist-info"
EXTENSION = "cprofiling/_core.cpython-311-x86_64-linux-gnu.so"
METADATA = """\
Metadata-Version: 2.4
Name: cprofiling
Version: 1.2
License-Expression: MIT
License-File: LICENSE

# cprofiling
## Quick start
"""
CHECKOUT = {"setup.py", "python/cprofiling/__init__.py", "python/cprofiling_pytest.py", "python/examples/one.py"}
SHOWN = 'consistent with the\nfollowing platform tag:\n"manylinux_2_34_x86_64".\n'


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., bytes]:
    folder = tmp_path_factory.mktemp("built")

    def built(code: str, *flags: str) -> bytes:
        target = folder / "made.so"
        command = ["gcc", "-shared", "-fPIC", "-fvisibility=hidden", "-x", "c", "-", "-o", str(target), *flags]
        subprocess.run(command, input=code, text=True, check=True)
        return target.read_bytes()

    return built


EXPORTED = '__attribute__((visibility("default"))) void *'
ENTRY = f"extern void *_Py_NoneStruct; {EXPORTED}PyInit__core(void) {{ return &_Py_NoneStruct; }}\n"


@pytest.fixture
def files(build: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """A wheel's files; what auditwheel shows of it is what it shows of one without fault."""
    real = distribution.output
    monkeypatch.setattr(
        distribution, "output", lambda *command: SHOWN if command[0] == "auditwheel" else real(*command)
    )
    return {
        "cprofiling/__init__.py": b"",
        "cprofiling_pytest.py": b"",
        EXTENSION: build(ENTRY),
        f"{ABOUT}/METADATA": METADATA.encode(),
        f"{ABOUT}/WHEEL": f"Tag: {TAG}\n".encode(),
        f"{ABOUT}/licenses/LICENSE": b"",
    }


def release(
    folder: Path, files: dict[str, bytes], name: str = WHEEL, left_out: str = "", python: str = "3.11"
) -> list[str]:
    """Makes the two files of a release, and returns what is wrong with them."""
    with zipfile.ZipFile(folder / name, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    with tarfile.open(folder / SOURCE, "w:gz") as sources:
        for path in sorted({*CHECKOUT, "PKG-INFO", "python/cprofiling.egg-info/SOURCES.txt"} - {left_out}):
            sources.addfile(tarfile.TarInfo(f"cprofiling-1.2/{path}"))
    return list(problems(folder, CHECKOUT, "1.2", [python]))


@pytest.mark.parametrize(
    ("python", "tag"),
    [
        ("3.11", TAG),
        ("3.14", "cp314-cp314-manylinux_2_34_x86_64"),
        ("3.13t", "cp313-cp313t-manylinux_2_34_x86_64"),
        ("3.11", "cp311-cp311-manylinux_2_34_aarch64"),
    ],
)
def test_nothing_is_wrong(
    files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str, tag: str
) -> None:
    real, platform = distribution.output, tag.rpartition("-")[2]
    monkeypatch.setattr(
        distribution, "output", lambda *command: real(*command).replace("manylinux_2_34_x86_64", platform)
    )
    files[f"{ABOUT}/WHEEL"] = f"Tag: {tag}\n".encode()
    assert release(tmp_path, files, name=f"cprofiling-1.2-{tag}.whl", python=python) == []


def test_a_wheel_without_the_lock_is_not_one_with_it(files: dict[str, bytes], tmp_path: Path) -> None:
    name = "cprofiling-1.2-cp313-cp313t-manylinux_2_34_x86_64.whl"
    assert release(tmp_path, files, name=name, python="3.13") == [
        "there are 0 manylinux wheels of 1.2 for CPython 3.13",
        f"{name}: does not belong to the release",
    ]


@pytest.mark.parametrize(
    ("path", "old", "new", "said"),
    [
        ("METADATA", b"Version: 1.2\n", b"Version: 1.3\n", "Version is 1.3, not 1.2"),
        ("METADATA", b"License-Expression: MIT\n", b"", "License-Expression is None, not MIT"),
        ("METADATA", b"License-File: LICENSE\n", b"", "License-File is None, not LICENSE"),
        ("METADATA", b"## Quick start", b"", "its description is not the README"),
        ("WHEEL", b"manylinux_2_34", b"linux", f"its tags are ['cp311-cp311-linux_x86_64'], not ['{TAG}']"),
    ],
)
def test_metadata(files: dict[str, bytes], tmp_path: Path, path: str, old: bytes, new: bytes, said: str) -> None:
    changed = files[f"{ABOUT}/{path}"].replace(old, new)
    assert release(tmp_path, {**files, f"{ABOUT}/{path}": changed}) == [f"{WHEEL}: {said}"]


@pytest.mark.parametrize(
    ("code", "flags", "said"),
    [
        ("int _PyA(void); int f(void) { return _PyA(); }", [], "it uses _PyA, which is private to CPython"),
        (f"{EXPORTED}open_to_all(void) {{ return 0; }}", [], "it offers open_to_all"),
        ("", ["-Wl,-rpath=/home/me/lib"], "it looks for libraries in /home/me/lib"),
        ("", ["-Wl,--no-as-needed", "-lgcc_s"], "it needs libgcc_s.so.1"),
        ("int f(void) { return 0; }", ["-g", "-ffile-prefix-map=/=./"], "it has what debuggers read"),
        ('const char *f(void) { return "at /home/me/build/x.c"; }', [], "it names /home/me/build/x.c"),
    ],
)  # fmt: skip
def test_the_extension(
    files: dict[str, bytes], build: Callable[..., bytes], tmp_path: Path, code: str, flags: list[str], said: str
) -> None:
    code = re.sub(r"((const char \*|int )f\()", r"__attribute__((used)) static \1", code)
    assert release(tmp_path, {**files, EXTENSION: build(ENTRY + code, *flags)}) == [f"{WHEEL}: {said}"]


def test_an_extension_without_an_entry(files: dict[str, bytes], build: Callable[..., bytes], tmp_path: Path) -> None:
    assert release(tmp_path, {**files, EXTENSION: build("")}) == [f"{WHEEL}: Python finds no entry to it"]


def test_files_of_a_wheel(files: dict[str, bytes], tmp_path: Path) -> None:
    del files["cprofiling_pytest.py"], files[EXTENSION]
    files["cprofiling/left_over.py"] = files["examples/one.py"] = b""
    assert release(tmp_path, files) == [
        f"{WHEEL}: cprofiling_pytest.py is missing",
        f"{WHEEL}: cprofiling/left_over.py should not be there",
        f"{WHEEL}: examples/one.py should not be there",
        f"{WHEEL}: its extensions are []",
    ]


def test_files_of_a_source_distribution(files: dict[str, bytes], tmp_path: Path) -> None:
    assert release(tmp_path, files, left_out="setup.py") == [f"{SOURCE}: setup.py is missing"]


def test_files_of_a_release(files: dict[str, bytes], tmp_path: Path) -> None:
    assert release(tmp_path, files, name="cprofiling-1.2-cp311-cp311-linux_x86_64.whl") == [
        "there are 0 manylinux wheels of 1.2 for CPython 3.11",
        "cprofiling-1.2-cp311-cp311-linux_x86_64.whl: does not belong to the release",
    ]
    (tmp_path / SOURCE).unlink()
    assert f"there is no {SOURCE}" in problems(tmp_path, CHECKOUT, "1.2", ["3.11"])


def test_a_tag_that_auditwheel_does_not_find(
    files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = WHEEL.replace("2_34", "2_17")
    files[f"{ABOUT}/WHEEL"] = files[f"{ABOUT}/WHEEL"].replace(b"2_34", b"2_17")
    assert release(tmp_path, files, name=name) == [
        f"{name}: auditwheel does not find its tag: " + " ".join(SHOWN.split())
    ]


def test_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listing = tmp_path / "listing"
    listing.write_text("setup.py\n", encoding="utf-8")
    (tmp_path / "dist").mkdir()
    assert main(str(tmp_path / "dist"), str(listing)) == 1
    assert capsys.readouterr().out == f"there is no cprofiling-{cprofiling.__version__}.tar.gz\n"
    with tarfile.open(tmp_path / "dist" / f"cprofiling-{cprofiling.__version__}.tar.gz", "w:gz") as sources:
        sources.addfile(tarfile.TarInfo("cprofiling/setup.py"))
    assert main(str(tmp_path / "dist"), str(listing), *[]) == 0
    assert version_of('"""Text."""\n__version__ = "4.5" # here\n') == "4.5"
