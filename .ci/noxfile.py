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
VERSIONS = ["3.10", "3.11", "3.12", "3.13", "3.14", "3.15"]
Command = tuple[str, ...]  # an interpreter, after what lets it run here
# Pythons that the machine lacks, which .ci/pythons makes once. NEWEST is another system: its /usr takes the place of
# the machine's for one program, and all else stays. Its compiler uses the machine's C library, so that wheels are for
# the same systems as the others.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cprofiling-ci"
NEWEST = CACHE / "newest"
IN_NEWEST = """
mount --bind "$0/etc/ld.so.cache" /etc/ld.so.cache
mount --bind /usr "$0/usr/machine/usr"
mount --rbind "$0/usr" /usr
exec "$@"
"""
# In this namespace only, the kernel has programs for aarch64 run by the emulator, child processes too. What they import
# is compiled once: they start twice as fast.
AARCH64 = CACHE / "aarch64"
IN_AARCH64 = r"""
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
echo ":aarch64:M::$magic:$mask:$0/tools/qemu-aarch64-static:PF" >/proc/sys/fs/binfmt_misc/register
includes=$(printf %s: "$0"/usr/include "$0"/usr/include/python3.*)
unset PYTHONDONTWRITEBYTECODE
QEMU_LD_PREFIX=$0 PATH="$0/tools:$PATH" C_INCLUDE_PATH=${includes%:} exec "$@"
"""
FREE_THREADED = CACHE / "free_threaded"  # CPython 3.13 without the GIL
RACES = CACHE / "races"  # the same, which ThreadSanitizer watches
PYTHON_FLOOR, LINE_FLOOR, BRANCH_FLOOR = 97, 98, 91  # percent
PROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
WHOLE = "not (integration or core or lint)"
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


def make_environment(session: nox.Session, python: Command, folder: Path) -> Command:
    """Make a virtual environment and return its interpreter."""
    session.run(*python, "-m", "venv", "--clear", str(folder))
    return (*python[:-1], str(folder / "bin/python"))


def make_beside_peers(session: nox.Session) -> Command:
    """Make an environment that sees the one of all peers, and return its interpreter."""
    python = make_environment(session, (sys.executable,), WORK / session.name)
    purelib = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    ours, theirs = (str(session.run(path, "-c", purelib, silent=True)).strip() for path in (python[-1], PYTHON))
    Path(ours, "peers.pth").write_text(f"{theirs}\n", encoding="utf-8")
    return python


def install(session: nox.Session, python: Command, *packages: str, **environment: str) -> None:
    """Install packages; once more if that fails, as the package index may have been away."""
    command = [*python, "-m", "pip", "install", "--quiet", "--no-compile", "--retries=10", *packages]
    try:
        session.run(*command, env=environment)
    except nox.command.CommandFailed:
        session.warn("pip failed, once more:")
        session.run(*command, env=environment)


def find_python(version: str) -> Command | None:
    """Return the interpreter of a version that has headers and makes environments, None without.

    aarch64 is some version for that processor.
    """
    homes = {os.environ.get("PYENV_ROOT", ""), str(Path.home() / ".pyenv")} - {""}
    paths = [path for home in homes for path in sorted(Path(home).glob(f"versions/{version}.*/bin/python"))]
    paths += [Path(found) for found in [shutil.which(f"python{version}")] if found]
    candidates: list[Command] = [
        *((str(path),) for path in paths),
        (str(FREE_THREADED / f"bin/python{version}"),),
        ("unshare", "--mount", "bash", "-ec", IN_NEWEST, str(NEWEST), f"/usr/bin/python{version}"),
    ]
    if version == "aarch64":
        emulated = ("unshare", "--user", "--map-root-user", "--mount", "bash", "-ec", IN_AARCH64, str(AARCH64))
        candidates = [(*emulated, str(AARCH64 / "usr/bin/python3"))]
    check = (
        "import ensurepip, os, platform, sys, sysconfig, venv\n"
        "assert platform.python_implementation() == 'CPython'\n"
        "version = '%d.%d' % sys.version_info[:2] + 't' * bool(sysconfig.get_config_var('Py_GIL_DISABLED'))\n"
        "assert sys.argv[1] in (version, platform.machine())\n"
        "assert os.path.exists(os.path.join(sysconfig.get_paths()['include'], 'Python.h'))\n"
    )
    for command in candidates:
        if not shutil.which(command[0]):
            continue
        if subprocess.run([*command, "-c", check, version], capture_output=True, check=False).returncode == 0:
            return command
    return None


def fetch_python(session: nox.Session, kind: str, folder: Path) -> None:
    """Make Pythons that the machine lacks, unless an earlier run has; without them, tests name them."""
    if not folder.exists():
        session.run("bash", str(ROOT / ".ci/pythons"), kind, str(folder), success_codes=[*range(256)])


def found_pythons(session: nox.Session) -> dict[str, Command]:
    """Return the interpreters by version; name those that are missing."""
    found = {version: command for version in VERSIONS if (command := find_python(version))}
    for version in set(VERSIONS) - set(found):
        session.warn(f"CPython {version}: not on this machine, NOT TESTED")
    return found


def run_tests(session: nox.Session, marks: str, *options: str, python: Command = (PYTHON,), **environment: str) -> None:
    """Run the tests with these marks; of files that lack the first one nothing is imported."""
    mark = re.match(r"\w+", marks)
    files = ["tests"]
    if mark and mark[0] != "not":
        files = [
            str(path) for path in sorted(Path("tests").rglob("test_*.py")) if f"mark.{mark[0]}" in path.read_text()
        ]
    session.run(*python, "-m", "pytest", *files, "-m", marks, *options, *session.posargs, env=environment)


def build_in_place(session: nox.Session, **environment: str) -> None:
    """Build the extension in the copy of the tree."""
    session.run(PYTHON, "setup.py", "--quiet", "build_ext", "--inplace", "--force", env=environment)


# ---- what the others build on


@nox.session
def environment(session: nox.Session) -> None:
    """Make the environment with all peers and linters."""
    copy_tree(session)
    python = make_environment(session, (sys.executable,), WORK / "environment")
    install(session, python, "--upgrade", "pip", "setuptools", "wheel")
    # By itself and first: where the index has a build for the CPU, the extra is content with it.
    install(session, python, "torch==2.13.0")
    install(session, python, ".[peers,lint,docs]")
    install(session, python, "--no-deps", "--requirement", "tests/support/readers.txt")
    # It comes for CUDA and does not load beside the CPU's torch; torchmetrics would load it.
    session.run(*python, "-m", "pip", "uninstall", "--quiet", "--yes", "torchvision")
    # From source, as the wheel is built for another torch; one unit takes a third of the time.
    install(session, python, "annotated-types", "cmake", "ninja", "pybind11", "scikit-build-core", "soundfile")
    torchfx = ["--no-deps", "--no-build-isolation", "--no-binary=torchfx", "torchfx==0.8.0"]
    install(session, python, *torchfx, CMAKE_ARGS="-DTORCHFX_USE_CUDA=OFF -DCMAKE_UNITY_BUILD=ON")
    session.run(*python, "-m", "pip", "list")


@nox.session
def wheels(session: nox.Session) -> None:
    """Make the source distribution and from it a wheel for each Python, offline; check them all."""
    copy_tree(session)
    for folder in (WHEELS, WORK / "built"):
        shutil.rmtree(folder, ignore_errors=True)
    release = make_environment(session, (sys.executable,), WORK / "release")
    install(session, release, *PROJECT["project"]["optional-dependencies"]["dist"])
    session.run(*release, "-m", "build", "--sdist", "--outdir", str(WHEELS), ".")
    if not all(map(find_python, VERSIONS)):
        fetch_python(session, "newest", NEWEST)
    pythons = found_pythons(session)
    for version, python in pythons.items():
        shutil.copy2(make_wheel(session, version, python), WHEELS)
    check_release(session, WHEELS, *pythons)


def make_wheel(session: nox.Session, version: str, interpreter: Command) -> Path:
    """Build a wheel, make it fit for other machines, and use it where nothing else is installed."""
    python = make_environment(session, interpreter, WORK / f"build-{version}")
    install(session, python, *PROJECT["build-system"]["requires"])
    folder = WORK / "built" / version
    shutil.rmtree(folder, ignore_errors=True)
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--check-build-dependencies"]
    # How this Python was linked itself is of use on this machine only.
    flags = {"LDSHARED": "gcc -shared -s", "CPROFILING_WERROR": "1"}
    command = [*python, "-m", "pip", "wheel", "--quiet", *options, "--wheel-dir", str(folder), source_distribution()]
    session.run(*command, env=flags)
    tools = {"PATH": f"{RELEASE}:{os.environ['PATH']}"}
    built = str(next(folder.glob("*.whl")))
    session.run(str(RELEASE / "auditwheel"), "repair", "--wheel-dir", str(folder / "fit"), built, env=tools)
    clean = make_environment(session, interpreter, WORK / f"clean-{version}")
    session.run(*clean, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel_of(version)))
    with session.chdir("/"):
        session.run(*clean, "-W", "error", "-c", CLEAN_CHECK)
        session.run(*clean[:-1], str(WORK / f"clean-{version}/bin/cprofiling"), "--version")
    return wheel_of(version)


def check_release(session: nox.Session, folder: Path, *pythons: str) -> None:
    """Check a source distribution and its wheels for these versions of CPython."""
    files = sorted(map(str, folder.iterdir()))
    session.run(str(RELEASE / "twine"), "check", "--strict", *files)
    session.run(str(RELEASE / "check-wheel-contents"), *(file for file in files if file.endswith(".whl")))
    listing = WORK / f"{folder.name}.txt"
    listing.write_text("\n".join(listed_files()), encoding="utf-8")
    script = [str(RELEASE / "python"), str(ROOT / "tests/support/distribution.py")]
    tools = {"PATH": f"{RELEASE}:{os.environ['PATH']}"}
    session.run(*script, str(folder), str(listing), *pythons, env=tools)


def wheel_of(version: str) -> Path:
    """Return the wheel for a Python."""
    return next((WORK / "built" / version / "fit").glob("*.whl"))


def source_distribution() -> str:
    """Return the source distribution."""
    return str(next(WHEELS.glob("cprofiling-*.tar.gz")))


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
    try:
        with summary.open("w", encoding="utf-8") as output:
            session.run(*command, *session.posargs, env=environment, stdout=output)
    finally:
        print(summary.read_text(encoding="utf-8"), end="")
    skipped = re.findall(r"^SKIPPED.*", summary.read_text(encoding="utf-8"), re.MULTILINE)
    if wrong := [line for line in skipped if not MAY_BE_SKIPPED.search(line)]:
        session.error("skipped although the extra [peers] is installed:", *wrong)


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
    """Test the wheel for a Python with all but the core's programs and frameworks; the newest ones beside peers."""
    test_wheel(session, version, WHOLE, extra="peers" if version in VERSIONS[-2:] else "test")


@nox.session
def aarch64(session: nox.Session) -> None:
    """Make a wheel for another processor, and test it in an emulator with what depends on the processor."""
    fetch_python(session, "aarch64", AARCH64)
    release_of_its_own(session, "aarch64")
    test_wheel(session, "aarch64", "native and not slow")


@nox.session
def free_threaded(session: nox.Session) -> None:
    """Make a wheel for CPython without the GIL, and test it with all but the core's programs and frameworks."""
    fetch_python(session, "free_threaded", FREE_THREADED)
    release_of_its_own(session, "3.13t")
    test_wheel(session, "3.13t", WHOLE, PIP_ONLY_BINARY=":all:")  # the latest of many packages have none for it


@nox.session
def races(session: nox.Session) -> None:
    """Look for data races in threads that use the extension at the same time.

    Those of the core's programs are looked for in ``sanitizers_whole``.
    """
    fetch_python(session, "races", RACES)
    interpreter = RACES / "bin/python3.13t"
    if not interpreter.exists():
        session.skip("CPython 3.13t with ThreadSanitizer: could not be made, NOT TESTED")
    tree = copy_tree(session)
    session.env["TSAN_OPTIONS"] = "report_bugs=0"
    python = make_environment(session, (str(interpreter),), WORK / "races")
    install(session, python, "setuptools", "pytest", "pytest-xdist", "hypothesis<6.145")
    session.run(*python, "setup.py", "--quiet", "build_ext", "--inplace", env={"CPROFILING_SANITIZE": "thread"})
    # CPython's own: threads that share an asynchronous generator, and lookups in dicts without a lock, which may read
    # what was freed and made anew.
    known = (RACES / "known_races").read_text(encoding="utf-8")
    known += "\nrace_top:async_gen_init_hooks\nrace:_Py_dict_lookup_threadsafe\n"
    Path("known_races").write_text(known, encoding="utf-8")
    options = f"suppressions={tree / 'known_races'} history_size=4"
    files = (
        "extension/test_free_threading.py", "extension/test_threads.py", "extension/test_fork.py",
        "recording/test_recording_threads.py", "recording/test_recording_fork.py", "nodes/test_live_file.py",
        "devices/test_device_events.py", "devices/test_launches.py", "devices/test_synchronize.py",
    )  # fmt: skip
    chosen = ["-k", "thread", "-m", "not (slow or unsanitized)", "--capture=no"]  # it tells stderr
    tests = [f"tests/{name}" for name in files]
    session.run(*python, "-m", "pytest", *chosen, *tests, env={"PYTHONPATH": "python", "TSAN_OPTIONS": options})


def release_of_its_own(session: nox.Session, version: str) -> None:
    """Make a wheel that is not among those of the other Pythons, and check it."""
    python = interpreter(session, version)
    folder = WORK / f"wheels-{version}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy2(source_distribution(), folder)
    shutil.copy2(make_wheel(session, version, python), folder)
    [abi] = [path.name.split("-")[3] for path in folder.glob("*.whl")]
    check_release(session, folder, re.sub("^cp3", "3.", abi))


def interpreter(session: nox.Session, version: str) -> Command:
    """Return the interpreter of a version; skip the session without."""
    return find_python(version) or session.skip(f"CPython {version}: not on this machine, NOT TESTED")


def test_wheel(session: nox.Session, version: str, marks: str, extra: str = "test", **environment: str) -> None:
    """Run the tests of the source distribution on what a wheel installs."""
    python = (*interpreter(session, version)[:-1], str(WORK / f"clean-{version}/bin/python"))
    tree = WORK / "trees" / session.name
    shutil.rmtree(tree, ignore_errors=True)
    shutil.unpack_archive(source_distribution(), tree)
    [sources] = tree.iterdir()
    shutil.rmtree(sources / "python/cprofiling")  # what is tested is what is installed
    session.chdir(sources)
    install(session, python, f"{wheel_of(version)}[{extra}]", **environment)
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
    install(session, (PYTHON,), "--requirement", "tests/frameworks/requirements.txt")
    install(session, (PYTHON,), "--no-deps", "--force-reinstall", ".")
    output = session.run(PYTHON, "-m", "pytest", "tests", "-m", "integration", silent=True)
    session.log(output)
    if re.search(r"^SKIPPED", str(output), re.MULTILINE):
        session.error("nothing may be skipped here")


@nox.session
def suites(session: nox.Session) -> None:
    """Run peers' own test suites with and without our stand-ins, and compare."""
    tree = copy_tree(session)
    build_in_place(session)
    python = make_beside_peers(session)  # some packages are older than ours
    install(session, python, "--requirement", "tests/support/peers_suites.txt")
    for peer in ("cuvis-ai-core", "telefuser"):
        command = [*python, "tests/support/peers_suites.py", peer, "--folder", str(WORK / "suites-sources")]
        session.run(*command, env={"PYTHONPATH": str(tree / "python")})
    tests = ["tests/integrations/test_telefuser_stage.py", "-p", "no:asyncio"]
    session.run(*python, "-m", "pytest", *tests, env={"PYTHONPATH": str(tree / "python")})


@nox.session
def fuzz(session: nox.Session) -> None:
    """Fuzz each decoder for ten seconds, or for as many as are asked for; tests/fuzz has the fuzzers."""
    copy_tree(session)
    build_in_place(session)
    [seconds] = session.posargs or ["10"]
    options = [f"-max_total_time={seconds}", "-timeout=10", "-print_final_stats=1"]
    build = [shutil.which("clang-14") or "clang", "-std=c11", "-O1", "-g1", "-I.", "-pthread"]
    build += ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
    core = ["tests/core/fake_alloc.c", *map(str, Path("cprofiling").rglob("*.c"))]
    has_core = shutil.which(build[0]) and not subprocess.run([*build, "-c", *core], check=False).returncode
    objects = list(map(str, Path().glob("*.o")))
    for target in ("snapshot", "json", "chrome"):
        program = [*build, f"tests/fuzz/{target}.c", *objects, "-lm", "-ldl", "-o", target]
        if not has_core or subprocess.run(program, check=False).returncode:
            session.warn(f"fuzzer of {target}: needs clang with libFuzzer, NOT TESTED")
        else:
            session.run(f"./{target}", *options, f"tests/fuzz/corpora/{target}")
    python = make_beside_peers(session)
    try:
        install(session, python, "--only-binary=:all:", "atheris==3.0.0")
    except nox.command.CommandFailed:
        session.warn("fuzzers of Python: there is no atheris for this CPython, NOT TESTED")
        return
    for target in ("live", "timing", "signatures", "ncu", "grpc"):
        command = [*python, "tests/fuzz/decoders.py", target, *options, f"tests/fuzz/corpora/{target}"]
        session.run(*command, env={"PYTHONPATH": "python"})


@nox.session
def soak(session: nox.Session) -> None:
    """Have a service live through trouble for a while, and count its calls."""
    session.chdir(ROOT)
    session.run(PYTHON, "python/benchmarks", "--soak", *(session.posargs or ["0.8"]))


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
    defines = ["-std=c11", "-DCPROF_STRIPES=8"]  # as for builds without the GIL: that is more to look at
    session.run(tool("clang-tidy"), "--quiet", *sources, "--", *defines, *includes)


def tool(name: str) -> str:
    """Return a program of the environment."""
    return str(Path(PYTHON).with_name(name))


def c_sources(pattern: str) -> list[str]:
    """Return the C files below the working directory."""
    rooms = map(Path, ("cprofiling", "csrc", "tests", "python"))
    return [str(path) for room in rooms for path in sorted(room.rglob(pattern))]
