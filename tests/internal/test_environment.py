"""The variables of the environment, in programs that must not follow them, such as set-user-ID ones."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import cprofiling
from cprofiling._internal import environment
from foreign import skip_without_others

pytestmark = [pytest.mark.native, pytest.mark.forks]

PACKAGE = Path(cprofiling.__file__).parent
NOBODY = 65534
PREFIXES = ("CPROFILING_", "_CPROFILING_", "FURIOSA_PROFILER_", "NUX_", "TELEFUSER_")
FOREIGN = {"ENABLE_PROFILER_NAMES", "PROFILER_OUTPUT_DIR", "CUDA_HOME", "CUDA_PATH"}
EARLY = "import os; os.setresuid(0, 0, 0)\n"  # as programs do that want to have had their rights all along
PROGRAM = f"""
import sys
sys.path[:0] = [{str(PACKAGE.parent)!r}, *{sys.path!r}]
import os
from cprofiling.devices import capture_window as capture, cuda_toolkits as toolkits
from cprofiling._internal import environment
from cprofiling.commands import doctor
from cprofiling.layers import context as layers
from cprofiling.integrations import furiosa
from cprofiling.integrations.telefuser import profiler as telefuser_profiler
from cprofiling.monitoring import live_writer as writing
from cprofiling.commands.control import token

doctor._output_of = lambda command, environ: (print("asks", *command[3:5]), ("", None))[1]
doctor.ask_cuda()
with layers.ProfilingContext("stage"):
    pass
print("names", layers._names, "debug", layers.log.debug, telefuser_profiler._debug, "worker", layers._folder_of_main)
print("toolkits", toolkits.toolkit_folders()[:1], "live", list(writing._files.open))
print("token", token(type("Options", (), {{"token_file": None}})))
print("seen", *(name for name in sys.argv[1:] if environment.given(name) is not None))
"""


def variables() -> dict[str, str]:
    """A value of each variable that the package's sources name, by which something would be done."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                word = node.value
                if word in FOREIGN or (word.startswith(PREFIXES) and word.replace("_", "").isupper()):
                    found.add(word)
    return {name: str(Path("bad", name.lower())) for name in sorted(found) if not name.endswith("_OWNER")}


VARIABLES = variables()
VALUES = {
    **VARIABLES,
    **dict.fromkeys((name for name in VARIABLES if "DEBUG" in name), "1"),
    **dict.fromkeys((name for name in VARIABLES if "PROFILER_NAMES" in name), "stage"),
    "CPROFILING_CAPTURE": "node:0:1",
    "CPROFILING_LIBCUDA": "bad/library.so",
}


def test_there_are_variables() -> None:
    assert {
        "CPROFILING_OUTPUT_PATH", "CPROFILING_LIVE", "CPROFILING_TIMING_REPORT", "CPROFILING_PROFILE_DEBUG",
        "CPROFILING_OUTPUT_DIR", "CPROFILING_PROFILER_NAMES", "CPROFILING_TOKEN", "FURIOSA_PROFILER_OUTPUT_PATH",
        "_CPROFILING_RUN_FOLDERS", "_CPROFILING_WORKER_FOLDER", "TELEFUSER_TIMING_REPORT", "CUDA_HOME",
    } <= VARIABLES.keys()  # fmt: skip


def run(folder: Path, code: str, *options: str, become: Callable[[], None] | None = None) -> list[str]:
    """Run a program for which all variables are set, and return what it prints, and below it the files it makes."""
    (folder / "bad").mkdir()
    before = set(folder.rglob("*"))
    done = subprocess.run(
        [sys.executable, *options, "-c", code, *VARIABLES],
        cwd=folder,
        env={**os.environ, **VALUES},
        preexec_fn=become,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr if become or options else "") == (0, "")
    return [*done.stdout.splitlines(), *sorted(str(path) for path in set(folder.rglob("*")) - before)]


def test_a_program_of_its_users_follows_all(tmp_path: Path) -> None:
    asks, names, found, token, seen, *files = run(tmp_path, PROGRAM)
    assert asks == "asks bad/library.so bad/cprofiling_libcupti"
    assert names == "names ('stage',) debug True True worker bad/_cprofiling_worker_folder"
    assert found.startswith("toolkits ['bad/cuda_home'] live ['")
    assert token == "token bad/cprofiling_token"
    assert set(seen.split()[1:]) == VARIABLES.keys() - {"CPROFILING_TOKEN"}  # which was taken
    assert files


def become_half_root() -> None:
    os.setresuid(NOBODY, 0, 0)


def become_half_of_a_group() -> None:
    os.setresgid(NOBODY, 0, 0)


@pytest.mark.unsanitized
@pytest.mark.parametrize(
    ("become", "options", "code"),
    [
        (None, ["-I"], PROGRAM),
        (None, ["-E"], PROGRAM),
        (become_half_root, [], PROGRAM),
        (become_half_root, ["-I"], PROGRAM),
        (become_half_root, [], EARLY + PROGRAM),
        (become_half_of_a_group, [], PROGRAM),
    ],
    ids=["-I", "-E", "set-user-ID", "set-user-ID -I", "set-user-ID before", "set-group-ID"],
)
def test_a_program_with_others_rights_follows_none(
    become: Callable[[], None] | None, options: list[str], code: str, tmp_path: Path
) -> None:
    if become is not None:
        skip_without_others()
    asks, names, found, token, seen, *files = run(tmp_path, code, *options, become=become)
    assert asks.startswith("asks libcuda.so.1 ")
    assert "bad" not in asks
    assert names == "names () debug False False worker None"
    assert "bad" not in found
    assert found.endswith("live []")
    assert (token, seen, files) == ("token None", "seen", [])


def test_the_core_refuses_a_library_too(tmp_path: Path) -> None:
    """Which would run code of whoever has set the variable."""
    source, library = tmp_path / "library.c", tmp_path / "library.so"
    source.write_text(
        f'#include <fcntl.h>\n__attribute__((constructor)) static void run(void) {{ creat("{tmp_path}/ran", 0600); }}\n'
    )
    built = subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=False, capture_output=True)
    if built.returncode != 0:
        pytest.skip("there is no C compiler")
    code = (
        f"import sys; sys.path[:0] = [{str(PACKAGE.parent)!r}]; import cprofiling as cp\n"
        "p = cp.Profiler(); p.set_profiling(True, synchronize_cuda=True); p.profile_node('n')(len)([])"
    )
    for options, expected in ((["-I"], False), ([], True)):
        command = [sys.executable, *options, "-c", code]
        subprocess.run(command, env={**os.environ, "CPROFILING_LIBCUDA": str(library)}, check=True, timeout=60)
        assert (tmp_path / "ran").exists() == expected


def test_a_variable_is_read_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPROFILING_TEST", "")
    assert environment.given("CPROFILING_TEST") == ""
    assert environment.text("CPROFILING_TEST") is None
    monkeypatch.delenv("CPROFILING_TEST")
    assert environment.given("CPROFILING_TEST") is None
