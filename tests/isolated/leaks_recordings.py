"""Leaks of recordings, labels, exports and loads, on good paths and on bad ones: memory, files, threads."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import json
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cprofiling as cp
from cprofiling import _core
from isolated import leaks_harness
from isolated.leaks_harness import by_name, refused

IN_MEMORY = "/dev/shm"
FOLDER = tempfile.TemporaryDirectory(dir=IN_MEMORY if Path(IN_MEMORY).is_dir() else None)
anything: Any = cp


def statistics() -> cp.Snapshot:
    profiler = cp.Profiler()
    profiler.set_profiling(True)
    for time_ms in (0.5, 1, 2):
        profiler.record("stage", "node", time_ms)
    return profiler.snapshot()


STATISTICS = statistics()


class PlannedError(Exception):
    """What a handler, a file or a block raises on purpose."""


class Array:
    """What has a shape and a type."""

    shape = (2, 3)
    dtype = "float32"


def path_of(name: str) -> str:
    return f"{FOLDER.name}/{name}"


def raises(*arguments: object) -> Any:
    raise PlannedError


def profile(**options: Any) -> cp.profile:
    return cp.profile(operators=False, **options)


@cp.profile_node(name="node")
def node(*arguments: object) -> None:
    """Do nothing."""


@cp.profile_node(name="generator")
def generator() -> Iterator[int]:
    yield 1
    yield 2


@cp.record("labelled")
def labelled() -> None:
    node()


@cp.record("labelled generator")
def labelled_generator() -> Iterator[int]:
    yield from generator()


@cp.record("labelled coroutine")
async def labelled_coroutine() -> None:
    await asyncio.sleep(0)


def work() -> None:
    """Do a little of each kind."""
    with cp.record("label"), cp.record("\udc80"), cp.stage("train"):
        node(Array(), [1])
        labelled()
        list(labelled_generator())
    with contextlib.suppress(PlannedError), cp.record("raising"):
        raises()


# ---- Recordings


def recorded(**options: Any) -> leaks_harness.Scenario:
    def scenario() -> None:
        with profile(**options) as prof:
            work()
        assert len(prof.events()) >= 8

    return scenario


def again_and_again() -> None:
    prof = profile()
    for _ in range(3):
        prof.start()
        work()
        prof.stop()
    prof.add_metadata("key", "value")
    assert prof.recording.dropped == 0


def cycles(handler: Callable[[cp.profile], object]) -> leaks_harness.Scenario:
    def scenario() -> None:
        plan = cp.schedule(wait=1, warmup=1, active=2)
        with contextlib.suppress(PlannedError), profile(schedule=plan, on_trace_ready=handler) as prof:
            for _ in range(7):  # the second cycle is never finished
                work()
                with contextlib.suppress(PlannedError):
                    prof.step()

    return scenario


def left_by_an_exception() -> None:
    with contextlib.suppress(PlannedError), profile(on_trace_ready=raises), cp.record("label"):
        raises()


def paused() -> None:
    with profile() as prof:
        prof.pause()
        work()
        prof.resume()
        work()
        prof.pause()


def nested() -> None:
    with profile():
        refused(profile().start, RuntimeError)()


def dropped() -> None:
    running = _core.Recorder(1000, False, raises, True, raises, True)
    work()
    del running


def finished_wrongly() -> None:
    untyped: Any = _core.Recorder(10, True, None, False, None, True)
    work()
    refused(lambda: untyped.finish(int), TypeError)()
    refused(lambda: untyped.step(3), TypeError)()
    untyped.finish(_core.Recording)
    refused(lambda: untyped.finish(_core.Recording), RuntimeError)()


def left_open() -> None:
    running, dropped_while_open = generator(), labelled_generator()
    with profile() as prof:
        block = cp.record("open").__enter__()
        next(running)
        next(dropped_while_open)
    del dropped_while_open
    list(running)
    block.__exit__(None, None, None)
    assert [event.unfinished for event in prof.events()] == [True] * len(prof.events())


def in_threads() -> None:
    with profile() as prof:
        thread = threading.Thread(target=work, name="a thread")
        thread.start()
        thread.join()
    assert {event.thread_name for event in prof.events()} == {"a thread"}


def in_tasks() -> None:
    async def main() -> None:
        with profile():
            tasks = [asyncio.ensure_future(labelled_coroutine()) for _ in range(3)]
            await asyncio.sleep(0)
            tasks[0].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    loop.run_until_complete(main())


# ---- Files


def a_recording() -> cp.Recording:
    with profile(record_shapes=True, profile_memory=True, with_stack=True) as prof:
        work()
    return prof.recording


def exports() -> None:
    recording.export_chrome_trace(path_of("trace.json"))
    recording.export_chrome_trace(path_of("trace.json.gz"))
    recording.export_chrome_trace(file=io.BytesIO())
    recording.export_chrome_trace(file=io.StringIO())


def handled() -> None:
    with profile(on_trace_ready=cp.tensorboard_trace_handler(path_of("runs"), "worker")):
        work()
    shutil.rmtree(path_of("runs"))


class FailingFile(io.StringIO):
    """A file that takes nothing."""

    def write(self, text: str) -> int:
        raise PlannedError


def closed_file() -> io.StringIO:
    file = io.StringIO()
    file.close()
    return file


def written_at_the_end(file: Any) -> Callable[[], None]:
    def use() -> None:
        with profile(file=file):
            work()

    return use


def loads() -> None:
    for name in ("given.json", "given.json.gz"):
        assert len(cp.load_trace(path_of(name)).events()) == len(recording.events())


def damaged(data: bytes, name: str) -> leaks_harness.Scenario:
    path = path_of(name)
    with open(path, "wb") as file:
        file.write(data)
    return refused(lambda: cp.load_trace(path), cp.FormatError)


def reports() -> None:
    loaded = cp.load_trace(path_of("given.json"))
    loaded.key_averages(group_by_node=True).table(sort_by="count")
    refused(lambda: loaded.key_averages().table(sort_by="nothing"), ValueError)()
    loaded.export_stacks(path_of("stacks.txt"))
    assert str(loaded.summary())
    assert loaded.overview(loaded)


def views() -> None:
    column = recording.column("start_ns")
    assert column is not None
    with column[1:]:
        assert column.readonly
    assert len(recording.strings) > len(recording.tracks)
    recording.__arrow_c_stream__()  # a stream that nobody takes over
    refused(lambda: recording.column("nothing"), ValueError)()
    refused(lambda: recording.args(-1), IndexError)()


loop = asyncio.new_event_loop()
recording = a_recording()
for given in ("given.json", "given.json.gz"):
    recording.export_chrome_trace(path_of(given))
with open(path_of("given.json"), "rb") as written:
    TEXT = written.read()
PACKED = gzip.compress(TEXT)
DEEP = json.dumps({"traceEvents": [{"args": [[[[]]]]}]}).encode()[:-4]
REFUSED: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "a schedule": ({"schedule": 3}, TypeError),
    "a handler": ({"on_trace_ready": "none"}, TypeError),
    "a capacity": ({"capacity": 0}, ValueError),
    "a capacity of the wrong type": ({"capacity": "1"}, TypeError),
    "an activity": ({"activities": ["nonsense"]}, ValueError),
    "a format": ({"format": "json"}, TypeError),
    "a resource": ({"resource": 3}, TypeError),
    "when_full": ({"when_full": "stop"}, ValueError),
    "a closed file": ({"file": closed_file()}, ValueError),
    "what is no file": ({"file": 3.5}, TypeError),
}


def columns_as_a_stream() -> None:
    summary = STATISTICS.stats()
    summary.__arrow_c_stream__()
    STATISTICS._groups(None)
    for column in (("a", "u", ["x", 1]), ("a", "l", [1, "x"]), ("a", "x", [])):
        with contextlib.suppress(TypeError, ValueError):
            _core.arrow_stream((("text", "u", ["a", "\ud800", None][: len(column[2])]), column))


SCENARIOS: dict[str, leaks_harness.Scenario] = {
    "recorded": recorded(),
    "recorded in detail": recorded(record_shapes=True, profile_memory=True, with_stack=True),
    "recorded with too little room": lambda: recorded(capacity=8, when_full="drop_newest")(),
    **by_name(
        work, again_and_again, left_by_an_exception, paused, nested, dropped, finished_wrongly, left_open, in_threads,
        in_tasks, exports, handled, loads, columns_as_a_stream, reports, views,
    ),
    "cycles": cycles(lambda prof: prof.events()),
    "cycles with a handler that raises": cycles(raises),
    "a schedule that raises": refused(lambda: profile(schedule=raises).start(), PlannedError),
    "a handler that raises": refused(lambda: profile(on_trace_ready=raises).__enter__().stop(), PlannedError),
    **{
        f"profile refuses {what}": refused(lambda options=options: profile(**options), error)  # type: ignore[misc]
        for what, (options, error) in REFUSED.items()
    },
    "stopped without a start": refused(lambda: profile().stop(), RuntimeError),
    "step without a schedule": refused(lambda: profile().step(), RuntimeError),
    "resume without pause": refused(lambda: profile().resume(), RuntimeError),
    "reports before the start": refused(lambda: profile().events(), RuntimeError),
    "metadata that is no JSON": refused(lambda: profile().add_metadata_json("key", "{"), ValueError),
    "record refuses a name": refused(lambda: anything.record(3), TypeError),
    "record refuses a long name": refused(lambda: cp.record("x" * 5000), ValueError),
    "record refuses a class": refused(lambda: cp.record("label")(Array), TypeError),
    "label left without entry": refused(lambda: cp.record("label").__exit__(None, None, None), RuntimeError),
    "export to nowhere": refused(lambda: recording.export_chrome_trace(path_of("none/trace.json")), OSError),
    "export to a folder": refused(lambda: recording.export_chrome_trace(FOLDER.name), OSError),
    "export to a full disk": refused(lambda: recording.export_chrome_trace("/dev/full"), OSError),
    "export to a file that fails": refused(lambda: recording.export_chrome_trace(file=FailingFile()), PlannedError),
    "export to a closed file": refused(lambda: recording.export_chrome_trace(file=closed_file()), ValueError),
    "export to nothing": refused(lambda: recording.export_chrome_trace(), TypeError),
    "written at the end": written_at_the_end(path_of("at_the_end.json")),
    "written nowhere at the end": refused(written_at_the_end(path_of("none/trace.json")), OSError),
    "written into a file that fails": refused(written_at_the_end(FailingFile()), PlannedError),
    "load of nothing": refused(lambda: cp.load_trace(path_of("nothing")), OSError),
    "load of a cut trace": damaged(TEXT[: len(TEXT) // 2], "cut.json"),
    "load of a damaged trace": damaged(TEXT.replace(b'"ts"', b'"ts', 1), "damaged.json"),
    "load of what is no trace": damaged(b"[1, 2", "none.json"),
    "load of open brackets": damaged(DEEP, "deep.json"),
    "load of a cut archive": damaged(PACKED[:-20], "cut.json.gz"),
    "load of a damaged archive": damaged(PACKED[:40] + b"\0\0\0\0" + PACKED[44:], "damaged.json.gz"),
    "load with a read() that raises": refused(lambda: _core.Recording.empty()._load(raises, 0), PlannedError),
}  # fmt: skip

if sys.version_info < (3, 11):  # where each function takes a little more at its 1,024th call
    del SCENARIOS["reports"]
if sys.version_info[:2] == (3, 12):  # where what pathlib interns, as the part of a path, lives for ever
    for exporting in [name for name in SCENARIOS if name.startswith(("export", "handled", "written", "reports"))]:
        del SCENARIOS[exporting]


def alone(scenario: leaks_harness.Scenario) -> leaks_harness.Scenario:
    """Return a scenario that leaves no thread behind."""

    def checked() -> None:
        scenario()
        assert threading.active_count() == 1

    return checked


if __name__ == "__main__":
    leaks_harness.ROUNDS, leaks_harness.WARM_UP = 400, 100  # each takes long
    leaks_harness.main({name: alone(scenario) for name, scenario in SCENARIOS.items()})
    loop.close()
    FOLDER.cleanup()
