"""Properties of all metrics over random traces: ranges, symmetry, order, purity (Q2, Q41)."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from driving import AGENTS, LONGER, cruise, drive
from hypothesis import given, settings
from hypothesis import strategies as st

from skidpad.evaluation.metrics.guards import cross_checks
from skidpad.evaluation.metrics.registry import METRICS, compute, compute_agents
from skidpad.scenes.events import COLLISION
from skidpad.scenes.scene import Scene


@given(st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_values_stay_in_range_and_agree(seed: int) -> None:
    """Q2, Q41: compute raises outside a declared range; outcomes sum to 1, subsets stay below what holds them."""
    trace, scene = drive(seed)
    assert cross_checks(trace, scene, compute_agents(trace, scene)) == []
    for name, value in compute(trace, scene).items():
        assert value.valid == (value.value is not None) == (value.reason is None), name
        assert math.isfinite(value.numerator + value.denominator)


@given(st.integers(0, 2**32), st.floats(-3, 3), st.floats(-500, 500), st.floats(-500, 500))
@settings(max_examples=15, deadline=None)
def test_moving_and_turning_the_world_changes_nothing(seed: int, turn: float, dx: float, dy: float) -> None:
    """Style 9.3: a formula that reads x where it means the lane's direction passes every axis-parallel test."""
    here, there = compute(*drive(seed)), compute(*drive(seed, turn=turn, shift=(dx, dy)))
    for name in METRICS:
        a, b = here[name], there[name]
        assert a.valid == b.valid, name
        # float32 positions at 500 m are known to 3e-5 m; a contact within that of a threshold may tip over, in at most
        # one agent's bits: those are compared by the simulator's own, and lane membership is left to its own tests.
        if a.valid and METRICS[name].function.__module__.rpartition(".")[2] != "contacts":
            assert a.value == pytest.approx(b.value, rel=2e-3, abs=2e-3), name


@given(st.integers(0, 2**32), st.permutations(range(AGENTS)))
@settings(max_examples=20, deadline=None)
def test_agents_have_no_order(seed: int, order: list[int]) -> None:
    """The number of an agent means nothing: its values go with it, whoever stands before it."""
    before, after = compute_agents(*drive(seed)), compute_agents(*drive(seed, order=order))
    for name, values in before.items():
        if METRICS[name].shape == "joint":
            continue
        other = after[name]
        assert np.array_equal(values.reason[order], other.reason), name
        assert np.array_equal(values.numerator[order], other.numerator), name
        assert np.array_equal(values.denominator[order], other.denominator), name


@given(st.integers(0, 2**32), st.integers(0, AGENTS - 1))
@settings(max_examples=12, deadline=None)
def test_one_agent_alone_has_the_value_it_has_among_others(seed: int, agent: int) -> None:
    """A batch of N equals N batches of one: filters run over all agents at once and must not mix them."""
    trace, scene = drive(seed)
    arrays = dict(trace.arrays)
    for name in ("goals", "goal_count", "goal_first"):
        arrays[name] = arrays[name][:, [agent]]
    for name in ("action", "action_applied", "action_clipped"):
        arrays[name] = arrays[name][:, :, [agent]]
    arrays |= {"scored": arrays["scored"][[agent]], "policy_agent": arrays["policy_agent"][[agent]]}
    alone = compute_agents(dataclasses.replace(trace, arrays=arrays), scene)
    for name, values in compute_agents(trace, scene).items():
        if METRICS[name].shape != "joint":
            assert values.numerator[agent] == pytest.approx(alone[name].numerator[0], rel=1e-12, abs=1e-12), name
            assert values.reason[agent] == alone[name].reason[0], name


def test_random_cases_reach_every_metric() -> None:
    """The properties above say nothing about a metric that is always missing or always the same in random cases."""
    seen: dict[str, set[float]] = {name: set() for name in METRICS}
    for seed in range(40):
        found = compute(*drive(seed))
        for name, steps in LONGER.items():
            found |= compute(*drive(seed, steps=steps), [name])
        for name, value in [*found.items(), *compute(*cruise(seed)).items()]:
            if value.valid:
                seen[name].add(value.value)
    # The world always runs as long.
    assert {name for name, values in seen.items() if len(values) < 2} == {"episode_length"}


def test_scene_and_collision_bits_stay_what_they_are() -> None:
    """Metrics read; a write into a trace would change what later metrics and the digest see."""
    trace, scene = drive(1)
    assert isinstance(scene, Scene)
    before = trace["events"].copy(), trace["x"].copy()
    compute(trace, scene)
    assert np.array_equal(before[0], trace["events"])
    assert np.array_equal(before[1], trace["x"])
    assert (before[0] & int(COLLISION)).any()
