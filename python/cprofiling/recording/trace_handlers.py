"""Handlers for ``profile(on_trace_ready=...)``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cprofiling._internal import arguments
from cprofiling._internal.text import file_name_of, shown_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import StrOrBytesPath

    from cprofiling.recording.profile import profile


def tensorboard_trace_handler(
    dir_name: StrOrBytesPath, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """Return a handler that writes traces for TensorBoard into a folder.

    Files are named ``{worker}.{time}.pt.trace.json``, with the time in ns since 1970.

    dir_name: folder, made with mode 0700 if missing.

    worker_name: default is host name and process number. Path characters are escaped.

    use_gzip: compress, with a name ending in ``.gz``.

    Raises TypeError for an invalid folder, ValueError for an empty one. The handler raises OSError if the folder or
    file cannot be made.
    """
    if worker_name is not None and not isinstance(worker_name, str):
        raise TypeError(f"worker_name must be a str or None, got {shown_value(worker_name)}")
    folder = arguments.path("dir_name", dir_name)

    def handler(prof: profile) -> None:
        import time

        from cprofiling._internal.files import make_folders
        from cprofiling.recording.traces.chrome_writer import export_to_path

        make_folders(folder)
        worker = worker_name if worker_name is not None else f"{os.uname().nodename}_{os.getpid()}"
        name = f"{file_name_of(worker)}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}"
        export_to_path(prof.recording, os.path.join(folder, name), compress=use_gzip)

    return handler
