"""Golden values of every metric (Q8): a version means one set of values, for ever."""

from __future__ import annotations

import dataclasses

import pytest
from golden import golden, refusals

from skidpad.evaluation.metrics import registry
from skidpad.evaluation.metrics.registry import METRICS, golden_values, metric_spec_digest


def test_values_are_the_golden_ones() -> None:
    """Q8: a refactoring that changes a number must raise the version, or two runs are compared that differ in kind.
    Nine digits are stored; 1e-7 leaves room for other machines' last digits of float32 traces."""
    stored, found = golden_values(), golden()
    assert list(stored) == list(METRICS)
    for name, entry in found.items():
        assert stored[name]["version"] == METRICS[name].version, name
        for golden_value, value in zip(stored[name]["values"], entry["values"], strict=True):
            assert (golden_value is None) == (value is None), name
            assert value is None or golden_value == pytest.approx(value, rel=1e-7, abs=1e-9), name


def test_a_changed_value_needs_a_new_version() -> None:
    """Q8: the writer refuses one version with two sets of values, and takes them under the next."""
    old = {"a": {"version": 1, "values": [1.0]}, "b": {"version": 1, "values": [None]}}
    assert refusals(old, old) == []
    assert refusals(old, old | {"a": {"version": 1, "values": [2.0]}}) == ["a"]
    assert refusals(old, old | {"a": {"version": 2, "values": [2.0]}}) == []


def test_golden_values_enter_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Q42: a metric whose values changed is another metric, even if its line does not say so."""
    before = metric_spec_digest(["score"])
    changed = golden_values() | {"score": {"version": 1, "values": [0.5]}}
    monkeypatch.setattr(registry, "golden_values", lambda: changed)
    assert metric_spec_digest(["score"]) != before
    assert registry.digest_of([dataclasses.replace(METRICS["dnf_rate"])]) == metric_spec_digest(["dnf_rate"])
