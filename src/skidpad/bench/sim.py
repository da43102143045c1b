"""`skidpad bench sim`: agent-steps per CPU second, with the observation written, and what starting costs.

One agent-step is one policy-driven agent advanced one step with its events found and its observation row written.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

from skidpad.bench.calibration import DRIFT_LIMIT, calibrate, cpu_seconds, drift, machine, spread
from skidpad.scenes.archive import load_scene
from skidpad.scenes.case import Case
from skidpad.scenes.library import library_scenes
from skidpad.scenes.map_cache import user_cache
from skidpad.settings.schema import EnvSettings
from skidpad.simulation.simulator import Simulator

SCHEMA = "skidpad.bench.sim/1"
SCENE = "USA_US101-3_1_T-1"
WORLDS = 64
FIRST_STEP = (
    "from skidpad.bench.sim import open_worlds; import numpy as np\n"
    "sim = open_worlds(1); sim.reset(); sim.step(np.zeros((len(sim.row_world), 2), np.float32))"
)


def open_worlds(count: int) -> Simulator:
    """`count` worlds on one bundled scene, every vehicle that can be under test driven by a policy."""
    scene = load_scene(library_scenes(SCENE)[0])
    cases = [Case(scene.digest, scene.meta.scene_id, 0, replicate) for replicate in range(count)]
    return Simulator(cases, EnvSettings(), scenes={scene.digest: scene}, cache=user_cache())


def start_seconds(cache: str) -> float:
    """CPU seconds of a new process from import to its first step, with kernels cached under `cache`."""
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    start = os.times()
    subprocess.run([sys.executable, "-c", FIRST_STEP], check=True, env=environment)
    end = os.times()
    return (end.children_user - start.children_user) + (end.children_system - start.children_system)


def bench_sim(*, quick: bool = False) -> dict[str, Any]:
    """Measure stepping and starting; returns what `--json` prints."""
    before = calibrate()
    simulator = open_worlds(WORLDS)
    rows = len(simulator.row_world)
    actions = np.random.default_rng(0).uniform(-1, 1, (64, rows, 2)).astype(np.float32) * np.float32(0.2)
    result = simulator.reset()
    steps = int(simulator.world_steps.min()) - 1

    def episode() -> None:
        simulator.reset()
        for k in range(steps):
            simulator.step(actions[k % len(actions)])

    def resets() -> None:
        simulator.reset()

    # Vehicles leave when their track ends: only rows that are driven count as agent-steps. This pass is not timed.
    driven = 0
    for k in range(steps):
        driven += int(simulator.step(actions[k % len(actions)]).mask.sum())
    rounds = 3 if quick else 9
    whole, reset = cpu_seconds(episode, rounds), cpu_seconds(resets, rounds)
    stepped = [max(a - min(reset), 1e-9) for a in whole]
    per_second = driven / min(stepped)
    observation_bytes = result.obs.shape[1] * 4
    after = calibrate()
    figures: dict[str, Any] = {
        "schema": SCHEMA,
        "machine": machine(),
        "calibration": {"before": before, "after": after, "reliable": drift(before, after) <= DRIFT_LIMIT},
        "scene": SCENE,
        "worlds": WORLDS,
        "rows": rows,
        "steps": steps,
        "agent_steps": driven,
        "observation_floats": result.obs.shape[1],
        "threads": 1,
        "episode_cpu_seconds": spread(whole),
        "reset_cpu_seconds": spread(reset),
        "agent_steps_per_cpu_second": per_second,
        "share_of_copy_bound": per_second * observation_bytes / before["copy_reused"],
    }
    simulator.close()
    if not quick:
        figures |= starting_figures()
    return figures


def starting_figures() -> dict[str, float]:
    """CPU seconds to the first step of a new process, with an empty kernel cache and with a full one."""
    with tempfile.TemporaryDirectory() as cache:
        wall = time.perf_counter()
        cold = start_seconds(cache)
        wall = time.perf_counter() - wall
        return {
            "cold_start_cpu_seconds": cold,
            "cold_start_wall_seconds": wall,
            "cached_start_cpu_seconds": start_seconds(cache),
        }
