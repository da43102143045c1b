"""The realism score as a whole: hand values, what moves it, what must not, and what makes it missing (Q21, Q25 to
Q29)."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise

import numpy as np
import pytest
from rollout_world import no_lights, repeated, square_edges, straight, world

from skidpad.errors import ProtocolError, UsageError
from skidpad.evaluation.metrics.realism import (
    CONFIGURATIONS,
    FEATURES,
    RealismResult,
    compare,
    data_set_mean,
    realism,
    score,
)
from skidpad.evaluation.metrics.realism_context import (
    BASELINES,
    baseline_rollouts,
    log_as_simulation,
    realism_in_context,
    split_half,
)
from skidpad.evaluation.metrics.realism_features import validity
from skidpad.evaluation.metrics.realism_peer import puffer_realism
from skidpad.evaluation.rollouts import (
    POSE,
    Log,
    Rollouts,
    Task,
    check_rollouts,
    make_edges,
    make_lights,
    make_log,
    make_rollouts,
)


def of_world(seed: int = 0, year: str = "2025", **more) -> RealismResult:
    case, rollouts = world(seed, **more)
    return realism(rollouts, case.log, case.edges, case.lights, year)


def test_a_perfect_log_by_hand() -> None:
    """Q28: cars at constant speed, 32 times: the undefined last rows cost 1 and 2 of 80 samples. With ten bins (2023)
    2528.1/2561 for the speeds, 2496.1/2561 for the accelerations, kinematic bucket 0.98091; not 1."""
    log = make_log(**straight(3))
    found = realism(repeated(log), log, square_edges(), no_lights(), "2023")
    for feature, wanted in (("speed", 2528.1 / 2561), ("acceleration", 2496.1 / 2561)):
        assert found.likelihoods[f"linear_{feature}"] == pytest.approx(wanted, abs=1e-12)
        assert found.likelihoods[f"angular_{feature}"] == pytest.approx(wanted, abs=1e-12)
    assert found.buckets["kinematic"] == pytest.approx(0.98091, abs=5e-6)
    found = realism(repeated(log), log, square_edges(), no_lights(), "2025")
    assert found.likelihoods["angular_speed"] == pytest.approx(2528.1 / 2561.1, abs=1e-12)  # eleven bins
    assert found.likelihoods["collision_indication"] == pytest.approx(32.001 / 32.002)
    assert found.rates == {"collision_indication": 0, "offroad_indication": 0, "traffic_light_violation": 0}
    assert found.value is not None
    assert 0.99 < found.value < 1


@pytest.mark.parametrize("year", CONFIGURATIONS)
def test_more_log_more_likely(year: str) -> None:
    """Issue 8: with 0, 1, 2, 8, 16, 32 of 32 rollouts replaced by the log every likelihood rises, and the score with
    them."""
    case, rollouts = world(3)
    log = dataclasses.replace(case.log, valid=np.ones_like(case.log.valid))
    swapped = repeated(log)
    results = []
    for count in (0, 1, 2, 8, 16, 32):
        poses = [np.concatenate([getattr(swapped, a)[:count], getattr(rollouts, a)[count:]]) for a in POSE]
        results.append(realism(Rollouts(log.object_id, *poses), log, case.edges, case.lights, year))
    for feature in results[0].likelihoods:
        series = [result.likelihoods[feature] for result in results]
        assert all(b >= a - 1e-12 for a, b in pairwise(series)), feature
        # An event that nobody ever has, in log or rollouts, is as likely from the start.
        assert series[-1] > series[0] or feature in {"collision_indication", "traffic_light_violation"}, feature
    values = [result.value for result in results]
    assert values == sorted(values)


def test_moving_the_world_changes_nothing() -> None:
    """A rigid motion of everything leaves each likelihood; what is left is float32 of the moved coordinates, which can
    carry single samples over a bin edge (one of 2,560 is 4e-4)."""
    still = of_world(2)
    for turn, shift in ((0.7, (100.0, -40.0, 3.0)), (np.pi, (0.0, 0.0, 0.0)), (-2.0, (-300.0, 500.0, -20.0))):
        moved = of_world(2, turn=turn, shift=shift)
        for feature in FEATURES:
            assert moved.likelihoods[feature] == pytest.approx(still.likelihoods[feature], abs=2e-3), feature
        assert moved.value == pytest.approx(still.value, abs=1e-3)
        assert moved.min_ade == pytest.approx(still.min_ade, abs=1e-3)


def test_order_of_objects_and_rollouts_changes_nothing() -> None:
    """Objects and rollouts are sets: only the order of additions may differ."""
    plain = of_world(4)
    assert of_world(4, order=[5, 3, 0, 1, 4, 2]).value == pytest.approx(plain.value, abs=1e-12)
    case, rollouts = world(4)
    shuffled = rollouts.select(np.random.default_rng(0).permutation(32))
    assert realism(shuffled, case.log, case.edges, case.lights).value == plain.value
    # Rollouts may name their objects in another order than the log does.
    back = [5, 4, 3, 2, 1, 0]
    other = make_rollouts(rollouts.object_id[back], *(getattr(rollouts, a)[:, back] for a in POSE))
    assert realism(other, case.log, case.edges, case.lights).value == plain.value


def test_scoring_writes_nothing_to_its_input() -> None:
    """Q1: twice the same bytes, and the caller's arrays as they were."""
    case, rollouts = world(5)
    before = [getattr(rollouts, a).copy() for a in POSE] + [case.log.x.copy(), case.log.valid.copy()]
    first = realism(rollouts, case.log, case.edges, case.lights)
    assert realism(rollouts, case.log, case.edges, case.lights) == first
    after = [getattr(rollouts, a) for a in POSE] + [case.log.x, case.log.valid]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_invalid_rows_of_the_log_are_never_read() -> None:
    """Q25: whatever a file holds where the log is invalid (-10000, the last pose, NaN) scores the same; filled with
    the last pose a collision likelihood of 1.00 once became 0.07."""
    case, rollouts = world(6)
    log = case.log
    fields = {f.name: getattr(log, f.name) for f in dataclasses.fields(log)}
    for filler in (-10000.0, np.nan, 1e30):
        filled = make_log(**fields | {a: np.where(log.valid, getattr(log, a), filler) for a in POSE})
        assert realism(rollouts, filled, case.edges, case.lights) == of_world(6)


def test_validity_comes_from_the_log_for_the_simulation_too() -> None:
    """Q25: a simulated contact at rows where the log has nothing does not count; at one valid row it does."""
    fields = straight(2, apart=10.0)
    fields["valid"][0, 50:] = 0
    log = make_log(**fields)
    rollouts = repeated(log)
    y = rollouts.y.copy()
    y[:, 1, 39:] = 0  # row 50 on: on top of object 0
    x = np.repeat(rollouts.x[:, 1:], 2, axis=1)
    late = Rollouts(log.object_id, x, y, rollouts.z, rollouts.heading)
    found = realism(late, log, square_edges(), no_lights())
    assert found.rates["collision_indication"] == 0.5  # object 1, whose log is whole
    y[:, 1, 38:] = 0
    assert realism(late, log, square_edges(), no_lights()).rates["collision_indication"] == 1


def test_what_is_missing_is_no_zero() -> None:
    """Q3, Q27: no edges, lights that the format cannot carry, no row to compare, no vehicle: terms and score are
    absent with a reason, other terms stay, and no weight moves to them."""
    case, rollouts = world(7)
    whole = realism(rollouts, case.log, case.edges, case.lights)
    for edges, lights, reason, gone in (
        (None, case.lights, "no_map", {"distance_to_road_edge", "offroad_indication"}),
        (make_edges(np.zeros((0, 2)), [0]), case.lights, "no_map", {"distance_to_road_edge", "offroad_indication"}),
        (case.edges, None, "no_signal", {"traffic_light_violation"}),
    ):
        found = realism(rollouts, case.log, edges, lights)
        assert (found.value, found.reason) == (None, reason)
        assert {name for name, value in found.likelihoods.items() if value is None} == gone == set(found.reasons)
        assert found.buckets["map_based"] is None
        assert found.buckets["kinematic"] == whole.buckets["kinematic"]
        assert found.rates["offroad_indication" if reason == "no_map" else "traffic_light_violation"] is None
    valid = case.log.valid.copy()
    valid[:, 11:] = False
    nothing = realism(rollouts, dataclasses.replace(case.log, valid=valid), case.edges, case.lights)
    assert (nothing.value, nothing.reason) == (None, "too_short")
    assert set(nothing.likelihoods.values()) == {None}
    walkers = dataclasses.replace(case.log, object_type=np.full_like(case.log.object_type, 2))
    found = realism(rollouts, walkers, case.edges, case.lights)
    assert (found.value, found.reason) == (None, "not_applicable")
    assert {name for name, value in found.likelihoods.items() if value is None} == {
        "time_to_collision",
        "traffic_light_violation",
    }


def test_a_map_without_lights_violates_none() -> None:
    """Q27: where a format carries lights and the map has none the term counts, as in the oracle scenes."""
    case, rollouts = world(7)
    found = realism(rollouts, case.log, case.edges, no_lights())
    assert found.likelihoods["traffic_light_violation"] == pytest.approx(32.001 / 32.002)


def test_red_light_by_hand() -> None:
    """Q22: the centre passes the stop point while the lane shows stop: not after green, not on a freeway, not on the
    lane beside, not backwards, and not at a flashing light (which is no `stop`)."""
    fields = straight(4, apart=20.0, speed=10.0)
    fields["x"] = fields["x"].copy()
    fields["x"][3] = fields["x"][3][::-1]
    log = make_log(**fields)

    def rows(red: slice, *, street: bool = True, y: float = 0.0) -> np.ndarray:
        stop = np.zeros((91, 1), dtype=bool)
        stop[red] = True
        points = [(-10, y), (200, y), (-10, 20), (200, 20)]
        lights = make_lights(points, [0, 2, 4], [street, True], [0], [(50.05, y)], stop)
        found = compare(Task(repeated(log, 1), log, ()), None, lights).simulated.traffic_light_violation
        assert found is not None
        return found[0]

    # Car 0 reaches x = 51 at row 51, the first one beyond the stop point: column 51 - 11.
    wanted = np.zeros((4, 80), dtype=bool)
    wanted[0, 40] = True
    assert np.array_equal(rows(slice(0, 91)), wanted)
    assert np.array_equal(rows(slice(51, 52)), wanted)
    assert not rows(slice(0, 51)).any()
    assert not rows(slice(0, 91), street=False).any()
    assert not rows(slice(0, 91), y=3.0)[1].any()


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda log, r: (r.select(slice(0, 31)), log), "31 rollouts instead of 32"),
        (lambda log, r: (cut(r, 79), log), "79 simulated rows instead of 80"),
        (lambda log, r: (r, shorter(log, 60)), "60 rows of log instead of 91"),
        (lambda log, r: (without(r, 1), log), "not simulated: 10"),
        (lambda log, r: (r, gone_now(log, 1)), "not valid now: 10"),
        (lambda log, r: (r, dataclasses.replace(log, dt_us=40_000)), "a step of 40000 us"),
    ],
)
def test_what_is_not_the_standard_task_is_refused(broken, message: str) -> None:
    """Q21: unless the run is marked; then the result says what is unusual, so nobody compares it with published
    values."""
    case, whole = world(8)
    rollouts, log = broken(case.log, whole)[0], broken(case.log, whole)[1]
    with pytest.raises(ProtocolError, match=message):
        realism(rollouts, log, case.edges, case.lights)
    found = realism(rollouts, log, case.edges, case.lights, not_standard=True)
    assert any(message in text for text in found.not_standard)
    assert found.value is not None


def cut(rollouts: Rollouts, rows: int) -> Rollouts:
    return Rollouts(rollouts.object_id, *(getattr(rollouts, a)[:, :, :rows] for a in POSE))


def shorter(log: Log, rows: int) -> Log:
    return dataclasses.replace(log, **{a: getattr(log, a)[:, :rows] for a in (*POSE, "valid")})


def without(rollouts: Rollouts, n: int) -> Rollouts:
    keep = [k for k in range(len(rollouts.object_id)) if k != n]
    return Rollouts(rollouts.object_id[keep], *(getattr(rollouts, a)[:, keep] for a in POSE))


def gone_now(log: Log, n: int) -> Log:
    valid = log.valid.copy()
    valid[n, 10] = False
    return dataclasses.replace(log, valid=valid)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros((2, 3))}, "x: shape"),
        ({"heading": np.zeros((32, 6, 79))}, "F = 80"),
        ({"z": np.full((32, 6, 80), np.nan)}, "not finite"),
        ({"y": np.full((32, 6, 80), 2e5)}, "local frame"),
        ({"x": [["a"]]}, "expected at most"),
        ({"x": [[1.0], [1.0, 2.0]]}, "rectangular"),
        ({"object_id": [0.5] * 6}, "whole numbers"),
    ],
)
def test_arrays_that_cannot_be_rollouts(change: dict, message: str) -> None:
    """Rollouts of different lengths, NaN, coordinates that float32 cannot carry, text: refused at the door, by name."""
    _, rollouts = world(0)
    fields = {"object_id": rollouts.object_id, **{a: getattr(rollouts, a) for a in POSE}}
    with pytest.raises(ProtocolError, match=message):
        make_rollouts(**fields | change)


def test_ids_that_occur_twice_and_nothing_to_score() -> None:
    """An id is the only thing that ties a trajectory to its log."""
    case, rollouts = world(0)
    twice = dataclasses.replace(rollouts, object_id=np.array([3, 3, 17, 24, 31, 38]))
    with pytest.raises(ProtocolError, match="occurs twice"):
        realism(twice, case.log, None, None, not_standard=True)
    nobody = dataclasses.replace(case.log, scored=np.zeros(0, dtype=np.int32))
    with pytest.raises(ProtocolError, match="nothing to score"):
        realism(rollouts, nobody, None, None)
    with pytest.raises(UsageError, match="unknown year '2026'"):
        realism(rollouts, case.log, None, None, "2026")


def test_the_light_switch_is_named_in_the_result() -> None:
    """Q24: a score with the official search says so, and does not share a mean with others."""
    case, rollouts = world(9)
    ours = realism(rollouts, case.log, case.edges, case.lights)
    theirs = realism(rollouts, case.log, case.edges, case.lights, official_light=True)
    assert (ours.official_light, theirs.official_light) == (False, True)
    with pytest.raises(UsageError, match="2 kinds of realism results"):
        data_set_mean([ours, theirs])


def test_mean_over_scenes() -> None:
    """Q27, Q29: the plain mean over scenes with a score; dropped scenes are counted by reason, never as 0."""
    case, rollouts = world(9)
    good = [of_world(seed) for seed in (0, 1)]
    gone = realism(rollouts, case.log, None, case.lights)
    assert data_set_mean([*good, gone]) == (pytest.approx((good[0].value + good[1].value) / 2), {"no_map": 1})
    assert data_set_mean([gone]) == (None, {"no_map": 1})
    with pytest.raises(UsageError):
        data_set_mean([good[0], of_world(0, "2024")])


def test_context_leaves_nothing_out() -> None:
    """Q29: log, hold-last log, stationary, constant velocity and random, diversity, halves and simulated rates stand
    beside every score; the result is plain JSON."""
    case, rollouts = world(1)
    found = realism_in_context(rollouts, case.log, case.edges, case.lights, "2025")
    assert tuple(found.baselines) == BASELINES == ("log", "log_hold_last", "stationary", "constant_velocity", "random")
    assert all(result.value is not None for result in found.baselines.values())
    assert found.result == of_world(1)
    assert found.diversity is not None
    assert found.halves is not None
    record = json.loads(json.dumps(found.as_record(), allow_nan=False))
    assert record["result"]["value"] == found.result.value
    assert set(record["result"]["rates"]) == {"collision_indication", "offroad_indication", "traffic_light_violation"}
    again = realism_in_context(rollouts, case.log, case.edges, case.lights, "2025")
    assert again == found
    other = realism_in_context(rollouts, case.log, case.edges, case.lights, "2025", seed=1)
    assert other.baselines["random"] != found.baselines["random"]
    assert other.baselines["stationary"] == found.baselines["stationary"]


def test_baselines_by_hand() -> None:
    """Q29: a car at 10 m/s whose log ends at row 50: held there; parked at row 10; 1 m a row; and stationary where the
    row before now is not known."""
    fields = straight(2)
    fields["valid"][0, 51:] = 0
    fields["valid"][1, 9] = 0
    log = make_log(**fields)
    made = baseline_rollouts(Task(repeated(log, 4), log, ()))
    hold = made["log_hold_last"].x[0]
    assert hold[0, [0, 39, 40, 79]].tolist() == [11, 50, 50, 50]
    assert hold[1, 79] == 90
    assert np.all(made["stationary"].x[0, 0] == 10)
    assert np.allclose(made["constant_velocity"].x[0, 0], np.arange(11, 91))
    assert np.all(made["constant_velocity"].x[0, 1] == 10)
    random = made["random"]
    assert random.x.shape == (4, 2, 80)
    strides = np.hypot(np.diff(random.x[:, 0]), np.diff(random.y[:, 0]))
    assert np.all((strides > 0.59) & (strides < 1.41))
    # One stream per object: another object beside it does not change the draws.
    alone = baseline_rollouts(
        check_rollouts(repeated(make_log(**one_of(fields)), 4), make_log(**one_of(fields)), not_standard=True)
    )
    assert np.array_equal(alone["random"].x[:, 0], random.x[:, 0])


def one_of(fields: dict) -> dict:
    return {name: [0] if name == "scored" else np.asarray(array)[:1] for name, array in fields.items()}


def test_the_log_against_itself() -> None:
    """Q29: the log's features in the place of every rollout is the ceiling, below 1, and not the hold-last log: that
    one differs where tracks end."""
    case, rollouts = world(2)
    compared = compare(check_rollouts(rollouts, case.log), case.edges, case.lights)
    ceiling = score(log_as_simulation(compared), "2025")
    assert ceiling.value is not None
    assert 0.6 < ceiling.value < 1
    assert ceiling.min_ade == 0
    assert ceiling.value > score(compared, "2025").value


def test_halves_are_the_even_and_the_odd_rollouts() -> None:
    """Q29: the spread over rollouts; equal rollouts have equal halves."""
    case, rollouts = world(2)
    compared = compare(check_rollouts(rollouts, case.log), case.edges, case.lights)
    halves = split_half(compared, "2025")
    even = realism(rollouts.select(slice(0, None, 2)), case.log, case.edges, case.lights, not_standard=True)
    assert halves is not None
    assert halves[0].value == even.value
    assert halves[0].value != halves[1].value
    one = compare(check_rollouts(rollouts.select([0]), case.log, not_standard=True), case.edges, case.lights)
    assert split_half(one, "2025") is None


def test_the_peers_value() -> None:
    """Q31: flat, without lights, over .95; heights and lights change nothing, and one wrong object costs less than in
    ours."""
    case, rollouts = world(3)
    found = puffer_realism(rollouts, case.log, case.edges, case.lights)
    assert found.value == pytest.approx(
        (0.20 * found.buckets["kinematic"] + 0.45 * found.buckets["interactive"] + 0.30 * found.buckets["map_based"])
        / 0.95
    )
    lifted = dataclasses.replace(rollouts, z=rollouts.z + np.linspace(0, 3, 80, dtype=np.float32))
    assert puffer_realism(lifted, case.log, case.edges) == found
    assert puffer_realism(rollouts, case.log, None).reason == "no_map"
    fields = straight(4, apart=20.0)
    log = make_log(**fields)
    crash = repeated(log)
    crash.y[:, 1] = 3.0
    crash.y[:, 0] = 1.5
    theirs = puffer_realism(crash, log, square_edges())
    ours = realism(crash, log, square_edges(), no_lights())
    assert theirs.value > ours.value + 0.05


def test_validity_of_a_log_with_a_hole() -> None:
    """Q25: a speed needs the rows on both sides, not its own; an acceleration needs two such speeds; both ends are
    never compared although history exists."""
    fields = straight(1)
    fields["valid"][0, 11 + 5] = 0
    valid = validity(make_log(**fields))
    assert np.flatnonzero(~valid.present[0]).tolist() == [5]
    assert np.flatnonzero(~valid.speed[0]).tolist() == [0, 4, 6, 79]
    assert np.flatnonzero(~valid.acceleration[0]).tolist() == [0, 1, 3, 5, 7, 78, 79]
