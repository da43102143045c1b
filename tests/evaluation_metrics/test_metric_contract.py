"""What holds for all metrics: when values are missing, what an active step is, how agents are summed, identity."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from driving import car, lane, scene_of, trace_of
from hand_worked import HAND, STRAIGHT, events, goals, moving, one

from skidpad.artifacts.digests import digest_value
from skidpad.errors import CaseError, ProtocolError, UsageError
from skidpad.evaluation.metrics import registry
from skidpad.evaluation.metrics.registry import METRICS, MetricValue, compute, metric_spec_digest
from skidpad.evaluation.metrics.view import REASONS, measured
from skidpad.scenes.events import Controller, Event, Status
from skidpad.scenes.scene import TYPE_CYCLIST


def value(trace_and_scene, name: str) -> MetricValue:
    return compute(*trace_and_scene, [name])[name]


def bare(arrays=None, **more):
    """One car in a scene without map, signals or log beyond the first row."""
    scene = scene_of([car(valid=[True, False, False])])
    return trace_of(scene, arrays or {}, **more), scene


@pytest.mark.parametrize(
    ("name", "made", "reason"),
    [
        ("offroad_rate", bare(), "no_map"),
        ("offroad_time", bare(), "no_map"),
        ("red_light_rate", bare(), "no_signal"),
        ("stop_sign_rate", bare(), "no_signal"),
        ("yield_failure_rate", bare(), "no_signal"),
        ("lane_offset", bare(), "no_lane"),
        ("wrong_way_distance", bare(), "no_lane"),
        ("velocity_progress", one({"lane": -1}), "no_lane"),
        ("at_fault_collision_rate", bare(), "no_lane"),
        ("overspeed", bare(), "no_lane"),
        ("ade_log", bare(), "no_log"),
        ("fde_log", bare(), "no_log"),
        ("progress_ratio", bare(), "no_log"),
        ("progress_ratio", one({}, steps=4), "no_exposure"),  # the log itself stands still
        ("comfort_nuplan", one({}, steps=3), "too_short"),
        ("score", one({}, goals=0), "not_applicable"),
        ("goal_rate", one({}, goals=0), "not_applicable"),
        ("distance_per_infraction", moving(), "no_exposure"),
        ("infractions_per_km", one({}), "no_exposure"),
        ("avg_speed", one({"status": Status.ABSENT}), "no_exposure"),
        ("collision_rate", one({"status": Status.ABSENT}), "no_exposure"),
    ],
)
def test_missing_is_not_zero(name: str, made, reason: str) -> None:
    """Q3, EF23: each reason; a value that could not be measured must not be read as a good one."""
    found = value(made, name)
    assert (found.valid, found.value, found.reason) == (False, None, reason)


def test_limit_that_no_lane_states_is_missing() -> None:
    """Q3: the peer assumed 15 m/s silently."""
    scene = scene_of([car()], [lane([(0, 0), (200, 0)])])
    assert value((trace_of(scene, {"lane": 0, "speed": 30.0}), scene), "overspeed").reason == "no_limit"


def test_no_agents_under_test_is_not_applicable() -> None:
    """Q3, EF23: 0 of 0 must not divide; every metric but the joint one says so."""
    scene = scene_of([car()], [STRAIGHT])
    found = compute(trace_of(scene, scored=[]), scene)
    assert {name for name, item in found.items() if item.valid} == {"episode_length"}
    assert {item.reason for item in found.values() if not item.valid} == {"not_applicable"}


def test_actions_of_agents_without_a_policy_are_not_applicable() -> None:
    """Q3: a baseline that follows the log clips nothing; 0 % would flatter it."""
    made, scene = one({})
    arrays = dict(made.arrays)
    arrays |= {name: arrays[name][:, :, :0] for name in ("action", "action_applied", "action_clipped")}
    arrays["policy_agent"] = arrays["policy_agent"][:0]
    trace = dataclasses.replace(made, arrays=arrays)
    assert value((trace, scene), "clipped_actions").reason == "not_applicable"


def test_cyclists_are_not_judged_by_a_cars_turning_circle() -> None:
    """A cyclist turns on the spot; calling that infeasible would be our mistake."""
    scene = scene_of([car(type=TYPE_CYCLIST)])
    assert value((trace_of(scene), scene), "infeasible_rate").reason == "not_applicable"


@pytest.mark.parametrize(("mode", "valid"), [("edges", False), ("area", True), ("auto", True)])
def test_off_road_needs_what_its_mode_measures(mode: str, valid: bool) -> None:
    """Lanes without edges: `edges` cannot see anybody leave the road, and must not say that nobody did."""
    scene = scene_of([car()], [STRAIGHT])
    assert value((trace_of(scene, settings={"offroad": mode}), scene), "offroad_rate").valid is valid


def test_stopped_time_is_not_driven() -> None:
    """Q4, S68: the peer divides by all steps; stopped in step 10 of 100 the mean is over 10, and what happened in that
    step still counts while later events do not."""
    status = np.full((1, 101), Status.STOPPED)
    status[:, :10] = Status.ACTIVE
    happened = events(1, 100, (0, 10, int(Event.COLLISION_VEHICLE)), (0, 50, int(Event.OFFROAD)))
    speed = np.zeros((1, 101))
    speed[:, :10], speed[:, 10] = 8.0, 3.0
    made = one({"status": status, "events": happened, "speed": speed, "x": np.arange(101.0)[None]})
    assert value(made, "avg_speed").value == pytest.approx((9 * 8 + 3) / 10)
    assert value(made, "collision_rate").value == 1
    assert value(made, "offroad_rate").value == 0
    assert value(made, "distance").value == 10
    assert value(made, "active_time").value == pytest.approx(1.0)
    assert value(made, "episode_length").value == 100


def test_the_end_of_a_log_is_not_a_journey_to_the_origin() -> None:
    """Agents without a body stand at 0; a replayed car that leaves at 500 m must not be charged 500 m, nor a stop."""
    status = [[Status.ACTIVE, Status.ACTIVE, Status.ABSENT, Status.ABSENT]]
    made = one({"x": [[499, 500, 0, 0]], "speed": [[10, 10, 0, 0]], "status": status})
    assert value(made, "distance").value == 1
    assert value(made, "avg_speed").value == 10
    assert value(made, "stationary_share").value == 0


def test_removed_agents_keep_the_events_of_their_last_step() -> None:
    """The step of the crash was driven; its motion is unknown, since there is no body at its end."""
    status = [[Status.ACTIVE, Status.ACTIVE, Status.REMOVED]]
    happened = events(1, 2, (0, 2, int(Event.COLLISION_VEHICLE)))
    made = one({"status": status, "events": happened, "x": [[10, 11, 0]]})
    assert value(made, "collision_rate").value == 1
    assert value(made, "distance").value == 1


def test_events_in_one_step_are_all_kept() -> None:
    """Q6: the peer stops at the first of off-road, collision, red light and stop sign, so rates hide each other."""
    bits = int(Event.COLLISION_VEHICLE | Event.OFFROAD | Event.RED_LIGHT | Event.STOP_SIGN)
    found = compute(*one({"events": events(1, 2, (0, 1, bits))}))
    for name in ("collision_rate", "offroad_rate", "red_light_rate", "stop_sign_rate"):
        assert found[name].value == 1
    assert found["infraction_events"].value == 4


def test_values_do_not_depend_on_the_step_length() -> None:
    """Q7: one analytic motion (a steady turn at 10 m/s with a lateral offset that grows) at dt 0.1 and 0.3 s."""
    found = []
    for dt_us in (100_000, 300_000):
        t = np.arange(0, 18.0001, dt_us * 1e-6)
        turn = 0.2 * t
        scene = scene_of([car()], [STRAIGHT])
        made = trace_of(
            scene,
            {
                "x": 50 * np.sin(turn)[None],
                "y": 50 * (1 - np.cos(turn))[None],
                "heading": ((turn + np.pi) % (2 * np.pi) - np.pi)[None],
                "speed": 10.0,
                "accel_lat": 2.0,
                "accel_long": np.sin(t)[None],
                "lane": 0,
                "lane_offset": 0.1 * t[None],
            },
            dt_us=dt_us,
        )
        found.append(compute(made, scene))
    for name in (
        "distance",
        "avg_speed",
        "lane_offset",
        "active_time",
        "comfort_rate",
        "comfort_nuplan",
        "infeasible_rate",
    ):
        a, b = found[0][name].value, found[1][name].value
        # Chords of 0.6 rad are 1.5 % shorter than their arc; means over step ends shift by half a step in 18 s.
        assert a == pytest.approx(b, rel=0.02), name


def test_agents_are_summed_and_exposure_is_kept_apart() -> None:
    """Q4, Q5: two cars, 10 m with two infractions and 20 m with none: 0.5 infraction cars of two, and 2 / 0.03 km."""
    scene = scene_of([car(), car()], [STRAIGHT], edges=True)
    x = np.array([2.0, 4.0])[:, None] * np.arange(6) + [[0.0], [100.0]]
    bits = events(2, 5, (0, 2, int(Event.OFFROAD | Event.RED_LIGHT)))
    found = compute(trace_of(scene, {"x": x, "speed": [[20.0], [40.0]], "events": bits}), scene)
    assert found["infraction_rate"][:2] == (1, 2)
    assert found["distance"][:2] == (30, 2)
    assert found["infractions_per_km"][:2] == pytest.approx((2, 0.03))
    assert found["distance_per_infraction"][:2] == (30, 2)


def test_exposure_without_events_keeps_its_metres() -> None:
    """Sums over cases need the metres of cases without an infraction: dropped, the mean distance would be far too
    short."""
    found = value(moving(), "distance_per_infraction")
    assert found == MetricValue(10.0, 0.0, False, "no_exposure")


def test_invalid_agents_do_not_weigh() -> None:
    """Q3: means are over valid agents only: 0.4 m on a lane, and one car off every lane."""
    scene = scene_of([car(), car()], [STRAIGHT])
    trace = trace_of(scene, {"lane": [[0], [-1]], "lane_offset": [[0.4], [0.0]], "x": [[0.0], [50.0]]})
    assert value((trace, scene), "lane_offset") == MetricValue(pytest.approx(0.4), 1.0, True, None)


def test_outcomes_partition() -> None:
    """Q41: score, partial, dnf and infraction sum to 1 for every outcome."""
    for made in (goals(3), goals(1), goals(0), goals(3, bits=int(Event.OFFROAD)), goals(0, bits=int(Event.RED_LIGHT))):
        found = compute(*made, ["score", "partial_rate", "dnf_rate", "infraction_rate"])
        assert sum(item.value for item in found.values()) == 1


def test_record_round_trip_is_json() -> None:
    """NaN must never reach a record: JSON would turn it into null and somebody into 0."""
    for name, item in compute(*one({}, steps=4)).items():
        line = json.dumps(item.as_record(), allow_nan=False)
        assert MetricValue.from_record(json.loads(line)) == item, name


def test_same_value_in_any_order_and_selection() -> None:
    """Q1: metrics share a view; one that writes to it would change the others."""
    trace, scene = HAND["at_fault_collision_rate"]()[:2]
    everything = compute(trace, scene)
    before = trace.digest
    for name in reversed(METRICS):
        assert compute(trace, scene, [name])[name] == everything[name]
    assert digest_value(before, "t") == digest_value(dataclasses.replace(trace).digest, "t")


def test_value_outside_its_range_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Q2, EF22: a rate of 1.5 names metric and agent instead of entering a mean."""
    broken = dataclasses.replace(METRICS["avg_speed"], function=lambda view: measured(np.array([-1.0])))
    monkeypatch.setattr(registry, "METRICS", {"avg_speed": broken})
    with pytest.raises(CaseError, match="avg_speed/1 of agent 0 in case hand is -1"):
        compute(*one({}))


def test_nan_never_leaves_a_metric() -> None:
    """Q3, EF22: a state that is not finite fails the case; a NaN mean would be read as missing later on."""
    made = one({"speed": [[0, np.nan, 1]]})
    with pytest.raises(CaseError, match="avg_speed"):
        compute(*made, ["avg_speed"])


def test_unknown_metric_names_the_nearest() -> None:
    """F1: a misspelt metric is refused, not skipped."""
    with pytest.raises(UsageError, match="did you mean 'collision_rate'"):
        compute(*one({}), ["colision_rate"])


def test_wrong_scene_several_rollouts_and_foreign_agents_are_refused() -> None:
    """A trace scored in another scene gives plausible numbers; so does the first of many rollouts."""
    trace, scene = one({})
    other = scene_of([car(x=1.0)])
    with pytest.raises(ProtocolError, match="recorded in scene"):
        compute(trace, other)
    twice = {name: np.concatenate([a, a]) if a.ndim > 1 else a for name, a in trace.arrays.items()}
    with pytest.raises(ProtocolError, match="2 rollouts"):
        compute(dataclasses.replace(trace, arrays=twice), scene)
    wide = {name: np.repeat(a, 2, axis=2) if name == "x" else a for name, a in trace.arrays.items()}
    with pytest.raises(ProtocolError, match="2 agents in the trace, 1 tracks"):
        compute(dataclasses.replace(trace, arrays=wide), scene)


def test_spec_digest_follows_meaning_and_not_wording() -> None:
    """Q42: a changed threshold or version is another metric; order and reading aids are not."""
    before = metric_spec_digest(["score", "comfort_rate"])
    assert before == metric_spec_digest(["comfort_rate", "score"])
    line = METRICS["comfort_rate"]
    for change, same in (
        ({"parameters": {**line.parameters, "jerk": 6.0}}, False),
        ({"version": 2}, False),
        ({"aid": "other words"}, True),
    ):
        changed = registry.digest_of([dataclasses.replace(line, **change), METRICS["score"]])
        assert (changed == before) is same, change


def test_registry_lines_are_complete() -> None:
    """Q2, Q43: units, needs and reading aids are what pages print; an empty one is a hole in a table."""
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.unit
        assert metric.aid
        assert "\n" not in metric.aid
        assert metric.range[1] is None or metric.range[0] < metric.range[1]
        assert set(metric.needs) <= {"map", "lanes", "limits", "signals", "log", "goals", "actions"}
        assert (metric.aggregation == "by_agent") == (metric.shape == "exposure")
    assert len(set(REASONS)) == len(REASONS)


def test_log_is_read_at_the_time_of_the_state() -> None:
    """S55, Q7: with steps of half a log row the log stands between two rows; with a start row it begins there."""
    log = car(x=np.arange(10.0) * 2)
    scene = scene_of([log])
    half = trace_of(scene, {"x": [[6.0, 7.0, 8.0, 9.0]]}, dt_us=50_000, start_row=3)
    assert value((half, scene), "ade_log").value == 0
    late = trace_of(scene, {"x": np.zeros((1, 4))}, start_row=8)  # rows 8, 9, then the log is over
    assert value((late, scene), "ade_log").value == 18


def test_progress_follows_a_route_that_crosses_itself() -> None:
    """A car on a figure that passes one point twice: the nearest place may be a lap away, the progress may not."""
    t = np.linspace(0, 2 * np.pi, 120)
    eight = np.stack([60 * np.sin(t), 40 * np.sin(2 * t)], axis=1)
    length = np.hypot(*np.diff(eight, axis=0).T).sum()
    scene = scene_of([car(x=eight[:, 0], y=eight[:, 1], route=[0])], [lane(eight)])
    half = eight[:61]
    trace = trace_of(scene, {"x": half[None, :, 0], "y": half[None, :, 1], "speed": 40.0}, steps=60)
    reference = np.hypot(*np.diff(half, axis=0).T).sum()
    assert 2 * reference == pytest.approx(length, rel=0.02)
    assert value((trace, scene), "progress_ratio").value == pytest.approx(1.0, abs=0.02)


def test_progress_counts_laps() -> None:
    """Twice round a spiral that widens by 0.5 m a lap, the agent all the time where the first lap is nearest: 1.5 of
    the log's 2 laps (and not 0.5) are 0.75, within the 2.5 % by which the outer lap is longer."""
    turn = np.linspace(0, 4 * np.pi, 161)
    circle = np.stack([np.sin(turn), -np.cos(turn)], axis=1)
    laps = circle * (20 + 0.5 * turn / (2 * np.pi))[:, None]
    scene = scene_of([car(x=laps[:, 0], y=laps[:, 1], route=[0])], [lane(laps)])
    x, y = np.pad(20 * circle[:121], ((0, 40), (0, 0)), mode="edge").T
    made = trace_of(scene, {"x": x[None], "y": y[None], "speed": 15.0})
    assert value((made, scene), "progress_ratio").value == pytest.approx(0.75, abs=0.02)


def test_progress_goes_on_past_the_end_of_the_route() -> None:
    """A route ends where the map does; the log may go on: 75 of 100 m with a lane of 50 m are 0.75, not 1."""
    scene = scene_of([car(x=np.linspace(0, 100, 41), route=[0])], [lane([(0, 0), (50, 0)])])
    made = trace_of(scene, {"x": np.linspace(0, 75, 41)[None], "speed": 25.0})
    assert value((made, scene), "progress_ratio").value == pytest.approx(0.75)


def test_jerk_needs_two_driven_steps() -> None:
    """S80: what stood in the acceleration before an agent (re)appeared is no jerk."""
    status = [[Status.ABSENT, Status.ACTIVE, Status.ACTIVE, Status.ACTIVE]]
    made = one({"status": status, "accel_long": [[0, 0, 2.5, 2.5]]})
    assert value(made, "comfort_violations").value == 0


def test_progress_without_a_route_is_path_length_and_never_negative() -> None:
    """Backwards along the route is no progress; without a route the path is all there is."""
    log = {"x": 2.0 * np.arange(6)}
    scene = scene_of([car(**log, route=[0])], [lane([(-50, 0), (50, 0)])])
    back = trace_of(scene, {"x": -np.arange(6.0)[None], "speed": 10.0})
    assert value((back, scene), "progress_ratio").value == 0
    free = scene_of([car(**log)])
    assert value((trace_of(free, {"x": -np.arange(6.0)[None], "speed": 10.0}), free), "progress_ratio").value == 0.5


def test_replayed_log_has_a_progress_of_one() -> None:
    """The reference row must be exactly 1, or every ratio is off by its error."""
    x = np.cumsum(np.linspace(0, 3, 40))
    scene = scene_of([car(x=x, route=[0])], [lane([(0, 0), (500, 0)])])
    made = trace_of(scene, {"x": scene.tracks.x, "speed": 20.0}, controller=Controller.REPLAY)
    assert value((made, scene), "progress_ratio").value == 1
    assert value((made, scene), "ade_log").value == 0
