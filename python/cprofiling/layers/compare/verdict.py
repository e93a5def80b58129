"""One verdict on changed times, for reports, statistics and gates.

The rows of a comparison are judged together. Each gets an interval that is wide enough for all of them to hold at the
confidence that was asked for (C. E. Bonferroni's correction), so that many rows raise no more false alarms than one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final, Literal, TypeAlias

    Verdict: TypeAlias = Literal["slower", "faster", "same", "unclear", "not enough samples", "unknown"]

CONFIDENCE = 0.95
NOT_ENOUGH: Final = "not enough samples"
UNJUDGED = frozenset({"unknown", NOT_ENOUGH})  # no figures tell anything
UNSURE = UNJUDGED | {"unclear"}
EXIT_SAME, EXIT_NO_VERDICT, EXIT_REGRESSED = 0, 1, 3
_SELDOM = 1000  # comparisons, in fewer than one of which chance may part samples
_MANY = 30  # samples a side, of which more make no difference


def verdict_of(interval: tuple[float, float], limit: float) -> Verdict:
    """Return the verdict on a change by its interval and limit.

    All of it above the limit is slower, all of it below the negative limit faster, all of it between them the same.
    """
    low, high = interval
    if low > limit:
        return "slower"
    if high < -limit:
        return "faster"
    return "same" if -limit <= low and high <= limit else "unclear"


def row_confidence(confidence: float, rows: int) -> float:
    """Return the confidence of each row's interval for all rows together."""
    return 1 - (1 - confidence) / max(1, rows)


def can_lie_apart(old: int, new: int, rows: int) -> bool:
    """Tell whether there are enough samples to rule out chance.

    Of equal distributions all new samples lie above all old ones in one of ``comb(old + new, old)`` cases. With so
    many rows this must happen in fewer than 1 of 1,000 comparisons.
    """
    return rows * _SELDOM < math.comb(old + new, min(old, new, _MANY))


def exit_status(verdicts: Iterable[Verdict], *, has_regressed: bool = False) -> int:
    """Return the exit status, 3 for slower, 1 for no verdict, else 0."""
    found = set(verdicts)
    if has_regressed or "slower" in found:
        return EXIT_REGRESSED
    return EXIT_SAME if found - UNJUDGED else EXIT_NO_VERDICT
