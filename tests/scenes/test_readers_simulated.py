"""Scenes of every reader in the simulator: they load, step, and replay their own log."""

from __future__ import annotations

import numpy as np
import pytest
from reader_samples import WITH_TRAFFIC, read, sample

from skidpad.scenes.case import Case
from skidpad.settings.schema import EnvSettings
from skidpad.simulation.simulator import Simulator


@pytest.mark.parametrize("form", WITH_TRAFFIC)
def test_the_log_is_replayed(form: str) -> None:
    """S55: what a reader hands over is simulated, and replayed tracks stand where the file says, row by row."""
    scene = read(form, sample(form))
    case = Case(scene.digest, scene.meta.scene_id, benchmark_seed=0)
    sim = Simulator([case], EnvSettings(), scenes={scene.digest: scene}, substitute="replay")
    sim.reset()
    for row in range(scene.meta.current_step + 1, scene.meta.steps):
        sim.step(sim.log_actions())
        there = scene.tracks.valid[:, row] & scene.tracks.valid[:, scene.meta.current_step]
        np.testing.assert_array_equal(sim.agent["x"][there], scene.tracks.x[there, row])
        np.testing.assert_array_equal(sim.agent["y"][there], scene.tracks.y[there, row])


@pytest.mark.parametrize("form", WITH_TRAFFIC)
def test_somebody_can_be_driven(form: str) -> None:
    """S51: the recording vehicle is handed to a driver, and a step moves it."""
    scene = read(form, sample(form))
    case = Case(scene.digest, scene.meta.scene_id, benchmark_seed=0)
    sim = Simulator([case], EnvSettings(), scenes={scene.digest: scene})
    sim.reset()
    before = sim.agent["x"].copy()
    sim.step(sim.log_actions())
    assert (sim.agent["x"] != before).any()
