"""Which checkpoint of a run is the newest: by the step its metadata says, never by the time of a file, which is another
after a copy (E40).
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skidpad.artifacts.weights import MAX_HEADER_BYTES, describe_weights
from skidpad.errors import SkidpadError

if TYPE_CHECKING:
    from skidpad.policies.checkpoint import Checkpoint

SUFFIX = ".safetensors"


class CheckpointFolder(NamedTuple):
    """Where a training run saves, under which run id, and the weights it started from."""

    folder: Path
    run: str
    load_path: Path | None = None


def latest_checkpoint(folder: Path, run: str, load_path: Path | None = None) -> Checkpoint | None:
    """The whole checkpoint of the largest step that a run has saved into a folder; `load_path`, the weights it started
    from, only where it has saved none; None where there is neither.

    One that is torn, damaged or of another run is passed over, and a line on standard error says why. Raises as
    `load_checkpoint` for `load_path`.
    """
    from skidpad.policies.checkpoint import load_checkpoint

    found: list[tuple[int, str, Path]] = []
    for path in folder.glob(f"*{SUFFIX}"):
        try:
            meta = describe_weights(_head(path), str(path))
            if meta.get("run") != run:
                _passed_over(path, f"it is of run {meta.get('run')!r}, this is {run!r}")
                continue
            found.append((int(meta["step"]), path.name, path))
        except (SkidpadError, OSError, KeyError, TypeError, ValueError, struct.error) as error:
            _passed_over(path, str(error))
    for _, _, path in sorted(found, reverse=True):
        try:
            return load_checkpoint(path)
        except SkidpadError as error:
            _passed_over(path, str(error))
    return None if load_path is None else load_checkpoint(load_path)


def _head(path: Path) -> bytes:
    """The part of a file that says what is in it."""
    with path.open("rb") as file:
        size = file.read(8)
        return size + file.read(min(struct.unpack("<Q", size)[0], MAX_HEADER_BYTES + 1))


def _passed_over(path: Path, reason: str) -> None:
    print(f"{path}: passed over: {reason}", file=sys.stderr)
