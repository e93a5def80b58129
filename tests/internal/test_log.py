"""Log lines: where they go, with and without debug mode."""

from __future__ import annotations

import logging

import pytest

from cprofiling._internal import log


@pytest.mark.parametrize("debug", [True, False])
def test_without_a_handler_lines_go_to_stderr_in_debug_mode_only(
    debug: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(log.logger, "propagate", False)
    monkeypatch.setattr(log, "debug", debug)
    log.say("a line")
    assert capsys.readouterr().err == ("a line\n" if debug else "")
    assert log.is_heard() is debug


def test_with_a_handler_lines_go_there(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    with caplog.at_level(logging.INFO, "cprofiling"):
        assert log.is_heard()
        log.say("a line of 100 %s")
    assert [record.getMessage() for record in caplog.records] == ["a line of 100 %s"]
    assert capsys.readouterr().err == ""
