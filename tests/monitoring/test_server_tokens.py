"""Tokens of servers, and the files in which clients of the same user find them (FAILURES I1)."""

from __future__ import annotations

import dataclasses
import hmac
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
from command import COMMAND
from cprofiling.commands import main
from cprofiling.nodes.live_file import head_from_bytes
from foreign import ATTACKER, run_as, shared_folder
from forks import BESIDE_THREADS

grpc = pytest.importorskip("grpc")
pytest.importorskip("grpc_health")
pytest.importorskip("grpc_reflection")

from cprofiling.server import call_metadata, serve  # noqa: E402
from grpc_clients import sessions_of, stub_of  # noqa: E402

TOKEN = "correct-horse-battery"
PACKAGE = str(Path(cp.__file__).parents[1])
PROGRAM = """
import sys
import cprofiling as cp
from cprofiling.server import serve
server = serve({'p': cp.Profiler()})
print(server.address, server.token_file, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a login session has its files."""
    made = tmp_path / "runtime"
    made.mkdir(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(made))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", PACKAGE)
    return made


@pytest.fixture
def server(folder: Path) -> Iterator[Any]:
    with serve({"p": cp.Profiler()}) as made:
        yield made


def is_found(server: Any) -> bool:
    with stub_of(server) as stub:
        try:
            return len(sessions_of(stub, metadata=call_metadata(server.address))) == 1
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.UNAUTHENTICATED  # noqa: PT017
            return False


def test_our_clients_find_the_token(server: Any, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(server.token_file)
    assert file.parent == folder / "cprofiling"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent)] == [0o600, 0o700]
    assert is_found(server)
    assert main.main(["control", server.address, "on"]) == 0
    assert main.main(["top", server.address, "--updates", "1"]) == 0
    printed = capsys.readouterr()
    assert printed.out.count("profiling on") == 2
    assert printed.err == ""
    assert file.read_text("latin-1").splitlines()[0] not in printed.out + repr(server)
    assert main.main(["control", server.address, "off", "--token-file", str(file)]) == 0  # as with a copy, elsewhere
    server.stop()
    assert not list(file.parent.iterdir())
    assert call_metadata(server.address) == ()


def test_servers_of_one_process_have_tokens_of_their_own(server: Any) -> None:
    with serve({"p": cp.Profiler()}) as other:
        assert is_found(server)
        assert is_found(other)
        assert call_metadata(server.address) != call_metadata(other.address)


def test_a_token_that_is_given_is_in_no_file() -> None:
    with serve({"p": cp.Profiler()}, token=TOKEN) as made:
        assert made.token_file is None
        assert not is_found(made)
        assert call_metadata(made.address, TOKEN) == (("authorization", f"Bearer {TOKEN}"),)
    with pytest.raises(ValueError, match="address must be HOST:PORT"):
        call_metadata("nowhere")


WITHOUT = "without a token: {} can control it, clients of cuvis-ai-core among them"


@pytest.mark.parametrize(
    ("address", "token", "options", "said"),
    [
        ("127.0.0.1:0", TOKEN, [], None),
        ("127.0.0.1:0", None, [], "its token is in '{}', where this user's 'cprofiling control' and 'top' find it"),
        ("127.0.0.1:0", TOKEN, ["--no-token"], WITHOUT.format("all users and programs of this machine")),
        ("unix:s", None, [], WITHOUT.format("this user's programs")),
        ("unix:s", TOKEN, ["--no-token"], WITHOUT.format("this user's programs")),
    ],
)
def test_who_can_control_a_server_is_told(
    address: str, token: str | None, options: list[str], said: str | None, tmp_path: Path, folder: Path
) -> None:
    (tmp_path / "app.py").write_text("import os; print(*os.listdir(os.environ['XDG_RUNTIME_DIR'] + '/cprofiling'))")
    (folder / "cprofiling").mkdir(0o700)
    variables = os.environ | ({} if token is None else {"CPROFILING_TOKEN": token})
    command = [*COMMAND, "serve", "--address", address, *options, "app.py"]
    about: dict[str, Any] = {"env": variables, "capture_output": True, "text": True, "timeout": 60}
    done = subprocess.run(command, cwd=tmp_path, check=True, **about)
    first, *others = done.stderr.splitlines()
    assert first.startswith(f"cprofiling: serving on {address[:5]}")
    file = folder / "cprofiling" / done.stdout.strip()
    assert others == ([] if said is None else [f"cprofiling: {said.format(file)}"])
    assert not list((folder / "cprofiling").iterdir())


# ---- Attackers


def test_no_other_address_gets_the_token(server: Any) -> None:
    """Another user may listen there."""
    port = server.address.rpartition(":")[2]
    others = [f"{host}:{port}" for host in ("localhost", "[::1]", "127.0.0.2", "0.0.0.0", "example.com")]
    assert {call_metadata(address) for address in (*others, "127.0.0.1:1", "unix:/tmp/s")} == {()}


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_no_server_shares_localhost_with_another(host: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as other:
        try:
            other.bind((host, 0))
        except OSError as error:
            pytest.skip(f"{host}: {error}")
        other.listen()
        with pytest.raises(OSError, match="Address already in use"):
            serve({"p": cp.Profiler()}, f"localhost:{other.getsockname()[1]}")


def linked(path: Path) -> None:
    path.rename(path.with_suffix(".old"))
    path.symlink_to(path.with_suffix(".old"))


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


SPOILED: dict[str, Callable[[Path], object]] = {
    "readable by the group": lambda file: file.chmod(0o640),
    "readable by all": lambda file: file.chmod(0o604),
    "another user's": lambda file: os.chown(file, ATTACKER, -1),
    "a link": linked,
    "of two names": lambda file: os.link(file, file.with_suffix(".other")),
    "a pipe": piped,
    "cut": lambda file: os.truncate(file, 100),
    "empty": lambda file: os.truncate(file, 0),
    "of no process": lambda file: file.write_bytes(f"{TOKEN}\n127.0.0.1:1\n".encode() + bytes(5000)),
    "in a folder that all may list": lambda file: file.parent.chmod(0o755),
    "in a folder that the group may change": lambda file: file.parent.chmod(0o770),
    "in another user's folder": lambda file: os.chown(file.parent, ATTACKER, -1),
    "behind a link": lambda file: linked(file.parent),
}


@pytest.mark.parametrize("how", SPOILED)
def test_what_may_be_somebody_elses_is_not_used(how: str, server: Any) -> None:
    if "another" in how and os.geteuid() != 0:
        pytest.skip("only root can be other users")
    assert is_found(server)
    SPOILED[how](Path(server.token_file))
    assert not is_found(server)


@pytest.mark.forks
def test_another_user_finds_no_token(server: Any, tmp_path: Path) -> None:
    for path in (tmp_path, *tmp_path.parents):
        if path.owner() == tmp_path.owner() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o011)

    def look() -> None:
        assert call_metadata(server.address) == ()
        with pytest.raises(PermissionError):
            Path(server.token_file).read_bytes()

    run_as(ATTACKER, look)


@pytest.mark.forks
def test_a_folder_that_another_user_has_made_gets_no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with shared_folder() as shared:
        run_as(ATTACKER, lambda: (shared / "cprofiling").mkdir(0o777))
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(shared))
        with serve({"p": cp.Profiler()}) as made:
            assert Path(made.token_file or "").parent == tmp_path / "cache" / "cprofiling"
            assert is_found(made)
        monkeypatch.setenv("XDG_CACHE_HOME", str(shared))
        with pytest.raises(OSError, match=r"no folder for a token file .*: give token or set XDG_CACHE_HOME"):
            serve({"p": cp.Profiler()})
        assert not list((shared / "cprofiling").iterdir())


def test_variables_that_are_not_followed_lead_no_token_elsewhere(folder: Path) -> None:
    """As in a program that runs with others' rights."""
    code = f"import sys; sys.path.insert(0, {PACKAGE!r}){PROGRAM}"
    variables = os.environ | {"XDG_CACHE_HOME": str(folder), "HOME": str(folder)}
    command = [sys.executable, "-I", "-c", code]
    about: dict[str, Any] = {"env": variables, "capture_output": True, "text": True, "timeout": 60}
    done = subprocess.run(command, input="", check=False, **about)
    assert str(folder) not in done.stdout
    assert done.returncode == 0 or "no folder for a token file" in done.stderr  # its user may have no home
    assert not list(folder.iterdir())


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it can be measured how many of the characters are right."""
    compared = []

    def compare(given: bytes, own: bytes) -> bool:
        compared.append((given, own))
        return hmac_compare(given, own)

    hmac_compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", compare)
    tried = ["x" * len(TOKEN), TOKEN[:-1] + "x", TOKEN[:-1], TOKEN + "x", "x", TOKEN]
    with serve({"p": cp.Profiler()}, token=TOKEN) as made, stub_of(made) as stub:
        for each in tried:
            try:
                sessions_of(stub, metadata=call_metadata(made.address, each))
                assert each == TOKEN
            except grpc.RpcError as error:
                assert error.code() is grpc.StatusCode.UNAUTHENTICATED  # noqa: PT017
    assert compared == [(f"Bearer {each}".encode(), f"Bearer {TOKEN}".encode()) for each in tried]


# ---- Servers that ended, and others


def test_a_server_that_can_write_no_token_leaves_its_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/proc")
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/self")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(OSError, match="no folder for a token file"):
        serve({"p": cp.Profiler()}, address)
    serve({"p": cp.Profiler()}, address, token=TOKEN).stop()


def test_the_file_of_a_killed_server_is_not_used_and_goes() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout is not None
        address, _, file = child.stdout.readline().strip().partition(" ")
        assert call_metadata(address) != ()
        child.kill()
    assert Path(file).exists()
    assert call_metadata(address) == ()  # somebody else may have its port now
    with serve({"p": cp.Profiler()}):
        assert not Path(file).exists()


def test_the_file_of_another_machine_with_the_same_home_stays(server: Any) -> None:
    file = Path(server.token_file)
    token, address, head = file.read_bytes().split(b"\n", 2)
    elsewhere = dataclasses.replace(head_from_bytes(head), boot=b"x" * 16)
    file.write_bytes(b"\n".join((token, address, elsewhere.to_bytes())))
    assert call_metadata(server.address) == ()
    with serve({"p": cp.Profiler()}):
        assert file.exists()


@pytest.mark.forks
def test_a_forked_child_leaves_the_file(folder: Path) -> None:
    code = """
import os, sys
import cprofiling as cp
from cprofiling.server import serve
server = serve({'p': cp.Profiler()})
if (pid := os.fork()) == 0:
    server.stop()
    sys.exit()
os.waitpid(pid, 0)
print(os.path.exists(server.token_file))
"""
    command = [sys.executable, *BESIDE_THREADS, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("True\n", "")
    assert not list((folder / "cprofiling").iterdir())
