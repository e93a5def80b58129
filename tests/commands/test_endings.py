"""However a program ends, ``cprofiling run`` and ``serve``, as installed, end as Python does, and with their trace."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from calls import NEVER, unwatched
from command import PACKAGE, SCRIPT
from recorded import names_in_file

pytestmark = pytest.mark.native

OWN_LINE = re.compile(r"^cprofiling: .*\n", re.MULTILINE)
ADDRESS = re.compile(r"0x[0-9a-f]+")
UNTRACED = ("os exit", "exec")  # become something else at once
UNCALLED = ("syntax",)
ENDINGS = {
    "return": "def f(): return 0\nf()\n",
    "exception": "def f(): raise ValueError('own')\nf()\n",
    "syntax": "def f(): pass\nprint('no'\n",
    "exit": "import sys\ndef f(): sys.exit()\nf()\n",
    "exit status": "import sys\ndef f(): sys.exit(3)\nf()\n",
    "exit text": "import sys\ndef f(): sys.exit('a text')\nf()\n",
    "exit object": "def f(): raise SystemExit(['a', 5])\nf()\n",
    "interrupt raised": "def f(): raise KeyboardInterrupt\nf()\n",
    "interrupt": "import os, signal\ndef f(): os.kill(os.getpid(), signal.SIGINT)\nf()\nwhile True: pass\n",
    "terminated": "import os, signal\ndef f(): os.kill(os.getpid(), signal.SIGTERM)\nprint('lost')\nf()\n",
    "os exit": "import os\ndef f(): os._exit(4)\nprint('never flushed', end='')\nf()\n",
    "thread left": """
import threading, time
def f():
    time.sleep(0.1)
    raise KeyError("late")
threading.Thread(target=f).start()
print("left")
""",
    "daemon left": """
import threading, time
def f(): print("left")
def g(): time.sleep(1000)
threading.Thread(target=g, daemon=True).start()
f()
""",
    "exec": """
import os, sys
def f(): os.execv(sys.executable, [sys.executable, "-c", "import sys; sys.exit(9)"])
f()
""",
}


def ended(command: list[str], folder: Path, **more: Any) -> tuple[int, str, str]:
    """How a command ended, and what it printed."""
    environment = unwatched(PYTHONPATH=PACKAGE)
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=NEVER, **more
    )
    return done.returncode, ADDRESS.sub("0x", done.stdout), ADDRESS.sub("0x", done.stderr)


def without_ours(end: tuple[int, str, str]) -> tuple[int, str, str]:
    return end[0], end[1], OWN_LINE.sub("", end[2])


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    for name, text in ENDINGS.items():
        (tmp_path / f"{name.replace(' ', '_')}.py").write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", ENDINGS)
@pytest.mark.parametrize("is_module", [False, True])
def test_a_program_ends_as_under_python(name: str, is_module: bool, programs: Path) -> None:
    module, trace = name.replace(" ", "_"), programs / "trace.json"
    program = ["-m", module] if is_module else [f"{module}.py"]
    plain = ended([sys.executable, *program], programs)
    for nodes in ([], ["-n", "__main__"]):
        assert without_ours(ended([SCRIPT, "run", *nodes, *program], programs)) == plain
        if name in UNTRACED:
            assert not trace.exists()
        elif name in UNCALLED:
            assert trace.exists() is (not nodes)
        else:
            assert "f" in names_in_file(trace)
        trace.unlink(missing_ok=True)


@pytest.mark.parametrize("name", ["exception", "interrupt"])
def test_a_served_program_ends_as_under_python(name: str, programs: Path) -> None:
    for package in ("grpc", "grpc_health", "grpc_reflection"):
        pytest.importorskip(package)
    plain = ended([sys.executable, f"{name}.py"], programs)
    assert without_ours(ended([SCRIPT, "serve", f"{name}.py"], programs)) == plain


@pytest.mark.parametrize("command", [["sh", "-c", '"$0" "$@"; echo $?'], ["sh", "-c", 'exec "$0" "$@"']])
def test_a_shell_sees_an_interrupt(command: list[str], programs: Path) -> None:
    status, out, _ = ended([*command, SCRIPT, "run", "interrupt.py"], programs)
    assert (status, out) == ((0, "130\n") if "echo" in command[-1] else (-signal.SIGINT, ""))


@pytest.mark.parametrize("name", ["exception", "exit status", "interrupt"])
def test_the_module_is_the_same_command(name: str, programs: Path) -> None:
    program = f"{name.replace(' ', '_')}.py"
    by_script = ended([SCRIPT, "run", program], programs)
    assert ended([sys.executable, "-m", "cprofiling", "run", program], programs) == by_script
    assert names_in_file(programs / "trace.json") == ["f"]


@pytest.mark.parametrize("count", [1, 100_000])
def test_what_the_program_prints_for_nobody_ends_it_as_under_python(count: int, tmp_path: Path) -> None:
    (tmp_path / "prints.py").write_text(f"def f():\n    for i in range({count}): print(i)\nf()\n")
    ends = []
    for command in ([sys.executable], [SCRIPT, "run"]):
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "wb") as nobody:
            done = subprocess.run(
                [*command, "prints.py"], cwd=tmp_path, env=unwatched(PYTHONPATH=PACKAGE), stdout=nobody,
                stderr=subprocess.PIPE, text=True, check=False,
            )  # fmt: skip
        ends.append((done.returncode, OWN_LINE.sub("", done.stderr)))
    assert ends[0] == ends[1]
    assert ends[0][0] != 0
    assert names_in_file(tmp_path / "trace.json") == ["f"]


@pytest.mark.parametrize(
    "arguments", ["report input.json", "report input.json -o out.html", "compare trace.json input.json"]
)
def test_a_command_that_is_interrupted_leaves_nothing(arguments: str, tmp_path: Path) -> None:
    """Here while it waits for the rest of its input."""
    os.mkfifo(tmp_path / "input.json")
    (tmp_path / "trace.json").write_text('{"traceEvents": []}')
    before = sorted(tmp_path.iterdir())
    with subprocess.Popen(
        [SCRIPT, *arguments.split()], cwd=tmp_path, env=unwatched(PYTHONPATH=PACKAGE, PYTHONDONTWRITEBYTECODE="1"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as command:  # fmt: skip
        begun = None
        while begun is None:
            assert command.poll() is None
            with contextlib.suppress(OSError):  # until the command has opened it
                begun = os.open(tmp_path / "input.json", os.O_WRONLY | os.O_NONBLOCK)
            time.sleep(0.01)
        os.write(begun, b'{"traceEvents": [')
        command.send_signal(signal.SIGINT)
        os.close(begun)  # a read that begins just after the signal would wait
        out, err = command.communicate(timeout=NEVER)
    assert (command.returncode, out, err) == (130, "", "cprofiling: interrupted\n")
    assert sorted(tmp_path.iterdir()) == before
