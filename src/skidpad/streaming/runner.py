"""One pair: reset on the warm-up, a step per arrival, and the seal.

At each step the *old* state is rendered at the arriving camera; then come feedback, choice, write, and a row of
history. Everything runs in evaluation and inference mode, on copies of the slow weights that belong to this pair alone
and are hashed again at the seal.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from skidpad.errors import ProtocolError, RefusedError
from skidpad.streaming.budget import BudgetProtocol, Ledger
from skidpad.streaming.camera import Camera
from skidpad.streaming.carrier import FastState, empty_state, measured_depth, measured_frame, view_of
from skidpad.streaming.completion import Completion, Layer, completed
from skidpad.streaming.episode import Observation
from skidpad.streaming.feedback import compared, held, in_order, motion, prospects, render_view
from skidpad.streaming.mapper_file import Mapper, RenderProtocol, content_hash
from skidpad.streaming.policies import Action, Feedback, WritePolicy
from skidpad.streaming.renderer import render_flops
from skidpad.streaming.schemas import ID_NAMES
from skidpad.streaming.seal import Fallback, SealedState, renderer_of
from skidpad.streaming.threads import require_one_thread
from skidpad.streaming.write_rule import UNITS_PER_VOXEL, Gate, fuse_flops, write

IMAGE_CHANNELS = 4  # red, green, blue, depth


def declared_costs(mapper: Mapper, policy: WritePolicy, render: RenderProtocol) -> dict[str, int]:
    """Declared units of one call of each operation."""
    preset = mapper.carrier.preset
    pixels = preset.image[0] * preset.image[1]
    return {
        "encode": pixels * IMAGE_CHANNELS,
        "feedback_render": pixels * render.samples,
        "policy": max(policy.units, 1),
        "fuse": UNITS_PER_VOXEL * preset.voxels,
        "complete": mapper.carrier.completion().units(preset),
        "query_render": pixels * render.samples,
    }


class MapperRunner:
    """Runs one write policy over one episode.

    mapper      as loaded; its modules are copied at reset and never touched
    policy      copied at reset too
    completion  in place of the mapper's own, for the control MEAN_FIELD
    name        of the arm, where it is not the policy's (SHUFFLED_POSES, MEAN_FIELD)
    clock       seconds; describes, decides nothing
    """

    reuse_layers = True  # an unchanged observed state gives the same layer: it is charged, not computed again

    def __init__(
        self,
        mapper: Mapper,
        policy: WritePolicy,
        *,
        render_protocol: RenderProtocol,
        budget_protocol: BudgetProtocol,
        completion: Completion | None = None,
        name: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mapper, self._loaded_policy = mapper, policy
        self._name = name or policy.name
        self._render, self._budget = render_protocol, budget_protocol
        self._given_completion = completion
        self._clock = clock
        self._state: FastState | None = None
        self._sealed = False

    def reset(self, warmup: Sequence[Observation], ids: Mapping[str, str], stream_count: int, query_count: int) -> None:
        """Start an episode: fresh weights, bounds and a state from the warm-up, fixed costs and queries reserved.

        ids  the five ids of the episode
        Raises ProtocolError for counts or ids that make no episode; RefusedError for frames that are foreign, out of
        order or without any valid depth, and for a budget below the fixed costs.
        """
        require_one_thread()
        self._state, self._sealed = None, False
        if set(ids) != set(ID_NAMES):
            raise ProtocolError(f"ids {sorted(ids)}: expected {', '.join(ID_NAMES)}.")
        for name, value in (("warm-up", len(warmup)), ("stream", stream_count), ("queries", query_count)):
            if type(value) is not int or value < 1:
                raise ProtocolError(f"{name} count {value!r}: must be a whole number of at least 1.")
        self._ids, self._stream_count = dict(ids), stream_count
        self._seconds, self._last_frame = 0.0, -1
        self._observed: list[dict[str, Any]] = []
        self._history: list[dict[str, Any]] = []
        self._kept: list[tuple[int, Observation]] = []
        self._layer_of: tuple[FastState, Layer] | None = None
        self._previous: Action | None = None
        start = self._now(reset_peak=True)
        with torch.inference_mode():
            self._fresh_weights()
            self._renderer = renderer_of(self._mapper.carrier.preset, self._render)
            self._open_ledger(len(warmup), query_count)
            for observation in warmup:
                self._arrive(observation)
            self._state = self._warm_state(warmup)
        self._seconds += self._now() - start

    def _fresh_weights(self) -> None:
        self._carrier, self._write_rule = copy.deepcopy(self._mapper.carrier), copy.deepcopy(self._mapper.write_rule)
        self._policy = copy.deepcopy(self._loaded_policy)
        self._completion = self._given_completion or self._carrier.completion()
        found = content_hash(self._carrier, self._write_rule)
        if found != self._mapper.info["content_hash"]:
            raise RefusedError(
                f"the mapper in memory has content hash {found}, it was loaded as {self._mapper.info['content_hash']}. "
                "Something changed its weights; load it again."
            )
        self._device = next(self._write_rule.parameters()).device

    def _open_ledger(self, warmup_count: int, query_count: int) -> None:
        self._ledger = Ledger(declared_costs(self._mapper, self._policy, self._render), self._budget.max_units)
        writes = warmup_count + (self._stream_count if self._policy.keeps_arrivals else 0)
        self._ledger.reserve("encode", warmup_count + self._stream_count)
        self._ledger.reserve("fuse", writes)
        self._ledger.reserve("feedback_render", self._stream_count)
        self._ledger.reserve("policy", self._stream_count)
        self._ledger.reserve("query_render", query_count)

    def _warm_state(self, warmup: Sequence[Observation]) -> FastState:
        preset = self._carrier.preset
        frame = measured_frame(warmup, preset, self._carrier.frame)
        state = empty_state(preset, frame, self._device, self._mapper.info["content_hash"])
        for observation in warmup:
            state = self._fuse(state, observation, self._write_rule)
        depths = torch.cat([observation.depth.reshape(-1) for observation in warmup if observation.depth is not None])
        colours = torch.stack([observation.rgb.mean((1, 2)) for observation in warmup]).mean(0).tolist()
        self._fallback = Fallback(float(depths[depths > 0].median()), (colours[0], colours[1], colours[2]))
        self._camera: Camera = warmup[-1].camera
        return state

    def _arrive(self, observation: Observation) -> None:
        """Check a frame's place and note it."""
        if observation.episode_id != self._ids["episode_id"]:
            raise RefusedError(
                f"frame {observation.frame_id} belongs to episode {observation.episode_id}, this one is "
                f"{self._ids['episode_id']}."
            )
        if observation.frame_id <= self._last_frame:
            raise RefusedError(
                f"episode {observation.episode_id}: frame {observation.frame_id} came after frame {self._last_frame}; "
                "frames arrive once and in ascending order."
            )
        self._last_frame = observation.frame_id
        self._observed.append({"frame_id": observation.frame_id, "digests": dict(observation.digests)})
        pixels = observation.rgb.shape[1] * observation.rgb.shape[2]
        self._ledger.record("encode", flops=pixels * IMAGE_CHANNELS)

    @property
    def state(self) -> FastState:
        """The fast state as it is. Raises ProtocolError before reset."""
        if self._state is None:
            raise ProtocolError("no episode is open: call reset first.")
        return self._state

    @property
    def ledger(self) -> Ledger:
        """Units used so far."""
        return self._ledger

    @property
    def history(self) -> list[dict[str, Any]]:
        """One row per arrival so far."""
        return [dict(row) for row in self._history]

    def step(self, observation: Observation) -> Action:
        """One arrival; returns what was done.

        Raises ProtocolError before reset, after the seal and beyond the declared stream; RefusedError for a foreign,
        repeated or late frame, a choice outside the feasible set, and a fixed policy that could not do what its name
        says.
        """
        state = self.state
        self._require_open()
        step = len(self._history) + 1
        if step > self._stream_count:
            raise ProtocolError(f"step {step}: the declared stream has {self._stream_count} frames. Call seal.")
        start = self._now()
        with torch.inference_mode():
            before = self._ledger.spent
            self._arrive(observation)
            state = replace(state, step=step)
            measured_depth(observation, state.preset)  # refused before anything is rendered
            feedback = self._feedback(state, observation)
            action, feasible = self._choose(feedback)
            if self._policy.keeps_arrivals:
                self._kept.append((step, observation))
            self._state = self._act(state, observation, action)
            self._camera, self._previous = observation.camera, action
        seconds = self._now() - start
        self._seconds += seconds
        self._history.append(
            {
                "step": step,
                "frame_id": observation.frame_id,
                "action": action.value,
                "feasible": [option.value for option in feasible],
                "features": {"residual": feedback.residual, **feedback.features},
                "units": self._ledger.spent - before,
                "seconds": seconds,
            }
        )
        return action

    def _require_open(self) -> None:
        if self._sealed:
            raise ProtocolError("the episode is sealed: nothing can be written any more. Call reset for another.")

    def _feedback(self, state: FastState, observation: Observation) -> Feedback:
        height, width = state.preset.image
        start = self._now()
        rendered = render_view(state, self._renderer, observation.camera, height, width)
        features, residual = compared(rendered, observation)
        self._ledger.record("feedback_render", flops=self._render_flops(), seconds=self._now() - start)
        left = self._stream_count - state.step + 1
        costs = self._ledger.costs
        units = {action: costs["fuse"] * action.fuses + costs["complete"] * action.completes for action in Action}
        fixed = costs["encode"] + costs["feedback_render"] + costs["policy"]
        budget = self._ledger.remaining + left * fixed
        return Feedback(
            in_order(
                features,
                motion(self._camera, observation.camera),
                held(state, self._stream_count),
                prospects(
                    left,
                    self._stream_count,
                    budget,
                    {action: fixed + extra for action, extra in units.items()},
                    self._previous,
                ),
            ),
            residual,
            state.step,
            left,
            self._ledger.remaining,
            units,
        )

    def _render_flops(self) -> int:
        height, width = self._carrier.preset.image
        return height * width * render_flops(self._render.samples)

    def _choose(self, feedback: Feedback) -> tuple[Action, tuple[Action, ...]]:
        feasible = tuple(action for action in Action if feedback.units[action] <= feedback.remaining)
        start = self._now()
        action = self._policy.choose(feedback, feasible)
        flops = 2 * self._policy.units if self._policy.units > 1 else 0
        self._ledger.record("policy", flops=flops, seconds=self._now() - start)
        name = self._policy.name
        if self._policy.fixed and action.value != name:
            needed = feedback.units[Action.parse(name)]
            raise RefusedError(
                f"policy {name} took {action} at step {feedback.step}: budget left {feedback.remaining:,.0f} of "
                f"{needed:,} units needed"
            )
        if action not in feasible:
            raise RefusedError(
                f"policy {name} chose {action!r} at step {feedback.step}; feasible were "
                f"{', '.join(option.value for option in feasible)}."
            )
        return action, feasible

    def _act(self, state: FastState, observation: Observation, action: Action) -> FastState:
        if action.fuses:
            state = self._fuse(state, observation, self._write_rule)
        if action.completes:
            state = self._complete(state)
        return state

    def _fuse(self, state: FastState, observation: Observation, gate: Gate | None) -> FastState:
        start = self._now()
        state, count = write(state, view_of(observation, state.frame, state.preset, self._device), gate)
        flops = fuse_flops(state, count, gate)
        self._ledger.record("fuse", flops=flops, seconds=self._now() - start, touched=count)
        return state

    def _complete(self, state: FastState) -> FastState:
        start = self._now()
        flops = 0
        held = self._layer_of
        if held is None or not self.reuse_layers or held[0].tensors["distance"] is not state.tensors["distance"]:
            held = (state, self._completion.layer(state))
            flops = self._completion.flops(state.preset)
        self._layer_of = held
        state = completed(state, held[1])
        self._ledger.record("complete", flops=flops, seconds=self._now() - start)
        return state

    def seal(self) -> SealedState:
        """Close the episode: slow weights hashed again from their tensors, the state hashed with all that led to it.

        Raises ProtocolError before the last frame and when sealed already; RefusedError when the slow weights changed.
        """
        state = self.state
        self._require_open()
        if len(self._history) < self._stream_count:
            raise ProtocolError(
                f"seal after {len(self._history)} of {self._stream_count} stream frames: every frame must arrive."
            )
        require_one_thread()
        start = self._now()
        with torch.inference_mode():
            for step, observation in self._kept:
                state = self._fuse(replace(state, step=step), observation, None)
            found = content_hash(self._carrier, self._write_rule)
            if found != self._mapper.info["content_hash"]:
                raise RefusedError(
                    f"policy {self._name}: the slow weights have content hash {found} at the seal, "
                    f"{self._mapper.info['content_hash']} when loaded. They were edited while streaming."
                )
            self._state, self._sealed = state, True
            sealed = SealedState.sealed(
                state,
                ids=self._ids,
                policy=self._name,
                checkpoint_hash=found,
                observed=self._observed,
                history=self._history,
                fallback=self._fallback,
                render_protocol=self._render,
                ledger=self._ledger,
            )
        peak = torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else None
        return replace(sealed, adapt_s=self._seconds + self._now() - start, peak_device_bytes=peak)

    def _now(self, *, reset_peak: bool = False) -> float:
        device = next(self._mapper.write_rule.parameters()).device
        if device.type == "cuda":  # work is queued there: without waiting, a clock reads nothing
            torch.cuda.synchronize(device)
            if reset_peak:
                torch.cuda.reset_peak_memory_stats(device)
        return self._clock()
