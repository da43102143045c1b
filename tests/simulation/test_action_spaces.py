"""What actions mean: tables, boxes and who reads which (S41, S44 to S46)."""

from __future__ import annotations

import numpy as np
import pytest

from skidpad.scenes.events import Controller
from skidpad.scenes.scene import TYPE_CYCLIST, TYPE_PEDESTRIAN, TYPE_VEHICLE
from skidpad.settings.schema import CompatSettings, EnvSettings
from skidpad.simulation.actions import SPACES, action_scales, action_space, models
from skidpad.simulation.kernels import dynamics
from skidpad.simulation.kernels.dynamics import command_of, scale_row

F = np.float32
NINE = (-0.667, -0.5, -0.333, -0.167, 0, 0.167, 0.333, 0.5, 0.667)
THIRTEEN = (-1, -0.833, -0.667, -0.5, -0.333, -0.167, 0, 0.167, 0.333, 0.5, 0.667, 0.833, 1)
SEVEN = (-4, -2.667, -1.333, 0, 1.333, 2.667, 4)

FROZEN = {
    ("classic", "none"): (SEVEN, NINE, (63,)),
    ("classic", "v2"): (SEVEN, THIRTEEN, (91,)),
    ("classic", "v2b"): (SEVEN, THIRTEEN, (91,)),
    ("jerk", "none"): ((-15, -4, 0, 4), (-4, 0, 4), (12,)),
    ("jerk", "v2"): ((-15, -4, 0, 4), (-4, 0, 4), (4, 3)),
    ("jerk", "v2b"): ((-15, -4, 0, 4), (-4, 0, 4), (12,)),
}


@pytest.mark.parametrize("key", list(FROZEN))
def test_tables_are_frozen(key):
    """S44: every index decodes to its pair, ascending, index = first * number of second + second; a checkpoint's head
    means nothing under another table."""
    first, second, factors = FROZEN[key]
    space = SPACES[key]
    assert space.factors == factors
    want = np.array([(a, b) for a in first for b in second])
    # To one rounding: a value is the product of a point of the box and a scale.
    assert space.table == pytest.approx(want, rel=1.2e-7, abs=0)
    assert np.prod(factors) == len(want)
    index = np.arange(len(want), dtype=np.int32)
    split = space.split(index)
    joint = split if len(factors) == 1 else split[:, 0] * factors[1] + split[:, 1]
    assert (joint == index).all()
    with pytest.raises(ValueError, match="read-only"):
        space.box[0, 0] = 1.0


def test_no_key_is_missing():
    """Every combination that the settings allow has a space."""
    assert set(SPACES) == set(FROZEN)


@pytest.mark.parametrize("key", list(FROZEN))
def test_corners_are_the_extremes(key):
    """S45: -1 and 1 are the ends of the table, for a jerk not equally far from 0; and back."""
    space = SPACES[key]
    for corner, extreme in ((-1, np.min), (1, np.max)):
        physical = space.physical(np.full(2, corner, F))
        assert physical.tolist() == [extreme(space.table[:, 0]), extreme(space.table[:, 1])]
        assert space.unit(physical).tolist() == [corner, corner]
    assert space.physical(np.array([-0.5, 0.5], F))[0] == -0.5 * space.negative[0]


def test_a_table_in_the_box_gives_the_bits_of_the_discrete_world():
    """S46: a point of the table, sent through the box, is the table's value to the bit; 0.167 rad would not be, were
    the table made of rounded decimals."""
    for key, space in SPACES.items():
        settings = EnvSettings(dynamics=key[0], compat=CompatSettings(dynamics=key[1]))
        scale = action_scales(settings)[0]
        for point, physical in zip(space.box, space.table, strict=True):
            assert [command_of(point[c], scale, c) for c in range(2)] == physical.tolist()


def test_small_types_read_the_same_box():
    """S41: under any dynamics a cyclist steers and a pedestrian turns; the corners are 4 m/s^2, and 0.667 rad or pi
    rad/s."""
    for name in ("classic", "jerk"):
        vehicle, cyclist, pedestrian = action_scales(EnvSettings(dynamics=name))
        assert (vehicle[1] == action_space(EnvSettings(dynamics=name)).positive).all()
        assert cyclist.tolist() == [[4, F(0.667)], [4, F(0.667)]]
        assert pedestrian.tolist() == [[4, F(np.pi)], [4, F(np.pi)]]
    assert scale_row(dynamics.CYCLIST) == 1
    assert scale_row(dynamics.PEDESTRIAN) == 2
    assert {scale_row(one) for one in (dynamics.CLASSIC, dynamics.JERK, dynamics.CLASSIC_V2)} == {0}


def test_who_moves_how():
    """S41, S102: policies drive by the settings, planners by the classic model whose commands they give, small types by
    their own model unless `compat.types` makes cars of them."""
    types = np.array([TYPE_VEHICLE, TYPE_CYCLIST, TYPE_PEDESTRIAN] * 2, np.uint8)
    drivers = np.array([Controller.POLICY] * 3 + [Controller.IDM] * 3, np.uint8)
    own = models(EnvSettings(dynamics="jerk"), drivers, types)
    assert own.tolist() == [
        dynamics.JERK, dynamics.CYCLIST, dynamics.PEDESTRIAN, dynamics.CLASSIC, dynamics.CYCLIST, dynamics.CYCLIST
    ]  # fmt: skip
    cars = models(EnvSettings(compat=CompatSettings(types="car", dynamics="v2")), drivers, types)
    assert cars.tolist() == [dynamics.CLASSIC_V2] * 3 + [dynamics.CLASSIC] * 3


def test_mean_of_a_table_is_physical():
    """S46: the mean of braking at 15 and pulling at 4 m/s^3 is braking at 5.5, which is not the mean of two corners."""
    space = SPACES["jerk", "none"]
    mean = space.table[[1, 10]].mean(axis=0)
    assert mean.tolist() == [-5.5, 0]
    assert space.physical(space.unit(mean)) == pytest.approx(mean)
