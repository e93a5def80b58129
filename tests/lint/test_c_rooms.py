"""The rooms of the extension: which may use which, and no cycle between their units."""

from __future__ import annotations

import pytest

from repository import BINDING, c_files, includes_of, relative

pytestmark = pytest.mark.lint

# A room includes those before it, and its own; the module, any.
ROOMS = ("", "probes", "calls", "statistics", "recordings", "tools", "module")
FILES = c_files(BINDING, ".c", ".h")


def room_of(path: str) -> int:
    """The place of a file's room."""
    unit = path.removeprefix("csrc/").rpartition(".")[0]
    return ROOMS.index("module" if unit == "module" else unit.rpartition("/")[0])


def test_rooms_of_the_extension_include_rooms_above() -> None:
    wrong = [
        f"{relative(path)}: {included}"
        for path in FILES
        for included in includes_of(path)
        if included.startswith("csrc/") and room_of(included) > room_of(relative(path))
    ]
    assert wrong == []


def test_units_of_the_extension_have_no_cycle() -> None:
    uses: dict[str, set[str]] = {}
    for path in FILES:
        own = relative(path.with_suffix(""))
        included = {name.removesuffix(".h") for name in includes_of(path) if name.startswith("csrc/")}
        uses.setdefault(own, set()).update(included - {own})
    while free := {unit for unit, used in uses.items() if not used & uses.keys()}:
        uses = {unit: used for unit, used in uses.items() if unit not in free}
    assert uses == {}, "units that use one another"
