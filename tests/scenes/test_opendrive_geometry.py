"""Reference lines of OpenDRIVE against slow, obvious integration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skidpad.scenes.formats.opendrive_geometry import (
    CHORD_M,
    Bend,
    Cubics,
    Parametric,
    Piece,
    ReferenceLine,
    Spiral,
    samples,
    spiral,
    step_counts,
)

STEPS = 20_000


def twin_by_curvature(curvature, distance):
    """u, v, heading after `distance`, by adding up 20,000 midpoint steps of a curve given by its curvature."""
    step = distance / STEPS
    middle = (np.arange(STEPS) + 0.5) * step
    half = np.cumsum(curvature(middle)) * step - 0.5 * curvature(middle) * step
    heading = np.cumsum(curvature(middle)) * step
    return np.sum(np.cos(half)) * step, np.sum(np.sin(half)) * step, heading[-1]


def twin_by_parameter(u, v, last, fraction):
    """u, v after `fraction` of the arc length over [0, last], by adding up 20,000 chords."""
    p = np.linspace(0.0, last, STEPS + 1)
    x, y = (np.polynomial.polynomial.polyval(p, c) for c in (u, v))
    arc = np.concatenate(([0.0], np.cumsum(np.hypot(np.diff(x), np.diff(y)))))
    return np.interp(fraction * arc[-1], arc, x), np.interp(fraction * arc[-1], arc, y), arc[-1]


@pytest.mark.parametrize("curvature", [0.0, 1e-12, 1e-6, -0.01, 0.5, -2.0])
def test_bend_is_the_integral_of_its_curvature(curvature):
    """R17: arcs, lines and what lies between; 1/curvature loses all digits where the curvature is almost 0."""
    u, v, heading = Bend(curvature).at(np.array([0.0, 37.5]))
    assert (u[0], v[0], heading[0]) == (0.0, 0.0, 0.0)
    expected = twin_by_curvature(lambda s: np.full_like(s, curvature), 37.5)
    assert (u[1], v[1], heading[1]) == pytest.approx(expected, abs=1e-6)


@settings(max_examples=25, deadline=None)
@given(
    start=st.floats(-0.2, 0.2),
    end=st.floats(-0.2, 0.2),
    length=st.floats(0.01, 200.0),
    share=st.floats(0.0, 1.0),
)
def test_spiral_is_within_a_millimetre_per_hundred_metres(start, end, length, share):
    """R17 sets 1 mm per 100 m. Quadrature over the whole piece at once fails on long tight spirals."""
    distance = share * length
    u, v, heading = spiral(start, end, length).at(np.array([distance]))
    expected = twin_by_curvature(lambda s: start + (end - start) * s / length, distance)
    assert (u[0], v[0]) == pytest.approx(expected[:2], abs=1e-3 * max(distance, 1.0) / 100.0)
    assert heading[0] == pytest.approx(expected[2], abs=1e-6)


@pytest.mark.parametrize(
    ("start", "end", "kind"), [(0.0, 1e-10, Bend), (0.02, 0.02 + 5e-10, Bend), (0.0, 2e-9, Spiral)]
)
def test_spirals_that_do_not_change_are_arcs(start, end, kind):
    """R17: exporters write spirals whose curvature changes by less than 1e-9 1/m; dividing by the change goes metres
    off. Both forms must give the same curve at the limit."""
    shape = spiral(start, end, 100.0)
    assert isinstance(shape, kind)
    u, v, _ = shape.at(np.array([100.0]))
    assert (u[0], v[0]) == pytest.approx(twin_by_curvature(lambda s: np.full_like(s, start), 100.0)[:2], abs=1e-4)


def test_spiral_points_do_not_depend_on_what_else_is_asked():
    """R9: a point must not move when the sampling changes, or one map would have several digests."""
    shape = Spiral(0.0, 0.3, 80.0)
    s = np.linspace(0.0, 80.0, 57)
    together = np.stack(shape.at(s))
    alone = np.concatenate([np.stack(shape.at(s[i : i + 1])) for i in range(len(s))], axis=1)
    assert np.abs(together - alone).max() < 1e-12


PARAMETRIC = [
    # u, v, last parameter: a gentle curve, a strongly uneven parameter, a turn of more than 90 degrees
    ((0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 0.004, -2e-5), 80.0),
    ((0.0, 30.0, 60.0, -20.0), (0.0, 0.0, 25.0, 10.0), 1.0),
    ((0.0, 40.0, -10.0, -25.0), (0.0, 0.0, 60.0, -15.0), 1.0),
]


@pytest.mark.parametrize(("u", "v", "last"), PARAMETRIC)
@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.37, 0.5, 0.93, 1.0])
def test_parametric_cubic_is_followed_by_arc_length(u, v, last, fraction):
    """R17: p used directly as a distance is metres off in legal files."""
    x, y, arc = twin_by_parameter(u, v, last, fraction)
    found_u, found_v, _ = Parametric(u, v, arc, last).at(np.array([fraction * arc]))
    assert (found_u[0], found_v[0]) == pytest.approx((x, y), abs=1e-5)
    # The plain parameter would be wrong, so this test can fail.
    if last == 1.0 and fraction == 0.37:
        assert abs(np.polynomial.polynomial.polyval(fraction, u) - x) > 1.0


def test_parametric_cubic_of_the_wrong_length_still_ends_where_the_next_piece_starts():
    """R17: an exporter's rounded or chord length must not open a gap: distances are scaled to the parameter's end."""
    u, v, last = PARAMETRIC[1]
    _, _, arc = twin_by_parameter(u, v, last, 1.0)
    found_u, found_v, _ = Parametric(u, v, arc * 0.9, last).at(np.array([arc * 0.9]))
    assert (found_u[0], found_v[0]) == pytest.approx((sum(u), sum(v)), abs=1e-9)


def test_poly3_ends_after_its_length_not_at_its_abscissa():
    """R17: poly3 gives v over u, but `length` is arc length: at 45 degrees u is a third shorter."""
    shape = Parametric((0, 1, 0, 0), (0.0, 1.0, 0.0, 0.0), 50.0, None)
    u, v, heading = shape.at(np.array([0.0, 50.0]))
    assert (u[1], v[1]) == pytest.approx((50 / math.sqrt(2), 50 / math.sqrt(2)), abs=1e-9)
    assert heading == pytest.approx([math.pi / 4, math.pi / 4])
    bent = Parametric((0, 1, 0, 0), (0.5, 0.1, 0.02, -1e-4), 60.0, None)
    u, v, _ = bent.at(np.array([0.0, 25.0, 60.0]))
    p = np.linspace(0.0, 60.0, STEPS + 1)
    y = np.polynomial.polynomial.polyval(p, (0.5, 0.1, 0.02, -1e-4))
    arc = np.concatenate(([0.0], np.cumsum(np.hypot(np.diff(p), np.diff(y)))))
    assert u == pytest.approx(np.interp([0.0, 25.0, 60.0], arc, p), abs=1e-5)
    assert v == pytest.approx(np.interp([0.0, 25.0, 60.0], arc, y), abs=1e-5)


def test_parametric_cusp_stays_on_the_curve():
    """Newton's step divides by the speed, which is 0 at a cusp: positions must stay finite and in order."""
    shape = Parametric((0.0, 1.0, -2.0, 4 / 3), (0.0, 0.0, 0.0, 0.0), 1.0, 1.0)  # speed (1 - 2 p)^2
    u, v, _ = shape.at(np.linspace(0.0, 1.0, 101))
    assert np.isfinite(u).all()
    assert np.isfinite(v).all()
    assert (np.diff(u) > 0).all()


def test_pieces_are_placed_and_joined():
    """R17: each piece starts at its own x, y, heading; where two meet the later one counts, and gaps are measured."""
    line = ReferenceLine(
        [
            Piece(0.0, 10.0, 20.0, math.pi / 2, 30.0, Bend(0.0)),
            Piece(30.0, 10.0, 50.02, math.pi / 2, 10.0, Bend(-0.1)),
        ]
    )
    course = line.at(np.array([0.0, 29.0, 30.0, 40.0]))
    assert course.xy[:3] == pytest.approx(np.array([[10, 20], [10, 49], [10, 50.02]]))
    assert course.heading == pytest.approx([math.pi / 2, math.pi / 2, math.pi / 2, math.pi / 2 - 1])
    assert line.gaps() == pytest.approx([0.02])
    assert line.length == 40.0


def twin_cubic(starts, coefficients, s):
    """The value of the last record that starts at or before s."""
    best = 0.0
    for start, (a, b, c, d) in zip(starts, coefficients, strict=True):
        if start <= s:
            x = s - start
            best = a + b * x + c * x * x + d * x**3
    return best


@given(st.lists(st.floats(0, 50), min_size=1, max_size=6, unique=True), st.lists(st.floats(0, 60), max_size=20))
def test_cubics_take_the_record_that_is_valid(starts, places):
    """R17: records count from their own start. Evaluating with section-local s is the usual mistake."""
    starts = sorted(starts)
    coefficients = [(i + 1.0, 0.5 * i, -0.01 * i, 0.001 * i) for i in range(len(starts))]
    found = Cubics(starts, coefficients).at(np.array(places, dtype=float))
    assert found == pytest.approx([twin_cubic(starts, coefficients, s) for s in places])


def test_cubics_at_a_section_end_are_taken_from_inside():
    """R17: offsets step by up to 14 m at section starts in the CARLA towns; the section that ends there must not see
    the step of the next."""
    cubics = Cubics([0.0, 10.0], [(1.0, 0.1, 0, 0), (15.0, 0, 0, 0)])
    assert cubics.at(np.array([5.0, 10.0]), end=10.0) == pytest.approx([1.5, 2.0])
    assert cubics.at(np.array([10.0, 12.0])) == pytest.approx([15.0, 15.0])
    assert cubics.steps(0.0, 20.0) == pytest.approx([13.0])
    assert len(cubics.steps(0.0, 10.0)) == 0


def test_cubics_bend_bounds_the_second_derivative():
    """The step rule relies on it: an underestimate would let polylines cut corners."""
    cubics = Cubics([0.0, 10.0], [(0, 0, 0.01, 0.002), (0, 0, -0.2, 0.0)])
    assert cubics.bend(0.0, 10.0) == pytest.approx(0.02 + 6 * 0.002 * 10)
    assert cubics.bend(0.0, 20.0) == pytest.approx(0.4)
    assert Cubics([], []).bend(0.0, 1.0) == 0.0


@settings(deadline=None)
@given(
    curvature=st.floats(1e-4, 0.12),
    lateral=st.floats(-8.0, 8.0),
    length=st.floats(1.0, 120.0),
)
def test_samples_keep_the_chord_bound_at_any_lateral_distance(curvature, lateral, length):
    """R17: chord error <= 0.05 m, also on the lane farthest out, whose curve is longer than the reference line's."""
    breaks = np.array([0.0, length])
    s = samples(breaks, step_counts(breaks, np.array([curvature]), abs(lateral), 0.0))
    assert s[0] == 0.0
    assert s[-1] == length
    assert (np.diff(s) > 0).all()
    u, v, heading = Bend(curvature).at(s)
    points = np.stack((u - lateral * np.sin(heading), v + lateral * np.cos(heading)), axis=1)
    middle = 0.5 * (s[1:] + s[:-1])
    u, v, heading = Bend(curvature).at(middle)
    truth = np.stack((u - lateral * np.sin(heading), v + lateral * np.cos(heading)), axis=1)
    error = np.linalg.norm(truth - 0.5 * (points[1:] + points[:-1]), axis=1)
    assert error.max() <= CHORD_M
