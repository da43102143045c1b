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

FLAT = {"compact/1", "default/1"}  # clipped to [-1, 1]


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
        if self.layout.order == "exact":
            dx, dy, middle = rows.mid[0] - self.f["x"][n], rows.mid[1] - self.f["y"][n], heading
        ahead, left = dx * np.cos(middle) + dy * np.sin(middle), dy * np.cos(middle) - dx * np.sin(middle)
        inside = (ahead >= -behind) & (ahead <= front) & (np.abs(left) <= aside)
        order = [r for r in np.lexsort((np.arange(len(dx)), dx**2 + dy**2)) if inside[r]][:listed]
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


def wide(eye, n):
    """`wide/1` and its forms."""
    layout, f = eye.layout, {name: values[n] for name, values in eye.f.items()}
    raised = len(layout.block("partners").features) == 8
    goal = eye.next_goal(n)
    forward, left = (0.0, 0.0) if goal is None else eye.local(n, goal[0], goal[1])
    off = bool(eye.events[n] & np.uint32(Event.OFFROAD))
    row = [forward / 200, left / 200]
    row += [0.0 if goal is None else (goal[2] - f["z"]) / 50] if raised else []
    row += [f["speed"] / 100, f["width"] / 15, f["length"] / 30, float(eye.u["touching"][n] or off)]
    row += [float(eye.u["ghost"][n])]
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


TWINS = {"wide": wide}


def compare(sim, result, atol=1e-5):
    """Every live row equals its twin's."""
    eyes = {}
    for row in range(len(sim.row_world)):
        world, agent = int(sim.row_world[row]), int(sim.row_agent[row])
        eye = eyes.setdefault(world, Eye(sim, world))
        if not eye.u["body"][agent]:
            assert not result.obs[row].any()
            continue
        want = np.array(TWINS[sim.layout.family](eye, agent))
        off = np.abs(result.obs[row, : len(want)] - want)
        column = int(off.argmax())
        assert off.max() < atol, (row, column, float(result.obs[row, column]), want[column])


def drive(settings, name, worlds, steps, every, seed=6):
    """Random drivers on a fixture, compared every few steps."""
    scene = synthetic(name, seed=4)
    sim = simulator(scene, settings, cases=[case_of(scene, replicate=k) for k in range(worlds)])
    generator = np.random.default_rng(seed)
    result = sim.reset()
    compare(sim, result)
    for step in range(steps):
        result = sim.step(generator.uniform(-1, 1, (len(sim.row_world), 2)).astype(np.float32))
        if step % every == 0:
            compare(sim, result)
    return sim, result


@pytest.mark.parametrize("layout", ["wide/1", "wide_32/1", "wide_20/1", "wide/1:exact"])
@pytest.mark.parametrize("name", ["crossing", "overpass"])
def test_wide_rows_equal_the_twin(layout, name):
    """S86, S96: every column of every row within 1e-5, while random drivers leave lanes, road and each other."""
    drive(EnvSettings(beyond_log="stay", layout=layout), name, 1, 40, 8)


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
