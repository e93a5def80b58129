"""The command as users have it: by the script that installing makes, not by ``python -m cprofiling``."""

from __future__ import annotations

import atexit
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

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
