"""The stream of the control SHUFFLED_POSES: the frames as they are, each with the pose of another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from skidpad.errors import UsageError
from skidpad.streaming.episode import Observation, OnlineSource, camera_of


def derangement(count: int, seed: int) -> list[int]:
    """A permutation of `count` places that leaves none where it was: one cycle through all (Sattolo 1986).

    Raises UsageError for fewer than two.
    """
    if count < 2:
        raise UsageError(f"SHUFFLED_POSES over {count} stream frame: a single pose cannot be exchanged.")
    rng = np.random.Generator(np.random.PCG64(seed))
    order = list(range(count))
    for last in range(count - 1, 0, -1):
        other = int(rng.integers(last))
        order[last], order[other] = order[other], order[last]
    return order


class ShuffledPoses:
    """A source whose stream poses are deranged by a registered seed. The warm-up stays as it is."""

    def __init__(self, source: OnlineSource, seed: int) -> None:
        self._source = source
        manifest = source.manifest
        self._cameras = [camera_of(frame.camera, f"frame {frame.frame_id}") for frame in manifest.stream]
        self._order = derangement(len(self._cameras), seed)

    @property
    def remaining(self) -> int:
        """Stream frames that have not arrived yet."""
        return self._source.remaining

    def warmup(self) -> list[Observation]:
        """As the source's."""
        return self._source.warmup()

    def next(self) -> Observation:
        """The next frame with another's pose."""
        place = len(self._cameras) - self._source.remaining
        return replace(self._source.next(), camera=self._cameras[self._order[place]])

    def stream(self) -> Iterator[Observation]:
        """The frames that are left, one by one."""
        while self.remaining:
            yield self.next()
