"""`skidpad bench metrics`: how long scores take, each on one core and beside what it is compared with.

Realism is measured on a made-up scene of the full load (32 rollouts, 80 rows, 50 objects, all scored) among the road
edges of a bundled town; the other metrics on IDM drives through bundled traffic, so that contacts and gaps are real.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from skidpad.bench.calibration import DRIFT_LIMIT, calibrate, cpu_seconds, drift, machine, spread
from skidpad.evaluation.metrics.realism import realism
from skidpad.evaluation.metrics.registry import METRICS, compute
from skidpad.evaluation.rollout import Labels, rollout
from skidpad.evaluation.rollout_scenes import scene_edges
from skidpad.evaluation.rollouts import (
    FUTURE,
    HISTORY,
    ROLLOUTS,
    Lights,
    Log,
    RoadEdges,
    Rollouts,
    make_lights,
    make_log,
    make_rollouts,
)
from skidpad.evaluation.statistics import Column, paired
from skidpad.runs.trace import Trace
from skidpad.scenes.archive import load_scene
from skidpad.scenes.case import Case
from skidpad.scenes.library import library_scenes
from skidpad.scenes.map_cache import user_cache
from skidpad.scenes.scene import TYPE_VEHICLE, Scene
from skidpad.settings.schema import EnvSettings
from skidpad.simulation.population import eligible
from skidpad.simulation.simulator import Simulator

SCHEMA = "skidpad.bench.metrics/1"
TRAFFIC, TOWN = "USA_US101-3_1_T-1", "Town03"
OBJECTS = 50
CLS_CASE_S = 15.0
PAIRS = 1000
# The official realism evaluator, one scenario on a two-core machine: fastest and slowest measured.
OFFICIAL_REALISM_S = (117.0, 806.0)


def realism_load() -> tuple[Rollouts, Log, RoadEdges | None, Lights]:
    """Fifty cars on the lanes of a town and 32 noisy continuations of each; no lights."""
    town = load_scene(library_scenes(TOWN)[0])
    rng = np.random.default_rng(0)
    points = town.road.xyz[rng.choice(len(town.road.xyz), OBJECTS, replace=False)].astype(np.float64)
    heading, speed = rng.uniform(-np.pi, np.pi, (OBJECTS, 1)), rng.uniform(0, 12, (OBJECTS, 1))
    time = (np.arange(HISTORY + FUTURE) - HISTORY + 1) * 0.1
    x, y = points[:, :1] + speed * np.cos(heading) * time, points[:, 1:2] + speed * np.sin(heading) * time
    z = np.repeat(points[:, 2:], len(time), axis=1)
    log = make_log(
        object_id=np.arange(OBJECTS),
        object_type=np.full(OBJECTS, TYPE_VEHICLE),
        length=np.full(OBJECTS, 4.6),
        width=np.full(OBJECTS, 2.0),
        height=np.full(OBJECTS, 1.6),
        x=x,
        y=y,
        z=z,
        heading=np.repeat(heading, len(time), axis=1),
        valid=np.ones(x.shape, dtype=bool),
        scored=np.arange(OBJECTS),
    )
    noise = np.cumsum(rng.normal(0, 0.05, (2, ROLLOUTS, OBJECTS, FUTURE)), axis=3)
    future = [np.broadcast_to(array[:, HISTORY:], noise.shape[1:]) for array in (x, y, z, log.heading)]
    rollouts = make_rollouts(log.object_id, future[0] + noise[0], future[1] + noise[1], future[2], future[3])
    lights = make_lights(np.zeros((0, 2)), [0], [], [], np.zeros((0, 2)), np.zeros((len(time), 0)))
    return rollouts, log, scene_edges(town), lights


def drives() -> tuple[Scene, list[Trace], float]:
    """One trace per vehicle of the bundled traffic, driven by IDM among the recorded others, and the CPU seconds that
    simulating one took."""
    scene = load_scene(library_scenes(TRAFFIC)[0])
    env = EnvSettings(control="sdc", sdc_controller="idm", num_goals=1)
    egos = [int(track) for track in eligible(scene, env.model_copy(update={"control": "vehicles"}))]
    cases = [Case(scene.digest, scene.meta.scene_id, 0, ego=ego) for ego in egos]
    simulator = Simulator(cases, env, scenes={scene.digest: scene}, cache=user_cache())
    found: list[Any] = []

    def run() -> None:
        found[:] = rollout(
            simulator, cases, None, env=env, selection="deterministic", labels=Labels("bench", "idm", "")
        )

    run()  # kernels are compiled
    seconds = min(cpu_seconds(run, 3)) / len(cases)
    simulator.close()
    return scene, [outcome.trace for outcome in found if outcome.trace is not None], seconds


def bootstrap() -> None:
    """A paired interval of 1,000 pairs, each a scene of its own, with 10,000 resamples."""
    rng = np.random.default_rng(0)
    arm, reference = (Column(rng.random(PAIRS), np.ones(PAIRS)) for _ in range(2))
    paired(arm, reference, [str(pair) for pair in range(PAIRS)], direction="higher")


def bench_metrics(*, quick: bool = False) -> dict[str, Any]:
    """Measure the scores; returns what `--json` prints. CLS is scaled to cases of 15 s by the number of steps."""
    before = calibrate()
    repeats = 3 if quick else 9
    load = realism_load()
    realism(*load)  # kernels are compiled
    whole = cpu_seconds(lambda: realism(*load), repeats)
    scene, traces, simulated = drives()

    def score(*names: str) -> float:
        def each() -> None:
            for trace in traces:
                compute(trace, scene, names or None)

        each()
        return min(cpu_seconds(each, repeats)) / len(traces)

    steps = float(np.mean([trace.steps * trace.meta.dt for trace in traces]))
    cls, everything = score("nuplan_cls"), score()
    bootstrap()
    after = calibrate()
    return {
        "schema": SCHEMA,
        "machine": machine(),
        "calibration": {"before": before, "after": after, "reliable": drift(before, after) <= DRIFT_LIMIT},
        "threads": 1,
        "realism_seconds_per_scenario": min(whole),
        "realism_cpu_seconds": spread(whole),
        "realism_load": {"rollouts": ROLLOUTS, "steps": FUTURE, "objects": OBJECTS, "scored": OBJECTS},
        "realism_official_seconds": list(OFFICIAL_REALISM_S),
        "nuplan_seconds_per_1000_cases": 1000 * cls * CLS_CASE_S / steps,
        "case_seconds": steps,
        "cases": len(traces),
        "metrics": len(METRICS),
        "all_metrics_cpu_seconds_per_case": everything,
        "simulation_cpu_seconds_per_case": simulated,
        "paired_bootstrap_cpu_seconds": min(cpu_seconds(bootstrap, repeats)),
    }
