"""Every check of the project, as a session each. ``python -m nox -f .ci/noxfile.py -l`` lists them.

``.ci/run`` and ``.ci/nightly`` run them two at a time, and say which run when. ``environment`` and ``wheels`` come
first: the others test what those two have made below ``.ci/work``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nox

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / ".ci" / "work"
WHEELS = WORK / "wheels"
PYTHON = str(WORK / "environment/bin/python")  # with all peers, linters and what the documentation needs
RELEASE = WORK / "release/bin"  # makes wheels and looks at them
VERSIONS = ["3.10", "3.11", "3.12", "3.13"]
PYTHON_FLOOR, LINE_FLOOR, BRANCH_FLOOR = 97, 98, 91  # percent
# Where everything is installed: other Pythons have it, or the machine itself refuses.
MAY_BE_SKIPPED = re.compile(
    r"(came with|from) Python 3|telefuser.s stages need|there is no strace|strace may not trace|not on PATH:"
    r"|cannot build for|do not run on this|needs the traces in|only root can"
)
# The interpreter keeps memory until its end: leaks are looked for without sanitizers.
SANITIZED = {
    "PYTHONMALLOC": "malloc",
    "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
}
CLEAN_CHECK = """
import cprofiling, sys
from importlib.metadata import version
assert version("cprofiling") == cprofiling.__version__
cprofiling.set_profiling(True)
with cprofiling.profile_node("node"):
    pass
print(sys.version.split()[0], cprofiling.get_profiling_summary())
assert [row.count for row in cprofiling.get_profiling_summary()] == [1]
"""

each_python = nox.parametrize("version", VERSIONS, ids=VERSIONS)
nox.needs_version = ">=2024.4"
nox.options.default_venv_backend = "none"
nox.options.envdir = str(WORK / "nox")
nox.options.sessions = []

# ccache, where it is installed, stands before the compilers.
os.environ["PATH"] = f"/usr/lib/ccache:{os.environ['PATH']}:{WORK / 'prometheus/usr/bin'}"
# Where it is there, tests read real traces; the sessions run in copies of the tree.
os.environ.setdefault("CPROFILING_TRACES", str(ROOT.parent / "shared/data/traces"))


# ---- shared by the sessions


def copy_tree(session: nox.Session) -> Path:
    """Work in a copy of the sources, so that builds of several sessions do not meet."""
    tree = WORK / "trees" / session.name
    shutil.rmtree(tree, ignore_errors=True)
    for name in listed_files():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name)
    session.chdir(tree)
    return tree


def listed_files() -> list[str]:
    """Return the files of the checkout that are there and not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in listing.split("\0") if name and (ROOT / name).is_file()]


def make_environment(session: nox.Session, python: str, folder: Path) -> str:
    """Make a virtual environment and return its interpreter."""
    session.run(python, "-m", "venv", "--clear", str(folder))
    return str(folder / "bin/python")


def install(session: nox.Session, python: str, *packages: str, **environment: str) -> None:
    """Install packages; once more if that fails, as the package index may have been away."""
    command = [python, "-m", "pip", "install", "--quiet", "--no-compile", "--retries=10", *packages]
    try:
        session.run(*command, env=environment)
    except nox.command.CommandFailed:
        session.warn("pip failed, once more:")
        session.run(*command, env=environment)


def find_python(version: str) -> str | None:
    """Return the interpreter of a version that has headers and makes environments, None without."""
    homes = {os.environ.get("PYENV_ROOT", ""), str(Path.home() / ".pyenv")} - {""}
    candidates = [path for home in homes for path in sorted(Path(home).glob(f"versions/{version}.*/bin/python"))]
    candidates += [Path(found) for found in [shutil.which(f"python{version}")] if found]
    check = (
        "import ensurepip, os, platform, sys, sysconfig, venv\n"
        "assert '%d.%d' % sys.version_info[:2] == sys.argv[1] and platform.python_implementation() == 'CPython'\n"
        "assert not sysconfig.get_config_var('Py_GIL_DISABLED')\n"
        "assert os.path.exists(os.path.join(sysconfig.get_paths()['include'], 'Python.h'))\n"
    )
    for path in candidates:
        if subprocess.run([path, "-c", check, version], capture_output=True, check=False).returncode == 0:
            return str(path)
    return None


def found_pythons(session: nox.Session) -> dict[str, str]:
    """Return the interpreters of this machine by version; name those that are missing."""
    found = {version: path for version in VERSIONS if (path := find_python(version))}
    for version in set(VERSIONS) - set(found):
        session.warn(f"CPython {version}: not on this machine, NOT TESTED")
    return found


def run_tests(session: nox.Session, marks: str, *options: str, python: str = PYTHON, **environment: str) -> None:
    """Run the tests with these marks; of files that lack the first one nothing is imported."""
    mark = re.match(r"\w+", marks)
    files = ["tests"]
    if mark and mark[0] != "not":
        files = [
            str(path) for path in sorted(Path("tests").rglob("test_*.py")) if f"mark.{mark[0]}" in path.read_text()
        ]
    session.run(python, "-m", "pytest", *files, "-m", marks, *options, *session.posargs, env=environment)


def build_in_place(session: nox.Session, **environment: str) -> None:
    """Build the extension in the copy of the tree."""
    session.run(PYTHON, "setup.py", "--quiet", "build_ext", "--inplace", "--force", env=environment)


# ---- what the others build on


@nox.session
def environment(session: nox.Session) -> None:
    """Make the environment with all peers and linters."""
    copy_tree(session)
    python = make_environment(session, sys.executable, WORK / "environment")
    install(session, python, "--upgrade", "pip", "setuptools", "wheel")
    # By itself and first: where the index has a build for the CPU, the extra is content with it.
    install(session, python, "torch==2.13.0")
    install(session, python, ".[peers,lint,docs]")
    install(session, python, "--no-deps", "--requirement", "tests/support/readers.txt")
    # It comes for CUDA and does not load beside the CPU's torch; torchmetrics would load it.
    session.run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "torchvision")
    # From source, as the wheel is built for another torch; one unit takes a third of the time.
    install(session, python, "annotated-types", "cmake", "ninja", "pybind11", "scikit-build-core", "soundfile")
    torchfx = ["--no-deps", "--no-build-isolation", "--no-binary=torchfx", "torchfx==0.8.0"]
    install(session, python, *torchfx, CMAKE_ARGS="-DTORCHFX_USE_CUDA=OFF -DCMAKE_UNITY_BUILD=ON")
    session.run(python, "-m", "pip", "list")


@nox.session
def wheels(session: nox.Session) -> None:
    """Make the source distribution and from it a wheel for each Python, offline; check them all."""
    project = nox.project.load_toml(ROOT / "pyproject.toml")
    copy_tree(session)
    for folder in (WHEELS, WORK / "built"):
        shutil.rmtree(folder, ignore_errors=True)
    release = make_environment(session, sys.executable, WORK / "release")
    install(session, release, *project["project"]["optional-dependencies"]["dist"])
    session.run(release, "-m", "build", "--sdist", "--outdir", str(WHEELS), ".")
    pythons = found_pythons(session)
    for version, path in pythons.items():
        make_wheel(session, version, path, project["build-system"]["requires"])
    files = sorted(map(str, WHEELS.iterdir()))
    session.run(str(RELEASE / "twine"), "check", "--strict", *files)
    session.run(str(RELEASE / "check-wheel-contents"), *(file for file in files if file.endswith(".whl")))
    (WORK / "files").write_text("\n".join(listed_files()), encoding="utf-8")
    tools = f"{RELEASE}:{os.environ['PATH']}"
    check = [release, "tests/support/distribution.py", str(WHEELS), str(WORK / "files"), *pythons]
    session.run(*check, env={"PATH": tools})


def make_wheel(session: nox.Session, version: str, path: str, requirements: list[str]) -> None:
    """Build a wheel, make it fit for other machines, and use it where nothing else is installed."""
    python = make_environment(session, path, WORK / f"build-{version}")
    install(session, python, *requirements)
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--check-build-dependencies"]
    source = str(next(WHEELS.glob("cprofiling-*.tar.gz")))
    # How this Python was linked itself is of use on this machine only; no symbols for debuggers are kept.
    flags = {"LDSHARED": "gcc -shared", "CFLAGS": "-g0", "CPROFILING_WERROR": "1"}
    command = [python, "-m", "pip", "wheel", "--quiet", *options, "--wheel-dir", str(WORK / "built"), source]
    session.run(*command, env=flags)
    built = str(next((WORK / "built").glob(f"*-cp{version.replace('.', '')}-*.whl")))
    tools = {"PATH": f"{RELEASE}:{os.environ['PATH']}"}
    session.run(str(RELEASE / "auditwheel"), "repair", "--strip", "--wheel-dir", str(WHEELS), built, env=tools)
    clean = make_environment(session, path, WORK / f"clean-{version}")
    session.run(clean, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel_of(version))
    with session.chdir("/"):
        session.run(clean, "-W", "error", "-c", CLEAN_CHECK)
        session.run(str(Path(clean).with_name("cprofiling")), "--version")


def wheel_of(version: str) -> str:
    """Return the wheel for a Python."""
    return str(next(WHEELS.glob(f"*-cp{version.replace('.', '')}-*.whl")))


# ---- tests


@nox.session
def peers(session: nox.Session) -> None:
    """Test beside all peers; no test may miss a package."""
    copy_tree(session)
    build_in_place(session)
    test_beside_peers(session, "not (slow or integration or alone or lint or core)", PYTHONPATH="python")


@nox.session
def peers_whole(session: nox.Session) -> None:
    """Test beside all peers with the slow tests, too, and hold the floors of both coverages."""
    tree = copy_tree(session)
    build_in_place(session, CPROFILING_COVERAGE="1")
    environment = {"PYTHONPATH": "python", "CPROFILING_COVERAGE": "1", "COVERAGE_CORE": "ctrace"}
    test_beside_peers(session, "not (integration or lint)", "-m", "coverage", "run", **environment)
    session.run(PYTHON, "-m", "coverage", "combine", "--quiet")
    session.run(PYTHON, "-m", "coverage", "report", "--precision=2", f"--fail-under={PYTHON_FLOOR}")
    check_exclusions(session, tree)
    floors = [f"--fail-under-line={LINE_FLOOR}", f"--fail-under-branch={BRANCH_FLOOR}"]
    options = ["--gcov-ignore-parse-errors=negative_hits.warn", "--merge-mode-functions=separate", "--txt-summary"]
    session.run(PYTHON, "-m", "gcovr", "--root=.", "--filter=cprofiling/", "--filter=csrc/", *options, *floors, ".")


def test_beside_peers(session: nox.Session, marks: str, *runner: str, **environment: str) -> None:
    """Run the tests with these marks, of which none may be skipped for want of a package."""
    summary = WORK / f"{session.name}.txt"
    # Where frameworks are missing, their files would be named as skipped.
    options = ["--ignore=tests/frameworks", "--durations=100", "-m", marks]
    command = [PYTHON, *runner, "-m", "pytest", "tests", *options]
    with summary.open("w", encoding="utf-8") as output:
        session.run(*command, *session.posargs, env=environment, stdout=output)
    skipped = re.findall(r"^SKIPPED.*", summary.read_text(encoding="utf-8"), re.MULTILINE)
    if wrong := [line for line in skipped if not MAY_BE_SKIPPED.search(line)]:
        session.error("skipped although the extra [peers] is installed:", *wrong)
    print(summary.read_text(encoding="utf-8").splitlines()[-1])


def check_exclusions(session: nox.Session, tree: Path) -> None:
    """Count what is excluded from the coverage of C; in the core nothing may be."""
    for room in ("cprofiling", "csrc"):
        sources = [path.read_text(encoding="utf-8") for path in (tree / room).rglob("*.[ch]")]
        excluded = sum(len(re.findall("GCOVR?_EXCL|LCOV_EXCL", text)) for text in sources)
        session.log(f"exclusion markers in {room}/: {excluded}")
        if room == "cprofiling" and excluded:
            session.error("none is allowed in cprofiling/")


@nox.session
@each_python
def native(session: nox.Session, version: str) -> None:
    """Test the wheel for a Python with what depends on the version of CPython."""
    test_wheel(session, version, "native and not slow")


@nox.session
@each_python
def whole(session: nox.Session, version: str) -> None:
    """Test the wheel for a Python with all but the core's programs and frameworks."""
    test_wheel(session, version, "not (integration or core or lint)")


def test_wheel(session: nox.Session, version: str, marks: str) -> None:
    """Run the tests of the source distribution on what a wheel installs."""
    if find_python(version) is None:
        session.skip(f"CPython {version}: not on this machine, NOT TESTED")
    tree = WORK / "trees" / session.name
    shutil.rmtree(tree, ignore_errors=True)
    shutil.unpack_archive(next(WHEELS.glob("cprofiling-*.tar.gz")), tree)
    [sources] = tree.iterdir()
    shutil.rmtree(sources / "python/cprofiling")  # what is tested is what is installed
    session.chdir(sources)
    python = str(WORK / f"clean-{version}/bin/python")
    install(session, python, f"{wheel_of(version)}[test]")
    run_tests(session, marks, python=python)


@nox.session
def sanitizers(session: nox.Session) -> None:
    """Test the extension and the core's programs under the address and undefined-behaviour sanitizers."""
    copy_tree(session)
    build_in_place(session)
    run_tests(session, "core and asan", PYTHONPATH="python")
    sanitize(session, "native and not (slow or unsanitized)")


@nox.session
def sanitizers_whole(session: nox.Session) -> None:
    """Test the extension under the sanitizers with the slow tests, too, and the core's programs in every build."""
    copy_tree(session)
    build_in_place(session)
    run_tests(session, "core", PYTHONPATH="python")
    sanitize(session, "native and not unsanitized")


def sanitize(session: nox.Session, marks: str) -> None:
    """Run tests on the extension built with sanitizers."""
    build_in_place(session, CPROFILING_SANITIZE="address,undefined")
    library = subprocess.run(["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True)
    environment = SANITIZED | {"PYTHONPATH": "python", "LD_PRELOAD": library.stdout.strip()}
    # First what forks here: before packages start threads, and without the thread that watches for tests which hang,
    # as a fork may find the sanitizer's allocator locked by them.
    run_tests(session, f"forks and {marks}", "-o", "faulthandler_timeout=0", **environment)
    run_tests(session, f"{marks} and not forks", **environment)


@nox.session
def frameworks(session: nox.Session) -> None:
    """Test programs inside the frameworks that people run, with cprofiling as users install it."""
    copy_tree(session)
    install(session, PYTHON, "--requirement", "tests/frameworks/requirements.txt")
    install(session, PYTHON, "--no-deps", "--force-reinstall", ".")
    output = session.run(PYTHON, "-m", "pytest", "tests", "-m", "integration", silent=True)
    session.log(output)
    if re.search(r"^SKIPPED", str(output), re.MULTILINE):
        session.error("nothing may be skipped here")


@nox.session
def suites(session: nox.Session) -> None:
    """Run peers' own test suites with and without our stand-ins, and compare."""
    tree = copy_tree(session)
    build_in_place(session)
    # Some packages are older than ours: an environment of its own, which sees the other's.
    python = make_environment(session, sys.executable, WORK / "suites")
    purelib = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    ours, theirs = (str(session.run(path, "-c", purelib, silent=True)).strip() for path in (python, PYTHON))
    Path(ours, "peers.pth").write_text(f"{theirs}\n", encoding="utf-8")
    install(session, python, "--requirement", "tests/support/peers_suites.txt")
    for peer in ("cuvis-ai-core", "telefuser"):
        command = [python, "tests/support/peers_suites.py", peer, "--folder", str(WORK / "suites-sources")]
        session.run(*command, env={"PYTHONPATH": str(tree / "python")})
    tests = ["tests/integrations/test_telefuser_stage.py", "-p", "no:asyncio"]
    session.run(python, "-m", "pytest", *tests, env={"PYTHONPATH": str(tree / "python")})


@nox.session
def soak(session: nox.Session) -> None:
    """Count calls from many threads for a while."""
    session.chdir(ROOT)
    session.run(PYTHON, "python/benchmarks", "--soak", *(session.posargs or ["0.01"]))


# ---- sources


@nox.session
def lint(session: nox.Session) -> None:
    """Check the sources: ruff, clang-format, cppcheck, rules of ours, the documentation."""
    copy_tree(session)
    session.run(PYTHON, "-m", "ruff", "check", ".")
    session.run(PYTHON, "-m", "ruff", "format", "--check", ".")
    session.run(tool("clang-format"), "--dry-run", "-Werror", *c_sources("*.[ch]"))
    if shutil.which("cppcheck"):
        options = ["--std=c11", "--enable=warning,portability", "--inline-suppr", "--error-exitcode=1", "--quiet"]
        session.run("cppcheck", *options, "-I.", "cprofiling", "csrc")
    build_in_place(session)
    run_tests(session, "lint", PYTHONPATH="python")
    mkdocs = [PYTHON, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", "python/docs/mkdocs.yml"]
    session.run(*mkdocs, env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session
def types(session: nox.Session) -> None:
    """Check types."""
    session.chdir(ROOT)
    session.run(PYTHON, "-m", "mypy", "python", "tests")


@nox.session
def tidy(session: nox.Session) -> None:
    """Run clang-tidy over all C."""
    copy_tree(session)
    include = str(session.run(PYTHON, "-c", "import sysconfig; print(sysconfig.get_paths()['include'])", silent=True))
    nvtx = str(session.run(PYTHON, "tests/support/nvtx_headers.py", silent=True))
    cuda = Path("/usr/local/cuda/include")
    sources = c_sources("*.c")
    if not (cuda / "cuda.h").is_file():  # nvidia-nvtx has only a few of CUDA's headers
        sources = [source for source in sources if not source.endswith("cupti_layout.c")]
    includes = ["-I.", *(part for path in (include, nvtx, str(cuda)) for part in ("-isystem", path.strip()))]
    session.run(tool("clang-tidy"), "--quiet", *sources, "--", "-std=c11", *includes)


def tool(name: str) -> str:
    """Return a program of the environment."""
    return str(Path(PYTHON).with_name(name))


def c_sources(pattern: str) -> list[str]:
    """Return the C files below the working directory."""
    rooms = map(Path, ("cprofiling", "csrc", "tests", "python"))
    return [str(path) for room in rooms for path in sorted(room.rglob(pattern))]
