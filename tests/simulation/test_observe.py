"""Observations equal a NumPy twin that shares no code with the kernel, and stay in their bounds (S84, S85, S88-S93)."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import ROWS, car, case_of, coast, simulator, straight_road

from skidpad.scenes.events import Status
from skidpad.scenes.scene import SIGNAL_STOP, SIGNAL_YIELD, STATE_GREEN, STATE_RED, STATE_YELLOW, TYPE_PEDESTRIAN
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import EnvSettings, PerturbationSettings
from skidpad.simulation import state as at
from skidpad.simulation.layout import COMPACT

EGO, GOAL, PARTNERS, ROAD, SIGNAL = (COMPACT.span(block.name) for block in COMPACT.blocks)


def clip(value, low=-1.0, high=1.0):
    return float(np.clip(value, low, high))


class Twin:
    """compact/1 for one agent, in float64, from the table's text: brute force, no lists but S17's rule."""

    def __init__(self, sim, world):
        self.sim, self.world = sim, world
        self.scene = sim.scene(world)
        self.index = sim._stage_of[world].index
        self.gate = float(sim._stage_of[world].parameters[at.LEVEL_GATE])
        a = slice(int(sim.world_agents[world]), int(sim.world_agents[world + 1]))
        self.f = {field.name: sim._f4[row, a].astype(np.float64) for row, field in enumerate(at.FLOAT_STATE)}
        self.i = {field.name: sim._i4[row, a] for row, field in enumerate(at.INT_STATE)}
        self.there = sim.agent["status"][a] == Status.ACTIVE

    def local(self, agent, x, y):
        """Forward and left of a point, from an agent."""
        turn = np.exp(-1j * self.f["heading"][agent])
        seen = (x - self.f["x"][agent] + 1j * (y - self.f["y"][agent])) * turn
        return seen.real, seen.imag

    def row(self, agent):
        if not self.there[agent]:
            return np.zeros(COMPACT.size)
        return np.concatenate([part(agent) for part in (self.ego, self.goal, self.partners, self.road, self.signal)])

    def ego(self, n):
        f, lane = {name: values[n] for name, values in self.f.items()}, self.i["lane"][n]
        on = lane >= 0
        limit = float(self.scene.road.speed_limit[lane]) if on else np.nan
        known = bool(limit > 0)
        dt = float(self.sim.dt_us[self.world]) * 1e-6
        return [
            clip(f["speed"] / 40), clip(f["speed"] / limit / 2) if known else 0, clip(f["steering"] / 0.667),
            clip(f["accel_long"] / 5), clip(f["accel_lat"] / 5), clip(f["yaw_rate"]),
            clip(f["length"] / 20), clip(f["width"] / 5),
            clip(f["lane_offset"] / 4), np.cos(f["lane_heading_error"]) * on, np.sin(f["lane_heading_error"]) * on,
            clip(limit / 40) if known else 0, float(known), clip(f["stopped_s"] / 60), float(on), clip(dt / 0.5),
        ]  # fmt: skip

    def goal(self, n):
        scored = self.sim.scored(self.world).tolist()
        if n not in scored:
            return np.zeros(4)
        m, reached = scored.index(n), self.i["goal_index"][n]
        count = self.sim.goal_count(self.world)[m]
        if reached == count:
            return np.zeros(4)
        x, y, z = self.sim.goals(self.world)[m, reached].astype(np.float64)
        forward, left = self.local(n, x, y)
        reach = max(200.0, np.hypot(forward, left))
        return [forward / reach, left / reach, clip((z - self.f["z"][n]) / 4), float(reached == count - 1)]

    def partners(self, n):
        f, found = self.f, []
        for other in range(len(self.there)):
            flat = np.hypot(f["x"][other] - f["x"][n], f["y"][other] - f["y"][n])
            rise = abs(f["z"][other] - f["z"][n])
            if other != n and self.there[other] and flat <= 60 and rise <= self.gate:
                found.append((flat**2 + rise**2, other))
        rows = np.zeros((8, 8))
        for k, (_, other) in enumerate(sorted(found)[:8]):
            forward, left = self.local(n, f["x"][other], f["y"][other])
            turn = f["heading"][other] - f["heading"][n]
            kind = 1.0 if self.scene.tracks.type[other] == 1 else -1.0
            rows[k] = [
                clip(forward / 60), clip(left / 60), np.cos(turn), np.sin(turn), clip(f["speed"][other] / 40),
                clip(f["length"][other] / 20), clip(f["width"][other] / 5), kind,
            ]  # fmt: skip
        return rows.ravel()

    def road(self, n):
        """S17: the window taken at the list cell's centre and the sector's middle; nearest to that centre first."""
        grid, heading = self.index.rows[0].list_grid, self.f["heading"][n] % (2 * np.pi)
        cell = [
            np.floor((self.f[a][n] - origin) / 10) * 10 + 5 + origin for a, origin in (("x", grid.x), ("y", grid.y))
        ]
        middle = (np.floor(heading / (np.pi / 4)) + 0.5) * np.pi / 4
        row = self.index.rows[0].row.astype(np.float64)
        dx, dy = row[:, 0] - cell[0], row[:, 1] - cell[1]
        ahead, aside = dx * np.cos(middle) + dy * np.sin(middle), dy * np.cos(middle) - dx * np.sin(middle)
        inside = (ahead >= -20) & (ahead <= 60) & (np.abs(aside) <= 30)
        order = [r for r in np.lexsort((np.arange(len(row)), dx**2 + dy**2)) if inside[r]][:32]
        rows, k = np.zeros((32, 6)), 0
        for r in order:
            if abs(row[r, 6] - self.f["z"][n]) > self.gate:
                continue
            forward, left = self.local(n, row[r, 0], row[r, 1])
            turn = np.arctan2(row[r, 4], row[r, 3]) - self.f["heading"][n]
            kind = row[r, 5]
            rows[k] = [clip(forward / 60), clip(left / 60), clip(row[r, 2], 0), np.cos(turn), np.sin(turn), kind]
            k += 1
        return rows.ravel()

    def signal(self, n):
        lane, signals, best = self.i["lane"][n], self.scene.signals, None
        for s in range(signals.count if lane >= 0 else 0):
            middle = signals.line[s].astype(np.float64).mean(axis=0)
            distance = np.hypot(middle[0] - self.f["x"][n], middle[1] - self.f["y"][n])
            rules = {int(lane), *self.scene.road.exits(lane).tolist()} & set(signals.lanes(s).tolist())
            ahead = (middle[0] - self.f["x"][n]) * np.cos(signals.heading[s]) + (middle[1] - self.f["y"][n]) * np.sin(
                signals.heading[s]
            )
            passed = ahead < -5 or abs(middle[2] - self.f["z"][n]) > self.gate
            if rules and distance < 100 and not passed and (best is None or distance < best[0]):
                best = (distance, s, middle)
        if best is None:
            return np.zeros(8)
        _, s, middle = best
        forward, left = self.local(n, middle[0], middle[1])
        turn = float(signals.heading[s]) - self.f["heading"][n]
        state = self.sim.signal_state(self.world)[s] if signals.kind[s] == 1 else -1
        sign = {1: 0.0, SIGNAL_STOP: 1.0, SIGNAL_YIELD: 0.5}[int(signals.kind[s])]
        lights = [float(state == wanted) for wanted in (STATE_RED, STATE_YELLOW, STATE_GREEN)]
        return [clip(forward / 100), clip(left / 100), np.cos(turn), np.sin(turn), *lights, sign]


def compare(sim, result):
    """Largest difference from the twin, and where."""
    for row in range(len(sim.row_world)):
        want = Twin(sim, int(sim.row_world[row])).row(int(sim.row_agent[row]))
        off = np.abs(result.obs[row] - want)
        column = int(off.argmax())
        where = (row, column, result.obs[row, column], want[column], int(sim.steps_taken[0]))
        assert off.max() < 1e-5, where


@pytest.mark.parametrize("name", ["straight", "curve", "crossing", "roundabout", "overpass", "merge", "stop_yield"])
def test_equals_the_twin(name):
    """S96: every column of every row within 1e-5, while random drivers leave lanes, road and each other."""
    scene = synthetic(name, seed=4)
    sim = simulator(scene, EnvSettings(beyond_log="stay"))
    generator = np.random.default_rng(6)
    result = sim.reset()
    compare(sim, result)
    for step in range(60):
        result = sim.step(generator.uniform(-1, 1, (len(sim.row_world), 2)).astype(np.float32))
        if step % 6 == 0:
            compare(sim, result)


def test_off_the_map_is_defined():
    """F27: far outside there is no lane and no road row, and the row is still a row: finite, with the ego in it."""
    scene = straight_road([car(380.0, speed=30.0)])
    sim = simulator(scene, EnvSettings(beyond_log="stay"))
    result = sim.reset()
    while not sim.done.all():
        result = sim.step(np.float32([[1.0, 0.0]]))
    assert (result.obs[0, ROAD] == 0).all()
    assert (result.obs[0, EGO][8:13] == 0).all()
    assert result.obs[0, 0] > 0.5
    compare(sim, result)


@pytest.mark.parametrize("action_type", ["continuous", "discrete"])
def test_bounds_hold_in_extreme_states(action_type):
    """S84, F27: declared bounds hold for trucks of 60 m, map corners, top speed, and wild driving."""
    rng = np.random.default_rng(7)
    tracks = [car(20.0, speed=35.0, length=60.0, width=4.0), car(390.0, y=1.0, speed=39.0), car(200.0, heading=2.0)]
    tracks += [car(rng.uniform(0, 400), y=rng.uniform(-6, 6), speed=rng.uniform(1, 30)) for _ in range(12)]
    scene = straight_road(tracks)
    sim = simulator(scene, EnvSettings(beyond_log="stay", action_type=action_type, goal_radius=1.0))
    low, high = COMPACT.bounds()
    seen_low, seen_high = np.full(COMPACT.size, np.inf), np.full(COMPACT.size, -np.inf)
    for _ in range(20):
        result = sim.reset()
        while not sim.done.all():
            assert np.isfinite(result.obs).all()
            assert (result.obs >= low).all()
            assert (result.obs <= high).all()
            seen_low, seen_high = np.minimum(seen_low, result.obs.min(0)), np.maximum(seen_high, result.obs.max(0))
            rows = len(sim.row_world)
            if action_type == "discrete":
                result = sim.step(rng.integers(0, 63, rows).astype(np.int32))
            else:
                result = sim.step(rng.uniform(-3, 3, (rows, 2)).astype(np.float32))
    # A feature that never moves would be dead. Here only dt and heights cannot move, and there is no signal.
    still = set()
    for block in COMPACT.blocks:
        moved = (seen_low < seen_high)[COMPACT.span(block.name)].reshape(block.rows, -1).any(axis=0)
        still |= {(block.name, feature.name) for feature, moves in zip(block.features, moved, strict=True) if not moves}
    assert still == {("ego", "dt"), ("goal", "z")} | {("signal", f.name) for f in COMPACT.block("signal").features}


def test_turning_the_world_changes_nothing_but_road_order():
    """S85: all blocks but road rows (whose lists are laid out by cell) are the same from every direction."""
    rows = []
    for angle in (0.0, 1.1, -2.4):
        c, s = np.cos(angle), np.sin(angle)
        tracks = []
        for x, y, speed in ((0.0, 0.0, 5.0), (12.0, 1.0, 4.0), (-9.0, -2.0, 8.0)):
            tracks.append(car(200.0 + c * x - s * y, s * x + c * y, speed=speed, heading=angle))
        sim = simulator(straight_road(tracks), EnvSettings(beyond_log="stay"))
        result = sim.reset()
        for _ in range(5):
            result = sim.step(coast(sim))
        rows.append(result.obs[:, np.r_[0, 2:8, GOAL.start : PARTNERS.stop]].copy())
    assert np.abs(rows[1] - rows[0]).max() < 1e-5
    assert np.abs(rows[2] - rows[0]).max() < 1e-5


def test_partners_beyond_the_slots_are_counted():
    """S21, S90: nearest eight kept, the rest counted; the absent, the gone and the self are no partners."""
    late = np.arange(ROWS) >= 20
    tracks = [car(200.0 + 5.0 * n, speed=1.0) for n in range(11)] + [car(190.0, valid=late)]
    tracks += [car(195.0, y=5.0, type=TYPE_PEDESTRIAN, subtype=0, length=0.5, width=0.5)]
    scene = straight_road(tracks)
    sim = simulator(scene, cases=[case_of(scene, ego=0)])
    result = sim.reset()
    partners = result.obs[0, PARTNERS].reshape(8, 8)
    assert sim.overflow[0, 0] == 11 - 8
    assert (partners[:, 7] == -1).sum() == 1  # the walker
    distance = np.hypot(partners[:, 0], partners[:, 1])
    assert (np.diff(distance) >= -1e-6).all()


def test_nearest_is_measured_in_space():
    """S90: by distance in three dimensions; a partner 3.5 m above is farther than it looks on the plan."""
    above, level = car(210.0, z=np.full(ROWS, 3.5)), car(200.0, y=10.3, z=np.zeros(ROWS))
    scene = straight_road([car(200.0, speed=1.0, z=np.zeros(ROWS)), above, level], has_z=True)
    result = simulator(scene, cases=[case_of(scene, ego=0)]).reset()
    partners = result.obs[0, PARTNERS].reshape(8, 8)
    assert partners[0, :2] == pytest.approx([0.0, 10.3 / 60], abs=1e-4)
    assert partners[1, :2] == pytest.approx([10.0 / 60, 0.0], abs=1e-4)


@pytest.mark.parametrize(("x", "seen"), [(150.0, True), (204.0, True), (206.0, False)])
def test_a_stop_line_is_seen_until_it_is_well_behind(x, seen):
    """The line stays in view while the body still stands over it: a driver who stopped on it must know why."""
    light = {"kind": 1, "line": [(200.0, 1.75, 0.0), (200.0, -1.75, 0.0)], "heading": 0.0, "states": [STATE_RED] * ROWS}
    sim = simulator(straight_road([car(x, speed=1.0)], signals=[light]))
    block = sim.reset().obs[0, SIGNAL]
    assert bool(block[4]) == seen
    assert (np.abs(block).sum() > 0) == seen


@pytest.mark.parametrize("place", ["overpass", "ramp"])
def test_driven_bodies_follow_their_level(place):
    """S9: a driven agent takes the height of its lane, so on an overpass those above and below never meet."""
    ramp = [car(100.0, speed=9.0, z=np.full(ROWS, 5.0)), car(140.0, speed=9.0, z=np.full(ROWS, 7.0))]
    scene = synthetic(place, seed=1) if place == "overpass" else straight_road(ramp, has_z=True, rise=0.05)
    sim = simulator(scene, EnvSettings(beyond_log="stay"), substitute="idm")
    sim.reset()
    road, checked = scene.road, 0
    for _ in range(60):
        sim.step(coast(sim))
        assert not (sim.agent["events"] & np.uint32(1)).any()
        for agent in sim.scored(0):
            lane = sim.agent["lane"][agent]
            if lane < 0:
                continue
            points = road.lane_points(int(lane))
            want = np.interp(sim.agent["lane_arc"][agent], road.arc[points], road.xyz[points, 2])
            assert sim.agent["z"][agent] == pytest.approx(want, abs=0.11)  # vertices are thinned by up to 0.1 m
            checked += 1
    assert checked > 100
    assert np.ptp(scene.road.xyz[:, 2]) > 5


# ---------------------------------------------------------------------------------------------- perturbations


def perturbed(**values):
    return EnvSettings(perturbation=PerturbationSettings(**values), beyond_log="stay")


def test_dropout_keeps_its_share_in_order():
    """S92: int(n (1 - p)) lanes and edges stay, a random subset each step, order kept, the rest zero."""
    scene = synthetic("crossing")
    plain, dropped = simulator(scene), simulator(scene, perturbed(lane_dropout=0.3, edge_dropout=0.4))
    full, some = plain.reset(), dropped.reset()
    kept_sets = set()
    for _ in range(8):
        for row in range(len(full.obs)):
            everything = full.obs[row, ROAD].reshape(32, 6)
            kept = some.obs[row, ROAD].reshape(32, 6)
            kept = kept[np.abs(kept).sum(1) > 0]
            lanes, edges = (everything[:, 5] == 1).sum(), (everything[:, 5] == -1).sum()
            assert (kept[:, 5] == 1).sum() == int(np.float32(lanes) * np.float32(0.7))
            assert (kept[:, 5] == -1).sum() == int(np.float32(edges) * np.float32(0.6))
            places = [int(np.flatnonzero((everything == one).all(1))[0]) for one in kept]
            assert places == sorted(places)
            kept_sets.add((row, tuple(places)))
        others = np.r_[0 : ROAD.start, SIGNAL.start : SIGNAL.stop]
        assert (full.obs[:, others] == some.obs[:, others]).all()
        full, some = plain.step(coast(plain)), dropped.step(coast(dropped))
    assert len(kept_sets) > 4 * len(full.obs)


@pytest.mark.parametrize("kind", ["blindness", "phantom_braking"])
def test_frequencies_do_not_depend_on_dt(kind):
    """S108: shares are per episode and rates per second; at dt 0.1 and 0.3 the same share of time is perturbed."""
    scene = straight_road([car(20.0 + 12.0 * n, speed=3.0) for n in range(20)])
    bit = np.uint32({"blindness": 1 << 18, "phantom_braking": 1 << 17}[kind])
    shares, episodes = [], []
    for dt in (0.1, 0.3):
        settings = perturbed(**{kind: 0.5, f"{kind}_rate": 0.5, "perturbation_seconds": 0.9})
        settings = settings.model_copy(update={"dt": dt})
        sim = simulator(scene, settings, cases=[case_of(scene, benchmark_seed=seed) for seed in range(30)])
        result, marks = sim.reset(), []
        while not sim.done.all():
            result = sim.step(coast(sim))
            marks.append(result.events & bit != 0)
        shares.append(np.mean(marks))
        episodes.append(np.mean(np.any(marks, axis=0)))
    # 600 agents, half of them with a Markov chain of 9 s: a standard error of about 0.01.
    assert shares[0] == pytest.approx(shares[1], abs=0.04)
    assert 0.1 < shares[0] < 0.2
    assert episodes[0] == pytest.approx(0.5, abs=0.07)


def test_the_blind_see_no_partners_and_nothing_else_changes():
    """S93, S65: only partner rows vanish, only while the bit is set, and such rows are masked out for learning."""
    scene = straight_road([car(100.0 + 10.0 * n, speed=3.0) for n in range(6)])
    plain, blind = simulator(scene), simulator(scene, perturbed(blindness=1.0, blindness_rate=1.0))
    full, some = plain.reset(), blind.reset()
    seen = 0
    for _ in range(60):
        full, some = plain.step(coast(plain)), blind.step(coast(blind))
        marked = some.events & np.uint32(1 << 18) != 0
        seen += marked.sum()
        assert (some.obs[marked][:, PARTNERS] == 0).all()
        assert (some.obs[~marked] == full.obs[~marked]).all()
        others = np.r_[0 : PARTNERS.start, ROAD.start : SIGNAL.stop]
        assert (some.obs[:, others] == full.obs[:, others]).all()
        assert (some.mask == ~marked).all()
    assert seen > 50


def test_phantom_brakes_stop_and_do_not_reverse():
    """S108: full brake with the wheels straight, whatever the policy asks, to standstill and no further."""
    scene = straight_road([car(100.0, speed=6.0)])
    sim = simulator(scene, perturbed(phantom_braking=1.0, phantom_braking_rate=50.0, perturbation_seconds=5.0))
    sim.reset()
    speeds = []
    for _ in range(40):
        result = sim.step(np.float32([[1.0, 1.0]]))
        speed, steering = float(sim.agent["speed"][0]), float(sim.agent["steering"][0])
        speeds.append((speed, bool(result.events[0] & (1 << 17)), steering))
    braked = [speed for speed, mark, _ in speeds if mark]
    assert len(braked) > 30
    assert min(braked) == 0.0
    assert braked[0] > braked[5] > braked[10]
    assert speeds[-1][2] == 0.0
