"""Strips: what a sealed state shows at its hidden views, as small pictures beside the truth.

Made in phase two from the very arrays that are scored, when a run is asked for them, and kept in one file of the run
folder, from which its page is made. A strip of an arm is colour, depth and depth error side by side; that of the truth
is colour and depth.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.files import parse_json
from skidpad.evaluation.metrics.scene_metrics import Predicted
from skidpad.runs.folder import RunFolder

if TYPE_CHECKING:
    from skidpad.streaming.vault import Query

STRIPS_FILE = "strips.jsonl"
NOTHING = (214, 201, 232)  # where nothing is covered, or there is no return
WHOLE_ERROR = 0.25  # relative depth error that is drawn in full red
_LEAST_M = 1e-6

U8 = NDArray[np.uint8]


def truth_strip(query: Query) -> str:
    """Colour and depth of a hidden view, as base64 of a PNG (H, 2 W)."""
    return _png([_colour(query.rgb), _depth(query.depth, query.depth > 0, query)])


def arm_strip(predicted: Predicted, query: Query, fallback_depth: float) -> str:
    """Colour, depth and relative depth error of a render, as base64 of a PNG (H, 3 W). Where nothing is covered the
    error is that of the fallback, as it is scored."""
    covered = predicted.covered
    colour = np.where(covered[..., None], _colour(predicted.rgb), np.array(NOTHING, np.uint8))
    guess = np.where(covered, predicted.depth, fallback_depth)
    error = np.abs(guess - query.depth) / np.maximum(query.depth, _LEAST_M)
    fade = _byte(1.0 - np.clip(error / WHOLE_ERROR, 0.0, 1.0))
    red = np.stack([np.full_like(fade, 255), fade, fade], axis=-1)
    red = np.where((query.depth > 0)[..., None], red, np.array(NOTHING, np.uint8))
    return _png([colour, _depth(predicted.depth, covered, query), red])


def _colour(rgb: NDArray[Any]) -> U8:
    return _byte(np.clip(rgb, 0.0, 1.0)).transpose(1, 2, 0)


def _depth(depth: NDArray[Any], known: NDArray[np.bool_], query: Query) -> U8:
    """Near is light, far is dark, on the scale of the truth."""
    grey = _byte(1.0 - np.clip(depth / max(float(query.depth.max()), _LEAST_M), 0.0, 1.0))
    return np.where(known[..., None], grey[..., None].repeat(3, axis=-1), np.array(NOTHING, np.uint8))


def _byte(share: NDArray[Any]) -> U8:
    return np.round(255.0 * share).astype(np.uint8)


def _png(tiles: list[U8]) -> str:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(np.concatenate(tiles, axis=1))).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode("ascii")


def read_strips(folder: RunFolder) -> Mapping[tuple[str, int], str]:
    """Every strip of a run by name and query: the names are those of pairs, and of episodes for the truth. Empty where
    none were asked for."""
    found: dict[tuple[str, int], str] = {}
    for path in sorted(folder.path.glob(f"*/{STRIPS_FILE}")):
        for line in path.read_bytes().splitlines():
            row = parse_json(line)
            found.update({(row["name"], view["query"]): view["png"] for view in row["views"]})
    return found
