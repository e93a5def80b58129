"""The command as users have it: by the script that installing makes, not by ``python -m cprofiling``."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import cprofiling
from calls import NEVER, unwatched

_MADE_BY_INSTALLING = """\
#!{python}
import sys
from cprofiling.commands.main import main
if __name__ == '__main__':
    sys.argv[0] = sys.argv[0].removesuffix('.exe')
    sys.exit(main())
"""


def _script() -> str:
    """Return the environment's own script, or one like it where the package was built in place and not installed."""
    script = Path(sysconfig.get_path("scripts")) / "cprofiling"
    if not script.exists():
        folder = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, folder)
        script = Path(folder) / "cprofiling"
        script.write_text(_MADE_BY_INSTALLING.format(python=sys.executable))
        script.chmod(0o755)
    return str(script)


SCRIPT = _script()
COMMAND = (sys.executable, "-W", "error", SCRIPT)
PACKAGE = str(Path(cprofiling.__file__).parents[1])


class Done(NamedTuple):
    """How a program ended, and what it printed."""

    status: int
    out: str
    err: str


def python(arguments: Sequence[str], folder: Path, *, watched: bool, stdin: str = "", **environment: str) -> Done:
    """Run Python in a folder. ``watched``: a tool may count its lines."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=(dict(os.environ) if watched else unwatched()) | {"PYTHONPATH": PACKAGE} | environment,
        input=stdin,
        capture_output=True,
        timeout=NEVER,
        text=True,
        errors="backslashreplace",
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)
