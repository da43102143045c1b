"""ORACLE: the best subset of at most two FUSE writes by the true score. It reads the vault before anything is written,
so only a run that is marked as diagnostic has it, and it is never ranked: it says how much a choice could be worth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from skidpad.streaming.policies import Action, Feedback, WritePolicy
from skidpad.streaming.seal import SealedState

MAX_WRITES = 2


@dataclass(frozen=True)
class Chosen:
    """FUSE at the given steps, from 1."""

    steps: frozenset[int]
    name: str = "ORACLE"
    fixed: bool = False
    keeps_arrivals: bool = False
    units: int = 1

    def choose(self, feedback: Feedback, feasible: Sequence[Action]) -> Action:
        """See above; OFF where the budget does not hold a write."""
        return Action.FUSE if feedback.step in self.steps and Action.FUSE in feasible else Action.OFF


def choices(stream_count: int) -> Iterator[Chosen]:
    """Every subset of at most two steps, fewer writes and earlier ones first."""
    for count in range(min(MAX_WRITES, stream_count) + 1):
        for steps in combinations(range(1, stream_count + 1), count):
            yield Chosen(frozenset(steps))


def best_choice(
    stream_count: int, sealed_by: Callable[[WritePolicy], SealedState], error_of: Callable[[SealedState], float]
) -> Chosen:
    """The subset with the lowest error; of equal ones the first.

    sealed_by  streams the episode with a policy
    error_of   the true error of a sealed state at the hidden views
    """
    return min(choices(stream_count), key=lambda policy: error_of(sealed_by(policy)))
