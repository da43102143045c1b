"""OpenDRIVE road marks: which painted lines of a scene lie on the border of a lane."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from skidpad.scenes.build import LossReport, SceneBuilder
from skidpad.scenes.formats.opendrive_geometry import F64
from skidpad.scenes.formats.opendrive_records import Mark, Section
from skidpad.scenes.formats.opendrive_strips import Strips
from skidpad.scenes.scene import (
    LINE_BROKEN_WHITE,
    LINE_BROKEN_YELLOW,
    LINE_DOUBLE_BROKEN_YELLOW,
    LINE_DOUBLE_WHITE,
    LINE_DOUBLE_YELLOW,
    LINE_SOLID_WHITE,
    LINE_SOLID_YELLOW,
    LINE_UNKNOWN,
)

_WHITE = {
    "solid": LINE_SOLID_WHITE,
    "broken": LINE_BROKEN_WHITE,
    "botts dots": LINE_BROKEN_WHITE,
    "solid solid": LINE_DOUBLE_WHITE,
    "solid broken": LINE_SOLID_WHITE,
    "broken solid": LINE_SOLID_WHITE,
    "broken broken": LINE_BROKEN_WHITE,
}
_YELLOW = {
    "solid": LINE_SOLID_YELLOW,
    "broken": LINE_BROKEN_YELLOW,
    "botts dots": LINE_BROKEN_YELLOW,
    "solid solid": LINE_DOUBLE_YELLOW,
    "solid broken": LINE_SOLID_YELLOW,
    "broken solid": LINE_SOLID_YELLOW,
    "broken broken": LINE_DOUBLE_BROKEN_YELLOW,
}
MARK_KINDS = {"standard": _WHITE, "white": _WHITE, "yellow": _YELLOW}

SHORTEST_LINE_M = 0.1


def add_lines(road: str, index: int, section: Section, strips: Strips, builder: SceneBuilder, loss: LossReport) -> None:
    """Hand the painted lines of one section to the builder, also those beside what is no lane of a scene."""
    for id, marks in ((0, section.centre), *((id, lane.marks) for id, lane in section.lanes.items())):
        s, border = strips.borders[road, index, id]
        _add_marks(marks, section, s, border, builder, loss, f"road {road}, section {index}, lane {id}")


def _add_marks(
    marks: Iterable[Mark],
    section: Section,
    s: F64,
    border: F64,
    builder: SceneBuilder,
    loss: LossReport,
    where: str,
) -> None:
    runs: list[tuple[float, int | None]] = []
    for mark in marks:
        kind = _mark_kind(mark, where, loss)
        if not runs or runs[-1][1] != kind:
            runs.append((mark.s, kind))
    ends = [*(start for start, _ in runs[1:]), section.end]
    for (start, kind), end in zip(runs, ends[: len(runs)], strict=True):
        low, high = max(start, section.start), min(end, section.end)
        if kind is None or high <= low:
            continue
        if high - low < SHORTEST_LINE_M:
            loss.count("dropped_short_line", f"{where}: {high - low:.2g} m")
            continue
        builder.line(_between(s, border, low, high), kind)


def _mark_kind(mark: Mark, where: str, loss: LossReport) -> int | None:
    if mark.type == "none":
        return None
    if mark.type in ("curb", "edge", "grass"):
        loss.count(f"ignored_mark_{mark.type}", where)  # not paint: the road's edges are built from its lanes
        return None
    kinds = MARK_KINDS.get(mark.colour)
    if kinds is None or mark.type not in kinds:
        loss.count("unknown_mark", f"{where}: {mark.colour[:60]} {mark.type[:60]}")
        return LINE_UNKNOWN
    return kinds[mark.type]


def _between(s: F64, points: F64, low: float, high: float) -> F64:
    inside = (s > low) & (s < high)
    ends = [[np.interp(at, s, points[:, axis]) for axis in range(3)] for at in (low, high)]
    return np.concatenate([ends[:1], points[inside], ends[1:]])
