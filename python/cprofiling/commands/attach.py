"""Command ``attach``, to measure a program that runs already."""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from cprofiling._internal.messages import say
from cprofiling._internal.process import started_ticks
from cprofiling._internal.text import shown_text
from cprofiling.commands.parsing import EXIT_FAILURE, EXIT_INTERRUPTED, CommandError, not_empty, number, whole_number
from cprofiling.commands.run import add_nodes
from cprofiling.commands.serve import add_access, add_sessions, checked_access
from cprofiling.recording.output_names import has_lock

INT32_MAX = 2**31 - 1
OLDEST = 14  # minor version of CPython 3 from which on others may have a program run a script
PATIENCE_S, LEAST_PATIENCE_S, MOST_PATIENCE_S = 30.0, 0.1, 86400.0
_SPEAKS_AFTER_S = 1.0
_MOST_BYTES = 1 << 20  # of an answer
_LAST_LOOK_S = 2.0  # for the answer of a script that began while it was withdrawn
_PLACES = ("/dev/shm", "/var/tmp", "/tmp")  # noqa: S108 a folder of mode 0700 is made there
# In a thread, as the main one may be amid an import, or hold any lock; and silent whatever happens. Where nobody waits
# for its answer any more it only tidies up. An import reads many files, and after each of them a thread waits for its
# turn, 5 ms beside one that computes: until the end, turns are shorter.
_SCRIPT = """
def attach():
    import os, sys
    folder, request = {folder!r}, {request!r}
    try:
        pipe = os.open(folder + "/answer", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        for name in ("/answer", "/script", ""):
            try:
                (os.unlink if name else os.rmdir)(folder + name)
            except OSError:
                pass
        return
    try:
        os.set_blocking(pipe, True)
        os.write(pipe, b"begun\\n")
        knew = "cprofiling" in sys.modules
        turn = sys.getswitchinterval()
        sys.setswitchinterval(0.0001)
        short = sys.getswitchinterval()
        try:
            import json
            from cprofiling.commands.attached import answer
            told = answer(json.loads(request))
        except BaseException as error:
            told = {{"error": type(error).__name__ + ": " + str(error), "missing": getattr(error, "name", None)}}
        finally:
            if sys.getswitchinterval() == short:
                sys.setswitchinterval(turn)
        os.write(pipe, json.dumps({{"knew": knew, **told}}).encode() + b"\\n")
    except BaseException:
        pass
    finally:
        os.close(pipe)
try:
    import _thread
    _thread.start_new_thread(attach, ())
except BaseException:
    pass
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Describe the command and add its options."""
    parser.description = (
        "Measure a program that runs, of CPython 3.14 or later: its nodes, and the functions that -n names, in a live "
        "file for 'cprofiling top', or by a server."
    )
    parser.epilog = "example: cprofiling attach 12345 -n 'mypkg.stages:*.forward'"
    parser.allow_abbrev = False
    add = parser.add_argument
    add("pid", metavar="PID", type=whole_number(1, INT32_MAX), help="the number of the process")
    add("--off", action="store_true", help="undo it: the nodes are off, the file is complete")
    add_nodes(parser, "functions to be nodes, as for run; may be repeated")
    add("--live", type=not_empty, metavar="FILE", help="the live file (default: one among the temporary files)")
    server_help = "serve there instead, as 'cprofiling serve' does"
    add("--server", type=not_empty, metavar="ADDRESS", help=server_help)
    add_sessions(parser, "a further session of the server")
    add_access(parser)
    add(
        "--timeout",
        type=number("a number of seconds", LEAST_PATIENCE_S, MOST_PATIENCE_S),
        default=PATIENCE_S,
        metavar="SECONDS",
        help="to wait for its main thread (default: %(default)g)",
    )


def run(options: argparse.Namespace) -> str:
    """Attach to a process or switch that off, and return what to do next."""
    access = (options.token_file, options.no_token or None, options.tls_cert, options.tls_key, options.session or None)
    if options.server is None and any(access):
        options.refuse("options of a server need --server ADDRESS")
    if options.off and (options.server or options.live or options.node):
        options.refuse("--off undoes all, and goes with --timeout only")
    wanted = None if options.server is None else checked_access(options)
    pid: int = options.pid
    _check(pid)
    with _alone(pid), _folder(pid) as (folder, user):
        live = options.live
        if live is None and options.server is None:
            live = os.path.join(os.path.dirname(folder), f"cprofiling-{pid}.cprof")
        request = {
            "off": options.off,
            "patterns": options.node,
            "live": live if live is None else os.path.abspath(live),
            "server": None if options.server is None else _served(options),
            "token": wanted,
        }
        told = _answer(pid, folder, user, request, options.timeout)
    if "error" in told:
        missing, error = told.get("missing"), shown_text("error", str(told["error"]))
        if missing == "cprofiling":
            remedy = f"install it there, {_python_of(pid)} -m pip install cprofiling"
            raise CommandError(f"process {pid} cannot import cprofiling: {remedy}")
        if isinstance(missing, str) and missing.startswith("cprofiling."):
            raise CommandError(f"process {pid} has a cprofiling without attach ({error}): install the same as here")
        raise CommandError(f"process {pid}: {error}")
    for remark in told.get("remarks", ()):
        say(remark)
    if options.off:
        return "\n".join([f"process {pid} is as it was before", *(f"complete: {path}" for path in told["live"])])
    if not told["knew"] and not told["nodes"]:
        say("the program has not imported cprofiling, so that it has no nodes of its own: name functions by -n")
    profilers, nodes = _count(told["profilers"], "Profiler"), _count(told["nodes"], "function")
    lines = [f"process {pid} is measured: {profilers} on, {nodes} named by -n"]
    lines += told["served"]
    lines += [f"watch it:      cprofiling top {shlex.quote(path)}" for path in told["live"]]
    return "\n".join([*lines, f"switch it off: cprofiling attach {pid} --off"])


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _served(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of ``serve``; paths are seen from the program's own folder."""
    address: str = options.server
    if address.startswith("unix:"):
        address = f"unix:{os.path.abspath(address.removeprefix('unix:'))}"
    paths = [path if path is None else os.path.abspath(path) for path in (options.tls_cert, options.tls_key)]
    return {
        "address": address,
        "session": options.session,
        "no_token": options.no_token,
        "tls_cert": paths[0],
        "tls_key": paths[1],
    }


# ---- Who may be attached to


def _check(pid: int) -> None:
    """Refuse what cannot work, with what to do instead."""
    if pid == os.getpid():
        raise CommandError(f"process {pid} is this command itself")
    if started_ticks(pid) is None:
        raise CommandError(f"there is no process {pid}")
    process = _status(pid).get("Tgid", str(pid))
    if process != str(pid):
        raise CommandError(f"{pid} is a thread: give its process, {process}")
    theirs, own = _minor_version(pid), sys.version_info.minor
    if theirs is not None and theirs < OLDEST:
        raise CommandError(
            f"process {pid} runs CPython 3.{theirs}, and attaching needs 3.{OLDEST} or later: start the program with "
            "CPROFILING_LIVE=PATH, or by 'cprofiling serve'"
        )
    if theirs is not None and theirs != own:
        raise CommandError(
            f"process {pid} runs CPython 3.{theirs}, this command 3.{own}: {_python_of(pid)} -m cprofiling attach {pid}"
        )
    if not hasattr(sys, "remote_exec"):
        raise CommandError(
            f"attaching needs CPython 3.{OLDEST} or later, here and in the program; this is 3.{own}: give the command "
            f"to the program's own, {_python_of(pid)} -m cprofiling attach {pid}"
        )


def _status(pid: int) -> dict[str, str]:
    """Return the fields of a process's status; none if it has gone."""
    with suppress(OSError), open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}
    return {}


def _minor_version(pid: int) -> int | None:
    """Return the version of CPython 3 that a process runs, by the names of its files; None if unknown."""
    names = []
    with suppress(OSError):
        names.append(os.path.basename(os.readlink(f"/proc/{pid}/exe")))
    with suppress(OSError), open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
        names += [os.path.basename(line) for line in file if "libpython3." in line]
    found = [match for match in (re.match(r"(?:lib)?python3\.(\d+)", name) for name in names) if match]
    return int(found[-1][1]) if found else None


def _python_of(pid: int) -> str:
    """Return the interpreter of a process, that of its virtual environment where its command line has it."""
    with suppress(OSError, IndexError):
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            first = os.fsdecode(file.read().split(b"\0")[0])
        if os.path.isabs(first) and os.path.samefile(first, f"/proc/{pid}/exe"):
            return shlex.quote(first)
    with suppress(OSError):
        return shlex.quote(os.readlink(f"/proc/{pid}/exe"))
    return "python"


@contextmanager
def _alone(pid: int) -> Iterator[None]:
    """Keep other commands away: a process takes one script at a time."""
    try:
        descriptor = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        raise CommandError(f"there is no process {pid}") from None
    try:
        if not has_lock(descriptor):
            raise CommandError(f"another 'cprofiling attach {pid}' is at work: wait for its end")
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _folder(pid: int) -> Iterator[tuple[str, int]]:
    """Give a folder of this user's that the process sees as well, and the user who is to use it there."""
    user = int((_status(pid).get("Uid") or "0").split()[-1])  # as which it opens files
    places = (tempfile.gettempdir(), *_PLACES) if user == os.geteuid() else _PLACES[::-1]
    for place in places:
        try:
            folder = tempfile.mkdtemp(prefix="cprofiling-", dir=place)
        except OSError:
            continue
        try:
            if os.path.samefile(folder, f"/proc/{pid}/root{folder}"):
                yield folder, user
                return
        except FileNotFoundError:
            pass
        except PermissionError:
            raise CommandError(_not_permitted(pid)) from None
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    inside = _status(pid).get("NSpid", "").split()
    if started_ticks(pid) is None:
        raise CommandError(f"process {pid} has ended meanwhile")
    number_there = f", where the process is {inside[-1]}" if inside else ""
    raise CommandError(
        f"process {pid} sees other files than this command, as in a container: give the command there{number_there}"
    )


def _not_permitted(pid: int) -> str:
    """Return why a process is closed to this user, and what opens it."""
    scope = "0"
    with suppress(OSError), open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
        scope = file.read().strip()
    advice = "use sudo" if os.geteuid() else "a container needs the capability SYS_PTRACE"
    if scope == "1" and os.geteuid():
        advice += ", or sysctl kernel.yama.ptrace_scope=0, which is 1: only parents may look into a process"
    elif scope == "3":
        advice = "kernel.yama.ptrace_scope is 3: nobody may look into a process until the next boot"
    return f"the system does not permit to look into process {pid}: {advice}"


# ---- The script, and its answer


def _answer(pid: int, folder: str, user: int, request: dict[str, Any], timeout: float) -> dict[str, Any]:
    """Have the process run the script, and return its answer.

    Raises CommandError if there is none; nothing happens later, then.
    """
    script, pipe = os.path.join(folder, "script"), os.path.join(folder, "answer")
    with open(os.open(script, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(_SCRIPT.format(folder=folder, request=json.dumps(request)))
    os.mkfifo(pipe, 0o600)
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as reader:
        if user != os.geteuid():
            try:
                for path in (script, pipe, folder):  # the folder last: its owner can replace these
                    os.chown(path, user, -1)
            except OSError:
                raise CommandError(_not_permitted(pid)) from None
        answer = _Answer(pid, reader.fileno())
        try:
            _send(pid, script)
            if not answer.wait(min(_SPEAKS_AFTER_S, timeout)) and timeout > _SPEAKS_AFTER_S:
                say(f"process {pid} {_amid(pid, answer)}: waiting for {timeout:g} s")
                answer.wait(timeout - _SPEAKS_AFTER_S)
            late = "" if answer.told else f"process {pid} {_amid(pid, answer)}, for {timeout:g} s"
        except KeyboardInterrupt:
            late = ""
        if answer.told is None:
            with suppress(OSError, RuntimeError):  # an empty script in the place of the one that waits never runs
                sys.remote_exec(pid, os.devnull)  # type: ignore[attr-defined,unused-ignore]
            with suppress(CommandError, KeyboardInterrupt):
                answer.wait(0.0)
                if answer.has_begun:
                    answer.wait(_LAST_LOOK_S)
    if answer.told is not None:
        return answer.told
    why, status = (late, EXIT_FAILURE) if late else ("interrupted", EXIT_INTERRUPTED)
    if answer.has_begun:
        raise CommandError(f"{why}: it may be measured by now, and cprofiling attach {pid} --off undoes that", status)
    advice = "; --timeout waits longer" if late else ""
    raise CommandError(f"{why}: nothing was changed, and nothing will be{advice}", status)


class _Answer:
    """What the script writes into the pipe, a line at its beginning and one at its end.

    Attributes:
        told: The answer; None until it is there.
    """

    def __init__(self, pid: int, reader: int) -> None:
        self.told: dict[str, Any] | None = None
        self._pid = pid
        self._ticks = started_ticks(pid)
        self._reader = reader
        self._data = b""

    @property
    def has_begun(self) -> bool:
        """Whether the script runs, or has run."""
        return bool(self._data)

    def wait(self, seconds: float) -> bool:
        """Return whether the answer has come in time. CommandError if the process has ended."""
        until = time.monotonic() + seconds
        while self.told is None:
            left = until - time.monotonic()
            if select.select([self._reader], [], [], max(0.0, min(left, 0.1)))[0]:
                piece = os.read(self._reader, 65536)
                self._data += piece
                _begun, _, line = self._data.partition(b"\n")
                if line.endswith(b"\n"):
                    with suppress(ValueError):
                        self.told = json.loads(line)
                        break
                if not piece or line.endswith(b"\n") or len(self._data) > _MOST_BYTES:
                    raise CommandError(f"process {self._pid} does not answer as cprofiling does")
            if started_ticks(self._pid) != self._ticks:
                raise CommandError(f"process {self._pid} has ended meanwhile")
            if left <= 0:
                break
        return self.told is not None


def _send(pid: int, script: str) -> None:
    """Have the main thread of a process run a script. CommandError with what to do if it cannot be asked."""
    try:
        sys.remote_exec(pid, script)  # type: ignore[attr-defined,unused-ignore]
    except (OSError, RuntimeError) as error:
        errors: list[BaseException] = [error]
        while (cause := errors[-1].__cause__ or errors[-1].__context__) is not None:
            errors.append(cause)
        text = "; ".join(str(each) for each in errors)
        if started_ticks(pid) is None:
            raise CommandError(f"process {pid} has ended meanwhile") from None
        if any(isinstance(each, PermissionError) for each in errors) or "not permitted" in text:
            raise CommandError(_not_permitted(pid)) from None
        if "not enabled" in text:
            raise CommandError(
                f"process {pid} does not let others in (PYTHON_DISABLE_REMOTE_DEBUG, -X disable-remote-debug, or how "
                "its Python was built): start the program without that, or with CPROFILING_LIVE=PATH"
            ) from None
        if "PyRuntime" in text:
            name = _status(pid).get("Name", "")
            told = f"process {pid} ({shown_text('name', name)}) is no CPython 3.{OLDEST} or later"
            raise CommandError(told) from None
        raise CommandError(f"cannot attach to process {pid}: {text}") from None


def _amid(pid: int, answer: _Answer) -> str:
    """Return why a process may not have answered yet."""
    if answer.has_begun:
        return "has begun, and has not come to its end"
    state, place = _status(pid).get("State", "")[:1], ""
    with suppress(Exception):  # a private module, which differs from version to version
        from _remote_debugging import RemoteUnwinder  # type: ignore[import-not-found,unused-ignore]

        [found] = RemoteUnwinder(pid).get_stack_trace()
        frame = getattr(found, "threads", [found])[0].frame_info[0]
        line = getattr(frame, "location", frame).lineno
        place = shown_text("place", f" at {frame.filename}:{line} ({frame.funcname})")
    if state in ("T", "t"):
        return f"is stopped{place}"
    if state == "R":
        return f"has not taken it up: its main thread is busy, maybe in a call of C{place}"
    return f"runs no Python code in its main thread, which waits in a call of C{place}"
