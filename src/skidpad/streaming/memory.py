"""How much memory one pair takes above the imported process, known before anything is allocated."""

from __future__ import annotations

from skidpad.streaming.carrier import state_bytes
from skidpad.streaming.presets import Preset

# Measured peaks of pairs of every preset on one core, in copies of what their size is known of (docs/sealed.md).
STATE_COPIES = 9  # a state before and after a write with what lies between, then its bytes, checked and decoded
RAY_ARRAYS = 10  # float32 values per interval of a chunk of rays that live at once
FIRST_USE = {"harmonic": 9_000_000, "unet": 33_000_000}  # buffers that libraries keep from their first operator on
_FLOAT = 4


def pair_bytes(preset: Preset, samples: int, ray_chunk: int, completion: str) -> int:
    """Estimated peak of one pair, bytes above the imported process.

    completion  "harmonic" or "unet"
    """
    rays = min(ray_chunk, preset.image[0] * preset.image[1])
    return FIRST_USE[completion] + RAY_ARRAYS * _FLOAT * rays * (samples + 1) + STATE_COPIES * state_bytes(preset)
