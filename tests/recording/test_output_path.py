"""Names that several processes want at once (failure scenarios D9, D11, D13): each gets one, and nobody waits."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import cprofiling as cp
from cprofiling import Recording
from cprofiling.recording import output_names
from cprofiling.recording.output_names import OutputPath
from cprofiling.recording.traces import chrome_writer

OTHERS = "of another process"


@pytest.fixture(scope="module")
def recording() -> Recording:
    with cp.profile(operators=False) as prof, cp.record("block"):
        pass
    return prof.recording


@pytest.fixture(autouse=True)
def no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)


def is_trace(path: Path) -> bool:
    return any(event["name"] == "block" for event in json.loads(path.read_text())["traceEvents"])


def beside(path: Path) -> Path:
    return path.with_name(f"{path.stem}_{os.getpid()}{path.suffix}")


def failing(error: OSError, *done: Callable[..., object]) -> Callable[..., None]:
    """A function that does something, and fails all the same."""

    def fail(*arguments: object, **more: object) -> None:
        for each in done:
            each(*arguments, **more)
        raise error

    return fail


@pytest.mark.parametrize("before", [None, "old"])
def test_who_comes_while_the_trace_is_written_keeps_the_path(
    before: str | None, recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.json"
    if before is not None:
        path.write_text(before)
    plain = chrome_writer.export_to_path

    def export(*arguments: str, **more: bool) -> None:
        (tmp_path / "another").write_text(OTHERS)
        (tmp_path / "another").replace(path)
        plain(*arguments, **more)  # type: ignore[arg-type]

    output = OutputPath(str(path), is_first=True)
    monkeypatch.setattr(chrome_writer, "export_to_path", export)
    assert output.write(recording) == str(beside(path))
    assert path.read_text() == OTHERS
    assert is_trace(beside(path))
    assert sorted(tmp_path.iterdir()) == sorted([path, beside(path)])


@pytest.mark.parametrize("removed", [False, True])
def test_what_was_there_at_the_start_is_replaced(removed: bool, recording: Recording, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("old")
    output = OutputPath(str(path), is_first=True)
    if removed:
        path.unlink()
    assert output.write(recording) == str(path)
    assert is_trace(path)
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_nlink == 1


def test_who_is_about_to_replace_it_is_not_waited_for(recording: Recording, tmp_path: Path) -> None:
    """Even if it has stopped amid that."""
    path = tmp_path / "t.json"
    path.write_text("old")
    output = OutputPath(str(path), is_first=True)
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert output.write(recording) == str(beside(path))
    assert path.read_text() == "old"
    assert is_trace(beside(path))


@pytest.mark.parametrize("case", ["no locks", "not to be opened", "a link to nowhere"])
def test_files_that_cannot_be_locked(
    case: str, recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.json"
    if case == "a link to nowhere":
        path.symlink_to("nowhere")
    else:
        path.write_text("old")
    output = OutputPath(str(path), is_first=True)
    if case == "no locks":
        monkeypatch.setattr(fcntl, "flock", failing(OSError(errno.ENOLCK, "no locks")))
    plain = os.open

    def open_other(name: str, *arguments: int, **more: int) -> int:
        if name == str(path):
            raise PermissionError(errno.EACCES, "not yours")
        return plain(name, *arguments, **more)

    if case == "not to be opened":
        monkeypatch.setattr(os, "open", open_other)
    assert output.write(recording) == str(path)
    assert is_trace(path)
    assert not path.is_symlink()
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_system_without_hard_links(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", failing(PermissionError(errno.EPERM, "no links")))
    path = tmp_path / "t.json"
    first, second = OutputPath(str(path), is_first=True), OutputPath(str(path), is_first=True)
    assert first.write(recording) == str(path)
    assert second.write(recording) == str(beside(path))
    assert sorted(tmp_path.iterdir()) == sorted([path, beside(path)])
    assert is_trace(path)
    assert is_trace(beside(path))
    third = OutputPath(str(tmp_path / "third.json"), is_first=True)
    plain = os.replace

    def replace(old: str, new: str) -> None:
        if new == third.path:
            raise OSError(errno.EIO, "as asked")
        plain(old, new)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(OSError, match="as asked"):
        third.write(recording)
    assert sorted(tmp_path.iterdir()) == sorted([path, beside(path)])


def test_a_network_that_loses_the_answer(recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link was made, and is there when it is asked for again."""
    monkeypatch.setattr(os, "link", failing(FileExistsError(errno.EEXIST, "there"), os.link))
    path = tmp_path / "t.json"
    assert OutputPath(str(path), is_first=True).write(recording) == str(path)
    assert list(tmp_path.iterdir()) == [path]
    assert is_trace(path)


def test_names_beside_a_path(recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 7)
    for name, wanted in [
        ("trace.json", "trace_7.json"),
        ("trace.json.gz", "trace_7.json.gz"),
        ("worker.pt.trace.json", "worker.pt.trace_7.json"),
        ("trace", "trace_7"),
        (".gz", "_7.gz"),
    ]:
        output = OutputPath(str(tmp_path / name), is_first=False)
        assert output.wanted() == output.write(recording) == str(tmp_path / wanted)
    (tmp_path / "trace_7-2.json.gz").symlink_to("nowhere")
    output = OutputPath(str(tmp_path / "trace.json.gz"), is_first=False)
    assert output.write(recording) == str(tmp_path / "trace_7-3.json.gz")
    monkeypatch.setenv("RANK", "12")
    output = OutputPath(str(tmp_path / "trace.json.gz"), is_first=True)
    assert output.wanted() == output.write(recording) == str(tmp_path / "trace_rank12_7.json.gz")
    assert output.write(recording) == str(tmp_path / "trace_rank12_7-2.json.gz")
    monkeypatch.setenv("RANK", "0")
    assert OutputPath(str(tmp_path / "new.json"), is_first=True).wanted() == str(tmp_path / "new.json")
    assert OutputPath(str(tmp_path / "new.json"), is_first=False).wanted() == str(tmp_path / "new_rank0_7.json")


def test_a_folder_in_memory_is_like_others() -> None:
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("there is no /dev/shm")
    assert output_names.checked_path("/dev/shm/cprofiling-new.json") == "/dev/shm/cprofiling-new.json"
