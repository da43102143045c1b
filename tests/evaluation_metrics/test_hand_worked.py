"""Every metric against a case worked out by hand, and against a pair that it must tell apart (Q9)."""

from __future__ import annotations

import hand_composites
import hand_driving_scores
import hand_worked
import numpy as np
import pytest

from skidpad.evaluation.metrics.registry import METRICS, compute, compute_agents

# Every module that holds cases: one per family of metrics.
CASES = (hand_worked, hand_composites, hand_driving_scores)
HAND = {name: make for module in CASES for name, make in module.HAND.items()}
PAIRS = {name: make for module in CASES for name, make in module.PAIRS.items()}


def test_every_metric_has_a_hand_case_and_a_pair() -> None:
    """Q9: a metric without a hand-worked value and a sensitivity pair may be a constant (the peer's comfort was)."""
    assert sorted(HAND) == sorted(METRICS)
    assert sorted(PAIRS) == sorted(METRICS)


@pytest.mark.parametrize("name", METRICS)
def test_value_is_the_one_worked_out_by_hand(name: str) -> None:
    """Q9, Q2: numbers are in the docstring of each hand case; a formula that drifts fails here."""
    trace, scene, expected = HAND[name]()
    values = compute_agents(trace, scene, [name])[name]
    assert values.valid.all()
    found = np.stack([values.numerator, values.denominator], axis=1)
    # Traces hold float32, so hand numbers that are no binary fractions agree to about 1e-7.
    assert np.allclose(found, np.array(expected, dtype=float), rtol=1e-6, atol=1e-7), (found, expected)


@pytest.mark.parametrize("name", METRICS)
def test_value_moves_when_it_should(name: str) -> None:
    """Q9: a score that is 1 for every car ever scored once passed every test but this one."""
    values = [compute(trace, scene, [name])[name].value for trace, scene in PAIRS[name]()]
    assert None not in values
    assert values[0] != values[1]
