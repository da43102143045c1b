"""Plan view of an OpenDRIVE road: its geometry records become a reference line, bounded and without gaps.

Records out of order are sorted and gaps of millimetres counted; a gap that one could see is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import pairwise

from skidpad.scenes.build import LossReport
from skidpad.scenes.formats.opendrive_geometry import (
    LARGEST_TURN,
    Bend,
    Cubics,
    Parametric,
    Piece,
    ReferenceLine,
    Shape,
    spiral,
)
from skidpad.scenes.formats.source import Limits
from skidpad.scenes.formats.xml import Element, shown

LARGEST_GAP_M = 0.1  # between plan-view pieces: above it the file is broken
COUNTED_GAP_M = 0.001


def at_line(element: Element) -> str:
    """Where an element stands, for examples of losses."""
    return f"{element.source}:{element.line}"


def read_course(road: Element, loss: LossReport, limits: Limits) -> ReferenceLine:
    """The reference line of a road.

    Raises FormatError for a malformed record, a number above a limit, or a gap of more than 0.1 m.
    """
    view = road.only("planView")
    pieces: list[Piece] = []
    for element in view.all("geometry"):
        piece = _piece(element, loss, limits)
        if piece.length > 0.0:
            pieces.append(piece)
        else:
            loss.count("dropped_geometry", f"{at_line(element)}: length 0")
    if not pieces:
        raise view.error("expected at least one <geometry> with a length")
    ordered = sorted(pieces, key=lambda piece: piece.s)
    if ordered != pieces:
        loss.count("repaired_geometry_order", f"{at_line(view)}: road {shown(road.require('id'))}")
    for piece, following in pairwise(ordered):
        if abs(piece.s + piece.length - following.s) > COUNTED_GAP_M:
            loss.count("repaired_geometry_s", f"{at_line(view)}: s {following.s:g} after {piece.s + piece.length:g}")
    course = ReferenceLine(ordered)
    for gap, following in zip(course.gaps(), ordered[1:], strict=True):
        if not gap <= LARGEST_GAP_M:
            raise view.error(
                f"the reference line of road {shown(road.require('id'))!r} has a gap of {gap:.3g} m at s = "
                f"{following.s:g} m, expected at most {LARGEST_GAP_M} m. Export the map again"
            )
        if gap > COUNTED_GAP_M:
            loss.count("repaired_geometry_gap", f"{at_line(view)}: {gap:.3g} m at s {following.s:g} m")
    return course


def _piece(element: Element, loss: LossReport, limits: Limits) -> Piece:
    s, x, y, heading, length = (element.require_float(name) for name in ("s", "x", "y", "hdg", "length"))
    if length < 0.0 or s < 0.0:
        raise element.error(f"s is {s:g} m and length is {length:g} m, expected no negative numbers")
    for value in (s, x, y, length):
        limits.check("coordinate_m", abs(value), at_line(element))
    if abs(heading) > LARGEST_TURN:
        raise element.error(f"attribute 'hdg' is {heading:g}, expected an angle in radians")
    shapes = element.all(*_SHAPES)
    if len(shapes) != 1:
        raise element.error(f"expected exactly one of {', '.join(_SHAPES)}, found {len(shapes)}")
    shape = _SHAPES[shapes[0].tag](shapes[0], length) if length > 0.0 else Bend(0.0)
    if not math.isfinite(shape.curvature):
        raise element.error("its coefficients are too large, expected a curve of finite curvature")
    if isinstance(shape, Parametric) and abs(shape.true_length - length) > max(0.01, 0.001 * length):
        loss.count("repaired_curve_length", f"{at_line(element)}: {length:g} m, truly {shape.true_length:g} m")
    return Piece(s, x, y, heading, length, shape)


def _bounded(element: Element, curvature: float, length: float) -> float:
    if abs(curvature) * length > LARGEST_TURN:
        raise element.error(f"curvature {curvature:g} 1/m over {length:g} m, expected a turn of {LARGEST_TURN:g} rad")
    return curvature


def _arc(element: Element, length: float) -> Shape:
    return Bend(_bounded(element, element.require_float("curvature"), length))


def _spiral(element: Element, length: float) -> Shape:
    start, end = (_bounded(element, element.require_float(name), length) for name in ("curvStart", "curvEnd"))
    return spiral(start, end, length)


def _poly3(element: Element, length: float) -> Shape:
    return Parametric((0.0, 1.0, 0.0, 0.0), [element.require_float(name) for name in "abcd"], length, None)


def _param_poly3(element: Element, length: float) -> Shape:
    u, v = ([element.require_float(letter + axis) for letter in "abcd"] for axis in "UV")
    p_range = element.get("pRange")
    if p_range not in (None, "arcLength", "normalized"):
        raise element.error(f"attribute 'pRange' is {shown(p_range or '')!r}, expected arcLength or normalized")
    shape = Parametric(u, v, length, length if p_range == "arcLength" else 1.0)
    if not shape.true_length > 0.0:
        raise element.error("its curve has no length, expected coefficients that describe one")
    return shape


_SHAPES: dict[str, Callable[[Element, float], Shape]] = {
    "line": lambda _element, _length: Bend(0.0),
    "arc": _arc,
    "spiral": _spiral,
    "poly3": _poly3,
    "paramPoly3": _param_poly3,
}


def read_cubics(elements: Iterable[Element], start: float, name: str) -> Cubics:
    """Records a, b, c, d whose attribute `name` counts from `start` [m], as cubics over road s."""
    starts, coefficients = [], []
    for element in elements:
        starts.append(start + element.require_float(name))
        coefficients.append([element.require_float(letter) for letter in "abcd"])
    return Cubics(starts, coefficients)
