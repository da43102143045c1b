"""A sealed state: what is left of an episode when the last frame has arrived, hashed, and rendered for scoring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from skidpad.artifacts.digests import digest_value
from skidpad.artifacts.weights import decode_weights, describe_weights, encode_weights
from skidpad.errors import CheckpointError, IntegrityError
from skidpad.streaming.budget import Ledger
from skidpad.streaming.camera import Camera
from skidpad.streaming.carrier import FastState, Frame, state_shapes, table
from skidpad.streaming.completion import Layer, completed
from skidpad.streaming.feedback import Rendered, render_view
from skidpad.streaming.mapper_file import RenderProtocol
from skidpad.streaming.presets import Preset, preset_named
from skidpad.streaming.renderer import MeasurementRenderer

SEAL_SCHEMA = "skidpad.seal/1"
_META_KEYS = {
    "schema", "preset", "ids", "policy", "frame", "counters", "parent", "checkpoint_hash", "observed", "history",
    "fallback", "render_protocol", "ledger", "fast_state_hash", "state_hash", "adapt_s", "peak_device_bytes",
}  # fmt: skip


class Fallback(NamedTuple):
    """What uncovered pixels count as: median valid depth [m] and mean colour (3,) of the warm-up. Abstaining is
    neither free nor fatal."""

    depth: float
    rgb: tuple[float, float, float]


def renderer_of(preset: Preset, protocol: RenderProtocol) -> MeasurementRenderer:
    """The one renderer of a pair."""
    return MeasurementRenderer(protocol.samples, protocol.ray_chunk, preset.near, preset.far)


def history_digest(history: Sequence[Mapping[str, Any]]) -> str:
    """Digest of the history without its seconds, which differ from run to run."""
    return digest_value([{key: row[key] for key in row if key != "seconds"} for row in history], "history")


@dataclass(frozen=True, eq=False)
class SealedState:
    """One pair's state after its last arrival.

    ids              the five ids of the episode
    policy           name of the arm
    checkpoint_hash  content hash of the slow weights, recomputed from their tensors at the seal
    observed         {frame_id, digests} of every arrival in order, warm-up first, whatever was written
    history          one row per stream arrival
    fast_state_hash  of the tensors; `state_hash` also of bounds, anchor, counters, history without seconds, observed
                     frames, checkpoint hash, ids, policy, fallback and render protocol
    adapt_s          seconds from reset to seal, decoding left out
    """

    state: FastState
    ids: Mapping[str, str]
    policy: str
    checkpoint_hash: str
    observed: Sequence[Mapping[str, Any]]
    history: Sequence[Mapping[str, Any]]
    fallback: Fallback
    render_protocol: RenderProtocol
    ledger: Ledger
    fast_state_hash: str
    state_hash: str
    adapt_s: float = 0.0
    peak_device_bytes: int | None = None

    @classmethod
    def sealed(cls, state: FastState, **parts: Any) -> SealedState:
        """A state with its hashes computed."""
        fast = state.hash()
        return cls(state, **parts, fast_state_hash=fast, state_hash=_state_hash(state, fast, parts))

    def rehashed(self) -> tuple[str, str]:
        """Fast-state hash and state hash of what is in memory now."""
        fast = self.state.hash()
        return fast, _state_hash(self.state, fast, self.__dict__)

    def check(self) -> None:
        """Raises IntegrityError unless both hashes still hold."""
        for name, found in zip(("fast_state_hash", "state_hash"), self.rehashed(), strict=True):
            if found != getattr(self, name):
                raise IntegrityError(
                    f"sealed state of {self.ids['episode_id']}@{self.policy}: {name} is {found}, sealed as "
                    f"{getattr(self, name)}. The state was changed; its vault stays shut."
                )

    def render(self, camera: Camera, height: int, width: int) -> Rendered:
        """What a camera in the world measures. Changes nothing, books nothing."""
        with torch.inference_mode():
            return render_view(self.state, renderer_of(self.state.preset, self.render_protocol), camera, height, width)

    def with_layer_of(self, other: SealedState, policy: str) -> SealedState:
        """The control WRONG_SCENE: this state with another's completion layer pasted in, sealed anew as `policy`."""
        layer = Layer(*(other.state.tensors[f"layer_{name}"] for name in Layer._fields))
        parts = {name: getattr(self, name) for name in self.__dataclass_fields__ if not name.endswith("_hash")}
        parts |= {"checkpoint_hash": self.checkpoint_hash, "policy": policy}
        return SealedState.sealed(completed(parts.pop("state"), layer), **parts)

    def to_bytes(self) -> bytes:
        """The state as it waits between the phases."""
        state = self.state
        meta = {
            "schema": SEAL_SCHEMA,
            "preset": state.preset.name,
            "ids": dict(self.ids),
            "policy": self.policy,
            "frame": state.frame.to_json(),
            "counters": state.counters(),
            "parent": state.parent,
            "checkpoint_hash": self.checkpoint_hash,
            "observed": [dict(row) for row in self.observed],
            "history": [dict(row) for row in self.history],
            "fallback": {"depth": self.fallback.depth, "rgb": list(self.fallback.rgb)},
            "render_protocol": self.render_protocol.to_json(),
            "ledger": self.ledger.to_json(),
            "fast_state_hash": self.fast_state_hash,
            "state_hash": self.state_hash,
            "adapt_s": self.adapt_s,
            "peak_device_bytes": self.peak_device_bytes,
        }
        return encode_weights({name: tensor.cpu().numpy() for name, tensor in state.tensors.items()}, meta)[0]

    @classmethod
    def from_bytes(cls, data: bytes, where: str, device: str = "cpu") -> SealedState:
        """The state of bytes written by `to_bytes`, its hashes checked.

        Raises IntegrityError when anything was changed, CheckpointError when the bytes are something else.
        """
        meta = describe_weights(data, where)
        if meta.get("schema") != SEAL_SCHEMA or set(meta) != _META_KEYS:
            raise CheckpointError(f"{where}: schema {meta.get('schema')!r}, expected {SEAL_SCHEMA!r} with its fields.")
        preset = preset_named(meta["preset"], where)
        arrays = decode_weights(data, where).arrays
        shapes = {name: array.shape for name, array in arrays.items()}
        blocks = arrays["blocks"].size if "blocks" in arrays else 1
        if shapes != state_shapes(preset, blocks):
            raise CheckpointError(f"{where}: its tensors are not those of preset {preset.name}.")
        tensors = {name: torch.from_numpy(np.array(arrays[name])).to(device) for name in table(preset)}
        state = FastState(preset, Frame.from_json(meta["frame"]), tensors, meta["parent"], **meta["counters"])
        found = cls(
            state,
            meta["ids"],
            meta["policy"],
            meta["checkpoint_hash"],
            meta["observed"],
            meta["history"],
            Fallback(meta["fallback"]["depth"], tuple(meta["fallback"]["rgb"])),
            RenderProtocol(**meta["render_protocol"]),
            Ledger.from_json(meta["ledger"]),
            meta["fast_state_hash"],
            meta["state_hash"],
            meta["adapt_s"],
            meta["peak_device_bytes"],
        )
        found.check()
        return found


def _state_hash(state: FastState, fast_state_hash: str, parts: Mapping[str, Any]) -> str:
    return digest_value(
        {
            "tensors": fast_state_hash,
            "preset": state.preset.name,
            "frame": state.frame.to_json(),
            "counters": state.counters(),
            "parent": state.parent,
            "ids": dict(parts["ids"]),
            "policy": parts["policy"],
            "checkpoint_hash": parts["checkpoint_hash"],
            "observed": [dict(row) for row in parts["observed"]],
            "history": history_digest(parts["history"]),
            "fallback": [parts["fallback"].depth, list(parts["fallback"].rgb)],
            "render_protocol": parts["render_protocol"].to_json(),
        },
        SEAL_SCHEMA,
    )
