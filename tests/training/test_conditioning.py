"""A driver that was shown its coefficients while it learnt drives as they say (S95)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from skidpad.evaluation.evaluators import TYPES
from skidpad.policies.checkpoint import load_checkpoint
from skidpad.policies.network import ActorCritic
from skidpad.scenes.convert import open_scene
from skidpad.scenes.events import Event
from skidpad.settings.schema import RewardSettings
from skidpad.settings.suite import load_suite
from skidpad.simulation.training import training_simulator
from skidpad.training.run import train_suite

SUITE = """
[env]
simulation_mode = "gigaflow"
action_type = "discrete"
layout = "default/1"
num_goals = 1
goal_behaviour = "rolling"
goal_spacing = [30.0, 60.0]
dt = 0.2
conditioning = true

[train]
env.scenes = "library:Town06"
env.randomise = true
env.scenario_length = 100
env.min_agents_per_world = 8
env.max_agents_per_world = 8
env.collision_behaviour = "ignore"
env.offroad_behaviour = "remove"
env.red_light_behaviour = "ignore"
env.stop_sign_behaviour = "ignore"
env.spawn_speed = 8.0
env.reward.progress = 0.05
total_steps = 600_000
rows = 256
horizon = 16
epochs = 2
minibatches = 16
learning_rate = 2e-3
advantage_filter = 0.3

[policy]
encoder = 16
hidden = [64]
"""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_the_careless_drive_faster_than_the_careful(tmp_path: Path) -> None:
    """One driver, learnt under drawn coefficients, in the same worlds twice: with nothing to lose by a collision or the
    kerb it drives at least 1 m/s faster and above the limit at least twice as often as with the most to lose."""
    path = tmp_path / "suite.toml"
    path.write_text(SUITE, encoding="utf-8")
    suite = load_suite(path, (), types=TYPES)
    result = train_suite(suite, tmp_path / "run")
    assert result.checkpoint is not None
    checkpoint = load_checkpoint(result.checkpoint)
    network = ActorCritic(checkpoint.architecture.network)
    network.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in checkpoint.arrays.items()})
    assert suite.training is not None
    training = suite.training

    def drive(weight: float) -> tuple[float, float]:
        """Mean speed [m/s], and share of steps above the limit."""
        reward = RewardSettings(progress=0.05, collision=weight, offroad=weight)
        settings = training.env.model_copy(update={"randomise": False, "reward": reward})
        generator = torch.Generator().manual_seed(0)
        speeds, above, live = [], 0, 0
        with training_simulator([open_scene(scene) for scene in training.scenes], settings, rows=128, seed=9) as worlds:
            shown = worlds.reset()
            for _ in range(99):
                with torch.inference_mode():
                    out = network(torch.from_numpy(shown.obs), None)[0]
                index = torch.multinomial(torch.softmax(out, 1), 1, generator=generator)[:, 0]
                shown = worlds.step(worlds.actions.split(index.to(torch.int32).numpy()))
                speeds.append(40.0 * shown.obs[shown.mask, 0])
                above += int((shown.events[shown.mask] & int(Event.OVERSPEED) != 0).sum())
                live += int(shown.mask.sum())
        return float(np.concatenate(speeds).mean()), above / live

    careless, careful = drive(0.0), drive(3.0)
    assert careless[0] > careful[0] + 1.0
    assert careless[1] > 2 * careful[1]
