"""The wide, the native and the 2026 rows equal a NumPy twin that shares no code with the kernels (S83-S96)."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import case_of, simulator

from skidpad.errors import ProtocolError
from skidpad.scenes.events import Event
from skidpad.scenes.lanes import LaneDistances
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import EnvSettings
from skidpad.simulation import state as at
from skidpad.simulation.deferred import expand


class Eye:
    """One world in float64, seen by one agent: brute force, no list but S17's rule."""

    def __init__(self, sim, world):
        self.sim, self.layout = sim, sim.layout
        self.scene = sim.scene(world)
        self.index = sim._stage_of[world].index
        self.gate = float(sim._stage_of[world].parameters[at.LEVEL_GATE])
        self.dt = float(sim.dt_us[world]) * 1e-6
        a = slice(int(sim.world_agents[world]), int(sim.world_agents[world + 1]))
        self.first = a.start
        self.f = {field.name: sim._f4[row, a].astype(np.float64) for row, field in enumerate(at.FLOAT_STATE)}
        self.i = {field.name: sim._i4[row, a] for row, field in enumerate(at.INT_STATE)}
        self.u = {field.name: sim._u1[row, a] for row, field in enumerate(at.BYTE_STATE)}
        self.events = sim.agent["events"][a]
        self.table = sim._batch.held(0)
        self.states = sim.signal_state(world)
        self.distances = LaneDistances(self.scene.road)
        self.margin = sim.settings.own_size_margin
        self.jerk = sim.settings.dynamics == "jerk"

    def local(self, n, x, y):
        """Forward and left of points, from agent n."""
        seen = (np.asarray(x) - self.f["x"][n] + 1j * (np.asarray(y) - self.f["y"][n])) * np.exp(
            -1j * self.f["heading"][n]
        )
        return seen.real, seen.imag

    def turned(self, n, heading):
        turn = heading - self.f["heading"][n]
        return np.cos(turn), np.sin(turn)

    def others(self, n, reach):
        """Agents that n sees, nearest first in space, ties by key."""
        found = []
        for other in range(len(self.f["x"])):
            flat = np.hypot(self.f["x"][other] - self.f["x"][n], self.f["y"][other] - self.f["y"][n])
            rise = abs(self.f["z"][other] - self.f["z"][n])
            seen = self.u["body"][other] and not self.u["ghost"][other] and other != n
            if seen and flat <= reach and rise <= self.gate:
                found.append((flat**2 + rise**2, int(self.i["key"][other]), other))
        return [] if self.u["ghost"][n] else [other for _, _, other in sorted(found)]

    def road(self, n, block, listed):
        """Rows of a road block by S17, those of the agent's level: middles, half lengths, headings, widths, kinds."""
        rows, side = self.index.rows[block], self.layout.list_cell
        grid, heading, sectors = rows.list_grid, self.f["heading"][n] % (2 * np.pi), self.layout.sectors
        cell = [
            np.floor((self.f[axis][n] - origin) / side) * side + side / 2 + origin
            for axis, origin in (("x", grid.x), ("y", grid.y))
        ]
        middle = (np.floor(heading / (2 * np.pi / sectors)) + 0.5) * 2 * np.pi / sectors
        dx, dy = rows.mid[0] - cell[0], rows.mid[1] - cell[1]
        behind, front, aside = self.layout.window
        cosine, sine = np.cos(middle), np.sin(middle)
        if self.layout.order == "exact":
            dx, dy = rows.mid[0] - self.f["x"][n], rows.mid[1] - self.f["y"][n]
            cosine, sine = self.f["cos"][n], self.f["sin"][n]
        ahead, left = dx * cosine + dy * sine, dy * cosine - dx * sine
        inside = (ahead >= -behind) & (ahead <= front) & (np.abs(left) <= aside)
        order = [r for r in np.lexsort((np.arange(len(dx)), dx**2 + dy**2)) if inside[r]][:listed]
        if self.layout.order == "spiral":
            columns, lines = (
                np.floor((rows.mid[k] - origin) / 5) - np.floor((cell[k] - origin) / 5)
                for k, origin in ((0, grid.x), (1, grid.y))
            )
            turn = spiral_place(columns, lines)
            reached = np.maximum(np.abs(columns), np.abs(lines)) <= np.ceil(max(self.layout.window) / 5)
            order = [r for r in np.lexsort((np.arange(len(dx)), turn)) if reached[r]][:listed]
        columns = [name for name, _ in self.layout.road_blocks[block].columns]
        z = rows.row[:, columns.index("z")]
        return [r for r in order if abs(z[r] - self.f["z"][n]) <= self.gate], rows

    def column(self, block, rows, r, name):
        """One quantity of a row, unscaled."""
        for k, (quantity, factor) in enumerate(self.layout.road_blocks[block].columns):
            if quantity == name:
                return float(rows.row[r, k]) / factor
        raise KeyError(name)

    def goals(self, n):
        """Positions, lanes and arcs of the goals of n, and which is next."""
        slot = int(self.i["goal_slot"][n])
        if slot < 0:
            return [], 0
        count = int(self.table["goal_count"][slot])
        return [self.table["goals"][slot, k].astype(np.float64) for k in range(count)], int(self.i["goal_next"][n])

    def next_goal(self, n):
        points, following = self.goals(n)
        return points[following] if following < len(points) else None


def spiral_place(x, y):
    """Where cells (x, y) stand in a square spiral from (0, 0): right, up, left, down, ever further. Ring k follows on
    (2 k - 1)^2 cells, and has its sides at 0, 2 k, 4 k and 6 k."""
    k = np.maximum(np.abs(x), np.abs(y))
    right, top, left = (x == k) & (y > -k), (y == k) & (x < k), (x == -k) & (y < k)
    side = np.where(
        right,
        y + k - 1,
        np.where(top, 2 * k + k - 1 - x, np.where(left, 4 * k + k - 1 - y, 6 * k + x + k - 1)),
    )
    return np.where(k == 0, 0, (2 * k - 1) ** 2 + side)


def test_the_spiral_of_the_twin_is_one():
    """S19: neighbours in the twin's order are neighbours in the plane, and every cell has a place of its own."""
    x, y = np.meshgrid(np.arange(-6.0, 7.0), np.arange(-6.0, 7.0))
    place = spiral_place(x, y).astype(int).ravel()
    assert sorted(place) == list(range(169))
    order = np.argsort(place)
    assert (np.abs(np.diff(x.ravel()[order])) + np.abs(np.diff(y.ravel()[order])) == 1).all()
    assert (x.ravel()[order[1]], y.ravel()[order[2]], x.ravel()[order[4]]) == (1, 1, -1)


def wide(eye, n):
    """`wide/1` and its forms."""
    layout, f = eye.layout, {name: values[n] for name, values in eye.f.items()}
    raised = len(layout.block("partners").features) == 8
    goal = eye.next_goal(n)
    forward, left = (0.0, 0.0) if goal is None else eye.local(n, goal[0], goal[1])
    off = bool(eye.events[n] & np.uint32(Event.OFFROAD))
    row = [forward / 200, left / 200]
    row += [0.0 if goal is None else (goal[2] - f["z"]) / 50] if raised else []
    own = 2 * eye.margin
    row += [f["speed"] / 100, (f["width"] + own) / 15, (f["length"] + own) / 30, float(eye.u["touching"][n] or off)]
    along = f["accel_long"] / (15 if f["accel_long"] < 0 else 4)
    extra = [f["steering"] / np.pi, along, f["accel_lat"] / 4] if eye.jerk else []
    respawned = [float(eye.u["ghost"][n])]
    row += respawned + extra if raised else extra + respawned
    partners = []
    for other in eye.others(n, 50.0)[: layout.block("partners").rows]:
        g = {name: values[other] for name, values in eye.f.items()}
        forward, left = eye.local(n, g["x"], g["y"])
        partners += [forward / 50, left / 50, *([(g["z"] - f["z"]) / 50] if raised else [])]
        partners += [g["width"] / 15, g["length"] / 30, *eye.turned(n, g["heading"]), g["speed"] / 100]
    row += partners + [0.0] * (layout.block("partners").size - len(partners))
    if "road reference" in {block.name for block in layout.blocks}:
        return row
    road, slots = [], layout.block("road").rows
    found, rows = eye.road(n, 0, slots)
    for r in found:
        forward, left = eye.local(n, *rows.mid[:, r])
        heading = np.arctan2(eye.column(0, rows, r, "sin"), eye.column(0, rows, r, "cos"))
        road += [forward / 50, left / 50, *([(eye.column(0, rows, r, "z") - f["z"]) / 50] if raised else [])]
        road += [eye.column(0, rows, r, "half length") / 100, 0.001, *eye.turned(n, heading)]
        road += [eye.column(0, rows, r, "kind")]
    return row + road + [0.0] * (layout.block("road").size - len(road))


def clip(values, low=-1.0, high=1.0):
    return np.clip(np.array(values, np.float64), low, high).tolist()


def goal_rows(eye, n, reach, shown, last):
    """x, y, z of goals; beyond `reach` a direction."""
    rows = []
    for x, y, z, is_last in shown:
        forward, left = eye.local(n, x, y)
        far = max(reach, np.hypot(forward, left))
        rows += [forward / far, left / far, (z - eye.f["z"][n]) / 4, *([float(is_last)] if last else [])]
    return rows


def road_rows(eye, n, block, index, reach, extras):
    """Rows with a height: x, y, z, half length, (width), direction, and what `extras` adds."""
    listed = block.listed or block.rows
    found, rows = eye.road(n, index, listed)
    shown = []
    for r in found[: block.rows]:
        forward, left = eye.local(n, *rows.mid[:, r])
        heading = np.arctan2(eye.column(index, rows, r, "sin"), eye.column(index, rows, r, "cos"))
        rise = (eye.column(index, rows, r, "z") - eye.f["z"][n]) / 4
        shown.append(
            [
                *(forward / reach, left / reach, rise, eye.column(index, rows, r, "half length") / 10),
                *extras(r, rows, *eye.turned(n, heading)),
            ]
        )
    return shown


def way(eye, n):
    """A function: how far, in shares of 500 m, from a row's middle, and how much farther than from the agent."""
    slot, following = int(eye.i["goal_slot"][n]), int(eye.i["goal_next"][n])
    known = slot >= 0 and following < int(eye.table["goal_count"][slot])
    goal = int(eye.table["goal_lane"][slot, following]) if known else -1
    arc = float(eye.table["goal_arc"][slot, following]) if known else 0.0

    def share(lane, at):
        metres = eye.distances.between(lane, at, goal, arc) if goal >= 0 and lane >= 0 else np.inf
        return min(metres / 500, 1.0)

    own = share(int(eye.i["lane"][n]), float(eye.f["lane_arc"][n]))
    return lambda rows, r: [
        share(int(rows.lane[r]), float(rows.along[0, r])),
        share(int(rows.lane[r]), float(rows.along[0, r])) - own,
    ]


def lines(eye, n, reach, slots):
    """The nearest stop lines: ends, height and number."""
    signals, found = eye.scene.signals, []
    for s in range(signals.count):
        line = signals.line[s].astype(np.float64)
        middle = line.mean(axis=0)
        far = np.hypot(middle[0] - eye.f["x"][n], middle[1] - eye.f["y"][n])
        if far <= reach and abs(middle[2] - eye.f["z"][n]) <= eye.gate:
            found.append((far, s, line, middle))
    rows = []
    for _, s, line, middle in sorted(found, key=lambda one: one[:2])[:slots]:
        ends = [number / reach_of for point in line for number in eye.local(n, *point[:2]) for reach_of in [reach]]
        rows.append((s, [*ends, (middle[2] - eye.f["z"][n]) / 4]))
    return rows


def padded(rows, block):
    flat = [number for row in rows for number in row]
    return flat + [0.0] * (block.size - len(flat))


def default(eye, n):
    """`default/1`, from its table."""
    layout, f = eye.layout, {name: values[n] for name, values in eye.f.items()}
    lane = int(eye.i["lane"][n])
    on, limit = lane >= 0, float(eye.scene.road.speed_limit[lane]) if lane >= 0 else np.nan
    known = bool(limit > 0)
    row = clip([
        f["speed"] / 40, f["speed"] / limit / 2 if known else 0, f["steering"] / 0.667, f["accel_long"] / 5,
        f["accel_lat"] / 5, f["yaw_rate"], (f["length"] + 2 * eye.margin) / 20, (f["width"] + 2 * eye.margin) / 5,
        f["lane_offset"] / 4 * on,
        np.cos(f["lane_heading_error"]) * on, np.sin(f["lane_heading_error"]) * on, limit / 40 if known else 0, known,
        f["stopped_s"] / 60, on, eye.dt / 0.5,
    ])  # fmt: skip
    points, following = eye.goals(n)
    shown = [(*p, k == len(points) - 1) for k, p in enumerate(points)][following : following + 3]
    goals = clip(goal_rows(eye, n, 200.0, shown, True))
    row += goals + [0.0] * (12 - len(goals))
    partners, velocity = [], f["speed"] * np.exp(1j * f["heading"])
    for other in eye.others(n, 100.0)[:16]:
        g = {name: values[other] for name, values in eye.f.items()}
        moving = (g["speed"] * np.exp(1j * g["heading"]) - velocity) * np.exp(-1j * f["heading"])
        kind = 1.0 if eye.u["type"][other] == 1 else -1.0
        forward, left = eye.local(n, g["x"], g["y"])
        partners.append(clip([
            forward / 100, left / 100, (g["z"] - f["z"]) / 4, *eye.turned(n, g["heading"]), g["speed"] / 40,
            moving.real / 40, moving.imag / 40, g["length"] / 20, g["width"] / 5, kind, g["stopped_s"] / 60,
        ]))  # fmt: skip
    row += padded(partners, layout.block("partners"))
    start, size = int(eye.table["route_start"][eye.first + n]), int(eye.table["route_size"][eye.first + n])
    route, far = set(eye.table["route_lane"][start : start + size].tolist()), way(eye, n)

    def lane_part(r, rows, cosine, sine):
        return [
            eye.column(0, rows, r, "width") / 10, cosine, sine, *far(rows, r), float(int(rows.lane[r]) in route),
        ]  # fmt: skip

    def edge_part(r, rows, cosine, sine):
        return [cosine, sine, eye.column(1, rows, r, "median")]

    lanes, edges = layout.block("lanes"), layout.block("edges")
    row += padded([clip(one) for one in road_rows(eye, n, lanes, 0, 100.0, lane_part)], lanes)
    row += padded([clip(one) for one in road_rows(eye, n, edges, 1, 100.0, edge_part)], edges)
    rows = []
    for s, ends in lines(eye, n, 100.0, 4):
        kind, state = int(eye.scene.signals.kind[s]), int(eye.states[s])
        lights = [float(kind == 1 and state == one) for one in (1, 2, 3)]
        lights.append(float(kind == 1 and state not in (1, 2, 3)))
        controls = lane in set(eye.scene.signals.lanes(s).tolist())
        rows.append([*clip(ends), *lights, float(kind == 2), float(kind == 3), float(controls)])
    return row + padded(rows, layout.block("signals"))


def v3(eye, n):
    """`v3/1` and `v3_train/1`, from their table."""
    layout, f = eye.layout, {name: values[n] for name, values in eye.f.items()}
    lane = int(eye.i["lane"][n])
    on, limit = lane >= 0, float(eye.scene.road.speed_limit[lane]) if lane >= 0 else np.nan
    row = [
        f["speed"] / 40, (f["width"] + 2 * eye.margin) / 5, (f["length"] + 2 * eye.margin) / 10,
        f["steering"] / 0.667, f["accel_long"] / 5,
        f["accel_lat"] / 4, *clip([f["lane_offset"] / 4 * on]), np.cos(f["lane_heading_error"]) * on,
        limit / 40 if limit > 0 else -1 / 40, min(f["stopped_s"] / 60, 1.0),
    ]  # fmt: skip
    points, following = eye.goals(n)
    first = following // 3 * 3
    for k in range(first, first + 3):
        shown = [(*points[k], False)] if following <= k < len(points) else []
        row += goal_rows(eye, n, 600.0, shown, False) if shown else [0.0] * 3
    partners = []
    for other in eye.others(n, 200.0)[:16]:
        g = {name: values[other] for name, values in eye.f.items()}
        forward, left = eye.local(n, g["x"], g["y"])
        partners.append([
            forward / 200, left / 200, (g["z"] - f["z"]) / 4, g["length"] / 10, g["width"] / 5,
            *eye.turned(n, g["heading"]), g["speed"] / 40, min(g["stopped_s"] / 60, 1.0),
        ])  # fmt: skip
    row += padded(partners, layout.block("partners"))
    far = way(eye, n)

    def lane_part(r, rows, cosine, sine):
        return [eye.column(0, rows, r, "width") / 5, cosine, sine, *far(rows, r)]

    def edge_part(r, rows, cosine, sine):
        ahead = 1.0 if cosine >= 0 else -1.0
        return [3.7 / 5, ahead * cosine, ahead * sine, 0.0, 0.0]

    lanes, edges = layout.block("lanes"), layout.block("boundaries")
    seen = road_rows(eye, n, lanes, 0, 200.0, lane_part), road_rows(eye, n, edges, 1, 200.0, edge_part)
    row += padded(seen[0], lanes) + padded(seen[1], edges)
    signals = [[*e, float(eye.scene.signals.kind[s]), float(eye.states[s])] for s, e in lines(eye, n, 200.0, 4)]
    row += padded(signals, layout.block("signals"))
    return row + [float(len(rows)) for rows in (partners, *seen, signals)]


TWINS = {"wide": wide, "default": default, "v3": v3}


def compare(sim, result, atol=1e-5, worlds=None):
    """Every live row, of the named worlds if there are any, equals its twin's."""
    eyes = {}
    for row in range(len(sim.row_world)):
        world, agent = int(sim.row_world[row]), int(sim.row_agent[row])
        if worlds is not None and world not in worlds:
            continue
        eye = eyes.setdefault(world, Eye(sim, world))
        if not eye.u["body"][agent]:
            assert not result.obs[row].any()
            continue
        want = np.array(TWINS[sim.layout.family](eye, agent))
        off = np.abs(result.obs[row, : len(want)] - want)
        column = int(off.argmax())
        assert off.max() < atol, (row, column, float(result.obs[row, column]), want[column])


def drive(settings, name, worlds, steps, every, seed=6, compared=None):
    """Random drivers on a fixture, compared every few steps; of many worlds only those in `compared`."""
    scene = synthetic(name, seed=4)
    sim = simulator(scene, settings, cases=[case_of(scene, replicate=k) for k in range(worlds)])
    generator = np.random.default_rng(seed)
    result = sim.reset()
    compare(sim, result, worlds=compared)
    for step in range(steps):
        result = sim.step(generator.uniform(-1, 1, (len(sim.row_world), 2)).astype(np.float32))
        if step % every == 0:
            compare(sim, result, worlds=compared)
    return sim, result


@pytest.mark.parametrize("layout", ["wide/1", "wide_32/1", "wide_20/1", "wide/1:exact"])
@pytest.mark.parametrize("name", ["crossing", "overpass"])
def test_wide_rows_equal_the_twin(layout, name):
    """S86, S96: every column of every row within 1e-5, while random drivers leave lanes, road and each other."""
    drive(EnvSettings(beyond_log="stay", layout=layout), name, 1, 40, 8)


@pytest.mark.parametrize("layout", ["wide/1:spiral", "wide_20/1:spiral", "wide_32/1:spiral"])
@pytest.mark.parametrize("name", ["crossing", "overpass"])
def test_spiral_rows_equal_the_twin(layout, name):
    """S19, S86: rows of cells in a square spiral, first come first kept, for checkpoints that were trained so."""
    drive(EnvSettings(beyond_log="stay", layout=layout), name, 1, 16, 8)


@pytest.mark.parametrize("layout", ["wide/1", "wide_20/1"])
def test_jerk_rows_equal_the_twin(layout):
    """S86: under jerk dynamics the ego row has steering and both accelerations, where each version has them."""
    sim, _ = drive(EnvSettings(beyond_log="stay", layout=layout, dynamics="jerk"), "crossing", 1, 24, 6)
    assert sim.layout.size == {"wide/1": 1851, "wide_20/1": 1283}[layout]


@pytest.mark.parametrize("layout", ["wide_32/1", "default/1", "v3/1"])
def test_margins_widen_nobody_but_oneself(layout):
    """S87: an agent sees itself 0.1 m larger on each side, and everybody else as they are."""
    drive(EnvSettings(beyond_log="stay", layout=layout, own_size_margin=0.1), "crossing", 1, 8, 4)


@pytest.mark.parametrize("layout", ["default/1", "default/1:exact", "v3/1", "v3_train/1"])
@pytest.mark.parametrize("name", ["crossing", "overpass", "stop_yield"])
def test_rows_with_distances_equal_the_twin(layout, name):
    """S87, S88, S90, S91, S96: goals, partners, both road blocks, how far it is to the goal, and stop lines."""
    sim, result = drive(EnvSettings(beyond_log="stay", layout=layout), name, 1, 24, 8)
    far = result.obs[:, sim.layout.span("lanes")].reshape(len(result.obs), -1, len(sim.layout.block("lanes").features))
    assert ((far[..., 7] > 0) & (far[..., 7] < 1)).any()  # somebody is on a way to the goal


@pytest.mark.parametrize(("layout", "size"), [("default/1", 989), ("v3/1", 1292), ("v3_train/1", 923)])
def test_conditioned_agents_see_their_coefficients(layout, size):
    """S87, S88, S95: 17 numbers in [-1, 1] stand after the ego block, each agent's own, and all else is as without."""
    scene = synthetic("crossing", seed=4)
    plain = simulator(scene, EnvSettings(layout=layout)).reset().obs
    settings = EnvSettings(layout=layout, conditioning=True, randomise=True)
    sim = simulator(scene, settings)
    obs = sim.reset().obs
    at_ = sim.layout.span("coefficients")
    assert obs.shape[1] == size
    assert (obs[:, at_] == sim._coef[18:35, sim._row_flat].T).all()
    assert np.abs(obs[:, at_]).max() <= 1
    assert len(np.unique(obs[:, at_][:, 0])) == len(obs)
    assert (np.delete(obs, np.r_[at_], axis=1) == plain).all()


BOUNDED = ["default/1", "compact/1", "wide/1", "wide_20/1", "v3/1", "deferred/1"]


@pytest.mark.parametrize("layout", BOUNDED)
def test_bounds_hold_for_any_state(layout):
    """S84: 100,000 random and extreme states, written into the state itself: trucks of 60 m, corners and beyond, speeds
    at and over every cap, years of standing."""
    scene = synthetic("overpass", seed=4)
    cases = [case_of(scene, replicate=k) for k in range(100)]
    sim = simulator(scene, EnvSettings(beyond_log="stay", layout=layout), cases=cases)
    sim.reset()
    low, high = sim.layout.bounds()
    generator, agents = np.random.default_rng(1), sim._f4.shape[1]
    extremes = {at.SPEED: 200.0, at.STEERING: 2.0, at.ACCEL_LONG: 1e3, at.ACCEL_LAT: 1e3, at.YAW_RATE: 50.0}
    extremes |= {at.LANE_OFFSET: 30.0, at.X: 16_000.0, at.Y: 16_000.0, at.Z: 20.0}
    arguments = (sim._batch.entries[0], sim._slot_pool.table.entries, sim._scratch.entries[0], 0, 100)
    for turn in range(-(-100_000 // agents)):
        wild = generator.random(agents) < 0.5
        for field, most in extremes.items():
            near = {at.X: 150.0, at.Y: 150.0, at.Z: 4.0}.get(field, most / 10)
            sim._f4[field] = generator.uniform(-1, 1, agents) * np.where(wild, most, near)
        heading = (
            generator.uniform(-np.pi, np.pi, agents) if turn % 3 else generator.choice([0, np.pi / 2, np.pi], agents)
        )
        sim._f4[at.HEADING], sim._f4[at.COS], sim._f4[at.SIN] = heading, np.cos(heading), np.sin(heading)
        sim._f4[at.LENGTH] = generator.uniform(0.5, 60, agents)
        sim._f4[at.WIDTH] = generator.uniform(0.5, 60, agents)
        sim._f4[at.STOPPED_S] = generator.choice([0.0, 30.0, 1e8], agents)
        sim._f4[at.LANE_LIMIT] = generator.choice([np.nan, 1e-3, 13.9, 300.0], agents)
        sim._i4[at.LANE] = generator.integers(-1, scene.road.lane_count, agents)
        sim._phases.observe(*arguments)
        obs = sim.result.obs
        assert np.isfinite(obs).all()
        beyond = (obs < low) | (obs > high)
        assert not beyond.any(), (np.argwhere(beyond)[:3], obs[beyond][:3])


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["default/1", "wide/1", "v3/1"])
def test_many_worlds_equal_the_twin(layout):
    """S96: 300 worlds and 50 steps; a world that read its neighbour's rows would show only here. The twin takes
    milliseconds a row, so it is asked about the first worlds, the last and some between, not about all."""
    compared = {0, 1, 149, 150, 298, 299, *np.random.default_rng(2).integers(2, 298, 6).tolist()}
    drive(EnvSettings(beyond_log="stay", layout=layout), "crossing", 300, 50, 49, compared=compared)


@pytest.mark.parametrize(("small", "whole"), [("deferred/1", "wide/1"), ("deferred_32/1", "wide_32/1")])
@pytest.mark.parametrize("name", ["crossing", "overpass"])
def test_deferred_rows_expand_to_the_kernels_rows(small, whole, name):
    """S94: the learner's gather and the kernel's writing are two programs for one list: they agree to 1e-6, on both
    levels, off the road and off the map, and a row is 1.8 KB or 0.9 KB."""
    scene, generator = synthetic(name, seed=4), np.random.default_rng(5)
    settings = EnvSettings(beyond_log="stay")
    sims = [simulator(scene, settings.model_copy(update={"layout": layout})) for layout in (small, whole)]
    results = [sim.reset() for sim in sims]
    gate = settings.level_gate if scene.meta.has_z else np.inf
    maps = {0: sims[0]._stage_of[0].index.rows[0]}
    for step in range(60):
        if step % 6 == 0:
            full = expand(results[0].obs, sims[0].layout, maps, gate)
            assert full.shape == results[1].obs.shape
            np.testing.assert_allclose(full, results[1].obs, atol=1e-6)
        actions = generator.uniform(-1, 1, (len(sims[0].row_world), 2)).astype(np.float32)
        results = [sim.step(actions) for sim in sims]
    assert results[0].obs.shape[1] * 4 < (1850 if small == "deferred/1" else 950)
    with pytest.raises(ProtocolError, match="not among the 0 maps"):
        expand(results[0].obs, sims[0].layout, {}, gate)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8"])
def test_packed_rows_decode_to_half_a_step(dtype):
    """S94: what is stored is the nearest that can be, so no value is off by more than half a step."""
    layout = "compact/1" if dtype == "int8" else "wide/1"
    generator = np.random.default_rng(3)
    scene = synthetic("crossing", seed=4)
    plain = simulator(scene, EnvSettings(beyond_log="stay", layout=layout))
    packed = simulator(scene, EnvSettings(beyond_log="stay", layout=layout, obs_dtype=dtype))
    full, small = plain.reset(), packed.reset()
    for _ in range(12):
        actions = generator.uniform(-1, 1, (len(plain.row_world), 2)).astype(np.float32)
        full, small = plain.step(actions), packed.step(actions)
        if dtype == "bfloat16":
            decoded = (small.obs.astype(np.uint32) << 16).view(np.float32)
            assert (np.abs(decoded - full.obs) <= np.abs(full.obs) * 2.0**-8).all()
        elif dtype == "float16":
            assert (small.obs == full.obs.astype(np.float16)).all()
        else:
            assert np.abs(small.obs / 127 - full.obs).max() <= 0.5 / 127 + 1e-7
    assert small.obs.any()
