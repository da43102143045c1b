"""One pair from reset to seal: order of calls, budget, hashes."""

from __future__ import annotations

import copy
import itertools
import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from mapper_world import (
    IDS,
    RENDER,
    TINY,
    depth_error,
    frame,
    frames,
    known_preset,
    run_episode,
    runner_for,
    single_thread,
    tiny_mapper,
)
from scipy.stats import spearmanr

from skidpad.errors import CheckpointError, IntegrityError, ProtocolError, RefusedError, UsageError
from skidpad.streaming.controls import ShuffledPoses, derangement
from skidpad.streaming.mapper_file import Carrier, RenderProtocol, content_hash, make_mapper
from skidpad.streaming.policies import FEATURES, Action, Feedback, Fixed
from skidpad.streaming.renderer import MeasurementRenderer
from skidpad.streaming.runner import declared_costs
from skidpad.streaming.seal import Fallback, SealedState, history_digest
from skidpad.streaming.threads import require_one_thread
from skidpad.streaming.write_rule import Gate

ARRIVALS = 9
WARM = 3


@pytest.fixture(autouse=True, scope="module")
def _threads():
    with single_thread(), known_preset():
        yield


@pytest.fixture(scope="module")
def arrivals() -> list[Any]:
    return frames(ARRIVALS)


@pytest.fixture(scope="module")
def mapper() -> Any:
    return tiny_mapper()


@pytest.fixture(scope="module")
def sealed(mapper: Any, arrivals: list[Any]) -> dict[str, SealedState]:
    """One sealed state per policy."""
    names = ("OFF", "FUSE", "COMPLETE", "ALL", "SCHEDULED", "RESIDUAL_THRESHOLD", "CACHE")
    return {name: run_episode(runner_for(mapper, name), arrivals) for name in names}


def test_order_of_quality(sealed: dict[str, SealedState]) -> None:
    """Writing what was measured helps, on a room that the warm-up shows a part of: OFF is worst of all (section 12)."""
    errors = {name: depth_error(one) for name, one in sealed.items()}
    assert errors["OFF"] > 2 * errors["FUSE"]
    assert errors["OFF"] > errors["COMPLETE"] > errors["ALL"]
    assert errors["ALL"] < 0.04


def test_off_and_complete_leave_what_was_observed(mapper: Any, arrivals: list[Any]) -> None:
    """M58: OFF leaves the fast-state hash unchanged, COMPLETE leaves everything but the layer."""
    runner = runner_for(mapper, "OFF")
    runner.reset(arrivals[:WARM], IDS, 2, 1)
    before = runner.state
    for arrival in arrivals[WARM : WARM + 2]:
        runner.step(arrival)
    assert runner.seal().fast_state_hash == before.hash()
    runner = runner_for(mapper, "COMPLETE")
    runner.reset(arrivals[:WARM], IDS, 1, 1)
    runner.step(arrivals[WARM])
    after = runner.state
    for name, tensor in before.tensors.items():
        assert torch.equal(tensor, after.tensors[name]) != name.startswith("layer_"), name


def test_scheduled_equals_all(sealed: dict[str, SealedState]) -> None:
    """M58, M60: ALL at the last step after FUSEs seals the same tensors as ALL everywhere."""
    assert sealed["SCHEDULED"].fast_state_hash == sealed["ALL"].fast_state_hash
    assert sealed["SCHEDULED"].state_hash != sealed["ALL"].state_hash
    assert [row["action"] for row in sealed["SCHEDULED"].history] == ["FUSE"] * 5 + ["ALL"]


def test_cache_is_fuse_with_an_untrained_gate(sealed: dict[str, SealedState]) -> None:
    """M59: keeping every frame and writing at the seal gives what FUSE gave, to 1e-3; its writes are charged too."""
    cache, fuse = sealed["CACHE"], sealed["FUSE"]
    for name in ("distance", "colour"):
        difference = (cache.state.tensors[name].float() - fuse.state.tensors[name].float()).abs().max()
        assert difference < 1e-3, name
    assert cache.ledger.spent == fuse.ledger.spent
    assert all(row["action"] == "OFF" for row in cache.history)


def test_two_resets_give_equal_hashes(mapper: Any, arrivals: list[Any], sealed: dict[str, SealedState]) -> None:
    """M66, M40: the same runner twice, and another runner, seal the same state; ALL in between leaves no trace."""
    runner = runner_for(mapper, "FUSE")
    first = run_episode(runner, arrivals)
    run_episode(runner_for(mapper, "ALL"), arrivals)
    second = run_episode(runner, arrivals)
    assert first.state_hash == second.state_hash == sealed["FUSE"].state_hash


def test_layers_are_reused_and_still_charged(mapper: Any, arrivals: list[Any], sealed: dict[str, SealedState]) -> None:
    """M63: an unchanged observed state lets the layer be reused: equal hashes and units with reuse off, fewer FLOPs."""
    runner = runner_for(mapper, "COMPLETE")
    runner.reuse_layers = False
    again = run_episode(runner, arrivals)
    assert again.state_hash == sealed["COMPLETE"].state_hash
    accounts = [one.ledger.accounts["complete"] for one in (again, sealed["COMPLETE"])]
    assert accounts[0].units == accounts[1].units
    assert accounts[0].flops == 6 * accounts[1].flops


def test_ledger_equals_history(sealed: dict[str, SealedState], mapper: Any) -> None:
    """M63: units of the history rows, warm-up and seal add up to the ledger; declared costs are the formulas."""
    costs = declared_costs(mapper, Fixed(Action.ALL), RENDER)
    assert costs == {
        "encode": 18 * 24 * 4,
        "feedback_render": 18 * 24 * 64,
        "policy": 1,
        "fuse": 16 * 40 * 40 * 24,
        "complete": mapper.carrier.completion().units(TINY),
        "query_render": 18 * 24 * 64,
    }
    for name, one in sealed.items():
        warm = WARM * (costs["encode"] + costs["fuse"])
        at_seal = 6 * costs["fuse"] if name == "CACHE" else 0
        assert one.ledger.spent == warm + at_seal + sum(row["units"] for row in one.history), name
        assert one.ledger.accounts["query_render"].count == 0
    assert sealed["FUSE"].ledger.accounts["fuse"].touched > 0
    books = sealed["FUSE"].ledger
    twice = copy.deepcopy(books)
    twice.record("query_render", 2)
    assert twice.spent - books.spent == 2 * costs["query_render"]


def test_declared_units_rank_as_flops(arrivals: list[Any]) -> None:
    """M64: over operations, declared units and counted FLOPs of one call rank alike: Spearman above 0.9."""
    mapper = tiny_mapper("unet")
    one = run_episode(runner_for(mapper, "ALL"), arrivals)
    one.ledger.record("query_render", 2, flops=2 * 18 * 24 * (43 * 65 + 16 * 64))
    accounts = [account for account in one.ledger.accounts.values() if account.count]
    units, flops = zip(*((a.units / a.count, a.flops / a.count) for a in accounts), strict=True)
    assert spearmanr(units, flops).statistic > 0.9


def test_budget_boundary(mapper: Any, arrivals: list[Any]) -> None:
    """M65: the smallest limit that holds the fixed costs and the queries passes, one unit less is refused at reset; at
    the smallest limit nothing but OFF is feasible, and scoring still has its units."""
    costs = declared_costs(mapper, Fixed(Action.OFF), RENDER)
    smallest = WARM * (costs["encode"] + costs["fuse"]) + 2 * costs["query_render"]
    smallest += 6 * (costs["encode"] + costs["feedback_render"] + costs["policy"])
    one = run_episode(runner_for(mapper, "SCHEDULED", smallest), arrivals)
    assert [row["feasible"] for row in one.history] == [["OFF"]] * 6
    one.ledger.record("query_render", 2)
    assert one.ledger.remaining == 0
    with pytest.raises(RefusedError, match="needs at least"):
        runner_for(mapper, "SCHEDULED", smallest - 1).reset(arrivals[:WARM], IDS, 6, 2)


def test_starved_fixed_policy_is_refused(mapper: Any, arrivals: list[Any]) -> None:
    """M68, F50: a fixed policy out of budget is an error with both numbers, never a quiet OFF."""
    costs = declared_costs(mapper, Fixed(Action.FUSE), RENDER)
    fixed = WARM * (costs["encode"] + costs["fuse"]) + 2 * costs["query_render"]
    fixed += 6 * (costs["encode"] + costs["feedback_render"] + costs["policy"])
    runner = runner_for(mapper, "FUSE", fixed + 4 * costs["fuse"] + 3120)
    runner.reset(arrivals[:WARM], IDS, 6, 2)
    for arrival in arrivals[WARM : WARM + 4]:
        runner.step(arrival)
    with pytest.raises(
        RefusedError, match=r"policy FUSE took OFF at step 5: budget left 3,120 of 614,400 units needed"
    ):
        runner.step(arrivals[WARM + 4])


@dataclass
class Given:
    """A policy that does as it is told."""

    plan: Sequence[Any]
    name: str = "GIVEN"
    fixed: bool = False
    keeps_arrivals: bool = False
    units: int = 1
    calls: int = 0

    def choose(self, feedback: Feedback, feasible: Sequence[Action]) -> Any:
        self.calls += 1
        self.told = feedback
        return self.plan[self.calls - 1]


def test_choice_outside_the_set_is_refused(mapper: Any, arrivals: list[Any]) -> None:
    """M62: a policy that does not choose among the feasible actions ends its pair."""
    runner = runner_for(mapper, Given(["FUSE"]))
    runner.reset(arrivals[:WARM], IDS, 1, 1)
    with pytest.raises(RefusedError, match="chose 'FUSE' at step 1; feasible were OFF, FUSE, COMPLETE, ALL"):
        runner.step(arrivals[WARM])


def test_each_pair_has_its_own_policy(mapper: Any, arrivals: list[Any]) -> None:
    """M40: a policy that counts its calls starts at 0 in each pair; the one handed in is never called."""
    given = Given([Action.OFF] * 6)
    runner = runner_for(mapper, given)
    for _ in range(2):
        run_episode(runner, arrivals)
    assert given.calls == 0


def test_prefix_only(mapper: Any, arrivals: list[Any]) -> None:
    """M61: two streams that share a prefix give equal choices and equal history up to where they part."""
    others = arrivals[:6] + [replace(frame(n + 20), frame_id=n) for n in range(6, 9)]
    for name in ("FUSE", "SCHEDULED", "RESIDUAL_THRESHOLD", "CACHE"):
        rows = [run_episode(runner_for(mapper, name), stream).history for stream in (arrivals, others)]
        for one, other in zip(rows[0][:3], rows[1][:3], strict=True):
            assert {**one, "seconds": 0} == {**other, "seconds": 0}


def test_old_state_is_rendered_before_the_choice(mapper: Any, arrivals: list[Any], monkeypatch: Any) -> None:
    """M67: rendering, choice, write: in this order; feedback does not depend on the write rule of this step."""
    seen: list[str] = []
    original_render, original_choose = MeasurementRenderer.render, Fixed.choose

    def render(self: Any, field: Any, *rest: Any) -> Any:
        seen.append("render")
        return original_render(self, field, *rest)

    def choose(self: Any, *rest: Any) -> Any:
        seen.append("choose")
        return original_choose(self, *rest)

    original_forward = Gate.forward

    def forward(self: Any, features: Any) -> Any:
        seen.append("write")
        return original_forward(self, features)

    monkeypatch.setattr(MeasurementRenderer, "render", render)
    monkeypatch.setattr(Fixed, "choose", choose)
    monkeypatch.setattr(Gate, "forward", forward)
    runner = runner_for(mapper, "FUSE")
    runner.reset(arrivals[:WARM], IDS, 2, 1)
    seen.clear()
    runner.step(arrivals[WARM])
    runner.step(arrivals[WARM + 1])
    assert seen == ["render", "choose", "write"] * 2
    other = Gate().eval()
    with torch.no_grad():
        other.layers[-1].bias[0] = 3.0
    told = []
    for gate in (mapper.write_rule, other):
        runner.reset(arrivals[:WARM], IDS, 1, 1)
        runner._write_rule = gate
        runner.step(arrivals[WARM])
        told.append((runner.history[0]["features"], runner.state.hash()))
    assert told[0][0] == told[1][0]
    assert told[0][1] != told[1][1]


def test_history_rows(sealed: dict[str, SealedState]) -> None:
    """M67: one JSON row per arrival with exactly these keys; features are those of the table and the residual."""
    for one in sealed.values():
        assert json.loads(json.dumps(one.history, allow_nan=False)) == one.history
        assert [row["frame_id"] for row in one.history] == list(range(WARM, ARRIVALS))
        for row in one.history:
            assert list(row) == ["step", "frame_id", "action", "feasible", "features", "units", "seconds"]
            assert list(row["features"]) == ["residual", *FEATURES]
            assert all(math.isfinite(value) for value in row["features"].values())
    off = sealed["OFF"].history
    assert off[0]["features"]["previous was none"] == 1.0
    assert off[1]["features"]["previous was OFF"] == 1.0
    assert off[-1]["features"]["steps left"] == pytest.approx(1 / 6)
    assert off[-1]["features"]["residual"] > off[0]["features"]["residual"]
    # The camera turns by 0.16 rad per frame about the vertical, which is down in its own axes up to the pitch.
    assert off[2]["features"]["turn about down"] == pytest.approx(-0.155, abs=0.01)


def test_blank_arrival(mapper: Any, arrivals: list[Any]) -> None:
    """F55, M60: an arrival without a valid pixel has no residual: RESIDUAL_THRESHOLD leaves it alone."""
    runner = runner_for(mapper, "RESIDUAL_THRESHOLD")
    runner.reset(arrivals[:WARM], IDS, 1, 1)
    assert runner.step(replace(arrivals[WARM], depth=torch.zeros(TINY.image))) == Action.OFF
    assert runner.history[0]["features"]["residual"] is None


def test_frames_out_of_place(mapper: Any, arrivals: list[Any]) -> None:
    """F49, M66: repeated, late and foreign frames are refused, in the warm-up and in the stream."""
    runner = runner_for(mapper, "OFF")
    for warm in ([arrivals[1], arrivals[0]], [arrivals[0], arrivals[0]], [frame(0, episode="ep-2")]):
        with pytest.raises(RefusedError):
            runner.reset(warm, IDS, 1, 1)
    for late in (arrivals[WARM - 1], arrivals[0], frame(WARM, episode="ep-2")):
        runner.reset(arrivals[:WARM], IDS, 2, 1)
        with pytest.raises(RefusedError):
            runner.step(late)


class LifeCycle(RuleBasedStateMachine):
    """Calls in any order against a model of what is allowed (M66)."""

    @initialize()
    def make(self) -> None:
        self.runner = runner_for(tiny_mapper(), "OFF")
        self.steps: int | None = None
        self.sealed = False

    @rule(stream=st.integers(1, 3))
    def reset(self, stream: int) -> None:
        self.runner.reset([frame(0)], IDS, stream, 1)
        self.steps, self.stream, self.sealed = 0, stream, False

    @rule()
    def step(self) -> None:
        if self.steps is None or self.sealed or self.steps == self.stream:
            with pytest.raises(ProtocolError):
                self.runner.step(frame(5))
        else:
            self.steps += 1
            assert self.runner.step(frame(self.steps)) == Action.OFF

    @rule()
    def seal(self) -> None:
        if self.steps is None or self.sealed or self.steps < self.stream:
            with pytest.raises(ProtocolError):
                self.runner.seal()
        else:
            assert len(self.runner.seal().observed) == self.stream + 1
            self.sealed = True

    @invariant()
    def history_is_as_long_as_the_stream(self) -> None:
        if getattr(self, "steps", None) is not None:
            assert len(self.runner.history) == self.steps


LifeCycle.TestCase.settings = settings(max_examples=15, stateful_step_count=12, deadline=None)
TestLifeCycle = LifeCycle.TestCase


@pytest.mark.parametrize(("ids", "stream", "queries"), [({"episode_id": "x"}, 1, 1), (IDS, 0, 1), (IDS, 1, True)])
def test_counts_and_ids(mapper: Any, arrivals: list[Any], ids: Any, stream: Any, queries: Any) -> None:
    """M66: an episode has five ids and whole counts of at least 1."""
    with pytest.raises(ProtocolError):
        runner_for(mapper, "OFF").reset(arrivals[:1], ids, stream, queries)


class Meddling(Gate):
    """A gate that edits itself at its third stream step."""

    calls = 0

    def forward(self, features: torch.Tensor) -> Any:
        self.calls += 1
        if self.calls == WARM + 3:
            self.layers[0].weight[0, 0] += 1e-3
        return super().forward(features)


def test_edited_slow_weights_are_caught(mapper: Any, arrivals: list[Any]) -> None:
    """M69, F51, M84: a write rule that edits a slow weight in step 3 is caught at the seal, which hashes the tensors
    again; the loaded weights stay as they were."""
    meddling = Meddling().eval()
    meddling.load_state_dict(mapper.write_rule.state_dict())
    for parameter in meddling.parameters():
        parameter.requires_grad_(False)
    edited = replace(mapper, write_rule=meddling)
    runner = runner_for(edited, "FUSE")
    runner.reset(arrivals[:WARM], IDS, 6, 1)
    for arrival in arrivals[WARM:]:
        runner.step(arrival)
    with pytest.raises(RefusedError, match="edited while streaming"):
        runner.seal()
    assert content_hash(edited.carrier, edited.write_rule) == mapper.info["content_hash"]


def test_perturbed_mapper_never_starts(arrivals: list[Any]) -> None:
    """M40: copies of the weights must hash as they were loaded, before the first frame."""
    perturbed = tiny_mapper()
    with torch.no_grad():
        perturbed.write_rule.layers[0].bias[0] += 1
    with pytest.raises(RefusedError, match="changed its weights"):
        runner_for(perturbed, "OFF").reset(arrivals[:WARM], IDS, 1, 1)


def test_each_ingredient_changes_the_state_hash(sealed: dict[str, SealedState]) -> None:
    """M69: tensors, bounds, anchor, counters, history, observed frames, checkpoint, ids, policy, fallback and render
    protocol are all in the state hash; seconds are not."""
    one = sealed["FUSE"]
    place = one.state.frame
    row = {**one.history[2], "units": 1}
    changed = {
        "bounds": replace(one, state=replace(one.state, frame=replace(place, box=place.box + 1))),
        "corner": replace(one, state=replace(one.state, frame=replace(place, corner=place.corner + 1))),
        "anchor": replace(
            one, state=replace(one.state, frame=replace(place, state_from_world=place.state_from_world * 2))
        ),
        "step": replace(one, state=replace(one.state, step=99)),
        "parent": replace(one, state=replace(one.state, parent="0")),
        "history": replace(one, history=[*one.history[:2], row, *one.history[3:]]),
        "order": replace(one, observed=[one.observed[1], one.observed[0], *one.observed[2:]]),
        "checkpoint": replace(one, checkpoint_hash="0"),
        "ids": replace(one, ids={**one.ids, "vault_id": "other"}),
        "policy": replace(one, policy="OTHER"),
        "fallback": replace(one, fallback=Fallback(9.0, (0.0, 0.0, 0.0))),
        "protocol": replace(one, render_protocol=RenderProtocol(samples=65, ray_chunk=500)),
        "tensor": replace(one, state=one.state.with_tensors(weight=one.state.tensors["weight"] + 1)),
    }
    assert one.rehashed() == (one.fast_state_hash, one.state_hash)
    hashes = [item.rehashed()[1] for item in changed.values()]
    assert len({one.state_hash, *hashes}) == len(changed) + 1
    for item in changed.values():
        with pytest.raises(IntegrityError):
            item.check()
    slower = [{**row, "seconds": 9.0} for row in one.history]
    assert history_digest(slower) == history_digest(one.history)


def test_waiting_state_travels(sealed: dict[str, SealedState]) -> None:
    """M52, M72, F52: a state goes to bytes and back with hashes, ledger and rendering unchanged; a flipped byte is an
    IntegrityError, other bytes are no state."""
    one = sealed["ALL"]
    data = one.to_bytes()
    assert data == one.to_bytes()
    back = SealedState.from_bytes(data, "state")
    assert back.rehashed() == (one.fast_state_hash, one.state_hash)
    assert back.ledger.to_json() == one.ledger.to_json()
    camera = frame(5).camera
    for a, b in zip(one.render(camera, *TINY.image), back.render(camera, *TINY.image), strict=True):
        assert torch.equal(a, b)
    assert back.rehashed() == one.rehashed()  # rendering writes nothing
    flipped = bytearray(data)
    flipped[-100] ^= 1
    with pytest.raises(IntegrityError):
        SealedState.from_bytes(bytes(flipped), "state")
    with pytest.raises((CheckpointError, IntegrityError)):
        SealedState.from_bytes(data[:1000], "state")


def test_pasted_layer(sealed: dict[str, SealedState], arrivals: list[Any], mapper: Any) -> None:
    """M82: WRONG_SCENE seals this state's observed part with another's layer, under a hash of its own."""
    pasted = sealed["ALL"].with_layer_of(sealed["COMPLETE"], "WRONG_SCENE")
    pasted.check()
    assert pasted.policy == "WRONG_SCENE"
    assert torch.equal(pasted.state.tensors["layer_distance"], sealed["COMPLETE"].state.tensors["layer_distance"])
    assert torch.equal(pasted.state.tensors["distance"], sealed["ALL"].state.tensors["distance"])
    assert pasted.state_hash != sealed["ALL"].state_hash


def test_mean_field_in_place_of_the_network(arrivals: list[Any]) -> None:
    """M82: with the mean field of the mapper file every ALL seals the stored layer; a harmonic mapper has none."""
    half = TINY.half
    stored = {"distance": torch.zeros(half), "colour": torch.ones(3, *half), "confidence": torch.ones(half)}
    mapper = replace(tiny_mapper("unet"), controls=stored)
    one = run_episode(runner_for(mapper, "ALL", completion=mapper.mean_field(), name="MEAN_FIELD"), arrivals)
    assert torch.equal(one.state.tensors["layer_colour"], stored["colour"])
    assert one.policy == "MEAN_FIELD"
    with pytest.raises(CheckpointError, match="MEAN_FIELD needs a mapper with controls"):
        tiny_mapper().mean_field()


@pytest.mark.parametrize("count", [2, 3, 8, 33])
def test_derangement(count: int) -> None:
    """M82: no stream frame keeps its pose, every pose is used once, and the seed decides."""
    order = derangement(count, 7)
    assert sorted(order) == list(range(count))
    assert all(place != other for place, other in enumerate(order))
    assert order == derangement(count, 7)
    with pytest.raises(UsageError):
        derangement(1, 7)


class Frames:
    """Stands for an online source: a manifest with cameras, and frames in order."""

    def __init__(self, arrivals: list[Any]) -> None:
        self._arrivals = arrivals
        self._taken = 0
        frames_of = [self._fields(arrival) for arrival in arrivals[WARM:]]
        self.manifest = type("Manifest", (), {"stream": frames_of})

    @staticmethod
    def _fields(arrival: Any) -> Any:
        camera = type(
            "Fields",
            (),
            {
                "model": arrival.camera.model,
                "intrinsics": arrival.camera.intrinsics.tolist(),
                "world_from_camera": arrival.camera.world_from_camera.tolist(),
            },
        )
        return type("Frame", (), {"frame_id": arrival.frame_id, "camera": camera})

    @property
    def remaining(self) -> int:
        return len(self._arrivals) - WARM - self._taken

    def warmup(self) -> list[Any]:
        return self._arrivals[:WARM]

    def next(self) -> Any:
        self._taken += 1
        return self._arrivals[WARM + self._taken - 1]


def test_shuffled_poses_are_worse(mapper: Any, arrivals: list[Any], sealed: dict[str, SealedState]) -> None:
    """M82: SHUFFLED_POSES gives each stream frame another's pose and keeps the warm-up; FUSE gets worse by it."""
    source = ShuffledPoses(Frames(arrivals), seed=3)  # type: ignore[arg-type]
    stream = [*source.warmup(), *source.stream()]
    assert source.remaining == 0
    assert [one.frame_id for one in stream] == [one.frame_id for one in arrivals]
    for place, (one, other) in enumerate(zip(stream, arrivals, strict=True)):
        same = (one.camera.world_from_camera == other.camera.world_from_camera).all()
        assert same == (place < WARM)
    shuffled = run_episode(runner_for(mapper, "FUSE", name="SHUFFLED_POSES"), stream)
    assert depth_error(shuffled) > depth_error(sealed["FUSE"])


def test_fake_clock(mapper: Any, arrivals: list[Any]) -> None:
    """M93: adapt_s is reset, steps and seal by the given clock, without the time in between; no hash depends on it."""
    ticks = itertools.count()
    runner = runner_for(mapper, "OFF", clock=lambda: float(next(ticks)))
    runner.reset(arrivals[:WARM], IDS, 6, 2)
    for arrival in arrivals[WARM:]:
        for _ in range(1000):
            next(ticks)  # decoding
        runner.step(arrival)
    one = runner.seal()
    assert 0 < one.adapt_s < 200
    assert one.adapt_s >= sum(row["seconds"] for row in one.history)
    assert one.state_hash == run_episode(runner_for(mapper, "OFF"), arrivals).state_hash


def test_no_graph_survives(arrivals: list[Any]) -> None:
    """M69, M36: everything runs without gradients: no tensor of a sealed state or a rendered view remembers how it was
    made, also when somebody loads trainable weights."""
    mapper = tiny_mapper("unet")
    one = run_episode(runner_for(mapper, "ALL"), arrivals[:5])
    for tensor in [*one.state.tensors.values(), *one.render(arrivals[0].camera, *TINY.image)]:
        assert not tensor.requires_grad
        assert tensor.grad_fn is None


def test_cpu_never_touches_cuda(mapper: Any, arrivals: list[Any], monkeypatch: Any) -> None:
    """M95: on the CPU no function of torch.cuda is called, and peak device bytes are null."""

    def touched(*_: Any, **__: Any) -> None:
        raise AssertionError("torch.cuda was called on the CPU path")

    for name in ("synchronize", "reset_peak_memory_stats", "max_memory_allocated", "memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, touched)
    assert run_episode(runner_for(mapper, "ALL"), arrivals[:5]).peak_device_bytes is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible here")
def test_cuda_agrees_with_cpu(arrivals: list[Any]) -> None:
    """M95: the same episode on a CUDA device renders to 1e-3 of the CPU's depth."""
    on_cpu = run_episode(runner_for(tiny_mapper(), "ALL"), arrivals)
    on_gpu = run_episode(runner_for(make_mapper(Carrier(TINY), Gate(), "cuda"), "ALL"), arrivals)
    views = [one.render(arrivals[4].camera, *TINY.image).depth.cpu() for one in (on_cpu, on_gpu)]
    assert (views[0] - views[1]).abs().mean() < 1e-3


def test_thread_setting_is_required(mapper: Any, arrivals: list[Any]) -> None:
    """M92: a thread count changed from outside is refused at reset and at the seal, naming the setting."""
    runner = runner_for(mapper, "OFF")
    runner.reset(arrivals[:WARM], IDS, 1, 1)
    runner.step(arrivals[WARM])
    torch.set_num_threads(2)
    try:
        with pytest.raises(UsageError, match="2 intra-op"):
            runner.seal()
        with pytest.raises(UsageError):
            runner.reset(arrivals[:WARM], IDS, 1, 1)
    finally:
        torch.set_num_threads(1)
    require_one_thread()


@pytest.mark.slow
def test_hashes_do_not_depend_on_the_process(tmp_path: Path) -> None:
    """M92: two processes seal equal hashes of an episode with a network, whose bits depend on the thread count."""
    code = (
        "import sys; sys.path.insert(0, 'tests/streaming')\n"
        "from mapper_world import *\n"
        "one_thread()\n"
        "print(run_episode(runner_for(tiny_mapper('unet'), 'ALL'), frames(5)).state_hash)"
    )
    root = Path(__file__).resolve().parents[2]
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code], cwd=root, env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert outputs[0] == outputs[1] != ""
