"""LPIPS: how different two images look to the features of an image network (Zhang et al. 2018).

Both images pass AlexNet's five convolutions. At each, features are scaled to unit length per pixel; their squared
differences are weighted by channel, summed over channels, averaged over pixels, and the five sums are added. Network
and channel weights were learned elsewhere and do not come with this package: `skidpad weights lpips` obtains them.
Where they are absent the metric is absent, and never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.files import user_cache_folder
from skidpad.errors import IntegrityError

if TYPE_CHECKING:
    import torch

F64 = NDArray[np.float64]

# Of the converted weights. They come of one archive of one digest, so there is one value that is right; another network
# is another version of the metric.
WEIGHTS_DIGEST = "2afed416fd44fd796f8f9b0dc73241862427017866a19ae04469657ff45c0e3e"
KIND = "lpips.alexnet/1"
STRIDES, PADDINGS = (4, 1, 1, 1, 1), (2, 2, 1, 1, 1)
POOLED_AFTER = (0, 1)  # 3x3 maxima, two pixels apart
LEAST_PIXELS = 31  # a smaller side leaves nothing after the second maximum
SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # of the network's training images, in [-1, 1]
_TINY = 1e-10


def weights_file() -> Path:
    """Where this user's weights lie, if they were obtained."""
    return user_cache_folder("metrics") / "lpips-alexnet.safetensors"


def available() -> Path | None:
    """The file of weights, or None where there is none. Nothing is read."""
    path = weights_file()
    return path if path.is_file() else None


def load_lpips(path: Path) -> Lpips:
    """The metric with the weights of a file.

    Raises CheckpointError for another kind of file; IntegrityError for other weights, and for a damaged file.
    """
    from skidpad.artifacts.weights import load_weights

    weights = load_weights(path)
    if weights.digest != WEIGHTS_DIGEST:
        raise IntegrityError(
            f"{path}: these are not the weights of rgb_lpips: digest {weights.digest}, expected {WEIGHTS_DIGEST}. "
            "Remove the file and obtain it anew with `skidpad weights lpips`."
        )
    return Lpips(weights.arrays)


class Lpips:
    """The metric, given its weights.

    arrays  for each of five levels k: `conv_k.weight` (O, I, h, w), `conv_k.bias` (O,), `head_k.weight` (O,), float32
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        import torch

        def of(name: str) -> torch.Tensor:
            return torch.from_numpy(np.array(arrays[name], np.float32))

        levels = range(len(STRIDES))
        self._convolutions = [(of(f"conv_{k}.weight"), of(f"conv_{k}.bias")) for k in levels]
        self._heads = [of(f"head_{k}.weight")[:, None, None] for k in levels]
        self._shift, self._scale = (torch.tensor(values)[:, None, None] for values in (SHIFT, SCALE))

    def __call__(self, guess: F64, truth: F64) -> float | None:
        """Distance of two (3, H, W) images in [0, 1], at least 0; None below 31 pixels a side."""
        import torch

        if min(guess.shape[1:]) < LEAST_PIXELS:
            return None
        with torch.inference_mode():
            both = torch.from_numpy(np.stack([guess, truth]).astype(np.float32))
            total = 0.0
            for level, features in enumerate(self._features((2 * both - 1 - self._shift) / self._scale)):
                length = features.square().sum(1, keepdim=True).sqrt() + _TINY
                one, other = (features / length).unbind()
                total += float(((one - other).square() * self._heads[level]).sum(0).mean())
        return total

    def _features(self, images: torch.Tensor) -> list[torch.Tensor]:
        """Of (2, 3, H, W) standardised images: (2, channels, rows, columns) after each convolution."""
        from torch.nn import functional

        found = []
        for level, (weight, bias) in enumerate(self._convolutions):
            images = functional.conv2d(images, weight, bias, STRIDES[level], PADDINGS[level]).clamp_min(0)
            found.append(images)
            if level in POOLED_AFTER:
                images = functional.max_pool2d(images, 3, 2)
        return found
