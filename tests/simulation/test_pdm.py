"""The planner of proposals tries fifteen futures and drives the best one that stays on the road (S103)."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import car, case_of, history, simulator, straight_road

from skidpad.scenes.events import Event
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import EnvSettings, PdmSettings

STAY = EnvSettings(beyond_log="stay")
OFFSETS, FRACTIONS = (0.0, -1.0, 1.0), (1.0, 0.75, 0.5, 0.25, 0.01)
TOUCH = Event.COLLISION_VEHICLE | Event.COLLISION_STATIC | Event.COLLISION_VRU


def planned(scene, settings=STAY):
    """What the ego, track 0, plans in state 0: (scores (15,), accelerations (15,), the proposal it drives or -1,
    acceleration of its first step)."""
    sim = simulator(scene, settings, cases=[case_of(scene, ego=0)], substitute="pdm")
    sim.reset()
    before = float(sim.agent["speed"][0])
    sim.step(np.zeros((0, 2), np.float32))
    score, accel, looked_at = sim._scratch.held(0)["plan_scores"]
    driven = (float(sim.agent["speed"][0]) - before) / 0.1
    tried = np.flatnonzero(looked_at)
    chosen = int(tried[np.argmin(score[tried])]) if len(tried) else -1
    return score.astype(float), accel.astype(float), chosen, driven


# --------------------------------------------------------------------------------------------- a slow, obvious twin


def corners(x, y, heading, length, width):
    """(T, 4, 2) corners of a box whose centre is at (x, y), (T,) each."""
    along, aside = np.array([np.cos(heading), np.sin(heading)]), np.array([-np.sin(heading), np.cos(heading)])
    signs = np.array([(1, 1), (1, -1), (-1, -1), (-1, 1)]) / 2
    return np.stack([x, y], axis=1)[:, None] + signs[:, :1] * length * along + signs[:, 1:] * width * aside


def overlap(one, other):
    """(T,) bool: whether two moving boxes (T, 4, 2) share a point: no side of either separates them."""
    apart = np.zeros(len(one), bool)
    for box in (one, other):
        for side in (box[0, 1] - box[0, 0], box[0, 2] - box[0, 1]):
            normal = np.array([side[1], -side[0]])
            a, b = one @ normal, other @ normal
            apart |= (a.max(axis=1) < b.min(axis=1)) | (b.max(axis=1) < a.min(axis=1))
    return ~apart


def distance_to_box(px, py, x, y, heading, length, width):
    dx, dy = px - x, py - y
    along, aside = dx * np.cos(heading) + dy * np.sin(heading), dy * np.cos(heading) - dx * np.sin(heading)
    return np.hypot(np.maximum(abs(along) - length / 2, 0), np.maximum(abs(aside) - width / 2, 0))


def idm(speed, desired, gap, leader):
    wanted = 2.0 + max(0.0, speed * 2.0 + speed * (speed - leader) / (2 * np.sqrt(4.0 * 5.0)))
    return float(np.clip(4.0 * (1 - (speed / desired) ** 4 - (wanted / max(gap, 0.1)) ** 2), -5.0, 4.0))


def twin(ego, others, limit, grow, horizon=4.0, tick=0.5):
    """Scores and first accelerations of the fifteen proposals on the lane along x. Bodies are (x, y, heading, speed,
    length, width); `grow` [m] makes the own box that much larger when contacts are looked for."""
    x0, y0, heading0, v0, length, width = ego
    scores, accels = [], []
    dodged = []
    for x, y, *rest in others:
        dx, dy = x - x0, y - y0
        behind = dx * np.cos(heading0) + dy * np.sin(heading0) < -length / 2
        aside = abs(dy * np.cos(heading0) - dx * np.sin(heading0)) < (width + rest[-1]) / 2
        if not (behind and aside):
            dodged.append((x, y, *rest))
    line = np.arange(np.floor(length / 2 + (horizon + 2) * max(v0, limit) + 20) + 1)
    for offset in OFFSETS:
        for fraction in FRACTIONS:
            speed, s, contact = v0, 0.0, np.inf
            pose, first = (x0, y0, heading0), None
            for k in range(round(horizon / tick)):
                there = [(x + v * k * tick * np.cos(h), y + v * k * tick * np.sin(h), h, v, ln, w)
                         for x, y, h, v, ln, w in dodged]  # fmt: skip
                gap, leader = 1e9, 0.0
                for x, y, h, v, ln, w in there:
                    touched = np.flatnonzero(distance_to_box(x0 + line, offset, x, y, h, ln, w) <= width / 2 + 0.05)
                    p = touched[0] if len(touched) else -1
                    if p > s and p + width / 2 + 0.05 - s - length / 2 < gap:
                        gap, leader = p + width / 2 + 0.05 - s - length / 2, max(v * np.cos(h), 0.0)
                accel = idm(speed, max(fraction * limit, 0.1), gap, leader)
                after = max(speed + accel * tick, 0.0)
                first = (after - speed) / tick if first is None else first
                s += (speed + after) / 2 * tick
                speed = after
                x1, y1 = x0 + s, offset
                t = np.linspace(0, 1, 201)
                own = corners(
                    pose[0] + t * (x1 - pose[0]), pose[1] + t * (y1 - pose[1]), pose[2], length + 2 * grow,
                    width + 2 * grow,
                )  # fmt: skip
                for x, y, h, v, ln, w in there:
                    body = corners(x + v * t * tick * np.cos(h), y + v * t * tick * np.sin(h), h, ln, w)
                    met = np.flatnonzero(overlap(own, body))
                    if len(met):
                        contact = min(contact, (k + t[met[0]]) * tick)
                if contact < np.inf:
                    break
                pose = (x1, y1, 0.0)
            score = 3 * fraction + 10 * min(contact, horizon) / horizon + (offset == 0)
            scores.append(score - 48 * (contact < max(2.0, v0 / 5 + 0.5)))
            accels.append(first)
    return np.array(scores), np.array(accels)


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 60))])
def test_scores_equal_the_twin(seed):
    """S103: every score and first acceleration is that of a plain roll-out. A contact found between two poses of the
    twin, or missed by a centimetre, moves a score between those of a slightly larger and a slightly smaller box."""
    rng = np.random.default_rng(seed)
    ego = car(60.0, y=rng.uniform(-0.5, 0.5), speed=rng.uniform(0.5, 14), heading=rng.uniform(-0.1, 0.1))
    others = [
        car(60 + rng.uniform(-30, 60), y=rng.uniform(-12, 12), speed=rng.uniform(0, 12), heading=rng.uniform(-3, 3))
        for _ in range(7)
    ]
    scene = straight_road([ego, *others])
    score, accel, _, _ = planned(scene)
    tracks = scene.tracks
    bodies = [
        (*(float(getattr(tracks, name)[n, 0]) for name in ("x", "y", "heading")),
         float(np.hypot(tracks.vx[n, 0], tracks.vy[n, 0])), 4.5, 1.8)
        for n in range(8)
    ]  # fmt: skip
    early, first = twin(bodies[0], bodies[1:], float(scene.road.speed_limit[0]), 0.02)
    late, _ = twin(bodies[0], bodies[1:], float(scene.road.speed_limit[0]), -0.02)
    assert accel == pytest.approx(first, abs=2e-3)
    assert (score >= early - 0.02).all()
    assert (score <= late + 0.02).all()


# ----------------------------------------------------------------------------------------------- six staged scenes


def test_an_empty_road_is_driven_at_its_limit():
    """Nothing there: 3 x 1 + 10 + 1 = 14 on the centre line; a = 4 (1 - (5 / 13.9)^4) at first, and the mean of half a
    second is that because the roll-out holds it."""
    score, accel, chosen, driven = planned(straight_road([car(50.0, speed=5.0)]))
    assert chosen == 0
    assert score[0] == pytest.approx(14.0)
    assert score[[5, 10]] == pytest.approx(13.0)
    assert accel[0] == pytest.approx(4 * (1 - (5 / 13.9) ** 4), abs=1e-3)
    assert driven == pytest.approx(accel[0], abs=1e-4)


def test_a_wall_that_cannot_be_missed_is_braked_for():
    """10 m/s, 6 m to a standing car: all proposals brake at 5 m/s^2 and touch in the second half second, at
    (6 - 4.375) / 3.125 of it: 0.76 s, danger. Among equals the centre line at full share has most to gain."""
    score, accel, chosen, driven = planned(straight_road([car(50.0, speed=10.0), car(60.5)]))
    assert chosen == 0
    assert driven == pytest.approx(-5.0, abs=1e-3)
    assert accel == pytest.approx(-5.0)
    assert score[0] == pytest.approx(3 + 10 * 0.76 / 4 + 1 - 48, abs=0.01)


def test_an_oncoming_car_on_the_own_side_is_given_way():
    """It comes at 8 m/s with its side 20 cm inside the own box, 36 m ahead: whoever keeps the centre is hit within 4 s
    even at rest, a metre to the right nobody is."""
    scene = straight_road([car(100.0, speed=8.0), car(136.0, y=1.6, speed=8.0, heading=np.pi)])
    score, _, chosen, _ = planned(scene)
    assert chosen == 5  # offset -1, full share
    assert score[5] == pytest.approx(13.0)
    assert score[:5].max() < 13.0
    found = history(simulator(scene, STAY, cases=[case_of(scene, ego=0)], substitute="pdm"))
    assert not (found["events"][:, 0] & np.uint32(TOUCH)).any()
    assert found["y"][:, 0].min() < -0.5


def test_the_best_score_is_no_use_off_the_road():
    """The same with a body of 3.6 m between edges 5.5 m apart: a metre to the right scores best, and touches the edge;
    the best of the others is driven."""
    wide = car(100.0, speed=8.0, width=3.6)
    score, _, chosen, _ = planned(straight_road([wide, car(136.0, y=2.0, speed=8.0, heading=np.pi, width=1.0)]))
    assert score.argmax() == 5
    assert chosen == int(np.delete(score, range(5, 10)).argmax())
    assert chosen < 5


def test_where_nothing_stays_on_the_road_it_brakes():
    """A body as wide as the road touches both edges on every line: 5 m/s^2."""
    _, _, _, driven = planned(straight_road([car(50.0, speed=8.0, width=5.6)]))
    assert driven == pytest.approx(-5.0, abs=1e-3)


def test_a_crossing_car_is_let_through():
    """A car crosses 25 m ahead in 2.5 s. At full share both meet there; slower shares leave it time, and the fastest of
    those without a contact is driven."""
    crossing = car(85.0, y=-20.0, speed=8.0, heading=np.pi / 2)
    scene = straight_road([car(60.0, speed=10.0), crossing])
    score, _, chosen, driven = planned(scene)
    free = np.flatnonzero(score[:5] > 10.9)  # 10 + 1 + 3 f: no contact in 4 s
    assert chosen == free.min() > 0
    assert driven < 0
    found = history(simulator(scene, STAY, cases=[case_of(scene, ego=0)], substitute="pdm"))
    assert not (found["events"][:, 0] & np.uint32(TOUCH)).any()


def test_without_a_lane_it_brakes_to_rest():
    """Off every lane there is nothing to plan: 3 m/s^2 down to standstill."""
    found = history(simulator(straight_road([car(50.0, y=60.0, speed=8.0)]), STAY, substitute="pdm"))
    assert found["speed"][10, 0] == pytest.approx(5.0, abs=1e-3)
    assert found["speed"].min() == 0.0


# ---------------------------------------------------------------------------------------------------- on the road


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))])
def test_slower_traffic_is_never_hit_by_its_own_fault(seed):
    """S103: on a straight road with slow, standing and braking cars ahead, no contact is the planner's fault."""
    rng = np.random.default_rng(seed)
    ahead = np.cumsum(rng.uniform(12, 40, 6)) + 60
    slow = [car(x, speed=rng.choice([0.0, 1.0, 3.0, 6.0])) for x in ahead]
    scene = straight_road([car(30.0, speed=13.0), *slow], length=600.0)
    found = history(simulator(scene, STAY, cases=[case_of(scene, ego=0)], substitute="pdm"))
    assert not (found["events"][:, 0] & np.uint32(Event.AT_FAULT | Event.OFFROAD)).any()
    assert found["speed"][:, 0].min() >= -1e-6


@pytest.mark.parametrize("name", ["curve", "roundabout", "crossing"])
def test_stays_on_its_lane(name):
    """S103: it drives through the dynamics, in bends and past red lights, among its like, without an infraction."""
    found = history(simulator(synthetic(name), STAY, substitute="pdm"), names=("events", "lane_offset", "speed"))
    assert not (found["events"] & np.uint32(TOUCH | Event.OFFROAD | Event.RED_LIGHT)).any()
    assert np.abs(found["lane_offset"]).max() < 1.0
    assert found["speed"].max() > 5.0


def test_horizon_and_step_decide():
    """S103: with a horizon of 1 s a wall 30 m ahead is not yet looked at; finer steps find another acceleration."""
    scene = straight_road([car(50.0, speed=10.0), car(136.0, y=1.6, speed=8.0, heading=np.pi)])
    near, _, _, _ = planned(scene, STAY.model_copy(update={"pdm": PdmSettings(horizon_seconds=1.0)}))
    far, _, _, _ = planned(scene, STAY.model_copy(update={"pdm": PdmSettings(horizon_seconds=8.0)}))
    assert near[0] == pytest.approx(14.0)
    assert far[0] < 13.9
    bent = straight_road([car(50.0, speed=10.0), car(75.0, speed=4.0)])
    _, coarse, _, _ = planned(bent, STAY.model_copy(update={"pdm": PdmSettings(step_seconds=1.0)}))
    _, fine, _, _ = planned(bent, STAY.model_copy(update={"pdm": PdmSettings(step_seconds=0.1)}))
    assert coarse[0] == pytest.approx(fine[0], abs=1e-3)  # the first acceleration is that of the state
    assert far.shape == near.shape == (15,)
