"""Worlds over a map cache: the same results, one parse, no copies, any order of closing (S18, S23, S24, S30, S31)."""

from __future__ import annotations

import gc
import hashlib
import itertools
import tracemalloc
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from worlds import car, case_of, coast, simulator, straight_road

from skidpad.bench.memory import mapped
from skidpad.errors import SettingsError
from skidpad.scenes import formats
from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.map_cache import MapCache
from skidpad.scenes.scene import EDGE_BOUNDARY, LANE_STREET
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import EnvSettings
from skidpad.simulation.simulator import Simulator
from skidpad.simulation.stage import index_params

NEEDS_MAPS = pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="mappings are not told here")
# What a map's index cannot depend on: who is there, who drives, how they move, what counts, and what is perturbed.
APART = {
    "action_type",
    "allow_beyond_log",
    "beyond_log",
    "collision_behaviour",
    "compat",
    "conditioning",
    "control",
    "drop_static_in_path",
    "dt",
    "dynamics",
    "end_on_goal",
    "gate_all",
    "goal_behaviour",
    "goal_radius",
    "goal_source",
    "goal_spacing",
    "goal_speed",
    "horizon_min",
    "idm",
    "inactive_threshold",
    "init",
    "init_spread",
    "init_step",
    "level_gate",
    "limit_rank",
    "log_coefficients",
    "max_agents",
    "max_agents_per_world",
    "max_controlled",
    "min_agents_per_world",
    "num_goals",
    "obs_dtype",
    "offroad",
    "offroad_behaviour",
    "other_controller",
    "own_size_margin",
    "pdm",
    "perturbation",
    "randomise",
    "red_light_behaviour",
    "reset_accel_on_stop",
    "reward",
    "scenario_length",
    "sdc_controller",
    "simulation_mode",
    "spawn_sizes",
    "spawn_speed",
    "stop_sign_behaviour",
    "vehicle_controller",
    "yellow_counts",
}
MODES = get_args(EnvSettings.model_fields["simulation_mode"].annotation)
IN_THE_KEY = {"layout", "lists", "list_budget_mib", "map_tolerance", "max_segment"}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "maps"


def outcome(sim, steps):
    """Digest of everything that comes back in some steps, with new episodes where worlds end; actions are drawn."""
    rng = np.random.default_rng(5)
    found = hashlib.sha256()

    def take(result):
        for part in result:
            if part is not None:
                found.update(np.ascontiguousarray(part).tobytes())

    take(sim.reset())
    for _ in range(steps):
        if sim.done.all():
            take(sim.reset())
        take(sim.step(rng.uniform(-1, 1, (len(sim.row_world), 2)).astype(np.float32)))
    return found.hexdigest()


def of_a_file(tmp_path):
    """A file that must be parsed: 30 m of road with a car on it, as CommonRoad."""
    states = "".join(
        f"<{tag}><position><point><x>{10 + step}</x><y>0</y></point></position><orientation><exact>0</exact>"
        f"</orientation><time><exact>{step}</exact></time><velocity><exact>10</exact></velocity></{tag}>"
        for step, tag in enumerate(["initialState", *["state"] * 8])
    )
    initial, _, rest = states.partition("</initialState>")
    bounds = "".join(
        f"<{tag}><point><x>0</x><y>{y}</y></point><point><x>60</x><y>{y}</y></point></{tag}>"
        for tag, y in (("leftBound", 2), ("rightBound", -2))
    )
    path = tmp_path / "road.xml"
    path.write_text(
        '<commonRoad commonRoadVersion="2020a" benchmarkID="TST_Small-3_1_T-1" timeStepSize="0.1" author="A">'
        f'<lanelet id="1">{bounds}</lanelet><dynamicObstacle id="7"><type>car</type><shape><rectangle><length>4.5'
        f"</length><width>1.8</width></rectangle></shape>{initial}</initialState><trajectory>{rest}</trajectory>"
        "</dynamicObstacle></commonRoad>"
    )
    return path


# ----------------------------------------------------------------------------------------------------- settings, S23


def test_every_setting_is_in_the_key_or_reviewed():
    """S23: a new setting either changes the parameters of the index, or somebody has written here that it need not."""
    assert set(EnvSettings.model_fields) == APART | IN_THE_KEY


@pytest.mark.parametrize(
    "change", [{"map_tolerance": 0.0}, {"max_segment": 5.0}, {"lists": "computed"}, {"list_budget_mib": 1.0}]
)
def test_settings_reach_the_key(change):
    """S23: what a setting changes in the bytes, it changes in the key."""
    assert index_params(EnvSettings(**change)).digest != index_params(EnvSettings()).digest


# ------------------------------------------------------------------------------------------------- parity, S18 and S31


@pytest.mark.parametrize("name", ["crossing", "overpass"])
def test_cached_is_uncached(name, folder):
    """S31, S35: observations, events and flags of 500 steps, bit for bit, from an index built here, built and mapped,
    and mapped only; and the file is untouched."""
    scene = synthetic(name)
    with simulator(scene, cache=MapCache(None)) as sim:
        want = outcome(sim, 500)
    for builds in (1, 0):
        with MapCache(folder) as cache, simulator(scene, cache=cache) as sim:
            (path,) = folder.glob("*.index")
            before = hashlib.sha256(path.read_bytes()).digest()
            assert outcome(sim, 500) == want
            assert cache.stats.builds == builds
            assert hashlib.sha256(path.read_bytes()).digest() == before


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_the_file_outlives_ten_thousand_steps(mode, folder):
    """S31: no kernel of any mode writes into a map: the bytes on the disk are those of the first day."""
    scene = synthetic("crossing")
    with MapCache(folder) as cache, simulator(scene, EnvSettings(simulation_mode=mode), cache=cache) as sim:
        (path,) = folder.glob("*.index")
        before = path.read_bytes()
        outcome(sim, 10_000)
        assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["crossing", "merge"])
def test_stored_is_computed(name):
    """S18: where the lists come from changes no byte of 500 steps, and the statistics say which it was."""
    scene = synthetic(name)
    found = set()
    for lists, stored in (("stored", 1), ("computed", 0), ("auto", 1)):
        cache = MapCache(None)
        with simulator(scene, EnvSettings(lists=lists), cache=cache) as sim:
            assert cache.stats.stored_lists == stored
            found.add(outcome(sim, 500))
    assert len(found) == 1


def test_a_budget_too_small(folder):
    """S18: `auto` computes what the budget does not hold; `stored` says so instead of doing something else."""
    scene = synthetic("crossing")
    with MapCache(folder) as cache:
        with simulator(scene, EnvSettings(list_budget_mib=0.01), cache=cache):
            assert cache.stats.stored_lists == 0
        with pytest.raises(SettingsError, match="above the budget"):
            simulator(scene, EnvSettings(list_budget_mib=0.01, lists="stored"), cache=cache)


def large_map(streets, length):
    """Streets of a grid, [m] long, of two lanes' width each: segments enough for 32-bit ids, none of them in a file."""
    builder = SceneBuilder("large", "test", "test", "1", "0" * 64, 100_000)
    gap = length / streets
    for street in range(2 * streets):
        across = (street // 2 + 0.5) * gap - length / 2
        ends = np.array([[-length / 2, across], [length / 2, across]])
        for kind, offset in ((None, 0.0), (EDGE_BOUNDARY, 4.0), (EDGE_BOUNDARY, -4.0)):
            line = ends + np.array([0.0, offset])
            line = line[:, ::-1] if street % 2 else line
            points = np.column_stack([line, np.zeros(2)])
            if kind is None:
                builder.lane(street, points, width=np.full(2, 3.5), kind=LANE_STREET, speed_limit=13.9)
            else:
                builder.edge(points, kind)
    track = car(-length / 2 + 100.0, 0.5 * gap - length / 2, 10.0)
    builder.track(1, track.pop("type"), track.pop("subtype"), **track)
    return builder.finish(has_z=False)


@pytest.mark.slow
def test_a_map_of_400_km_runs(folder):
    """S18: a map of the size of CARLA's Town13 has lists far above the budget; it is indexed, cached and driven with
    computed ones, in bounded memory."""
    scene = large_map(20, 10_000.0)
    with MapCache(folder) as cache, simulator(scene, cache=cache) as sim:
        index = cache.index(scene, index_params(EnvSettings()))
        assert index.lists == "computed"
        assert cache.stats.stored_lists == 0
        assert len(index.rows[0].row) > 1 << 16
        assert sum(rows.ids.nbytes for rows in index.rows) == 0
        assert index.nbytes < 200 << 20
        sim.reset()
        for _ in range(20):
            result = sim.step(coast(sim))
        assert sim.agent["lane"][0] == 0
        assert np.count_nonzero(result.obs) > 50


# ------------------------------------------------------------------------------------------- one parse, no copies, S24


def test_a_thousand_worlds_parse_once(folder, tmp_path, monkeypatch):
    """S24: 1,000 worlds of a file that must be parsed open from one parse, and from none in the next program."""
    path = of_a_file(tmp_path)
    with MapCache(folder) as cache:
        scene = cache.scene(path)
        assert cache.stats.parses == 1

    def refuse(*arguments, **options):
        raise AssertionError("parsed")

    monkeypatch.setattr(formats, "read_scene", refuse)
    with MapCache(folder) as cache:
        scenes = [cache.scene(path) for _ in range(1000)]
        cases = [case_of(scene, replicate=replicate) for replicate in range(1000)]
        with simulator(scenes[0], cases=cases, cache=cache) as sim:
            sim.reset()
            sim.step(coast(sim))
            assert len(sim.row_world) == 1000
        stats = cache.stats
        assert (stats.parses, stats.builds, stats.mapped) == (0, 1, 2)
        # 100 worlds of one scene have one set of tracks, and it lies in the file.
        assert len({sim.scene(w).tracks.x.ctypes.data for w in range(100)}) == 1
        assert not sim.scene(0).tracks.x.flags.owndata


def test_memory_of_a_world():
    """S128: a world of 32 agents takes less than 64 KiB besides its observations; a list per world and agent, or a copy
    of the map, would not fit."""
    tracks = [car(10.0 * k, -3.5 * lane, 5.0) for k in range(16) for lane in range(2)]
    scene = straight_road(tracks, lanes=2)
    cache = MapCache(None)

    def memory(worlds):
        cases = [case_of(scene, replicate=replicate) for replicate in range(worlds)]
        tracemalloc.start()
        with simulator(scene, cases=cases, cache=cache) as sim:
            sim.reset()
            sim.step(coast(sim))
            size, _ = tracemalloc.get_traced_memory()
            observed = sim.result.obs.nbytes
        tracemalloc.stop()
        return size - observed

    memory(1)
    assert (memory(101) - memory(1)) / 100 < 64 << 10


# --------------------------------------------------------------------------------------------------------- closing, S30


def close_in_turn(folder, scenes, order):
    """Two simulators, three maps and a cache, let go of in some order; what is left works until its turn."""
    cache = MapCache(folder)
    held = {f"map {k}": cache.index(scene, index_params(EnvSettings())) for k, scene in enumerate(scenes)}
    held |= {f"simulator {k}": simulator(scenes[: k + 2], cache=cache) for k in range(2)}
    held["cache"] = cache
    for sim in (held["simulator 0"], held["simulator 1"]):
        sim.reset()
    del cache, sim
    for name in order:
        for other, thing in held.items():
            if isinstance(thing, Simulator):
                thing.step(coast(thing))
            elif other.startswith("map"):
                assert np.isfinite(thing.points).all()
        thing = held.pop(name)
        if not name.startswith("map"):
            thing.close()
            thing.close()
        del thing


@NEEDS_MAPS
@pytest.mark.parametrize("orders", [slice(0, 720, 90), pytest.param(slice(0, 720), marks=pytest.mark.slow)])
def test_any_order_of_closing(folder, orders):
    """S30: worlds, simulators and caches close in any order, twice; a mapping lives while somebody uses it and is gone
    with the last."""
    scenes = [synthetic(name) for name in ("straight", "curve", "merge")]
    names = ("map 0", "map 1", "map 2", "simulator 0", "simulator 1", "cache")
    for order in list(itertools.permutations(names))[orders]:
        close_in_turn(folder, scenes, order)
        assert mapped(folder).size == 0, order


@NEEDS_MAPS
def test_never_closing(folder):
    """S30: what nobody closes is gone when nobody holds it."""
    scene = synthetic("straight")
    cache = MapCache(folder)
    sim = simulator(scene, cache=cache)
    sim.reset()
    assert mapped(folder).size > 0
    del cache, sim
    gc.collect()
    assert mapped(folder).size == 0


def test_scenes_of_one_map_share_its_index(folder):
    """S1, S25: two scenes that differ in traffic only have one index in a simulator, and one file."""
    scenes = [synthetic("merge", seed=seed) for seed in (1, 2)]
    assert scenes[0].digest != scenes[1].digest
    with MapCache(folder) as cache, simulator(scenes, cache=cache):
        assert (cache.stats.builds, cache.stats.mapped, cache.stats.size) == (1, 1, 1)
