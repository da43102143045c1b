"""CARLA's driving scores and Bench2Drive's figures: the arithmetic, what counts as what, and tables of many routes."""

from __future__ import annotations

import numpy as np
import pytest
from driving import car, scene_of, trace_of
from hand_composites import ROAD, SPOILED, on_route, turning
from hand_worked import OFFROAD, STOP, VEHICLE, VRU, events

from skidpad.errors import UsageError
from skidpad.evaluation.metrics.carla_score import (
    ABILITIES,
    PENALTIES_2_0,
    WEIGHTS_2_1,
    RouteResult,
    b2d_table,
    driving_score_2_0,
    driving_score_2_1,
    smoothness_series,
    speed_percentages,
    spread,
)
from skidpad.evaluation.metrics.registry import compute
from skidpad.evaluation.metrics.view import CaseView
from skidpad.scenes.events import Event
from skidpad.scenes.scene import SUBTYPE_STATIC, TYPE_CYCLIST, TYPE_PEDESTRIAN, TYPE_UNKNOWN, TYPE_VEHICLE


def of(made, name):
    return compute(*made, [name])[name].value


def some(**counts):
    return {name: np.array([float(number)]) for name, number in counts.items()}


def test_two_red_lights_and_one_vehicle() -> None:
    """Q33: at 80 %: 80 x .49 x .6 = 23.52, and 80 / (1 + .8 + .7) = 32; the two versions are other formulas."""
    completion, none = np.array([0.8]), np.array([0.0])
    counts = some(red_light=2, vehicle=1)
    assert driving_score_2_0(completion, counts, none)[0] == pytest.approx(23.52)
    assert driving_score_2_1(completion, counts, none)[0] == pytest.approx(32.0)


@pytest.mark.parametrize(
    ("name", "factor", "weight"),
    [
        ("pedestrian", 0.5, 1.0),
        ("vehicle", 0.6, 0.7),
        ("static", 0.65, 0.6),
        ("red_light", 0.7, 0.4),
        ("stop_sign", 0.8, 0.25),
        ("scenario_timeout", 0.7, 0.4),
        ("emergency_yield", 0.7, 0.4),
        ("minimum_speed", 0.7, 0.4),
    ],
)
def test_each_coefficient(name: str, factor: float, weight: float) -> None:
    """Q33: eight infractions, each alone on a whole route; a swapped pair would still pass the sum above."""
    one, none = np.array([1.0]), np.array([0.0])
    assert driving_score_2_0(one, some(**{name: 1}), none)[0] == pytest.approx(100 * factor)
    assert driving_score_2_1(one, some(**{name: 1}), none)[0] == pytest.approx(100 / (1 + weight))
    assert set(PENALTIES_2_0) == set(WEIGHTS_2_1)


def test_a_shortfall_of_speed_scales_and_does_not_repeat() -> None:
    """Q33: half the speed of the others costs half of 0.3, not 0.7 ** 0.5."""
    one, none = np.array([1.0]), np.array([0.0])
    assert driving_score_2_0(one, some(minimum_speed=0.5), none)[0] == pytest.approx(85)


@pytest.mark.parametrize(
    ("kind", "subtype", "bit", "factor"),
    [
        (TYPE_PEDESTRIAN, 0, VRU, 0.5),
        (TYPE_CYCLIST, 0, VRU, 0.6),
        (TYPE_VEHICLE, 0, VEHICLE, 0.6),
        (TYPE_VEHICLE, SUBTYPE_STATIC, int(Event.COLLISION_STATIC), 0.65),
        (TYPE_UNKNOWN, 0, int(Event.COLLISION_STATIC), 0.65),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_who_was_met(kind: int, subtype: int, bit: int, factor: float, named: bool) -> None:
    """Q33: pedestrian .5, vehicle .6, static .65, and a cyclist is a vehicle there. A contact without a partner is
    sorted by its bit, where a cyclist cannot be told from a pedestrian."""
    t = np.arange(11.0)
    scene = scene_of([car(x=t, route=[0]), car(y=500.0, type=kind, subtype=subtype)], [ROAD], edges=True)
    bits = events(2, 10, (0, 5, bit))
    partner = np.where((bits != 0) & named, 1, -1)
    rows = {"x": np.array([t, 0 * t]), "y": [[0.0], [500.0]], "speed": 10.0, "events": bits, "contact_partner": partner}
    expected = 0.5 if kind == TYPE_CYCLIST and not named else factor
    assert of((trace_of(scene, rows, scored=[0]), scene), "b2d_driving_score") == pytest.approx(100 * expected)


def test_off_the_road_takes_its_share_of_the_route() -> None:
    """Q33: 5 of 50 steps of 2 m off the road are 10 m of 100 m: 90; and a success no longer."""
    made = on_route(1.0, [(state, OFFROAD) for state in range(20, 25)])
    assert of(made, "b2d_driving_score") == pytest.approx(90)
    assert of(made, "b2d_success") == 0


def test_speed_is_compared_with_the_vehicles_around() -> None:
    """Q33, Q34: 16 m/s beside 20 m/s is 80 % at all 16 checks of the 80 m driven: a shortfall of .2 costs .06. Vehicles
    further away than 30 m, and pedestrians, are nobody to keep up with."""
    made = on_route(0.8, beside=20.0)
    found = speed_percentages(CaseView(*made), 20.0, 30.0)[0]
    assert found == pytest.approx(np.full(16, 80.0))
    assert of(made, "carla_ds_2_0") == pytest.approx(80 * (1 - 0.3 * 0.2))
    assert of(made, "carla_ds_2_1") == pytest.approx(80 / (1 + 0.4 * 0.2))
    assert len(speed_percentages(CaseView(*made), 20.0, 4.0)[0]) == 0
    assert of(on_route(0.8, SPOILED), "b2d_efficiency") is None


def test_checks_above_a_thousand_percent_are_dropped() -> None:
    """Q34: crawling traffic would otherwise decide the mean; faster than it is no shortfall either."""
    made = on_route(1.0, beside=1.9)  # 20 m/s, the other left behind after two seconds
    everything = speed_percentages(CaseView(*made), 20.0, 30.0)[0]
    assert everything == pytest.approx(np.full(len(everything), 100 * 20 / 1.9))
    assert of(made, "b2d_efficiency") is None
    assert of(made, "carla_ds_2_0") == pytest.approx(100)


@pytest.mark.parametrize(
    ("made", "name", "reason"),
    [
        (on_route(log_step=0.0), "carla_ds_2_0", "no_exposure"),
        (on_route(log_step=0.0), "b2d_success", "no_exposure"),
        (turning(0.1, steps=15), "b2d_smoothness", "too_short"),
        (on_route(1.0), "b2d_efficiency", "no_exposure"),
    ],
)
def test_missing_has_a_reason(made, name: str, reason: str) -> None:
    """Q3: a log that stood still is no route, and an empty road no traffic; neither is 0."""
    found = compute(*made, [name])[name]
    assert (found.value, found.reason) == (None, reason)


def test_a_route_that_was_not_finished_is_no_success() -> None:
    """Q34: 98 of 100 m without an infraction are no success, 99 are: the last metre is the goal's radius."""
    assert of(on_route(0.98), "b2d_success") == 0
    assert of(on_route(0.991), "b2d_success") == 1


def test_a_scene_without_a_road_has_no_driving_score() -> None:
    """Q3: nobody leaves a road that is not there, and 100 would flatter."""
    t = np.arange(11.0)
    scene = scene_of([car(x=t)])
    made = trace_of(scene, {"x": t[None], "speed": 10.0}), scene
    assert compute(*made, ["carla_ds_2_0"])["carla_ds_2_0"].reason == "no_map"


def test_corrected_and_published_smoothness_differ() -> None:
    """Q34: one trace, 0.1 rad/s: inside 0.95 rad/s, and 5.7 degrees per second compared with 0.95 is not."""
    made = turning(0.1)
    assert of(made, "b2d_smoothness") == 1
    assert of(made, "b2d_smoothness_compat") == 0


def test_published_yaw_acceleration_is_a_yaw_rate() -> None:
    """Q34: a steady turn of 0.01 rad/s has no yaw acceleration; the published one is 0.573, its rate in degrees."""
    zero, heading = np.zeros(40), 0.001 * np.arange(40)
    corrected, published = (
        smoothness_series(zero, zero, heading, 0.1, 7, compat=compat)["yaw_acceleration"] for compat in (False, True)
    )
    assert corrected == pytest.approx(np.zeros(40), abs=1e-9)
    assert published == pytest.approx(np.full(40, 0.5729578))


# -- tables -------------------------------------------------------------------------------------------------------

ROUTES = ["r0", "r1", "r2", "r3"]
RESULTS = {
    "r0": RouteResult(100.0, True, 120.0, 0.5),
    "r1": RouteResult(60.0, False, None, 0.7),
    "r2": RouteResult(80.0, True, 80.0, None),
}
CLASSES = {"merging": ["r0", "r1"], "traffic_signs": ["r2"], "give_way": ["r3"]}


def test_missing_routes_count_zero() -> None:
    """Q34: 240 over four routes, of which three were driven, is 60, not 80; spread with n - 1 = 3."""
    table = b2d_table(ROUTES, RESULTS, CLASSES)
    assert (table["routes"], table["missing"]) == (4, 1)
    assert table["driving_score"] == 60
    assert table["driving_score_spread"] == pytest.approx(np.sqrt((40**2 + 0 + 20**2 + 60**2) / 3))
    assert table["success_rate"] == 0.5
    assert table["efficiency"] == 100
    assert table["smoothness"] == pytest.approx(0.6)


def test_ability_is_the_mean_of_the_classes() -> None:
    """Q34: 1/2, 1/1 and 0/1 are 0.5; as published the signs enter twice: (0.5 + 1 + 0 + 1) / 4 = 0.625."""
    assert b2d_table(ROUTES, RESULTS, CLASSES)["abilities"] == {"merging": 0.5, "traffic_signs": 1.0, "give_way": 0.0}
    assert b2d_table(ROUTES, RESULTS, CLASSES)["ability"] == 0.5
    assert b2d_table(ROUTES, RESULTS, CLASSES, compat=True)["ability"] == 0.625
    assert set(CLASSES) < set(ABILITIES)


def test_foreign_routes_are_refused() -> None:
    """A result of a route that is not in the benchmark would be lost silently, and raise nothing else."""
    with pytest.raises(UsageError, match="routes r9"):
        b2d_table(ROUTES, RESULTS | {"r9": RouteResult(1.0, False)}, {})
    with pytest.raises(UsageError, match="expected routes"):
        b2d_table([], {}, {})


def test_spread_has_n_minus_one() -> None:
    """Q33: [60, 100] spread by 28.28, not 20; one route has none."""
    assert spread([60.0, 100.0]) == pytest.approx(28.284271)
    assert spread([60.0]) is None


def test_a_stop_sign_costs_a_fifth_in_both_families() -> None:
    """Q33, Q34: the factor reaches the registry line, from the bit of the trace."""
    made = on_route(1.0, [(10, STOP)])
    assert of(made, "b2d_driving_score") == pytest.approx(80)
    assert of(made, "carla_ds_2_1") == pytest.approx(100 / 1.25)
