"""check_simulator finds nothing in a simulator that is well, and calls every kind of sabotage by its name (S121)."""

from __future__ import annotations

import numpy as np
import pytest

from skidpad.errors import ProtocolError
from skidpad.scenes.synthetic import synthetic
from skidpad.simulation.check import check_simulator
from skidpad.simulation.simulator import Simulator
from skidpad.simulation.training import training_settings, training_simulator

SCENES = [synthetic(name) for name in ("crossing", "straight")]


def small(**options):
    """Thirteen rows in several worlds, which end after twelve steps, most drivers before."""
    keys = {name: options.pop(name) for name in list(options) if name not in ("autoreset", "resample_every", "reward")}
    return training_simulator(SCENES, training_settings(scenario_length=12, **keys), rows=13, seed=5, **options)


@pytest.mark.parametrize("autoreset", ["off", "same_step", "next_step"])
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"action_type": "discrete", "obs_dtype": "int8"},
        {"simulation_mode": "gigaflow", "min_agents_per_world": 2, "max_agents_per_world": 4, "obs_dtype": "bfloat16"},
        {"reward": lambda terms, events: terms[:, 0] - np.float32(1.0) * (events > 0)},
    ],
    ids=["log", "discrete", "self_play", "custom"],
)
def test_a_sound_simulator(autoreset, keys, capsys):
    """S121: nothing is found under any autoreset, action type, row type or mode, and nothing is printed."""
    assert check_simulator(small(autoreset=autoreset, **keys), steps=40) == []
    assert capsys.readouterr().out == ""


class Sabotaged(Simulator):
    """A simulator with `spoil(result)` after every step."""

    def step(self, actions):
        return self.spoil(super().step(actions))


class Moody(Sabotaged):
    """Its rewards depend on how often it was asked."""

    calls = 0

    def spoil(self, result):
        self.calls += 1
        if self.calls == 50:
            result.reward_terms[0, 0] += 0.5
            result.reward[0] += 0.5
        return result


class Boundless(Sabotaged):
    """An observation leaves its declared range."""

    def spoil(self, result):
        result.obs[0, 0] = 1.5 if result.mask[0] else 0.0
        return result


class Infinite(Sabotaged):
    """A reward is no number."""

    def spoil(self, result):
        result.reward[result.mask.argmax()] = np.nan
        return result


class Arbitrary(Sabotaged):
    """Its reward is not what its terms say."""

    def spoil(self, result):
        result.reward[result.mask] += 0.25
        return result


class Undying(Sabotaged):
    """Whoever has left leaves again and again."""

    def spoil(self, result):
        if self.steps_taken[0] == 1:
            self.left = np.zeros(len(result.terminal), bool)
        self.left |= result.terminal
        result.terminal[:] |= self.left & (self.steps_taken[self.row_world] > 0)
        return result


class Haunted(Sabotaged):
    """Whoever has left is shown something."""

    def spoil(self, result):
        result.obs[~result.mask & ~result.terminal & ~result.truncated, 0] = 0.5
        return result


class Secretive(Sabotaged):
    """Nobody learns that a world has ended."""

    def spoil(self, result):
        result.truncated[:] = False
        return result


class Wandering(Sabotaged):
    """Results lie elsewhere each time."""

    def spoil(self, result):
        self.kept = [*getattr(self, "kept", []), result]  # alive, so that memory is not used again
        return result._replace(obs=result.obs.copy())


class Wide(Sabotaged):
    """A reward of twice the bits."""

    def spoil(self, result):
        return result._replace(reward=result.reward.astype(np.float64))


class Nostalgic(Simulator):
    """A reset leaves the last reward."""

    def reset(self, worlds=None, *, anew=False):
        before = self.result.reward.copy()
        result = super().reset(worlds, anew=anew)
        result.reward[:] = before + 1.0
        return result


class Grabbing(Simulator):
    """Writes into the actions."""

    def step(self, actions):
        result = super().step(actions)
        actions[0] *= 0.5
        return result


class Lenient(Simulator):
    """Takes anything for an action."""

    def step(self, actions):
        return super().step(np.nan_to_num(actions))


class Careless(Simulator):
    """Takes half a step before it refuses one."""

    def step(self, actions):
        if np.isnan(actions).any():
            super().step(np.nan_to_num(actions))
        return super().step(actions)


class Forgetful(Simulator):
    """Restores the first world only."""

    def restore(self, data, worlds=None):
        count = len(self.cases)
        others = Simulator.snapshot(self, list(range(1, count)))
        super().restore(data, worlds)
        return super().restore(others, list(range(1, count)))


class Breaking(Sabotaged):
    """Raises where there is nothing to raise."""

    def spoil(self, result):
        if self.steps_taken[0] == 3:
            raise ProtocolError("I do not feel like it")
        return result


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        (Moody, "determinism"),
        (Boundless, "bounds"),
        (Infinite, "finite"),
        (Arbitrary, "rewards"),
        (Undying, "terminal"),
        (Haunted, "silent"),
        (Secretive, "ends"),
        (Wandering, "buffers"),
        (Wide, "shapes"),
        (Nostalgic, "reset"),
        (Grabbing, "actions"),
        (Lenient, "errors"),
        (Careless, "errors"),
        (Forgetful, "snapshot"),
        (Breaking, "calls"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else value,
)
def test_sabotage_has_a_name(kind, check, capsys):
    """S121: fifteen sabotaged simulators, each caught under the name of what it breaks, and printed."""
    sim = small()
    sim.__class__ = kind
    found = check_simulator(sim, steps=30)
    assert check in {finding.check for finding in found}, found
    assert f"{check}: " in capsys.readouterr().out
    if kind in (Moody, Boundless, Arbitrary, Secretive, Grabbing, Forgetful, Breaking):  # It breaks nothing else.
        assert [finding.check for finding in found] == [check]


def test_what_is_not_checked():
    """S121: one step shows no run, and worlds that are drawn anew are others at the second look."""
    with pytest.raises(ProtocolError, match="at least 2"):
        check_simulator(small(), steps=1)
    with pytest.raises(ProtocolError, match="resamples every 5 steps"):
        check_simulator(small(resample_every=5))
