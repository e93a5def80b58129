"""The interpreter around the profiler: sub-interpreters, imports, exits, missing memory, flags (scenarios G1 to G10).

Everything runs in processes of its own, so that a crash fails one test and not the run.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import textwrap
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

import cprofiling as cp
from calls import HAS_NO_GIL, unwatched

pytestmark = pytest.mark.native

ISOLATED = Path(__file__).parents[1] / "isolated"
HANGS_AFTER_S = 120
# Of the operations that are tried without memory, each a process. What one has asked for makes reading run more Python,
# in which other versions than 3.11 fail or crash by themselves: there each operation is alone.
PARTS = 8 if sys.version_info[:2] == (3, 11) else 80


def package_directory() -> str:
    assert cp.__file__ is not None
    return str(Path(cp.__file__).parents[1])


def run_python(script: str, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a fresh interpreter, which finds the same package whatever the flags."""
    find = f"import sys; sys.path.insert(0, {package_directory()!r})\n"
    return subprocess.run(
        [sys.executable, *flags, "-X", "faulthandler", "-c", find + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
        env=unwatched(**environment),
    )


def assert_ran(script: str, *flags: str, **environment: str) -> None:
    """Assert that a script ends well and says nothing but "done"."""
    result = run_python(script, *flags, **environment)
    assert said(result) == "done\nexit code 0"


def said(result: subprocess.CompletedProcess[str]) -> str:
    return f"{result.stdout}{result.stderr}exit code {result.returncode}"


# --- sub-interpreters (G1) ---

MALLOC = "mimalloc" if HAS_NO_GIL else "malloc"  # without a GIL Python needs its own
OWN_GIL = [False, True] if sys.version_info >= (3, 12) else [False]
SUBINTERPRETERS = """
    import threading
    import cprofiling as cp
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters

    START = f'''
    import sys
    sys.path.insert(0, {sys.path[0]!r})
    try:
        import cprofiling as cp
    except ImportError as error:
        assert "cprofiling" in str(error), error
    else:
        prof = cp.profile(operators=False)
        node = cp.profile_node(lambda: None, name="node")
    '''
    USE = START + '''
        assert not cp.profiling_enabled()
        cp.set_profiling(True, skip_first_n=1)

        @cp.profile_node
        def generator():
            yield 1

        class Pipeline(cp.PipelineProfiling):
            @cp.profile_node
            def forward(self):
                node()

        for _ in range(3):
            node()
            with cp.stage("train"), cp.profile_node("block"):
                list(generator())
        counts = [(s.node_name, str(s.stage), s.count, s.skipped_count) for s in cp.get_profiling_summary()]
        assert counts == [
            ("node", "inference", 2, 1), ("generator", "train", 2, 1), ("block", "train", 2, 1)
        ], counts
        assert "generator" in cp.format_profiling_summary()
        pipeline = Pipeline()
        pipeline.set_profiling(True)
        pipeline.forward()
        assert len(pipeline.get_profiling_summary()) == 2
        if LEAVES_OPEN:
            left_open = generator()
            next(left_open)
            cp.profile_node("block").__enter__()
    '''
    RECORD = START + '''
        for _ in range(3):
            with prof, cp.record("label"):
                node()
            assert sorted(event.name for event in prof.events()) == ["label", "node"]
        if LEAVES_OPEN:
            prof.start()
            cp.record("left open").__enter__()
            node()
    '''
    RECORD_IN_VAIN = START + '''
        try:
            prof.start()
        except RuntimeError as error:
            assert "one at a time" in str(error), error
        else:
            raise AssertionError
        with cp.record("label"):
            node()
    '''

    def create(own_gil):
        if hasattr(interpreters, "new_config"):
            return interpreters.create("isolated" if own_gil else "legacy")
        return interpreters.create(isolated=own_gil)

    def use(own_gil, leaves_open, script=USE):
        interpreter = create(own_gil)
        failure = interpreters.run_string(interpreter, script.replace("LEAVES_OPEN", str(leaves_open)))
        assert failure is None, failure
        interpreters.destroy(interpreter)

    cp.set_profiling(True)
    node = cp.profile_node(lambda: None, name="main's")
    node()
"""


def assert_ran_beside_others(script: str) -> None:
    assert_ran(textwrap.dedent(SUBINTERPRETERS) + textwrap.dedent(script))


@pytest.mark.slow
@pytest.mark.parametrize("own_gil", OWN_GIL)
def test_100_subinterpreters_are_used_one_after_the_other(own_gil: bool) -> None:
    assert_ran_beside_others(f"""
            for i in range(100):
                node()
                use({own_gil}, leaves_open=i % 2 == 1)
                node()
            (stats,) = cp.get_profiling_summary()
            assert (stats.node_name, stats.count) == ("main's", 201)
            print("done")
    """)


@pytest.mark.parametrize("own_gil", OWN_GIL)
def test_subinterpreters_are_used_at_once(own_gil: bool) -> None:
    assert_ran_beside_others(f"""
            failures = []

            def body():
                try:
                    for i in range(5):
                        node()
                        use({own_gil}, leaves_open=False)
                        node()
                except BaseException as failure:
                    failures.append(failure)

            threads = [threading.Thread(target=body) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not failures, failures
            (stats,) = cp.get_profiling_summary()
            assert stats.count == 1 + 6 * 5 * 2
            print("done")
    """)


def test_a_subinterpreter_run_inside_a_node_does_not_see_it() -> None:
    assert_ran_beside_others("""
            @cp.profile_node(name="outer")
            def outer():
                with cp.stage("val"), cp.profile_node("block"):
                    use(False, leaves_open=True)
                    node()

            for _ in range(3):
                outer()
            by_name = {(s.node_name, str(s.stage)): s for s in cp.get_profiling_summary()}
            assert {key: s.count for key, s in by_name.items()} == {
                ("main's", "inference"): 1, ("main's", "val"): 3, ("block", "val"): 3, ("outer", "inference"): 3
            }, by_name
            outer_stats = by_name["outer", "inference"]
            assert 0 < outer_stats.self_total_ms < outer_stats.total_ms
            print("done")
    """)


def test_threads_take_turns_at_a_subinterpreter() -> None:
    """What the first of them knows of it goes with it."""
    assert_ran_beside_others("""
            def run(interpreter):
                interpreters.run_string(interpreter, START + "cp.set_profiling(True); node()")

            for _ in range(10):
                interpreter = create(False)
                run(interpreter)
                thread = threading.Thread(target=run, args=(interpreter,))
                thread.start()
                thread.join()
                interpreters.destroy(interpreter)
                taken = [bytes([255]) * size for size in range(16, 512, 8) for _ in range(100)]
                with cp.stage("val"):
                    node()
            assert [s.count for s in cp.get_profiling_summary() if s.stage == "val"] == [10]
            print("done")
    """)


@pytest.mark.parametrize("own_gil", OWN_GIL)
def test_a_subinterpreter_leaves_alone_what_another_one_holds(own_gil: bool) -> None:
    assert_ran_beside_others(f"""
            import sys
            interpreter = create({own_gil})
            interpreters.run_string(interpreter, START + "stage = cp.stage('of its own')")
            with cp.stage("held by the thread") as stage:
                node()
                name = stage.stage if hasattr(stage, "stage") else "held by the thread"
                before = sys.getrefcount(name)
                interpreters.run_string(interpreter, "with stage: pass")
                assert sys.getrefcount(name) == before
            interpreters.destroy(interpreter)
            print("done")
    """)


@pytest.mark.parametrize("own_gil", OWN_GIL)
def test_subinterpreters_record_for_themselves(own_gil: bool) -> None:
    assert_ran_beside_others(f"""
            for i in range(10):
                use({own_gil}, leaves_open=i % 2 == 1, script=RECORD)
                with cp.profile(operators=False) as prof:  # one that was left running has ended with its interpreter
                    node()
                assert [event.name for event in prof.events()] == ["main's"]
            print("done")
    """)


@pytest.mark.parametrize("own_gil", OWN_GIL)
def test_a_recording_has_nothing_of_another_interpreter(own_gil: bool) -> None:
    assert_ran_beside_others(f"""
            with cp.profile(operators=False) as prof:
                for i in range(4):
                    with cp.record("around"):
                        use({own_gil}, leaves_open=i % 2 == 1)
                        use({own_gil}, leaves_open=False, script=RECORD_IN_VAIN)
                        node()
            assert sorted(event.name for event in prof.events()) == 4 * ["around"] + 4 * ["main's"]
            print("done")
    """)


def test_the_module_can_be_imported_anew() -> None:
    assert_ran("""
        import sys
        for i in range(20):
            for name in [name for name in sys.modules if name.partition(".")[0] == "cprofiling"]:
                del sys.modules[name]
            import cprofiling as cp
            assert not cp.profiling_enabled()
            cp.set_profiling(True)
            node = cp.profile_node(lambda: None, name=f"node {i}")
            node()
            assert [s.node_name for s in cp.get_profiling_summary()] == [f"node {i}"]
        print("done")
    """)


def test_modules_that_were_removed_leave_nothing() -> None:
    """Hooks of forks and exits, pickling, and what threads keep of calls would hold all of them."""
    assert_ran("""
        import gc, sys, types
        kept = []
        for i in range(8):
            for name in [name for name in sys.modules if name.partition(".")[0] == "cprofiling"]:
                del sys.modules[name]
            import cprofiling as cp
            import cprofiling.layers, cprofiling.live
            from cprofiling.testing import counting
            cp.set_profiling(True)
            cp.profile_node(lambda: None, name="node")()
            del cp, cprofiling, counting
            gc.collect()
            kept.append(sum(
                type(each) is types.FunctionType and str(each.__module__).startswith("cprofiling.")
                for each in gc.get_objects()
            ))
        assert kept[-1] == kept[3], kept
        print("done")
    """)


def test_the_module_can_be_imported_anew_while_it_records() -> None:
    """The recording of the module that is gone goes on; to the new one it is another's."""
    assert_ran("""
        import gc, sys
        import cprofiling as cp
        first = cp.profile(operators=False)
        first.start()
        opened = cp.record("opened")
        opened.__enter__()
        for i in range(5):
            for name in [name for name in sys.modules if name.partition(".")[0] == "cprofiling"]:
                del sys.modules[name]
            del cp
            gc.collect()
            import cprofiling as cp
            prof = cp.profile(operators=False)
            try:
                prof.start()
            except RuntimeError as error:
                assert "one at a time" in str(error), error
            else:
                raise AssertionError
            with cp.record("unseen"):
                cp.profile_node(lambda: None, name="unseen")()
        opened.__exit__(None, None, None)
        first.stop()
        assert [event.name for event in first.events()] == ["opened"]
        with prof, cp.record("seen"):
            pass
        assert [event.name for event in prof.events()] == ["seen"]
        print("done")
    """)


# --- imports (G4, G10) ---


def test_an_import_inside_an_import_and_a_circular_one(tmp_path: Path) -> None:
    (tmp_path / "first.py").write_text("import second\nimport cprofiling\nVALUE = second.node()\n")
    (tmp_path / "second.py").write_text(
        "import cprofiling as cp\nimport first\ncp.set_profiling(True)\n"
        "node = cp.profile_node(lambda: 42, name='node')\n"
    )
    assert_ran(f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import first, cprofiling
        assert first.VALUE == 42
        assert [stats.count for stats in cprofiling.get_profiling_summary()] == [1]
        print("done")
    """)


def test_a_failed_import_can_be_repeated() -> None:
    assert_ran("""
        import sys
        sys.modules["cprofiling.nodes.stats"] = None
        try:
            import cprofiling
        except ImportError as error:
            assert "cprofiling.nodes.stats" in str(error)
        else:
            raise AssertionError
        del sys.modules["cprofiling.nodes.stats"]
        import cprofiling as cp
        cp.set_profiling(True)
        cp.profile_node(lambda: None, name="node")()
        assert [stats.count for stats in cp.get_profiling_summary()] == [1]
        print("done")
    """)


USE = """
    import cprofiling as cp

    cp.set_profiling(True)

    @cp.profile_node
    def node():
        '''Say nothing.'''

    @cp.profile_node
    def generator():
        yield 1

    @cp.profile_node
    async def coroutine():
        node()

    @cp.profile_node
    async def agenerator():
        yield 1

    @cp.profile_node
    def fails():
        raise ZeroDivisionError

    class Pipeline(cp.PipelineProfiling):
        @cp.profile_node(name=lambda self: "named")
        def step(self):
            pass

        def forward(self):
            self.step()

    def drive(coroutine):
        try:
            coroutine.send(None)
        except (StopIteration, StopAsyncIteration):
            pass

    def use():
        node()
        list(generator())
        drive(coroutine())
        drive(agenerator().__anext__())
        try:
            fails()
        except ZeroDivisionError:
            pass
        with cp.stage("train"), cp.profile_node("block"), cp.Profiler():
            node()
        pipeline = Pipeline()
        pipeline.set_profiling(True)
        pipeline.forward()
        assert [stats.node_name for stats in pipeline.get_profiling_summary()] == ["named"]
        handle = cp.instrument(pipeline, "step", name="instrumented")
        pipeline.step()
        handle.remove()
        assert "node" in cp.format_profiling_summary()

    use()
    cp.get_profiling_summary()._repr_html_()
"""


SWITCHED_FROM_OUTSIDE = """
import cprofiling as cp

done = False

@cp.profile_node("node")
def node():
    pass

print("ready", flush=True)
while not done:
    node()
    with cp.profile_node("block"):
        node()
"""
REMOTE_EXEC: Any = getattr(sys, "remote_exec", None)


@pytest.mark.skipif(REMOTE_EXEC is None, reason="sys.remote_exec came with Python 3.14")
def test_code_from_another_process_may_switch_and_read(tmp_path: Path) -> None:
    """As a debugger attaches: between any two instructions of the program, so inside nodes, too."""
    scripts = {
        "on": "import cprofiling as cp; cp.set_profiling(enabled=True); print('on', flush=True)",
        "read": "import cprofiling as cp; print(len(cp.get_profiling_summary()), flush=True)",
        "end": "import __main__; __main__.done = True",
    }
    for name, script in scripts.items():
        (tmp_path / name).write_text(script)
    find = f"import sys; sys.path.insert(0, {package_directory()!r})"
    command = [sys.executable, "-X", "dev", "-c", find + SWITCHED_FROM_OUTSIDE]
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True, env=unwatched()) as program:

        def answer(name: str) -> str:
            REMOTE_EXEC(program.pid, str(tmp_path / name))
            assert program.stdout is not None
            return program.stdout.readline()

        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        assert answer("read") == "0\n"
        assert answer("on") == "on\n"
        while answer("read") != "2\n":
            assert program.poll() is None
        REMOTE_EXEC(program.pid, str(tmp_path / "end"))
        assert program.communicate(timeout=HANGS_AFTER_S) == ("", "")
    assert program.returncode == 0


@pytest.mark.parametrize("flags", ["-S", "-I", "-E", "-S -I -E", "-O", "-OO", "-b -b", "-B"])
def test_flags_change_nothing(flags: str) -> None:
    assert_ran(textwrap.dedent(USE) + "\nprint('done')", *flags.split())


# --- developers' switches (G8) ---


@pytest.mark.parametrize(
    "environment", [{}, {"PYTHONMALLOC": MALLOC}, {"PYTHONMALLOC": "debug"}, {"PYTHONTRACEMALLOC": "5"}], ids=str
)
def test_development_mode_is_silent(environment: dict[str, str]) -> None:
    script = textwrap.dedent(USE) + textwrap.dedent("""
        import gc, threading
        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        gc.collect()
        import asyncio, logging
        logging.getLogger("asyncio").setLevel("ERROR")  # no warnings of callbacks that a busy machine makes slow
        async def main():
            await asyncio.gather(*[coroutine() for _ in range(10)])
            async for _ in agenerator():
                pass
        asyncio.run(main())
        gc.collect()
        print("done")
    """)
    assert_ran(script, "-X", "dev", "-W", "error", **environment)


# --- exits (G5) ---

EXITS = {
    "finaliser of a global": """
        class Late:
            def __del__(self, use=use):
                use()
        late = Late()
    """,
    "finaliser of a module's attribute": """
        import sys, types
        class Late:
            def __del__(self, node=node, block=cp.profile_node("block"), profiler=cp.Profiler()):
                node()
                with block:
                    profiler.record("train", "node", 1.0)
                profiler.get_profiling_summary()
        sys.modules["late"] = types.ModuleType("late")
        sys.modules["late"].late = Late()
        sys.late = Late()
    """,
    "held by the interpreter": """
        import codecs, contextvars, os, sys
        class Late:
            def __del__(self, node=node, fails=fails, list=list, generator=generator, block=cp.profile_node("block"),
                        stage=cp.stage("late"), Zero=ZeroDivisionError):
                node()
                with block, stage:
                    list(generator())
                try:
                    fails()
                except Zero:
                    pass
        def hold(late):
            return lambda *arguments: late and None
        codecs.register(hold(Late()))
        os.register_at_fork(before=hold(Late()))
        contextvars.ContextVar("late").set(Late())
        sys.setprofile(None)
        cyclic = hold(Late())
        cyclic.itself = cyclic
        codecs.register(cyclic)
        del cyclic
    """,
    "atexit": """
        import atexit, weakref
        atexit.register(use)
        class Watched:
            pass
        watched = Watched()
        weakref.finalize(watched, use)
        atexit.register(cp.get_profiling_summary)
    """,
    "left open": """
        import sys, types
        running = generator()
        next(running)
        @cp.profile_node
        async def waits():
            await types.coroutine(lambda: (yield))()
        waiting = waits()
        drive(waiting)
        suspended = coroutine()
        block = cp.profile_node("block")
        block.__enter__()
        cp.stage("train").__enter__()
        cp.stage("val", default=True).__enter__()
        profiler = cp.Profiler()
        profiler.set_profiling(True)
        profiler.__enter__()
        drive(suspended)
        sys.unraisablehook = lambda *arguments: None
        del suspended
        def held(node=node):
            try:
                yield
            finally:
                node()
        held_open = held()
        next(held_open)
        outer = cp.profile_node(held)()
        next(outer)
    """,
    "the package is gone": """
        import sys
        class Late:
            def __del__(self, use=use):
                use()
        late = Late()
        for name in [name for name in sys.modules if name.partition(".")[0] == "cprofiling"]:
            del sys.modules[name]
        import gc
        gc.collect()
    """,
}


@pytest.mark.slow
def test_a_thread_that_ends_with_the_interpreter_while_it_writes(tmp_path: Path) -> None:  # C6
    assert_ran(f"""
            import os, sys, threading, time, types
            import cprofiling as cp
            from cprofiling import _core

            def file(name):
                return _core.LiveFile(-1, os.path.join({str(tmp_path)!r}, name).encode(), bytes(4096), 2**16, 10**9)

            profiler = cp.Profiler()
            profiler.set_profiling(True)
            for number in range(20_000):
                profiler.record("stage", f"node {{number}}", 1.0)
            written = file("written")
            written.add(profiler, b"label", ())
            sys.late = types.SimpleNamespace(unused=file("unused"))

            def write():
                while True:
                    profiler.record("stage", "node 1", 1.0)
                    written.commit()

            threading.Thread(target=write, daemon=True).start()
            time.sleep(0.5)
            print("done")
    """)


@pytest.mark.parametrize("scenario", EXITS)
def test_the_exit_is_clean_and_its_code_the_scripts_own(scenario: str) -> None:
    script = textwrap.dedent(USE) + textwrap.dedent(EXITS[scenario]) + "\nprint('done')\n"
    assert_ran(script, "-X", "dev", "-W", "error")
    assert said(run_python(script + "import sys as _sys\n_sys.exit(3)\n")) == "done\nexit code 3"


def test_calls_of_a_first_use_in_the_very_last_collection() -> None:
    """Nothing was measured before: the thread's part of the profiler is made while the interpreter is taken down."""
    assert_ran("""
        import codecs
        import cprofiling as cp
        profiler = cp.Profiler()
        profiler.set_profiling(True)
        class Late:
            def __del__(self, node=profiler.profile_node(lambda: 42, name="node"), default=cp.profile_node(len),
                        site=profiler.profile_node("block"), stage=cp.stage("x"), profiler=profiler,
                        error=Exception):
                with stage, profiler, site:
                    assert node() == 42
                    assert default(()) == 0
                profiler.record("a", "b", 1.0)
                try:
                    profiler.get_profiling_summary()
                except error:
                    pass
        def search(name):
            return None
        search.itself = search
        search.late = Late()
        codecs.register(search)
        del search
        print("done")
    """)


RECORDS = textwrap.dedent(USE) + textwrap.dedent("""
    @cp.record("labelled")
    def labelled():
        node()

    prof = cp.profile(operators=False, with_stack=True, profile_memory=True)
    prof.start()
    use()
    labelled()
""")
RECORDED_EXITS = {
    "left running": "",
    "left in a cycle": """
        import warnings
        warnings.simplefilter("ignore")  # of the cycle that is incomplete
        prof.stop()
        prof = cp.profile(operators=False, schedule=cp.schedule(wait=0, warmup=0, active=3))
        prof.start()
        prof.step()
    """,
    "held in a cycle": "prof.itself = prof",
    "left open": """
        block = cp.record("block")
        block.__enter__()
        cp.record("muted", warm_up=True).__enter__()
        running = cp.record("generator")(generator)()
        next(running)
        suspended = cp.record("coroutine")(coroutine)()
        drive(suspended)
    """,
    "daemon threads": """
        import threading
        begun = threading.Barrier(5)
        def run():
            begun.wait()
            while True:
                with cp.record("label"):
                    labelled()
                    list(generator())
        for _ in range(4):
            threading.Thread(target=run, daemon=True).start()
        begun.wait()
    """,
    "atexit": """
        import atexit
        def late():
            labelled()
            with cp.record("late"), cp.stage("late"):
                use()
            prof.stop()
            assert "late" in {event.name for event in prof.events()}
            with cp.profile(operators=False) as again, cp.record("later"):
                pass
            assert [event.name for event in again.events()] == ["later"]
            again.start()
            late.running = again
        atexit.register(late)
    """,
    "atexit after ours": """
        def late():
            labelled()
            with cp.record("late"), cp.stage("late"):
                use()
        last.append(late)
    """,
    "finaliser of a global": """
        class Late:
            def __del__(self, labelled=labelled, record=cp.record, prof=prof, Error=RuntimeError):
                labelled()
                with record("late"):
                    labelled()
                try:
                    prof.pause()
                    prof.resume()
                except Error:  # it has ended
                    pass
        late = Late()
    """,
    "held by the interpreter": """
        import codecs
        class Late:
            def __del__(self, labelled=labelled, block=cp.record("late"), record=cp.record, Error=RuntimeError):
                labelled()
                with block:
                    labelled()
                try:
                    record("latest")
                except Error:
                    pass
        def search(name, late=Late()):
            return None
        search.itself = search
        codecs.register(search)
        del search
    """,
    "the package is gone": """
        import gc
        for name in [name for name in sys.modules if name.partition(".")[0] == "cprofiling"]:
            del sys.modules[name]
        gc.collect()
        labelled()
    """,
}


@pytest.mark.parametrize("scenario", RECORDED_EXITS)
def test_the_exit_is_clean_while_a_recording_runs(scenario: str) -> None:
    before_ours = "import atexit, sys\nlast = []\natexit.register(lambda: [late() for late in last])\n"
    assert_ran(before_ours + RECORDS + textwrap.dedent(RECORDED_EXITS[scenario]) + "\nprint('done')\n")


@pytest.mark.parametrize(
    ("ends", "outcome"),
    [
        ("import sys; sys.exit(3)", "exit code 3"),
        ("import os; os._exit(4)", "exit code 4"),
        ("import os, threading; threading.Thread(target=os._exit, args=(5,)).start(); labelled()", "exit code 5"),
        ("import sys; sys.excepthook = lambda *arguments: None; raise LookupError", "exit code 1"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "exit code -15"),
    ],
)
def test_the_exit_code_is_the_scripts_own_while_a_recording_runs(ends: str, outcome: str) -> None:
    assert said(run_python(RECORDS + "cp.record('block').__enter__()\n" + ends)) == outcome


def test_an_unhandled_exception_is_all_that_is_said_while_a_recording_runs() -> None:
    result = run_python(RECORDS + "with cp.record('block'):\n    raise LookupError('planned')\n")
    assert result.returncode == 1
    assert result.stderr.startswith("Traceback")
    assert result.stderr.endswith("LookupError: planned\n")
    assert result.stderr.count("Error:") == 1


# --- no memory (G7) ---

LISTS_WITHOUT_MEMORY = """
import _testcapi
for _ in range(1000):
    lists = [list("lists whose memory is used again") for _ in range(100)]
    del lists
    for nth in range(3):
        _testcapi.set_nomemory(nth, nth + 1)
        try:
            "a b c".split()
        except MemoryError:
            pass
        finally:
            _testcapi.remove_mem_hooks()
"""


@functools.cache
def survives_without_memory() -> bool:
    """Tell whether this interpreter lives when a list of its own cannot be made, which 3.13 without a GIL does not."""
    return subprocess.run([sys.executable, "-c", LISTS_WITHOUT_MEMORY], check=False).returncode == 0


@pytest.mark.parametrize("part", range(1, PARTS + 1))
def test_each_allocation_may_fail(part: int) -> None:
    pytest.importorskip("_testcapi")
    if HAS_NO_GIL and not survives_without_memory():
        pytest.skip("this interpreter itself dies of a list without memory")
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(ISOLATED / "no_memory.py"), f"{part}/{PARTS}"],
        capture_output=True,
        text=True,
        timeout=4 * HANGS_AFTER_S,
        check=False,
        env=unwatched(PYTHONPATH=package_directory()),
    )
    assert (result.stderr, result.returncode) == ("", 0), result.stdout
    assert result.stdout.endswith("done\n")
