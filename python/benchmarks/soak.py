"""The soak: a service that lives through a week's trouble, and counts itself what it called.

Its threads and tasks call nodes at a third of a processor at most. Turn by turn there is trouble: recordings, forks
whose children are killed, full disks, clocks that step, a Profiler that is off or reset, a process that is stopped, and
names without end; others scrape it, watch it with ``top`` and ``control`` it. At the end of each turn all callers
pause, and the statistics, the recording and the live file must have exactly what was called. Memory, descriptors and
threads must be the same in the last quarter of the time as in the third.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import json
import multiprocessing
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SEED = 1985
CALLERS, BURST, PAUSE_S = 4, 50, 0.03
TURN_S, LOOK_S, PATIENCE_S = 5.0, 5.0, 30.0
MOST_KEYS = 65_536  # of a Profiler
NAMES_UNTIL = 0.4  # of the time; then all names are taken
JUDGED_MINUTES = 10  # from which on memory is to be flat
FLAT = 1.05
CHILD_CALLS = 200
CAPACITIES = (100, 1_000_000)
HOUR_NS, MOMENT_NS = 3_600 * 10**9, 40 * 10**6


class PlannedError(Exception):
    """What a node raises on purpose."""


def finished(rows: Any) -> Counter[str]:
    """Return the calls that statistics know, by node."""
    counted: Counter[str] = Counter()
    for row in rows:
        dropped = row.error_count + row.cancelled_count + row.dropped_count
        counted[row.node_name] += row.count + row.skipped_count + dropped
    return counted


class Service:
    """The service: Profilers, callers that count what they call, and the turns of trouble."""

    def __init__(self, folder: Path, minutes: float) -> None:
        """Make all that lives as long as the service; files go below ``folder``."""
        import cprofiling

        self.cp: Any = cprofiling
        self.folder, self.live = folder, folder / "live.cprof"
        self.begun, self.seconds = time.monotonic(), minutes * 60
        self.random = random.Random(SEED)
        self.lost: list[str] = []
        self.running = True
        self.counts_main = True
        self.called = {"main": Counter[str](), "names": Counter[str](), "toggled": Counter[str]()}
        self.failed: Counter[tuple[str, str]] = Counter()
        self.total = self.names = self.turns = self.records = self.children = 0
        self.locks = [threading.Lock() for _ in range(CALLERS + 1)]
        self.counting = threading.Lock()
        self.profilers = {name: self.cp.Profiler() for name in self.called}
        self.profilers["main"].set_profiling(True, live=self.live)
        for name in ("names", "toggled"):
            self.profilers[name].set_profiling(True)
        main = self.profilers["main"].profile_node
        self.toggled = self.profilers["toggled"].profile_node("toggled")
        self.outer, self.inner = main("outer")(self._outer), main("inner")(self._inner)
        self.generator, self.coroutine = main("generator")(self._generator), main("coroutine")(self._coroutine)
        with contextlib.suppress(ValueError, AttributeError):
            self.steps_ns = (ctypes.c_longlong * 8).in_dll(ctypes.CDLL(None), "soak_steps_ns")
            self.full = ctypes.c_int.in_dll(ctypes.CDLL(None), "soak_full")

    # ---- What is called

    def _outer(self, tally: Counter[tuple[str, str]], number: int) -> None:
        tally["outer", ""] += 1
        with contextlib.suppress(PlannedError):
            self.inner(tally, fails=number % 7 == 0)

    def _inner(self, tally: Counter[tuple[str, str]], *, fails: bool) -> None:
        tally["inner", ""] += 1
        if fails:
            tally["inner", "error"] += 1
            raise PlannedError

    def _generator(self, tally: Counter[tuple[str, str]]) -> Iterator[int]:
        tally["generator", ""] += 1
        yield 1
        yield 2

    async def _coroutine(self, tally: Counter[tuple[str, str]], number: int) -> None:
        tally["coroutine", ""] += 1
        try:
            await asyncio.sleep(0)
            if number % 5 == 0:
                tally["coroutine", "error"] += 1
                raise PlannedError
            await asyncio.sleep(60 if number % 7 == 0 else 0)
        except asyncio.CancelledError:
            tally["coroutine", "cancelled"] += 1
            raise

    def burst(self, tally: Counter[tuple[str, str]]) -> None:
        """Make calls as a request does, some of them in a thread that ends."""
        for number in range(BURST):
            self.outer(tally, number)
        for _ in self.generator(tally):
            pass
        next(self.generator(tally))
        with self.toggled:
            tally["toggled", ""] += 1
        thread = threading.Thread(target=self.outer, args=(tally, 1))
        thread.start()
        thread.join()

    async def tasks(self, tally: Counter[tuple[str, str]]) -> None:
        """Make calls from tasks, of which some are cancelled."""
        tasks = [asyncio.ensure_future(self.coroutine(tally, number)) for number in range(1, BURST)]
        for _ in range(3):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def name_anew(self) -> None:
        """Call nodes under names that nobody has used."""
        due = min(1.0, self.elapsed / (NAMES_UNTIL * self.seconds)) * MOST_KEYS
        for _ in range(max(10, round(due) - self.names)):
            with self.profilers["names"].profile_node(f"request {self.names}"):
                self.names += 1
                self.called["names"]["all"] += 1

    # ---- Who calls

    def call_on(self, lock: threading.Lock, *, in_tasks: bool) -> None:
        """Call until the end, but for pauses in which somebody else has the lock."""
        loop = asyncio.new_event_loop()
        while self.running:
            with lock:
                tally: Counter[tuple[str, str]] = Counter()
                if in_tasks:
                    loop.run_until_complete(self.tasks(tally))
                else:
                    self.burst(tally)
                with self.counting:
                    self._add(tally)
            time.sleep(PAUSE_S * self.random.uniform(0.5, 2))
        loop.close()

    def _add(self, tally: Counter[tuple[str, str]]) -> None:
        for (name, outcome), count in tally.items():
            if outcome:
                self.failed[name, outcome] += count * self.counts_main
                continue
            self.total += count
            profiler = "toggled" if name == "toggled" else "main"
            self.called[profiler][name] += count * (profiler == "toggled" or self.counts_main)

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Let no call be open."""
        with contextlib.ExitStack() as stack:
            for lock in self.locks:
                stack.enter_context(lock)
            yield

    @property
    def elapsed(self) -> float:
        """Seconds since the service began."""
        return time.monotonic() - self.begun

    # ---- Trouble, for a turn each

    def quiet(self) -> None:
        """Nothing but calls."""
        time.sleep(TURN_S)

    def recorded(self) -> None:
        """Record all calls, export them, and compare."""
        recording = self.cp.profile(capacity=self.random.choice(CAPACITIES), operators=False)
        with self.pause():
            before = self.total + self.names
            recording.start()
        self.name_anew()
        time.sleep(TURN_S / 2)
        with self.pause():
            recording.stop()
            made = self.total + self.names - before
        kept, path = len(recording.events()), self.folder / "trace.json"
        self.records += kept
        self.expect("recording: kept and dropped", kept + recording.dropped, made)
        recording.export_chrome_trace(str(path))
        self.expect("exported", len(self.cp.load_trace(str(path)).events()), kept)
        path.unlink()

    def recorded_in_between(self) -> None:
        """Switch recordings on and off amid calls."""
        for _ in range(10):
            with self.cp.profile(capacity=1_000, operators=False) as recording:
                time.sleep(TURN_S / 20)
            self.records += len(recording.events())

    def off(self) -> None:
        """Switch the Profiler off, and on again, while nothing runs; and the other one while something does."""
        with self.pause():
            self.counts_main = False
            self.profilers["main"].set_profiling(False)
        for number in range(round(TURN_S / 0.05)):
            self.profilers["toggled"].set_profiling(number % 2 == 0)
            time.sleep(0.05)
        with self.pause():
            self.profilers["toggled"].set_profiling(True)
            self.profilers["main"].set_profiling(True, live=self.live)
            self.counts_main = True

    def reset(self) -> None:
        """Discard what was counted."""
        with self.pause():
            self.profilers["main"].reset_profiling()
            self.called["main"].clear()
            self.failed.clear()
        time.sleep(TURN_S)

    def forked(self) -> None:
        """Fork children beside all threads; they count anew, end or are killed, and leave their live file."""
        for is_killed in (False, True) * 2:
            ours, theirs = multiprocessing.Pipe()
            child = multiprocessing.get_context("fork").Process(target=self._live_as_child, args=(theirs, is_killed))
            child.start()
            theirs.close()
            if not ours.poll(PATIENCE_S):
                self.lost.append("a forked child said nothing")
            else:
                self.expect("a child's calls", ours.recv(), CHILD_CALLS)
            path = self.live.with_name(f"live_{child.pid}.cprof")
            if is_killed:
                self.expect_live(path, {"child": CHILD_CALLS}, patience_s=PATIENCE_S)
                child.kill()
            child.join(PATIENCE_S)
            self.expect("a child's exit status", child.exitcode, -signal.SIGKILL if is_killed else 0)
            self.expect_live(path, {"child": CHILD_CALLS}, state="killed" if is_killed else "ended")
            path.unlink(missing_ok=True)
            ours.close()
            child.close()
            self.children += 1

    def _live_as_child(self, pipe: Any, is_killed: bool) -> None:
        node = self.profilers["main"].profile_node("child")(abs)
        for number in range(CHILD_CALLS):
            node(number)
        pipe.send(sum(finished(self.profilers["main"].get_profiling_summary()).values()))
        if is_killed:
            time.sleep(2 * PATIENCE_S)

    def full_disk(self) -> None:
        """Have no room on any disk: exports say so, and the live file goes on when there is some again."""
        path = self.folder / "full.json"
        self.full.value = 1
        try:
            with self.cp.profile(capacity=1_000, operators=False) as recording:
                time.sleep(TURN_S / 2)
            try:
                recording.export_chrome_trace(str(path))
                self.lost.append("an export onto a full disk did not fail")
            except OSError:
                self.expect("files left on a full disk", list(self.folder.glob("full*")), [])
            time.sleep(TURN_S / 2)
        finally:
            self.full.value = 0
        recording.export_chrome_trace(str(path))
        path.unlink()

    def clock_steps(self) -> None:
        """Step the clocks forward and back; the machine seems to have been suspended for a while, too."""
        for _ in range(5):
            self.steps_ns[0] = self.random.randint(-HOUR_NS, HOUR_NS)
            self.steps_ns[1] = self.random.randint(-MOMENT_NS, MOMENT_NS)
            self.steps_ns[7] += HOUR_NS // 60
            time.sleep(TURN_S / 5)
        self.steps_ns[0] = self.steps_ns[1] = 0

    # ---- What must hold

    def expect(self, what: str, found: object, wanted: object) -> None:
        """Note what is not as it should be."""
        if found != wanted:
            self.lost.append(f"{what}: {found}, not {wanted}")

    def expect_live(self, path: Path, wanted: dict[str, int], *, state: str = "running", patience_s: float = 0) -> None:
        """Expect a live file to have these calls, soon."""
        from cprofiling import live

        deadline, found = time.monotonic() + patience_s, ("", dict[str, int]())
        while True:
            with contextlib.suppress(FileNotFoundError):
                read = live.read(path)
                rows = finished(row for part in read.parts for row in part.summary)
                found = (read.state, {name: count for name, count in rows.items() if count})
            if found == (state, wanted) or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        self.expect(path.name[:5], found, (state, wanted))

    def check(self) -> None:
        """Compare all statistics with what was called."""
        with self.pause():
            gc.collect()
            called = {name: count for name, count in self.called["main"].items() if count}
            rows = self.profilers["main"].get_profiling_summary()
            self.expect("calls", {name: count for name, count in finished(rows).items() if count}, called)
            most_ms = self.elapsed * 1e3 + 1e3
            for row in rows:
                failed = (self.failed[row.node_name, "error"], self.failed[row.node_name, "cancelled"])
                self.expect(row.node_name, (row.error_count, row.cancelled_count), failed)
                if not 0 <= row.min_ms <= row.mean_ms <= row.max_ms <= most_ms:
                    self.lost.append(f"times of {row.node_name}: {row}")
            self.expect_live(self.live, called, patience_s=PATIENCE_S)
            names = self.profilers["names"].get_profiling_summary()
            self.expect("calls of many names", sum(finished(names).values()), self.called["names"]["all"])
            toggled = finished(self.profilers["toggled"].get_profiling_summary())["toggled"]
            if toggled > self.called["toggled"]["toggled"]:
                self.lost.append(f"{toggled} calls of {self.called['toggled']['toggled']}")

    def serve(self, addresses: dict[str, str]) -> None:
        """Call and be in trouble until the time is over."""
        callers = [
            threading.Thread(target=self.call_on, args=(lock,), kwargs={"in_tasks": number == CALLERS})
            for number, lock in enumerate(self.locks)
        ]
        for caller in callers:
            caller.start()
        troubles = [self.quiet, self.recorded, self.recorded_in_between, self.off, self.reset, self.forked]
        if hasattr(self, "full"):
            troubles += [self.full_disk, self.clock_steps]
        print(json.dumps({"addresses": addresses, "troubles": len(troubles)}), flush=True)
        try:
            while self.elapsed < self.seconds or self.turns < len(troubles):
                if self.turns % len(troubles) == 0:
                    self.random.shuffle(troubles)
                self.turn(troubles[self.turns % len(troubles)])
        finally:
            self.running = False
            for caller in callers:
                caller.join()
            print(json.dumps({"over": True}), flush=True)  # before the servers stop

    def turn(self, trouble: Callable[[], None]) -> None:
        """Be in trouble, and tell what came of it."""
        trouble()
        self.name_anew()
        self.check()
        self.turns += 1
        figures = {"calls": self.total, "names": self.names, "events": self.records, "children": self.children}
        print(json.dumps({"turns": self.turns, **figures, "lost": self.lost, "in": trouble.__name__}), flush=True)
        self.lost.clear()


def run_service(folder: Path, minutes: float) -> None:
    """Be the service, with the servers for which there are packages."""
    service = Service(folder, minutes)
    addresses = {"live": str(service.live)}
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ModuleNotFoundError):
            from cprofiling.server import serve

            server = serve({"main": service.profilers["main"], "toggled": service.profilers["toggled"]})
            stack.callback(server.stop)
            addresses["server"] = server.address
        with contextlib.suppress(ModuleNotFoundError):
            from prometheus_client import CollectorRegistry, start_http_server

            from cprofiling.export import PrometheusCollector

            registry = CollectorRegistry()
            registry.register(PrometheusCollector(service.profilers))
            scraped, thread = start_http_server(0, "127.0.0.1", registry)
            stack.callback(thread.join)
            stack.callback(scraped.shutdown)
            addresses["metrics"] = f"http://127.0.0.1:{scraped.server_port}/metrics"
        service.serve(addresses)


# ---- Who watches the service


def state_of(pid: int) -> tuple[int, int, int]:
    """Return a process's resident memory in KiB, its descriptors and its threads."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(fields["VmRSS"].split()[0]), sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()), int(fields["Threads"])


def interposer(folder: Path) -> dict[str, str]:
    """Return the environment in which clocks step and disks are full; empty without a compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return {}
    source, library = Path(__file__).with_name("_soak.c"), folder / "soak.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", str(source), "-o", str(library), "-ldl"], check=True)
    return {"LD_PRELOAD": str(library)}


class Watch:
    """Whoever watches a service from outside, and judges."""

    def __init__(self, service: subprocess.Popen[bytes], output: Path, say: Callable[[str], None]) -> None:
        """Watch a process, which prints into ``output``."""
        self.service, self.output, self.say = service, output, say
        self.states: list[tuple[int, int, int]] = []
        self.wrong: list[str] = []
        self.addresses: dict[str, str] = {}
        self.done: Counter[str] = Counter()
        self.read = 0
        self.told: dict[str, Any] = {}

    def listen(self) -> None:
        """Read what the service has printed since."""
        for line in self.output.read_text(encoding="utf-8").split("\n")[self.read : -1]:
            self.read += 1
            told = json.loads(line)
            self.addresses = told.get("addresses", self.addresses)
            self.told.update(told)
            self.wrong += [f"{told['in']}: {lost}" for lost in told.get("lost", ())]

    def is_over(self) -> bool:
        """Return whether the service's time is over, so that its servers may be gone."""
        self.listen()
        return "over" in self.told

    def run(self, what: str, *arguments: str) -> None:
        """Run a command of ours; it must succeed and say something, unless the service ended before it was done."""
        command = [sys.executable, "-m", "cprofiling", *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False)
        self.done[what] += 1
        failed = ended.returncode or not ended.stdout
        if "Traceback" in ended.stderr or (failed and not self.is_over()):
            self.wrong.append(f"{what}: status {ended.returncode}, {ended.stdout!r}, {ended.stderr!r}")

    def act(self, number: int) -> None:
        """Do one of the things that are done to services."""
        server, metrics = self.addresses.get("server"), self.addresses.get("metrics")
        action = ("scrape", "top", "scrape", "stop", "control")[number % 5]
        if action == "top":
            target = server if server and number % 2 else self.addresses["live"]
            session = ["--session", "main"] if target == server else []
            self.run("top", "top", str(target), "--updates", "1", *session)
        elif action == "control" and server:
            self.run("control", "control", server, ("off", "on")[number // 5 % 2], "--session", "toggled")
        elif action == "scrape" and metrics:
            with urllib.request.urlopen(metrics, timeout=4 * PATIENCE_S) as answer:  # noqa: S310 our own
                self.done["scrapes"] += 1
                if b"cprofiling_node_calls_total" not in answer.read():
                    self.wrong.append("a scrape without calls")
        elif action == "stop":
            self.done["suspends"] += 1
            self.service.send_signal(signal.SIGSTOP)
            time.sleep(1)
            self.service.send_signal(signal.SIGCONT)

    def follow(self) -> None:
        """Watch until the service ends."""
        begun, minutes = time.monotonic(), 0
        for number in range(10**9):
            try:
                self.service.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                self.listen()
            else:
                break
            if not self.addresses:
                continue
            try:
                self.states.append(state_of(self.service.pid))
                self.act(number)
            except (OSError, subprocess.TimeoutExpired, KeyError) as error:
                if self.service.poll() is None and not self.is_over():
                    self.wrong.append(f"watching: {error!r}")
            if time.monotonic() - begun >= 60 * (minutes + 1):
                minutes = int((time.monotonic() - begun) // 60)
                self.tell(f"minute {minutes}")
        self.listen()

    def tell(self, when: str) -> None:
        """Say in one line how the service does."""
        memory, descriptors, threads = self.states[-1]
        counted = {name: self.told.get(name, 0) for name in ("turns", "calls", "names", "events", "children")}
        figures = ", ".join(f"{value:,} {name}" for name, value in {**counted, **self.done}.items())
        wrong = f"{len(self.wrong)} WRONG" if self.wrong else "nothing lost"
        self.say(f"{when}: {figures}; {memory / 1024:.1f} MiB, {descriptors} descriptors, {threads} threads; {wrong}")

    def judge(self, errors: str, *, by_memory: bool) -> bool:
        """Say whether all was well, from the states of the last two quarters and what came on stderr."""
        quarter = len(self.states) // 4
        if quarter:
            third, last = self.states[2 * quarter : -quarter], self.states[-quarter:]
            for at, name, allowed in (
                (0, "KiB resident", FLAT if by_memory else 9),
                (1, "descriptors", 1),
                (2, "threads", 1),
            ):
                before, after = (statistics.median_low([state[at] for state in each]) for each in (third, last))
                self.say(f"{name}: {before:,} in the third quarter, {after:,} in the last")
                if after > before * allowed:
                    self.wrong.append(f"{name}: {before:,} became {after:,}")
        if self.service.returncode != 0 or "Traceback" in errors:
            self.wrong.append(f"the service ended with {self.service.returncode}: {errors[-4000:]}")
        if self.told.get("turns", 0) < self.told.get("troubles", 1):
            self.wrong.append("the service did not come through all troubles")
        for each in self.wrong:
            self.say(f"  {each}")
        return not self.wrong


def soak(minutes: float, say: Callable[[str], None]) -> bool:
    """Run the soak for some minutes, at least for one turn of each trouble; return whether everything held.

    Raises ImportError when cprofiling is not installed.
    """
    import cprofiling

    say(f"cprofiling {cprofiling.__version__}, {minutes:g} minutes")
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        environment = {**os.environ, **interposer(folder)}
        if "LD_PRELOAD" not in environment:
            say("no compiler: without full disks and clock steps")
        command = [sys.executable, __file__, name, str(minutes)]
        with (folder / "out").open("wb") as output, (folder / "errors").open("wb") as errors:
            service = subprocess.Popen(command, stdout=output, stderr=errors, env=environment)
        watch = Watch(service, folder / "out", say)
        try:
            watch.follow()
        finally:
            service.send_signal(signal.SIGCONT)
            service.kill()
            service.wait()
        watch.tell("end")
        text = (folder / "errors").read_text(encoding="utf-8", errors="replace")
        return watch.judge(text, by_memory=minutes >= JUDGED_MINUTES)


if __name__ == "__main__":
    run_service(Path(sys.argv[1]), float(sys.argv[2]))
