"""The commands of remote control: a program that is served, and its statistics shown live."""

from __future__ import annotations

import argparse
import os
import pty
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
from calls import NEVER, profiler_on, run_python
from command import COMMAND
from cprofiling.commands import main
from cprofiling.commands import serve as serve_command
from foreign import ATTACKER, run_as, shared_folder

grpc = pytest.importorskip("grpc")
pytest.importorskip("grpc_health")
pytest.importorskip("grpc_reflection")

from cprofiling.monitoring.server import service  # noqa: E402
from cprofiling.monitoring.top import from_server  # noqa: E402
from cprofiling.monitoring.top.samples import Choice  # noqa: E402
from cprofiling.server import profiling_pb2 as pb  # noqa: E402
from cprofiling.server import serve  # noqa: E402
from grpc_clients import sessions_of, stub_of  # noqa: E402

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(cp.__file__).parents[1])}
TOKEN = "correct-horse-battery"
PROGRAM = """
import multiprocessing.spawn, sys
import cprofiling as cp

class Pipeline(cp.PipelineProfiling):
    pass

def work(value):
    return value + 1

pipeline = Pipeline()
pipeline.set_profiling(True)
with pipeline.profile_node("inside"):
    work(1)
for value in range(5):
    work(value)
with cp.profile_node("declared"):
    pass
multiprocessing.spawn.get_preparation_data("child")  # as for a process that is spawned, which is not served
print(sys.argv, __name__, flush=True)
sys.stdin.read()
sys.exit(7)
"""


@pytest.fixture
def server() -> Iterator[Any]:
    profiler = profiler_on()
    for value in (1.0, 3.0):
        profiler.record("train", "node", value)
    profiler.record("val", "other", 1.0)
    with serve({"p": profiler}) as made:
        yield made


def failed(arguments: list[str], capsys: pytest.CaptureFixture[str], status: int = 1) -> str:
    assert main.main(arguments) == status
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("cprofiling: ")
    assert printed.err.count("\n") == 1
    return printed.err


def shown(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main.main(["top", *arguments]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def test_top_shows_the_table(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    first, _, headings, _, *rows = shown([server.address, "--updates", "1"], capsys).splitlines()
    assert first == f"session p at {server.address}, profiling on"
    assert headings.split()[:4] == ["Node", "Stage", "Calls", "Calls/s"]
    assert [row.split() for row in rows] == [
        ["node", "train", "2", "-", "-", "2.00", "ms", "2.00", "ms", "3.00", "ms", "3.00", "ms", "4.00", "ms", "0"],
        ["other", "val", "1", "-", "-", *(["1.00", "ms"] * 5), "0"],
    ]


def test_top_switches_the_profiling_of_a_server(server: Any) -> None:
    endpoint = from_server.Endpoint(server.address)

    def now() -> Any:
        (moment,) = from_server.moments(endpoint, "p", None, lambda _: True, interval_s=0.1, updates=1)
        return moment

    for before, after in (("on", "off"), ("off", "on")):
        moment = now()
        assert moment.title.endswith(f"profiling {before}")
        assert moment.switch() == f"session p at {server.address}: profiling {after}"
    assert now().title.endswith("profiling on")
    server.stop()
    assert "UNAVAILABLE" in moment.switch()


def test_top_shows_one_table_after_the_other(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    out = shown([server.address, "--updates", "2", "--interval", "0.1", "--stage", "val"], capsys)
    tables = out.split("\n\n")
    assert len(tables) == 2
    assert all("other" in table and "train" not in table for table in tables)


def test_top_takes_the_session_that_is_meant(capsys: pytest.CaptureFixture[str]) -> None:
    with serve({"default": cp.Profiler(), "other\x1b": profiler_on()}) as made:
        assert shown([made.address, "--updates", "1"], capsys).startswith("session default at ")
        named = shown([made.address, "--updates", "1", "--session", "other\x1b"], capsys)
        assert named.startswith(r"session other\x1b at ")
        made.remove_session("default")
        made.add_session("b", cp.Profiler())
        complaint = failed(["top", made.address], capsys)
        assert complaint.endswith("has 'b' (str), 'other\\x1b' (str)\n")
        made.remove_session("b")
        made.remove_session("other\x1b")
        assert failed(["top", made.address], capsys).endswith("has none\n")
        assert "NOT_FOUND: there is no session" in failed(["top", made.address, "--session", "b"], capsys)


def test_top_tells_of_what_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    class Odd(cp.Profiler):
        def get_profiling_summary(self, _stage: Any = None) -> Any:
            return cp.ProfilingSummary(reasons=["bro\x07ken"], internal_errors=2)

    with serve({"p": Odd()}) as made:
        out = shown([made.address, "--updates", "1"], capsys)
    assert out.split("\n")[2:] == [
        "No profiling data collected.", r"note: bro\x07ken", "note: 2 faults inside the profiler", "",
    ]  # fmt: skip


def test_top_with_a_token(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\nand a remark\n")
    file.chmod(0o600)
    with serve({"p": cp.Profiler()}, token=TOKEN) as made:
        arguments = [made.address, "--updates", "1"]
        assert "UNAUTHENTICATED" in failed(["top", *arguments], capsys)
        assert "address must be HOST:PORT" in failed(["top", ":::1"], capsys)
        assert "session p" in shown([*arguments, "--token-file", str(file)], capsys)
        monkeypatch.setenv("CPROFILING_TOKEN", TOKEN)
        assert "session p" in shown(arguments, capsys)
        file.write_text("größer als sechzehn\n", encoding="utf-8")
        complaint = "token must have 16 to 4096 printable ASCII characters and no blanks, got 19 characters"
        assert failed(["top", *arguments, "--token-file", str(file)], capsys) == f"cprofiling: {complaint}\n"
        if os.geteuid() == 0:
            os.chown(file, 65534, -1)
            assert "is no secret" in failed(["top", *arguments, "--token-file", str(file)], capsys)
    missing = tmp_path / "none"
    assert f"cannot read {str(missing)!r}" in failed(["top", "127.0.0.1:1", "--token-file", str(missing)], capsys)


@pytest.mark.parametrize("mode", [0o666, 0o644, 0o604, 0o620, 0o602])
@pytest.mark.parametrize("command", [["top", "127.0.0.1:1"], ["serve", "app.py"]], ids=lambda command: command[0])
def test_a_token_that_others_may_read_or_change_is_refused(
    command: list[str], mode: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(mode)
    complaint = failed([command[0], "--token-file", str(file), *command[1:]], capsys)
    why = f"as other users may read or change it (mode {mode:04o}, user {os.geteuid()}): chmod 600 {str(file)!r}, and "
    assert complaint.startswith(f"cprofiling: {str(file)!r} is no secret, {why}")


def test_top_uses_tls(server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The server has none, and a file that is no certificate is no reason to do without."""
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")
    assert "UNAVAILABLE" in failed(["top", server.address, "--tls-ca", str(tmp_path / "ca.pem")], capsys)


def test_top_asks_the_server_and_no_proxy(
    server: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("grpc_proxy", "http://127.0.0.1:1")
    assert "session p" in shown([server.address, "--updates", "1"], capsys)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["top"], "required: TARGET"),
        (["top", ""], "not empty"),
        (["top", "a:1", "--interval", "0.05"], "from 0.1 to 3600, got '0.05'"),
        (["top", "a:1", "--interval", "soon"], "got 'soon'"),
        (["top", "a:1", "--interval", "nan"], "got 'nan'"),
        (["top", "a:1", "--updates", "0"], "from 1 to 2147483647, got '0'"),
        (["serve"], "a program is required"),
        (["serve", "--on"], "a program is required"),
        (["serve", "--median", "p2", "app.py"], "--median needs --on"),
        (["serve", "--on", "--median", "mean", "app.py"], "argument --median: invalid choice: 'mean'"),
        (["serve", "-s", "x", "app.py"], "expected NAME=MODULE:ATTRIBUTE, got 'x'"),
        (["serve", "-s", "x=y", "app.py"], "expected NAME=MODULE:ATTRIBUTE"),
        (["serve", "-s", "=m:a", "app.py"], "expected NAME=MODULE:ATTRIBUTE"),
        (["serve", "--tls-cert", "c", "app.py"], "--tls-cert and --tls-key belong together"),
    ],
)
def test_wrong_arguments(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main.main(arguments)
    assert exit_.value.code == 2
    assert complaint in capsys.readouterr().err


def test_what_cannot_be_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "app.py"
    script.write_text("")
    assert "cannot open" in failed(["serve", str(tmp_path / "none.py")], capsys, status=2)
    assert "give tls or token" in failed(["serve", "--address", "0.0.0.0:0", str(script)], capsys)
    twice = ["serve", "-s", "a=m:a", "-s", "a=m:b", str(script)]
    assert "there is a session 'a' (str) already" in failed(twice, capsys)
    files = ["--tls-cert", str(tmp_path / "none"), "--tls-key", str(tmp_path / "none")]
    assert "No such file" in failed(["serve", *files, str(script)], capsys)


def test_both_commands_say_what_they_need(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    monkeypatch.delitem(sys.modules, "cprofiling.monitoring.server")
    for arguments in (["top", "127.0.0.1:1"], ["serve", "app.py"]):
        assert 'pip install "cprofiling[grpc]"' in failed(arguments, capsys)


# ---- On a terminal


def test_keys_are_answered_while_the_next_table_is_waited_for_until_an_interrupt(server: Any) -> None:
    pytest.importorskip("rich")
    master, slave = pty.openpty()
    settings = {**ENVIRONMENT, "LINES": "40", "COLUMNS": "120", "TERM": "xterm"}
    arguments = [*COMMAND, "top", server.address, "--interval", "3600"]
    child = subprocess.Popen(arguments, stdin=slave, stdout=slave, stderr=subprocess.PIPE, env=settings)
    os.close(slave)
    for awaited, key in ((b"by total", b"s"), (b"by load", b"r"), (b"reversed", b"")):
        read = b""
        while awaited not in read:
            read += os.read(master, 65536)
        os.write(master, key)
    assert b"session p at" in read
    child.send_signal(signal.SIGINT)
    _, error = child.communicate(timeout=30)
    os.close(master)
    assert (child.returncode, error) == (0, b"")


def test_whoever_waits_for_a_table_may_leave(server: Any) -> None:
    asked: list[float] = []

    def wait(seconds: float) -> bool:
        asked.append(seconds)
        return len(asked) < 9

    with socket.create_server(("127.0.0.1", 0)) as silent:  # never answers
        endpoint = from_server.Endpoint(f"127.0.0.1:{silent.getsockname()[1]}")
        assert list(from_server.moments(endpoint, None, None, wait, interval_s=0.1, updates=None)) == []
    assert len(asked) == 9
    moments = from_server.moments(
        from_server.Endpoint(server.address), None, None, lambda _: True, interval_s=0.1, updates=None
    )
    assert next(moments).parts[0].stats[0].node_name == "node"
    moments.close()
    assert cprofiling_threads() == ["cprofiling-server"]


def cprofiling_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("cprofiling")]


# ---- What a server sends, and what it does when it is away


def moments_of(address: str, pauses: list[float], updates: int | None = None) -> Any:
    """The moments of a session, and how long is waited between them without doing so for long."""

    def wait(seconds: float) -> bool:
        if seconds != from_server._STEP_S:
            pauses.append(seconds)
        time.sleep(0.02)
        return True

    return from_server.moments(from_server.Endpoint(address), "p", None, wait, interval_s=60.0, updates=updates)


def test_percentiles_of_a_window_come_from_a_server(server: Any) -> None:
    moments = moments_of(server.address, [])
    before = next(moments)
    profiler = server._sessions.get("p").target
    for time_ms in (50.0, 50.0, 70.0):
        profiler.record("train", "node", time_ms)
    now = next(moments)
    (row, _) = Choice(window="interval").rows(now, [before])
    assert row.stats.count == 3
    assert row.stats.p50_ms == pytest.approx(50, rel=0.01)
    assert row.stats.p99_ms == pytest.approx(70, rel=0.01)
    assert now.notes == ()


def test_a_server_that_sends_no_histograms_is_told(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def noted() -> list[str]:
        (moment,) = moments_of(server.address, [], updates=1)
        assert [(row.node_name, row.max_ms) for row in moment.parts[0].stats] == [("node", 3.0), ("other", 1.0)]
        return list(moment.notes)

    lacking = "p50, p99 and Max are known since the start only"
    assert noted() == []
    with monkeypatch.context() as patched:
        patched.setattr(service, "MOST_BYTES", 1024)
        large, told = noted()
        assert large.startswith("the histograms are too large to be sent: ")
        assert told == f"the session has no histograms: {lacking}"
    with monkeypatch.context() as patched:
        patched.setattr(service, "_snapshot_of", lambda _: b"of a later version")
        assert noted() == [f"the server is newer: {lacking}"]

    async def as_before(self: Any, request: Any, _context: Any) -> Any:
        return await self._summary(request, pb.GetProfilingSummaryResponse())

    monkeypatch.setattr(service.ProfilingService, "GetProfilingSummary", as_before)
    server.stop()
    with serve({"p": server._sessions.get("p").target}, address=server.address):
        assert noted() == [f"the server is older: {lacking}"]


def test_a_server_that_was_away_is_asked_until_it_is_back(server: Any) -> None:
    pauses: list[float] = []
    moments = moments_of(server.address, pauses)
    first = next(moments)
    server.stop()
    away = [next(moments) for _ in range(5)]
    assert pauses == [60.0, 1.0, 2.0, 4.0, 5.0]
    assert all((each.taken_s, each.parts) == (first.taken_s, first.parts) for each in away)
    assert all(each.away().startswith("server away for ") and not each.why for each in away)
    assert len({each.away_s for each in away}) == 1
    with serve({"other": profiler_on()}, address=server.address) as back:
        told = next(moment for moment in moments if moment.why)
        assert told.why == f"{server.address}: NOT_FOUND: there is no session 'p' (str)"
        back.add_session("p", profiler_on())
        here = next(moment for moment in moments if not moment.away())
        assert (here.parts[0].stats, here.taken_s > first.taken_s) == ([], True)
        assert here.parts[0].after(first.parts[0]).run == 1
    refused = pytest.raises(from_server.TopError, match="UNAUTHENTICATED")
    with serve({"p": profiler_on()}, address=server.address, token=TOKEN), refused:
        list(moments)


# ---- A program that is served


class Served:
    """A program that the command serve runs; it ends when it is told."""

    def __init__(self, folder: Path, *options: str) -> None:
        script = folder / "app.py"
        script.write_text(PROGRAM)
        arguments = [*COMMAND, "serve", *options, str(script), "--its", "own"]
        pipe = subprocess.PIPE
        self.child = subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=pipe, env=ENVIRONMENT, text=True)
        assert self.child.stderr is not None
        assert self.child.stdout is not None
        line = self.child.stderr.readline()
        assert line.startswith(("cprofiling: serving on 127.0.0.1:", "cprofiling: serving on unix:/")), (
            line + self.child.stderr.read()
        )
        self.address = line.split()[-1]
        self.warned = self.child.stderr.readline()
        assert self.warned.startswith("cprofiling: without a token: ")
        self.printed = self.child.stdout.readline()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        if self.child.poll() is None:
            self.child.kill()
            self.child.communicate()

    def end(self) -> tuple[int, str]:
        _, error = self.child.communicate("", timeout=30)
        return self.child.returncode, error


def counts(stub: Any, session: str) -> dict[str, int]:
    answer = stub.GetProfilingSummary(pb.GetProfilingSummaryRequest(session_id=session), timeout=10)
    return {row.node_name: row.count for row in answer.node_stats}


def test_a_program_is_served_and_runs_as_it_would(tmp_path: Path) -> None:
    options = ["--on", "--median", "p2", "-n", "__main__:work", "-s", "main=__main__:pipeline"]
    options += ["-s", "no=__main__:nothing.at_all"]
    with Served(tmp_path, "--no-token", *options) as served, stub_of(served) as stub:
        assert served.printed == f"['{tmp_path}/app.py', '--its', 'own'] __main__\n"
        assert [(each.session_id, each.profiling_enabled) for each in sessions_of(stub)] == [
            ("default", True), ("main", True), ("no", False), ("nodes", True),
        ]  # fmt: skip
        assert counts(stub, "nodes") == {"work": 6}
        assert counts(stub, "default") == {"declared": 1}
        assert counts(stub, "main") == {"inside": 1}
        request = pb.GetProfilingSummaryRequest
        medians = [stub.GetProfilingSummary(request(session_id=name)).median for name in ("nodes", "default", "main")]
        assert medians == ["p2", "p2", "histogram"]
        stub.ResetProfiling(pb.ResetProfilingRequest(session_id="main"))
        stub.SetProfiling(pb.SetProfilingRequest(session_id="main", enabled=False))
        assert counts(stub, "main") == {}
        with pytest.raises(grpc.RpcError) as raised:
            counts(stub, "no")
        assert raised.value.code() is grpc.StatusCode.NOT_FOUND
        assert served.end() == (7, "")


def test_a_program_is_off_until_somebody_switches_it_on_and_told_of_unmatched_patterns(tmp_path: Path) -> None:
    patterns = ("-n", "__main__:work", "-n", "__main__:wrok", "-n", "nowhere:*")
    with Served(tmp_path, "--no-token", *patterns) as served, stub_of(served) as stub:
        assert {each.session_id: each.profiling_enabled for each in sessions_of(stub)} == {"default": 0, "nodes": 0}
        assert counts(stub, "nodes") == {}
        assert served.end() == (
            7,
            "cprofiling: -n '__main__:wrok' matched nothing: no function 'wrok' in __main__; similar: work\n"
            "cprofiling: -n 'nowhere:*' matched nothing: no module 'nowhere'\n",
        )


def test_a_placed_pipeline_is_looked_up_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    holder = argparse.Namespace()
    monkeypatch.setitem(sys.modules, "program", holder)
    placed = serve_command.PlacedPipeline("program", "its.pipeline")
    with serve({"p": placed}, token=None) as made, stub_of(made) as stub:
        with pytest.raises(grpc.RpcError, match=r"the program has no 'program:its\.pipeline'"):
            counts(stub, "p")
        holder.its = argparse.Namespace(pipeline=profiler_on())
        holder.its.pipeline.record("train", "node", 1.0)
        assert counts(stub, "p") == {"node": 1}
        whole = pb.GetProfilingSummaryRequest(session_id="p", with_snapshot=True)
        assert cp.Snapshot.from_bytes(stub.GetProfilingSummary(whole).snapshot).stats()[0].count == 1
        stub.ResetProfiling(pb.ResetProfilingRequest(session_id="p"))
        stub.SetProfiling(pb.SetProfilingRequest(session_id="p", enabled=True))
        assert counts(stub, "p") == {}
        assert placed.profiling_enabled is True


# ---- control


def controlled(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main.main(["control", *arguments]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def test_control_switches_and_resets(capsys: pytest.CaptureFixture[str]) -> None:
    profiler = cp.Profiler()
    with serve({"p": profiler}) as made:
        prefix = f"session p at {made.address}"
        assert controlled([made.address, "stages"], capsys) == f"{prefix} has no statistics yet\n"
        assert controlled([made.address, "on", "--skip-first-n", "1"], capsys) == f"{prefix}: profiling on\n"
        assert profiler.profiling_enabled
        for stage in ("train", "train", "train", "a\x1b"):
            profiler.record(stage, "node", 1.0)
        profiler.record("train", "other", 1.0)
        assert profiler.get_profiling_summary().skip_first_n == 1
        expected = "train: 2 nodes, 2 calls\na\\x1b: 1 node, 0 calls\n"
        assert controlled([made.address, "stages"], capsys) == expected
        assert controlled([made.address, "off"], capsys) == f"{prefix}: profiling off\n"
        assert not profiler.profiling_enabled
        assert len(profiler.get_profiling_summary()) == 3
        assert controlled([made.address, "reset"], capsys) == f"{prefix}: statistics discarded\n"
        assert not profiler.get_profiling_summary()
        controlled([made.address, "on", "--median", "p2"], capsys)
        assert profiler.get_profiling_summary().median == "p2"
        controlled([made.address, "on"], capsys)
        assert profiler.get_profiling_summary().median == "histogram"
        profiler.record("train", "node", 1.0)
        controlled([made.address, "off", "--reset"], capsys)
        assert not profiler.get_profiling_summary()


def test_control_takes_the_session_and_the_token_that_are_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sessions = {"default": cp.Profiler(), "other": cp.Profiler()}
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    with serve(sessions, token=TOKEN) as made:
        assert "UNAUTHENTICATED" in failed(["control", made.address, "on"], capsys)
        arguments = [made.address, "on", "--token-file", str(file)]
        assert "session other" in controlled([*arguments, "--session", "other"], capsys)
        assert [each.profiling_enabled for each in sessions.values()] == [False, True]
        controlled(arguments, capsys)
        assert sessions["default"].profiling_enabled
        assert "NOT_FOUND" in failed(["control", *arguments, "--session", "none"], capsys)
    assert "UNAVAILABLE" in failed(["control", made.address, "reset"], capsys)
    assert "address must be HOST:PORT" in failed(["control", "nowhere", "reset"], capsys)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["h:1"], "the following arguments are required: ACTION"),
        (["h:1", "pause"], "invalid choice: 'pause'"),
        (["h:1", "stages", "--reset"], "--reset does not go with stages"),
        (["h:1", "off", "--skip-first-n", "3"], "--skip-first-n does not go with off"),
        (["h:1", "off", "--median", "p2"], "--median does not go with off"),
        (["h:1", "on", "--median", "P2"], "argument --median: invalid choice: 'P2'"),
        (["h:1", "reset", "--synchronize-cuda"], "--synchronize-cuda does not go with reset"),
    ],
)
def test_control_refuses_what_makes_no_sense(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        main.main(["control", *arguments])
    assert raised.value.code == 2
    assert complaint in capsys.readouterr().err


# ---- Tokens, and none


def test_the_program_does_not_inherit_the_token(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "import os, subprocess\n"
        "print(os.environ.get('CPROFILING_TOKEN'), flush=True)\n"
        "subprocess.run(['env'], check=True)\n"
    )
    command = [*COMMAND, "serve", str(tmp_path / "app.py")]
    done = subprocess.run(
        command, env={**ENVIRONMENT, "CPROFILING_TOKEN": TOKEN}, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("None\n")
    assert TOKEN not in done.stdout


@pytest.mark.parametrize("option", ["-I", "-E"])
def test_a_token_that_is_not_followed_is_no_reason_to_want_none(tmp_path: Path, option: str) -> None:
    (tmp_path / "app.py").write_text("print('began')")
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)

    def served(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, option, *COMMAND[1:], "serve", *options, str(tmp_path / "app.py")]
        variables = {**ENVIRONMENT, "CPROFILING_TOKEN": TOKEN}
        return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)

    done = served("--address", f"unix:{tmp_path}/s")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "cprofiling: CPROFILING_TOKEN is set but not followed, as Python runs with -E or -I or with others' rights: "
        "use --token-file FILE, or --no-token to want none\n"
    )
    done = served("--token-file", str(tmp_path / "token"))
    assert (done.returncode, done.stdout) == (0, "began\n")
    assert "without a token" not in done.stderr
    done = served("--no-token")
    assert (done.returncode, done.stdout) == (0, "began\n")
    assert "without a token: all users" in done.stderr


@pytest.mark.slow
def test_clients_of_cuvis_can_call_where_no_token_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuvis = pytest.importorskip("cuvis_ai_core.grpc")
    monkeypatch.setitem(ENVIRONMENT, "CPROFILING_TOKEN", TOKEN)
    with Served(tmp_path, "--no-token", "-s", "main=__main__:pipeline") as served:
        said = "cprofiling: without a token: all users and programs of this machine can control it, clients of "
        assert served.warned == f"{said}cuvis-ai-core among them\n"
        with grpc.insecure_channel(served.address) as channel:
            stub, its = cuvis.cuvis_ai_pb2_grpc.CuvisAIServiceStub(channel), cuvis.cuvis_ai_pb2
            request = its.SetProfilingRequest(session_id="main", enabled=True, reset=True, skip_first_n=2)
            assert stub.SetProfiling(request, timeout=10).profiling_enabled
            answer = stub.GetProfilingSummary(its.GetProfilingSummaryRequest(session_id="main"), timeout=10)
            assert not answer.node_stats
            with pytest.raises(grpc.RpcError) as raised:
                stub.GetProfilingSummary(its.GetProfilingSummaryRequest(session_id="none"), timeout=10)
            assert raised.value.code() is grpc.StatusCode.NOT_FOUND
        assert served.end() == (7, "")


def test_clients_of_cuvis_get_the_figures_that_they_know() -> None:
    cuvis = pytest.importorskip("cuvis_ai_core.grpc")
    profiler = profiler_on()
    for stage in ("train", "val", "train", "of its own"):
        profiler.record(stage, "node", 2.0)
    with serve({"p": profiler}, token=None) as made, grpc.insecure_channel(made.address) as channel:
        stub, its = cuvis.cuvis_ai_pb2_grpc.CuvisAIServiceStub(channel), cuvis.cuvis_ai_pb2
        request = its.GetProfilingSummaryRequest(session_id="p", stage=its.EXECUTION_STAGE_TRAIN)
        (row,) = stub.GetProfilingSummary(request, timeout=10).node_stats
        assert (row.node_name, row.stage, row.count, row.mean_ms, row.total_ms) == (
            "node", its.EXECUTION_STAGE_TRAIN, 2, 2.0, 4.0,
        )  # fmt: skip
        rows = stub.GetProfilingSummary(its.GetProfilingSummaryRequest(session_id="p"), timeout=10).node_stats
        assert [row.stage for row in rows] == [1, 2, its.EXECUTION_STAGE_UNSPECIFIED]
    with serve({"p": profiler}, token=TOKEN) as made, grpc.insecure_channel(made.address) as channel:
        stub = cuvis.cuvis_ai_pb2_grpc.CuvisAIServiceStub(channel)
        with pytest.raises(grpc.RpcError) as raised:
            stub.GetProfilingSummary(request, timeout=10)
        assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize(
    ("options", "complaint", "status"),
    [
        (["--address", "0.0.0.0:0"], "--no-token needs unix:PATH or an address such as 127.0.0.1:0, not 0.0.0.0:0", 1),
        (["--token-file", "token"], "--no-token and --token-file exclude each other", 2),
    ],
)
def test_where_a_token_is_wanted_in_any_case(
    options: list[str], complaint: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "app.py").touch()
    try:
        found = main.main(["serve", "--no-token", *options, str(tmp_path / "app.py")])
    except SystemExit as error:
        found = error.code  # type: ignore[assignment]
    assert found == status
    assert complaint in capsys.readouterr().err


# ---- Unix sockets


def test_a_socket_is_served_for_one_user_only(capsys: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "socket")
        with serve({"p": profiler_on()}, f"unix:{path}") as made:
            assert made.address == f"unix:{path}"
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert [each.name for each in Path(folder).iterdir()] == ["socket"]
            assert controlled([made.address, "off"], capsys) == f"session p at {made.address}: profiling off\n"
            assert "profiling off" in shown([made.address, "--updates", "1"], capsys)
            with pytest.raises(OSError, match="Address already in use"):
                serve({"p": cp.Profiler()}, f"unix:{path}")
            assert "off" in controlled([made.address, "off"], capsys)
        assert not list(Path(folder).iterdir())


def test_a_socket_of_another_user_is_refused() -> None:
    with shared_folder() as folder:
        path = folder / "socket"
        with serve({"p": cp.Profiler()}, f"unix:{path}"):

            def connect() -> None:
                with socket.socket(socket.AF_UNIX) as client, pytest.raises(PermissionError):
                    client.connect(str(path))

            run_as(ATTACKER, connect)
        run_as(ATTACKER, lambda: path.symlink_to("/tmp/elsewhere"))
        with pytest.raises(OSError, match="Address already in use"):
            serve({"p": cp.Profiler()}, f"unix:{path}")


def test_a_socket_that_nobody_serves_any_more_is_replaced() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "socket")
        with socket.socket(socket.AF_UNIX) as old:
            old.bind(str(path))
        with serve({"p": cp.Profiler()}, f"unix:{path}") as made, stub_of(made) as stub:
            assert len(sessions_of(stub)) == 1
        path.write_text("a file")
        with pytest.raises(OSError, match="Address already in use"):
            serve({"p": cp.Profiler()}, f"unix:{path}")
        assert path.read_text() == "a file"
        with pytest.raises(OSError, match="No such file"):
            serve({"p": cp.Profiler()}, f"unix:{folder}/none/socket")


def test_a_server_that_cannot_start_leaves_nothing_open() -> None:
    def try_to_start(path: Path) -> int:
        for _ in range(5):
            with pytest.raises(OSError, match="Address already in use"):
                serve({"p": cp.Profiler()}, f"unix:{path}")
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        path.touch()
        before = try_to_start(path)
        deadline = time.monotonic() + NEVER  # gRPC closes in threads of its own
        while try_to_start(path) > before:
            assert time.monotonic() < deadline


FULL = """
import os, resource
import cprofiling as cp
from cprofiling.server import serve

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
refused = 0
while True:
    try:
        with serve({"p": cp.Profiler()}, token=None):
            break
    except OSError as error:
        assert str(error) == "[Errno 24] cannot serve on 127.0.0.1:0: Too many open files"
        refused += 1
        os.close(held.pop())
print(refused > 0)
"""


def test_a_server_without_descriptors_is_refused() -> None:
    done = run_python(FULL)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_a_server_without_a_thread_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(OSError, match=r"cannot serve on 127\.0\.0\.1:0: can't start new thread"):
        serve({"p": cp.Profiler()})


@pytest.mark.parametrize("path", ["", "a\0", "x" * 100])
def test_what_is_no_path_of_a_socket(path: str) -> None:
    with pytest.raises(ValueError, match=r"^address must be unix:PATH with a path of 1 to 80 bytes"):
        serve({"p": cp.Profiler()}, f"unix:{path}")
