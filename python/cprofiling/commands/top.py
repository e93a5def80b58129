"""Command ``top``, its arguments and targets."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Generator
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING

from cprofiling._core import FormatError
from cprofiling._internal import environment
from cprofiling._internal.optional import imported
from cprofiling._startup import LIVE_VARIABLE
from cprofiling.commands.control import add_client, endpoint
from cprofiling.commands.parsing import CommandError, add_number, is_terminal, not_empty, number, write_as_is
from cprofiling.monitoring.top.samples import SORT_KEYS, WINDOWS, Choice

if TYPE_CHECKING:
    from cprofiling.monitoring.top.samples import Moment
    from cprofiling.monitoring.top.screen import Source, Wait

INTERVAL_S = 1.0
LEAST_INTERVAL_S, MOST_INTERVAL_S = 0.1, 3600.0
INT32_MAX = 2**31 - 1
_MOST_PORT_DIGITS = 5


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Describe the command and add its options."""
    parser.description = "Show what the nodes of another process do, until it ends or is interrupted."
    parser.epilog = "example: cprofiling top live.cprof --sort-by p99 --node 'model*'"
    add = parser.add_argument
    target_help = f"a live file, the number of a process that has one, or a server (default: ${LIVE_VARIABLE})"
    add("target", metavar="TARGET", nargs="?", type=not_empty, help=target_help)
    sort_help = f"{', '.join(SORT_KEYS)} (default: total)"
    add("--sort-by", choices=SORT_KEYS, default=SORT_KEYS[0], metavar="KEY", help=sort_help)
    add("--reverse", action="store_true", help="the smallest first")
    node_help = "only these; may be given again"
    add("-n", "--node", action="append", type=not_empty, default=[], metavar="GLOB", help=node_help)
    add("--stage", metavar="NAME", help="only the nodes of this stage")
    window_help = f"{', '.join(WINDOWS)} (piped: total)"
    add("--window", choices=WINDOWS, metavar="WINDOW", help=window_help)
    add(
        "--interval",
        type=number("a number of seconds", LEAST_INTERVAL_S, MOST_INTERVAL_S),
        default=INTERVAL_S,
        metavar="SECONDS",
        help=f"between two tables, {LEAST_INTERVAL_S} to {MOST_INTERVAL_S:g} (default: %(default)g)",
    )
    add_number(parser, "--updates", 1, INT32_MAX, "end after so many tables")
    add_client(parser)


def run(options: argparse.Namespace) -> None:
    """Show samples to the end, usually an interrupt."""
    target: str = options.target or environment.text(LIVE_VARIABLE) or ""
    if not target:
        options.refuse("what to show is required: TARGET")
    source, errors = live_source(target, options) if not is_address(target) else server_source(target, options)
    window = options.window or (WINDOWS[0] if is_terminal() else "total")
    choice = Choice(options.sort_by, options.reverse, tuple(options.node), options.stage, window)
    try:
        show(source, choice, options.interval)
    except errors as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"cannot read {target!a}: {error.strerror}") from None
    except KeyboardInterrupt:
        pass


def is_address(target: str) -> bool:
    """Return whether a target is a server, not a file."""
    if target.startswith("unix:"):
        return True
    host, colon, port = target.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and len(port) <= _MOST_PORT_DIGITS
    return bool(host and colon) and is_port and not os.path.exists(target)


def live_source(target: str, options: argparse.Namespace) -> tuple[Source, tuple[type[Exception], ...]]:
    """Return the samples of a live file, and its errors."""
    from cprofiling.monitoring.top import from_live_file

    def moments(wait: Wait) -> Generator[Moment, None, None]:
        is_number = target.isascii() and target.isdecimal() and not os.path.exists(target)
        try:
            with from_live_file.of_process(int(target)) if is_number else nullcontext(target) as path:
                yield from from_live_file.moments(path, lambda: wait(options.interval), options.updates)
        except FormatError as error:
            raise from_live_file.NoLiveFileError(f"{target!a}: {error}") from None

    return moments, (from_live_file.NoLiveFileError, ValueError)


def server_source(target: str, options: argparse.Namespace) -> tuple[Source, tuple[type[Exception], ...]]:
    """Return the samples of a server's session, and its errors."""
    server = endpoint(options, target)
    from cprofiling.monitoring.top import from_server as client

    def moments(wait: Wait) -> Generator[Moment, None, None]:
        about = (server, options.session, options.stage)
        return client.moments(*about, wait, interval_s=options.interval, updates=options.updates)

    return moments, (client.TopError, ValueError)


def show(source: Source, choice: Choice, interval_s: float) -> None:
    """Show the samples, with rich on a terminal, else as plain lines."""
    from cprofiling.monitoring.top import screen

    if is_terminal():
        try:
            imported("rich.live", install="cprofiling[rich]")
        except ImportError as error:
            raise CommandError(str(error)) from None
        screen.show_rich(source, choice, interval_s)
        return
    with closing(source(_slept)) as moments:
        screen.show_plain(moments, choice, write_as_is)


def _slept(seconds: float) -> bool:
    time.sleep(seconds)
    return True
