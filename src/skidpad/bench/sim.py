"""`skidpad bench sim`: agent-steps per CPU second with everything on, where the time goes, and what starting costs.

One agent-step is one policy-driven agent advanced one step with its events, reward and observation row written. The
headline is 64 worlds of 32 self-playing agents on one bundled town, seen through `wide/1`, on one thread; it is read
against plain copy loops that write the same bytes in the same process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.bench.calibration import DRIFT_LIMIT, RING_BYTES, calibrate, drift, machine, spread
from skidpad.scenes.archive import load_scene
from skidpad.scenes.case import Case
from skidpad.scenes.library import library_scenes
from skidpad.scenes.map_cache import user_cache
from skidpad.scenes.scene import Scene
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import EnvSettings
from skidpad.simulation.simulator import Simulator

SCHEMA = "skidpad.bench.sim/2"
TOWN, LOG = "Town01", "USA_US101-3_1_T-1"
TARGETS = {
    "agent_steps_per_cpu_second": 1.5e6,
    "ring_copy_share": 0.55,
    "two_thread_speedup": 1.8,
    "step_ns": 180.0,
    "observe_ns": 450.0,
    "cold_start_cpu_seconds": 40.0,
    "cached_start_cpu_seconds": 2.0,
}
AT_MOST = frozenset({"step_ns", "observe_ns", "cold_start_cpu_seconds", "cached_start_cpu_seconds"})
FIRST_STEP = "from skidpad.bench.sim import first_step\nfirst_step()"
PHASES = ("advance", "detect", "outcomes", "observe")


class Shape(NamedTuple):
    """One thing to measure: how many worlds of how many agents, on which maps, seen how."""

    worlds: int
    agents: int
    layout: str = "wide/1"
    maps: int = 1
    threads: int = 1
    lists: str = "auto"
    mode: str = "gigaflow"

    @property
    def name(self) -> str:
        """For the table."""
        words = [f"{self.worlds} x {self.agents}" if self.mode == "gigaflow" else f"{self.worlds} logs", self.layout]
        words += [f"{self.maps} maps"] if self.maps > 1 else []
        words += [f"{self.threads} threads"] if self.threads > 1 else []
        words += [self.lists] if self.lists != "auto" else []
        return ", ".join(words)


HEADLINE = Shape(64, 32)
OTHERS = (
    Shape(64, 32, "compact/1"),
    Shape(64, 32, "default/1"),
    Shape(64, 32, "wide_32/1"),
    Shape(64, 32, "deferred/1"),
    Shape(64, 32, "wide/1:exact"),
    Shape(64, 32, lists="computed"),
    Shape(64, 32, maps=64),
    Shape(32, 64),
    Shape(16, 128),
    Shape(8, 256),
    Shape(8, 64),
    Shape(1, 300),
    Shape(512, 1),
    Shape(64, 0, mode="replay"),
)


def open_worlds(shape: Shape) -> Simulator:
    """A simulator of a shape: self-play on a town (or on generated crossings where many maps are asked for), or every
    vehicle of a bundled log that can be under test."""
    sizes = {"min_agents_per_world": shape.agents, "max_agents_per_world": shape.agents} if shape.agents else {}
    settings = EnvSettings.model_validate(
        {"layout": shape.layout, "simulation_mode": shape.mode, "lists": shape.lists, **sizes}
    )
    scenes = maps_of(shape)
    cases = [Case(scenes[w % len(scenes)].digest, "", 0, w) for w in range(shape.worlds)]
    return Simulator(
        cases, settings, scenes={scene.digest: scene for scene in scenes}, threads=shape.threads, cache=user_cache()
    )


def maps_of(shape: Shape) -> list[Scene]:
    """The scenes of a shape."""
    if shape.mode == "replay":
        return [load_scene(library_scenes(LOG)[0])]
    if shape.maps == 1:
        return [load_scene(library_scenes(TOWN)[0])]
    return [synthetic("crossing", seed=seed) for seed in range(shape.maps)]


class Rates(NamedTuple):
    """Seconds of one round, measured several times, and the agent-steps that a round holds."""

    cpu: list[float]
    wall: list[float]
    agent_steps: int

    @property
    def per_cpu_second(self) -> float:
        """Agent-steps per CPU second, at the median round."""
        return self.agent_steps / float(np.median(self.cpu))


def rounds_of(simulator: Simulator, steps: int, rounds: int, ring: NDArray[np.float32] | None = None) -> Rates:
    """Step a simulator `rounds` times for `steps` steps with small random actions, from state 0 every time.

    ring  (M, N, D) f32: observations go to its next entry at each step instead of to one buffer
    """
    actions = np.random.default_rng(0).uniform(-0.2, 0.2, (steps, len(simulator.row_world), 2)).astype(np.float32)
    cpu: list[float] = []
    wall: list[float] = []
    counted = 0
    for turn in range(rounds + 1):
        simulator.reset()
        begun = time.perf_counter(), time.process_time()
        live = 0
        for start in range(0, steps, len(ring) if ring is not None else 1):
            if ring is None:
                live += int(np.count_nonzero(simulator.step(actions[start]).mask))
            else:
                part = actions[start : start + len(ring)]
                simulator.step_many(part, into={"obs": ring[: len(part)]})
                live += int(np.count_nonzero(simulator.result.mask)) * len(part)
        if turn:  # the first round warms caches
            wall.append(time.perf_counter() - begun[0])
            cpu.append(time.process_time() - begun[1])
        counted = live
    return Rates(cpu, wall, counted)


def phase_seconds(simulator: Simulator, steps: int) -> dict[str, float]:
    """CPU seconds per agent-step of each phase, the minimum over steps."""
    times: dict[str, list[float]] = {name: [] for name in PHASES}
    plain = simulator._phases

    def timed(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            start = time.thread_time()
            result = kernel(*arguments)
            times[name].append(time.thread_time() - start)
            return result

        return run

    actions = np.random.default_rng(1).uniform(-0.2, 0.2, (len(simulator.row_world), 2)).astype(np.float32)
    simulator.reset()
    wrapped: dict[str, Any] = {name: timed(name, getattr(plain, name)) for name in PHASES}
    simulator._phases = plain._replace(**wrapped)
    try:
        for _ in range(steps):
            simulator.step(actions)
    finally:
        simulator._phases = plain
    return {name: float(np.median(values)) / len(simulator.row_world) for name, values in times.items()}


def start_seconds(cache: str) -> float:
    """CPU seconds of a new process from import to its first step, with kernels cached under `cache`."""
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    start = os.times()
    subprocess.run([sys.executable, "-c", FIRST_STEP], check=True, env=environment)
    end = os.times()
    return (end.children_user - start.children_user) + (end.children_system - start.children_system)


def first_step() -> None:
    """One step of one world: what a new process waits for."""
    with open_worlds(Shape(1, 32)) as simulator:
        simulator.reset()
        simulator.step(np.zeros((len(simulator.row_world), 2), np.float32))


def bench_sim(*, quick: bool = False) -> dict[str, Any]:
    """Measure stepping and starting; returns what `--json` prints."""
    steps, rounds = (60, 3) if quick else (120, 7)
    before = calibrate()
    with open_worlds(HEADLINE) as simulator:
        one = rounds_of(simulator, steps, rounds)
        row_bytes = simulator.result.obs.shape[1] * 4
        rows = len(simulator.row_world)
        slots = max(2, RING_BYTES // (rows * row_bytes) + 1)
        ring = np.zeros((slots, rows, simulator.result.obs.shape[1]), np.float32)
        streamed = rounds_of(simulator, steps, rounds, ring)
        parts = phase_seconds(simulator, steps)
    with open_worlds(HEADLINE._replace(threads=2)) as simulator:
        two = rounds_of(simulator, steps, rounds, ring)
    after = calibrate()
    bound = {name: before[name] / row_bytes for name in ("copy_reused", "copy_ring")}
    figures: dict[str, Any] = {
        "schema": SCHEMA,
        "machine": machine(),
        "calibration": {"before": before, "after": after, "reliable": drift(before, after) <= DRIFT_LIMIT},
        "layout": HEADLINE.layout,
        "map": TOWN,
        "worlds": HEADLINE.worlds,
        "agents": HEADLINE.agents,
        "threads": 1,
        "observation_floats": row_bytes // 4,
        "agent_steps_per_cpu_second": one.per_cpu_second,
        "copy_bound_share": one.per_cpu_second / bound["copy_reused"],
        "ring_agent_steps_per_cpu_second": streamed.per_cpu_second,
        "ring_copy_share": streamed.per_cpu_second / bound["copy_ring"],
        "two_thread_speedup": float(np.median(streamed.wall) / np.median(two.wall)),
        "phases_ns": {name: seconds * 1e9 for name, seconds in parts.items()},
        "step_ns": sum(seconds for name, seconds in parts.items() if name != "observe") * 1e9,
        "observe_ns": parts["observe"] * 1e9,
        "round_cpu_seconds": spread(one.cpu),
    }
    if not quick:
        figures["shapes"] = {shape.name: shape_figures(shape, steps) for shape in OTHERS}
        figures |= starting_figures()
    figures["verdicts"] = verdicts(figures)
    return figures


def shape_figures(shape: Shape, steps: int) -> dict[str, float]:
    """Agent-steps per CPU second of one more shape, and nanoseconds of its phases per agent-step."""
    with open_worlds(shape) as simulator:
        rates = rounds_of(simulator, min(steps, int(simulator.world_steps.min()) - 1), 3)
        parts = phase_seconds(simulator, min(steps, int(simulator.world_steps.min()) - 1))
        return {
            "rows": len(simulator.row_world),
            "agent_steps_per_cpu_second": rates.per_cpu_second,
            **{f"{name}_ns": seconds * 1e9 for name, seconds in parts.items()},
        }


def verdicts(figures: dict[str, Any], targets: dict[str, float] | None = None) -> dict[str, str]:
    """Target by target: "met" or "missed", where it was measured."""
    found = {}
    for name, target in (targets or TARGETS).items():
        if name in figures:
            met = figures[name] <= target if name in AT_MOST else figures[name] >= target
            found[name] = "met" if met else "missed"
    return found


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
