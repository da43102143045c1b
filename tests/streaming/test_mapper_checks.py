"""The callable checks find what other people's policies and mappers get wrong, and pass what is right."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from mapper_world import IDS, frames, single_thread, tiny_mapper

from skidpad.streaming import check
from skidpad.streaming.check import check_carrier, check_write_policy
from skidpad.streaming.completion import Harmonic, Layer
from skidpad.streaming.mapper_file import Carrier
from skidpad.streaming.policies import POLICIES, Action, Cache, make_policy
from skidpad.streaming.runner import MapperRunner
from skidpad.streaming.writer import Learned, Writer


@pytest.fixture(autouse=True, scope="module")
def _threads():
    with single_thread():
        yield


def test_our_own_policies_pass() -> None:
    """M104: every shipped policy keeps the contract."""
    for name in POLICIES:
        if name != "LEARNED":
            assert check_write_policy(make_policy(name)) == []
    assert check_write_policy(Cache()) == []
    assert check_write_policy(Learned(Writer(), 1e-6)) == []


@dataclass
class Toy:
    """Writes where colours are wrong."""

    name: str = "TOY"
    fixed: bool = False
    keeps_arrivals: bool = False
    units: int = 1

    def choose(self, feedback: Any, feasible: Any) -> Action:
        wanted = Action.FUSE if feedback.features["colour error"] > 0 else Action.OFF
        return wanted if wanted in feasible else Action.OFF


class Stubborn(Toy):
    def choose(self, feedback: Any, feasible: Any) -> Action:
        return Action.ALL


_counter = itertools.count()


class Restless(Toy):
    def choose(self, feedback: Any, feasible: Any) -> Action:
        return feasible[next(_counter) % len(feasible)]


_told: list[Any] = []


class Peeking(Toy):
    """Remembers in a global what it was told, and acts on a later frame of an earlier run."""

    def choose(self, feedback: Any, feasible: Any) -> Action:
        _told.append(feedback)
        return feasible[len(_told) // (2 * check.STEPS) % len(feasible)]


def test_toy_passes_and_broken_ones_are_named() -> None:
    """M104: a toy policy passes; one broken policy per check is found under the check's name."""
    assert check_write_policy(Toy()) == []
    broken = {
        "feasible": Stubborn(),
        "determinism": Restless(),
        "prefix": Peeking(),
        "fixed": Toy(fixed=True),
        "units": Toy(units=0),
    }
    for name, policy in broken.items():
        found = check_write_policy(policy)
        assert name in {one.check for one in found}, name
        assert all(one.message for one in found)


def test_our_own_mappers_pass() -> None:
    """M104: a mapper with an untrained gate, harmonic or with a network, keeps the contract."""
    for completion in ("harmonic", "unet"):
        assert check_carrier(tiny_mapper(completion), frames(5), 3, IDS) == []


def checks_of(carrier_class: type[Carrier], monkeypatch: Any) -> set[str]:
    mapper = tiny_mapper()
    monkeypatch.setattr(mapper.carrier, "__class__", carrier_class)
    return {one.check for one in check_carrier(mapper, frames(5), 3, IDS)}


class Noisy(Carrier):
    """Its layers differ from run to run."""

    def completion(self) -> Any:
        return _Noise()


class _Noise(Harmonic):
    def layer(self, state: Any) -> Layer:
        layer = super().layer(state)
        return layer._replace(distance=(layer.distance + 0.001 * next(_counter)).clamp(-1, 1))


class Growing(Carrier):
    """Declares what it cost last time."""

    def completion(self) -> Any:
        return _Dear()


class _Dear(Harmonic):
    def units(self, preset: Any) -> int:
        return 1000 + next(_counter)


def test_broken_mappers_are_named(monkeypatch: Any) -> None:
    """M104: layers that change from run to run, units that move, a COMPLETE that edits what was observed, an OFF that
    writes, edited slow weights and a failing run are each found."""
    assert checks_of(Noisy, monkeypatch) == {"hash"}
    assert "units" in checks_of(Growing, monkeypatch)
    mapper = tiny_mapper()
    original = MapperRunner._act

    def writing_off(self: Any, state: Any, observation: Any, action: Action) -> Any:
        if action is Action.OFF:
            return state.with_tensors(weight=state.tensors["weight"] + 1)
        if action is Action.COMPLETE:
            state = state.with_tensors(distance=state.tensors["distance"] * 0.5)
        return original(self, state, observation, action)

    monkeypatch.setattr(MapperRunner, "_act", writing_off)
    assert {one.check for one in check_carrier(mapper, frames(5), 3, IDS)} == {"off", "complete"}
    monkeypatch.setattr(MapperRunner, "_act", original)
    blank = [replace(one, depth=torch.zeros_like(one.depth)) for one in frames(5)]
    assert {one.check for one in check_carrier(mapper, blank, 3, IDS)} == {"run"}

    def shared(self: Any) -> None:
        fresh(self)
        self._mapper.write_rule.layers[0].bias[0] += 1

    fresh = MapperRunner._fresh_weights
    monkeypatch.setattr(MapperRunner, "_fresh_weights", shared)
    assert "weights" in {one.check for one in check_carrier(mapper, frames(5), 3, IDS)}
