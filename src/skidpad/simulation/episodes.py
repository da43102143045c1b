"""Episodes that follow one another: which scene comes next, and what is kept of one that has ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.case import Case
from skidpad.scenes.events import Controller, Ending, Event, Exclusion, Reason, Status
from skidpad.simulation import state as at
from skidpad.simulation.random import Purpose, words_array


class Draws:
    """Cases in a seeded order, each once in every pass (S67).

    pool  what is drawn from
    seed  of the order; every pass has an order of its own
    """

    def __init__(self, pool: Sequence[Case], seed: int) -> None:
        self.pool = tuple(pool)
        self.seed = seed
        self.drawn = 0
        self._order: deque[int] = deque()

    def __next__(self) -> Case:
        """The next case; in pass p its replicate is raised by p times the number of replicates of the pool, so that
        no two passes repeat each other's random numbers."""
        if not self._order:
            self._order.extend(self._pass(self.drawn // len(self.pool)))
        case = self.pool[self._order.popleft()]
        number = self.drawn // len(self.pool)
        self.drawn += 1
        replicates = 1 + max(case.replicate for case in self.pool)
        return replace(case, replicate=case.replicate + number * replicates)

    def skip(self, drawn: int) -> None:
        """Go to where `drawn` cases have been drawn."""
        self.drawn = drawn
        self._order = deque(self._pass(drawn // len(self.pool))[drawn % len(self.pool) :])

    def _pass(self, number: int) -> list[int]:
        """The order of one pass: by a random word each, ties by place."""
        places = np.arange(len(self.pool))
        high, low = words_array(np.uint64(self.seed), number, places, 0, Purpose.CHOICE, 0)[:2]
        return [int(place) for place in np.lexsort((places, low, high))]


KEPT_EPISODES = 4096  # whoever asks for no rows keeps no more than these


@dataclass(frozen=True)
class Episode:
    """What is kept of the episode of one world that has ended; copies, n agents of interest among them.

    case, number, start_row, steps, dt_us, ending, told   the world's
    exclusion    (N,)               u8    of all its agents
    agents       (n,)               i32   those under test or driven by a policy
    rows         (n,)               i32   their policy rows in the batch, -1 = none
    names        (n,)               i64   their ids in the scene
    ints, bytes_ (fields, n)              state blocks
    counts       (EVENT_KINDS, n)   i32   events
    first        (EVENT_KINDS, n)   i32   step of the first, 0 = never
    quantities   name -> (n,)             running quantities
    sums         name -> (n, ...)         rewards, terms, overflow, clipped; 0 without a row
    """

    case: Case
    number: int
    start_row: int
    steps: int
    dt_us: int
    ending: Ending
    told: str
    exclusion: NDArray[np.uint8]
    agents: NDArray[np.int32]
    rows: NDArray[np.int32]
    names: NDArray[np.int64]
    ints: NDArray[np.int32]
    bytes_: NDArray[np.uint8]
    counts: NDArray[np.int32]
    first: NDArray[np.int32]
    quantities: Mapping[str, NDArray[Any]]
    sums: Mapping[str, NDArray[Any]]

    def world_row(self) -> dict[str, Any]:
        """One row of the world-episode."""
        codes, numbers = np.unique(self.exclusion, return_counts=True)
        return self._identity() | {
            "kind": "world",
            "steps": self.steps,
            "dt": self.dt_us / 1e6,
            "ending": self.told if self.ending == Ending.TOLD else self.ending.name.lower(),
            "population": {Exclusion(int(code)).name.lower(): int(n) for code, n in zip(codes, numbers, strict=True)},
        }

    def agent_rows(self, terms: Sequence[str]) -> list[dict[str, Any]]:
        """One row per agent; `terms` names the columns of the reward terms."""
        return [self._agent_row(k, terms) for k in range(len(self.agents))]

    def _identity(self) -> dict[str, Any]:
        return {
            "scene_id": self.case.scene_id,
            "scene_digest": self.case.scene_digest,
            "case": self.case.id,
            "seed": self.case.seed,
            "benchmark_seed": self.case.benchmark_seed,
            "replicate": self.case.replicate,
            "episode": self.number,
            "start_row": self.start_row,
        }

    def _agent_row(self, k: int, terms: Sequence[str]) -> dict[str, Any]:
        kinds = [(bit, event) for bit, event in enumerate(Event) if self.counts[bit, k]]
        return (
            self._identity()
            | {
                "kind": "agent",
                "agent": int(self.agents[k]),
                "track": int(self.names[k]),
                "controller": Controller(int(self.bytes_[at.CONTROLLER, k])).name.lower(),
                "exclusion": Exclusion(int(self.bytes_[at.EXCLUSION, k])).name.lower(),
                "status": Status(int(self.bytes_[at.STATUS, k])).name.lower(),
                "reason": Reason(int(self.ints[at.REASON, k])).name.lower(),
                "steps": self.steps,
                "active_steps": int(self.ints[at.ACTIVE_STEPS, k]),
                "goals": int(self.ints[at.GOAL_INDEX, k]),
                "events": {str(event.name).lower(): int(self.counts[bit, k]) for bit, event in kinds},
                "first": {str(event.name).lower(): int(self.first[bit, k]) for bit, event in kinds},
                "return": float(self.sums["reward"][k]),
                "terms": {name: float(value) for name, value in zip(terms, self.sums["terms"][k], strict=True)},
                "overflow": [int(value) for value in self.sums["overflow"][k]],
                "clipped": int(self.sums["clipped"][k]),
            }
            | {name: float(values[k]) for name, values in self.quantities.items()}
        )


class Ledger:
    """Episodes that have ended, until somebody asks for their rows."""

    def __init__(self) -> None:
        self._kept: deque[Episode] = deque()
        self.dropped = 0

    def add(self, episode: Episode) -> None:
        """Keep one; the oldest goes where there are too many, and is counted."""
        if len(self._kept) == KEPT_EPISODES:
            self._kept.popleft()
            self.dropped += 1
        self._kept.append(episode)

    def take(self) -> list[Episode]:
        """All that are kept, oldest first; none remains."""
        taken = list(self._kept)
        self._kept.clear()
        return taken
