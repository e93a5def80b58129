# PYTHON_ARGCOMPLETE_OK: as for the command
"""Entry point of ``python -m cprofiling``: the same as the command ``cprofiling``."""

import sys

from cprofiling.commands.main import main

if __name__ == "__main__":
    sys.exit(main())
