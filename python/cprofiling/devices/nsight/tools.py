"""Commands ``ncu`` and ``nsys``, around chosen calls of one node.

The program itself opens the window of ``CPROFILING_CAPTURE``: it starts and stops the tool around exactly those calls.
ncu's filter of NVTX ranges leaves out launches of other threads.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence

from cprofiling._internal.text import file_name_of
from cprofiling.devices.cuda_toolkits import newest_first, toolkit_folders

VARIABLE = "CPROFILING_CAPTURE"
LONGEST_NODE = 4096  # bytes of UTF-8, as names of nodes have
USUAL_PLACES = {
    "ncu": (
        "/usr/local/cuda*/nsight-compute-*", "/opt/nvidia/nsight-compute/*",
    ),
    "nsys": (
        "/usr/local/cuda*/nsight-systems-*/bin", "/opt/nvidia/nsight-systems/*/bin",
        "/opt/nvidia/nsight-systems-cli/*/bin",
    ),
}  # fmt: skip
_PACKAGES = {"ncu": ("Nsight Compute", "nsight-compute"), "nsys": ("Nsight Systems", "nsight-systems")}
_SPECIAL = re.compile(r"[\\/\[\]+*@,]")  # what means something in ncu's filter of NVTX ranges
_EXPRESSION = "regex:"


class ToolError(Exception):
    """A tool cannot be run, for the reason that it says."""


def find_tool(name: str) -> str | None:
    """Return the call for ``ncu`` or ``nsys``, or None.

    That is the name if PATH leads to it, else the path.
    """
    if shutil.which(name) is not None:
        return name
    toolkits = [os.path.join(folder, "bin") for folder in toolkit_folders()]
    return shutil.which(name, path=os.pathsep.join([*toolkits, *newest_first(USUAL_PLACES[name])]))


def missing(name: str) -> str:
    """Return a message on a missing tool, and its installation."""
    product, package = _PACKAGES[name]
    return (
        f"{name} was not found on PATH, nor where it usually is; install {product}: the package {package} of NVIDIA's "
        f"repositories for Linux, or the CUDA toolkit, which has it"
    )


def checked_node(node: str) -> str:
    """Return the name of a node. ValueError for one that no node has."""
    try:
        data = os.fsencode(node)
    except UnicodeEncodeError:
        data = b""  # no command line and no environment has it
    if not 1 <= len(data) <= LONGEST_NODE or b"\0" in data:
        shown = ascii(node) if len(node) <= 80 else f"{node[:80]!a}..."
        raise ValueError(f"expected the name of a node, 1 to {LONGEST_NODE} bytes without NUL, got {shown}")
    return node


def nvtx_filter(node: str) -> str:
    """Return ncu's filter for the pushed NVTX range of a node."""
    escaped = _SPECIAL.sub(r"\\\g<0>", node)
    begin = "\\" if node.startswith(_EXPRESSION) else ""
    return f"cprofiling@{begin}{escaped}/"


def output_name(node: str, suffix: str) -> str:
    """Return a node's file name, inside the working folder whatever the name.

    Escapes begin with ``=``, as ``%`` begins the tools' own, such as ``%p``.
    """
    name = file_name_of(node).replace("%", "=")
    return f"{'=2D' + name[1:] if name.startswith('-') else name}{suffix}"


def ncu_command(node: str, program: Sequence[str], metrics: str = "basic", output: str | None = None) -> list[str]:
    """Return ncu's command line.

    metrics: a set of them. output: CSV file, by default the node's.
    """
    return [
        "ncu", "--profile-from-start", "off", "--nvtx", "--nvtx-include", nvtx_filter(node),
        "--target-processes", "all", "--set", metrics, "--csv", "--page", "raw", "--print-units", "base",
        "--log-file", _file(node, ".csv", output), "--", *program,
    ]  # fmt: skip


def nsys_command(node: str, program: Sequence[str], output: str | None = None, count: int = 1) -> list[str]:
    """Return the command line of nsys.

    ``output``: its file, without the suffix, by default named after the node. ``count``: calls that are captured; each
    that no other one overlaps has a report of its own.
    """
    end = "stop" if count == 1 else f"repeat:{count}"
    return [
        "nsys", "profile", "-t", "cuda,nvtx,osrt", "-c", "cudaProfilerApi", f"--capture-range-end={end}",
        "--cuda-graph-trace=node", "-o", _file(node, "", output), "--", *program,
    ]  # fmt: skip


def _file(node: str, suffix: str, output: str | None) -> str:
    if output is None:
        return output_name(node, suffix)
    return f"./{output}" if output.startswith("-") else output


def shell_line(environment: Mapping[str, str], command: Sequence[str], encoding: str = "utf-8") -> str:
    """Return variables and a command as one line for a shell.

    Characters that ``encoding`` lacks are escaped as bash reads it.
    """
    assigned = [f"{name}={quoted(value, encoding)}" for name, value in environment.items()]
    return " ".join((*assigned, *(quoted(argument, encoding) for argument in command)))


def quoted(text: str, encoding: str = "utf-8") -> str:
    """Quote a text as one shell word in one line.

    Unprintable text uses ``$'...'``, which bash, zsh and ksh read, and POSIX since 2024.
    """
    if text.isprintable() and text.encode(encoding, "replace").decode(encoding) == text:
        return shlex.quote(text)
    word = ""
    for character in text:
        if character in "\\'":
            word += f"\\{character}"
        elif character.isascii() and character.isprintable():
            word += character
        else:
            errors = "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
            word += "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", errors))
    return f"$'{word}'"


def execute(name: str, environment: Mapping[str, str], command: Sequence[str]) -> None:
    """Replace this process by the tool, to keep its exit status.

    Raises ToolError if that fails.
    """
    tool = find_tool(name)
    if tool is None:
        raise ToolError(missing(name))
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(tool, [tool, *command[1:]], {**os.environ, **environment})  # noqa: S606 no shell is wanted
    except (OSError, ValueError) as error:
        raise ToolError(f"cannot run {name}: {getattr(error, 'strerror', None) or error}") from None
