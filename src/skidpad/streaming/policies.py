"""Write policies: at every arrival, whether to write into the state, and how.

A policy sees a prefix only: features of the rendered old state against the arriving view, the ledger, and how many
steps are left. It gets no source, no ids and no later frame. It chooses among the actions that still fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from skidpad.artifacts.digests import digest_value
from skidpad.errors import RefusedError, UsageError, nearest


class Action(Enum):
    """What a step does, in the order in which ties are broken.

    OFF       the arrival is used for feedback and dropped
    FUSE      it is written, and joins the keyframes
    COMPLETE  a new layer from the old observed state; it is not written
    ALL       FUSE, then COMPLETE on the fused state
    """

    OFF = "OFF"
    FUSE = "FUSE"
    COMPLETE = "COMPLETE"
    ALL = "ALL"

    def __str__(self) -> str:
        return self.value

    @classmethod
    def parse(cls, text: object) -> Action:
        """The action of exactly that name. Raises UsageError for anything else."""
        for action in cls:
            if type(text) is str and text == action.value:
                return action
        raise UsageError(f"action {text!r}: expected one of {', '.join(action.value for action in cls)}.")

    @property
    def fuses(self) -> bool:
        return self in (Action.FUSE, Action.ALL)

    @property
    def completes(self) -> bool:
        return self in (Action.COMPLETE, Action.ALL)


FEATURE_SCHEMA = "skidpad.writer.features/1"
MOTION = ("motion right", "motion down", "motion forward", "turn about right", "turn about down", "turn about forward")
# Name and unit, in order. Version: any change of a value or of the order is a new schema.
FEATURES: Mapping[str, str] = {
    "mean depth": "metres, valid pixels",
    "uncovered share": "of valid pixels",
    "wrong share": "of covered valid pixels, off by more than a tenth",
    "colour error": "mean square, covered valid pixels",
    **{name: "metres" if name.startswith("motion") else "radians" for name in MOTION},
    "known share": "of voxels",
    "mean log weight": "of known voxels",
    "thin share": "of known voxels, weight at most 1",
    "layer age": "steps over the stream, 1 without a layer",
    "steps left": "share of the stream, this step included",
    **{f"steps of {action} left": "log of 1 + budget over one such step" for action in Action},
    **{f"previous was {name}": "0 or 1" for name in ("none", *(action.value for action in Action))},
}


@dataclass(frozen=True)
class Feedback:
    """What a policy may know at an arrival.

    features    one number per entry of `FEATURES`
    residual    mean relative depth error of the old state over the view's valid pixels, uncovered ones counting as 1;
                None for a view without a valid pixel
    step        of this arrival, from 1
    steps_left  this one included
    remaining   units left for writing
    units       declared units of each action's writes
    """

    features: Mapping[str, float]
    residual: float | None
    step: int
    steps_left: int
    remaining: float
    units: Mapping[Action, int]


class WritePolicy(Protocol):
    """One write policy.

    name            as settings and records spell it
    fixed           its action at each step is its name; a departure is an error, never a quiet fall back
    keeps_arrivals  every arrival is kept and written by the classical rule at the seal
    units           declared units of one choice, at least 1
    """

    @property
    def name(self) -> str: ...
    @property
    def fixed(self) -> bool: ...
    @property
    def keeps_arrivals(self) -> bool: ...
    @property
    def units(self) -> int: ...
    def choose(self, feedback: Feedback, feasible: Sequence[Action]) -> Action:
        """One of the feasible actions; they come in the order of `Action` and always hold OFF."""
        ...


@dataclass(frozen=True)
class Fixed:
    """OFF, FUSE, COMPLETE or ALL at every step."""

    action: Action
    fixed: bool = True
    keeps_arrivals: bool = False
    units: int = 1

    @property
    def name(self) -> str:
        return self.action.value

    def choose(self, feedback: Feedback, feasible: Sequence[Action]) -> Action:
        """Its action; OFF where that does not fit, which the runner refuses."""
        return self.action if self.action in feasible else Action.OFF


@dataclass(frozen=True)
class Scheduled:
    """FUSE at each step, ALL at the last; the dearest part of it that still fits."""

    name: str = "SCHEDULED"
    fixed: bool = False
    keeps_arrivals: bool = False
    units: int = 1

    def choose(self, feedback: Feedback, feasible: Sequence[Action]) -> Action:
        """See above."""
        wanted = (Action.ALL, Action.FUSE) if feedback.steps_left == 1 else (Action.FUSE,)
        return next((action for action in wanted if action in feasible), Action.OFF)


@dataclass(frozen=True)
class ResidualThreshold:
    """ALL when the residual is at or above the threshold, else OFF; steps down to FUSE where ALL does not fit.

    A view without a valid pixel is OFF. A threshold of 0 always writes.
    """

    threshold: float
    name: str = "RESIDUAL_THRESHOLD"
    fixed: bool = False
    keeps_arrivals: bool = False
    units: int = 1

    def choose(self, feedback: Feedback, feasible: Sequence[Action]) -> Action:
        """See above."""
        if feedback.residual is None or feedback.residual < self.threshold:
            return Action.OFF
        return next((action for action in (Action.ALL, Action.FUSE) if action in feasible), Action.OFF)


@dataclass(frozen=True)
class Random:
    """FUSE at as many arrivals as the budget holds, drawn at random: what a choice must beat at equal work.

    Each of k writes that fit into n steps falls on a step with probability k / n. The draw is a digest of what the
    policy may see, so it differs from scene to scene and repeats from run to run.
    """

    name: str = "RANDOM"
    fixed: bool = False
    keeps_arrivals: bool = False
    units: int = 1

    def choose(self, feedback: Feedback, feasible: Sequence[Action]) -> Action:
        """See above."""
        seen = {"features": dict(feedback.features), "step": feedback.step}
        draw = int(digest_value(seen, "random write")[:13], 16) / 16**13
        due = draw * feedback.steps_left < _affordable(feedback)
        return Action.FUSE if due and Action.FUSE in feasible else Action.OFF


@dataclass
class Even:
    """FUSE at as many arrivals as the budget holds, evenly spaced over the stream and ending with its last."""

    name: str = "EVEN"
    fixed: bool = False
    keeps_arrivals: bool = False
    units: int = 1
    planned: int = 0

    def choose(self, feedback: Feedback, feasible: Sequence[Action]) -> Action:
        """See above."""
        total = feedback.step + feedback.steps_left - 1
        if feedback.step == 1:
            self.planned = min(total, _affordable(feedback))
        due = feedback.step * self.planned // total > (feedback.step - 1) * self.planned // total
        return Action.FUSE if due and Action.FUSE in feasible else Action.OFF


def _affordable(feedback: Feedback) -> int:
    """How many FUSE writes the budget still holds."""
    return int(feedback.remaining // feedback.units[Action.FUSE])


@dataclass(frozen=True)
class Cache:
    """The control for OFF: keeps every arrival and rebuilds the state by the classical write at the seal.

    What FUSE gains over it is the gate's; what it gains over OFF comes of merely having the frames.
    """

    name: str = "CACHE"
    fixed: bool = False
    keeps_arrivals: bool = True
    units: int = 1

    def choose(self, feedback: Feedback, feasible: Sequence[Action]) -> Action:
        """OFF: nothing is written before the seal."""
        return Action.OFF


POLICIES = ("OFF", "FUSE", "COMPLETE", "ALL", "SCHEDULED", "RESIDUAL_THRESHOLD", "RANDOM", "EVEN", "LEARNED")
DIAGNOSTIC = ("ORACLE",)  # read the vault, so only runs that say so have them


def make_policy(name: str, *, residual_threshold: float = 0.03, writer: Any = None) -> WritePolicy:
    """The policy of that name.

    residual_threshold  for RESIDUAL_THRESHOLD
    writer              the loaded writer file, for LEARNED
    Raises UsageError for an unknown name, for LEARNED without a writer, and RefusedError for ORACLE, which reads the
    vault.
    """
    makers: dict[str, Callable[[], WritePolicy]] = {
        **{action.value: lambda action=action: Fixed(action) for action in Action},  # type: ignore[misc]
        "SCHEDULED": Scheduled,
        "RESIDUAL_THRESHOLD": lambda: ResidualThreshold(residual_threshold),
        "RANDOM": Random,
        "EVEN": Even,
        "CACHE": Cache,
    }
    if name == "ORACLE":
        raise RefusedError("policy ORACLE reads the vault, so no sealed run has it. Run it with --diagnostic.")
    if name == "LEARNED":
        if writer is None:
            raise UsageError('policy LEARNED needs writer = "<file>"')
        from skidpad.streaming.writer import Learned

        return Learned(writer.network, writer.price)
    if name not in makers:
        raise UsageError(f"policy {name!r} is unknown{nearest(name, POLICIES)}. Known: {', '.join(POLICIES)}.")
    return makers[name]()
