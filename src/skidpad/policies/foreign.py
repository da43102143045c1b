"""Weights from elsewhere: a `.pt` file of tensors, opened in a process of its own and taken for nothing but numbers.

A `.pt` file is a pickle, and a pickle can be a program. It is opened by `torch.load(weights_only=True)` in a child with
bounded memory and time, whose answer is tensors in our own format; this process never parses it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from skidpad.artifacts.distrusted import bound, weights_from_child
from skidpad.artifacts.weights import Weights
from skidpad.errors import CheckpointError

KIND = "foreign/1"
MEMORY_BYTES, SECONDS = 16 << 30, 300
PREFIXES = ("module.", "_orig_mod.")  # what data parallelism and torch.compile put before every name


def read_foreign(path: Path) -> Weights:
    """The tensors of a foreign file by name. Raises CheckpointError where there are none, or anything but tensors."""
    if not path.is_file():
        raise CheckpointError(f"{path}: cannot be read, expected a file of weights.")
    expected = "file of plain tensors, as a saved state_dict is one"
    return weights_from_child("skidpad.policies.foreign", (str(path),), b"", SECONDS, str(path), expected)


def _main(path: str) -> None:
    """The child: tensors as our own bytes on standard output."""
    import numpy as np
    import torch

    from skidpad.artifacts.weights import encode_weights

    bound(MEMORY_BYTES, SECONDS)
    loaded = torch.load(path, map_location="cpu", weights_only=True)
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(loaded, dict) and isinstance(loaded.get(key), dict):
            loaded = loaded[key]
    if not isinstance(loaded, dict) or not loaded:
        raise SystemExit(f"it holds a {type(loaded).__name__}, expected tensors by name")
    if odd := [str(name) for name, value in loaded.items() if not isinstance(value, torch.Tensor)]:
        raise SystemExit(f"{', '.join(odd[:5])}: no tensor")
    arrays = {_bare(str(name)): np.asarray(value.detach().float().numpy()) for name, value in loaded.items()}
    sys.stdout.buffer.write(encode_weights(arrays, {"kind": KIND})[0])


def _bare(name: str) -> str:
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name


if __name__ == "__main__":
    _main(sys.argv[1])
