"""Random numbers of policy rows, by identity: who shares the batch or runs first changes nothing (E52)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class IdentityStreams:
    """`policy.RowStreams` over (case seed, rollout, agent, step).

    seeds    (rows,)  u64   case seed of each row
    agents   (rows,)  u32   stable key of each row's agent
    steps    (rows,)  i64   step of each row's world
    rollout                 0 for the first, or only, one; or (rows,) i64, that of each row
    """

    def __init__(
        self,
        seeds: NDArray[np.uint64],
        agents: NDArray[np.uint32],
        steps: NDArray[np.int64],
        rollout: int | NDArray[np.int64] = 0,
    ) -> None:
        self._seeds, self._agents, self._steps = seeds, agents, steps
        self._rollout = np.broadcast_to(np.asarray(rollout, np.int64), seeds.shape)

    def uniform(self, count: int) -> NDArray[np.float32]:
        """(rows, count) f32 in [0, 1); asking twice gives the same numbers."""
        from skidpad.simulation.random import Purpose, uniform_array

        return uniform_array(
            self._seeds[:, None],
            self._rollout[:, None],
            self._agents[:, None],
            self._steps[:, None],
            Purpose.CHOICE,
            np.arange(count)[None, :],
        )
