"""Files that appear when they are complete (failure scenarios D6, D7, D9, D11, D12)."""

from __future__ import annotations

import errno
import gc
import io
import os
import socket
import stat
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cprofiling._internal import files
from cprofiling._internal.files import atomic_writer, make_folders, open_regular, open_to_read, read_whole


def write(path: str | bytes | Path, data: bytes = b"new") -> None:
    with atomic_writer(path) as file:
        file.write(data)


def write_and_raise(path: Path, error: BaseException) -> None:
    with atomic_writer(path) as file:
        file.write(b"new")
        raise error


def names(folder: str | Path) -> set[str]:
    return {path.name for path in Path(folder).iterdir()}


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with atomic_writer(path) as file:
        file.write(b"one, ")
        assert not path.exists()
        (temporary,) = tmp_path.iterdir()
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
        file.write(b"two")
    assert path.read_bytes() == b"one, two"
    assert list(tmp_path.iterdir()) == [path]


def test_its_mode_lets_nobody_else_read_it(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(b"old")
    path.chmod(0o644)
    before = os.umask(0)
    try:
        write(path)
    finally:
        os.umask(before)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), OSError("without a number")])
def test_an_exception_leaves_nothing_and_passes(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(b"old")
    with pytest.raises(type(error)) as caught:
        write_and_raise(path, error)
    assert caught.value is error
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_another_s_error_keeps_its_own_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, atomic_writer(tmp_path / "a") as file:
        file.write((tmp_path / "missing").read_bytes())
    assert caught.value.filename == str(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


def test_an_error_in_writing_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as caught, atomic_writer(tmp_path / "a"):
        raise OSError(errno.ENOSPC, "No space left")
    assert caught.value.filename == str(tmp_path / "a")


def test_a_name_that_is_cleared_away_meanwhile_is_no_second_error(tmp_path: Path) -> None:
    def clear_and_raise() -> None:
        with atomic_writer(tmp_path / "a"):
            next(tmp_path.iterdir()).unlink()
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        clear_and_raise()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("missing/trace.json", "No such file"), ("folder", "Is a directory"), ("new/", "Is a directory"),
        ("file/trace.json", "Not a directory"), ("n" * 256, "name too long"),
    ],
)  # fmt: skip
def test_a_path_that_cannot_be_written_is_named(
    path: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(OSError, match=reason) as caught:
        write(path)
    assert caught.value.filename == path
    assert names(tmp_path) == {"file", "folder"}


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("", ValueError, "path must not be empty, got '' (str)"), (b"", ValueError, "path must not be empty, got b''"),
        ("a\0b", ValueError, "path must not have a NUL"), (3, TypeError, "path must be a path, got 3 (int)"),
        (None, TypeError, "path must be a path, got None"),
    ],
)  # fmt: skip
def test_what_is_no_path_is_refused(
    path: Any, error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error) as caught:
        write(path)
    assert str(caught.value).startswith(message)
    assert names(tmp_path) == set()


def test_a_path_may_be_bytes(tmp_path: Path) -> None:
    write(os.fsencode(tmp_path / "a"))
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_path_is_used_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write("a")
    long_name = "n" * 255
    write(tmp_path / long_name)
    write(os.fsdecode(b"\xff"))
    assert names(tmp_path) == {"a", long_name, os.fsdecode(b"\xff")}
    with pytest.raises(ValueError, match="a NUL"):
        write("a\0b")


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"old")
    for name, points_to in (("link", "target"), ("dangling", "nowhere"), ("chain", "link")):
        link = tmp_path / name
        link.symlink_to(points_to)
        write(link)
        assert not link.is_symlink()
        assert link.read_bytes() == b"new"
    assert target.read_bytes() == b"old"
    assert not (tmp_path / "nowhere").exists()


def test_links_in_a_circle_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links") as caught:
        write(tmp_path / "a")
    assert caught.value.filename == str(tmp_path / "a")


@pytest.mark.parametrize("device", ["full", "null"])
def test_a_device_is_written_to_and_stays(tmp_path: Path, device: str) -> None:
    path = tmp_path / device
    path.symlink_to(f"/dev/{device}")  # so that no mistake here makes an end of the device
    if device == "full":
        with pytest.raises(OSError, match="No space left") as caught:
            write(path)
        assert caught.value.filename == str(path)
    else:
        write(path)
    assert path.is_symlink()
    assert path.is_char_device()


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(path.read_bytes()))
    reader.start()
    write(path)
    reader.join()
    assert found == [b"new"]
    assert path.is_fifo()


def test_a_socket_is_written_to(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        with pytest.raises(ConnectionRefusedError) as caught:
            write(path)
        assert caught.value.filename == str(path)
        server.listen()
        write(path)
        connection, _ = server.accept()
        with connection:
            assert connection.recv(100) == b"new"
    assert path.is_socket()


@pytest.mark.parametrize("is_linked", [False, True])
def test_an_open_descriptor_is_written_to(tmp_path: Path, is_linked: bool) -> None:
    with (tmp_path / "output").open("wb") as file:
        file.write(b"before, ")
        file.flush()
        path = f"/dev/fd/{file.fileno()}"
        if is_linked:
            (tmp_path / "link").symlink_to(path)
            path = str(tmp_path / "link")
        write(path)
        file.write(b", after")
    assert (tmp_path / "output").read_bytes() == b"before, new, after"


def test_a_closed_descriptor_is_an_error() -> None:
    descriptor = os.dup(0)
    os.close(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        write(f"/dev/fd/{descriptor}")
    assert caught.value.filename == f"/dev/fd/{descriptor}"


def test_all_is_on_the_disk_before_the_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synchronised: list[tuple[bool, int, bool]] = []

    def note(descriptor: int) -> None:
        status = os.fstat(descriptor)
        synchronised.append((stat.S_ISDIR(status.st_mode), status.st_size, (tmp_path / "a").exists()))

    monkeypatch.setattr(os, "fsync", note)
    write(tmp_path / "a")
    (file, folder) = synchronised
    assert file == (False, len(b"new"), False)
    assert (folder[0], folder[2]) == (True, True)


def test_a_folder_that_cannot_be_synchronised_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_for_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", fail_for_folders)
    write(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"new"


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    before = names("/proc/self/fd")
    write(tmp_path / "a")
    write("/dev/fd/2", b"")
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path / "full")
    with pytest.raises(ValueError, match="mine"):
        write_and_raise(tmp_path / "b", ValueError("mine"))
    assert names("/proc/self/fd") == before


@pytest.mark.parametrize("place", ["a", "a/b/c", "a/b/", "./a"])
def test_folders_are_made_for_this_user(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_folders(place)
    make_folders(os.fsencode(place))
    made = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert made
    assert {path.stat().st_mode & 0o777 for path in made} == {0o700}
    (tmp_path / "file").touch()
    for wrong, error in (("file", FileExistsError), ("file/x", NotADirectoryError), ("", FileNotFoundError)):
        with pytest.raises(error):
            make_folders(wrong)


def test_reading_a_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as caught:
        open_to_read(tmp_path)
    assert caught.value.filename == str(tmp_path)


@pytest.mark.parametrize("nth", [1, 2])
def test_what_cannot_be_looked_at_is_closed_at_once(
    nth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """CPython 3.14 prints a traceback where a file is left to its finalizer, and cannot be closed by it either."""
    (tmp_path / "file").touch()
    status, asked = os.fstat, []

    def fail(descriptor: int) -> os.stat_result:
        asked.append(descriptor)
        if len(asked) == nth:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return status(descriptor)

    with monkeypatch.context() as changed:
        changed.setattr(os, "fstat", fail)
        with pytest.raises(OSError, match="Input/output error"):
            open_regular(tmp_path / "file")
    gc.collect()
    assert len(asked) == nth
    assert not recwarn.list


def test_what_a_pipe_is_asked_for_may_come_later(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)

    def give() -> None:
        with path.open("wb", buffering=0) as pipe:
            for piece in (b"one", b"two"):
                time.sleep(0.1)
                pipe.write(piece)

    writer = threading.Thread(target=give)
    writer.start()
    assert read_whole(path) == b"onetwo"
    writer.join()


def test_reading_a_pipe_leaves_no_descriptor_open(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    before = names("/proc/self/fd")
    writer = threading.Thread(target=path.write_bytes, args=(b"data",))
    writer.start()
    assert read_whole(path) == b"data"
    writer.join()
    assert names("/proc/self/fd") == before


def test_a_descriptor_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PATIENCE_S", 0.01)
    end, other = os.pipe()

    def give() -> None:
        time.sleep(0.2)
        os.write(other, b"late")
        os.close(other)

    writer = threading.Thread(target=give)
    writer.start()
    assert read_whole(f"/dev/fd/{end}") == b"late"
    writer.join()
    os.close(end)
    assert read_whole("/dev/null") == b""


def test_a_pipe_is_read_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Asked(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            asked.append(size or 0)
            return super().read(size)

        def fileno(self) -> int:
            return end

    end, other = os.pipe()
    data = os.urandom(5 << 19)
    monkeypatch.setattr(files, "open_to_read", lambda _path: Asked(data))
    try:
        assert read_whole("pipe") == data
    finally:
        os.close(end)
        os.close(other)
    assert max(asked) == 1 << 20


@pytest.mark.parametrize(("blocks", "most"), [(0, 64 << 20), (1 << 18, 1 << 32)])
def test_a_disk_that_compresses_is_no_hole(blocks: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """128 MiB on the disk may well have 4 GiB."""
    status = SimpleNamespace(st_mode=stat.S_IFREG, st_blocks=blocks)
    with open(os.devnull, "rb") as file, monkeypatch.context() as patch:
        patch.setattr(os, "fstat", lambda _descriptor: status)
        assert files.most_bytes(file) == most


def test_a_pipe_may_give_a_gibibyte() -> None:
    end, other = os.pipe()
    with open(end, "rb") as file, open(other, "wb"):
        assert files.most_bytes(file) == 1 << 30


def test_what_proc_says_of_other_links_is_no_path() -> None:
    with socket.socket(socket.AF_UNIX) as server:
        with pytest.raises(OSError, match="Connection refused") as caught:
            write(f"/proc/thread-self/fd/{server.fileno()}")
        assert caught.value.filename == f"/proc/thread-self/fd/{server.fileno()}"
