"""Inputs that fuzzers have found: each is decoded, or refused by the documented error (failure scenario I9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz import decoders

pytestmark = pytest.mark.native

CORPORA = Path(__file__).parent / "corpora"


@pytest.mark.parametrize("target", decoders.TARGETS)
def test_inputs_are_decoded_or_refused(target: str) -> None:
    if target == "grpc":
        pytest.importorskip("grpc")
    inputs = sorted((CORPORA / target).iterdir())
    assert inputs
    for path in inputs:
        decoders.one(target, path.read_bytes())
