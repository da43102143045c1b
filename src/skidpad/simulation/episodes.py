"""Episodes that follow one another: which scene comes next, and what is kept of one that has ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.case import Case
from skidpad.scenes.events import Controller, Ending, Event, Exclusion, Reason, Status
from skidpad.simulation import state as at
from skidpad.simulation.population import Population
from skidpad.simulation.random import Purpose, words_array
from skidpad.simulation.tally import TALLY


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


KEPT_EPISODES = 4096  # whoever asks for no rows keeps no more than about these


@dataclass(frozen=True)
class Ended:
    """What is kept of the episodes of W worlds that ended in one step: copies. Agents are those under test or driven by
    a policy, world after world.

    cases, populations, told            of the worlds
    world    (WORLD_ROWS, W)      i64   their per-world block
    dt_us    (W,)                 i64
    start    (W + 1,)             i64   agents of world w: start[w] : start[w + 1]
    agents   (n,)                 i32   numbers inside their worlds
    ints, bytes_  (fields, n)           state blocks
    counts, first  (EVENT_KINDS, n)  i32   events, and the step of the first, 0 = never
    tally    (TALLY_ROWS, n)      f32   running quantities
    sums     name -> (n, ...)           rewards, terms, overflow, clipped actions; 0 for agents without a row
    """

    cases: tuple[Case, ...]
    populations: tuple[Population, ...]
    told: tuple[str, ...]
    world: NDArray[np.int64]
    dt_us: NDArray[np.int64]
    start: NDArray[np.int64]
    agents: NDArray[np.int32]
    ints: NDArray[np.int32]
    bytes_: NDArray[np.uint8]
    counts: NDArray[np.int32]
    first: NDArray[np.int32]
    tally: NDArray[np.float32]
    sums: Mapping[str, NDArray[Any]]

    def rows(self, terms: Sequence[str], perturbed: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """For each world its row, then those of its agents. `terms` names the columns of the reward terms, `perturbed`
        what was taken from the agents."""
        for w in range(len(self.cases)):
            yield self._world_row(w) | {"perturbations": dict(perturbed)}
            for k in range(int(self.start[w]), int(self.start[w + 1])):
                yield self._agent_row(w, k, terms)

    def _identity(self, w: int, kind: str) -> dict[str, Any]:
        case = self.cases[w]
        return {
            "kind": kind,
            "scene_id": case.scene_id,
            "scene_digest": case.scene_digest,
            "case": case.id,
            "seed": case.seed,
            "benchmark_seed": case.benchmark_seed,
            "replicate": case.replicate,
            "episode": int(self.world[at.EPISODE, w]),
            "start_row": int(self.world[at.START_ROW, w]),
            "steps": int(self.world[at.STEP, w]),
        }

    def _world_row(self, w: int) -> dict[str, Any]:
        ending = Ending(int(self.world[at.ENDING, w]))
        codes, numbers = np.unique(self.populations[w].exclusion, return_counts=True)
        return self._identity(w, "world") | {
            "dt": int(self.dt_us[w]) / 1e6,
            "ending": self.told[w] if ending == Ending.TOLD else ending.name.lower(),
            "population": {Exclusion(int(code)).name.lower(): int(n) for code, n in zip(codes, numbers, strict=True)},
        }

    def _agent_row(self, w: int, k: int, terms: Sequence[str]) -> dict[str, Any]:
        agent = int(self.agents[k])
        kinds = [(bit, str(event.name).lower()) for bit, event in enumerate(Event) if self.counts[bit, k]]
        return self._identity(w, "agent") | {
            "agent": agent,
            "track": int(self.populations[w].source_id[agent]),
            "controller": Controller(int(self.bytes_[at.CONTROLLER, k])).name.lower(),
            "exclusion": Exclusion(int(self.bytes_[at.EXCLUSION, k])).name.lower(),
            "status": Status(int(self.bytes_[at.STATUS, k])).name.lower(),
            "reason": Reason(int(self.ints[at.REASON, k])).name.lower(),
            "active_steps": int(self.ints[at.ACTIVE_STEPS, k]),
            "goals": int(self.ints[at.GOAL_INDEX, k]),
            "events": {name: int(self.counts[bit, k]) for bit, name in kinds},
            "first": {name: int(self.first[bit, k]) for bit, name in kinds},
            "return": float(self.sums["reward"][k]),
            "terms": {name: float(value) for name, value in zip(terms, self.sums["terms"][k], strict=True)},
            "overflow": [int(value) for value in self.sums["overflow"][k]],
            "clipped": int(self.sums["clipped"][k]),
            "quantities": {quantity.name: float(self.tally[row, k]) for row, quantity in enumerate(TALLY)},
        }


class Ledger:
    """Episodes that have ended, until somebody asks for their rows."""

    def __init__(self) -> None:
        self._kept: deque[Ended] = deque()
        self._worlds = 0
        self.dropped = 0

    def add(self, ended: Ended) -> None:
        """Keep some; the oldest go where there are too many, and are counted."""
        self._kept.append(ended)
        self._worlds += len(ended.cases)
        while self._worlds > KEPT_EPISODES and len(self._kept) > 1:
            gone = len(self._kept.popleft().cases)
            self._worlds -= gone
            self.dropped += gone

    def take(self) -> list[Ended]:
        """All that are kept, oldest first; none remains."""
        taken = list(self._kept)
        self._kept.clear()
        self._worlds = 0
        return taken
