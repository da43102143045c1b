"""Worlds whose best policy and its values can be computed by hand, behind the interface that training asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.simulation.results import StepResult


class ToyWorlds:
    """One row a world. Subclasses say what is shown and what an action does."""

    width = 1

    def __init__(self, rows: int) -> None:
        self.row_world = np.arange(rows, dtype=np.int32)
        self.steps_taken = np.zeros(rows, np.int64)
        self.result = StepResult(
            obs=np.zeros((rows, self.width), np.float32),
            reward=np.zeros(rows, np.float32),
            terminal=np.zeros(rows, np.bool_),
            truncated=np.zeros(rows, np.bool_),
            mask=np.ones(rows, np.bool_),
            events=np.zeros(rows, np.uint32),
            reward_terms=np.zeros((rows, 0), np.float32),
            final_obs=np.zeros((rows, self.width), np.float32),
        )

    def write_to(self, buffers: Mapping[str, Any]) -> None:
        own = self.result._asdict()
        for name, array in buffers.items():
            np.copyto(array, own[name])
        self.result = self.result._replace(**buffers)

    def reset(self) -> None:
        self.steps_taken[:] = 0
        self.result.obs[:] = self.seen()

    def step(self, actions: NDArray[Any]) -> None:
        reward, terminal, truncated = self.act(actions)
        ended = terminal | truncated
        self.steps_taken += 1
        assert self.result.final_obs is not None
        self.result.final_obs[:] = self.seen()
        self.begin(ended)
        self.steps_taken[ended] = 0
        for name, value in (("reward", reward), ("terminal", terminal), ("truncated", truncated), ("mask", True)):
            getattr(self.result, name)[:] = value
        self.result.obs[:] = self.seen()

    def seen(self) -> NDArray[np.float32]:
        raise NotImplementedError

    def begin(self, rows: NDArray[np.bool_]) -> None:
        raise NotImplementedError

    def act(self, actions: NDArray[Any]) -> tuple[Any, NDArray[np.bool_], NDArray[np.bool_]]:
        raise NotImplementedError


class Bandit(ToyWorlds):
    """Four contexts that follow one another, three arms; the best arm of context c is (2 c) mod 3 and pays 1, the next
    one 0.5. Every step is an episode."""

    width = 4

    def __init__(self, rows: int) -> None:
        self.context = np.arange(rows) % 4
        super().__init__(rows)

    def seen(self) -> NDArray[np.float32]:
        return np.eye(4, dtype=np.float32)[self.context]

    def begin(self, rows: NDArray[np.bool_]) -> None:
        self.context = np.where(rows, (self.context + 1) % 4, self.context)

    def act(self, actions: NDArray[Any]) -> tuple[Any, NDArray[np.bool_], NDArray[np.bool_]]:
        away = (actions - 2 * self.context) % 3
        over = np.ones(len(actions), np.bool_)
        return np.choose(away, [1.0, 0.5, 0.0]).astype(np.float32), over, ~over


class Corridor(ToyWorlds):
    """Six places in a row; action 1 goes right, 0 left. The right end pays 1 and is the end; each step costs 0.01.
    After LIMIT steps the walk is cut off, which is no end: values are those of walking on."""

    width, LENGTH, LIMIT = 6, 6, 12

    def __init__(self, rows: int) -> None:
        self.place = np.arange(rows) % (self.LENGTH - 1)
        super().__init__(rows)

    def seen(self) -> NDArray[np.float32]:
        return np.eye(self.LENGTH, dtype=np.float32)[self.place]

    def begin(self, rows: NDArray[np.bool_]) -> None:
        self.place = np.where(rows, (np.arange(len(rows)) + self.place) % (self.LENGTH - 1), self.place)

    def act(self, actions: NDArray[Any]) -> tuple[Any, NDArray[np.bool_], NDArray[np.bool_]]:
        self.place = np.clip(self.place + np.where(actions == 1, 1, -1), 0, self.LENGTH - 1)
        over = self.place == self.LENGTH - 1
        cut = (self.steps_taken + 1 >= self.LIMIT) & ~over
        return np.where(over, 1.0, 0.0).astype(np.float32) - np.float32(0.01), over, cut

    @classmethod
    def values(cls, gamma: float) -> list[float]:
        """Of the best policy, from each place but the end: k steps away it is -0.01 (1 + .. + gamma^(k-1)) +
        gamma^(k-1)."""
        away = [cls.LENGTH - 1 - place for place in range(cls.LENGTH - 1)]
        return [-0.01 * sum(gamma**step for step in range(k)) + gamma ** (k - 1) for k in away]


class Endless(ToyWorlds):
    """Pays 1 in every step and is cut off every third, after which it shows another first row: nothing ends, so the
    value is 1 / (1 - gamma) wherever it is seen, if it is bootstrapped from what was seen last."""

    width = 3

    def seen(self) -> NDArray[np.float32]:
        return np.eye(3, dtype=np.float32)[np.minimum(self.steps_taken, 2)]

    def begin(self, rows: NDArray[np.bool_]) -> None:
        pass

    def act(self, actions: NDArray[Any]) -> tuple[Any, NDArray[np.bool_], NDArray[np.bool_]]:
        never = np.zeros(len(actions), np.bool_)
        return 1.0, never, self.steps_taken + 1 >= 3


class Recall(ToyWorlds):
    """The first row shows which of two actions will pay in the third step; the rows between show nothing. Without a
    memory the best that can be had is 0.5."""

    width = 3

    def __init__(self, rows: int) -> None:
        self.told, self.count = np.arange(rows) % 2, 0
        super().__init__(rows)

    def seen(self) -> NDArray[np.float32]:
        shown = np.zeros((len(self.told), 3), np.float32)
        first = self.steps_taken == 0
        shown[first, self.told[first]] = 1.0
        shown[:, 2] = self.steps_taken == 2
        return shown

    def begin(self, rows: NDArray[np.bool_]) -> None:
        self.count += 1
        self.told = np.where(rows, (self.told + self.count + np.arange(len(rows)) // 2) % 2, self.told)

    def act(self, actions: NDArray[Any]) -> tuple[Any, NDArray[np.bool_], NDArray[np.bool_]]:
        last = self.steps_taken == 2
        return (last & (actions == self.told)).astype(np.float32), last, np.zeros(len(actions), np.bool_)
