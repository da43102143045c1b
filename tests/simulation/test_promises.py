"""One hash whatever varies that must not matter (S35), and closing in any order (S30)."""

from __future__ import annotations

import gc
import hashlib
import itertools
import multiprocessing

import numpy as np
import pytest
from worlds import case_of, simulator

from skidpad.scenes.map_cache import MapCache
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import EnvSettings, PerturbationSettings
from skidpad.simulation.random import uniform_array

NAMES = ("straight", "curve", "crossing")
NOISY = EnvSettings(
    scenario_length=70,
    vehicle_controller="policy",
    perturbation=PerturbationSettings(lane_dropout=0.3, edge_dropout=0.2, blindness=0.5, phantom_braking=0.5),
)
STEPS = 300


def moves(sim, steps):
    """Actions by identity, for the steps given: (M, N, 2)."""
    step = np.asarray(steps)[:, None, None]
    drawn = uniform_array(sim.row_seed[None, :, None], 0, sim.row_key[None, :, None], step, 12, np.arange(2))
    return (drawn * np.float32(2) - np.float32(1)).astype(np.float32)


def hashes(order, *, threads=1, chunk=1, snapshot=False, cache=None, settings=NOISY, steps=STEPS):
    """Digest by case of all results over some steps of episode after episode."""
    scenes = [synthetic(name) for name in NAMES]
    cases = [case_of(scenes[k]) for k in order]
    sim = simulator(scenes, settings, cases=cases, threads=threads, cache=cache, autoreset="same_step")
    sim.reset()
    found = [hashlib.sha256() for _ in cases]
    for first in range(0, steps, chunk):
        if snapshot and first % 50 == 0:
            data = sim.snapshot()
            sim.close()
            sim = simulator(scenes, settings, cases=cases, threads=threads, cache=cache, autoreset="same_step")
            sim.restore(data)
        count = min(chunk, steps - first)
        names = ("obs", "reward", "terminal", "truncated", "mask", "events", "reward_terms", "final_obs")
        kept = {
            name: np.zeros((count, *getattr(sim.result, name).shape), getattr(sim.result, name).dtype) for name in names
        }
        sim.step_many(moves(sim, range(first, first + count)), into=kept)
        for w in range(len(cases)):
            for k, name in itertools.product(range(count), names):
                if name != "final_obs":  # it holds what the last end left there, also of before a snapshot
                    found[w].update(kept[name][k][sim.row_world == w].tobytes())
    sim.close()
    return {case.id: digest.hexdigest() for case, digest in zip(cases, found, strict=True)}


def in_another_process(queue, order):
    """What a spawned process finds."""
    queue.put(hashes(order))


@pytest.mark.slow
def test_seven_factors_one_hash(tmp_path):
    """S35: threads, company, order of worlds, chunks of steps, processes, list mode, cache, and a snapshot in between
    are no inputs: every case has one hash over 300 steps and four episodes."""
    expected = hashes([0, 1, 2])
    assert len(set(expected.values())) == 3
    assert hashes([0, 1, 2], threads=2) == expected
    assert hashes([0, 1, 2], threads=3) == expected
    assert hashes([2, 0, 1]) == expected
    for k in range(3):
        assert hashes([k]).items() <= expected.items()
    assert hashes([0, 1, 2], chunk=7) == expected
    assert hashes([0, 1, 2], snapshot=True) == expected
    assert hashes([0, 1, 2], cache=MapCache(tmp_path / "maps")) == expected
    assert hashes([0, 1, 2], cache=MapCache(tmp_path / "maps")) == expected
    computed = NOISY.model_copy(update={"lists": "computed"})
    assert hashes([0, 1, 2], settings=computed) == expected
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=in_another_process, args=(queue, [1, 2]))
    process.start()
    assert queue.get(timeout=300).items() <= expected.items()
    process.join()


@pytest.mark.slow
def test_closing_in_any_order():
    """S30: simulators on shared scenes close in any order, twice, or never, and those that remain go on."""
    scenes = [synthetic(name) for name in NAMES[:2]]
    for order in itertools.permutations(range(3)):
        sims = [simulator(scenes, EnvSettings(scenario_length=5), threads=1 + k % 2) for k in range(3)]
        for sim in sims:
            sim.reset()
        for gone, k in enumerate(order):
            sims[k].close()
            sims[k].close()
            for other in order[gone + 1 :]:
                sims[other].step(np.zeros((len(sims[other].row_world), 2), np.float32))
        del sims, sim
        gc.collect()
