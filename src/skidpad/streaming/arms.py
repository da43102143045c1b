"""The arms of a sealed run: write policies, and the controls that stand beside them.

A control that watches a stream seals a state of its own (CACHE, MEAN_FIELD, WRONG_SCENE, SHUFFLED_POSES); the other two
are made of the renders of another arm's state when that is scored (CONSTANT_DEPTH, HARMONIC_FILL).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from skidpad.streaming.policies import DIAGNOSTIC, POLICIES

F32 = NDArray[np.float32]


@dataclass(frozen=True)
class Arm:
    """One row of a sealed run.

    name     as records spell it; a control beside an arm is "<arm>+<control>"
    policy   the write policy that runs, or whose state is rendered
    control  None for a policy
    """

    name: str
    policy: str
    control: str | None = None

    @property
    def kind(self) -> Literal["policy", "control", "diagnostic"]:
        if self.policy in DIAGNOSTIC:
            return "diagnostic"
        return "policy" if self.control is None else "control"

    @property
    def seals(self) -> bool:
        """Whether it has a state of its own; the others are made of `policy`'s."""
        return self.control not in ("CONSTANT_DEPTH", "HARMONIC_FILL")


def arms_of(policies: Sequence[str], controls: Sequence[str]) -> list[Arm]:
    """All arms, in one order however they are named: policies, then each control beside every arm it is for."""
    beside = {
        "CACHE": ["CACHE"],
        "MEAN_FIELD": ["ALL", "COMPLETE"],
        "WRONG_SCENE": ["ALL", "COMPLETE"],
        "SHUFFLED_POSES": ["FUSE"],
        "CONSTANT_DEPTH": ["OFF"],
        "HARMONIC_FILL": ["OFF", "FUSE"],
    }
    alone = ("CACHE", "CONSTANT_DEPTH")
    found = [Arm(name, name) for name in (*POLICIES, *DIAGNOSTIC) if name in policies]
    for control in sorted(controls):
        for policy in beside[control]:
            if control in alone or policy in policies:
                found.append(Arm(control if control in alone else f"{policy}+{control}", policy, control))
    return found


def constant(depth: float, rgb: Sequence[float], height: int, width: int) -> tuple[F32, F32, F32]:
    """Depth, rgb and opacity of CONSTANT_DEPTH: nothing is covered, so all counts as the fallback."""
    colours = np.broadcast_to(np.asarray(rgb, np.float32)[:, None, None], (3, height, width))
    return np.full((height, width), depth, np.float32), colours.copy(), np.zeros((height, width), np.float32)


def harmonic_fill(images: NDArray[Any], known: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(C, H, W) images with the pixels that are not `known` (H, W) as the solution of Laplace's equation between those
    that are; no flow through the border. Raises ValueError where nothing is known.

    Solved directly: a fixed number of sweeps would leave a large hole half filled.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.linalg import spsolve

    filled = np.array(images, np.float64)
    if known.all():
        return filled
    if not known.any():
        raise ValueError("harmonic_fill: no pixel is known, so there is nothing to fill from")
    height, width = known.shape
    place = np.full(known.shape, -1)
    place[~known] = np.arange(int((~known).sum()))
    rows, columns = np.nonzero(~known)
    count = len(rows)
    degree, right = np.zeros(count), np.zeros((count, len(images)))
    entries: list[tuple[NDArray[Any], NDArray[Any]]] = []
    for down, aside in ((0, 1), (0, -1), (1, 0), (-1, 0)):
        row, column = rows + down, columns + aside
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        degree += inside
        own, row, column = np.arange(count)[inside], row[inside], column[inside]
        given = known[row, column]
        np.add.at(right, own[given], filled[:, row[given], column[given]].T)
        entries.append((own[~given], place[row[~given], column[~given]]))
    i = np.concatenate([np.arange(count), *(own for own, _ in entries)])
    j = np.concatenate([np.arange(count), *(other for _, other in entries)])
    values = np.concatenate([degree, np.full(len(i) - count, -1.0)])
    solved = spsolve(coo_array((values, (i, j)), shape=(count, count)).tocsc(), right)
    filled[:, rows, columns] = solved.reshape(count, len(images)).T
    return filled
