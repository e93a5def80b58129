"""Refusal of a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


class Refusal(Exception):  # noqa: N818 it is no error of ours
    """Ends a call with a status.

    code: a ``grpc.StatusCode``. details: a sentence for the client.
    """

    def __init__(self, code: Any, details: str) -> None:
        """Take over both."""
        super().__init__(details)
        self.code = code
        self.details = details


def described(error: BaseException) -> str:
    """Return an exception's type and text."""
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:  # noqa: BLE001 a broken __str__ must not hide the error
        return type(error).__name__
