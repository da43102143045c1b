"""check_policy catches each way of breaking the contract, by name (E48, E51, E52; style section 9.6)."""

from __future__ import annotations

import random

import numpy as np
import pytest

from skidpad.policies.check import batch_sensitivity, check_policy
from skidpad.policies.policy import PolicySpec
from skidpad.settings.schema import EnvSettings

ENV = EnvSettings()


class Good:
    """A policy with memory that keeps the contract: a leaky sum of two columns, by row."""

    def __init__(self):
        self.spec = PolicySpec("good", "compact/1", "continuous")

    def initial_state(self, rows):
        return np.zeros((rows, 2), np.float32)

    def act(self, observation, state, reset, *, selection, streams, simulator=None):
        state = np.where(reset[:, None], np.float32(0), state) * np.float32(0.5) + observation[:, :2]
        return np.tanh(state).astype(np.float32), state


class Meddling(Good):
    """Good, with one thing done before or to the answer."""

    def __init__(self, before=None, after=None, spec=None):
        super().__init__()
        self.before, self.after = before, after
        self.spec = spec or self.spec
        self.calls = 0

    def act(self, observation, state, reset, *, selection, streams, simulator=None):
        self.calls += 1
        if self.before:
            self.before(self, observation, reset)
        actions, state = super().act(observation, state, reset, selection=selection, streams=streams)
        return (self.after(self, actions, observation) if self.after else actions), state


def draw_global(policy, observation, reset):
    np.random.rand()


FAULTS = {
    "NumPy's global generator": ("globals", Meddling(draw_global)),
    "Python's global generator": ("globals", Meddling(lambda *_: random.random())),
    "other answers each time": ("determinism", Meddling(after=lambda p, a, _: a * np.float32(1 / (1 + p.calls)))),
    "writes its observation": ("arguments", Meddling(lambda p, o, r: o.fill(0))),
    "writes its reset": ("arguments", Meddling(lambda p, o, r: r.fill(True))),
    "float64": ("actions", Meddling(after=lambda p, a, _: a.astype(np.float64))),
    "outside the box": ("actions", Meddling(after=lambda p, a, _: a * 3)),
    "NaN at the bounds": ("actions", Meddling(after=lambda p, a, o: np.where(o[:, :1] == -1, np.float32(np.nan), a))),
    "one row too few": ("actions", Meddling(after=lambda p, a, _: a[1:])),
    "normalises over the batch": ("rows", Meddling(after=lambda p, a, _: a - a[:1] * np.float32(0.1))),
    "unknown layout": ("spec", Meddling(spec=PolicySpec("x", "compact/9", "continuous"))),
    "other actions": ("spec", Meddling(spec=PolicySpec("x", "compact/1", "discrete"))),
    "no spec": ("spec", Meddling(spec="compact/1")),
}


def test_a_good_policy_passes():
    """A false alarm would teach people to ignore the check."""
    assert check_policy(Good(), ENV) == []
    assert batch_sensitivity(Good(), ENV) is None


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_caught_by_name(fault):
    """One sabotaged policy per promise; the finding names the promise that is broken."""
    check, policy = FAULTS[fault]
    findings = check_policy(policy, ENV)
    assert check in {finding.check for finding in findings}, findings


@pytest.mark.parametrize("fault", ["forgets to reset", "resets everybody"])
def test_memory_is_reset_by_row(fault):
    """E53: exactly the named rows forget; zeroing the batch, or nobody, looks right until episodes differ in length."""

    class Memory(Good):
        def act(self, observation, state, reset, **more):
            wrong = np.zeros_like(reset) if fault == "forgets to reset" else np.full_like(reset, reset.any())
            return super().act(observation, state, wrong, **more)

    assert "reset" in {finding.check for finding in check_policy(Memory(), ENV)}


def test_torch_switches_are_watched():
    """A policy that sets torch's thread count changes the bits of whoever runs after it (architecture, decision 9)."""
    import torch

    threads = torch.get_num_threads()
    try:
        policy = Meddling(lambda *_: torch.set_num_threads(1 + torch.get_num_threads() % 2))
        assert [finding.check for finding in check_policy(policy, ENV)] == ["globals"]
    finally:
        torch.set_num_threads(threads)


def test_batch_sensitivity_tells_where():
    """E48: a driver whose bytes depend on its batch may run, but is marked, and the message shows both answers."""
    policy = Meddling(after=lambda p, a, _: a * np.float32(1 + 1e-6 * len(a)))
    assert "depend on the batch" in batch_sensitivity(policy, ENV)


def test_a_discrete_policy_is_checked_against_the_table():
    """S44: an index of 63 is one past the last action."""

    class Table(Good):
        def __init__(self, index):
            self.spec = PolicySpec("table", None, "discrete")
            self.index = index

        def act(self, observation, state, reset, **more):
            return np.full(len(observation), self.index, np.int32), state

    env = EnvSettings(action_type="discrete")
    assert check_policy(Table(62), env) == []
    assert next(finding.check for finding in check_policy(Table(63), env)) == "actions"
