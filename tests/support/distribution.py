"""Looks at the files of a release, which ``.ci/run`` makes; prints what is wrong, and ends with status 1 then.

``python tests/support/distribution.py FOLDER LIST VERSION...``: the folder has the source distribution and a
wheel for each of the versions of CPython, such as 3.11 or 3.13t; the list is a file that names those of the checkout,
one a line.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from email import message_from_string
from pathlib import Path
from tempfile import TemporaryDirectory

# What is private of CPython by name, but what public macros and inline functions of some version stand for.
EXPANDED = {
    "_PyArg_ParseTupleAndKeywords_SizeT", "_PyArg_ParseTuple_SizeT", "_PyObject_CallFunction_SizeT",
    "_PyObject_CallMethod_SizeT", "_PyObject_GC_New", "_PyObject_MakeTpCall", "_PyObject_New", "_Py_BuildValue_SizeT",
    "_Py_CheckFunctionResult", "_Py_Dealloc", "_Py_DecRefShared", "_Py_FalseStruct", "_Py_MergeZeroLocalRefcount",
    "_Py_NoneStruct", "_Py_NotImplementedStruct", "_Py_TrueStruct",
}  # fmt: skip
LIBRARIES = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
OF_ALL_MACHINES = ("/proc/", "/sys/", "/dev/", "/run/nvidia/", "/nvidia/nvtx/")  # the last is below a variable
BUILT = {"PKG-INFO", "setup.cfg"}  # what is in a source distribution, and not in a checkout


def problems(folder: Path, listed: set[str], version: str, pythons: Sequence[str]) -> Iterator[str]:
    """What is wrong, each as ``file: what``; ``listed`` has the checkout's files, ``version`` is the package's."""
    left = {path.name for path in folder.iterdir()}
    source = f"cprofiling-{version}.tar.gz"
    if source in left:
        yield from (f"{source}: {what}" for what in of_source(folder / source, listed))
    else:
        yield f"there is no {source}"
    for python in pythons:
        abi = f"cp{python.replace('.', '')}"
        tag = rf"{abi.removesuffix('t')}-{abi}-manylinux_2_\d+_(?:x86_64|aarch64)"
        name = re.compile(rf"cprofiling-{re.escape(version)}-({tag})\.whl")
        wheels = [match for match in map(name.fullmatch, left) if match]
        if len(wheels) != 1:
            yield f"there are {len(wheels)} manylinux wheels of {version} for CPython {python}"
        for wheel in wheels:
            yield from (f"{wheel[0]}: {what}" for what in of_wheel(folder / wheel[0], listed, version, wheel[1]))
            left.discard(wheel[0])
    yield from (f"{name}: does not belong to the release" for name in sorted(left - {source}))


def of_source(path: Path, listed: set[str]) -> Iterator[str]:
    """A source distribution: it has what the checkout has."""
    with tarfile.open(path) as archive:
        members = {member.name.partition("/")[2] for member in archive if not member.isdir()}
    found = {name for name in members - BUILT if ".egg-info/" not in name}
    yield from differences(listed, found)


def differences(expected: set[str], found: set[str]) -> Iterator[str]:
    """The names that only one of the two has."""
    yield from (f"{name} is missing" for name in sorted(expected - found))
    yield from (f"{name} should not be there" for name in sorted(found - expected))


def of_wheel(path: Path, listed: set[str], version: str, tag: str) -> Iterator[str]:
    """A wheel: its files, its metadata, its extension, and whether it may bear its tag."""
    about = f"cprofiling-{version}.dist-info"
    with zipfile.ZipFile(path) as archive, TemporaryDirectory() as folder:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        extensions = [name for name in names if name.endswith(".so")]
        package = {name.removeprefix("python/") for name in listed if name.startswith("python/cprofiling")}
        yield from differences(package, {name for name in names if not name.startswith(about)} - set(extensions))
        if len(extensions) != 1 or not extensions[0].startswith("cprofiling/_core."):
            yield f"its extensions are {sorted(extensions)}"
        metadata, wheel = (archive.read(f"{about}/{name}").decode() for name in ("METADATA", "WHEEL"))
        yield from of_metadata(metadata, wheel, version, tag)
        for name in extensions:
            yield from of_extension(Path(archive.extract(name, folder)))
    shown = " ".join(output("auditwheel", "show", path).split())
    if f'platform tag: "{tag.rpartition("-")[2]}"' not in shown:
        yield f"auditwheel does not find its tag: {shown}"


def of_metadata(metadata: str, wheel: str, version: str, tag: str) -> Iterator[str]:
    """What a wheel says about itself."""
    said = message_from_string(metadata)
    expected = {"Name": "cprofiling", "Version": version, "License-Expression": "MIT", "License-File": "LICENSE"}
    yield from (f"{key} is {said[key]}, not {value}" for key, value in expected.items() if said[key] != value)
    if "## Quick start" not in str(said.get_payload()):
        yield "its description is not the README"
    tags = message_from_string(wheel).get_all("Tag")
    if tags != [tag]:
        yield f"its tags are {tags}, not [{tag!r}]"


def of_extension(path: Path) -> Iterator[str]:
    """The shared library: what it needs, what it offers, and that it has nothing of the machine that built it."""
    dynamic = output("readelf", "--dynamic", "--wide", path)
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
    yield from (f"it needs {name}" for name in sorted(needed - LIBRARIES))
    searched = re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", dynamic)
    yield from (f"it looks for libraries in {where}" for where in searched)
    if ".debug_info" in output("readelf", "--sections", "--wide", path):
        yield "it has what debuggers read"
    named = set(re.findall(r"(?<![\w.])/[a-z]\w*/.*", output("strings", "--all", "--bytes=6", path))) - set(searched)
    yield from (f"it names {where}" for where in sorted(named) if not where.startswith(OF_ALL_MACHINES))
    asked = {line.split()[-1] for line in output("nm", "--dynamic", "--undefined-only", path).splitlines()}
    private = {name for name in asked if name.startswith("_Py")} - EXPANDED
    yield from (f"it uses {name}, which is private to CPython" for name in sorted(private))
    offered = {line.split()[-1] for line in output("nm", "--dynamic", "--defined-only", path).splitlines()}
    yield from (f"it offers {name}" for name in sorted(offered - {"PyInit__core"}))
    if "PyInit__core" not in offered:
        yield "Python finds no entry to it"


def output(*command: str | Path) -> str:
    """What a program prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def version_of(text: str) -> str:
    """The version that ``cprofiling/__init__.py`` says."""
    (version,) = re.findall(r'^__version__ = "(.*?)"', text, re.MULTILINE)
    return str(version)


def main(folder: str, listing: str, *pythons: str) -> int:
    """Print what is wrong, and return the exit status."""
    here = Path(__file__).resolve().parents[2]
    version = version_of((here / "python/cprofiling/__init__.py").read_text(encoding="utf-8"))
    listed = set(Path(listing).read_text(encoding="utf-8").split("\n")) - {""}
    found = list(problems(Path(folder), listed, version, pythons))
    print("\n".join(found) or f"{version}: a source distribution, and wheels for CPython {', '.join(pythons)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
